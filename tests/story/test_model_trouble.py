"""Models that fail, break off, say nothing, or call tools badly."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from gateway.compaction import HEADINGS
from gateway.models.base import Model, OnRestart, OnText, Prompt, Reply
from gateway.turn import (
    CALL_NOTE,
    CALL_SORRY,
    EMPTY_NOTE,
    EMPTY_SORRY,
    FAILED_SORRY,
    LIMIT_NOTE,
    MAX_ATTEMPTS,
)
from tests.fakes.model_api import Answer, Call, Request, deltas, json_body, reply
from tests.story.house import House, echo, is_valid, results, roles, spoken

PSEUDO = "Checking.\n<tool_call>\n<function=exec>\n<parameter=command>\nls\n</parameter>\n</function>\n</tool_call>"
DOWN = "The model does not answer right now (HTTP 500). Please try again in a minute."


def broken(status: int = 500, **headers: str) -> Answer:
    return json_body({"error": {"message": "scripted"}}, status=status, **headers)


def raw_call(arguments: str | None, name: str = "list_dir") -> Answer:
    function = {"name": name, "arguments": arguments}
    call = {"index": 0, "id": "call00001", "type": "function", "function": function}
    return deltas({"tool_calls": [call]}, finish="tool_calls")


async def test_one_500_is_one_answer(house: House) -> None:
    house.model.play(broken())
    house.api.say("hello")
    await house.hears("you said: hello")
    await house.rests()
    assert house.texts() == ["you said: hello"]
    assert house.model.bodies[0] == house.model.bodies[1]


async def test_a_model_that_is_down_is_told_in_one_sentence_and_the_next_message_works(house: House) -> None:
    house.model.play(*[broken()] * 3)
    house.api.say("hello")
    await house.hears(DOWN)
    await house.rests()
    assert len(house.model.requests) == 3, "three tries in all (reliability row 13)"

    house.api.say("and now?")
    await house.hears(DOWN, "you said: and now?")
    assert is_valid(house.model.bodies[-1])


async def test_a_model_that_can_not_be_reached_is_told_in_one_sentence(empty_house: House) -> None:
    house = empty_house
    house.model.url = "http://127.0.0.1:1"
    await house.start()
    house.api.say("hello")
    await house.rests()
    [text] = house.texts()
    assert text.startswith("The model does not answer right now (")
    assert len(text) < 200


async def test_a_refused_key_is_told_without_the_key(house: House) -> None:
    house.model.play(broken(401))
    house.api.say("hello")
    await house.rests()
    [text] = house.texts()
    assert "refused the API key" in text
    assert len(house.model.requests) == 1


async def test_a_429_waits_as_long_as_it_was_told(house: House) -> None:
    house.model.play(broken(429, retry_after="17"))
    house.api.say("hello")
    await house.hears("you said: hello")
    assert [wait for wait in house.clock.slept if 17 <= wait < 19]
    assert len(house.model.requests) == 2


async def test_other_chats_go_on_while_one_waits_for_a_busy_model(house: House) -> None:
    calls = 0

    def answer(request: Request) -> Answer:
        nonlocal calls
        if spoken(request.body) != ["slow"]:
            return echo(request)
        calls += 1
        return broken(429, retry_after="50") if calls == 1 else echo(request)

    house.model.otherwise = answer
    house.api.say("slow", chat=8)
    await house.asked(1)
    house.api.say("quick", chat=9)
    await house.hears("you said: quick", chat=9)
    await house.hears("you said: slow", chat=8)


@pytest.mark.parametrize("cut", [1, 60, 150, 300])
async def test_a_stream_that_is_cut_leaves_one_whole_answer(house: House, cut: int) -> None:
    whole = reply("openai", "The answer is forty-two.")
    house.model.play(Answer(chunks=whole.chunks, cut=cut), whole)
    house.api.say("what is the answer?")
    await house.rests()
    assert house.texts() == ["The answer is forty-two."]


async def test_a_tool_call_of_a_cut_stream_never_runs(house: House) -> None:
    whole = reply("openai", "", Call("call00001", "write", {"path": "a.txt", "content": "x"}))
    size = sum(len(chunk) for chunk in whole.chunks if isinstance(chunk, bytes))
    house.model.play(Answer(chunks=whole.chunks, cut=size - 250), reply("openai", "Never mind."))
    house.api.say("write it")
    await house.hears("Never mind.")
    assert not house.workspace.joinpath("a.txt").exists()
    assert roles(house.model.bodies[-1]) == ["user"]


async def test_an_empty_answer_is_asked_for_again(house: House) -> None:
    house.model.play(reply("openai", ""))
    house.api.say("hello")
    await house.rests()
    assert len(house.texts()) == 1
    assert house.model.bodies[1]["messages"][-1] == {"role": "user", "content": EMPTY_NOTE}


async def test_two_empty_answers_are_one_honest_sentence(house: House) -> None:
    """Case empty-error-01."""
    house.model.play(reply("openai", ""), reply("openai", ""))
    house.api.say("hello")
    await house.hears(EMPTY_SORRY)
    await house.rests()
    assert house.texts() == [EMPTY_SORRY]
    assert len(house.model.requests) == 2

    house.api.say("again")
    await house.hears(EMPTY_SORRY, "you said: again")


async def test_a_tool_call_as_text_gets_one_corrective_retry(house: House) -> None:
    """Case toolcall-01."""
    house.model.play(reply("openai", PSEUDO), reply("openai", "Here it is."))
    house.api.say("list files")
    await house.hears("Here it is.")
    second = house.model.bodies[1]
    assert second["messages"][-1] == {"role": "user", "content": CALL_NOTE}

    house.api.say("thanks")
    await house.api.reply(2)
    last = house.model.bodies[-1]
    assert roles(last) == ["user", "assistant", "user"], (
        "neither the markup nor the nudge stays in the history"
    )


async def test_a_tool_call_as_text_twice_is_an_apology(house: House) -> None:
    """Case toolcall-01."""
    house.model.play(reply("openai", PSEUDO), reply("openai", PSEUDO))
    house.api.say("list files")
    await house.hears(CALL_SORRY)
    await house.rests()
    assert house.texts() == [CALL_SORRY]
    assert len(house.model.requests) == 2


@pytest.mark.parametrize("arguments", ["", "  ", None], ids=["empty", "blank", "null"])
async def test_no_arguments_are_empty_arguments(house: House, arguments: str | None) -> None:
    """Case toolcall-04."""
    house.workspace.joinpath("here.txt").touch()
    house.model.play(raw_call(arguments), reply("openai", "Listed."))
    house.api.say("list")
    await house.hears("Listed.")
    assert "here.txt (0)" in results(house.model.bodies[1])[0]


async def test_size_010_cut_off_arguments_run_nothing_and_the_model_learns_why(house: House) -> None:
    """Case toolcall-05."""
    house.model.play(raw_call('{"path": "a.txt", "content": "abc', "write"), reply("openai", "I see."))
    house.api.say("write")
    await house.hears("I see.")
    assert not house.workspace.joinpath("a.txt").exists()
    [result] = results(house.model.bodies[1])
    assert result.startswith("Error: write: the arguments are not valid JSON: ")
    assert result.endswith("It was not run; send the call again.")
    assert is_valid(house.model.bodies[1])


async def test_too_many_calls_of_one_reply_are_refused_for_what_they_are(house: House) -> None:
    calls = [Call(f"c{number}", "write", {"path": f"{number}.txt", "content": "x"}) for number in range(17)]
    house.model.play(reply("openai", "", *calls), reply("openai", "I see."))
    house.api.say("write")
    await house.hears("I see.")
    *done, refused = results(house.model.bodies[1])
    assert done == [f"Wrote 1 bytes to {number}.txt" for number in range(16)]
    assert refused == (
        "Error: write: at most 16 calls of one reply are run. It was not run; send the call again."
    )


async def test_an_unknown_tool_is_an_error_for_the_model(house: House) -> None:
    house.model.play(raw_call("{}", "x"), reply("openai", "No such thing."))
    house.api.say("use x")
    await house.hears("No such thing.")
    assert results(house.model.bodies[1])[0].startswith("Error: unknown tool 'x'")


async def test_fifty_one_tool_rounds_are_fifty_executions_and_one_call_without_tools(house: House) -> None:
    def answer(request: Request) -> Answer:
        number = len(house.model.requests)
        if "tools" not in request.body:
            return reply("openai", "This is how far I came.")
        args = {"path": f"{number}.txt", "content": "x"}
        return reply("openai", "", Call(f"call{number:05d}", "write", args))

    house.model.otherwise = answer
    house.api.say("never stop")
    await house.hears("This is how far I came.")
    await house.rests()
    assert len(house.model.requests) == 51
    assert len(list(house.workspace.glob("[0-9]*.txt"))) == 50
    last = house.model.bodies[-1]
    assert last["messages"][-1] == {"role": "user", "content": LIMIT_NOTE}
    assert is_valid(last)


async def test_the_same_call_for_ever_is_wrapped_up_early(house: House) -> None:
    def answer(request: Request) -> Answer:
        if "tools" not in request.body:
            return reply("openai", "I went round in circles.")
        number = len(house.model.requests)
        return reply("openai", "", Call(f"call{number:05d}", "read", {"path": "nothing.txt"}))

    house.model.otherwise = answer
    house.api.say("loop")
    await house.hears("I went round in circles.")
    assert len(house.model.requests) == 6


TOO_LONG = json_body({"error": {"message": "maximum context length exceeded"}}, status=400)


async def talk_long(house: House) -> None:
    for number in range(4):
        house.model.play(reply("openai", "word " * 400))
        house.api.say(f"question {number}")
        await house.api.reply(number + 1)
    await house.rests()


async def test_a_history_that_is_too_long_is_summed_up_and_answered(house: House) -> None:
    await talk_long(house)
    summary = "\n".join(f"## {heading}\nquestions 0 to 3: answered" for heading in HEADINGS)
    house.model.play(
        TOO_LONG, reply("openai", "NO_REPLY"), reply("openai", summary), reply("openai", "Fine.")
    )
    house.api.say("short")
    await house.until(lambda: house.texts()[-1] == "Fine.")
    asked = house.model.bodies[-1]
    assert "Summary of the earlier conversation" in str(asked["messages"][1])
    assert spoken(asked)[-1] == "short"


async def test_where_no_summary_comes_the_history_is_shortened_for_once(house: House) -> None:
    await talk_long(house)
    house.model.play(TOO_LONG)  # from then on it says nothing that is a summary
    house.api.say("short")
    await house.until(lambda: house.texts()[-1] == "you said: short")
    long, short = (
        len(json.dumps(body["messages"][1:])) for body in (house.model.bodies[4], house.model.bodies[-1])
    )
    assert short < long


class Tripwire:
    """A model that falls over at one word, in a way nobody thought of."""

    def __init__(self, inner: Model) -> None:
        self.inner = inner
        self.name = inner.name
        self.falls = 0

    async def reply(
        self, prompt: Prompt, on_text: OnText | None = None, on_restart: OnRestart | None = None
    ) -> Reply:
        if prompt.entries[-1].text == "poison":
            self.falls += 1
            raise LookupError("nobody thought of this")
        return await self.inner.reply(prompt, on_text, on_restart)

    async def close(self) -> None:
        await self.inner.close()


async def test_a_message_that_always_fails_is_told_once_and_the_next_is_answered(house: House) -> None:
    """Reliability row 29."""
    turns = house.gateway.worker.turns
    wire = Tripwire(turns.agent.model)
    turns.agent = replace(turns.agent, model=wire)
    house.api.say("poison")
    await house.until(lambda: wire.falls > 0)
    house.api.say("hello", chat=8)
    await house.hears("you said: hello", chat=8)

    await house.until(lambda: bool(house.texts()), skipping=1.0)
    await house.rests()
    assert house.texts() == [FAILED_SORRY]
    assert wire.falls == MAX_ATTEMPTS

    house.api.say("are you well?")
    await house.hears(FAILED_SORRY, "you said: are you well?")


async def test_a_message_behind_one_that_always_fails_is_answered_too(house: House) -> None:
    """It joins the poisoned turn, since that is still open, and must not be lost with it."""
    turns = house.gateway.worker.turns
    wire = Tripwire(turns.agent.model)
    turns.agent = replace(turns.agent, model=wire)
    house.api.say("poison")
    await house.until(lambda: wire.falls > 0)
    house.api.say("poison")
    await house.until(lambda: bool(house.texts()), skipping=1.0)
    await house.rests(skipping=1.0)
    assert set(house.texts()) == {FAILED_SORRY}
    assert len(house.texts()) <= 2


async def test_a_stored_conversation_that_can_not_be_read_harms_no_other(house: House) -> None:
    """Reliability row 29: whatever is wrong with one conversation, the others go on."""
    house.api.say("hello", chat=8)
    await house.hears("you said: hello", chat=8)
    await house.rests()
    await house.stop()
    house.change("update entry set body = '{' where role = 'user'")
    await house.start()

    house.api.say("are you there?", chat=8)
    house.api.say("hello", chat=9)
    await house.hears("you said: hello", chat=9)
    await house.until(lambda: len(house.texts(8)) == 2)
    house.api.say("/new", chat=8)
    house.api.say("afresh", chat=8)
    await house.until(lambda: house.texts(8)[-1] == "you said: afresh")
