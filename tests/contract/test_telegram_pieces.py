"""Long replies in pieces: nothing lost, nothing too long, code blocks whole on both sides of a cut."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.telegram.text import LIMIT, clean, pieces

HARD_LIMIT = 4096


def units(text: str) -> int:
    return len(text.encode("utf-16-le")) // 2


def solid(text: str) -> str:
    """Return the text without white space."""
    return "".join(text.split())


def long(strategy: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """Return texts of several pieces, made of a few parts that repeat."""
    parts = st.tuples(strategy, st.integers(1, 3000))
    return st.lists(parts, min_size=1, max_size=6).map(
        lambda parts: "".join(part * times for part, times in parts)[:20_000]
    )


words = st.text(st.characters(exclude_characters="`~"), max_size=40)
markdown = st.sampled_from(
    [
        "```\n",
        "```python\n",
        "````\n",
        "~~~\n",
        "  ```js\n",
        "```",
        "a",
        " ",
        "\n",
        "\n\n",
        "x = 1\n",
        "😀",
        "one. two",
    ]
)


@given(long(words))
def test_nothing_but_white_space_is_lost(text: str) -> None:
    assert solid("".join(pieces(text))) == solid(clean(text))


@given(long(words | markdown | st.text(max_size=5)))
def test_every_piece_can_be_sent(text: str) -> None:
    cut = pieces(text)
    for piece in cut:
        assert units(piece) <= HARD_LIMIT
        assert piece.strip()
    assert bool(cut) == bool(clean(text).strip())
    assert pieces(text) == cut


@given(st.text(max_size=1000))
def test_a_short_text_stays_as_it_is(text: str) -> None:
    assert list(pieces(text)) == ([clean(text)] if clean(text).strip() else [])


code_lines = st.text(st.sampled_from("abc (){}=.:😀"), max_size=60).map(lambda line: line.rstrip())
blocks = st.tuples(
    st.sampled_from(["```python", "```", "~~~~ js", "`````"]),
    st.lists(code_lines, min_size=1, max_size=5),
    st.integers(1, 150),
)


def code_in(text: str) -> list[str]:
    """Return the lines inside of code blocks; raise if one is left open."""
    lines, mark = [], ""
    for line in text.split("\n"):
        match = re.match(r"`{3,}|~{3,}", line)
        if mark and line == mark:
            mark = ""
        elif mark:
            lines.append(line)
        elif match:
            mark = match[0]
    assert not mark, f"open: {text[:80]!r}"
    return lines


@given(st.lists(st.tuples(blocks, st.integers(0, 60)), min_size=1, max_size=4))
def test_code_keeps_every_line_and_every_piece_closes_its_block(
    parts: list[tuple[tuple[str, list[str], int], int]],
) -> None:
    texts = []
    for (opening, lines, times), prose in parts:
        mark = re.match(r"`+|~+", opening)
        assert mark
        texts += ["Some words here. " * prose, opening, *(lines * times), mark[0]]
    text = "\n".join(texts)
    assert [line for piece in pieces(text) for line in code_in(piece)] == code_in(text)


@pytest.mark.parametrize(
    ("text", "first"),
    [
        (f"{'a' * 2500}\n\n{'b' * 1000}\n{'c. ' * 500}", "a" * 2500),
        (f"{'a' * 2500}\n{'b c. ' * 500}", "a" * 2500),
        (f"{'a' * 2500}. {'b ' * 1000}", f"{'a' * 2500}."),
        (f"{'a' * 2500} {'b' * 2500}", "a" * 2500),
        (f"{'a' * 100} {'b' * 3990}", "a" * 100),
        ("a" * 5000, "a" * 4000),
        ("😀" * 3000, "😀" * 2000),
        (f"a{'😀' * 3000}", f"a{'😀' * 1999}"),
        (f"{'好' * 2500}。{'好' * 2500}", f"{'好' * 2500}。"),
        (f"\n\n{'a' * 5000}", f"\n\n{'a' * 3998}"),
    ],
    ids=[
        "blank line",
        "newline",
        "sentence",
        "space",
        "early space",
        "hard",
        "emoji",
        "odd",
        "chinese",
        "leading",
    ],
)
def test_a_cut_prefers_larger_units(text: str, first: str) -> None:
    assert pieces(text)[0] == first


def test_a_code_block_is_reopened_with_its_info_string_and_keeps_its_indentation() -> None:
    line = f"    x = {'1' * 90}"
    text = "Look:\n\n```python title\n" + f"{line}\n" * 60 + "```\n\nDone."
    first, second = pieces(text)
    assert first.startswith("Look:\n\n```python title\n    x")
    assert first.endswith("1\n```")
    assert second.startswith("```python title\n    x")
    assert second.endswith("1\n```\n\nDone.")


def test_a_code_block_that_fits_into_the_next_piece_is_not_cut() -> None:
    text = "word " * 500 + "\n```\n" + "code\n\n" * 400 + "```\n"
    first, second = pieces(text)
    assert first == ("word " * 500).rstrip()
    assert second.startswith("```\ncode\n")


def test_a_block_that_ends_at_the_cut_leaves_no_empty_one_behind() -> None:
    for length in range(LIMIT - 60, LIMIT + 10):
        text = (
            "```\n"
            + ("x" * 49 + "\n") * (length // 50)
            + "y" * (length % 50)
            + "\n```\nand more "
            + "z" * 300
        )
        for piece in pieces(text):
            assert "```\n```" not in piece


def test_indentation_of_a_list_survives_a_cut() -> None:
    text = f"- {'a' * 3000}\n  - {'b' * 3000}"
    assert pieces(text) == (f"- {'a' * 3000}", f"  - {'b' * 3000}")


def test_blank_texts_have_no_pieces() -> None:
    assert pieces("") == ()
    assert pieces(" \n\0\t ") == ()
