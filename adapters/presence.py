"""A turn as people see it: from its start until its reply has taken the place of what is shown."""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, TypeVar

from gateway.clock import Clock
from gateway.feed import Event, TurnEnded, TurnGone, TurnStarted
from gateway.types import Address, Chat, Kind

log = logging.getLogger(__name__)

FIRST = 0.3
"""Seconds of a turn in which nothing is shown: a fast reply costs no other request."""

BEAT = 0.5
"""Seconds between two looks at a turn."""

CLOSING = 5.0
"""Seconds in which what is shown is cleared away when the gateway stops."""


def _future() -> asyncio.Future[Any]:
    return asyncio.get_running_loop().create_future()


@dataclass(frozen=True, slots=True, kw_only=True)
class Manner:
    """How lively the bot is. `ack_reaction` is an emoji as the platform names it, "" for none."""

    streaming: bool = True
    ack_reaction: str
    ack_scope: Literal["group-mentions", "all", "off"] = "group-mentions"
    ack_remove: bool = False

    def acknowledges(self, turn: TurnStarted) -> bool:
        """Return whether the message of a turn gets a reaction (spec IN-15)."""
        if not self.ack_reaction or not turn.message_id:
            return False
        return self.ack_scope == "all" or (
            self.ack_scope == "group-mentions" and turn.chat is Chat.GROUP and turn.aimed
        )


@dataclass(slots=True, eq=False, kw_only=True)
class Turn(ABC):
    """A turn under way and what is shown of it. Times are of the clock's `now`.

    `over` gets the key of the first message of the reply, "" if there is none; `still` is set when no
    request of ours is under way any more; `freed` when what was shown has become the reply, or is gone.
    """

    address: Address
    event: TurnStarted
    began: float
    over: asyncio.Future[str] = field(default_factory=_future)
    freed: asyncio.Future[None] = field(default_factory=_future)
    still: asyncio.Event = field(default_factory=asyncio.Event)
    shows: bool = True
    shown: str = ""
    shown_at: float = float("-inf")
    acked: bool = False

    @abstractmethod
    def take(self, event: Event, now: float) -> None:
        """Note what happened."""

    def free(self) -> None:
        """Let the clearing away go on: nothing that is shown is to become the reply any more."""
        if not self.freed.done():
            self.freed.set_result(None)


T = TypeVar("T", bound=Turn)


@dataclass(slots=True, kw_only=True)
class Watch(ABC, Generic[T]):
    """Watches the turns that people start on one channel; what it can't show never harms a turn."""

    channel: str
    clock: Clock
    _live: dict[Address, T] = field(default_factory=dict)
    _answered: dict[str, T] = field(default_factory=dict)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)
    _closed: bool = False

    @abstractmethod
    def _turn(self, address: Address, event: TurnStarted, now: float) -> T:
        """Return a turn that begins."""

    @abstractmethod
    async def _look(self, turn: T) -> None:
        """Show what is due."""

    @abstractmethod
    async def _clear(self, turn: T) -> None:
        """Wait for the reply to take the place of what is shown; delete what gets none (spec NR-9)."""

    def sees(self, address: Address) -> bool:
        return address.channel == self.channel

    def push(self, address: Address, event: Event) -> None:
        """Take note of what happens in a turn."""
        turn = self._live.get(address)
        match event:
            case TurnStarted():
                self._end(address, "")  # one that was stopped may not have said so yet
                if event.kind is Kind.MESSAGE and not self._closed:
                    self._begin(address, event)
            case TurnEnded(reply=reply):
                self._end(address, reply)
            case TurnGone(name):
                if turn is not None and turn.event.turn == name:
                    self._end(address, "")
            case _:
                if turn is not None:
                    turn.take(event, self.clock.now())

    async def close(self) -> None:
        """Clear away what is shown of turns that have not ended."""
        self._closed = True
        for address in list(self._live):
            self._end(address, "")
        for turn in self._answered.values():
            turn.free()
        if self._tasks:
            _, left = await asyncio.wait(self._tasks, timeout=CLOSING)
            for task in left:
                task.cancel()

    def _begin(self, address: Address, event: TurnStarted) -> None:
        turn = self._live[address] = self._turn(address, event, self.clock.now())
        task = asyncio.get_running_loop().create_task(self._accompany(turn))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _end(self, address: Address, reply: str) -> None:
        turn = self._live.pop(address, None)
        if turn is not None:
            turn.over.set_result(reply)
            if reply:
                self._answered[reply] = turn

    async def _accompany(self, turn: T) -> None:
        """Show a turn until it is over, and clear away what must not stay."""
        try:
            await self._until_over(turn)
            turn.still.set()
            await self._clear(turn)
        except Exception:  # root of the clearing away: a reply must not wait for it
            log.exception("presence.failed")
        finally:
            turn.still.set()
            self._answered.pop(turn.over.result() if turn.over.done() else "", None)

    async def _until_over(self, turn: T) -> None:
        await self._wait(turn.over, FIRST)
        while not turn.over.done():
            try:
                await self._look(turn)
            except Exception:  # root of a turn's signs of life: without them it goes on all the same
                log.exception("presence.failed")
                await asyncio.wait({turn.over})
            else:
                await self._wait(turn.over, BEAT)

    async def _wait(self, end: asyncio.Future[str] | asyncio.Future[None] | None, seconds: float) -> None:
        """Wait so long, or until `end`."""
        if seconds <= 0 or (end is not None and end.done()):
            return
        sleeping = asyncio.ensure_future(self.clock.sleep(seconds))
        awaited: set[asyncio.Future[Any]] = {sleeping, end} if end else {sleeping}
        try:
            await asyncio.wait(awaited, return_when=asyncio.FIRST_COMPLETED)
        finally:
            sleeping.cancel()
