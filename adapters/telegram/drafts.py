"""What people may see of a reply before it is whole; pure."""

from __future__ import annotations

from dataclasses import dataclass, field

from adapters.markdown.write import escaped
from adapters.progress import Progress
from adapters.telegram.text import LIMIT, head
from gateway.feed import Delta, Event, Restarted, ToolStarted

ENOUGH = 16
"""Letters and digits that a reply must have to be shown before its end (spec NR-8)."""


@dataclass(slots=True)
class Draft:
    """Gathers what a turn says and does, as far as it can be shown."""

    _chunks: list[str] = field(default_factory=list)
    _size: int = 0
    _progress: Progress = field(default_factory=Progress)

    def take(self, event: Event, now: float) -> None:
        """Note what happened."""
        match event:
            case Delta(text):
                self._more(text)
            case Restarted() | ToolStarted():  # words before a tool call are not the reply
                self._void()
            case _:
                pass
        self._progress.take(event, now)

    @property
    def speaks(self) -> bool:
        """Return whether there is any text of the reply."""
        return bool(self._chunks)

    def look(self, now: float) -> str:
        """Return the beginning of the reply, or else what the tools do; "" while neither is worth showing."""
        text = "".join(self._chunks).strip()
        if _is_enough(text):
            return head(text)
        lines = self._progress.lines(now)
        return "\n".join(["Working…", *map(escaped, lines)]) if lines else ""

    def _more(self, text: str) -> None:
        if self._size <= LIMIT:  # more than that is not shown anyway
            self._chunks.append(text)
            self._size += len(text)

    def _void(self) -> None:
        self._chunks.clear()
        self._size = 0


def _is_enough(text: str) -> bool:
    found = (number for number, _ in enumerate(filter(str.isalnum, text), 1))
    return any(number >= ENOUGH for number in found)
