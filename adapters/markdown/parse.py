"""Reads Markdown into a tree, with the departures from CommonMark that a model's answers need.

- Raw HTML is text; only `<details>` is taken away, and its `<summary>` is bold.
- Emphasis works beside Chinese, Japanese and Korean punctuation, where CommonMark sees no word border.
- An address in plain text keeps every character, and `||text||` is a spoiler.
- There are no reference definitions: they would act across pieces, and hide `[^1]: a note` (spec ST-10).
"""

from __future__ import annotations

import functools
import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from markdown_it import MarkdownIt
from markdown_it.parser_inline import ParserInline
from markdown_it.rules_block.table import escapedSplit
from markdown_it.rules_inline.state_inline import Scanned, StateInline
from markdown_it.token import Token
from markdown_it.utils import EnvType

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
    Rule,
    Source,
    Span,
    Spans,
    Style,
    Table,
)

LONGEST = 16_000
"""Characters above which a text is not read as Markdown: a thousand take 2 ms, and 10 ms at the worst."""

DEEPEST = 24
"""Levels of lists and quotes within each other (two for each list) above which the text stays as it is."""

_LONGEST_ADDRESS = 2000
_SAFE = re.compile(r"(?:https?://|mailto:|tg://)[^\s]", re.IGNORECASE)
_ADDRESS = re.compile(r"://[A-Za-z0-9_][^\s<>\"`|\\\\^{}\x7f-\U0010ffff]*")
_PAIRS = re.compile(r"(\|\||</?summary>)", re.IGNORECASE)
_DETAILS = re.compile(
    r"<details(?: open)?>\s*(?=<summary>)|\A\s*</?details(?: open)?>\s*\Z|</details>\Z", re.IGNORECASE
)
_NEWLINE = re.compile(r"\r\n?|\n")
_BOX = re.compile(r"\[([ xX])\][ \t]+")
_STYLES = {"strong": Style.BOLD, "em": Style.ITALIC, "s": Style.STRIKE}


@functools.lru_cache(maxsize=16)
def parse(text: str) -> tuple[Block, ...]:
    """Return the blocks of a text; one that is too long or too deep is a single paragraph without marks.

    The last ones are kept: a reply is read when it is cut and, a little later, when it is sent.
    """
    if len(text) > LONGEST:
        return _as_it_is(text)
    tokens = _parser().parse(text)
    # The library drops what is deeper than its limit, so that must never be reached.
    if any(token.nesting > 0 and token.level + 1 >= DEEPEST for token in tokens):
        return _as_it_is(text)
    return _Reader(tokens, lines_of(text)).blocks()


def lines_of(text: str) -> list[str]:
    """Return the lines to which the numbers of a `Source` refer."""
    return _NEWLINE.split(text)


def _as_it_is(text: str) -> tuple[Block, ...]:
    return (Paragraph((Span(text),), Source((0, len(lines_of(text))))),)


class _State(StateInline):
    def scanDelims(self, start: int, canSplitWord: bool) -> Scanned:  # noqa: N802, N803, FBT001 - the library's names
        """Let `**重点。**然后` be bold: beside a wide character only spaces decide."""
        found = super().scanDelims(start, canSplitWord)
        end = start + found.length
        before = self.src[start - 1] if start else " "
        after = self.src[end] if end < self.posMax else " "
        if self.src[start] != "_" and (_is_wide(before) or _is_wide(after)):
            return Scanned(not after.isspace(), not before.isspace(), found.length)
        return found


def _is_wide(char: str) -> bool:
    return char > "\u10ff" and unicodedata.east_asian_width(char) in "WF"


class _Inline(ParserInline):
    def parse(self, src: str, md: MarkdownIt, env: EnvType, tokens: list[Token]) -> list[Token]:
        state = _State(src, md, env, tokens)
        self.tokenize(state)
        for rule in self.ruler2.getRules(""):
            rule(state)
        return state.tokens


def _address(state: StateInline, silent: bool) -> bool:  # noqa: FBT001 - the library's signature
    """Take an address in plain text as it is (GFM, autolinks extension), so that no `_` in it is emphasis."""
    if silent or state.linkLevel or state.src[state.pos] != ":":
        return False
    scheme = next((one for one in ("https", "http") if state.pending.lower().endswith(one)), "")
    match = _ADDRESS.match(state.src, state.pos, state.posMax) if scheme else None
    if match is None or state.pending[: -len(scheme)][-1:].isalnum():
        return False
    rest = _without_end(match[0])
    scheme = state.pending[-len(scheme) :]
    state.pending = state.pending[: -len(scheme)]
    state.push("link_open", "a", 1).attrs = {"href": scheme + rest}
    state.push("text", "", 0).content = scheme + rest
    state.push("link_close", "a", -1)
    state.pos += len(rest)
    return True


def _without_end(address: str) -> str:
    """Drop what belongs to the sentence around an address: full stops, emphasis, a bracket."""
    while True:
        shorter = address.rstrip("?!.,:;*_~'")
        if shorter.endswith(")") and shorter.count(")") > shorter.count("("):
            shorter = shorter[:-1]
        if shorter.endswith("]") and shorter.count("]") > shorter.count("["):
            shorter = shorter[:-1]
        if shorter == address:
            return address
        address = shorter


@functools.cache
def _parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"html": False, "maxNesting": DEEPEST})
    parser.enable(["table", "strikethrough"]).disable(
        # Without joining, an escaped character stays a token of its own, so that `\\||` is no spoiler.
        ["reference", "html_block", "html_inline", "text_join"]
    )
    inline = _Inline()
    inline.ruler, inline.ruler2 = parser.inline.ruler, parser.inline.ruler2
    inline.ruler.before("newline", "address", _address)
    parser.inline = inline
    return parser


@dataclass(slots=True)
class _Reader:
    """Turns a flat list of tokens into blocks."""

    tokens: Sequence[Token]
    lines: Sequence[str]
    at: int = 0

    def blocks(self) -> tuple[Block, ...]:
        """Read up to the end of what is open."""
        found: list[Block] = []
        while self.at < len(self.tokens) and self.tokens[self.at].nesting >= 0:
            token = self._next()
            block = self._block(token, self._source(token))
            found.append(block)
        return tuple(found)

    def _next(self) -> Token:
        token = self.tokens[self.at]
        self.at += 1
        return token

    def _source(self, token: Token) -> Source:
        start, end = token.map or (0, 0)
        return Source((start, end), start > 0 and not self.lines[start - 1].strip(" \t>"))

    def _block(self, token: Token, source: Source) -> Block:
        match token.type:
            case "fence" | "code_block":
                return Code(token.content.removesuffix("\n"), token.info.strip(), source)
            case "hr":
                return Rule(source)
            case "heading_open":
                return Heading(int(token.tag[1:]), self._line(), source)
            case "blockquote_open":
                return Quote(self._inside(), source)
            case "bullet_list_open":
                return Listing(self._items(), None, source)
            case "ordered_list_open":
                return Listing(self._items(), int(token.attrs.get("start", 1)), source)
            case "table_open":
                return self._table(source)
            case _:
                return Paragraph(self._line(), source)

    def _inside(self) -> tuple[Block, ...]:
        blocks = self.blocks()
        self._next()
        return blocks

    def _line(self) -> Spans:
        """Read a block of nothing but text, with its end."""
        spans = _spans(self._next().children or ())
        self._next()
        return spans

    def _items(self) -> tuple[Item, ...]:
        items: list[Item] = []
        while (token := self._next()).type == "list_item_open":
            apart = self._source(token).apart
            items.append(_with_box(Item(self._inside(), None, apart)))
        return tuple(items)

    def _table(self, source: Source) -> Table:
        rows: list[list[Spans]] = []
        right: set[int] = set()
        line = source.lines[0]
        while (token := self._next()).type != "table_close":
            match token.type:
                case "tr_open":
                    rows.append([])
                    line = token.map[0] if token.map else line
                case "th_open" | "td_open":
                    if "right" in str(token.attrs.get("style", "")):
                        right.add(len(rows[-1]))
                    rows[-1].append(self._line())
                case "tr_close" if len(rows) > 1:
                    rows[-1][-1] = _overflowing(self.lines[line], len(rows[-1])) or rows[-1][-1]
                case _:
                    pass
        return Table(tuple(tuple(row) for row in rows), frozenset(right), source)


def _with_box(item: Item) -> Item:
    """Read `[x]` at the beginning of an entry."""
    match item.blocks:
        case (Paragraph(spans=(Span() as first, *more)) as paragraph, *rest):
            box = _BOX.match(first.text) if not first.marks else None
            if box is not None:
                text = first.text[box.end() :]
                spans = (*((Span(text),) if text else ()), *more)
                return replace(item, blocks=(replace(paragraph, spans=spans), *rest), done=box[1] != " ")
    return item


def _overflowing(line: str, columns: int) -> Spans:
    """Return the last cell of a row with all that follows it; CommonMark's tables drop what is too much.

    Mostly it is a `|` inside of code that nobody has escaped.
    """
    if line.count("|") <= columns:
        return ()
    cells = escapedSplit(line.strip(" \t>"))
    cells = cells[not cells[0].strip() : len(cells) - (not cells[-1].strip())]
    if len(cells) <= columns:
        return ()
    tokens = _parser().parseInline("|".join(cells[columns - 1 :]).strip())
    return _spans(tokens[0].children or ())


@dataclass(frozen=True, slots=True)
class _Placed:
    """A span, and the numbers of the tokens that are open around it: they tell equal marks apart."""

    span: Span
    path: tuple[int, ...]


def _spans(children: Sequence[Token]) -> Spans:
    """Return the spans of a line's tokens."""
    return _trimmed(_joined(_with_addresses(_paired(list(_walk(children))))))


def _trimmed(spans: Spans) -> Spans:
    """Drop the newlines that are left where `<details>` was."""
    while spans and not spans[-1].text.strip("\n"):
        spans = spans[:-1]
    if spans and spans[-1].text.endswith("\n"):
        spans = (*spans[:-1], replace(spans[-1], text=spans[-1].text.rstrip("\n")))
    return spans


def _walk(children: Sequence[Token]) -> Iterator[_Placed]:
    """Yield each token's span."""
    outer: list[tuple[tuple[Mark, ...], tuple[int, ...]]] = []
    marks: tuple[Mark, ...] = ()
    path: tuple[int, ...] = ()
    for number, token in enumerate(children):
        if token.nesting > 0:
            outer.append((marks, path))
            marks, path = _with(marks, _mark(token)), (*path, number)
        elif token.nesting < 0:
            marks, path = outer.pop()
        elif token.type == "code_inline":
            yield _Placed(Span(token.content, _with(marks, Style.CODE)), (*path, number))
        elif token.type == "image":
            name = token.content or "image"
            yield _Placed(Span(name, _with(marks, Link(str(token.attrs.get("src", ""))))), (*path, number))
        elif token.type in ("softbreak", "hardbreak"):
            yield _Placed(Span("\n", marks), path)
        elif token.type == "text_special":
            yield _Placed(Span(token.content, marks), (*path, number))
        elif token.content:
            yield from (_Placed(Span(text, marks), path) for text in _cut_at_pairs(token.content))


def _mark(token: Token) -> Mark:
    kind = token.type.removesuffix("_open")
    return Link(str(token.attrs.get("href", ""))) if kind == "link" else _STYLES[kind]


def _with(marks: tuple[Mark, ...], mark: Mark) -> tuple[Mark, ...]:
    """Add a mark; there is one of each style, and only one link."""
    links = isinstance(mark, Link) and any(isinstance(one, Link) for one in marks)
    return marks if links or mark in marks else (*marks, mark)


def _cut_at_pairs(text: str) -> list[str]:
    """Make each mark that we pair by ourselves a text of its own."""
    if "<" in text:
        text = _DETAILS.sub("", text)
    parts = _PAIRS.split(text) if "||" in text or "<" in text else [text]
    return [part for part in parts if part]


def _paired(placed: list[_Placed]) -> list[Span]:
    """Give what is between two `||`, or in a `<summary>`, its style; both ends have the same parent."""
    spans: list[Span | None] = [one.span for one in placed]
    waiting: dict[tuple[str, tuple[int, ...]], int] = {}
    for at, one in enumerate(placed):
        if Style.CODE in one.span.marks:
            continue
        match one.span.text.lower():
            case "||":
                style, opens = Style.SPOILER, ("||", one.path)
            case "<summary>":
                waiting["summary", one.path] = at
                continue
            case "</summary>":
                style, opens = Style.BOLD, ("summary", one.path)
            case _:
                continue
        start = waiting.pop(opens, None)
        if start is not None and _encloses(placed, start, at):
            _restyle(spans, start, at, style)
            if style is Style.BOLD and not _follows_newline(placed, at):
                spans[at] = Span("\n")
        elif style is Style.SPOILER:
            waiting[opens] = at
    return [span for span in spans if span is not None]


def _encloses(placed: Sequence[_Placed], start: int, end: int) -> bool:
    """Whether there is something between two marks, and no space behind the first or before the last."""
    if end - start < 2:
        return False
    return not placed[start + 1].span.text[0].isspace() and not placed[end - 1].span.text[-1].isspace()


def _follows_newline(placed: Sequence[_Placed], at: int) -> bool:
    return at + 1 == len(placed) or placed[at + 1].span.text.startswith("\n")


def _restyle(spans: list[Span | None], start: int, end: int, style: Style) -> None:
    """Put a style around the spans between two marks, inside of what is around both; drop the marks."""
    opening = spans[start]
    depth = len(opening.marks) if opening else 0
    for at in range(start + 1, end):
        span = spans[at]
        if span is not None and style not in span.marks:
            spans[at] = Span(span.text, (*span.marks[:depth], style, *span.marks[depth:]))
    spans[start] = spans[end] = None


def _with_addresses(spans: Sequence[Span]) -> Iterator[Span]:
    """Turn a link that nobody should press into its text and its address (attack markdown-006)."""
    for at, span in enumerate(spans):
        link = next((mark for mark in span.marks if isinstance(mark, Link)), None)
        if link is None or (_SAFE.match(link.address) and len(link.address) <= _LONGEST_ADDRESS):
            yield span
            continue
        marks = tuple(mark for mark in span.marks if mark is not link)
        yield Span(span.text, marks)
        ends = at + 1 == len(spans) or link not in spans[at + 1].marks
        if ends and link.address and link.address != span.text:
            yield Span(f" ({link.address})", tuple(mark for mark in marks if mark is not Style.CODE))


def _joined(spans: Iterator[Span]) -> Spans:
    """Join neighbours with the same marks."""
    found: list[Span] = []
    for span in spans:
        if found and found[-1].marks == span.marks:
            found[-1] = Span(found[-1].text + span.text, span.marks)
        else:
            found.append(span)
    return tuple(found)
