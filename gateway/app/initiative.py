"""What the bot starts itself: schedules, heartbeats, and what comes of them."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Mapping, Sequence

from sqlalchemy.engine import Connection

from gateway.app.budget import caps_of, ledger_of
from gateway.app.models import Models
from gateway.app.parts import Parts, is_terminal
from gateway.bell import Bell
from gateway.config import duration
from gateway.heartbeat import Heartbeat
from gateway.intake import level_now
from gateway.store import subagents
from gateway.store.engine import Database
from gateway.store.jobs import Rules
from gateway.store.schedules import Schedules
from gateway.timer import Timer
from gateway.timetable import Timetable, answer
from gateway.turn import Beats, Ending
from gateway.types import Address, Kind


def schedules_of(parts: Parts) -> Schedules:
    """Return what fires schedules; those of other chats wait until their gateway runs."""
    only = "console" if is_terminal(parts.channels) else ""
    return Schedules(db=parts.db, clock=parts.clock, rules=_rules(parts, only))


def timetable_of(parts: Parts, changed: Callable[[], None]) -> Timetable:
    """Return the schedules as people handle them."""
    return Timetable(db=parts.db, clock=parts.clock, rules=_rules(parts), changed=changed)


def cron_command(schedules: Schedules) -> Callable[[Connection, Sequence[str], Address], str]:
    """Return what answers `/cron`."""
    loop = asyncio.get_running_loop()

    def command(tx: Connection, words: Sequence[str], place: Address) -> str:
        wall, now = schedules.clock.wall(), schedules.db.now()
        text = answer(tx, words, place, rules=schedules.rules, wall=wall, now=now)
        # It runs where the store writes, which may be another thread.
        loop.call_soon_threadsafe(schedules.changed)
        return text

    return command


def heartbeat_of(parts: Parts, timer: Timer, bell: Bell, model: str) -> Heartbeat:
    """Return the heartbeats; `bell` rings when one waits, `model` is named in notices."""
    return Heartbeat(
        settings=parts.settings.heartbeat,
        db=parts.db,
        clock=parts.clock,
        zone=parts.zone,
        workspace=parts.workspace,
        timer=timer,
        bell=bell,
        channels=parts.policies,
        owners=parts.owners,
        model=lambda: model,
        ledger=ledger_of(parts),
        caps=caps_of(parts.settings.limits),
    )


def beats_of(parts: Parts, models: Models, heartbeat: Heartbeat) -> Beats:
    """Return how the turns of heartbeats differ from others."""
    settings = parts.settings.heartbeat
    return Beats(
        model=models.beats,
        max_rounds=settings.max_rounds,
        ack_max_chars=settings.ack_max_chars,
        is_repeat=heartbeat.is_repeat,
    )


def endings_of(db: Database, schedules: Schedules, heartbeat: Heartbeat) -> Mapping[Kind, Ending]:
    """Return who is told how the turns of a kind ended, in the transaction that ends them."""
    return {
        Kind.CRON: schedules.ended,
        Kind.HEARTBEAT: heartbeat.ended,
        Kind.SUBAGENT: lambda tx, how: subagents.ended(tx, how, db.now()),
    }


def _rules(parts: Parts, channel: str = "") -> Rules:
    settings = parts.settings.cron
    return Rules(
        zone=parts.zone,
        grace=float(duration(settings.grace)),
        most=settings.per_chat,
        daily_tokens=settings.daily_tokens,
        caps=caps_of(parts.settings.limits),
        channel=channel,
        level=functools.partial(level_now, parts.policies),
    )
