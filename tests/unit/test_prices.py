"""What calls cost, when a day is over, and how fast people may ask."""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from gateway.config import parse
from gateway.errors import ConfigError
from gateway.types import JsonObject, Standing, Usage
from gateway.usage import Caps, Price, Rates, Spent, amount, as_table, day_of, price_of, until_tomorrow
from tests.conftest import ROOT

BERLIN = ZoneInfo("Europe/Berlin")
CHEAP = Price(input=1.0, output=10.0, cached=0.1, cache_write=1.25)


@pytest.mark.parametrize(
    ("price", "usage", "usd"),
    [
        (CHEAP, Usage(input=1_000_000), 1.0),
        (CHEAP, Usage(output=100_000), 1.0),
        (CHEAP, Usage(input=1_000_000, cached=1_000_000), 0.1),
        (CHEAP, Usage(input=1_000_000, cached=400_000, cache_write=400_000), 0.2 + 0.04 + 0.5),
        (Price(input=2.0, output=0.0), Usage(input=1_000_000, cached=500_000, cache_write=500_000), 2.0),
        (Price(input=0.0, output=0.0), Usage(input=7, output=7), 0.0),
        (CHEAP, Usage(input=10, cached=20), 20 * 0.1 / 1_000_000),
    ],
    ids=["input", "output", "cached", "mixed", "cached as input", "free", "more cached than sent"],
)
def test_a_call_costs_what_its_parts_cost(price: Price, usage: Usage, usd: float) -> None:
    assert price.of(usage) == pytest.approx(usd)


@pytest.mark.parametrize(
    ("model", "found"),
    [
        ("openai/gpt-5", "here"),
        ("openrouter/openai/gpt-5", "openrouter"),
        ("azure/gpt-4", "anywhere"),
        ("openai/gpt-4-mini", None),
        ("demo", None),
        ("", None),
    ],
)
def test_a_price_is_found_by_the_whole_name_or_by_the_models_own(model: str, found: str | None) -> None:
    prices = {"here": Price(input=1, output=1), "openrouter": CHEAP, "anywhere": Price(input=3, output=3)}
    named = {
        "openai/gpt-5": prices["here"],
        "openrouter/openai/gpt-5": prices["openrouter"],
        "gpt-4": prices["anywhere"],
    }
    assert price_of(model, named) == (prices[found] if found else None)


@pytest.mark.parametrize(
    ("caps", "spent", "over"),
    [
        (Caps(), Spent(10**9, 10**6), False),
        (Caps(daily_tokens=100), Spent(99), False),
        (Caps(daily_tokens=100), Spent(100), True),
        (Caps(daily_usd=1.0), Spent(10**9, 0.99), False),
        (Caps(daily_usd=1.0), Spent(0, 1.01), True),
        (Caps(daily_tokens=100, daily_usd=1.0), Spent(5, 1.0), True),
    ],
    ids=["no limit", "tokens left", "no tokens left", "money left", "cost-04", "either"],
)
def test_a_day_is_over_when_a_limit_is_reached(caps: Caps, spent: Spent, over: bool) -> None:
    assert caps.end_the_day(spent) is over


@pytest.mark.parametrize(
    ("local", "hours"),
    [
        ("2026-05-06T22:30", 1.5),
        ("2026-05-06T00:00", 24),
        ("2026-03-29T00:00", 23),
        ("2026-10-25T00:00", 25),
        ("2026-10-25T23:59:59.9", 0.1 / 3600),
    ],
)
def test_tomorrow_begins_at_local_midnight(local: str, hours: float) -> None:
    at = datetime.fromisoformat(local).replace(tzinfo=BERLIN).timestamp()
    assert until_tomorrow(at, BERLIN) == pytest.approx(max(1.0, hours * 3600), abs=0.01)
    assert day_of(at + until_tomorrow(at, BERLIN), BERLIN) > day_of(at, BERLIN)


class TestRates:
    def test_a_burst_is_let_through_and_then_one_after_the_other(self) -> None:
        rates = Rates({Standing.PERSON: 10})
        assert [rates.wait("a", Standing.PERSON, 0.0) for _ in range(10)] == [0.0] * 10
        assert rates.wait("a", Standing.PERSON, 0.0) == pytest.approx(6.0)
        assert rates.wait("a", Standing.PERSON, 5.0) == pytest.approx(1.0)
        assert rates.wait("a", Standing.PERSON, 6.0) == 0.0
        assert rates.wait("a", Standing.PERSON, 6.0) == pytest.approx(6.0)

    def test_after_a_minute_of_rest_everything_is_free_again(self) -> None:
        rates = Rates({Standing.GROUP: 5})
        for _ in range(5):
            rates.wait("a", Standing.GROUP, 0.0)
        assert [rates.wait("a", Standing.GROUP, 60.0) for _ in range(5)] == [0.0] * 5
        assert rates.wait("a", Standing.GROUP, 60.0) > 0

    def test_people_do_not_use_up_what_others_may(self) -> None:
        rates = Rates({Standing.GROUP: 1, Standing.OWNER: 1})
        assert rates.wait("a", Standing.GROUP, 0.0) == 0.0
        assert rates.wait("b", Standing.GROUP, 0.0) == 0.0
        assert rates.wait("a", Standing.OWNER, 0.0) == 0.0
        assert rates.wait("a", Standing.GROUP, 0.0) > 0

    @pytest.mark.parametrize("limits", [{}, {Standing.PERSON: 0}])
    def test_without_a_limit_nobody_waits_and_nothing_is_remembered(
        self, limits: dict[Standing, int]
    ) -> None:
        rates = Rates(limits)
        assert {rates.wait("a", Standing.PERSON, 0.0) for _ in range(1000)} == {0.0}
        assert rates.remembered == 0

    def test_size_015_only_those_who_were_seen_last_are_remembered(self) -> None:
        rates = Rates({Standing.GUEST: 5}, most=1000)
        for number in range(100_000):
            rates.wait(str(number), Standing.GUEST, number / 1600)
        assert rates.remembered == 1000


def row(**more: float) -> JsonObject:
    nothing = {"calls": 0, "input": 0, "output": 0, "cached": 0, "cache_write": 0, "unpriced": 0, "usd": 0.0}
    return {**nothing, **more}


@pytest.mark.parametrize(
    ("sums", "text"),
    [
        (row(), "0 tokens in 0 calls"),
        (row(calls=1, input=1000, output=234, usd=0.5), "1,234 tokens in 1 call, $0.5000"),
        (row(calls=2, input=10, cached=5, unpriced=10), "10 tokens (5 cached) in 2 calls"),
        (
            row(calls=2, input=10, unpriced=4, usd=1),
            "10 tokens in 2 calls, $1.0000 and 4 tokens without a price",
        ),
    ],
)
def test_a_sum_is_told_in_words_and_money_only_where_a_price_is_known(sums: JsonObject, text: str) -> None:
    assert amount(sums) == text


def test_a_report_is_a_table_with_the_sum_last() -> None:
    report = {
        "by": "sender",
        "since": "2026-05-01",
        "rows": [{"key": "telegram:42", **row(calls=1, input=5)}, {"key": "", **row(calls=1, input=4)}],
        "total": row(calls=2, input=9),
    }
    assert as_table(report).splitlines() == [
        "telegram:42  5 tokens in 1 call, $0.0000",
        "-            4 tokens in 1 call, $0.0000",
        "in all       9 tokens in 2 calls, $0.0000",
    ]
    assert as_table({**report, "rows": []}) == "Nothing was used since 2026-05-01."


class TestConfig:
    def test_prices_are_read_under_the_names_of_models(self) -> None:
        text = '[usage.prices."openai/gpt-5"]\ninput = 1.25\noutput = 10\n[limits]\ndaily_usd = 1.0'
        price = parse(text, {}, ROOT).usage.prices["openai/gpt-5"]
        assert (price.input, price.output, price.cached) == (1.25, 10.0, None)

    @pytest.mark.parametrize(
        ("text", "problem"),
        [
            ("[limits]\ndaily_usd = 1.0", r"daily_usd needs .* add \[usage.prices"),
            ("[limits]\ndaily_tokens = -1", "daily_tokens"),
            ('[limits]\nturn_time = "5s"', "turn_time.*at least 30s"),
            ('[limits]\nturn_time = "0"', "turn_time.*at least 30s"),
            ("[limits.per_sender_per_minute]\nowner = -1", "owner"),
            ("[limits.per_sender_per_minute]\nstrangers = 1", "strangers"),
            ("[usage.prices.gpt-5]\ninput = 1", "output"),
            ("[usage.prices.gpt-5]\ninput = nan\noutput = 1", "input"),
            ("[usage.prices.gpt-5]\ninput = 1\noutput = -1", "output"),
        ],
    )
    def test_what_can_not_be_is_refused_by_its_name(self, text: str, problem: str) -> None:
        with pytest.raises(ConfigError, match=problem):
            parse(text, {}, ROOT)
