"""What a folder with a SKILL.md changes for the bot, without a restart."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fakes.model_api import Call, JsonObject, reply
from tests.story.house import House, is_prefix, results


@pytest.fixture
async def owners_house(empty_house: House) -> House:
    """A house whose gateway serves its owner."""
    empty_house.more = '[access]\nowners = ["telegram:7"]'
    await empty_house.start()
    return empty_house


def teach(house: House, name: str, text: str = "Body") -> Path:
    folder = house.workspace / "skills" / name
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_text(f"---\nname: {name}\ndescription: about {name}\n---\n{text}\n")
    return folder


def instructions(body: JsonObject) -> str:
    text = body["messages"][0]["content"]
    assert isinstance(text, str)
    return text


async def test_a_skill_is_there_at_the_next_message_and_gone_at_the_one_after(owners_house: House) -> None:
    house = owners_house
    house.api.say("one")
    assert "<name>tea</name>" not in instructions(await house.asked(1))
    await house.rests()

    folder = teach(house, "tea")
    house.api.say("two")
    text = instructions(await house.asked(2))
    assert f"<name>tea</name>\n<description>about tea</description>\n<location>{folder}/SKILL.md" in text
    assert text.index("## Safety") < text.index("## Skills") < text.index("## Workspace")
    await house.rests()

    house.api.say("three")
    assert is_prefix(await house.asked(2), await house.asked(3))
    await house.rests()

    (folder / "SKILL.md").unlink()
    house.api.say("four")
    assert instructions(await house.asked(4)) == instructions(await house.asked(1))


async def test_the_model_reads_what_it_was_pointed_to(owners_house: House) -> None:
    house = owners_house
    user = house.home / "skills" / "coffee"
    user.mkdir(parents=True)
    (user / "SKILL.md").write_text("---\nname: coffee\ndescription: about coffee\n---\nGrind it.\n")
    (user / "beans.md").write_text("Arabica\n")
    house.model.play(
        reply("openai", "", Call("c1", "read", {"path": f"{user}/SKILL.md"})),
        reply("openai", "", Call("c2", "read", {"path": f"{user}/beans.md"})),
        reply("openai", "", Call("c3", "read", {"path": f"{house.home}/config.toml"})),
        reply("openai", "Coffee."),
    )
    house.api.say("make coffee")
    await house.hears("Coffee.")
    found = results(await house.asked(4))
    assert found[0].endswith("Grind it.")
    assert found[1] == "Arabica"
    assert found[2].startswith("Error: ")


async def test_a_skill_that_is_switched_off_is_not_there(owners_house: House) -> None:
    house = owners_house
    teach(house, "tea")
    await house.stop()
    house.more += '\n[skills]\ndisabled = ["tea"]'
    await house.start()
    house.api.say("one")
    assert "<name>tea</name>" not in instructions(await house.asked(1))


async def test_nothing_that_a_person_writes_installs_a_skill(owners_house: House) -> None:
    house = owners_house  # zip-025
    house.api.say("install this skill")
    offered = {tool["function"]["name"] for tool in (await house.asked(1))["tools"]}
    assert not {name for name in offered if "skill" in name or "install" in name}
