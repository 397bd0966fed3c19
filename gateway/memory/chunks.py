"""A note cut into the pieces that are searched: by headings, then by size, with their lines."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

MOST = 1200
"""Bytes of a chunk: about 400 tokens (agent 11)."""

OVERLAP = 240
"""Bytes that a chunk repeats of the one before it: about 80 tokens."""

_SLICE = 400
_HEADING = re.compile(r" {0,3}(#{1,6})\s+(.*?)\s*#*\s*$")
_FENCE = re.compile(r" {0,3}(```|~~~)")


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of a note: its lines, counted from 1, and the headings above it, the outermost first."""

    first: int
    last: int
    text: str
    headings: str = ""


@dataclass(frozen=True, slots=True)
class _Line:
    number: int
    text: str

    @property
    def size(self) -> int:
        return len(self.text.encode("utf-8", "replace")) + 1


def chunks(text: str) -> list[Chunk]:
    """Cut a note; what is only blank gives no chunk."""
    return [
        Chunk(piece[0].number, piece[-1].number, "\n".join(line.text for line in piece), headings)
        for headings, lines in _sections(text)
        for piece in _pieces(lines)
        if any(line.text.strip() for line in piece)
    ]


def _sections(text: str) -> Iterator[tuple[str, list[_Line]]]:
    """Yield the lines between headings, each heading with what is below it."""
    path: list[tuple[int, str]] = []
    lines: list[_Line] = []
    above, fence = "", ""
    for number, line in enumerate(text.split("\n"), 1):
        if mark := _FENCE.match(line):
            fence = "" if fence == mark[1] else fence or mark[1]
        heading = None if fence else _HEADING.match(line)
        if heading:
            if lines:
                yield above, lines
            level = len(heading[1])
            path = [one for one in path if one[0] < level]
            above = " > ".join(title for _, title in path)
            path.append((level, heading[2]))
            lines = []
        lines += _sliced(number, line)
    yield above, lines


def _sliced(number: int, line: str) -> list[_Line]:
    """Return a line, or its parts if it is a chunk by itself."""
    if len(line) <= _SLICE:
        return [_Line(number, line)]
    return [_Line(number, line[at : at + _SLICE]) for at in range(0, len(line), _SLICE)]


def _pieces(lines: Sequence[_Line]) -> Iterator[Sequence[_Line]]:
    """Yield runs of lines of about MOST bytes that overlap by at most OVERLAP."""
    start = size = 0
    for at, line in enumerate(lines):
        if size and size + line.size > MOST:
            yield lines[start:at]
            start = _back(lines, at, start + 1)
            size = sum(one.size for one in lines[start:at])
        size += line.size
    yield lines[start:]


def _back(lines: Sequence[_Line], at: int, least: int) -> int:
    """Return where a chunk begins whose first new line is `at`."""
    size = 0
    while at > least and size + lines[at - 1].size <= OVERLAP:
        at -= 1
        size += lines[at].size
    return at
