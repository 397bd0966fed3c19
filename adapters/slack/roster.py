"""Who was seen where: whom a text may mention, and for whom a stream is."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, TypeVar

K = TypeVar("K")
V = TypeVar("V")

_CHATS: Final = 2000
_PEOPLE: Final = 500
_MESSAGES: Final = 5000


@dataclass(frozen=True, slots=True)
class Person:
    """A person in a workspace, both by id."""

    user: str
    team: str = ""


@dataclass(slots=True)
class Roster:
    """Remembers people as long as this process lives, the newest ones only.

    Who is not remembered is not rung by a text that names their id: the harmless mistake of the two.
    """

    _chats: dict[str, dict[str, None]] = field(default_factory=dict)
    _authors: dict[tuple[str, str], Person] = field(default_factory=dict)

    def note(self, chat: str, *users: str) -> None:
        """Remember people who wrote in a chat, or were mentioned there by others."""
        known = self._chats.pop(chat, {})
        for user in users:
            _put(known, user, None, _PEOPLE)
        _put(self._chats, chat, known, _CHATS)

    def wrote(self, chat: str, message_id: str, person: Person) -> None:
        """Remember who wrote a message."""
        self.note(chat, person.user)
        _put(self._authors, (chat, message_id), person, _MESSAGES)

    def people(self, chat: str) -> frozenset[str]:
        """Return the ids of those who were seen in a chat."""
        return frozenset(self._chats.get(chat, ()))

    def author(self, chat: str, message_id: str) -> Person | None:
        """Return who wrote a message, None if that is forgotten."""
        return self._authors.get((chat, message_id))


def _put(things: dict[K, V], key: K, value: V, most: int) -> None:
    """Make something the newest; the oldest goes."""
    things.pop(key, None)
    things[key] = value
    if len(things) > most:
        del things[next(iter(things))]
