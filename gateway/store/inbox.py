"""Takes stimuli in, each once, whatever the platform repeats."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from gateway.channel import Cursor, Poison
from gateway.store import outbox
from gateway.store.codec import encode_stimulus
from gateway.store.dialect import PerDialect
from gateway.store.engine import Database
from gateway.store.tables import conversation, fact, inbound, poison
from gateway.types import Outgoing, Stimulus

Command: TypeAlias = Callable[[Connection, int], str]
"""Acts inside the transaction that stores the command; gets the conversation's id, returns the answer."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """A stimulus that passed the gate. With `command` it is answered at once and never reaches a turn."""

    stimulus: Stimulus
    command: Command | None = None
    interrupts: bool = False


@dataclass(slots=True)
class Taken:
    """What one transaction stored: how many were new, and which conversations a command interrupted."""

    new: int = 0
    interrupted: list[int] = field(default_factory=list)


_CONVERSATION = PerDialect(
    lambda insert: (
        insert(conversation)
        .values(
            address=sa.bindparam("address"),
            chat=sa.bindparam("chat"),
            created_at=sa.bindparam("now"),
        )
        # An update, even of nothing, locks the row: `release` and `put` of one conversation take turns.
        .on_conflict_do_update(index_elements=["address"], set_={"chat": sa.bindparam("chat")})
        .returning(conversation.c.id)
    )
)
_INBOUND = PerDialect(
    lambda insert: (
        insert(inbound)
        .values(
            {
                name: sa.bindparam(name)
                for name in ("key", "message_key", "conversation_id", "kind", "body", "at", "seq")
            }
        )
        .on_conflict_do_nothing()
        .returning(inbound.c.id)
    )
)
_READY = (
    sa.update(conversation)
    .where(conversation.c.id == sa.bindparam("which"))
    .values(ready_at=sa.func.coalesce(conversation.c.ready_at, sa.bindparam("now")))
)
_FACT = PerDialect(
    lambda insert: (
        insert(fact)
        .values(name=sa.bindparam("name"), value=sa.bindparam("value"))
        .on_conflict_do_update(index_elements=["name"], set_={"value": sa.bindparam("value")})
    )
)
_POISON = PerDialect(
    lambda insert: (
        insert(poison)
        .values({name: sa.bindparam(name) for name in ("key", "channel", "body", "problem", "at")})
        .on_conflict_do_nothing()
    )
)


def set_fact(tx: Connection, name: str, value: str) -> None:
    """Store one value under a name."""
    tx.execute(_FACT(tx), {"name": name, "value": value})


def get_fact(tx: Connection, name: str) -> str | None:
    """Return the value, None if it was never set."""
    value: str | None = tx.execute(sa.select(fact.c.value).where(fact.c.name == name)).scalar_one_or_none()
    return value


def _take(tx: Connection, arrival: Arrival, now: float, taken: Taken) -> None:
    stimulus = arrival.stimulus
    which: int = tx.execute(
        _CONVERSATION(tx), {"address": stimulus.address.key, "chat": stimulus.chat, "now": now}
    ).scalar_one()
    row: dict[str, Any] = {
        "key": stimulus.key,
        "message_key": stimulus.message_key,
        "conversation_id": which,
        "kind": stimulus.kind,
        "body": encode_stimulus(stimulus),
        "at": now,
        "seq": None if arrival.command is None else 0,
    }
    if tx.execute(_INBOUND(tx), row).scalar_one_or_none() is None:
        return
    taken.new += 1
    if arrival.command is None:
        tx.execute(_READY, {"which": which, "now": now})
        return
    answer = arrival.command(tx, which)
    if answer:
        outbox.put(tx, [Outgoing(key=f"command:{stimulus.key}", address=stimulus.address, text=answer)], now)
    if arrival.interrupts:
        taken.interrupted.append(which)


def put(
    tx: Connection,
    arrivals: Sequence[Arrival],
    refusals: Sequence[Outgoing],
    cursor: Cursor | None,
    bad: Sequence[Poison],
    now: float,
) -> Taken:
    """Store what arrived and how far the platform was read, all or nothing."""
    taken = Taken()
    for arrival in arrivals:
        _take(tx, arrival, now, taken)
    outbox.put(tx, refusals, now)
    for one in bad:
        tx.execute(
            _POISON(tx),
            {"key": one.key, "channel": one.channel, "body": one.body, "problem": one.problem, "at": now},
        )
    if cursor is not None:
        set_fact(tx, f"cursor:{cursor.name}", cursor.value)
    return taken


@dataclass(frozen=True, slots=True)
class Inbox:
    """The way in."""

    db: Database

    async def put(
        self,
        arrivals: Sequence[Arrival],
        *,
        refusals: Sequence[Outgoing] = (),
        cursor: Cursor | None = None,
        bad: Sequence[Poison] = (),
    ) -> Taken:
        """Commit all of it in one transaction. Raises: StoreError."""
        now = self.db.now()
        return await self.db.write(
            functools.partial(put, arrivals=arrivals, refusals=refusals, cursor=cursor, bad=bad, now=now)
        )

    async def cursor(self, name: str) -> str | None:
        """Return how far a platform's stream was read. Raises: StoreError."""
        return await self.db.write(lambda tx: get_fact(tx, f"cursor:{name}"), durable=False)
