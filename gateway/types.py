"""Words shared by every module. Imports nothing of ours."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, StrEnum
from typing import Any, TypeAlias

Json: TypeAlias = Any
"""A value that `json.loads` can return."""

JsonObject: TypeAlias = dict[str, Any]


class Kind(StrEnum):
    """What woke a conversation."""

    MESSAGE = "message"
    HEARTBEAT = "heartbeat"
    CRON = "cron"
    SUBAGENT = "subagent"


class Chat(StrEnum):
    """Who can read a conversation: one person, or several."""

    DIRECT = "direct"
    GROUP = "group"


@dataclass(frozen=True, slots=True)
class Address:
    """Where a stimulus came from and where a reply goes.

    `channel` and `chat` hold no colon; `thread` may.
    """

    channel: str
    chat: str
    thread: str = ""

    @property
    def key(self) -> str:
        """Return the unique name of the conversation, e.g. `telegram:42:`."""
        return f"{self.channel}:{self.chat}:{self.thread}"

    @property
    def shown(self) -> str:
        """Return the name as people read it, e.g. `telegram:42`."""
        return self.key.rstrip(":")

    @property
    def parent(self) -> Address | None:
        """Return whose conversation a sub-agent's belongs to, None for all others."""
        return Address.parse(self.thread) if self.channel == "agent" else None

    @classmethod
    def parse(cls, key: str) -> Address:
        """Read what `key` wrote."""
        channel, chat, thread = key.split(":", 2)
        return cls(channel, chat, thread)

    @classmethod
    def named(cls, text: str) -> Address:
        """Read what a person wrote: `shown`, or `key`."""
        channel, chat, thread = (*text.split(":", 2), "", "")[:3]
        if channel == "agent" and thread.count(":") == 1:  # the parent's key, without its last colon
            thread += ":"
        return cls(channel, chat, thread)


class Level(StrEnum):
    """What a sender may do, the least first (spec AC-5)."""

    GUEST = "guest"
    USER = "user"
    OWNER = "owner"

    def covers(self, needed: Level) -> bool:
        """Return whether this is at least the needed level."""
        order = list(Level)
        return order.index(self) >= order.index(needed)


@dataclass(frozen=True, slots=True)
class Sender:
    """A person (or bot) as the platform names them; `id` is stable, `name` is only for show.

    `level` is a Level once the door has let the sender in, "" before and for what comes from inside.
    """

    id: str
    name: str = ""
    level: str = ""


INNER = frozenset({"cron", "heartbeat", "agent"})
"""Channels of conversations that the bot has with itself; nobody reads there."""

PERSON = "person"
"""The channel of sessions that one person's private chats share; what leaves them goes to one of these."""


ROOMS = "rooms"
"""The folder in a workspace with those of people and groups: what lies in there is not its owner's."""

FORWARDED = f"{ROOMS}/forwarded"
"""The folder in a workspace with what its owner has passed on, which strangers made."""

BROUGHT = ".crayfish/mcp"
"""The folder in a conversation's folder with files that the servers of other people brought."""


BOOTSTRAP = (
    "AGENTS.md",
    "SOUL.md",
    "IDENTITY.md",
    "USER.md",
    "TOOLS.md",
    "HEARTBEAT.md",
    "BOOTSTRAP.md",
    "MEMORY.md",
)
"""Files in a workspace that tell the model who it is and what to do, in the order of the prompt.

What changes most often is last, so that a change leaves the prompt before it as it was.
"""


class Standing(StrEnum):
    """Who asks, and who reads along: what the defaults for tools go by (reliability 4.5)."""

    OWNER = "owner"
    PERSON = "person"
    GROUP = "group"
    GUEST = "guest"


@dataclass(frozen=True, slots=True)
class Situation:
    """What a turn may do depends on this: where it runs and what for, who asked, and who reads.

    `address` is the conversation, `place` where its reply goes: the same, but for what the bot started
    itself and in a session that several chats share. `agent` is the name of the agent that answers;
    `person` is the name of whoever has such a session, also where the bot works for them elsewhere.
    """

    address: Address
    place: Address
    sender: Sender
    chat: Chat
    kind: Kind = Kind.MESSAGE
    agent: str = "main"
    person: str = ""

    @property
    def seen_at(self) -> Address:
        """Return where people see the turn run: the conversation, of a shared session the chat."""
        return self.place if self.address.channel == PERSON else self.address

    @property
    def standing(self) -> Standing:
        """Return who asks, as far as the defaults care; the bot's own checks are its owner's."""
        if self.chat is Chat.GROUP:
            return Standing.GROUP
        if self.sender.level == Level.OWNER or self.kind is Kind.HEARTBEAT:
            return Standing.OWNER
        return Standing.PERSON if self.sender.level == Level.USER else Standing.GUEST

    @property
    def attended(self) -> bool:
        """Return whether a person is there who could be asked; the parent of a sub-agent has one."""
        return self.kind is Kind.MESSAGE or (self.kind is Kind.SUBAGENT and self.address.channel not in INNER)

    @property
    def may_act(self) -> bool:
        """Return whether somebody wants something done; else the bot only looks (reliability 4.5)."""
        return self.kind in (Kind.MESSAGE, Kind.SUBAGENT)

    @property
    def is_private(self) -> bool:
        """Return whether only the owner asks and reads."""
        return self.standing is Standing.OWNER


class Media(StrEnum):
    """What a file is to the people who sent it."""

    IMAGE = "image"
    AUDIO = "audio"
    VOICE = "voice"
    VIDEO = "video"
    FILE = "file"


@dataclass(frozen=True, slots=True, kw_only=True)
class Attachment:
    """A file that came with a message, or leaves with one.

    `ref` is what the channel fetches it by; `path` is where it lies, relative to the workspace, once
    it is there; `problem` says why it can't be had. `name` and `mime` are what the sender claims.
    `transcript` is what a machine heard in a recording.
    """

    kind: Media
    name: str = ""
    mime: str = ""
    size: int = 0
    ref: str = ""
    path: str = ""
    problem: str = ""
    transcript: str = ""


@dataclass(frozen=True, slots=True)
class Button:
    """Something to press below a message; pressing it hands `value` back."""

    label: str
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Stimulus:
    """One incoming thing, read once at the edge.

    `key` is the platform's event id and `message_key` its message id: the same message may arrive
    as two events, and event ids may restart. Both are unique in the store (reliability 3.3).
    `at` is UNIX seconds. `message_id` is what a reply points at. `quote` is what the message replies
    to or forwards, with its author. `forwarded` is whether strangers made the quote or the files, and the
    sender only passes them on. `aimed` is whether the bot was addressed: in a group the rest is
    only context. `hold` is how many seconds to wait for more of the same (albums, long pastes).
    `edits` marks a later version of a message with this `message_key`. `deliver_to` is the key of
    another address that gets the reply, for what the bot starts by itself, and for a message of a session
    that several chats share. `gesture` marks a reaction or a
    pressed button: it needs the rights of a message, but nobody asks to be let in by it (spec AC-8).
    `whisper` is what the channel needs to say something that only this sender sees, "" if it can't.
    """

    key: str
    address: Address
    sender: Sender
    text: str
    at: float
    kind: Kind = Kind.MESSAGE
    chat: Chat = Chat.DIRECT
    message_key: str | None = None
    message_id: str = ""
    attachments: tuple[Attachment, ...] = ()
    quote: str = ""
    aimed: bool = True
    hold: float = 0.0
    edits: bool = False
    deliver_to: str = ""
    gesture: bool = False
    whisper: str = ""
    forwarded: bool = False

    @property
    def place(self) -> Address:
        """Return the chat that it came from or whose business it is; in a shared session not its address."""
        return Address.parse(self.deliver_to) if self.deliver_to else self.address


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool call of the model.

    `problem` says why `args` could not be read (they are empty then); such a call never runs.
    `extra` is what the provider wants to see again with this call (a Gemini thought signature).
    """

    id: str
    name: str
    args: JsonObject = field(default_factory=dict)
    problem: str | None = None
    extra: JsonObject = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class UserEntry:
    """What a person, a schedule or a sub-agent said, as the fields of Stimulus."""

    text: str
    sender: Sender
    kind: Kind
    at: float
    chat: Chat = Chat.DIRECT
    message_id: str = ""
    attachments: tuple[Attachment, ...] = ()
    quote: str = ""
    aimed: bool = True
    deliver_to: str = ""
    forwarded: bool = False


@dataclass(frozen=True, slots=True)
class AssistantEntry:
    """A reply of the model: text, tool calls, or both.

    `state` is opaque to us and is replayed only to the `model` that wrote it (models 2.3).
    """

    text: str
    calls: tuple[ToolCall, ...] = ()
    reasoning: str = ""
    model: str = ""
    state: JsonObject = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ToolEntry:
    """The one result of one tool call; `attachments` are pictures in it, for models that see."""

    call_id: str
    name: str
    text: str
    is_error: bool = False
    attachments: tuple[Attachment, ...] = ()


@dataclass(frozen=True, slots=True)
class NoteEntry:
    """A summary that stands for everything before it, or if `lost` for one entry that can't be read."""

    text: str
    lost: bool = False


Entry: TypeAlias = UserEntry | AssistantEntry | ToolEntry | NoteEntry


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one model call. `input` counts everything sent, `cached` the part read from a cache."""

    input: int = 0
    output: int = 0
    cached: int = 0
    cache_write: int = 0


class OnUnknown(StrEnum):
    """What to do with a message whose delivery can't be known (reliability 3.1)."""

    RESEND = "resend"
    DROP = "drop"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outgoing:
    """A message for a person, in Markdown. `key` is unique: the same key is never queued twice.

    `buttons` are rows. `reply_to` is the `message_id` that it answers, "" for none. With the `whisper` of a
    stimulus only its sender sees it, for a moment perhaps. `replaces` is the `message_id` of one of ours
    whose place it takes; a channel that can't do that says it in a line.
    """

    key: str
    address: Address
    text: str
    on_unknown: OnUnknown = OnUnknown.RESEND
    attachments: tuple[Attachment, ...] = ()
    buttons: tuple[tuple[Button, ...], ...] = ()
    reply_to: str = ""
    whisper: str = ""
    replaces: str = ""


@dataclass(frozen=True, slots=True)
class Receipt:
    """What the platform calls the delivered message."""

    message_id: str


class Replay(Enum):
    """Whether a tool call may run again after a crash."""

    SAFE = "safe"
    ONCE = "once"


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool as the model sees it; `parameters` is a JSON Schema object."""

    name: str
    description: str
    parameters: Mapping[str, Json]
