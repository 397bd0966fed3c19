"""Reminders and schedules, from the words of a person to the message at the right time, through restarts."""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from tests.fakes.model_api import Call, reply
from tests.story.house import House, results, spoken


@pytest.fixture
async def house(empty_house: House) -> House:
    """A house whose owner is the person who writes."""
    empty_house.more = '[access]\nowners = ["telegram:7"]'
    await empty_house.start()
    return empty_house


def remind(when: str, name: str = "tea", prompt: str = "Remind Ann of her tea.") -> Call:
    args = {"action": "add_or_update", "name": name, "when": when, "prompt": prompt}
    return Call("call00001", "cron", args)


def pass_time(house: House, seconds: float) -> None:
    """Let time pass; the timer, which waits in real time, is told to look."""
    house.skip(seconds)
    house.gateway.agenda.look_soon()


async def set_reminder(house: House, when: str, *then: str) -> None:
    """Ask for a reminder; what the model says `then` is laid out before, since the time runs on."""
    answers = [reply("openai", text) for text in ("I will.", *then)]
    house.model.play(reply("openai", "", remind(when)), *answers)
    house.api.say("remind me of my tea in 20 minutes")
    await house.until(lambda: "I will." in house.texts())


@pytest.mark.parametrize("when", ["in 20 minutes", "+20m"])
async def test_remind_me_in_20_minutes(house: House, when: str) -> None:
    await set_reminder(house, when, "Your tea is ready!")
    [result] = results(house.model.bodies[1])
    assert result.startswith("Set: “tea”")
    assert "Europe/Berlin" in result

    pass_time(house, 1200)
    await house.hears("I will.", "Your tea is ready!")
    [(due, began)] = house.rows("select due_at, at from schedule_run")
    assert began >= due, "and no moment before"
    [said] = spoken(await house.asked(3))
    assert said.startswith("[Schedule “tea”. It is ")
    assert said.endswith("]\nRemind Ann of her tea.")
    offered = [tool["function"]["name"] for tool in house.model.bodies[2]["tools"]]
    assert "cron" not in offered, "a schedule sets no schedules"
    assert "nobody is there to answer a question" in house.model.bodies[2]["messages"][0]["content"]
    await house.rests()
    assert house.rows("select count(*) from schedule") == [(0,)]


async def test_a_restart_between_the_request_and_the_time_loses_nothing(house: House) -> None:
    await set_reminder(house, "+20m", "Your tea is ready!")
    await house.die()
    house.clock.ahead += 1500
    await house.start()
    await house.hears("I will.", "Your tea is ready!")
    await house.restart()
    pass_time(house, 3600)
    await house.rests()
    assert house.texts() == ["I will.", "Your tea is ready!"]


async def test_a_reminder_of_somebody_who_is_shut_out_since_then_does_not_come(empty_house: House) -> None:
    empty_house.telegram = 'dm_policy = "allowlist"\nallow_from = [7, 8]'
    await empty_house.start()
    await set_reminder(empty_house, "+20m")
    await empty_house.stop()
    empty_house.telegram = 'dm_policy = "allowlist"\nallow_from = [8]'
    await empty_house.start()
    pass_time(empty_house, 1300)
    await empty_house.until(lambda: len(empty_house.texts()) == 2)
    assert "whoever set it is not let in any more" in empty_house.texts()[1]
    assert len(empty_house.model.requests) == 2


async def test_every_morning_at_nine(house: House) -> None:
    house.model.play(
        reply("openai", "", remind("0 9 * * *", "早安", "每天早上九点说早安")), reply("openai", "好的。")
    )
    house.api.say("每天早上九点跟我说早安")
    await house.hears("好的。")
    mornings = []
    for day in range(3):
        house.model.play(reply("openai", f"早安 {day}"))
        [(due,)] = house.rows("select next_at from schedule")
        mornings.append(datetime.fromtimestamp(due, ZoneInfo("Europe/Berlin")))
        pass_time(house, due - house.clock.wall() + 60)
        await house.hears("好的。", *(f"早安 {number}" for number in range(day + 1)))
        await house.rests()
    assert [morning.strftime("%H:%M") for morning in mornings] == ["09:00"] * 3
    assert len({morning.date() for morning in mornings}) == 3


async def test_a_person_can_ask_what_the_reminder_was_about(house: House) -> None:
    await set_reminder(house, "+20m", "Your tea is ready!", "It was about the tea.")
    pass_time(house, 1300)
    await house.hears("I will.", "Your tea is ready!")
    house.api.say("what was that about?")
    await house.hears("I will.", "Your tea is ready!", "It was about the tea.")
    assert "Your tea is ready!" in "".join(
        message["content"] or "" for message in house.model.bodies[3]["messages"]
    )


async def test_people_handle_their_schedules_with_a_command(house: House) -> None:
    await set_reminder(house, "every 10h")
    for words in (
        "list",
        "pause tea",
        "list",
        "resume tea",
        "run tea",
        "remove tea",
        "",
        "remove tea",
        "dance tea",
    ):
        house.model.play(reply("openai", "Tea!"))
        house.api.say(f"/cron {words}".strip())
        await house.rests()
    texts = house.texts()[1:]
    assert texts[0].startswith("“tea” (")
    assert "every 10h (Europe/Berlin), next " in texts[0]
    assert texts[1] == "Paused: tea"
    assert "paused" in texts[2]
    assert texts[3].startswith("Goes on: “tea”")
    assert {"Started: tea", "Tea!"} <= set(texts)
    assert "Removed: tea" in texts
    assert texts[-3:-1] == ["There are no schedules.", "there is no schedule 'tea'; there are: none"]
    assert "/cron pause NAME" in texts[-1]
