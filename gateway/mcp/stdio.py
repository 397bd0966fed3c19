"""A server that is a program: started with its own environment, listened to line by line, ended as a whole.

Imports the library, so it is imported only when a server is wanted.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.client._transport import TransportStreams
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter

from gateway.errors import ToolError
from gateway.mcp.target import Program
from gateway.tools.paths import reason
from gateway.tools.processes import signal_group, sweep

MAX_MESSAGE = 32 * 2**20
"""Bytes of one message: pictures come as text within it."""

GRACE = 2.0
"""Seconds for each way to end a program, the gentle one first (MCP 2025-11-25, Lifecycle, Shutdown)."""

_LARGE = 256 * 2**10
_MAX_SAID = 2000


@asynccontextmanager
async def program(
    what: Program, said: Callable[[str], None], gone: Callable[[str], None]
) -> AsyncIterator[TransportStreams]:
    """Start a program and exchange messages with it (MCP stdio transport); in the end it is gone.

    `said` gets each line of its stderr, `gone` is called once when no more comes, with the reason.

    Raises: ToolError when it can't be started.
    """
    process = await _start(what)
    to_us, incoming = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    outgoing, from_us = anyio.create_memory_object_stream[SessionMessage](0)
    async with anyio.create_task_group() as group:
        group.start_soon(_read, process, to_us, gone)
        group.start_soon(_write, process, from_us)
        group.start_soon(_listen, process, said)
        try:
            yield incoming, outgoing
        finally:
            with anyio.CancelScope(shield=True):
                outgoing.close()
                incoming.close()
                await _end(process)
            group.cancel_scope.cancel()


async def _start(what: Program) -> asyncio.subprocess.Process:
    path = await asyncio.to_thread(_prepare, what)
    try:
        return await asyncio.create_subprocess_exec(
            path,
            *what.args,
            cwd=what.cwd,
            env=what.env,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            limit=MAX_MESSAGE,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        why = reason(error) if isinstance(error, OSError) else str(error)
        raise ToolError(f"{what.command!r} could not be started: {why}") from error


def _prepare(what: Program) -> str:
    try:
        what.cwd.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ToolError(f"its folder {what.cwd} could not be made: {reason(error)}") from error
    return what.path


async def _read(
    process: asyncio.subprocess.Process,
    to_us: MemoryObjectSendStream[SessionMessage | Exception],
    gone: Callable[[str], None],
) -> None:
    """Hand on what it writes, until it ends or writes what can't be read."""
    assert process.stdout
    why = "it has ended"
    with to_us:
        try:
            while line := await process.stdout.readline():
                if line.strip():
                    await to_us.send(await _parsed(line))
        except ValueError:
            why = f"it wrote a line of more than {MAX_MESSAGE} bytes"
        except (ConnectionError, anyio.BrokenResourceError, anyio.ClosedResourceError):
            why = "the connection was closed"
        finally:
            gone(why)
        # Whoever is about to end still writes, and must not wait for a reader.
        with suppress(ConnectionError):
            while await process.stdout.read(_LARGE):
                pass


async def _parsed(line: bytes) -> SessionMessage | Exception:
    """Read a message; what is none, such as a greeting, is not the end."""
    try:
        if len(line) <= _LARGE:
            return SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
        parse = asyncio.to_thread(jsonrpc_message_adapter.validate_json, line, by_name=False)
        return SessionMessage(await parse)
    except ValueError:
        return ValueError("a line that is no message of the protocol")


async def _write(
    process: asyncio.subprocess.Process, from_us: MemoryObjectReceiveStream[SessionMessage]
) -> None:
    assert process.stdin
    with from_us, suppress(ConnectionError):
        async for message in from_us:
            text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
            process.stdin.write(text.encode() + b"\n")
            await process.stdin.drain()


async def _listen(process: asyncio.subprocess.Process, said: Callable[[str], None]) -> None:
    """Hand on what it says beside the protocol, cut at line ends and at a length."""
    assert process.stderr
    rest = b""
    while data := await process.stderr.read(65_536):
        *lines, rest = (rest + data).split(b"\n")
        lines, rest = ([*lines, rest], b"") if len(rest) > _MAX_SAID else (lines, rest)
        for line in lines:
            if text := line[:_MAX_SAID].decode("utf-8", "replace").strip():
                said(text)
    if rest:
        said(rest.decode("utf-8", "replace").strip())


async def _end(process: asyncio.subprocess.Process) -> None:
    """End a program and all that it has started: stdin closes, then SIGTERM, then SIGKILL."""
    assert process.stdin
    process.stdin.close()
    ended = asyncio.ensure_future(process.wait())
    try:
        await asyncio.wait({ended}, timeout=GRACE)
        if not ended.done():
            signal_group(process.pid, signal.SIGTERM)
            await asyncio.wait({ended}, timeout=GRACE)
    finally:
        signal_group(process.pid, signal.SIGKILL)
        await asyncio.to_thread(sweep, process.pid)
        await asyncio.wait({ended}, timeout=GRACE)
        ended.cancel()
