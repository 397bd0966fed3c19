"""Gets addresses of the public internet: nothing private, few redirects, limited bytes and seconds.

The skills web-page and news hold the same copy of this file, as each must work alone.
"""

from __future__ import annotations

import contextlib
import http.client
import ipaddress
import os
import re
import socket
import ssl
import time
import zlib
from dataclasses import dataclass
from urllib.parse import quote, urljoin, urlsplit

MAX_BYTES = 3_000_000
MAX_REDIRECTS = 5
PORTS = frozenset({80, 443, 8080, 8443})

ALLOWED = "FETCH_ALLOW_HOSTS"
"""The environment variable with the private `host:port` pairs that may be asked, separated by commas."""

_INDIRECT = tuple(
    map(ipaddress.ip_network, ("64:ff9b::/96", "64:ff9b:1::/48", "2001::/32", "2002::/16", "::ffff:0:0/96"))
)
"""IPv6 networks whose addresses stand for IPv4 ones."""

_HEADERS = {
    "User-Agent": "Mozilla/5.0 (compatible; Crayfish)",
    "Accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8",
    "Accept-Encoding": "gzip",
    "Connection": "close",
}


class Trouble(Exception):
    """Why nothing came; the text is for the person."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What an address answered. `cut`: there was more than the limit."""

    url: str
    media_type: str
    charset: str
    body: bytes
    cut: bool

    def text(self) -> str:
        """Return the body as text, in the encoding that it or its header names."""
        named = re.search(rb"""<meta[^>]+charset=["']?([\w-]+)""", self.body[:4096], re.IGNORECASE)
        for name in (self.charset, named[1].decode() if named else "", "utf-8"):
            with contextlib.suppress(LookupError, ValueError):
                return self.body.decode(name or "?", "replace")
        return self.body.decode("utf-8", "replace")


def get(url: str, *, most: int = MAX_BYTES, seconds: float = 20.0) -> Answer:
    """Return what the address answers, redirects followed. Raises: Trouble."""
    end = time.monotonic() + seconds
    for _ in range(MAX_REDIRECTS + 1):
        found = _once(url, most, end)
        if isinstance(found, Answer):
            return found
        url = urljoin(url, found)
    raise Trouble(f"{url} redirects more than {MAX_REDIRECTS} times")


def place(url: str) -> tuple[str, int]:
    """Return the host and port of an address. Raises: Trouble if it is none of http or https."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
    except ValueError as error:
        raise Trouble(f"{url!r} is no web address: {error}") from error
    if parts.scheme not in {"http", "https"} or not host:
        raise Trouble(f"{url!r} is no web address: it must begin with http:// or https://")
    if parts.username is not None:
        raise Trouble("an address with a user name or password in it is not asked")
    return host, port


def connect(host: str, port: int, seconds: float) -> socket.socket:
    """Return a connection to a host of the public internet; the address checked is the address used.

    Raises: Trouble.
    """
    allowed = f"{host}:{port}" in os.environ.get(ALLOWED, "").replace(" ", "").split(",")
    if port not in PORTS and not allowed:
        raise Trouble(f"port {port} of {host} is not one of the web ({', '.join(map(str, sorted(PORTS)))})")
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        addresses = list(dict.fromkeys(str(one[4][0]) for one in found))
        if not allowed and not all(map(is_public, addresses)):
            raise Trouble(f"{host} is a private address; only the public internet is asked")
        return _first(addresses, port, seconds)
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise Trouble(
            f"{host} can't be reached ({reason}): this machine is offline, or there is no such host. "
            "What it says is not known."
        ) from error


def is_public(address: str) -> bool:
    """Return whether an IP address is one of the public internet."""
    ip = ipaddress.ip_address(address.partition("%")[0])
    return ip.is_global and not ip.is_multicast and not any(ip in network for network in _INDIRECT)


def _first(addresses: list[str], port: int, seconds: float) -> socket.socket:
    for address in addresses[:-1]:
        with contextlib.suppress(OSError):
            return socket.create_connection((address, port), seconds)
    return socket.create_connection((addresses[-1], port), seconds)


class _Connection(http.client.HTTPConnection):
    """A connection that `connect` above has made, with TLS if `secure`."""

    def __init__(self, host: str, port: int, seconds: float, *, secure: bool) -> None:
        super().__init__(host, port, timeout=seconds)
        self.default_port = 443 if secure else 80
        self._secure = secure
        self._seconds = seconds

    def connect(self) -> None:
        self.sock = connect(self.host, self.port, self._seconds)
        if self._secure:
            self.sock = ssl.create_default_context().wrap_socket(self.sock, server_hostname=self.host)


def _once(url: str, most: int, end: float) -> Answer | str:
    """Return the answer, or where a redirect leads."""
    host, port = place(url)
    left = end - time.monotonic()
    if left <= 0:
        raise Trouble(f"{host} takes too long to answer")
    parts = urlsplit(url)
    path = quote(parts.path or "/", safe="/%:@!$&'()*+,;=~") + (
        f"?{quote(parts.query, safe='/%:@!$&()*+,;=~?')}" if parts.query else ""
    )
    connection = _Connection(host, port, left, secure=parts.scheme == "https")
    try:
        connection.request("GET", path, headers=_HEADERS)
        return _answer(url, connection.getresponse(), most, end)
    except TimeoutError as error:
        raise Trouble(f"{host} takes too long to answer") from error
    except (OSError, http.client.HTTPException, zlib.error) as error:
        raise Trouble(f"{host} answered in a broken way ({error})") from error
    finally:
        connection.close()


def _answer(url: str, response: http.client.HTTPResponse, most: int, end: float) -> Answer | str:
    target = response.headers.get("Location")
    if response.status in {301, 302, 303, 307, 308} and target:
        return target
    if response.status != 200:
        raise Trouble(f"{url} answered {response.status} {response.reason}")
    body, cut = _body(response, most, end)
    return Answer(
        url=url,
        media_type=response.headers.get_content_type(),
        charset=response.headers.get_content_charset() or "",
        body=body,
        cut=cut,
    )


def _body(response: http.client.HTTPResponse, most: int, end: float) -> tuple[bytes, bool]:
    """Return at most `most` bytes, unpacked; what is unpacked is counted, so that no bomb goes off."""
    packed = response.headers.get("Content-Encoding", "identity").lower() in {"gzip", "x-gzip"}
    unpacker = zlib.decompressobj(zlib.MAX_WBITS | 32)
    body = bytearray()
    while len(body) <= most and (data := response.read1(65_536)):
        if time.monotonic() > end:
            raise Trouble("the page takes too long to load")
        body += unpacker.decompress(data, most + 1 - len(body)) if packed else data
    return bytes(body[:most]), len(body) > most
