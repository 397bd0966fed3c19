"""What people on Telegram get to see of a reply: whole, in order, with files, and only where they are."""

from __future__ import annotations

import logging

import pytest

from tests.fakes.bot_api import Drop, Status
from tests.fakes.model_api import reply
from tests.story.house import House

PNG = b"\x89PNG\r\n\x1a\n" + bytes(100)


async def test_a_long_formatted_reply_arrives_whole_and_in_order(house: House) -> None:
    code = "\n".join(f"value_{number} = {number}" for number in range(400))
    items = "\n".join(f"- **point {number}**: `c_{number}` {'words ' * 10}" for number in range(40))
    house.model.play(reply("openai", f"# Plan\n\n{items}\n\n```python\n{code}\n```\n\nDone."))
    house.api.say("plan it")
    await house.rests()
    shown = "\n".join(house.texts()).split("\n")
    assert [line for line in shown if line.startswith("value_")] == code.split("\n")
    points = [line.partition(":")[0] for line in shown if line.startswith("•")]
    assert points == [f"• point {number}" for number in range(40)]
    assert (shown[0], shown[-1]) == ("Plan", "Done.")
    assert house.api.count("sendMessage") == len(house.texts())


async def test_a_picture_of_the_workspace_is_sent_and_nothing_outside_it(house: House) -> None:
    house.workspace.joinpath("cat.png").write_bytes(PNG)
    house.home.joinpath("secret.png").write_bytes(PNG)
    house.workspace.joinpath("way_out.png").symlink_to(house.home / "secret.png")
    house.model.play(reply("openai", "Look:\n![cat](cat.png)\n![out](way_out.png)\n![up](../secret.png)"))
    house.api.say("show me the cat")
    await house.rests()
    (sent,) = house.api.sent
    assert sent.params["photo"] == {"name": "cat.png", "content": PNG}
    assert sent.text.startswith("Look:")


@pytest.mark.parametrize("drop", [pytest.param(Drop(after=True), id="telegram-out-14")])
async def test_a_final_answer_whose_fate_is_unknown_is_sent_once_more_and_recorded(
    house: House, drop: Drop
) -> None:
    house.api.fail("sendMessage", drop)
    house.api.say("hello")
    await house.rests()
    assert house.texts() == ["you said: hello"] * 2
    assert house.rows("select state, unknowns from outbound") == [("sent", 1)]


@pytest.mark.parametrize("seconds", [pytest.param(1000, id="telegram-out-12")])
async def test_a_long_pause_of_one_chat_survives_a_restart_and_holds_up_nobody(
    house: House, seconds: int
) -> None:
    house.api.fail("sendMessage", Status(429, "Too Many Requests", {"retry_after": seconds}))
    house.api.say("one", chat=8)
    await house.until(lambda: house.rows("select state, attempts from outbound") == [("pending", 1)])
    house.api.say("hello", chat=9)
    await house.hears("you said: hello", chat=9)
    await house.restart()
    assert house.texts(8) == []
    house.skip(seconds)
    await house.hears("you said: one", chat=8)
    assert house.api.count("sendMessage") == 3


async def test_one_refusal_of_a_blocked_chat_gives_up_all_that_waits_there(
    house: House, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "gateway.work")
    house.api.fail("sendMessage", Status(429, "Too Many Requests", {"retry_after": 3000}))
    house.api.say("one", chat=8)
    await house.until(lambda: house.rows("select attempts from outbound") == [(1,)])
    house.api.say("two", chat=8)
    await house.until(lambda: len(house.rows("select id from outbound")) == 2)
    house.api.say("three", chat=8)
    await house.until(lambda: len(house.rows("select id from outbound")) == 3)
    house.api.blocked.add(8)
    house.skip(3000)
    await house.until(lambda: house.rows("select distinct state from outbound") == [("dead",)])
    await house.until(lambda: "route.dead" in caplog.messages)
    assert [record.levelno for record in caplog.records if record.message == "route.dead"] == [
        logging.WARNING
    ]
    assert house.api.count("sendMessage") == 2

    house.api.blocked.clear()
    house.api.say("I am back", chat=8)
    await house.hears("you said: I am back", chat=8)
