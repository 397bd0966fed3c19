"""A whole gateway between a Bot API server and a model provider, in fast time."""

from __future__ import annotations

import asyncio
import json
import re
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import monotonic
from typing import Any, Final

from gateway import config
from gateway.app.opening import open_gateway
from gateway.app.running import Gateway
from gateway.tools.base import Tool
from gateway.tools.box import Toolbox
from gateway.tools.files import FILE_TOOLS
from tests.fakes.bot_api import BotApi
from tests.fakes.model_api import Answer, FakeModelApi, JsonObject, Request, reply

API_KEY: Final = "sk-story-0123456789abcdef"
PATIENCE: Final = 20.0
"""Real seconds after which something that should have happened counts as missing."""

SPEED: Final = 100.0
NOON: Final = 1_800_009_000.0

OPEN: Final = 'dm_policy = "open"\nallow_from = ["*"]'
"""Everybody may talk to the bot; it belongs to person 7 then."""

IN_A_HURRY: Final = "[limits.per_sender_per_minute]\nowner = 0\npeople = 0\ngroups = 0\nguests = 0\n"
"""People of a story write faster than others."""

ACCESS: Final = '[access]\nowners = ["telegram:7"]\n'

_STAMP = re.compile(r"\A\[\w{3} \d{4}-\d\d-\d\d \d\d:\d\d [+-]\d\d:\d\d\] ")


@dataclass(slots=True)
class StoryClock:
    """Runs a hundred times as fast as the real one, and jumps ahead when told."""

    ahead: float = NOON
    slept: list[float] = field(default_factory=list)
    _began: float = field(default_factory=monotonic)

    def now(self) -> float:
        return self.ahead + (monotonic() - self._began) * SPEED

    def wall(self) -> float:
        return self.now()

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        await asyncio.sleep(seconds / SPEED)


@dataclass(slots=True, repr=False)  # asyncio.run and pytest would ask for it, and it is the whole gateway
class House:
    """Where people write to a bot.

    `telegram` is what the configuration says of that channel, `more` is TOML behind it; `tools` are
    added to the tools of the gateway. `env` is the environment in which it starts.
    """

    home: Path
    api: BotApi
    model: FakeModelApi
    more: str = ""
    telegram: str = OPEN
    tools: Sequence[Tool] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    clock: StoryClock = field(default_factory=StoryClock)
    _gateway: Gateway | None = None
    _stop: asyncio.Event = field(default_factory=asyncio.Event)
    _running: asyncio.Task[None] | None = None

    @property
    def gateway(self) -> Gateway:
        """Return the gateway that is open."""
        assert self._gateway is not None
        return self._gateway

    @property
    def workspace(self) -> Path:
        return self.home / "workspace"

    async def start(self) -> None:
        """Open the gateway with what the home holds, and let it serve."""
        file = self.home / "config.toml"
        file.write_text(self._toml(), encoding="utf-8")
        loaded = config.load(file, {"CRAYFISH_HOME": str(self.home)}, self.home)
        self._gateway = await open_gateway(loaded, self.clock, env=self.env)
        if self.tools:
            turns = self._gateway.worker.turns
            turns.agent = replace(turns.agent, tools=Toolbox((*FILE_TOOLS, *self.tools), redact=turns.redact))
        self._stop = asyncio.Event()
        self._running = asyncio.create_task(self._gateway.run(self._stop))

    def _toml(self) -> str:
        return (
            f'[model]\ndialect = "openai"\nbase_url = "{self.model.url}"\nname = "m"\napi_key = "{API_KEY}"\n'
            '[http]\nenabled = false\n[agent]\ntimezone = "Europe/Berlin"\n'
            f'[channels.telegram]\ntoken = "{self.api.token}"\napi_base = "{self.api.url}"\n{self.telegram}\n'
            f"{ACCESS if self.telegram.startswith(OPEN) and '[access]' not in self.more else ''}"
            f"{IN_A_HURRY if '[limits' not in self.more else ''}{self.more}\n"
        )

    def ask_to_stop(self) -> None:
        """Do what SIGTERM does."""
        self._stop.set()

    async def stop(self) -> None:
        """Stop in good order."""
        self._stop.set()
        await self._end()

    async def die(self) -> None:
        """Cut everything off where it stands: nothing is finished and nothing more is written."""
        assert self._running is not None
        self._running.cancel()
        await self._end()

    async def _end(self) -> None:
        assert self._running is not None
        async with asyncio.timeout(PATIENCE):
            await asyncio.wait({self._running})
        running, self._running = self._running, None
        await self.gateway.close()
        self._gateway = None
        if not running.cancelled():
            running.result()

    async def close(self) -> None:
        """Stop if it is running."""
        if self._running is not None:
            await self.stop()

    async def restart(self) -> None:
        """Stop in good order and start again."""
        await self.stop()
        await self.start()

    def skip(self, seconds: float) -> None:
        """Let time pass. The loops wait in real time, so they are told to look."""
        self.clock.ahead += seconds
        self.gateway.worker.bell.ring()
        self.gateway.sender.bell.ring()

    async def until(self, condition: Callable[[], bool], *, skipping: float = 0.0) -> None:
        """Wait until a condition holds; with `skipping`, so many seconds pass between two looks."""
        async with asyncio.timeout(PATIENCE):
            while not condition():
                if self._running is not None and self._running.done():
                    self._running.result()
                if skipping:
                    self.skip(skipping)
                await asyncio.sleep(0.002)

    def texts(self, chat: int = 7) -> list[str]:
        """Return what a person was sent."""
        return [sent.text for sent in self.api.sent if sent.chat == chat]

    async def hears(self, *texts: str, chat: int = 7) -> None:
        """Wait for exactly these messages to a person since the start, in this order."""
        await self.until(lambda: len(self.texts(chat)) >= len(texts))
        assert self.texts(chat) == list(texts)

    async def asked(self, number: int) -> JsonObject:
        """Wait for the n-th model call and return its body."""
        await self.until(lambda: len(self.model.requests) >= number)
        return self.model.bodies[number - 1]

    async def rests(self, *, skipping: float = 0.0) -> None:
        """Wait until everything that people wrote is stored, answered and sent."""
        await self.until(self._is_at_rest, skipping=skipping)

    def _is_at_rest(self) -> bool:
        busy = (
            self.api.pending or not self.api.polling or self.gateway.worker.busy or self.gateway.sender.busy
        )
        return not busy and self.rows(_UNFINISHED) == [(0, 0, 0)]

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """Look into the database."""
        file = f"file:{self.home / 'crayfish.db'}?mode=ro"
        with closing(sqlite3.connect(file, uri=True)) as connection:
            return connection.execute(query).fetchall()

    def change(self, statement: str) -> None:
        """Change the database behind the back of a gateway that is not running."""
        with closing(sqlite3.connect(self.home / "crayfish.db")) as connection, connection:
            connection.execute(statement)


_UNFINISHED: Final = """
    select (select count(*) from conversation where ready_at is not null),
           (select count(*) from inbound where seq is null and wakes),
           (select count(*) from outbound where state in ('pending', 'sending'))
"""


def spoken(body: JsonObject) -> list[str]:
    """Return what people have said since the last answer, as a request shows it, without the stamps."""
    said: list[str] = []
    for message in body["messages"]:
        if message["role"] == "user":
            said.append(_STAMP.sub("", message["content"]))
        elif message["role"] == "assistant" and not message.get("tool_calls"):
            said.clear()
    return said


def roles(body: JsonObject) -> list[str]:
    """Return who speaks in a request, without the instructions."""
    return [message["role"] for message in body["messages"][1:]]


def results(body: JsonObject) -> list[str]:
    """Return what the tools of a request's history have said."""
    return [message["content"] for message in body["messages"] if message["role"] == "tool"]


def is_valid(body: JsonObject) -> bool:
    """Return whether each call of a request is followed by its result, and each result belongs to a call."""
    waiting: list[str] = []
    for message in body["messages"]:
        if message["role"] == "tool":
            if message["tool_call_id"] not in waiting:
                return False
            waiting.remove(message["tool_call_id"])
        elif waiting:
            return False
        else:
            waiting = [call["id"] for call in message.get("tool_calls", ())]
    return not waiting


def is_prefix(earlier: JsonObject, later: JsonObject) -> bool:
    """Return whether a request repeats all of an earlier one, byte for byte, before it says anything new."""
    first, second = (json.dumps(body["messages"])[:-1] for body in (earlier, later))
    return second.startswith(first) and json.dumps(earlier["tools"]) == json.dumps(later["tools"])


def echo(request: Request) -> Answer:
    """Answer with what was said."""
    return reply("openai", f"you said: {' + '.join(spoken(request.body))}")


def held(answer: Answer, gate: asyncio.Event) -> Answer:
    """Return an answer that begins when the gate opens."""
    return Answer(chunks=(gate, *answer.chunks))
