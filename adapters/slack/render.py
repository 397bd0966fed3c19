"""Writes Markdown as Slack shows it: as its own Markdown, or as mrkdwn where that is not taken.

In both, a `<` begins a command to Slack unless it is escaped: `<!channel>` rings everybody, `<url|label>`
hides where it leads. So every `<` of a text is escaped but for the mentions that `Mentions` allows.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from adapters.markdown import (
    LONGEST,
    Block,
    Code,
    Heading,
    Item,
    Link,
    Listing,
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
from adapters.markdown.text import clean, cut

MARKDOWN: Final = 12_000
"""Characters of Markdown in a message (Block Kit, markdown block)."""

MRKDWN: Final = 3900
"""Characters of mrkdwn in a message; Slack recommends 4000 (spec ST-8)."""

FALLBACK: Final = 3000
"""Characters of the text that notifications and screen readers get instead of blocks."""

_CLOSING: Final = 100
"""Characters of a piece that are kept free for what closes a code block."""

_RULE: Final = "———"
_WORD_JOINER: Final = "\u2060"
_BREAK: Final = "\u200b"
"""Nothing to see, but an end of a word: a sign of mrkdwn needs one beside it."""

_GROWTH: Final = 5
"""Characters that an escaped one takes at the most: `&amp;`."""

_COMMAND: Final = r"<(@[UW][A-Z0-9]+|!(?:channel|here|everyone)|!subteam\^S[A-Z0-9]+)(?:\|[^<>|]*)?>"
_EVERYBODY: Final = r"(?<![\w/.@-])@(?=(?i:channel|here|everyone)\b)"
_IN_MRKDWN: Final = re.compile(rf"{_COMMAND}|{_EVERYBODY}|[&<>]")
_IN_MARKDOWN: Final = re.compile(
    rf"{_COMMAND}|{_EVERYBODY}"
    r"|(?P<quote>^[ \t]*(?:(?:[-*+]|\d{1,9}[.)])[ \t]+)*>[> \t]*)"
    r"|<(?:https?://|mailto:)[^\s<>|]+>"  # an address without a label that could hide it
    r"|[<>]",
    re.MULTILINE,
)
_LINK: Final = re.compile(r"<[^<>|]+")
_ESCAPES: Final = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
_SIGNS: Final = {Style.BOLD: "*", Style.ITALIC: "_", Style.STRIKE: "~"}
_WEB: Final = ("http://", "https://", "mailto:")


@dataclass(frozen=True, slots=True)
class Mentions:
    """Whom a text may ring: people by their ids, and with `everybody` also groups of them (markdown-003)."""

    people: frozenset[str] = frozenset()
    everybody: bool = False

    def allows(self, token: str) -> bool:
        """Whether `@U123`, `!channel` or `!subteam^S123` may stay what it is."""
        return token[1:] in self.people if token.startswith("@") else self.everybody


NOBODY: Final = Mentions()


def pieces(text: str) -> tuple[str, ...]:
    """Cut a Markdown text into pieces that one message can hold; the same text gives the same pieces.

    Each is Markdown by itself: a code block that is cut is opened again (spec ST-9).
    """
    return tuple(_pieces(clean(text), MARKDOWN - _CLOSING))


def _pieces(text: str, most: int) -> Iterator[str]:
    for piece in cut(text, most):
        if len(markdown(piece, NOBODY)) <= MARKDOWN:
            yield piece
        else:
            yield from _pieces(piece, most // 2)


def markdown(text: str, mentions: Mentions) -> str:
    """Return a text for a Markdown block.

    There Slack reads `<…>` as everywhere, shows `&lt;` as a `<` that means nothing, and leaves `&` alone.
    """
    return _IN_MARKDOWN.sub(functools.partial(_defused, mentions=mentions), clean(text))


def fallback(text: str, mentions: Mentions) -> str:
    """Return what a notification tells of a text; never empty."""
    text = clean(text).strip()
    short = text if len(text) <= FALLBACK else f"{text[: FALLBACK - 1]}…"
    return escaped(short, mentions) or "…"


def escaped(text: str, mentions: Mentions = NOBODY) -> str:
    """Return a text as it is, for a place where Slack reads mrkdwn (Slack, Escaping text)."""
    return _IN_MRKDWN.sub(functools.partial(_defused, mentions=mentions), text)


def _defused(match: re.Match[str], mentions: Mentions) -> str:
    found = match[0]
    if match.groupdict().get("quote"):
        return found
    if match[1]:
        return f"<{match[1]}>" if mentions.allows(match[1]) else _literal(found)
    if found == "@":
        return found if mentions.everybody else f"@{_WORD_JOINER}"
    return _ESCAPES.get(found, found)


def _literal(text: str) -> str:
    """Return a text in which nothing rings or leads anywhere."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def mrkdwn_pieces(text: str, mentions: Mentions, most: int = MRKDWN) -> tuple[str, ...]:
    """Return a Markdown text as mrkdwn, in pieces of at most `most` characters; "" gives none."""
    text = clean(text)
    if not text.strip():
        return ()
    if len(text) > LONGEST:
        return tuple(one for part in cut(text, MARKDOWN) for one in mrkdwn_pieces(part, mentions, most))
    whole = mrkdwn(text, mentions)
    if len(whole) <= most:
        return (whole,)
    # An endless address would be repeated for each bit of its label.
    if not any(len(address) > most // 2 for address in _LINK.findall(whole)):
        parts = split(text, functools.partial(_weigh, mentions=mentions), Weight(most, most), _shown)
        found = tuple(mrkdwn(part, mentions) for part in parts)
        if found and all(len(one) <= most for one in found):
            return found
    return tuple(escaped(text[at : at + most // _GROWTH]) for at in range(0, len(text), most // _GROWTH))


def mrkdwn(text: str, mentions: Mentions = NOBODY) -> str:
    """Return a Markdown text as mrkdwn; one that would show nothing is shown as it is."""
    text = clean(text)
    found = _written(parse(text), mentions)
    return found if found.strip() else escaped(text, mentions)


def _weigh(blocks: Sequence[Block], mentions: Mentions) -> Weight:
    return Weight(len(_written(blocks, mentions)))


def _shown(blocks: Sequence[Block]) -> str:
    """Return what people see of some blocks, without any sign."""
    return "\n".join(_texts(blocks))


def _texts(blocks: Sequence[Block]) -> Iterator[str]:
    for block in blocks:
        match block:
            case Paragraph(spans=spans) | Heading(spans=spans):
                yield "".join(span.text for span in spans)
            case Code(text=text):
                yield text
            case Table():
                yield aligned(block)
            case Quote(blocks=inner):
                yield from _texts(inner)
            case Listing(items=items):
                for number, item in enumerate(items):
                    yield _sign(block, number)
                    yield from _texts(item.blocks)
            case _:
                yield _RULE


@dataclass(frozen=True, slots=True)
class _Line:
    """A line of a message; one of code is never indented or quoted."""

    text: str
    is_code: bool = False


def _written(blocks: Sequence[Block], mentions: Mentions) -> str:
    return "\n".join(line.text for line in _lines(blocks, mentions))


def _lines(blocks: Sequence[Block], mentions: Mentions) -> list[_Line]:
    found: list[_Line] = []
    for number, block in enumerate(blocks):
        if number and block.source.apart:
            found.append(_Line(""))
        found += _block(block, mentions)
    return found


def _block(block: Block, mentions: Mentions) -> list[_Line]:
    match block:
        case Paragraph(spans=spans):
            return _rows(spans, mentions)
        case Heading(spans=spans):
            return _rows([_bold(span) for span in spans], mentions)
        case Code(text=text):
            return _code(text)
        case Table():
            return _code(aligned(block))
        case Quote(blocks=blocks):
            return [_quoted(line) for line in _lines(blocks, mentions)]
        case Listing():
            return _listing(block, mentions)
        case _:
            return [_Line(_RULE)]


def _bold(span: Span) -> Span:
    return span if Style.BOLD in span.marks else Span(span.text, (Style.BOLD, *span.marks))


def _code(text: str) -> list[_Line]:
    safe = _literal(text).replace("```", f"``{_BREAK}`")
    return [_Line(line, is_code=True) for line in ("```", *safe.split("\n"), "```")]


def _quoted(line: _Line) -> _Line:
    """Put a line into a quote; there are no quotes in quotes, and no code."""
    return line if line.is_code or line.text.startswith("> ") else _Line(f"> {line.text}")


def _listing(block: Listing, mentions: Mentions) -> list[_Line]:
    found: list[_Line] = []
    for number, item in enumerate(block.items):
        if number and item.apart:
            found.append(_Line(""))
        found += _item(item, _sign(block, number), mentions)
    return found


def _sign(block: Listing, number: int) -> str:
    done = block.items[number].done
    if done is not None:
        return "☑" if done else "☐"
    return "•" if block.start is None else f"{block.start + number}."


def _item(item: Item, sign: str, mentions: Mentions) -> list[_Line]:
    """Return an entry; what follows its first line is indented."""
    first, *rest = _lines(item.blocks, mentions) or [_Line("")]
    if first.is_code or first.text.startswith("> "):
        first, rest = _Line(""), [first, *rest]
    indented = [line if line.is_code or not line.text else _Line(f"    {line.text}") for line in rest]
    return [_Line(f"{sign} {first.text}".rstrip()), *indented]


def _rows(spans: Sequence[Span], mentions: Mentions) -> list[_Line]:
    """Return lines of text; no formatting goes on from one to the next."""
    rows: list[list[Span]] = [[]]
    for span in spans:
        first, *more = span.text.split("\n")
        rows[-1].append(Span(first, span.marks))
        rows += [[Span(text, span.marks)] for text in more]
    return [_Line(_row([span for span in row if span.text], mentions)) for row in rows]


def _row(spans: Sequence[Span], mentions: Mentions) -> str:
    out: list[str] = []
    opened: list[str] = []
    for link, group in itertools.groupby(spans, key=_link):
        for one in [_labelled(list(group))] if link else group:
            _change(out, opened, _signs(one), one.text[0])
            out.append(_said(one, link, mentions))
    _change(out, opened, [], " ")
    return "".join(out)


def _signs(span: Span) -> list[str]:
    return [_SIGNS[mark] for mark in span.marks if isinstance(mark, Style) and mark in _SIGNS]


def _said(span: Span, link: Link | None, mentions: Mentions) -> str:
    if link:
        return _led(link.address, span.text, mentions)
    if Style.CODE in span.marks:  # there is no way to say a code span with a backtick in it
        return _literal(span.text) if "`" in span.text else f"`{_literal(span.text)}`"
    return escaped(span.text, mentions)


def _led(address: str, label: str, mentions: Mentions) -> str:
    if not address.lower().startswith(_WEB):
        return f"{escaped(label, mentions)} ({_literal(address)})"
    target = _literal(re.sub(r"[<>|\s]", lambda match: f"%{ord(match[0]):02X}", address))
    return f"<{target}>" if label == address else f"<{target}|{_literal(label)}>"


def _link(span: Span) -> Link | None:
    return next((mark for mark in span.marks if isinstance(mark, Link)), None)


def _labelled(spans: Sequence[Span]) -> Span:
    """Join the spans of one link; inside of a label nothing is formatted."""
    marks = tuple(mark for mark in spans[0].marks if all(mark in span.marks for span in spans))
    return Span("".join(span.text for span in spans), marks)


def _change(out: list[str], opened: list[str], signs: list[str], then: str) -> None:
    """Close and open signs between two spans; `then` is what comes next."""
    same = 0
    while same < min(len(opened), len(signs)) and opened[same] == signs[same]:
        same += 1
    if opened[same:]:
        out += [*reversed(opened[same:]), _BREAK if then.isalnum() else ""]
    if signs[same:]:
        glued = bool(out) and not opened[same:] and out[-1][-1:].isalnum()
        out += [_BREAK if glued else "", *signs[same:]]
    opened[:] = signs
