from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.access import EVERYBODY, Policy
from gateway.config import HeartbeatSettings, parse
from gateway.errors import ConfigError
from gateway.heartbeat import (
    AGAIN,
    ALWAYS,
    AWAY,
    CALM,
    GONE,
    MOST_AGAIN,
    WHY,
    Beat,
    Facts,
    Hours,
    Skip,
    decide,
    interval,
    next_slot,
    signature,
)
from gateway.store.beats import Past, Route
from gateway.types import Address

BERLIN = ZoneInfo("Europe/Berlin")
NEW_YORK = ZoneInfo("America/New_York")
SHANGHAI = ZoneInfo("Asia/Shanghai")
LORD_HOWE = ZoneInfo("Australia/Lord_Howe")

NOON = datetime(2026, 5, 6, 12, tzinfo=BERLIN)
NOW = NOON.timestamp()
ROUTE = Route(Address("telegram", "7"), last=NOW - 3600)
DUE = Facts(now=NOW, local=NOON, every=1800, route=ROUTE, checklist="- Look at the mail", digest="d")


def but(**changes: Any) -> Facts:
    return replace(DUE, **changes)


def had(**facts: Any) -> Facts:
    return replace(DUE, past=Past(**facts))


def at(hour: int, minute: int = 0) -> Facts:
    local = NOON.replace(hour=hour, minute=minute)
    return replace(DUE, now=local.timestamp(), local=local)


def test_a_beat_that_nothing_speaks_against_asks_the_model() -> None:
    assert decide(DUE) == Beat()


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        pytest.param(but(every=0), "disabled", id="off"),
        pytest.param(had(ended=NOW - 600), "too-soon", id="just-ended"),
        pytest.param(had(ended=NOW - 1740), "", id="a-slot-comes-less-than-an-interval-after-the-last-end"),
        pytest.param(had(ended=NOW + 3600), "", id="an-end-in-the-future-after-a-wrong-clock"),
        pytest.param(
            replace(at(7, 59), hours=Hours.parse("08:00", "23:00")), "quiet-hours", id="before-start"
        ),
        pytest.param(replace(at(8), hours=Hours.parse("08:00", "23:00")), "", id="at-start"),
        pytest.param(replace(at(22, 59), hours=Hours.parse("08:00", "23:00")), "", id="before-end"),
        pytest.param(replace(at(23), hours=Hours.parse("08:00", "23:00")), "quiet-hours", id="at-end"),
        pytest.param(replace(at(23, 59), hours=Hours.parse("08:00", "24:00")), "", id="end-of-day"),
        pytest.param(replace(at(2), hours=Hours.parse("22:00", "06:00")), "", id="over-midnight"),
        pytest.param(replace(at(12), hours=Hours.parse("22:00", "06:00")), "quiet-hours", id="not-over-noon"),
        pytest.param(replace(at(8), hours=Hours(480, 480)), "quiet-hours", id="no-width-is-never"),
        pytest.param(but(paused="asked"), "paused", id="paused"),
        pytest.param(had(failures=1, ended=NOW - 1790), "", id="one-failure"),
        pytest.param(had(failures=2, ended=NOW - 1790), "back-off", id="two-failures-wait-two"),
        pytest.param(had(failures=2, ended=NOW - 3590), "", id="two-failures-waited-two"),
        pytest.param(had(failures=4, ended=NOW - 4 * 1800), "back-off", id="four-failures-wait-eight"),
        pytest.param(had(failures=40, ended=NOW - 90_000), "", id="never-longer-than-a-day"),
        pytest.param(but(spent=1000, budget=1000), "budget", id="cost-04"),
        pytest.param(but(spent=999, budget=1000), "", id="within-the-budget"),
        pytest.param(but(spent=10**9, budget=0), "", id="no-budget-no-limit"),
        pytest.param(had(starts=5), "flood", id="flood"),
        pytest.param(but(running=True), "running", id="the-last-one-runs"),
        pytest.param(but(route=replace(ROUTE, busy=True)), "busy", id="chat-is-busy"),
        pytest.param(but(full=True), "busy", id="queue-is-full"),
        pytest.param(but(route=None), "no-route", id="nobody-to-tell"),
        pytest.param(but(route=None, delivers=False), "", id="nobody-is-to-be-told"),
        pytest.param(but(route=replace(ROUTE, dead=True)), "dead-route", id="blocked"),
        pytest.param(but(checklist=None), "", id="heartbeat-fire-01"),
        pytest.param(
            but(checklist="# Heartbeat\n\n<!-- write tasks for the hourly check here -->\n\n- [ ] \n"),
            "empty-checklist",
            id="heartbeat-fire-02",
        ),
        pytest.param(but(checklist=""), "empty-checklist", id="empty"),
        pytest.param(but(checklist="#todo"), "", id="a-line-that-only-looks-like-a-heading"),
        pytest.param(
            but(checklist="PAUSED\n- Look at the mail"), "paused-checklist", id="paused-by-its-first-line"
        ),
        pytest.param(
            but(checklist="# Disabled for now\n- mail"), "paused-checklist", id="paused-by-its-heading"
        ),
        pytest.param(but(checklist="- Pausen eintragen"), "", id="a-word-that-begins-alike"),
        pytest.param(but(checklist="- mail\n" * 150_000), "long-checklist", id="a-megabyte"),
        pytest.param(but(away=AWAY + 1), "owner-away", id="away-for-a-week"),
        pytest.param(replace(had(passed=3), away=AWAY + 1), "", id="away-every-fourth"),
        pytest.param(
            replace(had(passed=3), away=GONE + 1),
            "owner-away",
            id="gone-for-good",
        ),
        pytest.param(
            replace(had(calm=CALM, checklist="d"), idle_every=3), "unchanged", id="all-well-for-long"
        ),
        pytest.param(
            replace(had(calm=CALM, checklist="d", passed=2), idle_every=3), "", id="every-third-nevertheless"
        ),
        pytest.param(replace(had(calm=CALM, checklist="e"), idle_every=3), "", id="another-checklist"),
        pytest.param(replace(had(calm=CALM - 1, checklist="d"), idle_every=3), "", id="not-yet-for-long"),
        pytest.param(had(calm=CALM, checklist="d"), "", id="idling-is-off-by-default"),
    ],
)
def test_each_gate_lets_a_slot_go_for_its_reason(facts: Facts, reason: str) -> None:
    decision = decide(facts)
    assert (decision.reason if isinstance(decision, Skip) else "") == reason
    assert not reason or reason in WHY


@pytest.mark.parametrize(
    "facts",
    [but(running=True), but(route=replace(ROUTE, busy=True)), but(full=True)],
    ids=["runs", "heartbeat-fire-08", "full"],
)
def test_a_busy_chat_is_tried_again_each_minute_ten_times(facts: Facts) -> None:
    again = [decide(replace(facts, deferred=number)) for number in range(MOST_AGAIN + 2)]
    waits = [one.again for one in again if isinstance(one, Skip)]
    assert waits == [AGAIN] * MOST_AGAIN + [0.0, 0.0]


@pytest.mark.parametrize(
    "facts",
    [
        but(every=0),
        had(ended=NOW),
        replace(at(3), hours=Hours(480, 1380)),
        but(paused="model"),
        had(failures=5, ended=NOW),
        but(checklist=""),
        but(away=GONE * 2),
        but(route=replace(ROUTE, busy=True)),
    ],
    ids=["off", "just-ended", "night", "paused", "failed", "empty", "gone", "busy"],
)
def test_what_a_person_asks_for_happens_at_once(facts: Facts) -> None:
    assert decide(replace(facts, manual=True)) == Beat()


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        (but(spent=5, budget=5), "budget"),
        (had(starts=5), "flood"),
        (but(running=True), "running"),
        (but(route=None), "no-route"),
        (but(route=replace(ROUTE, dead=True)), "dead-route"),
    ],
)
def test_what_a_person_asks_for_still_costs_no_more_than_allowed(facts: Facts, reason: str) -> None:
    assert decide(replace(facts, manual=True)) == Skip(reason)


def slots(start: str, zone: ZoneInfo, every: int, count: int, hours: Hours = ALWAYS) -> list[str]:
    """Return the next slots as local times with their offset."""
    after = datetime.fromisoformat(start).timestamp()
    found = []
    for _ in range(count):
        slot = next_slot(after, every, hours, zone)
        assert slot is not None
        assert slot.at > after
        after = slot.at
        found.append(f"{datetime.fromtimestamp(slot.at, zone):%d %H:%M %z}")
    return found


@pytest.mark.parametrize(
    ("start", "zone", "expected"),
    [
        pytest.param(
            "2026-03-29T01:10+01:00",
            BERLIN,
            ["29 01:30 +0100", "29 03:00 +0200", "29 03:30 +0200"],
            id="Berlin-gap",
        ),
        pytest.param(
            "2026-10-25T02:10+02:00",
            BERLIN,
            ["25 02:30 +0200", "25 03:00 +0100", "25 03:30 +0100"],
            id="Berlin-fold",
        ),
        pytest.param(
            "2026-03-08T01:10-05:00",
            NEW_YORK,
            ["08 01:30 -0500", "08 03:00 -0400", "08 03:30 -0400"],
            id="New_York-gap",
        ),
        pytest.param(
            "2026-11-01T01:10-04:00",
            NEW_YORK,
            ["01 01:30 -0400", "01 02:00 -0500", "01 02:30 -0500"],
            id="New_York-fold",
        ),
        pytest.param(
            "2026-03-29T01:10+08:00",
            SHANGHAI,
            ["29 01:30 +0800", "29 02:00 +0800", "29 02:30 +0800"],
            id="Shanghai",
        ),
        pytest.param(
            "2026-10-04T01:40+10:30",
            LORD_HOWE,
            ["04 02:30 +1100", "04 03:00 +1100", "04 03:30 +1100"],
            id="Lord_Howe-gap",
        ),
        pytest.param(
            "2026-04-05T01:10+11:00",
            LORD_HOWE,
            ["05 01:30 +1100", "05 02:00 +1030", "05 02:30 +1030"],
            id="Lord_Howe-fold",
        ),
    ],
)
def test_slots_follow_the_local_clock_where_it_is_changed(
    start: str, zone: ZoneInfo, expected: list[str]
) -> None:
    assert slots(start, zone, 1800, 3) == expected


@pytest.mark.parametrize("zone", [BERLIN, NEW_YORK, SHANGHAI, LORD_HOWE], ids=str)
def test_a_daily_beat_stays_at_its_time_of_day_all_year(zone: ZoneInfo) -> None:
    start = datetime(2026, 1, 1, tzinfo=zone).isoformat()
    found = slots(start, zone, 86_400, 364, Hours.parse("08:00", "23:00"))
    assert {text[3:8] for text in found} == {"08:00"}


def test_heartbeat_fire_04_the_first_slot_is_within_the_hours_and_no_night_slot_that_is_skipped() -> None:
    found = slots("2026-05-01T00:56:12+08:00", SHANGHAI, 4 * 3600, 5, Hours.parse("08:00", "23:00"))
    assert [text[:8] for text in found] == ["01 08:00", "01 12:00", "01 16:00", "01 20:00", "02 08:00"]


def test_heartbeat_fire_05_the_hours_are_those_of_their_zone_whatever_the_host_has() -> None:
    now = datetime(2026, 1, 15, 2, 30, tzinfo=UTC)
    assert Hours.parse("09:00", "21:00").hold(now.astimezone(ZoneInfo("America/Los_Angeles")))


def test_hours_that_are_never_have_no_slot() -> None:
    assert next_slot(NOW, 1800, Hours(480, 480), BERLIN) is None


@given(
    st.integers(60, 40 * 86_400),
    st.integers(0, 1439),
    st.integers(1, 1440),
    st.integers(0, 3_000_000_000),
    st.sampled_from([BERLIN, NEW_YORK, SHANGHAI, LORD_HOWE]),
)
def test_every_slot_lies_ahead_within_the_hours_and_has_a_name_of_its_own(
    every: int, start: int, width: int, after: int, zone: ZoneInfo
) -> None:
    hours = Hours(start, (start + width) % 1440 or 1440)
    if hours.start == hours.end:
        return
    first = next_slot(after, every, hours, zone)
    if first is None:
        return
    second = next_slot(first.at, every, hours, zone)
    assert first.at > after
    assert hours.hold(datetime.fromtimestamp(first.at, zone))
    assert second is None or (second.at > first.at and second.key != first.key)


def test_a_slot_is_named_by_its_planned_local_time() -> None:
    slot = next_slot(datetime(2026, 5, 6, 8, 1, tzinfo=BERLIN).timestamp(), 1800, ALWAYS, BERLIN)
    assert slot is not None
    assert slot.key == "heartbeat:main:2026-05-06T08:30 Europe/Berlin"


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        pytest.param("Disk at 97 percent", "disk  at 98\npercent", True, id="numbers-case-blanks"),
        pytest.param("Failed at 2026-05-06T12:00:01Z", "Failed at 2026-05-07T08:15:44Z", True, id="times"),
        pytest.param("See https://ci.example/run/17", "See https://ci.example/run/18", True, id="addresses"),
        pytest.param("3 new mails", "12 new mails", True, id="counters"),
        pytest.param("磁盘 97%", "磁盘 98%", True, id="chinese"),
        pytest.param("Disk full on a", "Disk full on b", False, id="another-host"),
        pytest.param("Mail from Bob", "Mail from Ann", False, id="another-person"),
        pytest.param("half \ud800 pair", "half \ud800 pair", True, id="text-009"),
    ],
)
def test_two_alerts_that_say_the_same_have_one_signature(first: str, second: str, same: bool) -> None:
    assert (signature(first) == signature(second)) is same


@pytest.mark.parametrize(
    ("every", "checklist", "seconds"),
    [
        ("", None, 0),
        ("", "# Heartbeat\n<!-- nothing -->", 0),
        ("", "- Look at the mail", 1800),
        ("0m", "- Look at the mail", 0),
        ("2h", None, 7200),
    ],
)
def test_nothing_beats_unless_somebody_wanted_it(every: str, checklist: str | None, seconds: int) -> None:
    """Spec HB-42."""
    assert interval(HeartbeatSettings(every=every), checklist) == seconds


@pytest.mark.parametrize(
    ("text", "every"),
    [
        ("", ""),
        ("every = false", "0m"),
        ('every = "off"', "0m"),
        ("every = 0", "0m"),
        ("every = 45", "45m"),
        ('every = "0"', "0"),
        ('every = "1h30m"', "1h30m"),
    ],
)
def test_what_people_write_for_an_interval_is_understood(text: str, every: str) -> None:
    assert parse(f"[heartbeat]\n{text}", {}, Path("/")).heartbeat.every == every


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param('every = "fast"', "heartbeat.every = 'fast': must be a number and a unit", id="fast"),
        pytest.param('every = "10s"', "must be at least 1m", id="too-fast"),
        pytest.param("every = true", "heartbeat.every", id="true"),
        pytest.param("every = -5", "must be a number and a unit", id="negative"),
        pytest.param('target = "nobody"', 'must be "owner", "last", "none" or "channel:chat"', id="target"),
        pytest.param("interval = 5", "heartbeat.interval: unknown key", id="unknown-key"),
        pytest.param("ack_max_chars = -1", "heartbeat.ack_max_chars", id="negative-ack"),
        pytest.param(
            '[heartbeat.active_hours]\nend = "24:30"', "heartbeat.active_hours.end", id="heartbeat-fire-07"
        ),
        pytest.param('[heartbeat.active_hours]\nstart = "8:00"', "heartbeat.active_hours.start", id="short"),
        pytest.param('[heartbeat.active_hours]\nstart = "24:00"', 'start must be before "24:00"', id="late"),
        pytest.param(
            '[heartbeat.active_hours]\nstart = "08:00"\nend = "08:00"', "which is never", id="equal-hours"
        ),
        pytest.param(
            '[heartbeat.active_hours]\ntimezone = "Europe/Berln"', "such as Europe/Berlin", id="unknown-zone"
        ),
    ],
)
def test_settings_that_can_not_be_meant_are_refused_with_the_right_form(text: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(f"[heartbeat]\n{text}", {}, Path("/"))
    assert said in str(caught.value)


def test_the_end_of_the_day_is_a_good_end() -> None:
    """Case heartbeat-fire-07."""
    text = '[heartbeat.active_hours]\nstart = "08:00"\nend = "24:00"'
    assert parse(text, {}, Path("/")).heartbeat.active_hours.end == "24:00"


def test_a_clock_that_jumps_names_no_slot_twice_and_skips_to_the_next() -> None:
    start = NOON.timestamp()
    fired: list[str] = []
    for jump in (0, 1800, 1800, -7200, 1800, 86_400 * 3, 1800, -86_400 * 3, 1800):
        start += jump
        slot = next_slot(start, 1800, ALWAYS, BERLIN)
        assert slot is not None
        assert timedelta(0) < timedelta(seconds=slot.at - start) <= timedelta(minutes=30)
        fired.append(slot.key)
    assert len(set(fired)) < len(fired), (
        "after a jump back the same slots are planned, and known by their keys"
    )


@pytest.mark.parametrize(
    ("policy", "people"),
    [
        pytest.param(Policy(allow_from=("7",)), ("7",), id="the-only-one-listed"),
        pytest.param(Policy(allow_from=("7", "8")), (), id="one-of-two-is-nobody"),
        pytest.param(Policy(mode="open", allow_from=("*",)), (), id="everybody-is-nobody"),
        pytest.param(Policy(mode="open", allow_from=("7", "*")), (), id="one-and-everybody"),
        pytest.param(
            Policy(allow_from=("7", "8"), owners=("9", "8")), ("9", "8"), id="owners-in-their-order"
        ),
        pytest.param(Policy(allow_from=("tg:7",), prefixes=("tg:",)), ("7",), id="behind-a-prefix"),
        pytest.param(Policy(allow_from=("7",), nobody=frozenset({"7"})), (), id="an-id-of-the-platform"),
        pytest.param(EVERYBODY, (), id="a-page"),
    ],
)
def test_it_is_clear_whose_bot_it_is_or_nobody_hears_of_anything(
    policy: Policy, people: tuple[str, ...]
) -> None:
    """Spec HB-39."""
    assert policy.people() == people
