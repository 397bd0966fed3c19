"""The tool with which the model sends something by itself, here or to another chat."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from sqlalchemy.engine import Connection

from gateway.errors import ToolDenied, ToolError
from gateway.reply import attachment
from gateway.sentinels import visible
from gateway.store import chats, inbox, outbox, routes
from gateway.store.engine import Database
from gateway.tools.base import Ask, Group, ToolContext
from gateway.tools.files import exists
from gateway.tools.schema import FunctionTool, tool
from gateway.types import (
    INNER,
    PERSON,
    Address,
    Attachment,
    Button,
    Chat,
    Kind,
    OnUnknown,
    Outgoing,
    Replay,
    Sender,
    Stimulus,
)

NAME = "message"
MOST_BUTTONS = 8
MOST_FILES = 10
LONGEST = 20_000
LONGEST_LABEL = 40

MOST_MESSAGES, WINDOW = 30, 600.0
"""Messages that one conversation sends by itself within so many seconds: a foolish model sends hundreds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Post:
    """What sending needs: the outbox, and what each channel can carry; none carries anything unless told so.

    `below` names a file as deliveries do, from the agent's name and a path in its workspace.
    """

    db: Database
    pieces: Callable[[Address, str], Sequence[str]] = field(default=lambda _address, text: [text])
    sends_files: Callable[[Address], bool] = field(default=lambda _address: False)
    below: Callable[[ToolContext, str], str] = field(default=lambda _context, path: path)
    sent: Callable[[], None] = field(default=lambda: None)

    async def reached(self, address: Address) -> Address:
        """Return the chat that a shared session is reached by. Raises: StoreError."""
        return await self.db.read(lambda tx: routes.reached(tx, address))


def message_tool(post: Post) -> FunctionTool:
    """Return the tool. Only the owner's private turns reach other chats, and each new one is asked about."""

    async def asks(
        context: ToolContext,
        text: str,
        to: str = "",
        files: list[str] | None = None,
        buttons: list[str] | None = None,
    ) -> Ask | None:
        target = _address(to)
        if target is None or target == context.place:
            return None
        if not context.is_owner:
            raise ToolDenied("only the owner may have something sent to another chat; nothing was sent")
        if await post.db.write(lambda tx: chats.chat_of(tx, target), durable=False) is None:
            raise ToolDenied(f"there is no conversation {to!r}: `sessions` lists those there are")
        what = "\n".join([text, *(files or ()), *(f"[{label}]" for label in buttons or ())])
        binding = hashlib.sha256(f"{target.key}\0{what}".encode()).hexdigest()
        rule = "" if context.tainted else hashlib.sha256(target.key.encode()).hexdigest()
        return Ask(f"send a message to {to}", what, binding, rule)

    async def act(
        context: ToolContext,
        text: str,
        to: str = "",
        files: list[str] | None = None,
        buttons: list[str] | None = None,
    ) -> str:
        """Send a message now, or to another chat; your reply doesn't repeat it.

        to: a conversation as sessions lists it
        buttons: a press comes back as a message
        """
        named = _address(to) or context.place or context.address
        target = await post.reached(named) if named.channel == PERSON else named
        if target.channel in INNER:
            raise ToolError("nobody reads here; name a conversation in `to`")
        shown = visible(text, context.kind)
        found = _files(context, post, target, files or [])
        if not shown and not found:
            return "Nothing was sent: the text says that there is nothing to say."
        if len(shown) > LONGEST:
            raise ToolError(
                f"the text has {len(shown)} characters, at most {LONGEST} can be sent; use a file"
            )
        messages = _messages(context, post, target, shown, found, _buttons(buttons or []))
        now = post.db.now()

        def work(tx: Connection) -> None:
            if outbox.count(tx, f"{NAME}:{context.conversation_id}:", now - WINDOW) >= MOST_MESSAGES:
                raise ToolError(
                    f"{MOST_MESSAGES} messages were sent from here within ten minutes; this one was not sent"
                )
            outbox.put(tx, messages, now)
            if target != context.situation.seen_at:
                chat = chats.chat_of(tx, target) or Chat.DIRECT
                mirror = _mirror(context, target, chat, shown, now)
                inbox.take_in(tx, inbox.Arrival(mirror, wakes=False), now, inbox.Taken())

        await post.db.write(work)
        post.sent()
        return f"Queued for {to or 'this chat'}."

    return replace(tool(Replay.ONCE, Group.MESSAGING, asks=asks)(act), name=NAME)


def _address(to: str) -> Address | None:
    """Return the conversation that a name means, None for this one. Raises: ToolError."""
    if not to.strip():
        return None
    channel, _, rest = to.strip().partition(":")
    chat, _, thread = rest.partition(":")
    if not channel or not chat or channel in INNER:
        raise ToolError(f'{to!r} names no conversation: it is "channel:chat" or "channel:chat:thread"')
    return Address(channel, chat, thread)


def _files(context: ToolContext, post: Post, target: Address, paths: Sequence[str]) -> list[Attachment]:
    if not paths:
        return []
    if not post.sends_files(target):
        raise ToolError("no files can be sent there; nothing was sent")
    if len(paths) > MOST_FILES:
        raise ToolError(f"at most {MOST_FILES} files go with a message; nothing was sent")
    missing = [path for path in paths if not exists(context.folder, path)]
    if missing:
        raise ToolError(f"there is no file {missing[0]!r} here; nothing was sent")
    return [replace(attachment(path), path=post.below(context, path)) for path in paths]


def _buttons(labels: Sequence[str]) -> tuple[tuple[Button, ...], ...]:
    if len(labels) > MOST_BUTTONS:
        raise ToolError(f"at most {MOST_BUTTONS} buttons go with a message; nothing was sent")
    rows = []
    for label in labels:
        plain = " ".join(label.split())
        if not 0 < len(plain) <= LONGEST_LABEL:
            raise ToolError(f"a button's label has 1 to {LONGEST_LABEL} characters; nothing was sent")
        rows.append((Button(plain, plain.encode()[:60].decode(errors="ignore")),))
    return tuple(rows)


def _messages(
    context: ToolContext,
    post: Post,
    target: Address,
    text: str,
    files: Sequence[Attachment],
    buttons: tuple[tuple[Button, ...], ...],
) -> list[Outgoing]:
    """Return the pieces; the last one has files and buttons."""
    pieces = list(post.pieces(target, text)) if text else [""]
    last = len(pieces) - 1
    return [
        Outgoing(
            key=f"{NAME}:{context.key}:{number}",
            address=target,
            text=piece,
            on_unknown=OnUnknown.RESEND if context.kind is Kind.MESSAGE else OnUnknown.DROP,
            attachments=tuple(files) if number == last else (),
            buttons=buttons if number == last else (),
        )
        for number, piece in enumerate(pieces)
    ]


def _mirror(context: ToolContext, target: Address, chat: Chat, text: str, now: float) -> Stimulus:
    """Return what the other conversation must know of it, so that an answer there makes sense."""
    return Stimulus(
        key=f"mirror:{context.key}",
        address=target,
        sender=Sender(""),
        text=text,
        at=now,
        kind=Kind.SUBAGENT,
        chat=chat,
        aimed=False,
    )
