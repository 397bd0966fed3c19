"""What goes into a row comes out of it."""

from __future__ import annotations

import json
import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.store.codec import (
    UNREADABLE,
    decode,
    decode_outgoing,
    decode_stimulus,
    dump,
    encode,
    encode_outgoing,
    encode_stimulus,
    encode_usage,
)
from gateway.types import (
    Address,
    AssistantEntry,
    Attachment,
    Button,
    Chat,
    Entry,
    Kind,
    Media,
    NoteEntry,
    OnUnknown,
    Outgoing,
    Sender,
    Stimulus,
    ToolCall,
    ToolEntry,
    Usage,
    UserEntry,
)

NUMBERS = st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | NUMBERS | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(st.text(), VALUES, max_size=3)
SENDERS = st.builds(Sender, st.text(), st.text())
FILES = st.lists(
    st.builds(
        Attachment,
        kind=st.sampled_from(Media),
        name=st.text(),
        mime=st.text(),
        size=st.integers(0, 2**40),
        ref=st.text(),
        path=st.text(),
        problem=st.text(),
        transcript=st.text(),
    ),
    max_size=2,
).map(tuple)
SAID = st.builds(
    UserEntry,
    text=st.text(),
    sender=SENDERS,
    kind=st.sampled_from(Kind),
    at=NUMBERS,
    chat=st.sampled_from(Chat),
    message_id=st.text(),
    attachments=FILES,
    quote=st.text(),
    aimed=st.booleans(),
    deliver_to=st.text(),
    forwarded=st.booleans(),
)
ENTRIES = st.one_of(
    SAID,
    st.builds(
        AssistantEntry,
        text=st.text(),
        calls=st.lists(
            st.builds(ToolCall, st.text(), st.text(), OBJECTS, st.none() | st.text(), OBJECTS), max_size=3
        ).map(tuple),
        reasoning=st.text(),
        model=st.text(),
        state=OBJECTS,
    ),
    st.builds(ToolEntry, st.text(), st.text(), st.text(), st.booleans()),
    st.builds(NoteEntry, st.text()),
)


@given(ENTRIES)
def test_every_entry_comes_back_as_it_was(entry: Entry) -> None:
    assert decode(*encode(entry)) == entry


@given(ENTRIES)
def test_every_row_is_text_that_both_databases_take(entry: Entry) -> None:
    role, body = encode(entry)
    assert role in ("user", "assistant", "tool", "note")
    assert "\0" not in body
    body.encode()


@pytest.mark.parametrize("text", ["\0", "a\ud800b", "\udfff", "\u2028", '"\\', "😀", "\x1b[2J", "\r\n"])
def test_odd_characters_come_back_as_they_were(text: str) -> None:
    body = dump({"text": text})
    body.encode()
    assert "\0" not in body
    assert json.loads(body) == {"text": text}


def test_ordinary_text_is_kept_readable() -> None:
    assert dump({"text": "Grüße, 世界 😀"}) == '{"text":"Grüße, 世界 😀"}'


@given(SAID)
def test_a_stimulus_becomes_the_entry_that_says_the_same(entry: UserEntry) -> None:
    stimulus = Stimulus(
        key="k",
        address=Address("fake", "1"),
        sender=entry.sender,
        text=entry.text,
        at=entry.at,
        kind=entry.kind,
        chat=entry.chat,
        message_id=entry.message_id,
        attachments=entry.attachments,
        quote=entry.quote,
        forwarded=entry.forwarded,
        aimed=entry.aimed,
        deliver_to=entry.deliver_to,
    )
    assert decode_stimulus(entry.kind, encode_stimulus(stimulus)) == entry


@given(
    st.builds(
        Outgoing,
        key=st.text(),
        address=st.just(Address("slack", "C1", "17:5")),
        text=st.text(),
        on_unknown=st.sampled_from(OnUnknown),
        attachments=FILES,
        buttons=st.lists(
            st.lists(st.builds(Button, st.text(), st.text()), max_size=2).map(tuple), max_size=2
        ).map(tuple),
        reply_to=st.text(),
        whisper=st.text(),
        replaces=st.text(),
    )
)
def test_a_message_on_its_way_out_comes_back_as_it_was(message: Outgoing) -> None:
    row = (message.key, message.address.key, encode_outgoing(message), message.on_unknown)
    assert decode_outgoing(*row) == message


def test_rows_of_older_versions_that_lack_newer_fields_are_read() -> None:
    user = '{"text":"hi","sender":["7","Ann"],"kind":"message","at":1.5,"chat":"direct"}'
    assert decode("user", user) == UserEntry("hi", Sender("7", "Ann"), Kind.MESSAGE, 1.5)
    assert decode("assistant", '{"text":"hello"}') == AssistantEntry("hello")
    called = '{"text":"","calls":[{"id":"c","name":"read","args":{}}]}'
    assert decode("assistant", called) == AssistantEntry("", (ToolCall("c", "read"),))


@pytest.mark.parametrize(
    ("role", "body"),
    [
        ("oracle", '{"text":"from the future"}'),
        ("user", '{"text":"hi"}'),
        ("user", '{"text":"hi","sender":["7"],"kind":"dream","at":1,"chat":"direct"}'),
        ("assistant", "{"),
        ("assistant", "[]"),
        ("assistant", '{"text":"","calls":[{"id":"c"}]}'),
        ("tool", "null"),
        ("note", ""),
        ("note", "[" * 100_000),
    ],
)
def test_a_row_that_can_not_be_read_is_a_note_and_harms_nothing_else(
    role: str, body: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR):
        assert decode(role, body) == NoteEntry(UNREADABLE, lost=True)
    assert [record.message for record in caplog.records] == ["entry.unreadable"]


@pytest.mark.parametrize("body", ["", "{}", "null", '{"text":"hi","sender":"Ann","at":0,"chat":"?"}'])
def test_a_waiting_message_that_can_not_be_read_says_so(body: str) -> None:
    assert decode_stimulus("message", body).text == UNREADABLE


def test_tokens_are_kept_by_name() -> None:
    assert json.loads(encode_usage(Usage(1, 2, 3, 4))) == {
        "input": 1,
        "output": 2,
        "cached": 3,
        "cache_write": 4,
    }
