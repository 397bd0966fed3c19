"""Messages leave for Slack as people should see them, once each, whatever Slack says."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from adapters.slack import Core, Link, Manner, Slack
from adapters.slack.roster import Person
from gateway.bell import Bell
from gateway.clock import Clock
from gateway.errors import (
    ChannelStopped,
    DeadRoute,
    DeliveryError,
    DeliveryRetry,
    DeliveryUnsure,
    ToolError,
)
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
from gateway.store import outbox
from gateway.store.engine import Database
from gateway.store.outbox import Outbox
from gateway.store.tables import outbound
from gateway.types import Address, Attachment, Button, Chat, JsonObject, Kind, Media, OnUnknown, Outgoing
from gateway.work import Sender as SendLoop
from tests.fakes.clock import FakeClock, StillClock
from tests.fakes.slack_api import (
    BOT_TOKEN,
    CHANNEL,
    DM,
    HUMAN,
    TEAM,
    Drop,
    Error,
    Failure,
    Limited,
    SlackServer,
    Status,
)

THREAD = Address("slack", CHANNEL, "1799999000.000001")
ROOM = Address("slack", CHANNEL)
DIRECT = Address("slack", DM)

FILES = {"plan.txt": b"a plan", "pic.png": b"\x89PNG\r\n\x1a\n"}
EMPTY = {"empty.txt": b""}


def open_file(path: str) -> bytes:
    if path not in FILES | EMPTY:
        raise ToolError("there is no such file")
    return (FILES | EMPTY)[path]


async def nothing(_: object) -> None:
    return None


async def none(*_: object) -> list[Address]:
    return []


async def no(_: object) -> bool:
    return False


def channel(
    slack: SlackServer,
    clock: Clock,
    *,
    feed: Feed | None = None,
    manner: Manner | None = None,
    everybody: frozenset[str] = frozenset(),
) -> Slack:
    async def recall(_where: Address, _message_id: str) -> Outgoing | None:
        return None

    core = Core(
        cursors=nothing,
        recall=recall,
        answered=no,
        recent=none,
        open_file=open_file,
        feed=feed or Feed(),
        clock=clock,
    )
    link = Link(bot_token=BOT_TOKEN, app_token="xapp-1-A0APP-1-a", api_base=slack.base)
    return Slack(link=link, core=core, manner=manner, everybody=everybody)


@pytest.fixture
async def slack() -> AsyncIterator[SlackServer]:
    async with SlackServer() as server:
        yield server


@pytest.fixture
async def line(slack: SlackServer, clock: FakeClock) -> AsyncIterator[Slack]:
    line = channel(slack, clock)
    yield line
    await line.close()


def message(text: str, where: Address = THREAD, key: str = "reply:1:2:0", **more: object) -> Outgoing:
    return Outgoing(key=key, address=where, text=text, **more)  # type: ignore[arg-type] # fields by name


def attached(*paths: str) -> tuple[Attachment, ...]:
    return tuple(Attachment(kind=Media.FILE, name=path, path=path) for path in paths)


def shown(post: JsonObject) -> str:
    """Return what people read of a post."""
    blocks = post.get("blocks") or []
    told = [str(block["text"]) for block in blocks if block["type"] == "markdown"]
    told += [str(block["text"]["text"]) for block in blocks if block["type"] == "section"]
    return "\n".join(told) or str(post.get("markdown_text") or post.get("text") or "")


class TestText:
    async def test_a_reply_is_a_markdown_block_with_a_text_for_notifications(
        self, slack: SlackServer, line: Slack
    ) -> None:
        receipt = await line.send(message("**Hi** <!here> & you"))
        (post,) = slack.posts
        assert receipt.message_id == post["ts"]
        assert post["blocks"] == [{"type": "markdown", "text": "**Hi** &lt;!here&gt; & you"}]
        assert post["text"] == "**Hi** &lt;!here&gt; &amp; you"
        assert (post["unfurl_links"], post["link_names"], post["parse"]) == (False, False, "none")
        assert post["metadata"]["event_payload"]["id"] == "reply:1:2:0"
        assert "reply_broadcast" not in post

    @pytest.mark.parametrize(
        "text",
        [
            pytest.param("an answer", id="slack-out-09-answer"),
            pytest.param("a tool's words", id="slack-out-09-tool"),
            pytest.param("help of a command", id="slack-out-09-command"),
        ],
    )
    async def test_whatever_is_sent_goes_into_the_thread_it_belongs_to(
        self, slack: SlackServer, line: Slack, text: str
    ) -> None:
        await line.send(message(text, Address("slack", CHANNEL, "10.1")))
        assert [post["thread_ts"] for post in slack.posts] == ["10.1"]

    async def test_a_direct_message_is_flat(self, slack: SlackServer, line: Slack) -> None:
        await line.send(message("hi", DIRECT, reply_to="1.2"))
        assert "thread_ts" not in slack.posts[0]

    async def test_only_configured_chats_can_be_rung_as_a_whole(
        self, slack: SlackServer, clock: FakeClock
    ) -> None:
        line = channel(slack, clock, everybody=frozenset({CHANNEL}))
        await line.send(message("<!channel> look", ROOM, "a"))
        await line.send(message("<!channel> look", DIRECT, "b"))
        await line.close()
        assert [shown(post) for post in slack.posts] == ["<!channel> look", "&lt;!channel&gt; look"]

    @pytest.mark.parametrize("code", ["invalid_blocks", "msg_blocks_too_long", "msg_too_long"])
    async def test_where_markdown_is_refused_the_same_is_sent_as_mrkdwn(
        self, slack: SlackServer, line: Slack, code: str
    ) -> None:
        slack.fail("chat.postMessage", Error(code))
        await line.send(message("**b** and *i* <@U9>"))
        (post,) = slack.posts
        assert (post["text"], post.get("blocks")) == ("*b* and _i_ &lt;@U9&gt;", None)

    async def test_a_long_text_goes_out_in_several_messages_of_mrkdwn_and_each_goes_once(
        self, slack: SlackServer, line: Slack
    ) -> None:
        text = "\n\n".join(f"Paragraph {number}. " + "word " * 60 for number in range(30))
        slack.fail("chat.postMessage", Error("invalid_blocks"))
        receipt = await line.send(message(text))
        assert len(slack.posts) == 3
        assert receipt.message_id == slack.posts[0]["ts"]
        together = "".join(post["text"] for post in slack.posts)
        assert all(len(post["text"]) <= 3900 for post in slack.posts)
        assert [together.count(f"Paragraph {number}.") for number in range(30)] == [1] * 30

    async def test_after_a_wait_in_the_middle_the_rest_is_sent_and_nothing_twice(
        self, slack: SlackServer, line: Slack, clock: FakeClock
    ) -> None:
        text = "\n\n".join(f"Paragraph {number}. " + "word " * 60 for number in range(30))
        # The block is refused, then the first piece of mrkdwn: it is cut smaller.
        slack.fail("chat.postMessage", Error("invalid_blocks"), Error("msg_too_long"), Limited("3"))
        with pytest.raises(DeliveryRetry) as caught:
            await line.send(message(text))
        assert caught.value.after == 3
        clock.time += 4
        await line.send(message(text))
        together = "".join(shown(post) for post in slack.posts)
        assert [together.count(f"Paragraph {number}.") for number in range(30)] == [1] * 30

    async def test_a_thread_that_is_gone_gets_its_answer_in_the_channel_with_a_word_why(
        self, slack: SlackServer, line: Slack
    ) -> None:
        slack.fail("chat.postMessage", Error("thread_not_found"))
        await line.send(message("the answer"))
        assert "thread_ts" not in slack.posts[0]
        assert shown(slack.posts[0]).split("\n") == [
            "the answer",
            "(The thread is gone, so the answer is here.)",
        ]

    async def test_metadata_that_is_refused_is_left_out(self, slack: SlackServer, line: Slack) -> None:
        slack.fail("chat.postMessage", Error("invalid_metadata_schema"))
        await line.send(message("the answer"))
        assert "metadata" not in slack.posts[0]


class TestRefusals:
    @pytest.mark.parametrize("code", ["channel_not_found", "is_archived", "not_in_channel"])
    async def test_a_chat_that_is_out_of_reach_is_a_dead_route(
        self, slack: SlackServer, line: Slack, code: str
    ) -> None:
        slack.fail("chat.postMessage", Error(code))
        with pytest.raises(DeadRoute, match=code):
            await line.send(message("hi"))

    @pytest.mark.parametrize(
        ("failure", "error", "after"),
        [
            (Limited("7"), DeliveryRetry, 7.0),
            (Error("account_inactive"), DeliveryRetry, 60.0),
            (Error("restricted_action_thread_locked"), DeliveryError, None),
            (Status(503), DeliveryUnsure, None),
            (Drop(after=True), DeliveryUnsure, None),
        ],
        ids=["slow-down", "locked-out", "refused", "upstream", "cut"],
    )
    async def test_each_failure_says_whether_it_may_have_arrived(
        self,
        slack: SlackServer,
        line: Slack,
        failure: Failure,
        error: type[Exception],
        after: float | None,
    ) -> None:
        slack.fail("chat.postMessage", failure)
        with pytest.raises(error) as caught:
            await line.send(message("hi"))
        assert not isinstance(caught.value, ChannelStopped)
        assert after is None or getattr(caught.value, "after", None) == after


class TestExtras:
    async def test_buttons_are_below_the_text(self, slack: SlackServer, line: Slack) -> None:
        rows = ((Button("Yes", "approve:1"), Button("No", "deny:1")), (Button("x" * 90, "y"),))
        await line.send(message("Sure?", buttons=rows))
        kinds = [block["type"] for block in slack.posts[0]["blocks"]]
        assert kinds == ["markdown", "actions", "actions"]
        first, second = slack.posts[0]["blocks"][1:]
        assert [one["value"] for one in first["elements"]] == ["approve:1", "deny:1"]
        assert len({one["action_id"] for one in (*first["elements"], *second["elements"])}) == 3
        assert len(second["elements"][0]["text"]["text"]) == 75

    async def test_buttons_stay_where_markdown_is_refused(self, slack: SlackServer, line: Slack) -> None:
        slack.fail("chat.postMessage", Error("invalid_blocks"))
        await line.send(message("**Sure?**", buttons=((Button("Yes", "y"),),)))
        section, actions = slack.posts[0]["blocks"]
        assert section["text"] == {"type": "mrkdwn", "text": "*Sure?*"}
        assert actions["elements"][0]["value"] == "y"

    async def test_a_value_that_slack_would_cut_is_never_sent(self, slack: SlackServer, line: Slack) -> None:
        with pytest.raises(DeliveryError, match="2000"):
            await line.send(message("Sure?", buttons=((Button("Yes", "v" * 2001),),)))
        assert slack.posts == []

    async def test_files_come_after_the_text(self, slack: SlackServer, line: Slack) -> None:
        await line.send(message("Here.", attachments=attached("plan.txt", "pic.png")))
        text, files = slack.posts
        assert shown(text) == "Here."
        assert [one["title"] for one in files["files"]] == ["plan.txt", "pic.png"]
        assert files["thread_ts"] == THREAD.thread
        assert sorted(slack.uploads.values()) == sorted(FILES.values())

    async def test_a_file_without_words_is_enough(self, slack: SlackServer, line: Slack) -> None:
        receipt = await line.send(message("", attachments=attached("plan.txt")))
        assert receipt.message_id
        assert len(slack.posts) == 1

    async def test_a_file_that_can_not_be_read_is_told_of(self, slack: SlackServer, line: Slack) -> None:
        await line.send(message("Here.", attachments=attached("gone.txt")))
        assert "there is no such file" in shown(slack.posts[0])

    async def test_an_empty_file_does_not_keep_back_the_others(self, slack: SlackServer, line: Slack) -> None:
        await line.send(message("Here.", attachments=attached("empty.txt", "plan.txt")))
        assert "empty.txt is not here: it is empty" in shown(slack.posts[0])
        assert list(slack.uploads.values()) == [b"a plan"]

    async def test_a_file_that_is_refused_does_not_hold_up_the_chat(
        self, slack: SlackServer, line: Slack
    ) -> None:
        slack.fail("upload", Status(413))
        await line.send(message("Here.", attachments=attached("plan.txt")))
        assert "plan.txt could not be sent: Slack does not take the file: HTTP 413" in shown(slack.posts[1])

    async def test_files_that_slack_does_not_take_are_told_of(self, slack: SlackServer, line: Slack) -> None:
        slack.fail("files.getUploadURLExternal", Error("missing_scope", {"needed": "files:write"}))
        await line.send(message("Here.", attachments=attached("plan.txt")))
        assert "could not be sent" in shown(slack.posts[1])
        assert "files:write" in shown(slack.posts[1])


async def settle(db: Database, line: Slack, clock: FakeClock, *messages: Outgoing) -> list[JsonObject]:
    """Queue messages and deliver until nothing is due within an hour; return their rows."""
    box = Outbox(db, "node")
    await db.write(lambda tx: outbox.put(tx, messages, db.now()))
    loop = SendLoop(outbox=box, channels={"slack": line}, bell=Bell(), clock=clock)
    for _ in range(8):
        async with asyncio.TaskGroup() as group:
            await loop.step(group)
        clock.time += 61
    return await db.read(
        lambda tx: [row._asdict() for row in tx.execute(outbound.select().order_by(outbound.c.id)).all()]
    )


class TestWhispers:
    """What only one person sees (issue: ephemeral refusals)."""

    @pytest.mark.parametrize("thread", ["", "10.1"])
    async def test_a_whisper_is_ephemeral_and_in_the_thread_only_if_that_has_begun(
        self, slack: SlackServer, line: Slack, thread: str
    ) -> None:
        await line.send(message("Only <!here> my owner", whisper=f"{HUMAN}:{thread}"))
        (told,) = slack.ephemerals
        assert (told["channel"], told["user"], told.get("thread_ts", "")) == (CHANNEL, HUMAN, thread)
        assert told["text"] == "Only &lt;!here&gt; my owner"
        assert slack.posts == []

    async def test_where_slack_takes_no_whisper_it_is_said_aloud(
        self, slack: SlackServer, line: Slack
    ) -> None:
        slack.fail("chat.postEphemeral", Error("user_not_in_channel"))
        await line.send(message("Only my owner", whisper=f"{HUMAN}:"))
        assert [shown(post) for post in slack.posts] == ["Only my owner"]

    @pytest.mark.parametrize("error", ["channel_not_found", "is_archived"])
    async def test_a_whisper_to_nowhere_is_a_dead_route(
        self, slack: SlackServer, line: Slack, error: str
    ) -> None:
        slack.fail("chat.postEphemeral", Error(error))
        with pytest.raises(DeadRoute):
            await line.send(message("Only my owner", whisper=f"{HUMAN}:"))
        assert slack.posts == []


class TestReplacing:
    BUTTONS = ((Button("Allow once", "approve:abcd"),),)

    async def test_a_card_loses_its_buttons_and_says_what_was_decided(
        self, slack: SlackServer, line: Slack
    ) -> None:
        card = await line.send(message("May I?", DIRECT, buttons=self.BUTTONS))
        settled = message("**Allowed once:** it", DIRECT, key="k2", replaces=card.message_id)
        assert await line.send(settled) == card
        (post,) = slack.posts
        assert [block["type"] for block in post["blocks"]] == ["markdown"]
        assert shown(post) == "**Allowed once:** it"

    async def test_where_markdown_is_refused_it_is_said_in_mrkdwn(
        self, slack: SlackServer, line: Slack
    ) -> None:
        card = await line.send(message("May I?", DIRECT))
        slack.fail("chat.update", Error("invalid_blocks"))
        await line.send(message("**Denied:** it", DIRECT, key="k2", replaces=card.message_id))
        assert (slack.posts[0]["text"], slack.posts[0].get("blocks")) == ("*Denied:* it", [])

    async def test_a_card_that_is_gone_stays_gone(self, slack: SlackServer, line: Slack) -> None:
        receipt = await line.send(message("Denied: it", DIRECT, replaces="1.5"))
        assert receipt.message_id == "1.5"
        assert slack.posts == []

    async def test_an_edit_whose_answer_was_lost_is_made_again(self, slack: SlackServer, line: Slack) -> None:
        card = await line.send(message("May I?", DIRECT))
        slack.fail("chat.update", Drop(after=True))
        with pytest.raises(DeliveryRetry):
            await line.send(message("Denied: it", DIRECT, key="k2", replaces=card.message_id))


class TestUnknown:
    """Reliability row 24: what may have arrived is looked for before it is sent again."""

    @pytest.mark.parametrize("where", [THREAD, ROOM, DIRECT], ids=["thread", "channel", "direct"])
    @pytest.mark.parametrize("others", [0, 350])
    async def test_a_post_whose_answer_was_lost_is_found_and_not_repeated(
        self, slack: SlackServer, line: Slack, db: Database, clock: FakeClock, where: Address, others: int
    ) -> None:
        slack.messages[where.chat].append({"ts": THREAD.thread, "text": "root"})
        for number in range(others):
            slack.written(f"chat {number}", chat=where.chat, thread=where.thread)
        slack.fail("chat.postMessage", Drop(after=True))
        (row,) = await settle(db, line, clock, message("the answer", where))
        assert (row["state"], row["unknowns"]) == ("sent", 1)
        assert [row["receipt"]] == [post["ts"] for post in slack.posts], "copies = 1"

    async def test_a_post_that_never_arrived_is_sent_again(
        self, slack: SlackServer, line: Slack, db: Database, clock: FakeClock
    ) -> None:
        slack.messages[CHANNEL].append({"ts": THREAD.thread, "text": "root"})
        slack.fail("chat.postMessage", Drop(after=False))
        (row,) = await settle(db, line, clock, message("the answer"))
        assert (row["state"], len(slack.posts)) == ("sent", 1)

    async def test_nothing_is_looked_for_that_was_surely_not_sent(
        self, slack: SlackServer, line: Slack, db: Database, clock: FakeClock
    ) -> None:
        slack.fail("chat.postMessage", Limited("3"))
        (row,) = await settle(db, line, clock, message("the answer"))
        assert (row["state"], row["unknowns"], len(slack.posts)) == ("sent", 0, 1)
        assert slack.called("conversations.replies") == []

    async def test_while_the_history_can_not_be_read_nothing_is_sent(
        self, slack: SlackServer, line: Slack, db: Database, clock: FakeClock
    ) -> None:
        slack.fail("chat.postMessage", Drop(after=True))
        slack.fail("conversations.history", Limited("30"), Status(500), Drop(after=False))
        (row,) = await settle(db, line, clock, message("the answer", ROOM))
        assert (row["state"], row["unknowns"], len(slack.posts)) == ("sent", 1, 1)

    async def test_without_the_scope_it_is_as_on_platforms_that_can_not_tell(
        self, slack: SlackServer, line: Slack, db: Database, clock: FakeClock
    ) -> None:
        slack.fail("chat.postMessage", Drop(after=True))
        slack.fail("conversations.history", Error("missing_scope"))
        (row,) = await settle(db, line, clock, message("the answer", ROOM))
        assert (row["state"], len(slack.posts)) == ("sent", 2)

    async def test_what_the_bot_says_by_itself_is_not_repeated_at_all(
        self, slack: SlackServer, line: Slack, db: Database, clock: FakeClock
    ) -> None:
        slack.fail("chat.postMessage", Drop(after=False))
        (row,) = await settle(db, line, clock, message("news", ROOM, on_unknown=OnUnknown.DROP))
        assert (row["state"], slack.posts) == ("unknown", [])

    async def test_a_process_that_died_half_way_leaves_the_rest_to_the_next_one(
        self, slack: SlackServer, clock: FakeClock, db: Database
    ) -> None:
        text = "\n\n".join(f"Paragraph {number}. " + "word " * 60 for number in range(30))
        slack.fail("chat.postMessage", Error("invalid_blocks"))
        first = channel(slack, clock)
        await first.send(message(text, ROOM))
        await first.close()
        arrived = list(slack.posts)
        slack.messages[CHANNEL].remove(slack.posts.pop())  # as if it had died before the last one
        slack.fail("chat.postMessage", Drop(after=False))
        second = channel(slack, clock)
        (row,) = await settle(db, second, clock, message(text, ROOM))
        await second.close()
        assert row["state"] == "sent"
        assert [shown(post) for post in slack.posts] == [shown(post) for post in arrived]

    @pytest.mark.parametrize(("text", "posts"), [("Here.", 2), ("", 1)], ids=["with a text", "alone"])
    async def test_files_are_not_shown_twice(
        self, slack: SlackServer, line: Slack, db: Database, clock: FakeClock, text: str, posts: int
    ) -> None:
        slack.fail("files.completeUploadExternal", Drop(after=True))
        (row,) = await settle(db, line, clock, message(text, ROOM, attachments=attached("plan.txt")))
        assert (row["state"], row["receipt"], len(slack.posts)) == ("sent", slack.posts[0]["ts"], posts)

    async def test_a_file_of_the_same_name_is_another_file(
        self, slack: SlackServer, line: Slack, db: Database, clock: FakeClock
    ) -> None:
        await line.send(message("Monday.", ROOM, "a", attachments=attached("plan.txt")))
        slack.fail("files.completeUploadExternal", Drop(after=False))
        await settle(db, line, clock, message("Tuesday.", ROOM, "b", attachments=attached("plan.txt")))
        assert sum("files" in post for post in slack.posts) == 2


class Stage:
    """A channel with a turn in it, whose time moves when told."""

    def __init__(self, slack: SlackServer, clock: StillClock, manner: Manner) -> None:
        self.slack, self.clock, self.feed = slack, clock, Feed()
        self.line = channel(slack, clock, feed=self.feed, manner=manner)

    async def begin(
        self, where: Address = THREAD, chat: Chat = Chat.GROUP, *, known: bool = True, asked: str = ""
    ) -> None:
        await self.line.open()
        asked = asked or await self.slack.say("<@U0BOT> hi", chat=where.chat, thread=where.thread)
        if known:
            self.line._roster.wrote(where.chat, asked, Person(HUMAN, TEAM))
        self.feed.publish(where, TurnStarted(turn="1", chat=chat, message_id=asked))
        await self.clock.asleep(1)

    async def say(self, *events: Event, where: Address = THREAD, seconds: float = 1.5) -> None:
        for event in events:
            self.feed.publish(where, event)
        await self.clock.advance(seconds)

    async def end(self, text: str, where: Address = THREAD) -> None:
        """End the turn and deliver its reply."""
        self.feed.publish(where, TurnEnded(text, reply="reply:1:2:0" if text else ""))
        if text:
            await self.line.send(message(text, where))
        await self.clock.asleep(0)


@pytest.fixture
async def stage(slack: SlackServer) -> AsyncIterator[Stage]:
    stage = Stage(slack, StillClock(), Manner(ack_scope="off"))
    yield stage
    await stage.line.close()


LONG = "The answer is forty-two, as everybody knows by now. "


class TestStreaming:
    async def test_in_a_thread_the_reply_grows_and_its_end_is_the_delivery(
        self, slack: SlackServer, stage: Stage
    ) -> None:
        await stage.begin()
        await stage.say(Delta(LONG))
        assert [post["markdown_text"] for post in slack.posts] == [LONG]
        await stage.say(Delta("**More** to come"))
        assert slack.posts[0]["markdown_text"] == LONG + "**More** to "
        await stage.end(LONG + "**More** to come.")
        (post,) = slack.posts
        assert post["markdown_text"] == LONG + "**More** to come."
        assert post["metadata"]["event_payload"]["id"] == "reply:1:2:0"
        assert post["streaming"] is False
        (start,) = slack.called("chat.startStream")
        assert (start["recipient_user_id"], start["recipient_team_id"]) == (HUMAN, TEAM)
        assert slack.called("chat.postMessage") == []

    async def test_a_fast_reply_is_an_ordinary_message(self, slack: SlackServer, stage: Stage) -> None:
        await stage.begin()
        await stage.say(Delta("Hi"), seconds=0.5)
        await stage.end("Hi")
        assert [shown(post) for post in slack.posts] == ["Hi"]
        assert slack.called("chat.startStream") == []

    async def test_at_most_one_addition_a_second(self, slack: SlackServer, stage: Stage) -> None:
        await stage.begin()
        for _ in range(20):
            await stage.say(Delta("one more word "), seconds=0.5)
        calls = len(slack.called("chat.startStream")) + len(slack.called("chat.appendStream"))
        assert 5 <= calls <= 10

    async def test_a_mention_does_not_come_about_by_two_additions(
        self, slack: SlackServer, stage: Stage
    ) -> None:
        await stage.begin()
        for part in (LONG, "<!chan", "nel> and @chan", "nel and <", "@U77", "> done "):
            await stage.say(Delta(part))
            assert "<!" not in slack.posts[0]["markdown_text"]
        assert slack.posts[0]["markdown_text"].endswith(
            "&lt;!channel&gt; and @\u2060channel and &lt;@U77&gt; done "
        )

    async def test_a_reply_that_turned_out_otherwise_replaces_what_was_shown(
        self, slack: SlackServer, stage: Stage
    ) -> None:
        await stage.begin()
        await stage.say(Delta(LONG))
        await stage.say(Restarted(), Delta("Something else entirely, in other words. "))
        await stage.end("Something else.")
        (post,) = slack.posts
        assert shown(post) == "Something else."
        assert post["streaming"] is False

    @pytest.mark.parametrize("code", ["message_not_in_streaming_state", "stopped_by_user"])
    async def test_a_stream_that_expired_is_edited(self, slack: SlackServer, stage: Stage, code: str) -> None:
        await stage.begin()
        await stage.say(Delta(LONG))
        slack.fail("chat.stopStream", Error(code), Error(code))
        await stage.end(LONG + "And more.")
        (post,) = slack.posts
        assert shown(post) == LONG + "And more."

    @pytest.mark.parametrize("method", ["chat.stopStream", "chat.appendStream"])
    async def test_a_lost_answer_leaves_one_copy_of_the_reply(
        self, slack: SlackServer, stage: Stage, method: str
    ) -> None:
        await stage.begin()
        await stage.say(Delta(LONG))
        slack.fail(method, Drop(after=True))
        await stage.say(Delta("Two more words. "))
        stage.feed.publish(THREAD, TurnEnded(LONG + "Two more words.", reply="reply:1:2:0"))
        if method == "chat.stopStream":
            with pytest.raises(DeliveryRetry):
                await stage.line.send(message(LONG + "Two more words."))
        await stage.line.send(message(LONG + "Two more words."))
        (post,) = slack.posts
        assert shown(post) == LONG + "Two more words."

    async def test_where_streams_are_refused_the_reply_is_sent(
        self, slack: SlackServer, stage: Stage
    ) -> None:
        slack.fail("chat.startStream", Error("unknown_method"))
        await stage.begin()
        await stage.say(Delta(LONG))
        await stage.say(Delta(LONG))
        await stage.end(LONG)
        assert [shown(post) for post in slack.posts] == [LONG]
        assert len(slack.called("chat.startStream")) == 1

    async def test_a_silent_turn_leaves_nothing(self, slack: SlackServer, stage: Stage) -> None:
        await stage.begin()
        await stage.say(Delta(LONG))
        await stage.end("")
        await slack.until(lambda: slack.called("assistant.threads.setStatus")[-1]["status"] == "")
        assert slack.posts == []

    async def test_a_turn_that_was_stopped_leaves_nothing(self, slack: SlackServer, stage: Stage) -> None:
        await stage.begin()
        await stage.say(Delta(LONG))
        stage.feed.publish(THREAD, TurnGone("1"))
        await slack.until(lambda: not slack.posts)

    async def test_a_reply_with_files_is_sent_afresh(self, slack: SlackServer, stage: Stage) -> None:
        await stage.begin()
        await stage.say(Delta(LONG))
        stage.feed.publish(THREAD, TurnEnded(LONG, reply="reply:1:2:0"))
        await stage.line.send(message(LONG, attachments=attached("plan.txt")))
        assert [shown(post) for post in slack.posts] == [LONG, ""]

    @pytest.mark.parametrize(
        ("where", "chat", "known"),
        [(DIRECT, Chat.DIRECT, True), (ROOM, Chat.GROUP, True), (THREAD, Chat.GROUP, False)],
        ids=["direct", "channel", "asked by somebody unknown"],
    )
    async def test_elsewhere_a_message_is_edited_until_it_is_the_reply(
        self, slack: SlackServer, stage: Stage, where: Address, chat: Chat, known: bool
    ) -> None:
        await stage.begin(where, chat, known=known)
        await stage.say(Delta(LONG), where=where)
        assert [shown(post) for post in slack.posts] == [LONG]
        await stage.say(Delta("More <!here>"), where=where, seconds=2)
        assert shown(slack.posts[0]) == LONG + "More &lt;!here&gt;"
        await stage.end(LONG + "More.", where)
        (post,) = slack.posts
        assert shown(post) == LONG + "More."
        assert post["metadata"]["event_payload"]["id"] == "reply:1:2:0"
        assert slack.called("chat.startStream") == []

    @pytest.mark.parametrize("error", [pytest.param("msg_too_long", id="slack-out-08")])
    async def test_a_last_edit_that_is_too_long_leaves_one_full_copy(
        self, slack: SlackServer, stage: Stage, error: str
    ) -> None:
        await stage.begin(DIRECT, Chat.DIRECT)
        await stage.say(Delta(LONG), where=DIRECT)
        slack.fail("chat.update", Error(error))
        await stage.end(LONG * 3, DIRECT)
        assert [shown(post) for post in slack.posts] == [LONG * 3]

    async def test_heartbeats_show_nothing_while_they_run(self, slack: SlackServer, stage: Stage) -> None:
        await stage.line.open()
        stage.feed.publish(THREAD, TurnStarted(turn="1", kind=Kind.HEARTBEAT))
        await stage.say(Delta(LONG))
        assert slack.calls == []


PLAN = "[x] Read the log\n[>] Find the _cause_\n[ ] Mend it"


class TestSigns:
    async def test_a_thread_shows_that_the_bot_thinks_and_works(
        self, slack: SlackServer, stage: Stage
    ) -> None:
        await stage.begin()
        await stage.say(seconds=1)
        await stage.say(ToolStarted("read_file", {"path": "secret"}))
        told = slack.called("assistant.threads.setStatus")
        assert [one["status"] for one in told] == ["is thinking…", "is working…"]
        assert {(one["channel_id"], one["thread_ts"]) for one in told} == {(CHANNEL, THREAD.thread)}

    async def test_a_thread_shows_which_step_of_the_plan_is_being_done(
        self, slack: SlackServer, stage: Stage
    ) -> None:
        await stage.begin()
        plan = ToolEnded("todo", is_error=False, plan=PLAN)
        await stage.say(ToolStarted("todo", {}), plan, ToolStarted("read", {}), seconds=20)
        told = slack.called("assistant.threads.setStatus")
        assert [one["status"] for one in told] == ["is working on: Find the _cause_ (2/3)"]
        assert slack.posts == []

    async def test_outside_of_threads_long_work_is_told_in_a_message_that_the_reply_does_not_become(
        self, slack: SlackServer, stage: Stage
    ) -> None:
        """Spec ST-1, ST-4: nobody is told of an edit, so the reply is a new message."""
        await stage.begin(DIRECT, Chat.DIRECT)
        plan = ToolEnded("todo", is_error=False, plan=PLAN)
        await stage.say(ToolStarted("read", {}), where=DIRECT, seconds=1)
        assert slack.posts == []
        await stage.say(ToolStarted("todo", {}), plan, where=DIRECT, seconds=4)
        (post,) = slack.posts
        assert shown(post).splitlines() == [
            "_Working…_",
            "✓ Read the log",
            "▸ Find the \\_cause\\_",
            "○ Mend it",
            "• read",
        ]
        await stage.end("Mended.", DIRECT)
        assert [shown(one) for one in slack.posts] == ["Mended."]
        assert slack.posts[0]["ts"] != post["ts"]

    async def test_long_work_that_ends_in_silence_leaves_nothing(
        self, slack: SlackServer, stage: Stage
    ) -> None:
        await stage.begin(DIRECT, Chat.DIRECT)
        await stage.say(ToolStarted("read", {}), where=DIRECT, seconds=4)
        assert len(slack.posts) == 1
        await stage.end("", DIRECT)
        await slack.until(lambda: not slack.posts)

    async def test_a_status_that_the_app_may_not_set_is_tried_once(
        self, slack: SlackServer, stage: Stage
    ) -> None:
        slack.fail("assistant.threads.setStatus", Error("missing_scope"))
        await stage.begin()
        await stage.say(ToolStarted("read_file", {}), seconds=200)
        await stage.end("Done.")
        assert len(slack.called("assistant.threads.setStatus")) == 1
        assert [shown(post) for post in slack.posts] == ["Done."]

    @pytest.mark.parametrize(
        ("scope", "chat", "reacts"),
        [
            ("group-mentions", Chat.GROUP, True),
            ("group-mentions", Chat.DIRECT, False),
            ("all", Chat.DIRECT, True),
            ("off", Chat.GROUP, False),
        ],
    )
    async def test_a_message_is_acknowledged_as_configured(
        self, slack: SlackServer, scope: str, chat: Chat, reacts: bool
    ) -> None:
        manner = Manner(ack_scope=scope, ack_remove=True)  # type: ignore[arg-type] # one of the literals
        stage = Stage(slack, StillClock(), manner)
        await stage.begin(chat=chat)
        await stage.say(seconds=0.5)
        assert [name for *_, name in slack.reactions] == (["eyes"] if reacts else [])
        await stage.end("Done.")
        await slack.until(lambda: not slack.reactions)
        await stage.line.close()
