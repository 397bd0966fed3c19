"""The door: who may talk, what is a command, and then everything into the tables."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from sqlalchemy.engine import Connection

from gateway import pairing
from gateway.access import Allow, AskMember, AskThread, Drop, Policy, Settled
from gateway.bell import Bell
from gateway.channel import Cursor, Poison
from gateway.commands import Commands, ForSender, asks_to_come_in
from gateway.fence import defuse
from gateway.identities import Identities
from gateway.store import journal, members
from gateway.store.inbox import REFUSED, Arrival, Inbox, Offer, answered
from gateway.store.verdicts import Dropped
from gateway.types import Level, Outgoing, Stimulus

log = logging.getLogger(__name__)

MAX_CHARS = 32_000
"""Characters of one message that are kept (attack size-001)."""


Answers: TypeAlias = Callable[[Connection], Arrival | None]
"""Returns the arrival that a message is as an answer to an open question, None if none stands there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Intake:
    """Accepts what the channels hand over.

    `policies` maps a channel's name to who may talk there, which counts before `identities`: who writes on
    several channels is let in on each of them by itself.
    """

    inbox: Inbox
    policies: Mapping[str, Policy]
    commands: Commands
    bell: Bell
    outbox_bell: Bell
    media_bell: Bell
    interrupt: Callable[[int], None]
    identities: Identities = field(default_factory=Identities)

    async def accept(
        self, stimuli: Sequence[Stimulus], cursor: Cursor | None = None, poison: Sequence[Poison] = ()
    ) -> None:
        """Commit everything in one transaction; known keys change nothing. Raises: StoreError."""
        for one in poison:
            log.error(
                "message.unreadable", extra={"channel": one.channel, "key": one.key, "problem": one.problem}
            )
        offers = [offer for stimulus in stimuli for offer in self._offers(stimulus)]
        taken = await self.inbox.put(offers, cursor=cursor, bad=poison)
        for dropped in taken.dropped:
            place = dropped.stimulus.place
            where = {"channel": place.channel, "chat": place.chat}
            what = {"gate": dropped.gate, "reason": dropped.reason, "setting": dropped.setting}
            log.info("message.dropped", extra=where | what)
        for conversation_id in taken.interrupted:
            self.interrupt(conversation_id)
        self.bell.ring()
        if taken.unprepared:
            self.media_bell.ring()
        if taken.answers:
            self.outbox_bell.ring()

    def _offers(self, stimulus: Stimulus) -> Iterator[Arrival | Dropped | Offer]:
        yield self._offer(stimulus)
        beyond = None if stimulus.edits else self.commands.beyond(stimulus)
        if beyond is not None:
            yield self._offer(beyond)

    def _offer(self, stimulus: Stimulus) -> Arrival | Dropped | Offer:
        """Return what a stimulus becomes, or how the transaction that stores it finds out.

        Only what the configuration leaves open costs a look into the tables.
        """
        policy = self.policies[stimulus.address.channel]
        stimulus = self.identities.shared(stimulus)
        command = None if stimulus.edits else self.commands.read(stimulus)
        arrival = command or Arrival(stimulus)
        verdict = policy.check(stimulus, command=command is not None)
        answers = None if command or stimulus.edits else self.commands.maybe(stimulus)
        match verdict:
            case Allow() if answers:
                return functools.partial(_answering, answers, arrival, verdict)
            case AskMember():
                return functools.partial(_member, policy, arrival, answers)
            case AskThread(level=level):
                return functools.partial(_in_thread, level, arrival)
            case _:
                return _settled(arrival, verdict)


def _member(
    policy: Policy, arrival: Arrival, answers: Answers | None, tx: Connection, now: float
) -> Arrival | Dropped:
    """Let in whom an approval let in; a stranger may get a code."""
    arrival = (answers and answers(tx)) or arrival
    stimulus = arrival.stimulus
    role = members.role(tx, stimulus.place.channel, stimulus.sender.id)
    settled = _settled(arrival, policy.known(stimulus, role))
    if isinstance(settled, Arrival) or not asks_to_come_in(stimulus):
        return settled
    asked = members.ask(tx, stimulus.sender, stimulus.place, now)
    answer = pairing.invitation(stimulus, asked.code) if asked.code else None
    return replace(settled, reason=f"{settled.reason}; {asked.reason}", answer=answer)


def level_now(policies: Mapping[str, Policy], tx: Connection, stimulus: Stimulus) -> str | None:
    """Return what a sender may do by now in a chat, None if they are not let in there any more.

    Who is only let in because everybody is counts as a stranger. On a channel where another node listens,
    nothing is known to have changed.
    """
    policy = policies.get(stimulus.address.channel)
    if policy is None:
        return stimulus.sender.level
    verdict = policy.check(stimulus)
    if isinstance(verdict, AskMember):
        role = members.role(tx, stimulus.address.channel, stimulus.sender.id)
        verdict = policy.known(stimulus, role)
    return None if isinstance(verdict, Drop) or verdict.level is Level.GUEST else verdict.level


def _answering(
    answers: Answers,
    arrival: Arrival,
    verdict: Settled,
    tx: Connection,
    _now: float,
) -> Arrival | Dropped:
    """Take a bare yes or no as the answer to a question, if one stands there."""
    return _settled(answers(tx) or arrival, verdict)


def _in_thread(level: Level, arrival: Arrival, tx: Connection, _now: float) -> Arrival | Dropped:
    """Wake the bot where it takes part (spec 5.6, SL-12)."""
    return _settled(arrival, Allow(level, wakes=journal.has_answered(tx, arrival.stimulus.address)))


def _settled(arrival: Arrival, verdict: Settled) -> Arrival | Dropped:
    stimulus = arrival.stimulus
    if isinstance(verdict, Drop):
        return Dropped(stimulus, verdict.gate, verdict.reason, verdict.setting, _unheard(stimulus))
    known = replace(
        stimulus,
        text=stimulus.text if arrival.command else clean(stimulus.text),
        quote=defuse(stimulus.quote),
        sender=replace(stimulus.sender, name=defuse(stimulus.sender.name), level=verdict.level),
        aimed=verdict.wakes,
    )
    command = arrival.command
    if isinstance(command, ForSender):
        command = replace(command, stimulus=known)
    return replace(arrival, stimulus=known, command=command, wakes=verdict.wakes)


def _unheard(stimulus: Stimulus) -> Outgoing | None:
    """Return what tells somebody whose press of a button counts for nothing; others hear nothing (AC-9)."""
    if not (stimulus.gesture and stimulus.whisper):
        return None
    return answered(stimulus, REFUSED[Level.USER], stimulus.whisper)


def clean(text: str) -> str:
    """Return text that every database and model takes, as long as a person may write (text-009)."""
    text = defuse(text)
    if len(text) > MAX_CHARS:
        text = f"{text[:MAX_CHARS]}\n[The message was {len(text)} characters long; the rest was cut off.]"
    return text
