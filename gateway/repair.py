"""A transcript as every provider accepts it: each tool call is followed at once by its one result.

Pure and in memory; what is stored stays as it is (agent 3.5 and part II E).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import dropwhile
from typing import TypeAlias

from gateway.types import AssistantEntry, Entry, NoteEntry, ToolCall, ToolEntry, UserEntry

INTERRUPTED = "interrupted: this call may or may not have run; check before repeating it"
"""The result of a call whose own result is nowhere."""


@dataclass(slots=True)
class _Slot:
    """A call and its result, once found."""

    call: ToolCall
    result: ToolEntry | None = None


@dataclass(frozen=True, slots=True)
class _Turn:
    """An assistant entry with calls."""

    entry: AssistantEntry
    slots: list[_Slot]


_Open: TypeAlias = dict[str, list[_Slot]]
"""Unanswered calls by id, in the order of the transcript."""


def repair(entries: Sequence[Entry]) -> list[Entry]:
    """Return the entries with all calls and results paired; a valid list comes back equal.

    - It starts at a user entry or a note: the half of a turn before it is dropped (session-04).
    - A result right behind its turn belongs to it. One further down moves up if exactly one unanswered
      call before it has its id, else it is dropped; so are second results (session-05, session-07).
    - A call without a result gets `INTERRUPTED` (session-02). If it could not be read either, it broke
      off in the stream, never ran, and is dropped (session-01).
    - Calls of one turn with an empty or a repeated id get a new one; other turns may use an id again.
    - An assistant entry without words and calls is dropped.
    """
    out: list[Entry] = []
    for item in _paired(dropwhile(lambda entry: not isinstance(entry, UserEntry | NoteEntry), entries)):
        if isinstance(item, _Turn):
            out.extend(_settled(item))
        else:
            out.append(item)
    return out


def _paired(entries: Iterable[Entry]) -> list[Entry | _Turn]:
    """Give each result to its call; results without one vanish."""
    outline: list[Entry | _Turn] = []
    here: _Open = {}
    earlier: _Open = {}
    for entry in entries:
        if isinstance(entry, ToolEntry):
            slot = _take(here, entry.call_id) or _take_only(earlier, entry.call_id)
            if slot is not None:
                slot.result = entry
            continue
        for call_id, slots in here.items():
            earlier.setdefault(call_id, []).extend(slots)
        here = {}
        if isinstance(entry, AssistantEntry) and entry.calls:
            turn = _Turn(entry, [_Slot(call) for call in entry.calls if call.name])
            for slot in turn.slots:
                here.setdefault(slot.call.id, []).append(slot)
            outline.append(turn)
        elif not isinstance(entry, AssistantEntry) or entry.text.strip():
            outline.append(entry)
    return outline


def _take(waiting: _Open, call_id: str) -> _Slot | None:
    slots = waiting.get(call_id)
    return slots.pop(0) if slots else None


def _take_only(waiting: _Open, call_id: str) -> _Slot | None:
    slots = waiting.get(call_id, [])
    return slots.pop() if len(slots) == 1 else None


def _settled(turn: _Turn) -> Iterator[Entry]:
    """Yield the turn and one result per call, in the order of the calls."""
    slots = [slot for slot in turn.slots if slot.result is not None or slot.call.problem is None]
    calls = tuple(_with_own_ids([slot.call for slot in slots]))
    if not calls and not turn.entry.text.strip():
        return
    yield turn.entry if calls == turn.entry.calls else replace(turn.entry, calls=calls)
    for slot, call in zip(slots, calls, strict=True):
        result = slot.result or ToolEntry(call.id, call.name, INTERRUPTED, is_error=True)
        yield result if result.call_id == call.id else replace(result, call_id=call.id)


def _with_own_ids(calls: Sequence[ToolCall]) -> list[ToolCall]:
    """Make ids that are missing or used before in this turn, the same ones every time."""
    taken = {call.id for call in calls}
    if len(taken) == len(calls) and "" not in taken:
        return list(calls)
    seen: set[str] = set()
    out: list[ToolCall] = []
    for position, call in enumerate(calls):
        kept = call
        if not call.id or call.id in seen:
            kept = replace(call, id=_made_id(f"{position} {call.id} {call.name}", taken))
            taken.add(kept.id)
        seen.add(kept.id)
        out.append(kept)
    return out


def _made_id(seed: str, taken: set[str]) -> str:
    """Return nine letters and digits, the only form that every provider takes (models 2.3 row 11)."""
    made = hashlib.sha256(seed.encode("utf-8", "replace")).hexdigest()[:9]
    return made if made not in taken else _made_id(seed + "'", taken)
