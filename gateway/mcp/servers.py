"""All servers of the configuration: what they offer is in the toolbox, whoever of them is up."""

from __future__ import annotations

import asyncio
import functools
import importlib
import importlib.util
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from gateway.clock import Clock
from gateway.config import McpServer, McpSettings, duration
from gateway.errors import ConfigError, ToolError
from gateway.mcp import cache
from gateway.mcp.listing import Listing, chosen, listing, names
from gateway.mcp.server import CONNECT, Connection, Server, cause
from gateway.mcp.target import FOLDER, Target, target
from gateway.mcp.tools import Manner, server_tools
from gateway.redact import Redactor
from gateway.tools.base import Tool

MISSING = "[mcp.servers] needs a library that is not there: pip install 'crayfish-gateway[mcp]'"


def is_installed() -> bool:
    """Return whether the library is there."""
    return importlib.util.find_spec("mcp") is not None


@asynccontextmanager
async def connected(
    where: Target,
    said: Callable[[str], None],
    gone: Callable[[str], None],
    changed: Callable[[], None],
) -> AsyncIterator[Connection]:
    """Connect to a server, as `gateway.mcp.client.connect` does."""
    # 0.8 s and 35 MB, which nobody pays for before a server is wanted; and the loop goes on meanwhile.
    await asyncio.to_thread(importlib.import_module, "gateway.mcp.client")
    from gateway.mcp.client import connect  # noqa: PLC0415 - see above

    async with connect(where, said, gone, changed) as connection:
        yield connection


@dataclass(slots=True, kw_only=True)
class _Entry:
    """A server, how it is to be used, and what it offers; `file` and `key` are those of the cache."""

    settings: McpServer
    server: Server
    file: Path
    key: str
    listing: Listing = field(default_factory=Listing)

    @property
    def tools(self) -> Sequence[Tool]:
        usable = chosen(self.listing, self.settings.allow, self.settings.deny)
        manner = Manner(asks=self.settings.ask, trusts=self.settings.trust)
        return server_tools(usable, self.server, manner)


@dataclass(slots=True, kw_only=True)
class Servers:
    """Those that are enabled. `give` takes all their tools, whenever some have changed."""

    settings: McpSettings
    home: Path
    environ: Mapping[str, str] = field(repr=False)
    clock: Clock
    give: Callable[[Sequence[Tool]], None]
    redact: Redactor = field(default_factory=Redactor)
    _entries: dict[str, _Entry] = field(default_factory=dict)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    async def start(self) -> None:
        """Give the tools that are remembered, and begin to ask the servers for those that are not.

        Raises: ConfigError when the library is missing.
        """
        wanted = {name: one for name, one in self.settings.servers.items() if one.enabled}
        if wanted and not is_installed():
            raise ConfigError(MISSING)
        now = self.clock.wall()
        for name, settings in wanted.items():
            where = target(name, settings, self.home, self.environ)
            entry = _Entry(
                settings=settings,
                server=self._server(name, settings, where),
                file=self.home / FOLDER / f"{name}.json",
                key=await asyncio.to_thread(cache.key, where),
            )
            self._entries[name] = entry
            known = await asyncio.to_thread(cache.load, entry.file, entry.key)
            if known is not None:
                entry.listing = known.listing
            entry.server.start(now=known is None or not 0 <= now - known.at < cache.FRESH)
        self._give()

    async def close(self) -> None:
        """Let go of all servers, and wait until their programs have ended."""
        await asyncio.gather(*(one.server.close() for one in self._entries.values()))
        await asyncio.gather(*self._tasks)

    def status(self) -> dict[str, str]:
        """Return the state of each server, with the reason if it is down."""
        servers = {name: one.server for name, one in self._entries.items()}
        return {
            name: f"{one.state} ({one.problem})" if one.state == "down" else one.state
            for name, one in servers.items()
        }

    def _server(self, name: str, settings: McpServer, where: Target) -> Server:
        return Server(
            name=name,
            connect=functools.partial(connected, where),
            clock=self.clock,
            found=functools.partial(self._found, name),
            timeout=float(settings.timeout),
            idle=float(duration(settings.idle)),
            redact=self.redact,
        )

    def _found(self, name: str, found: Listing) -> None:
        entry = self._entries[name]
        if found != entry.listing:
            entry.listing = found
            self._give()
        remember = asyncio.to_thread(cache.store, entry.file, entry.key, found, self.clock.wall())
        task = asyncio.create_task(remember)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _give(self) -> None:
        self.give([tool for name in sorted(self._entries) for tool in self._entries[name].tools])


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What a look at a server found: its tools as models call them, or what is wrong."""

    name: str
    about: str = ""
    tools: Mapping[str, str] = field(default_factory=dict)
    left_out: Sequence[str] = ()
    seconds: float = 0.0
    problem: str = ""
    enabled: bool = True


async def look(settings: McpSettings, home: Path, environ: Mapping[str, str], clock: Clock) -> Sequence[Seen]:
    """Start every server for a moment, and ask it what it offers."""
    if any(one.enabled for one in settings.servers.values()) and not is_installed():
        raise ConfigError(MISSING)
    looks = (_look(name, one, home, environ, clock) for name, one in sorted(settings.servers.items()))
    return await asyncio.gather(*looks)


async def _look(name: str, settings: McpServer, home: Path, environ: Mapping[str, str], clock: Clock) -> Seen:
    if not settings.enabled:
        return Seen(name=name, enabled=False)
    began, said, gone = clock.now(), list[str](), list[str]()
    try:
        async with (
            asyncio.timeout(CONNECT),
            connected(
                target(name, settings, home, environ), said.append, gone.append, lambda: None
            ) as server,
        ):
            found = chosen(listing(await server.tools()), settings.allow, settings.deny)
            seconds = clock.now() - began
            about = server.server
    except TimeoutError:
        return Seen(name=name, problem=f"it was not ready within {CONNECT:.0f} seconds")
    except (ToolError, ExceptionGroup) as error:
        last = f" (it said: {' | '.join(said[-5:])})" if said else ""
        return Seen(name=name, problem=f"{cause(error, gone[0] if gone else '')}{last}")
    tools = zip(names(name, found.tools), found.tools, strict=True)
    return Seen(
        name=name,
        about=about,
        tools={called: one.description for called, one in tools},
        left_out=found.left_out,
        seconds=seconds,
    )


def as_text(seen: Sequence[Seen]) -> str:
    """Return a few lines for each server."""
    if not seen:
        return "There are no [mcp.servers] in the configuration."
    return "\n".join(line for one in seen for line in _lines(one))


def _lines(one: Seen) -> Sequence[str]:
    if not one.enabled:
        return [f"{one.name}: off"]
    if one.problem:
        return [f"{one.name}: down, {one.problem}"]
    about = f", {one.about}" if one.about else ""
    head = f"{one.name}: up in {one.seconds:.1f} s, {len(one.tools)} tools{about}"
    return [
        head,
        *(f"  {name}  {text[:100]}" for name, text in one.tools.items()),
        *(f"  left out: {text}" for text in one.left_out),
    ]
