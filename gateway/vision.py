"""Pictures that people sent, as the model gets to see them."""

from __future__ import annotations

import base64
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path

from gateway.errors import ToolError
from gateway.models.base import Picture
from gateway.tools.files import load
from gateway.types import AssistantEntry, Entry, Media, UserEntry

log = logging.getLogger(__name__)

TURNS = 3
"""Turns whose pictures are shown again; of older ones only the line with the path stays (agent 2.2)."""

MOST = 8
"""Pictures in one prompt."""

MAX_BYTES = 5_000_000
"""Size of one picture; providers refuse larger ones."""

_SIGNS = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
)


def recent(entries: Sequence[Entry]) -> list[str]:
    """Return the paths of the pictures of the last turns, the newest last."""
    paths: list[str] = []
    ended = 0
    for entry in reversed(entries):
        if isinstance(entry, AssistantEntry) and not entry.calls:
            ended += 1
            if ended > TURNS:
                break
        elif isinstance(entry, UserEntry):
            paths += [one.path for one in reversed(entry.attachments) if one.kind is Media.IMAGE and one.path]
    return paths[:MOST][::-1]


def pictures(workspace: Path, paths: Sequence[str]) -> Mapping[str, Picture]:
    """Read pictures beneath the workspace; one that can't be read or is of no known kind is left out."""
    found: dict[str, Picture] = {}
    for path in paths:
        try:
            content = load(workspace, path, MAX_BYTES)
        except ToolError as error:
            log.info("picture.missing", extra={"problem": str(error)})
            continue
        mime = _kind(content)
        if mime:
            found[path] = Picture(mime, base64.b64encode(content).decode())
    return found


def _kind(content: bytes) -> str:
    """Return the media type by the content: the sender's claim proves nothing."""
    if content[:4] == b"RIFF" and content[8:12] == b"WEBP":
        return "image/webp"
    return next((mime for sign, mime in _SIGNS if content.startswith(sign)), "")
