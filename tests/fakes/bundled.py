"""Runs a script of a bundled skill as the gateway would, and the sites that it asks."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

SKILLS = Path(__file__).parents[2] / "skills"


@dataclass(frozen=True)
class Done:
    """What a script left: exit code, stdout, stderr."""

    code: int
    out: str
    err: str


def run(
    script: str,
    *arguments: object,
    home: Path,
    stdin: bytes = b"",
    env: Mapping[str, str] | None = None,
) -> Done:
    """Run `skill/script.py` in its own folder, with PATH, HOME and LANG, and what `env` adds."""
    skill, _, name = script.partition("/")
    path = SKILLS / skill / "scripts" / name
    found = subprocess.run(
        [path, *map(str, arguments)],
        cwd=path.parent,
        env={
            "PATH": f"{Path(sys.executable).parent}:{os.defpath}",
            "HOME": str(home),
            "LANG": "C.UTF-8",
            **(env or {}),
        },
        input=stdin,
        capture_output=True,
        timeout=55,
        check=False,
    )
    return Done(found.returncode, found.stdout.decode(), found.stderr.decode())


@dataclass
class Site:
    """Answers GET with what `pages` holds by path: a status, headers and a body. `asked` are the targets."""

    pages: dict[str, tuple[int, Mapping[str, str], bytes]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    port: int = 0

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        return f"http://{self.host}"

    def page(self, path: str, body: bytes | str, kind: str = "text/html; charset=utf-8") -> None:
        data = body.encode() if isinstance(body, str) else body
        self.pages[path] = (200, {"Content-Type": kind}, data)

    def says(self, part: str) -> Sequence[str]:
        return [one for one in self.asked if part in one]


@contextlib.contextmanager
def site() -> Iterator[Site]:
    """Yield a site on a free port of loopback."""
    found = Site()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found.asked.append(self.path)
            status, headers, body = found.pages.get(urlsplit(self.path).path, (404, {}, b"no such page"))
            self.send_response(status)
            for name, value in {"Content-Length": str(len(body)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            with contextlib.suppress(ConnectionError):  # a client that has enough goes away
                self.wfile.write(body)

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        found.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield found
        finally:
            server.shutdown()
            thread.join()
