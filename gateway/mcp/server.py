"""One server: connected when it is needed, let go when it is not, and begun again when it has died."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from gateway.clock import Clock
from gateway.errors import ToolError, leaves
from gateway.mcp.listing import Listing, listing
from gateway.redact import Redactor
from gateway.types import Json, JsonObject

if TYPE_CHECKING:  # the library is there only when a server is wanted
    from mcp_types import CallToolResult

CONNECT = 90.0
"""Seconds to start a server and to list its tools: the first time it may have to be downloaded."""

PATIENCE = 5.0
"""Seconds that a call waits for a server that is begun again."""

BACKOFF = 1.0
LONGEST_BACKOFF = 300.0
"""Seconds until a server is begun again; twice as long each time, up to this."""

STEADY = 60.0
"""Seconds after which a server counts as one that works, so that the back-off begins anew."""

SETTLE = 2.0
"""Seconds for calls that are being made when a server is lost."""

FAREWELL = 10.0
"""Seconds to let go of a server."""

MOST_LATE = 2
"""Calls in a row without an answer in time, after which it is asked whether it is there at all."""

MAX_RENEWALS = 20
"""Times that a server may say, while it is connected, that it has other tools now."""

_KEPT_LINES = 5
_MAX_LINES = 1000

log = logging.getLogger(__name__)


class Lost(ToolError):
    """The connection is gone. `ran` is whether the call may have had an effect."""

    def __init__(self, message: str, *, ran: bool) -> None:
        super().__init__(message)
        self.ran = ran


class Late(ToolError):
    """There was no answer in time."""


class Connection(Protocol):
    """What a server can be asked."""

    @property
    def server(self) -> str: ...

    async def tools(self) -> list[JsonObject]:
        """Return what it lists, as on the wire. Raises: ToolError."""
        ...

    async def call(self, tool: str, args: Mapping[str, Json], seconds: float) -> CallToolResult:
        """Call a tool. Raises: Lost; Late; ToolError."""
        ...

    async def answers(self, seconds: float) -> bool:
        """Return whether it says anything at all within this time."""
        ...


Connect = Callable[
    [Callable[[str], None], Callable[[str], None], Callable[[], None]],
    AbstractAsyncContextManager[Connection],
]
"""Connects; is given what gets a line of stderr, the reason of an end, and the news of other tools."""


@dataclass(slots=True, kw_only=True)
class Server:
    """A server, with one task that alone connects and lets go (the library's cancel scopes want that).

    `idle` seconds without a call end it, 0 never. `timeout` is that of one call, `ready_within` that of its
    start. `found` is told what it offers, each time it was asked.
    """

    name: str
    connect: Connect
    clock: Clock
    found: Callable[[Listing], None]
    timeout: float = 60.0
    idle: float = 600.0
    ready_within: float = CONNECT
    redact: Redactor = field(default_factory=Redactor)
    state: str = "not started"
    problem: str = ""
    about: str = ""
    _task: asyncio.Task[None] | None = None
    _wanted: asyncio.Event = field(default_factory=asyncio.Event)
    _news: asyncio.Event = field(default_factory=asyncio.Event)
    _open: asyncio.Future[Connection] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )
    _gone: str = ""
    _changed: bool = False
    _renewals: int = 0
    _calls: int = 0
    _late: int = 0
    _asking: int = 0
    _used: float = 0.0
    _failures: int = 0
    _not_before: float = 0.0
    _lines: int = 0
    _last_lines: deque[str] = field(default_factory=lambda: deque(maxlen=_KEPT_LINES))

    def start(self, *, now: bool) -> None:
        """Begin to look after it; with `now` it is connected at once, else when it is called."""
        if now:
            self._wanted.set()
        self._task = asyncio.create_task(self._serve(), name=f"mcp {self.name}")

    async def close(self) -> None:
        """Let go of it, and wait until its program has ended."""
        if self._task is None:
            return
        for _ in range(2):  # a server over HTTP may not even answer that it is let go
            self._task.cancel()
            await asyncio.wait({self._task}, timeout=FAREWELL)
        self._refuse("it is being let go")

    async def call(self, tool: str, args: Mapping[str, Json]) -> CallToolResult:
        """Call a tool, on a server that is begun first if need be. Raises: ToolError."""
        self._calls += 1
        try:
            for _ in range(2):
                connection = await self._connection()
                self._asking += 1
                try:
                    result = await connection.call(tool, args, self.timeout)
                except Late:
                    await self._look_after(connection)
                    raise
                except Lost as lost:
                    self._lose_one(connection, str(lost))
                    if lost.ran:
                        raise ToolError(
                            f"the MCP server {self.name} was lost during the call: {self._gone or lost}. "
                            "It may have had an effect; check before you try again."
                        ) from lost
                else:
                    self._late = 0
                    return result
                finally:
                    self._asking -= 1
                    self._news.set()
            raise ToolError(f"the MCP server {self.name} forgets its sessions; nothing was run")
        finally:
            self._calls -= 1
            self._used = self.clock.now()
            self._news.set()

    async def _look_after(self, connection: Connection) -> None:
        """Let go of a program that hangs, so that it is begun again; one that is only slow goes on."""
        self._late += 1
        if self._late >= MOST_LATE and not await connection.answers(min(PATIENCE, self.timeout)):
            self._lose_one(connection, "it does not answer any more")

    def _lose_one(self, connection: Connection, why: str) -> None:
        if self._open.done() and self._open.result() is connection:  # and not a newer one
            self._lose(why)

    async def _connection(self) -> Connection:
        """Return the connection, made if there is none. Raises: ToolError."""
        self._wanted.set()
        left = self._not_before - self.clock.now()
        if self._task is None or (left > PATIENCE and not self._open.done()):
            raise ToolError(
                f"the MCP server {self.name} is down: {self.problem or 'it is not looked after'}. "
                f"It is begun again in {max(left, 0):.0f} seconds."
            )
        return await asyncio.shield(self._open)

    async def _serve(self) -> None:
        """Connect whenever it is wanted, and again after each failure; later and later."""
        while True:
            await self._wanted.wait()
            if (wait := self._not_before - self.clock.now()) > 0:
                await self.clock.sleep(wait)
            began = self.clock.now()
            try:
                await self._hold()
            except Exception as error:  # noqa: BLE001 - whatever a server does, it is begun again
                self._failed(error, lasted=self.clock.now() - began)

    async def _hold(self) -> None:
        """Connect, and stay connected until it is idle. Raises: whatever ends the connection."""
        self.state, self._gone, self._lines, self._renewals = "starting", "", 0, 0
        self._late = 0
        self._last_lines.clear()
        async with self._connected() as connection:
            self.state, self.problem, self.about = "up", "", connection.server
            log.info("mcp.up", extra={"server": self.name, "about": self.about})
            self._used = self.clock.now()
            self._open.set_result(connection)
            while not self._is_idle():
                await self._wait()
                if self._gone:
                    await self._settle()
                    raise ToolError(self._gone)
                if self._changed and self._renewals < MAX_RENEWALS:
                    self._renewals += 1
                    await self._ask_for_tools(connection)
            # From here on a call waits for the next connection.
            self._wanted.clear()
            self._reopen()
            self.state = "idle"

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[Connection]:
        limit = asyncio.timeout(self.ready_within)
        try:
            async with limit, self.connect(self._said, self._lose, self._renew) as connection:
                await self._ask_for_tools(connection)
                limit.reschedule(None)
                yield connection
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise ToolError(f"it was not ready within {self.ready_within:g} seconds") from error

    async def _ask_for_tools(self, connection: Connection) -> None:
        self._changed = False
        self.found(await asyncio.to_thread(listing, await connection.tools()))

    async def _settle(self) -> None:
        """Let the calls that are being made hear by themselves that nothing was run, if it was not."""
        with suppress(TimeoutError):
            async with asyncio.timeout(SETTLE):
                while self._asking:
                    self._news.clear()
                    await self._news.wait()

    def _is_idle(self) -> bool:
        return self.idle > 0 and not self._calls and self.clock.now() - self._used >= self.idle

    async def _wait(self) -> None:
        """Wait for anything that matters, or until it is idle."""
        self._news.clear()
        if self._gone:
            return
        waits: list[asyncio.Task[object]] = [asyncio.create_task(self._news.wait())]
        if self.idle and not self._calls:
            left = self._used + self.idle - self.clock.now()
            waits.append(asyncio.create_task(self.clock.sleep(max(left, 0))))
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in waits:
                one.cancel()

    def _failed(self, error: Exception, *, lasted: float) -> None:
        self._failures = 1 if lasted >= STEADY else self._failures + 1
        wait = min(BACKOFF * 2 ** min(self._failures - 1, 10), LONGEST_BACKOFF)
        self._not_before = self.clock.now() + wait
        self.problem = self.redact(cause(error, self._gone))
        was_up, self.state = self.state == "up", "down"
        said = " | ".join(self._last_lines)
        log.warning(
            "mcp.down",
            extra={"server": self.name, "problem": self.problem, "again_in": wait, "said": said},
        )
        if was_up:
            self._reopen()
        if not was_up or wait > PATIENCE:
            self._refuse(f"it is down: {self.problem}")

    def _reopen(self) -> None:
        """Have calls wait for the next connection."""
        if self._open.done():
            self._open = asyncio.get_running_loop().create_future()

    def _refuse(self, why: str) -> None:
        """Fail the calls that wait for a connection."""
        if not self._open.done():
            self._open.set_exception(ToolError(f"the MCP server {self.name} can't be used: {why}"))
            self._open.exception()  # nobody need have waited for it
        self._reopen()

    def _lose(self, why: str) -> None:
        self._gone = self._gone or why
        self._reopen()
        self._news.set()

    def _renew(self) -> None:
        self._changed = True
        self._news.set()

    def _said(self, line: str) -> None:
        self._lines += 1
        self._last_lines.append(line[:200])
        if self._lines <= _MAX_LINES:
            log.info("mcp.said", extra={"server": self.name, "text": line})
        elif self._lines == _MAX_LINES + 1:
            log.info("mcp.said", extra={"server": self.name, "text": "(what it says further is not logged)"})


def cause(error: Exception, gone: str) -> str:
    """Return why a connection has ended, in a few words; that it was lost tells the least."""
    causes = list(leaves(error))
    known = [one for one in causes if isinstance(one, ToolError)]
    told = next((str(one) for one in known if not isinstance(one, Lost)), "")
    return (told or gone or f"{type(causes[0]).__name__}: {causes[0]}")[:300]
