"""Calls through the toolbox: whatever happens becomes a result."""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from gateway.errors import ConfigError, ToolError
from gateway.tools.base import Group, Tool, ToolContext
from gateway.tools.box import MAX_ERROR, MAX_RESULT, MAX_STORED, RESULTS, Toolbox
from gateway.tools.files import FILE_TOOLS
from gateway.tools.schema import tool
from gateway.types import Address, Chat, JsonObject, Level, Replay, Sender, ToolCall, ToolEntry
from tests.fakes.scripted import situation


@tool(Replay.SAFE, Group.PLAN)
async def say(_context: ToolContext, text: str) -> str:
    """Say it."""
    return text


@tool(Replay.ONCE, Group.PLAN)
async def fail(context: ToolContext, how: str) -> str:
    """Fail in some way."""
    match how:
        case "deliberately":
            raise ToolError("that is not possible; try tomorrow")
        case "path":
            return (context.workspace / "no-such-file").read_text()
        case "timeout":
            raise TimeoutError
        case _:
            raise ValueError(how)


@tool(Replay.ONCE, Group.PLAN)
async def hang(_context: ToolContext) -> str:
    """Never answer."""
    await asyncio.Event().wait()
    return "never"


TOOLS: Sequence[Tool] = (say, fail, hang, *FILE_TOOLS)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path.resolve()


async def call(
    root: Path,
    name: str,
    args: JsonObject,
    *,
    problem: str | None = None,
    chat: Chat = Chat.DIRECT,
    seconds: float = 30.0,
) -> ToolEntry:
    context = ToolContext(root, Address("web", "1"), Sender("1", "Ann", Level.OWNER), chat, "call/1")
    return await Toolbox(TOOLS, timeout=seconds).call(ToolCall("call/1", name, args, problem), context)


async def test_a_result_carries_the_id_and_the_name_of_its_call(root: Path) -> None:
    assert await call(root, "say", {"text": "hello"}) == ToolEntry("call/1", "say", "hello")


async def test_an_empty_result_says_so(root: Path) -> None:
    assert (await call(root, "say", {"text": ""})).text == "(no output)"


async def test_signs_that_no_database_takes_are_replaced(root: Path) -> None:
    assert (await call(root, "say", {"text": "a\0b\ud800c"})).text == "a�b�c"


async def test_an_unknown_tool_is_answered_with_near_names(root: Path) -> None:
    entry = await call(root, "list_dirs", {})
    assert entry.is_error
    assert entry.text == (
        "Error: unknown tool 'list_dirs'. Did you mean 'list_dir'? "
        "Tools here: edit, fail, hang, list_dir, read, say, write."
    )


async def test_arguments_that_were_not_json_do_not_run(root: Path) -> None:
    entry = await call(root, "write", {}, problem="Unterminated string at 17")
    assert entry.is_error
    assert "write: Unterminated string at 17. It was not run" in entry.text


async def test_size_006_huge_arguments_are_refused(root: Path) -> None:
    entry = await call(root, "write", {"path": "a", "content": "x" * 5_000_000})
    assert entry.is_error
    assert "at most 262144" in entry.text
    assert not (root / "a").exists()


async def test_arguments_of_the_wrong_shape_are_named(root: Path) -> None:
    entry = await call(root, "say", {"txt": "x"})
    assert entry.text.startswith("Error: missing argument 'text'; unknown argument 'txt'.")


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("write_file", {"file_path": "a", "content": "x"}),
        ("write", {"filePath": "a", "contents": "x"}),
        ("write", {"filename": "a", "text": "x"}),
    ],
)
async def test_habitual_names_are_understood(root: Path, name: str, args: JsonObject) -> None:
    entry = await call(root, name, args)
    assert (entry.text, entry.name) == ("Wrote 1 bytes to a", name)
    edited = await call(root, "edit_file", {"path": "a", "oldText": "x", "new_string": "y"})
    assert not edited.is_error
    assert (await call(root, "read_file", {"filepath": "a"})).text == "y"
    assert (await call(root, "ls", {"directory": "."})).text == "a (1)"


async def test_a_deliberate_error_is_its_text(root: Path) -> None:
    entry = await call(root, "fail", {"how": "deliberately"})
    assert (entry.text, entry.is_error) == ("Error: that is not possible; try tomorrow", True)


async def test_an_unexpected_error_is_short_and_logged(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    entry = await call(root, "fail", {"how": "x" * 10_000})
    assert entry.text.startswith("Error: ValueError: xxx")
    assert len(entry.text) == MAX_ERROR
    [record] = caplog.records
    assert (record.levelno, record.message) == (logging.ERROR, "Tool fail failed")
    assert record.exc_info


async def test_an_error_of_the_system_names_no_host_path(root: Path) -> None:
    entry = await call(root, "fail", {"how": "path"})
    assert entry.text == "Error: FileNotFoundError: not found"


async def test_a_tools_own_time_out_is_an_error_like_any_other(root: Path) -> None:
    assert (await call(root, "fail", {"how": "timeout"})).text == "Error: TimeoutError: no reason given"


async def test_a_tool_that_does_not_answer_is_stopped(root: Path) -> None:
    entry = await call(root, "hang", {}, seconds=0.01)
    assert entry.is_error
    assert "hang gave no answer within 0.01 seconds" in entry.text


async def test_a_cancelled_call_is_cancelled(root: Path) -> None:
    task = asyncio.create_task(call(root, "hang", {}))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_session_10_a_huge_result_is_kept_in_a_file_and_shown_by_its_ends(root: Path) -> None:
    whole = "".join(f"{number:09}\n" for number in range(200_000))
    entry = await call(root, "say", {"text": "x"})
    box = Toolbox([_returning(whole)])
    context = ToolContext(root, Address("web", "1"), Sender("1", "Ann", Level.OWNER), Chat.DIRECT, "c")
    entry = await box.call(ToolCall("../../c:1", "huge", {}), context)
    assert len(entry.text) <= MAX_RESULT
    assert entry.text.startswith("000000000\n")
    assert entry.text.endswith("000199999\n")
    found = re.search(rf"1984500 of 2000000 characters left out here; .* ({RESULTS}/\S+)\]", entry.text)
    assert found
    assert (root / found[1]).read_text() == whole
    shown = await call(root, "read", {"path": found[1], "offset": 100_001, "limit": 1})
    assert shown.text.startswith("000100000\n")


async def test_stored_results_do_not_pile_up(root: Path) -> None:
    (root / RESULTS).mkdir(parents=True)
    for number in range(MAX_STORED + 5):
        (root / RESULTS / f"{number}.txt").touch()
    context = ToolContext(root, Address("web", "1"), Sender("1", "Ann", Level.OWNER), Chat.DIRECT, "c")
    await Toolbox([_returning("x" * 20_000)]).call(ToolCall("new", "huge", {}), context)
    names = [path.name for path in (root / RESULTS).iterdir()]
    assert len(names) == MAX_STORED
    assert any(name.startswith("new-") for name in names)


async def test_a_result_that_can_not_be_stored_is_still_shown(root: Path) -> None:
    (root / ".crayfish").write_text("in the way")
    context = ToolContext(root, Address("web", "1"), Sender("1", "Ann", Level.OWNER), Chat.DIRECT, "c")
    entry = await Toolbox([_returning("x" * 20_000)]).call(ToolCall("c", "huge", {}), context)
    assert not entry.is_error
    assert "the full text could not be stored" in entry.text


def _returning(text: str) -> Tool:
    @tool(Replay.SAFE, Group.PLAN)
    async def huge(_context: ToolContext) -> str:
        """Return much."""
        return text

    return huge


async def test_a_tool_that_is_not_for_a_group_does_nothing_there(root: Path) -> None:
    entry = await call(root, "write", {"path": "a", "content": "x"}, chat=Chat.GROUP)
    assert entry.is_error
    assert entry.text == "Error: the tool 'write' is not available here: it is not for groups."
    assert not (root / "a").exists()


def test_specs_are_ordered_by_name_and_always_the_same_object(tmp_path: Path) -> None:
    box = Toolbox(TOOLS)
    names = [spec.name for spec in box.specs(situation())]
    assert names == sorted(names)
    assert box.specs(situation()) is box.specs(situation())


def test_the_file_tools_cost_little_of_a_request(tmp_path: Path) -> None:
    specs = Toolbox(FILE_TOOLS).specs(situation())
    assert len(json.dumps([[spec.name, spec.description, spec.parameters] for spec in specs])) < 1500


@pytest.mark.parametrize(
    ("name", "expected"),
    [("read", True), ("read_file", True), ("write", False), ("write_file", False), ("no_such_tool", True)],
)
def test_a_call_may_run_again_only_if_it_changes_nothing(tmp_path: Path, name: str, expected: bool) -> None:
    assert Toolbox(TOOLS).replayable(name) is expected


@pytest.mark.parametrize("name", ["path", "file_path", "filePath", "file"])
@pytest.mark.parametrize("tool_name", ["read", "read_file"])
def test_what_a_call_brings_is_judged_by_the_arguments_that_the_tool_gets(tool_name: str, name: str) -> None:
    others, own = "rooms/telegram-8/letter.md", "letter.md"
    box = Toolbox(FILE_TOOLS)
    assert box.brings(ToolCall("c", tool_name, {name: others})) == (True, True)
    assert box.brings(ToolCall("c", tool_name, {name: own})) == (False, True)


def test_two_tools_of_one_name_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="Two tools are called 'say'"):
        Toolbox([say, say])
