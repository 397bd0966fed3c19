"""What one turn costs inside the gateway: CPU and bytes written, without network and model.

    .venv/bin/python -m bench.turn [--turns 200] [--profile 15]

A conversation of many turns on a fresh SQLite file, with a model that answers at once and a channel
that keeps what it is given. Early and late turns must cost the same, beyond the prompt itself.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import pstats
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from gateway.clock import SystemClock
from gateway.config import bundled
from gateway.models.calls import Names
from gateway.models.habits import Habits
from gateway.models.openai import messages
from gateway.prompt import Prompts
from gateway.repair import repair
from gateway.store.engine import open_database
from gateway.store.migrate import create
from gateway.tools.box import Toolbox
from gateway.tools.files import FILE_TOOLS
from gateway.types import AssistantEntry
from gateway.workspace import Workspace
from tests.fakes.scripted import ScriptedModel
from tests.fakes.world import World

BATCH = 20
ANSWER = "Here is the answer you asked for, with a sentence of filler that gives it a realistic length. " * 2


def written() -> int:
    """Return the bytes that this process has sent to the disk."""
    lines = Path("/proc/self/io").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("write_bytes")))


async def main(turns: int, profile: int) -> None:
    """Print a line for each twenty turns."""
    with tempfile.TemporaryDirectory(prefix="crayfish-bench-") as folder:
        clock = SystemClock()
        db = await open_database(f"sqlite+aiosqlite:///{folder}/crayfish.db", clock)
        await db.write(create)
        home = await asyncio.to_thread(Path(folder).resolve)
        workspace = Workspace(home / "workspace", bundled("workspace"))
        workspace.seed()
        tools = Toolbox(FILE_TOOLS)
        world = World(db=db, clock=clock, model=ScriptedModel(lambda _: AssistantEntry(ANSWER)))
        runner = world.worker.turns
        runner.agent = replace(runner.agent, prompts=Prompts(workspace, tools.specs, "UTC", clock))
        profiler = cProfile.Profile()
        print(f"{'turns':>10} {'ms wall':>9} {'ms CPU':>8} {'kB disk':>8} {'ms for the prompt':>18}")
        for start in range(0, turns, BATCH):
            wall, cpu, disk = time.perf_counter(), time.process_time(), written()
            if profile:
                profiler.enable()
            for number in range(start, start + BATCH):
                await world.say(f"This is message {number}, a short question about the weekend plan.")
            profiler.disable()
            wall, cpu, disk = time.perf_counter() - wall, time.process_time() - cpu, written() - disk
            print(
                f"{start + BATCH:>10} {wall / BATCH * 1e3:>9.2f} {cpu / BATCH * 1e3:>8.2f}"
                f" {disk / BATCH / 1024:>8.1f} {prompt_ms(world):>18.2f}"
            )
        await db.close()
        if profile:
            pstats.Stats(profiler).sort_stats("tottime").print_stats(profile)


def prompt_ms(world: World) -> float:
    """Return what it costs to turn the newest prompt into a request: repair and conversion."""
    prompt = world.model.prompts[-1]
    began = time.process_time()
    entries = repair(prompt.entries)
    messages(replace(prompt, entries=entries), "bench", Habits(), Names.of(prompt.tools))
    return (time.process_time() - began) * 1e3


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=200)
    parser.add_argument("--profile", type=int, default=0, help="print so many lines of a profile")
    chosen = parser.parse_args()
    asyncio.run(main(chosen.turns, chosen.profile))
