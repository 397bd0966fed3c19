"""The tools that look at a picture and listen to a recording by other models than the one that talks."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from gateway.errors import ToolError
from gateway.fence import fenced
from gateway.tools.base import Group, ToolContext
from gateway.tools.files import Readable, is_others, load_from, place_of
from gateway.tools.images import MAX_BYTES, image_of
from gateway.tools.paths import reach
from gateway.tools.schema import FunctionTool, tool
from gateway.types import Replay, Situation

LARGEST_RECORDING = 20_000_000
"""Bytes; servers take 25 MB at most (spec IN-23)."""

LONGEST_QUESTION = 2000

SECONDS = 180.0
"""What one call may take; a model that is busy is asked again."""

Look: TypeAlias = Callable[[Situation, str, str, str], Awaitable[str]]
"""Returns the answer to a question about a picture: media type, base64, question. Raises: ToolError."""

Listen: TypeAlias = Callable[[Situation, bytes], Awaitable[str]]
"""Returns what is said in a recording. Raises: ToolError."""


def image_tool(look: Look, readable: Readable) -> FunctionTool:
    """Return the tool for models that don't see: another one that does answers in words."""

    @tool(Replay.SAFE, Group.FS, private=True, untrusted=is_others, timeout=SECONDS)
    async def image(context: ToolContext, path: str, question: str = "What is in this picture?") -> str:
        """Ask a model that sees about a picture of the workspace."""
        mime, data = await asyncio.to_thread(_picture, context, path, readable)
        answer = await look(context.situation, mime, data, question[:LONGEST_QUESTION])
        return fenced(answer, "what another model saw in a picture")

    return image


def audio_tool(listen: Listen, readable: Readable) -> FunctionTool:
    """Return the tool that makes a text of a recording."""

    @tool(Replay.SAFE, Group.FS, private=True, untrusted=is_others, timeout=SECONDS)
    async def audio(context: ToolContext, path: str) -> str:
        """Get the words that are spoken in a recording of the workspace."""
        content = await asyncio.to_thread(_load, context, path, readable, LARGEST_RECORDING)
        said = await listen(context.situation, content)
        if not said:
            return "(no words were heard)"
        return fenced(said, "what a machine heard in a recording, maybe wrongly")

    return audio


def _picture(context: ToolContext, path: str, readable: Readable) -> tuple[str, str]:
    """Return the media type of a picture and its content in base64. Raises: ToolError."""
    content = _load(context, path, readable, MAX_BYTES)
    found = image_of(content)
    if found is None:
        raise ToolError(f"{path!r} is no picture: PNG, JPEG, GIF and WebP can be looked at.")
    if found.problem:
        raise ToolError(f"{path!r} ({found}) can't be looked at: {found.problem}.")
    return found.mime, base64.b64encode(content).decode()


def _load(context: ToolContext, path: str, readable: Readable, most: int) -> bytes:
    root, inside = place_of(context, path, readable)
    with reach(root, inside) as place:
        return load_from(place, most)
