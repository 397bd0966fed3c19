"""Schedules from the command line: beside a stopped gateway, and through a running one."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import aiohttp
import pytest

from gateway import config, cron
from gateway.app import offline, opening
from gateway.cli import main
from gateway.clock import SystemClock
from gateway.store.engine import Database, open_database
from gateway.store.jobs import Rules, Wanted
from gateway.store.migrate import create
from gateway.store.schedules import Schedules
from gateway.timetable import USAGE, Timetable
from gateway.types import Address, Chat, Sender
from tests.fakes.clock import FakeClock

BERLIN = ZoneInfo("Europe/Berlin")
RULES = Rules(zone=BERLIN)


def wanted(name: str, now: float, chat: str = "1") -> Wanted:
    return Wanted(
        address=Address("fake", chat),
        chat=Chat.DIRECT,
        sender=Sender("7"),
        name=name,
        trigger=cron.read("0 9 * * 1-5", now, BERLIN),
        zone=BERLIN,
        prompt="Say good morning.",
    )


@dataclass(slots=True)
class Desk:
    """A timetable and what it called."""

    db: Database
    clock: FakeClock
    rung: list[str] = field(default_factory=list)

    @property
    def timetable(self) -> Timetable:
        return Timetable(db=self.db, clock=self.clock, rules=RULES, changed=lambda: self.rung.append("rung"))

    @property
    def schedules(self) -> Schedules:
        return Schedules(db=self.db, clock=self.clock, rules=RULES)

    async def told(self, action: str, name: str = "") -> str:
        answer = await self.timetable.cron(action, name)
        return str(answer.get("text") or f"problem: {answer['problem']}")


@pytest.fixture
def desk(db: Database, clock: FakeClock) -> Desk:
    clock.time = datetime(2026, 6, 1, 8, tzinfo=BERLIN).timestamp()
    return Desk(db, clock)


class TestTimetable:
    async def test_without_schedules_it_says_so(self, desk: Desk) -> None:
        assert await desk.told("list") == "There are no schedules."

    async def test_the_list_shows_when_each_comes_next_and_in_which_chat(self, desk: Desk) -> None:
        job, _ = await desk.schedules.save(wanted("morning", desk.clock.time))
        assert await desk.told("list") == (
            f'“morning” ({job.id}): cron "0 9 * * 1-5" (Europe/Berlin), next Mon 2026-06-01 09:00 +02:00 [fake:1]'
        )

    async def test_one_schedule_is_shown_with_everything_about_it(self, desk: Desk) -> None:
        job, _ = await desk.schedules.save(wanted("morning", desk.clock.time))
        await desk.schedules.run("morning")
        page = await desk.told("show", job.id)
        for fact in (
            "chat: fake:1",
            "session: isolated",
            "delivery: announce",
            "manual-",
            "Say good morning.",
        ):
            assert fact in page

    async def test_each_act_is_done_told_and_rings(self, desk: Desk) -> None:
        await desk.schedules.save(wanted("morning", desk.clock.time))
        assert await desk.told("pause", "morning") == "Paused: morning"
        assert "paused" in await desk.told("list")
        assert (await desk.told("resume", "morning")).startswith("Goes on: “morning”")
        assert await desk.told("run", "morning") == "Started: morning"
        assert (await desk.told("history", "morning")).startswith("manual-")
        assert await desk.told("rm", "morning") == "Removed: morning"
        assert len(desk.rung) == 4

    async def test_a_slot_that_was_missed_is_in_the_history_also_when_the_schedule_is_gone(
        self, desk: Desk
    ) -> None:
        job, _ = await desk.schedules.save(wanted("morning", desk.clock.time))
        desk.clock.time += 3 * 3600
        await desk.schedules.fire()
        await desk.schedules.remove("morning")
        line = await desk.told("history", job.id)
        assert line == "2026-06-01T09:00  missed, 7200 s late, the gateway was not running"

    async def test_a_name_that_two_chats_have_needs_the_id(self, desk: Desk) -> None:
        for chat in ("1", "2"):
            await desk.schedules.save(wanted("morning", desk.clock.time, chat))
        assert "use the id" in await desk.told("pause", "morning")

    @pytest.mark.parametrize(("action", "name"), [("dance", "x"), ("pause", ""), ("show", "")])
    async def test_what_it_does_not_know_is_answered_with_what_it_does(
        self, desk: Desk, action: str, name: str
    ) -> None:
        assert await desk.told(action, name) == f"problem: {USAGE}"
        assert desk.rung == []

    async def test_what_is_not_there_is_told_with_what_is(self, desk: Desk) -> None:
        await desk.schedules.save(wanted("morning", desk.clock.time))
        assert (
            await desk.told("pause", "evening")
            == "problem: there is no schedule 'evening'; there are: morning"
        )


def write_config(home: Path, port: int = 0) -> Path:
    file = home / "config.toml"
    file.write_text(
        f'[model]\ndialect = "demo"\n[http]\nport = {port}\n[agent]\ntimezone = "Europe/Berlin"\n'
    )
    return file


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home whose database has one schedule."""
    monkeypatch.setenv("CRAYFISH_HOME", str(tmp_path))

    async def prepare() -> None:
        db = await open_database(f"sqlite+aiosqlite:///{tmp_path / 'crayfish.db'}", SystemClock())
        await db.write(create)
        clock = SystemClock()
        await Schedules(db=db, clock=clock, rules=RULES).save(wanted("morning", clock.wall()))
        await db.close()

    asyncio.run(prepare())
    return tmp_path


class TestCommandLine:
    def test_beside_a_stopped_gateway_it_works_on_the_database(
        self, home: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        file = str(write_config(home))
        assert main(["cron", "list", "--config", file]) == 0
        assert "“morning”" in capsys.readouterr().out
        assert main(["cron", "pause", "morning", "--config", file]) == 0
        assert main(["cron", "show", "morning", "--config", file]) == 0
        assert "paused" in capsys.readouterr().out
        assert main(["cron", "rm", "morning", "--config", file]) == 0
        assert main(["cron", "rm", "morning", "--config", file]) == 2
        assert "there is no schedule 'morning'" in capsys.readouterr().err


class TestThroughARunningGateway:
    @pytest.fixture
    async def running(self, home: Path) -> AsyncIterator[config.Loaded]:
        """The configuration of a gateway that is running."""
        file = write_config(home)
        loaded = config.load(file, {"CRAYFISH_HOME": str(home)}, home)
        gateway = await opening.open_gateway(loaded, SystemClock(), env={})
        stop = asyncio.Event()
        serving = asyncio.create_task(gateway.run(stop))
        port = int(str(gateway.channels["web"].status()["url"]).rpartition(":")[2])
        yield config.load(write_config(home, port), {"CRAYFISH_HOME": str(home)}, home)
        stop.set()
        await serving
        await gateway.close()

    async def test_the_command_line_asks_it_over_http(self, running: config.Loaded) -> None:
        listed = await offline.control(running, lambda control: control.cron("list", ""))
        assert "“morning”" in listed["text"]
        assert await offline.control(running, lambda control: control.cron("rm", "morning")) == {
            "text": "Removed: morning"
        }
        problem = await offline.control(running, lambda control: control.cron("rm", "morning"))
        assert "there is no schedule" in problem["problem"]

    @pytest.mark.parametrize(
        "body", [{}, {"action": 5}, {"action": "list", "name": 5}, {"action": "x" * 1000}, []]
    )
    async def test_a_strange_request_is_refused(self, running: config.Loaded, body: object) -> None:
        http = running.settings.http
        headers = {"Content-Type": "application/json"}
        async with aiohttp.ClientSession() as client:
            url = f"http://{http.host}:{http.port}/api/cron"
            async with client.post(url, data=json.dumps(body), headers=headers) as response:
                assert response.status == 400
