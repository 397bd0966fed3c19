"""Wakes up when a schedule is due, and fires it."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

from gateway.bell import Bell
from gateway.errors import StoreError
from gateway.store.firing import Fired
from gateway.store.jobs import Status
from gateway.store.schedules import Schedules
from gateway.timer import Timer

log = logging.getLogger(__name__)

ALARM = "cron"
"""The name of our alarm."""

SOON = 5.0
"""Seconds after which it is looked again while runs go on: a failed one may be due again soon."""

SHARED_LOOK = 30.0
"""Seconds after which it is looked again on a database in which other nodes may have put schedules."""

PRUNE_EVERY = 86_400.0


@dataclass(slots=True, kw_only=True)
class Agenda:
    """Keeps one alarm set for what is due next. Nodes that share a database may all do that.

    `worker_bell` rings when turns wait, `outbox_bell` when messages do.
    """

    schedules: Schedules
    timer: Timer
    worker_bell: Bell
    outbox_bell: Bell
    _pruned_at: float = field(default=0.0, init=False)

    def look_soon(self) -> None:
        """Look at the tables now: something was changed there, or the gateway has started.

        A run that somebody began by hand waits already for its turn.
        """
        self.worker_bell.ring()
        self.timer.set(ALARM, self._wall(), self.look)

    async def look(self) -> None:
        """Fire what is due, and set the alarm for what comes next."""
        wall = self._wall()
        try:
            if wall - self._pruned_at >= PRUNE_EVERY:
                await self.schedules.prune()
                self._pruned_at = wall
            fired = await self.schedules.fire()
        except StoreError as error:
            log.debug("store.waiting", extra={"problem": str(error)})
            self.timer.set(ALARM, wall + SOON, self.look)
            return
        self._tell(fired)
        following = [] if fired.next_at is None else [fired.next_at]
        if fired.running:
            following.append(wall + SOON)
        if not self.schedules.db.exclusive:
            following.append(wall + SHARED_LOOK)
        if following:
            self.timer.set(ALARM, min(following), self.look)

    def _tell(self, fired: Fired) -> None:
        for run in fired.runs:
            level = logging.INFO if run.status is Status.RUNNING else logging.WARNING
            extra = {
                "schedule": run.schedule,
                "slot": run.slot,
                "status": run.status,
                "late": round(run.late),
            }
            log.log(level, "schedule.fired", extra=extra)
        if fired.turns:
            self.worker_bell.ring()
        if fired.notices:
            self.outbox_bell.ring()

    def _wall(self) -> float:
        return self.schedules.clock.wall()
