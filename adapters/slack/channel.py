"""One Slack app in one workspace as a channel: how it is reached, how it listens, how it sends."""

from __future__ import annotations

import asyncio
import gc
import logging
import random
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Final, Literal

from adapters.slack.events import Me, Place, Reader
from adapters.slack.http import Door
from adapters.slack.listen import Answer, Answered, Health, Listener
from adapters.slack.names import Names
from adapters.slack.presence import Manner, Presence
from adapters.slack.render import Mentions, pieces
from adapters.slack.roster import Roster
from adapters.slack.sending import OpenFile, Sending
from gateway.channel import Accept, Cursors, Recall
from gateway.clock import Clock
from gateway.errors import (
    ChannelStopped,
    ConfigError,
    DeliveryError,
    DeliveryRetry,
    DeliveryUnsure,
    SendError,
)
from gateway.feed import Feed
from gateway.types import Address, Attachment, JsonObject, Outgoing, Receipt

if TYPE_CHECKING:
    from aiohttp import web

    from adapters.slack.bolt import Receiver
    from adapters.slack.catchup import Recent
    from adapters.slack.client import SlackApi

log = logging.getLogger(__name__)

_STOPPED_PAUSE: Final = 60.0
"""Seconds before a message is tried again while the token is refused: only a person can mend that."""

_PAUSES: Final = (2.0, 30.0)
"""Seconds between tries to greet Slack, the shortest and the longest (spec SL-2)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """How Slack is reached, and how it reaches us.

    With an `app_token` the app listens by Socket Mode, else Slack posts to `path`, signed with the secret.
    `largest` is the bytes of a file that is fetched, `ping` and `hello` the seconds of a socket's silence
    after which it is asked for a sign of life, and for which a new one may take to greet.
    """

    bot_token: str = field(repr=False)
    app_token: str = field(default="", repr=False)
    signing_secret: str = field(default="", repr=False)
    api_base: str = "https://slack.com/api/"
    path: str = "/slack/events"
    largest: int = 20_000_000
    link_preview: bool = False
    ping: float = 20.0
    hello: float = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Core:
    """What the channel asks of the core."""

    cursors: Cursors
    recall: Recall
    answered: Answered
    recent: Recent
    open_file: OpenFile
    feed: Feed
    clock: Clock


class Slack:
    """A bot of api.slack.com/apps.

    Raises: ConfigError if a token can't be what it is said to be (spec SL-1).
    """

    sends_files: Literal[True] = True

    def __init__(
        self,
        *,
        link: Link,
        core: Core,
        name: str = "slack",
        place: Place | None = None,
        manner: Manner | None = None,
        everybody: frozenset[str] = frozenset(),
        jitter: random.Random | None = None,
    ) -> None:
        """`everybody` are the chats in which a reply may ring all ("*": every chat)."""
        _check(link)
        self._link, self._core, self._name = link, core, name
        self._place = place or Place()
        self._manner = manner or Manner()
        self._everybody = everybody
        self._jitter = jitter or random.Random()  # noqa: S311 - spreads retries, guards nothing
        self._names = Names(core.clock)
        self._roster = Roster()
        self._health = Health(mode="socket" if link.app_token else "http")
        self._loaded: _Loaded | None = None
        self._loading = asyncio.Lock()
        self._receiver: Receiver | None = None

    @property
    def name(self) -> str:
        """Return the first part of this channel's addresses."""
        return self._name

    async def open(self) -> None:
        """Load the client library, which takes a second."""
        await self._load()

    async def listen(self, accept: Accept) -> None:
        """Take deliveries in until cancelled; each is acknowledged only after its commit.

        Waits out the network and the database. Raises: ChannelStopped (a token is refused).
        """
        loaded = await self._load()
        try:
            me = await self._greet(loaded.api)
            await self._listen(loaded, me, accept)
        except ChannelStopped as error:
            self._health.state, self._health.last_error = "stopped", str(error)
            raise
        finally:
            self._receiver = None

    def doors(self) -> list[web.RouteDef]:
        """Return what a server of ours must serve for this app: where Slack posts to, if it does."""
        if self._link.app_token:
            return []
        door = Door(
            path=self._link.path,
            secret=self._link.signing_secret,
            clock=self._core.clock,
            health=self._health,
            dispatch=self._post,
        )
        return [door.route()]

    async def fetch(self, attachment: Attachment, most: int) -> bytes:
        """Return the content of a file that somebody sent (Slack file object, url_private).

        Raises: DeliveryError with a text for people, DeliveryRetry.
        """
        api, ref = (await self._load()).api, attachment.ref
        try:
            if "/" not in ref:  # Slack wants to be asked where it lies (file_access: check_file_info)
                file = (await api.call("files.info", file=ref)).get("file") or {}
                ref = str(file.get("url_private_download") or file.get("url_private") or "")
            return await api.download(ref, min(most, self._link.largest), mime=attachment.mime)
        except ChannelStopped as error:
            raise DeliveryError("the bot's token is refused") from error
        except DeliveryUnsure as error:  # nothing was to be changed, so it may be asked for again
            raise DeliveryRetry(str(error)) from error

    async def send(self, message: Outgoing) -> Receipt:
        """Deliver one piece with its formatting, files and buttons; a whisper so that one person sees it.

        Raises: DeliveryRetry, also while the token is refused; DeliveryUnsure; DeliveryError; DeadRoute.
        """
        loaded = await self._load()
        try:
            if message.replaces:
                return await loaded.sending.replace(message)
            heard = await loaded.sending.whisper(message) if message.whisper else None
            shown = heard or await loaded.presence.finish(message)
            return shown or await loaded.sending.send(message)
        except ChannelStopped as error:
            raise DeliveryRetry(str(error), after=_STOPPED_PAUSE) from error

    async def find(self, message: Outgoing) -> Receipt | None:
        """Look whether a message has arrived whose delivery is not known (reliability row 24).

        Raises: DeliveryRetry.
        """
        try:
            return await (await self._load()).sending.find(message)
        except ChannelStopped as error:
            raise DeliveryRetry(str(error), after=_STOPPED_PAUSE) from error

    def pieces(self, text: str) -> Sequence[str]:
        """Cut a reply into pieces of Markdown that one message can hold each."""
        return pieces(text)

    def status(self) -> dict[str, str | int | float | None]:
        """Return the fields of `Health`."""
        return asdict(self._health)

    async def close(self) -> None:
        """Close all connections, after what is shown of running turns was cleared away."""
        if self._loaded is not None:
            self._core.feed.leave(self._loaded.presence)
            await self._loaded.presence.close()
            await self._loaded.api.close()

    async def _post(self, body: str, headers: dict[str, str]) -> Answer:
        """Take in a post; while nobody listens, Slack must come again."""
        return Answer(503) if self._receiver is None else await self._receiver.post(body, headers)

    async def _listen(self, loaded: _Loaded, me: Me, accept: Accept) -> None:
        from adapters.slack.bolt import Receiver  # noqa: PLC0415 - loaded by now
        from adapters.slack.catchup import CatchUp  # noqa: PLC0415 - loaded by now
        from adapters.slack.socket import Links  # noqa: PLC0415 - loaded by now

        core, cursor = self._core, f"{self._name}:{me.team}"
        listener = Listener(
            api=loaded.api,
            reader=Reader(self._name, me, self._place),
            clock=core.clock,
            accept=accept,
            recall=core.recall,
            answered=core.answered,
            roster=self._roster,
            names=self._names,
            health=self._health,
            cursor=cursor,
            seen=await core.cursors(cursor) or "",
        )
        receiver = Receiver(me, listener.take)
        catch_up = CatchUp(api=loaded.api, listener=listener, clock=core.clock, recent=core.recent)
        catch_up.left()
        catching = asyncio.create_task(catch_up.serve())
        try:
            if self._link.app_token:
                await Links(
                    api=loaded.api,
                    app_token=self._link.app_token,
                    dispatch=receiver.envelope,
                    clock=core.clock,
                    health=self._health,
                    jitter=self._jitter,
                    left=catch_up.left,
                    back=catch_up.back,
                    ping=self._link.ping,
                    hello=self._link.hello,
                ).run()
            self._receiver = receiver
            self._health.state, self._health.last_error = "listening", None
            catch_up.back(gap=True)
            await asyncio.Event().wait()
        finally:
            catching.cancel()

    async def _greet(self, api: SlackApi) -> Me:
        """Learn who the bot is, however long Slack can't be reached. Raises: ChannelStopped."""
        pause, longest = _PAUSES
        while True:
            try:
                me = _me(await api.call("auth.test"))
                await self._same_app(api, me)
            except ChannelStopped:
                raise
            except SendError as error:
                asked = error.after if isinstance(error, DeliveryRetry) else 0.0
                self._health.state, self._health.last_error = "retrying", str(error)
                log.warning("slack.greeting_failed", extra={"problem": str(error)})
                await self._core.clock.sleep(max(asked, self._jitter.uniform(pause / 2, pause)))
                pause = min(longest, pause * 2)
            else:
                self._health.bot, self._health.team = me.name, me.team
                self._names.note(me.user, me.name)
                log.info(
                    "slack.listening", extra={"bot": me.name, "team": me.team, "mode": self._health.mode}
                )
                return me

    async def _same_app(self, api: SlackApi, me: Me) -> None:
        """Refuse tokens of two apps: one would never hear what the other is told (spec SL-2)."""
        named = re.match(r"xapp-[0-9]+-(A[A-Z0-9]+)-", self._link.app_token)
        if named is None or not me.bot:
            return
        try:
            bot = (await api.call("bots.info", bot=me.bot)).get("bot") or {}
        except DeliveryError:  # the scope users:read is not there: it can't be told
            return
        if bot.get("app_id") and bot["app_id"] != named[1]:
            raise ChannelStopped(
                f"bot_token belongs to the app {bot['app_id']} and app_token to {named[1]}: take both from "
                "the same app at api.slack.com/apps."
            )

    async def _load(self) -> _Loaded:
        """Return what talks to Slack; the first call loads it, in a thread, while the rest starts."""
        async with self._loading:
            if self._loaded is None:
                await asyncio.to_thread(_import)
                self._loaded = self._built()
                self._core.feed.join(self._loaded.presence)
            return self._loaded

    def _built(self) -> _Loaded:
        from adapters.slack.client import SlackApi  # noqa: PLC0415 - loaded by now

        core = self._core
        api = SlackApi(self._link.bot_token, self._link.api_base, core.clock)
        presence = Presence(
            channel=self._name,
            api=lambda: api,
            clock=core.clock,
            manner=self._manner,
            author=self._roster.author,
            mentions=self._mentions,
        )
        sending = Sending(
            api=api,
            clock=core.clock,
            open_file=core.open_file,
            mentions=self._mentions,
            unfurl_links=self._link.link_preview,
        )
        return _Loaded(api, presence, sending)

    def _mentions(self, address: Address) -> Mentions:
        everybody = bool(self._everybody & {address.chat, "*"})
        return Mentions(people=self._roster.people(address.chat), everybody=everybody)


@dataclass(frozen=True, slots=True)
class _Loaded:
    """What needs the client library."""

    api: SlackApi
    presence: Presence
    sending: Sending


def _me(answer: JsonObject) -> Me:
    """Return who the bot is. Raises: DeliveryUnsure, ChannelStopped if it is no bot."""
    if not answer.get("user_id") or not answer.get("team_id"):
        raise DeliveryUnsure("Slack's answer to auth.test has no user_id and team_id")
    return Me(
        user=str(answer["user_id"]),
        bot=str(answer.get("bot_id") or ""),
        team=str(answer["team_id"]),
        name=str(answer.get("user") or ""),
    )


def _check(link: Link) -> None:
    if not re.fullmatch(r"xoxb-[A-Za-z0-9-]+", link.bot_token):
        raise ConfigError(
            "channels.slack.bot_token does not look like one. Copy the Bot User OAuth Token (xoxb-…) from "
            "api.slack.com/apps, OAuth & Permissions, with no spaces or quotes."
        )
    if link.app_token and not re.fullmatch(r"xapp-[A-Za-z0-9-]+", link.app_token):
        raise ConfigError(
            "channels.slack.app_token does not look like one. Make an app-level token (xapp-…) with the "
            "scope connections:write at api.slack.com/apps, Basic Information."
        )
    if not link.app_token and not link.signing_secret:
        raise ConfigError(
            "channels.slack needs an app_token (Socket Mode), or a signing_secret if Slack is to post events."
        )


def _import() -> None:
    """Import Slack's libraries, which takes a second of CPU, without garbage collection in the meantime."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        import adapters.slack.bolt  # noqa: PLC0415 - see above
        import adapters.slack.catchup  # noqa: PLC0415 - see above
        import adapters.slack.socket  # noqa: F401, PLC0415 - see above
    finally:
        if collecting:
            gc.enable()
