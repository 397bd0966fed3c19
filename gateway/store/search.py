"""What was said in conversations, found by the same terms as notes.

Turns pay nothing for it: a transcript is taken in where it has grown since, when somebody searches it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, tzinfo

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from gateway.memory.rank import best_lines
from gateway.memory.words import VERSION, terms
from gateway.store import passages
from gateway.store.dialect import PerDialect
from gateway.store.history import said
from gateway.store.passages import Hit, Looked, Passage
from gateway.store.tables import conversation, entry, passage, searchable
from gateway.types import INNER, Json

CORPUS = "chats"

BATCH = 500
"""Entries that are taken in at once."""

LONGEST = 20_000
"""Characters of a message that can be found."""


@dataclass(frozen=True, slots=True)
class Unread:
    """Entries `(seq, role, body)` of a conversation after `seq` and up to `last`, not yet searchable."""

    conversation_id: int
    seq: int
    last: int
    entries: Sequence[tuple[int, str, str]]


@dataclass(frozen=True, slots=True)
class Said:
    """Something that was said: `address` is the key of the conversation, `at` UNIX seconds."""

    address: str
    seq: int
    role: str
    at: float
    text: str
    score: float

    def when(self, zone: tzinfo) -> str:
        """Return the local time at which it was said."""
        return f"{datetime.fromtimestamp(self.at, zone):%Y-%m-%d %H:%M}"


_SEEN = PerDialect(
    lambda insert: (mark := insert(searchable)).on_conflict_do_update(
        index_elements=["conversation_id"], set_={"seq": mark.excluded.seq}
    )
)


def unread(tx: Connection, which: int | None, batch: int = BATCH) -> Unread | None:
    """Return the next entries to take in, of one conversation or of any; None if there are none."""
    where = passages.known(tx, CORPUS)
    fresh = where is None or where.version != VERSION
    seen = sa.literal(0) if fresh else sa.func.coalesce(searchable.c.seq, 0)
    newest = (conversation.c.next_seq - 1).label("newest")
    behind = sa.select(conversation.c.id, newest, seen.label("seq")).where(conversation.c.next_seq - 1 > seen)
    if not fresh:
        behind = behind.outerjoin(searchable, searchable.c.conversation_id == conversation.c.id)
    inner = [conversation.c.address.startswith(f"{channel}:") for channel in sorted(INNER)]
    behind = behind.where(~sa.or_(*inner))
    if which is not None:
        behind = behind.where(conversation.c.id == which)
    row = tx.execute(behind.order_by(conversation.c.id).limit(1)).one_or_none()
    if row is None:
        return None
    rows = tx.execute(
        sa.select(entry.c.seq, entry.c.role, entry.c.body)
        .where(entry.c.conversation_id == row.id, entry.c.seq > row.seq, entry.c.seq <= row.newest)
        .order_by(entry.c.seq)
        .limit(batch)
    )
    entries = [(one.seq, one.role, one.body) for one in rows]
    return Unread(row.id, row.seq, entries[-1][0] if len(entries) == batch else row.newest, entries)


def prepare(found: Unread) -> list[Passage]:
    """Return what people can find of these entries; tools' results are not among it."""
    texts = [(seq, _text(role, body)) for seq, role, body in found.entries]
    return [Passage(seq, seq, terms(text[:LONGEST])) for seq, text in texts if text]


def take_in(tx: Connection, found: Unread, prepared: Sequence[Passage]) -> None:
    """Make entries searchable, unless somebody else has done so meanwhile."""
    where = passages.opened(tx, CORPUS)
    if where.version != VERSION:
        where = passages.clear(tx, where)
        tx.execute(sa.delete(searchable))
    here = searchable.c.conversation_id == found.conversation_id
    if (tx.execute(sa.select(searchable.c.seq).where(here)).scalar_one_or_none() or 0) != found.seq:
        return
    passages.add(tx, where, found.conversation_id, prepared)
    tx.execute(_SEEN(tx), {"conversation_id": found.conversation_id, "seq": found.last})


def look(tx: Connection, text: str, which: int | None) -> Looked:
    """Return what was said in one conversation, or in any, that may have the words of `text`."""
    where = passages.known(tx, CORPUS)
    return Looked() if where is None else passages.look(tx, where, text, which)


def found(tx: Connection, hits: Iterable[Hit], idf: Mapping[str, float]) -> list[Said]:
    """Return what was said there; what is no longer in a transcript is left out."""
    scores = {hit.id: hit.score for hit in hits}
    rows = tx.execute(
        sa.select(passage.c.id, entry.c.seq, entry.c.role, entry.c.body, entry.c.at, conversation.c.address)
        .join(conversation, conversation.c.id == passage.c.source)
        .join(entry, sa.and_(entry.c.conversation_id == conversation.c.id, entry.c.seq == passage.c.first))
        .where(passage.c.id.in_(list(scores)))
    ).all()
    best = sorted(rows, key=lambda row: (-scores[row.id], -row.id))
    shown = [best_lines(_text(row.role, row.body), idf)[1] for row in best]
    return [
        Said(row.address, row.seq, row.role, row.at, text, scores[row.id])
        for row, text in zip(best, shown, strict=True)
    ]


def forget(tx: Connection, which: int, seqs: Sequence[int]) -> None:
    """Forget a part of a transcript that is deleted, from the first to the last of `seqs`."""
    where = passages.known(tx, CORPUS)
    if where is not None and seqs:
        passages.remove(tx, passages.opened(tx, CORPUS), which, seqs[0], seqs[-1])


def _text(role: str, body: str) -> str:
    try:
        found: Json = json.loads(body)
        shown = said(role, found) if role in ("user", "assistant") else None
    except (ValueError, KeyError, TypeError, AttributeError):
        return ""  # an entry that can't be read is told of by those who need it
    return str(shown["text"]) if shown else ""
