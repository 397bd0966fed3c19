"""Decides the next step of a turn from the transcript alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from gateway.types import AssistantEntry, Entry, ToolCall, ToolEntry

INTERRUPTED = "interrupted: this call was started and may or may not have run; check before repeating it"


@dataclass(frozen=True, slots=True)
class Rest:
    """Nothing to answer."""


@dataclass(frozen=True, slots=True)
class Ask:
    """Call the model."""


@dataclass(frozen=True, slots=True)
class Run:
    """Run these calls side by side; each may run again after a crash."""

    calls: tuple[ToolCall, ...]


@dataclass(frozen=True, slots=True)
class RunOnce:
    """Run this call, after noting that it was started."""

    call: ToolCall


@dataclass(frozen=True, slots=True)
class Settle:
    """Answer a call that a dead process may have run."""

    result: ToolEntry


Step: TypeAlias = Rest | Ask | Run | RunOnce | Settle


def is_open(transcript: Sequence[Entry]) -> tuple[ToolCall, ...]:
    """Return the calls at the end of the transcript that have no result yet."""
    answered: set[str] = set()
    for entry in reversed(transcript):
        match entry:
            case ToolEntry(call_id=call_id):
                answered.add(call_id)
            case AssistantEntry(calls=calls):
                return tuple(call for call in calls if call.id not in answered)
            case _:
                return ()
    return ()


def next_step(transcript: Sequence[Entry], *, started: str | None, replayable: Callable[[str], bool]) -> Step:
    """Return what this conversation needs next.

    `started` is the call that was noted as started and has no result: it is never run again. Calls
    that may repeat go first, side by side; the others one by one, in order (design 6, invariant 4).
    """
    if not transcript:
        return Rest()
    waiting = is_open(transcript)
    if not waiting:
        last = transcript[-1]
        return Rest() if isinstance(last, AssistantEntry) and not last.calls else Ask()
    for call in waiting:
        if call.id == started:
            return Settle(ToolEntry(call.id, call.name, INTERRUPTED, is_error=True))
    safe = tuple(call for call in waiting if call.problem is not None or replayable(call.name))
    return Run(safe) if safe else RunOnce(waiting[0])
