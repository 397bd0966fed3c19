"""Messages on their way to people: in order for each address, each at most once more than needed."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from gateway.store.codec import decode_outgoing, encode_outgoing
from gateway.store.dialect import PerDialect, run
from gateway.store.engine import Database
from gateway.store.tables import outbound
from gateway.types import Address, OnUnknown, Outgoing, Receipt

MAX_AGE = 24 * 3600.0
"""Seconds after which an undelivered message is parked instead of sent (case durability-06)."""

MAX_ATTEMPTS = 10
"""Failures of one message that no outage explains before it is given up (case durability-09)."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """A message that this process has reserved.

    `unknowns` counts earlier deliveries of it that may have arrived.
    """

    id: int
    message: Outgoing
    attempts: int
    unknowns: int = 0


_PUT = PerDialect(
    lambda insert: (
        insert(outbound)
        .values(
            {name: sa.bindparam(name) for name in ("key", "address", "body", "on_unknown", "due_at", "at")}
        )
        .values(attempts=0)
        .on_conflict_do_nothing()
    )
)

# Spelled out in the statement, not bound: SQLite uses a partial index only for a value it can see.
_PENDING: sa.ColumnElement[str] = sa.literal_column("'pending'")
_SENDING: sa.ColumnElement[str] = sa.literal_column("'sending'")

_earlier = outbound.alias("earlier")
_blocked = sa.exists().where(
    _earlier.c.address == outbound.c.address,
    _earlier.c.id < outbound.c.id,
    _earlier.c.state.in_((_PENDING, _SENDING)),
)


def _take(*more: sa.ColumnElement[bool]) -> sa.UpdateBase:
    """Return a statement that reserves due messages, the first of each address."""
    # By name and not in the condition itself: that PostgreSQL may run once for each row, and take them all.
    pick = (
        sa.select(outbound.c.id)
        .where(outbound.c.state == _PENDING, outbound.c.due_at <= sa.bindparam("now"), ~_blocked, *more)
        .order_by(outbound.c.due_at, outbound.c.id)
        .limit(sa.bindparam("most", type_=sa.Integer))
        .with_for_update(skip_locked=True)
        .cte("pick")
    )
    return (
        sa.update(outbound)
        .where(outbound.c.id.in_(sa.select(pick.c.id)))
        .values(state="sending", lease_owner=sa.bindparam("me"), lease_until=sa.bindparam("until"))
        .returning(
            outbound.c.id,
            outbound.c.key,
            outbound.c.address,
            outbound.c.body,
            outbound.c.on_unknown,
            outbound.c.attempts,
            outbound.c.unknowns,
        )
    )


_TAKE_ANY = _take()
_TAKE_ONE = _take(outbound.c.address == sa.bindparam("where"))
_NEXT_DUE = sa.select(sa.func.min(outbound.c.due_at)).where(outbound.c.state == _PENDING, ~_blocked)
_SETTLE = (
    sa.update(outbound)
    .where(
        outbound.c.id == sa.bindparam("which"),
        outbound.c.state == _SENDING,
        outbound.c.lease_owner == sa.bindparam("me"),
    )
    .values(
        state=sa.bindparam("becomes"),
        due_at=sa.func.coalesce(sa.bindparam("due", type_=sa.Double), outbound.c.due_at),
        attempts=sa.func.coalesce(outbound.c.attempts, 0) + sa.bindparam("failed", type_=sa.Integer),
        receipt=sa.bindparam("got", type_=sa.Text),
        problem=sa.bindparam("why", type_=sa.Text),
        lease_owner=None,
        lease_until=0,
    )
)
_once_more = sa.and_(outbound.c.on_unknown == OnUnknown.RESEND, outbound.c.unknowns < 1)
_UNSURE = sa.update(outbound).values(
    state=sa.case((_once_more, "pending"), else_="unknown"),
    unknowns=outbound.c.unknowns + 1,
    problem=sa.bindparam("why", type_=sa.Text),
    lease_owner=None,
    lease_until=0,
)
_UNSURE_ONE = _UNSURE.where(
    outbound.c.id == sa.bindparam("which"),
    outbound.c.state == _SENDING,
    outbound.c.lease_owner == sa.bindparam("me"),
)
# What bears this process's name and is not under way: its reservation was committed by a server that died
# before it could say so.
_UNSURE_DEAD = _UNSURE.where(
    outbound.c.state == _SENDING,
    outbound.c.lease_until < sa.bindparam("now"),
    sa.or_(
        outbound.c.lease_owner != sa.bindparam("me"),
        outbound.c.id.not_in(sa.bindparam("held", expanding=True)),
    ),
)
_KEEP = (
    sa.update(outbound)
    .where(
        outbound.c.id.in_(sa.bindparam("held", expanding=True)),
        outbound.c.state == _SENDING,
        outbound.c.lease_owner == sa.bindparam("me"),
    )
    .values(lease_until=sa.bindparam("until"))
)
_PARK = (
    sa.update(outbound)
    .where(outbound.c.state == _PENDING, outbound.c.at < sa.bindparam("before"))
    .values(state="dead", problem="too old to send")
)
_GIVE_UP = (
    sa.update(outbound)
    .where(outbound.c.state == _PENDING, outbound.c.address == sa.bindparam("where"))
    .values(state="dead", problem=sa.bindparam("why", type_=sa.Text))
)


def put(tx: Connection, messages: Sequence[Outgoing], now: float) -> None:
    """Queue messages; a key that is known is left as it is."""
    for message in messages:
        tx.execute(
            _PUT(tx),
            {
                "key": message.key,
                "address": message.address.key,
                "body": encode_outgoing(message),
                "on_unknown": message.on_unknown,
                "due_at": now,
                "at": now,
            },
        )


def count(tx: Connection, prefix: str, since: float) -> int:
    """Return how many messages whose key begins so were queued after a time."""
    wanted = outbound.c.key.startswith(prefix, autoescape=True), outbound.c.at > since
    return int(tx.execute(sa.select(sa.func.count()).where(*wanted)).scalar_one())


def take(
    tx: Connection, *, owner: str, now: float, lease: float, most: int, address: Address | None = None
) -> list[Delivery]:
    """Reserve due messages for `lease` seconds, the first of each address."""
    values: dict[str, Any] = {"me": owner, "now": now, "until": now + lease, "most": most}
    if address is not None:
        values["where"] = address.key
    rows = tx.execute(_TAKE_ANY if address is None else _TAKE_ONE, values).all()
    return [_delivery(row) for row in sorted(rows, key=lambda row: int(row.id))]


def _delivery(row: sa.Row[Any]) -> Delivery:
    message = decode_outgoing(row.key, row.address, row.body, row.on_unknown)
    return Delivery(row.id, message, row.attempts or 0, row.unknowns)


@dataclass(frozen=True, slots=True)
class Outbox:
    """The way out. `owner` names this process; `lease` is how long a reservation holds, in seconds."""

    db: Database
    owner: str
    lease: float = 60.0

    async def take(self, most: int, held: Sequence[int] = ()) -> tuple[list[Delivery], float | None]:
        """Reserve up to `most` due messages; say when the next is due, if any.

        `held` are the deliveries that are under way in this process. Raises: StoreError.
        """

        def work(tx: Connection) -> tuple[list[Delivery], float | None]:
            if not self.db.exclusive:  # else all that is reserved is under way in this process
                self._recover(tx, now, held)
            found = take(tx, owner=self.owner, now=now, lease=self.lease, most=most)
            return found, None if len(found) == most else tx.execute(_NEXT_DUE).scalar_one()

        now = self.db.now()
        return await self.db.write(work)

    def _recover(self, tx: Connection, before: float, held: Sequence[int] = ()) -> None:
        """Free what was reserved until `before` and is not under way here."""
        values = {
            "now": before,
            "me": self.owner,
            "held": held,
            "why": "the sender died; it may have arrived",
        }
        tx.execute(_UNSURE_DEAD, values)

    async def keep(self, held: Sequence[int]) -> None:
        """Hold deliveries that are under way for another `lease` seconds. Raises: StoreError."""
        values = {"held": held, "me": self.owner, "until": self.db.now() + self.lease}
        await self.db.write(lambda tx: run(tx, _KEEP, values))

    async def sent(self, delivery: Delivery, receipt: Receipt) -> list[Delivery]:
        """Note the receipt; return the next message of this address, reserved. Raises: StoreError."""
        # A power loss may undo the note; then the message counts as unknown, as after any lost answer.
        return await self._settle(delivery, _change("sent", receipt=receipt.message_id), durable=False)

    async def retry(self, delivery: Delivery, after: float, problem: str) -> None:
        """Try again in `after` seconds. Raises: StoreError."""
        due = self.db.now() + after
        await self._settle(delivery, _change("pending", due=due, problem=problem, failed=1))

    async def dead(self, delivery: Delivery, problem: str) -> list[Delivery]:
        """Give the message up. Raises: StoreError."""
        return await self._settle(delivery, _change("dead", problem=problem))

    async def dead_route(self, delivery: Delivery, problem: str) -> int:
        """Give up the message and all that waits for its address; return how many (spec TG-28).

        That a route is dead is not noted anywhere else: it is when the newest message there is, and
        nobody has written from there since. Raises: StoreError.
        """

        def work(tx: Connection) -> int:
            settled = {"which": delivery.id, "me": self.owner, **_change("dead", problem=problem)}
            tx.execute(_SETTLE, settled)
            waiting = {"where": delivery.message.address.key, "why": problem}
            return 1 + tx.execute(_GIVE_UP, waiting).rowcount

        return await self.db.write(work)

    async def unsure(self, delivery: Delivery, problem: str) -> None:
        """Nobody knows whether it arrived: once more, or never (reliability 3.1). Raises: StoreError."""
        values = {"which": delivery.id, "me": self.owner, "why": problem}
        await self.db.write(lambda tx: run(tx, _UNSURE_ONE, values))

    async def recover(self) -> int:
        """Free what a dead process of ours had reserved; park what is too old, return how many."""

        def work(tx: Connection) -> int:
            if self.db.exclusive:
                self._recover(tx, float("inf"))
            return tx.execute(_PARK, {"before": self.db.now() - MAX_AGE}).rowcount

        return await self.db.write(work)

    async def _settle(
        self, delivery: Delivery, change: dict[str, Any], *, durable: bool = True
    ) -> list[Delivery]:
        values = {"which": delivery.id, "me": self.owner, **change}
        now = self.db.now()
        return await self.db.write(
            functools.partial(_settle, values=values, outbox=self, address=delivery.message.address, now=now),
            durable=durable,
        )


def _change(
    state: str,
    *,
    due: float | None = None,
    receipt: str | None = None,
    problem: str | None = None,
    failed: int = 0,
) -> dict[str, Any]:
    return {"becomes": state, "due": due, "got": receipt, "why": problem, "failed": failed}


def _settle(
    tx: Connection, *, values: dict[str, Any], outbox: Outbox, address: Address, now: float
) -> list[Delivery]:
    tx.execute(_SETTLE, values)
    if values["becomes"] == "pending":
        return []
    return take(tx, owner=outbox.owner, now=now, lease=outbox.lease, most=1, address=address)
