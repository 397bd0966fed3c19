"""How fast a bot may send: to everybody together, to one chat, and into one group."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

PER_SECOND = 30.0
"""Messages that the platform takes from a bot in a second (Telegram's bots FAQ)."""

_BURST = 3
"""Messages to one chat at once; afterwards it is one in a second."""

_GROUP = 20
"""Messages into one group in a minute."""

_MANY = 4096
"""Chats that are remembered before those that nothing holds up are forgotten."""


@dataclass(slots=True)
class Gate:
    """Says how long a message must wait. `per_second` is the rate of all chats together.

    None stands for a server of one's own, which has no rates; what it says about waiting counts still.
    A group is a chat with a negative id.
    """

    per_second: float | None = PER_SECOND
    _next: float = 0.0
    _chats: dict[str, float] = field(default_factory=dict)
    _groups: dict[str, deque[float]] = field(default_factory=dict)
    _paused: dict[str, float] = field(default_factory=dict)

    def wait(self, chat: str, now: float) -> float:
        """Return how many seconds it takes until a message may leave for this chat."""
        waits = [0.0]
        if self._paused and chat in self._paused:
            waits.append(self._paused[chat] - now)
            if waits[-1] <= 0:
                del self._paused[chat]
        if self.per_second is not None:
            waits.append(self._next - now - 1.0)
            waits.append(self._chats.get(chat, now) - now - (_BURST - 1))
            recent = self._groups.get(chat)
            if recent is not None and len(recent) == _GROUP:
                waits.append(recent[0] + 60.0 - now)
        return max(waits)

    def take(self, chat: str, now: float) -> None:
        """Note a message that leaves at `now`."""
        if self.per_second is None:
            return
        self._forget(now)
        self._next = max(self._next, now) + 1.0 / self.per_second
        self._chats[chat] = max(self._chats.get(chat, now), now) + 1.0
        if chat.startswith("-"):
            self._groups.setdefault(chat, deque(maxlen=_GROUP)).append(now)

    def pause(self, chat: str, until: float) -> None:
        """Let nothing leave for this chat before `until`: the platform asked for that (HTTP 429)."""
        self._paused[chat] = max(until, self._paused.get(chat, 0.0))

    def _forget(self, now: float) -> None:
        if len(self._chats) <= _MANY:
            return
        self._chats = {chat: then for chat, then in self._chats.items() if then > now}
        self._groups = {chat: recent for chat, recent in self._groups.items() if recent[-1] + 60.0 > now}
