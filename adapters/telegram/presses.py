"""Buttons that were pressed: each press is answered once, with a word of the core or with nothing."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from adapters.telegram.client import Api
from adapters.telegram.text import head
from gateway.clock import Clock
from gateway.errors import DeliveryError, SendError

log = logging.getLogger(__name__)

WAIT: Final = 2.0
"""Seconds that a press waits for a word of the core; a turn takes longer, and is its own answer."""

TOAST: Final = 200
"""UTF-16 units of a notice (Bot API answerCallbackQuery)."""


@dataclass(slots=True, kw_only=True)
class Presses:
    """The presses of one bot whose buttons still show that something is going on."""

    clock: Clock
    _open: dict[str, asyncio.Task[None]] = field(default_factory=dict)

    def wait(self, api: Api, press: str, seconds: float = WAIT) -> None:
        """End the waiting on the screen of whoever pressed, unless `answer` does it before."""
        if press not in self._open:
            self._open[press] = asyncio.create_task(self._give_up(api, press, seconds))

    async def answer(self, api: Api, press: str, text: str) -> None:
        """Show a notice to whoever pressed; an old press has no screen left to show it on.

        Raises: DeliveryRetry, DeliveryUnsure, ChannelStopped.
        """
        if task := self._open.pop(press, None):
            task.cancel()
        try:
            await api.answer_press(press, head(text, TOAST))
        except DeliveryError as error:
            log.info("telegram.press_too_old", extra={"problem": str(error)})

    def close(self) -> None:
        """Wait no more."""
        for task in self._open.values():
            task.cancel()
        self._open.clear()

    async def _give_up(self, api: Api, press: str, seconds: float) -> None:
        await self.clock.sleep(seconds)
        self._open.pop(press, None)
        with suppress(SendError):
            await api.answer_press(press)
