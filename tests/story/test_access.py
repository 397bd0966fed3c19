"""People come to a bot, are let in, and talk to it in groups."""

from __future__ import annotations

import re

import pytest

from tests.story.house import House

GROUP = -1001234567890
NAME = "@fake_bot"


async def test_a_stranger_is_let_in_by_the_owner_in_the_chat(empty_house: House) -> None:
    house = empty_house
    house.telegram, house.more = 'dm_policy = "pairing"', '[access]\nowners = ["telegram:7"]'
    await house.start()
    house.api.say("hello", chat=666)
    await house.rests()
    [invitation] = house.texts(666)
    found = re.search(r"approve ([A-Z2-9]{8})", invitation)
    assert found
    house.api.say(f"/pairing approve {found[1]}", chat=666)
    house.api.say(f"/pairing approve {found[1]}")
    await house.rests()
    house.api.say("hello again", chat=666)
    await house.rests()
    assert house.texts(666)[1:] == ["You were let in. Write to me, or send /help.", "you said: hello again"]
    assert house.texts(7) == ["telegram 666 (Person666) is let in."]
    await house.restart()
    house.api.say("still there?", chat=666)
    await house.rests()
    assert house.texts(666)[-1] == "you said: still there?"
    assert len(house.model.requests) == 2


@pytest.fixture
async def group(empty_house: House) -> House:
    """A house in one group, where persons 7 (whose bot it is) and 8 may talk to the bot."""
    empty_house.telegram = "dm_policy = 'allowlist'\nallow_from = [7]"
    empty_house.more = (
        f'[channels.telegram.groups."{GROUP}"]\nallow_from = [7, 8]\n[access]\nowners = ["telegram:7"]'
    )
    await empty_house.start()
    return empty_house


def speaks(house: House, text: str, sender: int = 7, chat: int = GROUP, *, named: bool = False) -> None:
    """Let a person write into a group; `named`: the text begins with the bot's name."""
    mention = {"type": "mention", "offset": 0, "length": len(NAME)}
    message = house.api.group_message(chat, sender, text=text)
    house.api.push({"message": message | ({"entities": [mention]} if named else {})})


async def test_in_a_group_the_bot_answers_what_is_for_it_and_knows_what_was_said(group: House) -> None:
    speaks(group, "rain today")
    speaks(group, "they say", sender=8)
    speaks(group, "i am not listed", sender=666)
    await group.rests()
    assert group.model.requests == []
    speaks(group, f"{NAME} shall I take a coat?", named=True)
    await group.rests()
    [body] = group.model.bodies
    heard = str(body["messages"])
    assert "rain today" in heard
    assert "they say" in heard
    assert "shall I take a coat?" in heard
    assert "i am not listed" not in heard
    assert len(group.texts(GROUP)) == 1


async def test_access_019_in_another_group_nothing_happens_and_nothing_is_kept(group: House) -> None:
    for sender in (7, 666):
        speaks(group, f"{NAME} hello", sender=sender, chat=-100555, named=True)
    await group.rests()
    assert group.model.requests == []
    assert group.api.sent == []
    assert group.rows("select count(*) from conversation") == [(0,)]
    assert group.rows("select distinct gate, setting from verdict") == [
        ("group", 'channels.telegram.groups."-100555"')
    ]


async def test_security_auth_08_two_people_have_a_conversation_each(empty_house: House) -> None:
    house = empty_house
    house.telegram = "allow_from = [1, 2]"
    await house.start()
    house.api.say("my secret is 42", chat=1)
    await house.rests()
    house.api.say("what is the secret?", chat=2)
    await house.rests()
    assert "42" not in str(house.model.bodies[1])
    assert house.rows("select count(*) from conversation") == [(2,)]


async def test_security_auth_06_what_the_owner_keeps_private_is_not_told_in_a_group(group: House) -> None:
    (group.workspace / "MEMORY.md").write_text("the safe opens with 1234\n", encoding="utf-8")
    speaks(group, "/help")
    speaks(group, f"{NAME} hello", named=True)
    group.api.say("hello")
    await group.rests()
    bodies = [str(body) for body in group.model.bodies]
    assert len(bodies) == 2
    assert ["1234" in body for body in bodies if "Several people read this" in body] == [False]
    assert ["1234" in body for body in bodies if "Several people read this" not in body] == [True]
