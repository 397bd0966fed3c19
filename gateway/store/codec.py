"""Turns entries into rows and back; written out, because `asdict` costs more than the transaction."""

from __future__ import annotations

import json
import logging

from gateway.types import (
    AssistantEntry,
    Chat,
    Entry,
    Json,
    JsonObject,
    Kind,
    NoteEntry,
    Sender,
    Stimulus,
    ToolCall,
    ToolEntry,
    Usage,
    UserEntry,
)

log = logging.getLogger(__name__)


def dump(value: Json) -> str:
    """Return compact JSON that every database takes: NUL and lone surrogates are escaped."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.dumps(value, separators=(",", ":"))
    return text


def _call(call: ToolCall) -> JsonObject:
    body: JsonObject = {"id": call.id, "name": call.name, "args": call.args}
    if call.problem is not None:
        body["problem"] = call.problem
    if call.extra:
        body["extra"] = call.extra
    return body


def encode(entry: Entry) -> tuple[str, str]:
    """Return (role, body)."""
    match entry:
        case UserEntry():
            return "user", dump(
                {
                    "text": entry.text,
                    "sender": [entry.sender.id, entry.sender.name],
                    "kind": entry.kind,
                    "at": entry.at,
                    "chat": entry.chat,
                }
            )
        case AssistantEntry():
            body: JsonObject = {"text": entry.text}
            if entry.calls:
                body["calls"] = [_call(call) for call in entry.calls]
            if entry.reasoning:
                body["reasoning"] = entry.reasoning
            if entry.model:
                body["model"] = entry.model
            if entry.state:
                body["state"] = entry.state
            return "assistant", dump(body)
        case ToolEntry():
            return "tool", dump(
                {"call_id": entry.call_id, "name": entry.name, "text": entry.text, "is_error": entry.is_error}
            )
        case NoteEntry():
            return "note", dump({"text": entry.text})


UNREADABLE = "[One entry of this conversation can't be read any more.]"


def decode(role: str, text: str) -> Entry:
    """Return what `encode` wrote, for a row that can't be read a note in its place.

    It never raises: the row is read in the transaction that claims, where one bad conversation would
    stop all of them (reliability row 29).
    """
    try:
        return _decode(role, text)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        log.error("entry.unreadable", extra={"role": role, "problem": type(error).__name__})  # noqa: TRY400 - no fault of ours
        return NoteEntry(UNREADABLE)


def _decode(role: str, text: str) -> Entry:
    body = json.loads(text)
    match role:
        case "user":
            return UserEntry(
                body["text"], Sender(*body["sender"]), Kind(body["kind"]), body["at"], Chat(body["chat"])
            )
        case "assistant":
            return AssistantEntry(
                body["text"],
                tuple(ToolCall(**call) for call in body.get("calls", ())),
                body.get("reasoning", ""),
                body.get("model", ""),
                body.get("state", {}),
            )
        case "tool":
            return ToolEntry(body["call_id"], body["name"], body["text"], body["is_error"])
        case "note":
            return NoteEntry(body["text"])
        case _:
            raise ValueError(f"unknown role of a stored entry: {role!r}")


def encode_stimulus(stimulus: Stimulus) -> str:
    """Return the body of an inbound row."""
    return dump(
        {
            "text": stimulus.text,
            "sender": [stimulus.sender.id, stimulus.sender.name],
            "at": stimulus.at,
            "chat": stimulus.chat,
        }
    )


def decode_stimulus(kind: str, text: str) -> UserEntry:
    """Return the transcript's form of an inbound row."""
    body = json.loads(text)
    return UserEntry(body["text"], Sender(*body["sender"]), Kind(kind), body["at"], Chat(body["chat"]))


def encode_usage(usage: Usage) -> str:
    """Return the usage column."""
    return dump(
        {
            "input": usage.input,
            "output": usage.output,
            "cached": usage.cached,
            "cache_write": usage.cache_write,
        }
    )
