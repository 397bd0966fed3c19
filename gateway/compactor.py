"""Sums conversations up, as `gateway.compaction` decides: notes first, then the summary, then one commit."""

from __future__ import annotations

import asyncio
import logging
import posixpath
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Protocol
from zoneinfo import ZoneInfo

from gateway import compaction
from gateway.clock import Clock
from gateway.compaction import Gauge, Limits, Reason
from gateway.errors import ModelError, PromptTooLong
from gateway.feed import Compacted, Feed
from gateway.fence import defuse
from gateway.models.base import Model, Prompt, Reply
from gateway.prompt import fit
from gateway.redact import Redactor
from gateway.store.journal import Claim, Journal
from gateway.store.notes import Note
from gateway.tools.base import Ask, ToolContext
from gateway.tools.files import exists
from gateway.types import (
    Address,
    AssistantEntry,
    Entry,
    Kind,
    Outgoing,
    Sender,
    ToolCall,
    ToolEntry,
    Usage,
    UserEntry,
)

log = logging.getLogger(__name__)

TIMEOUT = 180.0
"""Seconds for a summary (agent 3.7)."""

FLUSH_TIMEOUT = 120.0
FLUSH_ROUNDS = 4
FLUSH_CALLS = 8
"""Bounds of the silent look for what is worth a note."""

MOST_PUT_OFF = 16
"""Turns until the next try after many failures; 1, 2, 4 … before."""

CONVERSATIONS = 1024
"""Conversations whose last prompt is remembered."""

_FLUSH = """\
[System note: the older part of this conversation is about to be summed up. Nobody wrote this, and nobody \
reads your answer. If it holds lasting facts, decisions, preferences or promises that are in no note yet, \
store them now: look at memory/{day}.md, and add to it if it is there, else write it; or use a memory tool. \
Never drop what stands in a note, write no secrets, send nothing, use no other tools. Then answer NO_REPLY; \
at once, if there is nothing to store.]"""

_REFUSED = "not run: only notes below memory/ can be read and added to now"
_WHOLE = "not run: this note is there already; add to it with edit, or write one with another name"

NOTHING = "There is nothing to sum up yet: the last turns stay as they are."
FAILED = "I could not sum this up ({problem}). Nothing is lost: the conversation stays as it is."
_DONE = "Done: {gone} earlier entries are now a summary, the last {kept} stay as they are. They can still be \
searched and exported."


class Tools(Protocol):
    """The tools of a conversation."""

    async def check(self, call: ToolCall, context: ToolContext) -> Ask | ToolEntry | None: ...

    async def call(self, call: ToolCall, context: ToolContext) -> ToolEntry: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Means:
    """What the conversation itself works with: its model, its tools, its prompt around some entries."""

    model: Model
    tools: Tools
    prompt: Callable[[Sequence[Entry], str], Prompt]
    context: Callable[[], Awaitable[ToolContext]]


@dataclass(frozen=True, slots=True)
class _Failure:
    """How often it failed in a row, and the turn from which on it is tried again."""

    times: int
    until: int


@dataclass(slots=True)
class _Bill:
    """What the calls of one compaction cost so far."""

    usage: Usage = field(default_factory=Usage)

    def add(self, reply: Reply) -> None:
        now, more = self.usage, reply.usage
        self.usage = Usage(
            now.input + more.input,
            now.output + more.output,
            now.cached + more.cached,
            now.cache_write + more.cache_write,
        )


class _UnusableError(Exception):
    """The summariser's answer is no summary; the text says why."""


async def _none(_address: Address) -> Sequence[str]:
    return ()


@dataclass(slots=True, kw_only=True)
class Compactor:
    """Makes room in transcripts. It runs inside the turn of its conversation, so that it blocks no other.

    `model` writes the summaries, the conversation's own if None; `zone` is that of the stamps on messages.
    `flushes`: notes are taken first. `running` returns the sub-agents at work for a conversation, an id and
    a task each. `redact` takes secrets out of summaries. `timeout` is in seconds.
    """

    journal: Journal
    feed: Feed
    clock: Clock
    limits: Limits = field(default_factory=Limits)
    enabled: bool = True
    model: Model | None = None
    zone: str = "UTC"
    flushes: bool = True
    max_chars: int = 400_000
    running: Callable[[Address], Awaitable[Sequence[str]]] = _none
    redact: Callable[[str], str] = field(default_factory=Redactor)
    timeout: float = TIMEOUT
    _gauges: dict[int, Gauge] = field(default_factory=dict)
    _failures: dict[int, _Failure] = field(default_factory=dict)

    async def before(self, claim: Claim, means: Callable[[], Means]) -> Claim:
        """Sum a conversation up if it is too long for the next call, or if a person asked for it.

        Raises: LeaseLost, StoreError.
        """
        if claim.wanted is not None:
            return await self._as_asked(claim, means())
        if not self.enabled:
            return claim
        reason = compaction.due(claim.transcript, self._gauges.get(claim.conversation_id), self.limits)
        if reason is None or self._is_put_off(claim):
            return claim
        return await self._unasked(claim, means(), reason) or claim

    async def overflowed(self, claim: Claim, means: Callable[[], Means]) -> Claim | None:
        """Sum a conversation up that the model refused as too long; None if that brings nothing.

        Raises: LeaseLost, StoreError.
        """
        if not self.enabled or self._is_put_off(claim):
            return None
        return await self._unasked(claim, means(), Reason.OVERFLOW)

    async def refuse(self, claim: Claim, problem: str) -> Claim:
        """Tell whoever asked for a summary why there is none. Raises: LeaseLost, StoreError."""
        return await self.journal.let_be(claim, [_answer(claim, FAILED.format(problem=problem))])

    def noted(self, claim: Claim, prompt: Prompt, reply: Reply) -> None:
        """Remember what a prompt weighed, if it held the whole transcript."""
        entries = claim.transcript
        if len(prompt.entries) != len(entries):
            return
        counted, guess = compaction.measure(entries, self._gauges.pop(claim.conversation_id, None))
        while len(self._gauges) >= CONVERSATIONS:
            del self._gauges[next(iter(self._gauges))]
        gauge = Gauge(entries[0], len(entries), reply.usage.input or counted, guess)
        self._gauges[claim.conversation_id] = gauge

    def _is_put_off(self, claim: Claim) -> bool:
        failure = self._failures.get(claim.conversation_id)
        return failure is not None and claim.turn < failure.until

    async def _as_asked(self, claim: Claim, means: Means) -> Claim:
        """Do what a person asked for, and say what came of it."""
        at = compaction.cut(claim.transcript, self.limits, Reason.WANTED)
        if not at:
            return await self.journal.let_be(claim, [_answer(claim, NOTHING)])
        bill = _Bill()
        try:
            note = await self._note(claim, means, at, defuse(claim.wanted or ""), bill)
        except (ModelError, TimeoutError, _UnusableError) as error:
            log.warning("compaction.failed", extra={"problem": _reason(error)})
            await self.journal.charge(claim, bill.usage, (self.model or means.model).name)
            return await self.refuse(claim, _reason(error))
        gone = at - bool(compaction.earlier(claim.transcript))
        return await self._commit(claim, note, at, _answer(claim, _DONE.format(gone=gone, kept=note.kept)))

    async def _unasked(self, claim: Claim, means: Means, reason: Reason) -> Claim | None:
        """Sum up, None if there is nothing to or if it fails; then it is tried again some turns later."""
        at = compaction.cut(claim.transcript, self.limits, reason)
        if not at:
            return None
        bill = _Bill()
        try:
            note = await self._note(claim, means, at, "", bill)
        except (ModelError, TimeoutError, _UnusableError) as error:
            await self.journal.charge(claim, bill.usage, (self.model or means.model).name)
            before = self._failures.get(claim.conversation_id)
            times = 1 if before is None else before.times + 1
            until = claim.turn + min(MOST_PUT_OFF, 2 ** (times - 1))
            self._failures[claim.conversation_id] = _Failure(times, until)
            level = logging.WARNING if before is None else logging.DEBUG  # said once, not at each try
            log.log(level, "compaction.failed", extra={"reason": reason, "problem": _reason(error)})
            return None
        return await self._commit(claim, note, at)

    async def _commit(self, claim: Claim, note: Note, at: int, *messages: Outgoing) -> Claim:
        shorter = await self.journal.sum_up(claim, note, messages)
        self._failures.pop(claim.conversation_id, None)
        self._gauges.pop(claim.conversation_id, None)
        self.feed.publish(claim.seen_at, Compacted(at, note.kept))
        log.info("conversation.compacted", extra={"entries": at, "kept": note.kept, "tokens": note.tokens})
        return shorter

    async def _note(self, claim: Claim, means: Means, at: int, focus: str, bill: _Bill) -> Note:
        """Return the note for all entries before `at`. Raises: ModelError, TimeoutError, _UnusableError."""
        if self.flushes:
            await self._flush(claim, means, bill)
        model = self.model or means.model
        running = await self.running(claim.address)
        summariser = _Summariser(model, self.limits, self.zone, bill)
        async with asyncio.timeout(self.timeout):
            text = await self._summary(summariser, claim.transcript[:at], focus, running)
        return Note(
            text=text,
            kept=len(claim.transcript) - at,
            model=model.name,
            tokens=sum(map(compaction.weight, claim.transcript)),
            usage=bill.usage,
        )

    async def _summary(
        self, summariser: _Summariser, entries: Sequence[Entry], focus: str, running: Sequence[str]
    ) -> str:
        """Return the summary, which was looked over and put right once (agent F step 5)."""
        asked, text = await summariser.sum_up(entries, focus)
        duties = compaction.duties(entries)
        found = compaction.audit(text, duties, self.limits)
        if not found.is_good:
            again = await summariser.correct(asked, text, compaction.correction(found, self.limits))
            second = compaction.audit(again, duties, self.limits)
            if again and len(second.headings) <= len(found.headings):
                text, found = again, second
        note = compaction.completed(text, found, running, self.limits)
        if note is None:
            raise _UnusableError(f"the summary lacks {', '.join(found.headings)}")
        return defuse(self.redact(note))

    async def _flush(self, claim: Claim, means: Means, bill: _Bill) -> None:
        """Let the model take notes of what the summary may lose, unseen; a failure costs only that.

        Once for each time that a conversation is summed up, in the owner's private conversation alone
        (agent F step 1).
        """
        if claim.conversation_id in self._failures:  # what failed before was the summary
            return
        context = await means.context()
        if context.kind is not Kind.MESSAGE or not context.is_owner:
            return
        day = datetime.fromtimestamp(self.clock.wall(), ZoneInfo(self.zone)).strftime("%Y-%m-%d")
        try:
            async with asyncio.timeout(FLUSH_TIMEOUT):
                await self._take_notes(claim, means, context, _FLUSH.format(day=day), bill)
        except (ModelError, TimeoutError) as error:
            log.warning("flush.failed", extra={"problem": _reason(error)})

    async def _take_notes(
        self, claim: Claim, means: Means, context: ToolContext, nudge: str, bill: _Bill
    ) -> None:
        talk = list(fit(claim.transcript, self.max_chars))
        for _ in range(FLUSH_ROUNDS):
            reply = await means.model.reply(means.prompt(talk, nudge))
            bill.add(reply)
            calls = reply.entry.calls[:FLUSH_CALLS]
            if not calls:
                return
            talk.append(replace(reply.entry, calls=calls))
            talk += [await _noting(means.tools, call, replace(context, call_id=call.id)) for call in calls]


@dataclass(frozen=True, slots=True)
class _Summariser:
    """Asks a model for summaries."""

    model: Model
    limits: Limits
    zone: str
    bill: _Bill

    async def sum_up(self, entries: Sequence[Entry], focus: str) -> tuple[UserEntry, str]:
        """Return the last question and its answer; what is too long for one is asked for bit by bit.

        Raises: ModelError, _UnusableError.
        """
        room = self.limits.most - self.limits.summary - 1000
        for smaller in (room, room // 4):  # its window may be smaller than that of the conversation's model
            with suppress(PromptTooLong):
                return await self._fold(entries, focus, smaller)
        return await self._fold(entries, focus, room // 16)

    async def _fold(self, entries: Sequence[Entry], focus: str, room: int) -> tuple[UserEntry, str]:
        text = compaction.earlier(entries)
        question = _question("")
        for chunk in compaction.chunks(compaction.material(entries, self.zone), max(room, 1000)):
            question = _question(compaction.request(chunk, text, focus))
            text = await self._ask(question)
        return question, text

    async def correct(self, question: UserEntry, answer: str, correction: str) -> str:
        """Return the answer to what was wrong with the first one. Raises: ModelError, _UnusableError."""
        return await self._ask(question, AssistantEntry(answer), _question(correction))

    async def _ask(self, *entries: Entry) -> str:
        prompt = Prompt(system=compaction.instructions(self.limits), entries=entries, zone=self.zone)
        reply = await self.model.reply(prompt)
        self.bill.add(reply)
        text = reply.entry.text.strip()
        if not text:
            raise _UnusableError("the summary came back empty")
        return text


def _question(text: str) -> UserEntry:
    """Return what the gateway itself says: without stamp and name."""
    return UserEntry(text, Sender(""), Kind.SUBAGENT, 0.0)


async def _noting(tools: Tools, call: ToolCall, context: ToolContext) -> ToolEntry:
    """Run a call that reads or takes notes; every other is refused, and so is what would ask a person."""
    if call.problem is None and not _is_note_taking(call):
        return ToolEntry(call.id, call.name, _REFUSED, is_error=True)
    if call.name == "write" and await asyncio.to_thread(exists, context.folder, _path(call)):
        return ToolEntry(call.id, call.name, _WHOLE, is_error=True)
    verdict = await tools.check(call, context)
    if isinstance(verdict, ToolEntry):
        return verdict
    if verdict is not None:
        return ToolEntry(call.id, call.name, _REFUSED, is_error=True)
    return await tools.call(call, context)


def _is_note_taking(call: ToolCall) -> bool:
    if call.name.startswith("memory"):
        return True
    return call.name in ("read", "write", "edit", "list_dir") and f"{_path(call)}/".startswith("memory/")


def _path(call: ToolCall) -> str:
    return posixpath.normpath(str(call.args.get("path", "")))


def _answer(claim: Claim, text: str) -> Outgoing:
    return Outgoing(key=f"note:{claim.conversation_id}:{claim.epoch}", address=claim.seen_at, text=text)


def _reason(error: Exception) -> str:
    return "it took too long" if isinstance(error, TimeoutError) else str(error) or type(error).__name__
