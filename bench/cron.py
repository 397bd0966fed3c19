"""What 10,000 schedules cost: at the start of a gateway, and each time it looks which of them is next.

    .venv/bin/python -m bench.cron [--jobs 10000]

On a fresh SQLite file, with the demo instead of a model and no channel. Most of a start is loading Python
modules, so each is a process of its own, with schedules and without.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from zoneinfo import ZoneInfo

from sqlalchemy.engine import Connection

from gateway import config, cron
from gateway.agenda import ALARM
from gateway.app.opening import open_gateway
from gateway.clock import SystemClock
from gateway.store.engine import open_database
from gateway.store.jobs import Rules, Wanted, save
from gateway.store.migrate import create
from gateway.store.schedules import Schedules
from gateway.types import Address, Chat, Sender

ZONE = ZoneInfo("Europe/Berlin")
PER_CHAT = 20
LOOKS = 200
STARTS = 5


def home(folder: Path) -> Path:
    """Write a configuration; return its path."""
    file = folder / "config.toml"
    file.write_text(
        '[model]\ndialect = "demo"\n[http]\nenabled = false\n[agent]\ntimezone = "Europe/Berlin"\n'
    )
    return file


def when(chance: random.Random) -> str:
    """Return a time as people set it."""
    minute, hour = chance.randrange(60), chance.randrange(24)
    return chance.choice(
        [
            f"{minute} {hour} * * *",
            f"{minute} {hour} * * 1-5",
            f"{minute} {hour} 1 * *",
            f"every {chance.randrange(60, 10_000)}m",
            f"+{chance.randrange(60, 100_000)}m",
        ]
    )


async def fill(url: str, jobs: int) -> None:
    """Store schedules, twenty in each chat, in one transaction."""
    clock, chance = SystemClock(), random.Random(1)
    db = await open_database(url, clock)
    rules, wall = Rules(zone=ZONE, most=PER_CHAT), clock.wall()
    await db.write(create)
    wanted = [
        Wanted(
            address=Address("telegram", str(number // PER_CHAT)),
            chat=Chat.DIRECT,
            sender=Sender("7", level="user"),
            name=f"job {number}",
            trigger=cron.read(when(chance), wall, ZONE),
            zone=ZONE,
            prompt="Tell me what is in my calendar.",
        )
        for number in range(jobs)
    ]

    def store(tx: Connection) -> None:
        for one in wanted:
            save(tx, one, rules, wall)

    began = time.perf_counter()
    await db.write(store)
    print(f"{jobs} schedules stored, {(time.perf_counter() - began) * 1000 / max(jobs, 1):.2f} ms each")
    await db.close()


async def looks(url: str) -> None:
    """Print what a look costs at which nothing is due, and what its time costs of a crontab line."""
    clock = SystemClock()
    db = await open_database(url, clock)
    schedules = Schedules(db=db, clock=clock, rules=Rules(zone=ZONE, lane=10_000))
    await told("a look, nothing due", schedules.fire, LOOKS)
    triggers = [cron.parse_cron(f"{n % 60} {n % 24} 1 * 1-5") for n in range(LOOKS)]
    began = time.perf_counter()
    for trigger in triggers:
        cron.next_after(trigger, clock.wall(), ZONE)
    print(f"the next slot of a crontab line: {(time.perf_counter() - began) * 1000 / LOOKS:.3f} ms")
    await db.close()


async def told(what: str, work: Callable[[], Awaitable[object]], count: int) -> None:
    """Print the median and the worst of many calls."""
    times = []
    for _ in range(count):
        began = time.perf_counter()
        await work()
        times.append((time.perf_counter() - began) * 1000)
    print(f"{what}: median {statistics.median(times):.2f} ms, worst {max(times):.2f} ms")


async def start(file: Path) -> None:
    """Open a gateway and print how many seconds it takes until it knows what is due next."""
    began = time.perf_counter()
    loaded = config.load(file, {"CRAYFISH_HOME": str(file.parent)}, file.parent)
    gateway = await open_gateway(loaded, SystemClock(), env={})
    opened = time.perf_counter()
    await gateway.agenda.look()
    known = gateway.timer.at(ALARM)
    print(f"{opened - began:.3f} {time.perf_counter() - opened:.3f} {known is not None}")
    await gateway.close()


def starts(file: Path) -> str:
    """Return the medians of some starts, each in a process of its own."""
    figures = []
    for _ in range(STARTS):
        began = time.perf_counter()
        command = [sys.executable, "-m", "bench.cron", "--start", str(file)]
        said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        figures.append((*map(float, said.split()[:2]), time.perf_counter() - began))
    opening, looking, whole = (statistics.median(column) for column in zip(*figures, strict=True))
    return f"{opening:.2f} s to open, {looking * 1000:.1f} ms to the first look, process {whole:.2f} s"


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--start", type=Path)
    arguments = parser.parse_args()
    if arguments.start:
        asyncio.run(start(arguments.start))
        return
    for jobs in (0, arguments.jobs):
        with tempfile.TemporaryDirectory(prefix="crayfish-bench-") as name:
            file = home(Path(name))
            url = f"sqlite+aiosqlite:///{name}/crayfish.db"
            asyncio.run(fill(url, jobs))
            if jobs:
                asyncio.run(looks(url))
            print(f"start with {jobs}: {starts(file)}")


if __name__ == "__main__":
    main()
