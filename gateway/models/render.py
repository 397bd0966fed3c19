"""Entries in words: what every dialect says in the same way, and with the same bytes in every request."""

from __future__ import annotations

import functools
import hashlib
from datetime import datetime
from zoneinfo import ZoneInfo

from gateway.fence import fenced
from gateway.models.base import Picture, Prompt
from gateway.types import Attachment, Chat, Kind, NoteEntry, ToolEntry, UserEntry

_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_LONGEST_NAME = 64
_SOURCES = {
    Kind.HEARTBEAT: "a heartbeat",
    Kind.CRON: "a cron",
    Kind.SUBAGENT: "another conversation",
}
_NOTE = "[Summary of the earlier conversation, whose messages are no longer here]\n"


def system_text(prompt: Prompt) -> str:
    """Return the one system text: what is stable first, what may change last (agent 2.2)."""
    return "\n\n".join(part for part in (prompt.system, prompt.context) if part)


@functools.lru_cache(maxsize=4096)  # half of what a long conversation costs to write down again
def stamp(at: float, zone: str) -> str:
    """Return when a message was sent, as `[Sat 2026-02-28 14:30 +08:00] `; `at` is UNIX seconds."""
    moment = datetime.fromtimestamp(at, ZoneInfo(zone))
    text = moment.isoformat(" ", "minutes")
    return f"[{_DAYS[moment.weekday()]} {text[:16]} {text[16:]}] "


def user_text(entry: UserEntry, zone: str) -> str:
    """Return what a person said, with the time it was sent, and with their name where several can talk.

    What the gateway itself says (a heartbeat, a schedule) comes without both. The time is the stored
    one: it never changes the bytes of a message that a provider has cached (cache-01, cache-04).
    """
    if not entry.aimed and entry.kind is not Kind.MESSAGE:
        source = _SOURCES[entry.kind]
        return f"{stamp(entry.at, zone)}(You sent this here by yourself, from {source}:) {entry.text}"
    if entry.kind is not Kind.MESSAGE:
        return entry.text or "(empty)"
    parts = [_quote(entry)] if entry.quote else []
    parts += [_file(one) for one in entry.attachments]
    if entry.text or not parts:
        parts.append(entry.text or "(empty message)")
    beside = "" if entry.aimed else "(not to you) "
    return stamp(entry.at, zone) + beside + _label(entry) + "\n".join(parts)


def _quote(entry: UserEntry) -> str:
    """Return what a message quotes; what strangers wrote stands in a fence.

    Its mark is a digest of the words, which can't hold it, and the same in every request.
    """
    if not entry.forwarded:
        return f"[Quoted, not their own words: {entry.quote}]"
    mark = hashlib.sha256(entry.quote.encode("utf-8", "replace")).hexdigest()[:16]
    return fenced(entry.quote, "passed on, not their own words", mark)


def _file(one: Attachment) -> str:
    """Return a line that tells of a file; its name is the sender's own choice (inject-007)."""
    if one.path:
        said = f"; a machine heard this in it, maybe wrongly: {one.transcript}" if one.transcript else ""
        return f"[{one.kind}: {one.path}, {one.size} bytes{said}]"
    return f"[{one.kind} that could not be fetched: {one.problem or 'it did not come in time'}]"


def pictures_of(entry: UserEntry | ToolEntry, prompt: Prompt) -> list[Picture]:
    """Return the pictures of a message, or of a tool's result, that this prompt shows."""
    if not entry.attachments or not prompt.pictures:
        return []
    return [prompt.pictures[one.path] for one in entry.attachments if one.path in prompt.pictures]


def _label(entry: UserEntry) -> str:
    if entry.chat is not Chat.GROUP:
        return ""
    # A name is the sender's own choice: on one line it can't imitate another message.
    name = " ".join((entry.sender.name or entry.sender.id).split())[:_LONGEST_NAME]
    return f"{name}: "


def note_text(entry: NoteEntry) -> str:
    """Return a summary, labelled so that the model does not take it for a person's words.

    What stands for an entry that can't be read says so itself.
    """
    return entry.text if entry.lost else _NOTE + entry.text


def result_text(entry: ToolEntry) -> str:
    """Return a tool's result; providers refuse an empty one."""
    return entry.text if entry.text.strip() else "(no output)"
