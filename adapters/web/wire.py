"""What goes over the wire: requests read, events and answers written."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NoReturn, TypeAlias

from adapters.web.guard import Refusal
from gateway.feed import (
    Compacted,
    Delta,
    Event,
    Restarted,
    ToolEnded,
    ToolStarted,
    TurnEnded,
    TurnGone,
    TurnStarted,
)
from gateway.types import Json, JsonObject, Outgoing

NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""What a session or a client's message id may look like."""

LONGEST_ARGUMENT = 200
"""Characters of a tool's argument that a watcher sees, and of one of ours."""

MOST = 200
"""Rows that one request may ask for."""

_LINE_ENDS = (("\x85", r"\u0085"), ("\u2028", r"\u2028"), ("\u2029", r"\u2029"))


@dataclass(frozen=True, slots=True)
class Accepted:
    """A message of this session was stored; other windows of the same session show it."""

    task: str
    text: str


Item: TypeAlias = Event | Accepted | Outgoing


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """The body of `POST /api/chat`; `id` is the client's idempotency key, "" if it gave none."""

    message: str
    session: str
    id: str
    wait: bool


def read_object(body: bytes) -> JsonObject:
    """Read a JSON object; nesting bombs and endless numbers are as bad as broken text (size-003, size-004).

    Raises: Refusal 400.
    """
    try:
        value = json.loads(body, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        raise bad("the body is not valid JSON") from None
    if not isinstance(value, dict):
        raise bad("the body must be a JSON object")
    return value


def read_chat(body: bytes) -> ChatRequest:
    """Read the body of `POST /api/chat`: {message, session?, id?, wait?}.

    Raises: Refusal 400.
    """
    value = read_object(body)
    message = value.get("message")
    if not isinstance(message, str):
        raise bad("`message` must be a string")
    text = storable(message)
    if not text.strip():
        raise bad("`message` is empty")
    wait = read_flag(value, "wait")
    given = value.get("id")
    return ChatRequest(text, read_session(value), "" if given is None else _name(given, "id"), wait)


def read_session(values: Mapping[str, Json]) -> str:
    """Return the session that a body or a query names, `main` if none.

    Raises: Refusal 400.
    """
    given = values.get("session")
    return "main" if given is None else _name(given, "session")


def read_text(values: Mapping[str, Json], name: str) -> str:
    """Return a short text that must be there.

    Raises: Refusal 400.
    """
    given = values.get(name)
    if not isinstance(given, str) or not 0 < len(given) <= LONGEST_ARGUMENT:
        raise bad(f"`{name}` must be a text of at most {LONGEST_ARGUMENT} characters")
    return storable(given)


def read_flag(values: Mapping[str, Json], name: str) -> bool:
    """Return a truth value, false if it is left out.

    Raises: Refusal 400.
    """
    given = values.get(name, False)
    if not isinstance(given, bool):
        raise bad(f"`{name}` must be true or false")
    return given


def read_number(values: Mapping[str, str], name: str, *, default: int | None = None) -> int | None:
    """Return a number of the query.

    Raises: Refusal 400.
    """
    text = values.get(name)
    if text is None:
        return default
    if not re.fullmatch(r"\d{1,18}", text, re.ASCII):
        raise bad(f"`{name}` must be a number")
    return int(text)


def read_limit(values: Mapping[str, str]) -> int:
    """Return how many rows are asked for, 50 if unsaid, never more than `MOST`.

    Raises: Refusal 400.
    """
    return max(1, min(MOST, read_number(values, "limit", default=50) or 1))


def storable(text: str) -> str:
    """Return text that every database can hold: no NUL, no half of a surrogate pair (text-009)."""
    return text.replace("\0", "").encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def task_of(key: str, session: str) -> str | None:
    """Return the task that a stimulus key of this channel stands for."""
    prefix = stimulus_key(session, "")
    return key.removeprefix(prefix) if key.startswith(prefix) else None


def stimulus_key(session: str, task: str) -> str:
    """Return the unique key of a task's stimulus."""
    return f"web:{session}:{task}"


def events(item: Event | Accepted, session: str) -> list[JsonObject]:
    """Return what a watcher of the session is told about one happening (agent L)."""
    match item:
        case Accepted(task, text):
            return [{"type": "progress", "status": "accepted", "taskId": task, "message": text}]
        case TurnStarted():
            return [{"type": "progress", "status": "thinking"}]
        case Delta(text):
            return [{"type": "delta", "text": text}]
        case Restarted():
            return [{"type": "restart"}]
        case ToolStarted(name, args):
            return [{"type": "tool_start", "name": name, "args": _shortened(args)}]
        case ToolEnded(name, is_error, plan):
            ended: JsonObject = {"type": "tool_end", "name": name, "error": is_error}
            return [ended | ({"plan": plan} if plan else {})]
        case TurnEnded():
            return _ended(item, session)
        case TurnGone():
            return [{"type": "progress", "status": "done"}]
        case Compacted(entries, kept):
            return [{"type": "compacted", "entries": entries, "kept": kept}]


def message(row: JsonObject) -> JsonObject:
    """Return what a watcher is told of an outgoing message."""
    event: JsonObject = {"type": "message", "taskId": row.get("task") or ""}
    return event | {name: row[name] for name in ("id", "text", "name", "buttons", "replaces") if name in row}


def _ended(turn: TurnEnded, session: str) -> list[JsonObject]:
    tasks = [task for key in turn.keys if (task := task_of(key, session))]
    if not tasks:  # a heartbeat or a schedule: nobody's task, but the work is over
        return [{"type": "progress", "status": "done"}]
    if turn.is_error:
        return [{"type": "task_error", "taskId": task, "error": turn.text} for task in tasks]
    return [{"type": "task_complete", "taskId": task, "result": turn.text} for task in tasks]


def frame(event: JsonObject, cursor: int) -> bytes:
    """Return one server-sent event; its id is the last stored reply before or in it (HTML 9.2).

    Only CR and LF end a line there, but many readers split at what Unicode calls one, too: that is escaped.
    """
    text = to_json(event)
    for end, escaped in _LINE_ENDS:
        text = text.replace(end, escaped)
    return b"id: %d\ndata: %b\n\n" % (cursor, text.encode("utf-8", "replace"))


def to_json(value: Json) -> str:
    """Write JSON on one line."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _shortened(args: JsonObject) -> JsonObject:
    return {name: _short(value) for name, value in args.items()}


def _short(value: Json) -> Json:
    if value is None or isinstance(value, bool | int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    text = value if isinstance(value, str) else to_json(value)
    return text if len(text) <= LONGEST_ARGUMENT else f"{text[:LONGEST_ARGUMENT]}…"


def _name(value: Json, field: str) -> str:
    if not isinstance(value, str) or not NAME.fullmatch(value):
        raise bad(f"`{field}` must be 1 to 64 letters, digits, `-` or `_`")
    return value


def bad(message: str) -> Refusal:
    """Return the refusal of a request whose shape or values are wrong."""
    return Refusal(400, "bad_request", message)


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(name)
