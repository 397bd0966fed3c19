"""Deaths and restarts: what was accepted is answered, and what was sent is not sent again."""

from __future__ import annotations

import asyncio
import logging

import pytest

from tests.fakes.bot_api import Status
from tests.fakes.model_api import Call, reply
from tests.story.house import House, echo, held, is_prefix, is_valid, roles

LOOK = Call("call00001", "list_dir", {})


@pytest.mark.parametrize("steps", [0, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89])
async def test_a_death_at_any_moment_leaves_the_message_answered(house: House, steps: int) -> None:
    """Case durability-01: what the platform was told to forget is stored."""
    house.api.say("before")
    await house.hears("you said: before")
    await house.rests()
    asked, sent = len(house.model.requests), len(house.api.sent)

    number = house.api.say("hello")
    for _ in range(steps):
        await asyncio.sleep(0)
    await house.die()
    confirmed = number in house.api.confirmed
    stored = house.rows("select count(*) from inbound")[0][0] == 2
    assert stored or not confirmed

    await house.start()
    await house.rests()
    answers = house.texts()[sent:]
    assert set(answers) == {"you said: hello"}
    assert 1 <= len(answers) <= 2, "at most the one that was under way is repeated"
    assert asked + 1 <= len(house.model.requests) <= asked + 2


async def test_an_answer_that_was_not_sent_is_sent_once_without_a_second_model_call(house: House) -> None:
    """Case durability-02."""
    house.api.fail("sendMessage", Status(429, "Too Many Requests: retry after 60", {"retry_after": 60}))
    house.api.say("hello")
    await house.until(lambda: house.rows("select state, attempts from outbound") == [("pending", 1)])
    await house.die()
    house.clock.ahead += 60

    await house.start()
    await house.rests()
    assert house.texts() == ["you said: hello"]
    assert len(house.model.requests) == 1


async def test_a_handled_update_that_comes_again_after_a_restart_starts_no_turn(house: House) -> None:
    """Case durability-03."""
    message = house.api.message(7, text="hello")
    number = house.api.push({"message": message})
    await house.hears("you said: hello")
    await house.rests()
    await house.die()
    house.api.push({"message": message}, update_id=number)

    await house.start()
    await house.rests()
    assert house.texts() == ["you said: hello"]
    assert len(house.model.requests) == 1


async def test_a_death_between_send_and_mark_makes_at_most_one_copy_ever(house: House) -> None:
    """Case durability-05."""
    house.api.say("hello")
    await house.api.reply(1)
    await house.die()
    for _ in range(3):
        await house.start()
        await house.rests()
        await house.die()
    copies = len(house.texts())
    assert set(house.texts()) == {"you said: hello"}
    assert copies <= 2
    assert house.rows("select state, unknowns from outbound") == [("sent", copies - 1)], "recorded as such"
    assert len(house.model.requests) == 1


async def test_messages_of_three_days_ago_are_parked_and_told_in_one_line(
    house: House, caplog: pytest.LogCaptureFixture
) -> None:
    """Case durability-06."""
    house.api.fail("sendMessage", *[Status(429, "Too Many Requests", {"retry_after": 3600})] * 20)
    for chat in range(100, 120):
        house.api.say("hello", chat=chat)
    waiting = "select count(*) from outbound where state = 'pending' and attempts = 1"
    await house.until(lambda: house.rows(waiting) == [(20,)])
    await house.stop()
    house.clock.ahead += 72 * 3600

    with caplog.at_level(logging.INFO):
        await house.start()
        house.api.say("anybody there?")
        await house.hears("you said: anybody there?")
        await house.rests()
    assert len(house.api.sent) == 1
    [line] = [record for record in caplog.records if record.getMessage() == "outbox.parked"]
    assert line.__dict__["messages"] == 20
    assert house.rows("select state, count(*) from outbound group by state order by state") == [
        ("dead", 20),
        ("sent", 1),
    ]


async def test_a_stop_signal_lets_a_running_answer_be_finished_and_sent(house: House) -> None:
    """Case durability-10."""
    gate = asyncio.Event()
    house.model.play(held(reply("openai", "just in time"), gate))
    house.api.say("hello")
    await house.asked(1)
    house.ask_to_stop()
    await house.until(lambda: not house.api.polling)
    house.api.say("too late for today", chat=8)
    gate.set()
    await house.stop()
    assert house.texts() == ["just in time"]
    assert len(house.api.pending) == 1, "the intake has stopped"

    await house.start()
    await house.rests()
    assert house.texts() == ["just in time"]
    assert house.texts(8) == ["you said: too late for today"]
    assert len(house.model.requests) == 2


async def test_a_stop_signal_ends_a_tool_turn_at_its_next_step_and_a_start_goes_on_there(
    house: House,
) -> None:
    """Case durability-10."""
    gate = asyncio.Event()
    house.model.play(held(reply("openai", "", LOOK), gate))
    house.api.say("look around")
    first = await house.asked(1)
    house.ask_to_stop()
    await house.until(lambda: not house.api.polling)
    gate.set()
    await house.stop()
    assert house.texts() == []

    house.model.play(reply("openai", "I looked."))
    await house.start()
    await house.rests()
    assert house.texts() == ["I looked."]
    second = await house.asked(2)
    assert len(house.model.requests) == 2, "the saved step is not asked for again"
    assert is_prefix(first, second)
    assert roles(second) == ["user", "assistant", "tool"]


async def test_a_death_in_the_middle_of_a_tool_turn_goes_on_where_it_was(house: House) -> None:
    """Reliability row 4: a saved reply is not asked for again."""
    never = asyncio.Event()
    write = Call("call00001", "write", {"path": "a.txt", "content": "x"})
    house.model.play(reply("openai", "", write), held(reply("openai", "lost"), never))
    house.api.say("write it")
    await house.asked(2)
    await house.die()

    house.model.play(reply("openai", "Written."))
    await house.start()
    await house.rests()
    assert house.texts() == ["Written."]
    assert len(house.model.requests) == 3
    assert house.model.bodies[1] == house.model.bodies[2]
    assert is_valid(house.model.bodies[2])


async def test_many_deaths_in_one_conversation_lose_no_message_and_keep_the_order(house: House) -> None:
    for number in range(6):
        house.api.say(f"m{number}")
        for _ in range(7 * number):
            await asyncio.sleep(0)
        await house.die()
        await house.start()
    await house.rests()
    heard = [part for text in house.texts() for part in text.removeprefix("you said: ").split(" + ")]
    assert list(dict.fromkeys(heard)) == [f"m{number}" for number in range(6)]
    assert len(house.texts()) <= 6 + 6


async def test_three_starts_without_progress_give_the_turn_up_and_tell_the_person(house: House) -> None:
    """Reliability row 29: a message that ends the process each time is not tried for ever."""
    never = asyncio.Event()
    house.model.otherwise = lambda request: held(echo(request), never)
    house.api.say("the end of me")
    for number in range(1, 4):
        await house.asked(number)
        await house.die()
        await house.start()
    await house.rests()
    assert len(house.texts()) == 1
    assert "gave up" in house.texts()[0]
    assert len(house.model.requests) == 3

    house.model.otherwise = echo
    house.api.say("next")
    await house.rests()
    assert house.texts()[1:] == ["you said: next"]
