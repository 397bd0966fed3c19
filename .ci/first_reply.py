"""Starts the installed gateway on nothing but its defaults, talks to it once, and stops it."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

PATIENCE = 60.0


def free_port() -> int:
    """Return a port that nobody listens on: the default one may be taken on this machine."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def ask(
    port: int, path: str, body: dict[str, object] | None = None, timeout: float = 2.0
) -> dict[str, object]:
    """Return the JSON body of an answer; with a body the request is a POST."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    try:
        sent = json.dumps(body) if body else None
        connection.request("POST" if body else "GET", path, sent, {"Content-Type": "application/json"})
        answer: dict[str, object] = json.load(connection.getresponse())
        return answer
    finally:
        connection.close()


def wait_until_ready(port: int, gateway: subprocess.Popen[bytes]) -> None:
    """Return when the gateway takes messages; leave the program when it ends before that."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        if gateway.poll() is not None:
            sys.exit(f"the gateway ended with exit code {gateway.returncode}")
        try:
            if ask(port, "/readyz").get("ok") is True:
                return
        except OSError:
            pass  # nobody listens yet
        time.sleep(0.1)
    sys.exit(f"not ready within {PATIENCE:.0f} s")


def main() -> None:
    """Leave with an exit code other than 0 if anything is not as it should be."""
    port = free_port()
    Path("config.toml").write_text(f"[http]\nport = {port}\n", encoding="utf-8")
    gateway = subprocess.Popen(["crayfish", "run"], stdin=subprocess.DEVNULL, env=os.environ)  # noqa: S607 - found by PATH
    try:
        wait_until_ready(port, gateway)
        body = ask(port, "/api/chat", {"message": "Good morning", "wait": True}, PATIENCE)
        reply = str(body.get("reply", body))
        print(f"reply: {reply}")
        if "demo" not in reply or "Good morning" not in reply:
            sys.exit("the demo model should have answered with what it was told")
        gateway.send_signal(signal.SIGTERM)
        if code := gateway.wait(PATIENCE):
            sys.exit(f"after SIGTERM the exit code is {code}, not 0")
    finally:
        gateway.kill()
        gateway.wait()


if __name__ == "__main__":
    main()
