"""The Slack channel against a Slack on loopback: what is read, what is acknowledged, what is fetched."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import random
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from adapters.slack import Core, Link, Place, Slack
from gateway.channel import Cursor, Poison
from gateway.errors import ChannelStopped, ConfigError, DeliveryError, DeliveryRetry, StoreError
from gateway.feed import Feed
from gateway.types import Address, Attachment, Chat, Media, Outgoing, Sender, Stimulus
from tests.fakes.bot_api import Watched
from tests.fakes.slack_api import (
    APP_TOKEN,
    BOT,
    BOT_ID,
    BOT_TOKEN,
    CHANNEL,
    DM,
    HUMAN,
    SIGNING_SECRET,
    TEAM,
    Drop,
    Error,
    Limited,
    SlackServer,
    Status,
    Stored,
    signature,
)

NOW = 1_800_000_500.0
SAMPLES = Path(__file__).parents[2].parent / "shared/data/slack/events"


class QuickClock(Watched):
    """Remembers how long it was asked to wait, and hardly waits, but for hours."""

    def __init__(self) -> None:
        super().__init__()
        self.ahead = 0.0
        self.waits: list[float] = []

    def now(self) -> float:
        return self.ahead

    def wall(self) -> float:
        return NOW + self.ahead

    async def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        self._notify()
        if seconds > 100:  # the watch over a link, which is moved by `pass_time`
            end = self.ahead + seconds
            await self.until(lambda: self.ahead >= end)
            return
        await asyncio.sleep(0.002)
        self.pass_time(seconds)

    def pass_time(self, seconds: float) -> None:
        self.ahead += seconds
        self._notify()


class Store(Watched):
    """What the core does with stimuli: all or nothing, each key and each message once."""

    def __init__(self) -> None:
        super().__init__()
        self.cursors: dict[str, str] = {}
        self.stimuli: list[Stimulus] = []
        self.edits: list[Stimulus] = []
        self.poison: list[Poison] = []
        self.failures: deque[Exception] = deque()
        self.answers: set[str] = set()
        self.ours: dict[tuple[str, str], Outgoing] = {}
        self.calls = 0

    async def accept(
        self, stimuli: Sequence[Stimulus], cursor: Cursor | None = None, poison: Sequence[Poison] = ()
    ) -> None:
        self.calls += 1
        self._notify()
        if self.failures:
            raise self.failures.popleft()
        for one in stimuli:
            if one.edits:
                self.edits.append(one)
            elif not self._known(one):
                self.stimuli.append(one)
        self.poison += poison
        if cursor:
            self.cursors[cursor.name] = cursor.value
        self._notify()

    def _known(self, one: Stimulus) -> bool:
        return any(
            one.key == known.key or (one.message_key and one.message_key == known.message_key)
            for known in self.stimuli
        )

    async def cursor(self, name: str) -> str | None:
        return self.cursors.get(name)

    async def answered(self, address: Address) -> bool:
        return address.key in self.answers

    async def recall(self, address: Address, message_id: str) -> Outgoing | None:
        return self.ours.get((address.chat, message_id))

    async def recent(self) -> Sequence[Address]:
        return list(dict.fromkeys(one.address for one in reversed(self.stimuli)))

    async def holds(self, *texts: str) -> None:
        """Wait for exactly these messages, in this order."""
        await self.until(lambda: len(self.stimuli) >= len(texts))
        assert [stimulus.text for stimulus in self.stimuli] == list(texts)


@pytest.fixture
async def slack() -> AsyncIterator[SlackServer]:
    async with SlackServer() as server:
        yield server


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
def clock() -> QuickClock:
    return QuickClock()


def channel_of(
    slack: SlackServer,
    store: Store,
    clock: QuickClock,
    *,
    link: Link | None = None,
    place: Place | None = None,
    name: str = "slack",
) -> Slack:
    return Slack(
        name=name,
        link=link or Link(bot_token=BOT_TOKEN, app_token=APP_TOKEN, api_base=slack.base, ping=0.2, hello=0.5),
        core=Core(
            cursors=store.cursor,
            recall=store.recall,
            answered=store.answered,
            recent=store.recent,
            open_file=lambda path: path.encode(),
            feed=Feed(),
            clock=clock,
        ),
        place=place,
        jitter=random.Random(1),
    )


def posted_to(slack: SlackServer) -> Link:
    return Link(bot_token=BOT_TOKEN, signing_secret=SIGNING_SECRET, api_base=slack.base)


@contextlib.asynccontextmanager
async def listening(channel: Slack, store: Store) -> AsyncIterator[asyncio.Task[None]]:
    """Let the channel listen meanwhile; afterwards it must still have been alive."""
    task = asyncio.create_task(channel.listen(store.accept))
    try:
        yield task
        assert not task.done(), task
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError, ChannelStopped):
            await task
        await channel.close()


@contextlib.asynccontextmanager
async def heard(
    slack: SlackServer, store: Store, clock: QuickClock, *, place: Place | None = None
) -> AsyncIterator[Slack]:
    """Run a channel by Socket Mode until its link is up."""
    channel = channel_of(slack, store, clock, place=place)
    async with listening(channel, store) as task:
        up = asyncio.create_task(slack.until(lambda: bool(slack.sockets)))
        await asyncio.wait({task, up}, return_when=asyncio.FIRST_COMPLETED)
        up.cancel()
        yield channel


@contextlib.asynccontextmanager
async def door(channel: Slack) -> AsyncIterator[str]:
    """Serve where Slack posts to."""
    app = web.Application(client_max_size=2**20)
    app.add_routes(channel.doors())
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/slack/events"
    finally:
        await runner.cleanup()


@contextlib.asynccontextmanager
async def posted(slack: SlackServer, store: Store, clock: QuickClock) -> AsyncIterator[str]:
    """Run a channel by HTTP until it takes posts; yields where to."""
    channel = channel_of(slack, store, clock, link=posted_to(slack))
    async with door(channel) as url, listening(channel, store):
        while (await slack.post_event(url, {}, at=NOW))[0] == 503:
            pass
        yield url


def mention(text: str = "hi", ts: str = "1800000001.000001", **more: Any) -> dict[str, Any]:
    return {
        "type": "app_mention",
        "user": HUMAN,
        "channel": CHANNEL,
        "ts": ts,
        "text": f"<@{BOT}> {text}",
        "team": TEAM,
        **more,
    }


@pytest.mark.parametrize(
    "order",
    [("app_mention", "message"), ("message", "app_mention")],
    ids=["slack-in-01", "slack-in-01-message-first"],
)
async def test_a_mention_that_comes_as_two_events_is_one_message(
    slack: SlackServer, store: Store, clock: QuickClock, order: tuple[str, str]
) -> None:
    async with heard(slack, store, clock):
        for kind in order:
            await slack.push({**mention("hi"), "type": kind})
        await slack.settled()
    await store.holds("hi")
    assert store.stimuli[0].aimed
    assert len(slack.acks) == 2


@pytest.mark.parametrize("retries", [[1, 2]], ids=["slack-in-03"])
async def test_an_event_that_is_delivered_again_is_acknowledged_and_known(
    slack: SlackServer, store: Store, clock: QuickClock, retries: list[int]
) -> None:
    async with heard(slack, store, clock):
        envelope = await slack.push(mention(), event_id="Ev1")
        await slack.settled()
        for _ in retries:
            await slack.redeliver(envelope)
            await slack.settled()
    await store.holds("hi")
    assert len(slack.acks) == 3


@pytest.mark.parametrize("event_id", ["Ev1"], ids=["slack-in-04"])
async def test_an_event_is_known_after_a_restart(
    slack: SlackServer, store: Store, clock: QuickClock, event_id: str
) -> None:
    for _ in range(2):
        async with heard(slack, store, clock):
            await slack.push(mention(), event_id=event_id)
            await slack.settled()
        await slack.until(lambda: not slack.sockets)
    await store.holds("hi")


@pytest.mark.parametrize(
    "event",
    [
        {"type": "message", "bot_id": BOT_ID, "channel": CHANNEL, "ts": "3.1", "text": "x"},
        {"type": "message", "user": BOT, "channel": CHANNEL, "ts": "3.2", "text": "x"},
        {
            "type": "message",
            "subtype": "bot_message",
            "bot_id": "B0X",
            "channel": CHANNEL,
            "ts": "3.3",
            "text": "x",
        },
        {"type": "message", "user": "USLACKBOT", "channel": CHANNEL, "ts": "3.4", "text": "x"},
        {
            "type": "message",
            "subtype": "message_changed",
            "channel": CHANNEL,
            "ts": "3.5",
            "hidden": True,
            "message": {"user": BOT, "bot_id": BOT_ID, "ts": "3.1", "text": "y"},
            "previous_message": {"user": BOT, "bot_id": BOT_ID, "ts": "3.1", "text": "x"},
        },
        {
            "type": "reaction_added",
            "user": BOT,
            "reaction": "eyes",
            "item_user": BOT,
            "item": {"type": "message", "channel": CHANNEL, "ts": "3.1"},
        },
    ],
    ids=[
        "slack-in-05-bot_id",
        "slack-in-05-user",
        "slack-in-07",
        "slackbot",
        "webhook-019-edit",
        "own-reaction",
    ],
)
async def test_what_bots_write_is_acknowledged_and_ignored(
    slack: SlackServer, store: Store, clock: QuickClock, event: dict[str, Any]
) -> None:
    async with heard(slack, store, clock):
        await slack.push(event)
        await slack.settled()
    assert store.stimuli == []
    assert store.edits == []


async def test_nothing_is_acknowledged_before_its_commit(
    slack: SlackServer, store: Store, clock: QuickClock
) -> None:
    store.failures.append(StoreError("the disk is full"))
    async with heard(slack, store, clock):
        envelope = await slack.push(mention())
        await store.until(lambda: store.calls == 1)
        assert slack.acks == []
        await slack.redeliver(envelope)
        await slack.settled()
    await store.holds("hi")


async def test_a_fault_of_ours_is_not_acknowledged_either(
    slack: SlackServer, store: Store, clock: QuickClock, caplog: pytest.LogCaptureFixture
) -> None:
    store.failures.append(RuntimeError("a bug"))
    async with heard(slack, store, clock):
        envelope = await slack.push(mention())
        await store.until(lambda: store.calls == 1)
        await slack.redeliver(envelope)
        await slack.settled()
    assert len(slack.acks) == 1
    assert "slack.failed" in caplog.messages


@pytest.mark.parametrize("texts", [("a", "b")], ids=["slack-in-10"])
async def test_a_mention_and_the_thread_below_it_are_one_conversation(
    slack: SlackServer, store: Store, clock: QuickClock, texts: tuple[str, str]
) -> None:
    async with heard(slack, store, clock):
        first = await slack.say(f"<@{BOT}> {texts[0]}")
        await slack.say(texts[1], thread=first)
        await slack.settled()
    await store.holds(*texts)
    assert [one.address for one in store.stimuli] == [Address("slack", CHANNEL, first)] * 2
    assert [one.aimed for one in store.stimuli] == [True, False]


@pytest.mark.parametrize("texts", [("a", "b")], ids=["slack-in-11"])
async def test_two_messages_of_a_channel_are_two_conversations(
    slack: SlackServer, store: Store, clock: QuickClock, texts: tuple[str, str]
) -> None:
    async with heard(slack, store, clock):
        for text in texts:
            await slack.say(f"<@{BOT}> {text}")
        await slack.settled()
    assert len({one.address for one in store.stimuli}) == 2


async def test_a_flat_channel_is_one_conversation_beside_its_threads(
    slack: SlackServer, store: Store, clock: QuickClock
) -> None:
    async with heard(slack, store, clock, place=Place(flat=frozenset({CHANNEL}))):
        first = await slack.say("one")
        await slack.say("two")
        await slack.say("three", thread=first)
        await slack.settled()
    assert [one.address.thread for one in store.stimuli] == ["", "", first]


@pytest.mark.parametrize(("dm_threads", "thread"), [(False, ""), (True, "1.1")])
async def test_a_direct_chat_is_flat_unless_its_threads_are_kept_apart(
    slack: SlackServer, store: Store, clock: QuickClock, dm_threads: bool, thread: str
) -> None:
    async with heard(slack, store, clock, place=Place(dm_threads=dm_threads)):
        await slack.say("hi", chat=DM)
        await slack.say("more", chat=DM, thread="1.1")
        await slack.settled()
    assert [one.address for one in store.stimuli] == [Address("slack", DM), Address("slack", DM, thread)]
    assert {one.chat for one in store.stimuli} == {Chat.DIRECT}
    assert all(one.aimed for one in store.stimuli)


async def test_what_is_written_to_the_assistant_stays_in_its_thread(
    slack: SlackServer, store: Store, clock: QuickClock
) -> None:
    thread = {"user_id": HUMAN, "channel_id": DM, "thread_ts": "5.1", "context": {}}
    async with heard(slack, store, clock):
        await slack.push({"type": "assistant_thread_started", "assistant_thread": thread})
        await slack.settled()
        await slack.say("hi", chat=DM, thread="5.1")
        await slack.settled()
    assert store.stimuli[0].address == Address("slack", DM, "5.1")


async def test_the_thread_of_an_assistant_is_known_after_a_restart(
    slack: SlackServer, store: Store, clock: QuickClock
) -> None:
    store.answers.add(Address("slack", DM, "5.1").key)
    async with heard(slack, store, clock):
        await slack.say("hi", chat=DM, thread="5.1")
        await slack.say("ho", chat=DM, thread="5.2")
        await slack.settled()
    assert [one.address.thread for one in store.stimuli] == ["5.1", ""]


async def test_tokens_in_the_environment_are_not_taken(
    slack: SlackServer,
    store: Store,
    clock: QuickClock,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    for name in ("SLACK_BOT_TOKEN", "SLACK_CLIENT_ID", "SLACK_CLIENT_SECRET", "SLACK_SIGNING_SECRET"):
        monkeypatch.setenv(name, "xoxb-environment")
    async with heard(slack, store, clock):
        await slack.say("hi", chat=DM)
        await slack.settled()
    await store.holds("hi")
    assert {call.token for call in slack.calls} == {BOT_TOKEN, APP_TOKEN}
    assert [one for one in caplog.records if one.name.startswith("slack")] == []


async def test_the_first_mention_in_a_thread_brings_what_was_said_there_before(
    slack: SlackServer, store: Store, clock: QuickClock
) -> None:
    root = slack.written("the build is red")
    for number in range(30):
        slack.written(f"line {number}", thread=root["ts"])
    slack.written("from a bot", thread=root["ts"], bot_id="B0CI", username="CI")
    async with heard(slack, store, clock):
        await slack.say(f"<@{BOT}> why?", thread=root["ts"])
        await slack.settled()
        await slack.say(f"<@{BOT}> and now?", thread=root["ts"])
        await slack.settled()
    texts = [one.text for one in store.stimuli]
    assert texts[:2] == ["the build is red", "line 12"]
    assert texts[-3:] == ["line 29", "why?", "and now?"]
    assert [one.aimed for one in store.stimuli] == [False] * (len(texts) - 2) + [True, True]
    assert len(slack.called("conversations.replies")) == 1


async def test_a_thread_that_the_bot_has_answered_in_is_not_read_again(
    slack: SlackServer, store: Store, clock: QuickClock
) -> None:
    root = slack.written("the build is red")
    store.answers.add(Address("slack", CHANNEL, root["ts"]).key)
    async with heard(slack, store, clock):
        await slack.say(f"<@{BOT}> why?", thread=root["ts"])
        await slack.settled()
    await store.holds("why?")
    assert slack.called("conversations.replies") == []


async def test_a_bot_that_began_the_thread_is_quoted(
    slack: SlackServer, store: Store, clock: QuickClock
) -> None:
    root = slack.written("CPU at 99 %", user="U0GRAFANA", bot_id="B0G", username="Grafana")
    async with heard(slack, store, clock):
        await slack.say(f"<@{BOT}> why?", thread=root["ts"])
        await slack.settled()
    await store.holds("why?")
    assert store.stimuli[0].quote == "Grafana: CPU at 99 %"


@pytest.mark.parametrize("failure", [Error("missing_scope"), Limited(), Drop(after=False), Status(503)])
async def test_a_thread_that_can_not_be_read_delays_no_message(
    slack: SlackServer, store: Store, clock: QuickClock, failure: Any
) -> None:
    slack.fail("conversations.replies", failure)
    async with heard(slack, store, clock):
        await slack.say(f"<@{BOT}> why?", thread="1.1")
        await slack.settled()
    await store.holds("why?")


async def test_ids_and_links_are_read_as_people_see_them(
    slack: SlackServer, store: Store, clock: QuickClock
) -> None:
    slack.users["U0BOB"] = {
        "id": "U0BOB",
        "name": "bob",
        "profile": {"display_name": "", "real_name": "Bob B"},
    }
    said = (
        f"<@{BOT}>: ask <@U0BOB> or <@U0GONE> in <#{CHANNEL}> or <#C0X|dev>, see "
        "<https://a.example/?a=1&amp;b=2|the page> or <https://b.example> <!here> <!subteam^S1|@ops> "
        "<mailto:a@b.example|a@b.example> 1 &lt; 2 &amp;amp; <!date^0^{date}|soon>"
    )
    async with heard(slack, store, clock):
        await slack.say(said)
        await slack.settled()
        await slack.say("<@U0BOB>", chat=DM)
        await slack.settled()
    assert store.stimuli[0].text == (
        "ask @Bob B or @U0GONE in #general or #dev, see the page (https://a.example/?a=1&b=2) or "
        "https://b.example @here @ops a@b.example 1 < 2 &amp; @soon".replace("@soon", "soon")
    )
    assert store.stimuli[0].sender.name == "Ann"
    asked = [call["user"] for call in slack.called("users.info")]
    assert sorted(asked) == sorted({HUMAN, "U0BOB", "U0GONE"})


async def test_a_name_that_does_not_come_is_an_id(
    slack: SlackServer, store: Store, clock: QuickClock
) -> None:
    slack.fail("users.info", Limited(after="60"))
    async with heard(slack, store, clock):
        await slack.say("hi", chat=DM)
        await slack.settled()
    assert (store.stimuli[0].sender.id, store.stimuli[0].sender.name) == (HUMAN, "")


@pytest.mark.parametrize(
    "team_field", ["user_team", "source_team", "team"], ids=lambda one: f"access-018-{one}"
)
async def test_somebody_of_another_workspace_is_told_apart(
    slack: SlackServer, store: Store, clock: QuickClock, team_field: str
) -> None:
    async with heard(slack, store, clock):
        await slack.say(f"<@{BOT}> hi", **{"team": TEAM, team_field: "T0OTHER"})
        await slack.settled()
    assert store.stimuli[0].sender.id == f"T0OTHER/{HUMAN}"


async def test_an_event_for_another_workspace_of_the_app_is_ignored(
    slack: SlackServer, store: Store, clock: QuickClock
) -> None:
    async with heard(slack, store, clock):
        body = slack.callback(mention())
        await slack.envelope({**body, "authorizations": [{"team_id": "T0OTHER", "user_id": BOT}]})
        await slack.settled()
    assert store.stimuli == []


async def test_an_edit_replaces_the_words_and_a_preview_does_not(
    slack: SlackServer, store: Store, clock: QuickClock
) -> None:
    async with heard(slack, store, clock):
        ts = await slack.say(f"<@{BOT}> helo")
        before = {"user": HUMAN, "ts": ts, "text": f"<@{BOT}> helo", "team": TEAM}
        after = {**before, "text": f"<@{BOT}> hello", "edited": {"user": HUMAN, "ts": "9.9"}}
        changed = {"type": "message", "subtype": "message_changed", "channel": CHANNEL, "hidden": True}
        await slack.push({**changed, "message": after, "previous_message": before})
        await slack.push({**changed, "message": {**after, "attachments": [{}]}, "previous_message": after})
        await slack.settled()
    assert [(one.text, one.message_key) for one in store.edits] == [("hello", store.stimuli[0].message_key)]
    assert store.edits[0].address == store.stimuli[0].address


async def test_a_reaction_counts_at_our_messages_only(
    slack: SlackServer, store: Store, clock: QuickClock
) -> None:
    where = Address("slack", CHANNEL, "1.1")
    store.ours[(CHANNEL, "1.5")] = Outgoing(key="k", address=where, text="All is **well**.")
    async with heard(slack, store, clock):
        for ts in ("1.5", "1.6"):
            item = {"type": "message", "channel": CHANNEL, "ts": ts}
            for kind in ("reaction_added", "reaction_removed"):
                await slack.push(
                    {
                        "type": kind,
                        "user": HUMAN,
                        "reaction": "thumbsup",
                        "item": item,
                        "item_user": BOT,
                        "event_ts": "2.2",
                    }
                )
        await slack.settled()
    await store.holds(
        "[reacted with :thumbsup: on your message “All is **well**.”]",
        "[took back :thumbsup: on your message “All is **well**.”]",
    )
    assert {(one.address, one.aimed, one.gesture) for one in store.stimuli} == {(where, False, True)}


async def test_a_pressed_button_hands_back_its_value(
    slack: SlackServer, store: Store, clock: QuickClock
) -> None:
    press = {
        "type": "block_actions",
        "user": {"id": HUMAN, "username": "ann", "team_id": TEAM},
        "channel": {"id": CHANNEL},
        "trigger_id": "13345224609.738474920",
        "response_url": "https://hooks.slack.com/x",
        "message": {"ts": "1.5", "thread_ts": "1.1", "text": "Shall I?"},
        "actions": [
            {"type": "button", "action_id": "crayfish.0.0", "value": "approve 7 once", "action_ts": "2.2"}
        ],
    }
    async with heard(slack, store, clock):
        envelope = await slack.envelope(press, kind="interactive")
        await slack.settled()
        await slack.redeliver(envelope)
        await slack.settled()
    await store.holds("callback_data: approve 7 once")
    pressed = store.stimuli[0]
    assert (pressed.address, pressed.quote, pressed.gesture) == (
        Address("slack", CHANNEL, "1.1"),
        "you: Shall I?",
        True,
    )
    assert "hooks.slack.com" not in repr(pressed)
    assert "13345224609" not in repr(pressed)


def command(text: str, channel: str = CHANNEL) -> dict[str, Any]:
    return {
        "command": "/crayfish",
        "text": text,
        "user_id": HUMAN,
        "user_name": "ann",
        "team_id": TEAM,
        "channel_id": channel,
        "trigger_id": "1.2.3",
        "response_url": "https://hooks.slack.com/x",
    }


@pytest.mark.parametrize(
    ("channel", "told"),
    [(CHANNEL, {"response_type": "ephemeral", "text": "I answer you in our direct messages."}), (DM, {})],
)
async def test_a_slash_command_goes_on_in_the_direct_chat(
    slack: SlackServer, store: Store, clock: QuickClock, channel: str, told: dict[str, str]
) -> None:
    async with heard(slack, store, clock):
        envelope = await slack.envelope(command("/new", channel), kind="slash_commands")
        await slack.settled()
    await store.holds("/new")
    assert (store.stimuli[0].address, store.stimuli[0].chat) == (Address("slack", DM), Chat.DIRECT)
    assert envelope.answer == told


async def test_a_slash_command_without_words_is_explained(
    slack: SlackServer, store: Store, clock: QuickClock
) -> None:
    async with heard(slack, store, clock):
        envelope = await slack.envelope(command("  "), kind="slash_commands")
        await slack.settled()
    assert store.stimuli == []
    assert "Write after the command" in str(envelope.answer)


async def test_a_shortcut_about_a_message_quotes_it(
    slack: SlackServer, store: Store, clock: QuickClock
) -> None:
    shortcut = {
        "type": "message_action",
        "callback_id": "explain",
        "user": {"id": HUMAN, "name": "ann"},
        "action_ts": "3.3",
        "trigger_id": "t",
        "channel": {"id": CHANNEL},
        "message": {"user": HUMAN, "ts": "1.1", "text": "a &lt; b"},
    }
    async with heard(slack, store, clock):
        await slack.envelope(shortcut, kind="interactive")
        await slack.settled()
    await store.holds("[shortcut: explain]")
    assert (store.stimuli[0].address.chat, store.stimuli[0].quote) == (DM, "@Ann: a < b")


@pytest.mark.parametrize(
    ("payload", "told"),
    [
        ({"type": "view_submission", "user": {"id": HUMAN}, "view": {}}, {}),
        ({"type": "view_closed", "user": {"id": HUMAN}, "view": {}}, {}),
        ({"type": "block_suggestion", "user": {"id": HUMAN}, "value": ""}, {"options": []}),
        ({"type": "block_actions", "user": {"id": HUMAN}, "actions": [{}], "view": {}}, {}),
        ({"type": "of the future"}, {}),
    ],
    ids=lambda one: str(one.get("type")),
)
async def test_what_is_nothing_to_us_is_acknowledged(
    slack: SlackServer, store: Store, clock: QuickClock, payload: dict[str, Any], told: dict[str, Any]
) -> None:
    async with heard(slack, store, clock):
        envelope = await slack.envelope(payload, kind="interactive")
        await slack.settled()
    assert envelope.answer == told
    assert (store.stimuli, store.poison) == ([], [])


@pytest.mark.parametrize("ts", [[], "soon", "inf", "nan", "1e99", 10**400], ids=lambda ts: str(ts)[:5])
async def test_what_can_not_be_read_is_kept_and_not_asked_for_again(
    slack: SlackServer, store: Store, clock: QuickClock, ts: object
) -> None:
    async with heard(slack, store, clock):
        event = {"type": "message", "user": HUMAN, "channel": CHANNEL, "text": f"<@{BOT}> hi", "ts": ts}
        await slack.push(event, event_id="Ev9")
        await slack.settled()
    assert [one.key for one in store.poison] == [f"slack:{TEAM}:Ev9"]
    assert json.loads(store.poison[0].body)["event_id"] == "Ev9"


@pytest.mark.parametrize(
    ("event", "logged"),
    [
        (
            {
                "type": "message",
                "subtype": "message_deleted",
                "channel": CHANNEL,
                "deleted_ts": "1.1",
                "ts": "1.2",
            },
            "slack.message_deleted",
        ),
        (
            {"type": "member_joined_channel", "user": BOT, "channel": CHANNEL, "inviter": HUMAN},
            "slack.member_joined_channel",
        ),
        ({"type": "tokens_revoked", "tokens": {"bot": [BOT]}}, "slack.tokens_revoked"),
        ({"type": "member_joined_channel", "user": HUMAN, "channel": CHANNEL}, ""),
    ],
)
async def test_what_only_the_owner_cares_about_is_logged(
    slack: SlackServer,
    store: Store,
    clock: QuickClock,
    event: dict[str, Any],
    logged: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    async with heard(slack, store, clock):
        await slack.push(event)
        await slack.settled()
    assert (logged in caplog.messages) is bool(logged)
    assert store.calls == 0


async def test_a_talk_of_several_people_is_a_group_with_threads(
    slack: SlackServer, store: Store, clock: QuickClock
) -> None:
    slack.conversations["G0US"] = {"id": "G0US", "is_mpim": True, "name": "mpdm-ann--bob-1"}
    async with heard(slack, store, clock):
        ts = await slack.say(f"<@{BOT}> hi", chat="G0US")
        await slack.settled()
    await store.holds("hi")
    assert (store.stimuli[0].address, store.stimuli[0].chat) == (Address("slack", "G0US", ts), Chat.GROUP)


async def test_a_channel_that_is_renamed_is_called_so(
    slack: SlackServer, store: Store, clock: QuickClock
) -> None:
    async with heard(slack, store, clock):
        await slack.push({"type": "channel_rename", "channel": {"id": "C0NEW", "name": "ops", "created": 1}})
        await slack.settled()
        await slack.say("see <#C0NEW>", chat=DM)
        await slack.settled()
    await store.holds("see #ops")
    assert slack.called("conversations.info") == []


async def test_messages_of_a_chat_are_stored_in_their_order_however_long_names_take(
    slack: SlackServer, store: Store, clock: QuickClock
) -> None:
    async with heard(slack, store, clock):
        for number in range(20):
            slack.users[f"U0N{number}"] = {"id": f"U0N{number}", "name": f"n{number}"}
            who = f"<@U0N{number}> " if number % 3 == 0 else ""
            await slack.say(f"{who}{number}", chat=DM)
        await slack.settled()
    assert [one.text.rpartition(" ")[2] for one in store.stimuli] == [str(number) for number in range(20)]


async def test_a_refused_ticket_is_not_used_twice(
    slack: SlackServer, store: Store, clock: QuickClock
) -> None:
    slack.refuse_sockets = 3
    async with heard(slack, store, clock):
        await slack.say("hi", chat=DM)
        await slack.settled()
    await store.holds("hi")
    assert slack.issued == 4
    assert all(wait <= 30 for wait in clock.waits if wait < 1000)


async def test_a_socket_that_says_nothing_is_given_up(
    slack: SlackServer, store: Store, clock: QuickClock
) -> None:
    slack.silent_sockets = 2
    async with heard(slack, store, clock):
        await slack.say("hi", chat=DM)
        await slack.settled()
    await store.holds("hi")
    assert slack.issued == 3


async def test_a_refresh_opens_the_next_link_before_the_old_one_closes(
    slack: SlackServer, store: Store, clock: QuickClock
) -> None:
    async with heard(slack, store, clock):
        old = slack.sockets[0]
        await slack.refresh("refresh_requested")
        await slack.until(lambda: len(slack.sockets) == 2 or not old.open)
        assert old.open
        await slack.say("hi", chat=DM)
        await slack.settled()
        await slack.until(lambda: not old.open)
    await store.holds("hi")
    assert slack.called("users.conversations") == []


async def test_what_was_not_acknowledged_before_a_link_broke_comes_again(
    slack: SlackServer, store: Store, clock: QuickClock
) -> None:
    store.failures.append(StoreError("locked"))
    async with heard(slack, store, clock):
        await slack.say("hi", chat=DM)
        await store.until(lambda: store.calls == 1)
        slack.cut(slack.sockets[0])
        await slack.settled()
    await store.holds("hi")


async def test_a_half_open_link_is_found_and_replaced(
    slack: SlackServer, store: Store, clock: QuickClock
) -> None:
    async with heard(slack, store, clock):
        slack.sockets[0].deaf = True
        await slack.until(lambda: slack.issued == 2)
        await slack.say("hi", chat=DM)
        await slack.settled()
    await store.holds("hi")


@pytest.mark.parametrize("idle", [3600], ids=["slack-in-15"])
async def test_a_link_that_is_open_but_brings_nothing_is_rebuilt_without_a_gap(
    slack: SlackServer, store: Store, clock: QuickClock, idle: int
) -> None:
    async with heard(slack, store, clock):
        old = slack.sockets[0]
        await clock.until(lambda: 3600.0 in clock.waits)
        assert slack.issued == 1
        clock.pass_time(idle)
        await slack.until(lambda: slack.issued == 2 and (len(slack.sockets) == 2 or not old.open))
        await slack.say("hi", chat=DM)
        await slack.settled()
    await store.holds("hi")


async def test_what_was_written_while_nobody_listened_is_fetched(
    slack: SlackServer, store: Store, clock: QuickClock
) -> None:
    async with heard(slack, store, clock):
        first = await slack.say(f"<@{BOT}> one")
        await slack.say("direct", chat=DM)
        await slack.settled()
    await slack.until(lambda: not slack.sockets)
    slack.written(f"<@{BOT}> two")
    slack.written("three", thread=first)
    slack.written("more", chat=DM)
    slack.written("a bot", bot_id="B0X")
    async with heard(slack, store, clock):
        await store.until(lambda: len(store.stimuli) == 5)
        await store.until(
            lambda: store.cursors[f"slack:{TEAM}"] == store.stimuli[-1].message_id or store.calls > 9
        )
    assert sorted(one.text for one in store.stimuli) == ["direct", "more", "one", "three", "two"]
    by_text = {one.text: one for one in store.stimuli}
    assert by_text["three"].address == by_text["one"].address
    oldest = float(slack.called("conversations.history")[0]["oldest"])
    assert oldest < float(by_text["direct"].message_id)


async def test_a_broken_link_is_caught_up_with_too(
    slack: SlackServer, store: Store, clock: QuickClock
) -> None:
    async with heard(slack, store, clock):
        await slack.say("one", chat=DM)
        await slack.settled()
        slack.written("two", chat=DM)
        slack.cut(slack.sockets[0])
        await store.holds("one", "two")


async def test_a_gap_that_could_not_be_stored_is_read_again_and_until_then_the_cursor_stays(
    slack: SlackServer, store: Store, clock: QuickClock
) -> None:
    before = store.cursors[f"slack:{TEAM}"] = slack.ts()
    await store.accept([_stored()])
    missed = slack.written("missed", chat=DM)
    store.failures.append(StoreError("locked"))
    async with heard(slack, store, clock):
        await clock.until(lambda: 5.0 in clock.waits)
        assert store.cursors[f"slack:{TEAM}"] == before
        await store.until(lambda: store.cursors[f"slack:{TEAM}"] == missed["ts"])
    await store.holds("old", "missed")


async def test_a_history_that_is_limited_or_forbidden_does_not_stop_the_channel(
    slack: SlackServer, store: Store, clock: QuickClock
) -> None:
    store.cursors[f"slack:{TEAM}"] = "1800000000.000001"
    slack.fail("users.conversations", Error("missing_scope", {"needed": "channels:read"}))
    slack.fail("conversations.history", Limited("5"), Error("missing_scope"))
    await store.accept([_stored()])
    async with heard(slack, store, clock):
        await slack.until(lambda: len(slack.called("conversations.history")) == 2)
        await slack.say("hi", chat=DM)
        await slack.settled()
    assert 5.0 in clock.waits
    assert store.stimuli[-1].text == "hi"


def _stored() -> Stimulus:
    return Stimulus(key="k", address=Address("slack", DM), sender=Sender(HUMAN), text="old", at=1.0)


@pytest.mark.parametrize("code", ["invalid_auth", "account_inactive", "token_revoked"])
async def test_a_refused_bot_token_stops_the_channel_and_says_what_to_do(
    slack: SlackServer, store: Store, clock: QuickClock, code: str
) -> None:
    slack.fail("auth.test", Error(code))
    channel = channel_of(slack, store, clock)
    with pytest.raises(ChannelStopped, match="Install the app again") as caught:
        await channel.listen(store.accept)
    await channel.close()
    assert BOT_TOKEN not in str(caught.value)
    assert channel.status()["state"] == "stopped"


@pytest.mark.parametrize("code", ["invalid_auth", "missing_scope", "not_allowed_token_type"])
async def test_a_refused_app_token_stops_the_channel_at_once(
    slack: SlackServer, store: Store, clock: QuickClock, code: str
) -> None:
    slack.fail("apps.connections.open", Error(code, {"needed": "connections:write"}))
    channel = channel_of(slack, store, clock)
    with pytest.raises(ChannelStopped, match="connections:write"):
        await channel.listen(store.accept)
    await channel.close()
    assert slack.issued == 0


async def test_tokens_of_two_apps_are_told_apart(slack: SlackServer, store: Store, clock: QuickClock) -> None:
    slack.bot_app = "A0OTHER"
    channel = channel_of(slack, store, clock)
    with pytest.raises(ChannelStopped, match="bot_token belongs to the app A0OTHER and app_token to A0APP"):
        await channel.listen(store.accept)
    await channel.close()


async def test_slack_being_away_is_waited_out(slack: SlackServer, store: Store, clock: QuickClock) -> None:
    slack.fail("auth.test", Status(503), Drop(after=False), Limited("11"))
    slack.fail("apps.connections.open", Status(500), Limited("12"))
    async with heard(slack, store, clock) as channel:
        await slack.say("hi", chat=DM)
        await slack.settled()
        assert channel.status()["last_error"] is None
    await store.holds("hi")
    assert {11.0, 12.0} <= set(clock.waits)


@pytest.mark.parametrize(
    ("link", "told"),
    [
        (Link(bot_token="xoxp-1", app_token=APP_TOKEN), "bot_token does not look like one"),
        (Link(bot_token=BOT_TOKEN, app_token="xoxb-1"), "app_token does not look like one"),
        (Link(bot_token=BOT_TOKEN), "needs an app_token"),
    ],
)
def test_tokens_of_another_kind_are_refused(
    link: Link, told: str, slack: SlackServer, store: Store, clock: QuickClock
) -> None:
    with pytest.raises(ConfigError, match=told):
        channel_of(slack, store, clock, link=link)


async def test_no_token_and_no_ticket_gets_into_a_log(
    slack: SlackServer, store: Store, clock: QuickClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    slack.refuse_sockets = 1
    slack.fail("users.info", Error("missing_scope", {"response_metadata": {"messages": [BOT_TOKEN]}}))
    async with heard(slack, store, clock):
        await slack.say("hi", chat=DM)
        await slack.settled()
    logged = "\n".join(
        f"{one.getMessage()} {one.__dict__}" for one in caplog.records if one.name.startswith("adapters")
    )
    assert "ticket-" not in logged
    assert BOT_TOKEN not in logged
    assert APP_TOKEN not in logged


async def test_two_workspaces_are_two_channels(slack: SlackServer, store: Store, clock: QuickClock) -> None:
    channel = channel_of(slack, store, clock, name="slack-second")
    async with listening(channel, store), heard(slack, store, clock):
        await slack.until(lambda: len(slack.sockets) == 2)
        for socket in [*slack.sockets]:
            await socket.ws.send_json(
                {
                    "type": "events_api",
                    "envelope_id": "e",
                    "payload": slack.callback(mention(), event_id="Ev1"),
                }
            )
        await store.until(lambda: len(store.stimuli) == 2)
    assert {one.address.channel for one in store.stimuli} == {"slack", "slack-second"}


async def test_all_calls_share_one_connection(slack: SlackServer, store: Store, clock: QuickClock) -> None:
    async with heard(slack, store, clock):
        for number in range(10):
            slack.users[f"U0N{number}"] = {"id": f"U0N{number}", "name": f"n{number}"}
            await slack.say("hi", chat=DM, user=f"U0N{number}")
            await slack.settled()
    assert len(slack.called("users.info")) == 10
    assert len(slack.connections) <= 2


def file_of(slack: SlackServer, **more: Any) -> dict[str, Any]:
    return {
        "id": "F1",
        "name": "report.pdf",
        "mimetype": "application/pdf",
        "size": 3,
        "mode": "hosted",
        "url_private_download": f"{slack.url}/files/F1",
        **more,
    }


async def test_files_are_fetched_with_the_token(slack: SlackServer, store: Store, clock: QuickClock) -> None:
    slack.files["F1"] = Stored(b"%PDF", "application/pdf")
    slack.file_info["F2"] = file_of(slack, id="F2")
    files = [file_of(slack), {"id": "F2", "name": "b.pdf", "file_access": "check_file_info"}]
    async with heard(slack, store, clock) as channel:
        await slack.say("look", chat=DM, subtype="file_share", files=files)
        await slack.settled()
        one, other = store.stimuli[0].attachments
        assert (one.kind, one.name, one.mime, one.size) == (Media.FILE, "report.pdf", "application/pdf", 3)
        assert await channel.fetch(one, 100) == b"%PDF"
        assert await channel.fetch(other, 100) == b"%PDF"
        with pytest.raises(DeliveryError, match="larger than"):
            await channel.fetch(one, 3)


@pytest.mark.parametrize("redirect", [False, True], ids=["slack-in-12", "slack-in-12-redirect"])
async def test_a_sign_in_page_is_not_a_file(
    slack: SlackServer, store: Store, clock: QuickClock, redirect: bool
) -> None:
    slack.files["F1"] = Stored(b"", "text/html", page=not redirect, redirect=redirect)
    channel = channel_of(slack, store, clock)
    attachment = Attachment(kind=Media.FILE, mime="application/pdf", ref=f"{slack.url}/files/F1")
    with pytest.raises(DeliveryError, match="files:read"):
        await channel.fetch(attachment, 1000)
    await channel.close()
    assert [call.token for call in slack.calls] == ["bot"]


async def test_the_token_is_not_shown_to_other_hosts(
    slack: SlackServer, store: Store, clock: QuickClock
) -> None:
    channel = channel_of(slack, store, clock)
    with pytest.raises(DeliveryError, match="outside of Slack"):
        await channel.fetch(Attachment(kind=Media.FILE, ref="http://files.slack.com.evil.example/x"), 10)
    await channel.close()


async def test_only_eight_files_of_a_message_are_fetched(
    slack: SlackServer, store: Store, clock: QuickClock
) -> None:
    files = [file_of(slack, id=f"F{number}") for number in range(10)]
    async with heard(slack, store, clock):
        await slack.say("", chat=DM, subtype="file_share", files=[*files, file_of(slack, mode="tombstone")])
        await slack.settled()
    found = store.stimuli[0].attachments
    assert [bool(one.ref) for one in found] == [True] * 8 + [False] * 3
    assert {one.problem for one in found[8:]} == {"only 8 files of a message are fetched"}


@pytest.mark.parametrize(
    ("failure", "error"),
    [
        (Error("file_not_found"), DeliveryError),
        (Limited("3"), DeliveryRetry),
        (Error("token_revoked"), DeliveryError),
    ],
)
async def test_a_file_that_can_not_be_had_says_why(
    slack: SlackServer, store: Store, clock: QuickClock, failure: Any, error: type[Exception]
) -> None:
    slack.fail("files.info", failure)
    channel = channel_of(slack, store, clock)
    with pytest.raises(error):
        await channel.fetch(Attachment(kind=Media.FILE, ref="F9"), 10)
    await channel.close()


async def test_posts_are_taken_in_and_answered_after_their_commit(
    slack: SlackServer, store: Store, clock: QuickClock
) -> None:
    store.failures.append(StoreError("locked"))
    async with posted(slack, store, clock) as url:
        assert await slack.deliver(url, slack.callback(mention()), at=NOW) == [503, 200]
    await store.holds("hi")


async def test_a_replayed_post_is_known(slack: SlackServer, store: Store, clock: QuickClock) -> None:
    """Attack webhook-015."""
    body = slack.callback(mention(), event_id="Ev1")
    async with posted(slack, store, clock) as url:
        for _ in range(2):
            status, _, _ = await slack.post_event(url, body, at=NOW)
            assert status == 200
    await store.holds("hi")


@pytest.mark.parametrize(
    ("headers", "at", "status"),
    [
        ({"X-Slack-Signature": "v0=00"}, NOW, 401),
        ({}, NOW + 301, 401),
        ({}, NOW - 301, 401),
        ({"X-Slack-Request-Timestamp": "abc", "X-Slack-Signature": "v0=x"}, NOW, 401),
        ({"X-Slack-Request-Timestamp": "٣٣", "X-Slack-Signature": "v0=ü"}, NOW, 401),
        ({"X-Slack-Signature": signature(b"other", f"{NOW:.0f}")}, NOW, 401),
        ({"X-Slack-Signature": ""}, NOW, 401),
        ({"Content-Encoding": "gzip"}, NOW, 415),
    ],
    ids=[
        "webhook-010",
        "webhook-012",
        "old",
        "webhook-013",
        "not-ascii",
        "webhook-016",
        "none",
        "webhook-022",
    ],
)
async def test_a_post_that_is_not_slacks_is_refused(
    slack: SlackServer, store: Store, clock: QuickClock, headers: dict[str, str], at: float, status: int
) -> None:
    async with posted(slack, store, clock) as url:
        told, _, text = await slack.post_event(url, slack.callback(mention()), at=at, headers=headers)
    assert (told, text) == (status, "")
    assert store.calls == 0


async def test_a_huge_post_is_refused_unread(slack: SlackServer, store: Store, clock: QuickClock) -> None:
    """Attack webhook-021."""
    async with posted(slack, store, clock) as url:
        status, _, _ = await slack.post_event(url, b"{" + b" " * 3_000_000, at=NOW)
    assert status == 413


@pytest.mark.parametrize("body", [b"{", b"[]", b"\xff", b"null", b"{}"])
async def test_a_signed_post_of_nonsense_harms_nothing(
    slack: SlackServer, store: Store, clock: QuickClock, body: bytes
) -> None:
    async with posted(slack, store, clock) as url:
        status, _, _ = await slack.post_event(url, body, at=NOW)
    assert status in (200, 400)
    assert (store.stimuli, store.poison) == ([], [])


async def test_the_challenge_is_echoed_as_text_and_only_when_signed(
    slack: SlackServer, store: Store, clock: QuickClock
) -> None:
    """Attack webhook-018."""
    body = {"type": "url_verification", "challenge": "<script>1</script>"}
    async with posted(slack, store, clock) as url:
        assert await slack.post_event(url, body, at=NOW) == (200, "text/plain", "<script>1</script>")
        status, _, text = await slack.post_event(url, body, at=NOW, secret="wrong")
    assert (status, text) == (401, "")


async def test_commands_and_buttons_come_as_forms(
    slack: SlackServer, store: Store, clock: QuickClock
) -> None:
    view = {"type": "view_submission", "user": {"id": HUMAN}, "view": {}}
    async with posted(slack, store, clock) as url:
        status, kind, text = await slack.post_event(url, command("hello"), at=NOW, form=True)
        assert (status, kind, json.loads(text)["response_type"]) == (200, "application/json", "ephemeral")
        assert (await slack.post_event(url, view, at=NOW, form=True))[0] == 200
    await store.holds("hello")


async def test_a_form_with_nonsense_in_it_is_refused(
    slack: SlackServer, store: Store, clock: QuickClock
) -> None:
    async with posted(slack, store, clock) as url:
        for body in (b"payload={", b"payload=[]", b"payload=" + b"[" * 100_000):
            assert (await slack.post_event(url, body, at=NOW, form=True))[0] == 400


async def test_posts_before_anybody_listens_come_again(
    slack: SlackServer, store: Store, clock: QuickClock
) -> None:
    channel = channel_of(slack, store, clock, link=posted_to(slack))
    async with door(channel) as url:
        status, _, _ = await slack.post_event(url, slack.callback(mention()), at=NOW)
    await channel.close()
    assert status == 503


def filled(value: Any, name: str = "") -> Any:
    """Return a sample with values where it has blanks."""
    ids = {
        "channel": CHANNEL,
        "user": HUMAN,
        "team": TEAM,
        "team_id": TEAM,
        "ts": "1800000001.000001",
        "text": "hi",
    }
    match value:
        case dict():
            return {
                key: filled(one, key)
                for key, one in value.items()
                if key not in ("bot_id", "bot_profile", "authorizations")
            }
        case list():
            return [filled(one, name) for one in value]
        case "":
            return ids.get(name, "" if name in ("thread_ts", "subtype") else "x")
        case _:
            return value


@pytest.mark.skipif(not SAMPLES.is_dir(), reason="the sample events are not beside the repository")
@pytest.mark.parametrize("change", [lambda one: one, filled], ids=["as-published", "filled-in"])
async def test_every_sample_event_is_read_or_ignored(
    slack: SlackServer,
    store: Store,
    clock: QuickClock,
    change: Callable[[Any], Any],
    caplog: pytest.LogCaptureFixture,
) -> None:
    bodies = [change(json.loads(one.read_text())) for one in sorted(SAMPLES.iterdir())]
    async with heard(slack, store, clock):
        for number, body in enumerate(bodies):
            await slack.envelope({**body, "event_id": f"Ev{number}"})
        await slack.settled()
    assert [one.problem for one in store.poison] == []
    assert "slack.failed" not in caplog.messages
    assert len(bodies) > 70
