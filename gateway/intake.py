"""The door: who may talk, what is a command, and then everything into the tables."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from gateway.access import Allow, Policy, Refuse
from gateway.bell import Bell
from gateway.channel import Cursor, Poison
from gateway.commands import Commands
from gateway.prompt import defuse
from gateway.store.inbox import Arrival, Inbox
from gateway.types import OnUnknown, Outgoing, Stimulus

log = logging.getLogger(__name__)

MAX_CHARS = 32_000
"""Characters of one message that are kept (attack size-001)."""

REFUSE_EVERY = 3600.0
"""Seconds in which a stranger is told at most once (spec AC-1)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Intake:
    """Accepts what the channels hand over. `policies` maps a channel's name to who may talk there."""

    inbox: Inbox
    policies: Mapping[str, Policy]
    commands: Commands
    bell: Bell
    outbox_bell: Bell
    media_bell: Bell
    interrupt: Callable[[int], None]

    async def accept(
        self, stimuli: Sequence[Stimulus], cursor: Cursor | None = None, poison: Sequence[Poison] = ()
    ) -> None:
        """Commit everything in one transaction; known keys change nothing. Raises: StoreError."""
        arrivals: list[Arrival] = []
        refusals: list[Outgoing] = []
        for stimulus in stimuli:
            verdict = self.policies[stimulus.address.channel].check(stimulus)
            match verdict:
                case Allow():
                    arrivals.append(self._arrival(stimulus))
                case Refuse(text=text, reason=reason):
                    log.info("message.refused", extra={"channel": stimulus.address.channel, "reason": reason})
                    refusals.append(self._refusal(stimulus, text))
                case _:
                    log.info(
                        "message.ignored",
                        extra={"channel": stimulus.address.channel, "reason": verdict.reason},
                    )
        for one in poison:
            log.error(
                "message.unreadable", extra={"channel": one.channel, "key": one.key, "problem": one.problem}
            )
        taken = await self.inbox.put(arrivals, refusals=refusals, cursor=cursor, bad=poison)
        for conversation_id in taken.interrupted:
            self.interrupt(conversation_id)
        self.bell.ring()
        if taken.unprepared:
            self.media_bell.ring()
        if refusals or any(arrival.command for arrival in arrivals):
            self.outbox_bell.ring()

    def _arrival(self, stimulus: Stimulus) -> Arrival:
        command = self.commands.read(stimulus)
        return command or Arrival(replace(stimulus, text=clean(stimulus.text)))

    def _refusal(self, stimulus: Stimulus, text: str) -> Outgoing:
        hour = int(self.inbox.db.now() // REFUSE_EVERY)
        # The key is what limits it: a second one in the same hour is known already.
        key = f"refusal:{stimulus.address.channel}:{stimulus.sender.id}:{hour}"
        return Outgoing(key=key, address=stimulus.address, text=text, on_unknown=OnUnknown.DROP)


def clean(text: str) -> str:
    """Return text that every database and model takes, as long as a person may write (text-009)."""
    text = defuse(text)
    if len(text) > MAX_CHARS:
        text = f"{text[:MAX_CHARS]}\n[The message was {len(text)} characters long; the rest was cut off.]"
    return text
