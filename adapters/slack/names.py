"""Looks up what people and channels are called, and remembers it for a while."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from adapters.slack.text import one_line
from gateway.clock import Clock
from gateway.errors import SendError
from gateway.types import JsonObject

if TYPE_CHECKING:
    from adapters.slack.client import SlackApi

log = logging.getLogger(__name__)

REMEMBERED: Final = 5000
KEPT: Final = 3600.0
"""Seconds after which a name is looked up again."""

UNKNOWN: Final = 60.0
"""Seconds after which a name that could not be had is looked up again."""

PATIENCE: Final = 1.0
"""Seconds that a message waits for names: Slack wants it acknowledged within three (spec SL-3)."""

AT_ONCE: Final = 10
"""Names that one message can have looked up."""


@dataclass(slots=True)
class Names:
    """What ids stand for. An id whose name can't be had stands for itself."""

    clock: Clock
    _known: dict[str, tuple[str, float]] = field(default_factory=dict)

    async def of(self, api: SlackApi, ids: Iterable[str]) -> dict[str, str]:
        """Return the names of some people and channels, as far as they can be had in time."""
        now = self.clock.now()
        ids = list(ids)
        missing = [one for one in ids if self._known.get(one, ("", 0.0))[1] <= now][:AT_ONCE]
        if missing:
            await self._look_up(api, missing)
        return {one: self._known[one][0] for one in ids if self._known.get(one, ("", 0.0))[0]}

    def note(self, which: str, name: str) -> None:
        """Remember what somebody else has found out."""
        self._put(which, name, KEPT)

    async def _look_up(self, api: SlackApi, ids: list[str]) -> None:
        try:
            async with asyncio.timeout(PATIENCE):
                await asyncio.gather(*(self._one(api, which) for which in ids))
        except TimeoutError:
            log.info("slack.names_late", extra={"count": len(ids)})
            for which in ids:
                if self._known.get(which, ("", 0.0))[1] <= self.clock.now():
                    self._put(which, "", UNKNOWN)

    async def _one(self, api: SlackApi, which: str) -> None:
        try:
            if which[0] in "UW":
                name = _person((await api.call("users.info", user=which)).get("user") or {})
            else:
                found = (await api.call("conversations.info", channel=which)).get("channel") or {}
                name = one_line(found.get("name") or "")
        except SendError as error:
            log.info("slack.nameless", extra={"id": which, "problem": str(error)})
            name = ""
        self._put(which, name, KEPT if name else UNKNOWN)

    def _put(self, which: str, name: str, kept: float) -> None:
        self._known.pop(which, None)
        self._known[which] = name, self.clock.now() + kept
        if len(self._known) > REMEMBERED:
            del self._known[next(iter(self._known))]


def _person(user: JsonObject) -> str:
    profile = user.get("profile") or {}
    names = (profile.get("display_name"), profile.get("real_name"), user.get("real_name"), user.get("name"))
    return one_line(next(filter(None, names), ""))
