"""Brings a database to the schema of this program; alembic is imported only when there is something to do."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from gateway.errors import ConfigError
from gateway.store.engine import Database, SqliteDatabase
from gateway.store.tables import HEAD, meta

_VERSION = sa.table("alembic_version", sa.column("version_num", sa.Text))


def version(tx: Connection) -> str | None:
    """Return the schema's version, None for an empty database."""
    if not sa.inspect(tx).has_table("alembic_version"):
        return None
    found: str | None = tx.execute(sa.select(_VERSION.c.version_num)).scalar_one_or_none()
    return found


def create(tx: Connection) -> None:
    """Make the newest schema in an empty database, as all migrations together would.

    A test holds both against each other; this way a first start does not pay for alembic.
    """
    meta.create_all(tx)
    tx.execute(sa.text("CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL PRIMARY KEY)"))
    tx.execute(sa.insert(_VERSION).values(version_num=HEAD))


def upgrade(tx: Connection, scripts: Path, target: str = "head") -> None:
    """Run the migrations up to `target` inside this transaction."""
    from alembic import command  # noqa: PLC0415 - 0.5 s that only a real upgrade pays
    from alembic.config import Config  # noqa: PLC0415 - likewise

    config = Config()
    config.set_main_option("script_location", str(scripts).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = tx
    command.upgrade(config, target)


def known(scripts: Path) -> set[str]:
    """Return the versions that this program has migrations for, named by their files."""
    return {path.name.split("_")[0] for path in (scripts / "versions").glob("[0-9]*.py")}


async def migrate(db: Database, scripts: Path) -> str:
    """Bring the schema up to date; return one line that says what was done.

    A SQLite file is copied first. Raises: ConfigError (a newer schema than this program knows), StoreError.
    """
    found = await db.write(version)
    if found == HEAD:
        return f"the schema is up to date ({HEAD})"
    if found is None:
        await db.write(create)
        return f"the schema was created ({HEAD})"
    if found not in known(scripts):
        raise ConfigError(
            f"the database has schema {found}, newer than this program knows ({HEAD}); "
            "install the newer crayfish-gateway again, or restore the copy made before its upgrade"
        )
    copy = await _backup(db, found)
    await db.write(lambda tx: upgrade(tx, scripts))
    return f"the schema went from {found} to {HEAD}" + (f"; the old file is kept as {copy}" if copy else "")


async def _backup(db: Database, found: str) -> Path | None:
    """Copy a SQLite file beside itself, with what is still in its log."""
    if not isinstance(db, SqliteDatabase):
        return None
    copy = db.path.with_name(f"{db.path.name}.{found}.bak")
    await asyncio.to_thread(_vacuum_into, db.path, copy)
    return copy


def _vacuum_into(path: Path, copy: Path) -> None:
    copy.unlink(missing_ok=True)
    connection = sqlite3.connect(path)
    try:
        connection.execute("VACUUM INTO ?", (str(copy),))
    finally:
        connection.close()
    copy.chmod(0o600)
