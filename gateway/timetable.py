"""Schedules as people handle them: what `/cron` and `crayfish cron` answer."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sqlalchemy.engine import Connection

from gateway import cron
from gateway.clock import Clock
from gateway.store import firing, jobs
from gateway.store.engine import Database
from gateway.store.jobs import Job, Rules, Run, Status, summary
from gateway.types import Address, JsonObject

USAGE = "/cron list\n/cron pause NAME\n/cron resume NAME\n/cron remove NAME\n/cron run NAME"
SHOWN_RUNS = 20
_LOOKS = ("list", "show", "history")


def answer(
    tx: Connection, words: Sequence[str], place: Address | None, *, rules: Rules, wall: float, now: float
) -> str:
    """Do what the words say with the schedules of one chat, or of all; return what to tell.

    `wall` is the time that schedules go by, `now` the store's. Raises: ValueError, which says what to do.
    """
    action, name = words[0] if words else "list", " ".join(words[1:])
    if action == "list" and not name:
        found = jobs.listed(tx, place)
        return "\n".join(_line(job, named=place is None) for job in found) or "There are no schedules."
    if not name:
        raise ValueError(USAGE)
    match action:
        case "show":
            return _page(jobs.show(tx, name, place))
        case "history":
            return _history(tx, name, place)
        case "pause":
            return f"Paused: {jobs.pause(tx, name, place)}"
        case "resume":
            return f"Goes on: {summary(jobs.resume(tx, name, place, wall))}"
        case "remove" | "rm":
            return f"Removed: {jobs.remove(tx, name, place)}"
        case "run":
            return f"Started: {firing.run_now(tx, name, place, rules=rules, wall=wall, now=now)}"
        case _:
            raise ValueError(USAGE)


def _line(job: Job, *, named: bool) -> str:
    return f"{summary(job)}{f' [{job.address.shown}]' if named else ''}"


def _page(job: Job) -> str:
    zone = jobs.zone_of(job.zone)
    lines = [
        summary(job),
        f"chat: {job.address.shown}",
        f"session: {job.session}, delivery: {job.delivery}",
        f"failures in a row: {job.failures}",
        f"made: {cron.shown(job.created_at, zone)}",
        *([f"last: {_told(job.last)}"] if job.last else []),
        "",
        job.prompt,
    ]
    return "\n".join(lines)


def _history(tx: Connection, name: str, place: Address | None) -> str:
    """Return the newest runs; the id of a schedule that is gone finds them too, if any chat may be asked."""
    found = jobs.runs(tx, name.lower(), SHOWN_RUNS) if place is None else []
    found = found or jobs.runs(tx, jobs.find(tx, name, place).id, SHOWN_RUNS)
    return "\n".join(map(_told, found)) or "It has not run yet."


def _told(run: Run) -> str:
    """Return a run on one line."""
    late = run.at - run.due_at
    facts = [
        f"{run.slot}  {run.status}",
        f"{late:.0f} s late" if late >= 1 else "",
        f"took {run.ended_at - run.at:.0f} s" if run.ended_at is not None and run.tokens else "",
        f"{run.tokens} tokens" if run.tokens else "",
        f"message {run.delivered}" if run.delivered else "nothing to say" if run.status is Status.OK else "",
        run.problem,
    ]
    return ", ".join(fact for fact in facts if fact)


@dataclass(frozen=True, slots=True, kw_only=True)
class Timetable:
    """Answers the command line, over HTTP or beside a stopped gateway. `changed` is called after each act."""

    db: Database
    clock: Clock
    rules: Rules
    changed: Callable[[], None]

    async def cron(self, action: str, name: str) -> JsonObject:
        """Return `{"text": …}`, or `{"problem": …}` when it can't be done. Raises: StoreError."""
        work = functools.partial(
            answer,
            words=[action, name] if name else [action],
            place=None,
            rules=self.rules,
            wall=self.clock.wall(),
            now=self.db.now(),
        )
        try:
            if action in _LOOKS:
                return {"text": await self.db.read(work)}
            text = await self.db.write(work)
        except ValueError as error:
            return {"problem": str(error)}
        self.changed()
        return {"text": text}
