"""The HTTP end of a model: posts one JSON request, feeds back the events of the answer."""

from __future__ import annotations

import asyncio
import ipaddress
import json
import logging
import re
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import TypeAlias
from urllib.parse import urlsplit

import httpx

from gateway.clock import Clock
from gateway.errors import ConfigError, ModelBusy, ModelError
from gateway.models.failure import broken, clean, failure, retry_after, said_bytes
from gateway.models.sse import Decoder
from gateway.types import Json, JsonObject

Feed: TypeAlias = Callable[[JsonObject], None]

_LINGER = 1.0
"""Seconds to wait for the end of a body after `[DONE]`: only a body read to its end frees the connection."""

_PATIENCE = 5
"""Idle times for which comments and pings keep a silent stream alive (models 2.3 row 18)."""

_GRAIN = 0.05
"""Share of the idle time by which it may be overrun."""

_LARGEST = 64 * 2**20
"""Bytes of an answer."""

# These print whole URLs, and so secrets, at INFO.
for _name in ("httpx", "httpcore"):
    logging.getLogger(_name).setLevel(logging.WARNING)


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """Seconds: to connect, until the first event, and between two events."""

    connect: float = 10.0
    first: float = 180.0
    idle: float = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Where a model is and how it is named.

    `provider` is only a label; with `model` it makes the name under which replies are stored.
    """

    base_url: str
    model: str
    provider: str
    key: str = field(default="", repr=False)
    max_tokens: int = 8000
    timeouts: Timeouts = Timeouts()

    @property
    def name(self) -> str:
        """Return `provider/model`."""
        return f"{self.provider}/{self.model}"

    @property
    def host(self) -> str:
        """Return the host alone, "" if there is none."""
        return urlsplit(self.base_url).hostname or ""

    def check(self) -> Endpoint:
        """Return itself.

        Raises: ConfigError, if the address or the key can't be sent.
        """
        if urlsplit(self.base_url).scheme not in {"http", "https"} or not self.host:
            raise ConfigError(f"[model] base_url is {self.base_url!r}: write http://… or https://….")
        if not re.fullmatch(r"[!-~]*", self.key):
            # httpx would print the header, and so the key, in its own error.
            raise ConfigError("The model's api_key holds blanks or characters outside ASCII: copy it again.")
        return self


def is_loopback(host: str) -> bool:
    """Whether a host is this machine."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def join(base_url: str, path: str) -> str:
    """Return the address of a path of an API, whose base may or may not end in a slash or its version.

    `http://host` becomes `http://host/v1/…`; `…/v1`, `…/api/paas/v4` and `…/v1beta/openai` stay, and a
    whole `…/v1/chat/completions` is taken for its base.
    """
    address = urlsplit(base_url.strip())
    base = address.path.rstrip("/").removesuffix(f"/{path}")
    if not re.search(r"/v\d+\w*(/|$)", base):
        base += "/v1"
    return address._replace(path=f"{base}/{path}", fragment="").geturl()


@cache
def _trust() -> ssl.SSLContext:
    """Load the certificate authorities once; that takes longer than everything else here together."""
    return httpx.create_ssl_context()


def open_client(base_url: str, timeouts: Timeouts) -> httpx.AsyncClient:
    """Return a client for one address; whoever opened it closes it.

    This machine is reached without proxies. Plain HTTP gets a TLS context that trusts nothing, since
    loading the real one would be wasted.
    """
    address = urlsplit(base_url)
    return httpx.AsyncClient(
        verify=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT) if address.scheme == "http" else _trust(),
        trust_env=not is_loopback(address.hostname or ""),
        timeout=httpx.Timeout(connect=timeouts.connect, read=None, write=60.0, pool=60.0),
        # The pool looks at every idle connection for each request, and at each pair of them: keep few.
        limits=httpx.Limits(max_connections=None, max_keepalive_connections=10, keepalive_expiry=30.0),
        headers={"User-Agent": "crayfish"},
    )


async def refusal(endpoint: Endpoint, response: httpx.Response, wall: float) -> ModelError:
    """Return the error that an answer stands for which is no success; `wall` is UNIX seconds."""
    body = b""
    async for chunk in response.aiter_bytes():
        body += chunk
        if len(body) > 100_000:
            break
    detail = clean(said_bytes(body), endpoint.key)
    return failure(endpoint.name, response.status_code, detail, after=retry_after(response.headers, wall))


def trouble(endpoint: Endpoint, error: Exception) -> ModelBusy:
    """Return the error for an answer that did not come, or not to its end."""
    if isinstance(error, TimeoutError | httpx.TimeoutException):
        return broken(endpoint.name, "no answer in time")
    if isinstance(error, httpx.ConnectError):
        return broken(endpoint.name, f"{endpoint.host} can't be reached")
    return broken(endpoint.name, f"the connection broke ({type(error).__name__})")


@dataclass(slots=True)
class Wire:
    """One path of one provider."""

    endpoint: Endpoint
    url: str
    headers: Mapping[str, str] = field(repr=False)
    clock: Clock
    client: httpx.AsyncClient

    async def post(self, body: JsonObject, feed: Feed) -> bool:
        """Send the body and give each event of the answer to `feed`, which must not block.

        Return whether the stream had an end mark of its own. Cancelling closes the connection.
        Raises: ModelBusy, ModelRefused (as failure.Rejected), PromptTooLong.
        """
        content = json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
        decoder = Decoder()
        try:
            async with (
                asyncio.timeout(self.endpoint.timeouts.first) as deadline,
                self.client.stream("POST", self.url, content=content, headers=dict(self.headers)) as response,
            ):
                if response.status_code >= 300:
                    raise await refusal(self.endpoint, response, self.clock.wall())
                if response.headers.get("content-type", "").startswith("text/html"):
                    raise failure(self.endpoint.name, response.status_code, "a web page, no answer")
                await self._events(response, decoder, feed, deadline)
        except (TimeoutError, httpx.TransportError, httpx.DecodingError) as error:
            if not decoder.done:
                raise trouble(self.endpoint, error) from error
        for event in decoder.close():
            feed(event)
        return decoder.done

    async def close(self) -> None:
        """Close the connections."""
        await self.client.aclose()

    async def _events(
        self, response: httpx.Response, decoder: Decoder, feed: Feed, deadline: asyncio.Timeout
    ) -> None:
        now = asyncio.get_running_loop().time
        idle = self.endpoint.timeouts.idle
        alive, size, set_at = now(), 0, -idle
        async for chunk in response.aiter_bytes():
            events = decoder.feed(chunk)
            moment, size = now(), size + len(chunk)
            if any(event.get("type") != "ping" for event in events):
                alive = moment
            for event in events:
                feed(event)
            if size > _LARGEST:
                raise broken(self.endpoint.name, "the answer is too large")
            if decoder.done:
                deadline.reschedule(moment + _LINGER)
            elif moment - set_at > idle * _GRAIN:  # moving a deadline costs more than reading a chunk
                deadline.reschedule(min(moment + idle * (1 + _GRAIN), alive + _PATIENCE * idle))
                set_at = moment


async def get_json(client: httpx.AsyncClient, url: str, body: Json = None) -> Json:
    """Return the JSON behind an address, asked with POST if there is a body; None if there is none."""
    try:
        response = await client.request("GET" if body is None else "POST", url, json=body)
        return response.json() if response.status_code == 200 else None
    except (httpx.HTTPError, ValueError):
        return None
