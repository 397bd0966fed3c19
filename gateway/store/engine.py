"""Databases: where transactions run. A transaction is a plain function of a Connection (decisions 2)."""

from __future__ import annotations

import asyncio
import fcntl
import logging
import math
import os
import queue
import sqlite3
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeAlias, TypeVar

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.engine.url import URL
from sqlalchemy.pool import ConnectionPoolEntry

from gateway.clock import Clock
from gateway.errors import AlreadyRunning, ConfigError, StoreError

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncEngine

log = logging.getLogger(__name__)

T = TypeVar("T")
Work: TypeAlias = Callable[[Connection], T]

BATCH = 256
"""Transactions that may share one commit."""


class Database(Protocol):
    """Runs transactions. `exclusive`: no other process writes here, so what the dead held is free at once."""

    @property
    def exclusive(self) -> bool: ...

    @property
    def failing(self) -> bool:
        """Return whether the last transaction met an outage."""
        ...

    async def write(self, work: Work[T], *, durable: bool = True) -> T:
        """Run `work` in a transaction of its own and commit it.

        `durable` False: a power loss (not a crash) may undo the commit; for what is only paid again then.

        Raises: StoreError (nothing was stored), and whatever `work` raises (rolled back).
        """
        ...

    async def read(self, work: Work[T]) -> T:
        """Run `work` on a snapshot, beside the writer. Raises: StoreError."""
        ...

    def now(self) -> float:
        """Return the time that leases are measured in."""
        ...

    async def close(self) -> None: ...


_REMEDIES = {
    "disk is full": "make room",
    "disk I/O error": "look after the disk",
    "locked": "end the other program that has it open",
    "malformed": "restore a backup, or set [store] url to another file",
    "readonly": "make it writable",
}
"""What helps, by the words of SQLite."""


@dataclass(slots=True)
class _Outage:
    """Tells the log once when the database begins to fail and once when it works again, not at each try."""

    place: str
    failing: bool = False

    def failed(self, error: BaseException) -> StoreError:
        """Return what the caller hears."""
        reason = _reason(error)
        remedy = next((f"; {text}" for sign, text in _REMEDIES.items() if sign in reason), "")
        failure = StoreError(f"the database {self.place} could not store it: {reason}{remedy}")
        failure.__cause__ = error
        if not self.failing:
            log.error("store.failing", extra={"problem": str(failure)})
        self.failing = True
        return failure

    def over(self) -> None:
        """Note that a transaction was committed."""
        if self.failing:
            log.warning("store.works_again")
        self.failing = False


@dataclass(slots=True)
class _Item(Generic[T]):
    work: Work[T]
    durable: bool
    future: asyncio.Future[T]
    alters: bool = False


def _pragmas(connection: sqlite3.Connection, _record: object) -> None:
    connection.isolation_level = None  # SQLAlchemy's begin event decides how a transaction starts
    cursor = connection.cursor()
    # A page cache of 1 MB: what it does not hold, the system's does.
    for pragma in (
        *("journal_mode=WAL", "synchronous=FULL", "busy_timeout=5000"),
        *("foreign_keys=ON", "cache_size=-1000"),
    ):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def _begin_immediate(connection: Connection) -> None:
    connection.exec_driver_sql("BEGIN IMMEDIATE")


class SqliteDatabase:
    """One writer thread with the only writing connection; what waits together shares one commit.

    A second gateway on the same file is refused by a lock beside it. Only `open_sqlite` makes one.
    """

    exclusive = True

    def __init__(self, url: URL, clock: Clock, lock: int) -> None:
        self._url = url
        self._clock = clock
        self._lock = lock
        self._engine: Engine = sa.create_engine(url.set(drivername="sqlite"), poolclass=sa.StaticPool)
        event.listen(self._engine, "connect", _pragmas)
        event.listen(self._engine, "begin", _begin_immediate)
        # Here and not in the thread, so that a file that is no database is the opener's trouble.
        self._writer = self._engine.connect()
        self._queue: queue.SimpleQueue[_Item[Any] | None] = queue.SimpleQueue()
        self._reader: AsyncEngine | None = None
        self._modes = ("FULL", "ON")  # as `_pragmas` has set them
        self._closed = False
        self._outage = _Outage(url.database or "")
        self._thread = threading.Thread(target=self._run, name="store-writer", daemon=True)
        self._thread.start()

    @property
    def path(self) -> Path:
        """Return the file."""
        return Path(self._url.database or "")

    @property
    def failing(self) -> bool:
        return self._outage.failing

    def now(self) -> float:
        return self._clock.now()

    async def write(self, work: Work[T], *, durable: bool = True) -> T:
        return await self._hand_over(work, durable=durable)

    async def alter(self, work: Work[T]) -> T:
        """Run a change of the schema like `write`, but see to foreign keys only at the end.

        What SQLite's ALTER TABLE can't do is done by making a table anew, and the old one can't be dropped
        while rows of others are held to what they point at. Raises: StoreError, also if any row points at
        nothing then; whatever `work` raises.
        """
        return await self._hand_over(work, durable=True, alters=True)

    async def _hand_over(self, work: Work[T], *, durable: bool, alters: bool = False) -> T:
        if self._closed:
            raise StoreError("the database is closed")
        item = _Item(work, durable, asyncio.get_running_loop().create_future(), alters)
        self._queue.put(item)
        # A transaction that was handed over will run: a caller that is cancelled must not be told otherwise.
        return await asyncio.shield(item.future)

    async def read(self, work: Work[T]) -> T:
        if self._reader is None:
            self._reader = _read_only(self._url)
        return await _read(self._reader, work)

    async def close(self) -> None:
        """Finish what was handed over, then let go of the file."""
        self._closed = True
        self._queue.put(None)
        await asyncio.to_thread(self._thread.join)
        if self._reader is not None:
            await self._reader.dispose()
        self._engine.dispose()
        os.close(self._lock)

    def _run(self) -> None:
        with self._writer as connection:
            while (item := self._queue.get()) is not None:
                batch = [item]
                ended = False
                while len(batch) < BATCH and not self._queue.empty():
                    more = self._queue.get()
                    if more is None:
                        ended = True
                        break
                    batch.append(more)
                self._commit(connection, batch)
                if ended:
                    return

    def _commit(self, connection: Connection, batch: list[_Item[Any]]) -> None:
        """Run each piece of work in a savepoint, commit once, then tell the callers."""
        outcomes: list[tuple[_Item[Any], Any, BaseException | None]] = []
        alters = any(item.alters for item in batch)
        try:
            self._prepare(connection, durable=any(item.durable for item in batch), alters=alters)
            connection.begin()
            outcomes = [(item, *_attempt(connection, item.work, alone=len(batch) == 1)) for item in batch]
            transaction = connection.get_transaction()
            if transaction is not None and transaction.is_active:
                if alters:
                    _check_references(connection)
                transaction.commit()
            self._outage.over()
        except Exception as error:  # noqa: BLE001 - the root of the thread: whatever it was, the callers wait
            _abandon(connection)
            failure = self._outage.failed(error) if _is_outage(error) else error
            outcomes = [(item, None, failure) for item in batch]
        _tell(outcomes)

    def _prepare(self, connection: Connection, *, durable: bool, alters: bool) -> None:
        """Set what holds for the next transaction and can't be set inside of it."""
        modes = ("FULL" if durable else "NORMAL", "OFF" if alters else "ON")
        for name, mode, before in zip(("synchronous", "foreign_keys"), modes, self._modes, strict=True):
            if mode != before:
                raw = connection.connection.cursor()
                raw.execute(f"PRAGMA {name}={mode}")
                raw.close()
        self._modes = modes


def _check_references(connection: Connection) -> None:
    """Raise StoreError if a row points at one that is not there."""
    lost = connection.exec_driver_sql("PRAGMA foreign_key_check").first()
    if lost is not None:
        raise StoreError(
            f"nothing was changed, because rows of the table {lost[0]} would point at no row of {lost[2]}; "
            "restore a backup that is whole"
        )


def _attempt(connection: Connection, work: Work[Any], *, alone: bool) -> tuple[Any, BaseException | None]:
    """Run one piece of work so that its failure undoes only itself."""
    savepoint = None if alone else connection.begin_nested()
    try:
        result = work(connection)
    except BaseException as error:
        if _is_outage(error):
            raise
        _undo(connection, savepoint)
        return None, error
    if savepoint is not None:
        savepoint.commit()
    return result, None


def _abandon(connection: Connection) -> None:
    """End a failed transaction, whoever still holds it open."""
    connection.rollback()
    # SQLite has often rolled back by itself, as when the disk is full; but after a refused COMMIT it has
    # not, and SQLAlchemy believes that it has.
    raw: Any = connection.connection.dbapi_connection
    if raw.in_transaction:
        raw.rollback()


def _is_outage(error: BaseException) -> bool:
    """Return whether the database is at fault, and not the statement: only then a repeat makes sense."""
    ours = sa.exc.IntegrityError | sa.exc.ProgrammingError | sa.exc.DataError
    if isinstance(error, sa.exc.DBAPIError):
        return not isinstance(error, ours)
    return isinstance(error, OSError | sqlite3.Error | sa.exc.TimeoutError)


def _collided(error: BaseException) -> bool:
    """Return whether PostgreSQL undid a transaction only because another one was in its way."""
    return getattr(getattr(error, "orig", None), "sqlstate", None) in ("40P01", "40001")


def _undo(connection: Connection, savepoint: sa.engine.NestedTransaction | None) -> None:
    if savepoint is not None:
        savepoint.rollback()
    else:
        connection.rollback()


def _tell(outcomes: list[tuple[_Item[Any], Any, BaseException | None]]) -> None:
    """Resolve the futures, with one wake-up of each event loop."""
    loops = {id(loop): loop for loop in (item.future.get_loop() for item, _, _ in outcomes)}
    for loop in loops.values():
        mine = [outcome for outcome in outcomes if outcome[0].future.get_loop() is loop]
        try:
            loop.call_soon_threadsafe(_resolve, mine)
        except RuntimeError:  # the loop is closed: nobody waits any more
            log.debug("store.unheard")


def _resolve(outcomes: list[tuple[_Item[Any], Any, BaseException | None]]) -> None:
    for item, result, error in outcomes:
        if item.future.done():
            continue
        if error is None:
            item.future.set_result(result)
        else:
            item.future.set_exception(error)


def _reason(error: BaseException) -> str:
    """Return the driver's own words, without the statement and its values."""
    origin = getattr(error, "orig", None) or error
    return str(origin).splitlines()[0] if str(origin) else type(origin).__name__


async def _read(engine: AsyncEngine, work: Work[T]) -> T:
    try:
        async with engine.connect() as connection:
            return await connection.run_sync(work)
    except (sa.exc.SQLAlchemyError, OSError) as error:
        if not _is_outage(error):
            raise
        raise StoreError(f"the database could not be read: {_reason(error)}") from error


class PostgresDatabase:
    """The same functions on asyncpg; the server's clock decides about leases. `open_postgres` makes one."""

    exclusive = False

    def __init__(self, engine: AsyncEngine, clock: Clock, offset: float) -> None:
        self._engine = engine
        self._clock = clock
        self._offset = offset
        self._outage = _Outage(place(engine.url))
        self._writing: set[asyncio.Future[Any]] = set()

    @property
    def failing(self) -> bool:
        return self._outage.failing

    def now(self) -> float:
        return self._clock.now() + self._offset

    async def write(self, work: Work[T], *, durable: bool = True) -> T:
        def run(connection: Connection) -> T:
            if not durable:
                connection.exec_driver_sql("SET LOCAL synchronous_commit = off")
            return work(connection)

        # Like the writer thread: a transaction that began is finished even if its caller is cancelled.
        task = asyncio.ensure_future(self._write(run))
        self._writing.add(task)
        task.add_done_callback(self._writing.discard)
        return await asyncio.shield(task)

    async def _write(self, work: Work[T], tries: int = 3) -> T:
        try:
            async with self._engine.begin() as connection:
                result = await connection.run_sync(work)
        except (sa.exc.SQLAlchemyError, OSError) as error:
            if _collided(error) and tries > 1:
                return await self._write(work, tries - 1)
            if not _is_outage(error):
                raise
            raise self._outage.failed(error) from error
        self._outage.over()
        return result

    async def read(self, work: Work[T]) -> T:
        return await _read(self._engine, work)

    async def close(self) -> None:
        """Finish what was begun, then hang up."""
        await asyncio.gather(*self._writing, return_exceptions=True)
        await self._engine.dispose()


class Reader:
    """Reads a database beside the gateway that may be writing to it. Only `open_reader` makes one."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine

    async def read(self, work: Work[T]) -> T:
        """Run `work` on a snapshot. Raises: StoreError."""
        return await _read(self._engine, work)

    async def close(self) -> None:
        """Let go of it."""
        await self._engine.dispose()


def open_reader(url: str) -> Reader:
    """Open what `[store] url` names to look at it, whoever uses it. Raises: ConfigError."""
    from sqlalchemy.ext.asyncio import create_async_engine  # noqa: PLC0415 - 80 ms that no turn needs

    parsed = sa.make_url(url)
    if parsed.get_backend_name() != "sqlite":
        return Reader(create_async_engine(parsed.set(drivername="postgresql+asyncpg")))
    if not Path(parsed.database or "").is_file():
        raise ConfigError(f"there is no database {parsed.database}; has `crayfish run` ever been started?")
    return Reader(_read_only(parsed))


def _read_only(url: URL) -> AsyncEngine:
    from sqlalchemy.ext.asyncio import create_async_engine  # noqa: PLC0415 - 80 ms that no turn needs

    file = Path(url.database or "").absolute().as_uri()
    return create_async_engine(
        url.set(drivername="sqlite+aiosqlite", database=file, query={"mode": "ro", "uri": "true"})
    )


def _hold(path: Path) -> int:
    """Take the lock beside the file; return its descriptor.

    Raises: AlreadyRunning if another gateway has it, ConfigError if the folder can't be written.
    """
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(path.with_name(path.name + ".lock"), os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise ConfigError(
            f"the database folder {path.parent} can't be written ({error.strerror}); "
            "make it writable, or set [store] url to another place"
        ) from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(lock)
        raise AlreadyRunning(
            f"another gateway is running on {path}; stop it, or set [store] url to another file"
        ) from error
    return lock


def open_sqlite(url: URL, clock: Clock) -> SqliteDatabase:
    """Open the file that the URL names, alone.

    Raises: ConfigError.
    """
    if not url.database or url.database == ":memory:":
        raise ConfigError("[store] url must name a file, e.g. sqlite+aiosqlite:////home/me/crayfish.db")
    path = Path(url.database)
    lock = _hold(path)
    try:
        path.touch(mode=0o600, exist_ok=True)
        return SqliteDatabase(url, clock, lock)
    except (sa.exc.DBAPIError, OSError) as error:
        os.close(lock)
        raise ConfigError(
            f"the database {path} can't be opened: {_reason(error)}; "
            "restore a backup, or set [store] url to another file"
        ) from error


def place(url: URL) -> str:
    """Return how a server's database is called in messages, without its password."""
    return f"{url.database} at {url.query.get('host') or url.host or 'localhost'}:{url.port or 5432}"


_RESTED: Final = 1.0
"""Seconds after which a connection that nobody used is asked whether it is still one."""


def _rests(_raw: object, record: ConnectionPoolEntry) -> None:
    record.info["rests"] = time.monotonic()


def _check_alive(_raw: object, record: ConnectionPoolEntry, _proxy: object) -> None:
    """Do what `pool_pre_ping` does, but not before each transaction: a ping is three round trips.

    Raises: DisconnectionError, whereupon the pool connects anew.
    """
    connection: Any = record.dbapi_connection
    try:
        if connection.driver_connection.is_closed():
            raise sa.exc.DisconnectionError
        if time.monotonic() - record.info.get("rests", math.inf) > _RESTED:
            connection.ping()
    except (connection.dbapi.Error, OSError) as error:
        raise sa.exc.DisconnectionError from error


async def open_postgres(url: URL, clock: Clock) -> PostgresDatabase:
    """Connect once, to learn that it works and what time it is there.

    Raises: ConfigError.
    """
    try:
        from sqlalchemy.ext.asyncio import create_async_engine  # noqa: PLC0415 - 80 ms that SQLite users save

        engine = create_async_engine(url, pool_size=8)
        event.listen(engine.sync_engine, "checkin", _rests)
        event.listen(engine.sync_engine, "checkout", _check_alive)
        async with asyncio.timeout(10), engine.connect() as connection:
            there = float(
                (
                    await connection.execute(sa.text("select extract(epoch from clock_timestamp())"))
                ).scalar_one()
            )
    except ImportError as error:
        raise ConfigError(
            "[store] url names PostgreSQL, whose driver is missing; pip install 'crayfish-gateway[postgres]'"
        ) from error
    except (sa.exc.SQLAlchemyError, OSError) as error:
        raise ConfigError(
            f"the database {place(url)} can't be reached ({_reason(error)}); start it, or correct [store] url"
        ) from error
    except (TypeError, ValueError, OverflowError) as error:  # the driver's words for a bad option or port
        raise ConfigError(f"[store] url holds what the driver does not take ({error}); correct it") from error
    return PostgresDatabase(engine, clock, there - clock.now())


async def open_database(url: str, clock: Clock) -> SqliteDatabase | PostgresDatabase:
    """Open what `[store] url` names.

    Raises: ConfigError.
    """
    try:
        parsed = sa.make_url(url)
    except sa.exc.ArgumentError as error:
        raise ConfigError(
            "[store] url can't be read; write sqlite+aiosqlite:///path or postgresql+asyncpg://user@host/name"
        ) from error
    match parsed.get_backend_name():
        case "sqlite":
            return open_sqlite(parsed, clock)
        case "postgresql":
            return await open_postgres(parsed.set(drivername="postgresql+asyncpg"), clock)
        case other:
            raise ConfigError(f"[store] url names {other}; only sqlite and postgresql are known")
