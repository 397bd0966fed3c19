"""The answer apart from the thoughts, while both stream in one text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.models.visible import Visible

CASES = [
    pytest.param("Hello", "Hello", "", id="words-only"),
    pytest.param("<think>x</think>\nHello", "Hello", "x", id="reasoning-03"),
    pytest.param(
        "<think>long musing<final>Answer: 4.</final>", "Answer: 4.", "long musing", id="reasoning-01"
    ),
    pytest.param("<think>a</think><final>Answer</final>", "Answer", "a", id="think-and-final"),
    pytest.param("<final>Answer</final> and more", "Answer", " and more", id="final-only"),
    pytest.param("plan</think>ok", "ok", "plan", id="closing-tag-only"),
    pytest.param("<think>a</think><think>b</think>ok", "ok", "ab", id="two-thoughts"),
    pytest.param("  \n<THINK>a</THINK> ok ", "ok", "a", id="blanks-and-capitals"),
    pytest.param("<thinking>a < b</thinking>a < b <c>", "a < b <c>", "a < b", id="other-angles"),
    pytest.param("<think>never closed", "", "never closed", id="never-closed"),
    pytest.param("<think>use <final> tags</think>ok", "ok", "use  tags", id="final-named-in-a-thought"),
    pytest.param("Write `</think>` at the end", "Write `</think>` at the end", "", id="tag-in-code"),
    pytest.param("<think>a</think>Close with </think>.", "Close with </think>.", "a", id="tag-in-an-answer"),
    pytest.param("<thin ice", "<thin ice", "", id="no-tag-after-all"),
    pytest.param("<", "<", "", id="one-angle"),
    pytest.param("", "", "", id="nothing"),
]


def run(pieces: list[str]) -> tuple[str, str, str]:
    """Return the answer, the thoughts, and what was shown on the way."""
    shown: list[str] = []
    visible = Visible(shown.append, shown.clear)
    for piece in pieces:
        visible.feed(piece)
    answer, thoughts = visible.end()
    return answer, thoughts, "".join(shown)


@pytest.mark.parametrize(("raw", "answer", "thoughts"), CASES)
def test_the_same_comes_out_in_one_piece_and_in_many(raw: str, answer: str, thoughts: str) -> None:
    for pieces in ([raw], list(raw), [raw[i : i + 3] for i in range(0, len(raw), 3)]):
        got, thought, shown = run(pieces)
        assert (got, thought) == (answer, thoughts)
        assert shown.strip() == answer


@given(
    st.lists(
        st.sampled_from(["<think>", "</think>", "<final>", "</final>", "a", " ", "<", ">", "`"]), max_size=12
    )
)
def test_what_was_shown_is_the_answer(parts: list[str]) -> None:
    whole = run(["".join(parts)])
    in_letters = run(list("".join(parts)))

    assert in_letters[:2] == whole[:2]
    assert in_letters[2].strip() == whole[0]


def test_thoughts_are_not_shown_for_a_moment() -> None:
    shown: list[str] = []
    visible = Visible(shown.append)

    for piece in ("<th", "ink>secret", " plan</thi", "nk>", "\n\n", "Hello"):
        visible.feed(piece)

    assert shown == ["Hello"]
