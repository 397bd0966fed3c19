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
