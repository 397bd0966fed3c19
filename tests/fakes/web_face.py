"""A running HTTP face with a core that only remembers, and a client for it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import ClientResponse, ClientSession, web

from adapters.web import Web
from gateway.clock import SystemClock
from gateway.errors import StoreError
from gateway.feed import Feed
from gateway.types import Address, JsonObject, Outgoing, Stimulus

TOKEN = "right-token-for-tests"
MAIN = Address("web", "main")


@dataclass
class Core:
    """Takes stimuli once for each key and keeps replies, as the store does."""

    taken: dict[str, Stimulus] = field(default_factory=dict)
    outbox: list[tuple[str, JsonObject]] = field(default_factory=list)
    rows: list[JsonObject] = field(default_factory=list)
    answers: dict[str, str] = field(default_factory=dict)
    open: set[str] = field(default_factory=set)
    questions_of: dict[str, JsonObject] = field(default_factory=dict)
    notices: dict[str, str] = field(default_factory=dict)
    stopped: list[Address] = field(default_factory=list)
    status: str = "ready"
    broken: bool = False
    deaf: bool = False
    on_stimulus: Callable[[Stimulus], Awaitable[None]] | None = None

    async def accept(self, stimuli: Sequence[Stimulus], cursor: object = None, poison: object = ()) -> None:
        if self.broken:
            raise StoreError("disk full")
        for stimulus in stimuli:
            if self.taken.setdefault(stimulus.key, stimulus) is stimulus and self.on_stimulus:
                await self.on_stimulus(stimulus)

    def queue(self, session: str, text: str, task: str = "", key: str = "", **more: Any) -> Outgoing:
        number = len(self.outbox) + 1
        self.outbox.append((session, {"id": number, "text": text, "task": task, **more}))
        return Outgoing(key=key or f"turn:{number}", address=Address("web", session), text=text)

    async def sessions(self, limit: int) -> list[JsonObject]:
        return [{"session": "main", "at": 2.0}, {"session": "work", "at": 1.0}][:limit]

    async def messages(self, session: str, limit: int, before: int | None) -> list[JsonObject]:
        rows = [row for row in self.rows if before is None or row["seq"] < before]
        return rows[-limit:] if session == "main" else []

    async def replies_after(self, session: str, after: int) -> list[JsonObject]:
        if self.broken:
            raise StoreError("disk full")
        return [row for where, row in self.outbox if where == session and row["id"] > after]

    async def questions(self, session: str) -> list[JsonObject]:
        return [row for where, row in self.outbox if where == session and row.get("name") in self.open]

    async def last_reply(self, session: str) -> int:
        return max((row["id"] for where, row in self.outbox if where == session), default=0)

    async def reply_to(self, key: str) -> str | None:
        if self.deaf:
            raise StoreError("disk full")
        return self.answers.get(key)

    async def question_of(self, key: str) -> JsonObject | None:
        return self.questions_of.get(key)

    async def notice_of(self, key: str) -> str | None:
        return self.notices.get(key)

    async def health(self) -> JsonObject:
        return {"status": self.status, "channels": {"web": "up"}}

    async def stop(self, address: Address) -> int:
        self.stopped.append(address)
        return 1


@dataclass
class Face:
    """A running server, its core, and a client."""

    web: Web
    core: Core
    feed: Feed
    client: ClientSession
    listening: asyncio.Task[None]

    def url(self, path: str) -> str:
        return self.web.url + path

    async def chat(self, **body: Any) -> JsonObject:
        async with self.client.post(self.url("/api/chat"), json=body) as response:
            assert response.status == 200, await response.text()
            return dict(await response.json())

    async def status(self, method: str, path: str, **options: Any) -> int:
        async with self.client.request(method, self.url(path), **options) as response:
            if response.status >= 400:
                error = (await response.json())["error"]
                assert set(error) == {"type", "message"}
                assert error["message"]
                assert (error["type"] == "bad_request") == (response.status == 400)
            return response.status

    async def send(
        self, text: str, session: str = "main", task: str = "", key: str = "", **more: Any
    ) -> None:
        await self.web.send(self.core.queue(session, text, task, key, **more))


@dataclass
class Events:
    """An open event stream."""

    response: ClientResponse
    last_id: int = 0

    async def next(self) -> JsonObject:
        """Return the next event; comments are skipped."""
        while True:
            lines = (await self.response.content.readuntil(b"\n\n")).decode().splitlines()
            fields = dict(line.split(": ", 1) for line in lines if line and not line.startswith(":"))
            if "data" in fields:
                self.last_id = int(fields["id"])
                return dict(json.loads(fields["data"]))

    async def until(self, kind: str) -> list[JsonObject]:
        seen = [await self.next()]
        while seen[-1]["type"] != kind:
            seen.append(await self.next())
        return seen


@asynccontextmanager
async def face(
    *,
    token: str = "",
    auth: bool = True,
    ping: float = 15.0,
    patience: float = 30.0,
    routes: Sequence[web.RouteDef] = (),
) -> AsyncIterator[Face]:
    feed, core = Feed(), Core()
    server = Web(
        host="127.0.0.1",
        port=0,
        token=token,
        feed=feed,
        clock=SystemClock(),
        reads=core,
        routes=routes,
        ping=ping,
        patience=patience,
    )
    await server.start()
    headers = {"Authorization": f"Bearer {token}"} if token and auth else {}
    async with ClientSession(headers=headers) as client:
        listening = asyncio.create_task(server.listen(core.accept))
        await asyncio.sleep(0)
        try:
            yield Face(server, core, feed, client, listening)
        finally:
            listening.cancel()
            await asyncio.gather(listening, return_exceptions=True)
            await server.close()


@asynccontextmanager
async def stream(at: Face, query: str = "", **options: Any) -> AsyncIterator[Events]:
    async with at.client.get(at.url("/sse" + query), **options) as response:
        assert response.status == 200, await response.text()
        events = Events(response)
        assert await events.next() == {"type": "progress", "status": "connected"}
        yield events


async def eventually(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 - what is waited for has no event of its own
        await asyncio.sleep(0.001)
