"""What people see of a turn while it runs, against a Bot API server and a clock that stands still."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from adapters.telegram.client import Api
from adapters.telegram.gate import Gate
from adapters.telegram.menu import commands, offer
from adapters.telegram.methods import Method
from adapters.telegram.presence import Manner, Presence
from adapters.telegram.sending import edit_of
from gateway.commands import menu
from gateway.errors import DeliveryRetry
from gateway.feed import (
    Delta,
    Event,
    Feed,
    Restarted,
    ToolEnded,
    ToolStarted,
    TurnEnded,
    TurnGone,
    TurnStarted,
)
from gateway.types import Address, Attachment, Chat, Json, Kind, Media, Outgoing
from tests.fakes.bot_api import BotApi, Drop, Failure, Status
from tests.fakes.clock import StillClock

ANN = Address("telegram", "7")
GROUP = Address("telegram", "-1001")
TOPIC = Address("telegram", "-1001", "55")
LONG = "This is the beginning of a reply"
"""More than enough to be shown before its end."""

PRIVATE = TurnStarted(turn="1.1", message_id="41")
SHARED = TurnStarted(turn="1.1", message_id="41", chat=Chat.GROUP)
_keys = itertools.count(1)


@dataclass(slots=True, kw_only=True)
class Stage:
    """One bot that is watched; turns are played by hand."""

    server: BotApi
    api: Api
    manner: Manner = field(default_factory=Manner)
    clock: StillClock = field(default_factory=StillClock)
    feed: Feed = field(default_factory=Feed)
    presence: Presence = field(init=False)

    def __post_init__(self) -> None:
        self.presence = Presence(
            channel="telegram", call=self.call, clock=self.clock, manner=self.manner, gate=Gate()
        )
        self.feed.join(self.presence)

    async def call(self, method: str, params: Mapping[str, Json], *, limit: int) -> Json:
        return await self.api.call(Method(method, params), limit=limit)

    async def begin(self, started: TurnStarted = PRIVATE, address: Address = ANN) -> None:
        """Start a turn, and let its companion fall asleep."""
        self.feed.publish(address, started)
        await _a_moment()
        await self.clock.asleep(1)

    async def play(self, *steps: Event | float, address: Address = ANN) -> None:
        """Let things happen; a number is seconds that pass."""
        for step in steps:
            if isinstance(step, float):
                await self.clock.advance(step)
            else:
                self.feed.publish(address, step)

    async def end(self, text: str = "", address: Address = ANN, **more: Any) -> Outgoing | None:
        """End the turn; return the message that the outbox has then, None for silence."""
        message = Outgoing(key=f"reply:{next(_keys)}", address=address, text=text, **more) if text else None
        self.feed.publish(address, TurnEnded(text, reply=message.key if message else ""))
        await _a_moment()
        return message

    async def deliver(self, message: Outgoing | None) -> str:
        """Do what the channel does to send a message; return its id."""
        assert message is not None
        receipt = await self.presence.finish(message, lambda number: self.edit(message, number))
        if receipt is not None:
            return receipt.message_id
        sent = await self.api.call(
            Method("sendMessage", {"chat_id": message.address.chat, "text": message.text})
        )
        return str(sent["message_id"])

    async def edit(self, message: Outgoing, number: int) -> None:
        await self.api.call(edit_of(message, number))

    async def rests(self) -> None:
        """Wait until nothing is shown or cleared away any more."""
        while self.presence._tasks:
            await asyncio.wait(self.presence._tasks)

    def asked(self, *names: str) -> list[str]:
        """Return the requests so far, or those of some methods."""
        return [call.method for call in self.server.calls if not names or call.method in names]

    def params(self, name: str) -> list[dict[str, Any]]:
        return [call.params for call in self.server.calls if call.method == name]

    def texts(self, name: str) -> list[str]:
        return [params["text"] for params in self.params(name)]


async def _a_moment() -> None:
    """Let whoever was woken up notice it."""
    for _ in range(5):
        await asyncio.sleep(0)


@pytest.fixture
async def server() -> AsyncIterator[BotApi]:
    async with BotApi() as api:
        yield api
    assert api.violations == []


@pytest.fixture
async def api(server: BotApi) -> AsyncIterator[Api]:
    client = Api(server.token, server.url)
    yield client
    await client.close()


@pytest.fixture
async def stage(server: BotApi, api: Api) -> AsyncIterator[Stage]:
    play = Stage(server=server, api=api)
    yield play
    await play.presence.close()


async def test_a_fast_reply_costs_no_request_but_its_own(stage: Stage) -> None:
    await stage.begin()
    await stage.play(0.29, Delta(LONG))
    await stage.deliver(await stage.end(LONG))
    await stage.rests()
    assert stage.asked() == ["sendMessage"]


async def test_typing_is_told_every_four_seconds_until_the_end(stage: Stage) -> None:
    await stage.begin()
    await stage.play(0.3)
    assert stage.params("sendChatAction") == [{"chat_id": "7", "action": "typing"}]
    await stage.play(16.0)
    assert len(stage.asked("sendChatAction")) == 5
    await stage.end()
    await stage.rests()
    stage.clock.time += 60
    assert len(stage.asked()) == 5


@pytest.mark.parametrize("kind", [Kind.HEARTBEAT, Kind.CRON, Kind.SUBAGENT])
async def test_nothing_is_shown_of_what_the_bot_does_by_itself(stage: Stage, kind: Kind) -> None:
    stage.feed.publish(ANN, TurnStarted(turn="1.1", kind=kind))
    assert not stage.presence._tasks
    await stage.play(Delta(LONG))
    await stage.end("Good morning")
    assert stage.asked() == []


async def test_other_channels_are_nobodys_business(stage: Stage) -> None:
    elsewhere = Address("web", "main")
    assert not stage.feed.watched(elsewhere)
    stage.feed.publish(elsewhere, PRIVATE)
    assert not stage.presence._tasks


async def test_a_turn_that_is_stopped_stops_typing(stage: Stage) -> None:
    await stage.begin()
    await stage.play(0.3, TurnGone("1.1"))
    await stage.rests()
    assert stage.asked() == ["sendChatAction"]


async def test_the_end_of_a_stopped_turn_does_not_end_the_next_one(stage: Stage) -> None:
    await stage.begin()
    await stage.begin(TurnStarted(turn="1.2"))
    await stage.play(0.3, TurnGone("1.1"), 4.5)
    assert len(stage.asked("sendChatAction")) == 2


async def test_after_two_minutes_without_any_event_nobody_is_said_to_be_typing(stage: Stage) -> None:
    await stage.begin()
    await stage.play(121.0)
    before = len(stage.asked("sendChatAction"))
    assert before == 30
    await stage.play(60.0)
    assert len(stage.asked()) == before
    await stage.play(ToolStarted("read", {}), 0.5)
    assert len(stage.asked("sendChatAction")) == before + 1


async def test_typing_in_a_topic_names_the_topic(stage: Stage) -> None:
    await stage.begin(SHARED, TOPIC)
    await stage.play(0.3)
    assert stage.params("sendChatAction")[0]["message_thread_id"] == "55"


@pytest.mark.parametrize(
    ("is_forum", "thread"), [(True, "1"), (False, None)], ids=["telegram-out-01-forum", "plain-group"]
)
async def test_typing_in_the_general_topic_names_it_and_messages_do_not(
    stage: Stage, server: BotApi, is_forum: bool, thread: str | None
) -> None:
    server.forums = {-1001} if is_forum else set()
    await stage.begin(SHARED, GROUP)
    await stage.play(Delta(LONG), 8.5, address=GROUP)
    assert [params.get("message_thread_id") for params in stage.params("sendChatAction")] == [thread] * 3
    assert len(stage.params("getChat")) == 1
    assert "message_thread_id" not in stage.params("sendMessage")[0]


async def test_a_chat_that_refuses_typing_is_not_asked_again(stage: Stage, server: BotApi) -> None:
    server.fail("sendChatAction", Status(400, "Bad Request: message thread not found"))
    await stage.begin()
    await stage.play(20.0)
    assert len(stage.asked("sendChatAction")) == 1


async def test_in_a_room_that_talks_beside_the_bot_it_types_only_when_it_has_something_to_say(
    stage: Stage,
) -> None:
    await stage.begin(TurnStarted(turn="1.1", chat=Chat.GROUP, aimed=False), GROUP)
    await stage.play(10.0)
    assert stage.asked() == []
    await stage.play(Delta("Well"), 0.5, address=GROUP)
    assert stage.asked("sendChatAction") == ["sendChatAction"]


EYES = [{"type": "emoji", "emoji": "👀"}]


@pytest.mark.parametrize(
    ("scope", "started", "reacts"),
    [
        ("group-mentions", SHARED, True),
        ("group-mentions", PRIVATE, False),
        ("group-mentions", TurnStarted(turn="1.1", message_id="41", chat=Chat.GROUP, aimed=False), False),
        ("all", PRIVATE, True),
        ("off", SHARED, False),
        ("all", TurnStarted(turn="1.1"), False),
    ],
)
async def test_a_message_gets_a_reaction_where_that_is_wanted(
    server: BotApi, api: Api, scope: Any, started: TurnStarted, reacts: bool
) -> None:
    stage = Stage(server=server, api=api, manner=Manner(ack_scope=scope))
    address = GROUP if started.chat is Chat.GROUP else ANN
    await stage.begin(started, address)
    await stage.play(8.5, address=address)
    found = stage.params("setMessageReaction")
    assert [(each["message_id"], each["reaction"]) for each in found] == [("41", EYES)] * reacts
    await stage.presence.close()
    assert len(stage.params("setMessageReaction")) == len(found), "it stays unless it is to be removed"


async def test_a_reaction_is_taken_away_after_the_reply_if_that_is_wanted(server: BotApi, api: Api) -> None:
    stage = Stage(server=server, api=api, manner=Manner(ack_scope="all", ack_remove=True))
    await stage.begin()
    await stage.play(0.3)
    await stage.deliver(await stage.end("Yes."))
    await stage.rests()
    assert [each["reaction"] for each in stage.params("setMessageReaction")] == [EYES, []]


async def test_an_emoji_that_the_platform_does_not_know_is_tried_once_and_told(
    server: BotApi, api: Api, caplog: pytest.LogCaptureFixture
) -> None:
    stage = Stage(server=server, api=api, manner=Manner(ack_scope="all"))
    server.fail("setMessageReaction", Status(400, "Bad Request: REACTION_INVALID"))
    for name in ("1.1", "1.2"):
        await stage.begin(TurnStarted(turn=name, message_id="41"))
        await stage.play(5.0)
        await stage.end()
        await stage.rests()
    assert len(stage.params("setMessageReaction")) == 1
    assert "change ack_reaction" in str([vars(one) for one in caplog.records])


async def test_a_private_reply_is_seen_growing_as_a_draft_and_is_then_sent_whole(stage: Stage) -> None:
    await stage.begin()
    await stage.play(Delta(LONG), 0.9)
    assert stage.asked("sendMessageDraft") == []
    await stage.play(0.5, Delta(" that goes"), Delta(" on"), 1.0)
    await stage.deliver(await stage.end(f"{LONG} that goes on."))
    await stage.rests()
    assert stage.texts("sendMessageDraft") == [LONG, f"{LONG} that goes on"]
    first, second = stage.params("sendMessageDraft")
    assert first["draft_id"] == second["draft_id"] != "0"
    assert first["can_stop"] == "true"
    assert stage.server.visible() == [f"{LONG} that goes on."]


async def test_a_draft_changes_once_a_second_at_the_most(stage: Stage) -> None:
    await stage.begin()
    for _ in range(100):
        await stage.play(Delta("word after word "), 0.1)
    assert 8 <= len(stage.asked("sendMessageDraft")) <= 10


async def test_a_draft_that_does_not_change_is_kept_alive(stage: Stage) -> None:
    await stage.begin()
    await stage.play(Delta(LONG), 58.0)
    assert stage.texts("sendMessageDraft") == [LONG] * 3


async def test_a_short_beginning_is_not_shown(stage: Stage) -> None:
    await stage.begin()
    await stage.play(Delta("Yes, **--** I --"), 10.0)
    assert stage.asked("sendMessageDraft") == []


async def test_a_draft_shows_formatting(stage: Stage) -> None:
    await stage.begin()
    await stage.play(Delta("This is **very** bold and more"), 2.0)
    (draft,) = stage.params("sendMessageDraft")
    assert draft["text"] == "This is very bold and more"
    assert draft["entities"] == [{"type": "bold", "offset": 8, "length": 4}]


async def test_a_draft_ends_where_a_message_ends(stage: Stage) -> None:
    await stage.begin()
    await stage.play(Delta("🐙 word " * 400), 2.0, Delta("🐙 word " * 400), 2.0, Delta("more " * 100), 3.0)
    *_, last = stage.texts("sendMessageDraft")
    assert len(last.encode("utf-16-le")) // 2 <= 4000
    assert last.endswith("…")
    assert len(stage.texts("sendMessageDraft")) == 2, "what does not show is not sent"


@pytest.mark.parametrize("refusal", [Status(400, "Bad Request: drafts?"), Status(404, "Not Found")], ids=repr)
async def test_a_server_without_drafts_gets_a_message_that_is_edited(
    stage: Stage, server: BotApi, refusal: Failure
) -> None:
    server.fail("sendMessageDraft", refusal)
    await stage.begin()
    await stage.play(Delta(LONG), 3.0)
    number = await stage.deliver(await stage.end("Whole."))
    await stage.rests()
    assert len(stage.asked("sendMessageDraft")) == 1
    assert server.visible() == ["Whole."]
    assert number == str(server.sent[0].message_id)
    await stage.begin(TurnStarted(turn="1.2"))
    await stage.play(Delta(LONG), 3.0)
    assert len(stage.asked("sendMessageDraft")) == 1, "it is not asked again"


async def test_a_group_sees_one_message_that_grows_and_becomes_the_reply(
    stage: Stage, server: BotApi
) -> None:
    await stage.begin(SHARED, TOPIC)
    await stage.play(Delta(LONG), 1.4, address=TOPIC)
    assert stage.asked("sendMessage") == []
    await stage.play(0.5, Delta(" and goes on"), 2.0, address=TOPIC)
    assert server.visible(-1001) == [f"{LONG} and goes on"]
    first = stage.params("sendMessage")[0]
    assert first["message_thread_id"] == "55"
    assert first["reply_markup"] == {"inline_keyboard": [[{"text": "Stop", "callback_data": "stop"}]]}
    number = await stage.deliver(await stage.end("It is **done**.", TOPIC))
    await stage.rests()
    assert server.visible(-1001) == ["It is done."]
    assert number == str(server.sent[0].message_id)
    last = stage.params("editMessageText")[-1]
    assert last["entities"] == [{"type": "bold", "offset": 6, "length": 4}]
    assert "reply_markup" not in last, "there is nothing to stop any more"
    assert len(server.sent) == 1


@pytest.mark.parametrize("text", [pytest.param("Hi there, how are you?", id="telegram-out-15")])
async def test_a_draft_that_is_the_whole_reply_already_is_not_sent_again(
    stage: Stage, server: BotApi, text: str
) -> None:
    await stage.begin(SHARED, GROUP)
    await stage.play(Delta(text), 2.0, address=GROUP)
    await stage.deliver(await stage.end(text, GROUP))
    assert server.visible(-1001) == [text]
    server.fail("editMessageText", Status(400, "Bad Request: message is not modified: the same"))
    await stage.rests()
    await stage.begin(SHARED, GROUP)
    await stage.play(Delta(text), 2.0, address=GROUP)
    await stage.deliver(await stage.end(text, GROUP))
    assert server.visible(-1001) == [text, text]


async def test_a_draft_below_which_others_write_moves_down_and_the_reply_is_below_them(
    stage: Stage, server: BotApi
) -> None:
    """Spec ST-4."""
    await stage.begin(SHARED, GROUP)
    await stage.play(Delta(LONG), 2.0, address=GROUP)
    first = server.sent[0].message_id
    stage.presence.landed(GROUP, first + 1)
    await stage.play(Delta(" and on"), 4.0, address=GROUP)
    assert server.visible(-1001) == [f"{LONG} and on"]
    assert len(server.sent) == 1, "not at once: in a busy group it would jump all the time"
    await stage.play(8.0, address=GROUP)
    assert [one.params.get("disable_notification") for one in server.sent] == [None, "true"]
    assert list(server.shown) == [(-1001, server.sent[1].message_id)]
    assert stage.asked("sendMessage", "deleteMessage") == ["sendMessage", "sendMessage", "deleteMessage"]
    stage.presence.landed(GROUP, server.sent[1].message_id + 1)
    await stage.deliver(await stage.end("Whole.", GROUP))
    await stage.rests()
    assert server.visible(-1001) == ["Whole."]
    assert len(server.sent) == 3, "below what was said meanwhile"


@pytest.mark.parametrize(
    "where", [TOPIC, Address("telegram", "-1002"), GROUP], ids=["topic", "chat", "older"]
)
async def test_what_is_written_elsewhere_or_before_moves_no_draft(
    stage: Stage, server: BotApi, where: Address
) -> None:
    await stage.begin(SHARED, GROUP)
    await stage.play(Delta(LONG), 2.0, address=GROUP)
    stage.presence.landed(where, server.sent[0].message_id + (where != GROUP))
    await stage.play(20.0, address=GROUP)
    await stage.deliver(await stage.end("Whole.", GROUP))
    await stage.rests()
    assert len(server.sent) == 1
    assert server.visible(-1001) == ["Whole."]


async def test_long_work_shows_the_plan(stage: Stage, server: BotApi) -> None:
    plan = ToolEnded("todo", is_error=False, plan="[x] Read _the_ log\n[>] Find the cause\n[ ] 1. Mend it")
    await stage.begin(SHARED, GROUP)
    await stage.play(ToolStarted("todo", {}), plan, ToolStarted("read", {}), 4.0, address=GROUP)
    (text,) = server.visible(-1001)
    assert text.splitlines() == [
        "Working…",
        "✓ Read _the_ log",
        "▸ Find the cause",
        "○ 1. Mend it",
        "• read",
    ]


async def test_edits_in_a_group_become_rarer(stage: Stage) -> None:
    await stage.begin(SHARED, GROUP)
    for _ in range(120):
        await stage.play(Delta("word after word "), 0.5, address=GROUP)
    assert 10 <= len(stage.asked("sendMessage", "editMessageText")) <= 20


@pytest.mark.parametrize(
    "failure",
    [Status(400, "Bad Request: message can't be edited"), Drop(after=True), Drop(after=False)],
    ids=repr,
)
async def test_a_draft_that_can_not_become_the_reply_makes_way_for_it(
    stage: Stage, server: BotApi, failure: Failure
) -> None:
    await stage.begin(SHARED, GROUP)
    await stage.play(Delta(LONG), 2.0, address=GROUP)
    server.fail("editMessageText", failure)
    await stage.deliver(await stage.end("Whole.", GROUP))
    await stage.rests()
    assert server.visible(-1001) == ["Whole."]
    assert stage.asked()[-2:] == ["deleteMessage", "sendMessage"], "never both at once"


@pytest.mark.parametrize(
    "more", [{"reply_to": "41"}, {"attachments": (Attachment(kind=Media.IMAGE, path="a.png"),)}], ids=str
)
async def test_a_reply_that_is_more_than_text_is_sent_anew(
    stage: Stage, server: BotApi, more: dict[str, Any]
) -> None:
    await stage.begin(SHARED, GROUP)
    await stage.play(Delta(LONG), 2.0, address=GROUP)
    await stage.deliver(await stage.end("Whole.", GROUP, **more))
    await stage.rests()
    assert server.visible(-1001) == ["Whole."]
    assert len(server.sent) == 2


@pytest.mark.parametrize("last", [TurnEnded(""), TurnEnded("", is_error=True), TurnGone("1.1")], ids=repr)
async def test_the_draft_of_a_turn_without_a_reply_is_deleted(
    stage: Stage, server: BotApi, last: Event
) -> None:
    await stage.begin(SHARED, GROUP)
    await stage.play(Delta(LONG), 2.0, address=GROUP)
    assert server.visible(-1001) == [LONG]
    await stage.play(last, address=GROUP)
    await stage.rests()
    assert server.visible(-1001) == []


async def test_a_draft_whose_reply_another_process_delivers_is_deleted(stage: Stage, server: BotApi) -> None:
    await stage.begin(SHARED, GROUP)
    await stage.play(Delta(LONG), 2.0, address=GROUP)
    await stage.end("Whole.", GROUP)
    await stage.clock.asleep(1)
    assert server.visible(-1001) == [LONG]
    advancing = asyncio.ensure_future(stage.clock.advance(30.0))
    await stage.rests()
    advancing.cancel()
    assert server.visible(-1001) == []


async def test_a_stop_of_the_gateway_leaves_no_draft_behind(stage: Stage, server: BotApi) -> None:
    await stage.begin(SHARED, GROUP)
    await stage.play(Delta(LONG), 2.0, address=GROUP)
    await stage.presence.close()
    assert server.visible(-1001) == []
    stage.feed.publish(GROUP, SHARED)
    assert not stage.presence._tasks


@pytest.mark.parametrize("pending", [pytest.param(15, id="telegram-out-10")])
async def test_while_the_platform_asks_to_wait_a_chat_is_left_alone(
    stage: Stage, server: BotApi, pending: int
) -> None:
    await stage.begin(SHARED, GROUP)
    await stage.play(Delta(LONG), 2.0, address=GROUP)
    server.fail("editMessageText", Status(429, "Too Many Requests", {"retry_after": 20}))
    await stage.play(Delta(" more"), 2.0, address=GROUP)
    before = len(stage.asked())
    for _ in range(pending):
        await stage.play(Delta(" and more"), 1.0, address=GROUP)
    assert len(stage.asked()) == before
    await stage.play(6.0, address=GROUP)
    assert len(stage.asked("editMessageText")) == 2
    assert server.visible(-1001) == [f"{LONG} more{' and more' * pending}"]


async def test_a_reply_waits_too_while_the_platform_asks_for_it(stage: Stage, server: BotApi) -> None:
    await stage.begin(SHARED, GROUP)
    await stage.play(Delta(LONG), 2.0, address=GROUP)
    server.fail("editMessageText", Status(429, "Too Many Requests", {"retry_after": 20}))
    await stage.play(Delta(" more"), 2.0, address=GROUP)
    message = await stage.end("Whole.", GROUP)
    with pytest.raises(DeliveryRetry) as told:
        await stage.deliver(message)
    assert 15 < told.value.after <= 20
    await stage.clock.asleep(1)
    await stage.clock.advance(20.0)
    await stage.deliver(message)
    assert server.visible(-1001) == ["Whole."]
    assert len(server.sent) == 1


async def test_a_new_attempt_of_the_model_begins_the_draft_anew(stage: Stage) -> None:
    await stage.begin()
    await stage.play(Delta(LONG), 2.0, Restarted(), 2.0, Delta("Something else entirely, at last"), 2.0)
    assert stage.texts("sendMessageDraft") == [LONG, "Something else entirely, at last"]


async def test_long_work_with_tools_is_told_by_their_names_alone(stage: Stage) -> None:
    await stage.begin()
    secret = {"path": "passwords.txt"}
    await stage.play(Delta("Let me look into that for you."), ToolStarted("read", secret), 1.4)
    assert stage.asked("sendMessageDraft") == []
    await stage.play(ToolEnded("read", is_error=False), ToolStarted("exec; rm -rf", secret), 1.0)
    await stage.play(ToolEnded("exec; rm -rf", is_error=True), 1.0)
    assert stage.texts("sendMessageDraft") == ["Working…\n✓ read\n• tool", "Working…\n✓ read\n✗ tool"]
    await stage.play(Delta(LONG), 1.0)
    assert stage.texts("sendMessageDraft")[-1] == LONG


async def test_a_group_sees_the_work_and_then_the_reply_in_one_message(stage: Stage, server: BotApi) -> None:
    await stage.begin(SHARED, GROUP)
    await stage.play(*(ToolStarted(f"step{number}", {}) for number in range(12)), 2.0, address=GROUP)
    (text,) = server.visible(-1001)
    assert text.split("\n") == ["Working…", *(f"• step{number}" for number in range(4, 12))]
    await stage.deliver(await stage.end("Done.", GROUP))
    assert server.visible(-1001) == ["Done."]
    assert len(server.sent) == 1


async def test_without_streaming_only_signs_of_life_are_shown(server: BotApi, api: Api) -> None:
    stage = Stage(server=server, api=api, manner=Manner(streaming=False))
    await stage.begin(SHARED, GROUP)
    await stage.play(ToolStarted("read", {}), Delta(LONG), 10.0, address=GROUP)
    assert set(stage.asked()) == {"getChat", "sendChatAction", "setMessageReaction"}
    await stage.presence.close()


@pytest.mark.parametrize(
    "failure", [Status(500), Drop(after=False), Status(403, "Forbidden: blocked")], ids=repr
)
async def test_trouble_with_the_signs_of_life_never_harms_the_reply(
    stage: Stage, server: BotApi, failure: Failure
) -> None:
    for name in ("sendChatAction", "sendMessageDraft", "setMessageReaction"):
        server.fail(name, *[failure] * 20)
    await stage.begin()
    await stage.play(Delta(LONG), 10.0)
    await stage.deliver(await stage.end("Whole."))
    await stage.rests()
    assert server.visible() == ["Whole."]


async def test_a_strange_answer_of_the_platform_ends_the_signs_of_life_and_nothing_else(
    stage: Stage, server: BotApi
) -> None:
    server.fail("sendMessage", Status(200, body='{"ok": true, "result": {"strange": 1}}'))
    await stage.begin(SHARED, GROUP)
    stage.feed.publish(GROUP, Delta(LONG))
    advancing = asyncio.ensure_future(stage.clock.advance(2.0))
    await server.until(lambda: server.count("sendMessage") == 1)
    await stage.deliver(await stage.end("Whole.", GROUP))
    await stage.rests()
    advancing.cancel()
    assert server.visible(-1001) == ["Whole."]
    assert not stage.presence._answered


async def test_a_message_that_is_no_reply_goes_its_own_way(stage: Stage, server: BotApi) -> None:
    await stage.begin(SHARED, GROUP)
    await stage.play(Delta(LONG), 2.0, address=GROUP)
    await stage.deliver(Outgoing(key="command:9", address=GROUP, text="Stopped."))
    assert server.visible(-1001) == [LONG, "Stopped."]


async def test_the_menu_offers_every_command_in_each_kind_of_chat(stage: Stage) -> None:
    await offer({chat: menu(chat) for chat in Chat}, stage.call)
    private, group = stage.params("setMyCommands")
    assert [one["command"] for one in private["commands"]] == [name for name, _ in menu(Chat.DIRECT)]
    assert [one["command"] for one in group["commands"]] == [name for name, _ in menu(Chat.GROUP)]
    assert (private["scope"], group["scope"]) == ({"type": "all_private_chats"}, {"type": "all_group_chats"})


@pytest.mark.parametrize("failures", [1, 2])
async def test_a_menu_that_is_refused_is_tried_twice_and_told(
    stage: Stage, server: BotApi, failures: int, caplog: pytest.LogCaptureFixture
) -> None:
    server.fail("setMyCommands", *[Status(400, "Bad Request: BOT_COMMANDS_TOO_MUCH")] * failures)
    await offer({chat: menu(chat) for chat in Chat}, stage.call)
    assert len(stage.params("setMyCommands")) == (3 if failures == 1 else 2)
    assert len([one for one in caplog.records if one.getMessage() == "menu.failed"]) == failures - 1


def test_a_menu_takes_only_what_the_platform_takes() -> None:
    many = [(f"name{number}", "x" * 300) for number in range(200)]
    found = commands([("Bad-Name", "no"), ("empty", ""), *many])
    assert len(found) == 100
    assert found[0] == {"command": "name0", "description": "x" * 256}
