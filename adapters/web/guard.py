"""Who may talk to the HTTP face: names, origins, tokens and how often a wrong one may be tried."""

from __future__ import annotations

import hmac
import ipaddress
from collections import OrderedDict, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import SplitResult, urlsplit

from gateway.clock import Clock

TRIES = 10
"""Wrong tokens that are compared within `WINDOW` seconds; then the peer waits `LOCKED` seconds (http-003)."""

WINDOW = 60.0
LOCKED = 300.0

PEERS = 4096
"""Peers that the limiter remembers; the one that failed longest ago is forgotten first (http-004)."""

WILDCARDS = frozenset({"", "0.0.0.0", "::"})  # noqa: S104 - compared with, not bound to
TOKEN_NAMES = frozenset({"token", "access_token", "auth", "authorization", "api_key", "apikey", "key"})
PORTS = {"http": 80, "https": 443}


class Refusal(Exception):
    """An HTTP answer that is not a success: its status, its type in the body and what to do next."""

    def __init__(
        self, status: int, kind: str, message: str, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.kind = kind
        self.message = message
        self.headers = headers or {}


def is_loopback(name: str) -> bool:
    """Return whether a host name or address is always this machine."""
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return name == "localhost"


def check_host(header: str, host: str) -> None:
    """Let a `Host` header pass that names this machine or the configured host (http-010).

    A server bound to every address can't know its names; there the token keeps strangers out.

    Raises: Refusal 421.
    """
    name = _place(f"//{header}")[0]
    if not name or not (is_loopback(name) or name == host.lower() or host in WILDCARDS):
        raise Refusal(421, "wrong_host", "this server has another name: use the address it listens on")


def check_origin(origin: str | None, header: str) -> None:
    """Let a request pass that no page of another site can have sent (http-006, http-007).

    Only host and port are compared: behind a proxy the page's scheme differs from ours.

    Raises: Refusal 403.
    """
    if origin is None:
        return
    scheme = origin.partition("://")[0].lower()
    default = PORTS.get(scheme)
    here, there = _place(f"//{header}"), _place(origin)
    if default is None or (there[0], there[1] or default) != (here[0], here[1] or default):
        raise Refusal(403, "wrong_origin", "pages of other sites may not use this server")


def check_query(names: Mapping[str, str]) -> None:
    """Refuse a token in the URL, where logs and histories would keep it.

    Raises: Refusal 401.
    """
    if any(name.lower() in TOKEN_NAMES for name in names):
        raise Refusal(401, "unauthorized", "a token may not be in the URL: send `Authorization: Bearer …`")


def check_token(header: str, token: str, peer: str, limiter: Limiter) -> None:
    """Compare a bearer token in constant time; nothing is compared for a peer that is locked out.

    Raises: Refusal 401, or 429 with `Retry-After`.
    """
    scheme, _, given = header.partition(" ")
    if wait := limiter.locked(peer):
        message = "too many wrong tokens from this address: try again later"
        raise Refusal(429, "rate_limited", message, {"Retry-After": str(int(wait) + 1)})
    if scheme.lower() != "bearer" or not given.strip():
        message = "send the token of [http] as `Authorization: Bearer …`"
        raise Refusal(401, "unauthorized", message, {"WWW-Authenticate": "Bearer"})
    if not hmac.compare_digest(_bytes(given.strip()), _bytes(token)):
        limiter.failed(peer)
        raise Refusal(401, "unauthorized", "the token is wrong", {"WWW-Authenticate": "Bearer"})


@dataclass(slots=True)
class Limiter:
    """Remembers when each peer last gave wrong tokens; IPv6 peers count by their /64 network."""

    clock: Clock
    _failures: OrderedDict[str, deque[float]] = field(default_factory=OrderedDict)

    def locked(self, peer: str) -> float:
        """Return the seconds a peer must still wait, or 0."""
        times = self._failures.get(_network(peer))
        if times is None or len(times) < TRIES or times[-1] - times[0] > WINDOW:
            return 0.0
        return max(0.0, times[-1] + LOCKED - self.clock.now())

    def failed(self, peer: str) -> None:
        """Count a wrong token."""
        key = _network(peer)
        self._failures.setdefault(key, deque(maxlen=TRIES)).append(self.clock.now())
        self._failures.move_to_end(key)
        if len(self._failures) > PEERS:
            self._failures.popitem(last=False)

    def __len__(self) -> int:
        return len(self._failures)


def _place(url: str) -> tuple[str, int | None]:
    """Return the lower-case host and the port of a URL; ("", None) if it can't be read."""
    try:
        parts: SplitResult = urlsplit(url)
        return (parts.hostname or "").rstrip("."), parts.port
    except ValueError:
        return "", None


def _network(peer: str) -> str:
    try:
        address = ipaddress.ip_address(peer)
    except ValueError:
        return peer
    if isinstance(address, ipaddress.IPv6Address) and not address.ipv4_mapped:
        return str(ipaddress.ip_network((int(address), 64), strict=False))
    return str(address)


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
