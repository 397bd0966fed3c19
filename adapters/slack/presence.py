"""Shows that the bot lives while a turn runs: a status, a reaction, the reply as it grows."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal

from adapters.markdown.write import escaped
from adapters.progress import Progress, shortened
from adapters.slack.errors import Refused
from adapters.slack.render import Mentions, pieces
from adapters.slack.roster import Person
from adapters.slack.streaming import Edited, Growing, Stream
from gateway.clock import Clock
from gateway.errors import ChannelStopped, DeliveryError, DeliveryRetry, DeliveryUnsure, SendError
from gateway.feed import Delta, Event, Restarted, ToolEnded, ToolStarted, TurnEnded, TurnGone, TurnStarted
from gateway.types import Address, Chat, Kind, Outgoing, Receipt

if TYPE_CHECKING:
    from adapters.slack.client import SlackApi

log = logging.getLogger(__name__)

FIRST: Final = 0.3
"""Seconds of a turn in which nothing is shown: a fast reply costs no other request."""

BEAT: Final = 0.5
"""Seconds between two looks at a turn."""

GROWING: Final = 1.0
"""Seconds of a turn after which its reply may be seen growing."""

ENOUGH: Final = 16
"""Letters and digits that a reply must have to be shown before its end (spec NR-8)."""

STATUS: Final = 60.0
"""Seconds after which the status is told again; Slack drops it after two minutes."""

HOLD: Final = 60.0
"""Seconds for which what is shown waits to become the reply, which the outbox brings."""

CLOSING: Final = 5.0
"""Seconds in which unfinished messages are cleared away when the gateway stops."""

THINKING, WORKING = "is thinking…", "is working…"

STEP: Final = 80
"""Characters of a step of the plan in the status."""

_UNKNOWN_HERE: Final = frozenset(
    {"missing_scope", "unknown_method", "not_allowed_token_type", "no_permission"}
)
"""Refusals that will not differ for the next turn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Manner:
    """How lively the bot is. `ack_reaction` is the name of an emoji without colons, "" for none."""

    streaming: bool = True
    ack_reaction: str = "eyes"
    ack_scope: Literal["group-mentions", "all", "off"] = "group-mentions"
    ack_remove: bool = False

    def acknowledges(self, turn: TurnStarted) -> bool:
        """Return whether the message of a turn gets a reaction (spec IN-15)."""
        if not self.ack_reaction or not turn.message_id:
            return False
        return self.ack_scope == "all" or (
            self.ack_scope == "group-mentions" and turn.chat is Chat.GROUP and turn.aimed
        )


@dataclass(slots=True, eq=False)
class _Turn:
    """A turn under way and what is shown of it. Times are of the clock's `now`.

    `over` gets the key of the first message of the reply, "" if there is none; `still` is set when no
    request is under way any more; `freed` when what was shown has become the reply, or is gone. It `worked`
    if what the tools do was shown: nobody is told of an edit, so the reply is a message of its own then.
    """

    address: Address
    event: TurnStarted
    began: float
    over: asyncio.Future[str]
    freed: asyncio.Future[None]
    still: asyncio.Event = field(default_factory=asyncio.Event)
    text: str = ""
    progress: Progress = field(default_factory=Progress)
    grows: Growing | None = None
    worked: bool = False
    shows: bool = True
    shown: str = ""
    shown_at: float = float("-inf")
    status: str = THINKING
    told: str = ""
    told_at: float = float("-inf")
    acked: bool = False

    def take(self, event: Event, now: float) -> None:
        """Note what happened; words before a tool call are not the reply."""
        self.progress.take(event, now)
        match event:
            case Delta(text):
                self.text += text
            case Restarted():
                self.text = ""
            case ToolStarted() | ToolEnded():
                step = self.progress.current
                self.text, self.status = "", f"is working on: {shortened(step, STEP)}" if step else WORKING
            case _:
                pass

    def look(self, now: float) -> str:
        """Return what can be shown by now: the beginning of the reply, or else what the tools do."""
        if _is_enough(self.text):
            return self.text
        lines = self.progress.lines(now)
        return "\n".join(["_Working…_", *map(escaped, lines)]) if lines else ""


@dataclass(slots=True, kw_only=True)
class Presence:
    """Watches the turns of one channel; what it can't show never harms a turn.

    `author` tells who wrote a message, if that is known; `mentions` whom a text may ring in a chat.
    """

    channel: str
    api: Callable[[], SlackApi | None]
    clock: Clock
    manner: Manner = field(default_factory=Manner)
    author: Callable[[str, str], Person | None] = lambda _chat, _message_id: None
    mentions: Callable[[Address], Mentions] = lambda _address: Mentions()
    _live: dict[Address, _Turn] = field(default_factory=dict)
    _answered: dict[str, _Turn] = field(default_factory=dict)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)
    _lacks: set[str] = field(default_factory=set)
    _closed: bool = False

    def sees(self, address: Address) -> bool:
        return address.channel == self.channel

    def push(self, address: Address, event: Event) -> None:
        """Take note of what happens in a turn."""
        turn = self._live.get(address)
        match event:
            case TurnStarted():
                self._end(address, "")  # one that was stopped may not have said so yet
                if event.kind is Kind.MESSAGE and not self._closed:
                    self._begin(address, event)
            case TurnEnded(reply=reply):
                self._end(address, reply)
            case TurnGone(name):
                if turn is not None and turn.event.turn == name:
                    self._end(address, "")
            case _:
                if turn is not None:
                    turn.take(event, self.clock.now())

    async def finish(self, message: Outgoing) -> Receipt | None:
        """Make what is shown of a turn its reply; None if the reply is to be sent (spec ST-3).

        By then no request for the turn is under way, and what could not become the reply is gone.
        Raises: DeliveryRetry; what is shown waits then.
        """
        turn = self._answered.get(message.key)
        if turn is None:
            return None
        await turn.still.wait()
        grows = turn.grows
        if grows is None or not grows.ts:
            return None
        if not await self._became(turn, grows, message):
            await self._vanish(turn, grows)
            _free(turn)
            return None
        turn.grows = None
        _free(turn)
        return Receipt(grows.ts)

    async def _became(self, turn: _Turn, grows: Growing, message: Outgoing) -> bool:
        if turn.worked or message.attachments or message.buttons or len(pieces(message.text)) != 1:
            return False
        try:
            await grows.become(message.key, message.text, self.mentions(turn.address))
        except DeliveryError as error:
            log.info("stream.refused", extra={"problem": str(error)})
            return False
        return True

    async def close(self) -> None:
        """Clear away what is shown of turns that have not ended."""
        self._closed = True
        for address in list(self._live):
            self._end(address, "")
        for turn in self._answered.values():
            _free(turn)
        if self._tasks:
            _, left = await asyncio.wait(self._tasks, timeout=CLOSING)
            for task in left:
                task.cancel()

    def _begin(self, address: Address, event: TurnStarted) -> None:
        loop = asyncio.get_running_loop()
        turn = _Turn(address, event, self.clock.now(), loop.create_future(), loop.create_future())
        self._live[address] = turn
        task = loop.create_task(self._accompany(turn))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _end(self, address: Address, reply: str) -> None:
        turn = self._live.pop(address, None)
        if turn is not None:
            turn.over.set_result(reply)
            if reply:
                self._answered[reply] = turn

    async def _accompany(self, turn: _Turn) -> None:
        """Show a turn until it is over, and clear away what must not stay."""
        try:
            await self._wait(turn.over, FIRST)
            while not turn.over.done():
                if api := self.api():
                    await self._look(turn, api)
                await self._wait(turn.over, BEAT)
            turn.still.set()
            await self._clear(turn)
        except Exception:  # root of a turn's signs of life: they must not hold up its reply
            log.exception("presence.failed")
        finally:
            turn.still.set()
            self._answered.pop(turn.over.result() if turn.over.done() else "", None)

    async def _look(self, turn: _Turn, api: SlackApi) -> None:
        """Show what is due."""
        now = self.clock.now()
        if turn.address.thread and (turn.status != turn.told or now - turn.told_at >= STATUS):
            turn.told_at, turn.told = now, turn.status
            await self._tell(turn, api, turn.status)
        if not turn.acked and self.manner.acknowledges(turn.event):
            turn.acked = True
            await self._react(turn, api, "reactions.add")
        if self.manner.streaming and turn.shows and now - turn.began >= GROWING:
            await self._show(turn, api, now)

    async def _tell(self, turn: _Turn, api: SlackApi, status: str) -> None:
        """Set the status below a thread (Web API assistant.threads.setStatus); "" clears it."""
        where = turn.address
        await self._try(
            api, "assistant.threads.setStatus", channel_id=where.chat, thread_ts=where.thread, status=status
        )

    async def _react(self, turn: _Turn, api: SlackApi, method: str) -> None:
        about = {"channel": turn.address.chat, "timestamp": turn.event.message_id}
        await self._try(api, method, name=self.manner.ack_reaction, **about)

    async def _try(self, api: SlackApi, method: str, **arguments: str) -> None:
        """Call a method whose failure is no matter; one that the app may not call is called once only."""
        if method in self._lacks:
            return
        try:
            await api.call(method, **arguments)
        except Refused as error:
            level = logging.DEBUG
            if error.code in _UNKNOWN_HERE:
                self._lacks.add(method)
                level = logging.WARNING
            log.log(level, "presence.refused", extra={"problem": str(error)})
        except SendError as error:
            log.debug("presence.failed", extra={"problem": str(error)})

    async def _show(self, turn: _Turn, api: SlackApi, now: float) -> None:
        """Bring what people see of the reply up to date; in a thread the status tells what the tools do."""
        text = turn.look(now)
        is_progress = text != turn.text
        if not text or (is_progress and turn.address.thread):
            return
        turn.grows = turn.grows or self._growing(turn, api)
        if text == turn.shown or now - turn.shown_at < turn.grows.spacing:
            return
        turn.shown_at, turn.worked = now, turn.worked or is_progress
        try:
            await turn.grows.show(text, self.mentions(turn.address))
            turn.shown = text
        except DeliveryRetry as error:
            turn.shown_at = now + error.after
        except (DeliveryError, DeliveryUnsure, ChannelStopped) as error:
            turn.shows = False
            log.debug("stream.failed", extra={"problem": str(error)})

    def _growing(self, turn: _Turn, api: SlackApi) -> Growing:
        """Stream where Slack can: in threads, in channels only for a person who is known."""
        person = self.author(turn.address.chat, turn.event.message_id)
        known = person is not None and bool(person.team)
        if turn.address.thread and (known or turn.event.chat is Chat.DIRECT):
            return Stream(api=api, address=turn.address, recipient=person if known else None)
        return Edited(api=api, address=turn.address)

    async def _clear(self, turn: _Turn) -> None:
        """Wait for the reply to take the place of what is shown; delete what gets none (spec NR-9)."""
        reply = turn.over.result()
        if turn.grows is not None and turn.grows.ts and reply:
            await self._wait(turn.freed, HOLD)
        if turn.grows is not None and turn.grows.ts:
            await self._vanish(turn, turn.grows)
        api = self.api()
        if api is None:
            return
        if turn.told and not reply:
            await self._tell(turn, api, "")
        if turn.acked and self.manner.ack_remove:
            await self._react(turn, api, "reactions.remove")

    async def _vanish(self, turn: _Turn, grows: Growing) -> None:
        """Delete what is shown; try for a while, because a stale beginning would be taken for an answer."""
        turn.grows = None
        for _ in range(3):
            try:
                await grows.vanish()
            except DeliveryRetry as error:
                await self._wait(None, 0.0 if self._closed else error.after)
            except SendError as error:
                log.info("stream.stays", extra={"problem": str(error)})
                return
            else:
                return

    async def _wait(self, end: asyncio.Future[str] | asyncio.Future[None] | None, seconds: float) -> None:
        """Wait so long, or until `end`."""
        if seconds <= 0 or (end is not None and end.done()):
            return
        sleeping = asyncio.ensure_future(self.clock.sleep(seconds))
        await asyncio.wait({sleeping, end} if end else {sleeping}, return_when=asyncio.FIRST_COMPLETED)
        sleeping.cancel()


def _free(turn: _Turn) -> None:
    if not turn.freed.done():
        turn.freed.set_result(None)


def _is_enough(text: str) -> bool:
    found = (number for number, _ in enumerate(filter(str.isalnum, text), 1))
    return any(number >= ENOUGH for number in found)
