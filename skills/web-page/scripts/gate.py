"""A proxy on this machine through which Chromium reaches the public internet and nothing else."""

from __future__ import annotations

import contextlib
import re
import select
import socket
import threading
from collections.abc import Iterator
from urllib.parse import urlsplit

from fetch import Trouble, connect

_HEAD = 65_536
_IDLE = 30.0
_HOP = re.compile(rb"(?im)^(?:proxy-connection|connection|proxy-authorization):.*\r\n")


class Gate:
    """Listens on a free `port` of loopback; `problems` says why a host was not reached."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.problems: dict[str, str] = {}

    def serve(self) -> None:
        """Take connections until the listener is closed."""
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._handle, args=(client,), daemon=True).start()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes `accept`
        self._listener.close()

    def _handle(self, client: socket.socket) -> None:
        with client, contextlib.suppress(OSError, ValueError):
            client.settimeout(_IDLE)
            head = _head(client)
            line, _, rest = head.partition(b"\r\n")
            method, target, version = line.decode("latin-1").split(" ")
            tunnel = method == "CONNECT"
            parts = urlsplit(f"//{target}" if tunnel else target)
            host = parts.hostname or ""
            try:
                server = connect(host, parts.port or 80, _IDLE)
            except Trouble as trouble:
                self.problems[host] = str(trouble)
                return  # the browser sees a connection that ends
            with server:
                if tunnel:
                    client.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
                else:
                    path = f"{parts.path or '/'}{f'?{parts.query}' if parts.query else ''}"
                    start = f"{method} {path} {version}\r\nConnection: close\r\n".encode("latin-1")
                    server.sendall(start + _HOP.sub(b"", rest))
                _pump(client, server)


def _head(client: socket.socket) -> bytes:
    """Return what came until the end of the request's head, and what came with it."""
    data = b""
    while b"\r\n\r\n" not in data:
        piece = client.recv(8_192)
        if not piece or len(data) > _HEAD:
            raise ValueError("no request")
        data += piece
    return data


def _pump(one: socket.socket, other: socket.socket) -> None:
    """Carry bytes both ways until a side ends, or nothing comes for a while."""
    across = {one: other, other: one}
    while ready := select.select([one, other], [], [], _IDLE)[0]:
        for side in ready:
            data = side.recv(65_536)
            if not data:
                return
            across[side].sendall(data)


@contextlib.contextmanager
def opened() -> Iterator[Gate]:
    """Yield a gate that serves."""
    gate = Gate()
    threading.Thread(target=gate.serve, daemon=True).start()
    try:
        yield gate
    finally:
        gate.close()
