"""A clock that moves when told, or by each wait."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field


@dataclass(slots=True)
class FakeClock:
    """`sleep` returns at once and moves the time; `tick` seconds pass at each look."""

    time: float = 1_750_000_000.0
    tick: float = 0.0
    slept: list[float] = field(default_factory=list)

    def now(self) -> float:
        self.time += self.tick
        return self.time

    def wall(self) -> float:
        return self.now()

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.time += seconds
        await asyncio.sleep(0)


@dataclass(slots=True)
class StillClock:
    """Stands still until it is told to go on; `sleep` waits for that."""

    time: float = 1_750_000_000.0
    _sleepers: list[tuple[float, asyncio.Future[None]]] = field(default_factory=list)

    def now(self) -> float:
        return self.time

    def wall(self) -> float:
        return self.time

    async def sleep(self, seconds: float) -> None:
        sleeper = (self.time + seconds, asyncio.get_running_loop().create_future())
        self._sleepers.append(sleeper)
        try:
            await sleeper[1]
        finally:
            self._sleepers.remove(sleeper)

    async def asleep(self, number: int) -> None:
        """Wait until exactly so many sleep."""
        while len(self._sleepers) != number:  # noqa: ASYNC110 - they sleep and wake up between other things
            await asyncio.sleep(0)

    async def advance(self, seconds: float) -> None:
        """Let time pass. Whoever wakes up meanwhile must sleep again before time goes on."""
        end, number = self.time + seconds, len(self._sleepers)
        while self._sleepers and (due := min(then for then, _ in self._sleepers)) <= end:
            self.time = max(self.time, due)
            for then, waking in list(self._sleepers):
                if then <= due and not waking.done():
                    waking.set_result(None)
            await asyncio.sleep(0)
            await self.asleep(number)
        self.time = end
