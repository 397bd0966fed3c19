"""Whatever a model says and however it comes, people see its beginning, then all of it, and nothing else."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.telegram.drafts import Draft
from adapters.telegram.presence import Presence
from adapters.telegram.render import pieces, render
from adapters.telegram.text import head
from gateway.errors import DeliveryError
from gateway.feed import Delta, Event, Feed, Restarted, ToolEnded, ToolStarted, TurnEnded, TurnStarted
from gateway.sentinels import Gate, visible
from gateway.types import Address, Chat, Json, JsonObject, Kind, Outgoing
from tests.fakes.clock import StillClock

GROUP = Address("telegram", "-1001")
ANN = Address("telegram", "7")


def drawn(*events: Event, seconds: float = 10.0) -> str:
    """Return what is to be seen so many seconds after some things have happened."""
    draft = Draft()
    for event in events:
        draft.take(event, 0.0)
    return draft.look(seconds)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("fifteen letters", ""),
        ("sixteen letters!", ""),
        ("now sixteen letters", "now sixteen letters"),
        ("  now sixteen letters\n\n", "now sixteen letters"),
        ("**" * 40, ""),
        ("- [ ] --- *** ~~~ >>> ###", ""),
        ("好" * 16, "好" * 16),
        ("", ""),
    ],
)
def test_a_draft_begins_when_there_is_something_to_read(text: str, shown: str) -> None:
    assert drawn(Delta(text)) == shown


def test_words_before_a_tool_call_are_no_reply() -> None:
    said = Delta("I will look into that now")
    assert drawn(said, ToolStarted("read", {}), seconds=1.0) == ""
    assert drawn(said, ToolStarted("read", {}), seconds=1.5) == "Working…\n• read"


def test_equal_calls_end_one_after_the_other() -> None:
    begun = [ToolStarted("read", {}), ToolStarted("read", {})]
    assert drawn(*begun, ToolEnded("read", is_error=False)) == "Working…\n✓ read\n• read"
    assert drawn(*begun, *[ToolEnded("read", is_error=True)] * 3) == "Working…\n✗ read\n✗ read"


@pytest.mark.parametrize("name", ["", "a b", "x" * 65, "read\nNO_REPLY", "<b>", "`rm`"])
def test_what_is_no_name_of_a_tool_is_not_shown(name: str) -> None:
    assert drawn(ToolStarted(name, {}), ToolEnded(name, is_error=False)) == "Working…\n✓ tool"


def test_a_new_attempt_voids_the_text() -> None:
    assert drawn(Delta("now sixteen letters"), Restarted()) == ""


@given(st.text(max_size=6000))
def test_the_head_of_a_text_is_valid_and_short_enough_for_one_message(text: str) -> None:
    shown = head(text)
    assert len(shown.encode("utf-16-le")) // 2 <= 4000
    assert text.startswith(shown.removesuffix("…").replace("\0", "")) or "\0" in text


@dataclass(slots=True)
class Platform:
    """Keeps the messages of a chat as people see them, and every version that was ever seen."""

    messages: dict[int, str] = field(default_factory=dict)
    seen: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    async def call(self, method: str, params: Mapping[str, Json], *, limit: int) -> Json:
        self.asked.append(method)
        match method:
            case "sendMessage" | "editMessageText" | "sendMessageDraft":
                return self._show(method, params)
            case "deleteMessage":
                del self.messages[params["message_id"]]
        return True

    def _show(self, method: str, params: Mapping[str, Json]) -> Json:
        text = params["text"]
        if not is_valid(text, params.get("entities", ())):
            raise DeliveryError(f"Bad Request: {params}")
        self.seen.append(text)
        if method == "sendMessageDraft":
            return True
        number = params.get("message_id", len(self.messages) + 1)
        self.messages[number] = text
        return {"message_id": number}


def is_valid(text: str, entities: Sequence[JsonObject]) -> bool:
    """Return whether the platform takes a text (Bot API sendMessage, MessageEntity)."""
    size = len(text.encode("utf-16-le")) // 2  # raises for half a surrogate pair
    inside = all(0 <= one["offset"] < one["offset"] + one["length"] <= size for one in entities)
    return 0 < size <= 4096 and bool(text.strip()) and inside


async def watched(chunks: Sequence[str], address: Address, platform: Platform, *, aimed: bool = True) -> str:
    """Play a turn whose reply comes in such chunks, one in a second; return what is seen in the end."""
    clock, feed, gate = StillClock(), Feed(), Gate()
    presence = Presence(channel="telegram", call=platform.call, clock=clock)
    feed.join(presence)
    chat = Chat.GROUP if address is GROUP else Chat.DIRECT
    feed.publish(address, TurnStarted(turn="1.1", chat=chat, aimed=aimed))
    await clock.asleep(1)
    await clock.advance(2.0)
    for chunk in chunks:
        if shown := gate.feed(chunk):
            feed.publish(address, Delta(shown))
        await clock.advance(1.0)
    final = pieces(visible("".join(chunks), Kind.MESSAGE))
    feed.publish(address, TurnEnded("", reply="k0" if final else ""))
    for number, piece in enumerate(final):
        await deliver(presence, platform, Outgoing(key=f"k{number}", address=address, text=piece))
    while presence._tasks:
        await asyncio.wait(presence._tasks)
    assert "\n".join(platform.messages.values()) == "\n".join(render(piece).text for piece in final)
    return "\n".join(platform.messages.values())


async def deliver(presence: Presence, platform: Platform, message: Outgoing) -> None:
    params = {"text": render(message.text).text}

    async def edit(number: int) -> None:
        await platform.call("editMessageText", {**params, "message_id": number}, limit=1)

    if await presence.finish(message, edit) is None:
        await platform.call("sendMessage", params, limit=1)


def cut(text: str, places: Sequence[int]) -> list[str]:
    edges = sorted({0, len(text), *(place % (len(text) + 1) for place in places)})
    return [text[a:b] for a, b in itertools.pairwise(edges)]


SILENT = [
    "NO_REPLY",
    "no_reply",
    "**NO_REPLY**",
    "`NO_REPLY`",
    "```\nNO_REPLY\n```",
    "```text\nNO_REPLY\n```",
    "<final>NO_REPLY</final>",
    "\ufeffNO_REPLY \n",
    '{"action": "NO_REPLY"}',
    "HEARTBEAT_OK",
    "**HEARTBEAT_OK**",
    "HEARTBEAT_OK!!!",
]


@pytest.mark.parametrize("token", [pytest.param("NO_REPLY", id="no-reply-01"), *SILENT[1:]])
@pytest.mark.parametrize("address", [GROUP, ANN], ids=["group", "private"])
@settings(max_examples=25, deadline=None)
@given(places=st.lists(st.integers(0, 30), max_size=9))
def test_no_cut_of_a_token_is_ever_seen(address: Address, token: str, places: list[int]) -> None:
    platform = Platform()
    assert asyncio.run(watched(cut(token, places), address, platform)) == ""
    assert set(platform.asked) <= {"sendChatAction", "getChat"}


@settings(max_examples=25, deadline=None)
@given(token=st.sampled_from(SILENT), places=st.lists(st.integers(0, 30), max_size=9))
def test_silence_in_a_room_that_talks_beside_the_bot_asks_for_nothing(token: str, places: list[int]) -> None:
    platform = Platform()
    asyncio.run(watched(cut(token, places), GROUP, platform, aimed=False))
    assert platform.asked == []


WORDS = [
    *("Hello", "a much longer sentence with **bold** words.", "NO", "NO_REPLY", "HEARTBEAT_OK", "你好，世界"),
    *(
        "🐙🐙🐙",
        "`code`",
        "```python\nprint(1)\n",
        "\n\n",
        "- item\n",
        "||spoiler||",
        "[link](https://x.org)",
    ),
    *(
        "<think>hidden</think>",
        "[[reply_to_current]]",
        "&amp; <b>",
        "word " * 300,
        "x" * 900,
        "| a | b |\n|---|---|\n",
    ),
]


@settings(max_examples=60, deadline=None)
@given(
    text=st.lists(st.sampled_from(WORDS), min_size=1, max_size=12).map(" ".join),
    places=st.lists(st.integers(0, 6000), max_size=8),
    address=st.sampled_from([GROUP, ANN]),
)
def test_any_reply_is_complete_valid_and_in_order_however_it_comes(
    text: str, places: list[int], address: Address
) -> None:
    platform = Platform()
    asyncio.run(watched(cut(text, places), address, platform))
    assert not any("hidden" in seen or "reply_to_current" in seen for seen in platform.seen[:-1])
