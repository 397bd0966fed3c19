"""One Telegram bot as a channel: how it is reached, how it listens, how it sends."""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from aiohttp import web

from adapters.telegram.client import Api
from adapters.telegram.gate import PER_SECOND, Gate
from adapters.telegram.listen import Listener, Webhook
from adapters.telegram.menu import Menus, offer
from adapters.telegram.methods import Method
from adapters.telegram.presence import Manner, Presence
from adapters.telegram.presses import Presses
from adapters.telegram.render import pieces
from adapters.telegram.sending import OpenFile, Sending, edit_of
from gateway.channel import Accept, Cursors, Move, Recall
from gateway.clock import Clock
from gateway.errors import ChannelStopped, ConfigError, DeliveryError, DeliveryRetry, DeliveryUnsure
from gateway.feed import Feed
from gateway.types import Attachment, Json, Outgoing, Receipt

_STOPPED_PAUSE = 60.0
"""Seconds before a message is tried again while the token is refused: only a person can mend that."""

_REQUEST = 15
"""Seconds for a question whether the platform is there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """How a bot is reached, and what of it.

    `proxy` is an HTTP proxy, `local_files` the folder of a local Bot API server on this machine, `largest`
    the bytes of a file that is fetched, `poll_timeout` the seconds for which the platform may hold a poll
    that has nothing to tell, `hears_all` whether some group is to be heard that does not name the bot.
    `sends_per_second` limits how fast it sends; 0 is as fast as the platform takes it, and as it comes on
    a server of one's own. `link_preview` is whether links show what is behind them.
    """

    proxy: str = field(default="", repr=False)
    local_files: Path | None = None
    webhook: Webhook | None = None
    largest: int = 20_000_000
    poll_timeout: int = 50
    hears_all: bool = False
    sends_per_second: float = 0.0
    link_preview: bool = True


class Telegram:
    """A bot of @BotFather.

    Raises: ConfigError if the token or `api_base` can't be right (spec TG-2, TG-6).
    """

    sends_files: Literal[True] = True

    def __init__(  # noqa: PLR0913 - all by name, and handed in by one place
        self,
        *,
        token: str,
        api_base: str,
        clock: Clock,
        cursors: Cursors,
        name: str = "telegram",
        link: Link | None = None,
        move: Move | None = None,
        recall: Recall | None = None,
        feed: Feed | None = None,
        manner: Manner | None = None,
        menus: Menus | None = None,
        open_file: OpenFile | None = None,
        jitter: random.Random | None = None,
    ) -> None:
        """`feed` tells what to show of turns that run, `menus` which commands to offer.

        `open_file` returns the content of a file that a message brings, by its path in the workspace.
        """
        _check(token, api_base)
        self._token = token
        self._api_base = api_base
        self._name = name
        self._link = link or Link()
        self._api: Api | None = None
        self._connecting = asyncio.Lock()
        self._clock = clock
        self._open_file = open_file or _no_files
        self._sending: Sending | None = None
        self._gate = _gate_for(api_base, self._link.sends_per_second)
        self._menus = menus or {}
        self._feed = feed or Feed()
        self._presence = Presence(
            channel=name, call=self._call, clock=clock, manner=manner or Manner(), gate=self._gate
        )
        self._feed.join(self._presence)
        self._presses = Presses(clock=clock)
        self._listener = Listener(
            name=name,
            clock=clock,
            cursors=cursors,
            poll_timeout=self._link.poll_timeout,
            webhook=self._link.webhook,
            hears_all=self._link.hears_all,
            move=move,
            recall=recall,
            presses=self._presses,
            landed=self._presence.landed,
            jitter=jitter or random.Random(),  # noqa: S311 - spreads retries, guards nothing
        )

    @property
    def name(self) -> str:
        """Return the first part of this channel's addresses."""
        return self._name

    @property
    def alone(self) -> str:
        """Return the name of what only one process may do: poll for this bot. Posts may reach any."""
        return "" if self._link.webhook else f"telegram:{self._token.partition(':')[0]}"

    async def open(self) -> None:
        """Load the client library, which takes seconds."""
        await self._connect()

    async def listen(self, accept: Accept) -> None:
        """Take updates in until cancelled; each is confirmed only after its commit.

        Waits out the network, the database and other pollers. Raises: ChannelStopped (token refused).
        """
        api = await self._connect()
        offering = asyncio.create_task(self._offer())
        try:
            await self._listener.run(api, accept)
        finally:
            offering.cancel()

    async def _offer(self) -> None:
        """Fill the menu, once the token is known to be good."""
        await self._listener.met.wait()
        await offer(self._menus, self._call)

    def doors(self) -> list[web.RouteDef]:
        """Return what a server of ours must serve for this bot: the path of its webhook, if it has one."""
        webhook, take = self._link.webhook, self._listener.take
        if webhook is None:
            return []
        from adapters.telegram.webhook import Door  # noqa: PLC0415 - only for those who use it

        return [Door(webhook=webhook, health=self._listener.health, take=take).route()]

    async def fetch(self, attachment: Attachment, most: int) -> bytes:
        """Return the content of a file that somebody sent (Bot API getFile).

        Raises: DeliveryError with a text for people, DeliveryRetry.
        """
        api = await self._connect()
        try:
            return await api.download(attachment.ref, min(most, self._link.largest))
        except ChannelStopped as error:
            raise DeliveryError("the bot's token is refused") from error

    async def send(self, message: Outgoing) -> Receipt:
        """Deliver one piece with its formatting, files and buttons; a whisper to whoever pressed a button.

        Raises: DeliveryRetry, also while the token is refused; DeliveryUnsure; DeliveryError; DeadRoute.
        """
        api = await self._connect()
        try:
            if message.whisper:
                await self._presses.answer(api, message.whisper, message.text)
                return Receipt("")
            return await self._send(api, message)
        except ChannelStopped as error:
            raise DeliveryRetry(str(error), after=_STOPPED_PAUSE) from error

    async def find(self, message: Outgoing) -> None:  # noqa: ARG002 - no method of the platform finds it
        """Wait for the platform to be there again before the one repeat of a message in doubt.

        Nobody can tell whether it has arrived, and while all answers are 502 the repeat would be lost, too.
        Raises: DeliveryRetry.
        """
        api = await self._connect()
        try:
            await api.call(Method("getMe", {}), limit=_REQUEST)
        except ChannelStopped as error:
            raise DeliveryRetry(str(error), after=_STOPPED_PAUSE) from error
        except (DeliveryError, DeliveryUnsure) as error:
            raise DeliveryRetry(str(error)) from error

    async def _send(self, api: Api, message: Outgoing) -> Receipt:
        sending = self._sending_by(api)

        async def edit(message_id: int) -> None:
            await api.call(edit_of(message, message_id, link_preview=self._link.link_preview))

        if message.replaces:
            return await sending.replace(message)
        if (receipt := await self._presence.finish(message, edit)) is not None:
            return receipt
        receipt = await sending.send(message)
        if receipt.message_id.isdecimal():
            self._presence.landed(message.address, int(receipt.message_id))
        return receipt

    def pieces(self, text: str) -> Sequence[str]:
        """Cut a reply into pieces of Markdown that one message can hold each."""
        return pieces(text)

    def status(self) -> dict[str, str | int | float | None]:
        """Return the fields of `Health`."""
        return asdict(self._listener.health)

    async def close(self) -> None:
        """Close all connections, after what is shown of running turns was cleared away."""
        self._feed.leave(self._presence)
        await self._presence.close()
        if self._api:
            await self._api.close()

    def _sending_by(self, api: Api) -> Sending:
        if self._sending is None:
            self._sending = Sending(
                api=api,
                gate=self._gate,
                clock=self._clock,
                open_file=self._open_file,
                link_preview=self._link.link_preview,
            )
        return self._sending

    async def _call(self, method: str, params: Mapping[str, Json], *, limit: int) -> Json:
        api = await self._connect()
        return await api.call(Method(method, params), limit=limit)

    async def _connect(self) -> Api:
        """Return the client; building its TLS context takes 20 ms."""
        async with self._connecting:
            if self._api is None:
                link = self._link
                build = partial(Api, self._token, self._api_base, proxy=link.proxy, files=link.local_files)
                self._api = await asyncio.to_thread(build)
            return self._api


def _gate_for(api_base: str, per_second: float) -> Gate:
    official = (urlsplit(api_base).hostname or "").endswith("api.telegram.org")
    return Gate(per_second or (PER_SECOND if official else None))


def _no_files(path: str) -> bytes:
    raise DeliveryError(f"{path}: this channel was given no files")


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
