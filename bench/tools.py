"""What a tool call costs beside the tool's own work.

    .venv/bin/python -m bench.tools [--calls 300]

One conversation on a fresh SQLite file makes one call after the other. Beside the work is everything from
the model's answer to its next request, without the time within the tool: arguments and policy, the note
that a call is about to run which may not run twice, the result's way into the journal, the next prompt.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from gateway.clock import SystemClock
from gateway.config import ExecSettings, bundled
from gateway.models.base import Prompt
from gateway.prompt import Prompts
from gateway.store.engine import Database, open_database
from gateway.store.migrate import create
from gateway.tools.base import ToolContext
from gateway.tools.box import Toolbox
from gateway.tools.exec import exec_tools
from gateway.tools.files import FILE_TOOLS
from gateway.tools.plan import todo_tool
from gateway.tools.processes import Processes
from gateway.tools.sandbox import Choice, open_sandbox
from gateway.tools.schema import FunctionTool
from gateway.types import AssistantEntry, Json, JsonObject, ToolCall
from gateway.workspace import Workspace
from tests.fakes.scripted import ScriptedModel
from tests.fakes.world import World, said

ROUNDS = 30
"""Calls in one turn."""

LINES = "a line of text\n" * 20
ARGS: dict[str, Callable[[int], JsonObject]] = {
    "todo": lambda number: {"steps": [{"text": "look"}, {"text": f"try {number}", "status": "doing"}]},
    "read": lambda number: {"path": "note.md", "offset": number % 10 + 1},
    "write": lambda number: {"path": "out.md", "content": f"{number}\n{LINES}"},
    "exec": lambda number: {"command": f"true {number}"},
}
"""Never the same twice in a row: that would be ended as a loop."""


@dataclass(slots=True)
class Stopwatch:
    """Milliseconds of each call: within the tool, and beside it."""

    own: list[float] = field(default_factory=list)
    beside: list[float] = field(default_factory=list)
    _answered: float = 0.0
    _within: float = 0.0

    def timed(self, tool: FunctionTool) -> FunctionTool:
        """Return the tool, watched: what it does, and what it asks a person before."""
        asks = None if tool.asks is None else self._timed(tool.asks)
        return replace(tool, run=self._timed(tool.run), asks=asks)

    def answered(self) -> None:
        """Note that the model has answered."""
        self._answered, self._within = time.perf_counter(), 0.0

    def asked(self) -> None:
        """Note that the model is asked again, now with the result."""
        gap = (time.perf_counter() - self._answered) * 1e3
        self.own.append(self._within)
        self.beside.append(gap - self._within)

    def _timed(self, function: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def run(context: ToolContext, **args: Json) -> Any:  # noqa: ANN401 - whatever the tool returns
            began = time.perf_counter()
            try:
                return await function(context, **args)
            finally:
                self._within += (time.perf_counter() - began) * 1e3

        return run


async def measure(db: Database, workspace: Workspace, name: str, tool: FunctionTool, calls: int) -> Stopwatch:
    """Make calls of one tool in a conversation of that name."""
    watch, clock = Stopwatch(), SystemClock()
    tools = Toolbox([watch.timed(tool)])
    made, ended = 0, asyncio.Event()

    async def answer(_prompt: Prompt) -> AssistantEntry:
        nonlocal made
        if made % ROUNDS:
            watch.asked()
        made += 1
        await asyncio.sleep(0.002)  # a model thinks
        watch.answered()
        if made % ROUNDS == 0:
            ended.set()
            return AssistantEntry("done")
        return AssistantEntry("", (ToolCall(f"call{made:05}", tool.name, ARGS[tool.name](made)),))

    world = World(db=db, clock=clock, model=ScriptedModel(answer), workspace=workspace.path)
    runner = world.worker.turns
    runner.agent = replace(runner.agent, tools=tools, prompts=Prompts(workspace, tools.specs, "UTC", clock))
    async with asyncio.TaskGroup() as group:
        group.create_task(world.worker.serve())
        group.create_task(world.sender.serve())
        while made < calls:
            ended.clear()
            await world.put(said("Go on.", name))
            world.worker.bell.ring()
            await ended.wait()
        world.worker.drain()
        world.sender.drain()
    return watch


def line(name: str, watch: Stopwatch) -> str:
    """Return a line of the table."""
    own, beside = statistics.median(watch.own), statistics.median(watch.beside)
    late = statistics.quantiles(watch.beside, n=20)[-1]
    return f"{name:<18} {len(watch.own):>6} {own:>12.2f} {beside:>12.2f} {late:>12.2f}"


def cases(db: Database, processes: Processes) -> Sequence[tuple[str, FunctionTool]]:
    """Return the tools to measure, by what the table calls them."""
    files = {tool.name: tool for tool in FILE_TOOLS}
    found = [("todo", todo_tool(db)), ("read", files["read"]), ("write", files["write"])]
    choices: Sequence[Choice] = ("off", "landlock", "bwrap")
    for choice in choices:
        if choice in ("off", open_sandbox(choice).tier):
            tool, _ = exec_tools(
                ExecSettings(mode="full"),
                processes,
                SystemClock(),
                environ=os.environ,
                sandbox=partial(open_sandbox, choice),
            )
            found.append((f"exec, {choice}", tool))
    return found


async def main(calls: int) -> None:
    """Print a line for each tool."""
    with tempfile.TemporaryDirectory(prefix="crayfish-bench-") as folder:
        clock = SystemClock()
        db = await open_database(f"sqlite+aiosqlite:///{folder}/crayfish.db", clock)
        await db.write(create)
        home = await asyncio.to_thread(Path(folder).resolve)
        workspace = Workspace(home / "workspace", bundled("workspace"))
        workspace.seed()
        (workspace.path / "note.md").write_text(LINES)
        processes = Processes(clock)
        print(f"{'':<18} {'calls':>6} {'its own p50':>12} {'beside p50':>12} {'beside p95':>12}   (ms)")
        for name, tool in cases(db, processes):
            print(line(name, await measure(db, workspace, name, tool, calls)))
        await processes.close()
        await db.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=300)
    asyncio.run(main(parser.parse_args().calls))
