"""Delivers messages: the requests, how fast they leave, and what is done when one is refused."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final

from adapters.telegram.client import Api
from adapters.telegram.errors import Migrated
from adapters.telegram.gate import Gate
from adapters.telegram.methods import Method, Upload
from adapters.telegram.plan import LARGEST, NO_TEXT, File, Form, Keyboard, Step, file_of, plan
from adapters.telegram.render import Entity, Rendered
from gateway.clock import Clock
from gateway.errors import DeadRoute, DeliveryError, DeliveryRetry, DeliveryUnsure, GatewayError
from gateway.types import Attachment, Json, Outgoing, Receipt

log = logging.getLogger(__name__)

OpenFile = Callable[[str], bytes]
"""Returns the content of a file of the workspace. Raises: GatewayError, whose text is for people."""

PATIENCE = 2.0
"""Seconds that a message waits for its turn while it holds a slot of the sender; a longer wait is stored."""

_REQUEST: Final = 30
"""Seconds for a request without files."""

_UPLOAD: Final = 120
"""Seconds for a request with files."""

_GENERAL: Final = "1"
"""The topic whose messages are sent without a `message_thread_id` (spec TG-17)."""

_TOPIC_GONE: Final = "(The topic is gone, so the answer is here.)\n\n"

_DEAD: Final = (
    "forbidden: bot was blocked",
    "forbidden: bot was kicked",
    "forbidden: bot can't initiate",
    "forbidden: bot is not a member",
    "forbidden: user is deactivated",
    "forbidden: the group chat was deleted",
    "chat not found",
    "user not found",
    "peer_id_invalid",
    "group chat was deactivated",
)
"""What the platform says about a place where no message will arrive any more (spec TG-28)."""

_FORMAT: Final = ("can't parse", "entities", "entity_", "text_link", "url_invalid", "wrong http url")
"""What it says about formatting that it does not take."""


@dataclass(frozen=True, slots=True)
class Target:
    """Where a request goes; `reply_to` and `thread` are None for none."""

    chat: str
    thread: int | None = None
    reply_to: int | None = None


def target_of(message: Outgoing) -> Target:
    """Read where a message goes."""
    address = message.address
    thread = int(address.thread) if address.thread.isdecimal() and address.thread != _GENERAL else None
    return Target(address.chat, thread, int(message.reply_to) if message.reply_to.isdecimal() else None)


def method_of(step: Step, target: Target, *, link_preview: bool = True) -> Method:
    """Return the request for a step (Bot API sendMessage, sendPhoto and its like, sendMediaGroup)."""
    where: dict[str, Json] = {"chat_id": target.chat, "message_thread_id": target.thread}
    if target.reply_to is not None:
        where["reply_parameters"] = {"message_id": target.reply_to, "allow_sending_without_reply": True}
    if step.buttons:
        where["reply_markup"] = _keyboard(step.buttons)
    if not step.files:
        preview = None if link_preview else {"is_disabled": True}
        text = {"text": step.text.text, "entities": _entities(step.text.entities)}
        return Method("sendMessage", {**text, "link_preview_options": preview, **where})
    caption: dict[str, Json] = {}
    if step.text.text:
        caption = {"caption": step.text.text, "caption_entities": _entities(step.text.entities)}
    files = {f"file{number}": Upload(file.content, file.name) for number, file in enumerate(step.files)}
    first, *more = step.files
    if not more:
        kind = first.form.value
        return Method(f"send{kind.capitalize()}", {kind: "attach://file0", **caption, **where}, files)
    media: list[Json] = [
        {"type": file.form.value, "media": f"attach://file{number}"} for number, file in enumerate(step.files)
    ]
    media[0] |= {name: value for name, value in caption.items() if value is not None}
    return Method("sendMediaGroup", {"media": media, **where}, files)


def edit_of(message: Outgoing, message_id: int, *, link_preview: bool = True) -> Method:
    """Return the request that turns a message of ours into this one; without buttons it loses its own.

    Raises: DeliveryError if one message can't hold it.
    """
    steps = plan(message, ())
    if len(steps) != 1 or message.attachments:
        raise DeliveryError("it takes more than one message")
    address = target_of(message)
    sent = method_of(steps[0], Target(address.chat), link_preview=link_preview)
    return Method("editMessageText", {**sent.params, "message_id": message_id})


def _entities(entities: tuple[Entity, ...]) -> Json:
    """Return formatting as JSON, None if there is none."""
    told = [
        {"type": e.kind, "offset": e.offset, "length": e.length, "url": e.url, "language": e.language}
        for e in entities
    ]
    return [{name: value for name, value in one.items() if value != ""} for one in told] or None


def _keyboard(buttons: Keyboard) -> Json:
    rows = [[{"text": one.label, "callback_data": one.value} for one in row] for row in buttons]
    return {"inline_keyboard": rows}


@dataclass(slots=True, kw_only=True)
class Sending:
    """Delivers the messages of one bot.

    A message that takes several requests goes on where it stopped when it is tried again, as long as
    this process lives.
    """

    api: Api
    gate: Gate
    clock: Clock
    open_file: OpenFile
    link_preview: bool = True
    _done: dict[str, int] = field(default_factory=dict)

    async def send(self, message: Outgoing) -> Receipt:
        """Deliver a message.

        Raises: DeliveryRetry, DeliveryUnsure, DeliveryError, DeadRoute, ChannelStopped.
        """
        steps = await self._steps(message)
        if not steps:
            raise DeliveryError("there is nothing to send")
        target = target_of(message)
        receipt = ""
        for number, step in enumerate(steps):
            if number < self._done.get(message.key, 0):
                continue
            at = target if number == 0 else replace(target, reply_to=None)
            receipt = await self._deliver(step, at, message.key)
            if number + 1 < len(steps):
                self._done[message.key] = number + 1
        self._done.pop(message.key, None)
        return Receipt(receipt)

    async def replace(self, message: Outgoing) -> Receipt:
        """Edit an older message of ours into this one; one that can't be edited any more stays as it is.

        Raises: DeliveryRetry, also when nobody knows whether it worked; ChannelStopped.
        """
        try:
            edit = edit_of(message, int(message.replaces), link_preview=self.link_preview)
            await self._ask(edit, message.address.chat)
        except DeliveryUnsure as error:
            raise DeliveryRetry(str(error), after=1.0) from error
        except DeliveryError as error:
            log.info("telegram.not_edited", extra={"delivery": message.key, "problem": str(error)})
        return Receipt(message.replaces)

    async def _steps(self, message: Outgoing) -> tuple[Step, ...]:
        if not message.attachments:
            return plan(message, ())
        files: list[File] = []
        problems: list[str] = []
        for attachment in message.attachments:
            try:
                files.append(await self._file(attachment))
            except (GatewayError, OSError) as error:
                text = str(error) if isinstance(error, GatewayError) else "it can't be read"
                problems.append(f"({attachment.name or attachment.path} is not here: {text})")
        text = "\n\n".join(part for part in (message.text, *map(_literal, problems)) if part)
        return plan(replace(message, text=text), files)

    async def _file(self, attachment: Attachment) -> File:
        content = await asyncio.to_thread(self.open_file, attachment.path)
        if len(content) > LARGEST:
            raise DeliveryError(f"it is larger than the {LARGEST // 1_000_000} MB that Telegram takes")
        if not content:
            raise DeliveryError("it is empty")
        return file_of(attachment, content)

    async def _deliver(self, step: Step, target: Target, key: str) -> str:
        """Send a step; when it is refused, once more without what was refused."""
        for _ in range(5):  # the remedies there are, each tried once
            try:
                return await self._call(step, target)
            except Migrated as error:
                log.warning("telegram.group_moved", extra={"old": target.chat, "new": error.chat})
                if error.chat == target.chat:
                    raise
                target = replace(target, chat=error.chat, thread=None, reply_to=None)
            except DeliveryError as error:
                log.warning("telegram.refused", extra={"delivery": key, "problem": str(error)})
                if "too long" in str(error) and len(step.text.text) > 1:
                    return await self._in_parts(step, target, key)
                remedy = _remedy(step, target, str(error))
                if remedy is None and _is_dead(str(error).lower()):
                    raise DeadRoute(str(error)) from error
                if remedy is None:
                    raise
                step, target = remedy
        raise DeliveryError("Telegram refuses the message in every form")

    async def _in_parts(self, step: Step, target: Target, key: str) -> str:
        """Send what the platform measures differently than we do: the files and the text, or halves of it."""
        if step.files:
            await self._deliver(replace(step, text=NO_TEXT, buttons=()), target, key)
            return await self._deliver(replace(step, files=()), target, key)
        text = step.text.text
        middle = max(text.rfind(" ", 1, len(text) // 2 + 1), 0) or len(text) // 2
        await self._deliver(Step(Rendered(text[:middle])), target, key)
        return await self._deliver(Step(Rendered(text[middle:].lstrip()), buttons=step.buttons), target, key)

    async def _call(self, step: Step, target: Target) -> str:
        method = method_of(step, target, link_preview=self.link_preview)
        return _message_id(await self._ask(method, target.chat, limit=_UPLOAD if step.files else _REQUEST))

    async def _ask(self, method: Method, chat: str, limit: int = _REQUEST) -> Json:
        await self._turn(chat)
        try:
            return await self.api.call(method, limit=limit)
        except DeliveryRetry as error:
            if error.after:
                self.gate.pause(chat, self.clock.now() + error.after)
            raise

    async def _turn(self, chat: str) -> None:
        """Wait until the chat may get a message. Raises: DeliveryRetry if that takes long."""
        wait = self.gate.wait(chat, self.clock.now())
        if wait > PATIENCE:
            raise DeliveryRetry("Telegram takes no more messages there now", after=wait)
        self.gate.take(chat, self.clock.now() + max(0.0, wait))
        if wait > 0:
            await self.clock.sleep(wait)


def _literal(text: str) -> str:
    """Return Markdown that shows a text as it is."""
    return "".join(f"\\{char}" if char in "\\`*_[]<>&|~#" else char for char in text)


def _message_id(result: Json) -> str:
    """Return the id of the message, or of the first of an album."""
    first = result[0] if isinstance(result, list) and result else result
    return str(first.get("message_id", "")) if isinstance(first, dict) else ""


def _remedy(step: Step, target: Target, refusal: str) -> tuple[Step, Target] | None:
    """Return what may be taken where `step` was refused, or None."""
    said = refusal.lower()
    if "thread not found" in said or "topic_closed" in said or "topic_deleted" in said:
        if target.thread is None:
            return None
        return _with_note(step), replace(target, thread=None, reply_to=None)
    if _is_dead(said):
        return None
    if step.text.entities and any(word in said for word in _FORMAT):
        return replace(step, text=Rendered(step.text.text)), target
    if any(file.form is not Form.DOCUMENT for file in step.files):
        files = tuple(replace(file, form=Form.DOCUMENT) for file in step.files)
        return replace(step, files=files), target
    if step.files:
        names = ", ".join(file.name for file in step.files)
        text = f"{step.text.text}\n\n({names}: {refusal})".strip()
        return replace(step, text=Rendered(text, step.text.entities), files=()), target
    return None


def _with_note(step: Step) -> Step:
    """Tell why an answer is not in its topic (case telegram-out-04)."""
    moved = len(_TOPIC_GONE)
    entities = tuple(replace(one, offset=one.offset + moved) for one in step.text.entities)
    return replace(step, text=Rendered(_TOPIC_GONE + step.text.text, entities))


def _is_dead(said: str) -> bool:
    return any(reason in said for reason in _DEAD)
