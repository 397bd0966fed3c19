"""The transcript, which is also the journal of a running turn: every write carries the claim's epoch."""

from __future__ import annotations

import functools
import itertools
import logging
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeGuard

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from gateway.errors import LeaseLost
from gateway.sessions import Freshness
from gateway.steps import is_open
from gateway.store import approvals, inbox, notes, outbox, routes
from gateway.store.approvals import Approval
from gateway.store.codec import decode, decode_stimulus, encode, encode_usage
from gateway.store.engine import Database
from gateway.store.notes import Note
from gateway.store.outbox import Delivery
from gateway.store.tables import conversation, entry, inbound
from gateway.store.usage import Ledger
from gateway.types import (
    INNER,
    PERSON,
    Address,
    AssistantEntry,
    Chat,
    Entry,
    Kind,
    NoteEntry,
    Outgoing,
    Sender,
    Stimulus,
    ToolEntry,
    Usage,
    UserEntry,
)
from gateway.usage import Footer

log = logging.getLogger(__name__)

STOPPED = "[Stopped by the user.]"
MERGED = 20
"""Messages that one turn may take in at once (spec IN-10)."""

CONTEXT = 50
"""Messages beside the bot that the next one that wakes it brings along."""


@dataclass(frozen=True, slots=True)
class Claim:
    """The right to add to one conversation until someone takes a newer epoch.

    `attempt` counts claims without progress, `started` names the ONCE call that may have run,
    `keys` are the stimuli that this turn answers. `approvals` are the questions about the open calls by
    call id; `waiting` tells whether somebody wrote since they were asked. `wanted` is what a summary that a
    person asked for must keep, None if nobody did. `person` is whose session it is or whom it works for, if
    that is a session of several chats, and `route` the chat of it in which the person wrote last. `footer` is
    what stands below its replies.
    """

    conversation_id: int
    address: Address
    chat: Chat
    epoch: int
    attempt: int
    session: int
    turn: int
    next_seq: int
    started: str | None
    transcript: tuple[Entry, ...]
    keys: tuple[str, ...] = ()
    approvals: Mapping[str, Approval] = field(default_factory=dict)
    waiting: bool = False
    wanted: str | None = None
    person: str = ""
    route: Address | None = None
    footer: Footer = Footer.OFF

    @property
    def place(self) -> Address:
        """Return where the reply of the turn goes: where it came from, or where its schedule says."""
        newest = next((one for one in reversed(self.transcript) if isinstance(one, UserEntry)), None)
        if newest is not None and newest.deliver_to:
            return Address.parse(newest.deliver_to)
        return self.route or self.address

    @property
    def seen_at(self) -> Address:
        """Return where people see what happens: here, or in a shared session in the chat it is about."""
        if self.address.channel != PERSON:
            return self.address
        rests = not self.transcript or _rests(self.transcript)
        return self.route if rests and self.route is not None else self.place

    @property
    def calling(self) -> int:
        """Return the seq of the entry that makes the calls which are open now."""
        results = itertools.takewhile(lambda one: isinstance(one, ToolEntry), reversed(self.transcript))
        return self.next_seq - 1 - sum(1 for _ in results)


@dataclass(frozen=True, slots=True)
class Ended:
    """How a turn ended, for whoever keeps count of what it started.

    `shown` is what people see of it, `text` what they would where somebody reads; `replies` is what the
    keys of these messages begin with; `problem` says what failed, "" if nothing did, and `sorry` says it for
    people; `lasting` is a failure that will not pass by itself. `held_back` was shown before, so it is not
    shown again.
    """

    conversation_id: int
    turn: int
    keys: tuple[str, ...]
    shown: str
    replies: str
    text: str = ""
    problem: str = ""
    sorry: str = ""
    lasting: bool = False
    held_back: str = ""


@dataclass(slots=True)
class Transcripts:
    """Transcripts of recent conversations, so that a long one is not read again at each turn.

    A kept one counts only while session and next_seq are still the row's, so another process's
    writes are seen. Bounded by `conversations` and by `characters` in all.
    """

    conversations: int = 256
    characters: int = 8_000_000
    _kept: OrderedDict[int, tuple[int, int, tuple[Entry, ...], int]] = field(default_factory=OrderedDict)
    _size: int = 0

    def get(self, conversation_id: int, session: int, next_seq: int) -> tuple[Entry, ...] | None:
        """Return the kept transcript if it is still the stored one."""
        kept = self._kept.get(conversation_id)
        return kept[2] if kept is not None and kept[:2] == (session, next_seq) else None

    def put(self, conversation_id: int, session: int, next_seq: int, transcript: tuple[Entry, ...]) -> None:
        """Keep a transcript, at the cost of those that were not used for longest."""
        known = self._kept.get(conversation_id)
        goes_on = known is not None and known[0] == session and known[2][:1] == transcript[:1]
        grown = len(known[2]) if known is not None and goes_on else 0
        size = (known[3] if known is not None and grown else 0) + sum(map(_weight, transcript[grown:]))
        self._drop(conversation_id)
        self._kept[conversation_id] = (session, next_seq, transcript, size)
        self._size += size
        while len(self._kept) > self.conversations or self._size > self.characters:
            self._drop(next(iter(self._kept)))

    def _drop(self, conversation_id: int) -> None:
        gone = self._kept.pop(conversation_id, None)
        if gone is not None:
            self._size -= gone[3]


def _weight(one: Entry) -> int:
    """Return about how many characters an entry keeps in memory."""
    if not isinstance(one, AssistantEntry):
        return len(one.text)
    arguments = sum(len(str(call.args)) for call in one.calls)
    return len(one.text) + len(one.reasoning) + arguments + (len(str(one.state)) if one.state else 0)


_c = conversation.c
# What runs in this process is running, whatever the clock says. What only bears its name is not: a claim
# may have been committed by a server that died before it could say so.
_elsewhere = sa.or_(
    _c.lease_owner.is_(None),
    _c.lease_owner != sa.bindparam("me"),
    _c.id.not_in(sa.bindparam("running", expanding=True)),
)
# By name and not in the condition itself: that PostgreSQL may run once for each row, and claim them all.
_picked = (
    sa.select(_c.id)
    .where(_c.ready_at <= sa.bindparam("now"), _c.lease_until < sa.bindparam("now"), _elsewhere)
    .order_by(_c.ready_at)
    .limit(sa.bindparam("most", type_=sa.Integer))
    .with_for_update(skip_locked=True)
    .cte("picked")
)
_CLAIM = (
    sa.update(conversation)
    .where(_c.id.in_(sa.select(_picked.c.id)))
    .values(
        lease_owner=sa.bindparam("me"),
        lease_until=sa.bindparam("until"),
        epoch=_c.epoch + 1,
        attempt=_c.attempt + 1,
    )
    .returning(
        *(_c.id, _c.address, _c.chat, _c.epoch, _c.attempt, _c.session, _c.turn, _c.next_seq, _c.started),
        *(_c.note_seq, _c.kept_seq, _c.wants_note, _c.footer, _c.ready_at),
    )
)
_NEXT_READY = sa.select(
    sa.func.min(sa.case((_c.ready_at > _c.lease_until, _c.ready_at), else_=_c.lease_until))
).where(_c.ready_at.is_not(None), _elsewhere)
_FENCE = (
    sa.update(conversation)
    .where(_c.id == sa.bindparam("which"), _c.epoch == sa.bindparam("fence"))
    .values(
        next_seq=_c.next_seq + sa.bindparam("grown", type_=sa.Integer),
        lease_until=sa.bindparam("until"),
        attempt=sa.case((sa.bindparam("progress", type_=sa.Integer) == 1, 0), else_=_c.attempt),
        started=sa.bindparam("mark", type_=sa.Text),
        turn=_c.turn + sa.bindparam("turns", type_=sa.Integer),
    )
    .returning(_c.next_seq, _c.turn)
)
_ENTRIES = (
    sa.select(entry.c.seq, entry.c.role, entry.c.body)
    .where(
        entry.c.conversation_id == sa.bindparam("which"),
        entry.c.session == sa.bindparam("current"),
        entry.c.seq >= sa.bindparam("kept"),
    )
    .order_by(entry.c.seq)
)
_SAID = (
    sa.select(entry.c.role, entry.c.body)
    .where(
        entry.c.conversation_id == sa.bindparam("which"),
        entry.c.session == sa.bindparam("current"),
        entry.c.role == "user",
    )
    .order_by(entry.c.seq.desc())
)
_LAST_SAID = (
    sa.select(entry.c.role, entry.c.body)
    .where(entry.c.conversation_id == sa.bindparam("which"), entry.c.role == "user")
    .order_by(entry.c.seq.desc())
    .limit(1)
)
_ANSWERED = (
    sa.select(entry.c.seq)
    .join(conversation, conversation.c.id == entry.c.conversation_id)
    .where(_c.address == sa.bindparam("where"), entry.c.role == "assistant")
    .limit(1)
)
_ADD = sa.insert(entry)
_columns = (inbound.c.id, inbound.c.key, inbound.c.kind, inbound.c.body, inbound.c.hold_until)
_waits = sa.and_(inbound.c.conversation_id == sa.bindparam("which"), inbound.c.seq.is_(None))
_WAITING = sa.select(*_columns).where(_waits, inbound.c.wakes).order_by(inbound.c.id).limit(MERGED)
_BESIDE = (
    sa.select(*_columns)
    .where(_waits, sa.not_(inbound.c.wakes), inbound.c.id < sa.bindparam("before"))
    .order_by(inbound.c.id.desc())
    .limit(CONTEXT)
)
_FORGET = (
    sa.update(inbound)
    .where(_waits, sa.not_(inbound.c.wakes), inbound.c.id < sa.bindparam("before"))
    .values(seq=0)
)
_ABSORBED = (
    sa.update(inbound)
    .where(inbound.c.id == sa.bindparam("row"))
    .values(seq=sa.bindparam("at_seq"), turn=sa.bindparam("in_turn"))
)
_KEYS = sa.select(inbound.c.key).where(
    inbound.c.conversation_id == sa.bindparam("which"), inbound.c.turn == sa.bindparam("in_turn")
)
_held = sa.func.coalesce(inbound.c.hold_until, 0)
_next_look = (
    sa.select(sa.case((_held > sa.bindparam("now"), _held), else_=sa.bindparam("now", type_=sa.Double)))
    .where(inbound.c.conversation_id == _c.id, inbound.c.seq.is_(None), inbound.c.wakes)
    .order_by(inbound.c.id)
    .limit(1)
    .scalar_subquery()
)
_RELEASE = (
    sa.update(conversation)
    .where(_c.id == sa.bindparam("which"))
    .values(
        lease_owner=None,
        lease_until=0,
        # Cleared in the transaction that saw no waiting row, or a message put in between would sleep.
        ready_at=sa.case(
            (sa.bindparam("retry", type_=sa.Double).is_not(None), sa.bindparam("retry", type_=sa.Double)),
            (_c.wants_note.is_not(None), sa.bindparam("now", type_=sa.Double)),
            else_=_next_look,
        ),
    )
    .returning(_c.ready_at)
)
_RENEW = (
    sa.update(conversation)
    .where(
        _c.id == sa.bindparam("which"),
        _c.epoch == sa.bindparam("fence"),
        # A turn that has just let go must not be locked again.
        _c.lease_owner == sa.bindparam("me"),
    )
    .values(lease_until=sa.bindparam("until"))
)
_FREE = sa.update(conversation).where(_c.lease_owner.is_not(None)).values(lease_owner=None, lease_until=0)


def _fence(
    tx: Connection,
    claim: Claim,
    until: float,
    *,
    grown: int = 0,
    progress: bool,
    mark: str | None = None,
    turns: int = 0,
) -> tuple[int, int]:
    """Check the epoch, extend the lease, make room; return the first free seq and the turn."""
    row = tx.execute(
        _FENCE,
        {
            "which": claim.conversation_id,
            "fence": claim.epoch,
            "grown": grown,
            "until": until,
            "progress": int(progress),
            "mark": mark,
            "turns": turns,
        },
    ).one_or_none()
    if row is None:
        raise LeaseLost(claim.address.shown)
    return row.next_seq - grown, row.turn


def _add(
    tx: Connection,
    claim: Claim,
    first: int,
    turn: int,
    entries: Sequence[Entry],
    now: float,
    usage: Usage | None,
) -> None:
    if not entries:
        return
    rows = []
    for offset, one in enumerate(entries):
        role, body = encode(one)
        counted = encode_usage(usage) if usage is not None and isinstance(one, AssistantEntry) else None
        rows.append(
            {
                "conversation_id": claim.conversation_id,
                "seq": first + offset,
                "session": claim.session,
                "turn": turn,
                "role": role,
                "body": body,
                "usage": counted,
                "at": now,
            }
        )
    tx.execute(_ADD, rows)


def _transcript(tx: Connection, which: int, session: int, kept_seq: int, note_seq: int) -> tuple[Entry, ...]:
    """Read what the model sees of a conversation: what a summary stands for is not even looked at."""
    here = {"which": which, "current": session, "kept": kept_seq}
    rows = notes.visible(tx.execute(_ENTRIES, here).all(), note_seq)
    return tuple(decode(one.role, one.body) for one in rows)


def peek(tx: Connection, address: Address) -> Claim | None:
    """Return a conversation as a turn would find it, without the right to write; None if there is none.

    A chat that shares a session has that one.
    """
    address = routes.home(tx, address)
    row = tx.execute(sa.select(conversation).where(_c.address == address.key)).one_or_none()
    if row is None:
        return None
    claim = Claim(
        conversation_id=row.id,
        address=address,
        chat=Chat(row.chat),
        epoch=0,
        attempt=0,
        session=row.session,
        turn=row.turn,
        next_seq=row.next_seq,
        started=row.started,
        transcript=_transcript(tx, row.id, row.session, row.kept_seq, row.note_seq),
    )
    return _known(tx, claim)


def last_speaker(tx: Connection, conversation_id: int) -> Sender:
    """Return who spoke last in a conversation, whichever session it was in; nobody if nobody did."""
    row = tx.execute(_LAST_SAID, {"which": conversation_id}).one_or_none()
    newest = decode(row.role, row.body) if row else None
    return newest.sender if isinstance(newest, UserEntry) else Sender("")


def _absorb(tx: Connection, claim: Claim, now: float, until: float, fresh: Freshness) -> Claim:
    """Move waiting stimuli into the transcript; a turn that begins gets a new number.

    The first message after what `fresh` allows begins a new session, and belongs to it.
    """
    starts = not claim.transcript or _rests(claim.transcript)
    waiting = tx.execute(_WAITING, {"which": claim.conversation_id}).all()
    rows = _joining(_released(waiting, now), claim.transcript, starts=starts)
    if claim.address.channel == PERSON:
        rows = _of_one_chat(rows, "" if starts else claim.place.key)
    if not rows:
        return claim
    if starts and rows[0].kind == Kind.MESSAGE and fresh.mode:
        claim = _renewed(tx, claim, decode_stimulus(rows[0].kind, rows[0].body).at, fresh)
    rows = _with_context(tx, claim, rows)
    entries = [decode_stimulus(row.kind, row.body) for row in rows]
    first, turn = _fence(tx, claim, until, grown=len(entries), progress=False, turns=int(starts))
    _add(tx, claim, first, turn, entries, now, None)
    tx.execute(
        _ABSORBED,
        [{"row": row.id, "at_seq": first + offset, "in_turn": turn} for offset, row in enumerate(rows)],
    )
    keys = tuple(row.key for row in rows)
    return replace(
        claim,
        transcript=(*claim.transcript, *entries),
        next_seq=first + len(entries),
        turn=turn,
        started=None,
        keys=keys if starts else (*claim.keys, *keys),
    )


def _renewed(tx: Connection, claim: Claim, at: float, fresh: Freshness) -> Claim:
    """Return the claim on a new session, if a message that was sent `at` begins one."""
    if not claim.transcript or not fresh.is_over(_last_said(tx, claim), at, claim.chat):
        return claim
    values = {"session": _c.session + 1, "kept_seq": _c.next_seq, "note_seq": 0}
    tx.execute(sa.update(conversation).where(_c.id == claim.conversation_id).values(values))
    log.info("session.reset", extra={"conversation": claim.address.shown, "mode": fresh.mode})
    return replace(claim, session=claim.session + 1, transcript=())


def _last_said(tx: Connection, claim: Claim) -> float | None:
    """Return when a person last wrote to the bot in this session; what it does by itself does not count."""
    seen = next((one.at for one in reversed(claim.transcript) if _is_said(one)), None)
    if seen is not None or not isinstance(claim.transcript[0], NoteEntry):
        return seen
    rows = tx.execute(_SAID, {"which": claim.conversation_id, "current": claim.session})
    older = (decode(row.role, row.body) for row in rows)
    return next((one.at for one in older if _is_said(one)), None)


def _is_said(one: Entry) -> TypeGuard[UserEntry]:
    return isinstance(one, UserEntry) and one.kind is Kind.MESSAGE and one.aimed


def _released(rows: Sequence[Any], now: float) -> list[Any]:
    """Return the rows before the first that is still held, so that nothing overtakes it."""
    return list(itertools.takewhile(lambda row: (row.hold_until or 0) <= now, rows))


def _with_context(tx: Connection, claim: Claim, rows: Sequence[Any]) -> list[Any]:
    """Add what was said beside the bot before these rows; what lies further back is let go."""
    here = {"which": claim.conversation_id, "before": rows[-1].id}
    beside = tx.execute(_BESIDE, here).all()
    if len(beside) == CONTEXT:
        tx.execute(_FORGET, here | {"before": beside[-1].id})
    return sorted([*rows, *beside], key=lambda row: int(row.id))


def _joining(rows: Sequence[Any], transcript: Sequence[Entry], *, starts: bool) -> Sequence[Any]:
    """Return the waiting rows that belong into this turn.

    Messages of people join each other, also while their turn runs (steering); whatever else wakes
    the bot has a turn of its own, and nothing overtakes it.
    """
    if not rows:
        return ()
    if rows[0].kind != Kind.MESSAGE:
        return rows[:1] if starts else ()
    if not starts and turn_kind(transcript) is not Kind.MESSAGE:
        return ()
    return list(itertools.takewhile(lambda row: row.kind == Kind.MESSAGE, rows))


def _of_one_chat(rows: Sequence[Any], place: str) -> Sequence[Any]:
    """Return the rows that come from `place`, or with the first of them from whichever chat that came from.

    So each turn has one chat, to which its answer goes; what was written elsewhere has the next turn.
    """
    found = [decode_stimulus(row.kind, row.body).deliver_to for row in rows]
    here = place or next(iter(found), "")
    return rows[: sum(1 for _ in itertools.takewhile(lambda one: one == here, found))]


def turn_kind(transcript: Sequence[Entry]) -> Kind:
    """Return what woke the turn that a transcript ends with."""
    for one in reversed(transcript):
        if isinstance(one, UserEntry):
            return one.kind
    return Kind.MESSAGE


def _rests(transcript: Sequence[Entry]) -> bool:
    last = transcript[-1]
    return isinstance(last, AssistantEntry) and not last.calls


def _claim(
    tx: Connection, *, journal: Journal, now: float, most: int, running: Sequence[int]
) -> tuple[list[Claim], float | None]:
    mine = {"me": journal.owner, "running": running}
    until = now + journal.lease
    found = tx.execute(_CLAIM, {**mine, "now": now, "until": until, "most": most})
    rows = sorted(found, key=lambda row: (row.ready_at, row.id))
    next_at = None if len(rows) == most else tx.execute(_NEXT_READY, mine).scalar_one()
    return [_known(tx, _open(tx, row, journal, now, until)) for row in rows], next_at


def _open(tx: Connection, row: sa.Row[Any], journal: Journal, now: float, until: float) -> Claim:
    """Load what a claimed conversation needs to go on, and take in what waits if it may."""
    transcript = journal.kept.get(row.id, row.session, row.next_seq)
    if transcript is None:
        transcript = _transcript(tx, row.id, row.session, row.kept_seq, row.note_seq)
    claim = Claim(
        conversation_id=row.id,
        address=Address.parse(row.address),
        chat=Chat(row.chat),
        epoch=row.epoch,
        attempt=row.attempt,
        session=row.session,
        turn=row.turn,
        next_seq=row.next_seq,
        started=row.started,
        transcript=transcript,
        wanted=row.wants_note,
        footer=Footer(row.footer),
    )
    if transcript and not _rests(transcript):
        found = tx.execute(_KEYS, {"which": row.id, "in_turn": row.turn})
        claim = replace(claim, keys=tuple(found.scalars()))
    if not is_open(transcript):
        return _absorb(tx, claim, now, until, journal.fresh)
    # New messages must not come between a call and its result.
    asked = approvals.of_calls(tx, row.id, claim.calling)
    waits = asked and tx.execute(_WAITING, {"which": row.id}).first() is not None
    return replace(claim, approvals=asked, waiting=bool(waits))


def _known(tx: Connection, claim: Claim) -> Claim:
    """Return the claim with whom a shared session belongs to; costs a look only where there may be one."""
    if claim.address.channel == PERSON:
        person = claim.address.chat
        return replace(claim, person=person, route=routes.newest(tx, person))
    if claim.address.channel in INNER:
        return replace(claim, person=routes.person_of(tx, claim.address.parent or claim.place))
    return claim


def stop(tx: Connection, conversation_id: int, now: float, *, new_session: bool) -> bool:
    """End whatever runs or waits in a conversation; return whether there was anything.

    The open calls and the question get an answer, so that the transcript stays valid and a later
    turn does not take them up again. With `new_session` the conversation starts afresh after it.
    """
    # Locked first, as by every other write: else this and a turn that ends now wait for each other.
    row = tx.execute(
        sa.select(_c.session, _c.next_seq, _c.turn, _c.note_seq, _c.kept_seq)
        .where(_c.id == conversation_id)
        .with_for_update()
    ).one()
    transcript = _transcript(tx, conversation_id, row.session, row.kept_seq, row.note_seq)
    cleared = tx.execute(
        sa.update(inbound)
        .where(inbound.c.conversation_id == conversation_id, inbound.c.seq.is_(None))
        .values(seq=0)
    ).rowcount
    running = bool(transcript) and not _rests(transcript)
    endings: list[Entry] = []
    if running:
        endings = [
            ToolEntry(call.id, call.name, "stopped by the user; it may or may not have run", is_error=True)
            for call in is_open(transcript)
        ]
        endings.append(AssistantEntry(STOPPED))
    claim = Claim(
        conversation_id, Address("", ""), Chat.DIRECT, 0, 0, row.session, row.turn, row.next_seq, None, ()
    )
    _add(tx, claim, row.next_seq, row.turn, endings, now, None)
    approvals.drop(tx, conversation_id, now)
    tx.execute(
        sa.update(conversation)
        .where(_c.id == conversation_id)
        .values(
            epoch=_c.epoch + 1,
            next_seq=_c.next_seq + len(endings),
            session=_c.session + int(new_session),
            note_seq=0 if new_session else _c.note_seq,
            kept_seq=_c.next_seq + len(endings) if new_session else _c.kept_seq,
            wants_note=None,
            attempt=0,
            started=None,
            lease_owner=None,
            lease_until=0,
            ready_at=None,
        )
    )
    return running or cleared > 0


def size(tx: Connection, conversation_id: int) -> tuple[int, int, int]:
    """Return the session's number, its entries, and the stimuli that wait."""
    session: int = tx.execute(sa.select(_c.session).where(_c.id == conversation_id)).scalar_one()
    entries: int = tx.execute(
        sa.select(sa.func.count())
        .select_from(entry)
        .where(entry.c.conversation_id == conversation_id, entry.c.session == session)
    ).scalar_one()
    waiting: int = tx.execute(
        sa.select(sa.func.count())
        .select_from(inbound)
        .where(inbound.c.conversation_id == conversation_id, inbound.c.seq.is_(None))
    ).scalar_one()
    return session, entries, waiting


def has_answered(tx: Connection, address: Address) -> bool:
    """Return whether the bot has ever answered at an address."""
    if tx.execute(_ANSWERED, {"where": address.key}).scalar_one_or_none() is not None:
        return True
    return bool(routes.person_of(tx, address))  # a shared session answers wherever it was written to


@dataclass(frozen=True, slots=True)
class Journal:
    """Claims conversations and writes their transcripts. `left` are those whose end left something to do.

    `lease`: seconds; `owner` names this process; `fresh` says when a session is over by itself; `ledger` adds
    up what is paid.
    """

    db: Database
    owner: str
    lease: float = 60.0
    kept: Transcripts = field(default_factory=Transcripts)
    fresh: Freshness = field(default_factory=Freshness)
    ledger: Ledger = field(default_factory=Ledger)
    left: set[int] = field(default_factory=set)

    def _pay(self, tx: Connection, claim: Claim, entries: Sequence[Entry], usage: Usage | None) -> None:
        if usage is not None:
            model = next((one.model for one in reversed(entries) if isinstance(one, AssistantEntry)), "")
            self.ledger.note(tx, claim.address, claim.transcript, usage, model)

    async def claim(self, most: int, running: Sequence[int] = ()) -> tuple[list[Claim], float | None]:
        """Take conversations that wait for longest, with what waits in them; never those in `running`.

        Also says when to look again (None: when somebody rings). Raises: StoreError.
        """
        work = functools.partial(_claim, journal=self, now=self.db.now(), most=most, running=running)
        return await self.db.write(work, durable=False)

    async def absorb(self, claim: Claim) -> Claim:
        """Take in what arrived meanwhile. Raises: LeaseLost, StoreError."""
        now = self.db.now()

        def work(tx: Connection) -> Claim:
            taken = _absorb(tx, claim, now, now + self.lease, self.fresh)
            if taken is claim:
                _fence(tx, claim, now + self.lease, progress=False)
            return taken

        return await self.db.write(work, durable=False)

    async def start(self, claim: Claim, call_id: str) -> None:
        """Note that a ONCE call is about to run, before it does. Raises: LeaseLost, StoreError."""
        until = self.db.now() + self.lease
        await self.db.write(lambda tx: _mark(tx, claim, until, call_id))

    async def append(self, claim: Claim, entries: Sequence[Entry], usage: Usage | None = None) -> Claim:
        """Commit entries. Raises: LeaseLost, StoreError."""
        now = self.db.now()

        def work(tx: Connection) -> Claim:
            first, turn = _fence(tx, claim, now + self.lease, grown=len(entries), progress=True)
            _add(tx, claim, first, turn, entries, now, usage)
            self._pay(tx, claim, entries, usage)
            return replace(
                claim,
                transcript=(*claim.transcript, *entries),
                next_seq=first + len(entries),
                started=None,
                attempt=0,
            )

        return await self.db.write(work)

    async def sum_up(self, claim: Claim, note: Note, messages: Sequence[Outgoing] = ()) -> Claim:
        """Let a summary stand for all but the last entries of the transcript. Raises: LeaseLost, StoreError.

        No call may be open. It is no progress: a turn that fails after it each time is given up as ever.
        """
        now = self.db.now()

        def work(tx: Connection) -> Claim:
            first, turn = _fence(tx, claim, now + self.lease, grown=1, progress=False)
            paid = 0 if _rests(claim.transcript) else turn
            notes.write(tx, claim.conversation_id, first, paid, note, now)
            if note.usage is not None:
                self.ledger.note(tx, claim.address, claim.transcript, note.usage, note.model)
            outbox.put(tx, messages, now)
            tail = claim.transcript[-note.kept :]
            return replace(
                claim, transcript=(NoteEntry(note.text), *tail), next_seq=first + 1, started=None, wanted=None
            )

        return await self.db.write(work)

    async def charge(self, claim: Claim, usage: Usage, model: str) -> None:
        """Count what was paid for nothing. Raises: StoreError."""
        if usage != Usage():
            await self.db.write(
                lambda tx: self.ledger.note(tx, claim.address, claim.transcript, usage, model), durable=False
            )

    async def let_be(self, claim: Claim, messages: Sequence[Outgoing] = ()) -> Claim:
        """Note that the summary which was asked for will not come. Raises: LeaseLost, StoreError."""
        now = self.db.now()

        def work(tx: Connection) -> Claim:
            _fence(tx, claim, now + self.lease, progress=False, mark=claim.started)
            notes.drop(tx, claim.conversation_id)
            outbox.put(tx, messages, now)
            return replace(claim, wanted=None)

        return await self.db.write(work)

    async def release(  # noqa: PLR0913 - one transaction, each part of it by name
        self,
        claim: Claim,
        entries: Sequence[Entry] = (),
        messages: Sequence[Outgoing] = (),
        *,
        usage: Usage | None = None,
        mirror: Stimulus | None = None,
        retry_after: float | None = None,
        failed: bool = False,
        reserve: outbox.Outbox | None = None,
        also: Callable[[Connection], None] | None = None,
    ) -> list[Delivery]:
        """Commit the last entries of a turn with what people see of them, and let the conversation go.

        `mirror` is put beside another conversation, as context for its next turn. `also` writes what else
        must hold if and only if the turn has ended.
        With `reserve` the first of the messages comes back reserved, if nothing stands before it.
        With `retry_after` the conversation is looked at again then; `failed` counts against the turn.
        Raises: LeaseLost, StoreError.
        """
        now = self.db.now()
        retry = None if retry_after is None else now + retry_after

        def work(tx: Connection) -> tuple[list[Delivery], bool]:
            first, turn = _fence(
                tx,
                claim,
                0,
                grown=len(entries),
                progress=not failed,
                mark=None if entries else claim.started,
            )
            _add(tx, claim, first, turn, entries, now, usage)
            self._pay(tx, claim, entries, usage)
            outbox.put(tx, messages, now)
            if mirror is not None:
                inbox.take_in(tx, inbox.Arrival(mirror, wakes=False), now, inbox.Taken())
            if also is not None:
                also(tx)
            here = {"which": claim.conversation_id, "retry": retry, "now": now}
            more = tx.execute(_RELEASE, here).scalar_one() is not None
            if reserve is None or not messages:
                return [], more
            where = messages[0].address
            taken = outbox.take(tx, owner=reserve.owner, now=now, lease=reserve.lease, most=1, address=where)
            return taken, more

        deliveries, more = await self.db.write(work)
        if more or also is not None:
            self.left.add(claim.conversation_id)
        self.kept.put(
            claim.conversation_id, claim.session, claim.next_seq + len(entries), (*claim.transcript, *entries)
        )
        return deliveries

    async def stop(self, address: Address) -> tuple[int | None, bool]:
        """End whatever runs or waits at an address.

        Returns its conversation, None if there is none, and whether there was anything. Raises: StoreError.
        """
        now = self.db.now()

        def work(tx: Connection) -> tuple[int | None, bool]:
            which = tx.execute(sa.select(_c.id).where(_c.address == address.key)).scalar_one_or_none()
            return which, which is not None and stop(tx, which, now, new_session=False)

        return await self.db.write(work)

    async def renew(self, claims: Sequence[Claim]) -> list[Claim]:
        """Extend the leases of running turns; return those no longer held. Raises: StoreError."""
        until = self.db.now() + self.lease

        def work(tx: Connection) -> list[Claim]:
            return [
                claim
                for claim in claims
                if not tx.execute(
                    _RENEW,
                    {"which": claim.conversation_id, "fence": claim.epoch, "until": until, "me": self.owner},
                ).rowcount
            ]

        return await self.db.write(work, durable=False)

    async def recover(self) -> None:
        """Free what a dead process of ours had claimed; on a shared database leases run out by themselves."""
        if self.db.exclusive:
            await self.db.write(_free)


def _free(tx: Connection) -> None:
    tx.execute(_FREE)


def _mark(tx: Connection, claim: Claim, until: float, call_id: str) -> None:
    _fence(tx, claim, until, progress=False, mark=call_id)
