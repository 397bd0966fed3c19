"""Text as platforms can hold it: no broken characters, and the source of Markdown in pieces of any size."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

Window: TypeAlias = Callable[[str, int], str]
"""Returns as much of the beginning of a text as fits into so many units, with no half of a character."""

_FENCE = re.compile(r"[ \t]{0,40}(?P<mark>`{3,20}(?=[^`]*$)|~{3,20}(?!~)).{0,200}")
"""A line that opens a code block; a stranger one is treated as text, so that there is always room for it."""

_SENTENCE = re.compile(r"[.!?…][\"')\]]*(?=\s)|[。！？]")
_BLANK_LINES = re.compile(r"(?:[ \t]*\n)+")


def clean(text: str) -> str:
    """Drop NUL and replace lone surrogates: no database and no platform takes them (text-009, text-010)."""
    if not text.isascii():
        text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text.replace("\0", "")


def characters(text: str, most: int) -> str:
    """Return the first characters."""
    return text[:most]


def cut(
    rest: str, most: int, *, units: Callable[[str], int] = len, window: Window = characters
) -> Iterator[str]:
    """Yield pieces of at most `most` units, and some 25 more where a code block is closed.

    Cuts at a blank line, else a newline, a sentence, a space, or anywhere (spec ST-9), and drops only
    white space there. A code block that is cut is closed, and opened again with the same line.
    """
    fence = ""
    while rest.strip():
        head = f"{fence}\n" if fence else ""
        room = most - units(head)
        if units(rest) <= room:
            yield head + rest
            return
        best = _best(window(rest, room), fence)
        body, rest = rest[: best.at], rest[best.at :]
        if best.fence:
            yield head + body.removesuffix("\n") + "\n" + _mark(best.fence)
        elif body.strip():
            yield head + body.rstrip()
        fence = best.fence
        if fence and body.endswith("\n"):
            rest, fence = _without_closing(rest, fence)
        if not fence:
            rest = _without_space(rest, whole_lines=body.endswith("\n"))


@dataclass(frozen=True, slots=True)
class _Cut:
    """A place to cut. The opening line `fence` is set when it is inside of a code block."""

    at: int
    rank: int
    fence: str = ""


def _best(window: str, fence: str) -> _Cut:
    """Return the best place in `window`, which begins inside of `fence`: one of the second half, if any."""
    half = len(window) // 2
    return max(_cuts(window, fence), key=lambda cut: (cut.rank > 0, cut.at > half, cut.rank, cut.at))


def _cuts(window: str, fence: str) -> Iterator[_Cut]:
    """Yield places: 5 blank line, 4 newline, 3 newline in a code block, 2 sentence, 1 space, 0 anywhere."""
    first = len(window) - len(window.lstrip())
    start = 0
    while (end := window.find("\n", start) + 1) > 0:
        line = window[start : end - 1]
        before, fence = fence, _after(line, fence)
        if fence and not before:  # a block that begins here is better cut before than behind its first line
            at, rank = start, 4
        else:
            at, rank = end, 3 if fence else 4 if line.strip() else 5
        if at > first:
            yield _Cut(at, rank, fence if before else "")
        start = end
    if not fence:
        sentences = [match.end() for match in _SENTENCE.finditer(window, start)]
        yield from (_Cut(at, 2) for at in sentences[-1:])
        if (space := window.rfind(" ", start) + 1) > first:
            yield _Cut(space, 1)
    yield _Cut(len(window), 0, fence)


def _after(line: str, fence: str) -> str:
    """Return the line that opened the code block in which the text behind `line` is, or ""."""
    if fence:
        closes = re.fullmatch(rf"[ \t]*{re.escape(_mark(fence))}{re.escape(_mark(fence)[0])}*\s*", line)
        return "" if closes else fence
    return line if _FENCE.fullmatch(line) else ""


def _mark(fence: str) -> str:
    """Return the characters that close the block."""
    match = _FENCE.fullmatch(fence)
    return match["mark"] if match else ""


def _without_closing(rest: str, fence: str) -> tuple[str, str]:
    """Drop the line that closes the block if it is next, for the piece before has closed it."""
    line, _, behind = rest.partition("\n")
    return (rest, fence) if _after(line, fence) else (behind, "")


def _without_space(rest: str, *, whole_lines: bool) -> str:
    """Drop white space at a cut, but not the indentation of a line."""
    rest = rest if whole_lines else rest.lstrip(" \t")
    match = _BLANK_LINES.match(rest)
    return rest[match.end() :] if match else rest
