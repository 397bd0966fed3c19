"""The Bot API over HTTP."""

from __future__ import annotations

import asyncio
import json
import os
import re
import ssl
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from pathlib import Path, PurePosixPath
from typing import Final
from urllib.parse import quote, urlsplit

import certifi
from aiohttp import ClientError, ClientResponseError, ClientSession, ClientTimeout, TCPConnector

from adapters import waiting
from adapters.telegram.errors import Migrated, OtherPoller, Unreachable, WebhookSet
from adapters.telegram.message import Me
from adapters.telegram.methods import Method
from adapters.telegram.text import clean
from gateway.errors import ChannelStopped, DeliveryError, DeliveryRetry, DeliveryUnsure, SendError
from gateway.types import Json, JsonObject

CONNECT: Final = 5.0
"""Seconds for a new connection: a network that is back must be noticed within ten."""

_DOWNLOAD: Final = 120
"""Seconds for a whole file."""

_BUSY: Final = 5.0
"""Seconds to wait after a 429 that does not say how long."""


class _Pool:
    """Connections to one server; once closed, the next use opens new ones and looks up the address anew."""

    def __init__(self, proxy: str, tls: ssl.SSLContext) -> None:
        self._proxy = proxy or None
        self._tls = tls
        self._session: ClientSession | None = None

    def session(self) -> ClientSession:
        if self._session is None or self._session.closed:
            self._session = ClientSession(connector=TCPConnector(ssl=self._tls), proxy=self._proxy)
        return self._session

    async def close(self) -> None:
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
        tls = ssl.create_default_context(cafile=certifi.where())  # takes 20 ms: one for both
        # Two pools, because `hang_up` must not break a send.
        self._polls, self._sends = _Pool(proxy, tls), _Pool(proxy, tls)
        self._files = files
        self._url = f"{api_base.rstrip('/')}/bot{token}"
        self._file_url = f"{api_base.rstrip('/')}/file/bot{token}"
        self._secret = token.partition(":")[2]

    async def call(self, method: Method, *, limit: int = 30) -> Json:
        """Call any method within `limit` seconds; return its `result` as it came, unchecked."""
        return await self._call(self._sends, method, limit)

    async def me(self) -> Me:
        """Ask who the bot is."""
        user = _object(await self._call(self._polls, Method("getMe", {}), 30))
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
        asked = {"offset": offset, "limit": 100, "timeout": wait, "allowed_updates": list(allowed)}
        updates = await self._call(self._polls, Method("getUpdates", asked), wait + 15)
        if not isinstance(updates, list):
            raise DeliveryUnsure("Telegram's answer to getUpdates is not a list")
        return updates

    async def set_webhook(self, url: str, secret: str, *, allowed: Sequence[str]) -> None:
        """Have updates posted to `url` with `secret` in a header, one by one to keep their order."""
        asked = {"url": url, "secret_token": secret, "allowed_updates": list(allowed), "max_connections": 1}
        await self._call(self._polls, Method("setWebhook", asked), 30)

    async def drop_webhook(self) -> None:
        """Remove a webhook and keep the updates that wait."""
        await self._call(self._polls, Method("deleteWebhook", {"drop_pending_updates": False}), 30)

    async def answer_press(self, press: str, text: str = "") -> None:
        """Tell the person who pressed a button that it was noticed (Bot API answerCallbackQuery).

        `text` is shown for a moment, up to 200 characters.
        """
        asked = {"callback_query_id": press, "text": text or None}
        await self.call(Method("answerCallbackQuery", asked), limit=10)

    async def download(self, file_id: str, most: int) -> bytes:
        """Return a file that somebody sent, at most `most` bytes (Bot API getFile).

        Raises: DeliveryError with a text for people, DeliveryRetry, ChannelStopped.
        """
        try:
            answer = _object(await self.call(Method("getFile", {"file_id": file_id})))
        except DeliveryUnsure as error:
            raise DeliveryRetry(str(error)) from error
        except DeliveryError as error:
            if "too big" in str(error):
                raise DeliveryError("Telegram lets bots have files of up to 20 MB only") from error
            raise
        if isinstance(size := answer.get("file_size"), int) and size > most:
            raise _too_large(most)
        path = str(answer.get("file_path") or "")
        if path.startswith("/"):
            return await asyncio.to_thread(_local, self._files, Path(path), most)
        if not path or ".." in PurePosixPath(path).parts:
            raise DeliveryError("Telegram does not say where the file is")
        return await self._download(f"{self._file_url}/{quote(path)}", most)

    async def hang_up(self) -> None:
        """Close the connections that poll; the next poll opens new ones and looks up the address anew."""
        await self._polls.close()

    async def close(self) -> None:
        """Close all connections."""
        await self._polls.close()
        await self._sends.close()

    async def _call(self, pool: _Pool, method: Method, limit: int) -> Json:
        """Call a method with a time limit in seconds, and translate what goes wrong."""
        limits = ClientTimeout(total=limit, connect=CONNECT)
        url = f"{self._url}/{method.name}"
        try:
            post = pool.session().post(url, data=method.form(), timeout=limits, allow_redirects=False)
            async with post as answer:
                status, headers, body = answer.status, answer.headers, await answer.read()
        except (ClientError, OSError, ValueError) as error:
            failure = _unanswered(error, _safe(_told(error), self._secret))
        else:
            return _result(status, headers, body, self._secret)
        # Raised out here it has no context: a URL with the token is in the texts of what aiohttp raises.
        raise failure

    async def _download(self, url: str, most: int) -> bytes:
        """Read a file; a redirect is not followed, because the address holds the token."""
        session = self._sends.session()
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


def _safe(text: str, secret: str) -> str:
    """Return a text of others as one line that can be stored and shown."""
    return " ".join(clean(text).replace(secret, "<token>").split())


def _told(error: Exception) -> str:
    """Return what a failure says, without the address: that of a proxy may hold a password."""
    text = f"{error.status} {error.message}" if isinstance(error, ClientResponseError) else str(error)
    return f"{type(error).__name__}: {re.sub(r'//[^/@ ]*@', '//', text)}"


def _unanswered(error: Exception, text: str) -> SendError:
    """Return our word for a request without an answer."""
    if isinstance(error, waiting.NOT_SENT):
        return Unreachable(f"Telegram could not be reached: {text}")
    return DeliveryUnsure(f"no answer of Telegram that can be trusted: {text}")


def _result(status: int, headers: Mapping[str, str], body: bytes, secret: str) -> Json:
    """Return the `result` of an answer (Bot API, Making requests). Raises: what `Api` says."""
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        answer = None
    if not isinstance(answer, dict) or not isinstance(answer.get("ok"), bool):
        raise _strange(status, headers)
    if answer["ok"] and HTTPStatus.OK <= status < HTTPStatus.MULTIPLE_CHOICES:
        return answer.get("result")
    code = answer.get("error_code")
    if status < HTTPStatus.BAD_REQUEST and isinstance(code, int):
        status = code  # something in between answers 200 to everything
    text = _safe(str(answer.get("description") or f"HTTP {status}"), secret)
    parameters = answer.get("parameters")
    raise _refused(status, text, parameters if isinstance(parameters, dict) else {})


def _strange(status: int, headers: Mapping[str, str]) -> SendError:
    """Return our word for an answer that is not of a Bot API server, but of what stands before it."""
    text = f"HTTP {status} without the JSON of a Bot API server"
    if status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
        return DeliveryError("the server takes no request that is so large (HTTP 413)")
    if status == HTTPStatus.TOO_MANY_REQUESTS:
        return DeliveryRetry(text, after=waiting.asked(headers.get("Retry-After")) or _BUSY)
    if not HTTPStatus.MULTIPLE_CHOICES <= status < HTTPStatus.INTERNAL_SERVER_ERROR:
        return DeliveryUnsure(f"no answer of Telegram that can be trusted: {text}")
    to = urlsplit(headers.get("Location", ""))  # its path holds the token
    leads = f", a redirect to {to.scheme}://{to.hostname}" if to.hostname else ""
    return DeliveryRetry(f"{text}{leads}: check api_base and proxy")


def _refused(status: int, text: str, parameters: JsonObject) -> SendError:
    """Return our word for a refusal (reliability 3.1, fact d)."""
    after, chat = waiting.asked(parameters.get("retry_after")), parameters.get("migrate_to_chat_id")
    if after:
        return DeliveryRetry(f"Telegram asks to wait {after:g} s", after=after)
    if chat:
        return Migrated(text, str(chat))
    match status:
        case HTTPStatus.UNAUTHORIZED | HTTPStatus.NOT_FOUND:
            return ChannelStopped(
                f"Telegram does not know the bot's token ({text}). Ask @BotFather for the present one "
                "(/mybots, API Token), put it into the configuration, check api_base and restart."
            )
        case HTTPStatus.CONFLICT if "webhook" in text:
            return WebhookSet(f"the bot has a webhook ({text})")
        case HTTPStatus.CONFLICT:
            return OtherPoller(f"another process polls with this token; stop it ({text})")
        case HTTPStatus.TOO_MANY_REQUESTS:  # without a time to wait
            return DeliveryRetry(text, after=_BUSY)
        case _ if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            return DeliveryUnsure(f"no answer of Telegram that can be trusted: {text}")
        case _:
            return DeliveryError(text)
