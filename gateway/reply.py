"""What a reply asks for beside its words: files to send, a message to answer; pure."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import PurePosixPath
from urllib.parse import unquote

from gateway.types import Attachment, Media

MOST = 10
"""Files that one reply may send."""

_TAG = re.compile(r"\[\[\s*(reply_to_current|audio_as_voice|reply_to\s*:\s*([^\]\n]{1,80}))\s*\]\]", re.ASCII)
_LINK = re.compile(
    r"(!?)\[([^\]\n]{0,200})\]\(\s*"
    r"(?:<([^<>\n]{1,400})>|((?:[^()\s<>]|\([^()\s<>]{0,100}\)){1,400}))\s*\)"
)
"""A link; only `<…>` may hold spaces, and parentheses stand in pairs (CommonMark, link destinations)."""

_FENCE = re.compile(r" {0,3}(```|~~~)")
_ELSEWHERE = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*:|//|#")

_KINDS = {
    **dict.fromkeys((".png", ".jpg", ".jpeg", ".gif", ".webp"), Media.IMAGE),
    **dict.fromkeys((".mp3", ".m4a", ".wav", ".flac", ".ogg", ".opus", ".oga"), Media.AUDIO),
    **dict.fromkeys((".mp4", ".mov", ".webm", ".mkv"), Media.VIDEO),
}


@dataclass(frozen=True, slots=True)
class Composed:
    """A reply taken apart; `reply_to` is the id of the message it answers, "" for none."""

    text: str
    attachments: tuple[Attachment, ...] = ()
    reply_to: str = ""


def compose(text: str, *, current: str, has_file: Callable[[str], bool]) -> Composed:
    """Take a reply apart (spec NR-6, messaging 3, TG-22).

    A Markdown image or link to a file of the workspace sends that file; an image's line then
    disappears, a link keeps its words. `has_file` says whether a path names a file that may be sent;
    any other link stays as it is. `[[reply_to_current]]` answers `current`, `[[audio_as_voice]]` makes
    voice messages of audio files. Code is left alone.
    """
    if "](" not in text and "[[" not in text:
        return Composed(text)
    files: dict[str, Attachment] = {}
    reply_to, voice, fenced = "", False, False
    lines: list[str] = []
    for line in text.split("\n"):
        if _FENCE.match(line):
            fenced = not fenced
        if fenced or line.startswith(("    ", "\t")):
            lines.append(line)
            continue
        for tag in _TAG.finditer(line):
            voice = voice or tag[1] == "audio_as_voice"
            if tag[1] != "audio_as_voice":
                reply_to = (tag[2] or current).strip()
        kept = _LINK.sub(lambda link: _file(link, files, has_file), _TAG.sub("", line))
        if kept.strip() or not line.strip():
            lines.append(kept.rstrip() if kept != line else line)
    found = tuple(files.values())[:MOST]
    if voice:
        found = tuple(_spoken(one) for one in found)
    return Composed("\n".join(lines).strip("\n"), found, reply_to)


def _file(link: re.Match[str], files: dict[str, Attachment], has_file: Callable[[str], bool]) -> str:
    """Note the file that a link names; return what stays of the link."""
    bang, label, angled, bare = link.groups()
    target = angled or bare
    names = () if _ELSEWHERE.match(target) else (target, unquote(target))
    name = next(filter(has_file, names), None)
    if name is None:
        return link[0]
    found = files.setdefault(name, attachment(name))
    return "" if bang else label or found.name


def attachment(path: str) -> Attachment:
    """Return a file as it leaves; its name says what it is to people."""
    pure = PurePosixPath(path)
    return Attachment(kind=_KINDS.get(pure.suffix.lower(), Media.FILE), name=pure.name, path=path)


def _spoken(one: Attachment) -> Attachment:
    return Attachment(kind=Media.VOICE, name=one.name, path=one.path) if one.kind is Media.AUDIO else one
