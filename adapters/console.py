"""The terminal: a channel for one person at this machine, and the same talk with a running gateway."""

from __future__ import annotations

import asyncio
import io
import json
import os
import re
import selectors
import stat
import sys
import threading
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from typing import Protocol, TextIO

from aiohttp import ClientError, ClientResponse, ClientSession, ClientTimeout

from gateway.channel import Accept
from gateway.clock import Clock, SystemClock
from gateway.errors import DeliveryRetry, StoreError
from gateway.feed import (
    Delta,
    Event,
    Feed,
    Restarted,
    Subscription,
    ToolEnded,
    ToolStarted,
    TurnEnded,
    TurnGone,
)
from gateway.types import Address, JsonObject, Outgoing, Receipt, Sender, Stimulus

PROMPT = "you> "
EXIT = "/exit"
LONGEST_LINE = 2**24
LONGEST_ARGS = 100
"""Characters of a tool's arguments that are shown."""

WAITS = 3
"""The exit code of a script whose line waits for a person to allow something, or for another day."""

GRACE = 10.0
"""Seconds after a turn's end in which its reply must come through the outbox; then it is shown anyway."""

_STRINGS = re.compile(r"(?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)")
_CONTROLS = {code: None for code in (*range(32), *range(0x7F, 0xA0)) if chr(code) not in "\n\t"} | {0x1B: "␛"}


def harmless(text: str) -> str:
    """Return text that can't steer a terminal: no C0 or C1 control, Escape shown as a sign (text-001..004).

    Strings that a terminal would act on (titles, clipboard) vanish as a whole.
    """
    return _STRINGS.sub("", text).translate(_CONTROLS)


class Terminal(Protocol):
    """Where lines come from and text goes to; `interactive` if a person types there."""

    @property
    def interactive(self) -> bool: ...

    def lines(self) -> AsyncGenerator[str, None]:
        """Yield each line without its end, until there are no more."""
        ...

    def write(self, text: str) -> None:
        """Show text; a prompt that waits for input stays below it."""
        ...

    def close(self) -> None:
        """Leave the terminal as it was found."""
        ...


@dataclass(slots=True)
class Pipe:
    """Standard input and output of a script."""

    source: TextIO
    target: TextIO
    interactive: bool = field(default=False, init=False)

    async def lines(self) -> AsyncGenerator[str, None]:
        """Yield the lines of a pipe as they come; what the loop can't watch is read in a thread."""
        if not _is_watchable(self.source):
            while line := await asyncio.to_thread(self.source.readline):
                yield line.rstrip("\r\n")
            return
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=LONGEST_LINE)
        transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), self.source)
        try:
            while raw := await reader.readline():
                yield raw.decode("utf-8", "replace").rstrip("\r\n")
        finally:
            transport.close()

    def write(self, text: str) -> None:
        """Write at once."""
        self.target.write(text)
        self.target.flush()

    def close(self) -> None:
        """Nothing was changed."""


@dataclass(slots=True)
class Keyboard:
    """A person at a terminal, with history and editing where `readline` exists.

    Lines are read in a daemon thread: a blocked read must not keep the program alive.
    """

    target: TextIO
    interactive: bool = field(default=True, init=False)
    _typed: Callable[[], str] = field(init=False)
    _restore: Callable[[], None] = field(init=False)
    _prompting: bool = field(default=False, init=False)
    _midline: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self._typed = _line_editor()
        self._restore = _terminal_mode()

    async def lines(self) -> AsyncGenerator[str, None]:
        """Yield what is typed; the end is Ctrl-D."""
        loop = asyncio.get_running_loop()
        while True:
            typed: asyncio.Future[str | None] = loop.create_future()
            threading.Thread(target=self._ask, args=(loop, typed), daemon=True).start()
            self._prompting = True
            line = await typed
            self._prompting = False
            if line is None:
                return
            yield line

    def _ask(self, loop: asyncio.AbstractEventLoop, typed: asyncio.Future[str | None]) -> None:
        line: str | None = None
        with suppress(EOFError, OSError):
            line = input(PROMPT)
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(_resolve, typed, line)

    def write(self, text: str) -> None:
        """Show text above the prompt, which comes back with what was typed so far once the line is full."""
        if self._prompting and not self._midline:
            self.target.write("\r\x1b[K")
        self._midline = not text.endswith("\n")
        self.target.write(text)
        if self._prompting and not self._midline:
            self.target.write(PROMPT + self._typed())
        self.target.flush()

    def close(self) -> None:
        """Bring back echo and line mode, which an interrupted `input` leaves off."""
        self._restore()


def stdio() -> Terminal:
    """Return the terminal or the pipe that this program was started with; what is closed is empty."""
    source, target = sys.stdin or io.StringIO(), sys.stdout or io.StringIO()
    if isinstance(source, io.TextIOWrapper):
        source.reconfigure(errors="replace")  # as a pipe is read: a bad byte must not end the talk
    if source.isatty() and target.isatty():
        return Keyboard(target)
    return Pipe(source, target)


def _is_watchable(source: TextIO) -> bool:
    """Return whether the loop can tell when there is more: not of files, nor of devices as /dev/null.

    The loop itself would notice only later, in a callback, and wait for ever.
    """
    try:
        mode = os.fstat(source.fileno()).st_mode
        with selectors.DefaultSelector() as selector:
            selector.register(source, selectors.EVENT_READ)
    except (OSError, ValueError):  # what has no descriptor raises both at once
        return False
    # Windows has no loop for pipes; other systems' selectors may take files.
    return os.name == "posix" and not stat.S_ISREG(mode)


@dataclass(slots=True)
class Screen:
    """What a terminal shows of a conversation. To a script only replies are shown."""

    terminal: Terminal
    _streamed: str = ""
    _midline: bool = False
    _last: str = ""

    def delta(self, text: str) -> None:
        """Show more of the reply that is being written."""
        if self.terminal.interactive:
            self._streamed += text
            self._show(text)

    def restart(self) -> None:
        """Void what was streamed."""
        if self._streamed:
            self._line("> once more")
        self._streamed = ""

    def tool(self, name: str, args: JsonObject) -> None:
        """Show that a tool call begins; text before it is no reply."""
        self._streamed = ""
        if self.terminal.interactive:
            self._line(f"> {name}: {_short(args)}" if args else f"> {name}")

    def plan(self, plan: str) -> None:
        """Show the plan of a longer task."""
        if self.terminal.interactive:
            self._line("\n".join(f"  {step}" for step in plan.splitlines()))

    def ended(self, text: str = "") -> None:
        """End the streamed line, with what `text`, the reply, has beyond it; `reply` won't repeat that."""
        rest = _beyond(self._streamed, text)
        if rest:
            self._show(rest)
            self._streamed += rest
        if self._midline:
            self._show("\n")

    def reply(self, text: str) -> None:
        """Show a message; of one whose beginning was streamed only the rest (the last word is held back)."""
        seen = _beyond(self._streamed, text) is not None
        if seen:
            self.ended(text)
        else:
            self._line(text)
        self._streamed, self._last = "", text

    def replaced(self, text: str) -> None:
        """Show in a line what takes the place of an older message, unless that was just said."""
        line = text.partition("\n")[0].replace("**", "")
        if line != self._last:
            self.reply(line)

    def _line(self, text: str) -> None:
        self.ended()
        self._show(f"{text}\n")

    def _show(self, text: str) -> None:
        shown = harmless(text)
        if shown:
            self.terminal.write(shown)
            self._midline = not shown.endswith("\n")


def _beyond(streamed: str, text: str) -> str | None:
    """Return what a message has beyond its streamed beginning, None if it does not begin so.

    Space around a message counts for nothing, space that was streamed is not shown again.
    """
    begun, whole = streamed.strip(), text.strip()
    if not begun or not whole.startswith(begun):
        return None
    return whole[len(begun) :].removeprefix(streamed[len(streamed.rstrip()) :])


@dataclass(slots=True, kw_only=True)
class Console:
    """The channel `console`. `listen` returns at `/exit` or when there are no more lines.

    A script's lines are answered one by one; a person's go in at once, so that `/stop` is heard. Where a
    script would have to allow something, or to wait for another day, it is shown the question or the notice,
    and that is the end: `code` is `WAITS`.
    """

    feed: Feed
    clock: Clock = field(default_factory=SystemClock)
    session: str = "main"
    terminal: Terminal = field(default_factory=stdio)
    name: str = field(default="console", init=False)
    code: int = field(default=0, init=False)
    _screen: Screen = field(init=False)
    _asked: str = field(default="", init=False)
    _final: str | None = field(default=None, init=False)
    _sent: list[str] = field(default_factory=list, init=False)
    _ended: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _answered: asyncio.Event = field(default_factory=asyncio.Event, init=False)

    def __post_init__(self) -> None:
        self._screen = Screen(self.terminal)

    @property
    def address(self) -> Address:
        """Return the conversation that this terminal shows."""
        return Address(self.name, self.session)

    async def open(self) -> None:
        """Nothing is to be loaded."""

    async def listen(self, accept: Accept) -> None:
        """Hand over every line until `/exit` or the end of input."""
        subscription = self.feed.subscribe(self.address)
        showing = asyncio.create_task(self._show(subscription))
        try:
            async with aclosing(self.terminal.lines()) as lines:
                async for line in lines:
                    if line.strip() == EXIT:
                        return
                    if line.strip():
                        await self._say(line, accept)
                    if self.code:
                        return
        finally:
            self.feed.unsubscribe(subscription)
            await showing

    async def send(self, message: Outgoing) -> Receipt:
        """Show a reply.

        Raises: DeliveryRetry when the terminal is gone.
        """
        await asyncio.sleep(0)  # events published before this call are shown first
        if message.key.startswith("limit:") and not self.terminal.interactive:
            return Receipt(message.key)  # it comes once a day, but each line of a script is told by an event
        here = message.address == self.address
        show = self._screen.replaced if message.replaces else self._screen.reply
        try:
            show(message.text if here else f"[{message.address.chat}] {message.text}")
        except OSError as error:
            raise DeliveryRetry(f"the terminal is gone: {error}", after=60.0) from None
        if here:
            self._sent.append(message.text)
            if message.key.startswith("approval:") and message.buttons and not self.terminal.interactive:
                self.code, self._final = WAITS, message.text
                self._ended.set()
            if message.key == f"command:{self._asked}":
                self._final = message.text
                self._ended.set()
            self._settle()
        return Receipt(message.key)

    def pieces(self, text: str) -> Sequence[str]:
        """Return the reply uncut: a terminal has no limit."""
        return [text] if text else []

    def status(self) -> dict[str, str | int | float | None]:
        """Return which conversation is shown."""
        return {"session": self.session}

    async def close(self) -> None:
        """Give the terminal back."""
        self.terminal.close()

    async def _say(self, line: str, accept: Accept) -> None:
        self._asked, self._final, self.code = f"console:{uuid.uuid4().hex}", None, 0
        self._sent.clear()
        self._ended.clear()
        self._answered.clear()
        stimulus = Stimulus(
            key=self._asked,
            address=self.address,
            sender=Sender("console", "console user"),
            text=line.replace("\0", ""),
            at=self.clock.wall(),
        )
        try:
            await accept([stimulus])
        except StoreError:
            if not self.terminal.interactive:
                raise
            self._screen.reply("! The database can't take it now. Send it again.")
            return
        if not self.terminal.interactive:
            await self._answer()

    async def _answer(self) -> None:
        """Wait until the turn has ended and its reply was delivered, or a script would end too early."""
        await self._ended.wait()
        with suppress(TimeoutError):
            async with asyncio.timeout(GRACE):
                await self._answered.wait()
        if not self._answered.is_set() and not self._sent:
            self._screen.reply(self._final or "")

    def _settle(self) -> None:
        if self._final is not None and self._final in ("", *self._sent):
            self._answered.set()

    async def _show(self, subscription: Subscription) -> None:
        async for _, event in subscription:
            self._happened(event)

    def _happened(self, event: Event) -> None:
        match event:
            case Delta(text):
                self._screen.delta(text)
            case Restarted():
                self._screen.restart()
            case ToolStarted(name, args):
                self._screen.tool(name, args)
            case ToolEnded(plan=plan) if plan:
                self._screen.plan(plan)
            case TurnGone(notice=text, keys=keys) if text and self._asked in keys:
                if not self.terminal.interactive:
                    self._screen.reply(text)
                    self._sent.append(text)
                    self.code, self._final = WAITS, text
                    self._ended.set()
                    self._settle()
            case TurnEnded(text, keys):
                self._screen.ended(text)
                if self._asked in keys:
                    self._final = text
                    self._ended.set()
                    self._settle()


async def chat_over_http(
    base_url: str, token: str, session: str = "main", terminal: Terminal | None = None
) -> int:
    """Talk with a running gateway through its HTTP face, in the web session `session`.

    Returns 0 at the end of input, 1 when the gateway can't be reached or refuses; the terminal says why.
    Returns `WAITS` when a script's line waits for a person to allow something, or for another day; the
    question or the notice was shown.
    """
    place = terminal or stdio()
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    limits = ClientTimeout(total=None, sock_connect=10)
    async with ClientSession(base_url.rstrip("/") + "/", headers=headers, timeout=limits) as client:
        remote = _Remote(client, session, Screen(place))
        watching = asyncio.create_task(remote.watch()) if place.interactive else None
        try:
            async with aclosing(place.lines()) as lines:
                async for line in lines:
                    if line.strip() == EXIT:
                        break
                    if line.strip() and (code := await remote.say(line, wait=not place.interactive)):
                        return code
        finally:
            if watching:
                watching.cancel()
                await asyncio.gather(watching, return_exceptions=True)
            place.close()
    return 0


def _what_for(answer: JsonObject) -> str:
    """Return the question or the notice of a message that waits, "" if there is neither."""
    question = answer.get("question")
    return str(question["text"] if question else answer.get("notice", ""))


@dataclass(slots=True)
class _Remote:
    """A session of a gateway in another process."""

    client: ClientSession
    session: str
    screen: Screen
    cursor: int | None = None

    async def say(self, line: str, *, wait: bool) -> int:
        """Send a line until the gateway has it (and its reply, with `wait`); return the exit code so far."""
        body = {"message": line, "session": self.session, "id": uuid.uuid4().hex, "wait": wait}
        for pause in (0.5, 1, 2, 4, 8, None):
            try:
                answer = await self._post(body)
                while wait and answer.get("pending") and not _what_for(answer):
                    answer = await self._post(body)
            except _Refused as error:
                self.screen.reply(f"! {error}")
                return 1
            except (ClientError, OSError, _Later) as error:
                if pause is None:
                    self.screen.reply(f"! The gateway does not answer: {error}")
                    return 1
                await asyncio.sleep(pause)
            else:
                return self._answered(answer)
        return 1

    def _answered(self, answer: JsonObject) -> int:
        if said := answer.get("reply") or _what_for(answer):
            self.screen.reply(said)
        return WAITS if _what_for(answer) else 0

    async def _post(self, body: JsonObject) -> JsonObject:
        async with self.client.post("api/chat", json=body) as response:
            await _check(response)
            return dict(await response.json())

    async def watch(self) -> None:
        """Show what happens in the session; comes back with its cursor whenever the stream ends."""
        while True:
            try:
                await self._follow()
            except _Refused as error:
                self.screen.reply(f"! {error}")
                return
            except (ClientError, OSError, _Later):
                self.screen.ended()
            await asyncio.sleep(1)

    async def _follow(self) -> None:
        params = {"session": self.session}
        if self.cursor is not None:
            params["after"] = str(self.cursor)
        async with self.client.get("sse", params=params) as response:
            await _check(response)
            async for number, event in _frames(response):
                self._happened(event)
                self.cursor = number

    def _happened(self, event: JsonObject) -> None:
        match event:
            case {"type": "delta", "text": str(text)}:
                self.screen.delta(text)
            case {"type": "restart"}:
                self.screen.restart()
            case {"type": "tool_start", "name": str(name), "args": dict(args)}:
                self.screen.tool(name, args)
            case {"type": "tool_end", "plan": str(plan)}:
                self.screen.plan(plan)
            case {"type": "message", "text": str(text), "replaces": _}:
                self.screen.replaced(text)
            case {"type": "message", "text": str(text)}:
                self.screen.reply(text)
            case {"type": "task_complete", "result": str(text)} | {"type": "task_error", "error": str(text)}:
                self.screen.ended(text)


class _Refused(Exception):
    """The gateway won't take it, however often it is sent."""


class _Later(Exception):
    """The gateway can't take it now."""


async def _check(response: ClientResponse) -> None:
    """Raise _Later or _Refused unless the gateway agrees."""
    if response.status == 200:
        return
    reason = f"HTTP {response.status}"
    with suppress(ClientError, ValueError, KeyError, TypeError):
        reason = str((await response.json())["error"]["message"])
    raise (_Later if response.status >= 500 else _Refused)(reason)


async def _frames(response: ClientResponse) -> AsyncIterator[tuple[int, JsonObject]]:
    """Yield the id and the JSON of each server-sent event; comments are skipped."""
    rest = b""
    async for chunk in response.content.iter_any():
        *whole, rest = (rest + chunk).split(b"\n\n")
        for frame in whole:
            fields = _fields(frame.decode().splitlines())
            if "data" in fields:
                yield int(fields.get("id", "0")), json.loads(fields["data"])


def _fields(lines: Iterable[str]) -> dict[str, str]:
    return {name: value for name, _, value in (line.partition(": ") for line in lines) if name}


def _short(args: JsonObject) -> str:
    text = " ".join(f"{name}={value}" for name, value in args.items()).replace("\n", " ")
    return text if len(text) <= LONGEST_ARGS else f"{text[:LONGEST_ARGS]}…"


def _resolve(typed: asyncio.Future[str | None], line: str | None) -> None:
    if not typed.done():
        typed.set_result(line)


def _line_editor() -> Callable[[], str]:
    """Switch on editing and history for `input`; return how to read the unfinished line."""
    try:
        import readline  # noqa: PLC0415 - some systems lack it
    except ImportError:
        return str
    return readline.get_line_buffer


def _terminal_mode() -> Callable[[], None]:
    """Remember the terminal's mode; return how to bring it back."""
    try:
        import termios  # noqa: PLC0415 - Windows lacks it

        where = sys.stdin.fileno()
        mode = termios.tcgetattr(where)
    except (ImportError, OSError, ValueError):
        return _nothing
    return lambda: termios.tcsetattr(where, termios.TCSANOW, mode)


def _nothing() -> None:
    """There is no mode to bring back."""
