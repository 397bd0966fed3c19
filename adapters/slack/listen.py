"""How deliveries come in: read, made readable, committed, and only then acknowledged."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import weakref
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, TypeAlias

from adapters.slack.events import (
    Assistant,
    Note,
    OnMessage,
    Private,
    Reader,
    Renamed,
    Said,
    finished,
    root_of_bot,
    wanted,
)
from adapters.slack.names import Names
from adapters.slack.roster import Person, Roster
from adapters.slack.text import names_in, one_line
from gateway.channel import Accept, Cursor, Poison, Recall
from gateway.clock import Clock
from gateway.errors import SendError, StoreError
from gateway.types import Address, Json, JsonObject, Stimulus

if TYPE_CHECKING:
    from adapters.slack.client import SlackApi

log = logging.getLogger(__name__)

EARLIER: Final = 20
"""Messages of a thread that are read when the bot is first named there (spec SL-18)."""

PATIENCE: Final = 1.2
"""Seconds for what is asked of Slack before a delivery is committed (spec SL-3)."""

_REMEMBERED: Final = 5000
_QUOTED: Final = 80
"""Characters of our message that are told when somebody reacts to it."""

Answered: TypeAlias = Callable[[Address], Awaitable[bool]]
"""`await answered(address)`: whether the bot has ever answered there."""


@dataclass(slots=True)
class Health:
    """What `/status` tells.

    `last_event` is the wall time in UNIX seconds; `sockets` counts the sockets that were opened, `refused`
    the posts that were not Slack's or could not be read.
    """

    state: str = "starting"
    mode: str = "socket"
    bot: str | None = None
    team: str | None = None
    last_event: float | None = None
    last_error: str | None = None
    received: int = 0
    refused: int = 0
    sockets: int = 0


@dataclass(frozen=True, slots=True)
class Answer:
    """What Slack is told: 200 acknowledges; `body` is shown to the person who gave a command."""

    status: int
    body: Json = None


OK: Final = Answer(200)
_ELSEWHERE: Final = Answer(
    200, {"response_type": "ephemeral", "text": "I answer you in our direct messages."}
)
_USAGE: Final = Answer(
    200, {"response_type": "ephemeral", "text": "Write after the command what you want of me."}
)
_NO_CHAT: Final = Answer(
    200,
    {"response_type": "ephemeral", "text": "I can't write to you: my app lacks the scope im:write."},
)


@dataclass(slots=True, kw_only=True)
class Listener:
    """One bot's way in, while there is an `accept`."""

    api: SlackApi
    reader: Reader
    clock: Clock
    accept: Accept
    recall: Recall
    answered: Answered
    roster: Roster
    names: Names
    health: Health
    cursor: str
    seen: str = ""
    catching_up: bool = False
    _opened: dict[str, str] = field(default_factory=dict)
    _known: dict[str, str] = field(default_factory=dict)
    _chats: dict[str, str] = field(default_factory=dict)
    # What came first in a chat is stored first, however long its names take.
    _lanes: weakref.WeakValueDictionary[str, asyncio.Lock] = field(
        default_factory=weakref.WeakValueDictionary
    )

    async def take(self, body: JsonObject) -> Answer:
        """Commit one delivery. An answer other than 200 makes Slack repeat it."""
        self.health.last_event = self.clock.wall()
        try:
            return await self._take(body)
        except StoreError as error:
            log.warning("slack.postponed", extra={"problem": str(error)})
            return Answer(503)
        except Exception:  # root of a delivery: without an acknowledgement it comes again
            log.exception("slack.failed")
            return Answer(500)

    async def put(self, event: JsonObject, key: str) -> None:
        """Commit a message of a history. Raises: StoreError."""
        said = self._message(event, key)
        if said is not None:
            await self._said(said)

    def lane(self, chat: str) -> asyncio.Lock:
        """Return what lets the deliveries of a chat pass one by one."""
        lock = self._lanes.get(chat)
        if lock is None:
            lock = self._lanes[chat] = asyncio.Lock()
        return lock

    async def _take(self, body: JsonObject) -> Answer:
        await self._recognise(body.get("event"))
        try:
            read = self.reader.read(body, self.clock.wall(), opened=self._opened)
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            await self.accept((), poison=[self._poison(body, error)])
            return OK
        self.health.received += read is not None
        match read:
            case Said():
                async with self.lane(read.stimulus.address.chat):
                    await self._said(read)
            case OnMessage():
                async with self.lane(read.stimulus.address.chat):
                    await self._on_message(read)
            case Private():
                return await self._private(read)
            case Assistant(chat=chat, thread=thread):
                _remember(self._opened, f"{chat}:{thread}")
            case Renamed(chat=chat, name=name):
                self.names.note(chat, name)
            case Note(event=event, facts=facts):
                log.info(event, extra=dict(facts))
            case _:
                return _unread(body)
        return OK

    async def _recognise(self, event: Json) -> None:
        """Remember the thread of an assistant after a restart, by what the bot has answered in it."""
        if not isinstance(event, dict):
            return
        chat, thread = str(event.get("channel") or ""), str(event.get("thread_ts") or "")
        name = f"{chat}:{thread}"
        if chat[:1] != "D" or not thread or name in self._opened:
            return
        if await self.answered(Address(self.reader.channel, chat, thread)):
            _remember(self._opened, name)

    def _message(self, event: JsonObject, key: str) -> Said | None:
        return self.reader.message(event, key, opened=self._opened)

    async def _said(self, said: Said) -> None:
        stimulus = said.stimulus
        before: list[Stimulus] = []
        if said.joins:
            before, quote = await self._earlier(stimulus)
            stimulus = replace(stimulus, quote=stimulus.quote or quote)
        self._note(stimulus)
        ts = self.seen if stimulus.edits else max(self.seen, stimulus.message_id)
        # While what was missed before is still being fetched, the next process must begin there.
        cursor = None if self.catching_up or ts == self.seen else Cursor(self.cursor, ts)
        await self.accept(await self._finished(*before, stimulus), cursor=cursor)
        self.seen = max(self.seen, ts)

    def _note(self, stimulus: Stimulus) -> None:
        """Remember who is in the chat: only those may be rung by a reply."""
        team, _, user = stimulus.sender.id.rpartition("/")
        chat = stimulus.address.chat
        self.roster.wrote(chat, stimulus.message_id, Person(user, team or self.reader.me.team))
        mentioned = [one for one in names_in(stimulus.text) if one[0] in "UW"]
        if mentioned:
            self.roster.note(chat, *mentioned)

    async def _finished(self, *stimuli: Stimulus) -> list[Stimulus]:
        """Return stimuli with names for their ids; those of the last, which is what counts, come first."""
        ids = dict.fromkeys(which for one in reversed(stimuli) for which in wanted(one))
        names = await self.names.of(self.api, ids)
        return [finished(one, names) for one in stimuli]

    async def _earlier(self, stimulus: Stimulus) -> tuple[list[Stimulus], str]:
        """Return what was said in a thread before the bot came, and a quote of what it is about.

        People's messages become context; a bot that began the thread is quoted, because it is nobody to
        whom the bot could listen.
        """
        address = stimulus.address
        if address.key in self._known or await self.answered(address):
            _remember(self._known, address.key)
            return [], ""
        try:
            async with asyncio.timeout(PATIENCE):
                thread = await self.api.call(
                    "conversations.replies",
                    channel=address.chat,
                    ts=address.thread,
                    latest=stimulus.message_id,
                    limit="200",
                )
        except (SendError, TimeoutError) as error:
            problem = str(error) or "it took too long"
            log.warning("slack.thread_unread", extra={"chat": address.chat, "problem": problem})
            return [], ""
        _remember(self._known, address.key)
        messages = [
            {**one, "channel": address.chat}
            for one in thread.get("messages") or ()
            if isinstance(one, dict) and str(one.get("ts")) < stimulus.message_id
        ]
        first = messages[:1] if len(messages) > EARLIER else []
        found = [*first, *messages[len(messages) - EARLIER + len(first) :]] if first else messages
        quote = root_of_bot(messages[0], self.reader.me) if messages else ""
        return list(self._context(found)), quote

    def _context(self, messages: Sequence[JsonObject]) -> Iterator[Stimulus]:
        for message in messages:
            try:
                key = self.reader.message_key(str(message["channel"]), str(message["ts"]))
                said = self._message(message, f"{key}:context")
            except (ArithmeticError, AttributeError, KeyError, TypeError, ValueError):
                continue  # only context: nobody waits for an answer to it
            if said is not None:
                yield replace(said.stimulus, aimed=False)

    async def _on_message(self, read: OnMessage) -> None:
        """Take in what somebody did with a message; where it was sent to, the conversation goes on."""
        stimulus = read.stimulus
        ours = await self.recall(stimulus.address, read.ts)
        if ours is None and read.ours_only:
            return
        if ours is not None:
            stimulus = replace(stimulus, address=ours.address)
        if ours is not None and read.ours_only:
            beginning = " ".join(ours.text[:_QUOTED].split())
            stimulus = replace(stimulus, text=f"{stimulus.text[:-1]} on your message “{beginning}”]")
        user = stimulus.sender.id.rpartition("/")[2]
        self.roster.note(stimulus.address.chat, user)
        await self.accept(await self._finished(stimulus))

    async def _private(self, read: Private) -> Answer:
        """Take in a command or a shortcut: the answer is for one person, so it goes to their direct chat."""
        chat = await self._direct(read.user)
        if not chat:
            return _NO_CHAT if read.asked else OK
        stimulus = replace(read.stimulus, address=replace(read.stimulus.address, chat=chat))
        await self.accept(await self._finished(stimulus))
        return _ELSEWHERE if read.asked not in ("", chat) else OK

    async def _direct(self, user: str) -> str:
        """Return the direct chat with a person, "" if there can be none."""
        if user not in self._chats:
            try:
                async with asyncio.timeout(PATIENCE):
                    opened = await self.api.call("conversations.open", users=user)
                chat = str((opened.get("channel") or {}).get("id") or "")
            except (SendError, TimeoutError) as error:
                log.warning("slack.no_direct_chat", extra={"user": user, "problem": str(error)})
                return ""
            _remember(self._chats, user, chat)
        return self._chats[user]

    def _poison(self, body: JsonObject, error: Exception) -> Poison:
        text = json.dumps(body)
        name = body.get("event_id") or hashlib.sha256(text.encode()).hexdigest()[:20]
        return Poison(
            key=f"{self.reader.channel}:{self.reader.me.team}:{one_line(name)}",
            channel=self.reader.channel,
            body=text,
            problem=one_line(f"{type(error).__name__}: {error}"),
        )


def _unread(body: JsonObject) -> Answer:
    """Return what is told about something that is nothing to us; it must not come again."""
    if body.get("command"):
        return _USAGE
    return Answer(200, {"options": []}) if body.get("type") == "block_suggestion" else OK


def _remember(things: dict[str, str], name: str, value: str = "") -> None:
    """Make something the newest of what is remembered; the oldest goes."""
    things.pop(name, None)
    things[name] = value
    if len(things) > _REMEMBERED:
        del things[next(iter(things))]
