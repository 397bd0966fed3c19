"""Programs that run for the agent: started, listened to, limited in time and output, and ended as a whole."""

from __future__ import annotations

import asyncio
import functools
import os
import re
import shutil
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from gateway.clock import Clock
from gateway.errors import ToolError
from gateway.tools.paths import reason

MAX_OUTPUT = 20_000_000
"""Bytes that a program may print before it is ended: what prints more will not be read by anybody."""

MAX_RUNNING = 8
"""Programs that one conversation may have at work."""

MAX_TOGETHER = 64
"""Programs of all conversations together."""

MAX_ENDED = 20
"""Programs of one conversation that have ended and are still remembered."""

OWN, FOREIGN = "p", "w"
"""How the ids of programs begin. `FOREIGN` are those that show what strangers wrote: the id alone tells."""

GRACE = 2.0
"""Seconds between asking a program to end and ending it."""

_DRAIN = 0.5
_ESCAPE = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\^_])")


class Ending(StrEnum):
    """Why a program was ended from outside."""

    TIMEOUT = "it reached its time limit"
    OUTPUT = "it printed more than 20 MB"
    STOPPED = "it was stopped"


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """What to start. `shown` is what it is called; `timeout` is in seconds, `most` in bytes of output.

    `temporary` is a folder to make, and to remove in the end; `stdin` is what it reads. `sweep` is whether
    programs may have left its process group, so that the whole session must be looked for. `foreign` is
    whether it shows what strangers wrote.
    """

    argv: Sequence[str]
    cwd: Path
    env: Mapping[str, str]
    shown: str
    timeout: float
    most: int = 50_000
    temporary: Path | None = None
    stdin: bytes = b""
    sweep: bool = True
    foreign: bool = False


@dataclass(slots=True)
class Output:
    """The beginning and the end of what a program prints, `most` bytes together; `total` is all of it."""

    most: int
    total: int = 0
    head: bytearray = field(default_factory=bytearray)
    tail: bytearray = field(default_factory=bytearray)

    def add(self, data: bytes) -> None:
        self.total += len(data)
        room = max(0, self.most // 2 - len(self.head))
        self.head += data[:room]
        self.tail += data[room:]
        if len(self.tail) > self.most:  # cut in large steps: twice the room, then back to it
            del self.tail[: len(self.tail) - self.most // 2]

    def text(self) -> str:
        """Return what is kept, with a note where something is missing."""
        tail = bytes(self.tail[-(self.most // 2) :])
        missing = self.total - len(self.head) - len(tail)
        if missing <= 0:
            return _decoded(bytes(self.head) + tail)
        return (
            f"{_decoded(bytes(self.head))}\n[{missing} of {self.total} bytes left out here]\n{_decoded(tail)}"
        )

    def since(self, seen: int) -> str:
        """Return what came after the first `seen` bytes, as far as it is kept."""
        new = self.total - seen
        kept = bytes(self.head) + bytes(self.tail)
        if self.total > len(kept):
            kept = bytes(self.tail[-(self.most // 2) :])
        missing = max(0, new - len(kept))
        note = f"[{missing} bytes left out here]\n" if missing else ""
        return note + _decoded(kept[len(kept) - min(new, len(kept)) :])


@dataclass(slots=True)
class Process:
    """A program at work, or what is left of it. `code` is its exit code, minus the signal that ended it."""

    id: str
    launch: Launch
    started: float
    output: Output
    ended: float | None = None
    code: int = 0
    ending: Ending | None = None
    seen: int = 0
    done: asyncio.Event = field(default_factory=asyncio.Event)
    news: asyncio.Event = field(default_factory=asyncio.Event)
    wanted: asyncio.Event = field(default_factory=asyncio.Event)

    def end(self, why: Ending) -> None:
        """Have it ended soon; the first reason stays."""
        if self.ending is None and not self.done.is_set():
            self.ending = why
            self.wanted.set()


class _Sink(asyncio.Protocol):
    """Takes what comes out of a program."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self.closed = asyncio.Event()

    def data_received(self, data: bytes) -> None:
        self._process.output.add(data)
        self._process.news.set()
        if self._process.output.total > MAX_OUTPUT:
            self._process.end(Ending.OUTPUT)

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self.closed.set()


class Processes:
    """All programs of this gateway, by the conversation that started them."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._by_owner: dict[int, dict[str, Process]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._starting: set[asyncio.Future[Process]] = set()
        self._count = 0

    async def start(self, owner: int, launch: Launch) -> Process:
        """Start a program for a conversation.

        Raises: ToolError when too many run, or when it can't be started.
        """
        # What is half started can't be ended as a whole: it is started first, even for a call that is gone.
        starting = asyncio.ensure_future(self._started(owner, launch))
        self._starting.add(starting)
        starting.add_done_callback(self._starting.discard)
        try:
            return await asyncio.shield(starting)
        except asyncio.CancelledError:
            starting.add_done_callback(_end)
            raise

    async def _started(self, owner: int, launch: Launch) -> Process:
        try:
            if launch.temporary is not None:
                await asyncio.to_thread(functools.partial(launch.temporary.mkdir, mode=0o700))
            return await self._start(owner, launch)
        except BaseException:
            await _remove(launch.temporary)
            raise

    async def _start(self, owner: int, launch: Launch) -> Process:
        running = sum(not one.done.is_set() for one in self.of(owner))
        if running >= MAX_RUNNING or len(self._tasks) >= MAX_TOGETHER:
            raise ToolError("Too many programs are running. End one with the tool process, or wait.")
        self._count += 1
        name = f"{FOREIGN if launch.foreign else OWN}{self._count}"
        process = Process(name, launch, self._clock.now(), Output(launch.most))
        reading, writing = os.pipe()
        try:
            pipe = os.fdopen(reading, "rb", buffering=0)
            loop = asyncio.get_running_loop()
            transport, sink = await loop.connect_read_pipe(lambda: _Sink(process), pipe)
            try:
                program = await asyncio.create_subprocess_exec(
                    *launch.argv,
                    cwd=launch.cwd,
                    env=launch.env,
                    stdin=asyncio.subprocess.PIPE if launch.stdin else asyncio.subprocess.DEVNULL,
                    stdout=writing,
                    stderr=writing,
                    start_new_session=True,
                )
            except BaseException:
                transport.close()
                raise
        except (OSError, ValueError) as error:
            what = reason(error) if isinstance(error, OSError) else str(error)
            raise ToolError(f"The command could not be started: {what}.") from error
        finally:
            os.close(writing)
        if program.stdin is not None:  # what it does not read goes with it
            program.stdin.write(launch.stdin)
            program.stdin.close()
        self._by_owner.setdefault(owner, {})[process.id] = process
        task = asyncio.create_task(self._accompany(process, program, sink, transport))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return process

    def of(self, owner: int) -> list[Process]:
        """Return what a conversation has started, the oldest first."""
        return list(self._by_owner.get(owner, {}).values())

    def get(self, owner: int, name: str) -> Process | None:
        """Return one of a conversation's programs; those of others don't exist for it."""
        return self._by_owner.get(owner, {}).get(name)

    def forget(self, owner: int, process: Process) -> None:
        """Drop a program that has ended."""
        mine = self._by_owner.get(owner, {})
        if process.done.is_set():
            mine.pop(process.id, None)
        for old in [one for one in mine.values() if one.done.is_set()][:-MAX_ENDED]:
            del mine[old.id]
        if not mine:
            self._by_owner.pop(owner, None)

    async def close(self) -> None:
        """End everything, and wait until it has ended."""
        if self._starting:
            await asyncio.wait(set(self._starting))
        for mine in self._by_owner.values():
            for process in mine.values():
                process.end(Ending.STOPPED)
        while self._tasks:
            await asyncio.wait(set(self._tasks))

    async def _accompany(
        self,
        process: Process,
        program: asyncio.subprocess.Process,
        sink: _Sink,
        transport: asyncio.ReadTransport,
    ) -> None:
        """Listen to a program until it has ended, and end what it leaves behind."""
        exited = asyncio.ensure_future(program.wait())
        wanted = asyncio.ensure_future(process.wanted.wait())
        try:
            await asyncio.wait(
                {exited, wanted}, timeout=process.launch.timeout, return_when=asyncio.FIRST_COMPLETED
            )
            if not exited.done():
                process.end(Ending.TIMEOUT)
                signal_group(program.pid, signal.SIGTERM)
                await asyncio.wait({exited}, timeout=GRACE)
        finally:
            wanted.cancel()
            signal_group(program.pid, signal.SIGKILL)
            if process.launch.sweep:
                await asyncio.to_thread(sweep, program.pid)
            process.code = await exited
            with suppress(TimeoutError):
                await asyncio.wait_for(sink.closed.wait(), _DRAIN)
            transport.close()
            await _remove(process.launch.temporary)
            process.ended = self._clock.now()
            process.done.set()
            process.news.set()


def _end(starting: asyncio.Future[Process]) -> None:
    if not starting.cancelled() and starting.exception() is None:
        starting.result().end(Ending.STOPPED)


def signal_group(group: int, number: signal.Signals) -> None:
    """Send a signal to every process of a group, if there is one."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def sweep(session: int) -> None:
    """End every process of a session, also those in process groups of their own."""
    for _ in range(10):
        found = [one for one in _session(session) if one != os.getpid()]
        if not found:
            return
        for one in found:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(one, signal.SIGKILL)


def _session(session: int) -> Iterator[int]:
    """Yield the living processes of a session (proc(5): field 3 is the state, field 6 the session)."""
    for name in os.listdir("/proc") if Path("/proc").is_dir() else ():  # noqa: PTH208 - only names, and many of them
        if not name.isdigit():
            continue
        with suppress(OSError, ValueError, IndexError), open(f"/proc/{name}/stat", "rb", buffering=0) as file:  # noqa: PTH123 - at every command
            fields = file.read(1000).rpartition(b")")[2].split()
            if int(fields[3]) == session and fields[0] not in (b"Z", b"X"):
                yield int(name)


async def _remove(folder: Path | None) -> None:
    if folder is not None:
        await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)


def _decoded(data: bytes) -> str:
    """Return text without what moves a terminal's cursor."""
    return _ESCAPE.sub(b"", data).decode("utf-8", "replace").replace("\r\n", "\n")
