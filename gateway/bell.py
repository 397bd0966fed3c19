"""Wakes this process's loops early; other processes find the rows by looking."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field


@dataclass(slots=True)
class Bell:
    """Only an accelerator: correctness never depends on it."""

    _event: asyncio.Event = field(default_factory=asyncio.Event)

    def ring(self) -> None:
        """Wake whoever waits, or make the next wait return at once."""
        self._event.set()

    async def wait(self, limit: float | None) -> None:
        """Wait for a ring, at most `limit` seconds (None: for ever)."""
        try:
            async with asyncio.timeout(limit):
                await self._event.wait()
        except TimeoutError:
            pass
        self._event.clear()
