"""One request over one connection, to an address that was judged before, and to no other."""

from __future__ import annotations

import functools
import socket
import ssl
import zlib
from collections.abc import Sequence
from dataclasses import replace

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from gateway import __version__
from gateway.errors import ToolDenied, ToolError
from gateway.tools.fetch import Answer, Request
from gateway.tools.netguard import Target

_AGENT = f"Mozilla/5.0 (compatible; Crayfish/{__version__})"
_ACCEPT = "text/markdown, text/html;q=0.9, application/xhtml+xml;q=0.9, text/plain;q=0.8, */*;q=0.5"
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_PACKED = frozenset({"gzip", "x-gzip", "deflate"})
_GZIP = b"\x1f\x8b"
_BESIDE = 65_536
"""Bytes that may come over the wire for a body beside its own, for what does not pack well."""


async def exchange(
    target: Target, addresses: Sequence[str], request: Request, trust: ssl.SSLContext | None, size: int
) -> Answer | str:
    """Return the answer, with at most `size` bytes, or where it sends on to.

    Of the environment nothing is used: no proxy, no password, no cookie (ssrf-040).
    Raises: ToolError.
    """
    connector = aiohttp.TCPConnector(
        resolver=_Known(target.host, addresses),
        socket_factory=functools.partial(_socket, addresses),
        ssl=trust or False,
        force_close=True,
    )
    try:
        async with (
            aiohttp.ClientSession(
                connector=connector,
                trust_env=False,
                auto_decompress=False,
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=10.0),
                headers={"User-Agent": _AGENT, "Accept": _ACCEPT, "Accept-Encoding": "gzip"},
            ) as session,
            session.request(
                request.method,
                URL(target.url, encoded=True),
                headers=request.headers,
                data=request.body,
                allow_redirects=False,
            ) as response,
        ):
            return await _answer(target, request, response, size)
    except (aiohttp.ClientError, OSError, zlib.error) as error:
        raise ToolError(f"{target.host} {_problem(error)}") from error


async def _answer(
    target: Target, request: Request, response: aiohttp.ClientResponse, size: int
) -> Answer | str:
    location = response.headers.get("Location", "")
    if response.status in _REDIRECTS and location:
        return location
    kind, _, parameters = response.headers.get("Content-Type", "").partition(";")
    answer = Answer(
        target=target,
        status=response.status,
        kind=kind.strip().lower(),
        charset=_parameter(parameters, "charset"),
        wait=response.headers.get("Retry-After", ""),
    )
    if not 200 <= response.status < 300:
        return answer
    if not request.fits(answer.kind):
        raise ToolError(
            f"{target.host} sent {answer.kind[:100] or 'data of no named type'}, which is not read."
        )
    body = _Body(size, packed=_is_packed(response.headers.get("Content-Encoding", ""), target.host))
    async for chunk in response.content.iter_any():
        if not body.feed(chunk):
            break
    return replace(answer, body=body.taken(), cut=body.cut)


class _Known(AbstractResolver):
    """Answers with the addresses that were judged; the name is not looked up again (rebinding)."""

    def __init__(self, host: str, addresses: Sequence[str]) -> None:
        self._host, self._addresses = host, addresses

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        del host, family
        return [
            ResolveResult(
                hostname=self._host,
                host=address,
                port=port,
                family=socket.AF_INET6 if ":" in address else socket.AF_INET,
                proto=0,
                flags=socket.AI_NUMERICHOST,
            )
            for address in self._addresses
        ]

    async def close(self) -> None:
        return


def _socket(addresses: Sequence[str], info: aiohttp.AddrInfoType) -> socket.socket:
    """Make the socket of a connection: the last place to see where it will lead."""
    family, kind, protocol, _, address = info
    if address[0] not in addresses:
        raise ToolDenied("a connection to an address that was not judged was stopped.")
    return socket.socket(family, kind, protocol)


class _Body:
    """At most `most` bytes of a body, unpacked piece by piece, so that a bomb can't grow."""

    def __init__(self, most: int, *, packed: bool) -> None:
        self.data = bytearray()
        self._most = most
        self._wire = most + _BESIDE
        self._unpack = _unpacker() if packed else None

    @property
    def cut(self) -> bool:
        """Return whether there was, or should have been, more."""
        broken = self._unpack is not None and not self._unpack.eof
        return broken or self._wire <= 0 or len(self.data) > self._most

    def feed(self, chunk: bytes) -> bool:
        """Take a piece; return whether more is wanted. Raises: zlib.error."""
        self._wire -= len(chunk)
        if self._unpack is None:
            self.data += chunk
        while self._unpack is not None and chunk and len(self.data) <= self._most:
            if self._unpack.eof and chunk.startswith(_GZIP):
                self._unpack = _unpacker()
            self.data += self._unpack.decompress(chunk, self._most + 1 - len(self.data))
            chunk = self._unpack.unused_data if self._unpack.unused_data.startswith(_GZIP) else b""
        return len(self.data) <= self._most and self._wire > 0

    def taken(self) -> bytes:
        """Return what there is."""
        return bytes(self.data[: self._most])


def _unpacker() -> zlib._Decompress:
    return zlib.decompressobj(zlib.MAX_WBITS | 32)


def _is_packed(encoding: str, host: str) -> bool:
    names = {name.strip().lower() for name in encoding.split(",")} - {"", "identity"}
    if len(names) > 1 or not names <= _PACKED:
        raise ToolError(f"{host} packed its answer as {encoding[:60]!r}, which was not asked for.")
    return bool(names)


def _parameter(text: str, name: str) -> str:
    """Return a parameter of a content type in small letters, "" if it has none."""
    for one in text.split(";"):
        key, _, value = one.partition("=")
        if key.strip().lower() == name:
            return value.strip().strip("\"'").lower()
    return ""


def _problem(error: Exception) -> str:
    """Return the end of a sentence that begins with the host."""
    match error:
        case aiohttp.ClientConnectorCertificateError():
            return "has no valid certificate, so it may be somebody else; use another source."
        case aiohttp.ClientSSLError():
            return "can't be reached securely: TLS failed; use another source."
        case aiohttp.ServerDisconnectedError():
            return "hung up without an answer; try once more later, or use another source."
        case aiohttp.ClientPayloadError() | aiohttp.ClientConnectionResetError():
            return "broke off in the middle of its answer; try once more."
        case zlib.error():
            return "sent data that can't be unpacked; use another source."
        case aiohttp.ClientResponseError() | aiohttp.InvalidURL():
            return "gave no proper HTTP answer; use another source."
        case _:
            return "can't be reached; check the URL, or use another source."
