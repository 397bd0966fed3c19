"""Die at the n-th commit while a conversation is summed up: it stays whole, and everybody is answered."""

from __future__ import annotations

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
from gateway.store.tables import conversation, entry, inbound, outbound
from gateway.types import AssistantEntry, NoteEntry, UserEntry
from tests.crash.deaths import Mortal, Outside, at_every_commit, before_and_after, dies_once, wipe
from tests.fakes.clock import FakeClock
from tests.fakes.scripted import ScriptedModel, call, calls
from tests.fakes.world import said

SUMMARY = "\n".join(f"## {heading}\nA question was answered." for heading in HEADINGS)
QUESTIONS = 4
EMPTY = wipe(outbound, entry, inbound, conversation)


def answer(prompt: Prompt) -> AssistantEntry:
    if prompt.system.startswith("You sum up"):
        return AssistantEntry(SUMMARY)
    return calls(call("act")) if isinstance(prompt.entries[-1], UserEntry) else AssistantEntry("done")


async def life(outside: Outside, db: Mortal) -> None:
    """Ask, and have the talk summed up."""
    one = outside.process(db, ScriptedModel(answer), slots=8, limits=Limits(max_messages=6, keep_messages=1))
    await one.recover()
    await one.settle()
    for number in range(QUESTIONS):
        await one.put(said(f"question {number}", key=f"k{number}"))
        await one.settle()
    await db.write(wanted)
    await one.settle()


def wanted(tx: Connection) -> None:
    which = tx.execute(sa.select(conversation.c.id)).scalar_one()
    notes.want(tx, which, "", 0.0)


def stored(tx: Connection) -> tuple[list[Any], list[str], float | None]:
    rows = list(tx.execute(sa.select(entry.c.seq, entry.c.role).order_by(entry.c.seq)).all())
    states = list(tx.execute(sa.select(outbound.c.state)).scalars())
    return rows, states, tx.execute(sa.select(conversation.c.ready_at)).scalar_one()


@pytest.mark.timeout(240)
@pytest.mark.parametrize("kind", ["sqlite"], indirect=True)
@before_and_after
async def test_a_death_at_any_commit_leaves_a_whole_conversation(
    db: Database, clock: FakeClock, after: bool
) -> None:
    async def crash(at: int) -> bool:
        outside = Outside(clock)
        finished = await dies_once(db, clock, lambda mortal: life(outside, mortal), at, after=after)
        rows, states, ready_at = await db.write(stored)
        await db.write(lambda tx: tx.execute(sa.update(conversation).values(ready_at=0.0)))
        ((claim,), _) = await Journal(db, "reader").claim(1)
        await db.write(EMPTY)

        assert set(states) == {"sent"}
        assert ready_at is None
        raw = [row.role for row in rows if row.role != "note"]
        assert raw == ["user", "assistant", "tool", "assistant"] * QUESTIONS, "nothing is lost, nothing twice"
        assert isinstance(claim.transcript[0], NoteEntry)
        assert repair(claim.transcript) == list(claim.transcript)
        assert len(outside.tools.ran) == len(set(outside.tools.ran))
        return finished

    await at_every_commit(clock, crash, more_than=20)
