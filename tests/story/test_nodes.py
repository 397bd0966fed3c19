"""Gateways that share a PostgreSQL database."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.fakes.bot_api import BotApi
from tests.fakes.model_api import Call, reply, serving
from tests.story.house import House, echo, held, is_prefix, roles

pytestmark = pytest.mark.parametrize("kind", ["postgres"])


@pytest.fixture
async def two(empty_url: str, tmp_path: Path) -> AsyncIterator[tuple[House, House]]:
    """Two houses on one database that is still empty, for one bot and one model; none is started yet."""
    store = f'[store]\nurl = "{empty_url}"'
    async with BotApi() as api, serving() as model:
        model.otherwise = echo
        houses = House(tmp_path / "a", api, model, more=store), House(tmp_path / "b", api, model, more=store)
        try:
            for house in houses:
                house.home.mkdir()
            yield houses
        finally:
            for house in houses:
                await house.close()
        assert api.violations == []


async def test_a_conversation_goes_on_after_a_restart(two: tuple[House, House]) -> None:
    house, _ = two
    await house.start()
    house.model.play(reply("openai", "", Call("call00001", "list_dir", {})), reply("openai", "Hello Ann."))
    house.api.say("I am Ann")
    await house.hears("Hello Ann.")
    await house.restart()
    house.api.say("who am I?")
    await house.hears("Hello Ann.", "you said: who am I?")
    before, after = house.model.bodies[1:]
    assert is_prefix(before, after)
    assert roles(after) == ["user", "assistant", "tool", "assistant", "user"]


async def test_only_one_of_two_gateways_polls_and_each_message_is_answered_once(
    two: tuple[House, House], caplog: pytest.LogCaptureFixture
) -> None:
    first, second = two
    await asyncio.gather(first.start(), second.start())
    for number in range(5):
        for chat in range(50, 60):
            first.api.say(f"m{number}", chat=chat)
        for chat in range(50, 60):
            await first.until(lambda chat=chat, number=number: len(first.texts(chat)) == number + 1)  # type: ignore[misc]  # mypy knows no type for a default
    await asyncio.gather(first.stop(), second.stop())
    for chat in range(50, 60):
        assert first.texts(chat) == [f"you said: m{number}" for number in range(5)]
    assert len(first.model.requests) == 50
    assert "telegram.poll_failed" not in caplog.text, "two pollers would have got in each other's way"


async def test_the_second_gateway_takes_over_when_the_first_one_dies(two: tuple[House, House]) -> None:
    first, second = two
    never = asyncio.Event()
    await first.start()
    first.api.say("one")
    await first.hears("you said: one")
    first.model.play(held(reply("openai", "lost"), never))
    first.api.say("two")
    await first.asked(2)
    await second.start()
    await first.die()

    first.api.say("three", chat=8)
    await second.hears("you said: one", "you said: two")
    await second.hears("you said: three", chat=8)
