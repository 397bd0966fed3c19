"""A whole core without a platform: the real tables, loops and turns around scripted ends."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gateway.allowance import Allowance
from gateway.approvals import Approver
from gateway.bell import Bell
from gateway.clock import Clock
from gateway.compaction import Limits
from gateway.compactor import Compactor
from gateway.feed import Feed
from gateway.models.base import Model, Prompt
from gateway.sessions import Freshness
from gateway.store.engine import Database
from gateway.store.inbox import Arrival, Inbox
from gateway.store.journal import Journal
from gateway.store.outbox import Outbox
from gateway.store.usage import Ledger
from gateway.turn import Agent, Beats, Ending, Prompts, TurnRunner
from gateway.types import Address, Chat, Entry, Kind, Level, Sender, Situation, Stimulus
from gateway.work import Sender as SendLoop
from gateway.work import Worker
from tests.fakes.scripted import RecordingChannel, ScriptedModel, ScriptedTools

_numbers = itertools.count(1)


async def _no_subagents(_address: Address) -> Sequence[str]:
    return ()


@dataclass(slots=True)
class PlainPrompts:
    """The transcript and nothing else."""

    def build(
        self,
        entries: Sequence[Entry],
        *,
        situation: Situation,
        session: str,
        nudge: str = "",
        tools_allowed: bool = True,
    ) -> Prompt:
        return Prompt(system="", entries=entries, nudge=nudge, session=session, tools_allowed=tools_allowed)


@dataclass(slots=True, kw_only=True)
class World:
    """One process of the gateway; several may share a database that allows it."""

    db: Database
    clock: Clock
    model: ScriptedModel
    tools: ScriptedTools = field(default_factory=ScriptedTools)
    channel: RecordingChannel = field(default_factory=RecordingChannel)
    feed: Feed = field(default_factory=Feed)
    owner: str = field(default_factory=lambda: f"node{next(_numbers)}")
    max_rounds: int = 50
    beats: Beats = field(default_factory=Beats)
    prompts: Prompts = field(default_factory=PlainPrompts)
    endings: dict[Kind, Ending] = field(default_factory=dict)
    lease: float = 60.0
    slots: int = 8
    owner_place: Address | None = None
    limits: Limits = field(default_factory=Limits)
    summariser: Model | None = None
    summary_timeout: float = 60.0
    flushes: bool = False
    workspace: Path = Path("/nowhere")
    fresh: Freshness = field(default_factory=Freshness)
    subagents: Callable[[Address], Awaitable[Sequence[str]]] = _no_subagents
    ledger: Ledger | None = None
    allowance: Allowance | None = None
    turn_time: float = 900.0
    worker: Worker = field(init=False)
    sender: SendLoop = field(init=False)
    inbox: Inbox = field(init=False)

    def __post_init__(self) -> None:
        self.inbox = Inbox(self.db)
        ledger = self.ledger or Ledger(clock=self.clock)
        journal = Journal(self.db, self.owner, self.lease, fresh=self.fresh, ledger=ledger)
        outbox = Outbox(self.db, self.owner, self.lease)
        self.sender = SendLoop(
            outbox=outbox,
            channels={self.channel.name: self.channel},
            bell=Bell(),
            clock=self.clock,
            slots=self.slots,
        )
        turns = TurnRunner(
            journal=journal,
            agent=Agent(model=self.model, tools=self.tools, prompts=self.prompts, workspace=self.workspace),
            approver=Approver(db=self.db, owner=self._owner),
            compactor=Compactor(
                journal=journal,
                feed=self.feed,
                clock=self.clock,
                limits=self.limits,
                model=self.summariser,
                flushes=self.flushes,
                running=self.subagents,
                timeout=self.summary_timeout,
            ),
            beats=self.beats,
            endings=self.endings,
            feed=self.feed,
            slots=self.sender,
            pieces=lambda _address, text: self.channel.pieces(text),
            max_rounds=self.max_rounds,
            allowance=self.allowance,
            turn_time=self.turn_time,
        )
        self.worker = Worker(journal=journal, turns=turns, sender=self.sender, bell=Bell(), clock=self.clock)

    async def _owner(self) -> Address | None:
        return self.owner_place

    async def recover(self) -> None:
        """Do what a starting process does first."""
        await self.worker.journal.recover()
        await self.sender.outbox.recover()

    async def put(self, *stimuli: Stimulus) -> int:
        return (await self.inbox.put([Arrival(one) for one in stimuli])).new

    async def settle(self) -> None:
        """Work until no turn and no delivery is due."""
        async with asyncio.TaskGroup() as group:
            idle = 0
            while idle < 2:
                waits = [await self.sender.step(group)]
                if not self.worker.turns.draining:
                    waits.append(await self.worker.step(group))
                busy = self.worker.busy or self.sender.busy or 0.0 in waits
                await asyncio.sleep(0.001 if busy else 0)
                idle = 0 if busy else idle + 1

    async def say(self, text: str, chat: str = "1", *, group: bool = False) -> None:
        """Put a message of a person and work until it is answered."""
        await self.put(said(text, chat, group=group))
        await self.settle()


def said(
    text: str,
    chat: str = "1",
    *,
    key: str | None = None,
    kind: Kind = Kind.MESSAGE,
    group: bool = False,
) -> Stimulus:
    """Return a message of a person."""
    number = next(_numbers)
    return Stimulus(
        key=key or f"event{number}",
        address=Address("fake", chat),
        sender=Sender("7", "Ann", Level.OWNER),
        text=text,
        at=1_750_000_000.0,
        kind=kind,
        chat=Chat.GROUP if group else Chat.DIRECT,
    )
