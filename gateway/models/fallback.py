"""A chain of models: try again, rest what fails, go on with the next."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gateway.clock import Clock
from gateway.errors import ModelBusy, ModelError
from gateway.models.base import Model, OnRestart, OnText, Prompt, Reply
from gateway.models.failure import Unusable, busy_hint

log = logging.getLogger(__name__)

TRIES = 3
"""Requests to one model for one reply (agent 3.6)."""

_FIRST_WAIT = 1.0
_LONGEST_WAIT = 30.0
_LONGEST_ASKED_WAIT = 60.0
"""Seconds that a provider may ask for before the next model is the better choice."""

_RESTS = (30.0, 60.0, 300.0)
"""Seconds a model is left alone after it failed once, twice, and more often in a row."""


@dataclass(slots=True)
class _Link:
    """A model and its health."""

    model: Model
    failures: int = 0
    rests_until: float = 0.0

    def failed(self, now: float) -> None:
        """Leave it alone for a while, longer each time."""
        self.rests_until = now + _RESTS[min(self.failures, len(_RESTS) - 1)]
        self.failures += 1

    def worked(self) -> None:
        """Forget its failures."""
        self.failures, self.rests_until = 0, 0.0


@dataclass(slots=True)
class _Shown:
    """Passes text on and remembers whether somebody saw some of the current attempt."""

    on_text: OnText
    on_restart: OnRestart | None
    any: bool = False

    def text(self, piece: str) -> None:
        self.any = True
        self.on_text(piece)

    def restart(self) -> None:
        self.any = False
        if self.on_restart:
            self.on_restart()

    def is_final(self) -> bool:
        """Whether what was shown can't be taken back."""
        return self.any and self.on_restart is None

    def take_back(self) -> None:
        """Make way for another attempt."""
        if self.any:
            self.restart()


class Chain:
    """Asks the first model; when it can't answer, the others in order (agent 3.6).

    A busy model is asked up to three times with growing waits, or when it said; then it rests for half a
    minute, a minute, five minutes, and is asked last until that is over. A refused account or model name,
    and an answer without words and calls, go to the next model at once. A refused prompt and one that is
    too long end the chain: another model would not mend them. `jitter` returns numbers from 0 to 1.
    """

    def __init__(
        self, models: Sequence[Model], clock: Clock, *, jitter: Callable[[], float] = random.random
    ) -> None:
        self._links = [_Link(model) for model in models]
        self._clock = clock
        self._jitter = jitter

    @property
    def name(self) -> str:
        """Return the name of the first model."""
        return self._links[0].model.name

    async def close(self) -> None:
        """Close all models."""
        for link in self._links:
            await link.model.close()

    async def reply(
        self, prompt: Prompt, on_text: OnText | None = None, on_restart: OnRestart | None = None
    ) -> Reply:
        """Ask until one answers, as `Model.reply` says."""
        shown = _Shown(on_text, on_restart) if on_text else None
        failures: list[ModelError] = []
        now = self._clock.now()
        for link in sorted(self._links, key=lambda link: link.rests_until > now):
            resting = link.rests_until > now and len(self._links) > 1
            try:
                reply = await self._ask(link, prompt, shown, 1 if resting else TRIES)
            except (ModelBusy, Unusable) as error:
                link.failed(self._clock.now())
                failures.append(error)
                log.warning("model.rests", extra={"model": link.model.name, "problem": str(error)})
                if shown and shown.is_final():
                    raise
                continue
            link.worked()
            if reply.entry.text.strip() or reply.entry.calls or len(failures) + 1 == len(self._links):
                return reply
            failures.append(ModelBusy(f"{link.model.name}: empty answer", hint=busy_hint("empty answer")))
        raise _told(failures)

    async def _ask(self, link: _Link, prompt: Prompt, shown: _Shown | None, tries: int) -> Reply:
        """Ask one model, again while it is busy."""
        attempt = 1
        while True:
            if shown:
                shown.take_back()
            try:
                if shown:
                    return await link.model.reply(prompt, shown.text, shown.restart)
                return await link.model.reply(prompt)
            except ModelBusy as error:
                final = shown is not None and shown.is_final()
                if attempt == tries or final or error.after > _LONGEST_ASKED_WAIT:
                    raise
                wait = max(error.after, self._wait(attempt))
                log.info("model.busy", extra={"model": link.model.name, "wait": wait, "problem": str(error)})
            await self._clock.sleep(wait)
            attempt += 1

    def _wait(self, attempt: int) -> float:
        """Return the seconds before the next attempt: they double, and vary so that callers part."""
        return min(_LONGEST_WAIT, _FIRST_WAIT * 2.0 ** (attempt - 1)) * (1.0 + 0.5 * self._jitter())


def _told(failures: Sequence[ModelError]) -> ModelError:
    """Return the one error for all: busy if any model was, since that passes."""
    message = "; ".join(str(failure) for failure in failures)
    busy = [failure for failure in failures if isinstance(failure, ModelBusy)]
    if not busy:
        return failures[0]
    if len(failures) == 1:
        return busy[0]
    error = ModelBusy(message, after=min(failure.after for failure in busy), hint=busy[0].hint)
    error.__cause__ = failures[0]
    return error
