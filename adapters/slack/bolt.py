"""Bolt as the receiver: one global middleware takes every request in, and no listener runs after it."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

from slack_bolt.adapter.socket_mode.async_internals import run_async_bolt_app
from slack_bolt.async_app import AsyncApp
from slack_bolt.authorization import AuthorizeResult
from slack_bolt.request.async_request import AsyncBoltRequest
from slack_bolt.response import BoltResponse
from slack_sdk.socket_mode.request import SocketModeRequest
from slack_sdk.web.async_client import AsyncWebClient

from adapters.slack.client import quiet
from adapters.slack.events import Me
from adapters.slack.listen import Answer
from gateway.types import JsonObject

Take = Callable[[JsonObject], Awaitable[Answer]]


class Receiver:
    """Bolt's AsyncApp around `take`.

    Bolt acknowledges an event before its listener has run, and answers 404 to one without a listener; a
    middleware that does not go on answers for all of it, after the commit (reliability 0.1).
    """

    def __init__(self, me: Me, take: Take) -> None:
        async def authorize(**_: Any) -> AuthorizeResult:  # noqa: ANN401 - Bolt's keywords
            return AuthorizeResult(
                enterprise_id=None, team_id=me.team, bot_id=me.bot, bot_user_id=me.user, bot_token=""
            )

        async def commit(body: JsonObject) -> BoltResponse:
            answer = await take(body)
            return BoltResponse(status=answer.status, body="" if answer.body is None else answer.body)

        # Posts are verified before they come here, by the Clock that is handed in; our own messages are
        # told apart where they are read.
        self._app = AsyncApp(
            name="crayfish",
            logger=quiet,
            client=AsyncWebClient(logger=quiet),
            authorize=authorize,
            request_verification_enabled=False,
            ignoring_self_events_enabled=False,
            ssl_check_enabled=False,
            url_verification_enabled=False,
            attaching_function_token_enabled=False,
        )
        self._app.use(commit)

    async def envelope(self, frame: JsonObject) -> Answer:
        """Take in what came by a socket."""
        request = SocketModeRequest.from_dict(frame)
        if request is None:
            return Answer(400)
        return _answer(await run_async_bolt_app(self._app, request))

    async def post(self, body: str, headers: dict[str, str]) -> Answer:
        """Take in what came by HTTP."""
        return _answer(await self._app.async_dispatch(AsyncBoltRequest(body=body, headers={**headers})))


def _answer(response: BoltResponse) -> Answer:
    return Answer(response.status, json.loads(response.body) if response.body else None)
