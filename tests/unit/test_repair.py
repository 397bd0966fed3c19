"""Repairing a transcript: every call has its one result, right behind it."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.repair import INTERRUPTED, repair
from gateway.types import AssistantEntry, Entry, Kind, NoteEntry, Sender, ToolCall, ToolEntry, UserEntry

ANN = Sender("7", "Ann")


def said(text: str = "hello") -> UserEntry:
    return UserEntry(text, ANN, Kind.MESSAGE, 0.0)


def called(*ids: str, text: str = "", problem: str | None = None) -> AssistantEntry:
    return AssistantEntry(text, tuple(ToolCall(one, "f", problem=problem) for one in ids))


def result(call_id: str, text: str = "r") -> ToolEntry:
    return ToolEntry(call_id, "f", text)


def lost(call_id: str) -> ToolEntry:
    return ToolEntry(call_id, "f", INTERRUPTED, is_error=True)


@pytest.mark.parametrize(
    ("given_entries", "wanted"),
    [
        pytest.param([], [], id="nothing"),
        pytest.param(
            [said(), called("t1", problem="cut")],
            [said()],
            id="session-01-a-call-that-broke-off-in-the-stream",
        ),
        pytest.param(
            [said(), called("t1", text="Let me see.", problem="cut"), said("again")],
            [said(), AssistantEntry("Let me see."), said("again")],
            id="session-01-words-before-it-stay",
        ),
        pytest.param(
            [said(), called("t1", problem="bad JSON"), result("t1", "not run: bad JSON")],
            [said(), called("t1", problem="bad JSON"), result("t1", "not run: bad JSON")],
            id="an-unreadable-call-that-was-answered-stays",
        ),
        pytest.param([said(), called("t1")], [said(), called("t1"), lost("t1")], id="session-02-killed"),
        pytest.param(
            [result("t0"), called("t1"), result("t1"), said("a"), called("t1"), result("t1")],
            [said("a"), called("t1"), result("t1")],
            id="session-04-window-cuts-a-turn",
        ),
        pytest.param(
            [NoteEntry("so far"), called("t1"), result("t1")], None, id="session-04-a-note-may-open"
        ),
        pytest.param(
            [said("first"), called("t1"), result("t1"), said("second"), result("t9")],
            [said("first"), called("t1"), result("t1"), said("second")],
            id="session-05-stray-result-at-the-end",
        ),
        pytest.param(
            [said(), called("t1"), result("t1", "one"), result("t1", "two")],
            [said(), called("t1"), result("t1", "one")],
            id="session-07-result-stored-twice",
        ),
        pytest.param(
            [said(), called("t1", "t2"), result("t2"), said("again"), result("t1")],
            [said(), called("t1", "t2"), result("t1"), result("t2"), said("again")],
            id="displaced-result-moves-up",
        ),
        pytest.param(
            [said(), called("t1"), said("x"), called("t1"), said("y"), result("t1")],
            [said(), called("t1"), lost("t1"), said("x"), called("t1"), lost("t1"), said("y")],
            id="displaced-result-of-two-owners-is-dropped",
        ),
        pytest.param(
            [said(), called("t1"), result("t1", "one"), said("x"), called("t1"), result("t1", "two")],
            None,
            id="an-id-may-come-again-in-another-turn",
        ),
        pytest.param(
            [said(), called("t1", "t2"), result("t2"), result("t1")],
            [said(), called("t1", "t2"), result("t1"), result("t2")],
            id="results-take-the-order-of-the-calls",
        ),
        pytest.param([said(), AssistantEntry(" \n"), said("x")], [said(), said("x")], id="blank-reply"),
        pytest.param(
            [said(), AssistantEntry("", (ToolCall("t1", ""),)), result("t1")],
            [said()],
            id="call-without-a-name",
        ),
    ],
)
def test_a_transcript_is_put_in_order(given_entries: list[Entry], wanted: list[Entry] | None) -> None:
    assert repair(given_entries) == (given_entries if wanted is None else wanted)


def test_missing_and_repeated_ids_of_one_turn_become_nine_letters_and_digits() -> None:
    _, turn, *results = repair(
        [said(), called("", "a", "a"), result("", "0"), result("a", "1"), result("a", "2")]
    )

    assert isinstance(turn, AssistantEntry)
    ids = [call.id for call in turn.calls]
    assert ids[1] == "a"
    assert len(set(ids)) == 3
    assert all(len(one) == 9 and one.isalnum() for one in (ids[0], ids[2]))
    assert results == [result(one, text) for one, text in zip(ids, ("0", "1", "2"), strict=True)]


IDS = st.sampled_from(["", "a", "b", "c"])
ENTRIES: st.SearchStrategy[list[Entry]] = st.lists(
    st.one_of(
        st.builds(said, st.sampled_from(["x", "y"])),
        st.builds(NoteEntry, st.just("n")),
        st.builds(AssistantEntry, st.sampled_from(["", " ", "words"])),
        st.builds(
            lambda ids, text, problem: called(*ids, text=text, problem=problem),
            st.lists(IDS, min_size=1, max_size=3),
            st.sampled_from(["", "words"]),
            st.sampled_from([None, None, "cut"]),
        ),
        st.builds(result, IDS, st.sampled_from(["r", "s"])),
    ),
    max_size=14,
)


def assert_valid(entries: list[Entry]) -> None:
    assert not entries or isinstance(entries[0], UserEntry | NoteEntry)
    waiting: list[str] = []
    for entry in entries:
        if isinstance(entry, ToolEntry):
            assert waiting
            assert entry.call_id == waiting.pop(0)
            continue
        assert not waiting
        if isinstance(entry, AssistantEntry):
            assert entry.text.strip() or entry.calls
            waiting = [call.id for call in entry.calls]
            assert "" not in waiting
            assert len(set(waiting)) == len(waiting)
    assert not waiting


@given(ENTRIES)
def test_whatever_comes_in_a_valid_transcript_comes_out(entries: list[Entry]) -> None:
    assert_valid(repair(entries))


@given(ENTRIES)
def test_repairing_twice_changes_nothing(entries: list[Entry]) -> None:
    once = repair(entries)

    assert repair(once) == once


@given(ENTRIES)
def test_no_words_of_a_person_are_lost_but_those_before_the_start(entries: list[Entry]) -> None:
    kept = [entry for entry in repair(entries) if isinstance(entry, UserEntry | NoteEntry)]

    assert kept == [entry for entry in entries if isinstance(entry, UserEntry | NoteEntry)]


@given(ENTRIES, st.randoms(use_true_random=False))
def test_results_that_were_lost_doubled_or_moved_leave_a_valid_transcript(
    entries: list[Entry], chance: Random
) -> None:
    valid = repair(entries)
    others: list[Entry] = [entry for entry in valid if not isinstance(entry, ToolEntry)]
    for entry in valid:
        if isinstance(entry, ToolEntry):
            for _ in range(chance.randrange(3)):
                others.insert(chance.randrange(len(others) + 1), entry)

    assert_valid(repair(others))


def test_a_window_of_a_long_transcript_begins_with_a_person() -> None:
    """session-04: 140 messages, of which the last 100 are taken."""
    turn: list[Entry] = [said(), called("t1", "t2"), result("t1"), result("t2"), AssistantEntry("done")]
    window = (turn * 28)[-98:]

    repaired = repair(window)

    assert_valid(repaired)
    assert isinstance(repaired[0], UserEntry)
    assert repaired == window[3:]
