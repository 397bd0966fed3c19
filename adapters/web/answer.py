"""How a request is read and answered, whatever it asks."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping
from typing import TypeVar

from aiohttp import web

from adapters.web import wire
from adapters.web.guard import Refusal
from gateway.errors import StoreError
from gateway.types import Json

BODY_SECONDS = 30.0
"""How long a client may take to send its body."""

READ_SECONDS = 30.0
"""How long the store may take to answer a question of the page."""

T = TypeVar("T")


async def read_body(request: web.Request) -> bytes:
    """Return the body. Raises: Refusal 408."""
    try:
        async with asyncio.timeout(BODY_SECONDS):
            return await request.read()
    except TimeoutError:
        raise Refusal(408, "timeout", "the body took too long: send it again") from None


async def ask(question: Awaitable[T]) -> T:
    """Return the store's answer. Raises: StoreError."""
    try:
        async with asyncio.timeout(READ_SECONDS):
            return await question
    except TimeoutError:
        raise StoreError(f"the store took longer than {READ_SECONDS:g} s to answer") from None


def as_json(value: Json, status: int = 200, headers: Mapping[str, str] | None = None) -> web.Response:
    """Return an answer that no cache keeps."""
    body = wire.to_json(value).encode("utf-8", "replace")
    response = web.Response(body=body, status=status, content_type="application/json", charset="utf-8")
    response.headers.update({"Cache-Control": "no-store", **(headers or {})})
    return response


def refused(refusal: Refusal) -> web.Response:
    """Return the answer that a refusal is."""
    error = {"type": refusal.kind, "message": refusal.message}
    return as_json({"error": error}, refusal.status, refusal.headers)
