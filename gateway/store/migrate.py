"""Brings a database to the schema of this program; alembic is imported only when there is something to do."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing, suppress
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from gateway.errors import ConfigError, StoreError
from gateway.store.engine import Database, SqliteDatabase
from gateway.store.tables import HEAD, meta

_VERSION = sa.table("alembic_version", sa.column("version_num", sa.Text))
_UP_TO_DATE = "the schema is up to date ({})"
_LOCK = 0x6372617966697368
"""Any number that all nodes share."""


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
    tx.exec_driver_sql(
        "CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL, "
        "CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num))"
    )
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


async def migrate(db: Database, scripts: Path, head: str = HEAD) -> str:
    """Bring the schema up to date; return one line that says what was done.

    A SQLite file is copied first. Raises: ConfigError (a newer schema than this program knows, or tables
    of another program), StoreError.
    """
    found = await db.write(version)
    if found == head:
        return _UP_TO_DATE.format(head)
    copy = await _backup(db, found) if found in known(scripts) else None
    change = db.alter if isinstance(db, SqliteDatabase) else db.write
    done = await change(lambda tx: _bring(tx, scripts, head))
    return f"{done}; the old file is kept as {copy}" if copy else done


def _bring(tx: Connection, scripts: Path, head: str) -> str:
    """Do what is to be done in one transaction, so that an interruption leaves nothing half-done."""
    if tx.dialect.name == "postgresql":
        # Of nodes that start together one does it; the others wait here and find it done.
        tx.execute(sa.select(sa.func.pg_advisory_xact_lock(_LOCK)))
    found = version(tx)
    if found == head:
        return _UP_TO_DATE.format(head)
    if found is None:
        _check_free(tx)
        create(tx)
        return f"the schema was created ({head})"
    if found not in known(scripts):
        raise ConfigError(
            f"the database has schema {found}, newer than this program knows ({head}); "
            "install the newer crayfish-gateway again, or restore the copy made before its upgrade"
        )
    upgrade(tx, scripts, head)
    return f"the schema went from {found} to {head}"


def _check_free(tx: Connection) -> None:
    """Refuse to move in where another program lives; a server's database may be shared, a file is not."""
    theirs = set(sa.inspect(tx).get_table_names())
    if tx.dialect.name != "sqlite":
        theirs &= {*meta.tables, _VERSION.name}
    if theirs:
        names = ", ".join(sorted(theirs)[:3])
        raise ConfigError(
            f"the database holds tables of another program ({names}); set [store] url to an empty one"
        )


async def _backup(db: Database, found: str) -> Path | None:
    """Copy a SQLite file beside itself, with what is still in its log."""
    if not isinstance(db, SqliteDatabase):
        return None
    copy = db.path.with_name(f"{db.path.name}.{found}.bak")
    await asyncio.to_thread(_vacuum_into, db.path, copy)
    return copy


def _vacuum_into(path: Path, copy: Path) -> None:
    try:
        copy.unlink(missing_ok=True)
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("VACUUM INTO ?", (str(copy),))
        copy.chmod(0o600)
    except (sqlite3.Error, OSError) as error:
        with suppress(OSError):
            copy.unlink()
        raise StoreError(
            f"the database could not be copied to {copy}, so it was not upgraded: {error}; make room there"
        ) from error
