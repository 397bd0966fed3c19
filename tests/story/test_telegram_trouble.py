"""A platform that throttles, loses answers, refuses people, repeats itself, or is not there."""

from __future__ import annotations

import pytest

from tests.fakes.bot_api import Drop, Status
from tests.story.house import House


def throttled(seconds: int) -> Status:
    text = f"Too Many Requests: retry after {seconds}"
    return Status(429, text, {"retry_after": seconds})


async def test_a_throttled_chat_keeps_its_order_and_the_others_go_on(house: House) -> None:
    """Reliability row 17."""
    house.api.fail("sendMessage", throttled(30))
    house.api.say("one", chat=8)
    await house.until(lambda: house.api.count("sendMessage") == 1)
    house.api.say("two", chat=8)
    await house.until(lambda: len(house.model.requests) == 2)
    for chat in (9, 10):
        house.api.say("hello", chat=chat)
        await house.hears("you said: hello", chat=chat)
    assert house.texts(8) == [], "nothing is sent during the pause"

    await house.rests(skipping=1.0)
    assert house.texts(8) == ["you said: one", "you said: two"]


async def test_a_throttled_message_is_not_tried_before_its_time(house: House) -> None:
    house.api.fail("sendMessage", throttled(3000))
    house.api.say("one", chat=8)
    await house.until(lambda: house.rows("select attempts from outbound") == [(1,)])
    house.skip(1500)
    house.api.say("hello", chat=9)
    await house.hears("you said: hello", chat=9)
    assert house.texts(8) == []
    house.skip(1500)
    await house.hears("you said: one", chat=8)


async def test_a_lost_response_makes_at_most_two_copies_and_is_marked(house: House) -> None:
    """Reliability row 20."""
    house.api.fail("sendMessage", Drop(after=True))
    house.api.say("hello")
    await house.rests()
    assert house.texts() == ["you said: hello"] * 2
    assert house.rows("select state, unknowns from outbound") == [("sent", 1)]

    house.api.say("next")
    await house.rests()
    assert house.texts()[2:] == ["you said: next"]


async def test_two_lost_responses_make_no_third_copy(house: House) -> None:
    """Reliability row 20: peers made 3, 6 and 9 copies."""
    house.api.fail("sendMessage", Drop(after=True), Drop(after=True))
    house.api.say("hello")
    await house.rests()
    assert house.texts() == ["you said: hello"] * 2
    assert house.rows("select state, unknowns from outbound") == [("unknown", 2)]

    await house.restart()
    house.api.say("next")
    await house.rests()
    assert house.texts()[2:] == ["you said: next"]


async def test_a_request_that_never_arrived_is_repeated(house: House) -> None:
    house.api.fail("sendMessage", Drop(after=False))
    house.api.say("hello")
    await house.rests()
    assert house.texts() == ["you said: hello"]


async def test_a_server_error_on_sending_loses_nothing(house: House) -> None:
    house.api.fail("sendMessage", Status(502, body="<html>Bad Gateway</html>"))
    house.api.say("hello")
    await house.rests()
    assert house.texts() == ["you said: hello"]


async def test_a_reply_in_doubt_is_repeated_only_when_the_platform_is_there_again(house: House) -> None:
    await house.until(lambda: house.api.count("setMyCommands") == 2)
    house.api.calls.clear()
    down = Status(502, body="<html>Bad Gateway</html>")
    house.api.fail("sendMessage", down)
    house.api.fail("getMe", *[down] * 5)
    house.api.say("hello")
    await house.rests(skipping=2)
    assert house.texts() == ["you said: hello"]
    asked = [call.method for call in house.api.calls if call.method in ("sendMessage", "getMe")]
    assert asked == ["sendMessage", *["getMe"] * 6, "sendMessage"]


async def test_who_has_blocked_the_bot_is_given_up_and_not_tried_again(house: House) -> None:
    house.api.blocked.add(8)
    house.api.say("hello", chat=8)
    await house.until(lambda: house.rows("select state from outbound") == [("dead",)])
    await house.rests()
    house.skip(7200)
    house.api.say("hello", chat=9)
    await house.hears("you said: hello", chat=9)
    assert house.api.count("sendMessage") == 2

    house.api.blocked.clear()
    house.api.say("I am back", chat=8)
    await house.rests()
    assert house.texts(8) == ["you said: I am back"]


async def test_a_pulled_cable_loses_nothing_and_repeats_nothing(house: House) -> None:
    house.api.say("before")
    await house.hears("you said: before")
    await house.rests()

    await house.api.stop()
    for chat in range(20, 30):
        house.api.say("are you there?", chat=chat)
    await house.until(lambda: any(wait >= 1 for wait in house.clock.slept))
    await house.api.start()

    await house.rests()
    for chat in range(20, 30):
        assert house.texts(chat) == ["you said: are you there?"]
    assert house.texts() == ["you said: before"]


async def test_answers_that_were_made_while_the_cable_was_pulled_are_sent_once(house: House) -> None:
    house.api.fail("sendMessage", throttled(60))
    house.api.say("hello")
    await house.until(lambda: house.rows("select attempts from outbound") == [(1,)])
    await house.api.stop()
    house.skip(60)
    await house.until(lambda: house.rows("select attempts from outbound") == [(2,)], skipping=0.1)
    await house.api.start()
    await house.rests(skipping=1.0)
    assert house.texts() == ["you said: hello"]


async def test_a_repeated_update_is_answered_once(house: House) -> None:
    """Reliability row 21."""
    message = house.api.message(7, text="hello")
    first = house.api.push({"message": message})
    await house.hears("you said: hello")
    await house.rests()
    house.api.push({"message": message}, update_id=first)
    house.api.say("next")
    await house.rests()
    assert house.texts() == ["you said: hello", "you said: next"]


async def test_a_message_that_comes_again_under_another_id_is_answered_once(house: House) -> None:
    """Reliability row 21: ids may restart after a week of silence."""
    message = house.api.message(7, text="hello")
    house.api.push({"message": message})
    await house.hears("you said: hello")
    await house.rests()
    house.api.push({"message": message}, update_id=1)
    house.api.say("next")
    await house.rests()
    assert house.texts() == ["you said: hello", "you said: next"]


async def test_an_update_that_nobody_understands_does_not_hold_up_the_others(house: House) -> None:
    house.api.push({"message": {"message_id": "?", "chat": 5}})
    house.api.say("hello")
    await house.hears("you said: hello")
    assert house.rows("select channel from poison") == [("telegram",)]


@pytest.mark.parametrize(
    "status", [Status(409, "Conflict: terminated by other getUpdates request"), Status(502)]
)
async def test_polling_goes_on_after_a_refusal(house: House, status: Status) -> None:
    house.api.say("one")
    await house.hears("you said: one")
    house.api.fail("getUpdates", status)
    house.api.say("two")
    house.api.say("three", chat=8)
    await house.rests()
    assert house.texts() == ["you said: one", "you said: two"]


async def test_a_revoked_token_stops_the_channel_and_not_the_gateway(house: House) -> None:
    house.api.say("one")
    await house.hears("you said: one")
    house.api.revoke()
    house.api.say("two")
    await house.until(lambda: house.gateway.seen["telegram"].state == "stopped")
    assert "BotFather" in house.gateway.seen["telegram"].problem
