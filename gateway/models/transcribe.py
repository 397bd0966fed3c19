"""Speech into text, by servers that speak OpenAI's `/audio/transcriptions`."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field

import httpx

from gateway.clock import Clock
from gateway.errors import ModelBusy
from gateway.models.failure import broken
from gateway.models.http import Endpoint, join, open_client, refusal, trouble
from gateway.models.loose import mapping, number, text
from gateway.types import Usage

TRIES = 2
LONGEST_WAIT = 5.0
"""Seconds that a server may ask for before the second try: somebody waits for the answer."""

LARGEST_ANSWER = 1_000_000
"""Bytes; more than anybody says in a recording that may be sent."""


@dataclass(frozen=True, slots=True)
class Heard:
    """What was said, and the tokens that it cost: none where the server counts seconds, or nothing."""

    text: str
    usage: Usage = field(default_factory=Usage)


class Transcriber:
    """A model behind `/audio/transcriptions`."""

    def __init__(self, endpoint: Endpoint, clock: Clock) -> None:
        self._endpoint = endpoint.check()
        self._clock = clock
        self._url = join(endpoint.base_url, "audio/transcriptions")
        self._headers = {"Authorization": f"Bearer {endpoint.key}"} if endpoint.key else {}
        self._client = open_client(endpoint.base_url, endpoint.timeouts)

    @property
    def name(self) -> str:
        """Return `provider/model`."""
        return self._endpoint.name

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    async def hear(self, content: bytes, name: str) -> Heard:
        """Return what is said in a recording; `name` is that of `name_of`.

        One that the server is too busy for is sent once more. Raises: ModelBusy, ModelRefused, PromptTooLong.
        """
        for attempt in range(1, TRIES):
            try:
                return await self._ask(content, name)
            except ModelBusy as error:
                if error.after > LONGEST_WAIT:
                    raise
                await self._clock.sleep(max(error.after, float(attempt)))
        return await self._ask(content, name)

    async def _ask(self, content: bytes, name: str) -> Heard:
        form = {"model": self._endpoint.model, "response_format": "json"}
        body = b""
        try:
            async with (
                asyncio.timeout(self._endpoint.timeouts.first),
                self._client.stream(
                    "POST", self._url, data=form, files={"file": (name, content)}, headers=self._headers
                ) as response,
            ):
                if response.status_code >= 300:
                    raise await refusal(self._endpoint, response, self._clock.wall())
                async for chunk in response.aiter_bytes():
                    body += chunk
                    if len(body) > LARGEST_ANSWER:
                        raise broken(self.name, "the answer is too large")
        except (TimeoutError, httpx.TransportError, httpx.DecodingError) as error:
            raise trouble(self._endpoint, error) from error
        return self._heard(body)

    def _heard(self, body: bytes) -> Heard:
        try:
            answer = json.loads(body)
        except (ValueError, RecursionError):
            answer = None
        if not isinstance(mapping(answer).get("text"), str):
            raise broken(self.name, "the answer holds no text")
        used = mapping(mapping(answer).get("usage"))
        return Heard(
            text(answer["text"]).strip(),
            Usage(input=number(used.get("input_tokens")), output=number(used.get("output_tokens"))),
        )
