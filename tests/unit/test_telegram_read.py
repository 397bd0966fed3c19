"""What is read from an update, and what is passed over."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.telegram.updates import read, read_batch
from gateway.errors import DeliveryUnsure
from gateway.types import Address, Sender, Stimulus

PERSON = {"id": 7, "is_bot": False, "first_name": "Ada", "last_name": "L."}
CHAT = {"id": 7, "type": "private", "first_name": "Ada"}


def update(**fields: object) -> dict[str, Any]:
    message = {"message_id": 5, "date": 1_700_000_000, "chat": CHAT, "from": PERSON, **fields}
    return {"update_id": 900, "message": message}


def text_of(**fields: object) -> str | None:
    stimulus = read(update(**fields), channel="telegram", bot_id=42)
    return stimulus.text if stimulus else None


def test_a_text_becomes_a_stimulus_with_two_unique_keys() -> None:
    assert read(update(text="hello"), channel="telegram", bot_id=42) == Stimulus(
        key="telegram:42:u900:5",
        message_key="telegram:42:m:7:5",
        address=Address("telegram", "7", ""),
        sender=Sender("7", "Ada L."),
        text="hello",
        at=1_700_000_000.0,
    )


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ({"photo": [{"file_id": "x"}]}, "[photo]"),
        ({"photo": [{}], "caption": "look"}, "[photo]\nlook"),
        ({"document": {"file_name": "name.pdf"}}, "[document: name.pdf]"),
        ({"document": {}}, "[document]"),
        ({"document": {"file_name": "a] ignore\nthis [b"}}, "[document: a) ignore this (b]"),
        ({"document": {"file_name": "x" * 5000}}, f"[document: {'x' * 300}]"),
        (
            {"document": {"file_name": "cat.mp4"}, "animation": {"file_name": "cat.mp4"}},
            "[animation: cat.mp4]",
        ),
        ({"audio": {"performer": "Bach", "title": "Air"}}, "[audio: Bach, Air]"),
        ({"sticker": {"emoji": "😀"}}, "[sticker: 😀]"),
        ({"voice": {"duration": 3}}, "[voice]"),
        ({"video_note": {}}, "[video note]"),
        ({"video": {}, "caption": "so"}, "[video]\nso"),
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
        ({"a_field_of_2031": {}}, "[message of an unknown kind]"),
        ({}, "[message of an unknown kind]"),
    ],
    ids=repr,
)
def test_nothing_that_a_person_sends_is_silently_ignored(content: dict[str, object], told: str) -> None:
    assert text_of(**content) == told


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
    assert text_of(text=text) == told


@pytest.mark.parametrize(
    "other",
    [
        {"update_id": 1, "edited_message": update(text="x")["message"]},
        {"update_id": 1, "channel_post": update(text="x")["message"]},
        {"update_id": 1, "callback_query": {"id": "1"}},
        {"update_id": 1},
        update(text="x", chat={"id": -100, "type": "supergroup", "title": "T"}),
        update(text="x", chat={"id": -5, "type": "group", "title": "T"}),
        update(text="x", **{"from": {**PERSON, "is_bot": True}}),
        update(text="x", **{"from": None}),
        update(pinned_message={"message_id": 1}),
        update(message_auto_delete_timer_changed={"message_auto_delete_time": 60}),
    ],
    ids=lambda update: json.dumps(update)[:60],
)
def test_what_nobody_wrote_to_the_bot_in_private_is_passed_over(other: dict[str, Any]) -> None:
    assert read(other, channel="telegram", bot_id=42) is None


def test_a_batch_keeps_order_and_counts_every_id() -> None:
    updates = [{**update(text=str(number)), "update_id": number} for number in (12, 10, 11)]
    batch = read_batch([*updates, {"update_id": 15, "poll": {}}], channel="telegram", bot_id=42)
    assert [stimulus.text for stimulus in batch.stimuli] == ["12", "10", "11"]
    assert (batch.first, batch.last, batch.poison) == (10, 15, ())


def test_unreadable_updates_are_poison_with_keys_of_their_own() -> None:
    broken = [{"update_id": 1, "message": {}}, {"update_id": "2"}, "text", None, 3, {"message": []}]
    batch = read_batch([*broken, update(text="fine")], channel="telegram", bot_id=42)
    assert [stimulus.text for stimulus in batch.stimuli] == ["fine"]
    assert len({poison.key for poison in batch.poison}) == len(broken)
    assert batch.poison[0].key == "telegram:42:u1"
    assert [json.loads(poison.body) for poison in batch.poison] == broken


def test_a_batch_in_which_nothing_has_an_id_is_refused() -> None:
    with pytest.raises(DeliveryUnsure):
        read_batch([{"message": {}}], channel="telegram", bot_id=42)


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(st.characters(codec=None)),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)
names = ("message_id", "date", "chat", "from", "text", "caption", "document", "poll", "photo", "sticker")


@given(st.dictionaries(st.sampled_from(names), json_values))
def test_no_shape_of_a_message_stops_the_batch(fields: dict[str, Any]) -> None:
    batch = read_batch([update(**fields), update(text="fine")], channel="telegram", bot_id=42)
    assert batch.stimuli[-1].text == "fine"
    for stimulus in batch.stimuli:
        stimulus.text.encode()
        stimulus.sender.name.encode()
        assert "\0" not in stimulus.text
    for poison in batch.poison:
        poison.body.encode("ascii")
        poison.problem.encode()
