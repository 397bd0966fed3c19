"""Requests read and events written, without a server."""

from __future__ import annotations

import json

import pytest

from adapters.web import wire
from adapters.web.guard import Refusal
from adapters.web.wire import ChatRequest
from gateway.feed import Compacted, TurnEnded, TurnGone


def test_a_chat_request_has_defaults() -> None:
    assert wire.read_chat(b'{"message":"hi"}') == ChatRequest("hi", "main", "", wait=False)
    body = b'{"message":" hi ","session":"a-B_1","id":"x","wait":true,"agent":"later"}'
    assert wire.read_chat(body) == ChatRequest(" hi ", "a-B_1", "x", wait=True)


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"[" * 100_000 + b"]" * 100_000, id="size-003"),
        pytest.param(b'{"a":' * 100_000 + b"1" + b"}" * 100_000, id="size-003-objects"),
        pytest.param(b"9" * 10_000_000, id="size-004"),
        pytest.param(b'{"message":"a","n":-' + b"9" * 10_000_000 + b"}", id="size-004-field"),
        pytest.param(b'{"message":"a","n":Infinity}', id="infinity"),
    ],
)
def test_bombs_are_refused(body: bytes) -> None:
    with pytest.raises(Refusal) as caught:
        wire.read_chat(body)
    assert caught.value.status == 400


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("a\0b", "ab"),
        ("\ud800x", "\ufffdx"),
        ("x\udfff", "x\ufffd"),
        ("\ud83e\udd9e", "\N{LOBSTER}"),
        ("ok ü", "ok ü"),
    ],
)
def test_text_becomes_storable(text: str, kept: str) -> None:
    """text-009."""
    assert wire.storable(text) == kept
    kept.encode()


def test_a_frame_is_one_line_of_json_whatever_the_text() -> None:
    text = "a\n\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029b"
    raw = wire.frame({"type": "delta", "text": f"{text}\ud800"}, 7).decode()
    assert raw.endswith("\n\n")
    head, data, end = raw.splitlines()  # which knows more ends of lines than the protocol
    assert (head, end) == ("id: 7", "")
    assert json.loads(data.removeprefix("data: ")) == {"type": "delta", "text": f"{text}?"}


def test_each_task_of_a_turn_is_told_its_end() -> None:
    turn = TurnEnded("4", ("web:main:task_1", "web:other:task_9", "cron:1", "web:main:task_2"))
    assert [one["taskId"] for one in wire.events(turn, "main")] == ["task_1", "task_2"]


@pytest.mark.parametrize(("text", "limit"), [("1", 1), ("0", 1), ("200", 200), ("99999", 200), (None, 50)])
def test_a_limit_is_bounded(text: str | None, limit: int) -> None:
    assert wire.read_limit({} if text is None else {"limit": text}) == limit


@pytest.mark.parametrize("text", ["", "x", "-1", "1.5", "٣", "9" * 19])
def test_a_number_must_be_one(text: str) -> None:
    with pytest.raises(Refusal):
        wire.read_number({"before": text}, "before")


def test_a_turn_that_was_cut_off_is_no_longer_under_way() -> None:
    assert wire.events(TurnGone("1.1"), "main") == [{"type": "progress", "status": "done"}]


def test_people_see_that_a_conversation_was_summed_up() -> None:
    assert wire.events(Compacted(6, 3), "main") == [{"type": "compacted", "entries": 6, "kept": 3}]
