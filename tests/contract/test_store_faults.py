"""What the store does when the disk is full, the file is locked, the server restarts or the clock jumps."""

from __future__ import annotations

import asyncio
import functools
import logging
import os
import shutil
import sqlite3
import subprocess
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from gateway.channel import Cursor
from gateway.clock import SystemClock
from gateway.errors import AlreadyRunning, ConfigError, StoreError
from gateway.models.base import Prompt
from gateway.store import history
from gateway.store.engine import Database, SqliteDatabase, open_database, open_sqlite
from gateway.store.inbox import Arrival, Inbox, get_fact, set_fact
from gateway.store.journal import Journal
from gateway.store.migrate import create
from gateway.store.tables import conversation, entry, inbound, outbound
from gateway.types import AssistantEntry, Stimulus, UserEntry
from tests.conftest import _BIN, _as_postgres, _new_database, _raw
from tests.fakes.clock import FakeClock
from tests.fakes.scripted import ScriptedModel, call, calls, in_turn
from tests.fakes.world import World, said


def pragma(text: str) -> Callable[[Connection], object]:
    def work(tx: Connection) -> object:
        return tx.exec_driver_sql(f"PRAGMA {text}").scalar_one_or_none()

    return work


def count(tx: Connection) -> tuple[int, ...]:
    return tuple(
        tx.execute(sa.select(sa.func.count()).select_from(table)).scalar_one()
        for table in (conversation, inbound, entry, outbound)
    )


@pytest.fixture
async def sqlite(tmp_path: Path, clock: FakeClock) -> AsyncIterator[SqliteDatabase]:
    db = open_sqlite(sa.make_url(f"sqlite:///{tmp_path / 'crayfish.db'}"), clock)
    await db.write(create)
    yield db
    await db.close()


@dataclass
class FullDisk:
    """A limit of the file's size: SQLite says the same as on a full disk."""

    db: SqliteDatabase

    async def begin(self) -> None:
        pages = await self.db.write(pragma("page_count"))
        await self.db.write(pragma(f"max_page_count = {pages}"))

    async def end(self) -> None:
        await self.db.write(pragma("max_page_count = 1000000"))


LONG = "x" * 100_000


class TestFullDisk:
    async def test_nothing_is_stored_until_there_is_room_again(self, sqlite: SqliteDatabase) -> None:
        disk, inbox = FullDisk(sqlite), Inbox(sqlite)
        await disk.begin()
        before = await sqlite.write(count)
        for _ in range(3):
            with pytest.raises(StoreError, match="full"):
                await inbox.put([Arrival(said("short")), Arrival(said(LONG))], cursor=Cursor("bot", "7"))
        assert await sqlite.write(count) == before
        assert await inbox.cursor("bot") is None
        await disk.end()
        await inbox.put([Arrival(said(LONG))], cursor=Cursor("bot", "7"))
        assert await inbox.cursor("bot") == "7"
        assert await sqlite.write(pragma("integrity_check")) == "ok"

    async def test_reads_go_on(self, sqlite: SqliteDatabase) -> None:
        await sqlite.write(lambda tx: set_fact(tx, "a", "1"))
        await FullDisk(sqlite).begin()
        with pytest.raises(StoreError):
            await sqlite.write(lambda tx: set_fact(tx, "b", LONG))
        assert await sqlite.read(lambda tx: get_fact(tx, "a")) == "1"

    async def test_those_who_share_a_commit_all_hear_of_it(self, sqlite: SqliteDatabase) -> None:
        await FullDisk(sqlite).begin()
        results = await asyncio.gather(
            *(
                sqlite.write(functools.partial(set_fact, name=f"{number}", value=LONG))
                for number in range(20)
            ),
            return_exceptions=True,
        )
        assert all(isinstance(result, StoreError) for result in results)

    async def test_the_log_tells_it_once_when_it_begins_and_once_when_it_is_over(
        self, sqlite: SqliteDatabase, caplog: pytest.LogCaptureFixture
    ) -> None:
        disk = FullDisk(sqlite)
        await disk.begin()
        world = World(db=sqlite, clock=FakeClock(), model=ScriptedModel(in_turn("hi")))
        with caplog.at_level(logging.INFO):
            for _ in range(20):
                with pytest.raises(StoreError):
                    await world.put(said(LONG))
            await disk.end()
            await world.say(LONG)
        assert [record.message for record in caplog.records] == ["store.failing", "store.works_again"]

    async def test_a_turn_whose_reply_finds_no_room_is_answered_once_there_is_some(
        self, sqlite: SqliteDatabase, clock: FakeClock
    ) -> None:
        disk = FullDisk(sqlite)

        async def answer(_prompt: Prompt) -> AssistantEntry:
            await disk.begin()
            return AssistantEntry(LONG)

        world = World(db=sqlite, clock=clock, model=ScriptedModel(answer))
        world.channel.limit = 2 * len(LONG)
        await world.say("tell me more")
        assert world.channel.texts == []
        await disk.end()
        world.model.answer = in_turn(LONG)
        clock.time += 60
        await world.settle()
        assert world.channel.texts == [LONG]


class TestLockedFile:
    async def test_a_write_waits_a_while_and_then_says_so(
        self, sqlite: SqliteDatabase, caplog: pytest.LogCaptureFixture
    ) -> None:
        await sqlite.write(pragma("busy_timeout = 20"))
        with closing(sqlite3.connect(sqlite.path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            for _ in range(3):
                with pytest.raises(StoreError, match="locked"):
                    await Inbox(sqlite).put([Arrival(said("hi", key="k"))])
            assert await sqlite.read(count) == (0, 0, 0, 0)
            other.execute("COMMIT")
        assert (await Inbox(sqlite).put([Arrival(said("hi", key="k"))])).new == 1
        assert [record.message for record in caplog.records if record.levelno >= logging.WARNING] == [
            "store.failing",
            "store.works_again",
        ]

    async def test_a_short_lock_is_only_waited_for(self, sqlite: SqliteDatabase) -> None:
        with closing(sqlite3.connect(sqlite.path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            writing = asyncio.create_task(sqlite.write(lambda tx: set_fact(tx, "a", "1")))
            await asyncio.sleep(0.02)
            assert not writing.done()
            other.execute("COMMIT")
            await writing

    async def test_a_second_gateway_on_the_file_is_refused_and_the_first_goes_on(
        self, sqlite: SqliteDatabase
    ) -> None:
        with pytest.raises(AlreadyRunning, match="another gateway is running on"):
            await open_database(f"sqlite+aiosqlite:///{sqlite.path}", FakeClock())
        await sqlite.write(lambda tx: set_fact(tx, "a", "1"))


class TestWriterThread:
    async def test_a_commit_that_is_refused_does_not_end_those_after_it(self, sqlite: SqliteDatabase) -> None:
        def orphan(tx: Connection) -> None:
            tx.exec_driver_sql("PRAGMA defer_foreign_keys = ON")
            tx.exec_driver_sql(
                "insert into inbound (key, conversation_id, kind, body, at) values ('k', 999, '', '', 0)"
            )

        for _ in range(2):
            with pytest.raises(sa.exc.IntegrityError):
                await sqlite.write(orphan)
            await sqlite.write(lambda tx: set_fact(tx, "a", "1"), durable=False)
        assert await sqlite.write(count) == (0, 0, 0, 0)

    async def test_work_that_breaks_the_rules_does_not_end_the_thread(self, sqlite: SqliteDatabase) -> None:
        def unruly(tx: Connection) -> None:
            tx.rollback()
            raise RuntimeError("what am I doing")

        for _ in range(2):
            with pytest.raises(RuntimeError):
                await sqlite.write(unruly)
        results = await asyncio.gather(
            *(sqlite.write(work) for work in [count, unruly, unruly]), return_exceptions=True
        )
        assert any(isinstance(result, Exception) for result in results)
        assert await sqlite.write(count) == (0, 0, 0, 0)

    async def test_a_write_that_comes_after_the_close_is_refused_at_once(self, tmp_path: Path) -> None:
        db = open_sqlite(sa.make_url(f"sqlite:///{tmp_path / 'crayfish.db'}"), FakeClock())
        last = asyncio.create_task(db.write(create))
        await asyncio.sleep(0)
        closing_ = asyncio.create_task(db.close())
        await asyncio.sleep(0)
        with pytest.raises(StoreError, match="closed"):
            await db.write(count)
        await last
        await closing_


class TestOpening:
    @pytest.mark.parametrize(
        "content", [b"this is a text, and long enough to be read as one\n" * 99, b"\0" * 5000]
    )
    async def test_a_file_that_is_no_database_is_refused_and_left_as_it_is(
        self, tmp_path: Path, content: bytes
    ) -> None:
        file = tmp_path / "notes.db"
        file.write_bytes(content)
        with pytest.raises(ConfigError, match=f"{file}.*not a database"):
            await open_database(f"sqlite+aiosqlite:///{file}", FakeClock())
        assert file.read_bytes() == content

    async def test_a_folder_in_place_of_the_file_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match=f"{tmp_path} can't be opened"):
            await open_database(f"sqlite+aiosqlite:///{tmp_path}", FakeClock())

    @pytest.mark.parametrize("name", ["/{}/a.db", "{}/a%20b?c=d#e.db", "{}/ä ö.db", "a.db"])
    async def test_whatever_its_path_it_is_written_and_read(
        self, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        place = sa.URL.create("sqlite+aiosqlite", database=name.format(tmp_path))
        db = open_sqlite(place, FakeClock())
        await db.write(create)
        await db.write(lambda tx: set_fact(tx, "a", "1"))
        assert await db.read(lambda tx: get_fact(tx, "a")) == "1"
        await db.close()

    async def test_what_was_refused_can_be_opened_once_it_is_repaired(self, tmp_path: Path) -> None:
        file = tmp_path / "notes.db"
        file.write_bytes(b"this is a text\n" * 999)
        with pytest.raises(ConfigError):
            await open_database(f"sqlite+aiosqlite:///{file}", FakeClock())
        file.unlink()
        db = await open_database(f"sqlite+aiosqlite:///{file}", FakeClock())
        await db.write(create)
        await db.close()


class TestCollision:
    async def test_transactions_in_each_others_way_both_succeed(
        self, postgres_server: str, clock: FakeClock
    ) -> None:
        db = await open_database(await _new_database(postgres_server), clock)
        await db.write(create)
        for name in "ab":
            await db.write(functools.partial(set_fact, name=name, value=""))

        def write(tx: Connection, first: str, second: str) -> None:
            set_fact(tx, first, first + second)
            tx.exec_driver_sql("select pg_sleep(0.1)")
            set_fact(tx, second, first + second)

        both = (functools.partial(write, first=one, second=two) for one, two in ("ab", "ba"))
        await asyncio.gather(*(db.write(work) for work in both))
        stored = [await db.write(functools.partial(get_fact, name=name)) for name in "ab"]
        await db.close()
        assert stored in (["ab", "ab"], ["ba", "ba"])


class TestHungUp:
    async def test_a_connection_that_the_server_has_ended_is_replaced_and_nobody_notices(
        self, postgres_server: str, clock: FakeClock, caplog: pytest.LogCaptureFixture
    ) -> None:
        url = await _new_database(postgres_server)
        db = await open_database(url, clock)
        await db.write(create)
        raw = await _raw(url)
        for value in ("1", "2"):
            ended = await raw.fetchval(
                "select count(pg_terminate_backend(pid, 5000)) from pg_stat_activity "
                "where datname = current_database() and pid <> pg_backend_pid()"
            )
            assert ended >= 1
            await db.write(functools.partial(set_fact, name="a", value=value))
            assert await db.read(functools.partial(get_fact, name="a")) == value
        await raw.close()
        await db.close()
        assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


@dataclass
class Server:
    """A PostgreSQL of one test, which may stop and start."""

    folder: Path

    @property
    def url(self) -> str:
        return f"postgresql+asyncpg://crayfish@/{{name}}?host={self.folder}"

    def control(self, *arguments: str) -> None:
        assert _BIN is not None
        flags = f"-k {self.folder} -c listen_addresses=''"
        data, log = str(self.folder / "data"), str(self.folder / "log")
        command = [str(_BIN / "pg_ctl"), "-D", data, "-l", log, "-o", flags, "-w", *arguments]
        subprocess.run(_as_postgres(*command), check=True, capture_output=True, cwd=self.folder)


@pytest.fixture
def server() -> Iterator[Server]:
    if _BIN is None:
        pytest.skip("no PostgreSQL binaries in /usr/lib/postgresql")
    folder = Path(tempfile.mkdtemp(prefix="crayfish-pg-"))
    if os.geteuid() == 0:
        shutil.chown(folder, "postgres")
    data = str(folder / "data")
    make = [str(_BIN / "initdb"), "-N", "-D", data, "-A", "trust", "-U", "crayfish", "-E", "UTF8"]
    subprocess.run(_as_postgres(*make), check=True, capture_output=True, cwd=folder)
    server = Server(folder)
    server.control("start")
    yield server
    server.control("-m", "immediate", "stop")
    shutil.rmtree(folder)


async def patiently(db: Database, *stimuli: Stimulus) -> None:
    """Hand over as a channel does: again until it is stored."""
    while True:
        try:
            await Inbox(db).put([Arrival(one) for one in stimuli])
        except StoreError:
            await asyncio.sleep(0.02)
        else:
            return


class TestServerRestart:
    async def test_nothing_is_lost_and_the_process_goes_on(self, server: Server, clock: FakeClock) -> None:
        db = await open_database(await _new_database(server.url), clock)
        await db.write(create)
        world = World(db=db, clock=SystemClock(), model=ScriptedModel(act_then_answer), slots=2)
        restarted = asyncio.Event()

        async def talk() -> None:
            number = 0
            while not restarted.is_set() or number < 20:
                number += 1
                await patiently(db, said(str(number), str(number % 4)))
            await asyncio.sleep(0)

        async with asyncio.TaskGroup() as group:
            working = group.create_task(world.worker.serve())
            sending = group.create_task(world.sender.serve())
            talking = group.create_task(talk())
            for _ in range(2):
                await asyncio.sleep(0.3)
                await asyncio.to_thread(server.control, "-m", "immediate", "restart")
            restarted.set()
            await talking
            while await patient_read(db) != (0, 0):
                clock.time += 10  # what a broken connection left reserved runs out
                world.worker.bell.ring()
                world.sender.bell.ring()
                await asyncio.sleep(0.02)
            working.cancel()
            sending.cancel()
        questions, answered, states = await db.write(outcome)
        await db.close()
        assert answered == questions
        assert set(states) <= {"sent", "unknown"}
        keys = [message.key for message in world.channel.sent]
        assert len(keys) - len(set(keys)) <= 2 * world.slots, "a repeat for each slot and restart"
        assert len(set(keys)) == len(states)

    async def test_while_it_is_down_nothing_is_taken(
        self, server: Server, clock: FakeClock, caplog: pytest.LogCaptureFixture
    ) -> None:
        db = await open_database(await _new_database(server.url), clock)
        await db.write(create)
        await Inbox(db).put([Arrival(said("before"))])
        await asyncio.to_thread(server.control, "-m", "immediate", "stop")
        for _ in range(3):
            with pytest.raises(StoreError):
                await Inbox(db).put([Arrival(said("meanwhile", key="k"))], cursor=Cursor("bot", "7"))
            with pytest.raises(StoreError):
                await db.read(count)
        await asyncio.to_thread(server.control, "start")
        assert await Inbox(db).cursor("bot") is None
        assert (await Inbox(db).put([Arrival(said("meanwhile", key="k"))])).new == 1
        assert await db.read(count) == (1, 2, 0, 0)
        await db.close()
        assert [record.message for record in caplog.records if record.name.startswith("gateway")] == [
            "store.failing",
            "store.works_again",
        ]


def act_then_answer(prompt: Prompt) -> AssistantEntry:
    return calls(call("look")) if isinstance(prompt.entries[-1], UserEntry) else AssistantEntry("done")


async def patient_read(db: Database) -> tuple[int, int]:
    """Return how many conversations and deliveries are open."""
    depth = await db.read(history.depth)
    return depth["conversations"], depth["outbox"]


def outcome(tx: Connection) -> tuple[set[str], set[str], list[str]]:
    """Return the messages, those that are in a transcript, and the states of the replies."""
    asked = set(tx.execute(sa.select(inbound.c.key)).scalars())
    taken = set(tx.execute(sa.select(inbound.c.key).where(inbound.c.seq > 0)).scalars())
    return asked, taken, list(tx.execute(sa.select(outbound.c.state)).scalars())


@dataclass(slots=True)
class Jumping:
    """A machine whose wall clock is set an hour forth and back at each look; its steady clock is not."""

    steady: SystemClock = field(default_factory=SystemClock)
    looks: int = 0

    def now(self) -> float:
        return self.steady.now()

    def wall(self) -> float:
        self.looks += 1
        return self.steady.wall() + (3600 if self.looks % 2 else -3600)

    async def sleep(self, seconds: float) -> None:
        await self.steady.sleep(seconds)


class TestClock:
    async def test_a_wall_clock_that_jumps_costs_no_lease_and_ends_no_turn(self, url: str) -> None:
        clock = Jumping()
        db = await open_database(url, clock)
        slow = asyncio.Event()

        async def answer(_prompt: Prompt) -> AssistantEntry:
            clock.wall()
            await slow.wait()
            return AssistantEntry("done")

        world = World(db=db, clock=clock, model=ScriptedModel(answer), lease=0.6)
        rival = Journal(db, "rival", lease=0.6)
        await world.put(*(said("hi", str(chat)) for chat in range(5)))
        async with asyncio.TaskGroup() as group:
            serving = group.create_task(world.worker.serve())
            for _ in range(3):
                await asyncio.sleep(0.4)  # a lease that nobody renews would run out twice meanwhile
                assert (await rival.claim(10))[0] == []
            assert world.worker.busy == 5
            slow.set()
            world.worker.drain()
            await serving
        await world.settle()
        await db.close()
        assert world.channel.texts == ["done"] * 5
        assert len(world.model.prompts) == 5
