"""The door to which the platform posts updates; a post is answered with 200 only after its commit."""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from aiohttp import web

from adapters.telegram.listen import Health, Webhook
from gateway.errors import DeliveryUnsure, StoreError
from gateway.types import Json

log = logging.getLogger(__name__)

HEADER = "X-Telegram-Bot-Api-Secret-Token"
LARGEST = 2**20
"""Bytes of a post; the largest updates have some ten thousand."""

BODY_SECONDS = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Door:
    """Takes posts of whoever knows the secret; `take` returns False while nobody listens."""

    webhook: Webhook
    health: Health
    take: Callable[[Json], Awaitable[bool]]

    def route(self) -> web.RouteDef:
        """Return what a server needs to have the door; it takes every method, to refuse all but one."""
        return web.route("*", self.webhook.path, self.handle)

    async def handle(self, request: web.Request) -> web.Response:
        """Answer one post (Bot API setWebhook). 503 makes the platform post it again."""
        if request.method != "POST":
            return web.Response(status=405, headers={"Allow": "POST"})
        given = request.headers.get(HEADER, "").encode("utf-8", "surrogateescape")
        if not hmac.compare_digest(given, self.webhook.secret.encode()):
            return self._refused(401, "the secret is wrong")
        if (request.content_length or 0) > LARGEST:
            return self._refused(413, "the post is too large")
        if request.headers.get("Content-Encoding", "identity") != "identity":
            return self._refused(415, "the post is packed")
        update = await _update(request)
        if update is None:
            return self._refused(400, "the post is not an update")
        try:
            taken = await self.take(update)
        except DeliveryUnsure as error:
            return self._refused(400, str(error))
        except StoreError as error:
            log.warning("telegram.post_postponed", extra={"problem": str(error)})
            taken = False
        return web.Response(status=200) if taken else web.Response(status=503, headers={"Retry-After": "1"})

    def _refused(self, status: int, problem: str) -> web.Response:
        self.health.refused += 1
        log.warning("telegram.post_refused", extra={"status": status, "problem": problem})
        return web.Response(status=status)


async def _update(request: web.Request) -> Json:
    """Return the body as JSON, None if it is none or does not come. Raises: HTTPRequestEntityTooLarge."""
    try:
        async with asyncio.timeout(BODY_SECONDS):
            update = json.loads(await request.read())
    except (ValueError, RecursionError, TimeoutError):
        return None
    return update if isinstance(update, dict) else None
