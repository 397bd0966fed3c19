"""Heartbeats in the tables: what was due, what became of it, and what decides about the next."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from gateway.store import routes
from gateway.store.dialect import PerDialect
from gateway.store.tables import beat, conversation, entry, inbound, member, outbound
from gateway.types import PERSON, Address, Chat, JsonObject, Kind

HOME = Address("heartbeat", "main")
"""The conversation in which heartbeats run."""

KEPT = 2000
"""Beats that are remembered: more than a day of one each minute."""

SESSIONS = 20
"""Heartbeats whose transcripts are kept for a look at what happened."""

WINDOW = 24 * 3600.0
"""Seconds in which an alert is not repeated (spec HB-30)."""

_NEWEST = 500
"""Conversations among which a person's is looked for, those used last first."""

_STUCK = 5.0
"""Seconds that a conversation may wait for its turn before the queue counts as full."""


@dataclass(frozen=True, slots=True)
class Route:
    """Where an alert goes. `last` is when a person last wrote there, `dead` that nothing arrives any more."""

    address: Address
    chat: Chat = Chat.DIRECT
    last: float | None = None
    dead: bool = False
    busy: bool = False


@dataclass(frozen=True, slots=True)
class Past:
    """What earlier beats tell about the next.

    `ended` is when the last one that ran had ended, `failures` how many failed in a row until then, the
    first of them in `first_failure`; `calm` counts the OK results in a row under the checklist with the
    digest `checklist`; `passed` counts the slots that were let go since, to spare tokens. `starts` are those
    of the last minute.
    """

    ended: float | None = None
    failures: int = 0
    first_failure: str = ""
    calm: int = 0
    checklist: str = ""
    passed: int = 0
    starts: int = 0


_INSERT = PerDialect(
    lambda insert: (
        insert(beat)
        .values(
            {
                name: sa.bindparam(name)
                for name in ("slot", "at", "status", "reason", "ended", "target", "checklist")
            }
        )
        .on_conflict_do_nothing()
        .returning(beat.c.id)
    )
)


def put(tx: Connection, row: JsonObject) -> bool:
    """Note a beat; False if its slot is known, so that another node has it."""
    number = tx.execute(_INSERT(tx), row).scalar_one_or_none()
    if number is None:
        return False
    tx.execute(sa.delete(beat).where(beat.c.id <= number - KEPT))
    return True


def is_known(tx: Connection, slot: str) -> bool:
    """Return whether a slot was decided on before."""
    return tx.execute(sa.select(beat.c.id).where(beat.c.slot == slot)).scalar_one_or_none() is not None


def past(tx: Connection, now: float) -> Past:
    """Return what is known of earlier beats; `now` is wall time in seconds."""
    ran = beat.c.status.in_(("ok", "alert", "repeat", "failed"))
    rows = tx.execute(sa.select(beat).where(ran).order_by(beat.c.id.desc()).limit(50)).all()
    starts = tx.execute(
        sa.select(sa.func.count()).where(beat.c.status != "skipped", beat.c.at > now - 60, beat.c.at <= now)
    ).scalar_one()
    if not rows:
        return Past(starts=starts)
    newest = rows[0]
    failed = list(itertools.takewhile(lambda row: row.status == "failed", rows))
    same = ("ok", newest.checklist)
    calm = list(itertools.takewhile(lambda row: (row.status, row.checklist) == same, rows))
    passed = tx.execute(
        sa.select(sa.func.count()).where(
            beat.c.id > newest.id, beat.c.reason.in_(("owner-away", "unchanged"))
        )
    ).scalar_one()
    return Past(
        ended=newest.ended,
        failures=len(failed),
        first_failure=failed[-1].slot if failed else "",
        calm=len(calm),
        checklist=newest.checklist,
        passed=passed,
        starts=starts,
    )


def is_running(tx: Connection) -> bool:
    """Return whether an earlier beat has not ended. One that can't end any more is noted as failed."""
    ready = sa.select(conversation.c.ready_at).where(conversation.c.address == HOME.key)
    if tx.execute(ready).scalar_one_or_none() is not None:
        return True
    lost = sa.update(beat).where(beat.c.status == "running")
    tx.execute(lost.values(status="failed", reason="it was stopped", ended=beat.c.at))
    return False


def is_full(tx: Connection, now: float) -> bool:
    """Return whether conversations wait for their turn longer than usual; `now` is the database's."""
    waits = sa.and_(
        conversation.c.ready_at <= now - _STUCK,
        conversation.c.lease_until < now,
        conversation.c.lease_owner.is_(None),
    )
    return tx.execute(sa.select(sa.func.count()).where(waits)).scalar_one() > 0


def renew(tx: Connection) -> None:
    """Let the next beat begin without memory of the last."""
    tx.execute(
        sa.update(conversation)
        .where(conversation.c.address == HOME.key)
        .values(session=conversation.c.session + 1)
    )


# By the index of a conversation's turns; what has no turn (a command, something beside the bot) is no talk.
_said = inbound.alias("said")
_newest = (
    sa.select(_said.c.id)
    .where(
        _said.c.conversation_id == conversation.c.id,
        _said.c.kind == Kind.MESSAGE,
        _said.c.turn.is_not(None),
        _said.c.wakes,
    )
    .order_by(_said.c.turn.desc(), _said.c.id.desc())
    .limit(1)
    .scalar_subquery()
)
_TALKS = (
    sa.select(
        conversation.c.address, conversation.c.chat, conversation.c.ready_at, inbound.c.at, inbound.c.body
    )
    .select_from(conversation)
    .join(inbound, inbound.c.id == _newest)
    .order_by(inbound.c.at.desc())
    .limit(_NEWEST)
)


_Talk: TypeAlias = sa.Row[str, str, float | None, float, str]


def owner_route(tx: Connection, owners: Iterable[tuple[str, str]], channels: Iterable[str]) -> Route | None:
    """Return the most recent private conversation of the first owner who has one; never a group (HB-39).

    `owners` are (channel, sender) from the configuration, where a sender of "" is whoever writes there;
    those of the table go before them.
    """
    stored = tx.execute(
        sa.select(member.c.channel, member.c.sender).where(member.c.role == "owner").order_by(member.c.at)
    )
    known = set(channels)
    for channel, sender in [*((row.channel, row.sender) for row in stored), *owners]:
        if channel not in known:
            continue
        private = _TALKS.where(
            conversation.c.chat == Chat.DIRECT,
            conversation.c.address.startswith(f"{channel}:", autoescape=True),
        )
        here = next(
            (_route(tx, row) for row in tx.execute(private) if sender in ("", _sender_of(row))),
            None,
        )
        shared = _shared_route(tx, f"{channel}:{sender}", channel)
        if here or shared:
            return max((one for one in (here, shared) if one), key=lambda one: one.last or 0.0)
    return None


def _sender_of(row: _Talk) -> str:
    return str(json.loads(row.body)["sender"][0])


def _shared_route(tx: Connection, sender: str, channel: str) -> Route | None:
    """Return a person's newest private chat on a channel that shares a session with others."""
    row = next((one for one in routes.on(tx, channel) if one.sender == sender), None)
    return None if row is None else _of_shared(tx, row)


def _of_shared(tx: Connection, row: sa.Row[str, str, str, float]) -> Route:
    address, home = Address.parse(row.address), Address(PERSON, row.person)
    waits = sa.select(conversation.c.ready_at).where(conversation.c.address == home.key)
    busy = tx.execute(waits).scalar_one_or_none() is not None
    return Route(address, Chat.DIRECT, row.at, _is_dead(tx, address, row.at), busy)


def last_route(tx: Connection, channels: Iterable[str]) -> Route | None:
    """Return the conversation in which a person wrote last; it may be a group."""
    known = set(channels)
    talks = (row for row in tx.execute(_TALKS) if Address.parse(row.address).channel in known)
    found = [_route(tx, row) for row in itertools.islice(talks, 1)]
    found += [_of_shared(tx, row) for name in known for row in routes.on(tx, name)[:1]]
    return max(found, key=lambda one: one.last or 0.0, default=None)


def named_route(tx: Connection, address: Address, channels: Iterable[str]) -> Route | None:
    """Return the route to an address, None if its channel is not running."""
    if address.channel not in set(channels):
        return None
    row = tx.execute(_TALKS.where(conversation.c.address == address.key)).one_or_none()
    if row is not None:
        return _route(tx, row)
    shared = next((one for one in routes.on(tx, address.channel) if one.address == address.key), None)
    if shared is not None:
        return _of_shared(tx, shared)
    here = tx.execute(sa.select(conversation.c.chat).where(conversation.c.address == address.key))
    # Nothing is known of a place where nobody wrote: what is private must not go there.
    return Route(address, Chat(here.scalar_one_or_none() or Chat.GROUP), dead=_is_dead(tx, address, None))


def _route(tx: Connection, row: _Talk) -> Route:
    address = Address.parse(row.address)
    dead = _is_dead(tx, address, row.at)
    return Route(address, Chat(row.chat), row.at, dead, busy=row.ready_at is not None)


def _is_dead(tx: Connection, address: Address, last: float | None) -> bool:
    """Return whether the newest message there was refused for good, and nobody has written since."""
    newest = tx.execute(
        sa.select(outbound.c.state, outbound.c.attempts, outbound.c.problem, outbound.c.at)
        .where(outbound.c.address == address.key)
        .order_by(outbound.c.id.desc())
        .limit(1)
    ).one_or_none()
    if newest is None or newest.state != "dead" or newest.problem == "too old to send":
        return False
    return last is None or newest.at > last


def has_answered(tx: Connection, address: Address, since: float) -> bool:
    """Return whether the model answered a person there after `since`, on the database's clock."""
    home = routes.home(tx, address).key
    here = sa.select(conversation.c.id, conversation.c.next_seq).where(conversation.c.address == home)
    row = tx.execute(here).one_or_none()
    if row is None:
        return False
    last = sa.select(entry.c.role, entry.c.usage, entry.c.at).where(
        entry.c.conversation_id == row.id, entry.c.seq == row.next_seq - 1
    )
    found = tx.execute(last).one_or_none()
    return found is not None and found.usage is not None and found.at > since


def was_delivered(tx: Connection, signature: str, now: float) -> bool:
    """Return whether an alert with this signature was shown within `WINDOW` (not after `now`: HB-30)."""
    same = sa.select(beat.c.id).where(
        beat.c.status == "alert",
        beat.c.signature == signature,
        beat.c.ended > now - WINDOW,
        beat.c.ended <= now,
    )
    return tx.execute(same.limit(1)).scalar_one_or_none() is not None


def end(tx: Connection, slot: str, values: JsonObject) -> str:
    """Note how a beat ended; return where it was to be shown."""
    noted = sa.update(beat).where(beat.c.slot == slot).values(**values).returning(beat.c.target)
    return str(tx.execute(noted).scalar_one_or_none() or "")


def prune(tx: Connection, conversation_id: int, turn: int) -> None:
    """Drop what the heartbeat's conversation no longer needs: its slots are in `beat`."""
    for table in (entry, inbound):
        old = sa.and_(table.c.conversation_id == conversation_id, table.c.turn <= turn - SESSIONS)
        tx.execute(sa.delete(table).where(old))


def recent(tx: Connection, limit: int) -> list[JsonObject]:
    """Return the last beats, the newest first, as JSON; `delivery` is the state of its first message."""
    rows = tx.execute(sa.select(beat).order_by(beat.c.id.desc()).limit(limit)).mappings().all()
    return [_shown(tx, dict(row)) for row in rows]


def last_run(tx: Connection) -> JsonObject | None:
    """Return the newest beat that was not skipped."""
    ran = sa.select(beat).where(beat.c.status != "skipped").order_by(beat.c.id.desc()).limit(1)
    row = tx.execute(ran).mappings().one_or_none()
    return None if row is None else _shown(tx, dict(row))


_SHOWN = ("slot", "at", "status", "reason", "ended", "tokens")


def _shown(tx: Connection, row: JsonObject) -> JsonObject:
    state = None
    if row["replies"]:
        first = sa.select(outbound.c.state).where(outbound.c.key == f"{row['replies']}0")
        state = tx.execute(first).scalar_one_or_none()
    target = Address.parse(row["target"]).shown if row["target"] else ""
    return {name: row[name] for name in _SHOWN} | {"target": target, "delivery": state or ""}
