"""What people may see of a reply before it is whole; pure."""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass, field

from adapters.telegram.text import LIMIT, clean
from gateway.feed import Delta, Event, Restarted, ToolEnded, ToolStarted

ENOUGH = 16
"""Letters and digits that a reply must have to be shown before its end (spec NR-8)."""

TOOL_WAIT = 1.5
"""Seconds of work with tools after which people are told of it (spec ST-4)."""

LINES = 8
"""Newest tool calls that are told (spec ST-4)."""

_TOOL = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_SIGNS = {None: "•", False: "✓", True: "✗"}


@dataclass(slots=True)
class _Step:
    """A tool call; `is_error` is None while it runs."""

    name: str
    is_error: bool | None = None


@dataclass(slots=True)
class Draft:
    """Gathers what a turn says and does, as far as it can be shown."""

    _chunks: list[str] = field(default_factory=list)
    _size: int = 0
    _steps: deque[_Step] = field(default_factory=lambda: deque(maxlen=LINES))
    _working_since: float | None = None

    def take(self, event: Event, now: float) -> None:
        """Note what happened."""
        match event:
            case Delta(text):
                self._more(text)
            case Restarted():
                self._void()
            case ToolStarted(name):
                self._void()  # words before a tool call are not the reply
                self._steps.append(_Step(name if _TOOL.fullmatch(name) else "tool"))
                self._working_since = now if self._working_since is None else self._working_since
            case ToolEnded(name, is_error):
                self._settle(name if _TOOL.fullmatch(name) else "tool", is_error=is_error)
            case _:
                pass

    @property
    def speaks(self) -> bool:
        """Return whether there is any text of the reply."""
        return bool(self._chunks)

    def look(self, now: float) -> str:
        """Return the beginning of the reply, or else what the tools do; "" while neither is worth showing."""
        text = "".join(self._chunks).strip()
        if _is_enough(text):
            return head(text)
        if self._working_since is None or now - self._working_since < TOOL_WAIT:
            return ""
        return "\n".join(["Working…", *(f"{_SIGNS[step.is_error]} {step.name}" for step in self._steps)])

    def _more(self, text: str) -> None:
        if self._size <= LIMIT:  # more than that is not shown anyway
            self._chunks.append(text)
            self._size += len(text)

    def _void(self) -> None:
        self._chunks.clear()
        self._size = 0

    def _settle(self, name: str, *, is_error: bool) -> None:
        for step in self._steps:
            if step.is_error is None and step.name == name:
                step.is_error = is_error
                return


def head(text: str) -> str:
    """Return as much of the beginning as one message holds, in UTF-16 units (Bot API sendMessage)."""
    text = clean(text)
    if (len(text) if text.isascii() else len(text.encode("utf-16-le")) // 2) <= LIMIT:
        return text
    return f"{text.encode('utf-16-le')[: 2 * (LIMIT - 1)].decode('utf-16-le', 'ignore')}…"


def _is_enough(text: str) -> bool:
    found = (number for number, _ in enumerate(filter(str.isalnum, text), 1))
    return any(number >= ENOUGH for number in found)
