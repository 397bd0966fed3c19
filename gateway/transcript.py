"""What the transcript of a running turn tells about it; pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from gateway.store.journal import Claim, turn_kind
from gateway.tools.policy import ALIASES
from gateway.types import (
    AssistantEntry,
    Chat,
    Entry,
    Kind,
    Sender,
    Situation,
    ToolEntry,
    Usage,
    UserEntry,
)

MAX_CALLS = 16
"""Tool calls of one reply that are run (attack size-007)."""

SAME_CALLS = 5
"""Equal calls with equal results in a row before the turn is wrapped up (agent 3.8)."""

MESSAGE = "message"
"""The tool with which the model sends by itself."""


def rounds(transcript: Sequence[Entry]) -> int:
    """Return how many replies with tool calls the running turn has had."""
    count = 0
    for entry in reversed(transcript):
        if isinstance(entry, AssistantEntry):
            if not entry.calls:
                break
            count += 1
    return count


def is_stuck(transcript: Sequence[Entry]) -> bool:
    """Return whether the last calls were all the same and brought the same."""
    made: list[tuple[str, str, str]] = []
    results: dict[str, str] = {}
    for entry in reversed(transcript):
        match entry:
            case ToolEntry():
                results[entry.call_id] = entry.text
            case AssistantEntry() if entry.calls:
                made += [(call.name, repr(call.args), results.get(call.id, "")) for call in entry.calls]
                if len(made) >= SAME_CALLS:
                    break
            case _:
                break
    return len(made) >= SAME_CALLS and len(set(made[:SAME_CALLS])) == 1


def running(transcript: Sequence[Entry]) -> Sequence[Entry]:
    """Return the entries of the turn that a transcript ends with."""
    for at in range(len(transcript), 0, -1):
        one = transcript[at - 1]
        if isinstance(one, AssistantEntry) and not one.calls:
            return transcript[at:]
    return transcript


def passes_on(turn: Sequence[Entry]) -> bool:
    """Return whether somebody has passed on to a turn what strangers wrote (attack inject-001)."""
    return any(isinstance(one, UserEntry) and one.forwarded for one in turn)


def already_sent(turn: Sequence[Entry], text: str) -> bool:
    """Return whether a turn has sent just this text here itself, so that it is not said twice (agent B)."""
    failed = {one.call_id for one in turn if isinstance(one, ToolEntry) and one.is_error}
    return bool(text) and any(
        ALIASES.get(call.name, call.name) == MESSAGE
        and not call.args.get("to")
        and str(call.args.get("text", "")).strip() == text.strip()
        for one in turn
        if isinstance(one, AssistantEntry)
        for call in one.calls
        if call.id not in failed
    )


def situation_of(claim: Claim) -> Situation:
    """Return what the running turn may do depends on.

    In a group several people may have spoken: then nobody's own rights count (inject-004).
    """
    asked = [one for one in running(claim.transcript) if isinstance(one, UserEntry) and one.aimed]
    newest = next((one for one in reversed(claim.transcript) if isinstance(one, UserEntry)), None)
    sender = newest.sender if newest else Sender("")
    if claim.chat is Chat.GROUP and len({one.sender.id for one in asked}) > 1:
        sender = Sender("")
    kind = newest.kind if newest else Kind.MESSAGE
    place = claim.address.parent or claim.place
    return Situation(claim.address, place, sender, claim.chat, kind, person=claim.person)


def is_said(entry: Entry) -> bool:
    """Return whether an entry belongs to the running turn: anything but a reply that ended one."""
    return not isinstance(entry, AssistantEntry) or bool(entry.calls)


def newest_message(transcript: Sequence[Entry]) -> str:
    """Return the platform's id of what was said last, "" if it has none."""
    return next((one.message_id for one in reversed(transcript) if isinstance(one, UserEntry)), "")


def may_be_silent(claim: Claim) -> bool:
    """Return whether an empty answer is a fine answer here (spec NR-11)."""
    return claim.chat is Chat.GROUP or turn_kind(claim.transcript) is not Kind.MESSAGE


def tells_errors(claim: Claim, kind: Kind) -> bool:
    """Return whether a failure is shown where the question came from (spec NR-12)."""
    return claim.chat is Chat.DIRECT and kind in (Kind.MESSAGE, Kind.SUBAGENT)


def capped(entry: AssistantEntry) -> AssistantEntry:
    """Mark the calls beyond the limit, so that each still gets a result."""
    if len(entry.calls) <= MAX_CALLS:
        return entry
    problem = f"at most {MAX_CALLS} calls of one reply are run"
    rest = tuple(replace(call, problem=problem) for call in entry.calls[MAX_CALLS:])
    return replace(entry, calls=(*entry.calls[:MAX_CALLS], *rest))


def summed(before: Usage | None, now: Usage) -> Usage:
    """Add up what two model calls of one reply took."""
    if before is None:
        return now
    return Usage(
        before.input + now.input,
        before.output + now.output,
        before.cached + now.cached,
        before.cache_write + now.cache_write,
    )
