"""What a Markdown text says: blocks of spans, each span with the marks around it."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TypeAlias


class Style(Enum):
    """How a span looks."""

    BOLD = "bold"
    ITALIC = "italic"
    STRIKE = "strike"
    SPOILER = "spoiler"
    CODE = "code"


@dataclass(frozen=True, slots=True)
class Link:
    """Where a span leads: an address of a scheme that is safe to press."""

    address: str


Mark: TypeAlias = Style | Link


@dataclass(frozen=True, slots=True)
class Span:
    """A run of text; `marks` are the outermost first, and none comes twice."""

    text: str
    marks: tuple[Mark, ...] = ()


Spans: TypeAlias = tuple[Span, ...]


@dataclass(frozen=True, slots=True)
class Source:
    """Which lines of the text a block takes (from, to), and whether a blank line is before it."""

    lines: tuple[int, int] = (0, 0)
    apart: bool = True


@dataclass(frozen=True, slots=True)
class Paragraph:
    """Lines of text."""

    spans: Spans
    source: Source = field(default=Source(), compare=False)


@dataclass(frozen=True, slots=True)
class Heading:
    """A title of level 1 to 6."""

    level: int
    spans: Spans
    source: Source = field(default=Source(), compare=False)


@dataclass(frozen=True, slots=True)
class Code:
    """Lines of code with no newline at the end; `info` is what stands behind the opening fence."""

    text: str
    info: str = ""
    source: Source = field(default=Source(), compare=False)

    @property
    def language(self) -> str:
        """Return the first word of `info`, or ""."""
        return self.info.split()[0] if self.info.split() else ""


@dataclass(frozen=True, slots=True)
class Quote:
    """What somebody else said."""

    blocks: tuple[Block, ...]
    source: Source = field(default=Source(), compare=False)


@dataclass(frozen=True, slots=True)
class Item:
    """An entry of a list; `done` is None unless it has a box to tick."""

    blocks: tuple[Block, ...]
    done: bool | None = None
    apart: bool = field(default=False, compare=False)


@dataclass(frozen=True, slots=True)
class Listing:
    """A list: numbered from `start`, or with bullets if that is None."""

    items: tuple[Item, ...]
    start: int | None = None
    source: Source = field(default=Source(), compare=False)


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of cells, all of the same length; the first row is the head. `right` are columns of numbers."""

    rows: tuple[tuple[Spans, ...], ...]
    right: frozenset[int] = frozenset()
    source: Source = field(default=Source(), compare=False)


@dataclass(frozen=True, slots=True)
class Rule:
    """A line across."""

    source: Source = field(default=Source(), compare=False)


Block: TypeAlias = Paragraph | Heading | Code | Quote | Listing | Table | Rule
