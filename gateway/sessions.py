"""When a conversation begins afresh by itself (agent 3.10, messaging SE-7)."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import datetime, time, timedelta
from zoneinfo import ZoneInfo

from gateway.types import Chat

UTC = ZoneInfo("UTC")


def latest(now: float, at: str, zone: ZoneInfo) -> float:
    """Return the newest moment, not after `now`, at which local clocks showed `at` ("04:00"); UNIX seconds.

    When clocks are put back only the first of two equal times counts; a time that is left out when they are
    put forward comes as late as it would have come without that.
    """
    today = datetime.fromtimestamp(now, zone).date()
    for day in (today, today - timedelta(days=1)):
        moment = datetime.combine(day, time.fromisoformat(at), zone).timestamp()
        if moment <= now:
            return moment
    return moment


@dataclass(frozen=True, slots=True, kw_only=True)
class Freshness:
    """How long a session is carried on: `daily` until the next `at`, `idle` for so many seconds of silence.

    Only messages of people count, by the time that their platform gives them, so that neither a clock of ours
    that is wrong nor an outage decides.
    """

    mode: str = ""
    at: str = "04:00"
    idle: float = 86_400.0
    chats: AbstractSet[Chat] = frozenset(Chat)
    zone: ZoneInfo = UTC

    def is_over(self, last: float | None, now: float, chat: Chat) -> bool:
        """Return whether a message of `now` begins a new session when the one before was sent at `last`."""
        if last is None or chat not in self.chats:
            return False
        if self.mode == "daily":
            return last < latest(now, self.at, self.zone)
        return self.mode == "idle" and now - last > self.idle
