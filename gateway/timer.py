"""Wakes up at a wall time: what is due is in our tables, APScheduler only rings (decisions 3)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TypeAlias

from gateway.bell import Bell
from gateway.clock import Clock

if TYPE_CHECKING:
    from apscheduler.schedulers.asyncio import AsyncIOScheduler

log = logging.getLogger(__name__)

Run: TypeAlias = Callable[[], Awaitable[None]]

TICK = 30.0
"""Seconds between looks at the clock. The event loop's timers stand still while a machine sleeps, and
don't see that the clock was set, so that a ring alone could be hours late (libraries 4)."""

_NEAR = 0.001
"""Seconds that a ring may come early, since a `datetime` has only microseconds."""


@dataclass(frozen=True, slots=True)
class _Alarm:
    name: str
    at: float
    run: Run
    replan: bool


@dataclass(slots=True)
class Timer:
    """Runs things once at a wall time, each under a name of its own.

    `set` and `drop` work in the event loop, before `serve` runs too; only `serve` runs what is due.
    Alarms live in memory: whoever sets one knows from a table when it is due, and sets it again at the
    start. An alarm that is overdue runs at once, however late. Runs of one name never overlap: the next
    one waits. A clock that is set back only delays, except where `replan` was asked for. Without alarms
    there is no timer, and APScheduler is not even imported.
    """

    clock: Clock
    tick: float = TICK
    _alarms: dict[str, _Alarm] = field(default_factory=dict, init=False)
    _running: set[str] = field(default_factory=set, init=False)
    _ahead: float = field(default=0.0, init=False)
    _bell: Bell = field(default_factory=Bell, init=False)
    _scheduler: AsyncIOScheduler | None = field(default=None, init=False)

    def set(self, name: str, at: float, run: Run, *, replan: bool = False) -> None:
        """Run once at the UNIX time `at`, in seconds, in place of what was set under this name.

        With `replan` it runs early too, when the clock was set back: what was planned by a wrong time may
        be days away. `run` then has to look at the clock, and sets its own name again.
        An exception of `run` is logged and ends only that run.
        """
        if not self._alarms or at <= self.clock.wall():
            self._bell.ring()  # what is due runs; and with something to wait for, the ticks begin
        self._alarms[name] = _Alarm(name, at, run, replan)
        if at <= self.clock.wall():
            return
        from apscheduler.triggers.date import DateTrigger  # noqa: PLC0415 - 74 ms, with the scheduler

        trigger = DateTrigger(datetime.fromtimestamp(at, UTC))
        self._started().add_job(self._ring, trigger, id=name, replace_existing=True)

    def drop(self, name: str) -> None:
        """Forget an alarm; one whose run has begun goes on."""
        if self._alarms.pop(name, None) and self._scheduler is not None and self._scheduler.get_job(name):
            self._scheduler.remove_job(name)

    def at(self, name: str) -> float | None:
        """Return when an alarm is due, None if there is none."""
        alarm = self._alarms.get(name)
        return None if alarm is None else alarm.at

    async def serve(self) -> None:
        """Run what is due until cancelled; runs under way are cancelled then too."""
        self._set_back()
        try:
            async with asyncio.TaskGroup() as group:
                while True:
                    for alarm in self._due():
                        self._running.add(alarm.name)
                        group.create_task(self._run(alarm))
                    # The scheduler's timer may be late by the length of a sleep: let it look again too.
                    if self._scheduler is not None:
                        self._scheduler.wakeup()
                    await self._bell.wait(self.tick if self._alarms else None)
        finally:
            if self._scheduler is not None:
                self._scheduler.shutdown()
                self._scheduler = None

    def _due(self) -> list[_Alarm]:
        """Take the alarms that are due and whose last run has ended."""
        now = self.clock.wall() + _NEAR
        set_back = self._set_back()
        due = [
            one
            for one in self._alarms.values()
            if (one.at <= now or (one.replan and set_back)) and one.name not in self._running
        ]
        for alarm in due:
            del self._alarms[alarm.name]
        return due

    def _set_back(self) -> bool:
        """Return whether wall time has lost ground against steady time since the last look."""
        before, self._ahead = self._ahead, self.clock.wall() - self.clock.now()
        return before - self._ahead > self.tick

    async def _run(self, alarm: _Alarm) -> None:
        try:
            await alarm.run()
        except Exception:  # root of a timed run: a fault in one must not end the others
            log.exception("timer.failed", extra={"alarm": alarm.name})
        finally:
            self._running.discard(alarm.name)
            self._bell.ring()

    async def _ring(self) -> None:
        self._bell.ring()

    def _started(self) -> AsyncIOScheduler:
        if self._scheduler is None:
            from apscheduler.schedulers.asyncio import AsyncIOScheduler  # noqa: PLC0415 - see above

            logging.getLogger("apscheduler").setLevel(logging.WARNING)  # it tells of each job at INFO
            self._scheduler = AsyncIOScheduler(
                timezone=UTC,
                job_defaults={"coalesce": True, "max_instances": 1, "misfire_grace_time": None},
            )
            self._scheduler.start()
        return self._scheduler
