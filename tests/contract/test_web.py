"""The HTTP face, spoken to over real connections, with a core that only remembers."""

from __future__ import annotations

import asyncio
import io
import socket

import pytest
from aiohttp import ClientSession, web

from adapters.web import Web
from adapters.web.guard import LOCKED, TRIES
from adapters.web.server import LARGEST_BODY
from gateway.channel import Channel
from gateway.clock import SystemClock
from gateway.errors import ConfigError
from gateway.feed import (
    LIMIT,
    Delta,
    Feed,
    Restarted,
    ToolEnded,
    ToolStarted,
    TurnEnded,
    TurnGone,
    TurnStarted,
)
from gateway.types import Address, Button, JsonObject, Outgoing, Stimulus
from tests.fakes.web_face import MAIN, TOKEN, Core, eventually, face, stream


async def test_the_web_face_is_a_channel() -> None:
    async with face() as at:
        channel: Channel = at.web
        assert channel.name == "web"
        assert channel.pieces("x" * 100_000) == ["x" * 100_000]
        assert channel.status() == {"url": at.web.url, "watching": 0}


async def test_a_chat_message_is_stored_before_it_is_confirmed() -> None:
    async with face() as at:
        answer = await at.chat(message="hello")
        assert answer == {"success": True, "taskId": answer["taskId"], "session": "main"}
        assert answer["taskId"].startswith("task_")
        (stimulus,) = at.core.taken.values()
        assert stimulus.address == MAIN
        assert stimulus.text == "hello"
        assert stimulus.key == f"web:main:{answer['taskId']}"


async def test_two_messages_get_two_tasks() -> None:
    async with face() as at:
        assert (await at.chat(message="a"))["taskId"] != (await at.chat(message="a"))["taskId"]
        assert len(at.core.taken) == 2


async def test_the_same_id_is_taken_once() -> None:
    async with face() as at:
        first = await at.chat(message="a", id="id-1", session="work")
        assert await at.chat(message="a", id="id-1", session="work") == first
        assert len(at.core.taken) == 1
        await at.chat(message="a", id="id-1", session="other")
        assert len(at.core.taken) == 2


@pytest.mark.parametrize(
    "body",
    [
        b"", b"{", b"[]", b'"text"', b"{}", b'{"message":""}', b'{"message":" \\n"}', b'{"message":"\\u0000"}',
        b'{"message":1}', b'{"message":null}', b'{"message":["a"]}', b'{"message":"a","session":"../x"}',
        b'{"message":"a","session":""}', b'{"message":"a","session":1}', b'{"message":"a","id":"a b"}',
        b'{"message":"a","wait":1}', b'{"message":"a","x":NaN}', b'\xff{"message":"a"}',
        pytest.param(b'{"message":' + b"[" * 100_000 + b"]" * 100_000 + b"}", id="size-003"),
        pytest.param(b'{"message":' + b"9" * 1_000_000 + b"}", id="size-004"),
    ],
)  # fmt: skip
async def test_a_body_that_makes_no_sense_is_refused(body: bytes) -> None:
    async with face() as at:
        assert (
            await at.status("POST", "/api/chat", data=body, headers={"Content-Type": "application/json"})
            == 400
        )
        assert not at.core.taken


@pytest.mark.parametrize("size", [LARGEST_BODY + 1, 10_000_000])
async def test_a_body_beyond_the_limit_is_refused(size: int) -> None:
    async with face() as at:
        body = b'{"message":"' + b"x" * size + b'"}'
        headers = {"Content-Type": "application/json"}
        assert await at.status("POST", "/api/chat", data=io.BytesIO(body), headers=headers) == 413
        assert not at.core.taken


async def test_a_body_just_below_the_limit_is_taken() -> None:
    async with face() as at:
        await at.chat(message="x" * (LARGEST_BODY - 100))
        assert len(at.core.taken) == 1


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data"])
async def test_only_json_is_taken(kind: str) -> None:
    async with face() as at:
        for path in ("/api/chat", "/api/stop"):
            assert (
                await at.status("POST", path, data=b'{"message":"a"}', headers={"Content-Type": kind}) == 415
            )


async def test_text_that_no_database_holds_is_made_storable() -> None:
    """text-009."""
    async with face() as at:
        body = b'{"message":"a\\u0000b \\ud800 \\ud83e\\udd9e"}'
        async with at.client.post(
            at.url("/api/chat"), data=body, headers={"Content-Type": "application/json"}
        ) as response:
            assert response.status == 200
        (stimulus,) = at.core.taken.values()
        assert stimulus.text == "ab \ufffd \N{LOBSTER}"


async def test_before_the_core_listens_a_message_is_put_off() -> None:
    async with face() as at:
        at.listening.cancel()
        await asyncio.gather(at.listening, return_exceptions=True)
        async with at.client.post(at.url("/api/chat"), json={"message": "a"}) as response:
            assert (response.status, response.headers["Retry-After"]) == (503, "1")
        async with at.client.get(at.url("/readyz")) as response:
            assert (response.status, await response.json()) == (503, {"ok": False, "status": "starting"})


async def test_a_message_that_could_not_be_stored_is_not_confirmed() -> None:
    async with face() as at:
        at.core.broken = True
        async with at.client.post(at.url("/api/chat"), json={"message": "a"}) as response:
            assert response.status == 503
            assert "disk full" not in await response.text()
            assert response.headers["Retry-After"]


async def test_wait_returns_the_reply_of_the_turn_that_took_the_message() -> None:
    async with face() as at:

        async def answer(stimulus: Stimulus) -> None:
            at.feed.publish(stimulus.address, TurnEnded("another", keys=("web:main:task_other",)))
            at.feed.publish(Address("web", "work"), TurnEnded("elsewhere", keys=(stimulus.key,)))
            at.feed.publish(stimulus.address, TurnEnded("4", keys=("heartbeat:1", stimulus.key)))

        at.core.on_stimulus = answer
        reply = await at.chat(message="2+2", id="sum", wait=True)
        assert reply == {"success": True, "taskId": "task_sum", "session": "main", "reply": "4"}


async def test_wait_says_when_the_turn_failed() -> None:
    async with face() as at:

        async def fail(stimulus: Stimulus) -> None:
            at.feed.publish(stimulus.address, TurnEnded("the model is busy", (stimulus.key,), is_error=True))

        at.core.on_stimulus = fail
        reply = await at.chat(message="a", wait=True)
        assert (reply["success"], reply["reply"]) == (False, "the model is busy")


async def test_wait_returns_the_answer_of_a_command() -> None:
    async with face() as at:

        async def command(stimulus: Stimulus) -> None:
            await at.send("noise")
            await at.send("/help shows this", key=f"command:{stimulus.key}")

        at.core.on_stimulus = command
        assert (await at.chat(message="/help", wait=True))["reply"] == "/help shows this"


async def test_wait_ends_as_pending() -> None:
    async with face(patience=0.01) as at:
        reply = await at.chat(message="long work", wait=True)
        assert reply["success"]
        assert reply["pending"]
        assert "reply" not in reply


async def test_wait_for_a_message_that_was_answered_before_returns_at_once() -> None:
    async with face() as at:
        at.core.answers["web:main:task_again"] = "done long ago"
        assert (await at.chat(message="a", id="again", wait=True))["reply"] == "done long ago"


QUESTION: JsonObject = {
    "text": "May I?",
    "name": "approval:abcd",
    "buttons": [[["Allow once", "approve:abcd"], ["Deny", "deny:abcd"]]],
}


@pytest.mark.parametrize("told", ["the turn lets go", "the question is delivered", "another node does it"])
async def test_wait_ends_soon_with_the_question_that_must_be_answered_first(told: str) -> None:
    async with face(ping=0.01 if told == "another node does it" else 15.0) as at:

        async def wait(stimulus: Stimulus) -> None:
            at.core.questions_of[stimulus.key] = QUESTION
            if told == "the turn lets go":
                at.feed.publish(stimulus.address, TurnGone("1.1"))
            elif told == "the question is delivered":
                await at.web.send(
                    Outgoing(
                        key="approval:abcd",
                        address=MAIN,
                        text="May I?",
                        buttons=((Button("Deny", "deny:abcd"),),),
                    )
                )

        at.core.on_stimulus = wait
        answer = await at.chat(message="uptime", id="up", wait=True)
        assert answer == {
            "success": True,
            "taskId": "task_up",
            "session": "main",
            "pending": True,
            "question": QUESTION,
        }
        assert await at.chat(message="uptime", id="up", wait=True) == answer, "sent again it is open still"


async def test_wait_ends_at_once_with_what_is_said_about_a_turn_that_waits_for_tomorrow() -> None:
    async with face() as at:

        async def put_off(stimulus: Stimulus) -> None:
            at.core.notices[stimulus.key] = "Today’s budget is used up."
            at.feed.publish(stimulus.address, TurnGone("1.1"))

        at.core.on_stimulus = put_off
        answer = await at.chat(message="a", id="late", wait=True)
        assert answer == {
            "success": True,
            "taskId": "task_late",
            "session": "main",
            "pending": True,
            "notice": "Today’s budget is used up.",
        }
        assert await at.chat(message="a", id="late", wait=True) == answer, "sent again it still waits"


async def test_wait_goes_on_when_another_turn_lets_go_or_this_one_begins_again() -> None:
    async with face() as at:

        async def answer(stimulus: Stimulus) -> None:
            at.feed.publish(stimulus.address, TurnGone("1.1"))
            at.feed.publish(stimulus.address, TurnEnded("4", keys=(stimulus.key,)))

        at.core.on_stimulus = answer
        assert (await at.chat(message="2+2", wait=True))["reply"] == "4"


async def test_wait_goes_on_while_the_store_takes_nothing() -> None:
    async with face() as at:

        async def answer(stimulus: Stimulus) -> None:
            at.core.deaf = True
            at.feed.publish(stimulus.address, TurnGone("1.1"))
            at.feed.publish(stimulus.address, TurnEnded("4", keys=(stimulus.key,)))

        at.core.on_stimulus = answer
        assert (await at.chat(message="2+2", wait=True))["reply"] == "4"


async def test_wait_ends_when_its_turn_was_stopped() -> None:
    async with face() as at:

        async def stop(stimulus: Stimulus) -> None:
            at.core.answers[stimulus.key] = ""
            at.feed.publish(stimulus.address, TurnGone("1.1"))

        at.core.on_stimulus = stop
        assert (await at.chat(message="a", wait=True))["reply"] == ""


async def test_wait_ends_when_the_server_closes() -> None:
    async with face() as at:
        waiting = asyncio.create_task(at.chat(message="a", wait=True))
        await eventually(lambda: bool(at.core.taken))
        await at.web.close()
        assert (await waiting)["pending"]


async def test_a_watcher_is_told_what_a_turn_does_in_order() -> None:
    async with face() as at, stream(at) as events:
        assert events.response.headers["Content-Type"] == "text/event-stream"
        assert events.response.headers["Cache-Control"] == "no-cache"
        task = (await at.chat(message="read it", id="1"))["taskId"]
        for event in (
            TurnStarted(),
            Delta("on"),
            Restarted(),
            Delta("one\ntwo"),
            ToolStarted(
                "read_file",
                {"path": "a.txt", "text": "x" * 500, "n": 3, "nan": float("nan"), "deep": {"a": [1]}},
            ),
            ToolEnded("read_file", is_error=True),
            TurnEnded("all", keys=("heartbeat:1", f"web:main:{task}")),
        ):
            at.feed.publish(MAIN, event)
        await at.send("all", task=task)
        args = {"path": "a.txt", "text": "x" * 200 + "…", "n": 3, "nan": "NaN", "deep": '{"a":[1]}'}
        assert await events.until("message") == [
            {"type": "progress", "status": "accepted", "taskId": task, "message": "read it"},
            {"type": "progress", "status": "thinking"},
            {"type": "delta", "text": "on"},
            {"type": "restart"},
            {"type": "delta", "text": "one\ntwo"},
            {"type": "tool_start", "name": "read_file", "args": args},
            {"type": "tool_end", "name": "read_file", "error": True},
            {"type": "task_complete", "taskId": task, "result": "all"},
            {"type": "message", "id": 1, "text": "all", "taskId": task},
        ]
        assert events.last_id == 1


async def test_the_end_of_a_failed_turn_and_of_a_turn_without_a_task_is_told() -> None:
    async with face() as at, stream(at) as events:
        at.feed.publish(MAIN, TurnEnded("busy", ("web:main:task_1",), is_error=True))
        at.feed.publish(MAIN, TurnEnded("", ("heartbeat:main:1",)))
        assert await events.next() == {"type": "task_error", "taskId": "task_1", "error": "busy"}
        assert await events.next() == {"type": "progress", "status": "done"}


async def test_a_watcher_sees_only_its_session() -> None:
    async with face() as at, stream(at, "?session=work") as events:
        at.feed.publish(MAIN, Delta("secret of main"))
        await at.send("secret of main")
        at.feed.publish(Address("web", "work"), Delta("mine"))
        assert await events.next() == {"type": "delta", "text": "mine"}


@pytest.mark.parametrize("how", ["header", "query"])
async def test_missed_replies_are_replayed_in_order(how: str) -> None:
    async with face() as at:
        for text in ("one", "two", "three"):
            await at.send(text)
        await at.send("of another session", session="work")
        query = "?after=1" if how == "query" else ""
        headers = {"Last-Event-ID": "1"} if how == "header" else {}
        async with stream(at, query, headers=headers) as events:
            assert [(await events.next())["text"] for _ in range(2)] == ["two", "three"]
            assert events.last_id == 3
            await at.send("four")
            assert (await events.next())["id"] == 5


async def test_a_new_watcher_starts_at_now() -> None:
    async with face() as at:
        await at.send("old")
        async with stream(at) as events:
            assert events.last_id == 1
            await at.send("new")
            assert (await events.next())["text"] == "new"


async def test_a_reply_is_shown_once_even_if_it_is_delivered_twice() -> None:
    async with face() as at, stream(at) as events:
        message = at.core.queue("main", "once")
        await at.web.send(message)
        await at.web.send(message)
        await at.send("next")
        assert [(await events.next())["text"] for _ in range(2)] == ["once", "next"]


async def test_a_quiet_stream_is_pinged_and_finds_replies_of_other_nodes() -> None:
    async with face(ping=0.01) as at, stream(at) as events:
        assert await events.response.content.readuntil(b"\n\n") == b": ping\n\n"
        at.core.queue("main", "delivered elsewhere")
        assert (await events.next())["text"] == "delivered elsewhere"


@pytest.mark.parametrize("query", ["?session=a/b", "?session=", "?after=x", "?after=-1"])
async def test_a_stream_of_nonsense_is_refused(query: str) -> None:
    async with face() as at:
        assert await at.status("GET", "/sse" + query) == 400


async def test_a_watcher_too_far_behind_is_dropped() -> None:
    async with face() as at:
        async with stream(at) as events:
            for _ in range(LIMIT + 1):
                at.feed.publish(MAIN, Delta("x"))
            await events.response.content.read()
        await eventually(lambda: not at.web.status()["watching"])
        assert not at.feed.watched(MAIN)


async def test_a_client_that_leaves_is_forgotten() -> None:
    async with face(ping=0.01) as at:
        async with stream(at):
            assert at.feed.watched(MAIN)
        await eventually(lambda: not at.feed.watched(MAIN))
        assert at.web.status()["watching"] == 0


async def test_http_021_a_new_token_needs_a_restart_which_ends_open_streams_at_once() -> None:
    async with face() as at, stream(at) as events:
        async with asyncio.timeout(1):
            await at.web.close()
        assert await events.response.content.read() == b""
        assert not at.feed.watched(MAIN)


async def test_a_stream_ends_when_the_store_fails_so_that_the_client_comes_back() -> None:
    async with face() as at, stream(at) as events:
        at.core.broken = True
        await at.send("later")
        assert await events.response.content.read() == b""
        at.core.broken = False
        async with stream(at, headers={"Last-Event-ID": str(events.last_id)}) as again:
            assert (await again.next())["text"] == "later"


async def test_stop_reaches_the_session() -> None:
    async with face() as at:
        async with at.client.post(at.url("/api/stop"), json={"session": "work"}) as response:
            assert await response.json() == {"stopped": 1}
        assert at.core.stopped == [Address("web", "work")]
        assert await at.status("POST", "/api/stop", json={"session": "a:b"}) == 400


async def test_sessions_and_messages_are_listed() -> None:
    async with face() as at:
        at.core.rows = [{"seq": n, "role": "user", "text": str(n), "at": 0.0} for n in range(1, 301)]
        async with at.client.get(at.url("/api/sessions?limit=1")) as response:
            assert await response.json() == {"sessions": [{"session": "main", "at": 2.0}]}
        for query, first, count in (("", 251, 50), ("?limit=2&before=10", 8, 2), ("?limit=9999", 101, 200)):
            async with at.client.get(at.url("/api/sessions/main/messages" + query)) as response:
                rows = (await response.json())["messages"]
                assert (rows[0]["seq"], len(rows)) == (first, count)
                assert response.headers["Cache-Control"] == "no-store"
        for bad in (
            "main/messages?limit=x",
            "main/messages?before=1e3",
            "a%2F..%2Fb/messages",
            "a:b/messages",
        ):
            assert await at.status("GET", f"/api/sessions/{bad}") in (400, 404)


async def test_probes_answer_without_a_token() -> None:
    """http-022."""
    async with face(token=TOKEN, auth=False) as at:
        async with at.client.get(at.url("/healthz"), headers={"Host": "10.0.0.7"}) as response:
            assert (response.status, await response.json()) == (200, {"ok": True, "status": "live"})
            assert "aiohttp" not in str(response.headers)
        async with at.client.get(at.url("/readyz")) as response:
            assert (response.status, await response.json()) == (200, {"ok": True, "status": "ready"})
        at.core.status = "degraded"
        async with at.client.get(at.url("/readyz")) as response:
            assert (response.status, await response.json()) == (503, {"ok": False, "status": "degraded"})
        assert await at.status("GET", "/api/health") == 401


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/api/conversations"), ("GET", "/api/sessions"), ("GET", "/api/sessions/main/messages"), ("GET", "/sse"),
        ("POST", "/api/chat"), ("POST", "/api/stop"), ("GET", "/api/health"),
    ],
)  # fmt: skip
async def test_without_the_token_nothing_is_told(method: str, path: str) -> None:
    """http-001, http-016."""
    async with face(token=TOKEN, auth=False) as at:
        for headers in (
            {},
            {"X-Forwarded-For": "127.0.0.1", "X-Real-IP": "127.0.0.1", "Forwarded": "for=127.0.0.1"},
            {"Authorization": f"Basic {TOKEN}"},
            {"Authorization": "Bearer "},
            {"Cookie": f"token={TOKEN}"},
        ):
            assert await at.status(method, path, headers=headers) == 401
        assert await at.status(method, f"{path}?token={TOKEN}") == 401
        right = {"Authorization": f"Bearer {TOKEN}"}
        assert await at.status(method, f"{path}?access_token={TOKEN}", headers=right) == 401
        assert not at.core.taken


async def test_the_token_opens() -> None:
    async with face(token=TOKEN) as at:
        assert (await at.chat(message="a"))["success"]
        headers = {"Authorization": f"bearer  {TOKEN} "}
        assert await at.status("GET", "/api/sessions", headers=headers) == 200


async def test_guessing_tokens_locks_the_guesser_out() -> None:
    """http-003."""
    async with face(token=TOKEN, auth=False) as at:
        statuses = [
            await at.status("GET", "/api/sessions", headers={"Authorization": f"Bearer guess{n}"})
            for n in range(30)
        ]
        assert statuses == [401] * TRIES + [429] * (30 - TRIES)
        right = {"Authorization": f"Bearer {TOKEN}"}
        async with at.client.get(at.url("/api/sessions"), headers=right) as response:
            assert response.status == 429
            assert 0 < int(response.headers["Retry-After"]) <= LOCKED + 1
        assert await at.status("GET", "/healthz") == 200


@pytest.mark.parametrize(
    "origin",
    [
        pytest.param("https://evil.test", id="http-006"),
        pytest.param("null", id="http-007"),
        "http://localhost.evil.test",
        "http://127.0.0.1:1",
        "file://",
        "chrome-extension://abc",
        "http://[::1",
    ],
)
@pytest.mark.parametrize("token", ["", TOKEN])
async def test_other_sites_are_refused(origin: str, token: str) -> None:
    async with face(token=token) as at:
        headers = {"Origin": origin, "Cookie": "session=valid"}
        for method, path in (
            ("POST", "/api/send"),
            ("POST", "/api/chat"),
            ("GET", "/sse"),
            ("GET", "/api/sessions"),
            ("GET", "/"),
        ):
            async with at.client.request(
                method, at.url(path), json={"message": "a"}, headers=headers
            ) as response:
                assert response.status == 403
                assert not [name for name in response.headers if name.startswith("Access-Control")]
        async with at.client.options(at.url("/api/chat"), headers=headers) as response:
            assert response.status == 403
        assert not at.core.taken


async def test_the_page_itself_may_write() -> None:
    """http-013: and even then no answer names an origin."""
    async with face() as at:
        headers = {"Origin": at.web.url}
        async with at.client.post(at.url("/api/chat"), json={"message": "a"}, headers=headers) as response:
            assert response.status == 200
            assert not [name for name in response.headers if name.startswith("Access-Control")]


@pytest.mark.parametrize(
    "host", ["evil.test", "evil.test:8787", "127.0.0.1.evil.test", "localhost.evil.test", "x@evil.test", "["]
)
async def test_another_name_of_this_server_is_refused(host: str) -> None:
    """http-010."""
    for token in ("", TOKEN):
        async with face(token=token) as at:
            for path in ("/", "/api/sessions", "/sse"):
                assert await at.status("GET", path, headers={"Host": host, "Cookie": "session=valid"}) == 421


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:8787", "127.0.0.1", "[::1]:8787", "localhost."])
async def test_names_of_this_machine_are_taken(host: str) -> None:
    async with face() as at:
        assert await at.status("GET", "/api/sessions", headers={"Host": host}) == 200


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        pytest.param("GET", "/api/approve?id=1", 404, id="http-009"),
        pytest.param("GET", "/api/chat", 405, id="http-009-chat"),
        pytest.param("GET", "/api/stop", 405, id="http-009-stop"),
        pytest.param("GET", "/static/..%2f..%2fconfig.toml", 404, id="http-019"),
        pytest.param("GET", "/..%2fweb%2fguard.py", 404, id="http-019-package"),
        pytest.param("GET", "/ws", 404, id="http-012"),
        ("HEAD", "/", 405),
        ("PUT", "/api/chat", 405),
        ("DELETE", "/api/sessions", 405),
        ("OPTIONS", "/api/chat", 405),
        ("GET", "/server.py", 404),
    ],
)
async def test_what_is_not_there_or_takes_another_method_is_refused(
    method: str, path: str, status: int
) -> None:
    async with face() as at, at.client.request(method, at.url("") + path) as response:
        assert response.status == status
        assert ("Allow" in response.headers) == (status == 405)
        assert not at.core.taken
        assert not at.core.stopped


async def test_the_page_is_harmless_wherever_it_is_opened_from() -> None:
    """http-015: the page is the same whatever its URL says."""
    async with face(token=TOKEN, auth=False) as at:
        pages = []
        for query in ("", "?gatewayUrl=wss://evil.test/&token=evil#token=evil"):
            async with at.client.get(at.url("/") + query) as response:
                assert (response.status, response.content_type) == (200, "text/html")
                policy = response.headers["Content-Security-Policy"]
                assert "default-src 'none'" in policy
                assert "script-src 'self';" in policy
                assert "frame-ancestors 'none'" in policy
                assert response.headers["X-Content-Type-Options"] == "nosniff"
                assert response.headers["Referrer-Policy"] == "no-referrer"
                pages.append(await response.text())
        assert pages[0] == pages[1]
        for path, kind in (
            ("/page.js", "text/javascript"),
            ("/page.css", "text/css"),
            ("/icon.svg", "image/svg+xml"),
        ):
            async with at.client.get(at.url(path)) as response:
                assert (response.status, response.content_type) == (200, kind)
                text = await response.text()
                assert text
                for word in (
                    "innerHTML",
                    "location.search",
                    "location.hash",
                    "location.href",
                    "http://",
                    "eval(",
                ):
                    assert word not in text.replace("http://www.w3.org/2000/svg", "")


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "", "192.0.2.1", "example.org"])
def test_a_host_beyond_loopback_needs_a_token(host: str) -> None:
    """http-018."""

    def make(token: str) -> Web:
        return Web(host=host, port=0, token=token, feed=Feed(), clock=SystemClock(), reads=Core())

    with pytest.raises(ConfigError, match="token"):
        make("")
    assert TOKEN not in repr(make(TOKEN))


async def test_a_server_on_every_address_goes_by_any_name_but_not_without_its_token() -> None:
    server = Web(host="0.0.0.0", port=0, token=TOKEN, feed=Feed(), clock=SystemClock(), reads=Core())
    await server.start()
    url = server.url.replace("0.0.0.0", "127.0.0.1") + "/api/sessions"
    try:
        async with ClientSession(
            headers={"Host": "bot.lan:8787", "Origin": "https://bot.lan:8787"}
        ) as client:
            async with client.get(url) as response:
                assert response.status == 401
            async with client.get(url, headers={"Authorization": f"Bearer {TOKEN}"}) as response:
                assert response.status == 200
    finally:
        await server.close()


async def test_a_busy_port_is_explained() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        server = Web(host="127.0.0.1", port=port, token="", feed=Feed(), clock=SystemClock(), reads=Core())
        with pytest.raises(ConfigError, match=rf"port {port} on 127.0.0.1 is in use; set \[http\] port"):
            await server.start()
        await server.close()


async def test_routes_of_others_guard_themselves() -> None:
    async def hook(request: web.Request) -> web.Response:
        if not await request.read():
            raise web.HTTPForbidden(text="hook says no")
        return web.Response(text="hook")

    async with face(token=TOKEN, auth=False, routes=[web.post("/slack/events", hook)]) as at:
        url, headers = at.url("/slack/events"), {"Host": "bot.example.org", "Content-Type": "text/plain"}
        async with at.client.post(url, data=b"x" * 100_000, headers=headers) as response:
            assert (response.status, await response.text()) == (200, "hook")
        async with at.client.post(url, headers=headers) as response:
            assert (response.status, await response.text()) == (403, "hook says no")
        async with at.client.post(
            url, data=io.BytesIO(b"x" * (LARGEST_BODY + 1)), headers=headers
        ) as response:
            assert response.status == 413


CARD: JsonObject = {
    "name": "approval:abcd",
    "buttons": [[["Allow once", "approve:abcd"], ["Deny", "deny:abcd"]]],
}


async def test_a_question_is_told_with_its_buttons_and_again_to_whoever_comes_later() -> None:
    async with face() as at, stream(at) as events:
        await at.send("May I?", **CARD)
        card = {"type": "message", "id": 1, "text": "May I?", "taskId": "", **CARD}
        assert await events.next() == card
        at.core.open = {"approval:abcd"}
        async with stream(at) as later:
            assert await later.next() == card
        async with stream(at, "?after=1") as known:
            await at.send("Denied", replaces="approval:abcd")
            settled = {
                "type": "message",
                "id": 2,
                "text": "Denied",
                "taskId": "",
                "replaces": "approval:abcd",
            }
            assert await known.next() == settled, "who has read it is not told of it again"
        at.core.open = set()
        async with stream(at) as after:
            await at.send("hello")
            assert (await after.next())["text"] == "hello"


async def test_the_plan_of_a_task_is_told() -> None:
    async with face() as at, stream(at) as events:
        at.feed.publish(MAIN, ToolEnded("todo", is_error=False, plan="[>] mend"))
        assert await events.next() == {"type": "tool_end", "name": "todo", "error": False, "plan": "[>] mend"}
