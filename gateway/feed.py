"""What happens while a turn runs, for whoever watches; best effort, never stored."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from gateway.types import Address, Chat, JsonObject, Kind

LIMIT = 1000
"""Events that a slow watcher may leave unread before it is dropped (agent L)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnStarted:
    """The model is about to be asked.

    `turn` is unique to this run of the turn, `message_id` the newest message that it answers; `aimed`
    tells whether any of its messages was meant for the bot.
    """

    turn: str = ""
    kind: Kind = Kind.MESSAGE
    chat: Chat = Chat.DIRECT
    message_id: str = ""
    aimed: bool = True


@dataclass(frozen=True, slots=True)
class Delta:
    """More of the reply's visible text."""

    text: str


@dataclass(frozen=True, slots=True)
class Restarted:
    """The text of the deltas so far is void; a new attempt begins."""


@dataclass(frozen=True, slots=True)
class ToolStarted:
    """A tool call begins."""

    name: str
    args: JsonObject


@dataclass(frozen=True, slots=True)
class ToolEnded:
    """A tool call has its result; `plan` is the plan of the task in lines, if the call was about it."""

    name: str
    is_error: bool
    plan: str = ""


@dataclass(frozen=True, slots=True)
class TurnEnded:
    """The turn is committed; `text` is what people get to see, "" for silence.

    `keys` are the unique keys of the stimuli that it answers, `reply` is the key of its first
    outgoing message, "" if there is none.
    """

    text: str
    keys: tuple[str, ...] = ()
    is_error: bool = False
    reply: str = ""


@dataclass(frozen=True, slots=True)
class TurnGone:
    """The turn was stopped, lost or put off, and says nothing more; the next one may have started before.

    `notice` is what people are told of one that waits for another day, and `keys` are the stimuli that wait.
    """

    turn: str
    notice: str = ""
    keys: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Compacted:
    """So many entries of the conversation are a summary now; so many stay as they are."""

    entries: int
    kept: int


Event: TypeAlias = (
    TurnStarted | Delta | Restarted | ToolStarted | ToolEnded | TurnEnded | TurnGone | Compacted
)


class Watcher(Protocol):
    """Somebody who is told what happens."""

    def sees(self, address: Address) -> bool:
        """Return whether a conversation is watched."""
        ...

    def push(self, address: Address, event: Event) -> None:
        """Take an event. Called in the middle of a turn: neither waits nor raises."""
        ...


@dataclass(slots=True)
class Subscription:
    """The events of one address (or of all, with None), in order."""

    address: Address | None
    _events: deque[tuple[Address, Event]] = field(default_factory=deque)
    _wake: asyncio.Event = field(default_factory=asyncio.Event)
    _closed: bool = False

    def sees(self, address: Address) -> bool:
        return self.address in (None, address)

    def push(self, address: Address, event: Event) -> None:
        """Queue an event; a watcher that is too far behind is closed."""
        if len(self._events) >= LIMIT:
            self._closed = True
        else:
            self._events.append((address, event))
        self._wake.set()

    def close(self) -> None:
        """End the iteration after what is queued."""
        self._closed = True
        self._wake.set()

    async def __aiter__(self) -> AsyncIterator[tuple[Address, Event]]:
        while True:
            while self._events:
                yield self._events.popleft()
            if self._closed:
                return
            self._wake.clear()
            await self._wake.wait()


@dataclass(slots=True)
class Feed:
    """Hands events of turns to this process's watchers (the web page, the terminal, live drafts)."""

    _watchers: list[Watcher] = field(default_factory=list)

    def join(self, watcher: Watcher) -> None:
        """Watch; end with `leave`."""
        self._watchers.append(watcher)

    def leave(self, watcher: Watcher) -> None:
        """Stop watching."""
        self._watchers = [one for one in self._watchers if one is not watcher]

    def subscribe(self, address: Address | None = None) -> Subscription:
        """Watch one conversation, or all; end with `unsubscribe`."""
        subscription = Subscription(address)
        self.join(subscription)
        return subscription

    def unsubscribe(self, subscription: Subscription) -> None:
        """Stop watching."""
        self.leave(subscription)
        subscription.close()

    def watched(self, address: Address) -> bool:
        """Return whether anybody would see an event of this conversation."""
        return any(one.sees(address) for one in self._watchers)

    def publish(self, address: Address, event: Event) -> None:
        """Hand an event to whoever watches the conversation."""
        for one in self._watchers:
            if one.sees(address):
                one.push(address, event)
