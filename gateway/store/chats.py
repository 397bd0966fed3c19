"""What a platform tells about a chat as a whole: that its id has changed, or which message is meant."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from gateway.store import routes
from gateway.store.codec import decode_outgoing
from gateway.store.tables import conversation, inbound, outbound, schedule
from gateway.types import Address, Chat, Outgoing

_MOVING = (conversation, schedule, outbound)
"""The tables with rows that belong to a chat. What was sent or refused keeps the address it had."""


def move(tx: Connection, old: Address, new: Address) -> int:
    """Give everything of a chat, in all its threads, to its new id; return how many conversations moved.

    A conversation whose new address is in use stays where it is: two can't become one. Doing it again changes
    nothing.
    """
    moved = 0
    for table in _MOVING:
        rows = tx.execute(sa.select(table.c.id, table.c.address).where(_movable(table, old))).all()
        taken = set(tx.execute(sa.select(table.c.address).where(_in_chat(table, new))).scalars())
        for row in rows:
            address = Address(new.channel, new.chat, Address.parse(row.address).thread).key
            if table is outbound or address not in taken:
                tx.execute(sa.update(table).where(table.c.id == row.id).values(address=address))
                moved += table is conversation
    return moved


def sent(tx: Connection, address: Address, message_id: str) -> Outgoing | None:
    """Return what was sent to a chat, in whichever thread, under this id; None if it is not ours."""
    row = tx.execute(
        sa.select(outbound.c.key, outbound.c.address, outbound.c.body, outbound.c.on_unknown)
        .where(_in_chat(outbound, address), outbound.c.receipt == message_id)
        .order_by(outbound.c.id.desc())
        .limit(1)
    ).one_or_none()
    return row and decode_outgoing(row.key, row.address, row.body, row.on_unknown)


def chat_of(tx: Connection, address: Address) -> Chat | None:
    """Return who reads at an address, None if nothing was ever said there."""
    found = tx.execute(sa.select(conversation.c.chat).where(conversation.c.address == address.key))
    chat = found.scalar_one_or_none()
    if chat is None:
        return Chat.DIRECT if routes.person_of(tx, address) else None
    return Chat(chat)


def _in_chat(table: sa.Table, address: Address) -> sa.ColumnElement[bool]:
    return table.c.address.startswith(f"{address.channel}:{address.chat}:", autoescape=True)


def _movable(table: sa.Table, old: Address) -> sa.ColumnElement[bool]:
    here = _in_chat(table, old)
    return sa.and_(here, outbound.c.state == "pending") if table is outbound else here


def recent(tx: Connection, channel: str, most: int = 100) -> list[Address]:
    """Return where people talk on a channel, those who did so last first."""
    newest = sa.func.max(inbound.c.at)
    rows = tx.execute(
        sa.select(conversation.c.address, newest.label("at"))
        .join(inbound, inbound.c.conversation_id == conversation.c.id)
        .where(conversation.c.address.startswith(f"{channel}:", autoescape=True))
        .group_by(conversation.c.address)
        .order_by(newest.desc())
        .limit(most)
    )
    shared = [(row.address, row.at) for row in routes.on(tx, channel)]
    found = sorted([*((row.address, row.at) for row in rows), *shared], key=lambda one: one[1], reverse=True)
    return [Address.parse(address) for address, _ in found[:most]]
