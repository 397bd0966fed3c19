"""Heartbeats from the command line: beside a stopped gateway, and through a running one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from gateway import config
from gateway.app import offline, opening
from gateway.cli import main
from gateway.clock import SystemClock


def write_config(home: Path, port: int = 0) -> Path:
    file = home / "config.toml"
    file.write_text(
        f'[model]\ndialect = "demo"\n[http]\nport = {port}\n[heartbeat]\nevery = "30m"\n'
        '[agent]\ntimezone = "Europe/Berlin"\n'
    )
    return file


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CRAYFISH_HOME", str(tmp_path))
    return tmp_path


def test_beside_a_stopped_gateway_it_works_on_the_database(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = str(write_config(home))
    assert main(["heartbeat", "pause", "--config", file]) == 0
    assert main(["heartbeat", "status", "--config", file]) == 0
    assert "heartbeat: every 30 min; paused" in capsys.readouterr().out
    assert main(["heartbeat", "resume", "--config", file]) == 0
    assert main(["heartbeat", "now", "--dry-run", "--config", file]) == 0
    assert "would be skipped: there is nobody to tell" in capsys.readouterr().out
    assert main(["heartbeat", "now", "--config", file]) == 2
    assert "no gateway is running" in capsys.readouterr().err


class TestThroughARunningGateway:
    @pytest.fixture
    async def running(self, home: Path) -> AsyncIterator[config.Loaded]:
        """The configuration of a gateway that is running."""
        loaded = config.load(write_config(home), {"CRAYFISH_HOME": str(home)}, home)
        gateway = await opening.open_gateway(loaded, SystemClock(), env={})
        stop = asyncio.Event()
        serving = asyncio.create_task(gateway.run(stop))
        port = int(str(gateway.channels["web"].status()["url"]).rpartition(":")[2])
        async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session:
            for _ in range(1000):
                async with session.get("/readyz") as ready:
                    if ready.status == 200:
                        break
                await asyncio.sleep(0.01)
        yield config.load(write_config(home, port), {"CRAYFISH_HOME": str(home)}, home)
        stop.set()
        await serving
        await gateway.close()

    async def test_the_command_line_asks_it_over_http_and_the_page_is_the_owners(
        self, running: config.Loaded
    ) -> None:
        http = running.settings.http
        async with aiohttp.ClientSession(f"http://127.0.0.1:{http.port}") as session:
            body = {"session": "main", "message": "hello", "wait": True}
            async with session.post("/api/chat", json=body) as answer:
                assert answer.status == 200
        told = await offline.control(running, lambda control: control.heartbeat("now", dry_run=False))
        assert told["text"].startswith("A heartbeat begins")
        found = await offline.control(running, lambda control: control.heartbeat("status", dry_run=False))
        assert found["route"] == "web:main"
        assert found["every"] == 1800

    @pytest.mark.parametrize(
        "body", [{}, {"action": 5}, {"action": "dance"}, {"action": "now", "dry_run": "yes"}, []]
    )
    async def test_a_strange_request_is_refused(self, running: config.Loaded, body: object) -> None:
        http = running.settings.http
        async with (
            aiohttp.ClientSession(f"http://127.0.0.1:{http.port}") as session,
            session.post("/api/heartbeat", json=body) as answer,
        ):
            assert answer.status == 400
