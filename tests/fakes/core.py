"""What stands behind a channel: the store that takes what it hears, and a clock without patience."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Sequence

from gateway.channel import Channel, Cursor, Poison
from gateway.errors import StoreError
from gateway.types import Stimulus
from tests.fakes.bot_api import Watched


class QuickClock(Watched):
    """Remembers how long it was asked to wait, and hardly waits."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: list[float] = []

    def now(self) -> float:
        return 0.0

    def wall(self) -> float:
        return 1_800_000_000.0

    async def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        self._notify()
        await asyncio.sleep(0.002)


class Store(Watched):
    """What the core does with stimuli: all or nothing, and each key once."""

    def __init__(self) -> None:
        super().__init__()
        self.cursors: dict[str, str] = {}
        self.stimuli: list[Stimulus] = []
        self.poison: list[Poison] = []
        self.failures: deque[StoreError] = deque()
        self.calls = 0

    async def accept(
        self, stimuli: Sequence[Stimulus], cursor: Cursor | None = None, poison: Sequence[Poison] = ()
    ) -> None:
        self.calls += 1
        if self.failures:
            raise self.failures.popleft()
        known = {stimulus.key for stimulus in self.stimuli}
        self.stimuli += [stimulus for stimulus in stimuli if stimulus.key not in known]
        self.poison += poison
        if cursor:
            self.cursors[cursor.name] = cursor.value
        self._notify()

    async def cursor(self, name: str) -> str | None:
        return self.cursors.get(name)

    async def holds(self, *texts: str) -> None:
        """Wait for exactly these messages, in this order."""
        await self.until(lambda: len(self.stimuli) >= len(texts))
        assert [stimulus.text for stimulus in self.stimuli] == list(texts)


@contextlib.asynccontextmanager
async def listening(channel: Channel, store: Store) -> AsyncIterator[asyncio.Task[None]]:
    """Let the channel listen meanwhile; afterwards it must still have been alive."""
    task = asyncio.create_task(channel.listen(store.accept))
    try:
        yield task
        assert not task.done(), task
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
