"""Fetches what was written while nobody listened, from the last message that was stored."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from adapters.slack.client import SlackApi
from adapters.slack.errors import Gone, Refused
from adapters.slack.listen import Listener
from gateway.channel import Cursor
from gateway.clock import Clock
from gateway.errors import ChannelStopped, DeliveryRetry, SendError, StoreError
from gateway.types import Address, JsonObject

log = logging.getLogger(__name__)

OVERLAP: Final = 60.0
"""Seconds before the last stored message that are looked at again: chats are not stored in one order."""

OLDEST: Final = 24 * 3600.0
"""Seconds of the past that are looked at; nobody waits for an older answer."""

CHATS: Final = 50
THREADS: Final = 50
"""How many chats and threads are asked for, the last used ones first."""

PAGE, PAGES = "200", 3
PATIENCE: Final = 60.0
"""Seconds that a limited request may be put off; beyond that its chat is left out."""

Recent: TypeAlias = Callable[[], Awaitable[Sequence[Address]]]
"""`await recent()`: the conversations of this channel, the last used ones first."""


@dataclass(slots=True, kw_only=True)
class CatchUp:
    """Reads histories once after each gap. What is known already is not taken twice.

    From `left` until the gap is read, the stored cursor stays where it was: a process that dies meanwhile
    begins there again.
    """

    api: SlackApi
    listener: Listener
    clock: Clock
    recent: Recent
    _since: str | None = None
    _running: bool = False
    _wake: asyncio.Event = field(default_factory=asyncio.Event)
    _found: int = 0

    def left(self) -> None:
        """Note that nobody may be listening from now on."""
        if self._since is None:
            self._since = self.listener.seen
            self.listener.catching_up = True

    def back(self, *, gap: bool) -> None:
        """Note that somebody listens again, and whether something may have been missed."""
        if gap:
            self._wake.set()
        elif not self._running and not self._wake.is_set():
            self._settled()

    async def serve(self) -> None:
        """Read after each gap, until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            self._running = True
            try:
                await self._run(self._since or "")
            except (StoreError, SendError) as error:
                log.warning("slack.catch_up_failed", extra={"problem": str(error)})
                if isinstance(error, StoreError):
                    await self.clock.sleep(5.0)
                    self._wake.set()
            self._running = False
            if not self._wake.is_set():
                self._settled()

    def _settled(self) -> None:
        self._since = None
        self.listener.catching_up = False

    async def _run(self, since: str) -> None:
        """Hand over what was written after `since`, a `ts`; what Slack does not let us read is left out.

        Raises: StoreError, ChannelStopped.
        """
        if not since:  # nothing was ever stored, so nothing is missed
            return
        oldest = f"{max(float(since) - OVERLAP, self.clock.wall() - OLDEST):.6f}"
        self._found = 0
        known = await self.recent()
        try:
            chats = await self._chats(known)
            threads = {f"{one.chat}:{one.thread}": one for one in known if one.thread}
            for chat in chats:
                with suppress(Gone):
                    await self._chat(chat, oldest, threads)
            for address in list(threads.values())[:THREADS]:
                with suppress(Gone):
                    await self._thread(address, oldest)
        except (ChannelStopped, StoreError):
            raise
        except SendError as error:
            log.warning("slack.catch_up_incomplete", extra={"problem": str(error), "found": self._found})
        log.info("slack.caught_up", extra={"since": since, "read": self._found})
        if self.listener.seen:
            await self.listener.accept((), cursor=Cursor(self.listener.cursor, self.listener.seen))

    async def _chats(self, known: Sequence[Address]) -> list[str]:
        """Return the chats to look into: those in use, then those the bot is a member of."""
        chats = dict.fromkeys(one.chat for one in known)
        try:
            answer = await self._call(
                "users.conversations",
                types="public_channel,private_channel,mpim,im",
                exclude_archived=True,
                limit=PAGE,
            )
        except Refused as error:
            log.info("slack.chats_unknown", extra={"problem": str(error)})
        else:
            chats |= dict.fromkeys(str(one["id"]) for one in answer.get("channels") or ())
        return list(chats)[:CHATS]

    async def _chat(self, chat: str, oldest: str, threads: dict[str, Address]) -> None:
        """Take in the messages of a chat, and note the threads that have gone on since."""
        async with self.listener.lane(chat):
            found = [one async for one in self._pages("conversations.history", oldest, channel=chat)]
            for message in sorted(found, key=_ts):
                await self._put(message, chat)
        for message in found:
            if str(message.get("latest_reply") or "") > oldest:
                address = Address("", chat, _ts(message))
                threads.setdefault(f"{chat}:{address.thread}", address)

    async def _thread(self, address: Address, oldest: str) -> None:
        async with self.listener.lane(address.chat):
            pages = self._pages("conversations.replies", oldest, channel=address.chat, ts=address.thread)
            for message in sorted([one async for one in pages], key=_ts):
                if _ts(message) > oldest:  # the first message of a thread comes with every answer
                    await self._put(message, address.chat)

    async def _put(self, message: JsonObject, chat: str) -> None:
        self._found += 1
        key = f"{self.listener.reader.message_key(chat, _ts(message))}:history"
        try:
            await self.listener.put({**message, "channel": chat}, key)
        except (ArithmeticError, AttributeError, KeyError, TypeError, ValueError) as error:
            log.warning("slack.history_unreadable", extra={"key": key, "problem": type(error).__name__})

    async def _pages(self, method: str, oldest: str, **args: str) -> AsyncIterator[JsonObject]:
        cursor: str | None = None
        for _ in range(PAGES):
            answer = await self._call(method, oldest=oldest, limit=PAGE, cursor=cursor, **args)
            for message in answer.get("messages") or ():
                yield message
            cursor = str((answer.get("response_metadata") or {}).get("next_cursor") or "") or None
            if cursor is None:
                return

    async def _call(self, method: str, **args: str | bool | None) -> JsonObject:
        """Call a method, and once more after the time that Slack asks for."""
        try:
            return await self.api.call(method, **args)
        except DeliveryRetry as error:
            if error.after > PATIENCE:
                raise
            await self.clock.sleep(max(error.after, 1.0))
            return await self.api.call(method, **args)


def _ts(message: JsonObject) -> str:
    return str(message.get("ts") or "")
