"""Runs one turn of one conversation, from wherever its transcript stands."""

from __future__ import annotations

import asyncio
import functools
import itertools
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol, TypeAlias

from sqlalchemy.engine import Connection

from gateway.errors import ModelError, ModelRefused, PromptTooLong
from gateway.feed import Delta, Feed, Restarted, ToolEnded, ToolStarted, TurnEnded, TurnGone, TurnStarted
from gateway.models.base import Model, Prompt, Reply
from gateway.prompt import fit
from gateway.reply import Composed, compose
from gateway.sentinels import ACK_MAX_CHARS, Gate, looks_like_call, visible
from gateway.steps import Ask, Rest, Run, RunOnce, Settle, is_open, next_step
from gateway.store.journal import Claim, Ended, Journal, turn_kind
from gateway.store.outbox import Delivery, Outbox
from gateway.tools.base import ToolContext
from gateway.tools.files import exists
from gateway.types import (
    Address,
    AssistantEntry,
    Chat,
    Entry,
    Kind,
    OnUnknown,
    Outgoing,
    Sender,
    Stimulus,
    ToolCall,
    ToolEntry,
    ToolSpec,
    Usage,
    UserEntry,
)
from gateway.vision import pictures, recent

log = logging.getLogger(__name__)

MAX_ATTEMPTS = 3
"""Claims of one turn without progress before it is given up (decisions 1)."""

MAX_CALLS = 16
"""Tool calls of one reply that are run (attack size-007)."""

SAME_CALLS = 5
"""Equal calls with equal results in a row before the turn is wrapped up (agent 3.8)."""

UNATTENDED_ROUNDS = 15
"""Replies with tool calls in a turn that nobody waits for (agent 11)."""

INNER = frozenset({"cron", "heartbeat"})
"""Channels of conversations that the bot has with itself; nobody reads there."""

Ending: TypeAlias = Callable[[Connection, Ended], None]
"""Takes note of how a turn ended, inside the transaction that ends it."""

LIMIT_NOTE = (
    "[System note: the limit of tool rounds for this request is reached. Use no more tools. "
    "Tell the person briefly what is known and done so far, and what is still open.]"
)
CALL_NOTE = (
    "[System note: your last reply printed a tool call as text, so nothing ran and nobody saw it. "
    "Call the tool through the tool interface, or answer in plain words.]"
)
EMPTY_NOTE = "[System note: your last reply was empty. Answer the person now, in words.]"
LIMIT_SORRY = "I stopped after many tool steps without finishing. Say “go on” and I continue from here."
CALL_SORRY = "Sorry, I tried to use a tool and it did not work. Please ask me again in other words."
EMPTY_SORRY = "Sorry, the model gave me an empty answer twice. Please try again or put it differently."
LONG_SORRY = "This conversation no longer fits into the model's memory. Start a fresh one with /new."
FAILED_SORRY = (
    "Sorry, something went wrong several times while I worked on this, so I gave up. Please try again."
)


class Tools(Protocol):
    """The tools of a conversation."""

    def specs(self, chat: Chat) -> Sequence[ToolSpec]: ...

    def replayable(self, name: str) -> bool: ...

    async def call(self, call: ToolCall, context: ToolContext) -> ToolEntry: ...


class Prompts(Protocol):
    """Builds what the model sees."""

    def build(
        self,
        entries: Sequence[Entry],
        *,
        address: Address,
        chat: Chat,
        kind: Kind,
        session: str,
        nudge: str = "",
        tools_allowed: bool = True,
    ) -> Prompt: ...


class Slots(Protocol):
    """Room for one more delivery by this process."""

    @property
    def outbox(self) -> Outbox: ...

    def acquire(self) -> bool:
        """Take a slot if one is free."""
        ...

    def give_back(self) -> None:
        """Return a slot that was not needed."""
        ...


@dataclass(frozen=True, slots=True)
class Final:
    """How a turn ends: the last entry, what it cost, and whether it reports a failure.

    `problem` is the failure in the words of the log, where the entry's are for people; with `is_lasting` it
    will not pass by itself.
    """

    entry: AssistantEntry
    usage: Usage | None = None
    is_error: bool = False
    problem: str = ""
    is_lasting: bool = False


async def _never(_shown: str) -> bool:
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Beats:
    """How turns of heartbeats differ: their model, if not the usual one, and what is not worth showing.

    `is_repeat` says whether an alert was shown lately; it may raise StoreError.
    """

    model: Model | None = None
    max_rounds: int = UNATTENDED_ROUNDS
    ack_max_chars: int = ACK_MAX_CHARS
    is_repeat: Callable[[str], Awaitable[bool]] = _never


def rounds(transcript: Sequence[Entry]) -> int:
    """Return how many replies with tool calls the running turn has had."""
    count = 0
    for entry in reversed(transcript):
        if isinstance(entry, AssistantEntry):
            if not entry.calls:
                break
            count += 1
    return count


def is_stuck(transcript: Sequence[Entry]) -> bool:
    """Return whether the last calls were all the same and brought the same."""
    made: list[tuple[str, str, str]] = []
    results: dict[str, str] = {}
    for entry in reversed(transcript):
        match entry:
            case ToolEntry():
                results[entry.call_id] = entry.text
            case AssistantEntry() if entry.calls:
                made += [(call.name, repr(call.args), results.get(call.id, "")) for call in entry.calls]
                if len(made) >= SAME_CALLS:
                    break
            case _:
                break
    return len(made) >= SAME_CALLS and len(set(made[:SAME_CALLS])) == 1


def newest_sender(transcript: Sequence[Entry]) -> Sender:
    """Return who spoke last."""
    return next((entry.sender for entry in reversed(transcript) if isinstance(entry, UserEntry)), Sender(""))


@dataclass(slots=True, kw_only=True)
class TurnRunner:
    """The agent loop. `draining` asks it to stop at the next step of each turn.

    `endings` are told how the turns of a kind ended.
    """

    journal: Journal
    model: Model
    tools: Tools
    prompts: Prompts
    feed: Feed
    slots: Slots
    pieces: Callable[[Address, str], Sequence[str]]
    workspace: Path
    sends_files: Callable[[Address], bool] = lambda _address: False
    max_rounds: int = 50
    max_chars: int = 400_000
    endings: Mapping[Kind, Ending] = field(default_factory=dict)
    beats: Beats = Beats()
    draining: bool = False
    _finishing: set[int] = field(default_factory=set)

    def is_finishing(self, conversation_id: int) -> bool:
        """Return whether a turn is in its last transaction, whose outcome must be heard."""
        return conversation_id in self._finishing

    async def run(self, claim: Claim) -> list[Delivery]:
        """Go on until the conversation rests; return what this process shall deliver at once.

        Raises: LeaseLost, StoreError.
        """
        if claim.attempt > MAX_ATTEMPTS:
            return await self._give_up(claim)
        self.feed.publish(claim.address, _started(claim))
        try:
            return await self._go_on(claim)
        except BaseException:
            self.feed.publish(claim.address, TurnGone(_name(claim)))
            raise

    async def _go_on(self, claim: Claim) -> list[Delivery]:
        """Take step after step until the reply, or until there is nothing to do or no more time for it."""
        fresh = True  # claiming has just taken in what waited
        while not self.draining:
            match next_step(claim.transcript, started=claim.started, replayable=self.tools.replayable):
                case Rest():
                    return await self._leave(claim)
                case Ask():
                    claim = claim if fresh else await self.journal.absorb(claim)
                    reply = await self._ask(claim)
                    if isinstance(reply, Final):
                        return await self._finish(claim, reply)
                    claim = await self.journal.append(claim, [reply.entry], reply.usage)
                case Run(calls=calls):
                    async with asyncio.TaskGroup() as group:
                        running = [group.create_task(self._call(claim, call)) for call in calls]
                    claim = await self.journal.append(claim, [task.result() for task in running])
                case RunOnce(call=call):
                    await self.journal.start(claim, call.id)
                    claim = await self.journal.append(claim, [await self._call(claim, call)])
                case Settle(result=result):
                    claim = await self.journal.append(claim, [result])
            fresh = False
        return await self._leave(claim, retry_after=0)

    async def _leave(self, claim: Claim, retry_after: float | None = None) -> list[Delivery]:
        """Let go of a conversation without a reply."""
        deliveries = await self.journal.release(claim, retry_after=retry_after)
        self.feed.publish(claim.address, TurnGone(_name(claim)))
        return deliveries

    async def _ask(self, claim: Claim) -> Reply | Final:
        """Ask the model; return its tool calls, or how the turn ends."""
        try:
            if rounds(claim.transcript) >= self._most_rounds(claim) or is_stuck(claim.transcript):
                return await self._wrap_up(claim)
            return await self._answer(claim)
        except ModelError as error:
            log.warning("model.failed", extra={"problem": str(error), "class": type(error).__name__})
            hint = LONG_SORRY if isinstance(error, PromptTooLong) else error.hint or str(error)
            lasting = isinstance(error, ModelRefused)
            return Final(AssistantEntry(hint), is_error=True, problem=str(error), is_lasting=lasting)

    def _most_rounds(self, claim: Claim) -> int:
        kind = turn_kind(claim.transcript)
        limit = self.beats.max_rounds if kind is Kind.HEARTBEAT else UNATTENDED_ROUNDS
        return self.max_rounds if kind.attended else min(self.max_rounds, limit)

    async def _answer(self, claim: Claim) -> Reply | Final:
        """Ask, and once more if the reply is nothing that a person can read."""
        names = {spec.name for spec in self.tools.specs(claim.chat)}
        nudge, sorry = "", ""
        usage: Usage | None = None
        for _ in range(2):
            reply = await self._reply(claim, nudge=nudge)
            usage = _sum(usage, reply.usage)
            entry = reply.entry
            if entry.calls:
                return replace(reply, entry=_capped(entry), usage=usage)
            if looks_like_call(entry.text, names):
                nudge, sorry = CALL_NOTE, CALL_SORRY
            elif not entry.text.strip() and not _may_be_silent(claim):
                nudge, sorry = EMPTY_NOTE, EMPTY_SORRY
            else:
                return Final(entry, usage)
            self.feed.publish(claim.address, Restarted())
        return Final(AssistantEntry(sorry), usage, is_error=True)

    async def _wrap_up(self, claim: Claim) -> Final:
        """Ask for a last word, without tools; never loops (seed 000)."""
        names = {spec.name for spec in self.tools.specs(claim.chat)}
        reply = await self._reply(claim, nudge=LIMIT_NOTE, tools_allowed=False)
        text = reply.entry.text
        if not text.strip() or looks_like_call(text, names):
            text = LIMIT_SORRY
        return Final(replace(reply.entry, text=text, calls=()), reply.usage)

    async def _reply(self, claim: Claim, *, nudge: str = "", tools_allowed: bool = True) -> Reply:
        """Ask once; a history that is too long is shortened for this call only (case provider-08)."""
        budget = self.max_chars
        for shorter in (False, True, True):
            if shorter:
                budget = min(budget, sum(len(entry.text) for entry in claim.transcript)) // 2
            prompt = self.prompts.build(
                fit(claim.transcript, budget),
                address=claim.address,
                chat=claim.chat,
                kind=turn_kind(claim.transcript),
                session=f"{claim.conversation_id}.{claim.session}",
                nudge=nudge,
                tools_allowed=tools_allowed,
            )
            if paths := recent(prompt.entries):
                found = await asyncio.to_thread(pictures, self.workspace, paths)
                prompt = replace(prompt, pictures=found)
            try:
                return await self._stream(claim, prompt)
            except PromptTooLong:
                log.info("prompt.shortened", extra={"budget": budget})
        raise PromptTooLong("the newest turn alone is longer than the model's window")

    async def _stream(self, claim: Claim, prompt: Prompt) -> Reply:
        address = claim.address
        if turn_kind(claim.transcript) is Kind.HEARTBEAT:  # nothing shows before all of it is judged (HB-29)
            return await (self.beats.model or self.model).reply(prompt)
        if not self.feed.watched(address):
            return await self.model.reply(prompt)
        gate = Gate()

        def on_text(chunk: str) -> None:
            shown = gate.feed(chunk)
            if shown:
                self.feed.publish(address, Delta(shown))

        def on_restart() -> None:
            nonlocal gate
            gate = Gate()
            self.feed.publish(address, Restarted())

        return await self.model.reply(prompt, on_text, on_restart)

    async def _call(self, claim: Claim, call: ToolCall) -> ToolEntry:
        self.feed.publish(claim.address, ToolStarted(call.name, call.args))
        context = ToolContext(
            workspace=self.workspace,
            address=claim.address,
            sender=newest_sender(claim.transcript),
            chat=claim.chat,
            call_id=call.id,
            attended=turn_kind(claim.transcript).attended,
            looks_only=turn_kind(claim.transcript) is Kind.HEARTBEAT,
        )
        result = await self.tools.call(call, context)
        self.feed.publish(claim.address, ToolEnded(call.name, result.is_error))
        return result

    async def _finish(self, claim: Claim, final: Final, *before: Entry) -> list[Delivery]:
        """Commit the last entry, what people see of it, and the release, as one."""
        kind = turn_kind(claim.transcript)
        target = _target(claim)
        composed = self._composed(claim, target, final.entry.text)
        shown = visible(composed.text, kind, ack_max_chars=self.beats.ack_max_chars)
        if target.channel in INNER or (final.is_error and not _tells_errors(claim, kind)):
            shown = ""
        held_back = ""
        if kind is Kind.HEARTBEAT and shown and await self.beats.is_repeat(shown):
            held_back, shown = shown, ""
        messages = self._messages(claim, target, replace(composed, text=shown))
        reserved = bool(messages) and self.slots.acquire()
        deliveries: list[Delivery] = []
        self._finishing.add(claim.conversation_id)
        try:
            deliveries = await self.journal.release(
                claim,
                [*before, final.entry],
                messages,
                usage=final.usage,
                mirror=self._mirror(claim, kind, target, shown) if messages else None,
                reserve=self.slots.outbox if reserved else None,
                also=self._ending(claim, kind, final, shown, held_back),
            )
        finally:
            self._finishing.discard(claim.conversation_id)
            if reserved and not deliveries:
                self.slots.give_back()
        first = messages[0].key if messages and target == claim.address else ""
        self.feed.publish(claim.address, TurnEnded(shown, claim.keys, is_error=final.is_error, reply=first))
        return deliveries

    def _ending(
        self, claim: Claim, kind: Kind, final: Final, shown: str, held_back: str
    ) -> Callable[[Connection], None] | None:
        """Return what notes the end for whoever started the turn, None if nobody cares."""
        ending = self.endings.get(kind)
        if ending is None:
            return None
        ended = Ended(
            conversation_id=claim.conversation_id,
            turn=claim.turn,
            keys=claim.keys,
            shown=shown,
            replies=_replies(claim),
            problem=(final.problem or final.entry.text) if final.is_error else "",
            sorry=final.entry.text if final.is_error else "",
            lasting=final.is_lasting,
            held_back=held_back,
        )
        return lambda tx: ending(tx, ended)

    def _composed(self, claim: Claim, target: Address, text: str) -> Composed:
        """Take the reply apart where its files may go: to a channel that can, and to one reader."""
        if claim.chat is not Chat.DIRECT or not self.sends_files(target):
            return Composed(text)
        return compose(
            text,
            current=_newest_message(claim.transcript),
            has_file=functools.partial(exists, self.workspace),
        )

    def _messages(self, claim: Claim, target: Address, reply: Composed) -> list[Outgoing]:
        """Return the reply in pieces: the first answers the message, the last brings the files."""
        pieces = list(self.pieces(target, reply.text)) if reply.text else []
        if reply.attachments and not pieces:
            pieces = [""]
        on_unknown = OnUnknown.RESEND if turn_kind(claim.transcript) is Kind.MESSAGE else OnUnknown.DROP
        return [
            Outgoing(
                key=f"{_replies(claim)}{number}",
                address=target,
                text=piece,
                on_unknown=on_unknown,
                attachments=reply.attachments if number == len(pieces) - 1 else (),
                reply_to=reply.reply_to if number == 0 else "",
            )
            for number, piece in enumerate(pieces)
        ]

    def _mirror(self, claim: Claim, kind: Kind, target: Address, shown: str) -> Stimulus | None:
        """Return what the conversation that gets a reply from elsewhere must know of it."""
        if target == claim.address:
            return None
        return Stimulus(
            key=f"mirror:{claim.conversation_id}:{claim.next_seq}",
            address=target,
            sender=Sender(""),
            text=shown,
            at=self.journal.db.now(),
            kind=kind,
            aimed=False,
        )

    async def _give_up(self, claim: Claim) -> list[Delivery]:
        """End a turn that never got on, so that the next message gets its chance."""
        log.error("turn.dead", extra={"attempts": claim.attempt - 1})
        open_calls = [
            ToolEntry(call.id, call.name, "not run: the turn was given up", is_error=True)
            for call in is_open(claim.transcript)
        ]
        return await self._finish(claim, Final(AssistantEntry(FAILED_SORRY), is_error=True), *open_calls)


def _replies(claim: Claim) -> str:
    """Return what the keys of a turn's messages begin with."""
    return f"reply:{claim.conversation_id}:{claim.next_seq}:"


def _name(claim: Claim) -> str:
    """Return what tells this run of a turn from every other, also of the same conversation."""
    return f"{claim.conversation_id}.{claim.epoch}"


def _started(claim: Claim) -> TurnStarted:
    """Return what watchers are told of a turn that begins."""
    asked = list(itertools.takewhile(_is_said, reversed(claim.transcript)))
    return TurnStarted(
        turn=_name(claim),
        kind=turn_kind(claim.transcript),
        chat=claim.chat,
        message_id=_newest_message(claim.transcript),
        aimed=any(isinstance(one, UserEntry) and one.aimed for one in asked),
    )


def _is_said(entry: Entry) -> bool:
    return not isinstance(entry, AssistantEntry) or bool(entry.calls)


def _newest_message(transcript: Sequence[Entry]) -> str:
    return next((one.message_id for one in reversed(transcript) if isinstance(one, UserEntry)), "")


def _target(claim: Claim) -> Address:
    """Return where the reply of a turn goes: where it came from, or where its schedule says."""
    for entry in reversed(claim.transcript):
        if isinstance(entry, UserEntry):
            return Address.parse(entry.deliver_to) if entry.deliver_to else claim.address
    return claim.address


def _may_be_silent(claim: Claim) -> bool:
    """Return whether an empty answer is a fine answer here (spec NR-11)."""
    return claim.chat is Chat.GROUP or turn_kind(claim.transcript) is not Kind.MESSAGE


def _tells_errors(claim: Claim, kind: Kind) -> bool:
    """Return whether a failure is shown where the question came from (spec NR-12)."""
    return claim.chat is Chat.DIRECT and kind is Kind.MESSAGE


def _capped(entry: AssistantEntry) -> AssistantEntry:
    """Mark the calls beyond the limit, so that each still gets a result."""
    if len(entry.calls) <= MAX_CALLS:
        return entry
    problem = f"not run: at most {MAX_CALLS} calls in one reply"
    rest = tuple(replace(call, problem=problem) for call in entry.calls[MAX_CALLS:])
    return replace(entry, calls=(*entry.calls[:MAX_CALLS], *rest))


def _sum(before: Usage | None, now: Usage) -> Usage:
    if before is None:
        return now
    return Usage(
        before.input + now.input,
        before.output + now.output,
        before.cached + now.cached,
        before.cache_write + now.cache_write,
    )
