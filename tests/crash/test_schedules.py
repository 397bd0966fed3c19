"""Die at the n-th commit while schedules fire, for every n: each slot still runs once and is heard of once."""

from __future__ import annotations

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
from tests.crash.deaths import Mortal, Outside, at_every_commit, before_and_after, lives, wipe
from tests.fakes.clock import FakeClock
from tests.fakes.scripted import ScriptedModel, call, calls

BERLIN = ZoneInfo("Europe/Berlin")
EMPTY = wipe(outbound, entry, inbound, conversation, schedule, schedule_run)


def answer(prompt: Prompt) -> AssistantEntry:
    """Act once for each slot, then say which it was."""
    if isinstance(prompt.entries[-1], UserEntry):
        return calls(call("act"))
    return AssistantEntry(prompt.entries[0].text)


async def life(world: Outside, db: Mortal) -> None:
    """Fire what is due, after the schedules are there."""
    schedules = Schedules(db=db, clock=world.clock, rules=Rules(zone=BERLIN))
    one = world.process(db, ScriptedModel(answer), endings={Kind.CRON: schedules.ended})
    await one.recover()
    for name in ("daily", "once"):
        await _add(schedules, name, world.clock.time)
    await one.settle()  # what was interrupted is finished first, or the next slot would be skipped
    await schedules.fire()
    await one.settle()


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


@pytest.mark.timeout(240)
@before_and_after
async def test_a_death_at_any_commit_neither_loses_a_slot_nor_fires_it_twice(
    db: Database, clock: FakeClock, after: bool
) -> None:
    async def crash(at: int) -> bool:
        world = Outside(clock)

        async def one(mortal: Mortal) -> None:
            await life(world, mortal)

        assert await lives(db, one)
        clock.time += 600  # between lives: the leases of a shared database go by this clock, too
        finished = await lives(db, one, at, after=after)
        for _ in range(2):
            clock.time += 600
            assert await lives(db, one)
        keys, runs, unread, states = await db.write(facts)
        await db.write(EMPTY)

        assert len(keys) == len(set(keys)) == len(runs) >= 3
        assert {status for _, status in runs} == {"ok"}
        assert unread == 0
        assert len(states) == len(runs)
        assert set(states) <= {"sent", "unknown"}, "one whose delivery can't be known is not repeated"
        assert states.count("unknown") <= 1
        texts = world.channel.texts
        assert len(texts) == len(set(texts)), "nothing that the bot starts by itself is sent twice"
        assert sum("“once”" in text for text in texts) <= 1
        return finished

    await at_every_commit(clock, crash, more_than=10)
