"""A gateway against a server that somebody else wrote and that runs on this machine."""

from __future__ import annotations

import asyncio
import os
import shlex
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
from aiohttp import ClientError, ClientSession

from gateway import config
from gateway.app.opening import open_gateway
from gateway.clock import SystemClock
from gateway.types import Json
from tests.fakes.model_api import FakeModelApi, serving
from tests.story.house import echo

PATIENCE = 30.0


def program(name: str, project: str) -> list[str]:
    """Return the command that starts a server; it stands in an environment variable."""
    command = shlex.split(os.environ.get(name, ""))
    if not command:
        pytest.skip(f"{name} does not name the command that starts github.com/{project}")
    return command


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Judge:
    """A running server and its control interface."""

    def __init__(self, url: str, client: ClientSession) -> None:
        self.url, self._client = url, client

    async def get(self, path: str) -> Json:
        async with self._client.get(self.url + path) as answer:
            return await answer.json()

    async def post(self, path: str, body: Json, token: str = "") -> Json:
        """Post JSON; return what is answered, None if that is nothing."""
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        async with self._client.post(self.url + path, json=body, headers=headers) as answer:
            assert answer.status < 300, await answer.text()
            return await answer.json() if answer.content_type == "application/json" else None

    async def until(self, condition: Callable[[], Awaitable[bool]]) -> None:
        async with asyncio.timeout(PATIENCE):
            while not await condition():  # noqa: ASYNC110 - another process has no events
                await asyncio.sleep(0.05)


@asynccontextmanager
async def judge(command: list[str], port: int, folder: Path, probe: str) -> AsyncIterator[Judge]:
    """Start a server; it is there when `probe` answers."""
    with (folder / "judge.log").open("wb") as output:
        process = await asyncio.create_subprocess_exec(*command, cwd=folder, stdout=output, stderr=output)
    try:
        async with ClientSession() as client:
            here = Judge(f"http://127.0.0.1:{port}", client)

            async def answers() -> bool:
                with suppress(ClientError):
                    await here.get(probe)
                    return True
                return False

            await here.until(answers)
            yield here
    finally:
        process.terminate()
        await process.wait()


@asynccontextmanager
async def gateway(home: Path, channel: str) -> AsyncIterator[FakeModelApi]:
    """Run a gateway with a model that repeats what it was told."""
    async with serving() as model:
        model.otherwise = echo
        file = home / "config.toml"
        file.write_text(
            f'[model]\ndialect = "openai"\nbase_url = "{model.url}"\nname = "m"\n[http]\nenabled = false\n'
            f"[limits.per_sender_per_minute]\nguests = 0\n{channel}"
        )
        running = await open_gateway(
            config.load(file, {"CRAYFISH_HOME": str(home)}, home), SystemClock(), env={}
        )
        stop = asyncio.Event()
        task = asyncio.create_task(running.run(stop))
        try:
            yield model
            assert not task.done(), task
        finally:
            stop.set()
            await task
            await running.close()
