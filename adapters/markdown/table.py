"""Writes a table as lines of equal columns, for places that show code in a font of equal characters."""

from __future__ import annotations

import functools
import unicodedata
from collections.abc import Sequence

from adapters.markdown.tree import Link, Span, Table

WIDEST = 40
"""Columns to which a cell is filled up; one very long cell must not make every row long."""


def aligned(table: Table) -> str:
    """Return a table as lines of equal columns; marks are dropped, addresses are told."""
    rows = [[_cell(cell) for cell in row] for row in table.rows]
    widths = [min(WIDEST, max(_columns(cell) for cell in column)) for column in zip(*rows, strict=True)]
    lines = [
        " | ".join(
            _filled(cell, width, right=number in table.right)
            for number, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
    lines.insert(1, "-+-".join("-" * width for width in widths))
    return "\n".join(lines)


def _cell(spans: Sequence[Span]) -> str:
    """Return a cell's text on one line; a link in it can't be pressed, so its address is told."""
    parts = []
    for number, span in enumerate(spans):
        parts.append(span.text)
        link = next((mark for mark in span.marks if isinstance(mark, Link)), None)
        goes_on = number + 1 < len(spans) and link in spans[number + 1].marks
        if link and not goes_on and link.address != span.text:
            parts.append(f" ({link.address})")
    return " ".join("".join(parts).split())


def _filled(cell: str, width: int, *, right: bool) -> str:
    room = " " * (width - _columns(cell))
    return room + cell if right else cell + room


def _columns(text: str) -> int:
    """Return how wide a text is in a font of equal characters (Unicode East Asian Width)."""
    return len(text) if text.isascii() else sum(map(_width, text))


@functools.lru_cache(maxsize=1024)
def _width(char: str) -> int:
    if unicodedata.category(char) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1
