"""Drives a headless Chromium over a pipe (DevTools protocol), with the standard library alone."""

from __future__ import annotations

import base64
import contextlib
import fcntl
import itertools
import json
import os
import resource
import select
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from typing import Any

import fetch
import gate
from fetch import Trouble

MAX_HEIGHT = 15_000
ADDRESS_SPACE = 100_000_000_000
"""Bytes without which it does not start."""

SECONDS = 40.0
SETTLE = 0.7
"""Seconds that a page has after it was loaded, for what its scripts still draw."""

GRACE = 5.0
"""Seconds that the browser has to end by itself."""

_NO_EXCEPTION = "<-loopback>"
"""Of the hosts that are asked without the proxy: not even this machine is."""

_NAMES = (
    "chromium",
    "chromium-browser",
    "google-chrome-stable",
    "google-chrome",
    "chrome",
    "microsoft-edge",
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
)
_OPTIONS = (
    "--headless=new",
    "--remote-debugging-pipe",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-client-side-phishing-detection",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-domain-reliability",
    "--disable-extensions",
    "--disable-sync",
    "--force-webrtc-ip-handling-policy=disable_non_proxied_udp",
    "--hide-scrollbars",
    "--mute-audio",
    "--no-first-run",
    "--no-pings",
    # What the browser asks by itself leads nowhere; the page has a way of its own.
    "--proxy-server=http://127.0.0.1:1",
    f"--proxy-bypass-list={_NO_EXCEPTION}",
)


class Page:
    """A loaded page."""

    def __init__(self, to: int, back: int, end: float) -> None:
        self._to = to
        self._back = back
        self._end = end
        self._numbers = itertools.count(1)
        self._session = ""
        self._buffer = b""
        self._events: set[str] = set()

    def run(self, script: str) -> object:
        """Return the value of an expression in the page."""
        return self._command("Runtime.evaluate", expression=script, returnByValue=True)["result"].get("value")

    def picture(self, width: int, height: int | None) -> bytes:
        """Return a PNG of the page: its first `height` pixels, or all of it (15,000 at most)."""
        if height is None:
            size = self._command("Page.getLayoutMetrics")["cssContentSize"]["height"]
            height = min(max(int(size), 1), MAX_HEIGHT)
        clip = {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}
        found = self._command("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip)
        return base64.b64decode(found["data"])

    def open(self, url: str, proxy: str, width: int, height: int) -> None:
        """Load an address by way of a proxy, and wait until it has settled. Raises: Trouble."""
        context = self._command(
            "Target.createBrowserContext", proxyServer=proxy, proxyBypassList=_NO_EXCEPTION
        )["browserContextId"]
        target = self._command("Target.createTarget", url="about:blank", browserContextId=context)["targetId"]
        self._session = self._command("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self._command("Page.enable")
        self._command(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        found = self._command("Page.navigate", url=url)
        if problem := found.get("errorText"):
            raise Trouble(f"{url} can't be loaded ({problem})")
        while "Page.loadEventFired" not in self._events:
            self._take()
        pause = time.monotonic() + SETTLE
        while (left := pause - time.monotonic()) > 0:
            if select.select([self._back], [], [], left)[0]:
                self._take()

    def _command(self, method: str, **params: object) -> dict[str, Any]:
        number = next(self._numbers)
        self._send(number, method, params)
        while True:
            message = self._take()
            if message.get("id") == number:
                if "error" in message:
                    raise Trouble(f"the browser refused {method}: {message['error'].get('message')}")
                return dict(message["result"])

    def _send(self, number: int, method: str, params: dict[str, object]) -> None:
        session = {"sessionId": self._session} if self._session else {}
        data = json.dumps({"id": number, "method": method, "params": params, **session}).encode() + b"\0"
        try:
            while data:
                data = data[os.write(self._to, data) :]
        except BrokenPipeError as error:
            raise Trouble("the browser ended") from error

    def _take(self) -> dict[str, Any]:
        """Return the next message of the browser, and answer what would stop the page."""
        while b"\0" not in self._buffer:
            left = self._end - time.monotonic()
            if left <= 0 or not select.select([self._back], [], [], left)[0]:
                raise Trouble(f"the page was not ready after {SECONDS:.0f} s")
            data = os.read(self._back, 1_048_576)
            if not data:
                raise Trouble("the browser ended; it may not be able to start here")
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(line)
        if method := message.get("method"):
            self._events.add(method)
        if method == "Page.javascriptDialogOpening":
            self._send(next(self._numbers), "Page.handleJavaScriptDialog", {"accept": False})
        return message


def find() -> str:
    """Return the path of the browser. Raises: Trouble."""
    names = (os.environ["CHROMIUM"],) if os.environ.get("CHROMIUM") else _NAMES
    for name in names:
        if path := shutil.which(name):
            return path
    raise Trouble(
        "no Chromium was found: install one (apt install chromium), or name it in CHROMIUM. "
        "Without it, read_page.py works for pages that don't need scripts"
    )


def _check_memory() -> None:
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit != resource.RLIM_INFINITY and limit < ADDRESS_SPACE:
        raise Trouble(
            f"Chromium reserves {ADDRESS_SPACE // 10**9} GB of addresses, of which it uses little, and the limit here "
            f"is {limit / 10**9:.1f} GB: the owner can raise it ([exec] memory_mb in the configuration of Crayfish)"
        )


@contextlib.contextmanager
def page(url: str, width: int = 1280, height: int = 800) -> Iterator[Page]:
    """Yield the page at an address of the public internet; the browser ends with the block. Raises: Trouble."""
    browser = find()
    _check_memory()
    host, _ = fetch.place(url)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile, gate.opened() as way:
        options = [*_OPTIONS, f"--user-data-dir={profile}"]
        if hasattr(os, "geteuid") and os.geteuid() == 0:
            options.append("--no-sandbox")  # Chromium does not start as root otherwise
        with _started([browser, *options], profile) as (to, back):
            loaded = Page(to, back, time.monotonic() + SECONDS)
            try:
                loaded.open(url, f"http://127.0.0.1:{way.port}", width, height)
            except Trouble as trouble:
                others = "".join(f"; {one}" for one in way.problems.values())
                raise Trouble(way.problems.get(host, f"{trouble}{others}")) from trouble
            yield loaded


@contextlib.contextmanager
def _started(command: list[str], home: str) -> Iterator[tuple[int, int]]:
    """Yield where commands are written and answers are read: file descriptors 3 and 4 of the browser."""
    theirs_in, to = os.pipe()
    back, theirs_out = os.pipe()
    # Copies with high numbers, so that none of them is in the way of 3 and 4.
    copies = [fcntl.fcntl(one, fcntl.F_DUPFD_CLOEXEC, 64) for one in (theirs_in, theirs_out)]
    for one in (theirs_in, theirs_out):
        os.close(one)
    actions = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_RDWR, 0) for number in (0, 1, 2)]
    dups = [(os.POSIX_SPAWN_DUP2, copy, number) for copy, number in zip(copies, (3, 4), strict=True)]
    try:
        process = os.posix_spawn(
            command[0], command, {**os.environ, "HOME": home}, file_actions=[*actions, *dups]
        )
    finally:
        for one in copies:
            os.close(one)
    try:
        yield to, back
    finally:
        # The browser ends, with its children, when its pipe does: even if this script is killed.
        os.close(to)
        os.close(back)
        _wait(process)


def _wait(process: int) -> None:
    end = time.monotonic() + GRACE
    while os.waitpid(process, os.WNOHANG) == (0, 0):
        if time.monotonic() > end:
            os.kill(process, signal.SIGKILL)
            os.waitpid(process, 0)
            return
        time.sleep(0.02)
