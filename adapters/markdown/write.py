"""Writes a tree as Markdown that `parse` reads as the same tree, as far as emphasis allows."""

from __future__ import annotations

import re
from collections.abc import Sequence

from adapters.markdown.tree import (
    Block,
    Code,
    Heading,
    Item,
    Link,
    Listing,
    Mark,
    Paragraph,
    Quote,
    Span,
    Style,
    Table,
)

_ENDS = {Style.BOLD: "**", Style.ITALIC: "*", Style.STRIKE: "~~", Style.SPOILER: "||"}
_SPECIAL = re.compile(r"[\\`*_\[\]<>&|~#]")
_AT_START = re.compile(r"^[ \t]*(?:(\d{1,9})(?=[.)])|(?=[-+=]))", re.MULTILINE)


def write(blocks: Sequence[Block]) -> str:
    """Return the source of some blocks."""
    parts: list[str] = []
    other = False
    for number, block in enumerate(blocks):
        # A list right behind a list of the same kind needs another sign, or both would be one.
        before = blocks[number - 1] if number else None
        other = isinstance(before, Listing) and isinstance(block, Listing) and not other
        if number:
            parts.append("\n\n" if block.source.apart else "\n")
        parts.append(_block(block, other=other))
    return "".join(parts)


def escaped(text: str) -> str:
    """Return the source of a text in which every character means itself; lines lose their indentation."""
    return _AT_START.sub(lambda match: f"{match[1] or ''}\\", _SPECIAL.sub(r"\\\g<0>", text))


def _block(block: Block, *, other: bool) -> str:
    match block:
        case Paragraph(spans=spans):
            return _line(spans)
        case Heading(level=level, spans=spans):
            text = _line(spans)
            return f"{text}\n{'=-'[level > 1]}" if "\n" in text else f"{'#' * level} {text}"
        case Code():
            return _code(block)
        case Quote(blocks=blocks):
            return "\n".join(f"> {line}" for line in write(blocks).split("\n"))
        case Listing():
            return _listing(block, other=other)
        case Table():
            return _table(block)
        case _:
            return "***"


def _code(block: Code) -> str:
    sign = "~" if "`" in block.info else "`"
    runs = re.findall(rf"{sign}+", block.text)
    fence = sign * max(3, *(len(run) + 1 for run in runs)) if runs else sign * 3
    return f"{fence}{block.info}\n{block.text}\n{fence}"


def _listing(block: Listing, *, other: bool) -> str:
    lines: list[str] = []
    for number, item in enumerate(block.items):
        if block.start is None:
            sign = "*" if other else "-"
        else:
            sign = f"{block.start + number}{')' if other else '.'}"
        if number:
            lines.append("\n\n" if item.apart else "\n")
        lines.append(_item(item, sign))
    return "".join(lines)


def _item(item: Item, sign: str) -> str:
    box = "" if item.done is None else "[x] " if item.done else "[ ] "
    text = box + write(item.blocks)
    indent = " " * (len(sign) + 1)
    return f"{sign} {text}".replace("\n", f"\n{indent}") if text else sign


def _table(block: Table) -> str:
    columns = range(len(block.rows[0]))
    dashes = "|".join("---:" if column in block.right else "---" for column in columns)
    rows = ["|".join(_line(cell).replace("\n", " ") for cell in row) for row in block.rows]
    return "\n".join(f"|{row}|" for row in (rows[0], dashes, *rows[1:]))


def _line(spans: Sequence[Span]) -> str:
    out: list[str] = []
    opened: list[Mark] = []
    for span in (*spans, Span("")):
        marks: list[Mark] = [mark for mark in span.marks if mark is not Style.CODE]
        same = 0
        while same < min(len(opened), len(marks)) and opened[same] == marks[same]:
            same += 1
        out += [_close(mark) for mark in reversed(opened[same:])]
        out += [_open(mark) for mark in marks[same:]]
        opened = marks
        out.append(_code_span(span.text) if Style.CODE in span.marks else escaped(span.text))
    return "".join(out)


def _open(mark: Mark) -> str:
    return "[" if isinstance(mark, Link) else _ENDS[mark]


def _close(mark: Mark) -> str:
    if isinstance(mark, Link):
        address = re.sub(r"[<>\\]", r"\\\g<0>", mark.address.replace("\n", " "))
        return f"](<{address}>)"
    return _ENDS[mark]


def _code_span(text: str) -> str:
    runs = {len(run) for run in re.findall(r"`+", text)}
    ends = "`" * next(length for length in range(1, len(runs) + 2) if length not in runs)
    room = " " if text.startswith(("`", " ")) or text.endswith(("`", " ")) else ""
    return f"{ends}{room}{text}{room}{ends}"
