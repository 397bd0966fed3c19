from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gateway.steps import INTERRUPTED, Ask, Rest, Run, RunOnce, Settle, is_open, next_step
from gateway.types import AssistantEntry, Entry, Kind, Sender, ToolCall, ToolEntry, UserEntry

HELLO = UserEntry("hi", Sender("7"), Kind.MESSAGE, 0.0)


def replayable(name: str) -> bool:
    return name != "act"


def step(*transcript: Entry, started: str | None = None) -> object:
    return next_step(transcript, started=started, replayable=replayable)


def test_an_empty_conversation_rests() -> None:
    assert step() == Rest()


def test_a_question_asks_the_model_and_an_answer_rests() -> None:
    assert step(HELLO) == Ask()
    assert step(HELLO, AssistantEntry("hello")) == Rest()


def test_calls_that_may_repeat_run_side_by_side_before_the_others_run_one_by_one() -> None:
    made = (ToolCall("1", "act"), ToolCall("2", "look"), ToolCall("3", "act"), ToolCall("4", "look"))
    asked = AssistantEntry("", made)
    assert step(HELLO, asked) == Run((made[1], made[3]))
    looked = (ToolEntry("2", "look", "x"), ToolEntry("4", "look", "y"))
    assert step(HELLO, asked, *looked) == RunOnce(made[0])
    assert step(HELLO, asked, *looked, ToolEntry("1", "act", "z")) == RunOnce(made[2])


def test_a_call_that_was_noted_as_started_is_settled_and_never_run_again() -> None:
    asked = AssistantEntry("", (ToolCall("1", "act"), ToolCall("2", "act")))
    assert step(HELLO, asked, started="1") == Settle(ToolEntry("1", "act", INTERRUPTED, is_error=True))


def test_a_call_that_was_not_started_runs_after_a_crash() -> None:
    call = ToolCall("1", "act")
    assert step(HELLO, AssistantEntry("", (call,))) == RunOnce(call)


def test_an_unreadable_call_is_answered_at_once_since_it_has_no_effect() -> None:
    call = ToolCall("1", "act", problem="not JSON")
    assert step(HELLO, AssistantEntry("", (call,))) == Run((call,))


def test_calls_before_a_newer_message_are_not_open() -> None:
    assert is_open((HELLO, AssistantEntry("", (ToolCall("1", "act"),)), HELLO)) == ()


@given(
    st.lists(st.lists(st.sampled_from(["look", "act"]), max_size=4), max_size=4),
    st.lists(st.booleans(), min_size=80, max_size=80),
)
def test_whatever_crashes_each_call_gets_one_result_and_no_act_runs_twice(
    plan: list[list[str]], crashes: list[bool]
) -> None:
    transcript: list[Entry] = [HELLO]
    ran: list[str] = []
    started: str | None = None
    rounds, crash = iter([*plan, []]), iter(crashes)
    for number in range(500):
        now = next_step(transcript, started=started, replayable=replayable)
        match now:
            case Rest():
                break
            case Ask():
                if next(crash, False):
                    continue  # the reply died with the process
                names = next(rounds, [])
                made = tuple(ToolCall(f"{number}.{i}", name) for i, name in enumerate(names))
                transcript.append(AssistantEntry("x", made))
            case Run(calls=calls):
                if not next(crash, False):
                    transcript += [ToolEntry(call.id, call.name, "ok") for call in calls]
            case RunOnce(call=call):
                if next(crash, False):
                    continue  # died before the note
                started = call.id
                ran.append(call.id)
                if next(crash, False):
                    continue  # ran, and the result died with the process
                transcript.append(ToolEntry(call.id, call.name, "ok"))
                started = None
            case Settle(result=result):
                transcript.append(result)
                started = None
    last = transcript[-1]
    assert isinstance(last, AssistantEntry)
    assert not last.calls
    asked = [call.id for entry in transcript if isinstance(entry, AssistantEntry) for call in entry.calls]
    answered = [entry.call_id for entry in transcript if isinstance(entry, ToolEntry)]
    assert sorted(asked) == sorted(answered)
    assert len(ran) == len(set(ran))
