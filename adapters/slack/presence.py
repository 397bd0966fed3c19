"""Shows that the bot lives while a turn runs: a status, a reaction, the reply as it grows."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from adapters import presence
from adapters.markdown.write import escaped
from adapters.progress import Progress, shortened
from adapters.slack.errors import Refused
from adapters.slack.render import Mentions, pieces
from adapters.slack.roster import Person
from adapters.slack.streaming import Edited, Growing, Stream
from gateway.errors import ChannelStopped, DeliveryError, DeliveryRetry, DeliveryUnsure, SendError
from gateway.feed import Delta, Event, Restarted, ToolEnded, ToolStarted, TurnStarted
from gateway.types import Address, Chat, Outgoing, Receipt

if TYPE_CHECKING:
    from adapters.slack.client import SlackApi

log = logging.getLogger(__name__)

GROWING: Final = 1.0
"""Seconds of a turn after which its reply may be seen growing."""

ENOUGH: Final = 16
"""Letters and digits that a reply must have to be shown before its end (spec NR-8)."""

STATUS: Final = 60.0
"""Seconds after which the status is told again; Slack drops it after two minutes."""

HOLD: Final = 60.0
"""Seconds for which what is shown waits to become the reply, which the outbox brings."""

THINKING, WORKING = "is thinking…", "is working…"

STEP: Final = 80
"""Characters of a step of the plan in the status."""

_UNKNOWN_HERE: Final = frozenset(
    {"missing_scope", "unknown_method", "not_allowed_token_type", "no_permission"}
)
"""Refusals that will not differ for the next turn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Manner(presence.Manner):
    """How lively the bot is. `ack_reaction` is the name of an emoji without colons."""

    ack_reaction: str = "eyes"


@dataclass(slots=True, eq=False, kw_only=True)
class _Turn(presence.Turn):
    """A turn with its status and the message that grows.

    It `worked` if what the tools do was shown: nobody is told of an edit, so the reply is a message of its
    own then.
    """

    text: str = ""
    progress: Progress = field(default_factory=Progress)
    grows: Growing | None = None
    worked: bool = False
    status: str = THINKING
    told: str = ""
    told_at: float = float("-inf")

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
class Presence(presence.Watch[_Turn]):
    """Shows a status, a reaction and a message that grows.

    `author` tells who wrote a message, if that is known; `mentions` whom a text may ring in a chat.
    """

    api: Callable[[], SlackApi | None]
    manner: Manner = field(default_factory=Manner)
    author: Callable[[str, str], Person | None] = lambda _chat, _message_id: None
    mentions: Callable[[Address], Mentions] = lambda _address: Mentions()
    _lacks: set[str] = field(default_factory=set)

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
            turn.free()
            return None
        turn.grows = None
        turn.free()
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

    def _turn(self, address: Address, event: TurnStarted, now: float) -> _Turn:
        return _Turn(address=address, event=event, began=now)

    async def _look(self, turn: _Turn) -> None:
        api, now = self.api(), self.clock.now()
        if api is None:
            return
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


def _is_enough(text: str) -> bool:
    found = (number for number, _ in enumerate(filter(str.isalnum, text), 1))
    return any(number >= ENOUGH for number in found)
