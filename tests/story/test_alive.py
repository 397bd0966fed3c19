"""People see that the bot is at work, and can stop it."""

from __future__ import annotations

import asyncio

from tests.fakes.model_api import Answer, reply
from tests.story.house import House

TEXT = "Once upon a time there was a lobster that wrote long letters to the moon."


def paused(text: str, gate: asyncio.Event) -> Answer:
    """Return a reply whose second half comes when the gate opens."""
    role, half, *rest = reply("openai", text).chunks
    return Answer(chunks=(role, half, gate, *rest))


async def test_a_long_reply_is_seen_growing_and_is_then_sent_once(house: House) -> None:
    gate = asyncio.Event()
    house.model.play(paused(TEXT, gate))
    house.api.say("a story, please")
    await house.until(lambda: house.api.count("sendMessageDraft") > 0)
    draft = next(call.params for call in house.api.calls if call.method == "sendMessageDraft")
    assert TEXT.startswith(draft["text"])
    assert house.api.count("sendChatAction") > 0
    assert house.texts() == []
    gate.set()
    await house.hears(TEXT)
    await house.rests()
    assert house.texts() == [TEXT]


async def test_the_stop_button_of_a_draft_ends_the_turn(house: House) -> None:
    house.model.play(paused(TEXT, asyncio.Event()))
    house.api.say("a story, please")
    await house.until(lambda: house.api.count("sendMessageDraft") > 0)
    chat = {"id": 7, "type": "private", "first_name": "Person7"}
    house.api.push({"stopped_message_generation": {"chat": chat, "draft_id": 1}})
    await house.hears("Stopped.")
    await house.rests()
    typed = house.api.count("sendChatAction")
    house.api.say("are you there?")
    await house.hears("Stopped.", "you said: are you there?")
    assert house.api.count("sendChatAction") <= typed + 2, "the stopped turn types no more"


async def test_a_pressed_stop_button_ends_the_turn(house: House) -> None:
    house.model.play(paused(TEXT, asyncio.Event()))
    house.api.say("a story, please")
    await house.until(lambda: house.api.count("sendMessageDraft") > 0)
    pressed = {
        "id": "99",
        "from": {"id": 7, "is_bot": False, "first_name": "Person7"},
        "chat_instance": "1",
        "message": house.api.message(7, text="Working…"),
        "data": "stop",
    }
    house.api.push({"callback_query": pressed})
    await house.until(lambda: house.api.answered == ["99"])
    await house.rests()
    assert house.texts() == [], "whoever pressed sees a notice, and nobody a message"


async def test_the_commands_are_in_the_menu_after_a_start(house: House) -> None:
    await house.until(lambda: house.api.count("setMyCommands") == 2)
    menus = [call.params for call in house.api.calls if call.method == "setMyCommands"]
    for menu in menus:
        assert {"new", "stop", "status", "help"} <= {one["command"] for one in menu["commands"]}


async def test_with_streaming_off_only_typing_is_shown(empty_house: House) -> None:
    empty_house.telegram += '\nstreaming = "off"'
    await empty_house.start()
    gate = asyncio.Event()
    empty_house.model.play(paused(TEXT, gate))
    empty_house.api.say("a story, please")
    await empty_house.until(lambda: empty_house.api.count("sendChatAction") >= 3)
    assert empty_house.api.count("sendMessageDraft") == 0
    gate.set()
    await empty_house.hears(TEXT)
