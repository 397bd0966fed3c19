"""Markdown as Telegram shows it: text and entities that are valid, whole, and cut where one would cut."""

from __future__ import annotations

import re
import string
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.markdown import LONGEST, Block, Item, Listing, Quote, Table, parse
from adapters.telegram.render import Entity, Rendered, pieces, render
from adapters.telegram.text import LIMIT
from tests.fakes.entities import faults, units
from tests.fakes.markdown import INPUTS, mixes

WORD_JOINER = "\u2060"


def raw(entity: Entity) -> dict[str, object]:
    about: dict[str, object] = {"type": entity.kind, "offset": entity.offset, "length": entity.length}
    about |= {"url": entity.url} if entity.url else {}
    return about | ({"language": entity.language} if entity.language else {})


def faults_of(rendered: Rendered) -> list[str]:
    return faults(rendered.text, [raw(one) for one in rendered.entities])


def styled(text: str) -> list[tuple[str, str]]:
    """Return what each entity of a rendered text covers."""
    rendered = render(text)
    assert faults_of(rendered) == []
    data = rendered.text.encode("utf-16-le")
    return [
        (one.kind, data[2 * one.offset : 2 * (one.offset + one.length)].decode("utf-16-le"))
        for one in rendered.entities
    ]


def solid(text: str) -> str:
    """Return a text without white space and without the lines of tables."""
    return "".join(text.split()).translate(dict.fromkeys(map(ord, "-+|" + WORD_JOINER)))


def joined(texts: Sequence[str]) -> str:
    return "".join(render(text).text for text in texts)


@pytest.mark.parametrize(
    ("text", "shown", "entities"),
    [
        ("plain text, 2 < 3", "plain text, 2 < 3", []),
        (
            "**bold** and *italic* and ~~gone~~",
            "bold and italic and gone",
            [("bold", "bold"), ("italic", "italic"), ("strikethrough", "gone")],
        ),
        ("a ||secret|| b", "a secret b", [("spoiler", "secret")]),
        ("||**x** y||", "x y", [("spoiler", "x y"), ("bold", "x")]),
        ("a || b || c and ||||", "a || b || c and ||||", []),
        ("`||a||`", "||a||", [("code", "||a||")]),
        ("use `a*b`", "use a*b", [("code", "a*b")]),
        ("**a `c` b**", "a c b", [("bold", "a "), ("code", "c"), ("bold", " b")]),
        ("***both***", "both", [("italic", "both"), ("bold", "both")]),
        ("**a *b*** *c*", "a b c", [("bold", "a b"), ("italic", "b"), ("italic", "c")]),
        ("```python\nx = 1\n\ny\n```", "x = 1\n\ny", [("pre", "x = 1\n\ny")]),
        (
            "[t](https://e.com) [m](mailto:a@b.c) [u](tg://user?id=1)",
            "t m u",
            [("text_link", "t"), ("text_link", "m"), ("text_link", "u")],
        ),
        ("[`f()`](https://e.com)", "f()", [("text_link", "f()")]),
        pytest.param(
            "[x](javascript:alert(1)) [f](file:///etc/passwd)",
            "[x](javascript:alert(1)) [f](file:///etc/passwd)",
            [],
            id="markdown-006",
        ),
        ("[rel](/path) and [ftp](ftp://e.com)", "rel (/path) and ftp (ftp://e.com)", []),
        ("![a cat](https://e.com/c.png)", "a cat", [("text_link", "a cat")]),
        (
            "see https://e.com/a_b_c*d*e, or (http://e.com/x_y_).",
            "see https://e.com/a_b_c*d*e, or (http://e.com/x_y_).",
            [],
        ),
        ("**https://e.com/x**", "https://e.com/x", [("bold", "https://e.com/x")]),
        ("`http://e.com/_a_`", "http://e.com/_a_", [("code", "http://e.com/_a_")]),
        ("# Title\ntext", "Title\ntext", [("bold", "Title")]),
        ("# `code`", "code", [("code", "code")]),
        ("- a\n- b\n  1. c\n     d\n- [x] e\n- [ ] f", "• a\n• b\n  1. c\n    d\n☑ e\n☐ f", []),
        ("7. a\n8. b", "7. a\n8. b", []),
        ("- one\n\n- two\n\n\nend", "• one\n\n• two\n\nend", []),
        (
            "> said **x**\n> > deeper\n\nyes",
            "said x\ndeeper\n\nyes",
            [("blockquote", "said x\ndeeper"), ("bold", "x")],
        ),
        ("> `c`", "c", [("blockquote", "c"), ("code", "c")]),
        (
            "|a|b|\n|-|-:|\n|**x**|10|\n|好的|[l](https://e.com)|",
            "a    |                 b\n-----+------------------\nx    |                10\n好的 | l (https://e.com)",
            None,
        ),
        ("a\n\n---\n\nb", "a\n\n———\n\nb", []),
        pytest.param(
            "<b>bold & <script>alert(1)</script>",
            "<b>bold & <script>alert(1)</script>",
            [],
            id="markdown-001",
        ),
        ("AT&amp;T &lt;x&gt; &copy;", "AT&T <x> ©", []),
        ("<details><summary>More</summary>\ninside\n</details>", "More\ninside", [("bold", "More")]),
        ("这是**重点。**然后", "这是重点。然后", [("bold", "重点。")]),
        ("これは**太字（かっこ）**です", "これは太字（かっこ）です", [("bold", "太字（かっこ）")]),
        ("2 ** 3 ** 4 和 中文 ** 不是 ** 粗体", "2 ** 3 ** 4 和 中文 ** 不是 ** 粗体", []),
        ("2 * 3 * 4 and my_func_name", "2 * 3 * 4 and my_func_name", []),
        ("[^1]: a note, [x]: y", "[^1]: a note, [x]: y", []),
        ("|a|b|\n|-|-|\n|x|`1|2`|", "a | b\n--+----\nx | 1|2", None),
        ("[](https://e.com)", "[](https://e.com)", []),
        ("a\0b", "ab", []),
    ],
)
def test_markdown_becomes_text_and_entities(
    text: str, shown: str, entities: list[tuple[str, str]] | None
) -> None:
    assert render(text).text == shown
    assert styled(text) == (entities if entities is not None else [("pre", shown)])


def test_offsets_count_utf16_units() -> None:
    assert render("👍 **b**").entities == (Entity("bold", 3, 1),)


def test_code_keeps_its_language_and_a_link_its_address() -> None:
    assert render("```c++ title\nx\n```").entities == (Entity("pre", 0, 1, language="c++"),)
    assert render("[a](https://e.com/x_y)").entities == (Entity("text_link", 0, 1, url="https://e.com/x_y"),)


def test_a_long_quote_is_folded() -> None:
    assert [one.kind for one in render("> " + "word " * 50).entities] == ["blockquote"]
    assert [one.kind for one in render("> " + "word " * 500).entities] == ["expandable_blockquote"]


def mentions(rendered: Rendered) -> int:
    """Return how many names the server would make links of."""
    return len(re.findall(r"(?<![A-Za-z0-9_@])@[A-Za-z0-9_]{3,}", rendered.text))


@pytest.mark.parametrize("sign", ["", "**x** "], ids=["markdown-004", "markdown-004-formatted"])
def test_at_most_five_mentions_become_links(sign: str) -> None:
    text = sign + " ".join(f"@person{number}" for number in range(50))
    rendered = render(text)
    assert mentions(rendered) == 5
    assert rendered.text.replace(WORD_JOINER, "") == text.replace("**", "")
    assert faults_of(rendered) == []


def test_links_to_people_count_as_mentions() -> None:
    text = " ".join(f"[p{number}](tg://user?id={number})" for number in range(9))
    assert len(render(text).entities) == 5


def test_of_too_many_entities_the_most_important_stay() -> None:
    text = "*i* " * 99 + "[a](https://e.com) " * 5 + "`c` " * 5
    kinds = [one.kind for one in render(text).entities]
    assert len(kinds) == 100
    assert (kinds.count("text_link"), kinds.count("code")) == (5, 5)


WORDS_THAT_ARE_MARKUP = {"amp", "lt", "gt", "details", "summary", "ti", "svg", "user", "id"}
"""Entities, tags, a title, the picture of a link (of the two addresses the one behind it is kept), and links
to people beyond the fifth (attack markdown-004)."""


def lost(text: str, rendered: Rendered) -> set[str]:
    """Return the words of a text that are neither shown nor in an entity."""
    known = rendered.text + "".join(f" {one.url} {one.language}" for one in rendered.entities)
    words = set(re.findall(r"[^\W\d_]{2,}", text.replace("\0", ""))) - WORDS_THAT_ARE_MARKUP
    return {word for word in words if word not in known}


@pytest.mark.parametrize("text", INPUTS.values(), ids=INPUTS.keys())
def test_the_corpus_is_valid_and_nothing_of_it_is_lost(text: str) -> None:
    rendered = render(text)
    assert faults_of(rendered) == []
    assert lost(text, rendered) == set()


def test_three_hundred_mixes_are_valid_and_whole() -> None:
    for text in mixes(300, seed=3):
        cut = [render(piece) for piece in pieces(text)]
        assert [fault for piece in cut for fault in faults_of(piece)] == []
        whole = render(text)
        assert solid("".join(piece.text for piece in cut)) == solid(whole.text)
        assert (
            lost(text, Rendered(whole.text, tuple(one for piece in cut for one in piece.entities))) == set()
        )


LARGE = [
    "**bold** text. " * 300,
    "- item **b** `c`\n" * 60,
    "word " * 1500,
    "1. a\n" * 30,
    "> q *w* e\n" * 80,
    "**" + "bold words " * 600 + "**",
    "`" + "code " * 1200 + "`",
    "- " + "x y " * 1500 + "\n  - z\n",
    "||" + "secret " * 900 + "||",
    ("[a](http://x.y/" + "z" * 50 + ") ") * 60,
    "@someone " * 500,
    "😀" * 3000,
    "a*b" * 1500,
    "> - " + "deep text " * 600,
    "```py\n" + "x = 1\n" * 900 + "```",
    "~~~\n" + "y" * 9000 + "\n~~~",
    "[link](/rel) " * 400,
    "*a* `b` " * 200,
    "**重点。**然后" * 300,
    "# " + "head " * 1000,
    "- [x] " + "done " * 1000,
    "7) a\n8) b\n\n- c\n* d\n" * 40,
    "<details><summary>S</summary>\n" + "x " * 2500 + "</details>",
    "\\*not\\* &amp; `` ` `` ___x___ " * 200,
]
fragments = st.sampled_from([*INPUTS.values(), *LARGE]) | st.text(max_size=30)
separators = st.sampled_from(["\n\n", "\n", " ", "", "\n\n\n"])
texts = st.lists(st.tuples(fragments, separators), min_size=1, max_size=8).map(
    lambda parts: "".join(text + separator for text, separator in parts)[:LONGEST]
)


def has_long_table(blocks: Sequence[Block | Item]) -> bool:
    """Whether there is a table that may have to be cut, after which its head is there twice."""
    for block in blocks:
        match block:
            case Table(rows=rows):
                if (
                    len(rows) * len(rows[0]) * 40
                    + sum(len(span.text) for row in rows for cell in row for span in cell)
                    > LIMIT
                ):
                    return True
            case Quote(blocks=inner) | Item(blocks=inner):
                if has_long_table(inner):
                    return True
            case Listing(items=items):
                if has_long_table(items):
                    return True
            case _:
                pass
    return False


@settings(max_examples=40)
@given(texts)
def test_pieces_are_valid_and_together_they_say_everything(text: str) -> None:
    cut = pieces(text)
    for piece in cut:
        rendered = render(piece)
        assert [fault for fault in faults_of(rendered) if fault != "the text is empty"] == []
    if not has_long_table(parse(text)):
        assert solid(joined(cut)) == solid(render(text).text)
    assert pieces(text) == cut


@given(st.text(st.sampled_from("*_~`|<>[]()#-+=1.) \n\\a😀好。@"), max_size=400))
def test_any_signs_give_something_valid(text: str) -> None:
    rendered = render(text)
    assert [fault for fault in faults_of(rendered) if fault != "the text is empty"] == []
    for piece in pieces(text * 20):
        assert [fault for fault in faults_of(render(piece)) if fault != "the text is empty"] == []


@given(st.text(max_size=300))
def test_a_text_that_fits_is_one_piece(text: str) -> None:
    assert len(pieces(text)) == bool(text.replace("\0", "").strip())


@pytest.mark.parametrize("rows", [pytest.param(60, id="telegram-out-05")])
def test_a_table_near_the_limit_is_cut_between_rows_under_the_same_head(rows: int) -> None:
    row = "| **name {0}** | **{0}** | " + "some words " * 5 + "|\n"
    text = "| Name | No | What |\n|---|--:|---|\n" + "".join(row.format(number) for number in range(rows))
    cut = [render(piece) for piece in pieces(text)]
    assert len(cut) > 1
    for piece in cut:
        assert faults_of(piece) == []
        assert piece.text.startswith("Name")
        assert [one.kind for one in piece.entities] == ["pre"]
    found = [int(line.split("|")[1]) for piece in cut for line in piece.text.split("\n")[2:]]
    assert found == list(range(rows))


@pytest.mark.parametrize("size", [pytest.param(9000, id="telegram-out-06")])
def test_a_long_code_block_becomes_several_with_every_line_in_order(size: int) -> None:
    lines = [f"    value_{number} = {number}  # *not* italic" for number in range(size // 30)]
    cut = pieces("Look:\n```python\n" + "\n".join(lines) + "\n```\nDone.")
    shown = [render(piece) for piece in cut]
    assert len(cut) > 2
    assert all(one.language == "python" for piece in shown for one in piece.entities)
    assert all(faults_of(piece) == [] for piece in shown)
    assert "\n".join(piece.text for piece in shown).split("\n") == ["Look:", *lines, "Done."]


def test_styles_go_on_behind_a_cut() -> None:
    first, second = pieces("**" + "word " * 850 + "end**")
    assert styled(first)[0][0] == styled(second)[0][0] == "bold"
    assert second.startswith("**word")


def test_a_numbered_list_goes_on_counting_behind_a_cut() -> None:
    cut = pieces("\n".join(f"1. point number {'x' * 60}" for _ in range(100)))
    numbers = [int(line.split(".")[0]) for piece in cut for line in render(piece).text.split("\n")]
    assert len(cut) > 1
    assert numbers == list(range(1, 101))


def test_a_cut_prefers_the_border_between_blocks() -> None:
    text = f"{'a ' * 1000}\n\n- {'b ' * 500}\n- c\n\n{'d ' * 1200}"
    cut = pieces(text)
    assert [piece[0] for piece in cut] == ["a", "d"]
    assert "\n".join(cut).replace("\n", "") == text.replace("\n", "")


NESTED = "- " * 5000 + "x"
ATTACKS = {
    "markdown-009": NESTED,
    "markdown-009-table": "|a|b|\n|-|-|\n" + "|cell one|cell two|\n" * 5000,
    "markdown-009-quotes": ">" * 5000 + "x",
    "markdown-009-steps": "".join("  " * depth + "- a\n" for depth in range(300)),
    "markdown-010": "`" * 50_000,
    "markdown-010-apart": "` " * 25_000,
    "brackets": "[" * 20_000,
    "links": "[a](" * 9000,
    "emphasis": "*_" * 20_000,
    "spoilers": "||a" * 10_000,
    "mentions": "@abcd " * 6000,
    "tags": "<" * 39_000,
}


@pytest.mark.parametrize("text", ATTACKS.values(), ids=ATTACKS.keys())
def test_what_would_take_long_is_shown_as_it_is_and_nothing_is_lost(text: str) -> None:
    cut = pieces(text)
    shown = joined(cut)
    assert [fault for piece in cut for fault in faults_of(render(piece))] == []
    kept = set(string.ascii_letters) & set(text)
    assert [shown.count(char) >= text.count(char) for char in kept] == [True] * len(kept)


def test_reading_is_bounded_by_length_and_depth() -> None:
    assert len(parse("- " * 5000 + "x")) == 1
    assert len(parse("a\n\n" * LONGEST)) == 1
    assert isinstance(parse("- " * 8 + "x")[0], Listing)
    assert not isinstance(parse("- " * 5000 + "x")[0], Listing)


def test_a_very_long_text_keeps_its_source_and_every_piece_fits() -> None:
    text = "".join(
        f"## Part {number}\n\n- **a** {'word ' * 20}\n\n```c\nx_{number};\n```\n" for number in range(400)
    )
    assert len(text) > 2 * LONGEST
    cut = pieces(text)
    assert solid("".join(cut)) == solid(text)
    assert all(units(render(piece).text) <= LIMIT for piece in cut)
