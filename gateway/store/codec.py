"""Turns entries into rows and back; written out, because `asdict` costs more than the transaction."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable

from gateway.types import (
    Address,
    AssistantEntry,
    Attachment,
    Button,
    Chat,
    Entry,
    Json,
    JsonObject,
    Kind,
    Media,
    NoteEntry,
    OnUnknown,
    Outgoing,
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


_FILE = ("name", "mime", "size", "ref", "path", "problem", "transcript")


def _attachment(attachment: Attachment) -> JsonObject:
    body: JsonObject = {"kind": attachment.kind}
    return body | {name: value for name in _FILE if (value := getattr(attachment, name))}


def _attachments(bodies: Iterable[JsonObject]) -> tuple[Attachment, ...]:
    return tuple(Attachment(**body | {"kind": Media(body["kind"])}) for body in bodies)


def _said(one: UserEntry | Stimulus) -> JsonObject:
    """Return what a message is in the inbox and in the transcript alike; what is usual is left out."""
    body: JsonObject = {
        "text": one.text,
        "sender": [one.sender.id, one.sender.name] + ([one.sender.level] if one.sender.level else []),
        "at": one.at,
        "chat": one.chat,
    }
    if one.message_id:
        body["message_id"] = one.message_id
    if one.attachments:
        body["attachments"] = [_attachment(each) for each in one.attachments]
    if one.quote:
        body["quote"] = one.quote
    if not one.aimed:
        body["aimed"] = False
    if one.deliver_to:
        body["deliver_to"] = one.deliver_to
    if one.forwarded:
        body["forwarded"] = True
    return body


def _user(body: JsonObject, kind: str) -> UserEntry:
    return UserEntry(
        body["text"],
        Sender(*body["sender"]),
        Kind(kind),
        body["at"],
        Chat(body["chat"]),
        body.get("message_id", ""),
        _attachments(body.get("attachments", ())),
        body.get("quote", ""),
        body.get("aimed", True),
        body.get("deliver_to", ""),
        body.get("forwarded", False),
    )


def encode(entry: Entry) -> tuple[str, str]:
    """Return (role, body)."""
    match entry:
        case UserEntry():
            return "user", dump({**_said(entry), "kind": entry.kind})
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
            result: JsonObject = {"call_id": entry.call_id, "name": entry.name, "text": entry.text}
            result["is_error"] = entry.is_error
            if entry.attachments:
                result["attachments"] = list(map(_attachment, entry.attachments))
            return "tool", dump(result)
        case NoteEntry():
            return "note", dump({"text": entry.text})


_BROKEN = (ValueError, KeyError, TypeError, AttributeError, RecursionError)

UNREADABLE = "[One entry of this conversation can't be read any more.]"


def decode(role: str, text: str) -> Entry:
    """Return what `encode` wrote, for a row that can't be read a note in its place.

    It never raises: the row is read in the transaction that claims, where one bad conversation would
    stop all of them (reliability row 29).
    """
    try:
        return _decode(role, text)
    except _BROKEN as error:
        log.error("entry.unreadable", extra={"role": role, "problem": type(error).__name__})  # noqa: TRY400 - no fault of ours
        return NoteEntry(UNREADABLE, lost=True)


def _decode(role: str, text: str) -> Entry:
    body = json.loads(text)
    match role:
        case "user":
            return _user(body, body["kind"])
        case "assistant":
            return AssistantEntry(
                body["text"],
                tuple(ToolCall(**call) for call in body.get("calls", ())),
                body.get("reasoning", ""),
                body.get("model", ""),
                body.get("state", {}),
            )
        case "tool":
            pictures = _attachments(body.get("attachments", ()))
            return ToolEntry(body["call_id"], body["name"], body["text"], body["is_error"], pictures)
        case "note":
            return NoteEntry(body["text"])
        case _:
            raise ValueError(f"unknown role of a stored entry: {role!r}")


def encode_stimulus(stimulus: Stimulus) -> str:
    """Return the body of an inbound row."""
    return dump(_said(stimulus))


def decode_stimulus(kind: str, text: str) -> UserEntry:
    """Return the transcript's form of an inbound row; one that can't be read says so, as in `decode`."""
    try:
        return _user(json.loads(text), kind)
    except _BROKEN as error:
        log.error("inbound.unreadable", extra={"problem": type(error).__name__})  # noqa: TRY400 - no fault of ours
        return UserEntry(UNREADABLE, Sender(""), Kind.MESSAGE, 0.0)


def attachments_of(text: str) -> tuple[Attachment, ...]:
    """Return the files of an inbound row."""
    return _attachments(json.loads(text).get("attachments", ()))


def paths_of(text: str) -> tuple[str, ...]:
    """Return where the files of a row lie, none for one that can't be read."""
    try:
        return tuple(one.path for one in attachments_of(text) if one.path)
    except _BROKEN:
        return ()


def with_attachments(text: str, attachments: Iterable[Attachment]) -> str:
    """Return the body of an inbound row with other files."""
    return dump(json.loads(text) | {"attachments": [_attachment(each) for each in attachments]})


def encode_outgoing(message: Outgoing) -> str:
    """Return the body of an outbound row."""
    body: JsonObject = {"text": message.text}
    if message.attachments:
        body["attachments"] = [_attachment(each) for each in message.attachments]
    if message.buttons:
        body["buttons"] = [[[button.label, button.value] for button in row] for row in message.buttons]
    for name in ("reply_to", "whisper", "replaces"):
        if value := getattr(message, name):
            body[name] = value
    return dump(body)


def decode_outgoing(key: str, address: str, text: str, on_unknown: str) -> Outgoing:
    """Return the message of an outbound row."""
    body = json.loads(text)
    return Outgoing(
        key=key,
        address=Address.parse(address),
        text=body["text"],
        on_unknown=OnUnknown(on_unknown),
        attachments=_attachments(body.get("attachments", ())),
        buttons=tuple(tuple(Button(*button) for button in row) for row in body.get("buttons", ())),
        reply_to=body.get("reply_to", ""),
        whisper=body.get("whisper", ""),
        replaces=body.get("replaces", ""),
    )


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


def decode_usage(text: str) -> Usage:
    """Return what `encode_usage` wrote."""
    return Usage(**json.loads(text))
