"""The webhook of Telegram on the gateway's own server: who may post, and what is answered when."""

from __future__ import annotations

import asyncio
import gzip
import io
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession

from adapters.telegram import Link, Telegram, Webhook
from adapters.telegram.updates import ALLOWED
from adapters.web import Web
from gateway import config
from gateway.errors import ChannelStopped, ConfigError, StoreError
from gateway.feed import Feed
from tests.fakes.bot_api import BotApi, Status
from tests.fakes.core import QuickClock, Store, listening
from tests.fakes.web_face import Core

SECRET = "right_secret_0123456789"
HEADER = "X-Telegram-Bot-Api-Secret-Token"
HOOK = Webhook.of("telegram", "https://bot.example.org", SECRET)
RIGHT = {HEADER: SECRET}


@pytest.fixture
async def api() -> AsyncIterator[BotApi]:
    async with BotApi() as server:
        yield server
    assert server.violations == []


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
def clock() -> QuickClock:
    return QuickClock()


@pytest.fixture
async def channel(api: BotApi, store: Store, clock: QuickClock) -> AsyncIterator[Telegram]:
    telegram = Telegram(
        token=api.token, api_base=api.url, clock=clock, cursors=store.cursor, link=Link(webhook=HOOK)
    )
    yield telegram
    await telegram.close()


@pytest.fixture
async def address(channel: Telegram, clock: QuickClock) -> AsyncIterator[str]:
    """Where the server is; it has a token, which does not matter to the webhook."""
    web = Web(
        host="127.0.0.1",
        port=0,
        token="page",
        feed=Feed(),
        clock=clock,
        reads=Core(),
        routes=channel.doors(),
    )
    await web.start()
    yield f"{web.url}/telegram/webhook"
    await web.close()


@pytest.fixture
async def http() -> AsyncIterator[ClientSession]:
    async with ClientSession() as session:
        yield session


def update(text: str = "hello", number: int = 1) -> dict[str, Any]:
    person = {"id": 7, "is_bot": False, "first_name": "Ada"}
    chat = {"id": 7, "type": "private", "first_name": "Ada"}
    message = {"message_id": number, "date": 1, "chat": chat, "from": person, "text": text}
    return {"update_id": number, "message": message}


async def posted(http: ClientSession, address: str, body: Any, headers: dict[str, str]) -> int:
    data = body if isinstance(body, str | bytes) else json.dumps(body)
    async with http.post(
        address, data=io.BytesIO(data.encode() if isinstance(data, str) else data), headers=headers
    ) as answer:
        return answer.status


async def ready(api: BotApi) -> None:
    await api.until(lambda: bool(api.webhook))


async def test_the_platform_is_told_where_to_post_what_and_with_which_secret(
    api: BotApi, store: Store, channel: Telegram
) -> None:
    async with listening(channel, store):
        await ready(api)
        status = channel.status()
    (call,) = [call for call in api.calls if call.method == "setWebhook"]
    assert call.params == {
        "url": "https://bot.example.org/telegram/webhook",
        "secret_token": SECRET,
        "allowed_updates": list(ALLOWED),
        "max_connections": "1",
    }
    assert api.count("getUpdates") == 0
    assert (status["mode"], status["username"]) == ("webhook", "fake_bot")


@pytest.mark.parametrize("body", [pytest.param(update(), id="webhook-009")])
async def test_a_post_is_answered_after_its_commit(
    api: BotApi, channel: Telegram, address: str, http: ClientSession, body: dict[str, Any]
) -> None:
    committed = asyncio.Event()
    asked = asyncio.Event()

    async def accept(*_: Any, **__: Any) -> None:
        asked.set()
        await committed.wait()

    task = asyncio.create_task(channel.listen(accept))
    await ready(api)
    post = asyncio.create_task(posted(http, address, body, RIGHT))
    await asked.wait()
    assert not post.done()
    committed.set()
    assert await post == 200
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.parametrize(
    "headers",
    [
        pytest.param({}, id="webhook-001"),
        pytest.param({HEADER: ""}, id="an empty secret"),
        pytest.param({HEADER: "gutën"}, id="webhook-004"),
        pytest.param({HEADER: f"{SECRET} "[:-2]}, id="a shorter secret"),
        pytest.param({"Authorization": "Bearer page"}, id="the token of the page"),
    ],
)
async def test_who_does_not_know_the_secret_is_refused_and_nothing_is_stored(
    api: BotApi,
    store: Store,
    channel: Telegram,
    address: str,
    http: ClientSession,
    headers: dict[str, str],
) -> None:
    async with listening(channel, store):
        await ready(api)
        assert await posted(http, address, update(), headers) == 401
        assert channel.status()["refused"] == 1
    assert (store.calls, store.stimuli) == (0, [])


@pytest.mark.parametrize("text", [pytest.param("once", id="webhook-006")])
async def test_an_update_that_is_posted_twice_is_stored_once(
    api: BotApi, store: Store, channel: Telegram, address: str, http: ClientSession, text: str
) -> None:
    async with listening(channel, store):
        await ready(api)
        assert await posted(http, address, update(text), RIGHT) == 200
        assert await posted(http, address, update(text), RIGHT) == 200
    assert [one.text for one in store.stimuli] == [text]
    assert store.cursors == {}


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        pytest.param("{broken json", {}, 400, id="webhook-007"),
        pytest.param("[1]", {}, 400, id="no object"),
        pytest.param("[" * 100_000, {}, 400, id="too deep"),
        pytest.param(b"\xff\xfe\xfd", {}, 400, id="no text"),
        pytest.param({"message": {}}, {}, 400, id="no update id"),
        pytest.param(b"x" * (2**20 + 1), {}, 413, id="too large"),
        pytest.param(gzip.compress(b"{}" * 1000), {"Content-Encoding": "gzip"}, 415, id="packed"),
    ],
)
async def test_what_is_no_update_is_refused_and_counted(  # noqa: PLR0917 - fixtures and a table
    api: BotApi,
    store: Store,
    channel: Telegram,
    address: str,
    http: ClientSession,
    body: Any,
    headers: dict[str, str],
    status: int,
) -> None:
    async with listening(channel, store):
        await ready(api)
        assert await posted(http, address, body, RIGHT | headers) == status
        assert channel.status()["refused"] == 1
        assert await posted(http, address, update(), RIGHT) == 200
    assert [one.text for one in store.stimuli] == ["hello"]
    assert store.poison == []


async def test_a_large_post_without_a_length_is_refused_while_it_is_read(
    api: BotApi, store: Store, channel: Telegram, address: str, http: ClientSession
) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(40):
            yield b"x" * 2**16

    async with listening(channel, store):
        await ready(api)
        async with http.post(address, data=chunks(), headers=RIGHT) as answer:
            assert answer.status == 413


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "HEAD"])
async def test_only_posts_are_taken(
    api: BotApi, store: Store, channel: Telegram, address: str, http: ClientSession, method: str
) -> None:
    async with http.request(method, address, headers=RIGHT) as answer:
        assert (answer.status, answer.headers["Allow"]) == (405, "POST")


async def test_an_update_of_a_strange_shape_is_kept_aside(
    api: BotApi, store: Store, channel: Telegram, address: str, http: ClientSession
) -> None:
    async with listening(channel, store):
        await ready(api)
        assert await posted(http, address, {"update_id": 5, "message": {}}, RIGHT) == 200
    assert [one.key for one in store.poison] == ["telegram:123456:u5"]


async def test_what_can_not_be_stored_is_posted_again(
    api: BotApi, store: Store, channel: Telegram, address: str, http: ClientSession
) -> None:
    store.failures.append(StoreError("disk full"))
    async with listening(channel, store):
        await ready(api)
        assert await posted(http, address, update(), RIGHT) == 503
        assert await posted(http, address, update(), RIGHT) == 200
    assert [one.text for one in store.stimuli] == ["hello"]


async def test_while_nobody_listens_posts_are_to_come_again(
    api: BotApi, store: Store, channel: Telegram, address: str, http: ClientSession
) -> None:
    assert await posted(http, address, update(), RIGHT) == 503
    async with listening(channel, store):
        await ready(api)
    assert await posted(http, address, update(), RIGHT) == 503


async def test_posts_of_one_chat_keep_their_order(
    api: BotApi, store: Store, channel: Telegram, address: str, http: ClientSession
) -> None:
    async with listening(channel, store):
        await ready(api)
        for number in range(1, 20):
            assert await posted(http, address, update(str(number), number), RIGHT) == 200
    assert [one.text for one in store.stimuli] == [str(number) for number in range(1, 20)]


async def test_the_webhook_is_set_as_soon_as_the_platform_can_be_reached(
    api: BotApi, store: Store, channel: Telegram, clock: QuickClock
) -> None:
    api.fail("setWebhook", Status(502, body="<html>"), Status(429, "wait", {"retry_after": 3}))
    async with listening(channel, store):
        await ready(api)
    assert len(clock.waits) == 2
    assert clock.waits[1] >= 3


async def test_a_refused_token_stops_the_webhook_too(api: BotApi, store: Store, channel: Telegram) -> None:
    api.revoke()
    with pytest.raises(ChannelStopped):
        await channel.listen(store.accept)
    assert channel.status()["state"] == "stopped"


def test_several_processes_may_take_posts(channel: Telegram) -> None:
    assert channel.alone == ""


@pytest.mark.parametrize(
    ("name", "url", "expected"),
    [
        ("telegram", "https://a.org", ("https://a.org/telegram/webhook", "/telegram/webhook")),
        ("telegram", "https://a.org/", ("https://a.org/telegram/webhook", "/telegram/webhook")),
        ("telegram", "https://a.org/x", ("https://a.org/x", "/telegram/webhook")),
        (
            "telegram-my-bot",
            "https://a.org",
            ("https://a.org/telegram/webhook/my-bot", "/telegram/webhook/my-bot"),
        ),
    ],
)
def test_each_bot_has_a_path_of_its_own(name: str, url: str, expected: tuple[str, str]) -> None:
    hook = Webhook.of(name, url, SECRET)
    assert (hook.url, hook.path) == expected
    assert SECRET not in repr(hook)


@pytest.mark.parametrize(
    ("more", "named"),
    [
        pytest.param("", "set webhook_secret", id="webhook-003"),
        pytest.param('webhook_secret = ""', "set webhook_secret", id="telegram-poll-09"),
        ('webhook_secret = "short"', "16 to 256"),
        ('webhook_secret = "with spaces in between it"', "16 to 256"),
        (f'webhook_secret = "{SECRET}"\n[http]\nenabled = false', "http.enabled = true"),
    ],
)
def test_webhook_mode_does_not_start_without_a_secret_and_a_server(more: str, named: str) -> None:
    text = f'[channels.telegram]\ntoken = "1:x"\nwebhook_url = "https://a.org"\n{more}'
    with pytest.raises(ConfigError, match=named):
        config.parse(text, {}, Path("/"))


def test_a_webhook_without_encryption_is_refused() -> None:
    text = f'[channels.telegram]\ntoken = "1:x"\nwebhook_url = "http://a.org"\nwebhook_secret = "{SECRET}"'
    with pytest.raises(ConfigError, match="https://"):
        config.parse(text, {}, Path("/"))
