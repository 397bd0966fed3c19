"""A model, tools and a channel that do as the test says and keep what they saw."""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from gateway.channel import Accept
from gateway.models.base import OnRestart, OnText, Prompt, Reply
from gateway.tools.base import Ask, ToolContext
from gateway.types import (
    Address,
    AssistantEntry,
    Chat,
    Entry,
    Kind,
    Level,
    Outgoing,
    Receipt,
    Sender,
    Situation,
    ToolCall,
    ToolEntry,
    ToolSpec,
    Usage,
    UserEntry,
)

Answer = Callable[[Prompt], AssistantEntry | Awaitable[AssistantEntry]]


@dataclass(slots=True)
class ScriptedModel:
    """Answers by a function of the prompt; an exception it raises is the model's."""

    answer: Answer
    prompts: list[Prompt] = field(default_factory=list)
    name: str = "scripted"

    async def reply(
        self, prompt: Prompt, on_text: OnText | None = None, on_restart: OnRestart | None = None
    ) -> Reply:
        self.prompts.append(prompt)
        found = self.answer(prompt)
        entry = found if isinstance(found, AssistantEntry) else await found
        if on_text is not None and entry.text:
            on_text(entry.text)
        return Reply(entry, Usage(input=10, output=2))

    async def close(self) -> None:
        return


def in_turn(*answers: AssistantEntry | str | Exception) -> Answer:
    """Give these answers one after the other; the last one for ever."""
    left = list(answers)

    def answer(_prompt: Prompt) -> AssistantEntry:
        now = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(now, Exception):
            raise now
        return AssistantEntry(now) if isinstance(now, str) else now

    return answer


def situation(
    chat: Chat = Chat.DIRECT,
    *,
    kind: Kind = Kind.MESSAGE,
    level: str = Level.OWNER,
    sender: str = "7",
    address: Address = Address("fake", "1"),  # noqa: B008 - frozen
    place: Address | None = None,
    agent: str = "main",
) -> Situation:
    """Return a turn that a person began, the owner in private if nothing else is said."""
    return Situation(address, place or address, Sender(sender, "Ann", level), chat, kind, agent)


_ids = itertools.count(1)


def call(name: str, /, **args: object) -> ToolCall:
    return ToolCall(f"call{next(_ids):05d}", name, dict(args))


def calls(*made: ToolCall) -> AssistantEntry:
    return AssistantEntry("", made)


@dataclass(slots=True)
class ScriptedTools:
    """`look` may run again after a crash, `act` may not; some models call it `do`, and `todo` `todo_write`."""

    ran: list[str] = field(default_factory=list)
    result: Callable[[ToolCall], str | Awaitable[str]] = lambda call: f"{call.name} done"
    asks: Callable[[ToolCall], Ask | ToolEntry | None] = lambda _call: None

    def specs(self, situation: Situation) -> Sequence[ToolSpec]:
        return [ToolSpec("act", "Act.", {"type": "object"}), ToolSpec("look", "Look.", {"type": "object"})]

    def own_name(self, name: str) -> str:
        return {"do": "act", "todo_write": "todo"}.get(name, name)

    def replayable(self, name: str) -> bool:
        return self.own_name(name) != "act"

    def brings(self, call: ToolCall) -> tuple[bool, bool]:
        return False, False

    async def check(self, call: ToolCall, context: ToolContext) -> Ask | ToolEntry | None:
        return self.asks(call)

    async def call(self, call: ToolCall, context: ToolContext) -> ToolEntry:
        if call.problem is not None:
            return ToolEntry(call.id, call.name, call.problem, is_error=True)
        self.ran.append(f"{call.name} {call.id}")
        found = self.result(call)
        return ToolEntry(call.id, call.name, found if isinstance(found, str) else await found)


@dataclass(slots=True)
class RecordingChannel:
    """Keeps what is sent; `fail` may raise instead."""

    name: str = "fake"
    sent: list[Outgoing] = field(default_factory=list)
    edits: list[Outgoing] = field(default_factory=list)
    fail: Callable[[Outgoing], None] = lambda _message: None
    limit: int = 4000

    async def open(self) -> None:
        return

    async def listen(self, accept: Accept) -> None:
        return

    async def send(self, message: Outgoing) -> Receipt:
        self.fail(message)
        if message.replaces:
            self.edits.append(message)
            return Receipt(message.replaces)
        self.sent.append(message)
        return Receipt(str(len(self.sent)))

    def pieces(self, text: str) -> Sequence[str]:
        return [text[start : start + self.limit] for start in range(0, len(text), self.limit)]

    def status(self) -> dict[str, str | int | float | None]:
        return {"state": "running"}

    async def close(self) -> None:
        return

    @property
    def texts(self) -> list[str]:
        return [message.text for message in self.sent]


def people(entries: Sequence[Entry]) -> list[str]:
    """Return what people said in a transcript."""
    return [entry.text for entry in entries if isinstance(entry, UserEntry)]
