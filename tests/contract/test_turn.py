"""Turns on the real tables, with a model and tools that do as told."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest

from gateway.errors import LeaseLost, ModelRefused, PromptTooLong, StoreError
from gateway.feed import Delta, Event, ToolEnded, TurnEnded, TurnGone, TurnStarted
from gateway.store.engine import Database
from gateway.turn import CALL_SORRY, EMPTY_SORRY, FAILED_SORRY, LIMIT_SORRY, LONG_SORRY
from gateway.types import (
    Address,
    AssistantEntry,
    Chat,
    Kind,
    NoteEntry,
    OnUnknown,
    ToolCall,
    ToolEntry,
    UserEntry,
)
from tests.fakes.clock import FakeClock
from tests.fakes.scripted import ScriptedModel, ScriptedTools, call, calls, in_turn, people
from tests.fakes.world import World, said


def world(
    db: Database, clock: FakeClock, *answers: AssistantEntry | str | Exception, **more: object
) -> World:
    return World(db=db, clock=clock, model=ScriptedModel(in_turn(*answers)), **more)  # type: ignore[arg-type] # the World's own fields


async def test_a_message_is_answered(db: Database, clock: FakeClock) -> None:
    one = world(db, clock, "hello")
    await one.say("hi")
    assert one.channel.texts == ["hello"]
    assert people(one.model.prompts[0].entries) == ["hi"]


@pytest.mark.parametrize("name", ["todo", "todo_write"])
async def test_who_watches_sees_the_plan_whatever_the_model_calls_its_tool(
    db: Database, clock: FakeClock, name: str
) -> None:
    one = world(db, clock, calls(call(name)), "done")
    subscription = one.feed.subscribe()
    await one.say("plan it")
    one.feed.unsubscribe(subscription)
    events = [event async for _, event in subscription]
    assert [event.plan for event in events if isinstance(event, ToolEnded)] == [f"{name} done"]


async def test_a_later_turn_sees_the_earlier_ones(db: Database, clock: FakeClock) -> None:
    one = world(db, clock, "one", "two")
    await one.say("a")
    await one.say("b")
    first, second = (list(prompt.entries) for prompt in one.model.prompts)
    assert second[: len(first)] == first, "old entries keep their place and their bytes"
    assert people(second) == ["a", "b"]


async def test_messages_that_came_together_are_answered_together(db: Database, clock: FakeClock) -> None:
    one = world(db, clock, "both")
    await one.put(said("a"), said("b"))
    await one.settle()
    assert people(one.model.prompts[0].entries) == ["a", "b"]
    assert one.channel.texts == ["both"]


async def test_a_message_that_comes_while_tools_run_steers_the_turn(db: Database, clock: FakeClock) -> None:
    one = world(db, clock, calls(call("look")), "done")

    async def interrupted(_call: ToolCall) -> str:
        await one.put(said("and another thing"))
        return "seen"

    one.tools.result = interrupted
    await one.say("look")
    last = one.model.prompts[-1].entries
    assert [type(entry) for entry in last] == [UserEntry, AssistantEntry, ToolEntry, UserEntry]
    assert one.channel.texts == ["done"]


async def test_the_last_round_is_asked_for_in_words_and_without_tools(db: Database, clock: FakeClock) -> None:
    def answer(prompt: object) -> AssistantEntry:
        count = len(one.model.prompts)
        return AssistantEntry("so far so good") if count > 50 else calls(call("look", at=count))

    one = World(db=db, clock=clock, model=ScriptedModel(answer))
    await one.say("go")
    assert len(one.tools.ran) == 50
    assert [prompt.tools_allowed for prompt in one.model.prompts] == [True] * 50 + [False]
    assert one.channel.texts == ["so far so good"]


async def test_a_wrap_up_that_still_calls_tools_ends_with_a_plain_sentence(
    db: Database, clock: FakeClock
) -> None:
    one = World(db=db, clock=clock, model=ScriptedModel(lambda _: calls(call("look"))), max_rounds=2)
    one.tools.result = lambda made: made.id
    await one.say("go")
    assert len(one.tools.ran) == 2
    assert one.channel.texts == [LIMIT_SORRY]


async def test_the_same_call_with_the_same_result_is_not_made_for_ever(
    db: Database, clock: FakeClock
) -> None:
    def answer(prompt: object) -> AssistantEntry:
        return AssistantEntry("stuck") if one.model.prompts[-1].nudge else calls(call("look", path="a"))

    one = World(db=db, clock=clock, model=ScriptedModel(answer))
    await one.say("go")
    assert len(one.tools.ran) == 5
    assert one.channel.texts == ["stuck"]


async def test_calls_beyond_the_limit_of_one_reply_get_an_error_each(db: Database, clock: FakeClock) -> None:
    """Attack size-007."""
    one = world(db, clock, calls(*(call("look", n=n) for n in range(500))), "done")
    await one.say("go")
    assert len(one.tools.ran) == 16
    results = [entry for entry in one.model.prompts[-1].entries if isinstance(entry, ToolEntry)]
    assert len(results) == 500
    assert sum(entry.is_error for entry in results) == 484


async def test_a_call_printed_as_text_is_asked_for_again_once(db: Database, clock: FakeClock) -> None:
    printed = "<tool_call>{}</tool_call>"
    one = world(db, clock, printed, "in words")
    await one.say("go")
    assert one.channel.texts == ["in words"]
    assert [bool(prompt.nudge) for prompt in one.model.prompts] == [False, True]
    assert all(printed not in repr(prompt.entries) for prompt in one.model.prompts)

    again = world(db, clock, printed, printed)
    await again.say("go", chat="2")
    assert again.channel.texts == [CALL_SORRY]


@pytest.mark.parametrize(("answers", "sent"), [(("", "words"), "words"), (("", " \n"), EMPTY_SORRY)])
async def test_an_empty_answer_is_asked_for_again_once(
    db: Database, clock: FakeClock, answers: tuple[str, str], sent: str
) -> None:
    """Case empty-error-01."""
    one = world(db, clock, *answers)
    await one.say("go")
    assert one.channel.texts == [sent]
    assert len(one.model.prompts) == 2


async def test_an_empty_answer_in_a_group_is_silence(db: Database, clock: FakeClock) -> None:
    one = world(db, clock, "")
    await one.say("go", group=True)
    assert one.channel.texts == []
    assert len(one.model.prompts) == 1


async def test_a_failing_model_is_told_in_private_and_not_in_a_group(db: Database, clock: FakeClock) -> None:
    """Case empty-error-04."""
    one = world(db, clock, ModelRefused("402 billing", hint="The model provider wants money."))
    await one.say("go")
    await one.say("go", chat="2", group=True)
    assert one.channel.texts == ["The model provider wants money."]


async def test_a_history_that_is_too_long_is_shortened_for_the_call_only(
    db: Database, clock: FakeClock
) -> None:
    def answer(prompt: object) -> AssistantEntry:
        if len(one.model.prompts[-1].entries) > 3:
            raise PromptTooLong("too many tokens")
        return AssistantEntry("x" * 100)

    one = World(db=db, clock=clock, model=ScriptedModel(answer))
    for number in range(4):
        await one.say(f"message {number} " + "y" * 100)
    assert one.channel.texts == ["x" * 100] * 4
    last = one.model.prompts[-1].entries
    assert isinstance(last[0], UserEntry)
    assert people(last)[-1].startswith("message 3")


async def test_a_message_that_fits_nowhere_says_what_to_do(db: Database, clock: FakeClock) -> None:
    one = world(db, clock, PromptTooLong("too many tokens"))
    await one.say("go")
    assert one.channel.texts == [LONG_SORRY]


async def test_a_turn_that_never_gets_on_is_given_up_and_the_next_message_works(
    db: Database, clock: FakeClock
) -> None:
    """Reliability fault 29."""

    def answer(prompt: object) -> AssistantEntry:
        if people(one.model.prompts[-1].entries)[-1] == "poison":
            raise RuntimeError("the process breaks on this")
        return AssistantEntry("fine")

    one = World(db=db, clock=clock, model=ScriptedModel(answer))
    await one.put(said("poison"))
    for _ in range(5):
        await one.settle()
        clock.time += 100
    assert one.channel.texts == [FAILED_SORRY]
    assert len(one.model.prompts) == 3
    await one.say("hello")
    assert one.channel.texts == [FAILED_SORRY, "fine"]


async def test_what_the_bot_starts_itself_is_not_sent_twice_on_doubt(db: Database, clock: FakeClock) -> None:
    one = world(db, clock, "an alert")
    await one.put(said("beat", kind=Kind.HEARTBEAT))
    await one.settle()
    assert [message.on_unknown for message in one.channel.sent] == [OnUnknown.DROP]


async def test_silence_is_kept_in_the_transcript_and_sent_to_nobody(db: Database, clock: FakeClock) -> None:
    one = world(db, clock, "NO_REPLY", "hello")
    await one.say("a")
    assert one.channel.texts == []
    await one.say("b")
    assert one.channel.texts == ["hello"]


async def test_a_long_answer_leaves_in_pieces_in_order(db: Database, clock: FakeClock) -> None:
    one = world(db, clock, "abcdefghij" * 30)
    one.channel.limit = 100
    await one.say("go")
    assert "".join(one.channel.texts) == "abcdefghij" * 30
    assert len(one.channel.texts) == 3


async def test_extending_the_lease_of_a_turn_that_has_ended_locks_nothing(
    db: Database, clock: FakeClock
) -> None:
    one = world(db, clock, "one", "two")
    await one.put(said("a"))
    (claim,), _ = await one.worker.journal.claim(5)
    await one.worker.journal.release(claim, [AssistantEntry("one")])
    assert await one.worker.journal.renew([claim]) == [claim]
    await one.say("b")
    assert one.channel.texts == ["one"]


async def test_a_lease_that_another_process_took_stops_the_writes_of_the_old_one(
    db: Database, clock: FakeClock
) -> None:
    old, new = world(db, clock, "old"), world(db, clock, "new")
    await old.put(said("a"))
    (stale,), _ = await old.worker.journal.claim(5)
    clock.time += 100
    await new.settle()
    assert new.channel.texts == ["new"]
    with pytest.raises(LeaseLost):
        await old.worker.journal.append(stale, [NoteEntry("never")])
    with pytest.raises(LeaseLost):
        await old.worker.journal.release(stale, [AssistantEntry("never")])


async def test_a_draining_turn_stops_at_its_next_step_and_goes_on_later(
    db: Database, clock: FakeClock
) -> None:
    one = world(db, clock, calls(call("act")), "done")

    def last_act(_call: ToolCall) -> str:
        one.worker.drain()
        return "acted"

    one.tools.result = last_act
    await one.say("go")
    assert one.channel.texts == []
    again = world(db, clock, "done")
    await again.settle()
    assert again.channel.texts == ["done"]
    assert again.tools.ran == []


async def test_turns_of_different_conversations_run_side_by_side(db: Database, clock: FakeClock) -> None:
    together = asyncio.Barrier(3)

    async def answer() -> AssistantEntry:
        await together.wait()
        return AssistantEntry("done")

    one = World(db=db, clock=clock, model=ScriptedModel(lambda _: answer()), tools=ScriptedTools())
    await one.put(*(said("go", chat=str(chat)) for chat in range(3)))
    async with asyncio.timeout(10):
        await one.settle()
    assert one.channel.texts == ["done"] * 3


def events(one: World) -> Callable[[], list[Event]]:
    """Watch the conversation `fake:1:`; return how to read what has happened there."""
    seen: list[Event] = []

    class Watcher:
        def sees(self, address: Address) -> bool:
            return address == Address("fake", "1")

        def push(self, address: Address, event: Event) -> None:
            seen.append(event)

    one.feed.join(Watcher())
    return lambda: seen


async def test_watchers_learn_what_a_turn_answers_and_which_message_is_its_reply(
    db: Database, clock: FakeClock
) -> None:
    one = world(db, clock, "hello there")
    seen = events(one)
    beside = replace(said("beside", group=True), aimed=False, message_id="1")
    newest = replace(said("hi bot", group=True), message_id="2")
    await one.put(beside, newest)
    await one.settle()
    started, text, ended = seen()
    assert isinstance(started, TurnStarted)
    assert (started.kind, started.chat, started.message_id) == (Kind.MESSAGE, Chat.GROUP, "2")
    assert started.aimed
    assert text == Delta("hello "), "the last word waits, in case it becomes a secret"
    assert ended == TurnEnded("hello there", (beside.key, newest.key), reply=one.channel.sent[0].key)


async def test_a_turn_that_nobody_aimed_at_the_bot_says_so(db: Database, clock: FakeClock) -> None:
    one = world(db, clock, "hello", "and again")
    await one.say("first")
    seen = events(one)
    await one.put(replace(said("beside"), aimed=False))
    await one.settle()
    started = seen()[0]
    assert isinstance(started, TurnStarted)
    assert not started.aimed, "what was aimed at it in an earlier turn does not count"


async def test_a_silent_turn_has_no_reply(db: Database, clock: FakeClock) -> None:
    one = world(db, clock, "NO_REPLY")
    seen = events(one)
    await one.say("hi")
    ended = seen()[-1]
    assert isinstance(ended, TurnEnded)
    assert (ended.text, ended.reply) == ("", "")


@pytest.mark.parametrize(
    "failure", [RuntimeError("a fault"), StoreError("the disk is full"), LeaseLost("gone")], ids=repr
)
async def test_a_turn_that_fails_is_gone_and_begins_anew_under_another_name(
    db: Database, clock: FakeClock, failure: Exception
) -> None:
    one = world(db, clock, failure, "at last")
    seen = events(one)
    await one.say("hi")
    started, gone = seen()
    assert isinstance(started, TurnStarted)
    assert gone == TurnGone(started.turn)
    clock.time += 120
    await one.settle()
    again = seen()[2]
    assert isinstance(again, TurnStarted)
    assert again.turn != started.turn
    assert isinstance(seen()[-1], TurnEnded)


async def test_a_turn_that_is_interrupted_is_gone(db: Database, clock: FakeClock) -> None:
    async def answer(_prompt: object) -> AssistantEntry:
        conversation_id, _ = await one.worker.journal.stop(Address("fake", "1"))
        assert conversation_id is not None
        one.worker.interrupt(conversation_id)
        await asyncio.sleep(60)
        return AssistantEntry("never")

    one = World(db=db, clock=clock, model=ScriptedModel(answer))
    seen = events(one)
    await one.say("hi")
    started, gone = seen()
    assert isinstance(started, TurnStarted)
    assert gone == TurnGone(started.turn)


async def test_a_turn_that_is_put_off_at_a_stop_is_gone(db: Database, clock: FakeClock) -> None:
    one = world(db, clock, calls(call("look")), "never")

    async def stopping(_call: ToolCall) -> str:
        one.worker.drain()
        return "seen"

    one.tools.result = stopping
    seen = events(one)
    await one.say("hi")
    assert isinstance(seen()[0], TurnStarted)
    assert isinstance(seen()[-1], TurnGone)
