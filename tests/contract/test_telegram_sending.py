"""What leaves towards Telegram: formatted, whole, in the right place, and what is done about refusals."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from adapters.telegram import Link, Telegram
from gateway.errors import DeadRoute, DeliveryError, DeliveryRetry, DeliveryUnsure
from gateway.types import Address, Attachment, Button, Media, Outgoing
from tests.fakes.bot_api import BotApi, Drop, Failure, Status
from tests.fakes.clock import FakeClock

PNG = b"\x89PNG\r\n\x1a\n" + bytes(100)
JPEG = b"\xff\xd8\xff\xe0" + bytes(100)
GIF = b"GIF89a" + bytes(100)
OPUS = b"OggS" + bytes(24) + b"OpusHead" + bytes(60)

FILES = {
    "a.png": PNG,
    "b.jpg": JPEG,
    "c.gif": GIF,
    "say.ogg": OPUS,
    "song.mp3": b"ID3" + bytes(50),
    "film.mp4": bytes(50),
    "report.pdf": b"%PDF",
    "other.pdf": b"%PDF",
    "huge.png": PNG + bytes(11_000_000),
    "empty.txt": b"",
    "long.mp4": bytes(20_000_000),
}


def open_file(path: str) -> bytes:
    if path not in FILES:
        raise DeliveryError("not found")
    return FILES[path]


async def no_cursor(_name: str) -> None:
    return None


Open = Callable[..., Telegram]


@pytest.fixture
async def api() -> AsyncIterator[BotApi]:
    async with BotApi() as server:
        yield server
    assert server.violations == []


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def channel_with(api: BotApi, clock: FakeClock) -> AsyncIterator[Open]:
    opened: list[Telegram] = []

    def channel(**link: Any) -> Telegram:
        telegram = Telegram(
            token=api.token,
            api_base=api.url,
            clock=clock,
            cursors=no_cursor,
            link=Link(**link),
            open_file=open_file,
        )
        opened.append(telegram)
        return telegram

    yield channel
    for telegram in opened:
        await telegram.close()


@pytest.fixture
def channel(channel_with: Open) -> Telegram:
    return channel_with()


def message(
    text: str = "hello", *, key: str = "k", chat: str = "7", thread: str = "", **more: Any
) -> Outgoing:
    return Outgoing(key=key, address=Address("telegram", chat, thread), text=text, **more)


def files(*names: str, kind: Media | None = None) -> tuple[Attachment, ...]:
    kinds = {
        "png": Media.IMAGE,
        "jpg": Media.IMAGE,
        "gif": Media.IMAGE,
        "mp3": Media.AUDIO,
        "mp4": Media.VIDEO,
    }
    return tuple(
        Attachment(kind=kind or kinds.get(name.rpartition(".")[2], Media.FILE), name=name, path=name)
        for name in names
    )


def methods(api: BotApi) -> list[str]:
    return [call.method for call in api.calls]


async def test_markdown_arrives_as_text_with_entities(api: BotApi, channel: Telegram) -> None:
    await channel.send(message("👍 **b** `c` [l](https://e.com)"))
    (sent,) = api.sent
    assert sent.text == "👍 b c l"
    assert sent.params["entities"] == [
        {"type": "bold", "offset": 3, "length": 1},
        {"type": "code", "offset": 5, "length": 1},
        {"type": "text_link", "offset": 7, "length": 1, "url": "https://e.com"},
    ]


async def test_a_plain_text_costs_one_request_with_nothing_but_the_text(
    api: BotApi, channel: Telegram
) -> None:
    await channel.send(message("hello"))
    assert [(call.method, call.params) for call in api.calls] == [
        ("sendMessage", {"chat_id": "7", "text": "hello"})
    ]


@pytest.mark.parametrize(
    "refusal",
    [
        "Bad Request: can't parse entities: wrong offset",
        "Bad Request: ENTITY_TEXTURL_INVALID",
        "Bad Request: wrong HTTP URL",
    ],
)
async def test_refused_formatting_is_left_out_once(api: BotApi, channel: Telegram, refusal: str) -> None:
    api.fail("sendMessage", Status(400, refusal))
    await channel.send(message("**b**"))
    (sent,) = api.sent
    assert (sent.text, "entities" in sent.params) == ("b", False)
    assert api.count("sendMessage") == 2


async def test_what_is_refused_as_plain_text_too_is_given_up(api: BotApi, channel: Telegram) -> None:
    api.fail("sendMessage", *[Status(400, "Bad Request: can't parse entities")] * 9)
    with pytest.raises(DeliveryError):
        await channel.send(message("**b**"))
    assert api.count("sendMessage") == 2


async def test_an_unknown_outcome_is_not_repeated_by_the_channel(api: BotApi, channel: Telegram) -> None:
    api.fail("sendMessage", Drop(after=True))
    with pytest.raises(DeliveryUnsure):
        await channel.send(message("**b**"))
    assert len(api.sent) == 1


@pytest.mark.parametrize(
    ("thread", "sent_thread"),
    [
        pytest.param("1", None, id="telegram-out-01"),
        pytest.param("4242", "4242", id="telegram-out-02"),
        pytest.param("", None, id="no topic"),
    ],
)
async def test_a_reply_goes_to_its_topic(
    api: BotApi, channel: Telegram, thread: str, sent_thread: str | None
) -> None:
    await channel.send(message(thread=thread))
    await channel.send(message("f", thread=thread, attachments=files("a.png")))
    await channel.send(message("f", thread=thread, attachments=files("a.png", "b.jpg")))
    assert [call.params.get("message_thread_id") for call in api.calls] == [sent_thread] * 3


@pytest.mark.parametrize("thread", [pytest.param("55", id="telegram-out-04")])
async def test_an_answer_to_a_topic_that_is_gone_stays_in_the_chat_and_says_so(
    api: BotApi, channel: Telegram, thread: str
) -> None:
    api.fail("sendMessage", Status(400, "Bad Request: message thread not found"))
    await channel.send(message("the **answer**", chat="-1001", thread=thread))
    (sent,) = api.sent
    assert sent.chat == -1001
    assert "message_thread_id" not in sent.params
    assert sent.text.endswith("\n\nthe answer")
    assert "topic" in sent.text
    (entity,) = sent.params["entities"]
    assert sent.text[entity["offset"] :] == "answer"


async def test_a_reply_points_at_its_message_even_if_that_is_deleted(api: BotApi, channel: Telegram) -> None:
    await channel.send(message(reply_to="41"))
    assert api.sent[0].params["reply_parameters"] == {"message_id": 41, "allow_sending_without_reply": True}


async def test_buttons_are_rows_below_the_message(api: BotApi, channel: Telegram) -> None:
    buttons = ((Button("Yes", "y"), Button("No", "n")), (Button("Later", "l"),))
    await channel.send(message("Shall I?", buttons=buttons))
    keyboard = api.sent[0].params["reply_markup"]["inline_keyboard"]
    assert [[(one["text"], one["callback_data"]) for one in row] for row in keyboard] == [
        [("Yes", "y"), ("No", "n")],
        [("Later", "l")],
    ]


async def test_a_card_loses_its_buttons_and_says_what_was_decided(api: BotApi, channel: Telegram) -> None:
    card = await channel.send(message("May I?", buttons=((Button("Allow once", "approve:abcd"),),)))
    settled = message("**Allowed once:** it", key="k2", replaces=card.message_id)
    assert await channel.send(settled) == card
    assert api.visible() == ["Allowed once: it"]
    assert api.shown[7, int(card.message_id)][1] is None
    assert len(api.sent) == 1


@pytest.mark.parametrize(
    "refusal", ["message to edit not found", "message can't be edited", "message is not modified"]
)
async def test_a_card_that_can_not_be_changed_stays_as_it_is(
    api: BotApi, channel: Telegram, refusal: str
) -> None:
    api.fail("editMessageText", Status(400, f"Bad Request: {refusal}"))
    assert (await channel.send(message("Denied: it", replaces="41"))).message_id == "41"
    assert api.sent == []


@pytest.mark.parametrize(
    "failure",
    [Drop(after=True), Drop(after=False), Status(429, "Too Many Requests", {"retry_after": 3})],
    ids=repr,
)
async def test_a_change_whose_fate_is_unknown_is_made_again(
    api: BotApi, channel: Telegram, clock: FakeClock, failure: Failure
) -> None:
    card = await channel.send(message("May I?"))
    api.fail("editMessageText", failure)
    settled = message("Denied: it", key="k2", replaces=card.message_id)
    with pytest.raises(DeliveryRetry):
        await channel.send(settled)
    clock.time += 5
    await channel.send(settled)
    assert api.visible() == ["Denied: it"]


async def test_a_button_value_that_is_too_long_is_cut_between_characters_and_told(
    api: BotApi, channel: Telegram, caplog: pytest.LogCaptureFixture
) -> None:
    await channel.send(message(buttons=((Button("Go", "é" * 40),),)))
    (row,) = api.sent[0].params["reply_markup"]["inline_keyboard"]
    assert row[0]["callback_data"] == "é" * 32
    assert [record.message for record in caplog.records if record.levelno == logging.ERROR] == [
        "telegram.button_cut"
    ]


@pytest.mark.parametrize(("wanted", "params"), [(True, None), (False, {"is_disabled": True})])
async def test_links_show_what_is_behind_them_unless_switched_off(
    api: BotApi, channel_with: Open, wanted: bool, params: object
) -> None:
    await channel_with(link_preview=wanted).send(message("https://e.com"))
    assert api.sent[0].params.get("link_preview_options") == params


@pytest.mark.parametrize(
    ("name", "kind", "method", "field"),
    [
        ("a.png", Media.IMAGE, "sendPhoto", "photo"),
        ("b.jpg", Media.IMAGE, "sendPhoto", "photo"),
        ("c.gif", Media.IMAGE, "sendAnimation", "animation"),
        ("huge.png", Media.IMAGE, "sendDocument", "document"),
        ("report.pdf", Media.IMAGE, "sendDocument", "document"),
        ("say.ogg", Media.VOICE, "sendVoice", "voice"),
        ("song.mp3", Media.VOICE, "sendAudio", "audio"),
        ("song.mp3", Media.AUDIO, "sendAudio", "audio"),
        ("say.ogg", Media.AUDIO, "sendDocument", "document"),
        ("film.mp4", Media.VIDEO, "sendVideo", "video"),
        ("report.pdf", Media.FILE, "sendDocument", "document"),
    ],
)
async def test_a_file_is_sent_as_what_it_is_with_the_text_below_it(
    api: BotApi, channel: Telegram, name: str, kind: Media, method: str, field: str
) -> None:
    receipt = await channel.send(message("see **this**", attachments=files(name, kind=kind)))
    assert methods(api) == [method]
    params = api.sent[0].params
    assert params[field] == {"name": name, "content": FILES[name]}
    assert (params["caption"], [one["type"] for one in params["caption_entities"]]) == ("see this", ["bold"])
    assert receipt.message_id == str(api.sent[0].message_id)


async def test_several_pictures_are_one_album_with_one_caption(api: BotApi, channel: Telegram) -> None:
    await channel.send(message("three", attachments=files("a.png", "b.jpg", "film.mp4")))
    assert methods(api) == ["sendMediaGroup"]
    media = api.calls[0].params["media"]
    assert [one["type"] for one in media] == ["photo", "photo", "video"]
    assert [one.get("caption") for one in media] == ["three", None, None]
    assert media[0]["media"] == {"name": "a.png", "content": PNG}


async def test_files_that_can_not_be_one_album_are_several(api: BotApi, channel: Telegram) -> None:
    names = ["a.png"] * 12 + ["report.pdf", "other.pdf", "song.mp3", "c.gif", "c.gif"]
    await channel.send(message("", attachments=files(*names)))
    assert methods(api) == [
        *("sendMediaGroup", "sendMediaGroup", "sendMediaGroup", "sendAudio"),
        *("sendAnimation", "sendAnimation"),
    ]
    assert [len(call.params["media"]) for call in api.calls[:3]] == [10, 2, 2]


async def test_no_request_is_larger_than_the_platform_takes(api: BotApi, channel: Telegram) -> None:
    await channel.send(message("five", attachments=files(*["long.mp4"] * 5)))
    assert methods(api) == ["sendMediaGroup", "sendMediaGroup", "sendVideo"]
    assert [len(call.params["media"]) for call in api.calls[:2]] == [2, 2]


async def test_a_text_too_long_for_a_caption_follows_the_files(api: BotApi, channel: Telegram) -> None:
    await channel.send(message("word " * 300, attachments=files("a.png"), reply_to="41"))
    assert methods(api) == ["sendPhoto", "sendMessage"]
    assert "caption" not in api.calls[0].params
    assert ["reply_parameters" in call.params for call in api.calls] == [True, False]


async def test_buttons_below_an_album_are_in_a_message_of_their_own(api: BotApi, channel: Telegram) -> None:
    buttons = ((Button("Yes", "y"),),)
    await channel.send(message("which?", attachments=files("a.png", "b.jpg"), buttons=buttons))
    assert methods(api) == ["sendMediaGroup", "sendMessage"]
    assert "reply_markup" in api.calls[1].params


async def test_a_picture_that_is_refused_is_sent_as_a_file(api: BotApi, channel: Telegram) -> None:
    api.fail("sendPhoto", Status(400, "Bad Request: PHOTO_INVALID_DIMENSIONS"))
    await channel.send(message("look", attachments=files("a.png")))
    assert methods(api) == ["sendPhoto", "sendDocument"]
    assert api.sent[0].text == "look"


async def test_a_voice_message_that_the_person_forbids_is_sent_as_a_file(
    api: BotApi, channel: Telegram
) -> None:
    api.fail("sendVoice", Status(400, "Bad Request: VOICE_MESSAGES_FORBIDDEN"))
    await channel.send(message("", attachments=files("say.ogg", kind=Media.VOICE)))
    assert methods(api) == ["sendVoice", "sendDocument"]


async def test_the_text_arrives_even_if_no_file_does(api: BotApi, channel: Telegram) -> None:
    api.fail("sendDocument", Status(413, "Request Entity Too Large"))
    names = files("report.pdf", "missing.txt", "empty.txt")
    await channel.send(message("the **report**", attachments=names))
    (sent,) = api.sent
    assert sent.text.startswith("the report\n\n")
    assert [name in sent.text for name in ("report.pdf", "missing.txt", "empty.txt")] == [True] * 3
    assert [one["type"] for one in sent.params["entities"]] == ["bold"]


async def test_a_text_that_was_never_cut_is_cut_when_it_is_sent(api: BotApi, channel: Telegram) -> None:
    await channel.send(message("**word** " * 2000))
    assert len(api.sent) > 2
    assert " ".join(sent.text for sent in api.sent).split() == ["word"] * 2000


async def test_what_the_platform_finds_too_long_is_sent_in_halves(api: BotApi, channel: Telegram) -> None:
    api.fail("sendMessage", Status(400, "Bad Request: message is too long"))
    await channel.send(message("one two three four"))
    assert " ".join(sent.text for sent in api.sent) == "one two three four"


async def test_a_caption_that_the_platform_finds_too_long_follows_the_file(
    api: BotApi, channel: Telegram
) -> None:
    api.fail("sendPhoto", Status(400, "Bad Request: message caption is too long"))
    await channel.send(message("**look**", attachments=files("a.png")))
    assert methods(api) == ["sendPhoto", "sendPhoto", "sendMessage"]
    assert [sent.text for sent in api.sent] == ["", "look"]


async def test_a_message_in_several_parts_goes_on_where_it_stopped(
    api: BotApi, channel: Telegram, clock: FakeClock
) -> None:
    two = message("word " * 300, attachments=files("a.png"))
    api.fail("sendMessage", Status(429, "Too Many Requests", {"retry_after": 5}), Status(500))
    with pytest.raises(DeliveryRetry):
        await channel.send(two)
    clock.time += 5
    with pytest.raises(DeliveryUnsure):
        await channel.send(two)
    await channel.send(two)
    assert methods(api) == ["sendPhoto", "sendMessage", "sendMessage", "sendMessage"]


async def test_nothing_to_say_is_no_message(api: BotApi, channel: Telegram) -> None:
    with pytest.raises(DeliveryError, match="nothing to send"):
        await channel.send(message(" \n"))
    assert api.calls == []


@pytest.mark.parametrize(
    "refusal",
    [
        Status(403, "Forbidden: bot was blocked by the user"),
        Status(403, "Forbidden: bot was kicked from the supergroup chat"),
        Status(403, "Forbidden: user is deactivated"),
        Status(403, "Forbidden: bot can't initiate conversation with a user"),
        Status(400, "Bad Request: chat not found"),
        Status(400, "Bad Request: PEER_ID_INVALID"),
    ],
    ids=lambda status: status.description,
)
async def test_where_nothing_arrives_any_more_the_route_is_dead(
    api: BotApi, channel: Telegram, refusal: Status
) -> None:
    api.fail("sendPhoto", refusal)
    with pytest.raises(DeadRoute):
        await channel.send(message("**a**", attachments=files("a.png")))
    assert len(api.calls) == 1


async def test_a_group_that_moved_gets_its_message_under_the_new_id(api: BotApi, channel: Telegram) -> None:
    api.fail(
        "sendMessage", Status(400, "Bad Request: group chat was upgraded", {"migrate_to_chat_id": -1009})
    )
    await channel.send(message("hi", chat="-5"))
    assert [(sent.chat, sent.text) for sent in api.sent] == [(-1009, "hi")]


@pytest.mark.parametrize(
    "seconds", [pytest.param(31, id="telegram-out-09"), pytest.param(1000, id="telegram-out-12")]
)
async def test_a_throttled_chat_is_left_alone_so_long_and_the_others_go_on(
    api: BotApi, channel: Telegram, clock: FakeClock, seconds: int
) -> None:
    api.fail("sendMessage", Status(429, "Too Many Requests", {"retry_after": seconds}))
    waits = []
    for _ in range(3):
        with pytest.raises(DeliveryRetry) as caught:
            await channel.send(message())
        waits.append(caught.value.after)
        clock.time += 10
    assert waits == [seconds, seconds - 10, seconds - 20]
    assert len(api.calls) == 1
    await channel.send(message("other", chat="8"))
    clock.time += seconds
    await channel.send(message())
    assert [sent.chat for sent in api.sent] == [8, 7]
    assert clock.slept == []


async def test_a_second_refusal_lengthens_the_wait(api: BotApi, channel: Telegram, clock: FakeClock) -> None:
    api.fail("sendMessage", *(Status(429, "Too Many Requests", {"retry_after": wait}) for wait in (5, 60)))
    for _ in range(2):
        with pytest.raises(DeliveryRetry):
            await channel.send(message())
        clock.time += 6
    with pytest.raises(DeliveryRetry) as caught:
        await channel.send(message())
    assert caught.value.after == 54
    assert len(api.calls) == 2


async def test_a_chat_gets_one_message_each_second_after_the_first_three(
    api: BotApi, channel_with: Open, clock: FakeClock
) -> None:
    channel = channel_with(sends_per_second=30)
    for number in range(5):
        await channel.send(message(f"{number}", key=f"{number}"))
    assert [sent.text for sent in api.sent] == list("01234")
    assert clock.slept == [1.0, 1.0]


async def test_a_wait_that_would_hold_a_slot_for_long_is_stored_instead(
    api: BotApi, channel_with: Open, clock: FakeClock
) -> None:
    channel = channel_with(sends_per_second=30)
    for number in range(20):
        await channel.send(message(chat="-100", key=f"{number}"))
    with pytest.raises(DeliveryRetry) as caught:
        await channel.send(message(chat="-100"))
    assert caught.value.after > 30
    assert len(api.sent) == 20


async def test_a_server_of_ones_own_has_no_rate(api: BotApi, channel: Telegram, clock: FakeClock) -> None:
    for _ in range(50):
        await channel.send(message())
    assert clock.slept == []


async def test_code_in_several_pieces_is_code_in_each(api: BotApi, channel: Telegram) -> None:
    text = "```python\n" + "x = 1\n" * 1500 + "```"
    for piece in channel.pieces(text):
        await channel.send(message(piece))
    assert [one["language"] for sent in api.sent for one in sent.params["entities"]] == ["python"] * len(
        api.sent
    )
    assert "\n".join(sent.text for sent in api.sent).split("\n") == ["x = 1"] * 1500
