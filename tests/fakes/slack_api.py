"""A Slack on loopback: Web API, Socket Mode with tickets and retries, signed HTTP events, files."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import io
import itertools
import json
import re
from collections import defaultdict, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Final, Self, TypeAlias
from urllib.parse import urlencode

import aiohttp
from aiohttp import WSMsgType, web

from tests.fakes.bot_api import Watched

JsonObject: TypeAlias = dict[str, Any]

BOT_TOKEN: Final = "xoxb-1111111111-2222222222222-fakebottoken0123456789ab"
APP_TOKEN: Final = "xapp-1-A0APP-3333333333333-fakeapptoken0123456789abcdef"
SIGNING_SECRET: Final = "8f742231b10e8888abcd99yyyzzz85a5"
TEAM, APP, BOT, BOT_ID, HUMAN = "T0TEAM", "A0APP", "U0BOT", "B0BOT", "U0ANN"
CHANNEL, DM = "C0GEN", "D0ANN"


@dataclass(frozen=True, slots=True)
class Call:
    """A request as it came: the method, its arguments (JSON inside of forms decoded), and whose token."""

    method: str
    args: JsonObject
    token: str


@dataclass(frozen=True, slots=True)
class Error:
    """Answer with `ok: false`."""

    code: str
    more: JsonObject = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Limited:
    """Answer 429; `after` is the header as it stands there, None for no header."""

    after: str | None = "7"


@dataclass(frozen=True, slots=True)
class Status:
    """Answer with an HTTP status and a page."""

    code: int
    body: str = "<html>upstream</html>"


@dataclass(frozen=True, slots=True)
class Drop:
    """Close the connection without an answer; the call counts if it is dropped `after` it was accepted."""

    after: bool


Failure: TypeAlias = Error | Limited | Status | Drop


@dataclass(slots=True)
class Stored:
    """A file that can be downloaded, with the token only; `page` stands for the sign-in page."""

    content: bytes
    mime: str
    page: bool = False
    redirect: bool = False


@dataclass(slots=True, eq=False)
class Socket:
    """One connection of Socket Mode; `deaf` answers nothing any more but stays open."""

    ws: web.WebSocketResponse
    request: web.Request
    deaf: bool = False
    open: bool = True


@dataclass(slots=True)
class Envelope:
    """Something that Slack wants to have acknowledged; `sent` counts its deliveries."""

    id: str
    kind: str
    payload: JsonObject
    sent: int = 0
    answer: JsonObject | None = None
    by: Socket | None = None


class SlackServer(Watched):
    """The server. It can be stopped and started again on its port, and keeps what was not acknowledged.

    Use: `async with SlackServer() as slack`, hand `slack.base` and the tokens to the channel,
    `await slack.say("<@U0BOT> hi")`, look at `slack.posts` and `slack.acks`.
    """

    def __init__(self) -> None:
        super().__init__()
        self.port = 0
        self.calls: list[Call] = []
        self.messages: defaultdict[str, list[JsonObject]] = defaultdict(list)
        self.posts: list[JsonObject] = []
        self.ephemerals: list[JsonObject] = []
        self.reactions: list[tuple[str, str, str]] = []
        self.uploads: dict[str, bytes] = {}
        self.files: dict[str, Stored] = {}
        self.file_info: dict[str, JsonObject] = {}
        self.users: dict[str, JsonObject] = {
            HUMAN: {"id": HUMAN, "name": "ann", "profile": {"display_name": "Ann"}},
            BOT: {"id": BOT, "name": "crayfish", "is_bot": True, "profile": {"display_name": "Crayfish"}},
        }
        self.conversations: dict[str, JsonObject] = {
            CHANNEL: {"id": CHANNEL, "name": "general", "is_channel": True},
            DM: {"id": DM, "is_im": True, "user": HUMAN},
        }
        self.tickets: set[str] = set()
        self.issued = 0
        self.refuse_sockets = 0
        self.silent_sockets = 0
        self.slow: dict[str, asyncio.Event] = {}
        self.sockets: list[Socket] = []
        self.waiting: list[Envelope] = []
        self.acks: list[str] = []
        self.envelopes: list[Envelope] = []
        self.scopes = ""
        self.bot_app = APP
        self.socket_app = APP
        self.connections: set[int] = set()
        self._failures: defaultdict[str, deque[Failure]] = defaultdict(deque)
        self._numbers = itertools.count(1)
        self._clock = itertools.count(1_800_000_000)
        self._runner: web.AppRunner | None = None
        self._methods: dict[str, Callable[[JsonObject], JsonObject | Error]] = {
            "apps.connections.open": self._open_socket,
            "auth.test": lambda _: {
                "url": "https://acme.slack.com/",
                "team": "Acme",
                "user": "crayfish",
                "team_id": TEAM,
                "user_id": BOT,
                "bot_id": BOT_ID,
            },
            "bots.info": lambda _: {"bot": {"id": BOT_ID, "app_id": self.bot_app}},
            "chat.postMessage": self._post,
            "chat.postEphemeral": self._ephemeral,
            "chat.update": self._update,
            "chat.delete": self._delete,
            "chat.startStream": self._start_stream,
            "chat.appendStream": self._append_stream,
            "chat.stopStream": self._stop_stream,
            "conversations.history": self._history,
            "conversations.replies": self._replies,
            "conversations.info": self._conversation,
            "conversations.open": self._open_chat,
            "users.conversations": lambda _: {"channels": list(self.conversations.values())},
            "users.info": self._user,
            "files.info": self._file,
            "files.getUploadURLExternal": self._upload_url,
            "files.completeUploadExternal": self._complete_upload,
            "reactions.add": self._react,
            "reactions.remove": self._unreact,
            "usergroups.list": lambda _: {"usergroups": []},
            "views.open": lambda _: {"view": {"id": "V1"}},
            "views.publish": lambda _: {"view": {"id": "V1"}},
            "assistant.threads.setStatus": lambda _: {},
            "assistant.threads.setTitle": lambda _: {},
            "assistant.threads.setSuggestedPrompts": lambda _: {},
        }

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def base(self) -> str:
        """Return the `api_base` of this server."""
        return f"{self.url}/api/"

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def start(self) -> None:
        """Listen, on the port of the last time if there was one."""
        app = web.Application(client_max_size=50 * 2**20)
        app.router.add_post("/api/{method}", self._api)
        app.router.add_get("/link", self._link)
        app.router.add_get("/files/{name}", self._download)
        app.router.add_post("/upload/{name}", self._upload)
        app.router.add_get("/signin", self._sign_in)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self.port, reuse_address=True).start()
        self.port = int(self._runner.addresses[0][1])

    async def stop(self) -> None:
        """Pull the cable."""
        for socket in [*self.sockets]:
            self.cut(socket)
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    def fail(self, method: str, *failures: Failure) -> None:
        """Let the next calls of a method go wrong, one after the other."""
        self._failures[method].extend(failures)

    def called(self, method: str) -> list[JsonObject]:
        """Return the arguments of every call of a method."""
        return [call.args for call in self.calls if call.method == method]

    def ts(self) -> str:
        """Return the id of the next message; they rise by a second."""
        return f"{next(self._clock)}.{next(self._numbers):06d}"

    async def say(
        self, text: str, *, chat: str = CHANNEL, user: str = HUMAN, thread: str = "", **more: Any
    ) -> str:
        """Let a person write; the app gets it as `message`, and as `app_mention` if the bot is named there.

        Returns the id of the message.
        """
        message = self.written(text, chat=chat, user=user, thread=thread, **more)
        await self.tell(message)
        return str(message["ts"])

    def written(
        self, text: str, *, chat: str = CHANNEL, user: str = HUMAN, thread: str = "", **more: Any
    ) -> JsonObject:
        """Store what a person wrote and return it as the event `message`, which is not delivered."""
        kinds = {"D": "im", "G": "mpim"}
        message: JsonObject = {
            "type": "message",
            "user": user,
            "text": text,
            "ts": self.ts(),
            "team": TEAM,
            "channel": chat,
            "channel_type": kinds.get(chat[0], "channel"),
            **({"thread_ts": thread} if thread else {}),
            **more,
        }
        self.messages[chat].append(message)
        return message

    async def tell(self, message: JsonObject) -> None:
        """Deliver a message in the events that Slack makes of it."""
        await self.push(message)
        if message["channel"][0] != "D" and f"<@{BOT}>" in str(message.get("text")):
            mention = {name: value for name, value in message.items() if name != "channel_type"}
            await self.push({**mention, "type": "app_mention"})

    async def push(self, event: JsonObject, *, event_id: str = "") -> Envelope:
        """Deliver an event of the Events API over a socket."""
        return await self.envelope(self.callback(event, event_id=event_id))

    def callback(self, event: JsonObject, *, event_id: str = "") -> JsonObject:
        """Return the body around an event (Events API, event_callback)."""
        return {
            "type": "event_callback",
            "team_id": TEAM,
            "api_app_id": APP,
            "event": event,
            "event_id": event_id or f"Ev{next(self._numbers):06d}",
            "event_time": 1_800_000_000,
            "authorizations": [{"team_id": TEAM, "user_id": BOT, "is_bot": True}],
        }

    async def envelope(self, payload: JsonObject, kind: str = "events_api") -> Envelope:
        """Deliver anything over a socket; it waits while there is none."""
        envelope = Envelope(f"env-{next(self._numbers)}", kind, payload)
        self.envelopes.append(envelope)
        self.waiting.append(envelope)
        await self._flush()
        return envelope

    async def redeliver(self, envelope: Envelope) -> None:
        """Deliver it once more, as Slack does when it saw no acknowledgement."""
        envelope.answer, envelope.by = None, None
        self.waiting.append(envelope)
        await self._flush()

    async def refresh(self, reason: str = "refresh_requested") -> None:
        """Ask the client to replace its sockets (Socket Mode, disconnect)."""
        for socket in [*self.sockets]:
            await socket.ws.send_json({"type": "disconnect", "reason": reason, "debug_info": {"host": "h"}})

    def cut(self, socket: Socket) -> None:
        """Break a connection in the middle."""
        if socket.request.transport is not None:
            socket.request.transport.abort()

    async def settled(self) -> None:
        """Wait until everything that was delivered is acknowledged."""
        await self.until(lambda: not self.waiting and all(one.answer is not None for one in self.envelopes))

    async def post_event(
        self,
        url: str,
        body: JsonObject | bytes,
        *,
        at: float,
        secret: str = SIGNING_SECRET,
        headers: Mapping[str, str] | None = None,
        form: bool = False,
    ) -> tuple[int, str, str]:
        """Post to the app as Slack does; return status, content type and text of its answer."""
        raw = body if isinstance(body, bytes) else encoded(body, form=form)
        kind = "application/x-www-form-urlencoded" if form else "application/json"
        signed = {
            "Content-Type": kind,
            "X-Slack-Request-Timestamp": f"{at:.0f}",
            "X-Slack-Signature": signature(raw, f"{at:.0f}", secret),
        }
        async with (
            aiohttp.ClientSession() as client,
            client.post(url, data=io.BytesIO(raw), headers=signed | dict(headers or {})) as answer,
        ):
            return answer.status, answer.content_type, await answer.text()

    async def deliver(self, url: str, body: JsonObject, *, at: float) -> list[int]:
        """Post an event until it is taken, at once and after a minute and five; return the statuses."""
        statuses: list[int] = []
        for number, later in enumerate((0, 1, 61, 361)):
            retry = {"X-Slack-Retry-Num": str(number), "X-Slack-Retry-Reason": "http_error"} if number else {}
            status, _, _ = await self.post_event(url, body, at=at + later, headers=retry)
            statuses.append(status)
            if status == 200:
                break
        return statuses

    async def _flush(self) -> None:
        while self.waiting:
            live = [socket for socket in self.sockets if not socket.deaf]
            if not live:
                return
            envelope = self.waiting.pop(0)
            envelope.by = live[-1]
            envelope.sent += 1
            frame = {"envelope_id": envelope.id, "type": envelope.kind, "payload": envelope.payload}
            retry = {
                "retry_attempt": envelope.sent - 1,
                "retry_reason": "timeout" if envelope.sent > 1 else "",
            }
            accepts = {"accepts_response_payload": envelope.kind != "events_api"}
            try:
                await live[-1].ws.send_json({**frame, **retry, **accepts})
            except ConnectionError:
                self.waiting.insert(0, envelope)
                return

    async def _api(self, request: web.Request) -> web.StreamResponse:
        method, args = request.match_info["method"], await _args(request)
        token = request.headers.get("Authorization", "").removeprefix("Bearer ") or args.pop("token", "")
        self.calls.append(Call(method, args, token))
        if request.transport is not None:
            self.connections.add(request.transport.get_extra_info("peername")[1])
        if method in self.slow:
            await self.slow[method].wait()
        failure = self._failures[method].popleft() if self._failures[method] else None
        self._notify()
        match failure:
            case Limited(after=after):
                headers = {} if after is None else {"Retry-After": after}
                return web.json_response({"ok": False, "error": "ratelimited"}, status=429, headers=headers)
            case Status(code=code, body=body):
                return web.Response(status=code, text=body, content_type="text/html")
            case Error(code=code, more=more):
                return web.json_response({"ok": False, "error": code, **more})
            case _:
                pass
        answer: JsonObject = {"ok": False, "error": "dropped"}
        if failure is None or failure.after:
            answer = self._answer(method, args, token)
            self._notify()
        if failure is not None:
            assert request.transport is not None
            request.transport.abort()
        return web.json_response(answer, headers={"x-oauth-scopes": self.scopes} if self.scopes else None)

    def _answer(self, method: str, args: JsonObject, token: str) -> JsonObject:
        wanted = APP_TOKEN if method == "apps.connections.open" else BOT_TOKEN
        if token != wanted:
            known = token in (APP_TOKEN, BOT_TOKEN)
            return {"ok": False, "error": "not_allowed_token_type" if known else "invalid_auth"}
        if method not in self._methods:
            return {"ok": False, "error": "unknown_method"}
        answer = self._methods[method](args)
        if isinstance(answer, Error):
            return {"ok": False, "error": answer.code, **answer.more}
        return {"ok": True, **answer}

    def _open_socket(self, _: JsonObject) -> JsonObject:
        self.issued += 1
        ticket = f"ticket-{self.issued}"
        self.tickets.add(ticket)
        return {"url": f"ws://127.0.0.1:{self.port}/link?ticket={ticket}&app_id={APP}"}

    async def _link(self, request: web.Request) -> web.StreamResponse:
        ticket = request.query.get("ticket", "")
        known = ticket in self.tickets
        self.tickets.discard(ticket)  # good for one handshake, whatever becomes of it
        if not known or self.refuse_sockets:
            self.refuse_sockets = max(0, self.refuse_sockets - 1)
            self._notify()
            return web.Response(status=408)
        ws = web.WebSocketResponse(autoping=False)
        await ws.prepare(request)
        socket = Socket(ws, request)
        if self.silent_sockets:
            self.silent_sockets -= 1
        else:
            await self._hello(socket)
        async for message in ws:
            await self._frame(socket, message)
        self._gone(socket)
        return ws

    async def _hello(self, socket: Socket) -> None:
        self.sockets.append(socket)
        info = {"app_id": self.socket_app}
        await socket.ws.send_json(
            {"type": "hello", "num_connections": len(self.sockets), "connection_info": info}
        )
        self._notify()
        await self._flush()

    async def _frame(self, socket: Socket, message: aiohttp.WSMessage) -> None:
        if socket.deaf:
            return
        if message.type is WSMsgType.PING:
            await socket.ws.pong(message.data)
        elif message.type is WSMsgType.TEXT:
            frame = json.loads(message.data)
            for envelope in self.envelopes:
                if envelope.id == frame["envelope_id"]:
                    assert envelope.by is socket, "an ack must go on the socket that the envelope came by"
                    envelope.answer = frame.get("payload") or {}
            self.acks.append(frame["envelope_id"])
            self._notify()

    def _gone(self, socket: Socket) -> None:
        """Forget a socket; what it did not acknowledge is delivered again on another."""
        socket.open = False
        self.sockets = [one for one in self.sockets if one is not socket]
        for envelope in self.envelopes:
            if envelope.by is socket and envelope.answer is None:
                envelope.by = None
                self.waiting.append(envelope)
        self._notify()

    async def _download(self, request: web.Request) -> web.StreamResponse:
        stored = self.files.get(request.match_info["name"])
        allowed = request.headers.get("Authorization") == f"Bearer {BOT_TOKEN}"
        self.calls.append(Call("download", {"name": request.match_info["name"]}, "bot" if allowed else ""))
        if stored is None:
            return web.Response(status=404)
        if stored.redirect:
            return web.Response(status=302, headers={"Location": f"{self.url}/signin"})
        if stored.page or not allowed:
            return await self._sign_in(request)
        headers = {"Content-Disposition": "attachment"}
        return web.Response(body=stored.content, content_type=stored.mime, headers=headers)

    async def _sign_in(self, _: web.Request) -> web.StreamResponse:
        return web.Response(
            text="<!DOCTYPE html><html><title>Sign in</title></html>", content_type="text/html"
        )

    async def _upload(self, request: web.Request) -> web.StreamResponse:
        failure = self._failures["upload"].popleft() if self._failures["upload"] else None
        if isinstance(failure, Status):
            return web.Response(status=failure.code, text=failure.body)
        self.uploads[request.match_info["name"]] = await request.read()
        return web.Response(text="OK")

    def _find(self, chat: str, ts: str) -> JsonObject | None:
        return next((one for one in self.messages[chat] if one["ts"] == ts), None)

    def _post(self, args: JsonObject) -> JsonObject | Error:
        chat = str(args.get("channel", ""))
        if chat not in self.conversations:
            return Error("channel_not_found")
        if not any(args.get(name) for name in ("text", "blocks", "attachments", "markdown_text")):
            return Error("no_text")
        if args.get("markdown_text") and (args.get("text") or args.get("blocks")):
            return Error("markdown_text_conflict")
        if len(str(args.get("markdown_text") or "")) > 12_000 or len(str(args.get("text") or "")) > 40_000:
            return Error("msg_too_long")
        message = {**args, "type": "message", "user": BOT, "bot_id": BOT_ID, "ts": self.ts()}
        self.messages[chat].append(message)
        self.posts.append(message)
        return {"channel": chat, "ts": message["ts"], "message": message}

    def _ephemeral(self, args: JsonObject) -> JsonObject:
        self.ephemerals.append(args)
        return {"message_ts": self.ts()}

    def _update(self, args: JsonObject) -> JsonObject | Error:
        message = self._find(args["channel"], args["ts"])
        if message is None:
            return Error("message_not_found")
        message.update({name: value for name, value in args.items() if name != "ts"})
        return {"channel": args["channel"], "ts": args["ts"], "text": message.get("text", "")}

    def _delete(self, args: JsonObject) -> JsonObject | Error:
        message = self._find(args["channel"], args["ts"])
        if message is None:
            return Error("message_not_found")
        self.messages[args["channel"]].remove(message)
        self.posts = [one for one in self.posts if one is not message]
        return {"channel": args["channel"], "ts": args["ts"]}

    def _start_stream(self, args: JsonObject) -> JsonObject | Error:
        if not args.get("thread_ts"):
            return Error("invalid_arguments")
        if args["channel"][0] != "D" and not (
            args.get("recipient_user_id") and args.get("recipient_team_id")
        ):
            return Error("missing_recipient_user_id")
        answer = self._post({"text": "", **args, "markdown_text": args.get("markdown_text") or " "})
        if not isinstance(answer, Error):
            answer["message"]["streaming"] = True
            answer["message"]["markdown_text"] = _streamed(args)
        return answer

    def _append_stream(self, args: JsonObject) -> JsonObject | Error:
        message = self._find(args["channel"], args["ts"])
        if message is None or not message.get("streaming"):
            return Error("message_not_in_streaming_state")
        message["markdown_text"] += _streamed(args)
        return {"channel": args["channel"], "ts": args["ts"]}

    def _stop_stream(self, args: JsonObject) -> JsonObject | Error:
        answer = self._append_stream(args)
        if isinstance(answer, Error):
            return answer
        message = self._find(args["channel"], args["ts"])
        assert message is not None
        message["streaming"] = False
        message.update({name: args[name] for name in ("blocks", "metadata") if name in args})
        return {**answer, "message": message}

    def _history(self, args: JsonObject) -> JsonObject | Error:
        if args["channel"] not in self.conversations:
            return Error("channel_not_found")
        oldest, latest = str(args.get("oldest") or "0"), str(args.get("latest") or "9" * 20)
        found = [
            one
            for one in self.messages[args["channel"]]
            if oldest < one["ts"] < latest and one.get("thread_ts", one["ts"]) == one["ts"]
        ]
        return self._page(sorted(found, key=_ts, reverse=True), args)

    def _replies(self, args: JsonObject) -> JsonObject | Error:
        if args["channel"] not in self.conversations:
            return Error("channel_not_found")
        oldest, latest = str(args.get("oldest") or "0"), str(args.get("latest") or "9" * 20)
        thread = [
            one for one in self.messages[args["channel"]] if args["ts"] in (one["ts"], one.get("thread_ts"))
        ]
        if not thread:
            return Error("thread_not_found")
        found = [one for one in thread if one["ts"] == args["ts"] or oldest < one["ts"] < latest]
        return self._page(sorted(found, key=_ts), args)

    def _page(self, found: list[JsonObject], args: JsonObject) -> JsonObject:
        begin, limit = int(args.get("cursor") or 0), int(args.get("limit") or 100)
        more = begin + limit < len(found)
        return {
            "messages": [_as_history(one) for one in found[begin : begin + limit]],
            "has_more": more,
            "response_metadata": {"next_cursor": str(begin + limit) if more else ""},
        }

    def _conversation(self, args: JsonObject) -> JsonObject | Error:
        found = self.conversations.get(args["channel"])
        return {"channel": found} if found else Error("channel_not_found")

    def _open_chat(self, args: JsonObject) -> JsonObject | Error:
        if args["users"] not in self.users:
            return Error("user_not_found")
        for chat in self.conversations.values():
            if chat.get("user") == args["users"]:
                return {"channel": {"id": chat["id"]}}
        chat = {"id": f"D0{args['users'][2:]}", "is_im": True, "user": args["users"]}
        self.conversations[chat["id"]] = chat
        return {"channel": {"id": chat["id"]}}

    def _user(self, args: JsonObject) -> JsonObject | Error:
        found = self.users.get(args["user"])
        return {"user": found} if found else Error("user_not_found")

    def _file(self, args: JsonObject) -> JsonObject | Error:
        found = self.file_info.get(args["file"])
        return {"file": found} if found else Error("file_not_found")

    def _upload_url(self, args: JsonObject) -> JsonObject | Error:
        if not args.get("filename") or not args.get("length"):
            return Error("invalid_arguments")
        name = f"F{next(self._numbers):06d}"
        return {"upload_url": f"{self.url}/upload/{name}", "file_id": name}

    def _complete_upload(self, args: JsonObject) -> JsonObject | Error:
        ids = [one["id"] for one in args["files"]]
        if not set(ids) <= self.uploads.keys():
            return Error("file_not_found")
        chat = args.get("channel_id")
        if chat:
            message = {
                "type": "message",
                "user": BOT,
                "bot_id": BOT_ID,
                "ts": self.ts(),
                "channel": chat,
                "text": args.get("initial_comment", ""),
                "files": args["files"],
                **({"thread_ts": args["thread_ts"]} if args.get("thread_ts") else {}),
            }
            self.messages[chat].append(message)
            self.posts.append(message)
        return {"files": [{"id": one} for one in ids]}

    def _react(self, args: JsonObject) -> JsonObject | Error:
        reaction = (args["channel"], args["timestamp"], args["name"])
        if reaction in self.reactions:
            return Error("already_reacted")
        self.reactions.append(reaction)
        return {}

    def _unreact(self, args: JsonObject) -> JsonObject | Error:
        reaction = (args["channel"], args["timestamp"], args["name"])
        if reaction not in self.reactions:
            return Error("no_reaction")
        self.reactions.remove(reaction)
        return {}


def signature(raw: bytes, at: str, secret: str = SIGNING_SECRET) -> str:
    """Return what Slack signs a post with (Verifying requests from Slack)."""
    return "v0=" + hmac.new(secret.encode(), b"v0:" + at.encode() + b":" + raw, hashlib.sha256).hexdigest()


def encoded(body: JsonObject, *, form: bool) -> bytes:
    """Return a body as Slack posts it: interactivity and commands come as forms."""
    if not form:
        return json.dumps(body).encode()
    return urlencode(body if "command" in body else {"payload": json.dumps(body)}).encode()


async def _args(request: web.Request) -> JsonObject:
    if request.content_type == "application/json":
        return dict(await request.json())
    found = {**request.query, **(await request.post())}
    return {name: _decoded(str(value)) for name, value in found.items()}


def _decoded(value: str) -> Any:
    """Return an argument of a form: lists, objects and true/false are JSON in it, numbers stay text."""
    if re.match(r"[\[{]", value) or value in ("true", "false"):
        try:
            return json.loads(value)
        except ValueError:
            return value
    return value


def _streamed(args: JsonObject) -> str:
    chunks = args.get("chunks") or []
    told = [str(one.get("text", "")) for one in chunks if one.get("type") == "markdown_text"]
    return str(args.get("markdown_text") or "") + "".join(told)


def _as_history(message: JsonObject) -> JsonObject:
    """Return a message as histories show it, without its channel."""
    return {name: value for name, value in message.items() if name not in ("channel", "channel_type")}


def _ts(message: JsonObject) -> str:
    return str(message["ts"])
