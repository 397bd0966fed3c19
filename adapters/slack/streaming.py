"""Messages that grow while a reply is written: Slack's own streams in threads, edited messages elsewhere."""

from __future__ import annotations

import logging
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from adapters.slack.errors import Refused
from adapters.slack.render import MARKDOWN, Mentions, markdown
from adapters.slack.roster import Person
from adapters.slack.sending import Content, as_markdown, metadata
from gateway.errors import DeliveryRetry, DeliveryUnsure
from gateway.types import Address, JsonObject

if TYPE_CHECKING:
    from adapters.slack.client import SlackApi

log = logging.getLogger(__name__)

DRAFT: Final = {"event_type": "crayfish_draft", "event_payload": {}}
"""Marks a message that is not the reply yet."""

_HEAD: Final = 3000
"""Characters of a reply that an edited message shows before it is whole."""


class Growing(Protocol):
    """A message that people see before the reply is whole; `ts` is "" until it is there.

    Each method raises DeliveryRetry, Refused, Gone, ChannelStopped; `show` also DeliveryUnsure.
    """

    @property
    def ts(self) -> str: ...

    @property
    def spacing(self) -> float:
        """Return how many seconds must lie between two changes."""
        ...

    async def show(self, text: str, mentions: Mentions) -> None:
        """Bring the message up to the reply so far, in Markdown."""
        ...

    async def become(self, key: str, text: str, mentions: Mentions) -> None:
        """Make it the reply. May be repeated until it works."""
        ...

    async def vanish(self) -> None:
        """Take it away. May be repeated until it works."""
        ...


@dataclass(slots=True, kw_only=True)
class Stream:
    """A stream of Slack (Web API chat.startStream), to which text can only be added.

    What has been shown is always the beginning of one whole Markdown text that was rendered as one, so that
    two additions can't make a mention together. A text that goes another way is put right at the end.
    """

    api: SlackApi
    address: Address
    recipient: Person | None = None
    ts: str = ""
    spacing: float = 1.0
    _shown: str = ""
    _is_broken: bool = False
    _is_stopped: bool = False

    async def show(self, text: str, mentions: Mentions) -> None:
        whole = markdown(_settled(text), mentions)
        more = whole.removeprefix(self._shown)
        if self._is_broken or not whole.startswith(self._shown) or not more or len(whole) > MARKDOWN:
            return
        try:
            await self._add(more)
        except DeliveryUnsure:
            self._is_broken = True
            raise
        self._shown = whole

    async def _add(self, more: str) -> None:
        if self.ts:
            await self._call("chat.appendStream", markdown_text=more)
            return
        answer = await self.api.call(
            "chat.startStream",
            channel=self.address.chat,
            thread_ts=self.address.thread,
            recipient_team_id=(self.recipient and self.recipient.team) or None,
            recipient_user_id=(self.recipient and self.recipient.user) or None,
            markdown_text=more,
        )
        self.ts = str(answer.get("ts") or "")

    async def become(self, key: str, text: str, mentions: Mentions) -> None:
        whole = markdown(text, mentions)
        mark = metadata(key)
        fits = not self._is_broken and not self._is_stopped and whole.startswith(self._shown)
        if fits and await self._stop(markdown_text=whole.removeprefix(self._shown) or None, metadata=mark):
            return
        await self._stop()
        await self._edit(as_markdown(text, mentions), mark)

    async def _stop(self, **last: object) -> bool:
        """End the stream; False if it has ended already, or does not take what is to be its end."""
        if self._is_stopped and not last:
            return True
        try:
            await self._call("chat.stopStream", **last)
        except Refused as error:
            log.info("stream.left", extra={"problem": str(error)})
            return False
        except DeliveryUnsure as error:
            self._is_broken = True
            raise DeliveryRetry(f"{error}; its message is edited then", after=1.0) from error
        self._is_stopped = True
        return True

    async def _edit(self, content: Content, mark: JsonObject) -> None:
        await edit(self.api, self.address.chat, self.ts, content, mark)

    async def vanish(self) -> None:
        await self._stop()
        await delete(self.api, self.address.chat, self.ts)

    async def _call(self, method: str, **arguments: object) -> JsonObject:
        return await self.api.call(method, channel=self.address.chat, ts=self.ts, **arguments)


@dataclass(slots=True, kw_only=True)
class Edited:
    """An ordinary message that is edited (Web API chat.update)."""

    api: SlackApi
    address: Address
    ts: str = ""
    spacing: float = 1.5

    async def show(self, text: str, mentions: Mentions) -> None:
        head = text if len(text) <= _HEAD else f"{text[: _HEAD - 1]}…"
        content = as_markdown(head, mentions)
        if self.ts:
            await edit(self.api, self.address.chat, self.ts, content, DRAFT)
            return
        answer = await self.api.call(
            "chat.postMessage",
            channel=self.address.chat,
            thread_ts=self.address.thread or None,
            unfurl_links=False,
            unfurl_media=False,
            metadata=DRAFT,
            **content.arguments(),
        )
        self.ts = str(answer.get("ts") or "")

    async def become(self, key: str, text: str, mentions: Mentions) -> None:
        await edit(self.api, self.address.chat, self.ts, as_markdown(text, mentions), metadata(key))

    async def vanish(self) -> None:
        await delete(self.api, self.address.chat, self.ts)


async def edit(api: SlackApi, chat: str, ts: str, content: Content, mark: JsonObject) -> None:
    """Edit a message; doing so twice harms nobody, so an answer that is lost only means: again."""
    try:
        await api.call("chat.update", channel=chat, ts=ts, metadata=mark, **content.arguments())
    except DeliveryUnsure as error:
        raise DeliveryRetry(str(error), after=1.0) from error


async def delete(api: SlackApi, chat: str, ts: str) -> None:
    """Delete a message, as `edit`; one that is gone is fine."""
    try:
        with suppress(Refused):
            await api.call("chat.delete", channel=chat, ts=ts)
    except DeliveryUnsure as error:
        raise DeliveryRetry(str(error), after=1.0) from error


def _settled(text: str) -> str:
    """Return a text up to its last white space: a word that goes on may become a mention."""
    for at in range(len(text), 0, -1):
        if text[at - 1].isspace():
            return text[:at]
    return ""
