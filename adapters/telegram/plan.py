"""Decides which requests deliver a message with its files and buttons; pure."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import PurePosixPath
from typing import Final, TypeAlias

from adapters.telegram.render import Rendered, pieces, render
from adapters.telegram.text import units
from gateway.types import Attachment, Button, Media, Outgoing

log = logging.getLogger(__name__)

CAPTION = 1024
"""UTF-16 units of text below a file (Bot API sendPhoto)."""

ALBUM = 10
"""Files in one album (Bot API sendMediaGroup)."""

LARGEST = 50_000_000
"""Bytes of a file, and of all in one request, that a bot can send (Bot API, Sending files)."""

_LARGEST_PHOTO = 10_000_000
_DATA = 64
"""Bytes that a button can hand back (Bot API InlineKeyboardButton)."""

Keyboard: TypeAlias = tuple[tuple[Button, ...], ...]


class Form(StrEnum):
    """How the platform shows a file."""

    PHOTO = "photo"
    ANIMATION = "animation"
    VIDEO = "video"
    AUDIO = "audio"
    VOICE = "voice"
    DOCUMENT = "document"


_ALBUMS = {Form.PHOTO: 1, Form.VIDEO: 1, Form.AUDIO: 2, Form.DOCUMENT: 3}
"""Which forms can be in one album (Bot API sendMediaGroup); those without a number are alone."""


@dataclass(frozen=True, slots=True)
class File:
    """A file as it leaves."""

    form: Form
    name: str
    content: bytes


NO_TEXT: Final = Rendered("")


@dataclass(frozen=True, slots=True)
class Step:
    """One request: a text, a file with a caption, or an album."""

    text: Rendered = NO_TEXT
    files: tuple[File, ...] = ()
    buttons: Keyboard = ()


def file_of(attachment: Attachment, content: bytes) -> File:
    """Choose the form in which a file is sent, by its content rather than by its name (spec TG-22)."""
    name = attachment.name or PurePosixPath(attachment.path).name or "file"
    return File(_form(attachment.kind, PurePosixPath(name).suffix.lower(), content), name, content)


def _form(kind: Media, suffix: str, content: bytes) -> Form:
    match kind:
        case Media.IMAGE if content[:6] in (b"GIF87a", b"GIF89a"):
            return Form.ANIMATION
        case Media.IMAGE if _is_photo(content) and len(content) <= _LARGEST_PHOTO:
            return Form.PHOTO
        case Media.VOICE if content[:4] == b"OggS" and b"OpusHead" in content[:80]:
            return Form.VOICE
        case Media.VOICE | Media.AUDIO if suffix in (".mp3", ".m4a"):
            return Form.AUDIO
        case Media.VIDEO if suffix == ".mp4":
            return Form.VIDEO
        case _:
            return Form.DOCUMENT


def _is_photo(content: bytes) -> bool:
    webp = content[:4] == b"RIFF" and content[8:12] == b"WEBP"
    return webp or content.startswith((b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n"))


def plan(message: Outgoing, files: Sequence[File]) -> tuple[Step, ...]:
    """Return the requests in their order.

    A short text is the caption of the first file, a longer one comes after all of them. A text that
    does not fit into one message is cut again. Buttons are below the last thing that can have them.
    """
    albums = [Step(files=tuple(group)) for group in _groups(files)]
    steps = [*albums, *(Step(render(piece)) for piece in pieces(message.text))]
    if albums and len(steps) == len(albums) + 1 and units(steps[-1].text.text) <= CAPTION:
        steps = [replace(albums[0], text=steps[-1].text), *albums[1:]]
    if not message.buttons:
        return tuple(steps)
    keyboard = tuple(tuple(_fitting(button) for button in row) for row in message.buttons)
    if not steps or len(steps[-1].files) > 1:  # an album has no buttons
        steps.append(Step(Rendered("👇")))
    return (*steps[:-1], replace(steps[-1], buttons=keyboard))


def _groups(files: Sequence[File]) -> Iterator[Sequence[File]]:
    """Yield neighbours that can be one album."""
    for number, group in itertools.groupby(files, key=lambda file: _ALBUMS.get(file.form)):
        most = 1 if number is None else ALBUM
        album: list[File] = []
        for file in group:
            size = sum(len(one.content) for one in album) + len(file.content)
            if album and (len(album) == most or size > LARGEST):
                yield album
                album = []
            album.append(file)
        yield album


def _fitting(button: Button) -> Button:
    value = button.value.encode()
    if len(value) <= _DATA:
        return button
    problem = f"the value of a button has {len(value)} bytes; Telegram takes {_DATA}, the rest is cut off"
    log.error("telegram.button_cut", extra={"button": button.label, "problem": problem})
    return Button(button.label, value[:_DATA].decode("utf-8", "ignore"))
