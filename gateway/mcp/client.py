"""A connection to a server, over the pipes of a program or over HTTP.

Imports the library, so it is imported only when a server is wanted.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from urllib.parse import urlsplit

import httpx2
from mcp import Client
from mcp.client._transport import TransportStreams
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from mcp_types import (
    CONNECTION_CLOSED,
    INVALID_REQUEST,
    REQUEST_TIMEOUT,
    CallToolRequest,
    CallToolRequestParams,
    CallToolResult,
    EmptyResult,
    Implementation,
    PaginatedRequestParams,
    PingRequest,
    ToolListChangedNotification,
)

from gateway import __version__
from gateway.config import is_loopback
from gateway.errors import ToolError
from gateway.fence import fenced
from gateway.mcp.server import CONNECT, Late, Lost
from gateway.mcp.stdio import MAX_MESSAGE, program
from gateway.mcp.target import Program, Site, Target
from gateway.types import Json, JsonObject

MAX_PAGES = 20
"""Pages of a list of tools."""

_WAIT = 30.0

# These tell whole addresses and messages, also at INFO and ERROR.
for _name in ("mcp", "httpx2", "httpcore2"):
    logging.getLogger(_name).setLevel(logging.CRITICAL)


@dataclass(frozen=True, slots=True)
class Connection:
    """What a server can be asked; from any task."""

    _client: Client

    @property
    def server(self) -> str:
        """Return what the server calls itself."""
        info = self._client.server_info
        return f"{info.name} {info.version}".strip()[:100] if info else ""

    async def tools(self) -> list[JsonObject]:
        """Return what it lists, as on the wire (MCP tools/list). Raises: ToolError."""
        if self._client.server_capabilities.tools is None:
            return []
        found: list[JsonObject] = []
        cursor: str | None = None
        for _ in range(MAX_PAGES):
            with _translated():
                page = await self._client.session.list_tools(params=PaginatedRequestParams(cursor=cursor))
            found += [one.model_dump(by_alias=True, mode="json", exclude_none=True) for one in page.tools]
            cursor = page.next_cursor
            if not cursor:
                return found
        raise ToolError(f"its list of tools has more than {MAX_PAGES} pages")

    async def call(self, tool: str, args: Mapping[str, Json], seconds: float) -> CallToolResult:
        """Call a tool (MCP tools/call).

        Results are not checked against the server's own schema of them: that schema could make the check take
        for ever.

        Raises: Lost; Late; ToolError.
        """
        request = CallToolRequest(params=CallToolRequestParams(name=tool, arguments=dict(args)))
        with _translated():
            return await self._client.session.send_request(request, CallToolResult, seconds)

    async def answers(self, seconds: float) -> bool:
        """Return whether it says anything to a ping (MCP ping), if only that it knows none."""
        try:
            with _translated():
                await self._client.session.send_request(PingRequest(), EmptyResult, seconds)
        except (Late, Lost):
            return False
        except ToolError:
            return True
        return True


@contextmanager
def _translated() -> Iterator[None]:
    """Turn what the library raises into our errors."""
    try:
        yield
    except MCPError as error:
        if error.code == CONNECTION_CLOSED:
            raise Lost("the connection was lost", ran=True) from error
        if error.code == INVALID_REQUEST and error.message == "Session terminated":
            raise Lost("the server has forgotten this session", ran=False) from error
        if error.code == REQUEST_TIMEOUT:
            raise Late("no answer in time; it may have had an effect") from error
        why = fenced(error.message[:1000], "words of an MCP server")
        raise ToolError(f"the server refused it: {why}") from error
    except (ValueError, RuntimeError, AttributeError, TypeError) as error:
        raise ToolError("the server's answer is not what the protocol asks for") from error


@asynccontextmanager
async def connect(
    target: Target, said: Callable[[str], None], gone: Callable[[str], None], changed: Callable[[], None]
) -> AsyncIterator[Connection]:
    """Connect to a server; to be entered and left in one task, because of the library's cancel scopes.

    `said` gets what a program says beside the protocol, `gone` the reason when it has ended; `changed` is
    called when the list of tools is another.

    Raises: ToolError, also in a group of exceptions.
    """

    async def heard(message: object) -> None:
        if isinstance(message, ToolListChangedNotification):
            changed()

    transport = program(target, said, gone) if isinstance(target, Program) else _over_http(target)
    client = Client(
        transport,
        client_info=Implementation(name="crayfish", version=__version__),
        message_handler=heard,
        read_timeout_seconds=CONNECT,
        cache=None,
    )
    async with client:
        yield Connection(client)


@asynccontextmanager
async def _over_http(site: Site) -> AsyncIterator[TransportStreams]:
    """Exchange messages with a server by HTTP (MCP streamable HTTP transport).

    The library follows redirects only within the address's own origin.
    """
    async with (
        httpx2.AsyncClient(
            headers={**site.headers, "Accept-Encoding": "identity"},
            timeout=httpx2.Timeout(_WAIT, read=site.patience),
            event_hooks={"response": [_vet]},
            # A proxy of the environment can't reach what is on this machine.
            trust_env=not is_loopback(urlsplit(site.url).hostname or ""),
        ) as http,
        streamable_http_client(site.url, http_client=http, max_sse_event_size=MAX_MESSAGE) as streams,
    ):
        yield streams


async def _vet(response: httpx2.Response) -> None:
    """Refuse an answer that ends the connection, and bound all others. Raises: ToolError."""
    if response.status_code in (401, 403):
        raise ToolError(f"it answers {response.status_code}: check the headers in the configuration")
    if not response.headers.get("content-type", "").startswith("text/event-stream"):
        response.stream = _Bounded(response.stream)


class _Bounded(httpx2.AsyncByteStream):
    """A body that fails when it becomes too long; events of a stream are bounded one by one."""

    def __init__(self, body: httpx2.SyncByteStream | httpx2.AsyncByteStream) -> None:
        assert isinstance(body, httpx2.AsyncByteStream)
        self._body = body

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for chunk in self._body:
            size += len(chunk)
            if size > MAX_MESSAGE:
                raise ToolError(f"its answer has more than {MAX_MESSAGE} bytes")
            yield chunk

    async def aclose(self) -> None:
        await self._body.aclose()
