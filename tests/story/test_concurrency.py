"""Several messages and several chats at once."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from gateway.tools.base import Group, ToolContext
from gateway.tools.schema import tool
from gateway.types import Replay
from tests.fakes.model_api import Answer, Call, Request, reply
from tests.story.house import House, echo, held, is_valid, roles, spoken

LOOK = Call("call00001", "list_dir", {})


async def test_a_message_during_a_turn_is_answered_after_it(house: House) -> None:
    """Case concurrency-01."""
    gate = asyncio.Event()
    house.model.play(held(reply("openai", "one"), gate))
    house.api.say("first")
    await house.asked(1)
    house.api.say("second")
    await house.until(lambda: not house.api.pending)
    gate.set()
    await house.hears("one", "you said: second")


async def test_six_messages_during_a_final_answer_become_one_following_turn_in_order(house: House) -> None:
    """Case concurrency-02."""
    gate = asyncio.Event()
    house.model.play(held(reply("openai", "one"), gate))
    house.api.say("go")
    await house.asked(1)
    for number in range(1, 7):
        house.api.say(f"m{number}")
    await house.until(lambda: not house.api.pending)
    gate.set()
    await house.hears("one", "you said: m1 + m2 + m3 + m4 + m5 + m6")
    await house.rests()
    assert len(house.model.requests) == 2
    assert roles(house.model.bodies[-1]) == ["user", "assistant", *["user"] * 6]


async def test_six_messages_during_a_tool_turn_reach_its_next_step_in_order(house: House) -> None:
    """Case concurrency-02, steering: they come behind the tool's result, never between call and result."""
    gate = asyncio.Event()
    house.model.play(held(reply("openai", "", LOOK), gate))
    house.api.say("go")
    await house.asked(1)
    for number in range(1, 7):
        house.api.say(f"m{number}")
    await house.until(lambda: not house.api.pending)
    gate.set()
    await house.hears("you said: go + m1 + m2 + m3 + m4 + m5 + m6")
    await house.rests()
    assert len(house.model.requests) == 2
    assert roles(house.model.bodies[-1]) == ["user", "assistant", "tool", *["user"] * 6]


async def test_stop_during_a_model_call_is_told_at_once_and_the_next_message_works(house: House) -> None:
    """Case concurrency-03."""
    never = asyncio.Event()
    house.model.play(reply("openai", "", LOOK), held(reply("openai", "too late"), never))
    house.api.say("dig deep")
    await house.asked(2)
    house.api.say("and deeper")
    await house.until(lambda: not house.api.pending)

    house.api.say("/stop")
    await house.hears("Stopped.")
    await house.rests()
    await house.until(house.model.gone.is_set)  # the model's connection was closed
    assert house.texts() == ["Stopped."]

    house.api.say("hello again")
    await house.hears("Stopped.", "you said: hello again")
    await house.rests()
    assert is_valid(house.model.bodies[-1])
    assert len(house.model.requests) == 3, "what was stopped is not taken up again, what waited was cleared"


async def test_stop_during_a_tool_ends_it_and_leaves_a_valid_history(empty_house: House) -> None:
    """Case concurrency-03."""
    house = empty_house
    began, ended = asyncio.Event(), asyncio.Event()

    @tool(Replay.ONCE, Group.PLAN)
    async def hang(context: ToolContext) -> str:
        """Never come back."""
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return context.call_id

    house.tools = (hang,)
    await house.start()
    house.model.play(reply("openai", "", Call("call00009", "hang", {})))
    house.api.say("run it")
    await house.until(began.is_set)
    house.api.say("/stop")
    await house.hears("Stopped.")
    await house.until(ended.is_set)
    await house.rests()

    house.api.say("what happened?")
    await house.hears("Stopped.", "you said: what happened?")
    last = house.model.bodies[-1]
    assert is_valid(last)
    assert roles(last) == ["user", "assistant", "tool", "assistant", "user"]


@pytest.mark.parametrize("command", ["/stop", "/new"])
async def test_a_message_in_the_same_moment_as_a_stop_is_answered(empty_house: House, command: str) -> None:
    """Also when the turn that was stopped takes its time to end, since a tool cleans up."""
    house = empty_house
    began, may_end = asyncio.Event(), asyncio.Event()

    @tool(Replay.SAFE, Group.PLAN)
    async def slow_to_end(context: ToolContext) -> str:
        """Clean up before it lets go."""
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            await may_end.wait()
        return context.call_id

    house.tools = (slow_to_end,)
    await house.start()
    house.model.play(reply("openai", "", Call("call00009", "slow_to_end", {})))
    house.api.say("run it")
    await house.until(began.is_set)
    house.api.say(command)
    house.api.say("next")
    await house.until(lambda: not house.api.pending)
    await house.until(lambda: len(house.texts()) >= 1)
    house.api.say("hello", chat=8)
    await house.hears("you said: hello", chat=8)
    may_end.set()
    await house.until(lambda: "you said: next" in house.texts())
    await house.rests()
    house.api.say("still there?")
    await house.until(lambda: "you said: still there?" in house.texts())


async def test_stop_when_nothing_runs_says_so(house: House) -> None:
    house.api.say("/stop")
    await house.hears("Nothing is running.")


async def test_new_during_a_turn_ends_it_and_starts_afresh(house: House) -> None:
    never = asyncio.Event()
    house.model.play(held(reply("openai", "too late"), never))
    house.api.say("old things")
    await house.asked(1)
    house.api.say("/new")
    await house.api.reply(1)
    house.api.say("new things")
    await house.api.reply(2)
    await house.rests()
    assert house.texts()[1:] == ["you said: new things"]
    assert roles(house.model.bodies[-1]) == ["user"]


async def test_nine_chats_are_answered_while_a_tenth_is_blocked(house: House) -> None:
    """Case concurrency-05."""
    gate = asyncio.Event()

    def answer(request: Request) -> Answer:
        blocked = "block" in spoken(request.body)[0]
        return held(echo(request), gate) if blocked else echo(request)

    house.model.otherwise = answer
    house.api.say("block", chat=100)
    await house.asked(1)
    for chat in range(101, 110):
        house.api.say(f"hello {chat}", chat=chat)
    for chat in range(101, 110):
        await house.hears(f"you said: hello {chat}", chat=chat)
    assert house.texts(100) == []
    gate.set()
    await house.hears("you said: block", chat=100)


async def test_turns_of_many_chats_run_side_by_side(house: House) -> None:
    gate = asyncio.Event()
    house.model.otherwise = lambda request: held(echo(request), gate)
    for chat in range(20):
        house.api.say("hello", chat=100 + chat)
    await house.asked(20)
    gate.set()
    await house.rests()
    assert Counter(sent.chat for sent in house.api.sent) == {100 + chat: 1 for chat in range(20)}


async def test_turns_of_one_chat_run_strictly_one_after_the_other(house: House) -> None:
    running, most = 0, 0

    async def release(gate: asyncio.Event) -> None:
        nonlocal running
        await house.until(lambda: not house.api.pending)
        running -= 1
        gate.set()

    releases: list[asyncio.Task[None]] = []

    def answer(request: Request) -> Answer:
        nonlocal running, most
        gate = asyncio.Event()
        running += 1
        most = max(most, running)
        house.api.say(f"m{len(house.model.requests)}") if len(house.model.requests) < 8 else None
        releases.append(asyncio.create_task(release(gate)))
        return held(echo(request), gate)

    house.model.otherwise = answer
    house.api.say("m0")
    await house.hears(*(f"you said: m{number}" for number in range(8)))
    await asyncio.gather(*releases)
    assert most == 1
