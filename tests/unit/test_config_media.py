"""The table `[media]`: what is accepted, and how a mistake is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway import config
from gateway.errors import ConfigError

CANARY = "canary-key-4711"


def parse(text: str) -> config.Settings:
    return config.parse(f"[media]\n{text}", {}, Path("/nowhere"))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("transcribe = true", 'media: transcribe = true needs an audio_model, such as "whisper-1"'),
        ("audio_base_url = 'http://h/v1'", "need an audio_model"),
        (f"audio_api_key = '{CANARY}'", "need an audio_model"),
        ("audio_model = 'm'\naudio_base_url = 'h/v1'", "must be an address that begins with http://"),
        (f"audio_model = 'm'\naudio_api_key = '{CANARY} x'", "holds blanks or characters outside ASCII"),
        ("image = 'gpt-5'", "did you mean media.image_model?"),
        ("transcribe = 3", "media.transcribe = 3"),
    ],
)
def test_a_mistake_is_told_with_what_is_allowed(text: str, problem: str) -> None:
    with pytest.raises(ConfigError) as error:
        parse(text)
    assert problem in str(error.value)
    assert CANARY not in str(error.value)


def test_nothing_is_on_by_itself() -> None:
    settings = parse("").media
    assert (settings.image_model, settings.audio_model, settings.transcribe) == ("", "", False)


def test_the_key_is_a_secret() -> None:
    settings = parse(f"audio_model = 'whisper-1'\naudio_api_key = '{CANARY}'")
    assert CANARY in config.secrets(settings)
    assert CANARY not in config.shown(settings) + repr(settings)
