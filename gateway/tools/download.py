"""Downloads for `crayfish skills`, from public hosts over HTTPS and nowhere else."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable

from gateway.config import WebSettings
from gateway.errors import ConfigError, ToolDenied, ToolError
from gateway.skills.registry import Fetch
from gateway.tools.fetch import Fetcher, Limits, Request, authorities
from gateway.tools.netguard import Guard, Target
from gateway.tools.web import rules_of

SECONDS = 300.0
"""How long a download may take, redirects and all."""


def downloader(settings: WebSettings, trust: Callable[[], ssl.SSLContext] = authorities) -> Fetch:
    """Return what fetches an index or a package; `[web]` says which hosts may be reached."""
    guard = Guard(rules_of(settings))

    def fetch(url: str, most: int) -> bytes:
        fetcher = Fetcher(guard=guard, limits=Limits(size=most, seconds=SECONDS), trust=trust)
        try:
            answer = asyncio.run(fetcher.fetch(Request(url=url, follow=_stay_secure)))
        except ToolError as error:
            raise ConfigError(f"{url} could not be fetched: {error}") from error
        if not 200 <= answer.status < 300:
            raise ConfigError(f"{url} could not be fetched: {answer.target.host} answered {answer.status}")
        if answer.cut:
            raise ConfigError(f"{url} has more than {most} bytes, or broke off")
        return answer.body

    return fetch


def _stay_secure(_here: Target, there: Target) -> None:
    if there.scheme != "https":
        raise ToolDenied(f"it sends on to {there.host} without TLS")
