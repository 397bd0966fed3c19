"""When a schedule fires: weekdays as in crontab, every clock change, and what people write."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.cron import (
    At,
    Cron,
    Every,
    Slot,
    Trigger,
    as_zone,
    decode,
    describe,
    encode,
    instant,
    newest,
    next_after,
    parse_cron,
    read,
    shown,
)

UTC_ZONE = ZoneInfo("UTC")
BERLIN = ZoneInfo("Europe/Berlin")
NEW_YORK = ZoneInfo("America/New_York")
ZONES = ("Europe/Berlin", "America/New_York", "Asia/Shanghai", "Australia/Lord_Howe")


def at(text: str, zone: ZoneInfo = UTC_ZONE) -> float:
    moment = datetime.fromisoformat(text)
    return (moment if moment.tzinfo else moment.replace(tzinfo=zone)).timestamp()


def following(trigger: Trigger, after: float, zone: ZoneInfo) -> Iterator[Slot]:
    """Yield slot after slot."""
    while (slot := next_after(trigger, after, zone)) is not None:
        yield slot
        after = slot.at


def keys(expression: str, after: str, zone: ZoneInfo, count: int) -> list[str]:
    found = following(parse_cron(expression), at(after, zone), zone)
    return [slot.key for slot in itertools.islice(found, count)]


@pytest.mark.parametrize(
    ("expression", "day"),
    [
        pytest.param("0 9 * * 1", "2026-01-05", id="cron-01-1"),
        pytest.param("0 9 * * 0", "2026-01-04", id="cron-01-0"),
        pytest.param("0 9 * * 7", "2026-01-04", id="cron-01-7"),
        pytest.param("0 9 * * 1-5", "2026-01-01", id="cron-01-1-5"),
        ("0 9 * * 5-7", "2026-01-02"),
        ("0 9 * * 6,7", "2026-01-03"),
        ("0 9 * * SUN", "2026-01-04"),
        ("0 9 * * Monday", "2026-01-05"),
        ("0 9 * january SAT", "2026-01-03"),
        ("0 9 * * mon-fri", "2026-01-01"),
        ("0 9 * * */2", "2026-01-01"),
        ("0 9 ? * 6", "2026-01-03"),
    ],
)
def test_weekdays_are_those_of_crontab(expression: str, day: str) -> None:
    slot = next_after(parse_cron(expression), at("2026-01-01T00:00"), UTC_ZONE)
    assert slot is not None
    assert slot.key == f"{day}T09:00"


def test_a_day_and_a_weekday_are_either_enough_as_in_crontab() -> None:
    found = keys("0 0 13 * 5", "2026-02-01T00:00", UTC_ZONE, 5)
    assert found == [f"2026-02-{day}T00:00" for day in ("06", "13", "20", "27")] + ["2026-03-06T00:00"]


def test_a_day_that_begins_with_a_star_restricts_beside_the_weekday() -> None:
    found = keys("0 0 */2 * mon", "2026-02-01T00:00", UTC_ZONE, 2)
    assert found == ["2026-02-09T00:00", "2026-02-23T00:00"]


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("@hourly", ["2026-01-01T01:00", "2026-01-01T02:00"]),
        ("@daily", ["2026-01-02T00:00", "2026-01-03T00:00"]),
        ("@midnight", ["2026-01-02T00:00", "2026-01-03T00:00"]),
        ("@weekly", ["2026-01-04T00:00", "2026-01-11T00:00"]),
        ("@monthly", ["2026-02-01T00:00", "2026-03-01T00:00"]),
        ("@yearly", ["2027-01-01T00:00", "2028-01-01T00:00"]),
        ("30 0 9 * * *", ["2026-01-01T09:00:30", "2026-01-02T09:00:30"]),
        ("10/20 9-10 * * *", ["2026-01-01T09:10", "2026-01-01T09:30"]),
        ("0 0 29 feb *", ["2028-02-29T00:00", "2032-02-29T00:00"]),
        ("0 8-18/5 * jan,mar *", ["2026-01-01T08:00", "2026-01-01T13:00"]),
    ],
)
def test_every_form_of_a_field_is_understood(expression: str, expected: list[str]) -> None:
    assert keys(expression, "2026-01-01T00:30", UTC_ZONE, 2) == expected


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize(
    "expression", ["0 0 * * *", "30 2 * * *", "45 1 * * *", "15 2 * * *", "0 3 * * *", "0 9 * * *"]
)
def test_a_daily_schedule_fires_exactly_once_on_each_of_400_local_days(zone: str, expression: str) -> None:
    place = ZoneInfo(zone)
    start = date(2026, 1, 1)
    days = Counter(
        slot.key[:10]
        for slot in itertools.takewhile(
            lambda slot: slot.key < (start + timedelta(days=400)).isoformat(),
            following(parse_cron(expression), at("2025-12-31T23:59:59", place), place),
        )
    )
    assert days == {(start + timedelta(days=number)).isoformat(): 1 for number in range(400)}


@pytest.mark.parametrize(
    ("zone", "expression", "day", "fires"),
    [
        pytest.param("America/New_York", "30 2 * * *", "2026-03-08", "2026-03-08 03:00 -04:00", id="cron-09"),
        ("Europe/Berlin", "30 2 * * *", "2026-03-29", "2026-03-29 03:00 +02:00"),
        ("Europe/Berlin", "0 2 * * *", "2026-03-29", "2026-03-29 03:00 +02:00"),
        ("Australia/Lord_Howe", "15 2 * * *", "2026-10-04", "2026-10-04 02:30 +11:00"),
        ("Europe/Berlin", "30 2 * * *", "2026-10-25", "2026-10-25 02:30 +02:00"),
        ("America/New_York", "30 1 * * *", "2026-11-01", "2026-11-01 01:30 -04:00"),
        ("Australia/Lord_Howe", "45 1 * * *", "2026-04-05", "2026-04-05 01:45 +11:00"),
        ("Asia/Shanghai", "30 2 * * *", "2026-03-29", "2026-03-29 02:30 +08:00"),
    ],
)
def test_a_missing_time_fires_at_the_first_valid_minute_and_a_double_one_at_the_first(
    zone: str, expression: str, day: str, fires: str
) -> None:
    place = ZoneInfo(zone)
    slots = itertools.islice(following(parse_cron(expression), at(f"{day}T00:00", place) - 1, place), 2)
    first, second = (shown(slot.at, place)[4:] for slot in slots)
    assert first == fires
    assert second[:10] > day, "and not again on that day"


def test_cron_11_every_five_minutes_go_on_in_the_repeated_hour() -> None:
    begin = at("2026-11-01T05:00:00+00:00")
    found = list(
        itertools.takewhile(
            lambda slot: slot.at < begin + 3 * 3600,
            following(parse_cron("*/5 * * * *"), begin - 1, NEW_YORK),
        )
    )
    assert len(found) == 36
    assert [slot.at for slot in found] == [begin + 300 * number for number in range(36)]
    assert len({slot.key for slot in found}) == 36, "each slot has a name of its own"


def test_an_hourly_schedule_skips_the_missing_hour_without_a_burst() -> None:
    assert keys("30 * * * *", "2026-03-29T00:45", BERLIN, 3) == [
        "2026-03-29T01:30",
        "2026-03-29T03:30",
        "2026-03-29T04:30",
    ]


def test_times_that_fall_together_behind_a_gap_fire_once() -> None:
    assert keys("0,20,40 2,3 * * *", "2026-03-29T00:00", BERLIN, 3) == [
        "2026-03-29T02:00",
        "2026-03-29T03:20",
        "2026-03-29T03:40",
    ]


def test_a_whole_day_that_a_zone_left_out_does_not_stop_a_schedule() -> None:
    apia = ZoneInfo("Pacific/Apia")
    slots = itertools.islice(following(parse_cron("0 9 * * *"), at("2011-12-29T08:00", apia), apia), 3)
    assert [shown(slot.at, apia)[4:20] for slot in slots] == [
        "2011-12-29 09:00",
        "2011-12-31 00:00",
        "2011-12-31 09:00",
    ]


def test_cron_07_a_restart_in_the_evening_leads_to_tomorrow_and_not_further() -> None:
    now = at("2026-06-01T17:20", BERLIN)
    slot = next_after(parse_cron("0 6 * * *"), now, BERLIN)
    assert slot is not None
    assert (slot.at - now) / 3600 == pytest.approx(12.67, abs=0.01)


@pytest.mark.parametrize("zone", ZONES)
def test_an_interval_keeps_its_beat_whenever_it_is_asked(zone: str) -> None:
    place = ZoneInfo(zone)
    start = at("2026-01-01T08:07:30", place)
    trigger = Every(7200, start)
    for hours in (0.1, 1.9, 2.0, 2.1, 5000.3):
        slot = next_after(trigger, start + hours * 3600, place)
        assert slot is not None
        assert slot.at > start + hours * 3600
        assert (slot.at - start) % 7200 == 0
        assert slot.at - (start + hours * 3600) <= 7200


@pytest.mark.parametrize("zone", ZONES)
def test_an_interval_of_days_keeps_the_time_of_day_through_400_days(zone: str) -> None:
    place = ZoneInfo(zone)
    slots = itertools.islice(following(Every(86_400, at("2026-01-01T09:00", place)), 0, place), 400)
    assert {slot.key[11:] for slot in slots} == {"09:00"}


def test_an_interval_does_not_fire_at_once() -> None:
    for seconds in (60, 86_400):
        slot = next_after(Every(seconds, 1000.0), 1000.0, UTC_ZONE)
        assert slot is not None
        assert slot.at == 1000.0 + seconds


def test_once_is_once() -> None:
    trigger = At(at("2026-01-01T10:00"))
    slot = next_after(trigger, trigger.when - 1, UTC_ZONE)
    assert slot == Slot("2026-01-01T10:00", trigger.when)
    assert next_after(trigger, trigger.when, UTC_ZONE) is None


def test_the_newest_of_several_missed_slots_is_found() -> None:
    hourly = parse_cron("0 * * * *")
    slot = newest(hourly, at("2026-01-01T09:30"), at("2026-01-01T12:10"), UTC_ZONE)
    assert slot is not None
    assert slot.key == "2026-01-01T12:00"
    assert newest(hourly, at("2026-01-01T12:00"), at("2026-01-01T12:59"), UTC_ZONE) is None


NOW = at("2026-06-01T10:00", BERLIN)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("+20m", 1200),
        ("in 20 minutes", 1200),
        ("In  20 Minutes", 1200),
        ("+90s", 90),
        ("in an hour", 3600),
        ("in 1h30m", 5400),
        ("in 2 hours and 5 minutes", 7500),
        ("20 minutes from now", 1200),
        ("+1.5h", 5400),
        ("in 2 weeks", 14 * 86_400),
        ("2026-06-01T10:20", 1200),
        ("2026-06-01 10:20", 1200),
        ("at 2026-06-01T10:20:30", 1230),
        ("2026-06-01T09:00Z", 3600),
        ("2026-06-01T17:00+08:00", 3600),
    ],
)
def test_what_happens_once_is_read_in_many_forms(text: str, seconds: float) -> None:
    assert read(text, NOW, BERLIN) == At(NOW + seconds)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("every 2h", 7200),
        ("every hour", 3600),
        ("every 90 seconds", 90),
        ("every day", 86_400),
        ("@every 1h30m", 5400),
    ],
)
def test_intervals_are_read(text: str, seconds: int) -> None:
    assert read(text, NOW, BERLIN) == Every(seconds, NOW)


def test_a_time_in_a_gap_is_the_first_that_exists() -> None:
    trigger = read("2027-03-28 02:30", NOW, BERLIN)
    assert isinstance(trigger, At)
    assert shown(trigger.when, BERLIN) == "Sun 2027-03-28 03:00 +02:00"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "no time that I understand"),
        ("fast", "no time that I understand"),
        ("every fast", "no length of time"),
        ("every 5s", "too often"),
        ("tomorrow at nine", "write"),
        ("every day at 9:00", "cron line"),
        ("30m", 'for once in 30m, or "every 30m"'),
        ("0 9 * * 8", "0 to 7"),
        ("60 9 * * *", "0 to 59"),
        ("0 24 * * *", "0 to 23"),
        ("0 0 0 * *", "1 to 31"),
        ("0 0 * 13 *", "1 to 12"),
        ("0 9 * * funday", "sun to sat"),
        ("0 9 * * monkey", "sun to sat"),
        ("0 0 31 2 *", "31 February"),
        ("0 22-6 * * *", "backwards"),
        ("*/0 * * * *", "steps"),
        ("1,,2 * * * *", "lists"),
        ("0 9 L * *", "1 to 31"),
        ("0 9 * * 5#2", "weekday"),
        ("*-5 * * * *", "ranges"),
        ("* * * * * *", "too often"),
        ("0 9 * *", "cron line"),
        ("@reboot", "cron line"),
        ("2026-01-01T09:00", "in the past: it is Mon 2026-06-01 10:00"),
        ("2026-13-01T09:00", "no date with a time"),
        ("2027-03-01", "no date with a time"),
        ("in 11 years", "no length of time"),
        ("in 99999 days", "ten years"),
        ("9999-12-31T23:59", "ten years"),
        ("0001-01-01T00:00", "past|far"),
        ("+0m", "in the past"),
    ],
)
def test_what_makes_no_sense_is_refused_with_the_right_form(text: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        read(text, NOW, BERLIN)


def test_an_unknown_zone_is_refused_with_a_near_one() -> None:
    with pytest.raises(ValueError, match="Europe/Berlin"):
        as_zone("Europe/Berlinn")
    for bad in ("", "../etc/passwd", "/etc/passwd", "x" * 300, "a\0b"):
        with pytest.raises(ValueError, match="time zone"):
            as_zone(bad)


@pytest.mark.parametrize("text", ["+20m", "every 2h", "0 9 * * 1-5", "@daily"])
def test_a_stored_trigger_is_the_same_again(text: str) -> None:
    trigger = read(text, NOW, BERLIN)
    assert decode(encode(trigger)) == trigger


@pytest.mark.parametrize(
    "stored", [{}, {"at": "soon"}, {"every": 1, "from": 0}, {"cron": "x"}, {"every": 60}]
)
def test_a_stored_trigger_that_is_broken_says_so(stored: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"can't be read|no time"):
        decode(stored)


def test_a_trigger_is_told_in_words() -> None:
    assert describe(At(NOW), BERLIN) == "once at Mon 2026-06-01 10:00 +02:00"
    assert describe(Every(5400, NOW), BERLIN) == "every 1h30m"
    assert describe(parse_cron("0 9  * * MON"), BERLIN) == 'cron "0 9 * * mon"'


def numbers(low: int, high: int) -> st.SearchStrategy[str]:
    one = st.integers(low, high)
    spans = st.tuples(one, one, st.integers(1, 7)).map(lambda t: f"{min(t[:2])}-{max(t[:2])}/{t[2]}")
    part = st.one_of(one.map(str), spans, st.integers(1, 30).map(lambda step: f"*/{step}"))
    return st.one_of(st.just("*"), st.lists(part, min_size=1, max_size=3).map(",".join))


expressions = st.tuples(numbers(0, 59), numbers(0, 23), numbers(1, 28), numbers(1, 12), numbers(0, 7)).map(
    " ".join
)
zones = st.sampled_from([ZoneInfo(zone) for zone in (*ZONES, "Asia/Kathmandu", "America/Santiago")])
moments = st.floats(at("2025-12-01T00:00"), at("2027-02-01T00:00")).map(lambda moment: round(moment, 3))


def wanted_minutes(cron: Cron, begin: float, minutes: int, zone: ZoneInfo) -> list[float]:
    """Say by brute force when a line fires in the minutes after `begin`, a whole minute."""
    if cron.hourly:
        passing = (begin + 60 * number for number in range(1, minutes + 1))
        return [moment for moment in passing if _matches(cron, datetime.fromtimestamp(moment, zone))]
    first = datetime.fromtimestamp(begin, zone).replace(tzinfo=None) - timedelta(hours=26)
    planned = (first + timedelta(minutes=number) for number in range(minutes + 52 * 60))
    fired = {instant(local, zone) for local in planned if _matches(cron, local)}
    return sorted(moment for moment in fired if begin < moment <= begin + minutes * 60)


def _matches(cron: Cron, local: datetime) -> bool:
    return local.minute in cron.minutes and local.hour in cron.hours and cron.on(local.date())


@settings(max_examples=150)
@given(expressions, zones, moments)
def test_the_next_time_is_what_a_look_at_every_minute_finds(
    expression: str, zone: ZoneInfo, begin: float
) -> None:
    cron = parse_cron(expression)
    begin = begin // 60 * 60
    wanted = wanted_minutes(cron, begin, 60 * 26, zone)
    found = [
        slot.at
        for slot in itertools.takewhile(
            lambda slot: slot.at <= begin + 60 * 60 * 26, following(cron, begin, zone)
        )
    ]
    assert found == wanted


clock_changes = st.sampled_from(
    [
        (zone, at(text))
        for zone, texts in {
            "Europe/Berlin": ("2026-03-29T01:00", "2026-10-25T01:00"),
            "America/New_York": ("2026-03-08T07:00", "2026-11-01T06:00"),
            "Australia/Lord_Howe": ("2026-10-03T15:30", "2026-04-04T15:00"),
            "America/Santiago": ("2026-09-06T04:00", "2026-04-05T03:00"),
        }.items()
        for text in texts
    ]
)


@settings(max_examples=150)
@given(expressions, clock_changes, st.integers(-180, 180))
def test_it_is_so_around_every_clock_change(expression: str, change: tuple[str, float], minutes: int) -> None:
    zone, moment = ZoneInfo(change[0]), change[1] + minutes * 60
    cron = parse_cron(expression)
    found = [
        slot.at
        for slot in itertools.takewhile(
            lambda slot: slot.at <= moment + 60 * 300, following(cron, moment, zone)
        )
    ]
    assert found == wanted_minutes(cron, moment, 300, zone)


@given(expressions, zones, moments, st.floats(0, 3 * 86_400))
def test_a_later_look_never_finds_an_earlier_slot(
    expression: str, zone: ZoneInfo, begin: float, more: float
) -> None:
    cron = parse_cron(expression)
    sooner, later = next_after(cron, begin, zone), next_after(cron, begin + more, zone)
    if sooner is None:
        assert later is None
    elif later is not None:
        assert begin < sooner.at <= later.at
        assert sooner == later or sooner.at <= begin + more
        assert _matches(cron, datetime.fromisoformat(sooner.key.removesuffix("b")))


def test_slots_are_named_alike_whenever_they_are_looked_for() -> None:
    cron = parse_cron("*/20 1-3 * * *")
    names: dict[float, set[str]] = {}
    for minute in range(0, 6 * 60, 7):
        begin = datetime(2026, 10, 24, 22, tzinfo=UTC).timestamp() + minute * 60
        slot = next_after(cron, begin, BERLIN)
        assert slot is not None
        names.setdefault(slot.at, set()).add(slot.key)
    assert all(len(found) == 1 for found in names.values())
