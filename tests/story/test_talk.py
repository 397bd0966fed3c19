"""Ordinary conversations: answers, tools, commands, sessions, and what the model is sent."""

from __future__ import annotations

import asyncio
import itertools

import pytest

from tests.fakes.model_api import Call, deltas, reply
from tests.story.house import House, echo, held, is_prefix, is_valid, results, roles, spoken


async def test_a_text_in_a_private_chat_gets_the_models_answer(house: House) -> None:
    house.api.say("hello")
    await house.hears("you said: hello")
    await house.rests()
    assert house.texts() == ["you said: hello"]
    assert len(house.model.requests) == 1


async def test_a_tool_is_called_and_its_result_is_sent_before_the_answer(house: House) -> None:
    house.workspace.joinpath("plan.txt").write_text("milk")
    house.model.play(
        reply("openai", "", Call("call00001", "list_dir", {})), reply("openai", "There is a plan.")
    )
    house.api.say("what is here?")
    await house.hears("There is a plan.")

    second = await house.asked(2)
    assert roles(second) == ["user", "assistant", "tool"]
    _, user, assistant, tool = second["messages"]
    assert user["content"].endswith("what is here?")
    function = assistant["tool_calls"][0]["function"]
    assert (function["name"], function["arguments"]) == ("list_dir", "{}")
    assert tool["tool_call_id"] == assistant["tool_calls"][0]["id"]
    assert "plan.txt (4)" in tool["content"]


async def test_what_one_tool_call_writes_the_next_one_reads(house: House) -> None:
    write = Call("call00001", "write", {"path": "notes/a.txt", "content": "remember me"})
    read = Call("call00002", "read", {"path": "notes/a.txt"})
    house.model.play(
        reply("openai", "I write it down.", write), reply("openai", "", read), reply("openai", "Done.")
    )
    house.api.say("note this")
    await house.hears("Done.")

    third = await house.asked(3)
    assert roles(third) == ["user", "assistant", "tool", "assistant", "tool"]
    assert results(third) == ["Wrote 11 bytes to notes/a.txt", "remember me"]
    assert is_valid(third)
    assert house.workspace.joinpath("notes/a.txt").read_text() == "remember me"


async def test_two_calls_of_one_reply_get_two_results_in_their_order(house: House) -> None:
    calls = [Call(f"call0000{n}", "write", {"path": f"{n}.txt", "content": "x" * n}) for n in (1, 2)]
    house.model.play(reply("openai", "", *calls), reply("openai", "Both."))
    house.api.say("write two files")
    await house.hears("Both.")

    second = await house.asked(2)
    assert roles(second) == ["user", "assistant", "tool", "tool"]
    assert results(second) == ["Wrote 1 bytes to 1.txt", "Wrote 2 bytes to 2.txt"]


async def test_a_long_answer_arrives_in_pieces_in_order(house: House) -> None:
    words = [f"word{number:05d}" for number in range(1200)]
    house.model.play(reply("openai", " ".join(words)))
    house.api.say("tell me a long story")
    await house.rests()
    assert len(house.texts()) > 1
    assert " ".join(house.texts()).split() == words


async def test_new_starts_with_a_fresh_prompt(house: House) -> None:
    house.api.say("my name is Ann")
    await house.hears("you said: my name is Ann")
    house.api.say("/new")
    await house.api.reply(2)
    house.api.say("who am I?")
    await house.rests()

    assert house.texts()[2] == "you said: who am I?"
    assert spoken(house.model.bodies[-1]) == ["who am I?"]
    assert "Ann" not in str(house.model.bodies[-1])


@pytest.mark.parametrize("command", ["/new", "/reset", "/new@fake_bot:"])
async def test_what_is_said_with_new_is_the_first_message_of_the_new_session(
    house: House, command: str
) -> None:
    gate = asyncio.Event()
    house.model.play(held(reply("openai", "too late"), gate))
    house.api.say("my name is Ann")
    await house.asked(1)
    update = {"message": house.api.message(text=f"{command} who am I?\nreally")}
    house.api.push(update)
    house.api.push(update)  # once more, as a platform may
    await house.rests()
    gate.set()

    [told, answer] = house.texts()
    assert told.startswith("A new session begins.")
    assert answer == "you said: who am I?\nreally"
    assert spoken(house.model.bodies[-1]) == ["who am I?\nreally"]


@pytest.mark.parametrize(
    ("command", "part"),
    [("/status", "telegram: running"), ("/help", "/stop"), ("/whoami", "You are 7"), ("/start", "/help")],
)
async def test_a_command_is_answered_while_a_turn_hangs(house: House, command: str, part: str) -> None:
    gate = asyncio.Event()
    house.model.play(held(reply("openai", "at last"), gate))
    house.api.say("think hard")
    await house.asked(1)

    house.api.say(command)
    await house.api.reply(1)
    assert part in house.texts()[0]

    gate.set()
    await house.rests()
    assert house.texts()[1:] == ["at last"]
    assert len(house.model.requests) == 1, "a command costs no model call"


async def test_an_unknown_slash_text_goes_to_the_model(house: House) -> None:
    house.api.say("/etc/passwd is a file, isn't it?")
    house.api.say("/frobnicate", chat=8)
    await house.hears("you said: /etc/passwd is a file, isn't it?")
    await house.hears("you said: /frobnicate", chat=8)


async def test_no_reply_sends_nothing_and_the_chat_goes_on(house: House) -> None:
    house.model.play(reply("openai", "NO_REPLY"))
    house.api.say("just saying")
    await house.asked(1)
    await house.rests()
    assert house.texts() == []

    house.api.say("and now?")
    await house.hears("you said: and now?")
    assert roles(house.model.bodies[-1]) == ["user", "assistant", "user"]


@pytest.mark.parametrize(
    ("case", "text", "shown"),
    [
        ("reasoning-01", "<think>long musing<final>Answer: 4.</final>", "Answer: 4."),
        ("reasoning-03", "<think>x</think>\nHello", "Hello"),
        ("thinking-tag", "<thinking>\nhm\n\n</thinking>\n\nHello", "Hello"),
        ("no-opening-tag", "so he wants\n</think>\n\nHello", "Hello"),
    ],
)
async def test_thoughts_inside_the_text_are_never_sent(
    house: House, case: str, text: str, shown: str
) -> None:
    house.model.play(reply("openai", text))
    house.api.say(case)
    await house.hears(shown)
    await house.rests()
    assert house.texts() == [shown]


async def test_thoughts_beside_the_text_are_never_sent(house: House) -> None:
    """Case reasoning-04."""
    house.model.play(deltas({"reasoning_content": "secret plan"}, {"content": "Hel"}, {"content": "lo"}))
    house.api.say("hi")
    await house.rests()
    assert house.texts() == ["Hello"]


async def test_markup_in_a_code_block_is_shown_and_nothing_runs(house: House) -> None:
    """Case toolcall-03."""
    text = (
        'Use this:\n```xml\n<invoke name="exec"><parameter name="command">rm -rf /</parameter></invoke>\n```'
    )
    house.model.play(reply("openai", text))
    house.api.say("how do I call it?")
    await house.rests()
    assert "<invoke" in "".join(house.texts())
    assert len(house.model.requests) == 1


async def test_a_promise_without_a_call_is_delivered_as_it_is(house: House) -> None:
    """Case toolcall-09."""
    house.model.play(reply("openai", "I'm on it!"))
    house.api.say("do it")
    await house.rests()
    assert house.texts() == ["I'm on it!"]
    assert len(house.model.requests) == 1


async def test_each_request_repeats_the_bytes_of_the_one_before_it(house: House) -> None:
    """Cases cache-01, cache-02 and cache-04: time passes and counters grow, but the prefix stays."""
    house.model.play(
        reply("openai", "", Call("call00001", "list_dir", {}), input_tokens=100, cached=0),
        reply("openai", "first", input_tokens=1000, cached=100),
    )
    for number, text in enumerate(["one", "two", "three"], 1):
        house.api.say(text, date=1_800_000_000 + 60 * number)
        await house.api.reply(number)
        await house.rests()
        house.clock.ahead += 60

    bodies = house.model.bodies
    assert len(bodies) == 4
    for earlier, later in itertools.pairwise(bodies):
        assert is_prefix(earlier, later)
    people = [message["content"] for message in bodies[-1]["messages"] if message["role"] == "user"]
    assert people == [
        f"[Fri 2027-01-15 09:0{minute} +01:00] {text}"
        for minute, text in enumerate(["one", "two", "three"], 1)
    ]


async def test_a_conversation_goes_on_after_a_restart_with_the_same_prefix(house: House) -> None:
    house.model.play(reply("openai", "", Call("call00001", "list_dir", {})), reply("openai", "Hello Ann."))
    house.api.say("I am Ann")
    await house.hears("Hello Ann.")
    await house.rests()

    await house.restart()
    house.api.say("who am I?")
    await house.hears("Hello Ann.", "you said: who am I?")

    before, after = house.model.bodies[1:]
    assert is_prefix(before, after)
    assert roles(after) == ["user", "assistant", "tool", "assistant", "user"]


async def test_two_people_never_see_each_others_words(house: House) -> None:
    house.model.otherwise = echo
    house.api.say("my pin is 1234", chat=7)
    house.api.say("hello", chat=8)
    await house.rests()
    house.api.say("what was my pin?", chat=8)
    await house.hears("you said: hello", "you said: what was my pin?", chat=8)
    assert "1234" not in str(house.model.bodies[-1])
