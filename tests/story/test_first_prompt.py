"""What a new owner's first message costs, with everything that the bot has from the start."""

from __future__ import annotations

import json
import os
import platform
import re
from pathlib import Path

from tests.fakes.model_api import JsonObject
from tests.story.house import House

ROOT = Path(__file__).parents[2]

LEARNED = {
    "bookkeeper": "Keep a household ledger and sum it up by month.",
    "calendar": "Read and change the family's calendar over CalDAV.",
    "contacts": "Look up people, their numbers, addresses and birthdays.",
    "fitness": "Log runs and workouts; show progress against a goal.",
    "git-digest": "Summarise what happened in the repositories of a team.",
    "home": "Switch lights, heating and blinds; read the sensors.",
    "mail": "Search the mailbox, sort it, and draft answers.",
    "parcels": "Follow parcels of the usual carriers until they arrive.",
    "recipes": "Find recipes for what is in the fridge; plan a week.",
    "trains": "Look up trains, delays and platforms.",
    "translate": "Translate letters and documents, and keep their layout.",
    "vocabulary": "Teach words of a language with spaced repetition.",
}


def size(body: JsonObject) -> int:
    """Return the characters of a request as its prefix cache sees them: schemas, then messages."""
    parts = (body["tools"], *body["messages"])
    return sum(len(json.dumps(part, sort_keys=True)) for part in parts)


async def test_the_first_prompt_has_everything_in_12_000_characters(empty_house: House) -> None:
    house = empty_house
    house.more = '[access]\nowners = ["telegram:7"]'
    house.env = {"PATH": os.environ["PATH"]}
    for name, description in LEARNED.items():
        folder = house.workspace / "skills" / name
        folder.mkdir(parents=True)
        (folder / "SKILL.md").write_text(f"---\nname: {name}\ndescription: {description}\n---\nBody\n")
    await house.start()
    house.api.say("Hello there")
    body = await house.asked(1)
    text = body["messages"][0]["content"]
    assert len(re.findall(r"^- ([a-z-]+): ", text, re.MULTILINE)) == 20
    for file in ("AGENTS.md", "SOUL.md", "IDENTITY.md", "BOOTSTRAP.md"):
        assert f"## {file}\n" in text
    assert len(body["tools"]) == 16
    told = (
        json.dumps(body).replace(str(house.home), "/home/ada/.crayfish").replace(str(ROOT), "/opt/crayfish")
    )
    told = told.replace(f"host={platform.node()} ", "host=crayfish ")
    assert size(json.loads(told)) <= 12_000
