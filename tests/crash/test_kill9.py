"""Real processes, really killed: nothing is lost, and hardly anything is done twice."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import sqlite3
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from pathlib import Path

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from gateway.clock import SystemClock
from gateway.store import outbox
from gateway.store.engine import Database, open_database
from gateway.store.inbox import Arrival, Inbox
from gateway.store.tables import conversation, entry, inbound, outbound
from gateway.types import Address, Outgoing
from tests.fakes.bot_api import BotApi
from tests.fakes.model_api import Answer, Call, FakeModelApi, Request, reply, serving
from tests.fakes.world import said
from tests.story.house import echo, held

ROOT = Path(__file__).parents[2]
SLOTS = 8
"""Deliveries that one process has under way at most."""

PATIENCE = 30.0
"""Seconds after which what should have happened counts as missing."""

pytestmark = pytest.mark.timeout(120)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not condition():  # noqa: ASYNC110 - files and other processes have no events
            await asyncio.sleep(0.01)


async def start(folder: Path, *arguments: str) -> asyncio.subprocess.Process:
    """Start Python in a process group of its own; what it prints is added to a file."""
    environment = {"HOME": str(folder), "PYTHONPATH": str(ROOT), "PATH": os.environ["PATH"]}
    with (folder / "output.txt").open("ab") as output:
        return await asyncio.create_subprocess_exec(
            sys.executable,
            *arguments,
            cwd=folder,
            env=environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )


async def kill(process: asyncio.subprocess.Process) -> None:
    """End a process that may be dead already, as a power cut would."""
    if process.returncode is None:
        process.kill()
    await process.wait()


@dataclass(slots=True)
class Site:
    """The servers around a gateway, and the process that it is."""

    home: Path
    api: BotApi
    model: FakeModelApi
    process: asyncio.subprocess.Process | None = None

    def configure(self) -> None:
        (self.home / "config.toml").write_text(
            f'[model]\ndialect = "openai"\nbase_url = "{self.model.url}"\nname = "m"\n'
            f'[store]\nurl = "sqlite+aiosqlite:///crayfish.db"\n[workspace]\npath = "workspace"\n'
            f'[http]\nenabled = false\n[channels.telegram]\ntoken = "{self.api.token}"\n'
            f'api_base = "{self.api.url}"\ndm_policy = "open"\nallow_from = ["*"]\n'
            "[limits.per_sender_per_minute]\nguests = 0\n"
        )

    async def start(self) -> None:
        self.process = await start(
            self.home, "-m", "gateway", "run", "--config", str(self.home / "config.toml")
        )

    async def kill(self) -> None:
        assert self.process is not None
        await kill(self.process)

    async def terminate(self) -> int:
        """Send SIGTERM and return the exit code."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(PATIENCE):
            return await self.process.wait()

    def texts(self) -> Counter[tuple[int, str]]:
        """Return how often each message was sent to each chat."""
        return Counter((sent.chat, sent.text) for sent in self.api.sent)

    async def hears(self, chat: int, text: str) -> None:
        """Wait until a person was sent a text."""
        await self.api.until(lambda: (chat, text) in self.texts())

    async def hears_more(self) -> None:
        """Wait until anything is sent to anybody."""
        before = len(self.api.sent)
        async with asyncio.timeout(PATIENCE):
            await self.api.until(lambda: len(self.api.sent) > before)

    async def is_done(self) -> None:
        """Wait until everything that came in is answered and sent."""
        await until(lambda: not self.api.pending and self.rows(UNFINISHED) == [(0, 0, 0)])

    def rows(self, query: str) -> list[tuple[object, ...]]:
        file = f"file:{self.home / 'crayfish.db'}?mode=ro"
        with closing(sqlite3.connect(file, uri=True)) as connection:
            return connection.execute(query).fetchall()


UNFINISHED = """
    select (select count(*) from conversation where ready_at is not null),
           (select count(*) from inbound where seq is null),
           (select count(*) from outbound where state in ('pending', 'sending'))
"""


@asynccontextmanager
async def site(home: Path) -> AsyncIterator[Site]:
    async with BotApi() as api, serving() as model:
        model.otherwise = echo
        here = Site(home, api, model)
        here.configure()
        try:
            yield here
        finally:
            if here.process is not None:
                await kill(here.process)
        assert api.violations == []


async def test_twenty_turns_that_a_kill_cut_off_are_each_answered_once(tmp_path: Path) -> None:
    gate = asyncio.Event()
    async with site(tmp_path) as here:
        here.model.otherwise = lambda request: held(echo(request), gate)
        await here.start()
        chats = range(100, 120)
        for chat in chats:
            here.api.say(f"hello from {chat}", chat=chat)
        await until(lambda: len(here.model.requests) == 20)
        await here.kill()
        gate.set()

        await here.start()
        await until(lambda: len(here.api.sent) >= 20)
        await here.is_done()
        # No answer was under way to anybody when it was killed, so none may come twice.
        assert here.texts() == {(chat, f"you said: hello from {chat}"): 1 for chat in chats}
        assert len(here.model.requests) == 40, "each call that was cut off is paid once more"
        assert await here.terminate() == 0


async def test_kills_at_random_moments_under_load_lose_nothing(tmp_path: Path) -> None:
    chance = random.Random(20260101)
    kills, chats = 6, range(200, 212)
    enough = asyncio.Event()
    in_doubt = """
        select (select count(*) from outbound where state in ('pending', 'sending') and unknowns > 0),
               (select count(*) from conversation where ready_at is not null and attempt >= 3)
    """
    async with site(tmp_path) as here:
        here.model.otherwise = worker(chance)
        await here.start()
        people = {chat: asyncio.create_task(person(here, chat, enough)) for chat in chats}
        try:
            for number in range(kills):
                await here.hears_more()
                # A message whose delivery two kills have cut off would be given up, as its copies are bounded;
                # and so would a turn that was begun three times without any progress.
                await until(lambda: here.rows(in_doubt) == [(0, 0)])
                # At once, the message that was just accepted can't have been noted as sent.
                await asyncio.sleep(chance.uniform(0.0, 0.4) if number % 2 else 0)
                await here.kill()
                await here.start()
            enough.set()
            async with asyncio.timeout(PATIENCE):
                await asyncio.gather(*people.values())
        finally:
            for one in people.values():
                one.cancel()
        await here.is_done()
        assert await here.terminate() == 0

        texts = here.texts()
        wanted = {
            chat: [f"you said: {chat}.{n}" for n in range(one.result())] for chat, one in people.items()
        }
        assert set(texts) == {(chat, text) for chat, all_of_it in wanted.items() for text in all_of_it}
        assert max(texts.values()) <= 2, "no answer has a third copy"
        # Usually one a kill, but each slot may be between the platform's yes and our note of it.
        assert sum(texts.values()) - len(texts) <= SLOTS * kills
        for chat, all_of_it in wanted.items():
            assert list(dict.fromkeys(sent.text for sent in here.api.sent if sent.chat == chat)) == all_of_it

        assert here.rows("pragma integrity_check") == [("ok",)]
        assert here.rows("select count(*), count(distinct key) from inbound") == [(len(texts), len(texts))]
        assert here.rows("select count(*) from inbound where coalesce(seq, 0) = 0") == [(0,)]
        assert here.rows("select state, count(*) from outbound group by state") == [("sent", len(texts))]


def worker(chance: random.Random) -> Callable[[Request], Answer]:
    """Answer after a while, and every other time only after a file was written."""

    def answer(request: Request) -> Answer:
        messages = request.body["messages"]
        writes = messages[-1]["role"] == "user" and len(messages) % 2 == 0
        call = Call(f"call{len(messages):05d}", "write", {"path": "notes.txt", "content": "x"})
        gate = asyncio.Event()
        asyncio.get_running_loop().call_later(chance.uniform(0.0, 0.2), gate.set)
        return held(reply("openai", "", call) if writes else echo(request), gate)

    return answer


async def person(here: Site, chat: int, enough: asyncio.Event) -> int:
    """Write, wait for the answer, and write again until it is enough; return how many messages that were."""
    number = 0
    while not enough.is_set():
        here.api.say(f"{chat}.{number}", chat=chat)
        await here.hears(chat, f"you said: {chat}.{number}")
        number += 1
    return number


@pytest.mark.parametrize("kind", ["sqlite"])
async def test_kills_before_anything_could_be_sent_do_not_use_up_the_one_repeat(
    url: str, tmp_path: Path
) -> None:
    """A gateway that dies in each start must not lose the answers that wait."""
    db = await open_database(url, SystemClock())
    message = Outgoing(key="k1", address=Address("telegram", "7"), text="the answer")
    await db.write(lambda tx: outbox.put(tx, [message], db.now()))
    await db.close()
    owners: list[tuple[object, ...]] = []
    async with site(tmp_path) as here:
        for _ in range(2):
            await here.start()
            # In the moment in which it has reserved the message, or can talk to the platform.
            await until(lambda: bool(here.api.calls) or here.rows(OWNER)[0] not in [(None,), *owners])
            await here.kill()
            owners.extend(here.rows(OWNER))

        await here.start()
        await until(lambda: bool(here.api.sent))
        await here.is_done()
        assert set(here.texts()) == {(7, "the answer")}


OWNER = "select lease_owner from outbound"


async def test_sigterm_in_mid_turn_finishes_what_it_can_and_loses_nothing(tmp_path: Path) -> None:
    """Reliability row 33: a turn in its last step is finished, one with more to do goes on at the next start."""
    gate = asyncio.Event()
    look = Call("call00001", "list_dir", {})

    def answer(request: Request) -> Answer:
        works = (
            "work" in request.body["messages"][1]["content"]
            and request.body["messages"][-1]["role"] == "user"
        )
        return held(reply("openai", "", look) if works else echo(request), gate)

    quick, working = range(300, 300 + SLOTS), range(310, 313)
    async with site(tmp_path) as here:
        here.model.otherwise = answer
        await here.start()
        for chat in quick:
            here.api.say("be quick", chat=chat)
        for chat in working:
            here.api.say("work", chat=chat)
        await until(lambda: len(here.model.requests) == SLOTS + 3)
        stopping = asyncio.create_task(here.terminate())
        await until(lambda: not here.api.polling)
        here.api.say("too late for today", chat=330)
        gate.set()
        assert await stopping == 0
        answered = {(chat, "you said: be quick"): 1 for chat in quick}
        assert here.texts() == answered
        assert here.rows("select distinct state from outbound") == [("sent",)]
        assert len(here.api.pending) == 1

        await here.start()
        await until(lambda: len(here.api.sent) >= SLOTS + 4)
        await here.is_done()
        answered |= {(chat, "you said: work"): 1 for chat in working}
        assert here.texts() == answered | {(330, "you said: too late for today"): 1}
        assert len(here.model.requests) == SLOTS + 3 + 3 + 1, "no saved step is asked for again"
        assert await here.terminate() == 0


@pytest.mark.parametrize("kind", ["postgres"])
async def test_two_nodes_on_one_database_survive_kills_of_either(url: str, tmp_path: Path) -> None:
    chance = random.Random(20260102)
    kills, chats, each = 6, 8, 12
    nodes = [await node(url, tmp_path) for _ in range(2)]
    db = await open_database(url, SystemClock())
    try:
        feeding = asyncio.create_task(feed(db, chats, each, chance))
        for number in range(kills):
            await asyncio.sleep(chance.uniform(0.6, 1.4))
            which = number % 2
            await kill(nodes[which])
            nodes[which] = await node(url, tmp_path)
        await feeding
        await rests(db)
        entries = await db.read(told)
    finally:
        for one in nodes:
            await kill(one)
        await db.close()

    stimuli = {f"{chat}.{number}" for chat in range(chats) for number in range(each)}
    assert sorted(text for texts in entries for text in texts) == sorted(stimuli), "each is in one turn"
    sent = [line.split(" ", 1) for line in (tmp_path / "sent").read_text().splitlines()]
    answers = {key: text.split() for key, text in sent}
    assert sorted(text for texts in answers.values() for text in texts) == sorted(stimuli), "answered once"
    assert max(Counter(key for key, _ in sent).values()) <= 2
    acts = (tmp_path / "acts").read_text().splitlines()
    assert len(sent) - len(answers) <= kills, "each killed node had one slot"
    assert len(acts) == len(set(acts)), "what may not repeat was repeated"
    for chat in range(chats):
        order = [text for texts in answers.values() for text in texts if text.startswith(f"{chat}.")]
        assert order == [f"{chat}.{number}" for number in range(each)]


async def node(url: str, folder: Path) -> asyncio.subprocess.Process:
    return await start(folder, "-m", "tests.crash.node", url, str(folder))


async def feed(db: Database, chats: int, each: int, chance: random.Random) -> None:
    """Let every chat write, at its own pace; each message is handed over twice, as platforms do."""
    inbox = Inbox(db)
    for number in range(each):
        for chat in chance.sample(range(chats), chats):
            message = said(f"{chat}.{number}", str(chat), key=f"k{chat}.{number}")
            await inbox.put([Arrival(message)])
            await inbox.put([Arrival(message)])
        await asyncio.sleep(chance.uniform(0.1, 0.7))


def open_rows(tx: Connection) -> int:
    counts = (
        sa.select(sa.func.count()).select_from(conversation).where(conversation.c.ready_at.is_not(None)),
        sa.select(sa.func.count()).select_from(inbound).where(inbound.c.seq.is_(None)),
        sa.select(sa.func.count()).select_from(outbound).where(outbound.c.state.in_(("pending", "sending"))),
    )
    return sum(tx.execute(count).scalar_one() for count in counts)


def told(tx: Connection) -> list[list[str]]:
    """Return the texts of all final answers."""
    rows = tx.execute(sa.select(entry.c.body).where(entry.c.role == "assistant"))
    bodies = [json.loads(body) for body in rows.scalars()]
    return [body["text"].split() for body in bodies if not body.get("calls")]


async def rests(db: Database) -> None:
    """Wait until no node has anything to do."""
    async with asyncio.timeout(PATIENCE):
        while await db.read(open_rows):  # noqa: ASYNC110 - other processes have no events
            await asyncio.sleep(0.05)
