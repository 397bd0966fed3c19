"""Reads what Slack hands over: who says what, to whom, and on which occasion; pure."""

from __future__ import annotations

import hashlib
from collections.abc import Container, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

from adapters.slack.files import are_of_others, attachments
from adapters.slack.text import mentions, names_in, one_line, readable, without_call
from gateway.types import Address, Chat, Json, JsonObject, Sender, Stimulus

QUOTE_LIMIT: Final = 1000
"""Characters of a message that is passed on or replied to."""

_WRITTEN: Final = frozenset({"", "file_share", "me_message", "thread_broadcast"})
"""Subtypes of what a person writes; all others are told by Slack itself (Events API, message)."""

_NOBODY: Final = "USLACKBOT"

_YEAR_3000: Final = 32_503_680_000.0

_CHOSEN: Final = (
    *("selected_user", "selected_conversation", "selected_channel", "selected_date", "selected_time"),
    "selected_date_time",
)
"""Where the values of elements other than buttons and option menus stand (Block Kit, block actions)."""


@dataclass(frozen=True, slots=True)
class Me:
    """The bot itself (Web API auth.test)."""

    user: str
    bot: str = ""
    team: str = ""
    name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where conversations are held (spec SL-15 to SL-19).

    In the channels of `flat` ("*" for all) an answer to a message outside of threads stays outside, else it
    opens a thread there. With `dm_threads` a thread in a direct chat is a conversation of its own.
    """

    flat: frozenset[str] = frozenset()
    dm_threads: bool = False


@dataclass(frozen=True, slots=True)
class Said:
    """Somebody wrote. Texts and quotes are as Slack marks them up until `finished` has seen them.

    `joins` is whether the message names the bot in a thread that had begun before.
    """

    stimulus: Stimulus
    joins: bool = False


@dataclass(frozen=True, slots=True)
class OnMessage:
    """Somebody reacted to a message, or pressed a button of it; `ts` tells which one.

    A reaction only counts at messages of ours.
    """

    ts: str
    stimulus: Stimulus
    ours_only: bool = False


@dataclass(frozen=True, slots=True)
class Private:
    """Something that came without a conversation that we may write to: it goes on in the direct chat.

    `asked` is where it was, "" if nowhere; `ts` is the message that it was about.
    """

    user: str
    stimulus: Stimulus
    asked: str = ""


@dataclass(frozen=True, slots=True)
class Assistant:
    """Somebody opened the assistant: what is written in this thread belongs together."""

    chat: str
    thread: str


@dataclass(frozen=True, slots=True)
class Renamed:
    """A channel has another name."""

    chat: str
    name: str


@dataclass(frozen=True, slots=True)
class Note:
    """Something for the log."""

    event: str
    facts: Mapping[str, str] = field(default_factory=dict)


Read: TypeAlias = Said | OnMessage | Private | Assistant | Renamed | Note


@dataclass(frozen=True, slots=True)
class Reader:
    """Reads for one bot; `channel` is the first part of its addresses."""

    channel: str
    me: Me
    place: Place

    def read(self, body: JsonObject, now: float, *, opened: Container[str] = ()) -> Read | None:
        """Return what a delivery tells, None if it is nothing to us; `now` is UNIX seconds.

        `opened` holds the threads of assistants, as `chat:thread`.
        Raises: ArithmeticError, AttributeError, KeyError, TypeError or ValueError if it isn't shaped as
        documented.
        """
        if isinstance(event := body.get("event"), dict):
            return self._event(body, event, opened) if self._for_us(body) else None
        if body.get("command"):
            return self._command(body, now)
        match body.get("type"):
            case "block_actions":
                return self._pressed(body, now)
            case "shortcut" | "message_action":
                return self._shortcut(body, now)
            case "app_rate_limited":
                return Note("slack.rate_limited", {"minute": str(body.get("minute_rate_limited"))})
            case _:
                return None

    def message(self, event: JsonObject, key: str, *, opened: Container[str] = ()) -> Said | None:
        """Return what a person wrote, None for what bots and Slack write.

        In histories, which leave it out, `channel` must be filled in. Raises as `read`.
        """
        user = str(event.get("user") or "")
        if str(event.get("subtype") or "") not in _WRITTEN or event.get("hidden") is True:
            return None
        if not user or user in (self.me.user, _NOBODY) or event.get("bot_id") or event.get("bot_profile"):
            return None
        chat, ts, raw = str(event["channel"]), str(event["ts"]), str(event.get("text") or "")
        if not chat or not ts:
            raise ValueError("a message without channel or ts")
        direct, thread = chat[0] == "D", str(event.get("thread_ts") or "")
        aimed = direct or mentions(raw, self.me.user)
        assistant = bool(event.get("assistant_thread")) or f"{chat}:{thread}" in opened
        quote, files = _shared(event), attachments(event)
        stimulus = Stimulus(
            key=key,
            message_key=self.message_key(chat, ts),
            message_id=ts,
            address=Address(self.channel, chat, self._thread(chat, ts, thread, assistant=assistant)),
            sender=Sender(self._who(user, event)),
            chat=Chat.DIRECT if direct else Chat.GROUP,
            text=without_call(raw, self.me.user) or raw or ("" if files or quote else _fallback(event)),
            quote=quote,
            attachments=files,
            at=_moment(ts),
            aimed=aimed,
            whisper="" if direct else whisper(user, thread if thread != ts else ""),
            forwarded=bool(quote) or are_of_others(event),
        )
        return Said(stimulus, joins=aimed and not direct and thread not in ("", ts))

    def message_key(self, chat: str, ts: str) -> str:
        """Return what makes the events of one message one (spec IN-3)."""
        return f"{self.channel}:{self.me.team}:{chat}:{ts}"

    def _event(self, body: JsonObject, event: JsonObject, opened: Container[str]) -> Read | None:
        kind = event.get("type")
        key = f"{self.channel}:{self.me.team}:{body.get('event_id') or _digest(event)}"
        match kind:
            case "message" if event.get("subtype") == "message_changed":
                return self._edited(event, key, opened)
            case "message" if event.get("subtype") == "message_deleted":
                return Note("slack.message_deleted", _facts(event, "channel", "deleted_ts"))
            case "message" | "app_mention":
                return self.message(event, key, opened=opened)
            case "reaction_added" | "reaction_removed":
                return self._reaction(event, key)
            case "assistant_thread_started" | "assistant_thread_context_changed":
                thread = event["assistant_thread"]
                return Assistant(str(thread["channel_id"]), str(thread["thread_ts"]))
            case "channel_rename" | "group_rename":
                return Renamed(str(event["channel"]["id"]), one_line(event["channel"].get("name") or ""))
            case "member_joined_channel" | "member_left_channel" if event.get("user") == self.me.user:
                return Note(f"slack.{kind}", _facts(event, "channel", "channel_type", "inviter"))
            case "app_uninstalled" | "tokens_revoked":
                return Note(f"slack.{kind}")
            case _:
                return None

    def _for_us(self, body: JsonObject) -> bool:
        """Return whether an event is for this workspace: an app may be installed in several."""
        given = body.get("authorizations")
        teams = {one.get("team_id") for one in given} if isinstance(given, list) else set()
        return not self.me.team or None in teams or "" in teams or not teams or self.me.team in teams

    def _edited(self, event: JsonObject, key: str, opened: Container[str]) -> Said | None:
        """Read the later version of a message; a preview that Slack adds to it is none."""
        now_says, before = event["message"], event.get("previous_message") or {}
        if now_says.get("text") == before.get("text"):
            return None
        said = self.message({**now_says, "channel": event["channel"]}, key, opened=opened)
        return said and Said(replace(said.stimulus, edits=True))

    def _reaction(self, event: JsonObject, key: str) -> OnMessage | None:
        item, user = event["item"], str(event.get("user") or "")
        if item.get("type") != "message" or event.get("item_user") != self.me.user or not user:
            return None
        if user == self.me.user:
            return None
        name = one_line(event["reaction"])
        done = f"reacted with :{name}:" if event["type"] == "reaction_added" else f"took back :{name}:"
        chat = str(item["channel"])
        stimulus = Stimulus(
            key=key,
            address=Address(self.channel, chat),
            sender=Sender(self._who(user, event)),
            chat=Chat.DIRECT if chat[:1] == "D" else Chat.GROUP,
            text=f"[{done}]",
            at=_moment(event.get("event_ts") or item["ts"]),
            aimed=False,
            gesture=True,
        )
        return OnMessage(str(item["ts"]), stimulus, ours_only=True)

    def _pressed(self, body: JsonObject, now: float) -> OnMessage | None:
        """Read a pressed button or a choice (Block Kit, block_actions; spec SL-27)."""
        action, container = body["actions"][0], body.get("container") or {}
        message = body.get("message") or {}
        chat = str((body.get("channel") or {}).get("id") or container.get("channel_id") or "")
        ts = str(message.get("ts") or container.get("message_ts") or "")
        if not chat or not ts:
            return None  # in a modal or on the home page, where nothing of ours has buttons
        thread = str(message.get("thread_ts") or container.get("thread_ts") or "")
        pressed = f"{ts}:{action.get('action_id')}:{action.get('action_ts')}"
        said = str(message.get("text") or "")
        stimulus = Stimulus(
            key=f"{self.channel}:{self.me.team}:press:{chat}:{pressed}",
            address=Address(self.channel, chat, thread),
            sender=self._person(body),
            chat=Chat.DIRECT if chat[0] == "D" else Chat.GROUP,
            text=f"callback_data: {_value(action)}",
            message_id=ts,
            quote=_shortened(f"you: {said}") if said else "",
            at=now,
            gesture=True,
            whisper=whisper(str(body["user"]["id"]), thread if thread != ts else ""),
        )
        return OnMessage(ts, stimulus)

    def _command(self, body: JsonObject, now: float) -> Private | None:
        """Read `/crayfish text` (slash command payload)."""
        user, text = str(body["user_id"]), str(body.get("text") or "").strip()
        if not text:
            return None
        team = str(body.get("team_id") or "")
        stimulus = Stimulus(
            key=f"{self.channel}:{self.me.team}:command:{_digest(body.get('trigger_id') or body)}",
            address=Address(self.channel, user),
            sender=Sender(self._who(user, {"team": team}), one_line(body.get("user_name") or "")),
            text=text,
            at=now,
        )
        return Private(user, stimulus, asked=str(body.get("channel_id") or ""))

    def _shortcut(self, body: JsonObject, now: float) -> Private:
        """Read a shortcut, which may be about a message (shortcut payloads)."""
        user, message = str(body["user"]["id"]), body.get("message") or {}
        author, words = str(message.get("user") or ""), str(message.get("text") or "")
        at_ts = body.get("action_ts") or body.get("trigger_id") or body
        stimulus = Stimulus(
            key=f"{self.channel}:{self.me.team}:shortcut:{_digest(at_ts)}",
            address=Address(self.channel, user),
            sender=self._person(body),
            text=f"[shortcut: {one_line(body.get('callback_id') or '')}]",
            quote=_shortened(f"{f'<@{author}>' if author else 'somebody'}: {words}") if words else "",
            at=now,
            forwarded=author not in (user, self.me.user),
        )
        return Private(user, stimulus)

    def _thread(self, chat: str, ts: str, thread: str, *, assistant: bool) -> str:
        if chat[0] == "D":
            return thread if assistant or self.place.dm_threads else ""
        return thread or ("" if self.place.flat & {chat, "*"} else ts)

    def _who(self, user: str, event: JsonObject) -> str:
        """Return who speaks; a guest from another workspace is told apart by it (access-018)."""
        team = event.get("user_team") or event.get("source_team") or event.get("team") or self.me.team
        return user if team == self.me.team else f"{team}/{user}"

    def _person(self, body: JsonObject) -> Sender:
        user = body["user"]
        name = one_line(user.get("name") or user.get("username") or "")
        return Sender(self._who(str(user["id"]), {"team": user.get("team_id")}), name)


def whisper(user: str, thread: str) -> str:
    """Return what it takes to tell something to one person in a chat.

    Nobody sees an ephemeral message in a thread that has not begun (Web API chat.postEphemeral), so `thread`
    is only that of a message which is not the first.
    """
    return f"{user}:{thread}"


def finished(stimulus: Stimulus, names: Mapping[str, str]) -> Stimulus:
    """Return a stimulus with everything in it readable; `names` are those of the ids in `wanted`."""
    sender = stimulus.sender
    name = sender.name or names.get(_user_id(sender), "")
    return replace(
        stimulus,
        text=readable(stimulus.text, names),
        quote=_shortened(readable(stimulus.quote, names)),
        sender=replace(sender, name=name),
    )


def wanted(stimulus: Stimulus) -> list[str]:
    """Return the ids whose names make a stimulus readable, the sender's first."""
    sender = [] if stimulus.sender.name else [_user_id(stimulus.sender)]
    return list(dict.fromkeys((*sender, *names_in(stimulus.text), *names_in(stimulus.quote))))


def root_of_bot(message: JsonObject, me: Me) -> str:
    """Return what another bot began a thread with, as a quote; "" if that was a person, or us."""
    ours = message.get("user") == me.user or message.get("bot_id") == me.bot
    if ours or not (message.get("bot_id") or message.get("bot_profile")):
        return ""
    name = one_line(message.get("username") or (message.get("bot_profile") or {}).get("name") or "a bot")
    words = str(message.get("text") or "") or _fallback(message)
    return _shortened(f"{name}: {words}")


def _moment(told: Json) -> float:
    """Return UNIX seconds. Raises: OverflowError, TypeError or ValueError if no calendar knows them."""
    seconds = float(told)
    if not 0.0 <= seconds < _YEAR_3000:
        raise ValueError("not a time")
    return seconds


def _user_id(sender: Sender) -> str:
    return sender.id.rpartition("/")[2]


def _value(action: JsonObject) -> str:
    """Return what was chosen."""
    if action.get("value") is not None:
        return str(action["value"])
    options = [*(action.get("selected_options") or ()), action.get("selected_option")]
    chosen = [str(one["value"]) for one in options if one]
    chosen += [str(action[name]) for name in _CHOSEN if action.get(name)]
    return ", ".join(chosen) or str(action.get("action_id") or "")


def _shared(event: JsonObject) -> str:
    """Return a message that was passed on: the words of somebody else, whoever shared them (access-010)."""
    told = [
        f"forwarded from {one_line(one.get('author_name') or 'somebody')}: {one.get('text') or ''}"
        for one in event.get("attachments") or ()
        if one.get("is_share") or one.get("is_msg_unfurl")
    ]
    return _shortened("\n".join(told))


def _fallback(event: JsonObject) -> str:
    """Return what stands in attachments of a message without words."""
    parts = [str(one.get("fallback") or one.get("text") or "") for one in event.get("attachments") or ()]
    return "\n".join(filter(None, parts)) or "[message of an unknown kind]"


def _shortened(text: str) -> str:
    return text if len(text) <= QUOTE_LIMIT else f"{text[:QUOTE_LIMIT]}…"


def _facts(event: JsonObject, *names: str) -> dict[str, str]:
    return {name: one_line(event[name]) for name in names if event.get(name)}


def _digest(what: Json) -> str:
    """Return a name for something that has none, or one that is not to be kept."""
    return hashlib.sha256(repr(what).encode("utf-8", "replace")).hexdigest()[:20]
