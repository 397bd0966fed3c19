"""What people see of long work with tools: the plan if there is one, and the newest calls; pure."""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass, field
from typing import Final

from gateway.feed import Event, ToolEnded, ToolStarted

WAIT: Final = 1.5
"""Seconds of work with tools after which people are told of it (spec ST-4)."""

LINES: Final = 8
"""Lines that are told (spec ST-4)."""

BESIDE_PLAN: Final = 2
"""Of these the newest calls where there is a plan."""

WIDTH: Final = 120
"""Characters of a line (spec ST-4)."""

_TOOL = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_SIGNS = {None: "•", False: "✓", True: "✗"}
_STATES = {"[ ]": "○", "[>]": "▸", "[x]": "✓"}


@dataclass(slots=True)
class _Call:
    """A tool call; `is_error` is None while it runs."""

    name: str
    is_error: bool | None = None


@dataclass(frozen=True, slots=True)
class _Step:
    """A step of the plan, with the sign of its state."""

    sign: str
    text: str

    @property
    def is_current(self) -> bool:
        return self.sign == _STATES["[>]"]


@dataclass(slots=True)
class Progress:
    """Gathers what the tools of a turn do. Never arguments or results, which may hold anything."""

    _calls: deque[_Call] = field(default_factory=lambda: deque(maxlen=LINES))
    _plan: tuple[_Step, ...] = ()
    _since: float | None = None

    def take(self, event: Event, now: float) -> None:
        """Note what happened."""
        match event:
            case ToolStarted(name):
                self._calls.append(_Call(_name(name)))
                self._since = now if self._since is None else self._since
            case ToolEnded(name, is_error, plan):
                self._settle(_name(name), is_error=is_error, is_plan=bool(plan))
                self._plan = _steps(plan) if plan else self._plan
            case _:
                pass

    def lines(self, now: float) -> list[str]:
        """Return what there is to tell, nothing while the work is short."""
        if self._since is None or now - self._since < WAIT:
            return []
        calls = list(self._calls)[-BESIDE_PLAN if self._plan else -LINES :]
        shown = _around_current(self._plan, LINES - len(calls))
        return [f"{one.sign} {one.text}" for one in shown] + [
            f"{_SIGNS[one.is_error]} {one.name}" for one in calls
        ]

    @property
    def current(self) -> str:
        """Return the step of the plan that is being done, with its number, "" if there is none."""
        for number, step in enumerate(self._plan, 1):
            if step.is_current:
                return f"{step.text} ({number}/{len(self._plan)})"
        return ""

    def _settle(self, name: str, *, is_error: bool, is_plan: bool) -> None:
        """Note that a call has ended; one that made the plan is not worth a line beside it."""
        for call in self._calls:
            if call.is_error is None and call.name == name:
                call.is_error = is_error
                if is_plan:
                    self._calls.remove(call)
                return


def shortened(text: str, most: int = WIDTH) -> str:
    """Return a line of at most so many characters, cut between words where that is near."""
    if len(text) <= most:
        return text
    head = text[: most - 1]
    return f"{head[: max(head.rfind(' '), most // 2)].rstrip()}…"


def _name(name: str) -> str:
    return name if _TOOL.fullmatch(name) else "tool"


def _steps(plan: str) -> tuple[_Step, ...]:
    """Read a plan: lines such as `[x] read the log`; other lines are none of its steps."""
    found = ((line[:3], line[4:]) for line in plan.splitlines())
    return tuple(_Step(_STATES[mark], shortened(text)) for mark, text in found if text and mark in _STATES)


def _around_current(plan: tuple[_Step, ...], most: int) -> tuple[_Step, ...]:
    """Return as many steps as there is room for, with the one that is being done among them."""
    at = next((number for number, step in enumerate(plan) if step.is_current), 0)
    first = max(0, min(at - most // 2, len(plan) - most))
    return plan[first : first + most]
