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

from tests.fakes.entities import CAPTION, faults

JsonObject: TypeAlias = dict[str, Any]

TOKEN: Final = "123456:AAHfake_token_value_abcdefghijklmnopqr"
"""The token of case secrets-01; the digits are the bot's id, as on the real server."""

SCHEMA: Final = Path(__file__).parents[2].parent / "shared/data/telegram/bot-api-schema.json"

_NEWER: Final = {"sendMessageDraft": {"can_stop": "Boolean", "keep_on_stop": "Boolean"}}
"""Parameters that Bot API 10.3 has beyond the published schema."""

_FILES: Final = ("Photo", "Animation", "Video", "Audio", "Voice", "Document")

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
        self.shown: dict[tuple[int, int], tuple[str, object]] = {}
        self.violations: list[str] = []
        self.blocked: set[int] = set()
        self.forums: set[int] = set()
        self.webhook = ""
        self.webhook_secret = ""
        self.about_me: JsonObject = {}
        self.files: dict[str, bytes] = {}
        self.local_paths: dict[str, str] = {}
        self.answered: list[str] = []
        self.toasts: dict[str, str] = {}
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
        app.router.add_get("/file/bot{token}/{path:.+}", self._file)
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

    def group_message(self, chat: int = -1001, sender: int = 7, **fields: object) -> JsonObject:
        """Return a new Message of a supergroup."""
        person = {"id": sender, "is_bot": False, "first_name": f"Person{sender}"}
        home = {"id": chat, "type": "supergroup", "title": f"Group{chat}"}
        return self.message(sender) | {"chat": home, "from": person} | fields

    def edit(self, message: JsonObject, **fields: object) -> int:
        """Let a person change a message."""
        return self.push({"edited_message": message | {"edit_date": message["date"] + 60} | fields})

    def press(self, data: str, message: JsonObject, sender: int = 7) -> int:
        """Let a person press a button below a message."""
        person = {"id": sender, "is_bot": False, "first_name": f"Person{sender}"}
        number = self.next_update + 1
        query = {"id": f"q{number}", "from": person, "message": message, "data": data, "chat_instance": "1"}
        return self.push({"callback_query": query}, number)

    def file(self, content: bytes, local_path: str = "") -> str:
        """Keep a file that somebody sent, and return its id."""
        name = f"file{len(self.files)}"
        self.files[name] = content
        if local_path:
            self.local_paths[name] = local_path
        return name

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
            **{f"send{form}": self._send_file for form in _FILES},
            "sendMediaGroup": self._send_album,
            "getMe": self._get_me,
            "getUpdates": self._get_updates,
            "sendMessage": self._send_message,
            "editMessageText": self._edit_message,
            "deleteMessage": self._delete_message,
            "sendMessageDraft": self._draft,
            "sendChatAction": self._nod,
            "setMessageReaction": self._nod,
            "setMyCommands": self._nod,
            "getChat": self._get_chat,
            "deleteWebhook": self._delete_webhook,
            "setWebhook": self._set_webhook,
            "getWebhookInfo": self._webhook_info,
            "getFile": self._get_file,
            "answerCallbackQuery": self._answer_press,
        }

    async def _get_me(self, params: JsonObject) -> web.Response:
        bot_id = int(self.token.partition(":")[0])
        me = {"id": bot_id, "is_bot": True, "first_name": "Fake", "username": "fake_bot"}
        return _ok(me | self.about_me)

    async def _set_webhook(self, params: JsonObject) -> web.Response:
        self.webhook, self.webhook_secret = str(params["url"]), str(params.get("secret_token", ""))
        return _ok(True)

    async def _webhook_info(self, params: JsonObject) -> web.Response:
        waiting = len(self.pending)
        return _ok({"url": self.webhook, "has_custom_certificate": False, "pending_update_count": waiting})

    async def _answer_press(self, params: JsonObject) -> web.Response:
        press = str(params["callback_query_id"])
        if press in self.answered:
            return _error(
                400, "Bad Request: query is too old and response timeout expired or query ID is invalid"
            )
        self.answered.append(press)
        self.toasts[press] = str(params.get("text", ""))
        return _ok(True)

    async def _get_file(self, params: JsonObject) -> web.Response:
        name = str(params["file_id"])
        if name not in self.files:
            return _error(400, "Bad Request: invalid file_id")
        size = len(self.files[name])
        if size > 20_000_000 and name not in self.local_paths:
            return _error(400, "Bad Request: file is too big")
        path = self.local_paths.get(name, f"documents/{name} 1.bin")
        return _ok({"file_id": name, "file_unique_id": name, "file_size": size, "file_path": path})

    async def _file(self, request: web.Request) -> web.StreamResponse:
        self.calls.append(Call("file", {"path": request.match_info["path"]}))
        failures = self._failures["file"]
        failure = failures.popleft() if failures else None
        if isinstance(failure, Status):
            headers = {"Location": "/elsewhere"} if 300 <= failure.code < 400 else {}
            return web.Response(status=failure.code, headers=headers)
        if failure:
            return _dropped(request)
        name = request.match_info["path"].removeprefix("documents/").removesuffix(" 1.bin")
        if request.match_info["token"] != self.token or name not in self.files:
            return web.Response(status=404)
        return web.Response(body=self.files[name])

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
        self.violations += faults(text, params.get("entities", ()))
        return _ok(self._put(chat, text, params) | {"text": text})

    def _put(self, chat: int, text: str, params: JsonObject) -> JsonObject:
        """Show a message and return it."""
        self.next_message += 1
        self.sent.append(Sent(chat, text, self.next_message, params))
        self.shown[chat, self.next_message] = text, params.get("reply_markup")
        home = {"id": chat, "type": "private", "first_name": f"Person{chat}"}
        return {"message_id": self.next_message, "date": 1_800_000_000, "chat": home}

    async def _send_file(self, params: JsonObject) -> web.Response:
        chat, caption = int(params["chat_id"]), str(params.get("caption", ""))
        if chat in self.blocked:
            return _error(403, "Forbidden: bot was blocked by the user")
        self._check_caption(params)
        return _ok(self._put(chat, caption, params))

    async def _send_album(self, params: JsonObject) -> web.Response:
        chat, media = int(params["chat_id"]), params["media"]
        forms = {one["type"] for one in media}
        if not 2 <= len(media) <= 10:
            self.violations.append(f"an album of {len(media)}")
        if len(forms) > 1 and not forms <= {"photo", "video"}:
            self.violations.append(f"an album of {forms}")
        for one in media:
            self._check_caption(one)
        return _ok([self._put(chat, one.get("caption", ""), one | params) for one in media])

    def _check_caption(self, params: JsonObject) -> None:
        if caption := params.get("caption"):
            self.violations += faults(caption, params.get("caption_entities", ()), most=CAPTION)

    async def _edit_message(self, params: JsonObject) -> web.Response:
        place, text = (int(params["chat_id"]), int(params["message_id"])), str(params["text"])
        if place not in self.shown:
            return _error(400, "Bad Request: message to edit not found")
        self.violations += faults(text, params.get("entities", ()))
        now = text, params.get("reply_markup")
        if self.shown[place] == now:
            return _error(
                400, "Bad Request: message is not modified: specified new message content is the same"
            )
        self.shown[place] = now
        return _ok({"message_id": place[1], "date": 1_800_000_000, "chat": {"id": place[0]}, "text": text})

    async def _delete_message(self, params: JsonObject) -> web.Response:
        if self.shown.pop((int(params["chat_id"]), int(params["message_id"])), None) is None:
            return _error(400, "Bad Request: message to delete not found")
        return _ok(True)

    async def _draft(self, params: JsonObject) -> web.Response:
        if int(params["chat_id"]) < 0:
            return _error(400, "Bad Request: drafts are for private chats")
        return _ok(True)

    async def _get_chat(self, params: JsonObject) -> web.Response:
        chat = int(params["chat_id"])
        about = {"id": chat, "type": "supergroup" if chat < 0 else "private"}
        return _ok(about | ({"is_forum": True} if chat in self.forums else {}))

    async def _nod(self, params: JsonObject) -> web.Response:
        return _ok(True)

    def visible(self, chat: int = 7) -> list[str]:
        """Return the messages that people see in a chat now, in order."""
        return [self.shown[place][0] for place in sorted(self.shown) if place[0] == chat]


async def _params(request: web.Request) -> JsonObject:
    """Return the parameters as values: in a form they are texts, and JSON where the type is an object."""
    if request.content_type == "application/json":
        body: JsonObject = await request.json()
        return body
    form = await request.post()
    files = {key: _file(value) for key, value in form.items() if isinstance(value, web.FileField)}
    params = {key: _value(key, value) for key, value in form.items() if key not in files}
    return {key: _attached(value, files) for key, value in params.items()}


def _file(field: web.FileField) -> JsonObject:
    return {"name": field.filename, "content": field.file.read()}


def _attached(value: Any, files: JsonObject) -> Any:
    """Put files where `attach://` names them (Bot API, Sending files)."""
    if isinstance(value, list):
        return [_attached(one, files) for one in value]
    if isinstance(value, dict):
        return {key: _attached(one, files) for key, one in value.items()}
    name = value.removeprefix("attach://") if isinstance(value, str) else ""
    return files.get(name, value)


def _value(key: str, value: object) -> object:
    if key in ("text", "caption"):
        return value
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
    newer = {name: {"type": kind, "required": False} for name, kind in _NEWER.get(method, {}).items()}
    known = schema[method] | newer
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
