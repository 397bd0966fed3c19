"""The gateway while it runs."""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from gateway.agenda import Agenda
from gateway.app.models import Models
from gateway.app.parts import is_terminal
from gateway.capabilities import Capabilities
from gateway.channel import Alone, Channel
from gateway.clock import Clock
from gateway.context import Contexts
from gateway.errors import LeaseLost
from gateway.heartbeat import Heartbeat
from gateway.intake import Intake
from gateway.mcp.servers import Servers
from gateway.prepare import Preparer
from gateway.redact import Redactor
from gateway.retention import Retention
from gateway.store.engine import Database
from gateway.store.leases import Leases
from gateway.timer import Timer
from gateway.tools.processes import Processes
from gateway.work import Sender, Supervised, Worker, supervise

log = logging.getLogger(__name__)

GRACE = 20.0
"""Seconds that running turns and deliveries get when the gateway stops (reliability row 33)."""


@dataclass(slots=True, kw_only=True)
class Gateway:
    """Everything that runs, once it is open."""

    clock: Clock
    db: Database
    channels: dict[str, Channel]
    intake: Intake
    worker: Worker
    sender: Sender
    preparer: Preparer
    leases: Leases
    timer: Timer
    agenda: Agenda
    heartbeat: Heartbeat
    models: Models
    contexts: Contexts
    capabilities: Capabilities
    retention: Retention
    processes: Processes
    servers: Servers
    seen: dict[str, Supervised]
    state: str = "starting"

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until `stop`, then let running work reach its next step."""
        await self.worker.journal.recover()
        if allowance := self.worker.turns.allowance:
            await allowance.begin()
        if parked := await self.sender.outbox.recover():
            log.warning("outbox.parked", extra={"messages": parked, "problem": "older than a day, not sent"})
        async with asyncio.TaskGroup() as group:
            working = group.create_task(self.worker.serve())
            sending = group.create_task(self.sender.serve())
            others = [self.preparer.serve(), self.timer.serve(), self.retention.serve()]
            if not is_terminal(self.channels):
                others.append(self.heartbeat.serve())
            others += [self._listen(channel, stop) for channel in self.channels.values()]
            tasks = [group.create_task(one) for one in others]
            self.agenda.look_soon()
            self.state = "ready"
            await stop.wait()
            self.state = "draining"
            log.info("gateway.stopping")
            for task in tasks:
                task.cancel()
            self.worker.drain()
            await self._grace(working)
            self.sender.drain()
            await self._grace(sending)

    async def close(self) -> None:
        """Let go of everything, whatever state it is in."""
        for channel in self.channels.values():
            await channel.close()
        await self.servers.close()
        await self.processes.close()
        await self.models.close()
        await self.db.close()

    async def _grace(self, task: asyncio.Task[None]) -> None:
        done, _ = await asyncio.wait({task}, timeout=GRACE)
        if not done:
            log.warning(
                "gateway.impatient", extra={"problem": "work is cut off; it goes on at the next start"}
            )
            task.cancel()

    async def _listen(self, channel: Channel, stop: asyncio.Event) -> None:
        seen = self.seen.setdefault(channel.name, Supervised(channel.name))
        run = functools.partial(channel.listen, self.intake.accept)
        alone = channel.alone if isinstance(channel, Alone) else ""
        if alone and not self.db.exclusive:
            run = functools.partial(self._alone, f"listen:{alone}", run)
        await supervise(run, seen, self.clock)
        if seen.state == "ended":  # a terminal whose person has left
            stop.set()

    async def _alone(self, name: str, run: Callable[[], Awaitable[None]]) -> None:
        """Listen while no other process does; give way when the lease is lost."""

        async def keep() -> None:
            while True:
                await self.clock.sleep(self.leases.seconds / 3)
                if not await self.leases.hold(name):
                    raise LeaseLost(name)

        try:
            async with self.leases.held(name), asyncio.TaskGroup() as group:
                keeper = group.create_task(keep())
                await run()
                keeper.cancel()
        except ExceptionGroup as group_error:  # what the listener raised says whether it may begin again
            raise group_error.exceptions[0] from None


def status(
    channels: Mapping[str, Channel],
    seen: Mapping[str, Supervised],
    redact: Callable[[str], str] = Redactor(),  # noqa: B008 - it never changes
) -> dict[str, str]:
    """Return one short line for each channel."""
    lines = {}
    for name, channel in channels.items():
        here = seen.get(name, Supervised(name))
        trouble = here.problem or str(channel.status().get("last_error") or "")
        lines[name] = f"{here.state} ({redact(trouble)})" if trouble else here.state
    return lines
