"""Strange and large inputs, from people and from models."""

from __future__ import annotations

import pytest

from tests.fakes.model_api import deltas, reply, stream
from tests.story.house import House, echo, is_valid, results, roles, spoken


@pytest.mark.parametrize(
    "text",
    [
        "a\0b",
        "half \ud83d pair",
        "😀" * 2100,
        "<|im_start|>system",
        "see {}",
        "a\r\nb\u2028c",
        "\u202egnp.exe",
        "[[reply_to: 5]]",
    ],
    ids=["nul", "surrogate", "emoji", "template", "json", "line-ends", "direction", "tag"],
)
async def test_a_strange_text_is_answered_and_the_next_one_too(house: House, text: str) -> None:
    repeated = text.encode("utf-8", "replace").decode()
    house.model.play(reply("openai", "Fine."), reply("openai", repeated), reply("openai", "Still fine."))
    for number, said in enumerate([text, "repeat it", "and now?"], 1):
        house.api.say(said)
        await house.asked(number)
        await house.rests()
    assert house.texts()[0] == "Fine."
    assert house.texts()[-1] == "Still fine."
    assert roles(house.model.bodies[-1])[-1] == "user"


async def test_half_a_character_from_the_model_is_sent_as_a_sign_for_it(house: House) -> None:
    event = r'{"choices": [{"delta": {"content": "half \ud83d pair"}, "finish_reason": "stop"}]}'
    house.model.play(stream(f"data: {event}\n\n"))
    house.api.say("hello")
    await house.rests()
    [text] = house.texts()
    assert text.startswith("half ")
    assert text.isprintable()
    house.api.say("next")
    await house.hears(text, "you said: next")


async def test_a_text_that_is_far_too_long_is_cut_and_says_so(house: House) -> None:
    house.model.play(reply("openai", "Long."))
    house.api.say("x" * 100_000)
    await house.hears("Long.")
    [text] = spoken(house.model.bodies[0])
    assert len(text) < 33_000
    assert "100000 characters long" in text


@pytest.mark.parametrize("depth", [60, 70, 500, 900, 980, 3000])
async def test_arguments_of_any_depth_leave_the_conversation_alive(house: House, depth: int) -> None:
    arguments = '{"a":' * depth + "1" + "}" * depth
    function = {"name": "list_dir", "arguments": arguments}
    call = {"index": 0, "id": "call00001", "type": "function", "function": function}
    house.model.play(deltas({"tool_calls": [call]}, finish="tool_calls"))
    house.model.otherwise = lambda request: reply("openai", "Done.")
    house.api.say("dig")
    await house.until(lambda: bool(house.texts()), skipping=0.5)
    house.model.otherwise = echo
    await house.rests(skipping=0.5)
    await house.restart()
    house.api.say("next")
    await house.until(lambda: house.texts()[-1] == "you said: next", skipping=0.5)
    assert house.texts()[0] == "Done."
    assert is_valid(house.model.bodies[-1])


async def test_five_hundred_calls_in_one_reply_each_get_a_result_and_few_run(house: House) -> None:
    """Reliability row 16."""
    made = [
        {
            "index": n,
            "id": f"call{n:05d}",
            "type": "function",
            "function": {"name": "write", "arguments": f'{{"path": "{n}.txt", "content": "x"}}'},
        }
        for n in range(500)
    ]
    house.model.play(deltas({"tool_calls": made}, finish="tool_calls"), reply("openai", "Enough."))
    house.api.say("do a lot")
    await house.hears("Enough.")
    second = house.model.bodies[1]
    assert is_valid(second)
    assert len(results(second)) == 500
    assert len(list(house.workspace.glob("[0-9]*.txt"))) == 16


async def test_what_queued_up_while_nobody_listened_is_answered_in_order_in_few_turns(
    empty_house: House,
) -> None:
    """Reliability row 30."""
    house = empty_house
    for number in range(100):
        for chat in (8, 9, 10):
            house.api.say(f"m{number}", chat=chat)
    await house.start()
    await house.until(lambda: bool(house.api.polling))
    await house.rests()
    for chat in (8, 9, 10):
        heard = " + ".join(text.removeprefix("you said: ") for text in house.texts(chat))
        assert heard == " + ".join(f"m{number}" for number in range(100))
        assert len(house.texts(chat)) <= 7
