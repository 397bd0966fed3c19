"""What a server's tool brought, as text for the model and files in the conversation's folder."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import mimetypes
from pathlib import Path
from typing import TYPE_CHECKING

from gateway.errors import ToolError
from gateway.fence import defuse, fenced
from gateway.tools.base import Output
from gateway.tools.files import prune, save
from gateway.tools.images import image_of
from gateway.types import BROUGHT, Attachment, Media

if TYPE_CHECKING:  # the library is there only when a server is wanted
    from mcp_types import CallToolResult

MAX_FILES = 200
MAX_PARTS = 100
MAX_PICTURES = 4
MAX_BYTES = 20_000_000
MAX_TEXT = 1_000_000
"""Characters of a result; the model sees both ends, and the rest lies in a file."""

_MAX_ERROR = 1500


def output(result: CallToolResult, server: str, folder: Path) -> Output:
    """Return a result for the model, its pictures and other files stored beneath `folder`.

    To be called where nobody waits for it: it writes files.

    Raises: ToolError, with what the server said, when the tool has failed.
    """
    parts = _Parts(folder)
    for one in result.content[:MAX_PARTS]:
        match one.type:
            case "text":
                parts.texts.append(one.text)
            case "image" | "audio":
                parts.file(one.data, one.mime_type, one.type)
            case "resource_link":
                parts.texts.append(f"[link: {one.name}, {one.uri}]")
            case "resource":
                text, blob = getattr(one.resource, "text", None), getattr(one.resource, "blob", None)
                if text is not None:
                    parts.texts.append(f"[{one.resource.uri}]\n{text}")
                elif blob is not None:
                    parts.file(blob, one.resource.mime_type or "", one.resource.uri)
    if not result.content and result.structured_content is not None:
        parts.texts.append(json.dumps(result.structured_content, ensure_ascii=False))
    if more := len(result.content) - MAX_PARTS:
        parts.texts += [f"[{more} more parts are left out]"] if more > 0 else []
    text = "\n\n".join(parts.texts)
    source = f"result of the MCP server {server}"
    if result.is_error:
        raise ToolError(fenced(text[:_MAX_ERROR] or "it failed and gave no reason", source))
    if len(text) > MAX_TEXT:
        text = f"{text[:MAX_TEXT]}\n\n[{len(text) - MAX_TEXT} more characters are left out]"
    return Output(fenced(text or "(no output)", source), tuple(parts.pictures))


class _Parts:
    """Collects the texts and the pictures of one result."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.texts: list[str] = []
        self.pictures: list[Attachment] = []

    def file(self, data: str, mime: str, what: str) -> None:
        """Store what is no text; models that see are shown the pictures."""
        try:
            content = base64.b64decode(data, validate=True)
        except (binascii.Error, ValueError):
            self.texts.append("[a file that could not be read]")
            return
        if len(content) > MAX_BYTES:
            self.texts.append(f"[a file of {len(content)} bytes, which is too large to keep]")
            return
        image = image_of(content)
        mime = image.mime if image else mime.partition(";")[0].strip().lower()
        name = f"{hashlib.sha256(content).hexdigest()[:16]}{_suffix(mime)}"
        path = f"{BROUGHT}/{name}"
        save(self._folder, path, content)
        prune(self._folder, BROUGHT, MAX_FILES)
        if image is None or image.problem or len(self.pictures) >= MAX_PICTURES:
            self.texts.append(f"[{defuse(what)[:200]}: {len(content)} bytes, in {path}]")
            return
        self.texts.append(f"[{image}, in {path}; shown to models that can look at pictures]")
        picture = Attachment(kind=Media.IMAGE, name=name, mime=mime, size=len(content), path=path)
        self.pictures.append(picture)


def _suffix(mime: str) -> str:
    return mimetypes.guess_extension(mime, strict=True) or ".bin"
