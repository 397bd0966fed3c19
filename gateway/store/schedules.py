"""All schedules, for whoever changes them or looks at them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

from sqlalchemy.engine import Connection

from gateway.clock import Clock
from gateway.store import firing, jobs
from gateway.store.engine import Database
from gateway.store.firing import Fired
from gateway.store.jobs import Job, Rules, Run, Wanted
from gateway.store.journal import Ended
from gateway.types import Address


def _nothing() -> None:
    return


@dataclass(slots=True, kw_only=True)
class Schedules:
    """All schedules, for whoever changes or looks at them. `changed` is called after each change.

    With an `address` only those of that chat count; without one, all do. A schedule is named by its id
    or its name. Every method may raise StoreError, and ValueError, which says what to do.
    """

    db: Database
    clock: Clock
    rules: Rules
    changed: Callable[[], None] = _nothing

    async def save(self, wanted: Wanted) -> tuple[Job, bool]:
        """Add or change; also return whether it is new."""
        wall = self.clock.wall()
        saved = await self.db.write(lambda tx: jobs.save(tx, wanted, self.rules, wall))
        self.changed()
        return saved

    async def remove(self, which: str, address: Address | None = None) -> str:
        """Forget it; return its name."""
        name = await self.db.write(lambda tx: jobs.remove(tx, which, address))
        self.changed()
        return name

    async def pause(self, which: str, address: Address | None = None) -> str:
        """Keep it from firing; return its name."""
        name = await self.db.write(lambda tx: jobs.pause(tx, which, address))
        self.changed()
        return name

    async def resume(self, which: str, address: Address | None = None) -> Job:
        """Let it fire again."""
        wall = self.clock.wall()
        job = await self.db.write(lambda tx: jobs.resume(tx, which, address, wall))
        self.changed()
        return job

    async def run(self, which: str, address: Address | None = None) -> str:
        """Run it now, whatever its state; return its name."""
        wall, now = self.clock.wall(), self.db.now()
        name = await self.db.write(
            lambda tx: firing.run_now(tx, which, address, rules=self.rules, wall=wall, now=now)
        )
        self.changed()
        return name

    async def jobs(self, address: Address | None = None) -> list[Job]:
        """Return them, the oldest first."""
        return await self.db.read(lambda tx: jobs.listed(tx, address))

    async def show(self, which: str, address: Address | None = None) -> Job:
        """Return one."""
        return await self.db.write(lambda tx: jobs.show(tx, which, address), durable=False)

    async def history(self, which: str, limit: int = 20) -> list[Run]:
        """Return the newest runs, newest first; of one that is gone only by its id."""

        def work(tx: Connection) -> list[Run]:
            found = jobs.runs(tx, which.lower(), limit)
            return found or jobs.runs(tx, jobs.find(tx, which, None).id, limit)

        return await self.db.write(work, durable=False)

    async def fire(self) -> Fired:
        """Start what is due."""
        work = functools.partial(firing.fire, rules=self.rules, wall=self.clock.wall(), now=self.db.now())
        return await self.db.write(work)

    async def prune(self) -> None:
        """Forget what is old."""
        wall, now = self.clock.wall(), self.db.now()
        await self.db.write(lambda tx: firing.prune(tx, wall, now), durable=False)

    def ended(self, tx: Connection, end: Ended) -> None:
        """Note how the turn of a slot ended, in the transaction that ends it."""
        firing.ended(tx, end, self.clock.wall(), self.db.now())
