"""What people see of long work with tools."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.progress import LINES, WIDTH, Progress, shortened
from gateway.feed import Event, ToolEnded, ToolStarted


def after(*events: Event, seconds: float = 10.0) -> Progress:
    progress = Progress()
    for event in events:
        progress.take(event, 0.0)
    assert progress.lines(1.4) == [], "not before the work is long"
    return progress


def lines(*events: Event) -> list[str]:
    return after(*events).lines(10.0)


def planned(plan: str) -> tuple[Event, Event]:
    return ToolStarted("todo", {}), ToolEnded("todo", is_error=False, plan=plan)


def steps(count: int, doing: int) -> str:
    marks = ["[x]" if at < doing else "[>]" if at == doing else "[ ]" for at in range(count)]
    return "\n".join(f"{mark} step {at}" for at, mark in enumerate(marks))


def test_the_newest_calls_are_told_by_name_and_nothing_of_what_they_do() -> None:
    done: list[Event] = [ToolStarted("read", {"path": "secret"}), ToolEnded("read", is_error=False)]
    failed: list[Event] = [ToolStarted("fetch", {}), ToolEnded("fetch", is_error=True)]
    assert lines(*done, *failed, ToolStarted("exec", {"command": "rm"})) == ["✓ read", "✗ fetch", "• exec"]


def test_of_many_calls_the_newest_are_told() -> None:
    assert lines(*(ToolStarted(f"t{at}", {}) for at in range(20))) == [f"• t{at}" for at in range(12, 20)]


def test_a_plan_stands_above_the_calls_and_the_call_that_made_it_is_not_told() -> None:
    events = [ToolStarted("read", {}), *planned("[x] a\n[>] b\n[ ] c"), ToolStarted("exec", {})]
    assert lines(*events) == ["✓ a", "▸ b", "○ c", "• read", "• exec"]
    assert after(*events).current == "b (2/3)"


def test_the_newest_plan_counts() -> None:
    events = (*planned("[>] a\n[ ] b"), *planned("[x] a\n[x] b"))
    assert lines(*events) == ["✓ a", "✓ b"]
    assert after(*events).current == ""


@pytest.mark.parametrize("doing", [0, 1, 20, 48, 49])
def test_of_a_long_plan_the_part_that_is_being_done_is_told(doing: int) -> None:
    shown = lines(*planned(steps(50, doing)), ToolStarted("a", {}), ToolStarted("b", {}))
    assert len(shown) == LINES
    assert f"▸ step {doing}" in shown


@pytest.mark.parametrize("plan", ["There is no plan.", "[?] a", "[x]", "x"])
def test_what_is_no_step_is_not_told(plan: str) -> None:
    assert lines(*planned(plan), ToolStarted("a", {})) == ["• a"]


def test_a_plan_that_failed_changes_nothing() -> None:
    events = (*planned("[>] a"), ToolStarted("todo", {}), ToolEnded("todo", is_error=True))
    assert lines(*events) == ["▸ a", "✗ todo"]


@given(st.text(alphabet="abc \u4e2d🐙", max_size=400))
def test_a_line_is_cut_between_words_where_that_is_near(text: str) -> None:
    cut = shortened(text)
    assert len(cut) <= WIDTH
    assert text.startswith(cut.removesuffix("…"))


@given(st.lists(st.sampled_from(["[ ]", "[>]", "[x]"]), max_size=60), st.integers(0, 12))
def test_there_are_never_more_lines_than_fit(marks: list[str], calls: int) -> None:
    plan = "\n".join(f"{mark} {'word ' * 60}" for mark in marks)
    told = lines(*planned(plan), *(ToolStarted(f"t{at}", {}) for at in range(calls)))
    assert len(told) <= LINES
    assert all(len(line) <= WIDTH + 2 for line in told)
