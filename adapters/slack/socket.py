"""Socket Mode: links that deliver events, each acknowledged after its commit, and replaced in time."""

from __future__ import annotations

import asyncio
import json
import logging
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, Protocol

from aiohttp import ClientError, ClientWebSocketResponse, WSMsgType

from adapters.slack.client import SlackApi
from adapters.slack.listen import Answer, Health
from gateway.clock import Clock
from gateway.errors import ChannelStopped, DeliveryRetry, SendError
from gateway.types import JsonObject

log = logging.getLogger(__name__)

PING: Final = 20.0
"""Seconds of silence after which a link is asked for a sign of life; it has half of that to answer, so a
half-open one is found within 30 s (reliability row 23)."""

HELLO: Final = 20.0
"""Seconds in which a new link must say hello; a ticket is good for one try (libraries 2)."""

RENEWED: Final = 3600.0
"""Seconds without any delivery after which another link takes over, answered pings or not (slack-in-15)."""

LEAVING: Final = 30.0
"""Seconds for which a link that was replaced still takes what comes."""

SHORT: Final = 10.0
"""Seconds that a link must have lived to be replaced without a pause."""

Dispatch = Callable[[JsonObject], Awaitable[Answer]]
"""Hands over one envelope; whatever is not answered with 200 is not acknowledged."""


class Back(Protocol):
    """Hears that a link is up."""

    def __call__(self, *, gap: bool) -> None: ...


class End(Enum):
    """Why a link needs a successor."""

    LEAVES = "Slack closes it soon"
    IDLE = "nothing came for long"
    LOST = "it is gone"


@dataclass(slots=True, eq=False)
class Link:
    """One connection."""

    ws: ClientWebSocketResponse
    dispatch: Dispatch
    clock: Clock
    greeted: asyncio.Event = field(default_factory=asyncio.Event)
    over: asyncio.Event = field(default_factory=asyncio.Event)
    end: End | None = None
    delivered_at: float = 0.0
    _handling: set[asyncio.Task[None]] = field(default_factory=set)
    _reading: asyncio.Task[None] | None = None

    def start(self) -> None:
        self.delivered_at = self.clock.now()
        self._reading = asyncio.create_task(self._read())

    async def hello(self, patience: float) -> None:
        """Wait so many seconds for Slack to deliver here. Raises: DeliveryRetry if that does not happen."""
        ended = asyncio.create_task(self.over.wait())
        greeted = asyncio.create_task(self.greeted.wait())
        try:
            await asyncio.wait({ended, greeted}, timeout=patience, return_when=asyncio.FIRST_COMPLETED)
        finally:
            ended.cancel()
            greeted.cancel()
        if not self.greeted.is_set():
            raise DeliveryRetry("Slack did not say hello on a new socket")

    async def close(self, patience: float = 0.0) -> None:
        """Let what was delivered be acknowledged for so many seconds, then hang up."""
        if self._handling and patience:
            await asyncio.wait(self._handling, timeout=patience)
        await self.ws.close()
        for task in (self._reading, *self._handling):
            if task is not None:
                task.cancel()

    async def _read(self) -> None:
        try:
            async for message in self.ws:
                if message.type is WSMsgType.TEXT:
                    self._take(message.data)
        except (ClientError, OSError) as error:
            log.info("slack.socket_broken", extra={"problem": type(error).__name__})
        finally:
            self._finish(End.LOST)

    def _take(self, data: str) -> None:
        try:
            frame = json.loads(data)
            kind, envelope = frame.get("type"), frame.get("envelope_id")
        except (ValueError, AttributeError, RecursionError):
            log.warning("slack.frame_unreadable", extra={"size": len(data)})
            return
        if kind == "hello":
            self.greeted.set()
        elif kind == "disconnect":
            log.info("slack.socket_leaves", extra={"reason": str(frame.get("reason"))})
            self._finish(End.LEAVES)
        elif envelope:
            self.delivered_at = self.clock.now()
            task = asyncio.create_task(self._handle(str(envelope), frame))
            self._handling.add(task)
            task.add_done_callback(self._handling.discard)

    async def _handle(self, envelope: str, frame: JsonObject) -> None:
        """Acknowledge an envelope once it is committed; else Slack delivers it again."""
        answer = await self.dispatch(frame)
        if answer.status != 200:
            return
        ack: JsonObject = {"envelope_id": envelope}
        if answer.body is not None and frame.get("accepts_response_payload"):
            ack["payload"] = answer.body
        with suppress(ClientError, OSError):  # the link is gone; what is known already is not taken twice
            await self.ws.send_json(ack)

    def _finish(self, end: End) -> None:
        if self.end is not End.LOST:
            self.end = end
        self.over.set()


@dataclass(slots=True, kw_only=True)
class Links:
    """Keeps one link open, and opens its successor before it closes.

    `left` is called when a link may be going, `back` when one is up, with whether there was a gap before.
    """

    api: SlackApi
    app_token: str = field(repr=False)
    dispatch: Dispatch
    clock: Clock
    health: Health
    jitter: random.Random
    left: Callable[[], None]
    back: Back
    ping: float = PING
    hello: float = HELLO
    _retiring: set[asyncio.Task[None]] = field(default_factory=set)

    async def run(self) -> None:
        """Listen until cancelled. Raises: ChannelStopped (the tokens are refused)."""
        link: Link | None = None
        failures = 0
        try:
            while True:
                try:
                    fresh = await self._open()
                except ChannelStopped:
                    raise
                except (SendError, TimeoutError) as error:
                    failures += 1
                    await self._wait(error, failures)
                    continue
                gap = link is None or link.end is End.LOST
                if link is not None:
                    self._retire(link)
                link = fresh
                self._is_up(gap=gap)
                began = self.clock.now()
                await self._until_over(link)
                self.left()
                failures = 0 if self.clock.now() - began >= SHORT else failures + 1
                if failures:
                    await self._wait(DeliveryRetry("the socket was closed at once"), failures)
        finally:
            for task in self._retiring:
                task.cancel()
            await asyncio.gather(*self._retiring, return_exceptions=True)
            if link is not None:
                await link.close(1.0)

    async def _open(self) -> Link:
        """Connect with a ticket of its own. Raises: SendError, TimeoutError."""
        url = await self.api.ticket(self.app_token)
        problem = ""
        try:
            async with asyncio.timeout(self.hello):
                ws = await self.api.http.ws_connect(
                    url, heartbeat=self.ping, proxy=self.api.proxy, max_msg_size=2**22
                )
        except (ClientError, OSError) as error:
            problem = type(error).__name__  # its text holds the URL, and that the ticket
        if problem:
            raise DeliveryRetry(f"Slack refused a socket: {problem}")
        link = Link(ws, self.dispatch, self.clock)
        link.start()
        try:
            await link.hello(self.hello)
        except DeliveryRetry:
            await link.close()
            raise
        return link

    async def _until_over(self, link: Link) -> None:
        """Wait until a link needs a successor."""
        watching = asyncio.create_task(self._watch(link))
        try:
            await link.over.wait()
        finally:
            watching.cancel()

    async def _watch(self, link: Link) -> None:
        """Replace a link that is open but brings nothing."""
        while (left := link.delivered_at + RENEWED - self.clock.now()) > 0:
            await self.clock.sleep(left)
        log.info("slack.socket_idle")
        link.end = link.end or End.IDLE
        link.over.set()

    def _retire(self, link: Link) -> None:
        """Close a link after its successor has opened; it may still bring something."""
        if link.end is End.LOST:
            self._keep(asyncio.create_task(link.close()))
            return

        async def later() -> None:
            try:
                await self.clock.sleep(LEAVING)
            finally:
                await link.close(1.0)

        self._keep(asyncio.create_task(later()))

    def _keep(self, task: asyncio.Task[None]) -> None:
        self._retiring.add(task)
        task.add_done_callback(self._retiring.discard)

    def _is_up(self, *, gap: bool) -> None:
        self.health.state, self.health.last_error = "listening", None
        self.health.sockets += 1
        log.info("slack.socket_open", extra={"number": self.health.sockets, "gap": gap})
        self.back(gap=gap)

    async def _wait(self, error: Exception, failures: int) -> None:
        """Wait 1 to 30 s, or as long as Slack asks."""
        asked = error.after if isinstance(error, DeliveryRetry) else 0.0
        most = min(30.0, 2.0 ** min(failures, 5))
        wait = max(asked, self.jitter.uniform(most / 2, most))
        told = str(error) or type(error).__name__
        self.health.state, self.health.last_error = "retrying", told
        log.warning("slack.socket_failed", extra={"problem": told, "wait": round(wait, 1)})
        await self.clock.sleep(wait)
