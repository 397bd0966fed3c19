"""What became of a message: where it was stopped, or how far it has come."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from gateway.store.codec import decode_stimulus
from gateway.store.tables import conversation, entry, inbound, outbound, route, verdict
from gateway.types import PERSON, Address, Chat, Kind, Sender


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """A message that was dropped, and why; `at` is in the database's time."""

    address: Address
    message_id: str
    sender: Sender
    at: float
    gate: str
    reason: str
    setting: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Fate:
    """A message that was let in.

    `waits` says for what it waits before its turn, "" if it does not. `turn` is the turn that took it in,
    0 if none did. `answered` is whether that turn is over, or the command was answered; `deliveries` are
    (state, problem) of what was sent for it.
    """

    address: Address
    chat: Chat
    message_id: str
    sender: Sender
    at: float
    wakes: bool
    waits: str = ""
    turn: int = 0
    command: bool = False
    answered: bool = False
    deliveries: tuple[tuple[str, str], ...] = ()


def newest(tx: Connection, chat: str, message_id: str, now: float) -> Stop | Fate | None:
    """Return what became of a message, the newest one if `message_id` is "".

    `chat` is `channel:chat`, `channel:chat:thread`, or only the chat's id.
    """
    stop, fate = _stop(tx, chat, message_id), _fate(tx, chat, message_id, now)
    if stop is None or fate is None:
        return stop or fate
    return stop if stop.at >= fate.at else fate  # a command that was refused leaves both


def _here(column: sa.ColumnElement[str], chat: str) -> sa.ColumnElement[bool]:
    match chat.split(":", 2):
        case [_, _, _]:
            return column == chat
        case [_, _]:
            return column.startswith(f"{chat}:", autoescape=True)
        case _:
            return column.contains(f":{chat}:", autoescape=True)


def _shared(tx: Connection, chat: str) -> list[sa.ColumnElement[bool]]:
    """Return what fits the messages from a chat in a session that it shares with others."""
    found = tx.execute(sa.select(route.c.address, route.c.person).where(_here(route.c.address, chat)))
    return [
        sa.and_(
            conversation.c.address == Address(PERSON, row.person).key,
            inbound.c.body.contains(f'"deliver_to":"{row.address}"', autoescape=True),
        )
        for row in found
    ]


def _stop(tx: Connection, chat: str, message_id: str) -> Stop | None:
    query = sa.select(verdict).where(_here(verdict.c.address, chat)).order_by(verdict.c.id.desc()).limit(1)
    if message_id:
        query = query.where(verdict.c.message_id == message_id)
    row = tx.execute(query).one_or_none()
    if row is None:
        return None
    return Stop(
        address=Address.parse(row.address),
        message_id=row.message_id,
        sender=Sender(row.sender),
        at=row.at,
        gate=row.gate,
        reason=row.reason,
        setting=row.setting,
    )


def _fate(tx: Connection, chat: str, message_id: str, now: float) -> Fate | None:
    query = (
        sa.select(inbound, conversation.c.address, conversation.c.chat)
        .join(conversation, conversation.c.id == inbound.c.conversation_id)
        .where(
            sa.or_(_here(conversation.c.address, chat), *_shared(tx, chat)), inbound.c.kind == Kind.MESSAGE
        )
        .order_by(inbound.c.id.desc())
        .limit(1)
    )
    if message_id:
        query = query.where(inbound.c.body.contains(f'"message_id":"{message_id}"', autoescape=True))
    row = tx.execute(query).one_or_none()
    if row is None:
        return None
    said = decode_stimulus(row.kind, row.body)
    command = _deliveries(tx, outbound.c.key == f"command:{row.key}") if row.seq == 0 else ()
    answered, deliveries = _answer(tx, row) if row.seq else (bool(command), command)
    return Fate(
        address=Address.parse(said.deliver_to or row.address),
        chat=Chat(row.chat),
        message_id=said.message_id,
        sender=said.sender,
        at=row.at,
        wakes=row.wakes,
        waits=_waits(row, now) if row.seq is None else "",
        turn=(row.turn or 0) if row.seq else 0,
        command=bool(command),
        answered=answered,
        deliveries=deliveries,
    )


def _waits(row: sa.Row[Any], now: float) -> str:
    if row.prepare is not None:
        return "its files to be fetched"
    if row.hold_until is not None and row.hold_until > now:
        return "more of the same, as after a long text or with an album"
    return "its turn" if row.wakes else "a message that is for the bot"


def _answer(tx: Connection, row: sa.Row[Any]) -> tuple[bool, tuple[tuple[str, str], ...]]:
    """Return whether the turn that took a message in is over, and what was sent."""
    last = tx.execute(
        sa.select(entry.c.seq, entry.c.role, entry.c.body)
        .where(entry.c.conversation_id == row.conversation_id, entry.c.turn == row.turn)
        .order_by(entry.c.seq.desc())
        .limit(1)
    ).one_or_none()
    if last is None or last.role != "assistant" or '"calls":[' in last.body:
        return False, ()
    key = f"reply:{row.conversation_id}:{last.seq}:"
    return True, _deliveries(tx, outbound.c.key.startswith(key, autoescape=True))


def _deliveries(tx: Connection, which: sa.ColumnElement[bool]) -> tuple[tuple[str, str], ...]:
    rows: Sequence[Any] = tx.execute(
        sa.select(outbound.c.state, outbound.c.problem).where(which).order_by(outbound.c.id)
    ).all()
    return tuple((row.state, row.problem or "") for row in rows)
