"""The HTTP server and the channel behind it (agent II.L)."""

from __future__ import annotations

import asyncio
import errno
import os
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

from aiohttp import web

from adapters.web import guard, wire
from adapters.web.access import AccessRoutes
from adapters.web.answer import as_json, ask, read_body, refused
from adapters.web.guard import Limiter, Refusal
from adapters.web.page import Handler, assets, harden
from adapters.web.reads import Control, Reads
from adapters.web.watch import Ended, Watch
from adapters.web.wire import Accepted
from gateway.channel import Accept
from gateway.clock import Clock
from gateway.errors import ConfigError, StoreError
from gateway.feed import Feed, TurnEnded, TurnGone
from gateway.types import Address, JsonObject, Outgoing, Receipt, Sender, Stimulus

LARGEST_BODY = 2**20
CLOSE_SECONDS = 2.0
"""How long a request may go on after `close`."""

SENDER = Sender("web", "web user")

REASONS = {
    404: ("not_found", "there is nothing at this address"),
    405: ("method_not_allowed", "this address takes another method"),
    413: ("too_large", f"the body may have {LARGEST_BODY} bytes at most"),
}

STREAM = {"Content-Type": "text/event-stream", "Connection": "keep-alive", "X-Accel-Buffering": "no"}


@dataclass(slots=True, kw_only=True)
class Web:
    """The channel `web`: each session is a conversation.

    `routes` are served beside ours and guard themselves. `control` answers who may talk, and why not.
    `ping` is the silence in seconds after which a stream gets a comment, `patience` how long `wait` waits
    for a reply.

    Raises: ConfigError when a host beyond loopback has no token (http-018).
    """

    host: str
    port: int
    token: str = field(repr=False)
    feed: Feed
    clock: Clock
    reads: Reads
    control: Control | None = None
    routes: Sequence[web.AbstractRouteDef] = ()
    ping: float = 15.0
    patience: float = 300.0
    name: str = field(default="web", init=False)
    _limiter: Limiter = field(init=False)
    _runner: web.AppRunner | None = field(default=None, init=False)
    _foreign: frozenset[web.AbstractRoute] = field(default=frozenset(), init=False)
    _accept: Accept | None = field(default=None, init=False)
    _watches: dict[str, set[Watch]] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self._limiter = Limiter(self.clock)
        if not self.token and not guard.is_loopback(self.host):
            raise ConfigError(
                f"[http] host {self.host!r} can be reached from other machines: set [http] token, "
                'or host = "127.0.0.1"'
            )

    @property
    def url(self) -> str:
        """Return the address that the server is bound to; `start` comes first."""
        if self._runner is None or not self._runner.addresses:
            return f"http://{self.host}:{self.port}"
        host, port = self._runner.addresses[0][:2]
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    async def start(self) -> None:
        """Bind the port and answer; what needs the core is refused with 503 until `listen`.

        Raises: ConfigError.
        """
        app = web.Application(client_max_size=LARGEST_BODY, middlewares=[self._face])
        app.add_routes(self._own(await asyncio.to_thread(assets)))
        self._foreign = frozenset(app.add_routes(self.routes))
        app.on_response_prepare.append(harden)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=CLOSE_SECONDS)
        await runner.setup()
        try:
            await web.TCPSite(runner, self.host, self.port).start()
        except OSError as error:
            await runner.cleanup()
            raise self._unusable(error) from None
        self._runner = runner

    async def open(self) -> None:
        """Nothing is to be loaded: `start` has done it."""

    async def listen(self, accept: Accept) -> None:
        """Take messages until cancelled."""
        self._accept = accept
        try:
            await asyncio.Event().wait()
        finally:
            self._accept = None

    async def send(self, message: Outgoing) -> Receipt:
        """Tell who watches; who doesn't finds the stored message on the next connection."""
        await asyncio.sleep(0)  # events published before this call go first
        for watch in self._watching_now(message.address.chat):
            watch.put(message)
        return Receipt(message.key)

    def pieces(self, text: str) -> Sequence[str]:
        """Return the reply uncut: a page has no limit."""
        return [text] if text else []

    def status(self) -> dict[str, str | int | float | None]:
        """Return the address and the number of open streams."""
        return {"url": self.url, "watching": sum(map(len, self._watches.values()))}

    async def close(self) -> None:
        """End open streams at once, then the server."""
        self._accept = None
        for session in list(self._watches):
            for watch in self._watching_now(session):
                watch.end()
        if self._runner is not None:
            runner, self._runner = self._runner, None
            await runner.cleanup()

    def _own(self, pages: Mapping[str, Handler]) -> list[web.RouteDef]:
        def get(path: str, handler: Handler) -> web.RouteDef:
            return web.get(path, handler, allow_head=False)

        return [
            *(get(path, page) for path, page in pages.items()),
            get("/healthz", self._live),
            get("/readyz", self._ready),
            get("/sse", self._stream),
            get("/api/health", self._health),
            get("/api/sessions", self._sessions),
            get("/api/sessions/{session}/messages", self._messages),
            web.post("/api/chat", self._chat),
            web.post("/api/stop", self._stop),
            *(AccessRoutes(self.control).routes() if self.control else ()),
        ]

    def _unusable(self, error: OSError) -> ConfigError:
        if error.errno == errno.EADDRINUSE:
            return ConfigError(
                f"port {self.port} on {self.host} is in use; set [http] port, or stop what uses it"
            )
        reason = os.strerror(error.errno) if error.errno else str(error)
        return ConfigError(
            f"can't listen on {self.host}:{self.port} ({reason}); set [http] host to one of this machine's"
        )

    @web.middleware
    async def _face(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Guard our own routes and answer every refusal in one shape."""
        if request.match_info.route in self._foreign:
            return await handler(request)
        try:
            self._check(request)
            return await handler(request)
        except Refusal as refusal:
            return refused(refusal)
        except StoreError:
            message = "the database can't take or give anything now: send it again"
            return refused(Refusal(503, "unavailable", message, {"Retry-After": "5"}))
        except web.HTTPException as error:
            kind, message = REASONS.get(error.status, ("http_error", error.reason))
            kept = {"Allow": error.headers["Allow"]} if "Allow" in error.headers else {}
            return refused(Refusal(error.status, kind, message, kept))

    def _check(self, request: web.Request) -> None:
        """Raise Refusal unless the request may reach its handler; forwarding headers count for nothing."""
        if request.path in ("/healthz", "/readyz"):  # probes know neither name nor token
            return
        header = request.headers.get("Host", "")
        guard.check_host(header, self.host)
        guard.check_origin(request.headers.get("Origin"), header)
        if request.path == "/sse" or request.path.startswith("/api/"):
            guard.check_query(request.query)
            if self.token:
                peer = request.remote or "unknown"
                guard.check_token(request.headers.get("Authorization", ""), self.token, peer, self._limiter)
        if request.method == "POST" and request.content_type != "application/json":
            raise Refusal(415, "unsupported_media_type", "send `Content-Type: application/json`")

    async def _live(self, _: web.Request) -> web.Response:
        return as_json({"ok": True, "status": "live"})

    async def _ready(self, _: web.Request) -> web.Response:
        status = "starting"
        if self._accept is not None:
            status = str((await ask(self.reads.health())).get("status", "degraded"))
        ok = status == "ready"
        return as_json({"ok": ok, "status": status}, status=200 if ok else 503)

    async def _health(self, _: web.Request) -> web.Response:
        return as_json(await ask(self.reads.health()))

    async def _sessions(self, request: web.Request) -> web.Response:
        rows = await ask(self.reads.sessions(wire.read_limit(request.query)))
        return as_json({"sessions": rows})

    async def _messages(self, request: web.Request) -> web.Response:
        session = wire.read_session(request.match_info)
        limit, before = wire.read_limit(request.query), wire.read_number(request.query, "before")
        return as_json({"messages": await ask(self.reads.messages(session, limit, before))})

    async def _stop(self, request: web.Request) -> web.Response:
        session = wire.read_session(wire.read_object(await read_body(request)))
        return as_json({"stopped": await ask(self.reads.stop(Address(self.name, session)))})

    async def _chat(self, request: web.Request) -> web.Response:
        """Store the message, then say so; the reply follows on the stream, or here with `wait`."""
        chat = wire.read_chat(await read_body(request))
        task = f"task_{chat.id or uuid.uuid4().hex}"
        key = wire.stimulus_key(chat.session, task)
        stimulus = Stimulus(
            key=key,
            address=Address(self.name, chat.session),
            sender=SENDER,
            text=chat.message,
            at=self.clock.wall(),
        )
        answer: JsonObject = {"success": True, "taskId": task, "session": chat.session}
        if not chat.wait:
            await self._take(stimulus, task)
            return as_json(answer)
        async with self._watch(chat.session, request) as watch:
            await self._take(stimulus, task)
            # A message that was sent before may have its reply already; nobody will announce it again.
            known = await self._standing(key) if chat.id else None
            return as_json(answer | (known or await self._reply(key, watch, request)))

    async def _take(self, stimulus: Stimulus, task: str) -> None:
        if self._accept is None:
            message = "the gateway is starting or stopping: send it again"
            raise Refusal(503, "unavailable", message, {"Retry-After": "1"})
        await self._accept([stimulus])
        for watch in self._watching_now(stimulus.address.chat):
            watch.put(Accepted(task, stimulus.text))

    async def _reply(self, key: str, watch: Watch, request: web.Request) -> JsonObject:
        """Wait for the turn that answers a stimulus, or for the answer of a command.

        A turn that lets go may begin again, has been stopped, asks whether it may go on, or waits for another
        day, and another node tells nothing at all: the store knows.
        """
        with suppress(TimeoutError, Ended):
            async with asyncio.timeout(self.patience):
                while request.transport is not None:  # the client is still there
                    match await watch.next(self.ping):
                        case TurnEnded(text, keys, is_error) if key in keys:
                            return {"reply": text, "success": not is_error}
                        case Outgoing(key=sent, text=text) if sent == f"command:{key}":
                            return {"reply": text}
                        case None | TurnGone() | Outgoing(buttons=((_, *_), *_)):
                            with suppress(StoreError):  # the message is stored, and its turn goes on later
                                if known := await self._standing(key):
                                    return known
        return {"pending": True}

    async def _standing(self, key: str) -> JsonObject | None:
        """Return the reply that a stimulus has got, or what stands before it: a question, or a budget."""
        reply = await ask(self.reads.reply_to(key))
        if reply is not None:
            return {"reply": reply}
        question = await ask(self.reads.question_of(key))
        if question is not None:
            return {"pending": True, "question": question}
        notice = await ask(self.reads.notice_of(key))
        return None if notice is None else {"pending": True, "notice": notice}

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        """Tell a client what happens in its session until it leaves or the server stops."""
        session = wire.read_session(request.query)
        after = _last_event(request)
        async with self._watch(session, request) as watch:
            cursor = await ask(self.reads.last_reply(session)) if after is None else after
            response = web.StreamResponse(headers=STREAM)
            with suppress(ConnectionResetError, Ended, StoreError):  # the client comes back with its cursor
                await response.prepare(request)
                await response.write(wire.frame({"type": "progress", "status": "connected"}, cursor))
                if after is None:  # what was said before is read as history, which holds no questions
                    for row in await ask(self.reads.questions(session)):
                        await response.write(wire.frame(wire.message(row), cursor))
                cursor = await self._replay(response, session, cursor)
                while True:
                    match await watch.next(self.ping):
                        case None:
                            await response.write(b": ping\n\n")
                            # Another node may have delivered a reply.
                            cursor = await self._replay(response, session, cursor)
                        case Outgoing():
                            cursor = await self._replay(response, session, cursor)
                        case item:
                            for event in wire.events(item, session):
                                await response.write(wire.frame(event, cursor))
        return response

    async def _replay(self, response: web.StreamResponse, session: str, cursor: int) -> int:
        """Write the stored replies above the cursor; return the new cursor."""
        for row in await ask(self.reads.replies_after(session, cursor)):
            cursor = int(row["id"])
            await response.write(wire.frame(wire.message(row), cursor))
        return cursor

    @asynccontextmanager
    async def _watch(self, session: str, request: web.Request) -> AsyncIterator[Watch]:
        watch = Watch(cut=request.transport.abort if request.transport else _nothing)
        watches = self._watches.setdefault(session, set())
        watches.add(watch)
        subscription = self.feed.subscribe(Address(self.name, session))
        following = asyncio.create_task(watch.follow(subscription))
        try:
            yield watch
        finally:
            watches.discard(watch)
            if not watches:
                self._watches.pop(session, None)
            self.feed.unsubscribe(subscription)
            await following

    def _watching_now(self, session: str) -> list[Watch]:
        return list(self._watches.get(session, ()))


def _last_event(request: web.Request) -> int | None:
    """Return the last reply that the client has, as a browser or a simple client says it."""
    header = request.headers.get("Last-Event-ID")
    values = {"after": header} if header else request.query
    return wire.read_number(values, "after")


def _nothing() -> None:
    """Stand for the end of a connection that is gone already."""
