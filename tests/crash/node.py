"""One node of several on a database: `python -m tests.crash.node URL FOLDER`.

What it does outside the database it writes into two files of the folder, a line each: `acts` when a call
that may not repeat has its effect, `sent` when the platform accepts a message.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from zoneinfo import ZoneInfo

from gateway.agenda import Agenda
from gateway.clock import SystemClock
from gateway.models.base import Prompt
from gateway.store.engine import open_database
from gateway.store.jobs import Rules
from gateway.store.schedules import Schedules
from gateway.timer import Timer
from gateway.types import AssistantEntry, Entry, Kind, Outgoing, Receipt, ToolCall, UserEntry
from tests.fakes.scripted import RecordingChannel, ScriptedModel, ScriptedTools
from tests.fakes.world import World

LEASE = 1.5
"""Seconds until the others take over what a dead node held."""

LANE = 1000
"""Runs of schedules that go on at a time, so that none has to wait for the next look."""


def note(file: Path, line: str) -> None:
    """Append a line in one write, so that a death leaves all of it or nothing."""
    handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        os.write(handle, f"{line}\n".encode())
    finally:
        os.close(handle)


def spoken(entries: Sequence[Entry]) -> list[str]:
    """Return what people have said since the last answer."""
    texts: list[str] = []
    for one in entries:
        match one:
            case UserEntry():
                texts.append(one.text)
            case AssistantEntry() if not one.calls:
                texts.clear()
            case _:
                pass
    return texts


async def answer(prompt: Prompt) -> AssistantEntry:
    """Act twice for what was said last, then answer all that was said."""
    await asyncio.sleep(random.uniform(0.005, 0.03))
    last = prompt.entries[-1]
    if isinstance(last, UserEntry):
        # Of a schedule the last line is what it was set for, and the time tells its runs apart.
        told = f"{last.text.splitlines()[-1]}@{last.at:.3f}"
        names = ("look", "act", "act")
        return AssistantEntry("", tuple(ToolCall(f"{told}.{n}", name) for n, name in enumerate(names)))
    return AssistantEntry(" ".join(spoken(prompt.entries)))


@dataclass(slots=True)
class FileChannel(RecordingChannel):
    """A platform that takes a few milliseconds before and after it has accepted a message."""

    file: Path = Path("sent")

    async def send(self, message: Outgoing) -> Receipt:
        await asyncio.sleep(0.003)
        note(self.file, f"{message.key} {message.text}")
        await asyncio.sleep(0.003)
        return Receipt("1")


async def main(url: str, folder: Path) -> None:
    """Work until killed."""
    clock = SystemClock()

    async def work(call: ToolCall) -> str:
        await asyncio.sleep(random.uniform(0.002, 0.02))
        if call.name == "act":
            note(folder / "acts", call.id)
        await asyncio.sleep(random.uniform(0.002, 0.02))
        return "done"

    db = await open_database(url, clock)
    schedules = Schedules(db=db, clock=clock, rules=Rules(zone=ZoneInfo("UTC"), lane=LANE))
    world = World(
        db=db,
        clock=clock,
        model=ScriptedModel(answer),
        tools=ScriptedTools(result=work),
        channel=FileChannel(file=folder / "sent"),
        endings={Kind.CRON: schedules.ended},
        owner=f"node{os.getpid()}",
        lease=LEASE,
        slots=1,
    )
    timer = Timer(clock)
    agenda = Agenda(
        schedules=schedules, timer=timer, worker_bell=world.worker.bell, outbox_bell=world.sender.bell
    )
    await world.recover()
    agenda.look_soon()
    async with asyncio.TaskGroup() as group:
        group.create_task(timer.serve())
        group.create_task(world.worker.serve())
        group.create_task(world.sender.serve())


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2])))
