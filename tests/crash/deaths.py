"""A process that dies at the n-th commit, and what outlives it."""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from gateway.store.engine import Database, Work
from tests.fakes.clock import FakeClock
from tests.fakes.scripted import RecordingChannel, ScriptedModel, ScriptedTools
from tests.fakes.world import World

T = TypeVar("T")

LEASE = 60.0
NEVER = 10_000
"""More commits than any of these lives has."""

before_and_after = pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
"""Whether the commit at which the process dies is still done."""


class Crash(BaseException):
    """The process is gone."""


class Mortal:
    """A database whose process dies at the n-th commit."""

    def __init__(self, inner: Database, at: int, *, after: bool) -> None:
        self._inner = inner
        self._left = at
        self._after = after
        self.dead = False
        self.exclusive = inner.exclusive
        self.failing = False

    def now(self) -> float:
        return self._inner.now()

    async def write(self, work: Work[T], *, durable: bool = True) -> T:
        if self.dead:
            raise Crash
        self._left -= 1
        if self._left > 0:
            return await self._inner.write(work, durable=durable)
        self.dead = True
        if self._after:
            await self._inner.write(work, durable=durable)
        raise Crash

    async def read(self, work: Work[T]) -> T:
        return await self._inner.read(work)

    async def close(self) -> None:
        await self._inner.close()


Life: TypeAlias = Callable[[Mortal], Awaitable[None]]
"""All that one process does."""


@dataclass(slots=True)
class Outside:
    """What outlives the process."""

    clock: FakeClock
    tools: ScriptedTools = field(default_factory=ScriptedTools)
    channel: RecordingChannel = field(default_factory=RecordingChannel)

    def process(self, db: Mortal, model: ScriptedModel, **more: Any) -> World:
        """Return a process on a database; `more` is as for World."""
        ends: dict[str, Any] = {"tools": self.tools, "channel": self.channel, "slots": 1, "lease": LEASE}
        return World(db=db, clock=self.clock, model=model, **ends | more)


async def lives(db: Database, life: Life, at: int = NEVER, *, after: bool = False) -> bool:
    """Live until the end of the work or the crash; return whether the end was reached."""
    mortal = Mortal(db, at, after=after)
    try:
        await life(mortal)
    except* Crash:
        pass  # any other error comes out
    return not mortal.dead


async def dies_once(db: Database, clock: FakeClock, life: Life, at: int, *, after: bool) -> bool:
    """Die at a commit and live again to the end; return whether the first life reached it already."""
    finished = await lives(db, life, at, after=after)
    if not finished:
        clock.time += 2 * LEASE  # on a shared database the dead one's leases run out
        assert await lives(db, life)
    return finished


async def at_every_commit(clock: FakeClock, crash: Callable[[int], Awaitable[bool]], more_than: int) -> None:
    """Crash at the first commit, the second and so on; `crash` returns whether the work ended before that."""
    clock.tick = 1e-6
    for at in itertools.count(1):
        if await crash(at):
            break
    assert at > more_than, "the work takes that many commits, so that many deaths were tried"


def wipe(*tables: sa.Table) -> Work[None]:
    """Return what deletes all rows of tables, those that point at others first."""

    def work(tx: Connection) -> None:
        for table in tables:
            tx.execute(sa.delete(table))

    return work
