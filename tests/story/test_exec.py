"""The model runs commands in chats: unasked where a sandbox holds them, else after a yes of the owner."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from gateway.tools.sandbox import Tier, open_sandbox
from tests.fakes.model_api import Call, reply
from tests.story.house import House, results

OWNER = '[access]\nowners = ["telegram:7"]\n'
NAP = f"sleep 9{os.getpid()}99"  # which no other test process runs
CLOSED = 'dm_policy = "pairing"'


def calls(command: str, **args: Any) -> Any:
    """Return an answer of the model that runs a command."""
    return reply("openai", "", Call("c1", "exec", {"command": command, **args}))


def tools(body: dict[str, Any]) -> set[str]:
    return {tool["function"]["name"] for tool in body.get("tools", ())}


@pytest.fixture
def home(empty_house: House) -> House:
    empty_house.telegram, empty_house.more = CLOSED, OWNER
    return empty_house


@pytest.fixture
def boxed(home: House) -> House:
    if open_sandbox("auto").tier is Tier.NONE:
        pytest.skip(open_sandbox("auto").note)
    return home


async def test_an_ordinary_command_runs_and_its_output_is_read(boxed: House) -> None:
    boxed.model.play(calls("echo hello from the shell | tr a-z A-Z"), reply("openai", "done"))
    await boxed.start()
    boxed.api.say("say hello")
    await boxed.hears("done")
    [said] = results(boxed.model.bodies[1])
    assert said.startswith("HELLO FROM THE SHELL\n[exit code 0")


async def test_a_destructive_command_waits_for_the_owner(home: House) -> None:
    home.model.play(calls("rm -rf build"), reply("openai", "gone"))
    await home.start()
    build = home.workspace / "build"
    build.mkdir()
    home.api.say("clean up")
    await home.until(lambda: any("rm -rf build" in text for text in home.texts()))
    assert build.is_dir()
    home.api.say("/approve")
    await home.until(lambda: "gone" in home.texts())
    await home.rests()
    assert not build.exists()


async def test_a_script_that_was_changed_meanwhile_does_not_run(home: House) -> None:
    home.more += '[exec]\nmode = "ask"\n'
    home.model.play(calls("sh job.sh"), reply("openai", "as you wish"))
    await home.start()
    script = home.workspace / "job.sh"
    script.write_text("echo first > ran\n")
    home.api.say("run the job")
    await home.until(lambda: any("sh job.sh" in text for text in home.texts()))
    script.write_text("echo second > ran\n")
    home.api.say("/approve")
    await home.until(lambda: "as you wish" in home.texts())
    await home.rests()
    assert not (home.workspace / "ran").exists()
    assert "not run" in results(home.model.bodies[-1])[0]


async def test_what_never_runs_is_refused_without_a_question(home: House) -> None:
    home.model.play(calls("timeout 5 sudo reboot"), reply("openai", "I may not"))
    await home.start()
    home.api.say("restart the machine")
    await home.hears("I may not")
    assert "never run" in results(home.model.bodies[1])[0]


async def test_exec_030_somebody_else_has_no_such_tool(home: House) -> None:
    home.telegram = 'dm_policy = "allowlist"\nallow_from = [8]'
    home.model.play(calls("cat notes.md"), reply("openai", "no"))
    await home.start()
    (home.workspace / "notes.md").write_text("private")
    home.api.say("what do the notes say?", chat=8)
    await home.rests()
    assert not tools(home.model.bodies[0]) & {"exec", "process"}
    assert "private" not in results(home.model.bodies[1])[0]


async def test_exec_031_a_group_has_no_such_tool(home: House) -> None:
    home.telegram += '\ngroup_policy = "open"\n[channels.telegram.groups."*"]\nrequire_mention = false'
    home.model.play(calls("cat notes.md"), reply("openai", "no"))
    await home.start()
    (home.workspace / "notes.md").write_text("private")
    home.api.push({"message": home.api.group_message(-1005, 7, text="what do the notes say?")})
    await home.rests()
    assert not tools(home.model.bodies[0]) & {"exec", "process"}
    assert "private" not in results(home.model.bodies[1])[0]


async def test_stop_ends_a_command(boxed: House) -> None:
    boxed.model.play(calls(f"echo x > started; {NAP}"), reply("openai", "never said"))
    await boxed.start()
    boxed.api.say("wait long")
    await boxed.until((boxed.workspace / "started").exists)
    boxed.api.say("/stop")
    await boxed.rests()
    assert await gone(NAP)


async def test_a_background_command_ends_with_the_gateway(boxed: House) -> None:
    boxed.model.play(calls(f"echo x > started; {NAP}", background=True), reply("openai", "it runs"))
    await boxed.start()
    boxed.api.say("start it")
    await boxed.hears("it runs")
    assert (boxed.workspace / "started").exists()
    await boxed.stop()
    assert await gone(NAP)


async def gone(command: str) -> bool:
    """Return whether no process with such a command line is left within two seconds."""
    for _ in range(40):
        if not any(command in _line(file) for file in Path("/proc").glob("[0-9]*/cmdline")):
            return True
        await asyncio.sleep(0.05)
    return False


def _line(file: Path) -> str:
    try:
        return file.read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
    except OSError:
        return ""
