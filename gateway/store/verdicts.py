"""Why messages were dropped: the newest of them, for whoever asks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from gateway.store.tables import verdict
from gateway.types import Outgoing, Stimulus

KEPT = 5000
"""Rows that are kept (attack size-015)."""

SPARE = 500
"""Rows beyond that before the oldest are deleted, so that not each message pays for it."""


@dataclass(frozen=True, slots=True)
class Dropped:
    """A message that was stopped at a `gate`; `setting` is the key that would let it pass.

    `answer` is what its sender is told, if anything. Of the message itself nothing is kept.
    """

    stimulus: Stimulus
    gate: str
    reason: str
    setting: str
    answer: Outgoing | None = None


_NEWEST = sa.select(sa.func.max(verdict.c.id))
_PRUNE = sa.delete(verdict).where(verdict.c.id <= sa.bindparam("last", type_=sa.BigInteger))


def put(tx: Connection, dropped: Sequence[Dropped], now: float) -> None:
    """Note why messages were dropped; now and then delete the oldest notes."""
    if not dropped:
        return
    rows = [
        {
            "address": one.stimulus.place.key,
            "message_id": one.stimulus.message_id,
            "sender": one.stimulus.sender.id,
            "gate": one.gate,
            "reason": one.reason,
            "setting": one.setting,
            "at": now,
        }
        for one in dropped
    ]
    tx.execute(sa.insert(verdict), rows)
    newest: int = tx.execute(_NEWEST).scalar_one()
    if newest // SPARE != (newest - len(rows)) // SPARE:
        tx.execute(_PRUNE, {"last": newest - KEPT})
