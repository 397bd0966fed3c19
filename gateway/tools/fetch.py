"""Requests to hosts of the network, hop by hop, each to addresses that the guard has judged."""

from __future__ import annotations

import asyncio
import functools
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias
from urllib.parse import urljoin

from gateway.errors import ToolDenied, ToolError
from gateway.tools.netguard import Guard, Target

Follow: TypeAlias = Callable[[Target, Target], None]
"""Raises ToolError if the second URL may not be fetched because the first one sends on to it."""


@functools.cache
def authorities() -> ssl.SSLContext:
    """Return whom all our clients trust; loading them takes 30 ms, so do it on a thread."""
    import httpx  # noqa: PLC0415 - plain HTTP does without

    return httpx.create_ssl_context()


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bytes of a body after unpacking, seconds for all hops together, redirects (agent H)."""

    size: int = 750_000
    seconds: float = 30.0
    redirects: int = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What is asked for.

    `headers` are dropped when a redirect leads to another origin. `fits` says of a content type
    (`text/html`, "" if there is none) whether the body is wanted.
    """

    url: str
    method: str = "GET"
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    body: bytes | None = None
    fits: Callable[[str], bool] = lambda _kind: True
    follow: Follow = lambda _here, _there: None


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What came back from `target`, after redirects.

    `kind` is the content type in small letters without parameters, `charset` its parameter or "". `cut`:
    the body was longer, or broke off. Without success there is no body.
    """

    target: Target
    status: int
    kind: str = ""
    charset: str = ""
    wait: str = ""
    body: bytes = b""
    cut: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetcher:
    """Asks one host after the other, without proxies, cookies or passwords of the environment."""

    guard: Guard
    limits: Limits = Limits()
    trust: Callable[[], ssl.SSLContext] = authorities

    async def fetch(self, request: Request) -> Answer:
        """Return the answer of the last host on the way.

        Raises: ToolDenied when the guard forbids a hop; ToolError when no answer, or none that fits, came.
        """
        target = self.guard.rules.vet(request.url)
        try:
            async with asyncio.timeout(self.limits.seconds):
                return await self._follow(target, request)
        except TimeoutError:
            raise ToolError(
                f"{target.host} gave no whole answer within {self.limits.seconds:g} seconds; "
                "try once more later, or use another source."
            ) from None

    async def _follow(self, target: Target, request: Request) -> Answer:
        for _ in range(self.limits.redirects + 1):
            found = await self._ask(target, request)
            if isinstance(found, Answer):
                return found
            following = self.guard.rules.vet(_next(target, found))
            request.follow(target, following)
            if following.origin != target.origin:
                request = replace(request, headers={})
            target = following
        raise ToolDenied(f"more than {self.limits.redirects} redirects; the last one led to {target.url}.")

    async def _ask(self, target: Target, request: Request) -> Answer | str:
        """Return an answer, or where it sends on to."""
        from gateway.tools.connect import exchange  # noqa: PLC0415 - its library is slow to load

        addresses = await self.guard.addresses(target)
        trust = await asyncio.to_thread(self.trust) if target.scheme == "https" else None
        return await exchange(target, addresses, request, trust, self.limits.size)


def _next(here: Target, location: str) -> str:
    try:
        return urljoin(here.url, location.strip().replace(" ", "%20"))
    except ValueError:
        raise ToolError(f"{here.host} sends on to something that is no URL; use another source.") from None
