"""What a session of another program is here: where it belongs, and its lines as entries."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime, tzinfo
from pathlib import Path
from typing import TypeAlias

from gateway.fence import defuse
from gateway.redact import Redactor
from gateway.types import (
    INNER,
    PERSON,
    Address,
    AssistantEntry,
    Chat,
    Entry,
    Json,
    JsonObject,
    Kind,
    Sender,
    ToolEntry,
    UserEntry,
)

LONGEST = 50_000
"""Characters of one entry that are kept."""

LARGEST = 256_000_000
"""Bytes of a session's file."""

UNREADABLE = (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError)
"""What a line that was written by another program may be wrong in."""

_CHANNEL = re.compile(r"[a-z][a-z0-9_-]{0,31}")
_OURS = {*INNER, PERSON, "console"}


@dataclass(frozen=True, slots=True)
class Place:
    """Where a session belongs, and who reads there."""

    address: Address
    chat: Chat


@dataclass(frozen=True, slots=True)
class Timed:
    """An entry, and when it was written in UNIX seconds; `at` is 0 if that is not known."""

    entry: Entry
    at: float


Read: TypeAlias = Callable[[JsonObject, Place, tzinfo], "Timed | None"]
"""Returns what a line of a session is, None if it is no part of the conversation. May raise `UNREADABLE`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    """A session in a file. `name` is its own among all of its program's, `shown` is what people know."""

    name: str
    shown: str
    file: Path
    place: Place
    read: Read


@dataclass(slots=True)
class Tally:
    """What a file held: its entries, the lines that could not be read, when it began."""

    entries: int = 0
    unreadable: int = 0
    begins: float = 0.0


def entries(log: Log, zone: tzinfo, redact: Redactor, tally: Tally) -> Iterator[Timed]:
    """Yield the entries of a session, without secrets; what can't be read is only counted.

    Times without a zone are those of `zone`; an entry without one has that of the entry before it.
    Raises: OSError.
    """
    at = 0.0
    with log.file.open("rb") as lines:
        for line in lines:
            if not line.strip():
                continue
            try:
                found = log.read(json.loads(line), log.place, zone)
            except UNREADABLE:
                tally.unreadable += 1
                continue
            if found is None:
                continue
            at = found.at or at
            tally.entries += 1
            tally.begins = tally.begins or at
            yield Timed(_harmless(found.entry, redact), at)


def _harmless(entry: Entry, redact: Redactor) -> Entry:
    """Return the entry without secrets, as short as one may be, in signs that every database takes."""
    if isinstance(entry, AssistantEntry):
        calls = tuple(replace(call, args=_everywhere(call.args, redact)) for call in entry.calls)
        entry = replace(entry, calls=calls, reasoning=_cut(redact(defuse(entry.reasoning))))
    return replace(entry, text=_cut(redact(defuse(entry.text))))


def _everywhere(value: Json, redact: Redactor) -> Json:
    match value:
        case str():
            return _cut(redact(defuse(value)))
        case dict():
            return {defuse(str(key)): _everywhere(one, redact) for key, one in value.items()}
        case list():
            return [_everywhere(one, redact) for one in value]
        case _:
            return value


def _cut(text: str) -> str:
    if len(text) <= LONGEST:
        return text
    return f"{text[:LONGEST]}\n[{len(text) - LONGEST} characters more were left out]"


def text_of(content: Json) -> str:
    """Return the words of a message: a text, or a list of parts, of which only texts are kept."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    return "\n".join(part["text"] if part.get("type") == "text" else f"[{part['type']}]" for part in content)


def user_entry(content: Json, where: Place, at: float) -> UserEntry:
    """Return what a person said; who it was is known where only one writes."""
    sender = where.address.chat if where.chat is Chat.DIRECT else ""
    return UserEntry(text_of(content), Sender(sender), Kind.MESSAGE, at, where.chat)


def tool_entry(call_id: Json, name: Json, content: Json, *, is_error: bool) -> ToolEntry:
    """Return the result of a call."""
    return ToolEntry(str(call_id or ""), str(name or ""), text_of(content), is_error)


def seconds(value: Json, zone: tzinfo) -> float:
    """Return a time in UNIX seconds: ISO 8601, or a number of milliseconds; 0 for none."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value / 1000
    if not isinstance(value, str) or not value:
        return 0.0
    moment = datetime.fromisoformat(value)
    return (moment if moment.tzinfo else moment.replace(tzinfo=zone)).timestamp()


def place(channel: str, chat: str, thread: str = "", *, direct: bool | None = None) -> Place | None:
    """Return where a chat of a channel is here, None if it can't be told.

    Without `direct` the ids say whether it is a private chat, as on Telegram and Slack.
    """
    channel = channel.lower()
    if not _CHANNEL.fullmatch(channel) or channel in _OURS or not chat:
        return None
    if channel.partition("-")[0] == "slack":
        chat = chat.upper()  # some programs write all names in small letters
    if direct is None:
        direct = chat[:1] not in ("-", "C", "G")
    return Place(Address(channel, chat.replace(":", "_"), thread), Chat.DIRECT if direct else Chat.GROUP)
