"""A database comes to the newest schema whole or not at all, and is never taken for something it is not."""

from __future__ import annotations

import asyncio
import re
import shutil
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any, TypeAlias

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from gateway.config import bundled
from gateway.errors import ConfigError, StoreError
from gateway.store.engine import Database, SqliteDatabase, open_database
from gateway.store.inbox import Arrival, Inbox, get_fact, set_fact
from gateway.store.migrate import create, known, migrate, upgrade, version
from gateway.store.tables import HEAD
from tests.conftest import ROOT, _new_database
from tests.fakes.clock import FakeClock
from tests.fakes.scripted import ScriptedModel, in_turn
from tests.fakes.world import World, said

SCRIPTS = bundled("migrations")

Schema: TypeAlias = dict[str, Any]


@pytest.fixture
async def empty(empty_url: str, clock: FakeClock) -> AsyncIterator[Database]:
    db = await open_database(empty_url, clock)
    yield db
    await db.close()


@pytest.fixture
async def db(empty: Database) -> Database:
    """A database of its own: the schema of the one that other tests use must stay."""
    await empty.write(create)
    return empty


def next_version(folder: Path, body: str, number: str = "0002") -> Path:
    """Return a copy of the migrations with one more."""
    scripts = folder / "migrations"
    if not scripts.exists():
        shutil.copytree(SCRIPTS, scripts, ignore=shutil.ignore_patterns("__pycache__"))
    before = f"{int(number) - 1:04}"
    (scripts / "versions" / f"{number}_next.py").write_text(
        "import sqlalchemy as sa\nfrom alembic import op\n\n"
        f'revision = "{number}"\ndown_revision = "{before}"\n\n\ndef upgrade() -> None:\n    {body}\n'
    )
    return scripts


ADD = 'op.add_column("fact", sa.Column("note", sa.Text(), nullable=False, server_default="old"))'


def described(tx: Connection) -> Schema:
    """Return everything about the tables that the database tells."""
    inspector = sa.inspect(tx)
    found: Schema = {}
    for table in sorted(inspector.get_table_names()):
        columns = [
            (one["name"], str(one["type"]), one["nullable"], one["default"], one.get("autoincrement"))
            for one in inspector.get_columns(table)
        ]
        indexes = sorted(
            (
                str(one["name"]),
                one["column_names"],
                one["unique"],
                {name: str(value) for name, value in one.get("dialect_options", {}).items()},
            )
            for one in inspector.get_indexes(table)
        )
        unique = sorted((one["column_names"], one["name"]) for one in inspector.get_unique_constraints(table))
        foreign = sorted(
            (one["constrained_columns"], one["referred_table"], one["referred_columns"])
            for one in inspector.get_foreign_keys(table)
        )
        key = (
            inspector.get_pk_constraint(table)["constrained_columns"],
            inspector.get_pk_constraint(table)["name"],
        )
        found[table] = {
            "columns": columns,
            "indexes": indexes,
            "unique": unique,
            "foreign": foreign,
            "key": key,
        }
    return found


def in_own_words(tx: Connection) -> list[list[str]]:
    """Return what SQLite keeps of the statements that made the schema, without their layout and order."""
    rows = tx.exec_driver_sql("select sql from sqlite_master where sql is not null").scalars()
    plain = [re.sub(r"[\s\"]+", "", row).lower() for row in rows]
    tables = [row.removesuffix(")").replace("(", ",", 1) for row in plain if row.startswith("createtable")]
    others = [[row] for row in plain if not row.startswith("createtable")]
    return sorted([sorted(re.split(r",(?![^(]*\))", row)) for row in tables] + others)


class TestSchema:
    async def test_the_newest_schema_is_what_all_migrations_make_of_nothing(
        self, empty: Database, empty_url: str, tmp_path: Path, clock: FakeClock
    ) -> None:
        await empty.write(create)
        created = await empty.write(described)
        words = await empty.write(in_own_words) if empty.exclusive else []
        await empty.write(drop_everything)
        assert await empty.write(described) == {}
        await empty.write(lambda tx: upgrade(tx, SCRIPTS))
        assert await empty.write(described) == created
        assert not empty.exclusive or await empty.write(in_own_words) == words
        assert await empty.write(version) == HEAD

    def test_head_is_the_newest_file(self) -> None:
        assert max(known(SCRIPTS)) == HEAD

    def test_there_is_one_line_of_migrations(self) -> None:
        found = sorted(known(SCRIPTS))
        assert found == [f"{number:04}" for number in range(1, len(found) + 1)]


def drop_everything(tx: Connection) -> None:
    tables = sa.MetaData()
    tables.reflect(tx)
    tables.drop_all(tx)


class TestMigrate:
    async def test_an_empty_database_gets_the_schema_once(self, empty: Database) -> None:
        assert await migrate(empty, SCRIPTS) == f"the schema was created ({HEAD})"
        assert await migrate(empty, SCRIPTS) == f"the schema is up to date ({HEAD})"

    async def test_an_older_database_keeps_its_rows(self, db: Database, tmp_path: Path) -> None:
        await db.write(lambda tx: set_fact(tx, "a", "1"))
        text = await migrate(db, next_version(tmp_path, ADD), head="0002")
        assert text.startswith("the schema went from 0001 to 0002")
        assert await db.write(version) == "0002"
        rows = await db.write(lambda tx: tx.exec_driver_sql("select name, value, note from fact").all())
        assert [tuple(row) for row in rows] == [("a", "1", "old")]
        await db.write(lambda tx: set_fact(tx, "b", "2"))

    async def test_a_newer_database_is_refused_and_left_as_it_is(self, db: Database) -> None:
        await db.write(
            lambda tx: tx.exec_driver_sql("update alembic_version set version_num = '9999'").rowcount
        )
        before = await db.write(described)
        with pytest.raises(ConfigError) as caught:
            await migrate(db, SCRIPTS)
        assert str(caught.value) == (
            f"the database has schema 9999, newer than this program knows ({HEAD}); "
            "install the newer crayfish-gateway again, or restore the copy made before its upgrade"
        )
        assert await db.write(described) == before
        assert await db.write(version) == "9999"

    async def test_tables_of_another_program_are_refused_and_left_as_they_are(self, empty: Database) -> None:
        await empty.write(lambda tx: tx.exec_driver_sql("create table entry (theirs integer)").rowcount)
        before = await empty.write(described)
        with pytest.raises(ConfigError, match="another program"):
            await migrate(empty, SCRIPTS)
        assert await empty.write(described) == before

    @pytest.mark.parametrize("step", range(1, 5))
    async def test_an_upgrade_that_fails_at_any_step_leaves_everything_as_it_was(
        self, db: Database, tmp_path: Path, step: int
    ) -> None:
        await Inbox(db).put([Arrival(said("hi"))])
        await db.write(lambda tx: set_fact(tx, "a", "1"))
        steps = [
            ADD,
            'op.create_table("extra", sa.Column("id", sa.Integer(), primary_key=True))',
            "op.execute(\"update fact set value = '2'\")",
            'op.drop_table("poison")',
        ]
        scripts = next_version(tmp_path, "\n    ".join([*steps[:step], "raise RuntimeError('power cut')"]))
        before = await db.write(described)
        with pytest.raises(RuntimeError, match="power cut"):
            await migrate(db, scripts, head="0002")
        assert await db.write(described) == before
        assert await db.write(version) == "0001"
        assert await db.write(lambda tx: get_fact(tx, "a")) == "1"
        assert (await migrate(db, next_version(tmp_path, ADD), head="0002")).startswith("the schema went")

    async def test_a_second_of_two_steps_that_fails_undoes_the_first_too(
        self, db: Database, tmp_path: Path
    ) -> None:
        next_version(tmp_path, ADD)
        scripts = next_version(tmp_path, "raise RuntimeError('power cut')", "0003")
        before = await db.write(described)
        with pytest.raises(RuntimeError, match="power cut"):
            await migrate(db, scripts, head="0003")
        assert await db.write(described) == before


REBUILD = """with op.batch_alter_table("conversation") as table:
        table.add_column(sa.Column("mood", sa.Text(), nullable=False, server_default="calm"))
        table.create_check_constraint("mood_known", "mood <> ''")"""
"""On SQLite it makes a new table, copies the rows, and puts it in the place of one that others point at."""


def all_rows(tx: Connection) -> Counter[str]:
    """Count the rows of every table."""
    names = sa.inspect(tx).get_table_names()
    return Counter({name: tx.exec_driver_sql(f"select count(*) from {name}").scalar_one() for name in names})


class TestRebuild:
    """SQLite changes columns by building a table anew; that must not need the rows of others to be gone."""

    @pytest.fixture
    async def filled(self, db: Database, clock: FakeClock) -> Database:
        one = World(db=db, clock=clock, model=ScriptedModel(in_turn("fine")))
        for chat in ("1", "2"):
            await one.say("hello", chat)
        return db

    async def test_a_table_that_others_point_at_is_rebuilt_with_all_rows(
        self, filled: Database, tmp_path: Path
    ) -> None:
        before, schema = await filled.write(all_rows), await filled.write(described)
        assert before["conversation"] == 2
        assert before["entry"] == 4
        scripts = next_version(tmp_path, REBUILD)
        assert (await migrate(filled, scripts, head="0002")).startswith("the schema went from 0001 to 0002")
        assert await filled.write(all_rows) == before
        assert (await filled.write(described))["conversation"]["indexes"] == schema["conversation"]["indexes"]
        moods = await filled.write(lambda tx: tx.exec_driver_sql("select mood from conversation").all())
        assert [tuple(mood) for mood in moods] == [("calm",), ("calm",)]

    async def test_rows_may_still_not_point_at_nothing_afterwards(
        self, filled: Database, tmp_path: Path
    ) -> None:
        await migrate(filled, next_version(tmp_path, REBUILD), head="0002")
        with pytest.raises(sa.exc.IntegrityError):
            await filled.write(lambda tx: tx.exec_driver_sql("delete from conversation").rowcount)

    async def test_a_migration_that_leaves_rows_pointing_at_nothing_changes_nothing(
        self, filled: Database, tmp_path: Path
    ) -> None:
        before = await filled.write(all_rows)
        scripts = next_version(tmp_path, 'op.execute("delete from conversation")')
        with pytest.raises((StoreError, sa.exc.IntegrityError), match=r"would point at no row|foreign key"):
            await migrate(filled, scripts, head="0002")
        assert await filled.write(all_rows) == before
        assert await filled.write(version) == "0001"


@pytest.fixture
async def nodes(postgres_server: str, clock: FakeClock) -> AsyncIterator[list[Database]]:
    """Processes that share an empty database."""
    url = await _new_database(postgres_server)
    opened: list[Database] = [await open_database(url, clock) for _ in range(3)]
    yield opened
    for one in opened:
        await one.close()


class TestNodes:
    async def test_of_those_that_start_at_once_one_makes_the_schema(self, nodes: list[Database]) -> None:
        done = await asyncio.gather(*(migrate(node, SCRIPTS) for node in nodes))
        assert sorted(done) == [
            f"the schema is up to date ({HEAD})",
            f"the schema is up to date ({HEAD})",
            f"the schema was created ({HEAD})",
        ]

    async def test_of_those_that_upgrade_at_once_one_does_it(
        self, nodes: list[Database], tmp_path: Path
    ) -> None:
        await nodes[0].write(create)
        scripts = next_version(tmp_path, ADD)
        done = await asyncio.gather(*(migrate(node, scripts, head="0002") for node in nodes))
        assert sorted(done) == [
            "the schema is up to date (0002)",
            "the schema is up to date (0002)",
            "the schema went from 0001 to 0002",
        ]


@pytest.fixture
async def file(tmp_path: Path, clock: FakeClock) -> AsyncIterator[SqliteDatabase]:
    db = await open_database(f"sqlite+aiosqlite:///{tmp_path / 'crayfish.db'}", clock)
    assert isinstance(db, SqliteDatabase)
    await db.write(create)
    await db.write(lambda tx: set_fact(tx, "a", "1"))
    yield db
    await db.close()


class TestCopy:
    async def test_the_old_file_is_kept_whole_and_only_for_its_owner(
        self, file: SqliteDatabase, tmp_path: Path
    ) -> None:
        text = await migrate(file, next_version(tmp_path, ADD), head="0002")
        copy = tmp_path / "crayfish.db.0001.bak"
        assert text == f"the schema went from 0001 to 0002; the old file is kept as {copy}"
        assert copy.stat().st_mode & 0o777 == 0o600
        with closing(sqlite3.connect(copy)) as old:
            assert old.execute("select version_num from alembic_version").fetchall() == [("0001",)]
            assert old.execute("select name, value from fact").fetchall() == [("a", "1")]
            assert old.execute("pragma integrity_check").fetchone() == ("ok",)

    async def test_without_an_upgrade_there_is_no_copy(self, file: SqliteDatabase, tmp_path: Path) -> None:
        await migrate(file, SCRIPTS)
        assert not list(tmp_path.glob("*.bak"))

    async def test_a_copy_of_an_earlier_try_is_replaced(self, file: SqliteDatabase, tmp_path: Path) -> None:
        (tmp_path / "crayfish.db.0001.bak").write_text("half")
        await migrate(file, next_version(tmp_path, ADD), head="0002")
        with closing(sqlite3.connect(tmp_path / "crayfish.db.0001.bak")) as old:
            assert old.execute("select count(*) from fact").fetchone() == (1,)

    async def test_without_room_for_the_copy_nothing_is_upgraded(
        self, file: SqliteDatabase, tmp_path: Path
    ) -> None:
        copy = tmp_path / "crayfish.db.0001.bak"
        copy.mkdir()
        with pytest.raises(StoreError, match=f"could not be copied to {copy}"):
            await migrate(file, next_version(tmp_path, ADD), head="0002")
        assert await file.write(version) == "0001"


def test_a_start_on_an_up_to_date_database_does_not_load_alembic(tmp_path: Path) -> None:
    script = """
import asyncio, sys
from pathlib import Path
from gateway.clock import SystemClock
from gateway.config import bundled
from gateway.store.engine import open_database
from gateway.store.migrate import migrate

async def start() -> None:
    db = await open_database(f"sqlite+aiosqlite:///{sys.argv[1]}", SystemClock())
    print(await migrate(db, bundled("migrations")))
    await db.close()

asyncio.run(start())
print([name for name in sys.modules if name.partition(".")[0] in ("alembic", "mako")])
"""
    command = [sys.executable, "-c", script, str(tmp_path / "crayfish.db")]
    for done in ("was created", "is up to date"):
        result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
        assert result.stdout.splitlines() == [f"the schema {done} ({HEAD})", "[]"]
