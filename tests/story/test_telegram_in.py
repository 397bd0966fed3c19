"""What people do on Telegram beside writing texts, and what the model gets to see of it."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from gateway.app.web import StoreReads
from tests.fakes.bot_api import BotApi, Status
from tests.fakes.model_api import Answer, Request, reply
from tests.story.house import House

GROUP = -1001
OPEN = 'dm_policy = "open"\nallow_from = ["*"]\ngroup_policy = "open"'
PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c4890000000d49444154789c6360000002000001"
    "e221bc330000000049454e44ae426082"
)


def named(text: str, **fields: object) -> dict[str, Any]:
    """Return the fields of a text that begins with the bot's name."""
    entities = [{"type": "mention", "offset": 0, "length": 9}]
    return {"text": f"@fake_bot {text}", "entities": entities, **fields}


def photo(api: BotApi, **fields: object) -> dict[str, Any]:
    """Return the fields of a photo that can be fetched."""
    return {"photo": [{"file_id": api.file(PNG), "width": 1, "height": 1}], **fields}


def seen(_: Request) -> Answer:
    """Answer to messages with pictures."""
    return reply("openai", "seen")


def said(house: House, number: int = 1) -> str:
    """Return all that the n-th request holds beside the instructions, as text."""
    return json.dumps(house.model.bodies[number - 1]["messages"][1:], ensure_ascii=False)


@pytest.mark.parametrize("captions", [pytest.param(("before", "during", "after"), id="telegram-in-10")])
async def test_an_album_is_one_turn_with_all_its_pictures_and_captions(
    house: House, captions: tuple[str, ...]
) -> None:
    house.model.otherwise = seen
    for caption in captions:
        house.api.say("", **photo(house.api, caption=caption, media_group_id="g1"))
    await house.rests(skipping=1.0)
    assert len(house.model.requests) == 1
    told = said(house)
    found = re.findall(r"\[image: media/|before|during|after", told)
    assert found == ["[image: media/", "before", "[image: media/", "during", "[image: media/", "after"]
    assert len(list((house.workspace / "media").iterdir())) == 3
    assert len(house.texts()) == 1


@pytest.mark.parametrize("voice", [pytest.param({"duration": 8, "file_size": 20480}, id="telegram-in-11")])
async def test_a_voice_note_gets_an_answer_though_nobody_can_hear_it(
    house: House, voice: dict[str, Any]
) -> None:
    content = b"OggS" + b"x" * 20476
    voice = {**voice, "file_id": house.api.file(content), "file_unique_id": "v"}
    house.api.push({"message": house.api.message(voice=voice)})
    await house.rests(skipping=1.0)
    assert len(house.texts()) == 1
    assert "[voice: 8 s]" in said(house)
    assert "20480 bytes" in said(house)


async def test_a_file_that_is_gone_leaves_the_words_and_says_why(house: House) -> None:
    document = {"file_id": "gone", "file_unique_id": "u", "file_name": "../../a b.pdf"}
    house.api.push({"message": house.api.message(document=document, caption="read this")})
    await house.rests(skipping=1.0)
    assert "could not be fetched" in said(house)
    assert "read this" in said(house)


async def test_a_name_that_leads_elsewhere_does_not(house: House) -> None:
    document = {"file_id": house.api.file(b"content"), "file_unique_id": "u", "file_name": "../../../x.md"}
    house.api.push({"message": house.api.message(document=document)})
    await house.rests(skipping=1.0)
    (file,) = (house.workspace / "media").iterdir()
    assert file.read_bytes() == b"content"
    assert file.name.endswith("x.md")
    assert not (house.home.parent / "x.md").exists()


async def test_a_text_that_the_app_has_cut_is_one_turn(house: House) -> None:
    house.api.say("a" * 4096)
    house.api.say("b" * 4096)
    house.api.say("the end")
    await house.rests(skipping=1.0)
    assert len(house.model.requests) == 1
    places = [said(house).index(part) for part in ("a" * 4096, "b" * 4096, "the end")]
    assert places == sorted(places)


@pytest.mark.parametrize("threads", [pytest.param((55, 77), id="telegram-in-15")])
async def test_topics_are_sessions_of_their_own_and_answers_go_where_they_belong(
    empty_house: House, threads: tuple[int, ...]
) -> None:
    house = empty_house
    house.telegram = OPEN
    await house.start()
    for thread in threads:
        topic = {"message_thread_id": thread, "is_topic_message": True}
        house.api.push({"message": house.api.group_message(GROUP, **named(f"in {thread}", **topic))})
    house.api.push({"message": house.api.group_message(GROUP, **named("in general"))})
    await house.rests(skipping=1.0)
    addresses = {row[0] for row in house.rows("select address from conversation")}
    assert addresses == {f"telegram:{GROUP}:{thread}" for thread in (*threads, "")}
    seen = {at: text for (_, at), (text, _) in house.api.shown.items()}
    sent = {str(one.params.get("message_thread_id", "")): seen[one.message_id] for one in house.api.sent}
    assert sent.keys() == {*map(str, threads), ""}
    assert all(f"in {thread or 'general'}" in text for thread, text in sent.items())


async def test_talk_beside_the_bot_is_context_for_who_names_it(empty_house: House) -> None:
    house = empty_house
    house.telegram = OPEN
    await house.start()
    house.api.push({"message": house.api.group_message(GROUP, 8, text="the answer is 42")})
    await house.until(lambda: house.rows("select wakes from inbound") == [(0,)])
    assert house.model.requests == []
    house.api.push({"message": house.api.group_message(GROUP, 7, **named("what is it?"))})
    await house.until(lambda: len(house.texts(GROUP)) == 1)
    assert "the answer is 42" in said(house)


async def test_an_album_in_a_group_comes_whole_though_only_its_first_caption_names_the_bot(
    empty_house: House,
) -> None:
    house = empty_house
    house.telegram = OPEN
    house.model.otherwise = seen
    await house.start()
    first = named("look")
    first = {"caption": first["text"], "caption_entities": first["entities"]}
    for fields in (first, {}, {}):
        part = photo(house.api, media_group_id="g1", **fields)
        house.api.push({"message": house.api.group_message(GROUP, **part)})
    await house.rests(skipping=1.0)
    assert len(house.model.requests) == 1
    assert said(house).count("[image: media/") == 3


@pytest.mark.parametrize("old", [pytest.param(-123, id="telegram-in-13")])
async def test_the_history_of_a_group_follows_to_its_new_id(empty_house: House, old: int) -> None:
    house, new = empty_house, -100123
    house.telegram = OPEN
    await house.start()
    home = {"id": old, "type": "group", "title": "Team"}
    house.api.push({"message": house.api.group_message(old, **named("remember 42")) | {"chat": home}})
    await house.rests()
    house.api.push({"message": house.api.group_message(new, migrate_to_chat_id=new) | {"chat": home}})
    house.api.push({"message": house.api.group_message(new, migrate_from_chat_id=old)})
    house.api.push({"message": house.api.group_message(new, **named("what was it?"))})
    await house.rests()
    assert house.rows("select address from conversation") == [(f"telegram:{new}:",)]
    assert "remember 42" in said(house, 2)
    assert len(house.texts(new)) == 1


@pytest.mark.parametrize("text", [pytest.param("change the second one", id="telegram-in-14")])
async def test_what_is_replied_to_is_shown_as_a_quotation(house: House, text: str) -> None:
    bot = {"id": 123456, "is_bot": True, "first_name": "Fake"}
    older = house.api.message(text="1) red 2) blue") | {"from": bot}
    house.api.say(text, reply_to_message=older)
    await house.rests()
    assert "[Quoted, not their own words: you: 1) red 2) blue]" in said(house)


@pytest.mark.parametrize("text", [pytest.param("/new", id="telegram-in-01")])
async def test_an_old_message_that_is_edited_into_a_command_does_nothing(house: House, text: str) -> None:
    message = house.api.message(text="hello")
    house.api.push({"message": message})
    await house.rests()
    house.api.edit(message, text=text)
    house.api.say("again")
    await house.rests()
    assert len(house.texts()) == 2
    assert house.rows("select session from conversation") == [(1,)]


@pytest.mark.parametrize("value", [pytest.param("yes", id="TG-24")])
async def test_a_pressed_button_reaches_the_model(house: House, value: str) -> None:
    house.api.press(value, house.api.message(text="Tea?"))
    await house.rests()
    assert f"callback_data: {value}" in said(house)
    assert "Tea?" in said(house)
    assert len(house.api.answered) == 1


async def test_a_reaction_to_an_answer_waits_as_context(house: House) -> None:
    house.api.say("hello")
    await house.rests()
    person = {"id": 7, "is_bot": False, "first_name": "Ada"}
    chat = {"id": 7, "type": "private", "first_name": "Ada"}
    body = {"chat": chat, "message_id": house.api.sent[0].message_id, "user": person, "date": 1}
    thumb = {"type": "emoji", "emoji": "👍"}
    house.api.push({"message_reaction": {**body, "old_reaction": [], "new_reaction": [thumb]}})
    await house.until(lambda: not house.api.pending)
    await house.until(lambda: house.rows("select count(*) from inbound") == [(2,)])
    assert len(house.model.requests) == 1
    house.api.say("next")
    await house.until(lambda: len(house.texts()) == 2)
    assert "reacted with 👍 on your message “you said: hello”" in said(house, 2)


@pytest.mark.parametrize("channels", [pytest.param(("telegram", "telegram-work"), id="routing-03")])
async def test_one_person_at_two_bots_is_answered_by_the_one_they_wrote_to(
    empty_house: House, channels: tuple[str, str]
) -> None:
    house = empty_house
    async with BotApi("777:BBfake_token_value_abcdefghijklmnopqr") as other:
        account = f'[channels.telegram.accounts.work]\ntoken = "{other.token}"\napi_base = "{other.url}"'
        house.telegram = f"{OPEN}\n{account}"
        await house.start()
        assert set(house.gateway.channels) == set(channels)
        house.api.say("to the first")
        other.say("to the second")
        await house.until(lambda: bool(house.texts()) and bool(other.sent))
        await house.stop()
        assert house.texts() == ["you said: to the first"]
        assert [one.text for one in other.sent] == ["you said: to the second"]
        assert other.violations == []


async def test_the_health_page_tells_of_each_bot_and_its_queue(house: House) -> None:
    house.api.say("hello")
    await house.rests()
    told = (await StoreReads(house.gateway.db, lambda: house.gateway).health())["details"]["telegram"]
    assert (told["state"], told["username"], told["last_error"]) == ("polling", "fake_bot", None)
    assert (told["received"], told["waiting"], told["sending"]) == (1, 0, 0)
    assert told["last_poll"] > 0

    house.api.fail("sendMessage", Status(429, "Too Many Requests", {"retry_after": 3000}))
    house.api.say("again")
    await house.until(lambda: house.rows("select attempts from outbound where state = 'pending'") == [(1,)])
    told = (await StoreReads(house.gateway.db, lambda: house.gateway).health())["details"]["telegram"]
    assert (told["received"], told["waiting"], told["sending"]) == (2, 0, 1)
