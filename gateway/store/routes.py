"""The chats that share a person's session: which they are, and where the person wrote last."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from gateway.store.dialect import PerDialect
from gateway.store.tables import route
from gateway.types import PERSON, Address

_R = route.c
_NOTE = PerDialect(
    lambda insert: (
        (new := insert(route))
        .values({name: sa.bindparam(name) for name in ("address", "person", "sender", "at")})
        .on_conflict_do_update(
            index_elements=["address"],
            set_={"person": new.excluded.person, "sender": new.excluded.sender, "at": new.excluded.at},
        )
    )
)
_PERSON_OF = sa.select(_R.person).where(_R.address == sa.bindparam("where"))
_NEWEST = sa.select(_R.address).where(_R.person == sa.bindparam("who")).order_by(_R.at.desc()).limit(1)


def note(tx: Connection, place: Address, person: str, sender: str, now: float) -> None:
    """Note that a person has written in a chat; `sender` is `channel:id`."""
    tx.execute(_NOTE(tx), {"address": place.key, "person": person, "sender": sender, "at": now})


def person_of(tx: Connection, place: Address) -> str:
    """Return whose session a chat shares, "" for a chat with a session of its own."""
    return tx.execute(_PERSON_OF, {"where": place.key}).scalar_one_or_none() or ""


def home(tx: Connection, place: Address) -> Address:
    """Return the conversation that a chat belongs to: that of a person, or its own."""
    person = person_of(tx, place)
    return Address(PERSON, person) if person else place


def newest(tx: Connection, person: str) -> Address | None:
    """Return the chat in which a person wrote last, None before the first message."""
    found = tx.execute(_NEWEST, {"who": person}).scalar_one_or_none()
    return None if found is None else Address.parse(found)


def reached(tx: Connection, address: Address) -> Address:
    """Return where something for a conversation is sent to: for a shared one its newest chat."""
    return (newest(tx, address.chat) if address.channel == PERSON else None) or address


def on(tx: Connection, channel: str) -> Sequence[sa.Row[str, str, str, float]]:
    """Return (address, person, sender, at) of the chats on a channel, those used last first."""
    here = _R.address.startswith(f"{channel}:", autoescape=True)
    return tx.execute(
        sa.select(_R.address, _R.person, _R.sender, _R.at).where(here).order_by(_R.at.desc())
    ).all()


def keep(tx: Connection, people: Mapping[str, str]) -> int:
    """Forget the chats that the configuration no longer gives to their person; return how many.

    `people` maps `channel:id` to the person.
    """
    gone = [
        row.address
        for row in tx.execute(sa.select(_R.address, _R.person, _R.sender))
        if people.get(row.sender) != row.person
    ]
    if gone:
        tx.execute(sa.delete(route).where(_R.address.in_(gone)))
    return len(gone)
