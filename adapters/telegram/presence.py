"""Shows that the bot lives while a turn runs: typing, a reaction, the reply as it grows, a Stop button."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from adapters import presence
from adapters.telegram.drafts import Draft
from adapters.telegram.gate import Gate
from adapters.telegram.render import Entity, render
from adapters.telegram.text import LIMIT, units
from gateway.errors import ChannelStopped, DeliveryError, DeliveryRetry, DeliveryUnsure, SendError
from gateway.feed import Event, TurnStarted
from gateway.types import Address, Chat, Json, JsonObject, Outgoing, Receipt

log = logging.getLogger(__name__)

TYPING = 4.0
"""Seconds between two chat actions; the platform forgets one after five (Bot API sendChatAction)."""

QUIET_TURN = 120.0
"""Seconds without any event after which a turn is no longer said to be typing (spec IN-14)."""

PRIVATE_FIRST, GROUP_FIRST = 1.0, 1.5
"""Seconds of a turn after which its reply may be seen growing."""

SPACING = 1.0
"""Seconds between two versions of a draft at the least (spec ST-5)."""

GROUP_MOST = 4.0
"""The same after many edits: a group takes 20 messages a minute (libraries 1)."""

KEEP_ALIVE = 25.0
"""Seconds after which a draft is sent again; it disappears after 30 (Bot API sendMessageDraft)."""

HOLD = 30.0
"""Seconds for which a draft waits to be replaced by its reply, which the outbox brings."""

REPOST = 10.0
"""Seconds between two moves of a draft below what others write, at the least."""

PATIENCE = 2.0
"""Seconds that a chat may be busy for its draft to become the reply at once."""

STOP = "stop"
"""What the Stop button hands back."""

_GENERAL = 1
"""The topic of a forum to which messages go without `message_thread_id`, and actions with it (spec TG-17)."""

_LIMIT = 10
"""Seconds for one request: what it shows is old by then."""


class Call(Protocol):
    """Asks the Bot API: `await call("sendMessage", {"chat_id": 7, "text": "hi"}, limit=10)`.

    Raises: ChannelStopped, DeliveryRetry, DeliveryUnsure, DeliveryError.
    """

    async def __call__(self, method: str, params: Mapping[str, Json], *, limit: int) -> Json: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Manner(presence.Manner):
    """How lively the bot is. `ack_reaction` is one of the emoji that bots may react with."""

    ack_reaction: str = "👀"

    def acknowledges(self, turn: TurnStarted) -> bool:
        return turn.message_id.isdecimal() and presence.Manner.acknowledges(self, turn)


@dataclass(slots=True, eq=False, kw_only=True)
class _Turn(presence.Turn):
    """A turn with its draft.

    Where it is a message, that is `message_id`, written at `posted_at`, until it has become the reply or is
    gone; other messages stand below it when it `is_buried`. `heard` is when something last happened.
    """

    number: int
    heard: float
    changing: asyncio.Lock = field(default_factory=asyncio.Lock)
    draft: Draft = field(default_factory=Draft)
    typed: float = float("-inf")
    types: bool = True
    message_id: int = 0
    posted_at: float = float("-inf")
    is_buried: bool = False
    versions: int = 0

    def take(self, event: Event, now: float) -> None:
        self.heard = now
        self.draft.take(event, now)

    @property
    def is_private(self) -> bool:
        return self.event.chat is Chat.DIRECT


@dataclass(slots=True, kw_only=True)
class Presence(presence.Watch[_Turn]):
    """Shows typing, a reaction and a draft. `gate` is the one through which messages leave."""

    call: Call
    manner: Manner = field(default_factory=Manner)
    gate: Gate = field(default_factory=Gate)
    _forums: dict[str, bool] = field(default_factory=dict)
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    _has_drafts: bool = True
    _has_ack: bool = True

    def landed(self, address: Address, message_id: int) -> None:
        """Take note of a message in a chat: a draft above it is no longer where people look."""
        for turn in (self._live.get(address), *self._answered.values()):
            if turn is not None and turn.address == address and 0 < turn.message_id < message_id:
                turn.is_buried = True

    async def finish(self, message: Outgoing, edit: Callable[[int], Awaitable[None]]) -> Receipt | None:
        """Put a reply where its draft is, by `edit(message_id)`; None if it is to be sent (spec ST-3).

        By then no request for the draft is under way, and a draft that could not become the reply is gone.
        Raises: DeliveryRetry while the chat wants to hear nothing; the draft waits then.
        """
        turn = self._answered.get(message.key)
        if turn is None:
            return None
        await turn.still.wait()
        if turn.message_id and (wait := self._wait_of(turn)) > PATIENCE:
            raise DeliveryRetry("Telegram takes no more messages there now", after=wait)
        try:
            async with turn.changing:
                receipt = await self._become(turn, message, edit)
        except DeliveryRetry as error:
            self._rest(turn, error)
            raise
        turn.free()
        return receipt

    def _turn(self, address: Address, event: TurnStarted, now: float) -> _Turn:
        return _Turn(address=address, event=event, began=now, number=next(self._numbers), heard=now)

    async def _look(self, turn: _Turn) -> None:
        if self._wait_of(turn) > 0:  # telegram-out-10: not one more request, then the newest state at once
            return
        now = self.clock.now()
        if turn.types and self._types_now(turn, now):
            turn.typed = now
            await self._type(turn)
        if self._has_ack and not turn.acked and self.manner.acknowledges(turn.event):
            turn.acked = True
            await self._react(turn, self.manner.ack_reaction)
        if self.manner.streaming and turn.shows and self._wait_of(turn) <= 0:
            await self._show(turn, now)

    def _types_now(self, turn: _Turn, now: float) -> bool:
        at_once = turn.is_private or turn.event.aimed
        if not at_once and not turn.draft.speaks:
            return False
        return now - turn.typed >= TYPING and now - turn.heard < QUIET_TURN

    async def _type(self, turn: _Turn) -> None:
        try:
            topic = _topic(turn) or await self._general(turn)
            await self._ask(turn, "sendChatAction", {"action": "typing", **topic})
        except DeliveryError as error:
            turn.types = False
            log.debug("typing.refused", extra={"problem": str(error)})

    async def _react(self, turn: _Turn, emoji: str) -> None:
        reaction = [{"type": "emoji", "emoji": emoji}] if emoji else []
        about = {"message_id": int(turn.event.message_id), "reaction": reaction}
        try:
            await self._ask(turn, "setMessageReaction", about)
        except DeliveryError as error:
            if "REACTION_INVALID" in str(error):
                self._has_ack = False
                problem = f"Telegram has no reaction {emoji!r}: change ack_reaction"
                log.warning("ack.refused", extra={"problem": problem})
            log.debug("ack.failed", extra={"problem": str(error)})

    async def _show(self, turn: _Turn, now: float) -> None:
        """Bring what people see of the reply up to date."""
        private = turn.is_private and self._has_drafts
        if now - turn.began < (PRIVATE_FIRST if private else GROUP_FIRST):
            return
        text = turn.draft.look(now)
        old = now - turn.shown_at
        if not text or old < (SPACING if private else _spacing(turn.versions)):
            return
        moves = turn.is_buried and now - turn.posted_at >= REPOST
        if text == turn.shown and not moves and not (private and old >= KEEP_ALIVE):
            return
        turn.shown_at = now
        turn.versions += 1
        if await (self._draft(turn, text) if private else self._write(turn, text, moves=moves)):
            turn.shown = text

    async def _draft(self, turn: _Turn, text: str) -> bool:
        """Show a draft of the platform; a server that has none gets a message that is edited instead."""
        params = {"draft_id": turn.number, "can_stop": True, **_shown(text), **_topic(turn)}
        try:
            return await self._ask(turn, "sendMessageDraft", params) is not None
        except DeliveryError as error:
            if str(error).startswith("Forbidden"):
                turn.shows = False
            else:
                self._has_drafts = False
                log.info("drafts.off", extra={"problem": str(error)})
        return False

    async def _write(self, turn: _Turn, text: str, *, moves: bool) -> bool:
        """Write or edit the message that will become the reply; one that moves is written anew (ST-4)."""
        button = {"text": "Stop", "callback_data": STOP}
        params = {
            **_shown(text),
            "link_preview_options": {"is_disabled": True},
            "reply_markup": {"inline_keyboard": [[button]]},
        }
        try:
            if turn.message_id and not moves:
                params["message_id"] = turn.message_id
                return await self._ask(turn, "editMessageText", params) is not None
            self.gate.take(turn.address.chat, self.clock.now())
            quiet = {"disable_notification": True} if moves else {}
            sent = await self._ask(turn, "sendMessage", {**params, **_topic(turn), **quiet}, unsure=False)
        except (DeliveryError, DeliveryUnsure) as error:
            if _is_same(error):
                return True
            turn.shows = False
            log.debug("draft.refused", extra={"problem": str(error)})
            return False
        if sent:
            await self._moved(turn, int(sent["message_id"]))
        return sent is not None

    async def _moved(self, turn: _Turn, message_id: int) -> None:
        """Note where the draft is now; where it was it must not stay."""
        before, turn.message_id = turn.message_id, message_id
        turn.posted_at, turn.is_buried = self.clock.now(), False
        if before:
            await self._delete(turn, before)

    async def _become(
        self, turn: _Turn, message: Outgoing, edit: Callable[[int], Awaitable[None]]
    ) -> Receipt | None:
        """Make the draft the reply, or delete it."""
        if not turn.message_id:
            return None
        stays = not (message.attachments or message.reply_to or turn.is_buried)
        if stays and await _edited(edit, turn.message_id):
            receipt, turn.message_id = Receipt(str(turn.message_id)), 0
            return receipt
        await self._vanish(turn)
        return None

    async def _clear(self, turn: _Turn) -> None:
        if turn.message_id and turn.over.result():
            await self._wait(turn.freed, HOLD)
        async with turn.changing:
            if turn.message_id:
                await self._vanish(turn)
        if turn.acked and self.manner.ack_remove:
            await self._react(turn, "")

    async def _vanish(self, turn: _Turn) -> None:
        message_id, turn.message_id = turn.message_id, 0
        await self._delete(turn, message_id)

    async def _delete(self, turn: _Turn, message_id: int) -> None:
        """Delete a draft; try for a while, because a stale one would be taken for an answer."""
        for _ in range(3):
            await self._wait(None, self._wait_of(turn))
            try:
                if await self._ask(turn, "deleteMessage", {"message_id": message_id}) is not None:
                    return
            except DeliveryError as error:
                log.info("draft.stays", extra={"problem": str(error)})
                return

    async def _ask(
        self, turn: _Turn, method: str, params: Mapping[str, Json], *, unsure: bool = True
    ) -> Json | None:
        """Ask the platform; None if that failed for now.

        Raises: DeliveryError; DeliveryUnsure if that makes a difference, which `unsure` denies.
        """
        chat = turn.address.chat
        try:
            return await self.call(method, {"chat_id": int(chat), **params}, limit=_LIMIT)
        except DeliveryRetry as error:
            self._rest(turn, error)
        except DeliveryUnsure:
            if not unsure:
                raise
        except (
            ChannelStopped
        ) as error:  # 404: it has no such method; a refused token stops the channel anyway
            raise DeliveryError(str(error)) from error
        return None

    def _wait_of(self, turn: _Turn) -> float:
        return self.gate.wait(turn.address.chat, self.clock.now())

    def _rest(self, turn: _Turn, error: DeliveryRetry) -> None:
        if error.after:
            self.gate.pause(turn.address.chat, self.clock.now() + error.after)

    async def _general(self, turn: _Turn) -> JsonObject:
        """Return what an action in the general topic of a forum needs; asks once what a chat is."""
        chat = turn.address.chat
        if turn.is_private:
            return {}
        if chat not in self._forums:
            about = await self._ask(turn, "getChat", {})
            if isinstance(about, dict):
                self._forums[chat] = about.get("is_forum") is True
        return {"message_thread_id": _GENERAL} if self._forums.get(chat) else {}


def _topic(turn: _Turn) -> JsonObject:
    thread = turn.address.thread
    return {"message_thread_id": int(thread)} if thread.isdecimal() and int(thread) != _GENERAL else {}


def _shown(text: str) -> JsonObject:
    """Return Markdown as parameters of sendMessage; as plain text if it grows too long when it is shown."""
    drawn = render(text)
    if units(drawn.text) > LIMIT:
        return {"text": text}
    entities = [_entity(one) for one in drawn.entities]
    return {"text": drawn.text, **({"entities": entities} if entities else {})}


def _entity(one: Entity) -> JsonObject:
    about = {"type": one.kind, "offset": one.offset, "length": one.length}
    return about | {name: value for name, value in (("url", one.url), ("language", one.language)) if value}


async def _edited(edit: Callable[[int], Awaitable[None]], message_id: int) -> bool:
    """Return whether the draft has become the reply; not if that is unknown."""
    try:
        await edit(message_id)
    except (DeliveryError, DeliveryUnsure) as error:
        log.info("draft.left", extra={"problem": str(error)})
        return _is_same(error)
    return True


def _is_same(error: SendError) -> bool:
    """Return whether an edit was refused because there was nothing to change (Bot API editMessageText)."""
    return "message is not modified" in str(error)


def _spacing(versions: int) -> float:
    """Return the seconds between two versions of a message in a group: more after each."""
    return min(GROUP_MOST, SPACING * 1.25**versions)
