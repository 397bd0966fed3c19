"""Pictures that people sent or tools brought, as the model gets to see them."""

from __future__ import annotations

import base64
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path

from gateway.errors import ToolError
from gateway.models.base import Picture
from gateway.tools.files import load
from gateway.tools.images import MAX_BYTES, image_of
from gateway.types import AssistantEntry, Entry, Media, ToolEntry, UserEntry

log = logging.getLogger(__name__)

TURNS = 3
"""Turns whose pictures are shown again; of older ones only the line with the path stays (agent 2.2)."""

MOST = 8
"""Pictures in one prompt."""


def recent(entries: Sequence[Entry]) -> list[str]:
    """Return the paths of the pictures of the last turns, the newest last."""
    paths: list[str] = []
    ended = 0
    for entry in reversed(entries):
        if isinstance(entry, AssistantEntry) and not entry.calls:
            ended += 1
            if ended > TURNS:
                break
        elif isinstance(entry, UserEntry | ToolEntry):
            paths += [one.path for one in reversed(entry.attachments) if one.kind is Media.IMAGE and one.path]
    return paths[:MOST][::-1]


def pictures(workspace: Path, paths: Sequence[str]) -> Mapping[str, Picture]:
    """Read pictures beneath the workspace; one that can't be read or shown is left out."""
    found: dict[str, Picture] = {}
    for path in paths:
        try:
            content = load(workspace, path, MAX_BYTES)
        except ToolError as error:
            log.info("picture.missing", extra={"problem": str(error)})
            continue
        image = image_of(content)
        if image is None or image.problem:
            log.info("picture.left_out", extra={"problem": image.problem if image else "it is none"})
            continue
        found[path] = Picture(image.mime, base64.b64encode(content).decode())
    return found
