"""People who may not talk to the bot."""

from __future__ import annotations

import pytest

from tests.story.house import House


@pytest.fixture
async def locked(empty_house: House) -> House:
    """A house that knows person 7 only."""
    empty_house.telegram = 'dm_policy = "pairing"\nallow_from = [7]'
    await empty_house.start()
    return empty_house


async def test_a_stranger_is_told_his_id_and_nothing_else_happens(locked: House) -> None:
    locked.api.say("let me in", chat=666)
    locked.api.say("/whoami", chat=666)
    locked.api.say("/stop", chat=666)
    await locked.rests()
    [text] = locked.texts(666)
    assert "666" in text
    assert locked.model.requests == []
    assert locked.rows("select count(*) from conversation") == [(0,)]
    assert locked.rows("select count(*) from inbound") == [(0,)]


async def test_a_stranger_is_told_once_in_each_hour_however_often_he_knocks(locked: House) -> None:
    """Spec AC-1; what is counted is the hour of the clock."""
    locked.skip(3600 - locked.clock.now() % 3600)
    for hour in range(1, 4):
        for _ in range(11):
            locked.api.say("knock", chat=666)
            await locked.rests()
            locked.skip(300)
        assert len(locked.texts(666)) == hour
        locked.skip(3600 - locked.clock.now() % 3600)


async def test_the_owner_is_answered_while_strangers_knock(locked: House) -> None:
    for chat in range(600, 620):
        locked.api.say("knock", chat=chat)
    locked.api.say("hello")
    await locked.hears("you said: hello")
    await locked.rests()
    assert len(locked.model.requests) == 1


@pytest.mark.parametrize("policy", ["allowlist", "disabled"])
async def test_a_stranger_hears_nothing_where_the_bot_is_silent_to_strangers(
    empty_house: House, policy: str
) -> None:
    house = empty_house
    house.telegram = f'dm_policy = "{policy}"\nallow_from = [7]'
    await house.start()
    house.api.say("let me in", chat=666)
    house.api.say("/status", chat=666)
    await house.rests()
    assert house.texts(666) == []
    assert house.model.requests == []
