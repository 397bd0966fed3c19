"""What the tables need no longer: found beside the writer, deleted in small pieces, never what waits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeAlias

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from gateway.store import search
from gateway.store.codec import paths_of
from gateway.store.tables import conversation, entry, inbound, outbound, poison, usage, verdict
from gateway.types import Address, Kind

BATCH = 500
"""Rows that one transaction deletes at most: a few milliseconds for whoever waits behind it."""

Key: TypeAlias = int | str
"""What names a row in its table."""


@dataclass(frozen=True, slots=True)
class Found:
    """Keys of rows to delete, and where to go on; `after` is None when there are no more."""

    keys: tuple[Key, ...]
    after: Key | None


@dataclass(frozen=True, slots=True)
class Gone:
    """What one transaction deleted: how many rows, and the files that only they named, by address."""

    rows: int
    files: tuple[tuple[Address, str], ...] = ()


Find: TypeAlias = Callable[[Connection, Key, float], Found]
"""Looks at the next `BATCH` rows after a key for those that are older than a time, by the store's clock."""

Delete: TypeAlias = Callable[[Connection, Sequence[Key]], Gone]
"""Deletes those of the keys that still may go: time has passed since they were found."""


@dataclass(frozen=True, slots=True)
class Sweep:
    """How the old rows of one kind are found and deleted. `start` is a key before every other."""

    name: str
    find: Find
    delete: Delete
    start: Key = 0


def _page(rows: Sequence[Any], old: Sequence[Any], before: float) -> Found:
    """Return what is to go of a page; ids and times grow together, so that a young row ends the search."""
    more = len(rows) == BATCH and rows[-1].at < before
    return Found(tuple(row.id for row in old), rows[-1].id if more else None)


_settled = inbound.c.seq.is_not(None)
_beside = sa.and_(inbound.c.seq.is_(None), sa.not_(inbound.c.wakes), inbound.c.prepare.is_(None))


def _inbound(tx: Connection, after: Key, wanted: sa.ColumnElement[bool]) -> Sequence[Any]:
    return tx.execute(
        sa.select(
            inbound.c.id, inbound.c.conversation_id, inbound.c.turn, inbound.c.at, wanted.label("wanted")
        )
        .where(inbound.c.id > after)
        .order_by(inbound.c.id)
        .limit(BATCH)
    ).all()


def _find_settled(tx: Connection, after: Key, before: float) -> Found:
    """Find what was taken in, but for that of each conversation's last turn and the last of its messages.

    The first names what a running turn answers, the second tells where the owner is to be reached.
    """
    rows = _inbound(tx, after, _settled)
    old = [row for row in rows if row.wanted and row.at < before]
    needed = {which: _needed(tx, which) for which in {row.conversation_id for row in old}}
    old = [row for row in old if not {("turn", row.turn), ("id", row.id)} & needed[row.conversation_id]]
    return _page(rows, old, before)


def _needed(tx: Connection, which: int) -> set[tuple[str, int]]:
    turn: int = tx.execute(sa.select(conversation.c.turn).where(conversation.c.id == which)).scalar_one()
    newest = tx.execute(
        sa.select(inbound.c.id)
        .where(
            inbound.c.conversation_id == which,
            inbound.c.kind == Kind.MESSAGE,
            inbound.c.turn.is_not(None),
            inbound.c.wakes,
        )
        .order_by(inbound.c.turn.desc(), inbound.c.id.desc())
        .limit(1)
    ).scalar_one_or_none()
    return {("turn", turn)} | ({("id", newest)} if newest is not None else set())


def _find_beside(tx: Connection, after: Key, before: float) -> Found:
    rows = _inbound(tx, after, _beside)
    return _page(rows, [row for row in rows if row.wanted and row.at < before], before)


def _delete_inbound(condition: sa.ColumnElement[bool]) -> Delete:
    statement = (
        sa.delete(inbound)
        .where(inbound.c.id.in_(sa.bindparam("keys", expanding=True)), condition)
        .returning(inbound.c.conversation_id, inbound.c.seq, inbound.c.body)
    )

    def delete(tx: Connection, keys: Sequence[Key]) -> Gone:
        rows = tx.execute(statement, {"keys": list(keys)}).all()
        # What a transcript has taken in keeps its files.
        unread = [(row.conversation_id, path) for row in rows if not row.seq for path in paths_of(row.body)]
        return Gone(len(rows), _placed(tx, unread))

    return delete


def _placed(tx: Connection, files: Sequence[tuple[int, str]]) -> tuple[tuple[Address, str], ...]:
    """Return files with the addresses of their conversations."""
    if not files:
        return ()
    which = {conversation_id for conversation_id, _ in files}
    rows = tx.execute(
        sa.select(conversation.c.id, conversation.c.address).where(conversation.c.id.in_(which))
    )
    addresses = {row.id: Address.parse(row.address) for row in rows}
    return tuple((addresses[conversation_id], path) for conversation_id, path in files)


# Not what may leave yet: pending and sending.
_left = outbound.c.state.in_(("sent", "unknown", "dead"))


def _find_outbound(tx: Connection, after: Key, before: float) -> Found:
    """Find what has left, but for the last message to each address: it tells whether the way there works."""
    rows = tx.execute(
        sa.select(outbound.c.id, outbound.c.address, outbound.c.at, _left.label("wanted"))
        .where(outbound.c.id > after)
        .order_by(outbound.c.id)
        .limit(BATCH)
    ).all()
    old = [row for row in rows if row.wanted and row.at < before]
    places = list({row.address for row in old})
    newest = sa.select(sa.func.max(outbound.c.id)).where(outbound.c.address.in_(places))
    last = set(tx.execute(newest.group_by(outbound.c.address)).scalars())
    return _page(rows, [row for row in old if row.id not in last], before)


def _find_verdicts(tx: Connection, after: Key, before: float) -> Found:
    rows = tx.execute(
        sa.select(verdict.c.id, verdict.c.at).where(verdict.c.id > after).order_by(verdict.c.id).limit(BATCH)
    ).all()
    return _page(rows, [row for row in rows if row.at < before], before)


def _find_poison(tx: Connection, after: Key, before: float) -> Found:
    keys = tx.execute(
        sa.select(poison.c.key)
        .where(poison.c.key > after, poison.c.at < before)
        .order_by(poison.c.key)
        .limit(BATCH)
    )
    found = tuple(keys.scalars())
    return Found(found, found[-1] if len(found) == BATCH else None)


def _find_days(tx: Connection, after: Key, before: float) -> Found:
    """Find the next day whose sums are old, by the clock on the wall: one day in a transaction."""
    until = datetime.fromtimestamp(before, UTC).date().isoformat()
    day = tx.execute(
        sa.select(sa.func.min(usage.c.day)).where(usage.c.day > after, usage.c.day < until)
    ).scalar_one()
    return Found((), None) if day is None else Found((day,), day)


def _delete_rows(key: sa.Column[Any], condition: sa.ColumnElement[bool]) -> Delete:
    statement = sa.delete(key.table).where(key.in_(sa.bindparam("keys", expanding=True)), condition)
    return lambda tx, keys: Gone(tx.execute(statement, {"keys": list(keys)}).rowcount)


SETTLED = Sweep("inbound", _find_settled, _delete_inbound(_settled))
BESIDE = Sweep("beside", _find_beside, _delete_inbound(_beside))
LEFT = Sweep("outbound", _find_outbound, _delete_rows(outbound.c.id, _left))
VERDICTS = Sweep("verdict", _find_verdicts, _delete_rows(verdict.c.id, sa.true()))
POISON = Sweep("poison", _find_poison, _delete_rows(poison.c.key, sa.true()), "")
USAGE = Sweep("usage", _find_days, _delete_rows(usage.c.day, sa.true()), "")


@dataclass(frozen=True, slots=True)
class Session:
    """A session of a conversation that has ended; `size` in characters, `last` is when it was added to."""

    conversation_id: int
    session: int
    size: int
    last: float


_current = (
    sa.select(conversation.c.session)
    .where(conversation.c.id == entry.c.conversation_id)
    .correlate(entry)
    .scalar_subquery()
)


def ended(tx: Connection) -> list[Session]:
    """Return the sessions that have ended, those that ended first before the others; reads every entry."""
    size = sa.func.sum(sa.func.length(entry.c.body))
    rows = tx.execute(
        sa.select(
            entry.c.conversation_id,
            entry.c.session,
            size.label("size"),
            sa.func.max(entry.c.at).label("last"),
        )
        .where(entry.c.session < _current)
        .group_by(entry.c.conversation_id, entry.c.session)
    )
    found = [Session(row.conversation_id, row.session, int(row.size), row.last) for row in rows]
    return sorted(found, key=lambda one: (one.last, one.conversation_id, one.session))


def forget(tx: Connection, one: Session) -> Gone:
    """Delete the next `BATCH` entries of a session that has ended."""
    here = sa.and_(
        entry.c.conversation_id == one.conversation_id,
        entry.c.session == one.session,
        entry.c.session < _current,
    )
    seqs = tx.execute(sa.select(entry.c.seq).where(here).order_by(entry.c.seq).limit(BATCH)).scalars().all()
    if not seqs:
        return Gone(0)
    rows = tx.execute(
        sa.delete(entry).where(here, entry.c.seq <= seqs[-1]).returning(entry.c.role, entry.c.body)
    ).all()
    files = [(one.conversation_id, path) for row in rows if row.role == "user" for path in paths_of(row.body)]
    search.forget(tx, one.conversation_id, seqs)
    return Gone(len(rows), _placed(tx, files))
