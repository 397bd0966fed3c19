"""The stored schedules: who wants what when, and what became of it."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any
from zoneinfo import ZoneInfo

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from gateway import cron
from gateway.cron import Every, Trigger
from gateway.store.codec import dump
from gateway.store.tables import outbound, schedule, schedule_run
from gateway.types import Address, Chat, Sender, Stimulus
from gateway.usage import Caps

_S, _R = schedule.c, schedule_run.c


class State(StrEnum):
    """Whether a schedule fires."""

    ACTIVE = "active"
    PAUSED = "paused"
    OFF = "off"


class Status(StrEnum):
    """What became of a slot. `missed`: nobody was running; `skipped`: it was not started on purpose."""

    RUNNING = "running"
    OK = "ok"
    FAILED = "failed"
    STOPPED = "stopped"
    SKIPPED = "skipped"
    MISSED = "missed"


class Session(StrEnum):
    """Where a run happens: in a fresh conversation of its own, or in the chat that it belongs to."""

    ISOLATED = "isolated"
    CURRENT = "current"


class Delivery(StrEnum):
    """What becomes of the reply of a run."""

    ANNOUNCE = "announce"
    NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A schedule as somebody asks for it; `address` is the chat that it belongs to from then on."""

    address: Address
    chat: Chat
    sender: Sender
    name: str
    trigger: Trigger
    zone: ZoneInfo
    prompt: str
    session: Session = Session.ISOLATED
    delivery: Delivery = Delivery.ANNOUNCE


@dataclass(frozen=True, slots=True)
class Run:
    """One firing. `delivered` is the state of its message in the outbox, "" if it had nothing to say."""

    slot: str
    due_at: float
    at: float
    ended_at: float | None
    status: Status
    tokens: int
    delivered: str
    problem: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A stored schedule. `what` is its trigger in words, `next_at` when it fires next, in UNIX seconds."""

    id: str
    name: str
    address: Address
    what: str
    zone: str
    prompt: str
    session: Session
    delivery: Delivery
    state: State
    problem: str
    next_at: float | None
    failures: int
    created_at: float
    last: Run | None


def _unchanged(_tx: Connection, stimulus: Stimulus) -> str | None:
    return stimulus.sender.level


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What holds for all schedules.

    `grace` is how many seconds late a recurring slot may still run, `grace_once` the same for what
    happens once. `most` schedules belong to one chat, `lane` runs go on at a time. With `daily_tokens`
    used up by schedules since midnight in `zone`, or by everything what `caps` allow, slots are skipped until
    the next; 0 is no limit. With a `channel` only schedules of its chats fire. `level` returns what whoever
    set a schedule may do by now in its chat, None if they are not let in any more.
    """

    zone: ZoneInfo
    grace: float = 3600.0
    grace_once: float = 86_400.0
    most: int = 20
    lane: int = 8
    daily_tokens: int = 0
    caps: Caps = field(default_factory=Caps)
    channel: str = ""
    level: Callable[[Connection, Stimulus], str | None] = _unchanged


def change(tx: Connection, which: str, **values: Any) -> None:  # noqa: ANN401 - values of columns
    """Write columns of a schedule."""
    tx.execute(sa.update(schedule).where(_S.id == which).values(**values))


def trigger_of(row: sa.Row[Any]) -> Trigger:
    """Return when a stored schedule fires. Raises: ValueError."""
    try:
        stored = json.loads(row.trigger)
    except ValueError:
        stored = row.trigger
    return cron.decode(stored)


LONGEST_NAME = 80
LONGEST_PROMPT = 4000
"""Characters that a name and a prompt may have."""


def _checked(wanted: Wanted) -> Wanted:
    """Return it with a name on one line. Raises: ValueError."""
    name, prompt = " ".join(defused(wanted.name).split()), defused(wanted.prompt).strip()
    if not 0 < len(name) <= LONGEST_NAME:
        raise ValueError(f"name must have 1 to {LONGEST_NAME} characters")
    if not 0 < len(prompt) <= LONGEST_PROMPT:
        raise ValueError(f"prompt must say what to do, in 1 to {LONGEST_PROMPT} characters")
    if wanted.session is Session.CURRENT and wanted.delivery is Delivery.NONE:
        raise ValueError(
            "what runs in the current session is seen there; delivery none needs session isolated"
        )
    return replace(wanted, name=name, prompt=prompt)


def defused(text: str) -> str:
    """Return text that every database takes."""
    return text.replace("\0", "").encode("utf-8", "replace").decode()


def summary(job: Job) -> str:
    """Return a schedule on one line, for people and models."""
    following = "running now"
    if job.next_at is not None:
        following = f"next {cron.shown(job.next_at, zone_of(job.zone))}"
    elif job.state is not State.ACTIVE:
        following = f"{job.state}: {job.problem}" if job.problem else str(job.state)
    last = f"; last {job.last.status}" if job.last else ""
    return f"“{job.name}” ({job.id}): {job.what} ({job.zone}), {following}{last}"


def zone_of(name: str) -> ZoneInfo:
    """Return a stored time zone, UTC if it can't be read any more."""
    try:
        return cron.as_zone(name)
    except ValueError:
        return ZoneInfo("UTC")


def save(tx: Connection, wanted: Wanted, rules: Rules, wall: float) -> tuple[Job, bool]:
    """Add a schedule, or change the one of this name in this chat; also return whether it is new.

    Raises: ValueError when the chat has too many, it would never fire, or nobody would see its reply.
    """
    wanted = _checked(wanted)
    here = [_S.address == wanted.address.key, _S.name == wanted.name]
    old = tx.execute(sa.select(schedule).where(*here).with_for_update()).one_or_none()
    trigger = _kept(wanted.trigger, old)
    slot = cron.next_after(trigger, wall, wanted.zone)
    if slot is None:
        raise ValueError("it would never fire")
    values: dict[str, Any] = {
        "chat": wanted.chat,
        "sender": wanted.sender.id,
        "level": wanted.sender.level,
        "trigger": dump(cron.encode(trigger)),
        "zone": wanted.zone.key,
        "prompt": wanted.prompt,
        "session": wanted.session,
        "delivery": wanted.delivery,
        "state": State.ACTIVE,
        "problem": "",
        "next_at": slot.at,
        "retry": None,
        "attempt": 0,
        "failures": 0,
        "alerted_at": None,
    }
    which = old.id if old is not None else _new_id(tx, wanted.address, rules)
    if old is not None:
        change(tx, which, **values)
    else:
        values |= {"id": which, "name": wanted.name, "address": wanted.address.key, "created_at": wall}
        tx.execute(sa.insert(schedule).values(values))
    return _job_of(tx, which), old is None


def _kept(trigger: Trigger, old: sa.Row[Any] | None) -> Trigger:
    """Return the trigger; an interval that is asked for again goes on as it was."""
    if old is None or not isinstance(trigger, Every):
        return trigger
    try:
        before = trigger_of(old)
    except ValueError:
        return trigger
    return before if isinstance(before, Every) and before.seconds == trigger.seconds else trigger


def _new_id(tx: Connection, address: Address, rules: Rules) -> str:
    count = sa.select(sa.func.count()).where(_S.address == address.key)
    if int(tx.execute(count).scalar_one()) >= rules.most:
        raise ValueError(f"this chat has {rules.most} schedules already; remove one first")
    while True:
        which = secrets.token_hex(3)
        if tx.execute(sa.select(_S.id).where(_S.id == which)).scalar_one_or_none() is None:
            return which


def find(tx: Connection, which: str, address: Address | None) -> sa.Row[Any]:
    """Return the row of a schedule by id or name, of one chat or of all. Raises: ValueError."""
    found = tx.execute(
        sa.select(schedule)
        .where(sa.or_(_S.id == which.lower(), _S.name == which), _place(address))
        .with_for_update()
    ).all()
    if len(found) == 1:
        return found[0]
    if found:
        raise ValueError(f"several schedules are called {which!r}; use the id")
    known = tx.execute(sa.select(_S.name).where(_place(address)).order_by(_S.created_at).limit(20)).scalars()
    raise ValueError(f"there is no schedule {which!r}; there are: {', '.join(known) or 'none'}")


def _place(address: Address | None) -> sa.ColumnElement[bool]:
    return sa.true() if address is None else _S.address == address.key


def remove(tx: Connection, which: str, address: Address | None) -> str:
    """Forget a schedule, its runs stay; return its name. Raises: ValueError."""
    row = find(tx, which, address)
    tx.execute(sa.delete(schedule).where(_S.id == row.id))
    return str(row.name)


def pause(tx: Connection, which: str, address: Address | None) -> str:
    """Keep a schedule from firing; return its name. Raises: ValueError."""
    row = find(tx, which, address)
    if row.state == State.OFF:
        raise ValueError(f"the schedule {row.name!r} is off already: {row.problem}")
    change(tx, row.id, state=State.PAUSED, next_at=None, retry=None, attempt=0)
    return str(row.name)


def resume(tx: Connection, which: str, address: Address | None, wall: float) -> Job:
    """Let a schedule fire again, from now on. Raises: ValueError."""
    row = find(tx, which, address)
    slot = cron.next_after(trigger_of(row), wall, cron.as_zone(row.zone))
    if slot is None:
        raise ValueError(f"the time of the schedule {row.name!r} is over; give it a new one")
    values = {"state": State.ACTIVE, "problem": "", "failures": 0, "attempt": 0, "alerted_at": None}
    change(tx, row.id, next_at=slot.at, retry=None, **values)
    return _job_of(tx, row.id)


_LAST = sa.select(sa.func.max(_R.id)).where(_R.schedule_id == _S.id).correlate(schedule).scalar_subquery()
_RUNS = sa.select(schedule_run, outbound.c.state.label("delivered")).select_from(
    # The first of a run's messages stands for all of them.
    schedule_run.outerjoin(outbound, outbound.c.key == _R.replies + "0")
)


def listed(tx: Connection, address: Address | None) -> list[Job]:
    """Return the schedules of one chat or all, with their newest runs, the oldest first."""
    return _jobs(tx, _place(address))


def show(tx: Connection, which: str, address: Address | None) -> Job:
    """Return one schedule. Raises: ValueError."""
    return _job_of(tx, find(tx, which, address).id)


def _job_of(tx: Connection, which: str) -> Job:
    return _jobs(tx, _S.id == which)[0]


def _jobs(tx: Connection, where: sa.ColumnElement[bool]) -> list[Job]:
    rows = tx.execute(
        sa.select(schedule, _LAST.label("last")).where(where).order_by(_S.created_at, _S.name)
    ).all()
    newest = {row.id: _run(row) for row in tx.execute(_RUNS.where(_R.id.in_([row.last for row in rows])))}
    return [_job(row, newest.get(row.last)) for row in rows]


def _job(row: sa.Row[Any], last: Run | None) -> Job:
    problem = row.problem
    try:
        what = cron.describe(trigger_of(row), cron.as_zone(row.zone))
    except ValueError as error:
        what, problem = "unreadable", problem or str(error)
    return Job(
        id=row.id,
        name=row.name,
        address=Address.parse(row.address),
        what=what,
        zone=row.zone,
        prompt=row.prompt,
        session=Session(row.session),
        delivery=Delivery(row.delivery),
        state=State(row.state),
        problem=problem,
        next_at=row.next_at,
        failures=row.failures,
        created_at=row.created_at,
        last=last,
    )


def _run(row: sa.Row[Any]) -> Run:
    return Run(
        slot=row.slot,
        due_at=row.due_at,
        at=row.at,
        ended_at=row.ended_at,
        status=Status(row.status),
        tokens=row.tokens,
        delivered=row.delivered or "",
        problem=row.problem,
    )


def runs(tx: Connection, which: str, limit: int) -> list[Run]:
    """Return the newest runs of a schedule by its id, also of one that is gone, newest first."""
    rows = tx.execute(_RUNS.where(_R.schedule_id == which).order_by(_R.id.desc()).limit(limit))
    return [_run(row) for row in rows]
