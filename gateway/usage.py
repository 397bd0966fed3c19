"""What model calls cost, what may be spent and how fast people may ask; pure."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta
from enum import StrEnum
from zoneinfo import ZoneInfo

from gateway.types import JsonObject, Standing, Usage

MILLION = 1_000_000
MINUTE = 60.0

MOST_ROWS = 10
"""Models or people that an answer names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """USD per million tokens. What has no price of its own (None) costs as much as other input."""

    input: float
    output: float
    cached: float | None = None
    cache_write: float | None = None

    def of(self, usage: Usage) -> float:
        """Return what a call cost, in USD."""
        plain = max(0, usage.input - usage.cached - usage.cache_write)
        cached = self.input if self.cached is None else self.cached
        written = self.input if self.cache_write is None else self.cache_write
        paid = plain * self.input + usage.cached * cached + usage.cache_write * written
        return (paid + usage.output * self.output) / MILLION


def price_of(model: str, prices: Mapping[str, Price]) -> Price | None:
    """Return the price of `provider/model`, or of the model wherever it runs; None if nobody named one."""
    return prices.get(model) or prices.get(model.partition("/")[2])


@dataclass(frozen=True, slots=True)
class Spent:
    """Tokens, input and output together, and USD."""

    tokens: int = 0
    usd: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Caps:
    """What may be spent; 0 is no limit. `sender_tokens` hold for each person but the owner, on a day."""

    daily_tokens: int = 0
    daily_usd: float = 0.0
    sender_tokens: int = 0
    turn_tokens: int = 0

    @property
    def limit_days(self) -> bool:
        """Return whether a day can be used up at all."""
        return bool(self.daily_tokens or self.daily_usd)

    def end_the_day(self, spent: Spent) -> bool:
        """Return whether nothing more may be spent on a day (case cost-04)."""
        tokens = 0 < self.daily_tokens <= spent.tokens
        return tokens or 0 < self.daily_usd <= spent.usd


def day_of(at: float, zone: ZoneInfo) -> date:
    """Return the local day of UNIX seconds."""
    return datetime.fromtimestamp(at, zone).date()


def until_tomorrow(at: float, zone: ZoneInfo) -> float:
    """Return the seconds from UNIX seconds `at` to the next local midnight."""
    tomorrow = datetime.combine(day_of(at, zone) + timedelta(days=1), time(), zone)
    return max(1.0, tomorrow.timestamp() - at)


@dataclass(slots=True)
class Rates:
    """How many turns a person may begin in a minute: so many at once, then one after the other.

    Without an entry for a standing, or with 0, there is no limit. Those who were seen last are remembered,
    `most` of them (attack size-015).
    """

    per_minute: Mapping[Standing, int] = field(default_factory=dict)
    most: int = 10_000
    _full: OrderedDict[tuple[Standing, str], float] = field(default_factory=OrderedDict)

    def wait(self, sender: str, standing: Standing, now: float) -> float:
        """Count a turn and return 0; or return the seconds until it may begin, and count nothing."""
        limit = self.per_minute.get(standing, 0)
        if not limit:
            return 0.0
        key, step = (standing, sender), MINUTE / limit
        full = max(now, self._full.get(key, now))
        early = full - now - (MINUTE - step)
        if early > 1e-6:
            return early
        self._full[key] = full + step
        self._full.move_to_end(key)
        if len(self._full) > self.most:
            self._full.popitem(last=False)
        return 0.0

    @property
    def remembered(self) -> int:
        """Return how many people are remembered."""
        return len(self._full)


DAY_OVER = "Today’s budget is used up. Your message is kept, and I go on with it tomorrow."
SHARE_OVER = (
    "You have used up what one person may use on a day. Your message is kept, and I go on with it tomorrow."
)
SHARE_OVER_HERE = "You have used up what one person may use on a day. Please ask me again tomorrow."
USED_UP = "the budget of this day is used up"
"""Why there is no summary today."""


def amount(row: JsonObject) -> str:
    """Return a sum in words, e.g. `12,345 tokens (8,000 cached) in 7 calls, $0.1200`."""
    cached = f" ({row['cached']:,} cached)" if row["cached"] else ""
    calls = "1 call" if row["calls"] == 1 else f"{row['calls']:,} calls"
    return f"{row['input'] + row['output']:,} tokens{cached} in {calls}{_money(row)}"


def _money(row: JsonObject) -> str:
    tokens = row["input"] + row["output"]
    if not tokens or row["unpriced"] >= tokens:
        return ""
    rest = f" and {row['unpriced']:,} tokens without a price" if row["unpriced"] else ""
    return f", ${row['usd']:.4f}{rest}"


class Footer(StrEnum):
    """How much of what a reply took stands below it."""

    OFF = "off"
    TOKENS = "tokens"
    FULL = "full"


def footer(which: Footer, made: Sequence[tuple[str, Usage]], prices: Mapping[str, Price]) -> str:
    """Return the last line of a reply, from model and tokens of each call of its turn; "" for none."""
    sent, got = sum(one.input for _, one in made), sum(one.output for _, one in made)
    if which is Footer.OFF or not sent + got:
        return ""
    if which is Footer.TOKENS:
        return f"— {sent:,} tokens in, {got:,} out"
    priced = [(price_of(model, prices), one) for model, one in made]
    row: JsonObject = {
        "calls": len(made),
        "input": sent,
        "output": got,
        "cached": sum(one.cached for _, one in made),
        "unpriced": sum(one.input + one.output for price, one in priced if price is None),
        "usd": sum(price.of(one) for price, one in priced if price is not None),
    }
    models = sorted({model for model, _ in made if model})
    return f"— {', '.join([amount(row), *models])}"


def as_text(title: str, today: JsonObject, month: JsonObject, *others: JsonObject) -> str:
    """Return what `/usage` answers, of reports by model of today and this month, and perhaps further ones."""
    lines = [title, f"today: {amount(today['total'])}", f"since {month['since']}: {amount(month['total'])}"]
    for one in (month, *others):
        lines += [f"- {row['key'] or 'by myself'}: {amount(row)}" for row in one["rows"][:MOST_ROWS]]
    return "\n".join(lines)


def as_table(report: JsonObject) -> str:
    """Return a report as lines for a terminal, with the sum of all last."""
    rows = [*report["rows"], {**report["total"], "key": "in all"}]
    if not report["rows"]:
        return f"Nothing was used since {report['since']}."
    wide = max(len(row["key"] or "-") for row in rows)
    return "\n".join(f"{row['key'] or '-':<{wide}}  {amount(row)}" for row in rows)
