from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

import pytest

from gateway.clock import SystemClock
from gateway.timer import Timer
from tests.fakes.clock import FakeClock


@asynccontextmanager
async def serving(timer: Timer) -> AsyncIterator[None]:
    task = asyncio.create_task(timer.serve())
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


@dataclass
class Runs:
    """What has run, and a signal for each."""

    names: list[str] = field(default_factory=list)
    more: asyncio.Event = field(default_factory=asyncio.Event)

    async def until(self, count: int) -> None:
        async with asyncio.timeout(10):
            while len(self.names) < count:
                self.more.clear()
                await self.more.wait()

    async def note(self, name: str) -> None:
        self.names.append(name)
        self.more.set()


async def test_what_is_overdue_runs_at_once_however_late() -> None:
    clock, runs = FakeClock(), Runs()
    timer = Timer(clock)
    timer.set("a", clock.time - 1_000_000, lambda: runs.note("a"))
    async with serving(timer):
        await runs.until(1)
    assert runs.names == ["a"]
    assert timer.at("a") is None


async def test_it_rings_when_the_time_has_come_and_not_before() -> None:
    clock, runs = SystemClock(), Runs()
    timer = Timer(clock)
    due = clock.wall() + 0.05
    ran: list[float] = []

    async def run() -> None:
        ran.append(clock.wall())
        await runs.note("a")

    async with serving(timer):
        timer.set("a", due, run)
        await runs.until(1)
    assert ran[0] >= due - 0.002


async def test_a_name_has_one_alarm_and_the_last_one_holds() -> None:
    clock, runs = SystemClock(), Runs()
    timer = Timer(clock)
    async with serving(timer):
        timer.set("a", clock.wall() + 3600, lambda: runs.note("late"))
        timer.set("a", clock.wall() + 0.02, lambda: runs.note("soon"))
        timer.set("b", clock.wall() + 0.01, lambda: runs.note("never"))
        timer.drop("b")
        timer.drop("unknown")
        await runs.until(1)
    assert runs.names == ["soon"]


async def test_an_alarm_that_the_machine_slept_through_runs_at_the_next_look() -> None:
    clock, runs = FakeClock(SystemClock().wall()), Runs()
    timer = Timer(clock, tick=0.01)
    async with serving(timer):
        await asyncio.sleep(0.02)
        timer.set("a", clock.time + 3600, lambda: runs.note("a"))
        await asyncio.sleep(0.05)
        assert runs.names == []
        clock.time += 8 * 3600  # no timer of the event loop knows of it
        await runs.until(1)


async def test_a_clock_that_is_set_back_delays_and_does_not_repeat() -> None:
    clock, runs = FakeClock(), Runs()
    timer = Timer(clock)
    async with serving(timer):
        timer.set("a", clock.time, lambda: runs.note("a"))
        await runs.until(1)
        timer.set("a", clock.time + 60, lambda: runs.note("again"))
        clock.time -= 3600
        timer.set("b", clock.time, lambda: runs.note("b"))
        await runs.until(2)
        assert runs.names == ["a", "b"]
        assert timer.at("a") == clock.time + 3660


@dataclass
class WrongClock(FakeClock):
    """A clock whose wall time somebody sets."""

    ahead: float = 0.0

    def wall(self) -> float:
        return self.now() + self.ahead


async def test_what_was_planned_by_a_wrong_time_is_planned_again_when_the_clock_is_set_right() -> None:
    clock, runs = WrongClock(ahead=86400), Runs()
    timer = Timer(clock, tick=0.01)
    async with serving(timer):
        timer.set("planned", clock.wall() + 60, lambda: runs.note("planned"), replan=True)
        timer.set("fixed", clock.wall() + 60, lambda: runs.note("fixed"))
        await asyncio.sleep(0.03)
        assert runs.names == []
        clock.ahead = 0
        await runs.until(1)
        assert runs.names == ["planned"]
        assert timer.at("fixed") == clock.wall() + 86460


async def test_a_run_that_fails_is_logged_and_the_others_go_on(caplog: pytest.LogCaptureFixture) -> None:
    clock, runs = FakeClock(), Runs()
    timer = Timer(clock)

    async def fail() -> None:
        raise ZeroDivisionError

    timer.set("bad", clock.time, fail)
    timer.set("good", clock.time, lambda: runs.note("good"))
    async with serving(timer):
        await runs.until(1)
        timer.set("bad", clock.time, lambda: runs.note("bad"))
        await runs.until(2)
    assert [record.message for record in caplog.records] == ["timer.failed"]


async def test_runs_of_one_name_never_overlap_and_none_is_lost() -> None:
    clock, runs = FakeClock(), Runs()
    timer, go = Timer(clock), asyncio.Event()

    async def slow() -> None:
        await runs.note("begun")
        await go.wait()
        await runs.note("ended")

    timer.set("a", clock.time, slow)
    async with serving(timer):
        await runs.until(1)
        timer.set("a", clock.time, lambda: runs.note("next"))
        await asyncio.sleep(0.05)
        assert runs.names == ["begun"]
        go.set()
        await runs.until(3)
    assert runs.names == ["begun", "ended", "next"]


async def test_a_run_may_set_its_own_name_again() -> None:
    clock, runs = FakeClock(), Runs()
    timer = Timer(clock)

    async def beat() -> None:
        await runs.note("beat")
        if len(runs.names) < 5:
            timer.set("a", clock.time, beat)

    timer.set("a", clock.time, beat)
    async with serving(timer):
        await runs.until(5)
    assert runs.names == ["beat"] * 5


def test_nothing_is_imported_as_long_as_nothing_is_scheduled() -> None:
    program = (
        "import asyncio, sys\n"
        "from gateway.clock import SystemClock\n"
        "from gateway.timer import Timer\n"
        "async def main():\n"
        "    task = asyncio.create_task(Timer(SystemClock()).serve())\n"
        "    await asyncio.sleep(0)\n"
        "    task.cancel()\n"
        "asyncio.run(main())\n"
        "print('apscheduler' in sys.modules)\n"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout == "False\n"
