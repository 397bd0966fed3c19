"""The model without a model."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.models.base import Prompt
from gateway.models.demo import LABEL, Demo, answer
from gateway.types import AssistantEntry, Chat, Entry, Kind, NoteEntry, Sender, ToolEntry, ToolSpec, UserEntry

TOOLS = (ToolSpec("read_file", "", {"type": "object"}), ToolSpec("list_dir", "", {"type": "object"}))


def said(text: str, **more: Any) -> UserEntry:
    return UserEntry(text, Sender("7", "Ann"), more.pop("kind", Kind.MESSAGE), 0.0, **more)


def to(*entries: Entry, **more: Any) -> AssistantEntry:
    return answer(Prompt(system="s", entries=entries, tools=TOOLS, **more))


def test_every_reply_says_what_it_is_and_how_to_get_a_real_one() -> None:
    text = to(said("hello")).text

    assert text.startswith(LABEL)
    assert "You said: hello" in text
    assert "OPENAI_API_KEY" in text


def test_all_messages_since_the_last_reply_are_echoed() -> None:
    text = to(said("old"), AssistantEntry("x"), said("one"), said("two")).text

    assert "You said: one\nYou said: two" in text
    assert "old" not in text


def test_a_tool_can_be_called_by_name() -> None:
    entry = to(said('/tool list_dir {"path": "."}'))

    (call,) = entry.calls
    assert (call.name, call.args, call.problem) == ("list_dir", {"path": "."}, None)
    assert len(call.id) == 9
    assert to(said('/tool list_dir {"path": "."}')) == entry


def test_the_same_call_later_is_another_call() -> None:
    first = to(said("/tool list_dir"))
    later = to(
        said("/tool list_dir"), first, ToolEntry(first.calls[0].id, "list_dir", "a"), said("/tool list_dir")
    )

    assert later.calls[0].args == {}
    assert later.calls[0].id != first.calls[0].id


def test_unreadable_arguments_are_a_problem_of_the_call() -> None:
    assert to(said("/tool list_dir {nonsense")).calls[0].problem


def test_the_result_is_reported() -> None:
    called = to(said("/tool list_dir"))
    done = to(said("/tool list_dir"), called, ToolEntry(called.calls[0].id, "list_dir", "a.txt"))
    failed = to(
        said("/tool list_dir"), called, ToolEntry(called.calls[0].id, "list_dir", "no", is_error=True)
    )

    assert done.text == f"{LABEL} The tool list_dir returned: a.txt"
    assert failed.text == f"{LABEL} The tool list_dir failed: no"


@pytest.mark.parametrize(
    ("wish", "more"), [("/tool rm {}", {}), ("/tool list_dir {}", {"tools_allowed": False})]
)
def test_a_tool_that_is_not_there_is_said(wish: str, more: dict[str, Any]) -> None:
    entry = to(said(wish), **more)

    assert not entry.calls
    assert "I can't use the tool" in entry.text


def test_a_heartbeat_is_quiet() -> None:
    assert to(said("Read HEARTBEAT.md", kind=Kind.HEARTBEAT)).text == "HEARTBEAT_OK"


@pytest.mark.parametrize(
    ("text", "silent"),
    [
        ("see you at noon", True),
        ("(not for you) what time?", True),
        ("what time is it?", False),
        ("几点了？", False),
        ("Crayfish, hello", False),
        ("/tool list_dir", False),
    ],
)
def test_in_a_group_it_speaks_only_when_spoken_to(text: str, silent: bool) -> None:  # a table
    assert (to(said(text, chat=Chat.GROUP)).text == "NO_REPLY") is silent


def test_with_nothing_to_answer_it_still_says_what_it_is() -> None:
    assert to().text.startswith(LABEL)
    assert to(NoteEntry("so far")).text.startswith(LABEL)


async def test_its_words_stream_in_pieces() -> None:
    pieces: list[str] = []

    reply = await Demo().reply(Prompt(system="", entries=(said("hello"),)), pieces.append)

    assert "".join(pieces) == reply.entry.text
    assert 2 <= len(pieces) <= 4
