"""What a provider's refusal means for us: wait, shorten, another model, or tell the person."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import UTC
from email.utils import parsedate_to_datetime

from gateway.errors import ModelBusy, ModelError, ModelRefused, PromptTooLong
from gateway.models.loose import mapping, text
from gateway.types import Json

_LONGEST_DETAIL = 2000
"""Characters of a provider's error text that are kept."""


class Rejected(ModelRefused):
    """The provider refuses the request; `status` is the HTTP status."""

    def __init__(self, message: str, *, status: int, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.status = status


class Unusable(Rejected):
    """The provider refuses the account or the model's name, not this prompt: another model may answer."""


_TOO_LONG = re.compile(
    r"""
      context[_ ](length|window|size|limit) | maximum\ context | n_ctx | exceed_context
    | (prompt|input|request)(\ is)?\ too\ (long|large) | request_too_large | string_above_max_length
    | input\ length | range\ of\ input\ length | maximum\ (allowed\ )?(prompt|input)\ length
    | too\ many\ (input\ )?tokens | exceed\ max\ message\ tokens | reduce\ the\ length
    | token\ (count|limit)\b.*exceed | exceeds?\b.*\b(token\ limit|maximum.*tokens)
    """,
    re.IGNORECASE | re.VERBOSE,
)
"""How providers say that the prompt exceeds the window (agent 3.7)."""

_UNPAID = re.compile(
    r"insufficient_quota|insufficient[_ ](balance|credit|funds)|credit balance|payment required",
    re.IGNORECASE,
)
_RESETS = re.compile(r"(weekly|daily|hourly|usage|rate) limit|resets? (at|in|on)", re.IGNORECASE)
_UNSAFE = re.compile(
    r"content[_ ](policy|filter|management)|data_inspection|safety|moderation|flagged", re.IGNORECASE
)
_VLLM_CHOICE = "enable-auto-tool-choice"

_BUSY_STATUS = frozenset({408, 409, 425, 429})
_BY_TYPE = {
    "overloaded_error": 529,
    "rate_limit_error": 429,
    "rate_limit_exceeded": 429,
    "authentication_error": 401,
    "permission_error": 403,
    "billing_error": 402,
    "not_found_error": 404,
    "invalid_request_error": 400,
    "request_too_large": 413,
    "insufficient_quota": 402,
    "context_length_exceeded": 400,
}
"""Statuses of errors that come inside a stream, where only a type is given."""


def failure(model: str, status: int, detail: str, *, after: float = 0.0) -> ModelError:
    """Return the error for a status that is no success.

    `model` is `provider/model` for the message; `detail` is what the provider said, without secrets;
    `after` is the wait in seconds that it asked for.
    """
    message = f"{model}: HTTP {status}: {detail or 'no reason given'}"
    too_long = _TOO_LONG.search(detail) is not None
    if _unpaid(status, detail):
        hint = "The account at the model provider has no credit left. Its owner has to add some."
        return Unusable(message, status=status, hint=hint)
    # Local servers answer 500 to a prompt that does not fit.
    if status == 413 or (too_long and status not in _BUSY_STATUS):
        return PromptTooLong(message, hint=_TOO_LONG_HINT)
    if status in _BUSY_STATUS or status >= 500 or status == 402:
        return ModelBusy(message, after=after, hint=busy_hint(f"HTTP {status}"))
    return _refused(message, model, status, detail)


def _unpaid(status: int, detail: str) -> bool:
    """Return whether money is missing; some answer 402 when only a weekly limit is used up (agent 3.6)."""
    if status == 402:
        return _RESETS.search(detail) is None
    return status in {400, 403, 429} and _UNPAID.search(detail) is not None


_TOO_LONG_HINT = "This conversation is too long for the model. Send /new to start afresh."


def _refused(message: str, model: str, status: int, detail: str) -> Rejected:
    if _UNSAFE.search(detail):
        hint = "The model provider's safety filter refused this request. Please say it in other words."
        return Rejected(message, status=status, hint=hint)
    if status in {401, 403}:
        hint = f"The model provider refused the API key (HTTP {status}). Check the key in the configuration."
        return Unusable(message, status=status, hint=hint)
    if status == 404 and "model" in detail.lower():
        hint = f"The model provider does not know the model {model.partition('/')[2]}. Check name in [model]."
        return Unusable(message, status=status, hint=hint)
    if status < 400 or status in {404, 405}:
        hint = f"There is no model server at this address (HTTP {status}). Check base_url in [model]."
        return Unusable(message, status=status, hint=hint)
    if _VLLM_CHOICE in detail:
        hint = (
            "The model server can't call tools: start vLLM with --enable-auto-tool-choice and a tool parser."
        )
        return Rejected(message, status=status, hint=hint)
    hint = (
        f"The model provider refused the request (HTTP {status}). If that goes on, send /new to start afresh."
    )
    return Rejected(message, status=status, hint=hint)


def busy_hint(why: str) -> str:
    """Return what the person who waits is told of a model that may answer later."""
    return f"The model does not answer right now ({why}). Please try again in a minute."


def broken(model: str, why: str) -> ModelBusy:
    """Return the error for an answer that did not come to its end."""
    return ModelBusy(f"{model}: {why}", hint=busy_hint(why))


def stream_failure(model: str, error: Json, hide: str = "") -> ModelError:
    """Return the error for an error object inside a stream (models 2.3 rows 18 and 30)."""
    kinds = [mapping(error).get(key) for key in ("code", "status", "type")]
    detail = clean(said({"error": error}), hide)
    numbers = [int(kind) for kind in map(str, kinds) if re.fullmatch(r"[45]\d\d", kind)]
    named = [_BY_TYPE[kind] for kind in kinds if isinstance(kind, str) and kind in _BY_TYPE]
    return failure(model, next(iter(numbers + named), 500), detail)


def said(body: Json) -> str:
    """Return the human part of an error body, with the codes that tell one error from another."""
    if isinstance(body, list):
        return said(body[0]) if body else ""
    if not isinstance(body, dict):
        return body if isinstance(body, str) else ""
    error = body.get("error", body)
    if not isinstance(error, dict):
        return said(error)
    words = error.get("message") or error.get("detail") or error.get("msg") or error
    reason = text(words) or json.dumps(words, ensure_ascii=False)
    marks = [str(error[key]) for key in ("type", "code", "param") if error.get(key)]
    raw = text(mapping(error.get("metadata")).get("raw"))
    marks += [raw] if raw else []  # OpenRouter: what the provider behind it said
    return f"{reason} ({', '.join(marks)})" if marks else reason


def said_bytes(body: bytes) -> str:
    """Return the human part of an error body that may be anything."""
    words = body.decode("utf-8", "replace").strip()
    try:
        return said(json.loads(words)) or words
    except (ValueError, RecursionError):
        return "a web page instead of JSON" if words.startswith("<") else words


def clean(detail: str, hide: str) -> str:
    """Return the text on one line, short, and without the key."""
    line = " ".join(detail.split())
    if hide:
        line = line.replace(hide, "***")
    return re.sub(r"\b(sk|gsk|key|pk)-[\w*-]{6,}", "***", line)[:_LONGEST_DETAIL]


def retry_after(headers: Mapping[str, str], wall: float) -> float:
    """Return the seconds to wait that the headers ask for, 0 if none; `wall` is UNIX seconds.

    `Retry-After` holds seconds or a date, which is read against the server's own `Date` if it has one
    (RFC 9110 10.2.3); OpenAI also sends `retry-after-ms`. Header names are in lower case.
    """
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        value = headers.get(name, "").strip()
        if re.fullmatch(r"\d{1,9}(\.\d{1,9})?", value):
            return float(value) * unit
    date = _moment(headers.get("retry-after", ""))
    if date is None:
        return 0.0
    return max(0.0, date - (_moment(headers.get("date", "")) or wall))


def _moment(header: str) -> float | None:
    """Return an HTTP date as UNIX seconds."""
    try:
        date = parsedate_to_datetime(header)
    except ValueError:
        return None
    return (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp()
