"""A whole gateway between a Slack and a model provider: one answer to each message, in its thread."""

from __future__ import annotations

import asyncio
import sqlite3
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from gateway import config
from gateway.app.opening import open_gateway
from gateway.app.running import Gateway
from tests.fakes.model_api import Call, FakeModelApi, reply, serving
from tests.fakes.slack_api import (
    APP_TOKEN,
    BOT,
    BOT_TOKEN,
    CHANNEL,
    DM,
    HUMAN,
    SIGNING_SECRET,
    SlackServer,
    Stored,
)
from tests.story.house import PATIENCE, StoryClock, echo, held

OPEN = f'allow_from = ["{HUMAN}"]\n[channels.slack.groups."{CHANNEL}"]\n'
_UNFINISHED = """
    select (select count(*) from conversation where ready_at is not null),
           (select count(*) from inbound where seq is null and wakes),
           (select count(*) from outbound where state in ('pending', 'sending'))
"""


@dataclass(slots=True, repr=False)  # asyncio.run and pytest would ask for it, and it is the whole gateway
class Office:
    """Where a team writes to a bot."""

    home: Path
    slack: SlackServer
    model: FakeModelApi
    more: str = OPEN
    way: str = f'app_token = "{APP_TOKEN}"'
    clock: StoryClock = field(default_factory=StoryClock)
    gateway: Gateway | None = None
    _running: asyncio.Task[None] | None = None

    async def start(self) -> None:
        file = self.home / "config.toml"
        file.write_text(
            f'[model]\ndialect = "openai"\nbase_url = "{self.model.url}"\nname = "m"\napi_key = "sk-0123456789"\n'
            '[http]\nport = 0\n[agent]\ntimezone = "Europe/Berlin"\n'
            f'[channels.slack]\nbot_token = "{BOT_TOKEN}"\n{self.way}\n'
            f'api_base = "{self.slack.base}"\nstreaming = "off"\nack_scope = "off"\n{self.more}'
            "\n[limits.per_sender_per_minute]\nowner = 0\npeople = 0\ngroups = 0\nguests = 0\n",
            encoding="utf-8",
        )
        loaded = config.load(file, {"CRAYFISH_HOME": str(self.home)}, self.home)
        self.gateway = await open_gateway(loaded, self.clock, env={})
        self._running = asyncio.create_task(self.gateway.run(asyncio.Event()))
        await self.until(lambda: self._state() == "listening")

    def _state(self) -> str:
        assert self.gateway is not None
        return str(self.gateway.channels["slack"].status()["state"])

    async def die(self) -> None:
        """Cut everything off where it stands."""
        assert self._running is not None
        assert self.gateway is not None
        self._running.cancel()
        await asyncio.wait({self._running})
        self._running = None
        await self.gateway.close()
        await self.until(lambda: not self.slack.sockets)

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE):
            while not condition():
                if self._running is not None and self._running.done():
                    self._running.result()
                await asyncio.sleep(0.002)

    async def rests(self) -> None:
        """Wait until everything that people wrote is stored, answered and sent."""
        await self.slack.settled()
        await self.until(lambda: self._rows(_UNFINISHED) == [(0, 0, 0)])

    def _rows(self, query: str) -> list[tuple[object, ...]]:
        with closing(sqlite3.connect(f"file:{self.home / 'crayfish.db'}?mode=ro", uri=True)) as connection:
            return connection.execute(query).fetchall()

    def said(self) -> dict[str, list[str]]:
        """Return what the bot posted, by thread."""
        found: defaultdict[str, list[str]] = defaultdict(list)
        for post in self.slack.posts:
            # Who speaks is part of what the model is told, and so of what it repeats.
            found[str(post.get("thread_ts") or "")].append(str(post["text"]).replace("Ann: ", ""))
        return dict(found)


@pytest.fixture
async def empty_office(tmp_path: Path) -> AsyncIterator[Office]:
    async with SlackServer() as slack, serving() as model:
        model.otherwise = echo
        office = Office(tmp_path, slack, model)
        yield office
        if office._running is not None:
            await office.die()


@pytest.fixture
async def office(empty_office: Office) -> Office:
    await empty_office.start()
    return empty_office


async def test_a_mention_seen_twice_and_redelivered_across_a_crash_has_one_answer(office: Office) -> None:
    gate = asyncio.Event()
    office.model.otherwise = lambda request: held(echo(request), gate)
    ts = await office.slack.say(f"<@{BOT}> hi")
    await office.slack.settled()
    await office.until(lambda: bool(office.model.requests))
    await office.die()
    gate.set()
    await office.start()
    for envelope in [*office.slack.envelopes]:
        for _ in range(3):
            await office.slack.redeliver(envelope)
            await office.slack.settled()
    await office.rests()
    assert office.said() == {ts: ["you said: hi"]}


async def test_a_thread_that_the_bot_answered_in_is_followed_after_a_restart(office: Office) -> None:
    ts = await office.slack.say(f"<@{BOT}> one")
    await office.rests()
    await office.die()
    await office.start()
    await office.slack.say("two", thread=ts)
    other = await office.slack.say("not for the bot")
    await office.slack.say("nor this", thread=other)
    await office.rests()
    assert office.said() == {ts: ["you said: one", "you said: two"]}


async def test_many_mentions_at_once_are_all_answered_in_their_threads_in_order(office: Office) -> None:
    threads = [await office.slack.say(f"<@{BOT}> 0") for _ in range(50)]
    for number in range(1, 4):
        for ts in threads:
            await office.slack.say(f"<@{BOT}> {number}", thread=ts)
    await office.rests()
    heard = {
        ts: [word for text in texts for word in text.removeprefix("you said: ").split(" + ")]
        for ts, texts in office.said().items()
    }
    assert heard == {ts: ["0", "1", "2", "3"] for ts in threads}


async def test_what_was_said_before_the_first_mention_is_context(office: Office) -> None:
    root = office.slack.written("the build is red")
    ts = await office.slack.say(f"<@{BOT}> why?", thread=root["ts"])
    await office.rests()
    assert list(office.said()) == [root["ts"]]
    assert "the build is red" in str(office.model.bodies[0])
    assert ts


@pytest.mark.parametrize("bot_turns", [50], ids=["slack-in-07"])
async def test_two_bots_do_not_keep_each_other_busy(office: Office, bot_turns: int) -> None:
    ts = await office.slack.say(f"<@{BOT}> hi")
    for number in range(bot_turns):
        await office.slack.say(f"<@{BOT}> {number}", user="U0PAL", bot_id="B0PAL", thread=ts)
    await office.rests()
    assert len(office.model.requests) <= 5
    assert office.said() == {ts: ["you said: hi"]}


async def test_posts_to_the_gateways_server_are_answered_in_their_thread(empty_office: Office) -> None:
    empty_office.way = f'signing_secret = "{SIGNING_SECRET}"'
    await empty_office.start()
    assert empty_office.gateway is not None
    slack, url = empty_office.slack, f"{empty_office.gateway.channels['web'].status()['url']}/slack/events"
    event = slack.written(f"<@{BOT}> hi")
    for kind in ("message", "app_mention", "message"):
        body = slack.callback({**event, "type": kind})
        assert await slack.deliver(url, body, at=empty_office.clock.wall()) == [200]
    status, _, _ = await slack.post_event(url, slack.callback(event), at=0)
    await empty_office.rests()
    assert status == 401
    assert empty_office.said() == {event["ts"]: ["you said: hi"]}


async def test_a_stranger_gets_a_code_in_a_direct_chat_and_nothing_in_a_channel(empty_office: Office) -> None:
    empty_office.more = f'[channels.slack.groups."{CHANNEL}"]\nallow_from = ["U0BOB"]\n'
    await empty_office.start()
    await empty_office.slack.say("hi", chat=DM)
    await empty_office.slack.say(f"<@{BOT}> hi")
    await empty_office.rests()
    assert [post["channel"] for post in empty_office.slack.posts] == [DM]
    assert HUMAN in str(empty_office.slack.posts[0]["text"])
    assert empty_office.model.requests == []


async def test_a_button_comes_back_as_its_value(office: Office) -> None:
    ts = await office.slack.say("hi", chat=DM)
    await office.rests()
    press = {
        "type": "block_actions",
        "user": {"id": HUMAN},
        "channel": {"id": DM},
        "message": {"ts": office.slack.posts[0]["ts"], "text": "you said: hi"},
        "actions": [{"action_id": "a", "value": "yes", "action_ts": ts}],
    }
    await office.slack.envelope(press, kind="interactive")
    await office.rests()
    assert "callback_data: yes" in str(office.slack.posts[-1]["text"])


async def test_a_refusal_in_a_channel_is_seen_by_one_person_only(empty_office: Office) -> None:
    """Issue: ephemeral refusals. At the beginning of a thread there is no thread yet to whisper in."""
    empty_office.more = f'[channels.slack.groups."{CHANNEL}"]\nallow_from = ["*"]\n'
    await empty_office.start()
    slack = empty_office.slack
    await slack.say(f"<@{BOT}> /new", user="U0BOB")
    ts = await slack.say(f"<@{BOT}> hi", user="U0BOB")
    await empty_office.rests()
    await slack.say("/new", user="U0BOB", thread=ts)
    await empty_office.rests()
    assert [(one["channel"], one["user"], one.get("thread_ts")) for one in slack.ephemerals] == [
        (CHANNEL, "U0BOB", None),
        (CHANNEL, "U0BOB", ts),
    ]
    assert {one["text"] for one in slack.ephemerals} == {"Only people whom my owner let in may do that here."}
    assert list(empty_office.said()) == [ts], "nobody else hears of it"


@pytest.mark.parametrize(
    ("presser", "said"),
    [
        pytest.param(HUMAN, "Allowed once", id="approval-02-owner"),
        pytest.param("U0BOB", "Only", id="approval-02-somebody-else"),
    ],
)
async def test_a_question_is_answered_by_the_button_of_the_owner_alone(
    empty_office: Office, presser: str, said: str
) -> None:
    empty_office.more = f'{OPEN}[access]\nowners = ["slack:{HUMAN}"]\n'
    delete = Call("c1", "exec", {"command": "rm -rf build"})
    empty_office.model.play(reply("openai", "", delete), reply("openai", "done"))
    await empty_office.start()
    slack = empty_office.slack
    await slack.say("clean up", chat=DM)
    await empty_office.until(lambda: bool(slack.posts))
    (card,) = slack.posts
    allow = card["blocks"][-1]["elements"][0]
    press = {
        "type": "block_actions",
        "user": {"id": presser},
        "channel": {"id": DM},
        "message": {"ts": card["ts"], "text": card["text"]},
        "actions": [{**allow, "action_ts": "1"}],
    }
    await slack.envelope(press, kind="interactive")
    await empty_office.until(lambda: bool(slack.ephemerals))
    (told,) = slack.ephemerals
    assert (told["user"], told["text"][: len(said)]) == (presser, said)
    decided = presser == HUMAN
    if decided:
        await empty_office.rests()
    assert [post["text"] for post in slack.posts[1:]] == (["done"] if decided else [])
    assert slack.posts[0]["text"].startswith("**Allowed once:**" if decided else "**May I do this?**")
    assert ("actions" in [block["type"] for block in slack.posts[0]["blocks"]]) is not decided


async def test_a_command_begins_a_new_session(office: Office) -> None:
    body = {
        "command": "/crayfish",
        "text": "/new",
        "user_id": HUMAN,
        "channel_id": CHANNEL,
        "trigger_id": "1",
    }
    await office.slack.envelope(body, kind="slash_commands")
    await office.rests()
    assert [post["channel"] for post in office.slack.posts] == [DM]
    assert office.model.requests == []


async def test_a_file_comes_to_the_model_with_its_message(office: Office) -> None:
    office.slack.files["F1"] = Stored(b"a,b\n1,2\n", "text/csv")
    file = {
        "id": "F1",
        "name": "t.csv",
        "mimetype": "text/csv",
        "url_private": f"{office.slack.url}/files/F1",
    }
    await office.slack.say("sum it", chat=DM, subtype="file_share", files=[file])
    await office.rests()
    (stored,) = (office.home / "workspace").rglob("media/*")
    assert stored.read_bytes() == b"a,b\n1,2\n"
    assert stored.name in str(office.model.bodies[0])
