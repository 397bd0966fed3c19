"""Sessions of another program: stored as ended ones of the conversations where they belong, each once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from gateway.store.codec import encode
from gateway.store.dialect import PerDialect
from gateway.store.inbox import set_fact
from gateway.store.tables import conversation, entry, fact
from gateway.types import Address, Chat, Entry

PREFIX = "imported:"
"""What the facts begin with that tell which sessions are here."""

BATCH = 500
"""Entries that are written at a time."""

_c, _e = conversation.c, entry.c
_CONVERSATION = PerDialect(
    lambda insert: (
        insert(conversation)
        .values({name: sa.bindparam(name) for name in ("address", "chat", "created_at")})
        .on_conflict_do_nothing()
    )
)
_HERE = (
    sa.select(_c.id, _c.next_seq, _c.ready_at, _c.lease_until)
    .where(_c.address == sa.bindparam("where"))
    .with_for_update()
)


@dataclass(frozen=True, slots=True)
class Session:
    """A session of another program. `name` is the program's and its own; entries come with UNIX seconds."""

    name: str
    entries: Iterable[tuple[Entry, float]]


def known(tx: Connection) -> frozenset[str]:
    """Return the names of the sessions that are here."""
    rows = tx.execute(sa.select(fact.c.name).where(fact.c.name.startswith(PREFIX, autoescape=True)))
    return frozenset(name.removeprefix(PREFIX) for name in rows.scalars())


def write(tx: Connection, address: Address, chat: Chat, sessions: Sequence[Session], now: float) -> bool:
    """Store sessions, the oldest first, before those that a conversation has; False if it is at work now.

    Its own sessions get later numbers, the running one goes on. Entries belong to no turn of ours.
    """
    tx.execute(_CONVERSATION(tx), {"address": address.key, "chat": chat, "created_at": now})
    here = tx.execute(_HERE, {"where": address.key}).one()
    if here.ready_at is not None or here.lease_until > now:
        return False
    tx.execute(
        sa.update(entry).where(_e.conversation_id == here.id).values(session=_e.session + len(sessions))
    )
    seq = here.next_seq
    for number, one in enumerate(sessions, 1):
        for batch in _batches(one.entries):
            rows = [
                {"conversation_id": here.id, "seq": seq + offset, "session": number, "turn": 0, "at": at}
                | dict(zip(("role", "body"), encode(said), strict=True))
                for offset, (said, at) in enumerate(batch)
            ]
            tx.execute(sa.insert(entry), rows)
            seq += len(rows)
        set_fact(tx, f"{PREFIX}{one.name}", address.key)
    fresh = here.next_seq == 1
    tx.execute(
        sa.update(conversation)
        .where(_c.id == here.id)
        .values(session=_c.session + len(sessions), next_seq=seq, **({"kept_seq": seq} if fresh else {}))
    )
    return True


def _batches(entries: Iterable[tuple[Entry, float]]) -> Iterator[list[tuple[Entry, float]]]:
    batch: list[tuple[Entry, float]] = []
    for one in entries:
        batch.append(one)
        if len(batch) == BATCH:
            yield batch
            batch = []
    if batch:
        yield batch
