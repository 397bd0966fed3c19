"""One Telegram bot as a channel: its own long-poll loop, and sends with honest outcomes."""

from __future__ import annotations

import asyncio
import gc
import logging
import random
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from adapters.telegram.errors import OtherPoller, WebhookSet
from adapters.telegram.text import clean, pieces
from adapters.telegram.updates import ALLOWED, read_batch
from gateway.channel import Accept, Cursor, Cursors
from gateway.clock import Clock
from gateway.errors import ChannelStopped, ConfigError, DeliveryRetry, GatewayError, SendError, StoreError
from gateway.types import Json, Outgoing, Receipt

if TYPE_CHECKING:
    from adapters.telegram.client import Api

log = logging.getLogger(__name__)

_STOPPED_PAUSE = 60.0
"""Seconds before a message is tried again while the token is refused: only a person can mend that."""


@dataclass(slots=True)
class _Stream:
    """Where the loop stands: `offset` is the first update id that is not stored yet."""

    bot_id: int
    cursor: str
    offset: int | None


@dataclass(slots=True)
class _Health:
    """What `/status` tells; `last_poll` is the wall time of the last answer in UNIX seconds."""

    state: str = "starting"
    username: str | None = None
    last_poll: float | None = None
    last_error: str | None = None


class Telegram:
    """A bot of @BotFather, in private chats.

    Raises: ConfigError if the token or `api_base` can't be right (spec TG-2, TG-6).
    """

    def __init__(
        self,
        *,
        token: str,
        api_base: str,
        clock: Clock,
        cursors: Cursors,
        poll_timeout: int = 50,
        name: str = "telegram",
        jitter: random.Random | None = None,
    ) -> None:
        """`poll_timeout` is how many seconds the platform may hold a poll that has nothing to tell."""
        _check(token, api_base)
        self._token = token
        self._api_base = api_base
        self._clock = clock
        self._cursors = cursors
        self._poll_timeout = poll_timeout
        self._name = name
        self._jitter = jitter or random.Random()  # noqa: S311 - spreads retries, guards nothing
        self._api: Api | None = None
        self._connecting = asyncio.Lock()
        self._health = _Health()

    @property
    def name(self) -> str:
        """Return the first part of this channel's addresses."""
        return self._name

    async def listen(self, accept: Accept) -> None:
        """Poll until cancelled; an update is confirmed only by the poll after its commit.

        Waits out the network, the database and other pollers. Raises: ChannelStopped (token refused).
        """
        api = await self._connect()
        try:
            await self._keep_polling(api, accept)
        except ChannelStopped as error:
            self._failed("stopped", error)
            raise
        finally:
            await api.hang_up()

    async def send(self, message: Outgoing) -> Receipt:
        """Deliver one piece as plain text (Bot API sendMessage).

        Raises: DeliveryRetry, also while the token is refused; DeliveryUnsure; DeliveryError.
        """
        api = await self._connect()
        try:
            return Receipt(await api.send(message.address.chat, clean(message.text)))
        except ChannelStopped as error:
            raise DeliveryRetry(str(error), after=_STOPPED_PAUSE) from error

    def pieces(self, text: str) -> Sequence[str]:
        """Cut a reply into what one message can hold."""
        return pieces(text)

    def status(self) -> dict[str, str | int | float | None]:
        """Return `state`, `username`, `last_poll` (UNIX seconds of the last answer) and `last_error`."""
        return asdict(self._health)

    async def close(self) -> None:
        """Close all connections."""
        if self._api:
            await self._api.close()

    async def _connect(self) -> Api:
        """Return the client; the first call loads it, in a thread, while the rest of the gateway starts."""
        async with self._connecting:
            if self._api is None:
                self._api = await asyncio.to_thread(_load, self._token, self._api_base)
            return self._api

    async def _keep_polling(self, api: Api, accept: Accept) -> None:
        stream: _Stream | None = None
        failures = 0
        while True:
            try:
                stream = stream or await self._greet(api)
                await self._poll(api, stream, accept)
                failures = 0
            except ChannelStopped:
                raise
            except (SendError, StoreError) as error:
                failures += 1
                await self._recover(api, error, failures)

    async def _greet(self, api: Api) -> _Stream:
        """Learn who the bot is, and where its stream was left (telegram-poll-07: each bot has its own)."""
        me = await api.me()
        cursor = f"{self._name}:{me.id}"
        stored = await self._cursors(cursor)
        self._health.state, self._health.username = "polling", me.username
        log.info("telegram.listening", extra={"bot": me.username})
        return _Stream(me.id, cursor, int(stored) if stored else None)

    async def _poll(self, api: Api, stream: _Stream, accept: Accept) -> None:
        """Ask once and hand over what came."""
        updates = await api.updates(stream.offset, wait=self._poll_timeout, allowed=ALLOWED)
        self._health.last_poll = self._clock.wall()
        if updates:
            await self._hand_over(updates, stream, accept)
        if self._health.last_error:
            log.info("telegram.polling_again")
        self._health.state, self._health.last_error = "polling", None

    async def _hand_over(self, updates: Sequence[Json], stream: _Stream, accept: Accept) -> None:
        """Have it committed, and only then move the offset."""
        batch = read_batch(updates, channel=self._name, bot_id=stream.bot_id)
        offset = batch.last + 1
        if stream.offset is not None and batch.last < stream.offset:
            # Ids may begin anew, and lower, after a week without updates (Bot API Update).
            counts = {"updates": len(updates), "skipped": 0, "stored": stream.offset, "offset": offset}
            log.warning("telegram.offset_reset", extra=counts)
        await accept(batch.stimuli, cursor=Cursor(stream.cursor, str(offset)), poison=batch.poison)
        stream.offset = offset

    async def _recover(self, api: Api, error: GatewayError, failures: int) -> None:
        """Do what helps after a failed poll, and wait 1 to 30 s, or 5 to 30 s for another poller."""
        shortest, asked = 1.0, 0.0
        match error:
            case OtherPoller():
                # A kept connection prolongs the conflict at the platform (spec TG-4).
                await api.hang_up()
                shortest = 5.0
            case WebhookSet():
                with suppress(SendError):  # the next poll tells whether it worked
                    await api.drop_webhook()
            case DeliveryRetry(after=after):
                asked = after
            case _:
                pass
        wait = max(asked, _back_off(failures, shortest, self._jitter))
        self._failed("another process polls" if isinstance(error, OtherPoller) else "retrying", error)
        log.warning("telegram.poll_failed", extra={"problem": str(error), "wait": round(wait, 1)})
        await self._clock.sleep(wait)

    def _failed(self, state: str, error: GatewayError) -> None:
        self._health.state, self._health.last_error = state, str(error)


def _check(token: str, api_base: str) -> None:
    if not re.fullmatch(r"[0-9]+:[A-Za-z0-9_-]+", token):
        raise ConfigError(
            "The Telegram token does not look like one. Copy the whole of it from @BotFather: digits, "
            "a colon, then letters and digits, with no spaces or quotes."
        )
    if not re.fullmatch(r"https?://[^\s{}]+", api_base) or f"/bot{token}" in api_base:
        raise ConfigError(
            "The Telegram api_base must be the root of a Bot API server, like https://api.telegram.org, "
            "without /bot and the token."
        )


def _back_off(failures: int, shortest: float, jitter: random.Random) -> float:
    """Return seconds to wait after the n-th failure in a row: twice as many each time, up to 30."""
    longest = min(30.0, shortest * 2 ** min(failures, 10))
    return jitter.uniform(longest / 2, longest)


def _load(token: str, api_base: str) -> Api:
    """Import aiogram, which takes 2 s of CPU for a thousand classes, and build the client on it.

    Without garbage collection in the meantime, which finds nothing and takes a seventh of that.
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        from adapters.telegram.client import Api  # noqa: PLC0415 - see above
    finally:
        if collecting:
            gc.enable()
    return Api(token, api_base)
