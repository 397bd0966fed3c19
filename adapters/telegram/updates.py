"""Reads what `getUpdates` answers; pure, and never stopped by a single strange update."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from adapters.telegram.text import clean
from gateway.channel import Poison
from gateway.errors import DeliveryUnsure
from gateway.types import Address, Json, Sender, Stimulus

ALLOWED = ("message",)
"""The kinds of update that `read` understands (Bot API getUpdates, `allowed_updates`)."""

_CONTENT: Mapping[str, Sequence[str]] = {
    "animation": ("file_name",),
    "audio": ("performer", "title", "file_name"),
    "document": ("file_name",),
    "live_photo": (),
    "photo": (),
    "sticker": ("emoji",),
    "story": (),
    "video_note": (),
    "video": ("file_name",),
    "voice": (),
    "paid_media": (),
    "checklist": ("title", "tasks"),
    "contact": ("first_name", "last_name", "phone_number"),
    "dice": ("emoji", "value"),
    "game": ("title",),
    "poll": ("question", "options"),
    "venue": ("title", "address"),
    "location": ("latitude", "longitude"),
}
"""What a person can send instead of text, and the fields that tell about it (Bot API Message). The order
decides where two come together: an animation is a document too, and a venue has a location."""

_SERVICE = frozenset(
    {
        "chat_background_set",
        "chat_shared",
        "connected_website",
        "forum_topic_closed",
        "forum_topic_created",
        "forum_topic_edited",
        "forum_topic_reopened",
        "gift_upgrade_sent",
        "managed_bot_created",
        "message_auto_delete_timer_changed",
        "paid_message_price_changed",
        "pinned_message",
        "proximity_alert_triggered",
        "refunded_payment",
        "successful_payment",
        "users_shared",
        "write_access_allowed",
    }
)
"""What the platform writes into a private chat by itself; nobody waits for an answer to it."""


@dataclass(frozen=True, slots=True)
class Batch:
    """One answer of `getUpdates`, read; `first` and `last` are its lowest and highest update ids."""

    stimuli: tuple[Stimulus, ...]
    poison: tuple[Poison, ...]
    first: int
    last: int


def read_batch(updates: Sequence[Json], *, channel: str, bot_id: int) -> Batch:
    """Read every update; one that can't be read becomes a `Poison` and delays no other (libraries 1).

    Raises: DeliveryUnsure if no update has an id, because then nothing could ever be confirmed.
    """
    stimuli: list[Stimulus] = []
    poison: list[Poison] = []
    ids: list[int] = []
    for update in updates:
        try:
            ids.append(_update_id(update))
            stimulus = read(update, channel=channel, bot_id=bot_id)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            poison.append(_poison(update, error, channel=channel, bot_id=bot_id))
        else:
            stimuli += [stimulus] if stimulus else []
    if not ids:
        raise DeliveryUnsure(f"none of {len(updates)} updates has an id")
    return Batch(tuple(stimuli), tuple(poison), min(ids), max(ids))


def read(update: Mapping[str, object], *, channel: str, bot_id: int) -> Stimulus | None:
    """Return what a person wrote to the bot in a private chat, or None for anything else.

    Raises: AttributeError, KeyError, TypeError or ValueError if the update isn't shaped as documented
    (Bot API Update, Message).
    """
    message: Json = update.get("message")
    if message is None:
        return None
    chat, sender = message["chat"], message.get("from")
    if chat["type"] != "private" or sender is None or sender["is_bot"] or not (text := _text(message)):
        return None
    chat_id, message_id = int(chat["id"]), int(message["message_id"])
    return Stimulus(
        # With both numbers, since update ids may restart after a quiet week (libraries 1).
        key=f"{channel}:{bot_id}:u{_update_id(update)}:{message_id}",
        message_key=f"{channel}:{bot_id}:m:{chat_id}:{message_id}",
        address=Address(channel, str(chat_id)),
        sender=Sender(str(int(sender["id"])), _name(sender)),
        text=text,
        at=float(message["date"]),
    )


def _update_id(update: Mapping[str, object]) -> int:
    number = update["update_id"]
    if not isinstance(number, int):
        raise TypeError("update_id is not a number")
    return number


def _name(sender: Json) -> str:
    names = (sender["first_name"], sender.get("last_name"))
    return clean(" ".join(name for name in names if name))


def _text(message: Json) -> str:
    """Return the text, or what else was sent in brackets and its caption; "" for a service message."""
    if message.get("text"):
        return clean(message["text"])
    kind = next((kind for kind in _CONTENT if kind in message), None)
    if kind is None:
        return "" if _SERVICE & message.keys() else "[message of an unknown kind]"
    label = ": ".join(filter(None, (kind.replace("_", " "), _details(kind, message[kind]))))
    return clean("\n".join(filter(None, (f"[{label}]", message.get("caption")))))


def _details(kind: str, content: Json) -> str:
    """Return one line without brackets, so that a stranger's file name can't leave the brackets around it."""
    found: list[str] = []
    for value in (content.get(field) for field in _CONTENT[kind]):
        found += (
            [part["text"] for part in value]
            if isinstance(value, list)
            else ["" if value is None else str(value)]
        )
    line = " ".join(", ".join(filter(None, found)).split())
    return line.translate({ord("["): "(", ord("]"): ")"})[:300]


def _poison(update: Json, error: Exception, *, channel: str, bot_id: int) -> Poison:
    body = json.dumps(update)  # ASCII, so whatever it holds can be stored
    number = update.get("update_id") if isinstance(update, dict) else None
    part = f"u{number}" if isinstance(number, int) else f"x{hashlib.sha256(body.encode()).hexdigest()[:16]}"
    problem = f"{type(error).__name__}: {error}"
    return Poison(key=f"{channel}:{bot_id}:{part}", channel=channel, body=body, problem=clean(problem))
