"""What many tests need: databases of both kinds, and time that moves when told."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import shutil
import subprocess
import tempfile
import uuid
from collections.abc import AsyncIterator, Generator, Iterator
from pathlib import Path

import asyncpg
import pytest
from hypothesis import HealthCheck, settings

from gateway.clock import Clock
from gateway.store.engine import Database, open_database
from gateway.store.migrate import create
from gateway.store.tables import HEAD, meta
from tests.fakes.clock import FakeClock

# A busy machine must not decide a test, and each run must try the same examples.
settings.register_profile(
    "crayfish", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("crayfish")

ROOT = Path(__file__).parent.parent
SHARED = Path(os.environ.get("CRAYFISH_SHARED", ROOT.parent / "shared"))

_BIN = next(iter(sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)), None)


def _as_postgres(*command: str) -> list[str]:
    """PostgreSQL refuses to run as root."""
    return ["runuser", "-u", "postgres", "--", *command] if os.geteuid() == 0 else list(command)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """A PostgreSQL of our own on a local socket; yields the URL without a database name."""
    if _BIN is None or not (_BIN / "initdb").exists():
        pytest.skip("no PostgreSQL binaries in /usr/lib/postgresql")
    folder = Path(tempfile.mkdtemp(prefix="crayfish-pg-"))
    try:
        if os.geteuid() == 0:
            shutil.chown(folder, "postgres")
        data = folder / "data"
        subprocess.run(
            _as_postgres(
                str(_BIN / "initdb"), "-N", "-D", str(data), "-A", "trust", "-U", "crayfish", "-E", "UTF8"
            ),
            check=True,
            capture_output=True,
            cwd=folder,
        )
        # No test pulls the plug; those that kill processes kill ours.
        lax = "-c fsync=off -c synchronous_commit=off -c full_page_writes=off"
        flags = f"-k {folder} -c listen_addresses='' -c max_connections=100 {lax}"
        control = str(_BIN / "pg_ctl")
        log = str(folder / "log")
        subprocess.run(
            _as_postgres(control, "-D", str(data), "-l", log, "-o", flags, "-w", "start"),
            check=True,
            capture_output=True,
            cwd=folder,
        )
        try:
            yield f"postgresql+asyncpg://crayfish@/{{name}}?host={folder}"
        finally:
            subprocess.run(
                _as_postgres(control, "-D", str(data), "-m", "immediate", "stop"),
                check=True,
                capture_output=True,
                cwd=folder,
            )
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect without a look for garbage: what is imported and collected stays to the end, and is much."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


async def _new_database(server: str) -> str:
    name = f"t{uuid.uuid4().hex[:12]}"
    admin = await _raw(server.format(name="postgres"))
    await admin.execute(f"CREATE DATABASE {name}")
    await admin.close()
    return server.format(name=name)


async def _raw(url: str) -> asyncpg.Connection:
    """Connect without SQLAlchemy, whose engine takes longer than what is done here."""
    return await asyncpg.connect(url.replace("+asyncpg", ""))


async def _migrated(url: str) -> str:
    db = await open_database(url, FakeClock())
    await db.write(create)
    await db.close()
    return url


async def _empty(url: str) -> None:
    """Take away what the test before left: its connections, rows and counters."""
    raw = await _raw(url)
    await raw.execute(
        "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity "
        "WHERE datname = current_database() AND pid <> pg_backend_pid();"
        + "".join(f"DELETE FROM {table.name};" for table in reversed(meta.sorted_tables))
        + f"UPDATE alembic_version SET version_num = '{HEAD}';"
        "SELECT setval(oid, 1, false) FROM pg_class WHERE relkind = 'S'"
    )
    await raw.close()


@pytest.fixture(scope="session")
def _sqlite_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with the schema, which a test copies."""
    path = tmp_path_factory.mktemp("schema") / "crayfish.db"
    asyncio.run(_migrated(f"sqlite+aiosqlite:///{path}"))
    return path


@pytest.fixture(scope="session")
def _postgres_url(postgres_server: str) -> str:
    """A database with the schema, which a test finds empty: to make a new one takes 0.15 s."""

    async def prepare() -> str:
        return await _migrated(await _new_database(postgres_server))

    return asyncio.run(prepare())


@pytest.fixture(params=["sqlite", "postgres"])
def kind(request: pytest.FixtureRequest) -> str:
    """Which kind of database a test gets, once each."""
    name: str = request.param
    return name


@pytest.fixture
def empty_url(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a database without a schema."""
    if kind == "sqlite":
        return f"sqlite+aiosqlite:///{tmp_path / 'crayfish.db'}"
    return asyncio.run(_new_database(request.getfixturevalue("postgres_server")))


@pytest.fixture
def url(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a database with the schema of today and no rows. Tests that change a schema take `empty_url`."""
    if kind == "sqlite":
        path = shutil.copy(request.getfixturevalue("_sqlite_file"), tmp_path / "crayfish.db")
        return f"sqlite+aiosqlite:///{path}"
    url: str = request.getfixturevalue("_postgres_url")
    asyncio.run(_empty(url))
    return url


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def db(url: str, clock: Clock) -> AsyncIterator[Database]:
    database = await open_database(url, clock)
    yield database
    await database.close()


@pytest.fixture(autouse=True)
def _log_level_as_it_was() -> Iterator[None]:
    """Commands that run inside a test set the level of all logging, which must not silence the next test."""
    level = logging.root.level
    yield
    logging.root.setLevel(level)
