"""Which addresses of the network a tool may reach (agent H); pure, but for the question to a name server.

An address is judged twice: as text, before anything is asked, and as what its name leads to. Whoever
connects must use the addresses that were judged and ask nobody again.
"""

from __future__ import annotations

import asyncio
import ipaddress
import re
import socket
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeAlias
from urllib.parse import quote, urlsplit

from gateway.errors import ToolDenied, ToolError

LONGEST = 2048
"""Characters of a URL."""

PORTS = frozenset({80, 443, 8080, 8443})

_STANDARD = {"http": 80, "https": 443}
_UNFIT = re.compile(r"[\x00-\x20\x7f-\xa0\u2028\u2029\ud800-\udfff\\]")
_LABEL = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
_IN_A_PATH = "%/:@!$&'()*+,;=~"
_INNER = ("localhost", "local", "internal", "intranet", "lan", "corp", "home", "arpa", "onion")
"""Ends of names that never belong to a public host; metadata services of clouds are under `.internal`."""


class Reach(Enum):
    """Where an address leads: to the public network, to our own, or where no request of ours may go."""

    PUBLIC = "public"
    PRIVATE = "private"
    NEVER = "never"


def _networks(*texts: str) -> tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...]:
    return tuple(map(ipaddress.ip_network, texts))


# What stands for examples in texts (203.0.113.0/24 …) leads nowhere and is not among these.
_NEVER = _networks(
    "0.0.0.0/8",  # this machine
    "100.100.100.200/32",  # metadata of a cloud, within the carriers' range
    "168.63.129.16/32",  # the platform below a cloud's machines, within a public range
    "169.254.0.0/16",  # link-local, metadata of most clouds
    "192.0.0.0/24",
    "192.88.99.0/24",  # relays to 6to4
    "224.0.0.0/4",
    "240.0.0.0/4",
    "2001::/23",  # Teredo and other wraps
    "2002::/16",  # 6to4 wraps an IPv4 address
    "fd00:ec2::/32",  # metadata of a cloud, within the private range
    "fd20:ce::/32",
)
_PRIVATE = _networks(
    "10.0.0.0/8",
    "100.64.0.0/10",
    "127.0.0.0/8",
    "172.16.0.0/12",
    "192.168.0.0/16",
    "198.18.0.0/15",
    "::1/128",
    "fc00::/7",
)
_GLOBAL_IPV6 = ipaddress.IPv6Network("2000::/3")


def reach_of(address: str) -> Reach:
    """Return where an IP address leads; what is no address, or has a zone, is never to be reached.

    An IPv4 address inside an IPv6 one counts as itself if it is mapped; the other wraps (NAT64, 6to4,
    Teredo, compatible) hide where they lead.
    """
    try:
        ip = ipaddress.ip_address(address)
    except ValueError:
        return Reach.NEVER
    if isinstance(ip, ipaddress.IPv6Address):
        if ip.ipv4_mapped is not None:
            return reach_of(str(ip.ipv4_mapped))
        if ip.scope_id is not None:
            return Reach.NEVER
    if any(ip in network for network in _NEVER):
        return Reach.NEVER
    if any(ip in network for network in _PRIVATE):
        return Reach.PRIVATE
    return Reach.PUBLIC if ip.version == 4 or ip in _GLOBAL_IPV6 else Reach.NEVER


@dataclass(frozen=True, slots=True)
class Target:
    """A URL that was read: `host` is in small ASCII letters, an IPv6 address without brackets.

    `path` begins with a slash and holds the query; there is no fragment.
    """

    scheme: str
    host: str
    port: int
    path: str

    @property
    def place(self) -> str:
        """Return `host:port`."""
        return f"{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"

    @property
    def origin(self) -> str:
        """Return what two URLs have in common that may share headers."""
        return f"{self.scheme}://{self.place.removesuffix(f':{_STANDARD[self.scheme]}')}"

    @property
    def url(self) -> str:
        """Return the URL in its one ASCII form."""
        return f"{self.origin}{self.path}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What the owner has set; all hosts are in small ASCII letters.

    `allow_hosts`, if there are any, are all that may be reached, and `deny_hosts` never, each with what is
    beneath it. `allow_private` holds exact names or addresses, `host` or `host:port`, that may lead into
    a private network.
    """

    ports: frozenset[int] = PORTS
    allow_hosts: frozenset[str] = frozenset()
    deny_hosts: frozenset[str] = frozenset()
    allow_private: frozenset[str] = frozenset()

    def excepts(self, target: Target) -> bool:
        """Return whether a target may lead into a private network."""
        host = target.place.rpartition(":")[0]
        return target.place in self.allow_private or host in self.allow_private

    def vet(self, url: str) -> Target:
        """Read a URL that may be fetched, as far as its text tells.

        Raises: ToolDenied, whose text names the remedy.
        """
        target = read(url)
        host, port = target.host, target.port
        if port not in self.ports and target.place not in self.allow_private:
            ports = ", ".join(map(str, sorted(self.ports)))
            raise ToolDenied(
                f"only ports {ports} are reached, not {port}; the owner can add it: [web] ports."
            )
        if _beneath(host, self.deny_hosts):
            raise ToolDenied(f"the owner has denied {host} ([web] deny_hosts); use another source.")
        if self.allow_hosts and not _beneath(host, self.allow_hosts) and not self.excepts(target):
            hosts = ", ".join(sorted(self.allow_hosts)[:20])
            raise ToolDenied(f"{host} is not among the hosts of [web] allow_hosts: {hosts}.")
        if _is_inner(host) and not self.excepts(target):
            raise _not_public(host)
        return target


def read(url: str) -> Target:
    """Read a URL strictly: whatever two readers could understand in two ways is refused.

    Raises: ToolDenied.
    """
    text = url.strip(" ")
    if len(text) > LONGEST:
        raise ToolDenied(f"the URL has more than {LONGEST} characters.")
    if _UNFIT.search(text):
        raise ToolDenied("the URL holds blanks, control characters or a backslash; write a blank as %20.")
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        raise ToolDenied("this is no URL; give one such as https://example.com/page.") from None
    if parts.scheme not in _STANDARD or not parts.hostname:
        raise ToolDenied("only whole http:// and https:// URLs can be fetched; give one.")
    if "@" in parts.netloc:
        raise ToolDenied("a URL with a user name or password is not fetched; leave out what stands before @.")
    path = quote(parts.path or "/", safe=_IN_A_PATH)
    query = f"?{quote(parts.query, safe=_IN_A_PATH + '?')}" if parts.query else ""
    port = _STANDARD[parts.scheme] if port is None else port
    return Target(parts.scheme, host_of(parts.hostname), port, f"{path}{query}")


def host_of(name: str) -> str:
    """Return a host as the network knows it: in small ASCII letters, without a dot at its end.

    Raises: ToolDenied, also for an IPv4 address in any form but four decimal numbers.
    """
    if ":" in name:
        try:
            return str(ipaddress.IPv6Address(name))
        except ValueError:
            raise ToolDenied(f"[{name}] is no IPv6 address.") from None
    try:
        if not name.isascii():
            import idna  # noqa: PLC0415 - its tables are large, and hardly a name needs them

            name = idna.encode(name, uts46=True).decode()
        host = name.lower().removesuffix(".")
    except UnicodeError:
        raise ToolDenied(f"{name!r} is no name of a host.") from None
    labels = host.split(".")
    if len(host) > 253 or not all(map(_LABEL.fullmatch, labels)):
        raise ToolDenied(f"{name!r} is no name of a host.")
    if _NUMBER.fullmatch(labels[-1]):
        try:
            return str(ipaddress.IPv4Address(host))
        except ValueError:
            raise ToolDenied(f"write the address {host} as four decimal numbers, or give a name.") from None
    return host


def _beneath(host: str, above: frozenset[str]) -> bool:
    """Return whether a host is one of those above, or beneath one."""
    labels = host.split(".")
    return host in above or any(".".join(labels[at:]) in above for at in range(1, len(labels)))


def _is_inner(host: str) -> bool:
    """Return whether a name can't be that of a public host; addresses are judged as such."""
    if ":" in host or _NUMBER.fullmatch(host.rpartition(".")[2]):
        return False
    return "." not in host or host.rpartition(".")[2] in _INNER


def _not_public(host: str) -> ToolDenied:
    return ToolDenied(
        f"{host} does not lead to a public address, and others are not fetched. "
        "The owner can allow one host: [web] allow_private."
    )


Resolve: TypeAlias = Callable[[str, int], Awaitable[Sequence[str]]]
"""Returns the IP addresses of a name, for a port; raises OSError."""

Judge: TypeAlias = Callable[[str], Reach]


async def system_resolve(host: str, port: int) -> Sequence[str]:
    """Ask the system for the addresses of a name. Raises: OSError."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return tuple(dict.fromkeys(str(one[4][0]) for one in found))


@dataclass(frozen=True, slots=True)
class Guard:
    """Says what may be reached, and under which addresses."""

    rules: Rules = field(default_factory=Rules)
    resolve: Resolve = system_resolve
    judge: Judge = reach_of

    async def addresses(self, target: Target) -> Sequence[str]:
        """Return the addresses that a target may be reached at; it must not be reached at any other.

        One forbidden address among them refuses the target (ssrf-030).
        Raises: ToolDenied; ToolError when the name leads nowhere.
        """
        if ":" in target.host or _NUMBER.fullmatch(target.host.rpartition(".")[2]):
            found: Sequence[str] = (target.host,)
        else:
            try:
                found = await self.resolve(target.host, target.port)
            except (OSError, UnicodeError):
                found = ()
        if not found:
            raise ToolError(f"the name {target.host} leads nowhere; check the URL, or search for the page.")
        fine = {Reach.PUBLIC, Reach.PRIVATE} if self.rules.excepts(target) else {Reach.PUBLIC}
        if not all(self.judge(one) in fine for one in found):
            raise _not_public(target.host)
        return found
