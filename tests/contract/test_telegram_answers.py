"""What the client makes of strange answers, and of texts and names that no request can hold as they are."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest

from adapters.telegram.client import Api
from adapters.telegram.errors import Unreachable
from adapters.telegram.methods import Method, Upload
from gateway.errors import ChannelStopped, DeliveryError, DeliveryRetry, DeliveryUnsure, SendError
from tests.fakes.bot_api import TOKEN, BotApi

HELLO = Method("sendMessage", {"chat_id": "7", "text": "hello"})
DONE = '{"ok": true, "result": {"message_id": 5}}'
PASSWORD = "pass-w0rd"


@dataclass(frozen=True, slots=True)
class Rough:
    """Answers of a server, byte for byte."""

    port: int
    answers: list[bytes]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


def http(status: int, body: str | bytes, *headers: str) -> bytes:
    content = body if isinstance(body, bytes) else body.encode()
    lines = (f"HTTP/1.1 {status} Told", f"Content-Length: {len(content)}", "Connection: close", *headers)
    return "\r\n".join((*lines, "", "")).encode() + content


def refusal(status: int, **fields: object) -> bytes:
    return http(status, json.dumps({"ok": False, **fields}))


@asynccontextmanager
async def rough() -> AsyncIterator[Rough]:
    answers: list[bytes] = []

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        sizes = [line[15:] for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
        answer = answers.pop(0)
        if b" 413 " not in answer[:20]:  # which comes before the body was read
            await reader.readexactly(int(sizes[0]) if sizes else 0)
        writer.write(answer)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    async with server:
        yield Rough(server.sockets[0].getsockname()[1], answers)


@asynccontextmanager
async def api_of(url: str, proxy: str = "") -> AsyncIterator[Api]:
    api = Api(TOKEN, url, proxy=proxy)
    yield api
    await api.close()


async def failure_of(answer: bytes, method: Method = HELLO) -> SendError:
    """Return what is raised for an answer."""
    async with rough() as server, api_of(server.url) as api:
        server.answers.append(answer)
        with pytest.raises(SendError) as caught:
            await api.call(method, limit=20)
    assert TOKEN.partition(":")[2] not in str(caught.value)
    assert caught.value.__context__ is None
    return caught.value


@pytest.mark.parametrize(
    "answer",
    [
        http(200, b"\xef\xbb\xbf" + DONE.encode()),
        http(200, DONE, "Content-Type: text/html; charset=nonsense"),
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
        b"5\r\n" + DONE[:5].encode() + b"\r\n%x\r\n" % len(DONE[5:]) + DONE[5:].encode() + b"\r\n0\r\n\r\n",
        b"HTTP/1.0 200 OK\r\n\r\n" + DONE.encode(),
    ],
    ids=["byte order mark", "strange type", "chunks", "no length"],
)
async def test_an_answer_is_read_however_it_is_packed(answer: bytes) -> None:
    async with rough() as server, api_of(server.url) as api:
        server.answers.append(answer)
        assert await api.call(HELLO) == {"message_id": 5}


@pytest.mark.parametrize(
    "answer",
    [
        http(200, DONE)[:-3],
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{",
        http(200, "[" * 100_000),
        http(200, '{"ok": true, "result": ' + "9" * 5000 + "}"),
        http(200, b'{"ok": true, "result": "\xff"}'),
        http(200, "<html>Sign in to the WLAN</html>"),
        http(200, b"not packed", "Content-Encoding: gzip"),
        http(500, DONE),
        http(502, "<html>Bad Gateway</html>"),
        http(200, '{"ok": false, "error_code": 502, "description": "Bad Gateway"}'),
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"",
    ],
    ids=[
        *("cut off", "cut chunk", "deep", "huge number", "not UTF-8", "html", "not gzip", "ok with 500"),
        *("bad gateway", "502 as 200", "another protocol", "hung up"),
    ],
)
async def test_after_an_answer_that_can_not_be_trusted_nobody_knows(answer: bytes) -> None:
    failure = await failure_of(answer)
    assert isinstance(failure, DeliveryUnsure)
    assert "\n" not in str(failure)


@pytest.mark.parametrize("status", [301, 302, 307, 308])
async def test_a_redirect_is_not_followed_and_the_text_tells_where_it_leads(status: int) -> None:
    to = f"Location: https://bots.example.org/bot{TOKEN}/sendMessage"
    failure = await failure_of(http(status, "<html>", to))
    assert isinstance(failure, DeliveryRetry)
    assert str(failure) == (
        f"HTTP {status} without the JSON of a Bot API server, a redirect to https://bots.example.org: "
        "check api_base and proxy"
    )


@pytest.mark.parametrize("status", [403, 404, 407])
async def test_what_is_refused_before_the_platform_was_surely_not_taken(status: int) -> None:
    failure = await failure_of(http(status, "<html>No</html>"))
    assert isinstance(failure, DeliveryRetry)
    assert "check api_base and proxy" in str(failure)


async def test_a_request_that_is_too_large_for_a_server_in_between_is_refused_for_good() -> None:
    upload = Method("sendDocument", {"document": "attach://f"}, {"f": Upload(bytes(5_000_000), "a.bin")})
    failure = await failure_of(http(413, "<html>Request Entity Too Large</html>"), upload)
    assert type(failure) is DeliveryError
    assert "413" in str(failure)


@pytest.mark.parametrize(
    ("answer", "after"),
    [
        (refusal(429, parameters={"retry_after": 35}), 35),
        (refusal(429, parameters={"retry_after": "35"}), 35),
        (refusal(429, parameters={"retry_after": 0.5}), 0.5),
        (refusal(429, parameters={"retry_after": True}), 5),
        (refusal(429, parameters={"retry_after": -3}), 5),
        (refusal(429, parameters={"retry_after": [35]}), 5),
        (http(429, '{"ok": false, "parameters": {"retry_after": NaN}}'), 5),
        (http(429, '{"ok": false, "parameters": {"retry_after": 1e999}}'), 5),
        (http(429, f'{{"ok": false, "parameters": {{"retry_after": {"9" * 400}}}}}'), 5),
        (refusal(429, parameters={"retry_after": 10**9}), 86_400),
        (http(429, "<html>Slow down</html>", "Retry-After: 7"), 7),
        (http(429, "<html>Slow down</html>", "Retry-After: Wed, 21 Oct 2026 07:28:00 GMT"), 5),
        (refusal(200, error_code=429, parameters={"retry_after": 35}), 35),
    ],
)
async def test_a_request_to_wait_is_understood_in_every_form(answer: bytes, after: float) -> None:
    failure = await failure_of(answer)
    assert isinstance(failure, DeliveryRetry)
    assert failure.after == after


async def test_a_refused_token_is_known_though_something_answers_200_to_everything() -> None:
    failure = await failure_of(refusal(200, error_code=401, description="Unauthorized"))
    assert isinstance(failure, ChannelStopped)


async def test_the_words_of_a_refusal_can_be_stored() -> None:
    failure = await failure_of(refusal(400, description="Bad \ud83d Request:\n\0 no"))
    assert str(failure) == "Bad � Request: no"


@pytest.mark.parametrize("base", ["https://api.telegram.org", "http://api.telegram.org"])
async def test_a_proxy_that_refuses_us_lets_nothing_through_and_its_password_is_not_told(base: str) -> None:
    async with rough() as proxy, api_of(base, f"http://me:{PASSWORD}@127.0.0.1:{proxy.port}") as api:
        proxy.answers.append(http(407, "", "Proxy-Authenticate: Basic"))
        with pytest.raises(DeliveryRetry) as caught:
            await api.call(HELLO)
    assert isinstance(caught.value, Unreachable) is base.startswith("https")
    assert "407" in str(caught.value)
    assert PASSWORD not in str(caught.value)


async def test_half_a_character_does_not_cost_the_message() -> None:
    async with BotApi() as server, api_of(server.url) as api:
        buttons = {"inline_keyboard": [[{"text": "\ud83d!", "callback_data": "y"}]]}
        await api.call(Method("sendMessage", {"chat_id": "7", "text": "a\ud83d", "reply_markup": buttons}))
        (sent,) = server.sent
    assert sent.text == "a�"
    assert sent.params["reply_markup"]["inline_keyboard"][0][0]["text"] == "�!"


@pytest.mark.parametrize(
    ("name", "seen"),
    [
        ('the "best" of.txt', 'the "best" of.txt'),
        ("two\nlines\r\nX-Evil: 1.txt", "two_lines__X-Evil: 1.txt"),
        ("näme 日本 👍.txt", "näme 日本 👍.txt"),
        ("half \ud83d.txt", "half �.txt"),
        ("back\\slash.txt", "back\\slash.txt"),
    ],
)
@pytest.mark.parametrize("size", [0, 3])
async def test_a_file_goes_along_whatever_it_is_called(name: str, seen: str, size: int) -> None:
    async with BotApi() as server, api_of(server.url) as api:
        files = {"f": Upload(b"x" * size, name)}
        params = {"chat_id": "7", "document": "attach://f", "caption": "\ud83d"}
        await api.call(Method("sendDocument", params, files))
        (sent,) = server.sent
    assert sent.params["document"] == {"name": seen, "content": b"x" * size}
