"""Other conversations: what was said in them, a task for them, and sub-agents beside this one."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Literal, TypeAlias
from zoneinfo import ZoneInfo

from sqlalchemy.engine import Connection

from gateway.errors import ToolError
from gateway.store import chats, history, inbox, subagents
from gateway.store.engine import Database
from gateway.store.subagents import CHILDREN, Subagent
from gateway.tools.base import Ask, Group, ToolContext
from gateway.tools.schema import FunctionTool, tool
from gateway.types import INNER, Address, Chat, JsonObject, Kind, Level, Replay, Sender, Stimulus

MOST = 20
LONGEST_LINE = 4_000
LONGEST_TASK = 20_000

Action: TypeAlias = Literal["list", "history", "send"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Desk:
    """What these tools need. `woken` rings for turns that wait."""

    db: Database
    zone: str
    woken: Callable[[], None] = field(default=lambda: None)


def sessions_tool(desk: Desk) -> FunctionTool:
    """Return the tool. Only the owner's private turns reach other conversations (inject-015)."""

    async def asks(
        context: ToolContext, action: Action, conversation: str = "", text: str = "", **_rest: int
    ) -> Ask | None:
        if action != "send":
            return None
        _check(context)
        binding = hashlib.sha256(f"{conversation}\0{text}".encode()).hexdigest()
        rule = "" if context.tainted else hashlib.sha256(f"send {conversation}".encode()).hexdigest()
        return Ask(f"hand a task to the conversation {conversation}", text, binding, rule)

    async def act(
        context: ToolContext, action: Action, conversation: str = "", text: str = "", limit: int = MOST
    ) -> str:
        """Look at other conversations, or send a task to one: it is answered there.

        conversation: as list names it
        """
        _check(context)
        most = max(1, min(limit, MOST))
        if action == "list":
            return (
                "\n".join(map(_line, await desk.db.read(lambda tx: history.everywhere(tx, most)))) or "None."
            )
        target = _address(conversation)
        chat = await desk.db.read(lambda tx: chats.chat_of(tx, target))
        if chat is None:
            raise ToolError(f"there is no conversation {conversation!r}: list shows those there are")
        if action == "history":
            said = await desk.db.read(lambda tx: history.messages(tx, target, most, None))
            return "\n".join(_said(one, ZoneInfo(desk.zone)) for one in said) or "Nothing was said there."
        if not text.strip():
            raise ToolError("text is missing: what is to be done there?")
        await desk.db.write(lambda tx: _hand_over(tx, context, target, chat, text, desk.db.now()))
        desk.woken()
        return f"Handed over to {conversation}; the answer goes there."

    tool_made = tool(Replay.ONCE, Group.SESSIONS, private=True, untrusted=True, asks=asks)(act)
    return replace(tool_made, name="sessions")


def spawn_tool(desk: Desk) -> FunctionTool:
    """Return the tool. A sub-agent has at most its parent's tools, and none that start or send things."""

    async def act(context: ToolContext, task: str, name: str = "helper") -> str:
        """Give a large task to a sub-agent; its result comes back as a message.

        task: in full; it sees nothing of this chat
        """
        if context.address.channel in INNER:
            raise ToolError("a sub-agent is started from a conversation with people")
        if not 0 < len(task.strip()) <= LONGEST_TASK:
            raise ToolError(f"task must have 1 to {LONGEST_TASK} characters")
        one = Subagent(
            id=hashlib.sha256(context.key.encode()).hexdigest()[:10],
            parent=context.address,
            place=context.place or context.address,
            name=" ".join(name.split())[:40] or "helper",
            task=task,
            state="running",
            at=0.0,
        )
        now = desk.db.now()
        if not await desk.db.write(lambda tx: subagents.start(tx, one, context.sender, context.chat, now)):
            raise ToolError(f"{CHILDREN} sub-agents are running already; wait for one of them")
        desk.woken()
        return f"Started {one.name} ({one.id}). Its result comes by itself: end your turn, don't wait for it."

    return replace(tool(Replay.ONCE, Group.SESSIONS)(act), name="spawn")


def _check(context: ToolContext) -> None:
    if not context.is_owner:
        raise ToolError("other conversations are the owner's business, in private")


def _address(text: str) -> Address:
    channel, _, rest = text.strip().partition(":")
    chat, _, thread = rest.partition(":")
    if not channel or not chat:
        raise ToolError("conversation must be as list names it: channel:chat or channel:chat:thread")
    return Address(channel, chat, thread)


def _line(one: JsonObject) -> str:
    return f"{one['conversation']} ({one['chat']}), last {one['at']}"


def _said(one: JsonObject, zone: ZoneInfo) -> str:
    when = datetime.fromtimestamp(one["at"], zone).strftime("%Y-%m-%d %H:%M")
    return f"[{when}] {one['role']}: {one['text'][:LONGEST_LINE]}"


def _hand_over(
    tx: Connection, context: ToolContext, target: Address, chat: Chat, text: str, now: float
) -> None:
    source = context.address.shown
    task = Stimulus(
        key=f"handed:{context.key}",
        address=target,
        # Others may read there: so it has no more than their rights, and sees none of the owner's files.
        sender=Sender("", "another conversation", Level.USER),
        text=f"[Handed over from the conversation {source}, not written by the people here]\n{text}",
        at=now,
        kind=Kind.SUBAGENT,
        chat=chat,
    )
    inbox.take_in(tx, inbox.Arrival(task), now, inbox.Taken())
