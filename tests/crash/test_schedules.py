"""Die at the n-th commit while schedules fire, for every n: each slot still runs once and is heard of once."""

from __future__ import annotations

import itertools
from zoneinfo import ZoneInfo

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from gateway import cron
from gateway.models.base import Prompt
from gateway.store.engine import Database
from gateway.store.jobs import Rules, Wanted
from gateway.store.schedules import Schedules
from gateway.store.tables import conversation, entry, inbound, outbound, schedule, schedule_run
from gateway.types import Address, AssistantEntry, Chat, Kind, Sender, UserEntry
from tests.crash.test_every_commit import LEASE, Crash, Mortal, Outside
from tests.fakes.clock import FakeClock
from tests.fakes.scripted import ScriptedModel, call, calls
from tests.fakes.world import World

BERLIN = ZoneInfo("Europe/Berlin")


def answer(prompt: Prompt) -> AssistantEntry:
    """Act once for each slot, then say which it was."""
    if isinstance(prompt.entries[-1], UserEntry):
        return calls(call("act"))
    return AssistantEntry(prompt.entries[0].text)


async def life(db: Database, world: Outside, at: int, *, after: bool) -> bool:
    """Live until the end of the work or the crash; return whether the end was reached."""
    mortal = Mortal(db, at, after=after)
    schedules = Schedules(db=mortal, clock=world.clock, rules=Rules(zone=BERLIN))
    one = World(
        db=mortal,
        clock=world.clock,
        model=ScriptedModel(answer),
        tools=world.tools,
        channel=world.channel,
        endings={Kind.CRON: schedules.ended},
        slots=1,
        lease=LEASE,
    )
    try:
        await one.recover()
        for name in ("daily", "once"):
            await _add(schedules, name, world.clock.time)
        await one.settle()  # what was interrupted is finished first, or the next slot would be skipped
        await schedules.fire()
        await one.settle()
    except Crash:
        return False
    except BaseExceptionGroup as group:
        if (others := group.split(Crash)[1]) is not None:
            raise others from None
        return False
    return not mortal.dead


async def _add(schedules: Schedules, name: str, now: float) -> None:
    known = [job.name for job in await schedules.jobs()] + (["once"] if await _was_there(schedules) else [])
    if name not in known:
        when = "*/10 * * * *" if name == "daily" else "+10m"
        await schedules.save(
            Wanted(
                address=Address("fake", "1"),
                chat=Chat.DIRECT,
                sender=Sender("7"),
                name=name,
                trigger=cron.read(when, now, BERLIN),
                zone=BERLIN,
                prompt=name,
            )
        )


async def _was_there(schedules: Schedules) -> bool:
    """Return whether the reminder has fired, after which it is no longer among the schedules."""
    ran = sa.select(sa.func.count(schedule_run.c.schedule_id.distinct()))
    return await schedules.db.read(lambda tx: int(tx.execute(ran).scalar_one()) > 1)


def facts(tx: Connection) -> tuple[list[str], list[tuple[str, str]], int, list[str]]:
    runs = tx.execute(sa.select(schedule_run.c.slot, schedule_run.c.status).order_by(schedule_run.c.id)).all()
    keys = list(tx.execute(sa.select(inbound.c.key).where(inbound.c.key.startswith("cron:"))).scalars())
    unread = sa.select(sa.func.count()).where(inbound.c.seq.is_(None), inbound.c.wakes)
    states = list(tx.execute(sa.select(outbound.c.state)).scalars())
    return keys, [(run.slot, run.status) for run in runs], int(tx.execute(unread).scalar_one()), states


def wipe(tx: Connection) -> None:
    for table in (outbound, entry, inbound, conversation, schedule, schedule_run):
        tx.execute(sa.delete(table))


async def one_crash(db: Database, clock: FakeClock, at: int, *, after: bool) -> bool:
    world = Outside(clock)
    assert await life(db, world, 10_000, after=False)
    clock.time += 600  # between lives: the leases of a shared database go by this clock, too
    finished = await life(db, world, at, after=after)
    for _ in range(2):
        clock.time += 600
        assert await life(db, world, 10_000, after=False)
    keys, runs, unread, states = await db.write(facts)
    await db.write(wipe)

    assert len(keys) == len(set(keys)) == len(runs) >= 3
    assert {status for _, status in runs} == {"ok"}
    assert unread == 0
    assert len(states) == len(runs)
    assert set(states) <= {"sent", "unknown"}, "one whose delivery can't be known is not repeated"
    assert states.count("unknown") <= 1
    texts = [message.text for message in world.channel.sent]
    assert len(texts) == len(set(texts)), "nothing that the bot starts by itself is sent twice"
    assert sum("“once”" in text for text in texts) <= 1
    return finished


@pytest.mark.timeout(240)
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
async def test_a_death_at_any_commit_neither_loses_a_slot_nor_fires_it_twice(
    db: Database, clock: FakeClock, after: bool
) -> None:
    clock.tick = 1e-6
    for at in itertools.count(1):
        if await one_crash(db, clock, at, after=after):
            break
    assert at > 10, "the work takes that many commits, so that many deaths were tried"
