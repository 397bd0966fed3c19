"""Die at the n-th commit, before it and after it, for every n: the next process must finish the work."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from gateway.commands import Commands
from gateway.models.base import Prompt
from gateway.steps import INTERRUPTED
from gateway.store import approvals
from gateway.store.engine import Database
from gateway.store.tables import approval, conversation, entry, inbound, outbound
from gateway.tools.base import Ask
from gateway.types import AssistantEntry, UserEntry
from tests.crash.deaths import Mortal, Outside, at_every_commit, before_and_after, dies_once, wipe
from tests.fakes.clock import FakeClock
from tests.fakes.scripted import ScriptedModel, call, calls
from tests.fakes.world import said

CHATS = 2
EMPTY = wipe(outbound, entry, inbound, approval, conversation)


def answer(prompt: Prompt) -> AssistantEntry:
    """Look twice and act twice for each question, then answer it."""
    if isinstance(prompt.entries[-1], UserEntry):
        return calls(call("look"), call("act"), call("look"), call("act"))
    return AssistantEntry("done")


async def asked(outside: Outside, db: Mortal) -> None:
    """Answer a question of each chat."""
    one = outside.process(db, ScriptedModel(answer))
    await one.recover()
    for number in range(CHATS):
        await one.put(said("hello", str(number), key=f"k{number}"))
    await one.settle()


def facts(tx: Connection) -> tuple[list[str], int, int, list[tuple[str, str]]]:
    waiting = tx.execute(sa.select(sa.func.count()).where(conversation.c.ready_at.is_not(None))).scalar_one()
    unread = tx.execute(sa.select(sa.func.count()).where(inbound.c.seq.is_(None))).scalar_one()
    states = list(tx.execute(sa.select(outbound.c.state).order_by(outbound.c.id)).scalars())
    found = tx.execute(sa.select(entry.c.role, entry.c.body).order_by(entry.c.conversation_id, entry.c.seq))
    return states, waiting, unread, [(row.role, row.body) for row in found]


def acts(outside: Outside) -> Sequence[str]:
    """Return the calls that have run and may not repeat."""
    acted = [ran for ran in outside.tools.ran if ran.startswith("act")]
    assert len(acted) == len(set(acted)), "a call that may not repeat was repeated"
    return acted


@pytest.mark.timeout(240)
@before_and_after
async def test_a_death_at_any_commit_loses_nothing_and_repeats_no_act(
    db: Database, clock: FakeClock, after: bool
) -> None:
    async def crash(at: int) -> bool:
        outside = Outside(clock)
        finished = await dies_once(db, clock, lambda mortal: asked(outside, mortal), at, after=after)
        states, waiting, unread, entries = await db.write(facts)
        await db.write(EMPTY)

        assert states == ["sent"] * CHATS
        assert (waiting, unread) == (0, 0)
        assert {message.address.chat for message in outside.channel.sent} == {str(n) for n in range(CHATS)}
        assert len(outside.channel.sent) <= CHATS + 1, "one slot, so at most one repeat"
        interrupted = sum(INTERRUPTED in body for _, body in entries)
        assert len(acts(outside)) + interrupted >= CHATS * 2
        assert interrupted <= CHATS, "only the call that was under way, one in each conversation"
        roles = [role for role, _ in entries]
        assert roles == (["user", "assistant", "tool", "tool", "tool", "tool", "assistant"] * CHATS)
        return finished

    await at_every_commit(clock, crash, more_than=20)


async def allowed(outside: Outside, db: Mortal) -> None:
    """Make a call that waits for the owner, who allows it as soon as it is asked."""
    outside.tools.asks = lambda one: Ask("act", one.name, "binding") if one.name == "act" else None
    one = outside.process(db, ScriptedModel(answer))
    commands = Commands(db=db, clock=outside.clock, started=0.0, model=str, channels=dict)
    await one.recover()
    await one.put(said("hello", key="k"))
    await one.settle()
    while waiting := await db.read(approvals.open_at):
        yes = commands.read(said(f"/approve {waiting[0].id}", key=f"yes {waiting[0].id}"))
        assert yes is not None
        await one.inbox.put([yes])
        await one.settle()


@pytest.mark.timeout(240)
@before_and_after
async def test_a_death_at_any_commit_keeps_a_question_and_runs_what_was_allowed_at_most_once(
    db: Database, clock: FakeClock, after: bool
) -> None:
    async def crash(at: int) -> bool:
        outside = Outside(clock)
        finished = await dies_once(db, clock, lambda mortal: allowed(outside, mortal), at, after=after)
        states, waiting, unread, entries = await db.write(facts)
        await db.write(EMPTY)

        assert set(states) == {"sent"}
        assert (waiting, unread) == (0, 0)
        interrupted = sum(INTERRUPTED in body for _, body in entries)
        assert len(acts(outside)) + interrupted >= 2
        assert interrupted <= 1
        assert [role for role, _ in entries] == ["user", "assistant", *["tool"] * 4, "assistant"]
        assert outside.channel.texts[-1] == "done"
        return finished

    await at_every_commit(clock, crash, more_than=15)
