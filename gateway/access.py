"""Who may talk to the bot in a direct chat; pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

from gateway.types import Chat, Stimulus

ANYBODY = "*"


@dataclass(frozen=True, slots=True)
class Allow:
    """The stimulus may become a turn."""


@dataclass(frozen=True, slots=True)
class Ignore:
    """Nothing happens; `reason` is for the log."""

    reason: str


@dataclass(frozen=True, slots=True)
class Refuse:
    """The sender is told `text`, once in a while; `reason` is for the log."""

    text: str
    reason: str


Verdict: TypeAlias = Allow | Ignore | Refuse


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """The rules of one channel (spec TG-11, AC-1, AC-4).

    `pairing` tells strangers how they can be let in, `allowlist` is silent to them, `open` admits
    whom `allow_from` lists, which may be everybody ("*"), and `disabled` admits nobody. An entry of
    `allow_from` is an id of the shape `id_shape`, bare or behind one of `prefixes` (`somewhere:`).
    """

    mode: Literal["pairing", "allowlist", "open", "disabled"] = "pairing"
    allow_from: tuple[str, ...] = ()
    prefixes: tuple[str, ...] = ()
    id_shape: str = r"[1-9][0-9]*"

    def check(self, stimulus: Stimulus) -> Verdict:
        """Judge by the sender's id only: names can be chosen by anybody."""
        if self.mode == "disabled":
            return Ignore("direct chats are disabled")
        if stimulus.chat is not Chat.DIRECT:
            return Ignore("not a direct chat")
        everybody = self.mode == "open" and ANYBODY in self.allow_from
        if everybody or stimulus.sender.id in {self._id(entry) for entry in self.allow_from}:
            return Allow()
        if self.mode == "pairing":
            return Refuse(_invitation(stimulus), "the sender is not in allow_from")
        return Ignore("the sender is not in allow_from")

    def problems(self) -> list[str]:
        """Return what in these rules can't have been meant, each with its remedy."""
        return list(self._problems())

    def _id(self, entry: str) -> str | None:
        """Return the id that an entry admits, or None if it can't match anybody."""
        entry = entry.strip()
        prefix = next((prefix for prefix in self.prefixes if entry.lower().startswith(prefix)), "")
        bare = entry[len(prefix) :].strip()
        return bare if re.fullmatch(self.id_shape, bare) else None

    def _problems(self) -> Iterator[str]:
        if self.mode == "allowlist" and not self.allow_from:
            yield 'dm_policy "allowlist" with an empty allow_from admits nobody. Add the ids of people.'
        if self.mode == "open" and ANYBODY not in self.allow_from:
            yield 'dm_policy "open" admits only the ids in allow_from. Add "*" to admit everybody.'
        if self.mode != "open" and ANYBODY in self.allow_from:
            yield f'"*" in allow_from needs dm_policy "open", and it is "{self.mode}". Change one of the two.'
        for entry in self.allow_from:
            if entry != ANYBODY and self._id(entry) is None:
                yield f'"{entry}" in allow_from matches nobody: {_mistake(entry)}'


EVERYBODY = Policy(mode="open", allow_from=(ANYBODY,))
"""For channels that have their own lock, like a page on the loopback address."""


def _invitation(stimulus: Stimulus) -> str:
    channel, person = stimulus.address.channel, stimulus.sender.id
    return (
        f"I only talk to people whom my owner knows. Your id is {person}. If I am yours, add it to the "
        f'configuration and restart me:\n\n[channels.{channel}]\nallow_from = ["{person}"]'
    )


def _mistake(entry: str) -> str:
    bare = entry.rpartition(":")[2].strip()
    if re.fullmatch(r"-[0-9]+", bare):
        return "it is the id of a group. List the ids of people here."
    if not bare.isascii() or not bare.isdigit():
        return (
            "it is not an id. Names can be taken over; whoever writes to the bot is told the id to put here."
        )
    return "it is not an id of a person on this channel."
