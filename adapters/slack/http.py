"""The door to which Slack posts events; a post is answered with 200 only after its commit."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import logging
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import parse_qs

from aiohttp import web

from adapters.slack.listen import Answer, Health
from gateway.clock import Clock
from gateway.types import JsonObject

log = logging.getLogger(__name__)

LARGEST: Final = 2**20
"""Bytes of a post; Slack's have some ten thousand."""

BODY_SECONDS: Final = 10.0
AGE: Final = 300
"""Seconds by which the time of a post may differ from ours (Verifying requests from Slack)."""

Dispatch = Callable[[str, dict[str, str]], Awaitable[Answer]]
"""Hands over a body and the headers that tell what it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Door:
    """Takes posts that are signed with the secret."""

    path: str
    secret: str = field(repr=False)
    clock: Clock
    health: Health
    dispatch: Dispatch

    def route(self) -> web.RouteDef:
        """Return what a server needs to have the door; it takes every method, to refuse all but one."""
        return web.route("*", self.path, self.handle)

    async def handle(self, request: web.Request) -> web.Response:
        """Answer one post (Events API, interactivity, slash commands). 503 makes Slack post it again."""
        if request.method != "POST":
            return web.Response(status=405, headers={"Allow": "POST"})
        if (request.content_length or 0) > LARGEST:
            return self._refused(413, "the post is too large")
        if request.headers.get("Content-Encoding", "identity") != "identity":
            return self._refused(415, "the post is packed")
        try:
            async with asyncio.timeout(BODY_SECONDS):
                raw = await request.read()
        except TimeoutError:
            return self._refused(408, "the post does not come")
        if problem := self._forged(request, raw):
            return self._refused(401, problem)
        try:
            text = raw.decode()
            body = _body(text, request.content_type)
        except (ValueError, RecursionError):
            return self._refused(400, "the post can't be read")
        if body.get("type") == "url_verification":
            # As plain text: what somebody puts in there must not become a page (webhook-018).
            return web.Response(text=str(body.get("challenge") or ""), content_type="text/plain")
        return _response(await self.dispatch(text, {"content-type": request.content_type}))

    def _forged(self, request: web.Request, raw: bytes) -> str:
        """Return why a post can't be Slack's, "" if it is. The signature is over the raw bytes."""
        at = request.headers.get("X-Slack-Request-Timestamp", "")
        given = request.headers.get("X-Slack-Signature", "").encode("utf-8", "surrogateescape")
        if not re.fullmatch(r"[0-9]{1,12}", at):
            return "it has no time"
        mac = hmac.new(self.secret.encode(), b"v0:" + at.encode() + b":" + raw, hashlib.sha256)
        if not self.secret or not hmac.compare_digest(given, f"v0={mac.hexdigest()}".encode()):
            return "the signature is wrong"
        if abs(self.clock.wall() - int(at)) > AGE:
            return "it is too old, or this machine's clock is wrong"
        return ""

    def _refused(self, status: int, problem: str) -> web.Response:
        self.health.refused += 1
        log.warning("slack.post_refused", extra={"status": status, "problem": problem})
        return web.Response(status=status)


def _body(text: str, content_type: str) -> JsonObject:
    """Return a post as Bolt will read it. Raises: ValueError, RecursionError."""
    if content_type == "application/x-www-form-urlencoded":
        form = {name: values[-1] for name, values in parse_qs(text, max_num_fields=100).items()}
        body = json.loads(form["payload"]) if "payload" in form else form
    else:
        body = json.loads(text)
    if not isinstance(body, dict):
        raise ValueError("not an object")  # noqa: TRY004 - what json.loads raises
    return body


def _response(answer: Answer) -> web.Response:
    if answer.status != 200:
        return web.Response(status=answer.status, headers={"Retry-After": "1"})
    return web.Response() if answer.body is None else web.json_response(answer.body)
