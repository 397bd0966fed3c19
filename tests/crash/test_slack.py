"""A real process on Slack, really killed: a mention has one answer, however often Slack tells of it."""

from __future__ import annotations

import asyncio
import random
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.crash.test_kill9 import PATIENCE, UNFINISHED, kill, start, until
from tests.fakes.model_api import Answer, FakeModelApi, Request, serving
from tests.fakes.slack_api import APP_TOKEN, BOT, BOT_TOKEN, CHANNEL, HUMAN, SlackServer
from tests.story.house import echo, held

pytestmark = pytest.mark.timeout(120)


@dataclass(slots=True)
class Site:
    """The servers around a gateway, and the process that it is."""

    home: Path
    slack: SlackServer
    model: FakeModelApi
    process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Start a process; return once it listens."""
        (self.home / "config.toml").write_text(
            f'[model]\ndialect = "openai"\nbase_url = "{self.model.url}"\nname = "m"\n'
            f'[store]\nurl = "sqlite+aiosqlite:///crayfish.db"\n[workspace]\npath = "workspace"\n'
            f'[http]\nenabled = false\n[channels.slack]\nbot_token = "{BOT_TOKEN}"\n'
            f'app_token = "{APP_TOKEN}"\napi_base = "{self.slack.base}"\nstreaming = "off"\n'
            f'allow_from = ["{HUMAN}"]\n[channels.slack.groups."{CHANNEL}"]\n'
        )
        self.process = await start(
            self.home, "-m", "gateway", "run", "--config", str(self.home / "config.toml")
        )
        async with asyncio.timeout(PATIENCE):
            await self.slack.until(lambda: bool(self.slack.sockets))

    async def kill(self) -> None:
        """Kill it, and wait until Slack has noticed."""
        assert self.process is not None
        await kill(self.process)
        async with asyncio.timeout(PATIENCE):
            await self.slack.until(lambda: not self.slack.sockets)

    async def tell_again(self, times: int) -> None:
        """Deliver everything again, as if no acknowledgement had ever come."""
        for _ in range(times):
            for envelope in [*self.slack.envelopes]:
                await self.slack.redeliver(envelope)
            async with asyncio.timeout(PATIENCE):
                await self.slack.settled()

    async def is_done(self) -> None:
        """Wait until everything that came in is answered and sent."""
        await until(lambda: self._rows(UNFINISHED) == [(0, 0, 0)])

    def _rows(self, query: str) -> list[tuple[object, ...]]:
        with closing(sqlite3.connect(f"file:{self.home / 'crayfish.db'}?mode=ro", uri=True)) as connection:
            return connection.execute(query).fetchall()

    def answers(self) -> dict[str, list[str]]:
        """Return what the bot posted in each thread; who asked is part of what the model repeats."""
        found: dict[str, list[str]] = {}
        for post in self.slack.posts:
            found.setdefault(str(post.get("thread_ts")), []).append(str(post["text"]).replace("Ann: ", ""))
        return found


@asynccontextmanager
async def site(home: Path) -> AsyncIterator[Site]:
    async with SlackServer() as slack, serving() as model:
        model.otherwise = echo
        here = Site(home, slack, model)
        try:
            yield here
        finally:
            if here.process is not None:
                await kill(here.process)


async def test_a_mention_seen_twice_and_redelivered_three_times_across_a_kill_has_one_answer(
    tmp_path: Path,
) -> None:
    async with site(tmp_path) as here:
        thinking = asyncio.Event()

        def slow(request: Request) -> Answer:
            return held(echo(request), thinking)

        here.model.otherwise = slow
        await here.start()
        ts = await here.slack.say(f"<@{BOT}> hi")
        await until(lambda: bool(here.model.requests))
        await here.kill()
        assert here.slack.posts == []
        here.model.otherwise = echo
        await here.start()
        await here.tell_again(3)
        await here.is_done()
        assert [one.payload["event"]["type"] for one in here.slack.envelopes] == ["message", "app_mention"]
        assert here.answers() == {ts: ["you said: hi"]}
        await here.tell_again(1)
        await here.is_done()
        assert here.answers() == {ts: ["you said: hi"]}, "also after it was answered"


async def test_mentions_that_go_on_through_kills_are_each_answered_once(tmp_path: Path) -> None:
    """Slack can be asked whether a post has arrived, so that not even a kill in mid-post makes two."""
    async with site(tmp_path) as here:
        asked: list[str] = []
        for round_ in range(4):
            await here.start()
            asked += [await here.slack.say(f"<@{BOT}> {round_}.{number}") for number in range(5)]
            await asyncio.sleep(random.uniform(0.0, 0.6))
            await here.kill()
        await here.start()
        await here.tell_again(1)
        await here.is_done()
        wanted = {ts: [f"you said: {at // 5}.{at % 5}"] for at, ts in enumerate(asked)}
        assert here.answers() == wanted
