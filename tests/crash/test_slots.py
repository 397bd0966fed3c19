"""Real nodes that fire many slots and are killed at random: each slot happens exactly once."""

from __future__ import annotations

import asyncio
import logging
import os
import random
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from gateway.clock import SystemClock
from gateway.cron import At
from gateway.steps import INTERRUPTED
from gateway.store.engine import Reader, open_database, open_reader
from gateway.store.jobs import Rules, Wanted, save
from gateway.store.tables import conversation, entry, inbound, outbound, schedule, schedule_run
from gateway.turn import MAX_ATTEMPTS
from gateway.types import Address, Chat, Sender
from tests.crash.test_kill9 import kill, node

log = logging.getLogger(__name__)

SLOTS = int(os.environ.get("CRAYFISH_SLOTS", "100"))
"""With a thousand, this is the measurement that docs/performance.md reports."""

RATE = 15.0
"""Slots that are due in a second."""

AHEAD = 2.0
"""Seconds until the first is due."""

KILLS = SLOTS // 10
CHATS = 10
PATIENCE = 120.0 + SLOTS / RATE
"""Seconds after which what should have happened counts as missing; a failed run may be tried again by then."""

UTC = ZoneInfo("UTC")


@dataclass(frozen=True, slots=True)
class Facts:
    """What the tables say in the end."""

    runs: list[tuple[str, str]]
    taken: list[str]
    states: Counter[str]
    interrupted: int


async def plan(url: str, chance: random.Random) -> list[str]:
    """Set what is to happen once each, at random moments from soon on; return the names."""
    clock = SystemClock()
    now = clock.wall()
    wanted = [
        Wanted(
            address=Address("fake", str(number % CHATS)),
            chat=Chat.DIRECT,
            sender=Sender("7", level="user"),
            name=f"slot{number}",
            trigger=At(now + AHEAD + chance.uniform(0, SLOTS / RATE)),
            zone=UTC,
            prompt=f"slot{number}",
        )
        for number in range(SLOTS)
    ]

    def store(tx: Connection) -> None:
        for one in wanted:
            save(tx, one, Rules(zone=UTC, most=SLOTS), now)

    db = await open_database(url, clock)
    try:
        await db.write(store)
    finally:
        await db.close()
    return [one.name for one in wanted]


def left(tx: Connection) -> int:
    """Return how much is still to be done: what happens once is removed when it has."""
    counts = (
        sa.select(sa.func.count()).select_from(schedule),
        sa.select(sa.func.count()).select_from(conversation).where(conversation.c.ready_at.is_not(None)),
        sa.select(sa.func.count()).select_from(outbound).where(outbound.c.state.in_(("pending", "sending"))),
    )
    return sum(int(tx.execute(count).scalar_one()) for count in counts)


def tired(tx: Connection) -> int:
    """Return how many turns another kill or two could end."""
    cut_off = sa.and_(conversation.c.ready_at.is_not(None), conversation.c.attempt >= MAX_ATTEMPTS - 1)
    return int(tx.execute(sa.select(sa.func.count()).select_from(conversation).where(cut_off)).scalar_one())


def facts(tx: Connection) -> Facts:
    runs = tx.execute(sa.select(schedule_run.c.key, schedule_run.c.status))
    taken = tx.execute(sa.select(inbound.c.key).where(inbound.c.key.startswith("cron:")))
    states = tx.execute(sa.select(outbound.c.state))
    results = tx.execute(sa.select(entry.c.body).where(entry.c.role == "tool"))
    return Facts(
        runs=[(row.key, row.status) for row in runs],
        taken=list(taken.scalars()),
        states=Counter(states.scalars()),
        interrupted=sum(INTERRUPTED in body for body in results.scalars()),
    )


async def storm(reader: Reader, url: str, folder: Path, count: int, chance: random.Random) -> int:
    """Let nodes work until nothing is left, and kill one now and then; return how often."""
    nodes = [await node(url, folder) for _ in range(count)]
    kills = 0
    try:
        async with asyncio.timeout(PATIENCE):
            while before := await reader.read(left):
                # Where each start is killed before it has done anything, nothing would ever be done.
                while await reader.read(left) == before:  # noqa: ASYNC110 - other processes have no events
                    await asyncio.sleep(0.02)
                if kills < KILLS:
                    await asyncio.sleep(chance.uniform(0, 0.8))
                    # What was cut off too often without a step forward would be given up, and tried again.
                    while await reader.read(tired):  # noqa: ASYNC110 - as above
                        await asyncio.sleep(0.02)
                    which = chance.randrange(count)
                    await kill(nodes[which])
                    kills += 1
                    nodes[which] = await node(url, folder)
    finally:
        for one in nodes:
            await kill(one)
    return kills


@pytest.mark.timeout(2 * PATIENCE)
@pytest.mark.parametrize(
    ("kind", "count"), [("postgres", 2), ("sqlite", 1)], ids=["postgres-two-nodes", "sqlite-restarted"]
)
async def test_each_of_many_slots_happens_exactly_once_through_random_kills(
    url: str, count: int, tmp_path: Path
) -> None:
    chance = random.Random(20260103)
    names = await plan(url, chance)
    reader = open_reader(url)
    try:
        kills = await storm(reader, url, tmp_path, count, chance)
        found = await reader.read(facts)
    finally:
        await reader.close()

    assert Counter(status for _, status in found.runs) == {"ok": SLOTS}
    assert sorted(key for key, _ in found.runs) == sorted(found.taken), "a run is a turn, and no two are one"
    assert len(set(found.taken)) == SLOTS

    acts = (tmp_path / "acts").read_text().splitlines()
    assert len(acts) == len(set(acts)), "what may not repeat was repeated"
    assert {act.partition("@")[0] for act in acts} <= set(names)
    assert 2 * SLOTS - found.interrupted <= len(acts) <= 2 * SLOTS

    sent = [line.split(" ", 1)[0] for line in (tmp_path / "sent").read_text().splitlines()]
    assert len(sent) == len(set(sent)), "nobody hears of a slot twice"
    # Nobody can know whether a message went out that a kill cut off; it is not sent again (reliability 3.1).
    assert set(found.states) <= {"sent", "unknown"}
    assert found.states.total() == SLOTS
    assert found.states["unknown"] <= kills
    log.info("%d slots, %d kills, %d calls cut off, %s", SLOTS, kills, found.interrupted, found.states)
