"""Which agent answers where; pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gateway.config import BindingSettings
from gateway.types import Situation

MAIN = "main"
"""The agent that answers where nothing else is bound."""


@dataclass(frozen=True, slots=True)
class Binding:
    """Where an agent answers: every part that is not "" must be the turn's."""

    agent: str
    channel: str = ""
    chat: str = ""
    thread: str = ""
    sender: str = ""

    def fits(self, situation: Situation) -> bool:
        """Return whether a turn is one of these."""
        place = situation.place
        wanted = ((self.channel, place.channel), (self.chat, place.chat), (self.thread, place.thread))
        return all(one in ("", there) for one, there in (*wanted, (self.sender, situation.sender.id)))

    @property
    def weight(self) -> tuple[bool, bool, bool, bool]:
        """Return how specific it is: thread before person before chat before channel."""
        return bool(self.thread), bool(self.sender), bool(self.chat), bool(self.channel)


def bindings(settings: Iterable[BindingSettings]) -> Sequence[Binding]:
    """Return the bindings of the configuration, the most specific first, else in its order."""
    found = [Binding(one.agent, one.channel, one.chat, one.thread, one.sender) for one in settings]
    return sorted(found, key=lambda one: one.weight, reverse=True)


def chosen(found: Sequence[Binding], situation: Situation) -> str:
    """Return the name of the agent that answers a turn."""
    return next((one.agent for one in found if one.fits(situation)), MAIN)
