"""When a schedule fires: what people may write, and the next time after any moment; pure.

A slot is one planned firing, named by its local time. Where the clock is put forward, a time that does
not exist fires at the first minute that does; where it is put back, only the first of two equal times
fires. An expression for every hour (`*` in the hour field) follows the hours as they pass instead: it
skips the missing hour and fires in the repeated one, too.
"""

from __future__ import annotations

import difflib
import re
import zoneinfo
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from typing import TypeAlias
from zoneinfo import ZoneInfo

from gateway.types import JsonObject

DAY = 86_400
LEAST = 60
"""Seconds between two firings of a schedule, at least."""

LONGEST = 10 * 366 * 86_400
"""Seconds ahead that a time may lie."""

_HORIZON = 9 * 366
"""Days that are looked through for the next firing: 29 February may be eight years away."""

HINT = (
    'write "+20m" or "2027-03-01T09:00" for once, "every 2h" for an interval, '
    'or a cron line such as "0 9 * * 1-5" (minute hour day month weekday)'
)
"""What may stand for a time."""


@dataclass(frozen=True, slots=True)
class At:
    """Once, at UNIX seconds."""

    when: float


@dataclass(frozen=True, slots=True)
class Every:
    """At `start + n * seconds`, in UNIX seconds, so that neither a restart nor a late firing moves it.

    Whole days are counted on the local calendar: the time of the day stays when the clock is changed.
    """

    seconds: int
    start: float


@dataclass(frozen=True, slots=True)
class Cron:
    """A crontab line, read. `either`: day and weekday are both restricted, and one of them is enough.

    `second` is a single number. `hourly`: the hour field is `*`.
    """

    text: str
    second: int
    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    either: bool
    hourly: bool

    def on(self, day: date) -> bool:
        """Return whether it fires on a local day; weekdays count from Sunday = 0."""
        if day.month not in self.months:
            return False
        by_day, by_weekday = day.day in self.days, day.isoweekday() % 7 in self.weekdays
        return by_day or by_weekday if self.either else by_day and by_weekday


Trigger: TypeAlias = At | Every | Cron


@dataclass(frozen=True, slots=True)
class Slot:
    """One planned firing: the name it has for ever, and when it is due in UNIX seconds."""

    key: str
    at: float


def next_after(trigger: Trigger, after: float, zone: ZoneInfo) -> Slot | None:
    """Return the first slot after UNIX seconds `after`, None if there is none (within nine years)."""
    match trigger:
        case At(when):
            return slot_at(when, zone) if when > after else None
        case Every(seconds, start) if seconds % DAY == 0:
            return _next_in_days(trigger, after, zone)
        case Every(seconds, start):
            return slot_at(start + _number(after - start, seconds) * seconds, zone)
        case Cron(hourly=True):
            return _next_as_hours_pass(trigger, after, zone)
        case Cron():
            return _next_on_the_clock(trigger, after, zone)


def newest(trigger: Trigger, since: float, until: float, zone: ZoneInfo) -> Slot | None:
    """Return the last slot that is after `since` and not after `until`; they should lie close together."""
    found = None
    slot = next_after(trigger, since, zone)
    while slot is not None and slot.at <= until:
        found, slot = slot, next_after(trigger, slot.at, zone)
    return found


def slot_at(at: float, zone: ZoneInfo) -> Slot:
    """Return the slot that is named by the local time of a moment in UNIX seconds."""
    local = datetime.fromtimestamp(at, zone)
    # The second of two equal local times needs a name of its own.
    return Slot(_key(local.replace(tzinfo=None)) + ("b" if local.fold else ""), at)


def _key(local: datetime) -> str:
    return local.isoformat(timespec="seconds" if local.second or local.microsecond else "minutes")


def _number(passed: float, seconds: int) -> int:
    """Return how often an interval has to be counted to lie in the future; the first time is not at once."""
    return max(1, int(passed // seconds) + 1)


def _next_in_days(every: Every, after: float, zone: ZoneInfo) -> Slot:
    first = datetime.fromtimestamp(every.start, zone).replace(tzinfo=None)
    passed = datetime.fromtimestamp(after, zone).replace(tzinfo=None) - first
    number = _number(passed.total_seconds() - DAY, every.seconds)
    while (at := instant(planned := first + number * timedelta(seconds=every.seconds), zone)) <= after:
        number += 1
    return Slot(_key(planned), at)


def _days(cron: Cron, first: date) -> Iterator[date]:
    """Yield the local days on which a line fires."""
    for number in range(_HORIZON):
        day = first + timedelta(days=number)
        if cron.on(day):
            yield day


def _next_on_the_clock(cron: Cron, after: float, zone: ZoneInfo) -> Slot | None:
    now = datetime.fromtimestamp(after, zone).replace(tzinfo=None)
    for day in _days(cron, now.date()):
        today = day == now.date()
        for hour in cron.hours:
            if today and hour < now.hour:
                continue
            for minute in cron.minutes:
                planned = datetime.combine(day, time(hour, minute, cron.second))
                if planned >= now and (at := instant(planned, zone)) > after:
                    return Slot(_key(planned), at)
    return None


def _next_as_hours_pass(cron: Cron, after: float, zone: ZoneInfo) -> Slot | None:
    for day in _days(cron, datetime.fromtimestamp(after, zone).date()):
        at = max(after // 60 * 60, instant(datetime.combine(day, time()), zone))
        while (local := datetime.fromtimestamp(at, zone)).date() == day:
            if local.minute in cron.minutes and at + cron.second > after:
                return slot_at(at + cron.second, zone)
            at += 60
    return None


def instant(local: datetime, zone: ZoneInfo) -> float:
    """Return the UNIX seconds of a local time: the first of two, or the end of the gap it falls into."""
    at = local.replace(tzinfo=zone).timestamp()
    if datetime.fromtimestamp(at, zone).replace(tzinfo=None) == local:
        return at
    # In a gap, `at` was counted with the old offset and lies behind it; with the new one it lies before.
    before, behind = int(local.replace(tzinfo=zone, fold=1).timestamp()), int(at)
    old = datetime.fromtimestamp(before, zone).utcoffset()
    while behind - before > 1:
        middle = (before + behind) // 2
        if datetime.fromtimestamp(middle, zone).utcoffset() == old:
            before = middle
        else:
            behind = middle
    return float(behind)


def as_zone(name: str) -> ZoneInfo:
    """Return an IANA time zone. Raises: ValueError, which names a near one."""
    try:
        return ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        near = difflib.get_close_matches(name, zoneinfo.available_timezones(), 1) or ["Europe/Berlin"]
        raise ValueError(f"{name!r} is no known time zone; write one such as {near[0]}") from None


def encode(trigger: Trigger) -> JsonObject:
    """Return the stored form."""
    match trigger:
        case At(when):
            return {"at": when}
        case Every(seconds, start):
            return {"every": seconds, "from": start}
        case Cron(text=text):
            return {"cron": text}


def decode(stored: JsonObject) -> Trigger:
    """Read the stored form. Raises: ValueError."""
    match stored:
        case {"at": int() | float() as when}:
            return At(float(when))
        case {"every": int() as seconds, "from": int() | float() as start} if seconds >= LEAST:
            return Every(seconds, float(start))
        case {"cron": str() as text}:
            return parse_cron(text)
        case _:
            raise ValueError(f"this stored trigger can't be read: {stored!r}")


def describe(trigger: Trigger, zone: ZoneInfo) -> str:
    """Return a trigger in words."""
    match trigger:
        case At(when):
            return f"once at {shown(when, zone)}"
        case Every(seconds):
            return f"every {_span(seconds)}"
        case Cron(text=text):
            return f'cron "{text}"'


def shown(at: float, zone: ZoneInfo) -> str:
    """Return a moment as people in a zone read it, e.g. `Mon 2027-03-01 09:00 +01:00`."""
    local = datetime.fromtimestamp(at, zone)
    text = local.isoformat(" ", "minutes")
    return f"{('Mon', 'Tue', 'Wed', 'Thu', 'Fri', 'Sat', 'Sun')[local.weekday()]} {text[:16]} {text[16:]}"


def _span(seconds: int) -> str:
    units = ((86_400, "d"), (3600, "h"), (60, "m"), (1, "s"))
    parts = []
    for size, unit in units:
        count, seconds = divmod(seconds, size)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts)


_UNIT_SECONDS: Mapping[str, int] = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_AMOUNT = re.compile(
    r"(\d{1,9}(?:\.\d{1,3})?|an?|)\s*"
    r"(seconds?|secs?|s|minutes?|mins?|m|hours?|hrs?|h|days?|d|weeks?|w)(?![a-z])(?:\s*(?:,|and)\s*|\s*)"
)
_IN = re.compile(r"(?:\+|in\b)\s*(.+)|(.+?)\s*from now")
_EVERY = re.compile(r"(?:@every|every|each)\s+(.+)")
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")


def read(text: str, now: float, zone: ZoneInfo) -> Trigger:
    """Return what somebody wrote for a time; `now` is UNIX seconds.

    `+20m`, `in 20 minutes` and an ISO time (in `zone` unless it names one) are once; `every 2h` counts
    from now; anything else is a crontab line.

    Raises: ValueError, which says what to write.
    """
    words = " ".join(text.split())
    low = words.lower().removeprefix("at ")
    if found := _IN.fullmatch(low):
        return _once(now + _seconds(found[1] or found[2]), now, zone)
    if found := _EVERY.fullmatch(low):
        seconds = _seconds(found[1])
        if seconds < LEAST:
            raise ValueError(f"{words!r} is too often: at most once in {LEAST} seconds, such as every 5m")
        return Every(seconds, now)
    if _DATE.match(low):
        return _once(_moment(low, zone), now, zone)
    if re.fullmatch(rf"(?:{_AMOUNT.pattern})+", low):
        raise ValueError(f'write "+{words}" for once in {words}, or "every {words}" for an interval')
    trigger = parse_cron(words)
    if next_after(trigger, now, zone) is None:
        raise ValueError(f"{words!r} names a day that never comes, such as 31 February")
    return trigger


def _once(when: float, now: float, zone: ZoneInfo) -> At:
    if when > now + LONGEST:
        raise ValueError("that is more than ten years away")
    if when <= now:
        raise ValueError(f"{shown(when, zone)} is in the past: it is {shown(now, zone)} now")
    return At(when)


def _seconds(text: str) -> int:
    """Return the seconds of `20m`, `1h30m`, `2 hours and 5 minutes` or `an hour`."""
    total, at = 0.0, 0
    while at < len(text):
        found = _AMOUNT.match(text, at)
        # "every hour" has no number, but "5 hour minutes" has nothing to say.
        if found is None or (not found[1] and text != found[0]):
            raise ValueError(f"{text!r} is no length of time; {HINT}")
        total += (float(found[1]) if found[1][:1].isdigit() else 1) * _UNIT_SECONDS[found[2][0]]
        at = found.end()
    if total > LONGEST:
        raise ValueError("that is more than ten years")
    return round(total)


def _moment(text: str, zone: ZoneInfo) -> float:
    try:
        # datetime reads a date alone as midnight, which nobody means who writes a reminder.
        moment = datetime.fromisoformat(text.upper().replace(" Z", "Z")) if len(text) > 10 else None
    except ValueError:
        moment = None
    if moment is None:
        raise ValueError(f"{text!r} is no date with a time; {HINT}")
    try:
        return moment.timestamp() if moment.tzinfo else instant(moment, zone)
    except (OverflowError, ValueError):
        raise ValueError(f"{text!r} is too far away") from None


_NICKNAMES = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_MONTHS = (
    *("january", "february", "march", "april", "may", "june", "july"),
    *("august", "september", "october", "november", "december"),
)
_WEEKDAYS = ("sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday")
_PART = re.compile(r"(\*|\w+)(?:-(\w+))?(?:/(\d{1,4}))?", re.ASCII)


@dataclass(frozen=True, slots=True)
class _Field:
    """A field of a crontab line: what it may hold, and the names of the numbers from `low` on.

    The first three letters of a name are enough.
    """

    name: str
    low: int
    high: int
    names: tuple[str, ...] = ()

    def read(self, text: str) -> frozenset[int]:
        """Return the numbers that a field stands for. Raises: ValueError."""
        return frozenset(number for part in text.split(",") for number in self._part(part))

    def _part(self, text: str) -> range:
        found = _PART.fullmatch(text)
        if found is None or (found[1] == "*" and found[2]):
            raise self._problem(text)
        if found[1] == "*":
            first, last = self.low, self.high
        else:
            first = self._number(found[1], text)
            last = self._number(found[2], text) if found[2] else (self.high if found[3] else first)
        step = int(found[3] or 1)
        if step < 1:
            raise self._problem(text)
        if last < first:
            raise ValueError(
                f"the range {text!r} in the {self.name} field runs backwards; write it in two parts"
            )
        return range(first, last + 1, step)

    def _number(self, word: str, part: str) -> int:
        if word.isdigit() and len(word) <= 4 and self.low <= int(word) <= self.high:
            return int(word)
        for number, name in enumerate(self.names, self.low):
            if word in (name, name[:3]):
                return number
        raise self._problem(part)

    def _problem(self, part: str) -> ValueError:
        named = f" or {self.names[0][:3]} to {self.names[-1][:3]}" if self.names else ""
        return ValueError(
            f"{part!r} can't stand in the {self.name} field: it takes {self.low} to {self.high}{named}, "
            "*, lists (1,3), ranges (1-5) and steps (*/2)"
        )


_SECOND, _MINUTE, _HOUR = _Field("second", 0, 59), _Field("minute", 0, 59), _Field("hour", 0, 23)
_DAY, _MONTH = _Field("day", 1, 31), _Field("month", 1, 12, _MONTHS)
_WEEKDAY = _Field("weekday", 0, 7, _WEEKDAYS)


def parse_cron(text: str) -> Cron:
    """Read a crontab line of five fields, or six with the second first.

    Numbers of weekdays are crontab's (0 and 7 are Sunday); when day and weekday are both restricted,
    either is enough; neither is restricted if it begins with `*` (crontab(5)).

    Raises: ValueError, which says what to write.
    """
    line = " ".join(text.lower().split())
    fields = _NICKNAMES.get(line, line).split()
    if len(fields) == 5:
        fields = ["0", *fields]
    if len(fields) != 6:
        raise ValueError(f"{text!r} is no time that I understand; {HINT}")
    second, minute, hour, day, month, weekday = fields
    seconds = _SECOND.read(second)
    if len(seconds) != 1:
        raise ValueError(f"{second!r} in the second field is too often; it takes one number from 0 to 59")
    day, weekday = (("*" if one == "?" else one) for one in (day, weekday))
    return Cron(
        text=line,
        second=min(seconds),
        minutes=tuple(sorted(_MINUTE.read(minute))),
        hours=tuple(sorted(_HOUR.read(hour))),
        days=_DAY.read(day),
        months=_MONTH.read(month),
        weekdays=frozenset(number % 7 for number in _WEEKDAY.read(weekday)),
        either=not day.startswith("*") and not weekday.startswith("*"),
        hourly=hour == "*",
    )
