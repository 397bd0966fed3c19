"""When a session is over by itself, through nights, silences and changes of the clock."""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from gateway.sessions import Freshness, latest
from gateway.types import Chat

BERLIN = ZoneInfo("Europe/Berlin")
DAILY = Freshness(mode="daily", zone=BERLIN)
IDLE = Freshness(mode="idle", idle=3600, zone=BERLIN)


def at(text: str, fold: int = 0) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=BERLIN, fold=fold).timestamp()


@pytest.mark.parametrize(
    ("last", "now", "over"),
    [
        ("2026-06-01 23:00", "2026-06-02 03:59", False),
        ("2026-06-01 23:00", "2026-06-02 04:00", True),
        ("2026-06-02 03:59", "2026-06-02 04:01", True),
        ("2026-06-02 04:00", "2026-06-02 23:59", False),
        ("2026-05-01 12:00", "2026-06-02 03:00", True),
        ("2026-06-02 12:00", "2026-06-02 11:00", False),
        ("2026-06-03 12:00", "2026-06-02 11:00", False),
    ],
    ids=[
        "before four",
        "at four",
        "over four",
        "the same day",
        "weeks ago",
        "clock back",
        "clock a day back",
    ],
)
def test_a_day_ends_at_four(last: str, now: str, over: bool) -> None:
    assert DAILY.is_over(at(last), at(now), Chat.DIRECT) is over


def test_a_night_with_a_change_of_the_clock_ends_one_day() -> None:
    spring = Freshness(mode="daily", at="02:30", zone=BERLIN)  # left out on 2026-03-29
    assert not spring.is_over(at("2026-03-28 23:00"), at("2026-03-29 01:59"), Chat.DIRECT)
    assert spring.is_over(at("2026-03-28 23:00"), at("2026-03-29 03:31"), Chat.DIRECT)
    assert not spring.is_over(at("2026-03-29 03:31"), at("2026-03-29 12:00"), Chat.DIRECT)
    autumn = spring  # comes twice on 2026-10-25
    assert autumn.is_over(at("2026-10-25 02:00"), at("2026-10-25 02:31"), Chat.DIRECT)
    assert not autumn.is_over(at("2026-10-25 02:31"), at("2026-10-25 02:31", fold=1), Chat.DIRECT)


def test_a_silence_ends_a_session() -> None:
    assert not IDLE.is_over(1000.0, 4600.0, Chat.DIRECT)
    assert IDLE.is_over(1000.0, 4601.0, Chat.DIRECT)
    assert not IDLE.is_over(4601.0, 1000.0, Chat.DIRECT), "a message from before"


def test_nothing_ends_without_a_rule_or_elsewhere_or_before_anybody_spoke() -> None:
    assert not Freshness().is_over(0.0, 1e9, Chat.DIRECT)
    assert not IDLE.is_over(None, 1e9, Chat.DIRECT)
    groups = Freshness(mode="idle", idle=60, chats=frozenset({Chat.GROUP}))
    assert not groups.is_over(0.0, 1e9, Chat.DIRECT)
    assert groups.is_over(0.0, 1e9, Chat.GROUP)


@pytest.mark.parametrize("zone", ["Pacific/Apia", "Africa/Cairo", "America/Sao_Paulo", "Asia/Kathmandu"])
def test_the_newest_four_o_clock_is_never_ahead_and_never_more_than_a_day_and_an_hour_old(zone: str) -> None:
    local = ZoneInfo(zone)
    for hour in range(24 * 400):
        now = at("2026-01-01 00:00") + hour * 3600 + 7
        found = latest(now, "04:00", local)
        assert 0 <= now - found <= 25 * 3600
