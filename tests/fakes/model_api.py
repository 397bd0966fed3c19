"""A model provider on loopback: speaks the OpenAI, Anthropic and Ollama wire formats from a script.

Forms, as they are posted to make a text of a recording, become objects; a file in them has `name` and `content`.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from aiohttp import web

JsonObject: TypeAlias = dict[str, Any]
Chunk: TypeAlias = bytes | asyncio.Event
"""Bytes to send, or an event to wait for before the next ones."""

DIALECTS = ("openai", "anthropic", "ollama")


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One scripted HTTP answer; `cut` closes the connection after so many bytes of the body."""

    chunks: Iterable[Chunk] = ()
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    content_type: str = "text/event-stream"
    cut: int | None = None


@dataclass(frozen=True, slots=True)
class Request:
    """What the fake received."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: JsonObject


@dataclass(slots=True)
class FakeModelApi:
    """Plays its answers one after the other; `otherwise` answers when none is left."""

    answers: deque[Answer] = field(default_factory=deque)
    requests: list[Request] = field(default_factory=list)
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when a client hung up before its answer was complete."""
    otherwise: Callable[[Request], Answer] | None = None
    url: str = ""

    def play(self, *answers: Answer) -> None:
        """Add answers to the script."""
        self.answers.extend(answers)

    @property
    def bodies(self) -> list[JsonObject]:
        """The JSON that was posted."""
        return [request.body for request in self.requests]

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    async def handle(self, request: web.Request) -> web.StreamResponse:
        received = Request(request.method, request.path, dict(request.headers), await _body(request))
        self.requests.append(received)
        if self.answers:
            answer = self.answers.popleft()
        elif self.otherwise:
            answer = self.otherwise(received)
        else:
            answer = json_body({"error": {"message": "the script is over"}}, status=418)
        try:
            return await self._send(request, answer)
        except (asyncio.CancelledError, ConnectionError):
            self.gone.set()
            raise

    async def _send(self, request: web.Request, answer: Answer) -> web.StreamResponse:
        headers = {"Content-Type": answer.content_type, **answer.headers}
        response = web.StreamResponse(status=answer.status, headers=headers)
        await response.prepare(request)
        left = answer.cut
        for chunk in answer.chunks:
            if isinstance(chunk, asyncio.Event):
                await chunk.wait()
                continue
            piece = chunk if left is None else chunk[:left]
            if piece:
                await response.write(piece)
            if left is not None:
                left -= len(piece)
                if left <= 0:
                    break
        if left is not None and request.transport:
            request.transport.close()  # without the mark that ends a chunked body
            return response
        await response.write_eof()
        return response


async def _body(request: web.Request) -> JsonObject:
    if request.content_type == "multipart/form-data":
        return {name: _field(value) for name, value in (await request.post()).items()}
    raw = await request.read()
    body: JsonObject = json.loads(raw) if raw else {}
    return body


def _field(value: str | bytes | bytearray | web.FileField) -> Any:
    if isinstance(value, web.FileField):
        with value.file as file:
            return {"name": value.filename, "content": file.read()}
    return value


@asynccontextmanager
async def serving(*answers: Answer) -> AsyncIterator[FakeModelApi]:
    """Run a fake provider; its `url` has no path."""
    fake = FakeModelApi(deque(answers))
    app = web.Application(client_max_size=64 * 2**20)
    app.router.add_route("*", "/{path:.*}", fake.handle)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    fake.url = f"http://{host}:{port}"
    try:
        yield fake
    finally:
        await runner.cleanup()


def json_body(body: Any, status: int = 200, **headers: str) -> Answer:
    """Return a plain JSON answer; `retry_after="2"` becomes the header Retry-After."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    chunks = (json.dumps(body).encode(),)
    return Answer(chunks=chunks, status=status, content_type="application/json", headers=named)


def sse(*events: JsonObject | str, done: bool = False) -> list[bytes]:
    """Return server-sent events as bytes, one piece each; a text goes out as it is."""
    out = [event.encode() if isinstance(event, str) else _event(event) for event in events]
    return [*out, b"data: [DONE]\n\n"] if done else out


def _event(event: JsonObject) -> bytes:
    return b"data: " + json.dumps(event, ensure_ascii=False).encode() + b"\n\n"


def stream(*events: JsonObject | str, done: bool = True) -> Answer:
    """Return an answer in server-sent events."""
    return Answer(chunks=sse(*events, done=done))


def deltas(*parts: JsonObject, finish: str | None = "stop", usage: JsonObject | None = None) -> Answer:
    """Return a Chat Completions stream with these deltas."""
    events: list[JsonObject] = [
        {"choices": [{"index": 0, "delta": part, "finish_reason": None}]} for part in parts
    ]
    if finish:
        events.append({"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]})
    if usage:
        events.append({"choices": [], "usage": usage})
    return stream(*events)


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call as a script names it."""

    id: str
    name: str
    args: JsonObject


def say(dialect: str, text: str = "", *calls: Call, input_tokens: int = 10, cached: int = 4) -> list[bytes]:
    """Return the bytes in which a dialect streams a reply, an event each."""
    return {"openai": _say_openai, "anthropic": _say_anthropic, "ollama": _say_ollama}[dialect](
        text, calls, input_tokens, cached
    )


def reply(dialect: str, text: str = "", *calls: Call, input_tokens: int = 10, cached: int = 4) -> Answer:
    """Return a whole, well-formed reply."""
    return Answer(chunks=say(dialect, text, *calls, input_tokens=input_tokens, cached=cached))


def unfinished(dialect: str, text: str) -> list[bytes]:
    """Return a reply without what says that it is over."""
    return say(dialect, text)[: {"openai": -3, "anthropic": -3, "ollama": -1}[dialect]]


def failing(dialect: str, message: str) -> bytes:
    """Return the error that a dialect sends inside a stream."""
    match dialect:
        case "openai":
            return _event({"error": {"code": 502, "message": message}, "choices": []})
        case "anthropic":
            error = {"type": "error", "error": {"type": "overloaded_error", "message": message}}
            return b"event: error\n" + _event(error)
        case _:
            return json.dumps({"error": message}).encode() + b"\n"


def _halves(text: str) -> list[str]:
    middle = len(text) // 2
    return [half for half in (text[:middle], text[middle:]) if half]


def _say_openai(text: str, calls: Sequence[Call], input_tokens: int, cached: int) -> list[bytes]:
    parts: list[JsonObject] = [{"role": "assistant", "content": ""}]
    parts += [{"content": half} for half in _halves(text)]
    for index, call in enumerate(calls):
        function = {"name": call.name, "arguments": ""}
        parts.append(
            {"tool_calls": [{"index": index, "id": call.id, "type": "function", "function": function}]}
        )
        parts += [
            {"tool_calls": [{"index": index, "function": {"arguments": half}}]}
            for half in _halves(json.dumps(call.args))
        ]
    usage = {
        "prompt_tokens": input_tokens,
        "completion_tokens": 5,
        "prompt_tokens_details": {"cached_tokens": cached},
    }
    events: list[JsonObject]
    events = [{"choices": [{"index": 0, "delta": part, "finish_reason": None}]} for part in parts]
    finish = "tool_calls" if calls else "stop"
    events.append({"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]})
    return sse(*events, {"choices": [], "usage": usage}, done=True)


def _say_anthropic(text: str, calls: Sequence[Call], input_tokens: int, cached: int) -> list[bytes]:
    counts = {"input_tokens": input_tokens - cached, "cache_read_input_tokens": cached, "output_tokens": 1}
    events: list[JsonObject] = [{"type": "message_start", "message": {"content": [], "usage": counts}}]
    blocks: list[tuple[JsonObject, list[JsonObject]]] = []
    if text:
        pieces: list[JsonObject] = [{"type": "text_delta", "text": half} for half in _halves(text)]
        blocks.append(({"type": "text", "text": ""}, pieces))
    for call in calls:
        halves = _halves(json.dumps(call.args))
        pieces = [{"type": "input_json_delta", "partial_json": half} for half in ("", *halves)]
        blocks.append(({"type": "tool_use", "id": call.id, "name": call.name, "input": {}}, pieces))
    for index, (start, pieces) in enumerate(blocks):
        events.append({"type": "content_block_start", "index": index, "content_block": start})
        events += [{"type": "content_block_delta", "index": index, "delta": piece} for piece in pieces]
        events.append({"type": "content_block_stop", "index": index})
    stop = {"stop_reason": "tool_use" if calls else "end_turn"}
    events += [
        {"type": "message_delta", "delta": stop, "usage": {"output_tokens": 5}},
        {"type": "message_stop"},
    ]
    return [f"event: {event['type']}\n".encode() + _event(event) for event in events]


def _say_ollama(text: str, calls: Sequence[Call], input_tokens: int, cached: int) -> list[bytes]:
    del cached  # it does not tell
    lines: list[JsonObject] = [{"message": {"role": "assistant", "content": half}} for half in _halves(text)]
    for call in calls:
        function = {"name": call.name, "arguments": call.args}
        lines.append(
            {"message": {"role": "assistant", "content": "", "tool_calls": [{"function": function}]}}
        )
    counts = {"prompt_eval_count": input_tokens, "eval_count": 5}
    lines.append({"message": {"content": ""}, "done": True, "done_reason": "stop", **counts})
    return [json.dumps(line).encode() + b"\n" for line in lines]
