"""Markdown as a tree: what is read, and that what is written is read as the same."""

from __future__ import annotations

import pytest

from adapters.markdown import (
    Block,
    Code,
    Heading,
    Item,
    Link,
    Listing,
    Paragraph,
    Quote,
    Rule,
    Span,
    Style,
    Table,
    parse,
    write,
)
from adapters.markdown.write import escaped
from tests.fakes.markdown import INPUTS


def line(text: str, *marks: Style | Link) -> tuple[Span, ...]:
    return (Span(text, marks),)


def paragraph(text: str) -> Paragraph:
    return Paragraph(line(text))


@pytest.mark.parametrize(
    ("text", "blocks"),
    [
        ("", ()),
        ("a\nb", (paragraph("a\nb"),)),
        ("## T *i*", (Heading(2, (Span("T "), Span("i", (Style.ITALIC,)))),)),
        ("~~~ py title\n x\n~~~", (Code(" x", "py title"),)),
        ("    code", (Code("code"),)),
        ("> a\n>\n> - b", (Quote((paragraph("a"), Listing((Item((paragraph("b"),)),)))),)),
        ("3) a\n4) [x] b", (Listing((Item((paragraph("a"),)), Item((paragraph("b"),), done=True)), 3),)),
        ("-", (Listing((Item(()),)),)),
        ("***", (Rule(),)),
        ("|a|b|\n|-:|-|\n|1|", (Table(((line("a"), line("b")), (line("1"), ())), frozenset({0})),)),
        ("**a [b](https://e.com)**", (Paragraph((Span("a ", (Style.BOLD,)), Span("b", (Style.BOLD, Link("https://e.com"))))),)),
        ("https://e.com/_a_b_.", (Paragraph((Span("https://e.com/_a_b", (Link("https://e.com/_a_b"),)), Span("_."))),)),
        ("ahttp://x.y", (paragraph("ahttp://x.y"),)),
        ("[a]: https://e.com\n\n[a]", (Paragraph((Span("[a]: "), Span("https://e.com", (Link("https://e.com"),)))), paragraph("[a]"))),
        ("<div>\n**a**\n</div>", (Paragraph((Span("<div>\n"), Span("a", (Style.BOLD,)), Span("\n</div>"))),)),
        ("a<summary>b", (paragraph("a<summary>b"),)),
        ("****a****", (Paragraph(line("a", Style.BOLD)),)),
    ],
)  # fmt: skip
def test_a_text_is_read_into_blocks(text: str, blocks: tuple[Block, ...]) -> None:
    assert parse(text) == blocks


def test_a_block_knows_its_lines_and_whether_a_blank_line_is_before_it() -> None:
    first, second, third = parse("# a\r\nb\rc\n\n> d")
    assert [block.source.lines for block in (first, second, third)] == [(0, 1), (1, 3), (4, 5)]
    assert [block.source.apart for block in (first, second, third)] == [False, False, True]


@pytest.mark.parametrize(
    "text",
    [
        *INPUTS.values(),
        "- a\n\n* b\n\n- c",
        "1. a\n\n1) b",
        "````\n```\n````",
        "`` ` `` and ` `` `",
        "a\n===\n- b\n  > c",
    ],
    ids=[*INPUTS.keys(), "three lists", "two counts", "fence in fence", "ticks", "setext"],
)
def test_what_is_written_is_read_as_the_same(text: str) -> None:
    text = text.replace("\0", "")
    assert parse(write(parse(text))) == parse(text)


@pytest.mark.parametrize(
    "text",
    ["*a* _b_ `c` [d](e) <f> &amp; | ~~g~~ # h", "1. a\n- b\n+ c\n=== d\n# e\n> f", "\\*", "||a||", "---"],
)
def test_an_escaped_text_means_itself(text: str) -> None:
    blocks = parse(escaped(text))
    assert blocks == (paragraph(text),)
