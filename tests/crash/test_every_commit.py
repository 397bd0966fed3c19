"""Die at the n-th commit, before it and after it, for every n: the next process must finish the work."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import TypeVar

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from gateway.commands import Commands
from gateway.models.base import Prompt
from gateway.steps import INTERRUPTED
from gateway.store import approvals
from gateway.store.engine import Database, Work
from gateway.store.tables import approval, conversation, entry, inbound, outbound
from gateway.tools.base import Ask
from gateway.types import AssistantEntry, UserEntry
from tests.fakes.clock import FakeClock
from tests.fakes.scripted import RecordingChannel, ScriptedModel, ScriptedTools, call, calls
from tests.fakes.world import World, said

T = TypeVar("T")
CHATS = 2
LEASE = 60.0


class Crash(BaseException):
    """The process is gone."""


class Mortal:
    """A database whose process dies at the n-th commit."""

    def __init__(self, inner: Database, at: int, *, after: bool) -> None:
        self._inner = inner
        self._left = at
        self._after = after
        self.dead = False
        self.exclusive = inner.exclusive
        self.failing = False

    def now(self) -> float:
        return self._inner.now()

    async def write(self, work: Work[T], *, durable: bool = True) -> T:
        if self.dead:
            raise Crash
        self._left -= 1
        if self._left > 0:
            return await self._inner.write(work, durable=durable)
        self.dead = True
        if self._after:
            await self._inner.write(work, durable=durable)
        raise Crash

    async def read(self, work: Work[T]) -> T:
        return await self._inner.read(work)

    async def close(self) -> None:
        await self._inner.close()


def answer(prompt: Prompt) -> AssistantEntry:
    """Look twice and act twice for each question, then answer it."""
    if isinstance(prompt.entries[-1], UserEntry):
        return calls(call("look"), call("act"), call("look"), call("act"))
    return AssistantEntry("done")


@dataclass(slots=True)
class Outside:
    """What outlives the process."""

    clock: FakeClock
    tools: ScriptedTools = field(default_factory=ScriptedTools)
    channel: RecordingChannel = field(default_factory=RecordingChannel)


async def life(db: Database, world: Outside, at: int, *, after: bool) -> bool:
    """Live until the end of the work or the crash; return whether the end was reached."""
    mortal = Mortal(db, at, after=after)
    one = World(
        db=mortal,
        clock=world.clock,
        model=ScriptedModel(answer),
        tools=world.tools,
        channel=world.channel,
        slots=1,
        lease=LEASE,
    )
    try:
        await one.recover()
        for number in range(CHATS):
            await one.put(said("hello", str(number), key=f"k{number}"))
        await one.settle()
    except* Crash:
        pass  # any other error comes out
    return not mortal.dead


def facts(tx: Connection) -> tuple[list[str], int, int, list[tuple[str, str]]]:
    waiting = tx.execute(sa.select(sa.func.count()).where(conversation.c.ready_at.is_not(None))).scalar_one()
    unread = tx.execute(sa.select(sa.func.count()).where(inbound.c.seq.is_(None))).scalar_one()
    states = list(tx.execute(sa.select(outbound.c.state).order_by(outbound.c.id)).scalars())
    found = tx.execute(sa.select(entry.c.role, entry.c.body).order_by(entry.c.conversation_id, entry.c.seq))
    return states, waiting, unread, [(row.role, row.body) for row in found]


async def one_crash(db: Database, clock: FakeClock, at: int, *, after: bool) -> bool:
    world = Outside(clock)
    finished = await life(db, world, at, after=after)
    if not finished:
        clock.time += 2 * LEASE  # on a shared database the dead one's leases run out
        assert await life(db, world, 10_000, after=False)
    states, waiting, unread, entries = await db.write(facts)
    await db.write(wipe)

    assert states == ["sent"] * CHATS
    assert (waiting, unread) == (0, 0)
    assert {message.address.chat for message in world.channel.sent} == {str(n) for n in range(CHATS)}
    assert len(world.channel.sent) <= CHATS + 1, "one slot, so at most one repeat"
    acted = [ran for ran in world.tools.ran if ran.startswith("act")]
    assert len(acted) == len(set(acted)), "a call that may not repeat was repeated"
    interrupted = sum(INTERRUPTED in body for _, body in entries)
    assert len(acted) + interrupted >= CHATS * 2
    assert interrupted <= CHATS, "only the call that was under way, one in each conversation"
    roles = [role for role, _ in entries]
    assert roles == (["user", "assistant", "tool", "tool", "tool", "tool", "assistant"] * CHATS)
    return finished


def wipe(tx: Connection) -> None:
    for table in (outbound, entry, inbound, approval, conversation):
        tx.execute(sa.delete(table))


@pytest.mark.timeout(240)
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
async def test_a_death_at_any_commit_loses_nothing_and_repeats_no_act(
    db: Database, clock: FakeClock, after: bool
) -> None:
    clock.tick = 1e-6
    for at in itertools.count(1):
        if await one_crash(db, clock, at, after=after):
            break
    assert at > 20, "the work takes that many commits, so that many deaths were tried"


async def asked(db: Database, world: Outside, at: int, *, after: bool) -> bool:
    """Live through a call that waits for the owner, who allows it as soon as it is asked."""
    mortal = Mortal(db, at, after=after)
    world.tools.asks = lambda one: Ask("act", one.name, "binding") if one.name == "act" else None
    one = World(
        db=mortal,
        clock=world.clock,
        model=ScriptedModel(answer),
        tools=world.tools,
        channel=world.channel,
        slots=1,
        lease=LEASE,
    )
    commands = Commands(db=mortal, clock=world.clock, started=0.0, model=str, channels=dict)
    try:
        await one.recover()
        await one.put(said("hello", key="k"))
        await one.settle()
        while waiting := await db.write(approvals.open_at):
            yes = commands.read(said(f"/approve {waiting[0].id}", key=f"yes {waiting[0].id}"))
            assert yes is not None
            await one.inbox.put([yes])
            await one.settle()
    except* Crash:
        pass  # any other error comes out
    return not mortal.dead


@pytest.mark.timeout(240)
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
async def test_a_death_at_any_commit_keeps_a_question_and_runs_what_was_allowed_at_most_once(
    db: Database, clock: FakeClock, after: bool
) -> None:
    clock.tick = 1e-6
    for at in itertools.count(1):
        world = Outside(clock)
        finished = await asked(db, world, at, after=after)
        if not finished:
            clock.time += 2 * LEASE
            assert await asked(db, world, 10_000, after=False)
        states, waiting, unread, entries = await db.write(facts)
        await db.write(wipe)
        assert set(states) == {"sent"}
        assert (waiting, unread) == (0, 0)
        acted = [ran for ran in world.tools.ran if ran.startswith("act")]
        assert len(acted) == len(set(acted)), "a call that may not repeat was repeated"
        interrupted = sum(INTERRUPTED in body for _, body in entries)
        assert len(acted) + interrupted >= 2
        assert interrupted <= 1
        assert [role for role, _ in entries] == ["user", "assistant", *["tool"] * 4, "assistant"]
        assert world.channel.texts[-1] == "done"
        if finished:
            break
    assert at > 15, "the work takes that many commits, so that many deaths were tried"
