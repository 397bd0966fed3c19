"""Reads one message: who says what, to whom, and on which occasion; pure."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from adapters.telegram.media import attachment, content_of, label
from adapters.telegram.text import clean
from gateway.types import Address, Attachment, Chat, Json, JsonObject, Sender, Stimulus

ALBUM_HOLD = 0.5
PASTE_HOLD = 1.5
"""Seconds in which the next part arrives of an album, or of a text that an app has cut (spec IN-9)."""

LONG_TEXT = 4000
"""UTF-16 units from which on a text may be the first part of a longer one: apps cut at 4096."""

QUOTE_LIMIT = 1000
"""Characters of a message that is replied to."""

_YEAR_3000 = 32_503_680_000.0

_SERVICE_ACCOUNT = 777000
"""Telegram itself; as the sender of a channel's posts in a group it stands for nobody (access-012)."""

_GENERAL = 1
"""The topic that has no `message_thread_id` when one sends to it (spec TG-17)."""

SERVICE = frozenset(
    {
        *("boost_added", "channel_chat_created", "chat_background_set", "chat_owner_changed"),
        *("chat_owner_left", "chat_shared", "checklist_tasks_added", "checklist_tasks_done"),
        *("community_chat_added", "community_chat_removed", "connected_website", "delete_chat_photo"),
        *("direct_message_price_changed", "forum_topic_closed", "forum_topic_created"),
        *("forum_topic_edited", "forum_topic_reopened", "general_forum_topic_hidden"),
        *("general_forum_topic_unhidden", "gift", "gift_upgrade_sent", "giveaway_completed"),
        *("giveaway_created", "group_chat_created", "left_chat_member", "managed_bot_created"),
        *("message_auto_delete_timer_changed", "migrate_from_chat_id", "migrate_to_chat_id"),
        *("new_chat_members", "new_chat_photo", "new_chat_title", "paid_message_price_changed"),
        *("passport_data", "pinned_message", "poll_option_added", "poll_option_deleted"),
        *("proximity_alert_triggered", "refunded_payment", "successful_payment"),
        *("suggested_post_approval_failed", "suggested_post_approved", "suggested_post_declined"),
        *("suggested_post_paid", "suggested_post_refunded", "supergroup_chat_created", "unique_gift"),
        *("users_shared", "video_chat_ended", "video_chat_participants_invited"),
        *("video_chat_scheduled", "video_chat_started", "write_access_allowed"),
    }
)
"""What the platform writes into a chat by itself; nobody waits for an answer to it (Bot API Message)."""


@dataclass(frozen=True, slots=True)
class Me:
    """The bot itself (Bot API getMe).

    `sees_all` is false while privacy mode hides what is said in groups; `has_topics` is whether its
    private chats have topics.
    """

    id: int
    username: str = ""
    sees_all: bool = False
    has_topics: bool = False


def read_message(
    message: JsonObject, *, key: str, channel: str, me: Me, edits: bool = False
) -> Stimulus | None:
    """Return what a person wrote, None for what is not for the bot.

    That is what bots and the platform write, what is said to another bot, and channels.
    Raises: AttributeError, KeyError, TypeError or ValueError if it isn't shaped as documented.
    """
    chat, sender = chat_of(message), sender_of(message)
    if chat is None or sender is None or _by_us(message, me):
        return None
    text = _command(message, me) if chat is Chat.GROUP else clean(message.get("text") or "")
    words = None if text is None else _words(message, text)
    if words is None:
        return None
    forwarded = message.get("forward_origin") is not None
    chat_id, message_id = int(message["chat"]["id"]), int(message["message_id"])
    return Stimulus(
        key=key,
        message_key=f"{channel}:{me.id}:m:{chat_id}:{message_id}",
        message_id=str(message_id),
        address=Address(channel, str(chat_id), thread_of(message, me)),
        sender=sender,
        chat=chat,
        text="[forwarded message]" if forwarded else words,
        quote=_forwarded(message, words) if forwarded else _quote(message, me),
        attachments=tuple(_attachments(message, chat)),
        at=moment(message["date"]),
        aimed=chat is Chat.DIRECT or _aimed(message, me),
        hold=_hold(message),
        edits=edits,
        forwarded=_is_passed_on(message),
    )


def moment(told: Json) -> float:
    """Return UNIX seconds of a year that calendars know. Raises: OverflowError, TypeError, ValueError."""
    seconds = float(told)
    if not math.isfinite(seconds):
        raise ValueError("not a time")
    return min(max(seconds, 0.0), _YEAR_3000)


def chat_of(message: JsonObject) -> Chat | None:
    """Return the kind of chat, None for those the bot takes no part in."""
    match message["chat"]["type"]:
        case "private":
            return Chat.DIRECT
        case "group" | "supergroup":
            return Chat.GROUP
        case _:
            return None


def sender_of(message: JsonObject) -> Sender | None:
    """Return who speaks: an anonymous admin or a channel is the chat it speaks as (spec TG-14).

    None for bots, and for what nobody has written.
    """
    if (spoken_as := message.get("sender_chat")) is not None:
        return Sender(str(int(spoken_as["id"])), _chat_name(spoken_as))
    user = message.get("from")
    if user is None or user["is_bot"] or user["id"] == _SERVICE_ACCOUNT:
        return None
    return person(user)


def person(user: JsonObject) -> Sender:
    """Return a user; the name is what they chose (Bot API User)."""
    return Sender(str(int(user["id"])), _user_name(user))


def thread_of(message: JsonObject, me: Me) -> str:
    """Return the topic, "" for the general one (TG-17), in flat private chats (TG-18) and without topics."""
    number = message.get("message_thread_id")
    if not message.get("is_topic_message") or number is None or int(number) == _GENERAL:
        return ""
    if message["chat"]["type"] == "private" and not me.has_topics:
        return ""
    return str(int(number))


def summary(message: JsonObject) -> str:
    """Return what a message says, in words: its text, or what it holds and its caption."""
    if message.get("text"):
        return clean(message["text"])
    kind = content_of(message)
    return clean(
        "\n".join(filter(None, (label(kind, message[kind]) if kind else "", message.get("caption"))))
    )


def units(text: str) -> int:
    """Return the length as the platform counts it."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2


def _by_us(message: JsonObject, me: Me) -> bool:
    """Return whether the bot itself wrote it, perhaps by somebody's hand (spec IN-4)."""
    return any((message.get(name) or {}).get("id") == me.id for name in ("from", "via_bot"))


def _words(message: JsonObject, text: str) -> str | None:
    """Return the text, or a label and the caption; None for a service message.

    A photo needs no label, because its file tells all there is to tell.
    """
    if text:
        return text
    kind = content_of(message)
    if kind is None:
        return None if SERVICE & message.keys() else "[message of an unknown kind]"
    told = "" if kind == "photo" else label(kind, message[kind])
    return clean("\n".join(filter(None, (told, message.get("caption")))))


def _command(message: JsonObject, me: Me) -> str | None:
    """Return the text with `/new@our_bot` as `/new`; None if the command is for another bot."""
    text = clean(message.get("text") or "")
    for entity, words in _entities(message):
        if entity["type"] != "bot_command" or entity["offset"] != 0 or "@" not in words:
            continue
        command, _, name = words.partition("@")
        if name.casefold() != me.username.casefold():
            return None
        return command + text[len(words) :] if message.get("text") else text
    return text


def _entities(message: JsonObject) -> Iterator[tuple[JsonObject, str]]:
    """Yield what is marked in the text and the caption; offsets count UTF-16 units (telegram-in-06)."""
    for text, entities in (("text", "entities"), ("caption", "caption_entities")):
        if not message.get(entities):
            continue
        coded = str(message.get(text) or "").encode("utf-16-le", "surrogatepass")
        for entity in message[entities]:
            start, length = int(entity["offset"]), int(entity["length"])
            yield entity, coded[2 * start : 2 * (start + length)].decode("utf-16-le", "replace")


def _aimed(message: JsonObject, me: Me) -> bool:
    """Return whether the bot is meant: named, commanded or replied to (spec TG-14)."""
    replied = _replied(message)
    if replied is not None and (replied.get("from") or {}).get("id") == me.id:
        return True
    if message.get("forward_origin") is not None:  # those are not the sender's own words
        return False
    return any(_names(entity, words, me) for entity, words in _entities(message))


def _names(entity: JsonObject, words: str, me: Me) -> bool:
    name = f"@{me.username}".casefold()
    match entity["type"]:
        case "mention" | "bot_command":
            return me.username != "" and words.casefold().endswith(name)
        case "text_mention":
            return bool(entity["user"]["id"] == me.id)
        case _:
            return False


def _replied(message: JsonObject) -> JsonObject | None:
    """Return the message that is replied to; in a topic each message points at the topic's first one."""
    replied: JsonObject | None = message.get("reply_to_message")
    if replied is None or replied.get("forum_topic_created") is not None:
        return None
    if message.get("is_topic_message") and replied["message_id"] == message.get("message_thread_id"):
        return None
    return replied


def _quote(message: JsonObject, me: Me) -> str:
    """Return what the message replies to, with its author; the part that was picked, if one was."""
    picked = clean((message.get("quote") or {}).get("text") or "")
    if (replied := _replied(message)) is not None:
        who, what = author(replied, me), summary(replied)
    elif (foreign := message.get("external_reply")) is not None:
        who, what = f"{_origin(foreign['origin'])}, in another chat", summary(foreign)
    elif (story := message.get("reply_to_story")) is not None:
        who, what = _chat_name(story["chat"]), "[story]"
    else:
        return picked[:QUOTE_LIMIT]
    return shortened(f"{who}: {picked or what}")


def _forwarded(message: JsonObject, words: str) -> str:
    """Return a forwarded message: the words of somebody else, whoever passed them on (access-010)."""
    what = summary(message) or words
    return f"forwarded from {_origin(message['forward_origin'])}: {what}"


def _is_passed_on(message: JsonObject) -> bool:
    """Return whether a message brings what was written elsewhere; a reply to what was forwarded does, too."""
    elsewhere = ("forward_origin", "external_reply", "reply_to_story")
    replied = _replied(message) or {}
    return replied.get("forward_origin") is not None or any(message.get(name) for name in elsewhere)


def shortened(text: str) -> str:
    """Return as much of a quote as is kept."""
    return text if len(text) <= QUOTE_LIMIT else f"{text[:QUOTE_LIMIT]}…"


def author(message: JsonObject, me: Me) -> str:
    """Return by whom a quoted message is, on one line."""
    if (message.get("from") or {}).get("id") == me.id:
        return "you"
    if (spoken_as := message.get("sender_chat")) is not None:
        return _chat_name(spoken_as)
    user = message.get("from")
    return _user_name(user) if user is not None else "somebody"


def _origin(origin: JsonObject) -> str:
    """Return who wrote a forwarded message first (Bot API MessageOrigin); also for kinds yet to come."""
    if (user := origin.get("sender_user")) is not None:
        return _user_name(user)
    if (chat := origin.get("sender_chat") or origin.get("chat")) is not None:
        return _chat_name(chat)
    return _one_line(origin.get("sender_user_name") or "somebody")


def _user_name(user: JsonObject) -> str:
    return _one_line(" ".join(filter(None, (user["first_name"], user.get("last_name")))))


def _chat_name(chat: JsonObject) -> str:
    return _one_line(chat.get("title") or chat.get("first_name") or chat.get("username") or str(chat["id"]))


def _one_line(name: Json) -> str:
    return " ".join(clean(str(name)).split())


def _attachments(message: JsonObject, chat: Chat) -> Iterator[Attachment]:
    """Yield the file of the message, and in a group the one it replies to, which may be long gone by."""
    found = [message]
    if chat is Chat.GROUP and (replied := _replied(message)) is not None:
        found.append(replied)
    for one in found:
        kind = content_of(one)
        file = attachment(kind, one[kind]) if kind else None
        if file is not None:
            yield file


def _hold(message: JsonObject) -> float:
    if message.get("media_group_id"):
        return ALBUM_HOLD
    return PASTE_HOLD if units(message.get("text") or "") >= LONG_TEXT else 0.0
