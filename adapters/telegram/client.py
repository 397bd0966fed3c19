"""The methods of the Bot API that the channel calls, on aiogram's typed client."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from aiogram import Bot
from aiogram.client.session.aiohttp import AiohttpSession
from aiogram.client.telegram import TelegramAPIServer
from aiogram.exceptions import (
    AiogramError,
    TelegramAPIError,
    TelegramConflictError,
    TelegramEntityTooLarge,
    TelegramNetworkError,
    TelegramNotFound,
    TelegramRetryAfter,
    TelegramServerError,
    TelegramUnauthorizedError,
)
from aiogram.methods import DeleteWebhook, GetMe, Response, TelegramMethod
from aiohttp import ClientConnectorError, ClientError, ConnectionTimeoutError, InvalidURL

from adapters.telegram.errors import OtherPoller, WebhookSet
from gateway.errors import ChannelStopped, DeliveryError, DeliveryRetry, DeliveryUnsure, SendError
from gateway.types import Json

T = TypeVar("T")

_FAILURES: Final = (AiogramError, ClientError, OSError, TypeError, ValueError)
"""What a call of aiogram raises, with what it forgets to translate (a 5xx answer without a description)."""

_NOT_SENT: Final = (ClientConnectorError, ConnectionTimeoutError, InvalidURL)
"""Causes after which no byte of the request has left; any other may have reached the platform."""

_ANSWERS: Final = (Response[list[Any]], Response[dict[str, Any]])
"""Kept alive here: pydantic holds them weakly, and builds them anew (2 ms) after a garbage collection."""


class GetUpdates(TelegramMethod[list[Any]]):
    """`getUpdates` whose answer stays raw: aiogram's own fails for a whole batch if one update is strange."""

    __returning__ = list[Any]
    __api_method__ = "getUpdates"
    offset: int | None
    limit: int
    timeout: int
    allowed_updates: list[str]


class SendText(TelegramMethod[dict[str, Any]]):
    """`sendMessage` whose answer stays raw: a message that was sent must not look unsent for its echo."""

    __returning__ = dict[str, Any]
    __api_method__ = "sendMessage"
    chat_id: str
    text: str


@dataclass(frozen=True, slots=True)
class Me:
    """The bot itself (Bot API getMe)."""

    id: int
    username: str


class Api:
    """One bot's Bot API.

    Every method raises: ChannelStopped (the token is refused), DeliveryRetry (surely not taken),
    DeliveryUnsure (may have been taken), DeliveryError (refused for good). No text holds the token.
    """

    def __init__(self, token: str, api_base: str) -> None:
        """`api_base` is the URL before `/bot<token>`; nothing is sent yet."""
        http = AiohttpSession(api=TelegramAPIServer.from_base(api_base))
        # Two pools of connections, because `hang_up` must not break a send; the copy shares the TLS
        # context, which takes 20 ms to build.
        self._polls = Bot(token, session=copy(http))
        self._sends = Bot(token, session=http)
        self._secret = token.partition(":")[2]

    async def me(self) -> Me:
        """Ask who the bot is."""
        user = await self._call(self._polls, GetMe(), 30)
        return Me(user.id, user.username or "")

    async def updates(self, offset: int | None, *, wait: int, allowed: Sequence[str]) -> list[Json]:
        """Wait up to `wait` seconds for updates; those below `offset` are confirmed and forgotten.

        Raises also: OtherPoller, WebhookSet.
        """
        method = GetUpdates(offset=offset, limit=100, timeout=wait, allowed_updates=list(allowed))
        return await self._call(self._polls, method, wait + 15)

    async def drop_webhook(self) -> None:
        """Remove a webhook and keep the updates that wait."""
        await self._call(self._polls, DeleteWebhook(drop_pending_updates=False), 30)

    async def send(self, chat: str, text: str) -> str:
        """Send plain text and return the id of the message."""
        sent = await self._call(self._sends, SendText(chat_id=chat, text=text), 30)
        return str(sent.get("message_id", ""))

    async def hang_up(self) -> None:
        """Close the connections that poll; the next poll opens new ones."""
        await _close(self._polls)

    async def close(self) -> None:
        """Close all connections."""
        await _close(self._polls)
        await _close(self._sends)

    async def _call(self, bot: Bot, method: TelegramMethod[T], limit: int) -> T:
        """Call a method with a time limit in seconds, and translate what goes wrong."""
        try:
            return await bot(method, request_timeout=limit)
        except _FAILURES as error:
            failure = _translate(error, self._secret)
        # Raised out here it has no context: a URL with the token is in the texts of what aiohttp raises.
        raise failure


async def _close(bot: Bot) -> None:
    # aiogram's own `close` sleeps 250 ms for a fault of aiohttp that is mended since.
    assert isinstance(bot.session, AiohttpSession)
    await (await bot.session.create_session()).close()


def _translate(error: Exception, secret: str) -> SendError:
    """Return our word for a failure of a call (reliability 3.1, fact d)."""
    told = error.message if isinstance(error, TelegramAPIError) else type(error).__name__
    text = str(told).replace(secret, "<token>")
    match error:
        case TelegramRetryAfter(retry_after=after):
            return DeliveryRetry(f"Telegram asks to wait {after} s", after=float(after))
        case TelegramUnauthorizedError() | TelegramNotFound():
            return ChannelStopped(
                f"Telegram does not know the bot's token ({text}). Ask @BotFather for the present one "
                "(/mybots, API Token), put it into the configuration, check api_base and restart."
            )
        case TelegramConflictError() if "webhook" in text:
            return WebhookSet(f"the bot has a webhook ({text})")
        case TelegramConflictError():
            return OtherPoller(f"another process polls with this token; stop it ({text})")
        case TelegramEntityTooLarge():  # to aiogram a network error, but it is an answer
            return DeliveryError(text)
        case TelegramNetworkError() if isinstance(error.__cause__, _NOT_SENT):
            return DeliveryRetry(f"Telegram could not be reached: {text}")
        case TelegramAPIError() if text.startswith("Too Many Requests"):  # without a time to wait
            return DeliveryRetry(text, after=5.0)
        case TelegramAPIError() if not isinstance(error, TelegramNetworkError | TelegramServerError):
            return DeliveryError(text)
        case _:
            return DeliveryUnsure(f"no answer of Telegram that can be trusted: {text}")
