"""What model calls cost, and what may be spent."""

from __future__ import annotations

from gateway.app.parts import Parts
from gateway.config import LimitSettings
from gateway.store.usage import Ledger
from gateway.types import Standing
from gateway.usage import Caps, Price, Rates


def ledger_of(parts: Parts) -> Ledger:
    """Return what adds up what is used."""
    prices = {name: Price(**one.model_dump()) for name, one in parts.settings.usage.prices.items()}
    return Ledger(clock=parts.clock, zone=parts.zone, prices=prices)


def caps_of(limits: LimitSettings) -> Caps:
    """Return what may be spent in a day and in a turn."""
    return Caps(
        daily_tokens=limits.daily_tokens,
        daily_usd=limits.daily_usd,
        sender_tokens=limits.per_sender_daily_tokens,
        turn_tokens=limits.per_turn_tokens,
    )


def rates_of(limits: LimitSettings) -> Rates:
    """Return how many turns each kind of people may start in a minute."""
    rate = limits.per_sender_per_minute
    return Rates(
        {
            Standing.OWNER: rate.owner,
            Standing.PERSON: rate.people,
            Standing.GROUP: rate.groups,
            Standing.GUEST: rate.guests,
        }
    )
