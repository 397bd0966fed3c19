"""People beside those whom the configuration names: who was let in, and who asked to be."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from gateway.store.dialect import PerDialect
from gateway.store.tables import fact, member, pairing
from gateway.types import Address, Level, Sender

ALPHABET = "ABCDEFGHJKLMNPQRSTUVWXYZ23456789"
"""Without 0 O 1 I, which people mix up (spec AC-1): 5 bits a sign."""

LENGTH = 8
VALID = 3600.0
"""Seconds for which a code counts, and after which its sender may get another one."""

PENDING = 3
"""Requests that may be open on one channel (spec AC-1)."""

TRIES = 5
"""Wrong codes after which every request that was open is locked (spec AC-2)."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What became of a stranger's message: the `code` of a new request, or "" and the `reason`."""

    reason: str
    code: str = ""


@dataclass(frozen=True, slots=True)
class Person:
    """Somebody who was let in, and where they asked for it."""

    channel: str
    sender: str
    name: str
    level: Level
    address: Address


@dataclass(frozen=True, slots=True)
class Request:
    """An open request; `expires_at` is in the database's time, a `locked` one can't be approved any more."""

    channel: str
    sender: str
    name: str
    expires_at: float
    locked: bool


@dataclass(frozen=True, slots=True)
class Member:
    """Somebody who was let in; `at` is in the database's time."""

    channel: str
    sender: str
    name: str
    level: Level
    at: float


_ROLE = sa.select(member.c.role).where(
    member.c.channel == sa.bindparam("via"), member.c.sender == sa.bindparam("who")
)
_OPEN = sa.select(pairing.c.sender).where(
    pairing.c.channel == sa.bindparam("via"), pairing.c.expires_at > sa.bindparam("now")
)
_REQUEST = PerDialect(
    lambda insert: (
        insert(pairing)
        .values(
            {
                name: sa.bindparam(name)
                for name in ("channel", "sender", "name", "address", "code_hash", "expires_at", "at")
            }
        )
        .on_conflict_do_nothing()
    )
)
_LET_IN = PerDialect(
    lambda insert: (
        insert(member)
        .values({name: sa.bindparam(name) for name in ("channel", "sender", "role", "name", "at")})
        .on_conflict_do_update(index_elements=["channel", "sender"], set_={"name": sa.bindparam("name")})
    )
)
_LOCK = PerDialect(
    lambda insert: (
        insert(fact)
        .values(name="lock:members", value="")
        .on_conflict_do_update(index_elements=["name"], set_={"value": ""})
    )
)


def role(tx: Connection, channel: str, sender: str) -> str | None:
    """Return what an approval made of a sender, None if there was none."""
    found: str | None = tx.execute(_ROLE, {"via": channel, "who": sender}).scalar_one_or_none()
    return found


def ask(tx: Connection, sender: Sender, address: Address, now: float) -> Asked:
    """Open a request for a stranger unless one is open already, or too many are."""
    if asked := _refused(tx, sender.id, address.channel, now):
        return asked
    _lock(tx)
    if asked := _refused(tx, sender.id, address.channel, now):  # somebody was quicker
        return asked
    tx.execute(sa.delete(pairing).where(pairing.c.channel == address.channel, pairing.c.expires_at <= now))
    code = "".join(secrets.choice(ALPHABET) for _ in range(LENGTH))
    tx.execute(
        _REQUEST(tx),
        {
            "channel": address.channel,
            "sender": sender.id,
            "name": sender.name,
            "address": address.key,
            "code_hash": _hash(address.channel, sender.id, code),
            "expires_at": now + VALID,
            "at": now,
        },
    )
    return Asked("a pairing code was sent", code)


def _refused(tx: Connection, sender: str, channel: str, now: float) -> Asked | None:
    waiting = tx.execute(_OPEN, {"via": channel, "now": now}).scalars().all()
    if sender in waiting:
        return Asked("a pairing code was sent before and waits for approval")
    if len(waiting) >= PENDING:
        return Asked(f"no pairing code was sent, because {PENDING} others wait for approval already")
    return None


def approve(tx: Connection, code: str, now: float, *, owned: bool) -> Person | None:
    """Let in whoever got this code; None, and a wrong try more for every open request, if nobody did.

    The first one becomes the owner, unless there is one: `owned` says that the configuration names one.
    """
    _lock(tx)
    given = "".join(sign for sign in code.upper() if sign.isalnum())
    rows = tx.execute(sa.select(pairing).where(pairing.c.expires_at > now, pairing.c.tries < TRIES)).all()
    found = [row for row in rows if _matches(row, given)]
    if not found:
        tx.execute(sa.update(pairing).where(pairing.c.expires_at > now).values(tries=pairing.c.tries + 1))
        return None
    row = found[0]
    level = Level.USER if owned or _owned(tx) else Level.OWNER
    tx.execute(
        _LET_IN(tx),
        {"channel": row.channel, "sender": row.sender, "role": level, "name": row.name, "at": now},
    )
    _forget(tx, row.channel, row.sender)
    return Person(row.channel, row.sender, row.name, level, Address.parse(row.address))


def revoke(tx: Connection, channel: str, sender: str) -> bool:
    """Undo an approval or close a request; return whether there was one. Nobody is banned by it."""
    gone = tx.execute(
        sa.delete(member).where(member.c.channel == channel, member.c.sender == sender)
    ).rowcount
    return bool(gone + _forget(tx, channel, sender))


def requests(tx: Connection, now: float) -> list[Request]:
    """Return the open requests, the oldest first."""
    rows = tx.execute(sa.select(pairing).where(pairing.c.expires_at > now).order_by(pairing.c.at))
    return [
        Request(row.channel, row.sender, row.name, row.expires_at, locked=row.tries >= TRIES) for row in rows
    ]


def members(tx: Connection) -> list[Member]:
    """Return the people who were let in, the first one first."""
    rows = tx.execute(sa.select(member).order_by(member.c.at, member.c.channel, member.c.sender))
    return [Member(row.channel, row.sender, row.name, Level(row.role), row.at) for row in rows]


def _owned(tx: Connection) -> bool:
    owner = sa.select(member.c.sender).where(member.c.role == Level.OWNER).limit(1)
    return tx.execute(owner).scalar_one_or_none() is not None


def _forget(tx: Connection, channel: str, sender: str) -> int:
    return tx.execute(
        sa.delete(pairing).where(pairing.c.channel == channel, pairing.c.sender == sender)
    ).rowcount


def _lock(tx: Connection) -> None:
    """Take turns with other processes: two approvals at once must not make two owners."""
    tx.execute(_LOCK(tx))


def _matches(row: sa.Row[tuple[object, ...]], code: str) -> bool:
    return hmac.compare_digest(row.code_hash, _hash(row.channel, row.sender, code))


def _hash(channel: str, sender: str, code: str) -> str:
    # Bound to whom it was made for (access-004). A slow hash would be in vain: who can read the table can
    # write it, too.
    return hashlib.sha256(f"{channel}\n{sender}\n{code}".encode()).hexdigest()
