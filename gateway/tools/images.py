"""What kind of picture a file is, and how large, from its first bytes: nothing is decoded."""

from __future__ import annotations

import struct
from dataclasses import dataclass

MAX_BYTES = 5_000_000
"""Size of one picture that is shown to a model; providers refuse larger ones."""

MAX_SIDE = 8_000
MAX_PIXELS = 40_000_000
"""A few kilobytes can unfold to gigabytes, here or at the provider (attack size-013)."""

_NAMES = {"image/png": "PNG", "image/jpeg": "JPEG", "image/gif": "GIF", "image/webp": "WebP"}
_NO_FRAME = {0xC4, 0xC8, 0xCC}


@dataclass(frozen=True, slots=True)
class Image:
    """A picture that models may be shown; `width` and `height` are 0 where the content hides them."""

    mime: str
    size: int
    width: int = 0
    height: int = 0

    def __str__(self) -> str:
        """Return e.g. `PNG, 800x600, 12345 bytes`."""
        sides = f"{self.width}x{self.height}, " if self.width else ""
        return f"{_NAMES[self.mime]}, {sides}{self.size} bytes"

    @property
    def problem(self) -> str:
        """Return why no model is shown it, "" if it can be."""
        if self.size > MAX_BYTES:
            return f"it is larger than {MAX_BYTES} bytes"
        if max(self.width, self.height) > MAX_SIDE or self.width * self.height > MAX_PIXELS:
            return f"it has more than {MAX_SIDE} pixels on a side, or {MAX_PIXELS} in all"
        return ""


def image_of(content: bytes) -> Image | None:
    """Return what picture this is by its content, None if it is none: a name or a claim proves nothing."""
    for sign, mime, sides in _KINDS:
        if content.startswith(sign) and (mime != "image/webp" or content[8:12] == b"WEBP"):
            try:
                width, height = sides(content)
            except (struct.error, IndexError):
                width, height = 0, 0
            return Image(mime, len(content), width, height)
    return None


def _png(content: bytes) -> tuple[int, int]:
    width, height = struct.unpack_from(">II", content, 16) if content[12:16] == b"IHDR" else (0, 0)
    return width, height


def _gif(content: bytes) -> tuple[int, int]:
    width, height = struct.unpack_from("<HH", content, 6)
    return width, height


def _webp(content: bytes) -> tuple[int, int]:
    match content[12:16]:
        case b"VP8X":
            return int.from_bytes(content[24:27], "little") + 1, int.from_bytes(content[27:30], "little") + 1
        case b"VP8L":
            (bits,) = struct.unpack_from("<I", content, 21)
            return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
        case _:
            width, height = struct.unpack_from("<HH", content, 26)
            return width & 0x3FFF, height & 0x3FFF


def _jpeg(content: bytes) -> tuple[int, int]:
    """Find the frame header among the segments in front of the picture."""
    at = 2
    while content[at] == 0xFF:
        marker = content[at + 1]
        if 0xC0 <= marker <= 0xCF and marker not in _NO_FRAME:
            height, width = struct.unpack_from(">HH", content, at + 5)
            return width, height
        at += 2 + struct.unpack_from(">H", content, at + 2)[0]
    return 0, 0


_KINDS = (
    (b"\x89PNG\r\n\x1a\n", "image/png", _png),
    (b"\xff\xd8\xff", "image/jpeg", _jpeg),
    (b"GIF8", "image/gif", _gif),
    (b"RIFF", "image/webp", _webp),
)
