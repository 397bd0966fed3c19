"""A headless Chromium, driven over its own wire protocol (DevTools)."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aiohttp import ClientSession, ClientWebSocketResponse

CHROMIUM = Path("/usr/bin/chromium")


@dataclass
class Browser:
    """One tab."""

    socket: ClientWebSocketResponse
    number: int = 0

    async def command(self, method: str, **params: Any) -> dict[str, Any]:
        self.number += 1
        await self.socket.send_json({"id": self.number, "method": method, "params": params})
        while True:
            answer = await self.socket.receive_json()
            if answer.get("id") == self.number:
                assert "error" not in answer, answer
                return dict(answer["result"])

    async def open(self, url: str) -> None:
        await self.command("Page.navigate", url=url)
        await self.until("document.readyState === 'complete'")

    async def run(self, script: str) -> Any:
        """Return the value of an expression in the page."""
        result = await self.command(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    async def until(self, script: str) -> None:
        while not await self.run(script):  # noqa: ASYNC110 - the page has no event for us
            await asyncio.sleep(0.02)

    async def type(self, text: str, *, enter: bool = True) -> None:
        """Write into what has the focus."""
        await self.command("Input.insertText", text=text)
        if enter:
            for kind in ("rawKeyDown", "char", "keyUp"):
                await self.command(
                    "Input.dispatchKeyEvent",
                    type=kind,
                    key="Enter",
                    code="Enter",
                    text="\r",
                    windowsVirtualKeyCode=13,
                )


@asynccontextmanager
async def browser() -> AsyncIterator[Browser]:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        process = await asyncio.create_subprocess_exec(
            str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
            "--disable-background-networking", "--disable-component-update", "--remote-debugging-port=0",
            f"--user-data-dir={profile}", "about:blank",
            stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        assert process.stderr
        try:
            port = ""
            async for line in process.stderr:
                if b"DevTools listening on" in line:
                    port = line.decode().split("127.0.0.1:")[1].split("/")[0]
                    break
            async with ClientSession() as client:
                async with client.get(f"http://127.0.0.1:{port}/json/list") as response:
                    tab = next(one for one in json.loads(await response.read()) if one["type"] == "page")
                async with client.ws_connect(tab["webSocketDebuggerUrl"], max_msg_size=0) as socket:
                    yield Browser(socket)
        finally:
            process.terminate()
            await process.communicate()
