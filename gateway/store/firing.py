"""Fires schedules: each slot once on any number of nodes, and what follows from how its turn ended."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any
from zoneinfo import ZoneInfo

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from gateway import cron
from gateway.cron import At, Slot, Trigger
from gateway.store import outbox, usage
from gateway.store.dialect import PerDialect
from gateway.store.inbox import Arrival, Taken, take_in
from gateway.store.jobs import Delivery, Rules, Session, State, Status, change, find, trigger_of
from gateway.store.journal import Ended
from gateway.store.tables import conversation, entry, inbound, schedule, schedule_run
from gateway.types import Address, Chat, Kind, OnUnknown, Outgoing, Sender, Stimulus
from gateway.usage import day_of

CHANNEL = "cron"
"""The channel of the conversations in which isolated runs happen."""

BACKOFF = (30.0, 60.0, 300.0, 900.0, 3600.0)
"""Seconds before a failed run is tried again, by failures in a row (spec CR-4)."""

MAX_FAILURES = 10
"""Failures in a row after which a schedule is switched off (spec CR-5)."""

ALERT_AFTER = 2
ALERT_EVERY = 3600.0
"""Failures in a row after which the chat is told, and seconds until it is told again (spec CR-5)."""

KEEP_SECONDS = 7 * 86_400.0
KEEP_RUNS = 2000
KEEP_SESSIONS = 86_400.0
"""How long runs are kept, how many of each schedule, and how long an isolated transcript (spec CR-17)."""

SHUT_OUT = "whoever set it is not let in any more"
"""Why a schedule is switched off after a revocation (spec CR-13)."""

LATER = 2.0
"""Seconds after which it is looked again for room in the lane."""

MANUAL = "manual"
"""What the slot of a run that somebody asked for begins with."""

_S, _R = schedule.c, schedule_run.c


@dataclass(frozen=True, slots=True)
class Settled:
    """What was done about one slot, and how many seconds late."""

    schedule: str
    slot: str
    status: Status
    late: float


@dataclass(slots=True)
class Fired:
    """What one look did: the slots it settled, the turns and notices that now wait, when to look again.

    `running` counts the runs that go on.
    """

    runs: list[Settled] = field(default_factory=list)
    turns: int = 0
    notices: int = 0
    running: int = 0
    next_at: float | None = None


_DUE = (
    sa.select(schedule)
    .where(_S.next_at <= sa.bindparam("now"), _S.address.like(sa.bindparam("places")))
    .order_by(_S.next_at)
    .limit(sa.bindparam("most", type_=sa.Integer))
    .with_for_update(skip_locked=True)
)
_NEXT = (
    sa.select(_S.next_at)
    .where(_S.next_at.is_not(None), _S.address.like(sa.bindparam("places")))
    .order_by(_S.next_at)
    .limit(1)
)
# Spelled out, not bound: SQLite uses a partial index only for a value that it can see.
_is_running = _R.status == sa.literal_column("'running'")
_COUNT_RUNNING = sa.select(sa.func.count()).where(_is_running)
_RUN = PerDialect(
    lambda insert: (
        insert(schedule_run)
        .values(
            {
                name: sa.bindparam(name)
                for name in ("schedule_id", "key", "slot", "due_at", "at", "ended_at", "status", "problem")
            }
        )
        .on_conflict_do_nothing()
        .returning(_R.id)
    )
)
_BUSY = (
    sa.select(conversation.c.ready_at)
    .where(conversation.c.address == sa.bindparam("where"))
    .with_for_update()
)
_FRESH = (
    sa.update(conversation)
    .where(conversation.c.address == sa.bindparam("where"))
    .values(session=conversation.c.session + 1, attempt=0, started=None)
)
_LOST = (
    sa.select(_R.id, _R.schedule_id)
    .select_from(
        schedule_run.outerjoin(inbound, inbound.c.key == _R.key).outerjoin(
            conversation, conversation.c.id == inbound.c.conversation_id
        )
    )
    .where(
        _is_running,
        sa.or_(
            inbound.c.id.is_(None),
            inbound.c.seq == 0,
            sa.and_(
                inbound.c.seq > 0,
                sa.or_(conversation.c.ready_at.is_(None), conversation.c.turn != inbound.c.turn),
            ),
        ),
    )
)


def fire(tx: Connection, rules: Rules, wall: float, now: float) -> Fired:
    """Start what is due: for each slot a run, the stimulus of its turn and the time of the next, as one.

    `wall` is the time that schedules go by, `now` the time of the store; UNIX seconds.
    """
    fired = Fired()
    places = {"places": f"{rules.channel}:%" if rules.channel else "%"}
    _settle_lost(tx, wall)
    running = int(tx.execute(_COUNT_RUNNING).scalar_one())
    room = rules.lane - running
    if room > 0:
        spent = _is_spent(tx, rules, wall)
        for row in tx.execute(_DUE, {"now": wall, "most": room, **places}).all():
            _Firing(tx, rules, wall, now, fired).fire(row, spent=spent)
    fired.running = running + fired.turns
    fired.next_at = tx.execute(_NEXT, places).scalar_one_or_none()
    if fired.next_at is not None and fired.next_at <= wall:
        # The lane is full, or another node has what is due in its hands.
        fired.next_at = wall + LATER
    return fired


@dataclass(frozen=True, slots=True)
class _Firing:
    """One look at what is due."""

    tx: Connection
    rules: Rules
    wall: float
    now: float
    fired: Fired

    def fire(self, row: sa.Row[Any], *, spent: bool) -> None:
        try:
            trigger, zone = trigger_of(row), cron.as_zone(row.zone)
        except ValueError as error:
            # Kept for a person to look at: stored schedules never vanish because one is bad.
            self._off(row, f"it can't be read: {error}")
            return
        level = self._level(row)
        if level is None:
            self._off(row, SHUT_OUT)
            return
        slot = self._slot(row, trigger, zone)
        status, problem = Status.RUNNING, ""
        if slot is None:
            slot = cron.next_after(trigger, row.next_at - 1, zone) or Slot("unknown", row.next_at)
            status, problem = Status.MISSED, "the gateway was not running"
        elif spent:
            status, problem = Status.SKIPPED, "the budget of this day was used up"
        elif self._is_busy(row):
            status, problem = Status.SKIPPED, "the run before it was still going on"
        if self._note(row, slot, row.attempt, status, problem) and status is Status.RUNNING:
            self._start(row, slot, row.attempt, zone, level)
        if status is Status.RUNNING or not isinstance(trigger, At):
            self._move(row, trigger, zone)
        else:
            self._off(row, f"{problem} at {cron.shown(trigger.when, zone)}")

    def run_now(self, row: sa.Row[Any]) -> bool:
        """Run beside the slots; return False if it is running already. Raises: ValueError."""
        level = self._level(row)
        if level is None:
            raise ValueError(f"the schedule {row.name!r} can't run: {SHUT_OUT}")
        slot = Slot(f"{MANUAL}-{self.wall:.3f}", self.wall)
        if self._is_busy(row) or not self._note(row, slot, 0, Status.RUNNING):
            return False
        self._start(row, slot, 0, cron.as_zone(row.zone), level)
        return True

    def _level(self, row: sa.Row[Any]) -> str | None:
        """Return what whoever set it may do by now, which may be less than it was then."""
        asking = Stimulus(
            key=row.id,
            address=Address.parse(row.address),
            sender=Sender(row.sender, level=row.level),
            text="",
            at=self.wall,
            chat=Chat(row.chat),
        )
        return self.rules.level(self.tx, asking)

    def _slot(self, row: sa.Row[Any], trigger: Trigger, zone: ZoneInfo) -> Slot | None:
        """Return the newest slot that is not too late, None if each is (spec CR-8)."""
        grace = self.rules.grace_once if isinstance(trigger, At) else self.rules.grace
        in_time = self.wall - row.next_at <= grace
        if row.retry is not None:
            return Slot(row.retry, row.next_at) if in_time else None
        found = cron.newest(trigger, max(row.next_at - 1, self.wall - grace - 1), self.wall, zone)
        # The rules of a zone may have changed since the time was stored.
        return found or (cron.slot_at(row.next_at, zone) if in_time else None)

    def _is_busy(self, row: sa.Row[Any]) -> bool:
        if row.session != Session.ISOLATED:
            return False
        where = {"where": Address(CHANNEL, row.id).key}
        return self.tx.execute(_BUSY, where).scalar_one_or_none() is not None

    def _note(self, row: sa.Row[Any], slot: Slot, attempt: int, status: Status, problem: str = "") -> bool:
        """Note a run; return False if this slot had one already."""
        ended = None if status is Status.RUNNING else self.wall
        values = {
            "schedule_id": row.id,
            "key": _key(row.id, slot, attempt),
            "slot": slot.key,
            "due_at": slot.at,
            "at": self.wall,
            "ended_at": ended,
            "status": status,
            "problem": problem,
        }
        if self.tx.execute(_RUN(self.tx), values).scalar_one_or_none() is None:
            return False
        self.fired.runs.append(Settled(row.id, slot.key, status, self.wall - slot.at))
        return True

    def _start(self, row: sa.Row[Any], slot: Slot, attempt: int, zone: ZoneInfo, level: str) -> None:
        isolated = row.session == Session.ISOLATED
        address = Address(CHANNEL, row.id) if isolated else Address.parse(row.address)
        if isolated:
            self.tx.execute(_FRESH, {"where": address.key})
        stimulus = Stimulus(
            key=_key(row.id, slot, attempt),
            address=address,
            sender=Sender(row.sender, level=level),
            text=_text(row, slot, self.wall, zone),
            at=self.wall,
            kind=Kind.CRON,
            chat=Chat(row.chat),
            deliver_to=row.address if isolated and row.delivery == Delivery.ANNOUNCE else "",
        )
        take_in(self.tx, Arrival(stimulus), self.now, Taken())
        self.fired.turns += 1

    def _move(self, row: sa.Row[Any], trigger: Trigger, zone: ZoneInfo) -> None:
        """Look forward to the slot after this one, and after now: what lies between is not made up for."""
        following = cron.next_after(trigger, max(self.wall, row.next_at), zone)
        attempt = row.attempt if row.retry is not None else 0
        change(self.tx, row.id, next_at=following and following.at, retry=None, attempt=attempt)

    def _off(self, row: sa.Row[Any], problem: str) -> None:
        _off(self.tx, row, problem, self.now)
        self.fired.notices += 1


def _key(which: str, slot: Slot, attempt: int) -> str:
    """Return the name of a firing, which the inbox knows, too: `cron:<job>:<planned local time>`."""
    return f"{CHANNEL}:{which}:{slot.key}" + (f":{attempt}" if attempt else "")


def _text(row: sa.Row[Any], slot: Slot, wall: float, zone: ZoneInfo) -> str:
    """Return what the model reads: it was a schedule that spoke, and what time it is."""
    late = f", {round((wall - slot.at) / 60)} minutes late" if wall - slot.at >= 120 else ""
    return f"[Schedule “{row.name}”. It is {cron.shown(wall, zone)}{late}.]\n{row.prompt}"


def _off(tx: Connection, row: sa.Row[Any], problem: str, now: float) -> None:
    """Switch a schedule off for good, and say so once where it was made; nothing can mute that."""
    change(tx, row.id, state=State.OFF, problem=problem, next_at=None, retry=None)
    text = f"I have switched the schedule “{row.name}” off: {problem}.\nIt was to do this: {row.prompt[:300]}"
    _tell(tx, row, f"off:{now:.3f}", text, now)


def _tell(tx: Connection, row: sa.Row[Any], what: str, text: str, now: float) -> None:
    message = Outgoing(
        key=f"schedule:{row.id}:{what}",
        address=Address.parse(row.address),
        text=text,
        on_unknown=OnUnknown.DROP,
    )
    outbox.put(tx, [message], now)


def _is_spent(tx: Connection, rules: Rules, wall: float) -> bool:
    today = day_of(wall, rules.zone).isoformat()
    if 0 < rules.daily_tokens <= usage.spent(tx, today, kind=Kind.CRON).tokens:
        return True
    return rules.caps.limit_days and rules.caps.end_the_day(usage.spent(tx, today))


def _settle_lost(tx: Connection, wall: float) -> None:
    """Close runs whose turn ended without a word, as after /stop."""
    for row in tx.execute(_LOST).all():
        ended = {"status": Status.STOPPED, "ended_at": wall}
        tx.execute(sa.update(schedule_run).where(_R.id == row.id).values(ended))
        tx.execute(
            sa.update(schedule)
            .where(_S.id == row.schedule_id, _S.state == State.ACTIVE, _S.next_at.is_(None))
            .values(state=State.OFF, problem="it was stopped before it ended")
        )


def ended(tx: Connection, end: Ended, wall: float, now: float) -> None:
    """Note how the turn of a slot ended, and what follows from that."""
    for key in end.keys:
        run = tx.execute(sa.select(schedule_run).where(_R.key == key, _is_running)).one_or_none()
        if run is None:
            continue
        tx.execute(
            sa.update(schedule_run)
            .where(_R.id == run.id)
            .values(
                ended_at=wall,
                status=Status.FAILED if end.problem else Status.OK,
                tokens=usage.of_turn(tx, end.conversation_id, end.turn),
                replies=end.replies if end.shown else "",
                problem=end.problem[:500],
            )
        )
        row = tx.execute(sa.select(schedule).where(_S.id == run.schedule_id).with_for_update()).one_or_none()
        if row is None or row.state != State.ACTIVE or run.slot.startswith(MANUAL):
            continue
        if end.problem:
            _failed(tx, row, run.slot, end, wall, now)
        elif row.next_at is None:
            tx.execute(sa.delete(schedule).where(_S.id == row.id))
        else:
            change(tx, row.id, failures=0, attempt=0, alerted_at=None)


def retry(
    trigger: Trigger, failures: int, attempt: int, wall: float, zone: ZoneInfo
) -> tuple[float | None, bool]:
    """Return when to go on after the `failures`-th failure in a row, and whether with the same slot.

    `attempt` counts the repeats of this slot so far. None: it is over.
    """
    at = wall + BACKOFF[min(failures, len(BACKOFF)) - 1]
    natural = cron.next_after(trigger, wall, zone)
    if attempt < len(BACKOFF) and (natural is None or at < natural.at):
        return at, True
    # A schedule that fires more often than that waits, too.
    later = cron.next_after(trigger, at - 1, zone)
    return (None, False) if later is None else (later.at, False)


def _failed(tx: Connection, row: sa.Row[Any], slot: str, end: Ended, wall: float, now: float) -> None:
    failures = row.failures + 1
    zone = cron.as_zone(row.zone)
    trigger = trigger_of(row)
    at, same = retry(trigger, failures, row.attempt, wall, zone)
    if failures >= MAX_FAILURES or at is None or (end.lasting and isinstance(trigger, At)):
        change(tx, row.id, failures=failures)
        _off(tx, row, f"it failed{f' {failures} times in a row' if failures > 1 else ''} ({end.sorry})", now)
        return
    values: dict[str, Any] = {"failures": failures, "next_at": at, "retry": slot if same else None}
    values["attempt"] = row.attempt + 1 if same else 0
    if failures >= ALERT_AFTER and (row.alerted_at is None or wall - row.alerted_at >= ALERT_EVERY):
        values["alerted_at"] = wall
        text = (
            f"The schedule “{row.name}” has failed {failures} times in a row. I try again at "
            f"{cron.shown(at, zone)}; /cron pause {row.id} stops it."
        )
        _tell(tx, row, f"failed:{now:.3f}", text, now)
    change(tx, row.id, **values)


def run_now(
    tx: Connection, which: str, address: Address | None, *, rules: Rules, wall: float, now: float
) -> str:
    """Run a schedule once, beside its slots; return its name. Raises: ValueError."""
    row = find(tx, which, address)
    if not _Firing(tx, rules, wall, now, Fired()).run_now(row):
        raise ValueError(f"the schedule {row.name!r} is running already")
    return str(row.name)


def prune(tx: Connection, wall: float, now: float) -> None:
    """Forget old runs, and the transcripts of isolated runs that nobody looks at any more (spec CR-17)."""
    tx.execute(sa.delete(schedule_run).where(_R.at < wall - KEEP_SECONDS, sa.not_(_is_running)))
    many = sa.select(_R.schedule_id).group_by(_R.schedule_id).having(sa.func.count() > KEEP_RUNS)
    for which in tx.execute(many).scalars().all():
        kept = sa.select(_R.id).where(_R.schedule_id == which).order_by(_R.id.desc()).limit(KEEP_RUNS)
        tx.execute(sa.delete(schedule_run).where(_R.schedule_id == which, _R.id.not_in(kept)))
    inner = sa.select(conversation.c.id).where(conversation.c.address.startswith(f"{CHANNEL}:"))
    session = (
        sa.select(conversation.c.session)
        .where(conversation.c.id == entry.c.conversation_id)
        .correlate(entry)
        .scalar_subquery()
    )
    old = [entry.c.at < now - KEEP_SESSIONS, entry.c.session < session]
    tx.execute(sa.delete(entry).where(entry.c.conversation_id.in_(inner), *old))
