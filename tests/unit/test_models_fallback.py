"""The chain of models: try again, rest, go on with the next."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import pytest

from gateway.errors import ModelBusy, ModelError, ModelRefused, PromptTooLong
from gateway.models.base import Model, OnRestart, OnText, Prompt, Reply
from gateway.models.failure import Unusable
from gateway.models.fallback import Chain
from gateway.types import AssistantEntry, ToolCall

PROMPT = Prompt(system="s")


@dataclass
class FakeClock:
    time: float = 1000.0
    slept: list[float] = field(default_factory=list)

    def now(self) -> float:
        return self.time

    def wall(self) -> float:
        return self.time

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.time += seconds


Step: TypeAlias = str | ModelError | tuple[str, ModelError]
"""A reply, an error, or words that are shown before an error."""


@dataclass
class Scripted:
    """A model that plays its steps, the last one for ever."""

    name: str
    steps: Sequence[Step]
    asked: int = 0
    closed: bool = False

    async def reply(
        self, prompt: Prompt, on_text: OnText | None = None, on_restart: OnRestart | None = None
    ) -> Reply:
        del prompt, on_restart
        step = self.steps[min(self.asked, len(self.steps) - 1)]
        self.asked += 1
        shown, error = step if isinstance(step, tuple) else (step, None)
        if isinstance(shown, ModelError):
            raise shown
        if on_text and shown:
            on_text(shown)
        if error:
            raise error
        return Reply(AssistantEntry(shown, model=self.name))

    async def close(self) -> None:
        self.closed = True


def busy(after: float = 0.0) -> ModelBusy:
    return ModelBusy("HTTP 503", after=after, hint="The model does not answer right now (HTTP 503).")


def bad_key() -> Unusable:
    return Unusable("HTTP 401", status=401, hint="The model provider refused the API key (HTTP 401).")


def chain(clock: FakeClock, *models: Model, jitter: float = 0.0) -> Chain:
    return Chain(models, clock, jitter=lambda: jitter)


async def test_a_busy_model_is_asked_three_times_with_growing_waits() -> None:
    clock, model = FakeClock(), Scripted("a", [busy(), busy(), "ok"])

    assert (await chain(clock, model).reply(PROMPT)).entry.text == "ok"
    assert clock.slept == [1.0, 2.0]


async def test_waits_vary_so_that_callers_part() -> None:
    clock, model = FakeClock(), Scripted("a", [busy(), busy(), "ok"])

    await chain(clock, model, jitter=1.0).reply(PROMPT)

    assert clock.slept == [1.5, 3.0]


async def test_the_wait_that_the_provider_asks_for_is_kept() -> None:
    clock, model = FakeClock(), Scripted("a", [busy(after=45), "ok"])

    await chain(clock, model).reply(PROMPT)

    assert clock.slept == [45.0]


async def test_a_wait_over_a_minute_makes_room_for_the_next_model() -> None:
    clock, first, second = FakeClock(), Scripted("a", [busy(after=61)]), Scripted("b", ["ok"])

    assert (await chain(clock, first, second).reply(PROMPT)).entry.model == "b"
    assert (first.asked, clock.slept) == (1, [])


async def test_empty_error_02_an_empty_answer_counts_as_a_failure() -> None:
    models = Scripted("a", [busy()]), Scripted("b", [""]), Scripted("c", ["ok"])

    assert (await chain(FakeClock(), *models).reply(PROMPT)).entry.text == "ok"
    assert [model.asked for model in models] == [3, 1, 1]


async def test_an_empty_answer_of_the_last_model_is_the_answer() -> None:
    assert (await chain(FakeClock(), Scripted("a", [""])).reply(PROMPT)).entry.text == ""


async def test_a_call_without_words_is_no_empty_answer() -> None:
    class Caller(Scripted):
        async def reply(
            self, prompt: Prompt, on_text: OnText | None = None, on_restart: OnRestart | None = None
        ) -> Reply:
            return Reply(AssistantEntry("", (ToolCall("t", "f"),)))

    other = Scripted("b", ["ok"])

    assert (await chain(FakeClock(), Caller("a", []), other).reply(PROMPT)).entry.calls
    assert other.asked == 0


async def test_a_refused_key_goes_to_the_next_model_at_once() -> None:
    clock, first = FakeClock(), Scripted("a", [bad_key()])

    assert (await chain(clock, first, Scripted("b", ["ok"])).reply(PROMPT)).entry.model == "b"
    assert (first.asked, clock.slept) == (1, [])


@pytest.mark.parametrize("error", [ModelRefused("unsafe"), PromptTooLong("too long")])
async def test_what_another_model_would_not_mend_ends_the_chain(error: ModelError) -> None:
    other = Scripted("b", ["ok"])

    with pytest.raises(type(error)) as caught:
        await chain(FakeClock(), Scripted("a", [error]), other).reply(PROMPT)

    assert caught.value is error
    assert other.asked == 0


async def test_a_failed_model_rests_longer_each_time_and_then_comes_first_again() -> None:
    clock = FakeClock()
    first, second = Scripted("a", [bad_key()]), Scripted("b", ["ok"])
    both = chain(clock, first, second)
    asked = []
    for at in (0, 29, 31, 90, 92, 200, 391, 392, 691, 693):
        clock.time = 1000.0 + at
        before = first.asked
        await both.reply(PROMPT)
        asked.append(first.asked - before)

    assert asked == [1, 0, 1, 0, 1, 0, 0, 1, 0, 1]


async def test_success_ends_the_rest_and_forgets_the_failures() -> None:
    clock = FakeClock()
    first, second = Scripted("a", [bad_key(), "back", bad_key(), "back"]), Scripted("b", ["ok"])
    both = chain(clock, first, second)
    await both.reply(PROMPT)
    clock.time += 31
    assert (await both.reply(PROMPT)).entry.text == "back"
    await both.reply(PROMPT)
    clock.time += 31

    assert (await both.reply(PROMPT)).entry.text == "back"


async def test_resting_models_are_asked_once_when_all_others_fail() -> None:
    clock = FakeClock()
    first, second = Scripted("a", [busy(), busy(), busy(), "ok"]), Scripted("b", ["ok", bad_key()])
    both = chain(clock, first, second)
    await both.reply(PROMPT)

    assert (await both.reply(PROMPT)).entry.model == "a"
    assert (first.asked, second.asked) == (4, 2)


async def test_words_of_a_broken_answer_are_taken_back_before_the_next_attempt() -> None:
    shown: list[str] = []
    models = (
        Scripted("a", [("Half an", busy()), ("Half", busy()), ("H", busy())]),
        Scripted("b", ["All of it"]),
    )

    await chain(FakeClock(), *models).reply(PROMPT, shown.append, shown.clear)

    assert shown == ["All of it"]


async def test_words_that_can_t_be_taken_back_are_the_end() -> None:
    other = Scripted("b", ["ok"])
    first = Scripted("a", [("Half an", busy())])

    with pytest.raises(ModelBusy):
        await chain(FakeClock(), first, other).reply(PROMPT, lambda _: None)

    assert (first.asked, other.asked) == (1, 0)


async def test_when_all_fail_the_person_is_told_what_can_pass() -> None:
    with pytest.raises(ModelBusy) as caught:
        await chain(FakeClock(), Scripted("a", [bad_key()]), Scripted("b", [busy(after=5)])).reply(PROMPT)

    assert "does not answer right now" in caught.value.hint
    assert "HTTP 401" in str(caught.value)
    assert "HTTP 503" in str(caught.value)
    assert caught.value.after == 5


async def test_when_no_account_works_the_person_is_told_of_the_first() -> None:
    with pytest.raises(ModelRefused) as caught:
        await chain(FakeClock(), Scripted("a", [bad_key()]), Scripted("b", [bad_key()])).reply(PROMPT)

    assert "refused the API key" in caught.value.hint


async def test_the_chain_has_the_name_of_its_first_model_and_closes_all() -> None:
    models = Scripted("a", ["x"]), Scripted("b", ["x"])
    both = chain(FakeClock(), *models)

    await both.close()

    assert both.name == "a"
    assert [model.closed for model in models] == [True, True]
