"""A recording on its way to `/audio/transcriptions`, and what comes back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from pydantic import SecretStr

from gateway.config import MediaSettings
from gateway.errors import ConfigError, ModelBusy, ModelRefused
from gateway.models.auto import open_transcriber
from gateway.models.http import Endpoint, Timeouts
from gateway.models.recordings import name_of
from gateway.models.transcribe import LARGEST_ANSWER, Heard, Transcriber
from gateway.types import Usage
from tests.fakes.clock import FakeClock
from tests.fakes.model_api import Answer, FakeModelApi, json_body, serving

CANARY = "canary-key-4711"
OGG = b"OggS\x00\x02" + b"x" * 100


@pytest.fixture
async def api() -> AsyncIterator[FakeModelApi]:
    async with serving() as fake:
        yield fake


@pytest.fixture
async def ears(api: FakeModelApi, clock: FakeClock) -> AsyncIterator[Transcriber]:
    endpoint = Endpoint(base_url=f"{api.url}/v1", model="whisper-1", provider="openai", key=CANARY)
    one = Transcriber(endpoint, clock)
    yield one
    await one.close()


async def test_a_recording_is_posted_as_a_form_and_its_words_come_back(
    api: FakeModelApi, ears: Transcriber
) -> None:
    api.play(json_body({"text": " Buy milk.\n"}))
    assert await ears.hear(OGG, "audio.ogg") == Heard("Buy milk.")
    (request,) = api.requests
    assert (request.method, request.path) == ("POST", "/v1/audio/transcriptions")
    assert request.headers["Authorization"] == f"Bearer {CANARY}"
    assert request.body == {
        "model": "whisper-1",
        "response_format": "json",
        "file": {"name": "audio.ogg", "content": OGG},
    }


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        ({"type": "tokens", "input_tokens": 14, "output_tokens": 45, "total_tokens": 59}, Usage(14, 45)),
        ({"type": "duration", "seconds": 9}, Usage()),
        (None, Usage()),
        ("much", Usage()),
    ],
)
async def test_tokens_are_counted_where_the_server_counts_them(
    api: FakeModelApi, ears: Transcriber, usage: Any, expected: Usage
) -> None:
    api.play(json_body({"text": "hi", "usage": usage}))
    assert (await ears.hear(OGG, "audio.ogg")).usage == expected


@pytest.mark.parametrize("status", [429, 500, 503])
async def test_a_busy_server_is_asked_once_more(
    api: FakeModelApi, ears: Transcriber, clock: FakeClock, status: int
) -> None:
    began = clock.time
    api.play(json_body({"error": "busy"}, status), json_body({"text": "hi"}))
    assert (await ears.hear(OGG, "audio.ogg")).text == "hi"
    assert clock.time - began >= 1


async def test_a_server_that_stays_busy_or_wants_a_long_pause_is_left_alone(
    api: FakeModelApi, ears: Transcriber
) -> None:
    api.play(json_body({"error": "busy"}, 503), json_body({"error": "busy"}, 503))
    with pytest.raises(ModelBusy):
        await ears.hear(OGG, "audio.ogg")
    api.play(json_body({"error": "busy"}, 429, retry_after="60"))
    with pytest.raises(ModelBusy):
        await ears.hear(OGG, "audio.ogg")
    assert len(api.requests) == 3


@pytest.mark.parametrize(
    ("answer", "error", "words"),
    [
        (json_body({"error": {"message": f"Invalid file, {CANARY}"}}, 400), ModelRefused, "Invalid file"),
        (json_body({"error": {"message": "Incorrect API key"}}, 401), ModelRefused, "HTTP 401"),
        (json_body({"text": None}), ModelBusy, "no text"),
        (json_body(["hi"]), ModelBusy, "no text"),
        (Answer(chunks=(b"<html>",), content_type="text/html"), ModelBusy, "no text"),
        (Answer(chunks=[b" " * 100_000] * (LARGEST_ANSWER // 100_000 + 2)), ModelBusy, "too large"),
        (Answer(chunks=(b'{"text"',), cut=5), ModelBusy, "the connection broke"),
    ],
    ids=["refused", "key", "null", "list", "html", "endless", "cut"],
)
async def test_what_goes_wrong_is_told_without_the_key(
    api: FakeModelApi, ears: Transcriber, answer: Answer, error: type[Exception], words: str
) -> None:
    api.otherwise = lambda _request: answer
    with pytest.raises(error, match=words) as raised:
        await ears.hear(OGG, "audio.ogg")
    assert CANARY not in str(raised.value)
    assert str(raised.value).startswith("openai/whisper-1: ")


async def test_a_server_that_says_nothing_is_given_up(api: FakeModelApi, clock: FakeClock) -> None:
    silent = Answer(chunks=(asyncio.Event(),))
    api.play(silent, silent)
    endpoint = Endpoint(base_url=api.url, model="m", provider="audio", timeouts=Timeouts(first=0.05))
    ears = Transcriber(endpoint, clock)
    with pytest.raises(ModelBusy, match="no answer in time"):
        await ears.hear(OGG, "audio.ogg")
    await ears.close()


async def test_nobody_at_the_address_is_told_with_its_host(clock: FakeClock) -> None:
    ears = Transcriber(Endpoint(base_url="http://127.0.0.1:9", model="m", provider="audio"), clock)
    with pytest.raises(ModelBusy, match=r"127\.0\.0\.1 can't be reached"):
        await ears.hear(OGG, "audio.ogg")
    await ears.close()


@pytest.mark.parametrize(
    ("content", "name"),
    [
        (OGG, "audio.ogg"),
        (b"ID3\x04", "audio.mp3"),
        (b"\xff\xfb\x90\x00", "audio.mp3"),
        (b"fLaC", "audio.flac"),
        (b"RIFF\x00\x00\x00\x00WAVEfmt ", "audio.wav"),
        (b"\x00\x00\x00\x20ftypM4A ", "audio.m4a"),
        (b"\x1aE\xdf\xa3", "audio.webm"),
        (b"RIFF\x00\x00\x00\x00WEBP", None),
        (b"\xff\xd8\xff\xe0", None),
        (b"\xff\xfeh\x00", None),
        (b"words", None),
        (b"\xff", None),
        (b"", None),
    ],
)
def test_a_recording_is_known_by_its_content(content: bytes, name: str | None) -> None:
    assert name_of(content) == name


LOCAL = MediaSettings(audio_model="whisper-1", audio_base_url="http://127.0.0.1:9/v1")
OPENAI = MediaSettings(audio_model="whisper-1")


async def test_the_key_of_the_environment_goes_to_its_own_provider_only(
    api: FakeModelApi, clock: FakeClock
) -> None:
    env = {"OPENAI_API_KEY": CANARY, "OPENAI_BASE_URL": f"{api.url}/v1"}
    api.otherwise = lambda _request: json_body({"text": "hi"})
    other = at(api.url)
    for settings in (OPENAI, other, other.model_copy(update={"audio_api_key": SecretStr("own")})):
        ears = open_transcriber(settings, env, clock)
        await ears.hear(OGG, "audio.ogg")
        await ears.close()
    keys = [request.headers.get("Authorization") for request in api.requests]
    assert keys == [f"Bearer {CANARY}", None, "Bearer own"]


def at(url: str) -> MediaSettings:
    return LOCAL.model_copy(update={"audio_base_url": url})


@pytest.mark.parametrize("url", ["", "https://api.openai.com/v1"])
def test_without_a_key_a_known_provider_is_not_even_asked(clock: FakeClock, url: str) -> None:
    with pytest.raises(
        ConfigError, match=r"\[media\] audio_api_key is missing: set it, or set OPENAI_API_KEY"
    ):
        open_transcriber(at(url), {}, clock)


def test_a_key_that_can_not_be_sent_is_not_printed(clock: FakeClock) -> None:
    endpoint = Endpoint(base_url="http://127.0.0.1:9", model="m", provider="audio", key=f"{CANARY}\n")
    with pytest.raises(ConfigError) as raised:
        Transcriber(endpoint, clock)
    assert CANARY not in str(raised.value)
