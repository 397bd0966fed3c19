"""Takes stimuli in, each once, whatever the platform repeats."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from gateway.channel import Cursor, Poison
from gateway.store import outbox, routes, verdicts
from gateway.store.codec import attachments_of, decode_stimulus, encode_stimulus, with_attachments
from gateway.store.dialect import PerDialect
from gateway.store.engine import Database
from gateway.store.tables import approval, conversation, fact, inbound, member, poison, subagent
from gateway.store.verdicts import Dropped
from gateway.types import (
    INNER,
    PERSON,
    Address,
    Attachment,
    Kind,
    Level,
    OnUnknown,
    Outgoing,
    Situation,
    Stimulus,
)


@dataclass(frozen=True, slots=True)
class Said:
    """What is said to a command at once, and what leaves behind it."""

    text: str
    behind: tuple[Outgoing, ...] = ()


Command: TypeAlias = Callable[[Connection, int], "str | Said"]
"""Acts inside the transaction that stores the command; gets the conversation's id, returns the answer."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """A stimulus that passed the gates. With `command` it is answered at once and never reaches a turn.

    One that does not wake the bot waits as context for one that does. A command `needs` a level of its
    sender; who has less is told so, and nothing else happens.
    """

    stimulus: Stimulus
    command: Command | None = None
    interrupts: bool = False
    wakes: bool = True
    needs: Level = Level.GUEST


Offer: TypeAlias = Callable[[Connection, float], "Arrival | Dropped"]
"""Judges a stimulus inside the transaction that stores it, by what the tables hold then and the time."""


@dataclass(slots=True)
class Taken:
    """What one transaction stored: how many were new, which conversations a command interrupted.

    `unprepared` counts the messages whose files are still to be fetched, `answers` what is to be sent;
    `dropped` are those that were not let in.
    """

    new: int = 0
    unprepared: int = 0
    answers: int = 0
    interrupted: list[int] = field(default_factory=list)
    dropped: list[Dropped] = field(default_factory=list)


REFUSED = {
    Level.USER: "Only people whom my owner let in may do that here.",
    Level.OWNER: "Only my owner may do that.",
}
"""What is said to whom a command does not obey."""

PREPARE_LIMIT = 120.0
"""Seconds that a message waits for its files before it goes on without them."""

_role = (
    sa.select(member.c.role)
    .where(member.c.channel == sa.bindparam("via"), member.c.sender == sa.bindparam("who"))
    .scalar_subquery()
)
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
        .returning(conversation.c.id, _role.label("role"))
    )
)
_INBOUND = PerDialect(
    lambda insert: (
        insert(inbound)
        .values(
            {
                name: sa.bindparam(name)
                for name in (
                    *("key", "message_key", "conversation_id", "kind", "body", "at", "seq"),
                    *("wakes", "hold_until", "prepare"),
                )
            }
        )
        .on_conflict_do_nothing()
        .returning(inbound.c.id)
    )
)
# One that waits for an approval is looked at now: whoever writes takes the question back.
_asked = sa.exists().where(approval.c.conversation_id == conversation.c.id, approval.c.state == "asked")
_then = sa.bindparam("then", type_=sa.Double)
_READY = (
    sa.update(conversation)
    .where(conversation.c.id == sa.bindparam("which"))
    .values(
        ready_at=sa.case(
            (conversation.c.ready_at.is_(None), _then),
            (sa.and_(conversation.c.ready_at > _then, _asked), _then),
            else_=conversation.c.ready_at,
        )
    )
)
_waits = sa.and_(inbound.c.conversation_id == sa.bindparam("which"), inbound.c.seq.is_(None))
_HOLD = (
    sa.update(inbound)
    .where(_waits, inbound.c.prepare.is_(None), inbound.c.hold_until < sa.bindparam("then"))
    .values(hold_until=sa.bindparam("then", type_=sa.Double))
)
_EDITABLE = sa.select(inbound.c.id, inbound.c.body).where(
    _waits, inbound.c.message_key == sa.bindparam("edited")
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


def _edit(tx: Connection, which: int, stimulus: Stimulus) -> None:
    """Change the words of a message that still waits; its files stay, because they may be there already.

    What was taken in or answered already keeps its words (spec TG-25, attack access-015).
    """
    row = tx.execute(_EDITABLE, {"which": which, "edited": stimulus.message_key}).one_or_none()
    if row is not None:
        body = with_attachments(encode_stimulus(stimulus), attachments_of(row.body))
        tx.execute(sa.update(inbound).where(inbound.c.id == row.id).values(body=body))


def take_in(tx: Connection, arrival: Arrival, now: float, taken: Taken) -> None:
    """Store one arrival, unless its key is known, and note in `taken` what it was."""
    stimulus = _at_home(tx, arrival.stimulus, now)
    which, role = tx.execute(
        _CONVERSATION(tx),
        {
            "address": stimulus.address.key,
            "chat": stimulus.chat,
            "now": now,
            "via": stimulus.place.channel,
            "who": stimulus.sender.id,
        },
    ).one()
    stimulus = _raised(stimulus, role)
    if stimulus.edits:
        _edit(tx, which, stimulus)
        return
    fetches = any(one.ref and not one.path and not one.problem for one in stimulus.attachments)
    held = now + (PREPARE_LIMIT if fetches else stimulus.hold) if fetches or stimulus.hold else None
    row: dict[str, Any] = {
        "key": stimulus.key,
        "message_key": stimulus.message_key,
        "conversation_id": which,
        "kind": stimulus.kind,
        "body": encode_stimulus(stimulus),
        "at": now,
        "seq": None if arrival.command is None else 0,
        "wakes": arrival.wakes,
        "hold_until": held,
        "prepare": stimulus.hold if fetches else None,
    }
    if tx.execute(_INBOUND(tx), row).scalar_one_or_none() is None:
        return
    taken.new += 1
    taken.unprepared += fetches
    if arrival.command is None:
        if stimulus.hold:
            tx.execute(_HOLD, {"which": which, "then": held})
        if arrival.wakes:
            tx.execute(_READY, {"which": which, "then": held or now})
        return
    behind: tuple[Outgoing, ...] = ()
    refused = not Level(stimulus.sender.level or Level.GUEST).covers(arrival.needs)
    if refused:
        answer = REFUSED[arrival.needs]
        taken.dropped.append(
            Dropped(stimulus, "command", f"it needs the level {arrival.needs}", "access.owners")
        )
    else:
        said = arrival.command(tx, which)
        answer, behind = (said.text, said.behind) if isinstance(said, Said) else (said, ())
        if arrival.interrupts:
            taken.interrupted += [which, *_children(tx, stimulus.address, now)]
    if answer:
        taken.answers += 1
        whisper = stimulus.whisper if refused or stimulus.gesture else ""
        outbox.put(tx, [answered(stimulus, answer, whisper), *behind], now)


def _at_home(tx: Connection, stimulus: Stimulus, now: float) -> Stimulus:
    """Return what comes to a chat that shares a session as what comes to that session.

    Messages of people are there already, and note their way; costs a look only for what the bot itself does.
    """
    if stimulus.address.channel == PERSON:
        if stimulus.kind is Kind.MESSAGE:
            sender = f"{stimulus.place.channel}:{stimulus.sender.id}"
            routes.note(tx, stimulus.place, stimulus.address.chat, sender, now)
        return stimulus
    if stimulus.kind is Kind.MESSAGE or stimulus.address.channel in INNER:
        return stimulus
    home = routes.home(tx, stimulus.address)
    if home == stimulus.address:
        return stimulus
    return replace(stimulus, address=home, deliver_to=stimulus.address.key)


def answered(stimulus: Stimulus, text: str, whisper: str) -> Outgoing:
    """Return what is said at once to a command; as a whisper only where the channel can."""
    return Outgoing(
        key=f"command:{stimulus.key}",
        address=stimulus.place,
        text=text,
        on_unknown=OnUnknown.DROP if whisper else OnUnknown.RESEND,
        whisper=whisper,
    )


def _children(tx: Connection, parent: Address, now: float) -> Sequence[int]:
    """Return the conversations of sub-agents that a command has stopped with their parent."""
    stopped = sa.select(subagent.c.id, subagent.c.place).where(
        subagent.c.parent == parent.key, subagent.c.ended_at >= now
    )
    addresses = [f"agent:{row.id}:{row.place}" for row in tx.execute(stopped)]
    if not addresses:
        return ()
    found = sa.select(conversation.c.id).where(conversation.c.address.in_(addresses))
    return tx.execute(found).scalars().all()


def _raised(stimulus: Stimulus, role: str | None) -> Stimulus:
    """Return the stimulus with what an approval made of its sender, if that is more."""
    sender = stimulus.sender
    if role is None or not sender.level or Level(sender.level).covers(Level(role)):
        return stimulus
    return replace(stimulus, sender=replace(sender, level=role))


def put(
    tx: Connection,
    arrivals: Sequence[Arrival | Dropped | Offer],
    cursor: Cursor | None,
    bad: Sequence[Poison],
    now: float,
) -> Taken:
    """Store what arrived and how far the platform was read, all or nothing."""
    taken = Taken()
    for offer in arrivals:
        judged = offer if isinstance(offer, Arrival | Dropped) else offer(tx, now)
        if isinstance(judged, Arrival):
            take_in(tx, judged, now, taken)
        else:
            taken.dropped.append(judged)
    answers = [dropped.answer for dropped in taken.dropped if dropped.answer is not None]
    taken.answers += len(answers)
    outbox.put(tx, answers, now)
    verdicts.put(tx, taken.dropped, now)
    for one in bad:
        tx.execute(
            _POISON(tx),
            {"key": one.key, "channel": one.channel, "body": one.body, "problem": one.problem, "at": now},
        )
    if cursor is not None:
        set_fact(tx, f"cursor:{cursor.name}", cursor.value)
    return taken


@dataclass(frozen=True, slots=True)
class Unprepared:
    """A waiting message whose files are still to be fetched; one that is not aimed is only context.

    `forwarded`: strangers made the files.
    """

    id: int
    situation: Situation
    attachments: tuple[Attachment, ...]
    aimed: bool = True
    forwarded: bool = False


_UNPREPARED = (
    sa.select(inbound.c.id, inbound.c.kind, inbound.c.body, conversation.c.address)
    .join(conversation, conversation.c.id == inbound.c.conversation_id)
    .where(inbound.c.prepare.is_not(None), inbound.c.seq.is_(None))
    .order_by(inbound.c.id)
    .limit(sa.bindparam("most", type_=sa.Integer))
)


def _unprepared(row: sa.Row[*tuple[Any, ...]]) -> Unprepared:
    said, where = decode_stimulus(row.kind, row.body), Address.parse(row.address)
    place = Address.parse(said.deliver_to) if said.deliver_to else where
    person = where.chat if where.channel == PERSON else ""
    situation = Situation(where, place, said.sender, said.chat, said.kind, person=person)
    return Unprepared(row.id, situation, said.attachments, said.aimed, said.forwarded)


_PARTS_LEFT = sa.select(sa.func.max(inbound.c.hold_until)).where(
    _waits, inbound.c.prepare > 0, inbound.c.id != sa.bindparam("but")
)
_PARKED = (
    sa.update(inbound)
    .where(_waits, inbound.c.prepare.is_(None), inbound.c.hold_until > sa.bindparam("then"))
    .values(hold_until=sa.bindparam("then", type_=sa.Double))
)


def _prepared(tx: Connection, which: int, attachments: Sequence[Attachment], now: float) -> None:
    """Let a message go on; a part of something larger only when no other part still waits for its files."""
    row = tx.execute(
        sa.select(inbound.c.body, inbound.c.prepare, inbound.c.wakes, inbound.c.conversation_id).where(
            inbound.c.id == which, inbound.c.prepare.is_not(None)
        )
    ).one_or_none()
    if row is None:
        return
    here, then = {"which": row.conversation_id, "but": which}, now + row.prepare
    rest = tx.execute(_PARTS_LEFT, here).scalar_one() if row.prepare else None
    tx.execute(
        sa.update(inbound)
        .where(inbound.c.id == which)
        .values(body=with_attachments(row.body, attachments), prepare=None, hold_until=rest or then)
    )
    if rest is not None:
        return
    parked = tx.execute(_PARKED, {"which": row.conversation_id, "then": then}).rowcount if row.prepare else 0
    if row.wakes or parked:
        # It was to be looked at when the time for fetching is over; that is now.
        tx.execute(
            sa.update(conversation)
            .where(conversation.c.id == row.conversation_id, conversation.c.ready_at > then)
            .values(ready_at=then)
        )


@dataclass(frozen=True, slots=True)
class Inbox:
    """The way in."""

    db: Database

    async def put(
        self,
        arrivals: Sequence[Arrival | Dropped | Offer],
        *,
        cursor: Cursor | None = None,
        bad: Sequence[Poison] = (),
    ) -> Taken:
        """Commit all of it in one transaction. Raises: StoreError."""
        now = self.db.now()
        return await self.db.write(functools.partial(put, arrivals=arrivals, cursor=cursor, bad=bad, now=now))

    async def unprepared(self, most: int) -> list[Unprepared]:
        """Return waiting messages whose files are to be fetched, the oldest first. Raises: StoreError."""

        def work(tx: Connection) -> list[Unprepared]:
            rows = tx.execute(_UNPREPARED, {"most": most})
            return [_unprepared(row) for row in rows]

        return await self.db.write(work, durable=False)

    async def prepared(self, which: int, attachments: Sequence[Attachment]) -> None:
        """Note what became of a message's files, and let it go on. Raises: StoreError."""
        now = self.db.now()
        await self.db.write(lambda tx: _prepared(tx, which, attachments, now))

    async def cursor(self, name: str) -> str | None:
        """Return how far a platform's stream was read. Raises: StoreError."""
        return await self.db.write(lambda tx: get_fact(tx, f"cursor:{name}"), durable=False)
