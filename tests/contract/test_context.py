"""What `/context` and `crayfish prompt show` tell of a prompt."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from gateway import config, context
from gateway.app.console import prompt
from gateway.cli import main
from gateway.clock import SystemClock
from gateway.context import Contexts
from gateway.prompt import Prompts
from gateway.store import journal
from gateway.store.engine import Database, open_database
from gateway.store.inbox import Arrival, Inbox
from gateway.store.migrate import create
from gateway.tools.box import Toolbox
from gateway.tools.files import FILE_TOOLS
from gateway.types import Address, JsonObject, Kind, Level, Situation
from gateway.workspace import MAX_FILE, Workspace
from tests.fakes.clock import FakeClock
from tests.fakes.scripted import ScriptedModel, call, calls, in_turn
from tests.fakes.world import World, said

TEMPLATES = Path(__file__).parents[2] / "workspace"
HERE = Address("fake", "1")


class Talk:
    """A core whose prompts are real."""

    def __init__(self, db: Database, clock: FakeClock, folder: Path, *answers: object) -> None:
        self.db = db
        workspace = Workspace(folder, TEMPLATES)
        workspace.seed()
        self.workspace = folder
        self.prompts = Prompts(workspace, Toolbox(FILE_TOOLS).specs, "Europe/Berlin", clock)
        self.model = ScriptedModel(in_turn(*answers))  # type: ignore[arg-type] # what in_turn takes
        self.world = World(db=db, clock=clock, model=self.model, prompts=self.prompts, workspace=folder)
        self.contexts = Contexts(self._chosen)

    def _chosen(self, _situation: Situation) -> tuple[str, Prompts]:
        fresh = Prompts(
            self.prompts.workspace.anew(), self.prompts.specs, "Europe/Berlin", self.prompts.clock
        )
        return "main", fresh

    async def shown(self, address: Address = HERE) -> JsonObject:
        found = await self.db.read(lambda tx: self.contexts.show(tx, address))
        assert found is not None
        return found


@pytest.fixture
def talk(db: Database, clock: FakeClock, tmp_path: Path) -> Talk:
    return Talk(db, clock, tmp_path / "ws", calls(call("look", where="here")), "fine")


def parts(shown: JsonObject) -> dict[str, JsonObject]:
    return {part["name"]: part for part in shown["parts"]}


async def test_the_parts_are_exactly_what_the_model_was_sent(talk: Talk) -> None:
    await talk.world.say("hello")
    shown, sent = await talk.shown(), talk.model.prompts[-1]
    stable = "\n\n".join(part["text"] for part in shown["parts"] if part["stable"])
    changing = "\n\n".join(part["text"] for part in shown["parts"] if not part["stable"])
    assert (stable, changing) == (sent.system, sent.context)
    assert [one["name"] for one in shown["tools"]] == [spec.name for spec in sent.tools]
    assert [one["role"] for one in shown["entries"]] == ["user", "assistant", "tool", "assistant"]
    assert shown["entries"][1]["calls"] == [{"name": "look", "arguments": {"where": "here"}}]
    for part in shown["parts"]:
        assert part["chars"] == len(part["text"])
    everything = [*shown["parts"], *shown["tools"], *shown["entries"]]
    assert shown["chars"] == sum(one["chars"] for one in everything)


async def test_a_shortened_file_is_shown_with_its_own_size(talk: Talk) -> None:
    (talk.workspace / "TOOLS.md").write_text("word " * 10_000)
    await talk.world.say("hello")
    part = parts(await talk.shown())["TOOLS.md"]
    assert part["size"] == 50_000
    assert part["chars"] < MAX_FILE + 100
    assert "TOOLS.md: 20," in context.lines(await talk.shown())
    assert "(shortened; the file has 50,000 bytes)" in context.lines(await talk.shown())
    assert "size" not in parts(await talk.shown())["AGENTS.md"]


async def test_small_sections_share_a_line(talk: Talk) -> None:
    await talk.world.say("hello")
    told = context.lines(await talk.shown()).splitlines()
    assert told[0] == "agent: main"
    assert any(line.startswith("small sections: ") for line in told)
    assert any(line.startswith("4 tools: ") for line in told)
    assert any(line.startswith("4 entries: ") for line in told)
    assert told[-1].startswith("in all: ")
    assert told[-1].endswith(" tokens")


async def test_the_text_is_in_the_order_in_which_it_is_sent(talk: Talk) -> None:
    await talk.world.say("hello")
    text = context.text(await talk.shown())
    order = ["You are Crayfish", "## Safety", "## AGENTS.md", "Runtime: ", "Tools: edit", "--- user\nhello"]
    places = [
        text.index(one)
        for one in [*order, '→ look {"where": "here"}', "--- tool look", "--- assistant\nfine"]
    ]
    assert places == sorted(places)


async def test_a_group_is_shown_without_private_files(talk: Talk) -> None:
    (talk.workspace / "MEMORY.md").write_text("- The dog is called Rex.")
    await talk.world.say("hello", chat="-5", group=True)
    assert "MEMORY.md" not in parts(await talk.shown(Address("fake", "-5")))
    await talk.world.say("hello")
    assert "MEMORY.md" in parts(await talk.shown())


async def test_after_a_heartbeat_the_next_turn_of_people_is_shown(talk: Talk) -> None:
    (talk.workspace / "HEARTBEAT.md").write_text("- Did a job fail?")
    await talk.world.put(said("beat", kind=Kind.HEARTBEAT))
    await talk.world.settle()
    assert "heartbeat" not in parts(await talk.shown())


async def test_the_notes_that_a_new_session_begins_with_are_shown(talk: Talk, clock: FakeClock) -> None:
    today = datetime.fromtimestamp(clock.wall(), ZoneInfo("Europe/Berlin")).date().isoformat()
    (talk.workspace / "memory").mkdir()
    (talk.workspace / "memory" / f"{today}.md").write_text("- bought milk")
    await talk.world.put(said("hello"))
    claim, _ = await talk.world.worker.journal.claim(1)
    assert claim
    assert "bought milk" in parts(await talk.shown())["notes"]["text"]


async def test_nothing_is_known_of_a_chat_in_which_nothing_was_said(talk: Talk) -> None:
    assert await talk.db.read(lambda tx: talk.contexts.show(tx, Address("fake", "none"))) is None
    told = await talk.db.read(lambda tx: talk.contexts.summary(tx, said("/context", chat="none")))
    assert told == "Nothing was said here yet."


async def test_a_session_that_has_just_begun_is_shown_for_whoever_spoke_last(talk: Talk) -> None:
    (talk.workspace / "MEMORY.md").write_text("- The dog is called Rex.")
    await talk.world.say("hello")
    (claim,) = [one for one in [await talk.db.read(lambda tx: journal.peek(tx, HERE))] if one]
    now = talk.db.now()
    await talk.db.write(lambda tx: journal.stop(tx, claim.conversation_id, now, new_session=True))
    shown = await talk.shown()
    assert shown["entries"] == []
    assert "MEMORY.md" in parts(shown)


async def test_whoever_asks_is_told_what_an_answer_to_them_would_take(talk: Talk) -> None:
    (talk.workspace / "USER.md").write_text("- The dog is called Rex. " * 20)
    await talk.world.say("hello")
    own = said("/context")
    guest = replace(own, sender=replace(own.sender, level=Level.GUEST))
    assert "USER.md" in await talk.db.read(lambda tx: talk.contexts.summary(tx, own))
    assert "USER.md" not in await talk.db.read(lambda tx: talk.contexts.summary(tx, guest))


async def prepared(home: Path) -> config.Loaded:
    """Return a home in which one message waits."""
    (home / "config.toml").write_text(
        '[http]\nenabled = false\n[model]\ndialect = "demo"\n[agent]\ntimezone = "Europe/Berlin"\n'
    )
    loaded = config.load(home / "config.toml", {"CRAYFISH_HOME": str(home)}, home)
    db = await open_database(loaded.settings.store.url, SystemClock())
    await db.write(create)
    await Inbox(db).put([Arrival(said("hello"))])
    await db.close()
    return loaded


async def test_the_command_line_shows_what_a_stopped_gateway_would_send(tmp_path: Path) -> None:
    loaded = await prepared(tmp_path)
    shown = (await prompt(loaded, "fake:1"))["prompt"]
    assert shown["conversation"] == "fake:1"
    assert "exec" in [one["name"] for one in shown["tools"]] or shown["tools"] == []
    assert (await prompt(loaded, "fake:2"))["prompt"] is None
    assert (await prompt(loaded, "nonsense"))["prompt"] is None


def test_it_prints_text_sizes_or_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CRAYFISH_HOME", str(tmp_path))
    asyncio.run(prepared(tmp_path))
    command = ["prompt", "show", "fake:1", "--config", str(tmp_path / "config.toml")]
    assert main(command) == 0
    assert "You are Crayfish" in capsys.readouterr().out
    assert main([*command, "--sizes"]) == 0
    assert "in all: " in capsys.readouterr().out
    assert main([*command, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["conversation"] == "fake:1"
    assert main(["prompt", "show", "fake:9", *command[3:]]) == 2
    assert "there is no conversation 'fake:9'" in capsys.readouterr().err
