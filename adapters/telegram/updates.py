"""Reads what the platform hands over; pure, and never stopped by a single strange update."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from adapters.telegram.message import (
    Me,
    author,
    chat_of,
    moment,
    person,
    read_message,
    sender_of,
    shortened,
    summary,
    thread_of,
)
from adapters.telegram.text import clean
from gateway.channel import Poison
from gateway.errors import DeliveryUnsure
from gateway.types import Address, Chat, Json, JsonObject, Sender, Stimulus

ALLOWED = (
    *("message", "edited_message", "callback_query", "message_reaction", "my_chat_member"),
    "stopped_message_generation",
)
"""The kinds of update that `read` understands; some are sent only when asked for (spec TG-7)."""


@dataclass(frozen=True, slots=True)
class Press:
    """Somebody pressed a button; `id` is for the answer that ends the waiting on their screen."""

    id: str
    stimulus: Stimulus | None


@dataclass(frozen=True, slots=True)
class Reaction:
    """Somebody reacted to a message, which may be ours; its topic is not told (spec TG-19)."""

    message_id: str
    stimulus: Stimulus


@dataclass(frozen=True, slots=True)
class Moved:
    """A group has become a supergroup, with another id (Bot API Message, `migrate_to_chat_id`)."""

    old: str
    new: str


@dataclass(frozen=True, slots=True)
class Standing:
    """What the bot is in a chat now, and who made it so (Bot API ChatMember, `status`)."""

    chat: str
    title: str
    status: str
    by: Sender


Read: TypeAlias = Stimulus | Press | Reaction | Moved | Standing


@dataclass(frozen=True, slots=True)
class Batch:
    """One answer of `getUpdates`, read; `last` is its highest update id."""

    read: tuple[Read, ...]
    poison: tuple[Poison, ...]
    last: int

    @property
    def stimuli(self) -> tuple[Stimulus, ...]:
        """Return what was said and pressed, in order, with the address that its chat has by now."""
        moved = {one.old: one.new for one in self.moves}
        return tuple(_moved(one, moved) for one in map(_stimulus, self.read) if one is not None)

    @property
    def moves(self) -> tuple[Moved, ...]:
        """Return which groups got another id."""
        return tuple(one for one in self.read if isinstance(one, Moved))


@dataclass(slots=True)
class Reader:
    """Reads the updates of one bot, and remembers what a later part of an album or a long text needs.

    In a group only the first part names the bot, but all of them are meant for it.
    """

    channel: str
    me: Me
    _meant: dict[str, None] = field(default_factory=dict)

    def batch(self, updates: Sequence[Json], now: float) -> Batch:
        """Read every update; one that can't be read becomes a `Poison` and delays no other (libraries 1).

        `now` is when, in UNIX seconds, for what comes without a time.
        Raises: DeliveryUnsure if no update has an id, because then nothing could ever be confirmed.
        """
        found: list[Read] = []
        poison: list[Poison] = []
        ids: list[int] = []
        for update in updates:
            try:
                ids.append(_update_id(update))
                one = read(update, channel=self.channel, me=self.me, now=now)
                found += [self._joined(one, update)] if one else []
            except (ArithmeticError, AttributeError, KeyError, TypeError, ValueError) as error:
                poison.append(_poison(update, error, channel=self.channel, bot_id=self.me.id))
        if not ids:
            raise DeliveryUnsure(f"none of {len(updates)} updates has an id")
        return Batch(tuple(found), tuple(poison), max(ids))

    def _joined(self, one: Read, update: JsonObject) -> Read:
        """Return it as meant for the bot if it goes on with something that was."""
        if not isinstance(one, Stimulus) or one.chat is not Chat.GROUP or one.edits:
            return one
        message = update["message"]
        here, number = f"{one.address.key}:{one.sender.id}", int(message["message_id"])
        album = message.get("media_group_id")
        names = {f"{here}:{number}"} | ({f"{here}:{album}"} if album else set())
        if names & self._meant.keys():
            one = replace(one, aimed=True)
        if one.aimed and one.hold:
            self._remember(f"{here}:{album}" if album else f"{here}:{number + 1}")
        return one

    def _remember(self, name: str) -> None:
        self._meant[name] = None
        while len(self._meant) > _REMEMBERED:
            del self._meant[next(iter(self._meant))]


_REMEMBERED = 100


def read(update: Mapping[str, object], *, channel: str, me: Me, now: float) -> Read | None:
    """Return what an update tells, None if it is nothing to us.

    Raises: ArithmeticError, AttributeError, KeyError, TypeError or ValueError if the update isn't shaped as
    documented (Bot API Update).
    """
    kind = next((kind for kind in ALLOWED if update.get(kind) is not None), None)
    if kind is None:
        return None
    body: Json = update[kind]
    # With a number of the content too, since update ids may restart after a quiet week (libraries 1).
    key = f"{channel}:{me.id}:u{_update_id(update)}"
    match kind:
        case "message" if body.get("migrate_to_chat_id") is not None:
            return Moved(str(int(body["chat"]["id"])), str(int(body["migrate_to_chat_id"])))
        case "message" if body.get("migrate_from_chat_id") is not None:
            return Moved(str(int(body["migrate_from_chat_id"])), str(int(body["chat"]["id"])))
        case "message":
            return read_message(body, key=f"{key}:{int(body['message_id'])}", channel=channel, me=me)
        case "edited_message":
            key = f"{key}:{int(body['message_id'])}:edit"
            return read_message(body, key=key, channel=channel, me=me, edits=True)
        case "callback_query":
            return _press(body, channel=channel, me=me, now=now)
        case "message_reaction":
            return _reaction(body, key=key, channel=channel)
        case "stopped_message_generation":
            return _stopped(body, key=key, channel=channel, me=me, now=now)
        case _:
            return _standing(body)


def _press(query: JsonObject, *, channel: str, me: Me, now: float) -> Press:
    """Read a pressed button (Bot API CallbackQuery, spec TG-24)."""
    press, message, value = str(query["id"]), query.get("message"), query.get("data")
    chat = chat_of(message) if message is not None else None
    if message is None or chat is None or value is None or query["from"]["is_bot"]:
        return Press(press, None)
    number = int(message["message_id"])
    stimulus = Stimulus(
        key=f"{channel}:{me.id}:press:{press}",
        address=Address(channel, str(int(message["chat"]["id"])), thread_of(message, me)),
        sender=person(query["from"]),
        text=f"callback_data: {clean(str(value))}",
        chat=chat,
        message_id=str(number),
        quote=shortened(f"{author(message, me)}: {summary(message)}"),
        at=now,
        gesture=True,
        whisper=press,
    )
    return Press(press, stimulus)


def _reaction(body: JsonObject, *, key: str, channel: str) -> Reaction | None:
    """Read which reactions were put under a message or taken away (Bot API MessageReactionUpdated)."""
    chat = chat_of(body)
    sender = sender_of({"from": body.get("user"), "sender_chat": body.get("actor_chat")})
    if chat is None or sender is None:
        return None
    old, new = (list(map(_sign, body[name])) for name in ("old_reaction", "new_reaction"))
    told = [f"reacted with {one}" for one in new if one not in old]
    told += [f"took back {one}" for one in old if one not in new]
    number = int(body["message_id"])
    stimulus = Stimulus(
        key=f"{key}:{number}:reaction",
        address=Address(channel, str(int(body["chat"]["id"]))),
        sender=sender,
        text=f"[{' and '.join(told) or 'reacted'}]",
        chat=chat,
        at=moment(body["date"]),
        aimed=False,
        gesture=True,
    )
    return Reaction(str(number), stimulus)


def _stopped(body: JsonObject, *, key: str, channel: str, me: Me, now: float) -> Stimulus | None:
    """Read that a person ended a reply that was being shown, which is what /stop does.

    Bot API MessageGenerationStopped; in a private chat, where alone that happens, the chat is the person.
    """
    chat = body["chat"]
    if chat["type"] != "private":
        return None
    topic = {**body, "is_topic_message": True}
    return Stimulus(
        key=f"{key}:stopped",
        address=Address(channel, str(int(chat["id"])), thread_of(topic, me)),
        sender=Sender(str(int(chat["id"])), clean(str(chat.get("first_name") or ""))),
        text="/stop",
        at=now,
    )


def _sign(reaction: JsonObject) -> str:
    return clean(str(reaction.get("emoji") or f"a {reaction['type']} reaction".replace("_", " ")))


def _standing(body: JsonObject) -> Standing:
    chat = body["chat"]
    title = clean(str(chat.get("title") or chat.get("first_name") or ""))
    return Standing(str(int(chat["id"])), title, str(body["new_chat_member"]["status"]), person(body["from"]))


def _stimulus(one: Read) -> Stimulus | None:
    match one:
        case Stimulus():
            return one
        case Press(stimulus=stimulus):
            return stimulus
        case _:
            return None


def _moved(one: Stimulus, moved: Mapping[str, str]) -> Stimulus:
    new = moved.get(one.address.chat)
    return one if new is None else replace(one, address=replace(one.address, chat=new))


def _update_id(update: Mapping[str, object]) -> int:
    number = update["update_id"]
    if not isinstance(number, int):
        raise TypeError("update_id is not a number")
    return number


def _poison(update: Json, error: Exception, *, channel: str, bot_id: int) -> Poison:
    body = json.dumps(update)  # ASCII, so whatever it holds can be stored
    number = update.get("update_id") if isinstance(update, dict) else None
    part = f"u{number}" if isinstance(number, int) else f"x{hashlib.sha256(body.encode()).hexdigest()[:16]}"
    problem = f"{type(error).__name__}: {error}"
    return Poison(key=f"{channel}:{bot_id}:{part}", channel=channel, body=body, problem=clean(problem))
