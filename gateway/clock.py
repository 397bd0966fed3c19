"""Time, handed in so that tests can move it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from time import monotonic, time  # noqa: TID251 - this is the clock that is handed in
from typing import Protocol


class Clock(Protocol):
    """Seconds since the UNIX epoch, in two kinds."""

    def now(self) -> float:
        """Return steady time: for leases, limits and back-off. A jump of the wall clock does not move it."""
        ...

    def wall(self) -> float:
        """Return wall time: for what people see and for schedules."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        ...


@dataclass(frozen=True, slots=True)
class SystemClock:
    """The machine's clock."""

    _start: float = field(default_factory=lambda: time() - monotonic())

    def now(self) -> float:
        return self._start + monotonic()

    def wall(self) -> float:
        return time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
