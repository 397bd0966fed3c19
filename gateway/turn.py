"""Runs one turn of one conversation, from wherever its transcript stands."""

from __future__ import annotations

import asyncio
import functools
import itertools
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol, TypeAlias

from sqlalchemy.engine import Connection

from gateway.allowance import Allowance, Hold
from gateway.approvals import Approver, Checks, Question
from gateway.compaction import tokens, trimmed
from gateway.compactor import Compactor, Means
from gateway.errors import ModelBusy, ModelError, ModelRefused, PromptTooLong
from gateway.feed import Delta, Feed, Restarted, ToolEnded, ToolStarted, TurnEnded, TurnGone, TurnStarted
from gateway.models.base import Model, OnRestart, OnText, Prompt, Reply
from gateway.prompt import Scales
from gateway.redact import Redactor
from gateway.reply import Composed, compose
from gateway.sentinels import ACK_MAX_CHARS, Gate, looks_like_call, visible
from gateway.steps import Ask, Rest, Run, RunOnce, Settle, is_open, next_step
from gateway.store.journal import Claim, Ended, Journal, turn_kind
from gateway.store.outbox import Delivery, Outbox
from gateway.store.usage import calls_of
from gateway.tools.base import ToolContext
from gateway.tools.files import exists
from gateway.transcript import (
    already_sent,
    capped,
    is_said,
    is_stuck,
    may_be_silent,
    newest_message,
    passes_on,
    rounds,
    running,
    situation_of,
    summed,
    tells_errors,
)
from gateway.types import (
    INNER,
    Address,
    AssistantEntry,
    Chat,
    Entry,
    Kind,
    OnUnknown,
    Outgoing,
    Sender,
    Situation,
    Stimulus,
    ToolCall,
    ToolEntry,
    ToolSpec,
    Usage,
    UserEntry,
)
from gateway.usage import USED_UP, Footer, footer
from gateway.vision import pictures, recent
from gateway.workspace import below_agent, make_room, room

log = logging.getLogger(__name__)

MAX_ATTEMPTS = 3
"""Claims of one turn without progress before it is given up (decisions 1)."""

PLAN = "todo"
"""The tool that keeps the plan, which is shown to whoever watches."""

LAST_WORD = 60.0
"""Seconds for the last call of a turn whose time is over."""

UNATTENDED_ROUNDS = 15
"""Replies with tool calls in a turn that nobody waits for (agent 11)."""

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
REDACTED_NOTE = "(A secret of the configuration stood in this reply; I have taken it out.)"
CUT_NOTE = "[I ran out of time here; the rest is missing.]"
TIME_SORRY = "Sorry, that took longer than I may work on one message. Please ask for a smaller part of it."
FAILED_SORRY = (
    "Sorry, something went wrong several times while I worked on this, so I gave up. Please try again."
)


class Tools(Checks, Protocol):
    """The tools of a conversation."""

    def specs(self, situation: Situation) -> Sequence[ToolSpec]: ...

    def replayable(self, name: str) -> bool: ...

    def brings(self, call: ToolCall) -> tuple[bool, bool]:
        """Return whether the result of a call is what strangers wrote, and whether it is private."""
        ...

    async def call(self, call: ToolCall, context: ToolContext) -> ToolEntry: ...


class Prompts(Protocol):
    """Builds what the model sees."""

    def build(
        self,
        entries: Sequence[Entry],
        *,
        situation: Situation,
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Agent:
    """Who answers: a model, with tools, a way to prompt it, and a folder of its own."""

    name: str = "main"
    model: Model
    tools: Tools
    prompts: Prompts
    workspace: Path


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


async def _nothing_to_see() -> None:
    return


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


@dataclass(slots=True, kw_only=True)
class TurnRunner:
    """The agent loop. `draining` asks it to stop at the next step of each turn.

    `choose` names another agent than the usual one. `approver` asks people about calls. `compactor` makes
    room in a history that is too long. `allowance` says when it must not ask the model; a turn may take
    `turn_time` seconds, one that nobody waits for `unattended_time`. `endings` are told
    how the turns of a kind ended. `look` is awaited when a turn begins, to see what has changed on the disk.
    """

    journal: Journal
    agent: Agent
    approver: Approver
    compactor: Compactor
    feed: Feed
    slots: Slots
    pieces: Callable[[Address, str], Sequence[str]]
    choose: Callable[[Situation], Agent] | None = None
    sends_files: Callable[[Address], bool] = lambda _address: False
    max_rounds: int = 50
    max_chars: int = 400_000
    endings: Mapping[Kind, Ending] = field(default_factory=dict)
    beats: Beats = Beats()
    look: Callable[[], Awaitable[None]] = _nothing_to_see
    redact: Redactor = field(default_factory=Redactor)
    allowance: Allowance | None = None
    turn_time: float = 900.0
    unattended_time: float = 3600.0
    draining: bool = False
    _scales: Scales = field(default_factory=Scales, init=False)
    _finishing: set[int] = field(default_factory=set)
    _until: dict[str, float] = field(default_factory=dict)

    def is_finishing(self, conversation_id: int) -> bool:
        """Return whether a turn is in its last transaction, whose outcome must be heard."""
        return conversation_id in self._finishing

    async def run(self, claim: Claim) -> list[Delivery]:
        """Go on until the conversation rests; return what this process shall deliver at once.

        Raises: LeaseLost, StoreError.
        """
        if claim.attempt > MAX_ATTEMPTS:
            return await self._give_up(claim)
        self.feed.publish(claim.seen_at, _started(claim))
        seconds = self.turn_time if situation_of(claim).attended else self.unattended_time
        self._until[_name(claim)] = asyncio.get_running_loop().time() + seconds
        try:
            await self.look()
            return await self._go_on(claim)
        except BaseException:
            self.feed.publish(claim.seen_at, TurnGone(_name(claim)))
            raise
        finally:
            del self._until[_name(claim)]

    async def _go_on(self, claim: Claim) -> list[Delivery]:
        """Take step after step until the reply, or until there is nothing to do or no more time for it."""
        fresh = True  # claiming has just taken in what waited
        while not self.draining:
            match next_step(
                claim.transcript, started=claim.started, replayable=self._here(claim)[0].tools.replayable
            ):
                case Rest():
                    if claim.wanted is not None:
                        claim = await self._sum_up(claim)
                    return await self._leave(claim)
                case Ask():
                    claim = claim if fresh else await self.journal.absorb(claim)
                    if self.allowance and (hold := await self.allowance.judge(claim, self._here(claim)[1])):
                        return await self._put_off(claim, hold)
                    claim, reply = await self._ask_or_shorten(claim)
                    if isinstance(reply, Final):
                        return await self._finish(claim, reply)
                    claim = await self.journal.append(claim, [reply.entry], reply.usage)
                case Run(calls=calls):
                    results = await self._run(claim, calls)
                    if isinstance(results, Question):
                        return await self._wait(claim, results)
                    claim = await self.journal.append(claim, results)
                case RunOnce(call=call):
                    results = await self._run(claim, [call], once=True)
                    if isinstance(results, Question):
                        return await self._wait(claim, results)
                    claim = await self.journal.append(claim, results)
                case Settle(result=result):
                    claim = await self.journal.append(claim, [result])
            fresh = False
        return await self._leave(claim, retry_after=0)

    async def _sum_up(self, claim: Claim) -> Claim:
        """Make the summary that a person asked for, or say why there is none today."""
        if self.allowance and await self.allowance.used_up(claim, self._here(claim)[1]):
            return await self.compactor.refuse(claim, USED_UP)
        return await self.compactor.before(claim, self._means(claim))

    async def _put_off(self, claim: Claim, hold: Hold) -> list[Delivery]:
        """Let go of a turn that must not ask the model now: its messages wait, unless nobody waits for it."""
        if turn_kind(claim.transcript) is not Kind.MESSAGE:
            return await self._finish(claim, Final(AssistantEntry(hold.text), is_error=True))
        notice = Outgoing(key=hold.key, address=claim.seen_at, text=hold.text)
        deliveries = await self.journal.release(
            claim,
            [AssistantEntry(hold.text)] if hold.seconds is None else [],
            [notice] if hold.text else [],
            retry_after=hold.seconds,
        )
        self.feed.publish(claim.seen_at, TurnGone(_name(claim), hold.text, claim.keys))
        return deliveries

    async def _leave(self, claim: Claim, retry_after: float | None = None) -> list[Delivery]:
        """Let go of a conversation without a reply."""
        deliveries = await self.journal.release(claim, retry_after=retry_after)
        self.feed.publish(claim.seen_at, TurnGone(_name(claim)))
        return deliveries

    async def _ask_or_shorten(self, claim: Claim) -> tuple[Claim, Reply | Final]:
        """Ask the model; what it refuses as too long is summed up and asked once more (agent 3.7).

        Where that does not help, the history is shortened for this call only (case provider-08).
        """
        means, budget = self._means(claim), self.max_chars
        claim = await self.compactor.before(claim, means)
        with suppress(PromptTooLong):
            return claim, await self._ask(claim, budget)
        if shorter := await self.compactor.overflowed(claim, means):
            claim = shorter
            with suppress(PromptTooLong):
                return claim, await self._ask(claim, budget)
        for _ in range(2):
            budget = min(budget, sum(len(entry.text) for entry in claim.transcript)) // 2
            log.info("prompt.shortened", extra={"budget": budget})
            with suppress(PromptTooLong):
                return claim, await self._ask(claim, budget)
        problem = "the newest turn alone is longer than the model's window"
        log.warning("model.failed", extra={"problem": problem, "class": PromptTooLong.__name__})
        return claim, Final(AssistantEntry(LONG_SORRY), is_error=True, problem=problem)

    def _means(self, claim: Claim) -> Callable[[], Means]:
        """Return what gives the compactor what this conversation works with."""

        def means() -> Means:
            agent, situation = self._here(claim)
            build = functools.partial(
                agent.prompts.build, situation=situation, session=f"{claim.conversation_id}.{claim.session}"
            )
            return Means(
                model=agent.model,
                tools=agent.tools,
                prompt=lambda entries, nudge: build(entries, nudge=nudge),
                context=functools.partial(self._context, claim, agent, situation),
            )

        return means

    async def _ask(self, claim: Claim, budget: int) -> Reply | Final:
        """Ask the model; return its tool calls, or how the turn ends. Raises: PromptTooLong."""
        try:
            if await self._is_enough(claim):
                return await self._wrap_up(claim, budget)
            return await self._answer(claim, budget)
        except PromptTooLong:
            raise
        except ModelError as error:
            log.warning("model.failed", extra={"problem": str(error), "class": type(error).__name__})
            lasting = isinstance(error, ModelRefused)
            hint, problem = self.redact(error.hint or str(error)), self.redact(str(error))
            return Final(AssistantEntry(hint), is_error=True, problem=problem, is_lasting=lasting)

    async def _is_enough(self, claim: Claim) -> bool:
        """Return whether a turn has come to its limits, so that only a last word is left (agent 3.8)."""
        if rounds(claim.transcript) >= self._most_rounds(claim) or is_stuck(claim.transcript):
            return True
        if self._left(claim) <= 0:
            return True
        return self.allowance is not None and await self.allowance.is_costly(claim)

    def _left(self, claim: Claim) -> float:
        """Return the seconds that a turn may still take."""
        return self._until[_name(claim)] - asyncio.get_running_loop().time()

    def _most_rounds(self, claim: Claim) -> int:
        kind = turn_kind(claim.transcript)
        limit = self.beats.max_rounds if kind is Kind.HEARTBEAT else UNATTENDED_ROUNDS
        return self.max_rounds if situation_of(claim).may_act else min(self.max_rounds, limit)

    async def _answer(self, claim: Claim, budget: int) -> Reply | Final:
        """Ask, and once more if the reply is nothing that a person can read."""
        names = {spec.name for spec in self._specs(claim)}
        nudge, sorry = "", ""
        usage: Usage | None = None
        for _ in range(2):
            reply = await self._reply(claim, budget, nudge=nudge)
            usage = summed(usage, reply.usage)
            entry = reply.entry
            if entry.calls:
                return replace(reply, entry=capped(entry), usage=usage)
            if looks_like_call(entry.text, names):
                nudge, sorry = CALL_NOTE, CALL_SORRY
            elif not entry.text.strip() and not may_be_silent(claim):
                nudge, sorry = EMPTY_NOTE, EMPTY_SORRY
            else:
                return Final(entry, usage)
            self.feed.publish(claim.seen_at, Restarted())
        return Final(AssistantEntry(sorry), usage, is_error=True)

    async def _wrap_up(self, claim: Claim, budget: int) -> Final:
        """Ask for a last word, without tools; never loops (seed 000)."""
        names = {spec.name for spec in self._specs(claim)}
        reply = await self._reply(claim, budget, nudge=LIMIT_NOTE, tools_allowed=False)
        text = reply.entry.text
        if not text.strip() or looks_like_call(text, names):
            text = LIMIT_SORRY
        return Final(replace(reply.entry, text=text, calls=()), reply.usage)

    async def _reply(
        self, claim: Claim, budget: int, *, nudge: str = "", tools_allowed: bool = True
    ) -> Reply:
        """Ask once, with as much of the history as `budget` characters hold. Raises: ModelError."""
        agent, situation = self._here(claim)
        entries = self._scales.fit(claim.conversation_id, claim.transcript, budget)
        prompt = agent.prompts.build(
            entries if entries is claim.transcript else trimmed(entries, budget),
            situation=situation,
            session=f"{claim.conversation_id}.{claim.session}",
            nudge=nudge,
            tools_allowed=tools_allowed,
        )
        if paths := recent(prompt.entries):
            found = await asyncio.to_thread(pictures, room(agent.workspace, situation), paths)
            prompt = replace(prompt, pictures=found)
        reply = await self._stream(claim, prompt)
        self.compactor.noted(claim, prompt, reply)
        return self._cleaned(reply, situation)

    async def _stream(self, claim: Claim, prompt: Prompt) -> Reply:
        """Ask, for as long as the turn may take; what came until then is kept (attack size-009)."""
        model = self._here(claim)[0].model
        is_beat = turn_kind(claim.transcript) is Kind.HEARTBEAT
        if is_beat:
            model = self.beats.model or model
        said: list[str] = []
        # Of a heartbeat nothing shows before all of it is judged (HB-29).
        show, again = self._shown(claim.seen_at) if not is_beat else (None, None)

        def on_text(chunk: str) -> None:
            said.append(chunk)
            if show:
                show(chunk)

        def on_restart() -> None:
            said.clear()
            if again:
                again()

        left = self._left(claim)
        try:
            async with asyncio.timeout(left if left > 0 else LAST_WORD) as timer:
                return await model.reply(prompt, on_text, on_restart)
        except TimeoutError:
            if not timer.expired():
                raise
        log.warning("turn.cut", extra={"model": model.name, "characters": sum(map(len, said))})
        if not (text := "".join(said).strip()):
            raise ModelBusy("the time for a turn was over", hint=TIME_SORRY)
        paid = Usage(input=_about(prompt), output=tokens(text))
        return Reply(AssistantEntry(f"{text}\n\n{CUT_NOTE}", model=model.name), paid, cut=True)

    def _shown(self, address: Address) -> tuple[OnText | None, OnRestart | None]:
        """Return what shows a reply while it comes, nothing if nobody watches."""
        if not self.feed.watched(address):
            return None, None
        gate, hide = Gate(), self.redact.stream()

        def on_text(chunk: str) -> None:
            shown = hide.feed(gate.feed(chunk))
            if shown:
                self.feed.publish(address, Delta(shown))

        def on_restart() -> None:
            nonlocal gate, hide
            gate, hide = Gate(), self.redact.stream()
            self.feed.publish(address, Restarted())

        return on_text, on_restart

    def _cleaned(self, reply: Reply, situation: Situation) -> Reply:
        """Take out secrets before anything is stored, run or shown; tell the owner (attack secrets-003)."""
        entry = self.redact.entry(reply.entry)
        if self.redact.is_in(reply.entry.text):
            log.warning("reply.redacted", extra={"model": reply.entry.model})
            if situation.is_private and not entry.calls:
                entry = replace(entry, text=f"{entry.text}\n\n{REDACTED_NOTE}")
        return reply if entry == reply.entry else replace(reply, entry=entry)

    def _here(self, claim: Claim) -> tuple[Agent, Situation]:
        """Return who answers, and what the running turn may do depends on."""
        situation = situation_of(claim)
        agent = self.agent if self.choose is None else self.choose(situation)
        return agent, situation if agent.name == situation.agent else replace(situation, agent=agent.name)

    def _specs(self, claim: Claim) -> Sequence[ToolSpec]:
        agent, situation = self._here(claim)
        return agent.tools.specs(situation)

    async def _run(
        self, claim: Claim, calls: Sequence[ToolCall], *, once: bool = False
    ) -> list[ToolEntry] | Question:
        """Run the calls that may run now, side by side; return a question only if there is nothing else.

        With `once` it is noted first that the call was started.
        """
        agent, situation = self._here(claim)
        context = await self._context(claim, agent, situation)
        judged = [
            await self.approver.judge(claim, agent.tools, call, replace(context, call_id=call.id))
            for call in calls
        ]
        if not any(isinstance(one, ToolContext | ToolEntry) for one in judged):
            return next(one for one in judged if isinstance(one, Question))
        if once and isinstance(judged[0], ToolContext):
            await self.journal.start(claim, calls[0].id)
        async with asyncio.TaskGroup() as group:
            running = [
                group.create_task(self._call(agent, call, one))
                for call, one in zip(calls, judged, strict=True)
                if isinstance(one, ToolContext)
            ]
        refused = [one for one in judged if isinstance(one, ToolEntry)]
        return [*(task.result() for task in running), *refused]

    async def _context(self, claim: Claim, agent: Agent, situation: Situation) -> ToolContext:
        turn = running(claim.transcript)
        answered = {one.call_id for one in turn if isinstance(one, ToolEntry)}
        calls = (call for one in turn if isinstance(one, AssistantEntry) for call in one.calls)
        used = [agent.tools.brings(call) for call in calls if call.id in answered]
        folder = room(agent.workspace, situation)
        if folder != agent.workspace:
            await asyncio.to_thread(make_room, folder)
        return ToolContext(
            workspace=agent.workspace,
            address=claim.address,
            sender=situation.sender,
            chat=claim.chat,
            call_id="",
            kind=situation.kind,
            place=situation.place,
            room=folder,
            agent=agent.name,
            conversation_id=claim.conversation_id,
            turn=claim.turn,
            seq=claim.calling,
            tainted=situation.kind is Kind.SUBAGENT
            or passes_on(turn)
            or any(untrusted for untrusted, _ in used),
            has_read=any(private for _, private in used),
            said="\n".join(one.text for one in turn if isinstance(one, UserEntry) and one.aimed),
        )

    async def _call(self, agent: Agent, call: ToolCall, context: ToolContext) -> ToolEntry:
        is_plan = agent.tools.own_name(call.name) == PLAN
        self.feed.publish(context.address, ToolStarted(call.name, {} if is_plan else call.args))
        result = await agent.tools.call(call, context)
        plan = result.text if is_plan and not result.is_error else ""
        self.feed.publish(context.address, ToolEnded(call.name, result.is_error, plan))
        return result

    async def _wait(self, claim: Claim, question: Question) -> list[Delivery]:
        """Let go of the conversation until somebody has answered, or the time for it is over."""
        messages = [] if question.is_asked else self.approver.cards(claim, question)
        deliveries = await self.journal.release(
            claim,
            messages=messages,
            retry_after=question.approval.expires_at - self.journal.db.now(),
            also=None if question.is_asked else self.approver.store(question),
        )
        self.feed.publish(claim.seen_at, TurnGone(_name(claim)))
        return deliveries

    async def _finish(self, claim: Claim, final: Final, *before: Entry) -> list[Delivery]:
        """Commit the last entry, what people see of it, and the release, as one."""
        kind = turn_kind(claim.transcript)
        target = claim.place
        composed = self._composed(claim, target, final.entry.text)
        shown = visible(composed.text, kind, ack_max_chars=self.beats.ack_max_chars)
        unread = target.channel in INNER or (final.is_error and not tells_errors(claim, kind))
        if unread or already_sent(running(claim.transcript), shown):
            shown = ""
        held_back = ""
        if kind is Kind.HEARTBEAT and shown and await self.beats.is_repeat(shown):
            held_back, shown = shown, ""
        if kind is Kind.MESSAGE and shown and not final.is_error:
            shown = await self._with_footer(claim, final, shown)
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
        first = messages[0].key if messages and target == claim.seen_at else ""
        self.feed.publish(claim.seen_at, TurnEnded(shown, claim.keys, is_error=final.is_error, reply=first))
        return deliveries

    async def _with_footer(self, claim: Claim, final: Final, shown: str) -> str:
        """Return a reply with what its turn took below it, where people want to know that."""
        if claim.footer is Footer.OFF:
            return shown
        which, turn = claim.conversation_id, claim.turn
        made = await self.journal.db.write(lambda tx: calls_of(tx, which, turn), durable=False)
        if final.usage is not None:
            made.append((final.entry.model, final.usage))
        line = footer(claim.footer, made, self.journal.ledger.prices)
        return f"{shown}\n\n{line}" if line else shown

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
            text=visible(final.entry.text, kind),
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
        agent, situation = self._here(claim)
        folder = room(agent.workspace, situation)
        composed = compose(
            text, current=newest_message(claim.transcript), has_file=functools.partial(exists, folder)
        )
        below = below_agent(agent.name, folder.relative_to(agent.workspace))
        files = tuple(replace(one, path=str(below / one.path)) for one in composed.attachments)
        return replace(composed, attachments=files)

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
        if target == claim.seen_at:
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
        if claim.wanted is not None:  # it may have been the summary that never got on
            claim = await self.journal.let_be(claim)
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
    asked = list(itertools.takewhile(is_said, reversed(claim.transcript)))
    return TurnStarted(
        turn=_name(claim),
        kind=turn_kind(claim.transcript),
        chat=claim.chat,
        message_id=newest_message(claim.transcript),
        aimed=any(isinstance(one, UserEntry) and one.aimed for one in asked),
    )


def _about(prompt: Prompt) -> int:
    """Return about how many tokens were sent in a call whose bill never came."""
    return tokens(prompt.system) + sum(tokens(one.text) for one in prompt.entries)
