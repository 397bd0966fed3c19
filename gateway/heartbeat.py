"""Heartbeats: when the bot looks after things by itself, and everything that keeps it from doing so."""

from __future__ import annotations

import asyncio
import functools
import hashlib
import logging
import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from sqlalchemy.engine import Connection

from gateway.bell import Bell
from gateway.clock import Clock
from gateway.config import HeartbeatSettings, duration
from gateway.errors import StoreError
from gateway.store import beats, inbox, outbox, usage
from gateway.store.beats import HOME, Past, Route
from gateway.store.engine import Database
from gateway.store.journal import Ended
from gateway.store.usage import Ledger
from gateway.timer import Timer
from gateway.types import Address, Chat, JsonObject, Kind, OnUnknown, Outgoing, Sender, Stimulus
from gateway.usage import Caps
from gateway.workspace import MAX_FILE, Workspace, blank

log = logging.getLogger(__name__)

NAME = "heartbeat"
"""The alarm's name, and what every slot's key begins with."""

DEFAULT_EVERY = 1800
"""Seconds between beats when there is a checklist and nothing is configured (spec HB-42)."""

PROMPT = (
    "Read HEARTBEAT.md if it exists. Follow it strictly: do not infer or repeat old tasks from earlier "
    "chats. If nothing needs attention, reply HEARTBEAT_OK."
)

USAGE = "Write /heartbeat status, now, pause or resume."

LOOK = 60.0
"""Seconds between looks for a checklist while nothing is scheduled."""

AGAIN = 60.0
"""Seconds until a beat that met a busy chat is tried again, `MOST_AGAIN` times (agent II.D)."""

MOST_AGAIN = 10

MOST_STARTS = 5
"""Beats within a minute; more can only be a loop (spec HB-18)."""

DAY = 86_400.0
AWAY, GONE = 7 * DAY, 21 * DAY
"""Seconds without a word from the owner after which beats become rarer, and stop (spec HB-44)."""

AWAY_EVERY = 4
CALM = 8
"""OK results under one checklist after which `idle_every` counts."""

MOST_FAILURES = 3
"""Failures in a row of which the owner is told (spec HB-48)."""

_DAY_MINUTES = 24 * 60
_PAUSE = "heartbeat.pause"
_OFF = re.compile(r"\W*(?:paused?|disabled?|off)\b", re.IGNORECASE | re.ASCII)


@dataclass(frozen=True, slots=True)
class Hours:
    """A part of each day, in minutes of local time: `start` is in it, `end` is not (spec HB-11).

    An `end` before the `start` is on the next day; equal ones are never.
    """

    start: int
    end: int

    @classmethod
    def parse(cls, start: str, end: str) -> Hours:
        """Read `08:00` and `24:00`, which the configuration has checked."""
        return cls(*(int(text[:2]) * 60 + int(text[3:]) for text in (start, end)))

    def hold(self, local: datetime) -> bool:
        """Return whether a local time lies within."""
        minute = local.hour * 60 + local.minute
        if self.start <= self.end:
            return self.start <= minute < self.end
        return minute >= self.start or minute < self.end


ALWAYS = Hours(0, _DAY_MINUTES)


@dataclass(frozen=True, slots=True)
class Slot:
    """A planned beat: its name for ever, and its UNIX seconds."""

    key: str
    at: float


def next_slot(after: float, every: int, hours: Hours, zone: ZoneInfo) -> Slot | None:
    """Return the first slot after UNIX seconds `after`, None if none comes within some years.

    Slots follow the local clock from the start of the hours on, so that a daily beat stays at its time of
    day: what does not exist when the clock is put forward is left out, and of two equal times when it is
    put back only the first counts. None is outside the hours (case heartbeat-fire-04).
    """
    step = timedelta(seconds=every)
    first = datetime(1970, 1, 1) + timedelta(minutes=hours.start)  # noqa: DTZ001 - local time without its zone
    number = (datetime.fromtimestamp(after, zone).replace(tzinfo=None) - first) // step
    for _ in range(4000):
        planned = first + number * step
        if not hours.hold(planned):
            opens = planned.replace(hour=hours.start // 60, minute=hours.start % 60, second=0)
            opens += timedelta(days=opens < planned)
            number = max(number + 1, -((first - opens) // step))
            continue
        at = planned.replace(tzinfo=zone).timestamp()
        exists = datetime.fromtimestamp(at, zone).replace(tzinfo=None) == planned
        if exists and at > after:
            return Slot(f"{NAME}:main:{planned.isoformat(timespec='minutes')} {zone.key}", at)
        number += 1
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Everything that decides about a beat. Times are UNIX seconds, `local` is the time of the active hours.

    `manual`: a person asked for it now. `paused` says why beats are paused, "" if they are not. `route` is
    None if there is none; it does not matter without `delivers`. `away` is for how many seconds nobody has
    written there. `spent` are the tokens of today's beats; `broke`: nothing at all may be spent today any
    more. `checklist` is None if there is no file.
    """

    now: float
    local: datetime
    every: int
    hours: Hours = ALWAYS
    manual: bool = False
    deferred: int = 0
    paused: str = ""
    past: Past = field(default_factory=Past)
    spent: int = 0
    budget: int = 0
    broke: bool = False
    running: bool = False
    full: bool = False
    delivers: bool = True
    route: Route | None = None
    away: float = 0.0
    checklist: str | None = None
    digest: str = ""
    idle_every: int = 1


@dataclass(frozen=True, slots=True)
class Beat:
    """Ask the model."""


@dataclass(frozen=True, slots=True)
class Skip:
    """Let the slot go, for a reason of `WHY`; with `again`, try once more in so many seconds."""

    reason: str
    again: float = 0.0


def _too_soon(facts: Facts) -> bool:
    ended = facts.past.ended
    # Half an interval, since a slot comes less than a whole one after the end of the last beat.
    return ended is not None and 0 <= facts.now - ended < facts.every / 2


def _backs_off(facts: Facts) -> bool:
    """Return whether a beat failed so lately that the next is not yet worth a try: 1, 2, 4 … intervals."""
    past = facts.past
    if not past.failures or past.ended is None:
        return False
    wait = min(DAY, facts.every * 2.0 ** (past.failures - 1))
    return facts.now < past.ended + wait - facts.every / 2


def _is_away(facts: Facts) -> bool:
    return facts.away > GONE or (facts.away > AWAY and facts.past.passed < AWAY_EVERY - 1)


def _is_idle(facts: Facts) -> bool:
    past = facts.past
    unchanged = past.calm >= CALM and past.checklist == facts.digest
    return unchanged and past.passed < facts.idle_every - 1


_Holds = Callable[[Facts], bool]
_SCHEDULED: Sequence[tuple[str, _Holds]] = (
    ("disabled", lambda facts: facts.every == 0),
    ("too-soon", _too_soon),
    ("quiet-hours", lambda facts: not facts.hours.hold(facts.local)),
    ("paused", lambda facts: bool(facts.paused)),
    ("back-off", _backs_off),
)
_ALWAYS: Sequence[tuple[str, _Holds]] = (
    ("budget", lambda facts: facts.broke or 0 < facts.budget <= facts.spent),
    ("flood", lambda facts: facts.past.starts >= MOST_STARTS),
    ("running", lambda facts: facts.running),
)
_BUSY: Sequence[tuple[str, _Holds]] = (
    ("busy", lambda facts: facts.full or (facts.route is not None and facts.route.busy)),
)
_ROUTE: Sequence[tuple[str, _Holds]] = (
    ("no-route", lambda facts: facts.delivers and facts.route is None),
    ("dead-route", lambda facts: facts.route is not None and facts.route.dead),
)
_WORTH: Sequence[tuple[str, _Holds]] = (
    ("empty-checklist", lambda facts: facts.checklist is not None and blank(facts.checklist)),
    ("paused-checklist", lambda facts: _OFF.match(facts.checklist or "") is not None),
    ("long-checklist", lambda facts: len(facts.checklist or "") > MAX_FILE),
    ("owner-away", _is_away),
    ("unchanged", _is_idle),
)

WHY: Mapping[str, str] = {
    "disabled": "heartbeats are off, and HEARTBEAT.md has no item",
    "too-soon": "the last one has just ended",
    "quiet-hours": "it is outside the active hours",
    "paused": "heartbeats are paused",
    "back-off": "the last ones failed; the pauses grow",
    "budget": "today's budget is used up",
    "flood": "too many heartbeats within a minute",
    "running": "the last one still runs",
    "busy": "the chat was busy",
    "no-route": "there is nobody to tell: the owner has not written yet, or the channel is not running",
    "dead-route": "the last message there could not be delivered, and nobody has written since",
    "empty-checklist": "HEARTBEAT.md has no item",
    "paused-checklist": "the first line of HEARTBEAT.md says so",
    "long-checklist": f"HEARTBEAT.md has more than {MAX_FILE} characters; make it a few lines",
    "owner-away": "the owner has not written for long",
    "unchanged": "the checklist is unchanged and all was well",
}
"""Each reason to let a slot go, in words."""


def decide(facts: Facts) -> Beat | Skip:
    """Return what to do about a slot (agent II.D, spec 1.4); nothing here costs a model call."""
    gates = (*_SCHEDULED, *_ALWAYS, *_BUSY, *_ROUTE, *_WORTH)
    if facts.manual:
        gates = (*_ALWAYS, *_ROUTE)
    reason = next((name for name, holds in gates if holds(facts)), None)
    if reason is None:
        return Beat()
    later = reason in ("busy", "running") and not facts.manual and facts.deferred < MOST_AGAIN
    return Skip(reason, AGAIN if later else 0.0)


_CHANGING = re.compile(r"https?://\S+|\d+(?:[.,:/T-]\d+)*Z?", re.IGNORECASE)


def signature(alert: str) -> str:
    """Return what two alerts share that say the same: numbers, times, addresses and blanks don't count."""
    same = " ".join(_CHANGING.sub("#", alert.casefold()).split())
    return hashlib.sha256(same.encode("utf-8", "replace")).hexdigest()[:24]


def interval(settings: HeartbeatSettings, checklist: str | None) -> int:
    """Return the seconds between beats, 0 for none (spec HB-42).

    Nothing beats unless somebody wanted it: by `every`, or by an item in the checklist.
    """
    if settings.every:
        return duration(settings.every)
    return 0 if checklist is None or blank(checklist) else DEFAULT_EVERY


@dataclass(slots=True, kw_only=True)
class Heartbeat:
    """Fires beats and notes how they end.

    `channels` are the names of those that run. `owners` are (channel, sender) from the configuration, whose
    private chats alerts may go to; a sender of "" is whoever writes there. `model` is named in notices.
    `ledger` knows what was spent, `caps` what all turns together may spend.
    """

    settings: HeartbeatSettings
    db: Database
    clock: Clock
    zone: ZoneInfo
    workspace: Workspace
    timer: Timer
    bell: Bell
    channels: Collection[str]
    owners: Sequence[tuple[str, str]] = ()
    model: Callable[[], str] = lambda: ""
    ledger: Ledger = field(default_factory=Ledger)
    caps: Caps = field(default_factory=Caps)
    _hours: Hours = field(init=False)

    def __post_init__(self) -> None:
        hours = self.settings.active_hours
        self._hours = Hours.parse(hours.start, hours.end)
        if hours.timezone:
            self.zone = ZoneInfo(hours.timezone)

    async def serve(self) -> None:
        """Keep the next beat in the timer until cancelled."""
        while True:
            if self.timer.at(NAME) is None:
                await self._aim()
            await self.clock.sleep(LOOK)

    async def _aim(self) -> None:
        """Set the alarm to the next slot, if there is one."""
        every = interval(self.settings, await self._checklist())
        slot = next_slot(self.clock.wall(), every, self._hours, self.zone) if every else None
        if slot is not None:
            self.timer.set(NAME, slot.at, functools.partial(self._fire, slot), replan=True)

    async def _fire(self, slot: Slot, deferred: int = 0) -> None:
        """Decide about a slot that is due; whatever happens, the next one is planned (spec HB-21)."""
        again = 0.0
        try:
            if self.clock.wall() >= slot.at - 1:  # else the clock was set back meanwhile
                again = await self.beat(slot.key, deferred=deferred)
        except StoreError as error:
            log.warning("heartbeat.unstored", extra={"problem": str(error)})
            again = AGAIN if deferred < MOST_AGAIN else 0.0
        finally:
            if again:
                run = functools.partial(self._fire, slot, deferred + 1)
                self.timer.set(NAME, self.clock.wall() + again, run, replan=True)
            else:
                await self._aim()

    async def beat(self, key: str, *, deferred: int = 0) -> float:
        """Decide about a slot and do so; return in how many seconds to try it again, 0 for never.

        Raises: StoreError.
        """
        checklist = await self._checklist()
        decision = await self.db.write(
            lambda tx: self._decide_and_do(tx, key, checklist, manual=False, deferred=deferred)
        )
        if isinstance(decision, Skip):
            log.info("heartbeat.skipped", extra={"slot": key, "reason": decision.reason})
            return decision.again
        self.bell.ring()
        return 0.0

    async def act(self, action: str, *, dry_run: bool = False) -> JsonObject:
        """Do what a person wants: status, now, pause or resume; `text` says what came of it.

        With `dry_run`, `now` only says what a scheduled beat would do. Raises: StoreError, ValueError.
        """
        checklist = await self._checklist()
        if action == "now" and dry_run:
            decision = await self.db.write(lambda tx: decide(self._facts(tx, checklist)), durable=False)
            return {"text": _would(decision)}
        if action == "status":
            return await self.db.write(lambda tx: self.status(tx, checklist), durable=False)
        key = f"{NAME}:main:manual:{self.clock.wall():.6f}"
        text = await self.db.write(lambda tx: self.command(tx, action, key))
        self.bell.ring()
        return {"text": text}

    def command(self, tx: Connection, action: str, key: str) -> str:
        """Do what a person wants inside a transaction; `key` is the slot's if that is a beat.

        Raises: ValueError.
        """
        match action:
            case "" | "status":
                return str(self.status(tx, self.workspace.checklist())["text"])
            case "pause":
                inbox.set_fact(tx, _PAUSE, f"asked {self.db.now()}")
                return "Heartbeats are paused until /heartbeat resume."
            case "resume":
                inbox.set_fact(tx, _PAUSE, "")
                return "Heartbeats go on."
            case "now":
                return _done(self._decide_and_do(tx, key, self.workspace.checklist(), manual=True))
            case _:
                raise ValueError(USAGE)

    def status(self, tx: Connection, checklist: str | None) -> JsonObject:
        """Return how heartbeats stand: plain JSON, with `text` for people."""
        facts = self._facts(tx, checklist)
        slot = next_slot(facts.now, facts.every, self._hours, self.zone) if facts.every else None
        found: JsonObject = {
            "every": facts.every,
            "paused": facts.paused,
            "next_at": None if slot is None or facts.paused else slot.at,
            "target": self.settings.target,
            "route": facts.route.address.shown if facts.route else "",
            "spent": facts.spent,
            "budget": facts.budget,
            "last": beats.last_run(tx),
            "recent": beats.recent(tx, 10),
        }
        return {"text": _as_text(found, self.zone), **found}

    async def is_repeat(self, alert: str) -> bool:
        """Return whether an alert that says the same was shown lately (spec HB-30). Raises: StoreError."""
        mark, now = signature(alert), self.clock.wall()
        return await self.db.write(lambda tx: beats.was_delivered(tx, mark, now), durable=False)

    def ended(self, tx: Connection, ended: Ended) -> None:
        """Note how a beat's turn ended, in the transaction that ends it."""
        slot = ended.keys[0] if ended.keys else ""
        status = "alert" if ended.shown else "repeat" if ended.held_back else "ok"
        noted: JsonObject = {
            "status": "failed" if ended.problem else status,
            "reason": ended.problem[:500],
            "ended": self.clock.wall(),
            "tokens": usage.of_turn(tx, ended.conversation_id, ended.turn),
            "signature": signature(ended.shown or ended.held_back) if ended.shown or ended.held_back else "",
            "replies": ended.replies if ended.shown else "",
        }
        beats.end(tx, slot, noted)
        beats.prune(tx, ended.conversation_id, ended.turn)
        if ended.problem:
            self._failed(tx, ended, slot)

    def _failed(self, tx: Connection, ended: Ended, slot: str) -> None:
        """Pause after a failure that will not pass by itself; tell the owner once (spec HB-43, HB-48)."""
        past = beats.past(tx, self.clock.wall())
        if ended.lasting:
            inbox.set_fact(tx, _PAUSE, f"model {self.db.now()}")
            then = "They go on when the model next answers you, or with /heartbeat resume."
        elif past.failures == MOST_FAILURES:
            then = "I try again after growing pauses."
        else:
            return
        text = (
            f"My periodic check (the heartbeat, with the model {self.model()}) failed. {ended.sorry} {then}"
        )
        self._tell(tx, f"{NAME}:trouble:{past.first_failure or slot}", text)

    def _tell(self, tx: Connection, key: str, text: str) -> None:
        """Queue a notice for the owner; the key keeps it from coming twice."""
        route = beats.owner_route(tx, self.owners, self.channels)
        if route is None or route.dead:
            log.warning("heartbeat.unheard", extra={"notice": text})
            return
        notice = Outgoing(key=key, address=route.address, text=text, on_unknown=OnUnknown.DROP)
        outbox.put(tx, [notice], self.db.now())

    def _decide_and_do(
        self, tx: Connection, key: str, checklist: str | None, *, manual: bool, deferred: int = 0
    ) -> Beat | Skip:
        if beats.is_known(tx, key):
            return Skip("running")  # another node was first
        facts = self._facts(tx, checklist, manual=manual, deferred=deferred)
        decision = decide(facts)
        skipped = isinstance(decision, Skip)
        if isinstance(decision, Skip) and (decision.again or manual):
            return decision
        route = facts.route if facts.delivers else None
        row: JsonObject = {
            "slot": key,
            "at": facts.now,
            "status": "skipped" if skipped else "running",
            "reason": decision.reason if isinstance(decision, Skip) else "",
            "ended": facts.now if skipped else None,
            "target": route.address.key if route else "",
            "checklist": facts.digest,
        }
        if not beats.put(tx, row):
            return Skip("running")
        if isinstance(decision, Beat):
            self._wake(tx, key, route, facts.now)
        elif facts.away > GONE and decision.reason == "owner-away" and facts.route:
            text = "You have not written for three weeks, so I stopped my periodic checks until you do."
            self._tell(tx, f"{NAME}:away:{facts.route.last:.0f}", text)
        return decision

    def _wake(self, tx: Connection, key: str, route: Route | None, now: float) -> None:
        """Put the prompt of a beat into its own conversation."""
        if self.settings.isolated:
            beats.renew(tx)
        stimulus = Stimulus(
            key=key,
            address=HOME,
            sender=Sender("", "heartbeat"),
            text=self.settings.prompt or PROMPT,
            at=now,
            kind=Kind.HEARTBEAT,
            # What is private must not be read where others get to see the answer.
            chat=route.chat if route else Chat.DIRECT,
            deliver_to=route.address.key if route else "",
        )
        inbox.take_in(tx, inbox.Arrival(stimulus), self.db.now(), inbox.Taken())

    def _facts(
        self, tx: Connection, checklist: str | None, *, manual: bool = False, deferred: int = 0
    ) -> Facts:
        now, today = self.clock.wall(), self.ledger.today()
        route = self._route(tx)
        return Facts(
            now=now,
            local=datetime.fromtimestamp(now, self.zone),
            every=interval(self.settings, checklist),
            hours=self._hours,
            manual=manual,
            deferred=deferred,
            paused=self._paused(tx, route),
            past=beats.past(tx, now),
            spent=usage.spent(tx, today, kind=Kind.HEARTBEAT).tokens,
            budget=self.settings.daily_tokens,
            broke=self.caps.limit_days and self.caps.end_the_day(usage.spent(tx, today)),
            running=beats.is_running(tx),
            full=beats.is_full(tx, self.db.now()),
            delivers=self.settings.target != "none",
            route=route,
            away=self.db.now() - route.last if route and route.last is not None else 0.0,
            checklist=checklist,
            digest=hashlib.sha256((checklist or "").encode("utf-8", "replace")).hexdigest()[:24],
            idle_every=self.settings.idle_every,
        )

    def _route(self, tx: Connection) -> Route | None:
        match self.settings.target:
            case "none":
                return None
            case "owner":
                return beats.owner_route(tx, self.owners, self.channels)
            case "last":
                return beats.last_route(tx, self.channels)
            case named:
                channel, chat, thread = (*named.split(":", 2), "")[:3]
                return beats.named_route(tx, Address(channel, chat, thread), self.channels)

    def _paused(self, tx: Connection, route: Route | None) -> str:
        """Return why beats are paused; a pause for the model's sake is over when it answers a person."""
        why, _, since = (inbox.get_fact(tx, _PAUSE) or "").partition(" ")
        if why == "model" and route and beats.has_answered(tx, route.address, float(since)):
            inbox.set_fact(tx, _PAUSE, "")
            return ""
        return why

    async def _checklist(self) -> str | None:
        return await asyncio.to_thread(self.workspace.checklist)


def _would(decision: Beat | Skip) -> str:
    if isinstance(decision, Beat):
        return "A heartbeat that is due now would run."
    return f"A heartbeat that is due now would be skipped: {WHY[decision.reason]}."


def _done(decision: Beat | Skip) -> str:
    if isinstance(decision, Beat):
        return "A heartbeat begins. If nothing needs attention, you hear nothing of it."
    return f"No heartbeat: {WHY[decision.reason]}."


def _as_text(found: JsonObject, zone: ZoneInfo) -> str:
    def at(seconds: float | None) -> str:
        return "-" if seconds is None else f"{datetime.fromtimestamp(seconds, zone):%Y-%m-%d %H:%M}"

    every = math.floor(found["every"] / 60)
    state = f"every {every} min" if every else WHY["disabled"]
    if found["paused"]:
        state += {"model": "; paused, because the model refused"}.get(found["paused"], "; paused")
    lines = [
        f"heartbeat: {state}",
        f"next: {at(found['next_at'])}",
        f"target: {found['target']}" + (f" ({found['route']})" if found["route"] else ""),
        f"tokens today: {found['spent']}" + (f" of {found['budget']}" if found["budget"] else ""),
    ]
    lines += [f"last run: {_line(found['last'], at)}"] if found["last"] else []
    return "\n".join([*lines, *(f"- {_line(one, at)}" for one in found["recent"])])


def _line(row: JsonObject, at: Callable[[float | None], str]) -> str:
    """Return one beat as a line: when, what came of it, what it cost, whether it arrived."""
    parts = [at(row["at"]), row["status"]]
    if row["reason"]:
        parts.append(f"({WHY.get(row['reason'], row['reason'])})")
    if row["tokens"]:
        parts.append(f"{row['tokens']} tokens")
    if row["delivery"]:
        parts.append(f"{row['delivery']} to {row['target']}")
    return " ".join(parts)
