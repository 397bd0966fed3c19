"""What a folder with a SKILL.md changes for the bot, without a restart."""

from __future__ import annotations

import io
import json
import re
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from gateway.tools.sandbox import Tier, open_sandbox
from tests.fakes.model_api import Answer, Call, JsonObject, Request, reply
from tests.story.house import House, echo, is_prefix, results


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
    assert "- tea:" not in instructions(await house.asked(1))
    await house.rests()

    folder = teach(house, "tea")
    house.api.say("two")
    text = instructions(await house.asked(2))
    assert f'<available_skills folder="{folder.parent}">\n- tea: about tea\n' in text
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
    assert "- tea:" not in instructions(await house.asked(1))


def send_skill(house: House, person: int = 7) -> None:
    """Let a person send a zip."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("SKILL.md", "---\nname: tea\ndescription: about tea\nversion: 1.0\n---\nSteep it.\n")
    file = house.api.file(buffer.getvalue())
    document = {"file_id": file, "file_unique_id": "u", "file_name": "tea.zip"}
    house.api.push({"message": house.api.message(person, document=document, caption="learn this")})


def installing(house: House) -> Callable[[Request], Answer]:
    """Let the model install whatever zip it was told of."""

    def answer(request: Request) -> Answer:
        if results(request.body):
            return reply("openai", "Learned.")
        found = re.search(r"media/\S+?\.zip", json.dumps(request.body["messages"]))
        assert found
        return reply("openai", "", Call("c1", "skill_install", {"path": found[0]}))

    return answer


async def test_a_zip_that_the_owner_sends_is_installed_once_they_have_allowed_it(owners_house: House) -> None:
    house = owners_house
    house.model.otherwise = installing(house)
    send_skill(house)
    await house.until(
        lambda: any("Install the skill tea 1.0" in text for text in house.texts()), skipping=1.0
    )
    assert not (house.home / "skills" / "tea").exists()
    question = next(text for text in house.texts() if "Install the skill" in text)
    assert "sha256" in question
    assert "always" not in question
    house.api.say("/approve")
    await house.until(lambda: "Learned." in house.texts())
    await house.rests()
    assert (house.home / "skills" / "tea" / "SKILL.md").is_file()
    house.model.otherwise = echo
    house.api.say("tea?")
    await house.rests()
    assert "- tea:" in instructions(house.model.bodies[-1])


async def test_a_no_installs_nothing(owners_house: House) -> None:
    house = owners_house
    house.model.otherwise = installing(house)
    send_skill(house)
    await house.until(
        lambda: any("Install the skill tea 1.0" in text for text in house.texts()), skipping=1.0
    )
    house.api.say("no")
    await house.until(lambda: "Learned." in house.texts())
    assert "the owner denied it" in results(house.model.bodies[-1])[0]
    assert not (house.home / "skills" / "tea").exists()


@pytest.mark.parametrize("sender", [pytest.param(8, id="zip-025")])
async def test_nothing_that_others_send_installs_a_skill(empty_house: House, sender: int) -> None:
    house = empty_house
    await house.start()
    house.model.otherwise = installing(house)
    send_skill(house, sender)
    await house.rests(skipping=1.0)
    assert "Learned." in house.texts(sender)
    offered = {tool["function"]["name"] for body in house.model.bodies for tool in body.get("tools", ())}
    assert "skill_install" not in offered
    assert "is not available here" in results(house.model.bodies[-1])[0]
    assert not (house.home / "skills" / "tea").exists()


async def test_a_tool_of_a_skill_is_offered_while_the_skill_is_there(owners_house: House) -> None:
    house = owners_house
    folder = teach(house, "tea")
    declared = {"name": "brew", "description": "Brew.", "script": "scripts/tea.py"}
    (folder / "scripts").mkdir()
    (folder / "scripts" / "tea.py").write_text("print('steeped')\n")
    (folder / "tools.json").write_text(json.dumps([declared]))
    house.model.play(reply("openai", "", Call("c1", "tea__brew", {})), reply("openai", "Done."))
    house.api.say("brew")
    assert "tea__brew" in {tool["function"]["name"] for tool in (await house.asked(1))["tools"]}
    if open_sandbox("auto").tier is Tier.NONE:
        await house.until(lambda: any("Run a command" in text for text in house.texts()))
        house.api.say("/approve")
    await house.until(lambda: "Done." in house.texts())
    await house.rests()
    assert results(house.model.bodies[1])[0].startswith("steeped\n")
    (folder / "tools.json").unlink()
    house.api.say("again")
    assert "tea__brew" not in {tool["function"]["name"] for tool in (await house.asked(3))["tools"]}


async def test_the_chat_tells_what_it_has_and_the_owner_why_not(owners_house: House) -> None:
    house = owners_house
    await house.gateway.capabilities.act("disable", "web_fetch", "tool", "", "")
    house.api.say("/tools")
    await house.until(lambda: bool(house.texts()))
    [told] = house.texts()
    assert told.startswith("Tools here: ")
    assert "skill_install" in told.splitlines()[0]
    assert "web_fetch: it is switched off" in told
    assert house.model.bodies == []
    house.api.say("hello")
    assert "web_fetch" not in {tool["function"]["name"] for tool in (await house.asked(1))["tools"]}
