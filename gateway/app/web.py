"""Opens the web page, with what it may look up and do."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from gateway.app.control import control_of
from gateway.app.parts import Parts
from gateway.app.running import Gateway, status
from gateway.control import StoreControl
from gateway.store import history, usage
from gateway.store.engine import Database
from gateway.types import Address, JsonObject

if TYPE_CHECKING:
    from aiohttp.web import AbstractRouteDef

    from adapters.web import Web


async def open_web(
    parts: Parts, gateway: Callable[[], Gateway | None], doors: Sequence[AbstractRouteDef]
) -> Web:
    """Return the channel of the page, which answers from now on; `doors` are what platforms post to.

    `gateway` returns what runs, None until it is wired.
    """
    from adapters.web import Web  # noqa: PLC0415 - 0.2 s that a gateway without a page saves

    http = parts.settings.http
    web = Web(
        host=http.host,
        port=http.port,
        token=http.token.get_secret_value(),
        feed=parts.feed,
        clock=parts.clock,
        reads=StoreReads(parts.db, gateway),
        control=_control(parts, gateway),
        routes=doors,
    )
    await web.start()
    return web


def _control(parts: Parts, gateway: Callable[[], Gateway | None]) -> StoreControl:
    def wake_sender() -> None:
        if running := gateway():
            running.sender.bell.ring()

    def wake_agenda() -> None:
        if running := gateway():
            running.agenda.look_soon()

    return replace(
        control_of(parts, sent=wake_sender, changed=wake_agenda),
        beats=lambda: running.heartbeat if (running := gateway()) else None,
        contexts=lambda: running.contexts if (running := gateway()) else None,
        capabilities=lambda: running.capabilities if (running := gateway()) else None,
    )


@dataclass(slots=True)
class StoreReads:
    """What the page may look up."""

    db: Database
    gateway: Callable[[], Gateway | None]

    async def sessions(self, limit: int) -> list[JsonObject]:
        return await self.db.read(functools.partial(history.sessions, channel="web", limit=limit))

    async def messages(self, session: str, limit: int, before: int | None) -> list[JsonObject]:
        where = Address("web", session)
        return await self.db.read(lambda tx: history.messages(tx, where, limit, before))

    async def replies_after(self, session: str, after: int) -> list[JsonObject]:
        where = Address("web", session)
        rows = await self.db.read(lambda tx: history.replies_after(tx, where, after))
        return [{**row, "task": _task(row.pop("key"), where)} for row in rows]

    async def questions(self, session: str) -> list[JsonObject]:
        return await self.db.read(lambda tx: history.questions(tx, Address("web", session)))

    async def last_reply(self, session: str) -> int:
        return await self.db.read(lambda tx: history.last_reply(tx, Address("web", session)))

    async def reply_to(self, key: str) -> str | None:
        return await self.db.read(lambda tx: history.reply_to(tx, key))

    async def question_of(self, key: str) -> JsonObject | None:
        return await self.db.read(lambda tx: history.question_of(tx, key))

    async def notice_of(self, key: str) -> str | None:
        gateway = self.gateway()
        if gateway is None:
            return None
        day, now = gateway.worker.journal.ledger.today(), self.db.now()
        return await self.db.read(lambda tx: usage.notice_of(tx, key, day, now))

    async def health(self) -> JsonObject:
        gateway = self.gateway()
        if gateway is None:
            return {"status": "starting"}
        lines = status(gateway.channels, gateway.seen)
        bad = [name for name, seen in gateway.seen.items() if seen.state in ("down", "stopped")]
        trouble = bool(bad) or self.db.failing
        state = "degraded" if trouble and gateway.state == "ready" else gateway.state
        waiting = await self.db.read(history.depth)
        depths = await self.db.read(history.depths)
        idle = {"waiting": 0, "sending": 0}
        details = {
            name: channel.status() | depths.get(name, idle) for name, channel in gateway.channels.items()
        }
        return {
            "status": state,
            "model": gateway.models.usual.name,
            "channels": lines,
            "details": details,
            "waiting": waiting,
            "mcp": gateway.servers.status(),
        }

    async def stop(self, address: Address) -> int:
        gateway = self.gateway()
        if gateway is None:
            return 0
        which, stopped = await gateway.worker.journal.stop(address)
        if which is not None:
            gateway.worker.interrupt(which)
            gateway.worker.sender.bell.ring()
        return int(stopped)


def _task(key: str, where: Address) -> str:
    return key.removeprefix(f"{where.channel}:{where.chat}:") if key else ""
