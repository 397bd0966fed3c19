"""Reads Markdown into what a document is made of; needs markdown-it-py."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from markdown_it import MarkdownIt
from markdown_it.token import Token


@dataclass(frozen=True, slots=True)
class Span:
    """A piece of text of one look; `link` is an address or ""."""

    text: str
    bold: bool = False
    italic: bool = False
    code: bool = False
    link: str = ""


Spans: TypeAlias = Sequence[Span]


@dataclass(frozen=True, slots=True)
class Text:
    """A heading (`level` 1-6) or a paragraph (0), which may be a quote."""

    spans: Spans
    level: int = 0
    quote: bool = False


@dataclass(frozen=True, slots=True)
class Item:
    """A paragraph of a list. `depth` is from 0; `sign` is "•", "3." or "" for all but an item's first one.

    `key` is the same for all items of one list.
    """

    spans: Spans
    depth: int
    sign: str
    key: int


@dataclass(frozen=True, slots=True)
class Code:
    """Lines as they are."""

    text: str


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of cells, all of the same number; the first row is the head."""

    rows: Sequence[Sequence[Spans]]


@dataclass(frozen=True, slots=True)
class Rule:
    """A line across."""


Block: TypeAlias = Text | Item | Code | Table | Rule


@dataclass(slots=True)
class _List:
    key: int
    number: int | None
    fresh: bool = True


@dataclass(slots=True)
class _Reader:
    lists: list[_List] = field(default_factory=list)
    quotes: int = 0
    level: int = 0
    rows: list[list[Spans]] | None = None
    seen: int = 0

    def take(self, token: Token) -> Iterator[Block]:
        kind = token.type
        if kind == "inline":
            yield from self._inline(_spans(token.children or []))
        elif kind in {"fence", "code_block", "html_block"}:
            yield Code(token.content.rstrip("\n"))
        elif kind == "hr":
            yield Rule()
        elif kind == "table_close" and self.rows is not None:
            yield Table(self.rows)
            self.rows = None
        else:
            self._enter(kind, token)

    def _enter(self, kind: str, token: Token) -> None:
        if kind in {"bullet_list_open", "ordered_list_open"}:
            self.seen += 1
            start = int(token.attrs.get("start", 1)) if kind.startswith("ordered") else None
            self.lists.append(_List(self.seen, start))
        elif kind in {"bullet_list_close", "ordered_list_close"}:
            self.lists.pop()
        elif kind == "list_item_open":
            self.lists[-1].fresh = True
        elif kind in {"blockquote_open", "blockquote_close"}:
            self.quotes += token.nesting
        elif kind in {"heading_open", "heading_close"}:
            self.level = int(token.tag[1]) if token.nesting == 1 else 0
        elif kind == "table_open":
            self.rows = []
        elif kind == "tr_open" and self.rows is not None:
            self.rows.append([])

    def _inline(self, spans: Spans) -> Iterator[Block]:
        if self.rows is not None:
            self.rows[-1].append(spans)
        elif self.lists and not self.level:
            current = self.lists[-1]
            yield Item(spans, len(self.lists) - 1, _sign(current), current.key)
        else:
            yield Text(spans, self.level, quote=self.quotes > 0)


def blocks(markdown: str) -> Iterator[Block]:
    """Yield the blocks of a text in their order; markup in HTML is kept as text."""
    reader = _Reader()
    for token in MarkdownIt("commonmark", {"html": False}).enable("table").parse(markdown):
        yield from reader.take(token)


def _sign(current: _List) -> str:
    if not current.fresh:
        return ""
    current.fresh = False
    if current.number is None:
        return "•"
    current.number += 1
    return f"{current.number - 1}."


def _spans(tokens: Sequence[Token]) -> list[Span]:
    look, found = Span(""), []
    for token in tokens:
        opens = token.nesting == 1
        if token.tag == "strong":
            look = replace(look, bold=opens)
        elif token.tag == "em":
            look = replace(look, italic=opens)
        elif token.tag == "a":
            look = replace(look, link=str(token.attrs.get("href", "")) if opens else "")
        elif token.type == "code_inline":
            found.append(replace(look, text=token.content, code=True))
        elif token.type in {"softbreak", "hardbreak"}:
            found.append(replace(look, text=" " if token.type == "softbreak" else "\n"))
        elif token.type == "image":
            found.append(replace(look, text=f"[picture: {token.content}]"))
        elif token.content:
            found.append(replace(look, text=token.content))
    return found
