"""Die at the n-th commit while heartbeats run, for every n: each slot fires once, no alert comes twice."""

from __future__ import annotations

import itertools
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from gateway.bell import Bell
from gateway.config import HeartbeatSettings
from gateway.heartbeat import Heartbeat
from gateway.models.base import Prompt
from gateway.store.beats import HOME
from gateway.store.engine import Database
from gateway.store.tables import beat, conversation, entry, inbound, outbound
from gateway.timer import Timer
from gateway.turn import Beats
from gateway.types import AssistantEntry, Kind, UserEntry
from gateway.workspace import Workspace
from tests.crash.test_every_commit import LEASE, Crash, Mortal, Outside
from tests.fakes.clock import FakeClock
from tests.fakes.scripted import ScriptedModel
from tests.fakes.world import World, said

START = 1_750_000_800.0
ALERTS = ("A job failed", "Bob wrote")
"""What the two beats find."""


def answer(prompt: Prompt) -> AssistantEntry:
    """Tell the person what was found; say hello to people."""
    woken = prompt.entries[0]
    assert isinstance(woken, UserEntry)
    if woken.kind is Kind.MESSAGE:
        return AssistantEntry("hi")
    return AssistantEntry(ALERTS[int(woken.at - START) // 1800 - 1])


async def life(db: Database, world: Outside, folder: Path, at: int, *, after: bool) -> bool:
    """Live until the end of the work or the crash; return whether the end was reached."""
    mortal = Mortal(db, at, after=after)
    wall = FakeClock(START)
    heartbeat = Heartbeat(
        settings=HeartbeatSettings(every="30m"),
        db=mortal,
        clock=wall,
        zone=ZoneInfo("UTC"),
        workspace=Workspace(folder, folder),
        timer=Timer(wall),
        bell=Bell(),
        channels=[world.channel.name],
        owners=[(world.channel.name, "7")],
    )
    one = World(
        db=mortal,
        clock=world.clock,
        model=ScriptedModel(answer),
        channel=world.channel,
        beats=Beats(is_repeat=heartbeat.is_repeat),
        endings={Kind.HEARTBEAT: heartbeat.ended},
        slots=1,
        lease=LEASE,
    )
    try:
        await one.recover()
        await one.put(said("hello", key="hello"))
        await one.settle()
        for number in range(1, len(ALERTS) + 1):
            wall.time = START + number * 1800
            await heartbeat.beat(f"slot{number}")
            await one.settle()
    except Crash:
        return False
    except BaseExceptionGroup as group:
        if (others := group.split(Crash)[1]) is not None:
            raise others from None
        return False
    return not mortal.dead


def facts(tx: Connection) -> tuple[list[tuple[str, str]], list[int]]:
    slots = [(row.slot, row.status) for row in tx.execute(sa.select(beat).order_by(beat.c.id))]
    home = sa.select(conversation.c.id).where(conversation.c.address == HOME.key).scalar_subquery()
    fired = sa.select(sa.func.count()).where(entry.c.conversation_id == home, entry.c.role == "user")
    waiting = sa.select(sa.func.count()).where(conversation.c.ready_at.is_not(None))
    mirrored = sa.select(sa.func.count()).where(inbound.c.key.startswith("mirror:"))
    return slots, [tx.execute(one).scalar_one() for one in (fired, waiting, mirrored)]


async def one_crash(db: Database, clock: FakeClock, folder: Path, at: int, *, after: bool) -> bool:
    world = Outside(clock)
    finished = await life(db, world, folder, at, after=after)
    if not finished:
        clock.time += 2 * LEASE  # on a shared database the dead one's leases run out
        assert await life(db, world, folder, 10_000, after=False)
    slots, (fired, waiting, mirrored) = await db.write(facts)
    await db.write(wipe)

    assert slots == [("slot1", "alert"), ("slot2", "alert")]
    assert fired == len(ALERTS)
    assert waiting == 0
    assert mirrored == len(ALERTS)
    alerts = [text for text in world.channel.texts if text != "hi"]
    assert len(alerts) == len(set(alerts)), "what the bot starts by itself is never sent twice"
    assert len(alerts) >= len(ALERTS) - 1, "only one that was under way may be lost"
    return finished


def wipe(tx: Connection) -> None:
    for table in (outbound, entry, inbound, conversation, beat):
        tx.execute(sa.delete(table))


@pytest.mark.timeout(240)
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
async def test_a_death_between_slot_and_delivery_fires_no_slot_twice(
    db: Database, clock: FakeClock, tmp_path: Path, after: bool
) -> None:
    clock.tick = 1e-6
    for at in itertools.count(1):
        if await one_crash(db, clock, tmp_path, at, after=after):
            break
    assert at > 10, "the work takes that many commits, so that many deaths were tried"
