"""A piece of the web on loopback: hosts that serve what they are told, a name server, and somebody to protect.

127.0.0.2 stands for the public network, which is why the guards of tests judge it so; 127.0.0.1 is what it
is, and nobody may reach it.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from aiohttp import web

from gateway.tools.fetch import Fetcher, Limits
from gateway.tools.netguard import PORTS, Guard, Reach, Rules, reach_of

PUBLIC = "127.0.0.2"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What a URL answers. `drips`: the body is sent again and again, a byte at a time, and never ends."""

    body: bytes = b""
    status: int = 200
    kind: str = "text/html; charset=utf-8"
    headers: Mapping[str, str] = field(default_factory=dict)
    drips: bool = False
    breaks: bool = False


@dataclass(frozen=True, slots=True)
class Seen:
    """What a server was asked."""

    method: str
    host: str
    path: str
    headers: Mapping[str, str]
    body: bytes


@dataclass(slots=True)
class FakeWeb:
    """All hosts of a test on one port; `pages` maps a path with its query to a reply."""

    pages: dict[str, Reply] = field(default_factory=dict)
    seen: list[Seen] = field(default_factory=list)
    port: int = 0

    @property
    def paths(self) -> list[str]:
        return [one.path for one in self.seen]

    def url(self, host: str, path: str = "/", scheme: str = "http") -> str:
        return f"{scheme}://{host}:{self.port}{path}"

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.seen.append(
            Seen(
                request.method,
                request.headers.get("Host", ""),
                request.path_qs,
                dict(request.headers),
                await request.read(),
            )
        )
        reply = self.pages.get(request.path_qs) or self.pages.get(request.path) or Reply(status=404)
        headers = {"Content-Type": reply.kind, **reply.headers} if reply.kind else dict(reply.headers)
        if not reply.drips and not reply.breaks:
            return web.Response(status=reply.status, body=reply.body, headers=headers)
        answer = web.StreamResponse(status=reply.status, headers=headers)
        answer.content_length = 10_000 if reply.breaks else None
        await answer.prepare(request)
        await answer.write(reply.body)
        if reply.breaks and request.transport:
            request.transport.abort()
        while reply.drips:
            await answer.write(b".")
            await asyncio.sleep(0.01)
        return answer


@asynccontextmanager
async def fake_web(trust: ssl.SSLContext | None = None, address: str = PUBLIC) -> AsyncIterator[FakeWeb]:
    """Serve; with a context over TLS."""
    fake = FakeWeb()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", fake.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1, access_log=None)
    await runner.setup()
    try:
        site = web.TCPSite(runner, address, 0, ssl_context=trust)
        await site.start()
        fake.port = runner.addresses[0][1]
        yield fake
    finally:
        await runner.cleanup()


@dataclass(slots=True)
class Victim:
    """A server on loopback that counts who comes."""

    port: int = 0
    visits: int = 0

    async def greet(self, _reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.visits += 1
        writer.close()


@asynccontextmanager
async def victim() -> AsyncIterator[Victim]:
    """Listen."""
    fake = Victim()
    server = await asyncio.start_server(fake.greet, "127.0.0.1", 0)
    fake.port = server.sockets[0].getsockname()[1]
    async with server:
        yield fake


@dataclass(slots=True)
class Names:
    """A name server. A name has one answer after the other; the last one stays."""

    answers: Mapping[str, Sequence[Sequence[str]]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        del port
        times = self.asked.count(host)
        self.asked.append(host)
        known = self.answers.get(host, ((PUBLIC,),) if host.endswith(".test") else ())
        if not known:
            raise OSError("no such name")
        return known[min(times, len(known) - 1)]


def judge(address: str) -> Reach:
    """Judge as usual, but for the stand-in of the public network."""
    return Reach.PUBLIC if address == PUBLIC else reach_of(address)


def fetcher(
    *ports: int,
    names: Names | None = None,
    rules: Rules | None = None,
    limits: Limits | None = None,
    trust: ssl.SSLContext | None = None,
) -> Fetcher:
    """Return a fetcher that reaches the fake web."""
    guard = Guard(rules or Rules(ports=frozenset(ports) or PORTS), names or Names(), judge)
    known = trust or ssl.create_default_context()
    return Fetcher(guard=guard, limits=limits or Limits(), trust=lambda: known)
