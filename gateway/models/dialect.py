"""What every dialect does alike: asks, asks in another form where one is refused, and reads the answer."""

from __future__ import annotations

import copy
import logging
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Generic, Protocol, TypeVar

from gateway.clock import Clock
from gateway.errors import PromptTooLong
from gateway.models.base import OnRestart, OnText, Prompt, Reply
from gateway.models.calls import Names, without_named
from gateway.models.failure import Rejected
from gateway.models.http import Endpoint, Wire, open_client
from gateway.repair import repair
from gateway.types import Entry, JsonObject

log = logging.getLogger(__name__)

_MOST_CHANGES = 6

W = TypeVar("W")


class Answer(Protocol):
    """Takes the events of an answer, makes a Reply of them."""

    @property
    def begun(self) -> bool:
        """Whether words of it were passed on."""
        ...

    def feed(self, event: JsonObject) -> None:
        """Take one event. Raises: ModelError, if it is an error."""
        ...

    def reply(self, *, done: bool) -> Reply:
        """Return what came; `done` says that the stream had its end mark. Raises: ModelBusy, ModelRefused."""
        ...


@dataclass(slots=True)
class Form(Generic[W]):
    """The form in which a prompt is sent: its entries in order, and the ways of the server."""

    entries: list[Entry]
    ways: W
    changes: int = 0
    shortened: bool = False

    def leave_out(self, refusal: str) -> bool:
        """Leave out the tool calls that a refusal names, and their results, once (session-08).

        Return whether it named any.
        """
        fewer = None if self.shortened else without_named(self.entries, refusal)
        if fewer is None:
            return False
        self.entries, self.shortened = repair(fewer), True
        return True


class Dialect(ABC, Generic[W]):
    """A model behind one address, whose server has its own ways of type `W`.

    A request that is refused for its form is sent again in another; the ways that helped are kept.
    """

    def __init__(
        self, endpoint: Endpoint, clock: Clock, *, url: str, headers: Mapping[str, str], ways: W
    ) -> None:
        self._endpoint = endpoint.check()
        self._ways = ways
        client = open_client(endpoint.base_url, endpoint.timeouts)
        self._wire = Wire(endpoint, url, {"Content-Type": "application/json", **headers}, clock, client)

    @property
    def name(self) -> str:
        """Return `provider/model`."""
        return self._endpoint.name

    async def close(self) -> None:
        """Close the connections."""
        await self._wire.close()

    async def reply(
        self, prompt: Prompt, on_text: OnText | None = None, on_restart: OnRestart | None = None
    ) -> Reply:
        """Ask once, as `Model.reply` says."""
        names = Names.of(prompt.tools)
        form = Form(repair(prompt.entries), copy.copy(self._ways))
        while True:
            body = self._request(replace(prompt, entries=form.entries), names, form.ways)
            answer = self._answer(names, on_text, on_restart)
            try:
                done = await self._wire.post(body, answer.feed)
            except (Rejected, PromptTooLong) as refusal:
                form.changes += 1
                if answer.begun or form.changes > _MOST_CHANGES or not self._change(form, str(refusal)):
                    raise
                log.warning("model.form_changed", extra={"problem": str(refusal)})
                continue
            self._ways = form.ways
            return answer.reply(done=done)

    @abstractmethod
    def _request(self, prompt: Prompt, names: Names, ways: W) -> JsonObject:
        """Return the body for a prompt whose entries are in order. Raises: PromptTooLong."""

    @abstractmethod
    def _answer(self, names: Names, on_text: OnText | None, on_restart: OnRestart | None) -> Answer:
        """Return what reads the answer."""

    @abstractmethod
    def _change(self, form: Form[W], refusal: str) -> bool:
        """Take another form because of a refusal; return whether there is one left."""


def bearer(key: str) -> dict[str, str]:
    """Return the header with a key, if there is one."""
    return {"Authorization": f"Bearer {key}"} if key else {}
