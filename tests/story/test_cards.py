"""The owner answers questions of the bot by the buttons below them, in Telegram."""

from __future__ import annotations

import pytest

from tests.fakes.bot_api import JsonObject
from tests.fakes.model_api import Call, reply
from tests.story.house import House, results


@pytest.fixture
async def home(empty_house: House) -> House:
    """A house of person 7, in which the model wants to delete something."""
    empty_house.telegram, empty_house.more = 'dm_policy = "pairing"', '[access]\nowners = ["telegram:7"]\n'
    delete = Call("c1", "exec", {"command": "rm -rf build"})
    empty_house.model.play(reply("openai", "", delete), reply("openai", "done"))
    await empty_house.start()
    (empty_house.workspace / "build").mkdir()
    empty_house.api.say("clean up")
    await empty_house.until(lambda: bool(card(empty_house)))
    return empty_house


def card(house: House) -> JsonObject:
    """Return the message with the question, {} before it is there."""
    for sent in house.api.sent:
        if "reply_markup" in sent.params:
            return house.api.message(message_id=sent.message_id, text=sent.text)
    return {}


def shown(house: House) -> tuple[str, object]:
    """Return the text of the card as people see it now, and its buttons."""
    return house.api.shown[7, int(card(house)["message_id"])]


def press(house: House, label: str, sender: int = 7) -> str:
    """Press a button of the question; return the name of the press."""
    (row,) = next(one.params["reply_markup"] for one in house.api.sent if "reply_markup" in one.params)[
        "inline_keyboard"
    ]
    value = next(button["callback_data"] for button in row if button["text"] == label)
    return f"q{house.api.press(value, card(house), sender)}"


@pytest.mark.parametrize(
    ("label", "said", "gone"),
    [("Allow once", "Allowed once", True), ("Deny", "Denied", False)],
    ids=["approval-02-allow", "approval-02-deny"],
)
async def test_a_press_decides_and_the_card_says_so(home: House, label: str, said: str, gone: bool) -> None:
    pressed = press(home, label)
    await home.until(lambda: "done" in home.texts())
    await home.rests()
    text, buttons = shown(home)
    assert text.startswith(f"{said}: Run")
    assert "rm -rf build" in text
    assert buttons is None
    assert (home.workspace / "build").exists() is not gone
    await home.until(lambda: pressed in home.api.answered)
    assert not any(said in text for text in home.texts()), "nothing is added to the chat"


async def test_access_013_a_press_of_somebody_else_changes_nothing(home: House) -> None:
    pressed = press(home, "Allow once", sender=666)
    await home.until(lambda: pressed in home.api.answered)
    await home.until(lambda: not home.api.pending)
    text, buttons = shown(home)
    assert text.startswith("May I do this?")
    assert buttons is not None
    assert (home.workspace / "build").is_dir()


async def test_a_question_that_was_passed_over_loses_its_buttons(home: House) -> None:
    home.api.say("no, wait")
    await home.until(lambda: "done" in home.texts())
    await home.until(lambda: shown(home)[1] is None)
    assert shown(home)[0].startswith("Withdrawn: Run")
    assert "wrote something else instead" in results(home.model.bodies[-1])[0]
