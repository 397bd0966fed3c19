"""What pages and terminals may look up: sessions, messages, replies; plain JSON, read beside the writer."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from gateway.sentinels import visible
from gateway.store.approvals import State
from gateway.store.tables import approval, conversation, entry, inbound, outbound
from gateway.types import INNER, Address, JsonObject, Kind

_PEOPLE = sa.or_(
    entry.c.role == "user", sa.and_(entry.c.role == "assistant", entry.c.body.not_like('%"calls":%'))
)


def sessions(tx: Connection, channel: str, limit: int) -> list[JsonObject]:
    """Return `{"session", "at"}` of a channel's conversations, those used last first."""
    newest = sa.func.max(inbound.c.at).label("newest")
    rows = tx.execute(
        sa.select(conversation.c.address, newest)
        .join(inbound, inbound.c.conversation_id == conversation.c.id)
        .where(conversation.c.address.startswith(f"{channel}:", autoescape=True))
        .group_by(conversation.c.address)
        .order_by(newest.desc())
        .limit(limit)
    )
    return [{"session": Address.parse(row.address).chat, "at": row.newest} for row in rows]


def everywhere(tx: Connection, limit: int) -> list[JsonObject]:
    """Return `{"conversation", "chat", "at"}` of conversations with people, those used last first.

    `at` is the UTC time of the last message, to the minute.
    """
    newest = sa.func.max(inbound.c.at).label("newest")
    rows = tx.execute(
        sa.select(conversation.c.address, conversation.c.chat, newest)
        .join(inbound, inbound.c.conversation_id == conversation.c.id)
        .where(sa.and_(*(sa.not_(conversation.c.address.startswith(f"{inner}:")) for inner in sorted(INNER))))
        .group_by(conversation.c.address, conversation.c.chat)
        .order_by(newest.desc())
        .limit(limit)
    )
    return [
        {
            "conversation": Address.parse(row.address).shown,
            "chat": row.chat,
            "at": datetime.fromtimestamp(row.newest, UTC).strftime("%Y-%m-%d %H:%M UTC"),
        }
        for row in rows
    ]


def messages(tx: Connection, address: Address, limit: int, before: int | None) -> list[JsonObject]:
    """Return `{"seq", "role", "text", "at"}` of what was said in the running session, oldest first.

    What nobody was shown is left out: silent replies, and what woke the bot by itself (spec NR-15).
    """
    chosen = sa.select(conversation.c.id, conversation.c.session).where(conversation.c.address == address.key)
    here = tx.execute(chosen).one_or_none()
    if here is None:
        return []
    wanted = [entry.c.conversation_id == here.id, entry.c.session == here.session, _PEOPLE]
    found: list[JsonObject] = []
    while len(found) < limit:
        older = [] if before is None else [entry.c.seq < before]
        rows = tx.execute(
            sa.select(entry.c.seq, entry.c.role, entry.c.body, entry.c.at)
            .where(*wanted, *older)
            .order_by(entry.c.seq.desc())
            .limit(limit)
        ).all()
        spoken = ((row, said(row.role, json.loads(row.body))) for row in rows)
        found += [{"seq": row.seq, **one, "at": row.at} for row, one in spoken if one is not None]
        if len(rows) < limit:
            break
        before = rows[-1].seq
    return found[:limit][::-1]


def said(role: str, body: JsonObject) -> JsonObject | None:
    """Return who said what, as people saw it, None if nobody did."""
    text = body["text"]
    by_itself = role == "user" and body.get("kind", Kind.MESSAGE) != Kind.MESSAGE
    if by_itself and not body.get("aimed", True):
        role = "assistant"  # an alert that was delivered here
    elif by_itself or (role == "assistant" and not (text := visible(text, Kind.MESSAGE))):
        return None
    return {"role": role, "text": text}


def replies_after(tx: Connection, address: Address, after: int) -> list[JsonObject]:
    """Return `{"id", "text", "key"}` of the messages above `after`; `key`: a stimulus they answer, or "".

    Those with buttons have `name` and `buttons` too, as `[[label, value]]` in rows; a message that takes the
    place of such a one has its name as `replaces`.
    """
    rows = tx.execute(
        sa.select(outbound.c.id, outbound.c.key, outbound.c.body)
        .where(outbound.c.address == address.key, outbound.c.id > after)
        .order_by(outbound.c.id)
    ).all()
    return [{"id": row.id, "key": _answered(tx, row.key), **_shown(row.key, row.body)} for row in rows]


def questions(tx: Connection, address: Address) -> list[JsonObject]:
    """Return `{"id", "text", "name", "buttons"}` of what is still open to be allowed at an address."""
    rows = tx.execute(
        sa.select(outbound.c.id, outbound.c.key, outbound.c.body)
        .join(approval, outbound.c.key == sa.literal("approval:") + approval.c.id)
        .where(approval.c.address == address.key, approval.c.state == State.ASKED)
        .order_by(outbound.c.id)
    )
    return [{"id": row.id, **_shown(row.key, row.body)} for row in rows]


def question_of(tx: Connection, key: str) -> JsonObject | None:
    """Return what must be allowed before a stimulus gets its answer, as `questions` does without the id.

    A call comes after what it is for, so an older question of the conversation is not meant.
    """
    row = tx.execute(
        sa.select(outbound.c.key, outbound.c.body)
        .join(approval, outbound.c.key == sa.literal("approval:") + approval.c.id)
        .join(inbound, inbound.c.conversation_id == approval.c.conversation_id)
        .where(inbound.c.key == key, inbound.c.seq > 0, inbound.c.seq < approval.c.seq)
        .where(approval.c.state == State.ASKED)
    ).first()
    return None if row is None else _shown(row.key, row.body)


def _shown(key: str, text: str) -> JsonObject:
    body = json.loads(text)
    shown: JsonObject = {"text": body["text"]}
    if "buttons" in body:
        shown |= {"name": key, "buttons": body["buttons"]}
    return shown | ({"replaces": body["replaces"]} if "replaces" in body else {})


def last_reply(tx: Connection, address: Address) -> int:
    """Return the id of the newest outgoing message, 0 if there is none."""
    newest = sa.select(sa.func.max(outbound.c.id)).where(outbound.c.address == address.key)
    return tx.execute(newest).scalar_one() or 0


def reply_to(tx: Connection, key: str) -> str | None:
    """Return what people got for a stimulus ("" for silence), None while it is open or unknown."""
    asked = tx.execute(
        sa.select(inbound.c.conversation_id, inbound.c.seq, inbound.c.turn).where(inbound.c.key == key)
    ).one_or_none()
    if asked is None or asked.seq is None:
        return None
    if asked.seq == 0:
        return _text(tx, outbound.c.key == f"command:{key}")
    last = tx.execute(
        sa.select(entry.c.seq, entry.c.role, entry.c.body)
        .where(
            entry.c.conversation_id == asked.conversation_id,
            entry.c.turn == asked.turn,
            entry.c.seq >= asked.seq,
        )
        .order_by(entry.c.seq.desc())
        .limit(1)
    ).one()
    if last.role != "assistant" or json.loads(last.body).get("calls"):
        return None
    return _text(tx, outbound.c.key.startswith(f"reply:{asked.conversation_id}:{last.seq}:", autoescape=True))


def _text(tx: Connection, which: sa.ColumnElement[bool]) -> str:
    rows = tx.execute(sa.select(outbound.c.body).where(which).order_by(outbound.c.id))
    return "\n".join(json.loads(body)["text"] for body in rows.scalars())


def _answered(tx: Connection, key: str) -> str:
    """Return the key of the newest stimulus that an outgoing message answers."""
    kind, _, rest = key.partition(":")
    if kind == "command":
        return rest
    if kind != "reply":
        return ""
    which, seq, _ = rest.split(":")
    turn = sa.select(entry.c.turn).where(entry.c.conversation_id == int(which), entry.c.seq == int(seq))
    found: Any = tx.execute(
        sa.select(inbound.c.key)
        .where(inbound.c.conversation_id == int(which), inbound.c.turn == turn.scalar_subquery())
        .order_by(inbound.c.id.desc())
        .limit(1)
    ).scalar_one_or_none()
    return str(found or "")


def depths(tx: Connection) -> dict[str, JsonObject]:
    """Return for each channel `{"waiting", "sending"}`: messages not yet taken in, and not yet delivered."""
    found: dict[str, JsonObject] = {}
    open_states = outbound.c.state.in_(("pending", "sending"))
    waiting = (
        sa.select(conversation.c.address, sa.func.count())
        .join(inbound, inbound.c.conversation_id == conversation.c.id)
        .where(inbound.c.seq.is_(None))
        .group_by(conversation.c.address)
    )
    sending = sa.select(outbound.c.address, sa.func.count()).where(open_states).group_by(outbound.c.address)
    for name, query in (("waiting", waiting), ("sending", sending)):
        for address, count in tx.execute(query):
            one = found.setdefault(Address.parse(address).channel, {"waiting": 0, "sending": 0})
            one[name] += count
    return found


def depth(tx: Connection) -> JsonObject:
    """Return how much waits: conversations to look at, messages to deliver."""
    waiting = sa.select(sa.func.count()).where(conversation.c.ready_at.is_not(None))
    unsent = sa.select(sa.func.count()).where(outbound.c.state.in_(("pending", "sending")))
    return {"conversations": tx.execute(waiting).scalar_one(), "outbox": tx.execute(unsent).scalar_one()}
