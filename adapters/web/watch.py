"""One session as a client sees it: events of turns and delivered replies, in the order they happened."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from adapters.web.wire import Item
from gateway.feed import LIMIT, Subscription


class Ended(Exception):
    """Nothing will follow: the server stops, or the client was too slow."""


@dataclass(slots=True, eq=False)
class Watch:
    """What one client has yet to be told; `cut` ends the connection of a client that is too far behind."""

    cut: Callable[[], None]
    _items: deque[Item] = field(default_factory=deque)
    _wake: asyncio.Event = field(default_factory=asyncio.Event)
    _ended: bool = False

    def put(self, item: Item) -> None:
        """Add what happened; drops the client when `LIMIT` items are unread (agent L)."""
        if len(self._items) >= LIMIT:
            self.end()
            self.cut()
        elif not self._ended:
            self._items.append(item)
            self._wake.set()

    def end(self) -> None:
        """Let `next` raise at once, whatever is unread: the client reads it from the store later."""
        self._ended = True
        self._items.clear()
        self._wake.set()

    async def follow(self, subscription: Subscription) -> None:
        """Take over the events of turns until the subscription is closed."""
        async for _, event in subscription:
            self.put(event)
        self.end()

    async def next(self, within: float) -> Item | None:
        """Return what happened next, or None after so many quiet seconds.

        Raises: Ended.
        """
        try:
            async with asyncio.timeout(within):
                while not self._items:
                    if self._ended:
                        raise Ended
                    self._wake.clear()
                    await self._wake.wait()
        except TimeoutError:
            return None
        return self._items.popleft()
