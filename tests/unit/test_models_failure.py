"""What a provider's refusal means for us."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.errors import ModelBusy, ModelError, ModelRefused, PromptTooLong
from gateway.models.failure import (
    Rejected,
    Unusable,
    clean,
    failure,
    retry_after,
    said_bytes,
    stream_failure,
)


@pytest.mark.parametrize(
    ("status", "detail", "kind"),
    [
        (429, "Rate limit reached", ModelBusy),
        (429, "You exceeded your current quota (insufficient_quota)", Unusable),
        (429, "Request too large: tokens per min. Limit 30000, Requested 40000. context length", ModelBusy),
        (402, "Insufficient Balance", Unusable),
        (402, "You have reached your weekly limit, it resets at noon", ModelBusy),
        (400, "Your credit balance is too low to access the API", Unusable),
        (401, "", Unusable),
        (403, "not allowed", Unusable),
        (403, "Your input was flagged by moderation", Rejected),
        (404, "The model `x` does not exist", Unusable),
        (404, "Not Found", Unusable),
        (301, "", Unusable),
        (413, "", PromptTooLong),
        (400, "context_length_exceeded", PromptTooLong),
        (500, "input is too long: the request exceeds the available context size", PromptTooLong),
        (500, "", ModelBusy),
        (422, "Input should be a valid string", Rejected),
    ],
)
def test_a_status_becomes_the_error_of_its_reaction(status: int, detail: str, kind: type[ModelError]) -> None:
    error = failure("openai/x", status, detail, after=2.0)

    assert type(error) is kind
    assert error.hint
    assert f"HTTP {status}" in str(error)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ({"code": 502, "message": "m"}, ModelBusy),
        ({"code": "429", "message": "m"}, ModelBusy),
        ({"type": "overloaded_error", "message": "m"}, ModelBusy),
        ({"type": "authentication_error", "message": "m"}, Unusable),
        ({"type": "invalid_request_error", "message": "prompt is too long: m"}, PromptTooLong),
        ({"code": "context_length_exceeded", "message": "m"}, PromptTooLong),
        ({"code": 400, "message": "m"}, ModelRefused),
        ({"message": "m"}, ModelBusy),
        ("m", ModelBusy),
        (True, ModelBusy),
    ],
)
def test_an_error_inside_a_stream_is_told_by_its_codes(error: Any, kind: type[ModelError]) -> None:
    assert isinstance(stream_failure("openai/x", error), kind)


@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        (b'{"error":{"message":"bad","type":"t","code":"c","param":null}}', "bad (t, c)"),
        (b'{"error":"bad"}', "bad"),
        (b'{"detail":[{"msg":"bad"}]}', '[{"msg": "bad"}]'),
        (b'[{"error":{"message":"bad","status":"X"}}]', "bad"),
        (
            b'{"error":{"message":"Provider returned error","metadata":{"raw":"real"}}}',
            "Provider returned error (real)",
        ),
        (b"<html>502</html>", "a web page instead of JSON"),
        (b"plain", "plain"),
        (b"", ""),
        (b"\xff", "\ufffd"),
    ],
)
def test_the_reason_is_found_in_any_body(body: bytes, wanted: str) -> None:
    assert said_bytes(body) == wanted


def test_a_reason_never_holds_the_key_or_what_looks_like_one() -> None:
    assert clean("bad key s3cret\nand sk-abc123def", "s3cret") == "bad key *** and ***"


@pytest.mark.parametrize(
    ("headers", "wanted"),
    [
        ({}, 0.0),
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": "1.5"}, 1.5),
        ({"retry-after-ms": "250", "retry-after": "1"}, 0.25),
        ({"retry-after": "Sat, 28 Feb 2026 06:30:30 GMT"}, 30.0),
        ({"retry-after": "Sat, 28 Feb 2026 06:30:30 GMT", "date": "Sat, 28 Feb 2026 06:30:20 GMT"}, 10.0),
        ({"retry-after": "Fri, 27 Feb 2026 06:30:30 GMT"}, 0.0),
        ({"retry-after": "soon"}, 0.0),
        ({"retry-after": "-5"}, 0.0),
    ],
)
def test_the_wait_is_read_as_seconds_or_as_a_date(headers: dict[str, str], wanted: float) -> None:
    assert retry_after(headers, wall=1_772_260_200.0) == wanted
