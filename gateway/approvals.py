"""Asks the owner about a call before it runs, and judges the answer."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from sqlalchemy.engine import Connection

from gateway import cards
from gateway.store import approvals
from gateway.store.approvals import Approval, State
from gateway.store.engine import Database
from gateway.store.inbox import Said
from gateway.store.journal import Claim
from gateway.tools.base import Ask, ToolContext
from gateway.types import Address, Button, Outgoing, ToolCall, ToolEntry

EXPIRES = 1800.0
"""Seconds that a question stays open (agent 4.4)."""

LONGEST_ANSWER = 12

SHORT = 4
"""Letters of a question's id that are shown; the beginning is enough to name it."""

PRESSED = "callback_data: "
"""What stands before the value of a button that was pressed."""

USAGE = "/approve <id> [always], /deny <id>, /approvals for what waits, /approvals revoke <id>"

_VERDICTS: Mapping[State, str] = {
    State.DENIED: "not run: the owner denied it. Don't try it another way; ask what to do instead",
    State.EXPIRED: "not run: nobody allowed it in time. Tell the person; it can be tried again later",
    State.WITHDRAWN: "not run: it waited to be allowed, and the person wrote something else instead. "
    "Read that first; ask for it again only if it is still wanted",
}
_ANSWERS = {
    **dict.fromkeys(("yes", "y", "ok", "okay", "sure", "allow", "approve"), State.ONCE),
    **dict.fromkeys(("ja", "oui", "si", "sí", "да", "好", "好的", "可以", "同意", "はい", "예"), State.ONCE),
    **dict.fromkeys(("no", "n", "nope", "deny", "don't", "nein", "non"), State.DENIED),
    **dict.fromkeys(("нет", "不", "不要", "不行", "拒绝", "いいえ", "아니요"), State.DENIED),
}


@dataclass(frozen=True, slots=True)
class Question:
    """A call that waits: what is asked, in full, and whether it has been asked already."""

    approval: Approval
    detail: str = ""
    note: str = ""
    is_asked: bool = True


class Checks(Protocol):
    """The tools of a conversation, as far as they say what needs a person."""

    def own_name(self, name: str) -> str:
        """Return what a tool is called that a model may call by another name from habit."""
        ...

    async def check(self, call: ToolCall, context: ToolContext) -> Ask | ToolEntry | None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Approver:
    """Decides about each call: run, don't, or wait for a person.

    `owner` tells where the owner can be asked in private, None if nowhere. `expires` is in seconds. `queued`
    is called when something was put into the outbox.
    """

    db: Database
    owner: Callable[[], Awaitable[Address | None]]
    expires: float = EXPIRES
    queued: Callable[[], None] = lambda: None

    async def judge(
        self, claim: Claim, tools: Checks, call: ToolCall, context: ToolContext
    ) -> ToolContext | ToolEntry | Question:
        """Return with what a call may run, its result if it won't, or that it waits. Raises: StoreError."""
        verdict = await tools.check(call, context)
        if verdict is None:
            return context
        if isinstance(verdict, ToolEntry):
            return verdict
        asked = claim.approvals.get(call.id)
        if asked is None:
            return await self._first(claim, tools.own_name(call.name), call, context, verdict)
        if asked.state is State.ASKED:
            asked = await self._still_open(claim, asked)
        if asked.state is State.ASKED:
            return Question(asked)
        if not asked.state.allows:
            return _refused(call, _VERDICTS[asked.state])
        if asked.binding != verdict.binding:
            return _refused(call, "not run: what it depends on changed after it was allowed. Call it again")
        return replace(context, approved=verdict.binding)

    async def _first(
        self, claim: Claim, tool: str, call: ToolCall, context: ToolContext, ask: Ask
    ) -> ToolContext | ToolEntry | Question:
        """Return what a call gets about which nobody was asked yet; `tool` is the own name of its tool."""
        rule = ask.rule
        if rule:
            look = functools.partial(approvals.is_permitted, tool=tool, rule=rule)
            if await self.db.write(look, durable=False):
                return replace(context, approved=ask.binding)
        situation = context.situation
        if not situation.attended:
            return _refused(call, "not run: it needs the owner's permission, and nobody is there to give it")
        where = claim.seen_at if situation.is_private else await self.owner()
        if where is None:
            return _refused(call, "not run: my owner would have to allow it and can't be reached now. Say so")
        approval = Approval(
            id=approvals.new_id(),
            conversation_id=claim.conversation_id,
            seq=claim.calling,
            call_id=call.id,
            tool=tool,
            title=_line(ask.title),
            binding=ask.binding,
            rule=ask.rule,
            address=where,
            expires_at=self.db.now() + self.expires,
        )
        return Question(approval, ask.detail, ask.note, is_asked=False)

    async def _still_open(self, claim: Claim, asked: Approval) -> Approval:
        """Close a question that is too old, or that the person has passed over; return it as it is now."""
        now = self.db.now()
        if claim.waiting:
            state = State.WITHDRAWN
        elif now >= asked.expires_at:
            state = State.EXPIRED
        else:
            return asked

        def work(tx: Connection) -> Approval:
            if approvals.close(tx, asked, state, now):
                return replace(asked, state=state)
            return approvals.of_calls(tx, asked.conversation_id, asked.seq)[asked.call_id]

        seen = await self.db.write(work)
        self.queued()
        return seen

    def store(self, question: Question) -> Callable[[Connection], None]:
        """Return what stores a new question, in the transaction that lets go of the conversation."""
        now = self.db.now()
        return lambda tx: approvals.ask(tx, question.approval, question.detail, now)

    def cards(self, claim: Claim, question: Question) -> list[Outgoing]:
        """Return what asks the owner, and what tells whoever waits for it elsewhere."""
        one = question.approval
        card = Outgoing(
            key=approvals.card_key(one.id),
            address=one.address,
            text=cards.asked(
                one.title,
                question.detail,
                question.note,
                one.id[:SHORT],
                has_rule=bool(one.rule),
                minutes=self.expires / 60,
            ),
            buttons=(_buttons(one),),
        )
        if one.address == claim.seen_at:
            return [card]
        note = f"I have asked my owner whether I may do this: {one.title}"
        return [card, Outgoing(key=f"{card.key}:note", address=claim.seen_at, text=note)]


def _buttons(one: Approval) -> tuple[Button, ...]:
    """Return what can be pressed; each value fits into 64 bytes (approval-01)."""
    once, always = Button("Allow once", f"approve:{one.id}"), Button("Always", f"approve:{one.id}:always")
    return (once, *([always] if one.rule else []), Button("Deny", f"deny:{one.id}"))


def _line(text: str) -> str:
    return " ".join(text.split())[:200]


def _refused(call: ToolCall, why: str) -> ToolEntry:
    return ToolEntry(call.id, call.name, f"Error: {why}.", is_error=True)


def pressed(text: str) -> tuple[str, str] | None:
    """Return command and words of a button of ours that was pressed, None for anything else."""
    name, _, rest = text.removeprefix(PRESSED).partition(":")
    if not text.startswith(PRESSED) or name not in ("approve", "deny"):
        return None
    return name, rest.replace(":", " ")


def says(text: str) -> State | None:
    """Return what a bare yes or no means, None for everything else."""
    return _ANSWERS.get(text.strip().rstrip(".!").lower()) if len(text) < LONGEST_ANSWER else None


def answer(tx: Connection, words: Sequence[str], state: State, by: str, now: float) -> str | Said:
    """Decide by the first characters of an id, or without any if only one question is open (approval-05)."""
    waiting = approvals.open_at(tx)
    match words:
        case [] | ["always"] | ["once"]:
            found = waiting
        case [which, "always"] | [which, "once"] | [which]:
            found = [one for one in waiting if one.id.startswith(which.lower())]
        case _:
            return USAGE
    if words[-1:] == ["always"] and state.allows:
        state = State.ALWAYS
    if not found:
        return "That question is not open: it was answered, withdrawn, or is too old."
    if len(found) > 1:
        return f"Which one?\n{listed(found)}"
    return settle(tx, found[0], state, by, now)


def settle(tx: Connection, one: Approval, state: State, by: str, now: float) -> str | Said:
    """Note a decision; return what is said about it, to whoever decided first."""
    if now >= one.expires_at:
        return "That question is too old; nothing was done."
    if state is State.ALWAYS and not one.rule:
        state = State.ONCE
    if not approvals.decide(tx, one, state, by, now):
        return "That question is answered already."
    return Said(f"{approvals.SAID[state]}: {one.title}", approvals.settled(tx, one.id, state))


def listed(found: Sequence[Approval]) -> str:
    """Return a line for each question."""
    return "\n".join(f"{one.id[:SHORT]}  {one.title}" for one in found)


def overview(tx: Connection) -> str:
    """Return what waits, and what was allowed for good."""
    waiting, kept = approvals.open_at(tx), approvals.permits(tx)
    lines = [f"Waiting:\n{listed(waiting)}" if waiting else "Nothing waits for you."]
    if kept:
        lines.append("Always allowed:\n" + "\n".join(f"{one.id}  {one.tool}: {one.title}" for one in kept))
    return "\n".join(lines)


def take_back(tx: Connection, which: str) -> str:
    """Ask again from now on about what "always" was said to; return what is said about it."""
    gone = approvals.revoke(tx, which)
    if gone is None:
        return "Nothing of that id is always allowed; /approvals shows what is."
    return f"Taken back, I will ask again: {gone.title}"
