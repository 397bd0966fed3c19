"""How updates come in: asked for by long polls, or posted to us; committed before they are confirmed."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from urllib.parse import urlsplit

from adapters.telegram.client import Api
from adapters.telegram.errors import OtherPoller, Unreachable, WebhookSet
from adapters.telegram.message import Me
from adapters.telegram.presses import WAIT, Presses
from adapters.telegram.updates import ALLOWED, Batch, Press, Reaction, Reader, Standing
from gateway.channel import Accept, Cursor, Cursors, Move, Recall
from gateway.clock import Clock
from gateway.errors import ChannelStopped, DeliveryRetry, GatewayError, SendError, StoreError
from gateway.types import Address, Json, Stimulus

log = logging.getLogger(__name__)

WATCHDOG = 120.0
"""Seconds without an answered poll after which new connections are made (spec TG-5)."""

_PRIVACY = (
    "privacy mode hides what is said in groups, but a group has require_mention = false: turn it off with "
    "/setprivacy at @BotFather and add the bot to the group again, or make it an admin there"
)
_QUOTED = 80
"""Characters of our message that are told when somebody reacts to it."""


@dataclass(slots=True)
class Health:
    """What `/status` tells.

    `last_poll` is the wall time in UNIX seconds when updates came last, or were asked for and there were
    none; `refused` counts posts to the webhook that were not from the platform or could not be read.
    """

    state: str = "starting"
    mode: str = "polling"
    username: str | None = None
    last_poll: float | None = None
    last_error: str | None = None
    warning: str | None = None
    received: int = 0
    refused: int = 0


@dataclass(frozen=True, slots=True)
class Webhook:
    """Where the platform posts updates to, where on our server that arrives, and what it must know."""

    url: str
    path: str
    secret: str = field(repr=False)

    @classmethod
    def of(cls, name: str, url: str, secret: str) -> Webhook:
        """Return the webhook of a channel; a `url` that is a server alone gets the path of ours.

        The path is `/telegram/webhook`, and `/telegram/webhook/work` for the channel `telegram-work`.
        """
        _, _, account = name.partition("-")
        path = f"/telegram/webhook/{account}".rstrip("/")
        return cls(url if urlsplit(url).path.strip("/") else f"{url.rstrip('/')}{path}", path, secret)


@dataclass(slots=True)
class _Stream:
    """Where the loop stands: `offset` is the first update id that is not stored yet."""

    reader: Reader
    cursor: str
    offset: int | None


@dataclass(slots=True, kw_only=True)
class Listener:
    """One bot's way in.

    `poll_timeout` is how many seconds the platform may hold a poll that has nothing to tell; `hears_all`
    is whether the configuration counts on what is said in groups without naming the bot. `landed` is told
    of each message that others write. `met` is set once the platform has told who the bot is.
    """

    name: str
    clock: Clock
    cursors: Cursors
    poll_timeout: int
    webhook: Webhook | None
    hears_all: bool
    move: Move | None
    recall: Recall | None
    presses: Presses
    landed: Callable[[Address, int], None]
    jitter: random.Random
    health: Health = field(default_factory=Health)
    met: asyncio.Event = field(default_factory=asyncio.Event)
    _answered: float = 0.0
    _posts: tuple[Api, Reader, Accept] | None = None
    _one_post: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def run(self, api: Api, accept: Accept) -> None:
        """Listen until cancelled; waits out the network, the database and other pollers.

        Raises: ChannelStopped (token refused).
        """
        try:
            await (self._poll_for_ever(api, accept) if self.webhook is None else self._post_box(api, accept))
        except ChannelStopped as error:
            self._failed("stopped", error)
            raise
        finally:
            self.presses.close()
            await api.hang_up()

    async def take(self, update: Json) -> bool:
        """Commit an update that was posted; False while nobody listens.

        Raises: StoreError, DeliveryUnsure (it has no id).
        """
        async with self._one_post:
            if self._posts is None:
                return False
            api, reader, accept = self._posts
            self.health.last_poll = self.clock.wall()
            batch = reader.batch([update], self.clock.wall())
            await accept(await self._stimuli(api, batch), poison=batch.poison)
            self.health.received += 1
            return True

    async def _poll_for_ever(self, api: Api, accept: Accept) -> None:
        stream: _Stream | None = None
        failures = 0
        self._answered = self.clock.now()
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

    async def _post_box(self, api: Api, accept: Accept) -> None:
        """Have updates posted to us."""
        self.health.mode = "webhook"
        try:
            await self._subscribe(api, accept)
            self.health.state, self.health.last_error = "listening", None
            await asyncio.Event().wait()
        finally:
            self._posts = None

    async def _subscribe(self, api: Api, accept: Accept) -> None:
        """Tell the platform where to post, however long it can't be reached."""
        assert self.webhook is not None
        failures = 0
        while True:
            try:
                # Open before it is told: the first post may arrive before the answer does.
                self._posts = api, Reader(self.name, await self._meet(api)), accept
                return await api.set_webhook(self.webhook.url, self.webhook.secret, allowed=ALLOWED)
            except ChannelStopped:
                raise
            except SendError as error:
                failures += 1
                await self._recover(api, error, failures)

    async def _meet(self, api: Api) -> Me:
        """Learn who the bot is."""
        me = await api.me()
        self.health.username = me.username
        self.health.warning = _PRIVACY if self.hears_all and not me.sees_all else None
        if self.health.warning:
            log.warning("telegram.privacy_mode", extra={"bot": me.username, "problem": _PRIVACY})
        log.info("telegram.listening", extra={"bot": me.username, "mode": self.health.mode})
        self.met.set()
        return me

    async def _greet(self, api: Api) -> _Stream:
        """Learn who the bot is, and where its stream was left (telegram-poll-07: each bot has its own)."""
        me = await self._meet(api)
        cursor = f"{self.name}:{me.id}"
        stored = await self.cursors(cursor)
        self.health.state = "polling"
        return _Stream(Reader(self.name, me), cursor, int(stored) if stored else None)

    async def _poll(self, api: Api, stream: _Stream, accept: Accept) -> None:
        """Ask once and hand over what came."""
        updates = await api.updates(stream.offset, wait=self.poll_timeout, allowed=ALLOWED)
        self.health.last_poll, self._answered = self.clock.wall(), self.clock.now()
        if updates:
            await self._hand_over(api, updates, stream, accept)
        if self.health.last_error:
            log.info("telegram.polling_again")
        self.health.state, self.health.last_error = "polling", None

    async def _hand_over(self, api: Api, updates: Sequence[Json], stream: _Stream, accept: Accept) -> None:
        """Have it committed, and only then move the offset."""
        batch = stream.reader.batch(updates, self.clock.wall())
        offset = batch.last + 1
        if stream.offset is not None and batch.last < stream.offset:
            # Ids may begin anew, and lower, after a week without updates (Bot API Update).
            counts = {"updates": len(updates), "skipped": 0, "stored": stream.offset, "offset": offset}
            log.warning("telegram.offset_reset", extra=counts)
        cursor = Cursor(stream.cursor, str(offset))
        await accept(await self._stimuli(api, batch), cursor=cursor, poison=batch.poison)
        stream.offset = offset
        self.health.received += len(updates)

    async def _stimuli(self, api: Api, batch: Batch) -> Sequence[Stimulus]:
        """Do at once what an update asks of us, and return what the core is to know."""
        reactions: list[Stimulus] = []
        for one in batch.read:
            match one:
                case Press(id=press, stimulus=stimulus):
                    self.presses.wait(api, press, WAIT if stimulus else 0.0)
                case Reaction() if (known := await self._ours(one)) is not None:
                    reactions.append(known)
                case Standing():
                    told = {"chat": one.chat, "title": one.title, "status": one.status, "by": one.by.id}
                    log.warning("telegram.standing", extra=told)
                case Stimulus(message_id=number) if number.isdecimal():
                    self.landed(one.address, int(number))
                case _:
                    pass
        for move in batch.moves:
            log.warning("telegram.group_moved", extra={"old": move.old, "new": move.new})
            if self.move is not None:
                # Before what comes from the new id, which would else begin a conversation of its own.
                await self.move(Address(self.name, move.old), Address(self.name, move.new))
        return (*batch.stimuli, *reactions)

    async def _ours(self, reaction: Reaction) -> Stimulus | None:
        """Return a reaction as an event in the topic of our message; None if that is not known to be ours."""
        if self.recall is None:
            return None
        message = await self.recall(reaction.stimulus.address, reaction.message_id)
        if message is None:
            return None
        beginning = " ".join(message.text[:_QUOTED].split())
        text = f"{reaction.stimulus.text[:-1]} on your message “{beginning}”]"
        return replace(reaction.stimulus, address=message.address, text=text)

    async def _recover(self, api: Api, error: GatewayError, failures: int) -> None:
        """Do what helps after a failure, and wait 1 to 30 s, 5 to 30 s for another poller."""
        shortest, longest, asked = 1.0, 30.0, 0.0
        match error:
            case OtherPoller():
                # A kept connection prolongs the conflict at the platform (spec TG-4).
                await api.hang_up()
                shortest = 5.0
            case WebhookSet():
                log.warning("telegram.webhook_left_behind", extra={"problem": str(error)})
                with suppress(SendError):  # the next poll tells whether it worked
                    await api.drop_webhook()
            case Unreachable():
                longest = 4.0  # with the time for a connection this is under ten seconds
            case DeliveryRetry(after=after):
                asked = after
            case _:
                pass
        if self.webhook is None and self.clock.now() - self._answered > WATCHDOG:
            log.warning("telegram.reconnecting", extra={"problem": str(error)})
            self._answered = self.clock.now()
            await api.hang_up()
        wait = max(asked, back_off(failures, shortest, longest, self.jitter))
        self._failed("another process polls" if isinstance(error, OtherPoller) else "retrying", error)
        log.warning("telegram.poll_failed", extra={"problem": str(error), "wait": round(wait, 1)})
        await self.clock.sleep(wait)

    def _failed(self, state: str, error: GatewayError) -> None:
        self.health.state, self.health.last_error = state, str(error)


def back_off(failures: int, shortest: float, longest: float, jitter: random.Random) -> float:
    """Return seconds to wait after the n-th failure in a row: twice as many each time, up to `longest`."""
    most = min(longest, shortest * 2 ** min(failures, 10))
    return jitter.uniform(most / 2, most)
