"""Delivers messages to Slack: requests, what is done when one is refused, and what has arrived already."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final

from adapters.markdown.write import escaped as literal
from adapters.slack.errors import Gone, Refused
from adapters.slack.render import (
    MRKDWN,
    Mentions,
    fallback,
    markdown,
    mrkdwn_pieces,
    pieces,
)
from gateway.clock import Clock
from gateway.errors import DeliveryError, DeliveryRetry, DeliveryUnsure, GatewayError
from gateway.types import Address, Attachment, Button, Json, JsonObject, Outgoing, Receipt

if TYPE_CHECKING:
    from adapters.slack.client import SlackApi

log = logging.getLogger(__name__)

OpenFile = Callable[[str], bytes]
"""Returns the content of a file of the workspace. Raises: GatewayError, whose text is for people."""

REPLY: Final = "crayfish_reply"
"""The event type of the metadata by which a message is found again (reliability 3.1)."""

LOOKBACK: Final = 24 * 3600.0
"""Seconds of history in which a message is looked for; no older one is ever sent again."""

_PAGE, _PAGES = 200, 5
"""Messages that one look into a history brings, and how often one looks."""

_VALUE: Final = 2000
"""Characters that a button can hand back (Block Kit, button element)."""

_LABEL: Final = 75
"""Characters on a button (Block Kit, button element)."""

_ROW: Final = 25
"""Buttons in one block (Block Kit, actions block)."""

_SECTION: Final = 3000
"""Characters of mrkdwn in a block (Block Kit, section block)."""

_SHORTEST: Final = 200
"""Characters below which a message is not cut again: what is refused then is not its length."""

_POINTER: Final = "👇"
_THREAD_GONE: Final = "(The thread is gone, so the answer is here.)\n\n"

_NO_MARKDOWN: Final = frozenset(
    {
        *("invalid_blocks", "invalid_blocks_format", "block_mismatch", "unsupported_block_type"),
        *("msg_blocks_too_long", "msg_too_long", "markdown_text_conflict", "no_text"),
    }
)
"""What is said about a Markdown block that is not taken (Web API chat.postMessage)."""

_NO_THREAD: Final = frozenset({"thread_not_found", "cannot_reply_to_message", "invalid_thread_ts"})
_NO_METADATA: Final = frozenset(
    {
        "invalid_metadata_format",
        "invalid_metadata_schema",
        "metadata_too_large",
        "metadata_must_be_sent_from_app",
    }
)


@dataclass(frozen=True, slots=True)
class Content:
    """What a message shows: blocks, with a text for notifications; or mrkdwn alone."""

    text: str
    blocks: tuple[JsonObject, ...] = ()

    def arguments(self) -> JsonObject:
        """Return arguments of chat.postMessage and its like; nothing in them is guessed to be a mention."""
        return {"text": self.text, "blocks": list(self.blocks) or None, "parse": "none", "link_names": False}


def as_markdown(text: str, mentions: Mentions, buttons: Sequence[Sequence[Button]] = ()) -> Content:
    """Return a piece as a Markdown block (Block Kit, markdown block)."""
    block = {"type": "markdown", "text": markdown(text, mentions)}
    blocks = [block] if text.strip() else []
    return Content(fallback(text or _POINTER, mentions), (*blocks, *_actions(buttons)))


def as_mrkdwn(
    text: str, mentions: Mentions, buttons: Sequence[Sequence[Button]] = (), most: int = MRKDWN
) -> list[Content]:
    """Return a piece as messages of mrkdwn, of at most `most` characters each; the last has the buttons."""
    contents = [Content(one) for one in mrkdwn_pieces(text, mentions, most)]
    actions = tuple(_actions(buttons))
    if not actions:
        return contents
    if not contents or len(contents[-1].text) > _SECTION:
        return [*contents, Content(_POINTER, actions)]
    section = {"type": "section", "text": {"type": "mrkdwn", "text": contents[-1].text}}
    return [*contents[:-1], Content(contents[-1].text, (section, *actions))]


def _actions(rows: Sequence[Sequence[Button]]) -> Iterator[JsonObject]:
    for number, row in enumerate(rows):
        for start in range(0, len(row), _ROW):
            elements = [
                _button(one, f"{number}.{start + at}") for at, one in enumerate(row[start : start + _ROW])
            ]
            yield {"type": "actions", "elements": elements}


def _button(button: Button, action: str) -> JsonObject:
    """Return a button; its `action_id` only has to differ from the others of the message."""
    if len(button.value) > _VALUE:
        raise DeliveryError(f"the button {button.label!r} hands back more than {_VALUE} characters")
    label = button.label if len(button.label) <= _LABEL else f"{button.label[: _LABEL - 1]}…"
    text = {"type": "plain_text", "text": label, "emoji": True}
    return {"type": "button", "action_id": f"crayfish.{action}", "text": text, "value": button.value}


def metadata(key: str, part: str = "0", *, last: bool = True, most: int = MRKDWN) -> JsonObject:
    """Return what marks a message as a part of one of ours; `most` is the size to which it was cut."""
    payload = {"id": key, "part": part, "last": last, "most": most}
    return {"event_type": REPLY, "event_payload": payload}


@dataclass(slots=True)
class _Progress:
    """What has arrived of a message: the `ts` of each part by its name, and the names of files.

    `uploads` are the names of files that Slack has, by id; whether people see them is to be found out.
    `most` is the size to which its mrkdwn is cut; the rest must be cut as what has arrived.
    """

    parts: dict[str, str] = field(default_factory=dict)
    files: set[str] = field(default_factory=set)
    uploads: dict[str, str] = field(default_factory=dict)
    most: int = MRKDWN

    @property
    def receipt(self) -> Receipt:
        return Receipt(min(self.parts.values(), default=""))

    def take(self, found: JsonObject, key: str) -> bool:
        """Note a message of a chat; return whether it is the last of ours."""
        payload, ts = _payload(found), str(found.get("ts"))
        if payload.get("id") == key:
            self.parts[str(payload.get("part"))] = ts
            self.most = int(payload.get("most") or MRKDWN)
            return payload.get("last") is True
        for file in found.get("files") or ():
            if (name := self.uploads.get(str(file.get("id")))) is not None:
                self.files.add(name)
                self.parts["files"] = ts
        return False


@dataclass(frozen=True, slots=True)
class _File:
    name: str
    content: bytes


@dataclass(slots=True, kw_only=True)
class Sending:
    """Delivers the messages of one bot.

    A message that takes several requests goes on where it stopped when it is tried again, as long as this
    process lives; after that `find` tells where that was. `mentions` says whom a text may ring in a chat.
    """

    api: SlackApi
    clock: Clock
    open_file: OpenFile
    mentions: Callable[[Address], Mentions] = lambda _address: Mentions()
    unfurl_links: bool = False
    _progress: dict[str, _Progress] = field(default_factory=dict)

    async def send(self, message: Outgoing) -> Receipt:
        """Deliver a message.

        Raises: DeliveryRetry, DeliveryUnsure, DeliveryError, DeadRoute, ChannelStopped.
        """
        progress = self._progress.setdefault(message.key, _Progress())
        try:
            receipt = await self._go_on(message, progress)
        except DeliveryError:
            self._progress.pop(message.key, None)
            raise
        self._progress.pop(message.key, None)
        return receipt

    async def whisper(self, message: Outgoing) -> Receipt | None:
        """Show a message to one person only (Web API chat.postEphemeral); None if Slack does not want that.

        Raises: DeliveryRetry, DeliveryUnsure, DeadRoute, ChannelStopped.
        """
        user, _, thread = message.whisper.partition(":")
        [content, *_] = as_mrkdwn(message.text, Mentions())
        where = {"channel": message.address.chat, "user": user, "thread_ts": thread or None}
        try:
            answer = await self.api.call("chat.postEphemeral", **where, **content.arguments())
        except Gone:
            raise
        except Refused as error:
            log.info("slack.no_whisper", extra={"delivery": message.key, "problem": str(error)})
            return None
        return Receipt(str(answer.get("message_ts") or ""))

    async def replace(self, message: Outgoing) -> Receipt:
        """Edit an older message of ours into this one; one that can't be edited any more stays as it is.

        Raises: DeliveryRetry, also when nobody knows whether it worked; ChannelStopped.
        """
        mentions = self.mentions(message.address)
        forms = (as_markdown(message.text, mentions, message.buttons), *as_mrkdwn(message.text, mentions))
        for content in forms[:2]:
            try:
                await self._edit(message, content)
            except DeliveryUnsure as error:
                raise DeliveryRetry(str(error), after=1.0) from error
            except DeliveryError as error:
                log.info("slack.not_edited", extra={"delivery": message.key, "problem": str(error)})
                if not (isinstance(error, Refused) and error.code in _NO_MARKDOWN):
                    break
            else:
                break
        return Receipt(message.replaces)

    async def _edit(self, message: Outgoing, content: Content) -> None:
        where = {"channel": message.address.chat, "ts": message.replaces, "metadata": metadata(message.key)}
        # Blocks that are left out would stay as they were, with their buttons (Web API chat.update).
        shown = content.arguments() | {"blocks": list(content.blocks)}
        await self.api.call("chat.update", **where, **shown)

    async def find(self, message: Outgoing) -> Receipt | None:
        """Look for a message in its chat; what is found of it is not sent again.

        None also where the scopes don't allow to look. Raises: DeliveryRetry, ChannelStopped.
        """
        progress = self._progress.setdefault(message.key, _Progress())
        names = {_name(one) for one in message.attachments}
        ended = False
        try:
            async for found in self._history(message.address):
                ended = progress.take(found, message.key) or ended
        except DeliveryUnsure as error:
            raise DeliveryRetry(f"can't tell yet whether it has arrived: {error}", after=5.0) from error
        except Refused as error:
            log.warning("slack.blind", extra={"delivery": message.key, "problem": str(error)})
            return None
        if progress.parts and (ended or (names and names <= progress.files)):
            self._progress.pop(message.key, None)
            return progress.receipt
        return None

    async def _go_on(self, message: Outgoing, progress: _Progress) -> Receipt:
        """Send what has not been sent yet."""
        files, message = await self._opened(message)
        texts = pieces(message.text)
        if not texts and message.buttons:
            texts = ("",)
        for number, text in enumerate(texts):
            last = number + 1 == len(texts)
            piece = replace(message, text=text, buttons=message.buttons if last else ())
            await self._piece(piece, progress, str(number), last=last and not files)
        if waiting := [file for file in files if file.name not in progress.files]:
            progress.parts["files"] = await self._files_or_why(message, waiting, progress)
        if not progress.parts:
            raise DeliveryError("there is nothing to send")
        return progress.receipt

    async def _piece(self, piece: Outgoing, progress: _Progress, name: str, *, last: bool) -> None:
        """Send a text as Markdown, else as mrkdwn, in as many messages as that takes."""
        if name in progress.parts:
            return
        mentions = self.mentions(piece.address)
        if not any(part.startswith(f"{name}.") for part in progress.parts):
            content = as_markdown(piece.text, mentions, piece.buttons)
            try:
                mark = metadata(piece.key, name, last=last)
                progress.parts[name] = await self._post(piece, content, mark)
            except Refused as error:
                if error.code not in _NO_MARKDOWN:
                    raise
                log.info("slack.no_markdown", extra={"delivery": piece.key, "problem": str(error)})
            else:
                return
        await self._as_mrkdwn(piece, progress, name, last=last)

    async def _as_mrkdwn(self, piece: Outgoing, progress: _Progress, name: str, *, last: bool) -> None:
        while True:
            contents = as_mrkdwn(piece.text, self.mentions(piece.address), piece.buttons, progress.most)
            try:
                for number, content in enumerate(contents):
                    part = f"{name}.{number}"
                    if part not in progress.parts:
                        ends = last and number + 1 == len(contents)
                        mark = metadata(piece.key, part, last=ends, most=progress.most)
                        progress.parts[part] = await self._post(piece, content, mark)
            except Refused as error:
                # What went out before was of another size, so only the first one may be cut anew.
                begun = f"{name}.0" in progress.parts
                if error.code != "msg_too_long" or begun or progress.most <= _SHORTEST:
                    raise
                progress.most //= 2
            else:
                return

    async def _post(self, message: Outgoing, content: Content, mark: JsonObject) -> str:
        """Post one message and return its `ts`; when it is refused, once more without what was refused."""
        arguments = {
            "channel": message.address.chat,
            "thread_ts": message.address.thread or None,
            "unfurl_links": self.unfurl_links,
            "unfurl_media": self.unfurl_links,
            "metadata": mark,
        }
        for _ in range(3):  # the remedies there are, each tried once
            try:
                answer = await self.api.call("chat.postMessage", **arguments, **content.arguments())
            except Refused as error:
                if error.code in _NO_THREAD and arguments["thread_ts"]:
                    arguments["thread_ts"] = None
                    content = _with_note(content)
                elif error.code in _NO_METADATA and arguments["metadata"]:
                    arguments["metadata"] = None
                else:
                    raise
                log.warning("slack.refused", extra={"delivery": message.key, "problem": str(error)})
            else:
                return str(answer.get("ts") or "")
        raise DeliveryError("Slack refuses the message in every form")

    async def _opened(self, message: Outgoing) -> tuple[list[_File], Outgoing]:
        """Read the files; what can't be had is told in the text."""
        files: list[_File] = []
        problems: list[str] = []
        for attachment in message.attachments:
            try:
                content = await asyncio.to_thread(self.open_file, attachment.path)
                if not content:  # Slack would refuse it, and with it all the others
                    raise DeliveryError("it is empty")
            except (GatewayError, OSError) as error:
                told = str(error) if isinstance(error, GatewayError) else "it can't be read"
                problems.append(f"({_name(attachment)} is not here: {told})")
            else:
                files.append(_File(_name(attachment), content))
        text = "\n\n".join(part for part in (message.text, *map(literal, problems)) if part)
        return files, replace(message, text=text)

    async def _files_or_why(self, message: Outgoing, files: Sequence[_File], progress: _Progress) -> str:
        """Send files; if Slack does not take them, say so."""
        try:
            return await self._files(message, files, progress)
        except Gone:
            raise
        except Refused as error:
            names = ", ".join(file.name for file in files)
            told = as_markdown(literal(f"({names} could not be sent: {error})"), Mentions())
            return await self._post(message, told, metadata(message.key, "files"))

    async def _files(self, message: Outgoing, files: Sequence[_File], progress: _Progress) -> str:
        """Hand over files and show them in the chat; return the id of the first (Web API files.*External)."""
        shown: list[dict[str, str]] = []
        for file in files:
            place = await self.api.call(
                "files.getUploadURLExternal", filename=file.name, length=str(len(file.content))
            )
            await self.api.upload(str(place["upload_url"]), file.content)
            shown.append({"id": str(place["file_id"]), "title": file.name})
            progress.uploads[str(place["file_id"])] = file.name
        await self.api.call(
            "files.completeUploadExternal",
            files=shown,
            channel_id=message.address.chat,
            thread_ts=message.address.thread or None,
        )
        return shown[0]["id"]

    async def _history(self, address: Address) -> AsyncIterator[JsonObject]:
        """Yield the messages of the last day in a thread or a chat."""
        method = "conversations.replies" if address.thread else "conversations.history"
        arguments: JsonObject = {
            "channel": address.chat,
            "ts": address.thread or None,
            "oldest": f"{self.clock.wall() - LOOKBACK:.6f}",
            "limit": str(_PAGE),
            "include_all_metadata": True,
        }
        for _ in range(_PAGES):
            answer = await self.api.call(method, **arguments)
            for found in answer.get("messages") or ():
                yield found
            arguments["cursor"] = (answer.get("response_metadata") or {}).get("next_cursor")
            if not arguments["cursor"]:
                return


def _payload(message: JsonObject) -> JsonObject:
    mark: Json = message.get("metadata")
    if not isinstance(mark, dict) or mark.get("event_type") != REPLY:
        return {}
    payload: Json = mark.get("event_payload")
    return payload if isinstance(payload, dict) else {}


def _name(attachment: Attachment) -> str:
    return attachment.name or PurePosixPath(attachment.path).name or "file"


def _with_note(content: Content) -> Content:
    """Tell why an answer is not in its thread."""
    section = {"type": "section", "text": {"type": "mrkdwn", "text": _THREAD_GONE.strip()}}
    blocks = (section, *content.blocks) if content.blocks else ()
    return Content(f"{_THREAD_GONE}{content.text}", blocks)
