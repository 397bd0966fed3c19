"""What model calls used, added up as they are stored: a row for each day, conversation, model and person."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import Any
from zoneinfo import ZoneInfo

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from gateway.clock import Clock, SystemClock
from gateway.store.codec import decode, decode_usage
from gateway.store.dialect import PerDialect
from gateway.store.tables import conversation, entry, inbound, outbound, usage
from gateway.types import (
    Address,
    AssistantEntry,
    Chat,
    Entry,
    JsonObject,
    Kind,
    Sender,
    Situation,
    Usage,
    UserEntry,
)
from gateway.usage import Footer, Price, Spent, day_of, price_of

LONGEST_TURN = 2000
"""Entries among which those of the newest turn are looked for."""

BY = {"day": "day", "conversation": "address", "model": "model", "sender": "sender", "kind": "kind"}
"""What sums can be asked for, and the columns."""

_KEYS = ("day", "agent", "address", "model", "sender", "kind")
_SUMS = ("calls", "input", "output", "cached", "cache_write", "unpriced", "usd")
_U = usage.c
_ADD = PerDialect(
    lambda insert: (
        (adding := insert(usage))
        .values({name: sa.bindparam(name) for name in (*_KEYS, *_SUMS)})
        .on_conflict_do_update(
            index_elements=list(_KEYS), set_={name: _U[name] + adding.excluded[name] for name in _SUMS}
        )
    )
)
_SPENT = sa.select(
    sa.func.coalesce(sa.func.sum(_U.input + _U.output), 0).label("tokens"),
    sa.func.coalesce(sa.func.sum(_U.usd), 0.0).label("usd"),
).where(_U.day == sa.bindparam("today"))
_first = sa.select(conversation.c.next_seq - LONGEST_TURN).where(conversation.c.id == sa.bindparam("which"))
_TURN = sa.select(entry.c.usage).where(
    entry.c.conversation_id == sa.bindparam("which"),
    entry.c.seq >= _first.scalar_subquery(),
    entry.c.turn == sa.bindparam("in_turn"),
    entry.c.usage.is_not(None),
)


_CALLS = _TURN.add_columns(entry.c.role, entry.c.body).order_by(entry.c.seq)

UTC = ZoneInfo("UTC")


def _usual(_situation: Situation) -> str:
    return "main"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """Adds up what model calls used. Days are those of `zone`; `agent` returns who answers a turn."""

    clock: Clock = field(default_factory=SystemClock)
    zone: ZoneInfo = UTC
    prices: Mapping[str, Price] = field(default_factory=dict)
    agent: Callable[[Situation], str] = _usual

    def today(self) -> str:
        """Return the local day, e.g. `2026-05-06`."""
        return day_of(self.clock.wall(), self.zone).isoformat()

    def note(
        self, tx: Connection, address: Address, transcript: Sequence[Entry], paid: Usage, model: str
    ) -> None:
        """Add a call that the newest turn of a transcript made, in the transaction that stores it."""
        asked = next((one for one in reversed(transcript) if isinstance(one, UserEntry)), None)
        self.charge(tx, _situation(address, asked), paid, model)

    def charge(self, tx: Connection, situation: Situation, paid: Usage, model: str) -> None:
        """Add a call that was made for a turn; `model` is `provider/model`."""
        price = price_of(model, self.prices)
        sender = situation.sender.id
        tx.execute(
            _ADD(tx),
            {
                "day": self.today(),
                "agent": self.agent(situation),
                "address": situation.address.key,
                "model": model,
                "sender": f"{situation.place.channel}:{sender}" if sender else "",
                "kind": situation.kind,
                "calls": 1,
                "input": paid.input,
                "output": paid.output,
                "cached": paid.cached,
                "cache_write": paid.cache_write,
                "unpriced": 0 if price else paid.input + paid.output,
                "usd": price.of(paid) if price else 0.0,
            },
        )


def _situation(address: Address, asked: UserEntry | None) -> Situation:
    """Return who is charged: whoever spoke last, also where several did."""
    if asked is None:
        return Situation(address, address, Sender(""), Chat.DIRECT)
    place = Address.parse(asked.deliver_to) if asked.deliver_to else address
    return Situation(address, place, asked.sender, asked.chat, asked.kind)


def spent(tx: Connection, day: str, *, kind: Kind | None = None, sender: str | None = None) -> Spent:
    """Return what a local day has cost, on the whole or by one kind of turn or one `channel:person`."""
    query = _SPENT
    if kind is not None:
        query = query.where(_U.kind == kind)
    if sender is not None:
        query = query.where(_U.sender == sender)
    row = tx.execute(query, {"today": day}).one()
    return Spent(int(row.tokens), float(row.usd))


def of_turn(tx: Connection, conversation_id: int, turn: int) -> int:
    """Return the tokens of the newest turn of a conversation, input and output together."""
    found = tx.execute(_TURN, {"which": conversation_id, "in_turn": turn}).scalars()
    return sum(paid.input + paid.output for paid in map(decode_usage, found))


def calls_of(tx: Connection, conversation_id: int, turn: int) -> list[tuple[str, Usage]]:
    """Return model and tokens of each stored call of the newest turn of a conversation."""
    rows = tx.execute(_CALLS, {"which": conversation_id, "in_turn": turn})
    return [(_model(row.role, row.body), decode_usage(row.usage)) for row in rows]


def _model(role: str, body: str) -> str:
    one = decode(role, body)
    return one.model if isinstance(one, AssistantEntry) else ""


def set_footer(tx: Connection, conversation_id: int, which: Footer) -> None:
    """Note how much of what a reply took stands below it in a conversation, from the next turn on."""
    tx.execute(sa.update(conversation).where(conversation.c.id == conversation_id).values(footer=which))


def report(tx: Connection, by: str, since: date, address: Address | None = None) -> JsonObject:
    """Return `{"by", "since", "rows", "total"}`: sums from a day on, by what `BY` names, as plain JSON.

    Each row has its `key`, `calls`, tokens (`input` with what was `cached` and `cache_write`, `output`),
    `usd`, and in `unpriced` the tokens whose price nobody named.
    """
    column = _U[BY[by]]
    where = [_U.day >= since.isoformat(), *([_U.address == address.key] if address else [])]
    summed = [sa.func.coalesce(sa.func.sum(_U[name]), 0).label(name) for name in _SUMS]
    order = column if by == "day" else sa.func.sum(_U.input + _U.output).desc()
    rows = tx.execute(sa.select(column.label("key"), *summed).where(*where).group_by(column).order_by(order))
    total = tx.execute(sa.select(*summed).where(*where)).one()
    return {
        "by": by,
        "since": since.isoformat(),
        "rows": [{"key": _named(by, row.key), **_plain(row)} for row in rows],
        "total": _plain(total),
    }


def _named(by: str, key: str) -> str:
    """Return what a row of a report is called."""
    return Address.parse(key).shown if by == "conversation" else key


def _plain(row: sa.Row[*tuple[Any, ...]]) -> JsonObject:
    numbers = {name: int(getattr(row, name)) for name in _SUMS if name != "usd"}
    return numbers | {"usd": round(float(row.usd), 6)}


_HELD = "limit:"


def notice_key(day: str, conversation_id: int) -> str:
    """Return the key of the one notice that a conversation gets on a day."""
    return f"{_HELD}{day}:{conversation_id}"


def notice_of(tx: Connection, key: str, day: str, now: float) -> str | None:
    """Return what people were told if the turn that answers a stimulus was put off today, else None.

    `day` is today, `now` the time of the store.
    """
    notice = sa.literal(f"{_HELD}{day}:") + sa.cast(conversation.c.id, sa.Text)
    body = tx.execute(
        sa.select(outbound.c.body)
        .join(conversation, outbound.c.key == notice)
        .join(inbound, inbound.c.conversation_id == conversation.c.id)
        .where(inbound.c.key == key, conversation.c.ready_at > now)
    ).scalar_one_or_none()
    return None if body is None else str(json.loads(body)["text"])


def wake(tx: Connection, day: str, now: float) -> int:
    """Let conversations that were put off today look again, for the limit may be another one by now."""
    keys = tx.execute(sa.select(outbound.c.key).where(outbound.c.key.startswith(f"{_HELD}{day}:"))).scalars()
    held = [int(key.split(":")[2]) for key in keys]
    waits = sa.and_(conversation.c.id.in_(held), conversation.c.ready_at > now)
    return tx.execute(sa.update(conversation).where(waits).values(ready_at=now)).rowcount if held else 0
