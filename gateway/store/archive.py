"""What was said, also long ago: conversations, their sessions, their entries; read beside the writer."""

from __future__ import annotations

from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from gateway.store.tables import conversation, entry
from gateway.types import Address, Chat

PAGE = 500
"""Entries that are read at a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Talk:
    """A conversation: how many sessions and entries it has; `last` in UNIX seconds, None if it is empty."""

    id: int
    address: Address
    chat: Chat
    session: int
    sessions: int
    entries: int
    notes: int
    last: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A session: its number, how many entries it has, how often it was summed up, and its time."""

    session: int
    entries: int
    notes: int
    first: float
    last: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """An entry as it is stored; `body` and `usage` are JSON, see `codec`."""

    seq: int
    session: int
    turn: int
    role: str
    body: str
    usage: str | None
    at: float


_c, _e = conversation.c, entry.c
_notes = sa.func.sum(sa.case((_e.role == "note", 1), else_=0))
_TALKS = (
    sa.select(
        _c.id,
        _c.address,
        _c.chat,
        _c.session,
        sa.func.count(sa.distinct(_e.session)).label("sessions"),
        sa.func.count(_e.seq).label("entries"),
        sa.func.coalesce(_notes, 0).label("notes"),
        sa.func.max(_e.at).label("last"),
    )
    .select_from(conversation.outerjoin(entry, _e.conversation_id == _c.id))
    .group_by(_c.id, _c.address, _c.chat, _c.session)
)


def talks(tx: Connection, limit: int) -> list[Talk]:
    """Return the conversations that have entries, those used last first."""
    newest = sa.func.max(_e.at).desc()
    rows = tx.execute(_TALKS.having(sa.func.count(_e.seq) > 0).order_by(newest, _c.id).limit(limit))
    return [_talk(row) for row in rows]


def named(tx: Connection, name: str) -> list[Talk]:
    """Return the conversations of a name: `channel:chat:thread`, `channel:chat`, or only the chat's id."""
    match name.split(":", 2):
        case [_, _, _]:
            here = _c.address == Address.named(name).key
        case [_, _]:
            here = _c.address.startswith(f"{name}:", autoescape=True)
        case _:
            here = _c.address.contains(f":{name}:", autoescape=True)
    return [_talk(row) for row in tx.execute(_TALKS.where(here).order_by(_c.address))]


def _talk(row: sa.Row[int, str, str, int, int, int, int, float | None]) -> Talk:
    fields = dict(row._mapping)  # noqa: SLF001 - its public name, see SQLAlchemy's Row
    return Talk(**fields | {"address": Address.parse(row.address), "chat": Chat(row.chat)})


def parts(tx: Connection, conversation_id: int) -> list[Part]:
    """Return the sessions of a conversation, the oldest first."""
    rows = tx.execute(
        sa.select(
            _e.session,
            sa.func.count().label("entries"),
            _notes.label("notes"),
            sa.func.min(_e.at).label("first"),
            sa.func.max(_e.at).label("last"),
        )
        .where(_e.conversation_id == conversation_id)
        .group_by(_e.session)
        .order_by(_e.session)
    )
    return [Part(**row._mapping) for row in rows]  # noqa: SLF001 - see above


def page(tx: Connection, conversation_id: int, session: int | None, after: int) -> list[Row]:
    """Return the next entries with a seq above `after`, of one session or of all."""
    wanted = [] if session is None else [_e.session == session]
    rows = tx.execute(
        sa.select(_e.seq, _e.session, _e.turn, _e.role, _e.body, _e.usage, _e.at)
        .where(_e.conversation_id == conversation_id, _e.seq > after, *wanted)
        .order_by(_e.seq)
        .limit(PAGE)
    )
    return [Row(**row._mapping) for row in rows]  # noqa: SLF001 - see above
