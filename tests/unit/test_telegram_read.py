"""What is read from an update, and what is passed over."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.telegram.message import ALBUM_HOLD, PASTE_HOLD, QUOTE_LIMIT, Me
from adapters.telegram.updates import Moved, Press, Reaction, Read, Reader, Standing, read
from gateway.errors import DeliveryUnsure
from gateway.types import Address, Attachment, Chat, Media, Sender, Stimulus

ME = Me(42, "my_bot")
PERSON = {"id": 7, "is_bot": False, "first_name": "Ada", "last_name": "L."}
BOT = {"id": 42, "is_bot": True, "first_name": "Bot", "username": "my_bot"}
CHAT = {"id": 7, "type": "private", "first_name": "Ada"}
GROUP = {"id": -1001, "type": "supergroup", "title": "Team"}


def message(**fields: object) -> dict[str, Any]:
    return {"message_id": 5, "date": 1_700_000_000, "chat": CHAT, "from": PERSON, **fields}


def update(**fields: object) -> dict[str, Any]:
    return {"update_id": 900, "message": message(**fields)}


def reading(one: dict[str, Any], me: Me = ME) -> Read | None:
    return read(one, channel="telegram", me=me, now=1.0)


def said(me: Me = ME, **fields: Any) -> Stimulus:
    stimulus = reading(update(**fields), me)
    assert isinstance(stimulus, Stimulus)
    return stimulus


def in_group(text: str, *entities: dict[str, Any], **fields: Any) -> Stimulus:
    return said(chat=GROUP, text=text, entities=list(entities), **fields)


def mark(kind: str, offset: int, length: int, **fields: object) -> dict[str, Any]:
    return {"type": kind, "offset": offset, "length": length, **fields}


def test_a_text_becomes_a_stimulus_with_two_unique_keys() -> None:
    assert said(text="hello") == Stimulus(
        key="telegram:42:u900:5",
        message_key="telegram:42:m:7:5",
        message_id="5",
        address=Address("telegram", "7", ""),
        sender=Sender("7", "Ada L."),
        text="hello",
        at=1_700_000_000.0,
    )


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ({"document": {"file_id": "x", "file_name": "name.pdf"}}, "[document: name.pdf]"),
        ({"document": {"file_id": "x"}}, "[document]"),
        (
            {"document": {"file_id": "x", "file_name": "a] ignore\nthis [b"}},
            "[document: a) ignore this (b]",
        ),
        ({"document": {"file_id": "x", "file_name": "x" * 5000}}, f"[document: {'x' * 300}]"),
        (
            {
                "document": {"file_id": "x", "file_name": "cat.mp4"},
                "animation": {"file_id": "x", "file_name": "cat.mp4", "duration": 2},
            },
            "[animation: cat.mp4, 2 s]",
        ),
        (
            {"audio": {"file_id": "x", "performer": "Bach", "title": "Air", "duration": 180}},
            "[audio: Bach, Air, 180 s]",
        ),
        (
            {"sticker": {"file_id": "x", "emoji": "😀", "is_animated": False, "is_video": False}},
            "[sticker: 😀]",
        ),
        pytest.param(
            {"voice": {"file_id": "x", "duration": 8, "file_size": 20480}},
            "[voice: 8 s]",
            id="telegram-in-11",
        ),
        ({"video_note": {"file_id": "x", "duration": 4}}, "[video note: 4 s]"),
        ({"video": {"file_id": "x", "duration": 5}, "caption": "so"}, "[video: 5 s]\nso"),
        ({"live_photo": {"file_id": "x", "duration": 3}}, "[live photo: 3 s]"),
        ({"location": {"latitude": 0.0, "longitude": 13.4}}, "[location: 0.0, 13.4]"),
        (
            {
                "venue": {"title": "Zoo", "address": "Street 1"},
                "location": {"latitude": 1.0, "longitude": 2.0},
            },
            "[venue: Zoo, Street 1]",
        ),
        ({"contact": {"first_name": "Bob", "phone_number": "+1"}}, "[contact: Bob, +1]"),
        ({"dice": {"emoji": "🎲", "value": 4}}, "[dice: 🎲, 4]"),
        (
            {"poll": {"question": "Tea?", "options": [{"text": "yes"}, {"text": "no"}]}},
            "[poll: Tea?, yes, no]",
        ),
        ({"checklist": {"title": "Trip", "tasks": [{"text": "pack"}]}}, "[checklist: Trip, pack]"),
        ({"story": {"id": 1}}, "[story]"),
        ({"web_app_data": {"data": "{}", "button_text": "b"}}, "[web app data: {}]"),
        ({"a_field_of_2031": {}}, "[message of an unknown kind]"),
        ({}, "[message of an unknown kind]"),
    ],
    ids=repr,
)
def test_nothing_that_a_person_sends_is_silently_ignored(content: dict[str, Any], told: str) -> None:
    assert said(**content).text == told


def test_a_photo_is_its_largest_size_and_needs_no_words() -> None:
    sizes = [
        {"file_id": "small", "width": 90, "height": 60, "file_size": 1000},
        {"file_id": "large", "width": 1280, "height": 853, "file_size": 200_000},
        {"file_id": "middle", "width": 320, "height": 213},
    ]
    photo = Attachment(kind=Media.IMAGE, name="photo.jpg", size=200_000, ref="large")
    assert (said(photo=sizes).text, said(photo=sizes).attachments) == ("", (photo,))
    assert said(photo=sizes, caption="look").text == "look"


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (
            {"document": {"file_id": "d", "file_name": "a.pdf", "mime_type": "application/pdf"}},
            (Media.FILE, "a.pdf"),
        ),
        (
            {"document": {"file_id": "d", "file_name": "a.png", "mime_type": "image/png"}},
            (Media.IMAGE, "a.png"),
        ),
        (
            {"document": {"file_id": "d", "file_name": "a.svg", "mime_type": "image/svg+xml"}},
            (Media.FILE, "a.svg"),
        ),
        ({"audio": {"file_id": "d"}}, (Media.AUDIO, "audio.mp3")),
        ({"voice": {"file_id": "d"}}, (Media.VOICE, "voice.ogg")),
        ({"video": {"file_id": "d"}}, (Media.VIDEO, "video.mp4")),
        ({"video_note": {"file_id": "d"}}, (Media.VIDEO, "video_note.mp4")),
        ({"animation": {"file_id": "d"}}, (Media.VIDEO, "animation.mp4")),
        (
            {"sticker": {"file_id": "d", "is_animated": False, "is_video": False}},
            (Media.IMAGE, "sticker.webp"),
        ),
        ({"sticker": {"file_id": "d", "is_animated": True, "is_video": False}}, None),
        ({"sticker": {"file_id": "d", "is_animated": False, "is_video": True}}, None),
        ({"contact": {"first_name": "Bob"}}, None),
        ({"paid_media": {"star_count": 1, "paid_media": []}}, None),
    ],
    ids=repr,
)
def test_files_are_named_by_what_they_are(
    content: dict[str, Any], expected: tuple[Media, str] | None
) -> None:
    files = [(file.kind, file.name) for file in said(**content).attachments]
    assert files == ([expected] if expected else [])


@pytest.mark.parametrize(
    ("text", "told"),
    [
        pytest.param("lone surrogate \ud800 in JSON", "lone surrogate \ufffd in JSON", id="text-009"),
        pytest.param("\0 in message text", " in message text", id="text-010"),
        ("halves \ud83d\ude00 of one", "halves 😀 of one"),
        ("\udc00\ud800", "\ufffd\ufffd"),
    ],
)
def test_characters_that_cannot_be_stored_are_replaced(text: str, told: str) -> None:
    assert said(text=text).text == told


@pytest.mark.parametrize(
    "other",
    [
        {"update_id": 1, "channel_post": message(text="x")},
        {"update_id": 1, "business_message": message(text="x")},
        {"update_id": 1, "poll": {}},
        {"update_id": 1},
        update(text="x", chat={"id": -5, "type": "channel", "title": "T"}),
        update(text="x", **{"from": {**PERSON, "is_bot": True}}),
        update(text="x", **{"from": BOT}),
        update(text="x", **{"from": None}),
        update(text="code: 1234", **{"from": {"id": 777000, "is_bot": False, "first_name": "Telegram"}}),
        update(text="x", via_bot=BOT),
        update(pinned_message={"message_id": 1}),
        update(message_auto_delete_timer_changed={"message_auto_delete_time": 60}),
        update(chat=GROUP, new_chat_members=[PERSON]),
        update(chat=GROUP, video_chat_started={}),
    ],
    ids=lambda update: json.dumps(update)[:90],
)
def test_what_nobody_wrote_to_the_bot_is_passed_over(other: dict[str, Any]) -> None:
    assert reading(other) is None


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(
            ("/new@My_Bot", [mark("bot_command", 0, 11)], True, "/new"),
            id="telegram-in-04",
        ),
        (("/ask@my_bot why?", [mark("bot_command", 0, 11)], True, "/ask why?")),
        (("/new", [mark("bot_command", 0, 4)], False, "/new")),
        pytest.param(
            ("😀 @my_bot help", [mark("mention", 3, 7)], True, "😀 @my_bot help"),
            id="telegram-in-06",
        ),
        (("@MY_BOT help", [mark("mention", 0, 7)], True, "@MY_BOT help")),
        (("@my_bots help", [mark("mention", 0, 8)], False, "@my_bots help")),
        (("@other help", [mark("mention", 0, 6)], False, "@other help")),
        (("write to @my_bot", [], False, "write to @my_bot")),
        (("Bot, help", [mark("text_mention", 0, 3, user=BOT)], True, "Bot, help")),
        (("Bob, help", [mark("text_mention", 0, 3, user=PERSON)], False, "Bob, help")),
        pytest.param(("hi", [mark("mention", 0, 100)], False, "hi"), id="telegram-in-07"),
    ],
    ids=repr,
)
def test_in_a_group_the_bot_is_meant_when_it_is_named(
    case: tuple[str, list[dict[str, Any]], bool, str],
) -> None:
    text, entities, aimed, told = case
    stimulus = in_group(text, *entities)
    assert (stimulus.aimed, stimulus.text, stimulus.chat) == (aimed, told, Chat.GROUP)
    assert stimulus.address == Address("telegram", "-1001")


def test_a_command_for_another_bot_is_not_for_us() -> None:
    assert reading(update(chat=GROUP, text="/new@other", entities=[mark("bot_command", 0, 10)])) is None


def test_a_caption_can_name_the_bot() -> None:
    entities = [mark("mention", 5, 7)]
    photo = [{"file_id": "x", "width": 1, "height": 1}]
    assert said(chat=GROUP, photo=photo, caption="look @my_bot", caption_entities=entities).aimed
    assert not said(chat=GROUP, photo=photo, caption="look @her_bot", caption_entities=entities).aimed


def test_in_private_the_bot_is_always_meant() -> None:
    assert said(text="hello").aimed
    assert said(text="hello").chat is Chat.DIRECT


def test_a_bot_without_a_name_is_never_meant_by_one() -> None:
    assert not said(Me(42), chat=GROUP, text="@ help", entities=[mark("mention", 0, 1)]).aimed


def test_a_reply_to_the_bot_means_it_and_quotes_it() -> None:
    stimulus = in_group("why?", reply_to_message=message(chat=GROUP, text="because", **{"from": BOT}))
    assert (stimulus.aimed, stimulus.quote) == (True, "you: because")
    other = in_group("why?", reply_to_message=message(chat=GROUP, text="because"))
    assert (other.aimed, other.quote) == (False, "Ada L.: because")


@pytest.mark.parametrize("text", [pytest.param("change the second one", id="telegram-in-14")])
def test_a_reply_brings_what_it_replies_to(text: str) -> None:
    bot_message = message(text="1) red 2) blue", **{"from": BOT})
    stimulus = said(text=text, reply_to_message=bot_message)
    assert (stimulus.text, stimulus.quote) == (text, "you: 1) red 2) blue")


@pytest.mark.parametrize(
    ("fields", "quote"),
    [
        (
            {"reply_to_message": message(text="1) red 2) blue"), "quote": {"text": "2) blue", "position": 7}},
            "Ada L.: 2) blue",
        ),
        (
            {"reply_to_message": message(voice={"file_id": "x", "duration": 3}, caption="listen")},
            "Ada L.: [voice: 3 s]\nlisten",
        ),
        (
            {"reply_to_message": message(text="x", sender_chat=GROUP)},
            "Team: x",
        ),
        (
            {
                "external_reply": {
                    "origin": {"type": "channel", "date": 1, "chat": {"id": -9, "title": "News"}},
                    "photo": [{}],
                },
                "quote": {"text": "big", "position": 0},
            },
            "News, in another chat: big",
        ),
        (
            {"external_reply": {"origin": {"type": "hidden_user", "sender_user_name": "X"}, "dice": {}}},
            "X, in another chat: [dice]",
        ),
        ({"reply_to_story": {"id": 1, "chat": {"id": 3, "first_name": "Eve"}}}, "Eve: [story]"),
        (
            {"reply_to_message": message(text="y" * 5000)},
            f"Ada L.: {'y' * (QUOTE_LIMIT - 8)}…",
        ),
        ({}, ""),
    ],
    ids=lambda value: str(value)[:60],
)
def test_what_is_replied_to_is_quoted_with_its_author(fields: dict[str, Any], quote: str) -> None:
    assert said(text="hm", **fields).quote == quote


@pytest.mark.parametrize(
    ("origin", "who"),
    [
        ({"type": "user", "sender_user": {**PERSON, "first_name": "Owner", "last_name": ""}}, "Owner"),
        ({"type": "hidden_user", "sender_user_name": "Some\nbody"}, "Some body"),
        ({"type": "chat", "sender_chat": GROUP}, "Team"),
        ({"type": "channel", "chat": {"id": -9, "title": "News"}, "message_id": 1}, "News"),
        ({"type": "from_the_future"}, "somebody"),
    ],
    ids=repr,
)
@pytest.mark.parametrize("text", [pytest.param("/stop and obey", id="access-010")])
def test_a_forwarded_message_is_a_quotation_by_whom_it_is_passed_on(
    origin: dict[str, Any], who: str, text: str
) -> None:
    stimulus = said(text=text, forward_origin={"date": 1, **origin})
    assert stimulus.sender == Sender("7", "Ada L.")
    assert (stimulus.text, stimulus.quote) == ("[forwarded message]", f"forwarded from {who}: {text}")


FROM_X: dict[str, Any] = {"type": "hidden_user", "sender_user_name": "X"}


@pytest.mark.parametrize(
    ("fields", "forwarded"),
    [
        ({"forward_origin": FROM_X}, True),
        ({"external_reply": {"origin": FROM_X, "dice": {}}}, True),
        ({"reply_to_story": {"id": 1, "chat": {"id": 3, "first_name": "Eve"}}}, True),
        ({"reply_to_message": message(text="obey", forward_origin=FROM_X)}, True),
        ({"reply_to_message": message(text="my own words")}, False),
        ({"reply_to_message": message(text="because", **{"from": BOT})}, False),
        ({}, False),
    ],
    ids=["forward", "other-chat", "story", "reply-to-a-forward", "reply", "reply-to-the-bot", "plain"],
)
def test_what_strangers_wrote_and_the_sender_only_passes_on_is_marked(
    fields: dict[str, Any], forwarded: bool
) -> None:
    assert said(text="do this", **fields).forwarded is forwarded


def test_a_forwarded_file_comes_along_and_its_mentions_mean_nobody() -> None:
    document = {"file_id": "x", "file_name": "a.pdf"}
    stimulus = said(
        chat=GROUP,
        document=document,
        caption="@my_bot",
        caption_entities=[mark("mention", 0, 7)],
        forward_origin={"type": "hidden_user", "sender_user_name": "X"},
    )
    assert (stimulus.aimed, stimulus.quote) == (False, "forwarded from X: [document: a.pdf]\n@my_bot")
    assert [file.name for file in stimulus.attachments] == ["a.pdf"]


def test_in_a_group_the_file_that_is_replied_to_comes_along() -> None:
    photo = message(chat=GROUP, photo=[{"file_id": "p", "width": 1, "height": 1}])
    stimulus = in_group("@my_bot what is that?", mark("mention", 0, 7), reply_to_message=photo)
    assert [file.ref for file in stimulus.attachments] == ["p"]
    assert said(text="what is that?", reply_to_message=photo).attachments == ()


@pytest.mark.parametrize(
    ("fields", "sender"),
    [
        (
            {"sender_chat": GROUP, "from": {"id": 1087968824, "is_bot": True, "first_name": "Group"}},
            Sender("-1001", "Team"),
        ),
        pytest.param(
            {
                "sender_chat": {"id": -100200, "type": "channel", "title": "News"},
                "from": {"id": 777000, "is_bot": False, "first_name": "Telegram"},
                "is_automatic_forward": True,
            },
            Sender("-100200", "News"),
            id="access-012",
        ),
        (
            {
                "sender_chat": {"id": -100200, "type": "channel", "title": "News"},
                "from": {"id": 136817688, "is_bot": True, "first_name": "Channel"},
            },
            Sender("-100200", "News"),
        ),
    ],
    ids=str,
)
def test_who_speaks_as_a_chat_is_that_chat(fields: dict[str, Any], sender: Sender) -> None:
    assert said(chat=GROUP, text="x", **fields).sender == sender


@pytest.mark.parametrize(
    ("fields", "thread"),
    [
        pytest.param({"message_thread_id": 55, "is_topic_message": True}, "55", id="telegram-in-15"),
        ({"message_thread_id": 1, "is_topic_message": True}, ""),
        ({"message_thread_id": 55}, ""),
        ({}, ""),
    ],
)
def test_a_topic_is_a_thread_and_the_general_one_and_replies_are_not(
    fields: dict[str, Any], thread: str
) -> None:
    assert said(chat=GROUP, text="x", **fields).address == Address("telegram", "-1001", thread)


def test_private_topics_are_threads_only_where_the_bot_has_them() -> None:
    topic: dict[str, Any] = {"message_thread_id": 55, "is_topic_message": True}
    assert said(text="x", **topic).address.thread == ""
    assert said(Me(42, "my_bot", has_topics=True), text="x", **topic).address.thread == "55"


@pytest.mark.parametrize(
    "first", [{"forum_topic_created": {"name": "Topic"}}, {"text": "the first message"}], ids=str
)
def test_in_a_topic_its_first_message_is_not_what_one_replies_to(first: dict[str, Any]) -> None:
    replied = message(message_id=55, chat=GROUP, **{"from": BOT}, **first)
    stimulus = in_group("x", message_thread_id=55, is_topic_message=True, reply_to_message=replied)
    assert (stimulus.aimed, stimulus.quote) == (False, "")


@pytest.mark.parametrize(
    ("fields", "hold"),
    [
        ({"text": "x" * 3999}, 0.0),
        ({"text": "x" * 4000}, PASTE_HOLD),
        ({"text": "😀" * 2000}, PASTE_HOLD),
        ({"photo": [{"file_id": "x", "width": 1, "height": 1}], "media_group_id": "g"}, ALBUM_HOLD),
    ],
    ids=lambda value: str(value)[:20],
)
def test_what_may_go_on_is_held(fields: dict[str, Any], hold: float) -> None:
    assert said(**fields).hold == hold


@pytest.mark.parametrize("text", [pytest.param("/restart", id="telegram-in-01")])
def test_an_edited_message_is_a_later_version_of_the_same(text: str) -> None:
    edited = {"update_id": 901, "edited_message": message(text=text, edit_date=1)}
    stimulus = reading(edited)
    assert isinstance(stimulus, Stimulus)
    assert stimulus.edits
    assert stimulus.message_key == said(text="old").message_key
    assert stimulus.key != said(text="old").key


def test_a_pressed_button_hands_its_value_back() -> None:
    below = message(chat=GROUP, text="Tea?", **{"from": BOT})
    below |= {"message_thread_id": 55, "is_topic_message": True}
    query = {"id": "99", "from": PERSON, "message": below, "data": "yes", "chat_instance": "1"}
    assert reading({"update_id": 1, "callback_query": query}) == Press(
        "99",
        Stimulus(
            key="telegram:42:press:99",
            address=Address("telegram", "-1001", "55"),
            sender=Sender("7", "Ada L."),
            text="callback_data: yes",
            at=1.0,
            chat=Chat.GROUP,
            message_id="5",
            quote="you: Tea?",
            gesture=True,
            whisper="99",
        ),
    )


@pytest.mark.parametrize(
    "fields",
    [{}, {"message": message(), "game_short_name": "g"}, {"inline_message_id": "1", "data": "x"}],
    ids=str,
)
def test_a_press_that_says_nothing_is_only_answered(fields: dict[str, Any]) -> None:
    query = {"id": "99", "from": PERSON, "chat_instance": "1", **fields}
    assert reading({"update_id": 1, "callback_query": query}) == Press("99", None)


def test_a_press_below_a_message_that_is_too_old_to_be_shown_is_read() -> None:
    old = {"chat": CHAT, "message_id": 5, "date": 0}
    query = {"id": "99", "from": PERSON, "message": old, "data": "yes", "chat_instance": "1"}
    press = reading({"update_id": 1, "callback_query": query})
    assert isinstance(press, Press)
    assert press.stimulus is not None
    assert press.stimulus.address == Address("telegram", "7")


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ([], [{"type": "emoji", "emoji": "👍"}], "[reacted with 👍]"),
        ([{"type": "emoji", "emoji": "👍"}], [], "[took back 👍]"),
        (
            [{"type": "emoji", "emoji": "👍"}],
            [{"type": "emoji", "emoji": "🔥"}],
            "[reacted with 🔥 and took back 👍]",
        ),
        ([], [{"type": "custom_emoji", "custom_emoji_id": "1"}], "[reacted with a custom emoji reaction]"),
        ([], [{"type": "paid"}], "[reacted with a paid reaction]"),
    ],
    ids=str,
)
def test_a_reaction_is_told_and_wants_nothing(
    old: list[dict[str, Any]], new: list[dict[str, Any]], told: str
) -> None:
    body = {"chat": GROUP, "message_id": 8, "user": PERSON, "date": 3}
    reaction = reading(
        {"update_id": 1, "message_reaction": {**body, "old_reaction": old, "new_reaction": new}}
    )
    assert isinstance(reaction, Reaction)
    assert (reaction.message_id, reaction.stimulus.text) == ("8", told)
    assert (reaction.stimulus.aimed, reaction.stimulus.gesture) == (False, True)


def test_a_stopped_generation_is_the_command_to_stop() -> None:
    stimulus = reading({"update_id": 1, "stopped_message_generation": {"chat": CHAT, "draft_id": 3}})
    assert isinstance(stimulus, Stimulus)
    assert (stimulus.text, stimulus.sender.id, stimulus.address.key) == ("/stop", "7", "telegram:7:")


@pytest.mark.parametrize(
    "service",
    [
        pytest.param(
            update(chat={**GROUP, "id": -123, "type": "group"}, migrate_to_chat_id=-100123), id="to"
        ),
        pytest.param(update(chat={**GROUP, "id": -100123}, migrate_from_chat_id=-123), id="from"),
    ],
)
def test_both_notices_of_a_move_say_the_same(service: dict[str, Any]) -> None:
    assert reading(service) == Moved("-123", "-100123")


def test_what_becomes_of_the_bot_in_a_chat_is_told() -> None:
    member = {"chat": GROUP, "from": PERSON, "date": 1, "old_chat_member": {"status": "member", "user": BOT}}
    member["new_chat_member"] = {"status": "kicked", "user": BOT, "until_date": 0}
    told = Standing("-1001", "Team", "kicked", Sender("7", "Ada L."))
    assert reading({"update_id": 1, "my_chat_member": member}) == told


def batch_of(*updates: Any, me: Me = ME) -> Any:
    return Reader("telegram", me).batch(updates, 1.0)


def test_a_batch_keeps_order_and_counts_every_id() -> None:
    updates = [{**update(text=str(number)), "update_id": number} for number in (12, 10, 11)]
    batch = batch_of(*updates, {"update_id": 15, "poll": {}})
    assert [stimulus.text for stimulus in batch.stimuli] == ["12", "10", "11"]
    assert (batch.last, batch.poison) == (15, ())


def test_what_was_said_before_a_move_goes_to_the_new_id() -> None:
    old = {**GROUP, "id": -123}
    batch = batch_of(
        {**update(chat=old, text="before"), "update_id": 1},
        {**update(chat=old, migrate_to_chat_id=-100123), "update_id": 2},
        {**update(chat={**GROUP, "id": -100123}, text="after"), "update_id": 3},
    )
    assert [one.address.chat for one in batch.stimuli] == ["-100123", "-100123"]
    assert batch.moves == (Moved("-123", "-100123"),)


def test_all_parts_of_an_album_are_meant_when_the_first_is() -> None:
    photo = {"photo": [{"file_id": "x", "width": 1, "height": 1}], "chat": GROUP, "media_group_id": "g"}
    first = update(**photo, message_id=1, caption="@my_bot", caption_entities=[mark("mention", 0, 7)])
    parts = [first, update(**photo, message_id=2), update(**photo, message_id=3)]
    stranger = update(**photo | {"from": {**PERSON, "id": 8}}, message_id=4)
    assert [one.aimed for one in batch_of(*parts, stranger).stimuli] == [True, True, True, False]


def test_the_rest_of_a_long_text_is_meant_when_its_beginning_is() -> None:
    beginning = "@my_bot " + "x" * 4088
    parts = [
        update(chat=GROUP, message_id=1, text=beginning, entities=[mark("mention", 0, 7)]),
        update(chat=GROUP, message_id=2, text="y" * 4096),
        update(chat=GROUP, message_id=3, text="the end"),
        update(chat=GROUP, message_id=4, text="something else"),
    ]
    assert [one.aimed for one in batch_of(*parts).stimuli] == [True, True, True, False]


def test_unreadable_updates_are_poison_with_keys_of_their_own() -> None:
    broken = [{"update_id": 1, "message": {}}, {"update_id": "2"}, "text", None, 3, {"message": []}]
    batch = batch_of(*broken, update(text="fine"))
    assert [stimulus.text for stimulus in batch.stimuli] == ["fine"]
    assert len({poison.key for poison in batch.poison}) == len(broken)
    assert batch.poison[0].key == "telegram:42:u1"
    assert [json.loads(poison.body) for poison in batch.poison] == broken


@pytest.mark.parametrize("date", [10**400, float("inf"), float("nan"), "soon"])
def test_a_time_that_is_none_is_poison(date: object) -> None:
    batch = batch_of(update(text="when?", date=date), update(text="fine"))
    assert [stimulus.text for stimulus in batch.stimuli] == ["fine"]
    assert len(batch.poison) == 1


@pytest.mark.parametrize(("date", "at"), [(10**12, 32_503_680_000.0), (-1, 0.0)])
def test_a_time_that_no_calendar_knows_does_not_cost_the_message(date: int, at: float) -> None:
    (stimulus,) = batch_of(update(text="when?", date=date)).stimuli
    assert stimulus.at == at


@pytest.mark.parametrize("field", ["message_id", "message_thread_id"])
def test_a_number_without_end_is_poison(field: str) -> None:
    odd = update(text="hi", chat=GROUP, is_topic_message=True, **{field: float("inf")})
    assert len(batch_of(odd, update(text="fine")).poison) == 1


def test_a_batch_in_which_nothing_has_an_id_is_refused() -> None:
    with pytest.raises(DeliveryUnsure):
        batch_of({"message": {}})


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(st.characters(codec=None)),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)
names = (
    *("message_id", "date", "chat", "from", "text", "caption", "document", "poll", "photo", "sticker"),
    *("entities", "reply_to_message", "forward_origin", "quote", "sender_chat", "media_group_id"),
)


@given(st.dictionaries(st.sampled_from(names), json_values), st.sampled_from([CHAT, GROUP]))
def test_no_shape_of_a_message_stops_the_batch(fields: dict[str, Any], chat: dict[str, Any]) -> None:
    batch = batch_of(update(**{"chat": chat, **fields}), update(text="fine"))
    assert batch.stimuli[-1].text == "fine"
    for stimulus in batch.stimuli:
        stimulus.text.encode()
        stimulus.quote.encode()
        stimulus.sender.name.encode()
        assert "\0" not in stimulus.text
    for poison in batch.poison:
        poison.body.encode("ascii")
        poison.problem.encode()
