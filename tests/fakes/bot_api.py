"""A Bot API server on loopback, with the offsets, conflicts and failures of the real one."""

from __future__ import annotations

import asyncio
import functools
import json
import re
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeAlias

from aiohttp import web

JsonObject: TypeAlias = dict[str, Any]

TOKEN: Final = "123456:AAHfake_token_value_abcdefghijklmnopqr"
"""The token of case secrets-01; the digits are the bot's id, as on the real server."""

SCHEMA: Final = Path(__file__).parents[2].parent / "shared/data/telegram/bot-api-schema.json"

_FUTURE: Final = 10
"""An offset so far above the newest id is not an offset of this stream: the real server begins at the head."""


@dataclass(frozen=True, slots=True)
class Status:
    """Answer with an error instead of doing it; a `body` replaces the usual JSON."""

    code: int
    description: str = "scripted"
    parameters: JsonObject = field(default_factory=dict)
    body: str | None = None


@dataclass(frozen=True, slots=True)
class Drop:
    """Close the connection without an answer; the request counts if it is dropped `after` it was accepted."""

    after: bool


Failure: TypeAlias = Status | Drop


@dataclass(frozen=True, slots=True)
class Call:
    """A request as it came, before anything was done about it."""

    method: str
    params: JsonObject


@dataclass(frozen=True, slots=True)
class Sent:
    """A message that people can see."""

    chat: int
    text: str
    message_id: int
    params: JsonObject


class Watched:
    """Something that tells when it has changed."""

    def __init__(self) -> None:
        self._changed = asyncio.Event()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until a condition on this object holds."""
        while not condition():
            await self._changed.wait()

    def _notify(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()


class BotApi(Watched):
    """The server. It can be stopped and started again on its port, and keeps what waits (`pull the cable`).

    Use: `async with BotApi() as api`, hand `api.url` and `api.token` to the gateway, `api.say("hi")`,
    `await api.reply()`. `violations` holds requests that don't fit the published schema: assert it is empty.
    """

    def __init__(self, token: str = TOKEN) -> None:
        super().__init__()
        self.token = token
        self.port = 0
        self.pending: list[JsonObject] = []
        self.confirmed: list[int] = []
        self.calls: list[Call] = []
        self.sent: list[Sent] = []
        self.violations: list[str] = []
        self.blocked: set[int] = set()
        self.webhook = ""
        self.next_update = 1000
        self.next_message = 1
        self.polling = 0
        self._failures: defaultdict[str, deque[Failure]] = defaultdict(deque)
        self._poller = 0
        self._runner: web.AppRunner | None = None

    @property
    def url(self) -> str:
        """The `api_base` to configure."""
        return f"http://127.0.0.1:{self.port}"

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def start(self, port: int = 0) -> None:
        """Listen on `port`, or on the port of the last time, or on any."""
        app = web.Application(client_max_size=64 * 2**20)
        app.router.add_post("/bot{token}/{method}", self._call)
        # No access log: it would print the path, and so the token, into the logs that tests search.
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.01, handler_cancellation=True)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", port or self.port)
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        """Close every connection; nothing that waits is lost."""
        if self._runner:
            await self._runner.cleanup()
            self._runner = None

    def push(self, update: JsonObject, update_id: int | None = None) -> int:
        """Queue an update and return its id; ids rise by one from the last one given."""
        self.next_update = self.next_update + 1 if update_id is None else update_id
        self.pending.append({"update_id": self.next_update, **update})
        self._notify()
        return self.next_update

    def say(self, text: str, chat: int = 7, update_id: int | None = None, **fields: object) -> int:
        """Let a person write into a private chat."""
        return self.push({"message": self.message(chat, text=text, **fields)}, update_id)

    def message(self, chat: int = 7, **fields: object) -> JsonObject:
        """Return a new Message of a private chat."""
        self.next_message += 1
        person = {"id": chat, "is_bot": False, "first_name": f"Person{chat}"}
        home = {"id": chat, "type": "private", "first_name": f"Person{chat}"}
        return {
            "message_id": self.next_message,
            "date": 1_800_000_000,
            "chat": home,
            "from": person,
            **fields,
        }

    def fail(self, method: str, *failures: Failure) -> None:
        """Fail the next requests of a method, one by one; then it works again."""
        self._failures[method].extend(failures)

    def revoke(self) -> None:
        """Make the token invalid: every request is answered by 401."""
        self.token = "revoked"

    def count(self, method: str) -> int:
        """Return how often a method was asked for."""
        return sum(call.method == method for call in self.calls)

    async def reply(self, number: int = 1) -> list[Sent]:
        """Wait until so many messages were sent, and return all."""
        await self.until(lambda: len(self.sent) >= number)
        return self.sent

    async def _call(self, request: web.Request) -> web.StreamResponse:
        params = await _params(request)
        method = request.match_info["method"]
        self.calls.append(Call(method, params))
        self._notify()
        failures = self._failures[method]
        failure = failures.popleft() if failures else None
        if failure == Drop(after=False):
            return _dropped(request)
        if isinstance(failure, Status):
            return _error(failure.code, failure.description, failure.parameters, failure.body)
        if request.match_info["token"] != self.token:
            return _error(401, "Unauthorized")
        if problems := violations(method, params):
            self.violations += problems
            return _error(400, f"Bad Request: {problems}")
        answer = await self._methods()[method](params)
        self._notify()
        if failure == Drop(after=True):
            return _dropped(request)
        return answer

    def _methods(self) -> dict[str, Callable[[JsonObject], Awaitable[web.Response]]]:
        return {
            "getMe": self._get_me,
            "getUpdates": self._get_updates,
            "sendMessage": self._send_message,
            "deleteWebhook": self._delete_webhook,
        }

    async def _get_me(self, params: JsonObject) -> web.Response:
        bot_id = int(self.token.partition(":")[0])
        return _ok({"id": bot_id, "is_bot": True, "first_name": "Fake", "username": "fake_bot"})

    async def _delete_webhook(self, params: JsonObject) -> web.Response:
        self.webhook = ""
        if str(params.get("drop_pending_updates")).lower() == "true":
            self.pending.clear()
        return _ok(True)

    async def _get_updates(self, params: JsonObject) -> web.Response:
        if self.webhook:
            return _error(
                409,
                "Conflict: can't use getUpdates method while webhook is active; "
                "use deleteWebhook to delete the webhook first",
            )
        self._poller += 1  # a newer poll ends the older one
        me = self._poller
        self._confirm(int(params.get("offset", 0)))
        allowed = params.get("allowed_updates")
        if allowed:
            self.pending = [update for update in self.pending if set(allowed) & update.keys()]
        self.polling += 1
        self._notify()
        try:
            async with asyncio.timeout(float(params.get("timeout", 0))):
                await self.until(lambda: bool(self.pending) or self._poller != me)
        except TimeoutError:
            pass
        finally:
            self.polling -= 1
            self._notify()
        if self._poller != me:
            return _error(
                409,
                "Conflict: terminated by other getUpdates request; "
                "make sure that only one bot instance is running",
            )
        return _ok(self.pending[: int(params.get("limit", 100))])

    def _confirm(self, offset: int) -> None:
        """Forget what lies below the offset (Bot API getUpdates)."""
        if offset < 0:
            offset = self.pending[offset:][0]["update_id"] if self.pending else 0
        if offset > self.next_update + _FUTURE:
            return
        self.confirmed += [update["update_id"] for update in self.pending if update["update_id"] < offset]
        self.pending = [update for update in self.pending if update["update_id"] >= offset]

    async def _send_message(self, params: JsonObject) -> web.Response:
        chat, text = int(params["chat_id"]), str(params["text"])
        if chat in self.blocked:
            return _error(403, "Forbidden: bot was blocked by the user")
        if not text.strip():
            return _error(400, "Bad Request: message text is empty")
        if len(text.encode("utf-16-le")) > 2 * 4096:
            return _error(400, "Bad Request: message is too long")
        self.next_message += 1
        self.sent.append(Sent(chat, text, self.next_message, params))
        home = {"id": chat, "type": "private", "first_name": f"Person{chat}"}
        return _ok({"message_id": self.next_message, "date": 1_800_000_000, "chat": home, "text": text})


async def _params(request: web.Request) -> JsonObject:
    """Return the parameters as values: in a form they are texts, and JSON where the type is an object."""
    if request.content_type == "application/json":
        body: JsonObject = await request.json()
        return body
    form = await request.post()
    return {key: _value(value) for key, value in form.items()}


def _value(value: object) -> object:
    if isinstance(value, str) and re.match(r"[\[{]", value):
        try:
            return json.loads(value)
        except ValueError:
            return value
    return value


def _ok(result: object) -> web.Response:
    return web.json_response({"ok": True, "result": result})


def _error(
    code: int, description: str, parameters: JsonObject | None = None, body: str | None = None
) -> web.Response:
    if body is not None:
        return web.Response(status=code, text=body)
    answer = {"ok": False, "error_code": code, "description": description}
    return web.json_response(answer | ({"parameters": parameters} if parameters else {}), status=code)


def _dropped(request: web.Request) -> web.Response:
    if request.transport:
        request.transport.abort()
    return web.Response()


@functools.cache
def _schema() -> dict[str, dict[str, JsonObject]] | None:
    """Return the parameters of each method by name, or None if the published schema isn't there."""
    if not SCHEMA.exists():
        print(f"requests are not checked: {SCHEMA} is absent")  # noqa: T201 - the reason that is asked for
        return None
    items = json.loads(SCHEMA.read_text(encoding="utf-8"))["items"]
    methods = [child for item in items for child in item["children"] if child.get("category") == "methods"]
    return {method["name"]: {each["name"]: each for each in method["annotations"]} for method in methods}


def violations(method: str, params: JsonObject) -> Sequence[str]:
    """Return how a request breaks the published schema of the Bot API."""
    schema = _schema()
    if schema is None:
        return []
    if method not in schema:
        return [f"there is no method {method}"]
    known = schema[method]
    missing = [
        f"{method}: {name} is missing"
        for name, spec in known.items()
        if spec["required"] and name not in params
    ]
    unknown = [f"{method}: {name} is not a parameter" for name in params if name not in known]
    wrong = [
        f"{method}: {name} is not of type {known[name]['type']}: {value!r}"
        for name, value in params.items()
        if name in known and not _fits(value, known[name]["type"])
    ]
    return [*missing, *unknown, *wrong]


def _fits(value: object, kind: str) -> bool:
    if " or " in kind:
        return any(_fits(value, part) for part in kind.split(" or "))
    if kind.startswith("Array of "):
        return isinstance(value, list) and all(_fits(part, kind.removeprefix("Array of ")) for part in value)
    match kind:
        case "Integer":
            return re.fullmatch(r"-?\d+", str(value)) is not None
        case "Float":
            return re.fullmatch(r"-?\d+(\.\d+)?", str(value)) is not None
        case "Boolean":
            return str(value).lower() in ("true", "false")
        case "String":
            return isinstance(value, str)
        case _:
            return isinstance(value, dict | str)
