"""Writes Markdown as Telegram shows it: plain text, and entities that say how parts of it look."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from adapters.markdown import (
    LONGEST,
    Block,
    Code,
    Heading,
    Link,
    Listing,
    Mark,
    Paragraph,
    Quote,
    Span,
    Style,
    Table,
    Weight,
    parse,
    split,
)
from adapters.markdown.table import aligned
from adapters.telegram.text import LIMIT, clean, units
from adapters.telegram.text import pieces as cut

MOST_ENTITIES = 100
"""The platform ignores formatting beyond (libraries 3c)."""

SHORT = 150
"""Characters up to which a text needs no look to see that it fits, however it grows when it is shown."""

MOST_MENTIONS = 5
"""Names in one message that become links, and so ring somebody's phone (attack markdown-004)."""

LONG_QUOTE = 600
"""UTF-16 units above which a quote is folded."""

_SIGN = re.compile(r"[*_~`|<>\[\]\\&#]")
_LINE = re.compile(r"[ \t]*(?:[-+=]|\d{1,9}[.)](?:[ \t]|$))|[ ]{4}|[ ]*\t")
_LATER_LINE = re.compile(rf"\n(?:{_LINE.pattern})", re.MULTILINE)
"""Signs without which a text is no Markdown: anywhere, and at the beginning of a line."""

_MENTION = re.compile(r"(?<![A-Za-z0-9_@])@(?=[A-Za-z0-9_]{3})")
_WORD_JOINER = "\u2060"

_MOST: Final = Weight(LIMIT, MOST_ENTITIES)

_RANK = ("pre", "text_link", "expandable_blockquote", "blockquote", "code", "spoiler", "bold", "italic")
"""The kinds of entity, the most important first."""


@dataclass(frozen=True, slots=True)
class Entity:
    """How a part of a text looks; `offset` and `length` count UTF-16 units (Bot API MessageEntity)."""

    kind: str
    offset: int
    length: int
    url: str = ""
    language: str = ""


@dataclass(frozen=True, slots=True)
class Rendered:
    """A text and its entities, the outer ones first."""

    text: str
    entities: tuple[Entity, ...] = ()


def is_plain(text: str) -> bool:
    """Whether a text has no sign that Markdown could mean."""
    return not (_SIGN.search(text) or _LINE.match(text) or _LATER_LINE.search(text))


def render(text: str) -> Rendered:
    """Return what people see of a Markdown text; one that would show nothing is shown as it is."""
    text = clean(text)
    if is_plain(text):
        return Rendered(_Mentions(MOST_MENTIONS).limited(text))
    found = _rendered(text)
    if len(found.entities) <= MOST_ENTITIES:
        return found
    kept = set(sorted(found.entities, key=_importance)[:MOST_ENTITIES])
    return Rendered(found.text, tuple(one for one in found.entities if one in kept))


def pieces(text: str) -> tuple[str, ...]:
    """Cut a Markdown text into pieces that one message can hold; the same text gives the same pieces.

    Each piece is Markdown by itself: code blocks are opened again with their language, tables with their
    head, emphasis with its signs (spec ST-9, ST-10). Nothing but white space is lost at a cut.
    """
    text = clean(text)
    if not text.strip():
        return ()
    if len(text) <= SHORT:
        return (text,)
    if is_plain(text) and text.count("@") <= MOST_MENTIONS:
        return tuple(cut(text))
    if len(text) > LONGEST:
        return tuple(piece for part in cut(text) for piece in pieces(part))
    if _weight(_rendered(text)).fits(_MOST):
        return (text,)
    return tuple(split(text, _weigh, _MOST, _shown)) or tuple(cut(text))


def _rendered(text: str) -> Rendered:
    found = render_blocks(parse(text))
    return found if found.text.strip() else Rendered(text)


def render_blocks(blocks: Sequence[Block], *, mentions: int = MOST_MENTIONS) -> Rendered:
    """Return what people see of some blocks; at most so many mentions become links."""
    out = _Out(_Mentions(mentions))
    out.blocks(blocks, ())
    return out.finished()


def _weigh(blocks: Sequence[Block]) -> Weight:
    return _weight(render_blocks(blocks, mentions=0))  # so that it weighs no less in any company


def _weight(rendered: Rendered) -> Weight:
    return Weight(units(rendered.text), len(rendered.entities))


def _shown(blocks: Sequence[Block]) -> str:
    return render_blocks(blocks, mentions=sys.maxsize).text


def _importance(entity: Entity) -> int:
    return _RANK.index(entity.kind) if entity.kind in _RANK else len(_RANK)


@dataclass(slots=True)
class _Mentions:
    """Breaks the mentions beyond the first few with a character that nobody sees."""

    left: int

    def limited(self, text: str) -> str:
        """Return a text that rings no more phones than are left."""
        return _MENTION.sub(self._mention, text) if "@" in text else text

    def one_more(self) -> bool:
        """Whether there may be another, which counts then."""
        self.left -= 1
        return self.left >= 0

    def _mention(self, _match: re.Match[str]) -> str:
        return "@" if self.one_more() else f"@{_WORD_JOINER}"


_Open: TypeAlias = tuple[str, str]
"""A kind of entity and its detail: the address of a link, the language of code."""

_KINDS = {
    Style.BOLD: "bold",
    Style.ITALIC: "italic",
    Style.STRIKE: "strikethrough",
    Style.SPOILER: "spoiler",
}
_QUOTE: _Open = ("blockquote", "")
_BOLD: _Open = ("bold", "")


@dataclass(slots=True)
class _Out:
    """Text with entities in the making: those that are open end where the next text has them no more.

    `length` counts UTF-16 units, `solid` the texts that were not only space.
    """

    mentions: _Mentions
    parts: list[str] = field(default_factory=list)
    length: int = 0
    entities: list[Entity] = field(default_factory=list)
    solid: int = 0
    opened: list[tuple[_Open, int, int]] = field(default_factory=list)
    prefix: str = ""
    at_start: bool = True

    def finished(self) -> Rendered:
        """Close everything."""
        self._reopen(())
        self.entities.reverse()  # the inner ones have ended first
        order = sorted(self.entities, key=lambda one: (one.offset, -one.length))
        return Rendered("".join(self.parts), tuple(order))

    def blocks(self, blocks: Sequence[Block], around: tuple[_Open, ...]) -> None:
        """Write blocks, each on lines of its own."""
        for number, block in enumerate(blocks):
            if number:
                self._new_line(around, 2 if block.source.apart else 1)
            self._block(block, around)

    def _block(self, block: Block, around: tuple[_Open, ...]) -> None:
        match block:
            case Paragraph(spans=spans):
                self._line(spans, around)
            case Heading(spans=spans):
                self._line(spans, (*around, _BOLD))
            case Code():
                self._write(block.text, (*_quotes(around), ("pre", block.language)))
            case Quote(blocks=blocks):
                self.blocks(blocks, around if _QUOTE in around else (*around, _QUOTE))
            case Listing():
                self._listing(block, around)
            case Table():
                self._write(aligned(block), (*_quotes(around), ("pre", "")))
            case _:
                self._write("———", around)

    def _listing(self, block: Listing, around: tuple[_Open, ...]) -> None:
        for number, item in enumerate(block.items):
            if number:
                self._new_line(around, 2 if item.apart else 1)
            sign = "•" if block.start is None else f"{block.start + number}."
            if item.done is not None:
                sign = "☑" if item.done else "☐"
            self._write(f"{sign} ", around)
            self.prefix += "  "
            self.blocks(item.blocks, around)
            self.prefix = self.prefix[2:]

    def _line(self, spans: Sequence[Span], around: tuple[_Open, ...]) -> None:
        for span in spans:
            # An address that is its own text becomes a link by itself.
            marks = [mark for mark in span.marks if mark != Link(span.text)]
            self._write(span.text, _opens(marks, around))

    def _new_line(self, around: tuple[_Open, ...], number: int) -> None:
        self._reopen(around)
        self._put("\n" * number)
        self.at_start = True

    def _write(self, text: str, opens: tuple[_Open, ...]) -> None:
        if not text:
            return
        if not opens or opens[-1][0] not in ("pre", "code"):
            text = self.mentions.limited(text).replace("\n", f"\n{self.prefix}")
            if self.at_start and self.prefix:
                self._reopen(())
                self._put(self.prefix)
        self._reopen(opens)
        self._put(text)
        self.at_start = False

    def _put(self, text: str) -> None:
        self.parts.append(text)
        self.length += units(text)
        self.solid += bool(text.strip())

    def _reopen(self, opens: Sequence[_Open]) -> None:
        """End the entities that do not go on, the inner ones first, and begin the new ones."""
        same = 0
        while same < min(len(opens), len(self.opened)) and self.opened[same][0] == opens[same]:
            same += 1
        while len(self.opened) > same:
            (kind, detail), start, solid = self.opened.pop()
            if self.solid > solid:  # else there is nothing but space
                self._ended(kind, detail, start)
        self.opened += [(one, self.length, self.solid) for one in opens[same:]]

    def _ended(self, kind: str, detail: str, start: int) -> None:
        length = self.length - start
        match kind:
            case "text_link" if detail.lower().startswith("tg://user") and not self.mentions.one_more():
                pass
            case "text_link":
                self.entities.append(Entity(kind, start, length, url=detail))
            case "pre":
                self.entities.append(Entity(kind, start, length, language=detail))
            case "blockquote" if length > LONG_QUOTE:
                self.entities.append(Entity("expandable_blockquote", start, length))
            case _:
                self.entities.append(Entity(kind, start, length))


def _opens(marks: Sequence[Mark], around: tuple[_Open, ...]) -> tuple[_Open, ...]:
    """Return the entities for marks, as far as they may be within each other (Bot API, Formatting options).

    Code holds nothing and is in nothing but a quote, and a link is worth more than its font.
    """
    if Style.CODE in marks and not any(isinstance(mark, Link) for mark in marks):
        return (*_quotes(around), ("code", ""))
    opens = [_opened(mark) for mark in marks if mark is not Style.CODE]
    return (*around, *(one for one in opens if one not in around))


def _quotes(around: tuple[_Open, ...]) -> tuple[_Open, ...]:
    return tuple(one for one in around if one == _QUOTE)


def _opened(mark: Mark) -> _Open:
    return ("text_link", mark.address) if isinstance(mark, Link) else (_KINDS[mark], "")
