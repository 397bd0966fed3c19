"""Whether a turn may ask the model now: how often people may ask, and what a day and a turn may cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from sqlalchemy.engine import Connection

from gateway.clock import Clock
from gateway.store import usage
from gateway.store.engine import Database
from gateway.store.journal import Claim
from gateway.store.usage import Ledger
from gateway.types import AssistantEntry, Chat, Entry, Kind, Level, Situation
from gateway.usage import DAY_OVER, SHARE_OVER, SHARE_OVER_HERE, Caps, Rates, until_tomorrow

FINE_FOR = 5.0
"""Seconds for which a share with ample room left is not looked at again: a look is a transaction."""

AMPLE = 2_000_000
"""Tokens that nobody uses up in that time."""

REMEMBERED = 4096


@dataclass(frozen=True, slots=True)
class Hold:
    """Why a turn must not ask now.

    Its messages wait for `seconds`; with None they won't, because others would have to wait behind them, and
    the turn ends. `text` is what people are told, "" if it soon goes on; by its `key` they are told once.
    """

    seconds: float | None
    text: str = ""
    key: str = ""


@dataclass(slots=True, kw_only=True)
class Allowance:
    """Judges turns. `rates` are counted by each process for itself, everything else in the database."""

    db: Database
    clock: Clock
    ledger: Ledger
    caps: Caps = field(default_factory=Caps)
    rates: Rates = field(default_factory=Rates)
    _fine: dict[tuple[str, str], float] = field(default_factory=dict)

    async def judge(self, claim: Claim, situation: Situation) -> Hold | None:
        """Return why a turn must not ask the model now, None if it may. Raises: StoreError."""
        if situation.kind is Kind.MESSAGE and _begins(claim.transcript):
            who = situation.sender.id or situation.place.chat
            key = f"{situation.place.channel}:{who}"
            if wait := self.rates.wait(key, situation.standing, self.clock.now()):
                return Hold(wait)
        return await self.used_up(claim, situation)

    async def used_up(self, claim: Claim, situation: Situation) -> Hold | None:
        """Return why no more may be spent on a conversation today, None if it may. Raises: StoreError."""
        sender = _counted(situation) if self.caps.sender_tokens else None
        if sender is None and not self.caps.limit_days:
            return None
        day, now = self.ledger.today(), self.clock.now()
        if self._fine.get((day, sender or ""), 0.0) > now:
            return None
        text, ample = await self.db.write(lambda tx: self._over(tx, day, situation, sender), durable=False)
        if not text:
            if ample:
                self._note_fine(day, sender or "", now)
            return None
        key = usage.notice_key(day, claim.conversation_id)
        if text == SHARE_OVER_HERE:
            return Hold(None, text, f"{key}:{sender}")
        return Hold(until_tomorrow(self.clock.wall(), self.ledger.zone), text, key)

    def _note_fine(self, day: str, sender: str, now: float) -> None:
        """Remember for a few seconds that there is room."""
        if len(self._fine) >= REMEMBERED:
            self._fine.clear()
        self._fine[day, sender] = now + FINE_FOR

    async def is_costly(self, claim: Claim) -> bool:
        """Return whether the running turn has cost all that one may. Raises: StoreError."""
        if not self.caps.turn_tokens:
            return False
        which, turn = claim.conversation_id, claim.turn
        spent = await self.db.write(lambda tx: usage.of_turn(tx, which, turn), durable=False)
        return spent >= self.caps.turn_tokens

    async def begin(self) -> None:
        """Let what waits for tomorrow look again: limits change by a restart. Raises: StoreError."""
        day, now = self.ledger.today(), self.db.now()
        await self.db.write(lambda tx: usage.wake(tx, day, now), durable=False)

    def _over(self, tx: Connection, day: str, situation: Situation, sender: str | None) -> tuple[str, bool]:
        """Return what people are told if a budget is used up, and else whether there is ample room left."""
        if self.caps.limit_days and self.caps.end_the_day(usage.spent(tx, day)):
            return DAY_OVER, False
        if sender is None:
            return "", False
        left = self.caps.sender_tokens - usage.spent(tx, day, sender=sender).tokens
        if left > 0:
            return "", not self.caps.limit_days and left >= AMPLE
        return SHARE_OVER if situation.chat is Chat.DIRECT else SHARE_OVER_HERE, False


def _begins(transcript: Sequence[Entry]) -> bool:
    """Return whether the model has not been asked yet in this turn."""
    newest = next((one for one in reversed(transcript) if isinstance(one, AssistantEntry)), None)
    return newest is None or not newest.calls


def _counted(situation: Situation) -> str | None:
    """Return whose share a turn uses up, None for the owner's and what nobody asked for."""
    sender = situation.sender
    if situation.kind is not Kind.MESSAGE or sender.level == Level.OWNER or not sender.id:
        return None
    return f"{situation.place.channel}:{sender.id}"
