"""The Bot API over HTTP, on aiogram's typed methods."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from copy import copy
from http import HTTPStatus
from pathlib import Path, PurePosixPath
from typing import Any, Final, TypeVar, cast
from urllib.parse import quote

from aiogram import Bot
from aiogram.client.session.aiohttp import AiohttpSession
from aiogram.client.telegram import TelegramAPIServer
from aiogram.exceptions import (
    AiogramError,
    TelegramAPIError,
    TelegramConflictError,
    TelegramEntityTooLarge,
    TelegramMigrateToChat,
    TelegramNetworkError,
    TelegramNotFound,
    TelegramRetryAfter,
    TelegramServerError,
    TelegramUnauthorizedError,
)
from aiogram.methods import (
    AnswerCallbackQuery,
    DeleteWebhook,
    GetFile,
    GetMe,
    GetUpdates,
    Response,
    SetWebhook,
    TelegramMethod,
)
from aiohttp import (
    ClientConnectorError,
    ClientError,
    ClientSession,
    ClientTimeout,
    ConnectionTimeoutError,
    InvalidURL,
    TCPConnector,
)

from adapters.telegram.errors import Migrated, OtherPoller, Unreachable, WebhookSet
from adapters.telegram.message import Me
from gateway.errors import ChannelStopped, DeliveryError, DeliveryRetry, DeliveryUnsure, SendError
from gateway.types import Json, JsonObject

T = TypeVar("T")

CONNECT: Final = 5.0
"""Seconds for a new connection: a network that is back must be noticed within ten."""

_DOWNLOAD: Final = 120
"""Seconds for a whole file."""

_FAILURES: Final = (AiogramError, ClientError, OSError, TypeError, ValueError)
"""What a call of aiogram raises, with what it forgets to translate (a 5xx answer without a description)."""

_NOT_SENT: Final = (ClientConnectorError, ConnectionTimeoutError, InvalidURL)
"""Causes after which no byte of the request has left; any other may have reached the platform."""


class _Anything(TelegramMethod[Any]):
    """Stands for the method when an answer is checked."""

    __returning__ = Any
    __api_method__ = ""


_ANYTHING: Final = _Anything()
_ANSWER: Final = Response[Any]
"""Kept alive here: pydantic holds it weakly, and builds it anew (2 ms) after a garbage collection."""


class _Http(AiohttpSession):
    """aiogram's session, with our limits and proxy, and with answers that stay as they came.

    aiogram's own types refuse a whole batch of updates for one that is strange, and make a message that
    was sent look unsent for its echo.
    """

    def __init__(self, api: TelegramAPIServer, proxy: str) -> None:
        super().__init__(api=api)
        self._through = proxy or None

    async def create_session(self) -> ClientSession:
        if self._session is None or self._session.closed:
            connector = TCPConnector(**self._connector_init)
            self._session = ClientSession(connector=connector, proxy=self._through)
        return self._session

    async def make_request(
        self,
        bot: Bot,
        method: TelegramMethod[T],
        timeout: int | None = None,  # noqa: ASYNC109 - aiogram's name
    ) -> T:
        limits = ClientTimeout(total=timeout, connect=CONNECT)
        # aiogram hands it to aiohttp as it is.
        return await super().make_request(bot, method, cast("int", limits))

    def check_response(
        self,
        bot: Bot,
        method: TelegramMethod[T],  # noqa: ARG002 - `_ANYTHING` stands for it
        status_code: int,
        content: str,
    ) -> Response[T]:
        return super().check_response(bot, cast("TelegramMethod[T]", _ANYTHING), status_code, content)

    async def close(self) -> None:
        # aiogram's own sleeps 250 ms for a fault of aiohttp that is mended since.
        if self._session is not None:
            await self._session.close()


class Api:
    """One bot's Bot API.

    Every method raises: ChannelStopped (the token is refused), DeliveryRetry (surely not taken),
    DeliveryUnsure (may have been taken), DeliveryError (refused for good; Migrated when the group has
    become another chat). No text holds the token.
    """

    def __init__(self, token: str, api_base: str, *, proxy: str = "", files: Path | None = None) -> None:
        """`api_base` is the URL before `/bot<token>`; nothing is sent yet.

        `files` is the folder beneath which a local Bot API server on this machine stores what it names
        by an absolute path.
        """
        http = _Http(TelegramAPIServer.from_base(api_base), proxy)
        # Two pools of connections, because `hang_up` must not break a send; the copy shares the TLS
        # context, which takes 20 ms to build.
        self._polls = Bot(token, session=copy(http))
        self._sends = Bot(token, session=http)
        self._http = http
        self._files = files
        self._url = f"{api_base.rstrip('/')}/file/bot{token}"
        self._secret = token.partition(":")[2]

    async def call(self, method: TelegramMethod[Any], *, limit: int = 30) -> Json:
        """Call any method within `limit` seconds; return its `result` as it came, unchecked."""
        return await self._call(self._sends, method, limit)

    async def me(self) -> Me:
        """Ask who the bot is."""
        user = _object(await self._call(self._polls, GetMe(), 30))
        number = user.get("id")
        if not isinstance(number, int):
            raise DeliveryUnsure("Telegram's answer to getMe has no id")
        return Me(
            number,
            str(user.get("username") or ""),
            sees_all=user.get("can_read_all_group_messages") is True,
            has_topics=user.get("has_topics_enabled") is True,
        )

    async def updates(self, offset: int | None, *, wait: int, allowed: Sequence[str]) -> list[Json]:
        """Wait up to `wait` seconds for updates; those below `offset` are confirmed and forgotten.

        Raises also: OtherPoller, WebhookSet.
        """
        method = GetUpdates(offset=offset, limit=100, timeout=wait, allowed_updates=list(allowed))
        updates = await self._call(self._polls, method, wait + 15)
        if not isinstance(updates, list):
            raise DeliveryUnsure("Telegram's answer to getUpdates is not a list")
        return updates

    async def set_webhook(self, url: str, secret: str, *, allowed: Sequence[str]) -> None:
        """Have updates posted to `url` with `secret` in a header, one by one to keep their order."""
        method = SetWebhook(url=url, secret_token=secret, allowed_updates=list(allowed), max_connections=1)
        await self._call(self._polls, method, 30)

    async def drop_webhook(self) -> None:
        """Remove a webhook and keep the updates that wait."""
        await self._call(self._polls, DeleteWebhook(drop_pending_updates=False), 30)

    async def answer_press(self, press: str, text: str = "") -> None:
        """Tell the person who pressed a button that it was noticed (Bot API answerCallbackQuery).

        `text` is shown for a moment, up to 200 characters.
        """
        await self.call(AnswerCallbackQuery(callback_query_id=press, text=text or None), limit=10)

    async def download(self, file_id: str, most: int) -> bytes:
        """Return a file that somebody sent, at most `most` bytes (Bot API getFile).

        Raises: DeliveryError with a text for people, DeliveryRetry, ChannelStopped.
        """
        try:
            answer = _object(await self.call(GetFile(file_id=file_id)))
        except DeliveryUnsure as error:
            raise DeliveryRetry(str(error)) from error
        except DeliveryError as error:
            if "too big" in str(error):
                raise DeliveryError("Telegram lets bots have files of up to 20 MB only") from error
            raise
        if int(answer.get("file_size") or 0) > most:
            raise _too_large(most)
        path = str(answer.get("file_path") or "")
        if path.startswith("/"):
            return await asyncio.to_thread(_local, self._files, Path(path), most)
        if not path or ".." in PurePosixPath(path).parts:
            raise DeliveryError("Telegram does not say where the file is")
        return await self._download(f"{self._url}/{quote(path)}", most)

    async def hang_up(self) -> None:
        """Close the connections that poll; the next poll opens new ones and looks up the address anew."""
        await self._polls.session.close()

    async def close(self) -> None:
        """Close all connections."""
        await self._polls.session.close()
        await self._sends.session.close()

    async def _call(self, bot: Bot, method: TelegramMethod[Any], limit: int) -> Json:
        """Call a method with a time limit in seconds, and translate what goes wrong."""
        try:
            return await bot(method, request_timeout=limit)
        except _FAILURES as error:
            failure = _translate(error, self._secret)
        # Raised out here it has no context: a URL with the token is in the texts of what aiohttp raises.
        raise failure

    async def _download(self, url: str, most: int) -> bytes:
        """Read a file; a redirect is not followed, because the address holds the token."""
        session = await self._http.create_session()
        limits = ClientTimeout(total=_DOWNLOAD, connect=CONNECT)
        content = bytearray()
        try:
            async with session.get(url, timeout=limits, allow_redirects=False) as answer:
                failure = _refusal(answer.status)
                if failure is None:
                    async for chunk in answer.content.iter_any():
                        content += chunk
                        if len(content) > most:
                            failure = _too_large(most)
                            break
        except (ClientError, OSError, ValueError) as error:
            failure = DeliveryRetry(f"the file could not be fetched: {type(error).__name__}")
        if failure is not None:
            raise failure
        return bytes(content)


def _object(result: Json) -> JsonObject:
    if not isinstance(result, dict):
        raise DeliveryUnsure("Telegram's answer is not an object")
    return result


def _too_large(most: int) -> DeliveryError:
    return DeliveryError(f"it is larger than {most / 1_000_000:g} MB")


def _refusal(status: int) -> SendError | None:
    """Return what an HTTP status means for a download, None if it works."""
    if status == HTTPStatus.OK:
        return None
    if status in (HTTPStatus.BAD_REQUEST, HTTPStatus.NOT_FOUND):
        return DeliveryError("Telegram does not have the file any more")
    if status == HTTPStatus.TOO_MANY_REQUESTS or status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return DeliveryRetry(f"the file could not be fetched: HTTP {status}")
    return DeliveryError(f"the file could not be fetched: HTTP {status}")


def _local(root: Path | None, path: Path, most: int) -> bytes:
    """Read a file of a local Bot API server, if it really lies beneath `root`."""
    if root is None:
        raise DeliveryError("the Bot API server keeps files on its own disk: set local_files to that folder")
    try:
        real = path.resolve(strict=True)
        if not real.is_relative_to(root.resolve(strict=True)):
            raise DeliveryError("the Bot API server names a file outside of local_files")
        with real.open("rb") as file:
            if os.fstat(file.fileno()).st_size > most:
                raise _too_large(most)
            return file.read(most)
    except OSError as error:
        raise DeliveryError(f"the file can't be read: {error.strerror}") from error


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
        case TelegramMigrateToChat(migrate_to_chat_id=chat):
            return Migrated(text, str(chat))
        case TelegramEntityTooLarge():  # to aiogram a network error, but it is an answer
            return DeliveryError(text)
        case TelegramNetworkError() if isinstance(error.__cause__, _NOT_SENT):
            return Unreachable(f"Telegram could not be reached: {text}")
        case TelegramAPIError() if text.startswith("Too Many Requests"):  # without a time to wait
            return DeliveryRetry(text, after=5.0)
        case TelegramAPIError() if not isinstance(error, TelegramNetworkError | TelegramServerError):
            return DeliveryError(text)
        case _:
            return DeliveryUnsure(f"no answer of Telegram that can be trusted: {text}")
