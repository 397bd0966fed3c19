"""Cuts a Markdown text into pieces, each complete by itself (spec ST-9, ST-10)."""

from __future__ import annotations

import bisect
import functools
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from adapters.markdown.parse import lines_of, parse
from adapters.markdown.tree import (
    Block,
    Code,
    Heading,
    Item,
    Listing,
    Paragraph,
    Quote,
    Span,
    Spans,
    Table,
)
from adapters.markdown.write import escaped, write

_SENTENCE = re.compile(r"[.!?…][\"')\]]*(?=\s)|[。！？]")
_GLUE = re.compile(r"[\u0300-\u036f\u200d\ufe0e\ufe0f\U0001f3fb-\U0001f3ff]")


@dataclass(frozen=True, slots=True)
class Weight:
    """How much of a message something takes: units of length, and pieces of formatting."""

    length: int
    marks: int = 0

    def __add__(self, other: Weight) -> Weight:
        return Weight(self.length + other.length, self.marks + other.marks)

    def fits(self, most: Weight) -> bool:
        """Whether it is no more than that."""
        return self.length <= most.length and self.marks <= most.marks


Weigh: TypeAlias = Callable[[Sequence[Block]], Weight]
"""Says what blocks weigh as the channel writes them; a blank line between two weighs up to `_GAP`."""

Fits: TypeAlias = Callable[[Block], bool]

T = TypeVar("T")

_GAP = Weight(2)


@dataclass(frozen=True, slots=True)
class _Part:
    """A block with its source; `written` is whether that is ours, `apart` whether it follows a blank line."""

    source: str
    block: Block
    weight: Weight
    apart: bool
    written: bool = False


def split(text: str, weigh: Weigh, most: Weight, shown: Callable[[Sequence[Block]], str]) -> list[str]:
    """Return pieces of the source of at most that weight, cut between blocks if possible.

    A block that is too large is cut inside: a list between its entries, a table between its rows (with
    its head on both sides), code between its lines, a paragraph at a sentence. `shown` is what people
    see of blocks; pieces that say nothing are left out, and so the result may be empty.
    """
    blocks = parse(text)
    if weigh(blocks).fits(most):
        return [text] if shown(blocks).strip() else []
    lines = lines_of(text)
    parts = [part for block in blocks for part in _parts(block, lines, weigh, most)]
    return [
        _checked(group, shown)
        for group in _packed(parts, [part.weight for part in parts], most)
        if shown([part.block for part in group]).strip()
    ]


def _parts(block: Block, lines: Sequence[str], weigh: Weigh, most: Weight) -> Iterator[_Part]:
    """Yield a block as it is, or cut."""
    weight = weigh((block,))
    if weight.fits(most):
        start, end = block.source.lines
        yield _Part("\n".join(lines[start:end]).rstrip("\n"), block, weight, block.source.apart)
        return
    apart = block.source.apart
    for piece in _divided(block, lambda one: weigh((one,)).fits(most), weigh, most):
        yield _Part(write((piece,)), piece, weigh((piece,)), apart, written=True)
        apart = True


def _packed(things: Sequence[T], weights: Sequence[Weight], most: Weight) -> Iterator[list[T]]:
    """Yield groups of neighbours that fit together; what is too heavy is alone."""
    group: list[T] = []
    total = Weight(0)
    for thing, weight in zip(things, weights, strict=True):
        if group and not (more := total + _GAP + weight).fits(most):
            yield group
            group, total = [thing], weight
        elif group:
            group.append(thing)
            total = more
        else:
            group, total = [thing], weight
    if group:
        yield group


def _checked(parts: Sequence[_Part], shown: Callable[[Sequence[Block]], str]) -> str:
    """Return the source of a piece; if ours would not be read as it was meant, its text without marks."""
    source = parts[0].source
    for part in parts[1:]:
        source += ("\n\n" if part.apart else "\n") + part.source
    if any(part.written for part in parts):
        meant = shown([part.block for part in parts])
        if "".join(shown(parse(source)).split()) != "".join(meant.split()):
            return escaped(meant)
    return source


def _divided(block: Block, fits: Fits, weigh: Weigh, most: Weight) -> Iterator[Block]:
    """Yield a block in parts that fit."""
    if fits(block):
        yield block
        return
    match block:
        case Paragraph(spans=spans):
            for part in _cut_spans(spans, lambda some: fits(Paragraph(some)), most):
                yield Paragraph(part)
        case Heading(level=level, spans=spans):
            for part in _cut_spans(spans, lambda some: fits(Heading(level, some)), most):
                yield Heading(level, part)
        case Code(info=info):
            for text in _cut_code(block.text, lambda some: fits(Code(some, info)), most):
                yield Code(text, info)
        case Quote(blocks=blocks):
            inner = [
                part for one in blocks for part in _divided(one, lambda it: fits(Quote((it,))), weigh, most)
            ]
            weights = [weigh((Quote((one,)),)) for one in inner]
            yield from (Quote(tuple(group)) for group in _packed(inner, weights, most))
        case Listing():
            yield from _divided_list(block, fits, weigh, most)
        case Table():
            yield from _divided_table(block, fits, weigh, most)
        case _:
            yield block


def _divided_list(block: Listing, fits: Fits, weigh: Weigh, most: Weight) -> Iterator[Block]:
    """Cut between entries; what follows in an entry that is too large itself goes on below the list."""
    numbered = [
        Listing((item,), None if block.start is None else block.start + number)
        for number, item in enumerate(block.items)
    ]
    small: list[Listing] = []
    for one in numbered:
        if fits(one):
            small.append(one)
            continue
        yield from _joined_lists(small, weigh, most)
        small = []
        yield from _opened(one, fits, weigh, most)
    yield from _joined_lists(small, weigh, most)


def _joined_lists(lists: Sequence[Listing], weigh: Weigh, most: Weight) -> Iterator[Block]:
    weights = [weigh((one,)) for one in lists]
    for group in _packed(lists, weights, most):
        yield Listing(tuple(item for one in group for item in one.items), group[0].start)


def _opened(one: Listing, fits: Fits, weigh: Weigh, most: Weight) -> Iterator[Block]:
    """Yield the beginning of a list's only entry as a list, and the rest as it is."""
    item = one.items[0]
    first, *rest = item.blocks

    def as_item(block: Block) -> Listing:
        return Listing((Item((block,), item.done),), one.start)

    head, *tail = _divided(first, lambda block: fits(as_item(block)), weigh, most)
    yield as_item(head)
    for block in (*tail, *rest):
        yield from _divided(block, fits, weigh, most)


def _divided_table(block: Table, fits: Fits, weigh: Weigh, most: Weight) -> Iterator[Block]:
    """Cut between rows; a table with a row too large for that becomes lines of text."""
    head, *rows = block.rows
    single = [Table((head, row), block.right) for row in rows]
    if not single or not all(fits(one) for one in single):
        for row in block.rows:
            spans = [span for cell in row for span in (*cell, Span(" | "))][:-1]
            yield from _divided(Paragraph(tuple(spans)), fits, weigh, most)
        return
    weights = [weigh((Table((row,), block.right),)) for row in rows]
    room = Weight(most.length - weigh((Table((head,), block.right),)).length, most.marks)
    for group in _packed(rows, weights, room):
        yield Table((head, *group), block.right)


def _cut_spans(spans: Spans, fits: Callable[[Spans], bool], most: Weight) -> Iterator[Spans]:
    """Yield spans in parts that fit, cut at the best place; white space at a cut is dropped."""
    several = max(4 * most.marks, 4)  # spans, of which at least every other one has marks
    while len(spans) > several or not fits(spans):
        near, far = spans[:several], spans[several:]
        text = "".join(span.text for span in near)
        room = _largest(min(len(text), most.length), functools.partial(_line_begins, near, fits))
        at = _place(text, room)
        if text[:at].strip():
            yield _slice(near, 0, len(text[:at].rstrip()))
        spans = _slice(near, len(text) - len(text[at:].lstrip()), len(text)) + far
    if spans:
        yield spans


def _line_begins(spans: Spans, fits: Callable[[Spans], bool], length: int) -> bool:
    return fits(_slice(spans, 0, length))


def _cut_code(text: str, fits: Callable[[str], bool], most: Weight) -> Iterator[str]:
    """Yield code in parts that fit, cut between lines if possible; every line keeps its indentation."""
    while not fits(text):
        room = _largest(min(len(text), most.length), functools.partial(_code_begins, text, fits))
        at = text.rfind("\n", room // 2, room + 1)
        yield text[:at] if at > 0 else text[:room]
        text = text[at + 1 :] if at > 0 else text[room:]
    yield text


def _code_begins(text: str, fits: Callable[[str], bool], length: int) -> bool:
    return fits(text[:length])


def _largest(most: int, fits: Callable[[int], bool]) -> int:
    """Return the largest length that fits, at least 1."""
    return max(1, bisect.bisect_left(range(1, most + 1), x=True, key=lambda length: not fits(length)))


def _place(text: str, room: int) -> int:
    """Return where to cut, at most at `room`: blank line, newline, sentence, space, anywhere (spec ST-9)."""
    half = room // 2
    for sign in ("\n\n", "\n"):
        if (at := text.rfind(sign, half, room + 1)) > 0:
            return at
    ends = [match.end() for match in _SENTENCE.finditer(text, half, room)]
    if ends:
        return ends[-1]
    if (at := text.rfind(" ", half, room + 1)) > 0:
        return at
    at = room  # but not inside of what is seen as one character
    while at > max(1, room - 30) and (_GLUE.match(text, at) or text[at - 1] == "\u200d"):
        at -= 1
    return at


def _slice(spans: Spans, start: int, end: int) -> Spans:
    """Return the spans of some characters of their text."""
    found: list[Span] = []
    at = 0
    for span in spans:
        text = span.text[max(0, start - at) : max(0, end - at)]
        if text:
            found.append(Span(text, span.marks))
        at += len(span.text)
    return tuple(found)
