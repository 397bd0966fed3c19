"""Calls that wait for a person: who was asked, and what they said."""

from __future__ import annotations

import base64
import hashlib
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from gateway import cards
from gateway.store import outbox
from gateway.store.dialect import PerDialect
from gateway.store.tables import approval, conversation, outbound, permit
from gateway.types import Address, Outgoing


class State(StrEnum):
    """What became of a question. `ASKED` is open; all others are final."""

    ASKED = "asked"
    ONCE = "once"
    ALWAYS = "always"
    DENIED = "denied"
    EXPIRED = "expired"
    WITHDRAWN = "withdrawn"

    @property
    def allows(self) -> bool:
        """Return whether the call may run."""
        return self in (State.ONCE, State.ALWAYS)


SAID: Mapping[State, str] = {
    State.ONCE: "Allowed once",
    State.ALWAYS: "Allowed from now on",
    State.DENIED: "Denied",
    State.EXPIRED: "Nobody answered in time",
    State.WITHDRAWN: "Withdrawn",
}
"""What people are told became of a question."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Approval:
    """A call that somebody was asked about.

    `tool` is the tool's own name, whatever the model called it. `address` is where the question stands,
    `binding` what the decision rests on, `rule` what "always" remembers. `expires_at` is in the database's
    time.
    """

    id: str
    conversation_id: int
    seq: int
    call_id: str
    tool: str
    title: str
    binding: str
    rule: str
    address: Address
    expires_at: float
    state: State = State.ASKED


_NEW = sa.insert(approval)
_c = approval.c
_COLUMNS = (
    *(_c.id, _c.conversation_id, _c.seq, _c.call_id, _c.tool, _c.title),
    *(_c.binding, _c.rule, _c.address, _c.expires_at, _c.state),
)
_OF_CALLS = sa.select(*_COLUMNS).where(
    _c.conversation_id == sa.bindparam("which"), _c.seq == sa.bindparam("at")
)
_OPEN = sa.select(*_COLUMNS).where(_c.state == State.ASKED).order_by(_c.asked_at, _c.id)
_DECIDE = (
    sa.update(approval)
    .where(_c.id == sa.bindparam("which"), _c.state == State.ASKED)
    .values(
        state=sa.bindparam("new"), by=sa.bindparam("who"), decided_at=sa.bindparam("now", type_=sa.Double)
    )
)
_CARD = (
    sa.select(_c.id, _c.address, _c.title, _c.detail, outbound.c.receipt)
    .join(outbound, outbound.c.key == sa.literal("approval:") + _c.id)
    .where(_c.id == sa.bindparam("which"))
)
_PERMIT = PerDialect(
    lambda insert: (
        insert(permit)
        .values({name: sa.bindparam(name) for name in ("tool", "rule", "title", "by", "at")})
        .on_conflict_do_nothing()
    )
)


def new_id() -> str:
    """Return a name for a question: eight letters and digits, of which the first few are enough to type."""
    return base64.b32encode(secrets.token_bytes(5)).decode().lower()


@dataclass(frozen=True, slots=True)
class Permit:
    """What "always" was said to: `rule`, for the tool of this name."""

    tool: str
    rule: str
    title: str

    @property
    def id(self) -> str:
        """Return what people name it by: rules may be long, and begin alike."""
        return hashlib.sha256(f"{self.tool}\n{self.rule}".encode()).hexdigest()[:8]


def card_key(which: str) -> str:
    """Return the key of the message that asks a question."""
    return f"approval:{which}"


def ask(tx: Connection, one: Approval, detail: str, now: float) -> None:
    """Store a question."""
    row = {
        "id": one.id,
        "conversation_id": one.conversation_id,
        "seq": one.seq,
        "call_id": one.call_id,
        "tool": one.tool,
        "title": one.title,
        "detail": detail,
        "binding": one.binding,
        "rule": one.rule,
        "address": one.address.key,
        "state": one.state,
        "asked_at": now,
        "expires_at": one.expires_at,
    }
    tx.execute(_NEW, row)


def of_calls(tx: Connection, conversation_id: int, seq: int) -> dict[str, Approval]:
    """Return the questions about the calls of an entry by call id."""
    rows = tx.execute(_OF_CALLS, {"which": conversation_id, "at": seq})
    return {row.call_id: _read(row) for row in rows}


def open_at(tx: Connection, address: Address | None = None) -> list[Approval]:
    """Return the open questions, the oldest first: all, or those that stand at an address."""
    query = _OPEN if address is None else _OPEN.where(_c.address == address.key)
    return [_read(row) for row in tx.execute(query)]


def decide(tx: Connection, which: Approval, state: State, by: str, now: float) -> bool:
    """Note a decision, and let the waiting turn go on; return whether it was the first (approval-02).

    What `settled` returns is to be sent then.
    """
    if not tx.execute(_DECIDE, {"which": which.id, "new": state, "who": by, "now": now}).rowcount:
        return False
    if state is State.ALWAYS and which.rule:
        row = {"tool": which.tool, "rule": which.rule, "title": which.title, "by": by, "at": now}
        tx.execute(_PERMIT(tx), row)
    tx.execute(sa.update(conversation).where(conversation.c.id == which.conversation_id).values(ready_at=now))
    return True


def close(tx: Connection, which: Approval, state: State, now: float) -> bool:
    """Note that a question is void; return whether it was still open."""
    if not tx.execute(_DECIDE, {"which": which.id, "new": state, "who": "", "now": now}).rowcount:
        return False
    outbox.put(tx, settled(tx, which.id, state), now)
    return True


def drop(tx: Connection, conversation_id: int, now: float) -> None:
    """Withdraw every open question of a conversation: its turn was stopped."""
    dropped = tx.execute(
        sa.update(approval)
        .where(_c.conversation_id == conversation_id, _c.state == State.ASKED)
        .values(state=State.WITHDRAWN, decided_at=now)
        .returning(_c.id)
    )
    for which in dropped.scalars().all():
        outbox.put(tx, settled(tx, which, State.WITHDRAWN), now)


def settled(tx: Connection, which: str, state: State) -> tuple[Outgoing, ...]:
    """Return what takes the buttons from a question that people see, and says there what became of it."""
    card = tx.execute(_CARD, {"which": which}).one_or_none()
    if card is None or not card.receipt:
        return ()
    message = Outgoing(
        key=f"{card_key(which)}:settled",
        address=Address.parse(card.address),
        text=cards.answered(SAID[state], card.title, card.detail),
        replaces=card.receipt,
    )
    return (message,)


def is_permitted(tx: Connection, tool: str, rule: str) -> bool:
    """Return whether "always" was said to a rule."""
    found = tx.execute(sa.select(permit.c.at).where(permit.c.tool == tool, permit.c.rule == rule))
    return found.first() is not None


def permits(tx: Connection) -> list[Permit]:
    """Return everything that "always" was said to, the oldest first."""
    rows = tx.execute(
        sa.select(permit.c.tool, permit.c.rule, permit.c.title).order_by(permit.c.at, permit.c.rule)
    )
    return [Permit(row.tool, row.rule, row.title) for row in rows]


def revoke(tx: Connection, which: str) -> Permit | None:
    """Take back an "always" by the id that is shown of it, or by its whole rule; return it, if any."""
    found = next((one for one in permits(tx) if which.lower() == one.id or which == one.rule), None)
    if found:
        tx.execute(sa.delete(permit).where(permit.c.tool == found.tool, permit.c.rule == found.rule))
    return found


def _read(row: sa.Row[*tuple[Any, ...]]) -> Approval:
    return Approval(
        id=row.id,
        conversation_id=row.conversation_id,
        seq=row.seq,
        call_id=row.call_id,
        tool=row.tool,
        title=row.title,
        binding=row.binding,
        rule=row.rule,
        address=Address.parse(row.address),
        expires_at=row.expires_at,
        state=State(row.state),
    )
