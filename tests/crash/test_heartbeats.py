"""Die at the n-th commit while heartbeats run, for every n: each slot fires once, no alert comes twice."""

from __future__ import annotations

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
from tests.crash.deaths import Mortal, Outside, at_every_commit, before_and_after, dies_once, wipe
from tests.fakes.clock import FakeClock
from tests.fakes.scripted import ScriptedModel
from tests.fakes.world import said

START = 1_750_000_800.0
ALERTS = ("A job failed", "Bob wrote")
"""What the two beats find."""

EMPTY = wipe(outbound, entry, inbound, conversation, beat)


def answer(prompt: Prompt) -> AssistantEntry:
    """Tell the person what was found; say hello to people."""
    woken = prompt.entries[0]
    assert isinstance(woken, UserEntry)
    if woken.kind is Kind.MESSAGE:
        return AssistantEntry("hi")
    return AssistantEntry(ALERTS[int(woken.at - START) // 1800 - 1])


async def life(world: Outside, folder: Path, db: Mortal) -> None:
    """Let a heartbeat find something in each slot."""
    wall = FakeClock(START)
    heartbeat = Heartbeat(
        settings=HeartbeatSettings(every="30m"),
        db=db,
        clock=wall,
        zone=ZoneInfo("UTC"),
        workspace=Workspace(folder, folder),
        timer=Timer(wall),
        bell=Bell(),
        channels=[world.channel.name],
        owners=[(world.channel.name, "7")],
    )
    one = world.process(
        db,
        ScriptedModel(answer),
        beats=Beats(is_repeat=heartbeat.is_repeat),
        endings={Kind.HEARTBEAT: heartbeat.ended},
    )
    await one.recover()
    await one.put(said("hello", key="hello"))
    await one.settle()
    for number in range(1, len(ALERTS) + 1):
        wall.time = START + number * 1800
        await heartbeat.beat(f"slot{number}")
        await one.settle()


def facts(tx: Connection) -> tuple[list[tuple[str, str]], list[int]]:
    slots = [(row.slot, row.status) for row in tx.execute(sa.select(beat).order_by(beat.c.id))]
    home = sa.select(conversation.c.id).where(conversation.c.address == HOME.key).scalar_subquery()
    fired = sa.select(sa.func.count()).where(entry.c.conversation_id == home, entry.c.role == "user")
    waiting = sa.select(sa.func.count()).where(conversation.c.ready_at.is_not(None))
    mirrored = sa.select(sa.func.count()).where(inbound.c.key.startswith("mirror:"))
    return slots, [tx.execute(one).scalar_one() for one in (fired, waiting, mirrored)]


@pytest.mark.timeout(240)
@before_and_after
async def test_a_death_between_slot_and_delivery_fires_no_slot_twice(
    db: Database, clock: FakeClock, tmp_path: Path, after: bool
) -> None:
    async def crash(at: int) -> bool:
        world = Outside(clock)
        finished = await dies_once(db, clock, lambda mortal: life(world, tmp_path, mortal), at, after=after)
        slots, (fired, waiting, mirrored) = await db.write(facts)
        await db.write(EMPTY)

        assert slots == [("slot1", "alert"), ("slot2", "alert")]
        assert fired == len(ALERTS)
        assert waiting == 0
        assert mirrored == len(ALERTS)
        alerts = [text for text in world.channel.texts if text != "hi"]
        assert len(alerts) == len(set(alerts)), "what the bot starts by itself is never sent twice"
        assert len(alerts) >= len(ALERTS) - 1, "only one that was under way may be lost"
        return finished

    await at_every_commit(clock, crash, more_than=10)
