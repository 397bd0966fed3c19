"""Summaries in transcripts: a note is one more entry, and the conversation says from where on it reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from gateway.store.codec import dump, encode_usage
from gateway.store.tables import conversation, entry
from gateway.types import Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """A summary. `kept`: how many entries at the end of what the model sees stay as they are, at least one.

    `tokens` is what there was before, `model` wrote it, `usage` is what that cost with all that went with it.
    """

    text: str
    kept: int
    model: str = ""
    tokens: int = 0
    usage: Usage | None = None


_c, _e = conversation.c, entry.c
_ROWS = (
    sa.select(_e.seq, _e.role)
    .where(
        _e.conversation_id == sa.bindparam("which"),
        _e.session == sa.bindparam("current"),
        _e.seq >= sa.bindparam("kept"),
    )
    .order_by(_e.seq)
)
_HERE = sa.select(_c.session, _c.kept_seq, _c.note_seq).where(_c.id == sa.bindparam("which"))


def visible(rows: Sequence[Any], note_seq: int) -> Sequence[Any]:
    """Return the rows that a model sees, of those from `kept_seq` on: the note first, older ones not at all.

    A note of an earlier session is not among them, so that nothing has to be reset when a new one begins.
    """
    note = [row for row in rows if row.seq == note_seq]
    if not note:
        return rows
    return note + [row for row in rows if row.seq > note_seq or (row.seq < note_seq and row.role != "note")]


def write(tx: Connection, which: int, seq: int, turn: int, note: Note, now: float) -> None:
    """Add a note as entry `seq`, for which there is room, and let the conversation begin with it.

    What it stands for stays where it is. `turn` is that which paid for it, 0 if none was running.
    """
    here = tx.execute(_HERE, {"which": which}).one()
    rows = tx.execute(_ROWS, {"which": which, "current": here.session, "kept": here.kept_seq}).all()
    first = visible(rows, here.note_seq)[-note.kept].seq
    body = {"text": note.text, "kept_from": first, "tokens_before": note.tokens, "model": note.model}
    tx.execute(
        sa.insert(entry).values(
            conversation_id=which,
            seq=seq,
            session=here.session,
            turn=turn,
            role="note",
            body=dump(body),
            usage=encode_usage(note.usage) if note.usage is not None else None,
            at=now,
        )
    )
    tx.execute(
        sa.update(conversation).where(_c.id == which).values(note_seq=seq, kept_seq=first, wants_note=None)
    )


def want(tx: Connection, which: int, focus: str, now: float) -> None:
    """Ask for a note; `focus` is what must be kept above all, "" for nothing special."""
    ready = sa.func.coalesce(_c.ready_at, now)
    tx.execute(sa.update(conversation).where(_c.id == which).values(wants_note=focus, ready_at=ready))


def drop(tx: Connection, which: int) -> None:
    """Forget that a note was asked for."""
    tx.execute(sa.update(conversation).where(_c.id == which).values(wants_note=None))


def count(tx: Connection, which: int) -> int:
    """Return how often the running session was summed up."""
    here = sa.select(_c.session).where(_c.id == which).scalar_subquery()
    found = sa.select(sa.func.count()).where(
        _e.conversation_id == which, _e.session == here, _e.role == "note"
    )
    return int(tx.execute(found).scalar_one())
