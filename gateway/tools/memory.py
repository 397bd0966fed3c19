"""The tools with which the model looks up what it has written down, and what was said before."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import tzinfo
from typing import Literal

from gateway.errors import ToolError
from gateway.memory.files import PERSONAL, plain
from gateway.recall import TOP, Memory, Recall
from gateway.store.search import Said
from gateway.tools.base import Group, Tool, ToolContext
from gateway.tools.files import load
from gateway.tools.schema import tool
from gateway.types import Replay

LINES = 120
CHARS = 12_000
"""What `memory_get` returns at most (agent 11)."""

_MAX_BYTES = 20_000_000


def memory_tools(recall: Recall) -> Sequence[Tool]:
    """Return the tools. They see the notes of the folder that the conversation may see, and no others."""

    @tool(Replay.SAFE, Group.MEMORY, private=True)
    async def memory_search(
        context: ToolContext,
        query: str,
        where: Literal["notes", "chat"] = "notes",
        max_results: int = TOP,
    ) -> str:
        """Search your notes, or all that was ever said in this chat."""
        if not query.strip():
            raise ToolError("query is empty: what are you looking for?")
        if where == "chat":
            said = await recall.said(query, conversation=context.conversation_id, limit=max_results)
            return _talk(said, recall.zone)
        _check(context)
        found = await recall.search(
            context.folder, query, personal=context.situation.is_private, limit=max_results
        )
        return _notes(found)

    @tool(Replay.SAFE, Group.MEMORY, private=True)
    async def memory_get(context: ToolContext, path: str, start: int = 1, lines: int = LINES) -> str:
        """Read lines of a note."""
        _check(context)
        return await asyncio.to_thread(_read, context, path, max(1, start), max(1, min(lines, LINES)))

    return [memory_search, memory_get]


def _check(context: ToolContext) -> None:
    """Keep everybody but the owner in private out of the owner's folder (security-auth-06)."""
    if not context.situation.is_private and context.folder == context.workspace:
        raise ToolError("there are no notes for this conversation")


def _read(context: ToolContext, path: str, start: int, lines: int) -> str:
    names = [name for name in path.split("/") if name not in ("", ".")]
    inside = names[:1] == ["memory"] and names[-1].endswith(".md") and ".." not in names
    if not inside and not (context.situation.is_private and names in [[name] for name in PERSONAL]):
        raise ToolError(
            f"{path!r} is no note; give a path that memory_search found, such as memory/2026-03-22-x.md"
        )
    every = plain(load(context.folder, "/".join(names), _MAX_BYTES)).removesuffix("\n").split("\n")
    if start > len(every):
        raise ToolError(f"start {start} is behind the end: the note has {len(every)} lines")
    return _window(every, start, lines)


def _window(every: Sequence[str], start: int, lines: int) -> str:
    """Return whole lines, as many as there is room for; of a line that is too long its beginning."""
    shown: list[str] = []
    room = CHARS
    for line in every[start - 1 : start - 1 + lines]:
        if shown and len(line) + 1 > room:
            break
        shown.append(line[:room])
        room -= len(line) + 1
    last = start + len(shown) - 1
    text = "\n".join(shown)
    return (
        text
        if last >= len(every)
        else f"{text}\n[lines {start}–{last} of {len(every)}; read on with start={last + 1}]"
    )


def _notes(found: Sequence[Memory]) -> str:
    if not found:
        return "Nothing is written down about it."
    return "\n\n".join(f"Source: {one.source}\n{one.text}" for one in found)


def _talk(found: Sequence[Said], zone: tzinfo) -> str:
    if not found:
        return "Nothing was said about it here."
    return "\n\n".join(f"Source: chat#{one.seq} ({one.role}, {one.when(zone)})\n{one.text}" for one in found)
