"""Messages close together in one conversation never race, wherever they fall between its steps.

What is said, what the model and the tools do and how long each of them and each commit takes comes from a
seed; in memory nothing else decides what happens first, so that a failing seed fails again.
`CRAYFISH_INTERLEAVINGS` is how many are tried there.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import TypeVar

import pytest
import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.engine import Connection

from gateway.clock import Clock
from gateway.models.base import Prompt
from gateway.store.codec import decode
from gateway.store.engine import Database, Work
from gateway.store.migrate import create
from gateway.store.tables import conversation, entry, inbound, outbound
from gateway.transcript import rounds, running
from gateway.types import AssistantEntry, Entry, Outgoing, Receipt, ToolCall, ToolEntry, UserEntry
from tests.fakes.clock import StillClock
from tests.fakes.scripted import RecordingChannel, ScriptedModel, ScriptedTools, call, calls, people
from tests.fakes.world import World, said

T = TypeVar("T")

RUNS = int(os.environ.get("CRAYFISH_INTERLEAVINGS", "200"))
REAL_RUNS = 5
CHATS = 2
BRIEF = (0, 0, 0, 1, 2, 5, 12)
LONG = (0, 0, 1, 5, 20, 60, 150)
"""Rounds of the event loop: `BRIEF` is within one step of a turn, `LONG` up to more than a whole turn."""

AFTER = 200
"""Rounds in which nothing may follow the last answer."""


class InMemory:
    """A database whose transactions run at once, on the event loop."""

    exclusive = True
    failing = False

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._engine = sa.create_engine("sqlite://", poolclass=sa.StaticPool)
        event.listen(self._engine, "connect", lambda raw, _: raw.execute("PRAGMA foreign_keys=ON"))

    def now(self) -> float:
        return self._clock.now()

    async def write(self, work: Work[T], *, durable: bool = True) -> T:
        with self._engine.begin() as tx:
            return work(tx)

    async def read(self, work: Work[T]) -> T:
        return await self.write(work)

    async def close(self) -> None:
        self._engine.dispose()


@dataclass(slots=True)
class Pauses:
    """Lets others go first, for as long as the seed says."""

    random: Random

    async def brief(self) -> None:
        await self._rounds(BRIEF)

    async def long(self) -> None:
        await self._rounds(LONG)

    async def _rounds(self, choices: Sequence[int]) -> None:
        for _ in range(self.random.choice(choices)):
            await asyncio.sleep(0)


class Unsteady:
    """A database with a pause before and after each transaction."""

    def __init__(self, inner: Database, pauses: Pauses) -> None:
        self._inner = inner
        self._pauses = pauses
        self.exclusive = inner.exclusive
        self.failing = False

    def now(self) -> float:
        return self._inner.now()

    async def write(self, work: Work[T], *, durable: bool = True) -> T:
        await self._pauses.brief()
        result = await self._inner.write(work, durable=durable)
        await self._pauses.brief()
        return result

    async def read(self, work: Work[T]) -> T:
        await self._pauses.brief()
        return await self._inner.read(work)

    async def close(self) -> None:
        return


@dataclass(slots=True)
class SlowChannel(RecordingChannel):
    """Takes its time for each message, and tells somebody of it."""

    pauses: Pauses = field(default_factory=lambda: Pauses(Random(0)))
    heard: Callable[[str], None] = lambda _text: None

    async def send(self, message: Outgoing) -> Receipt:
        await self.pauses.brief()
        receipt = await RecordingChannel.send(self, message)
        await self.pauses.brief()
        self.heard(message.text)
        return receipt


@dataclass(slots=True)
class Talk:
    """Some messages in some chats, answered by a gateway whose every step takes a random time.

    An answer repeats what was said since the last one.
    """

    db: Database
    clock: Clock
    seed: int
    random: Random = field(init=False)
    pauses: Pauses = field(init=False)
    world: World = field(init=False)
    said: dict[str, list[str]] = field(default_factory=dict)
    prompts: dict[str, list[Sequence[Entry]]] = field(default_factory=dict)
    asking: Counter[str] = field(default_factory=Counter)
    most_at_once: int = 0
    unanswered: int = 0
    answered: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.random = Random(self.seed)
        self.pauses = Pauses(self.random)
        self.world = World(
            db=Unsteady(self.db, self.pauses),
            clock=self.clock,
            model=ScriptedModel(self._answer),
            tools=ScriptedTools(result=self._result),
            channel=SlowChannel(pauses=self.pauses, heard=self._heard),
        )
        for chat in range(CHATS):
            count = self.random.randint(2, 5)
            self.said[f"{self.seed}-{chat}"] = [f"m{number}" for number in range(count)]
            self.unanswered += count

    async def take_place(self) -> None:
        """Say everything and wait for the answers, and for what may wrongly follow them."""
        worker, sender = self.world.worker, self.world.sender
        async with asyncio.timeout(30), asyncio.TaskGroup() as group:  # somebody was not woken up
            group.create_task(worker.serve())
            group.create_task(sender.serve())
            await asyncio.gather(*map(self._say, self.said))
            await self.answered.wait()
            for _ in range(AFTER):
                await asyncio.sleep(0)
            worker.drain()
            sender.drain()

    async def _say(self, chat: str) -> None:
        for text in self.said[chat]:
            await self.pauses.long()
            await self.world.put(said(text, chat))
            self.world.worker.bell.ring()

    def _heard(self, text: str) -> None:
        self.unanswered -= len(text.split())
        if self.unanswered <= 0:
            self.answered.set()

    async def _answer(self, prompt: Prompt) -> AssistantEntry:
        self.asking[prompt.session] += 1
        self.most_at_once = max(self.most_at_once, self.asking[prompt.session])
        self.prompts.setdefault(prompt.session, []).append(tuple(prompt.entries))
        await self.pauses.long()
        self.asking[prompt.session] -= 1
        if rounds(prompt.entries) < self.random.choice((0, 0, 1, 2, 3)):
            return calls(
                *(call(self.random.choice(("look", "act"))) for _ in range(self.random.randint(1, 3)))
            )
        return AssistantEntry(" ".join(people(running(prompt.entries))))

    async def _result(self, made: ToolCall) -> str:
        await self.pauses.long()
        return f"what {made.id} brought"


def stored(tx: Connection, chat: str) -> list[Entry]:
    """Return the transcript of a chat, of which nothing may wait or be under way."""
    which = sa.select(conversation.c.id).where(conversation.c.address == f"fake:{chat}:")
    ready = tx.execute(sa.select(conversation.c.ready_at).where(conversation.c.id.in_(which))).scalar_one()
    unread = sa.select(sa.func.count()).where(inbound.c.conversation_id.in_(which), inbound.c.seq.is_(None))
    states = tx.execute(sa.select(outbound.c.state).where(outbound.c.address == f"fake:{chat}:")).scalars()
    assert ready is None
    assert tx.execute(unread).scalar_one() == 0
    assert set(states) == {"sent"}
    query = sa.select(entry.c.role, entry.c.body).where(entry.c.conversation_id.in_(which))
    return [decode(row.role, row.body) for row in tx.execute(query.order_by(entry.c.seq))]


def paired(transcript: Sequence[Entry]) -> bool:
    """Return whether each reply is followed at once by one result of each of its calls."""
    open_calls: set[str] = set()
    for one in transcript:
        if isinstance(one, ToolEntry):
            if one.call_id not in open_calls:
                return False
            open_calls.remove(one.call_id)
        elif open_calls:
            return False
        elif isinstance(one, AssistantEntry):
            open_calls = {each.id for each in one.calls}
    return not open_calls


def check(talk: Talk, transcripts: dict[str, list[Entry]]) -> None:
    """Assert that order and pairing held."""
    made: list[str] = []
    for chat, transcript in transcripts.items():
        heard = [one.text for one in talk.world.channel.sent if one.address.chat == chat]
        replies = [one for one in transcript if isinstance(one, AssistantEntry)]
        made += [f"{each.name} {each.id}" for one in replies for each in one.calls]
        assert people(transcript) == talk.said[chat], "each message once, in the order in which they came"
        assert paired(transcript), "each call is followed by its one result"
        assert " ".join(heard).split() == talk.said[chat], "each message is answered once, in order"
        assert heard == [one.text for one in replies if not one.calls], "each answer is sent once, in order"
        assert all(
            one.text == f"what {one.call_id} brought" for one in transcript if isinstance(one, ToolEntry)
        )
    assert sorted(talk.world.tools.ran) == sorted(made), "each call ran once"
    assert talk.most_at_once == 1, "a conversation asks the model one thing at a time"
    for prompts in talk.prompts.values():
        last = [*prompts[-1]]
        assert any(transcript[: len(last)] == last for transcript in transcripts.values())
        assert all([*one] == last[: len(one)] for one in prompts), "what was sent once keeps its place"


def meetings(transcript: Sequence[Entry]) -> Iterator[str]:
    """Return what the messages met."""
    for before, after in zip((None, *transcript), transcript, strict=False):
        if isinstance(after, UserEntry):
            match before:
                case UserEntry():
                    yield "a message"
                case ToolEntry():
                    yield "a result"
                case _:
                    yield "nothing"


async def interleaved(db: Database, clock: Clock, seed: int) -> dict[str, list[Entry]]:
    """Return the transcripts of a random run in which order and pairing held."""
    talk = Talk(db, clock, seed)
    await talk.take_place()
    transcripts = {chat: await db.write(partial(stored, chat=chat)) for chat in talk.said}
    try:
        check(talk, transcripts)
    except AssertionError as error:
        error.add_note(f"seed {seed}")
        raise
    return transcripts


@pytest.mark.timeout(600)
async def test_random_interleavings_keep_order_and_pairing() -> None:
    clock = StillClock()
    db = InMemory(clock)
    await db.write(create)
    shapes: set[tuple[type[Entry], ...]] = set()
    met: Counter[str] = Counter()
    for seed in range(RUNS):
        for transcript in (await interleaved(db, clock, seed)).values():
            shapes.add(tuple(map(type, transcript)))
            met.update(meetings(transcript))
    await db.close()
    assert len(shapes) > RUNS // 2, "they differ"
    assert min(met[each] for each in ("a message", "a result", "nothing")) > RUNS // 10


async def test_they_do_on_the_real_databases(db: Database) -> None:
    for seed in range(REAL_RUNS):
        await interleaved(db, StillClock(), seed)
