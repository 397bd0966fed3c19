"""What many tests need: databases of both kinds, and time that moves when told."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import tempfile
import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, settings
from sqlalchemy.ext.asyncio import create_async_engine

from gateway.clock import Clock
from gateway.store.engine import Database, open_database
from gateway.store.migrate import create
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
                str(_BIN / "initdb"), "-D", str(data), "-A", "trust", "-U", "crayfish", "-E", "UTF8"
            ),
            check=True,
            capture_output=True,
            cwd=folder,
        )
        flags = f"-k {folder} -c listen_addresses='' -c fsync=off -c max_connections=100"
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


async def _new_database(server: str) -> str:
    name = f"t{uuid.uuid4().hex[:12]}"
    engine = create_async_engine(server.format(name="postgres"), isolation_level="AUTOCOMMIT")
    async with engine.connect() as connection:
        await connection.execute(sa.text(f"CREATE DATABASE {name}"))
    await engine.dispose()
    return server.format(name=name)


@pytest.fixture(params=["sqlite", "postgres"])
def empty_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a database without a schema, once of each kind."""
    if request.param == "sqlite":
        return f"sqlite+aiosqlite:///{tmp_path / 'crayfish.db'}"
    server: str = request.getfixturevalue("postgres_server")
    return asyncio.run(_new_database(server))


@pytest.fixture
def url(empty_url: str) -> str:
    """The URL of a database with the schema of today."""

    async def prepare() -> None:
        db = await open_database(empty_url, FakeClock())
        await db.write(create)
        await db.close()

    asyncio.run(prepare())
    return empty_url


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def db(url: str, clock: Clock) -> AsyncIterator[Database]:
    database = await open_database(url, clock)
    yield database
    await database.close()
