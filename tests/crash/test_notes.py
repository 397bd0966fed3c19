"""Die at the n-th commit while a conversation is summed up: it stays whole, and everybody is answered."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from gateway.compaction import HEADINGS, Limits
from gateway.models.base import Prompt
from gateway.repair import repair
from gateway.store import notes
from gateway.store.engine import Database
from gateway.store.journal import Journal
from gateway.store.tables import conversation, entry, outbound
from gateway.types import AssistantEntry, NoteEntry, UserEntry
from tests.crash.test_every_commit import Crash, Mortal, Outside, wipe
from tests.fakes.clock import FakeClock
from tests.fakes.scripted import ScriptedModel, call, calls
from tests.fakes.world import World, said

SUMMARY = "\n".join(f"## {heading}\nA question was answered." for heading in HEADINGS)
QUESTIONS = 4


def answer(prompt: Prompt) -> AssistantEntry:
    if prompt.system.startswith("You sum up"):
        return AssistantEntry(SUMMARY)
    return calls(call("act")) if isinstance(prompt.entries[-1], UserEntry) else AssistantEntry("done")


async def life(db: Database, outside: Outside, at: int, *, after: bool) -> bool:
    """Ask and have the talk summed up, until the end or the crash; return whether the end was reached."""
    mortal = Mortal(db, at, after=after)
    one = World(
        db=mortal,
        clock=outside.clock,
        model=ScriptedModel(answer),
        tools=outside.tools,
        channel=outside.channel,
        limits=Limits(max_messages=6, keep_messages=1),
    )
    try:
        await one.recover()
        await one.settle()
        for number in range(QUESTIONS):
            await one.put(said(f"question {number}", key=f"k{number}"))
            await one.settle()
        await mortal.write(wanted)
        await one.settle()
    except* Crash:
        pass  # any other error comes out
    return not mortal.dead


def wanted(tx: Connection) -> None:
    which = tx.execute(sa.select(conversation.c.id)).scalar_one()
    notes.want(tx, which, "", 0.0)


def stored(tx: Connection) -> tuple[list[Any], list[str], float | None]:
    rows = list(tx.execute(sa.select(entry.c.seq, entry.c.role).order_by(entry.c.seq)).all())
    states = list(tx.execute(sa.select(outbound.c.state)).scalars())
    return rows, states, tx.execute(sa.select(conversation.c.ready_at)).scalar_one()


async def one_crash(db: Database, clock: FakeClock, at: int, *, after: bool) -> bool:
    outside = Outside(clock)
    finished = await life(db, outside, at, after=after)
    if not finished:
        assert await life(db, outside, 10_000, after=False)
    rows, states, ready_at = await db.write(stored)
    await db.write(lambda tx: tx.execute(sa.update(conversation).values(ready_at=0.0)))
    ((claim,), _) = await Journal(db, "reader").claim(1)
    await db.write(wipe)

    assert set(states) == {"sent"}
    assert ready_at is None
    raw = [row.role for row in rows if row.role != "note"]
    assert raw == ["user", "assistant", "tool", "assistant"] * QUESTIONS, "nothing is lost, nothing twice"
    assert isinstance(claim.transcript[0], NoteEntry)
    assert repair(claim.transcript) == list(claim.transcript)
    assert len(outside.tools.ran) == len(set(outside.tools.ran))
    return finished


@pytest.mark.timeout(240)
@pytest.mark.parametrize("kind", ["sqlite"], indirect=True)
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
async def test_a_death_at_any_commit_leaves_a_whole_conversation(
    db: Database, clock: FakeClock, after: bool
) -> None:
    clock.tick = 1e-6
    for at in itertools.count(1):
        if await one_crash(db, clock, at, after=after):
            break
    assert at > 20, "the work takes that many commits, so that many deaths were tried"
