"""A model without a model: it needs no network, says what it is, and uses the whole gateway."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence

from gateway.models.base import OnRestart, OnText, Prompt, Reply
from gateway.models.calls import parse_args
from gateway.types import AssistantEntry, Chat, Entry, Kind, NoteEntry, ToolCall, ToolEntry, UserEntry

LABEL = "[demo model, no LLM configured]"
"""How each of its replies begins, so that nobody takes it for an assistant (models 1.1)."""

SILENT = "NO_REPLY"
ALL_QUIET = "HEARTBEAT_OK"

_HELP = (
    "For real answers set OPENAI_API_KEY or ANTHROPIC_API_KEY, start a local model server such as Ollama, "
    "or fill in [model] in the configuration; then restart me. "
    "Until then I echo, and `/tool name {json}` runs one of my tools."
)
_TOOL = re.compile(r"\s*/tool\s+([\w.:-]+)\s*(.*)", re.DOTALL)
_NOT_FOR_US = "(not for you)"
_OUR_NAME = "crayfish"
_PIECES = 4
_LONGEST_ECHO = 2000


class Demo:
    """Answers by rule, the same way every time."""

    @property
    def name(self) -> str:
        """Return what `/status` shows."""
        return "demo"

    async def reply(
        self, prompt: Prompt, on_text: OnText | None = None, on_restart: OnRestart | None = None
    ) -> Reply:
        """Answer at once; it never fails, so it never restarts."""
        del on_restart
        entry = answer(prompt)
        if on_text:
            size = len(entry.text) // _PIECES + 1
            for start in range(0, len(entry.text), size):
                on_text(entry.text[start : start + size])
        return Reply(entry)

    async def close(self) -> None:
        """Nothing is open."""


def answer(prompt: Prompt) -> AssistantEntry:
    """Return the reply to a prompt.

    Newest results are reported; `/tool name {json}` becomes a call; a heartbeat gets `HEARTBEAT_OK`; a
    group's talk among themselves `NO_REPLY`; everything else is echoed with a word on how to set up a
    real model.
    """
    said, results = _newest(prompt.entries)
    if results and not said:
        return _say("\n".join(_report(result) for result in results))
    if said and all(entry.kind is Kind.HEARTBEAT for entry in said):
        return AssistantEntry(ALL_QUIET, model="demo")
    heard = [entry for entry in said if _is_for_us(entry)]
    if said and not heard:
        return AssistantEntry(SILENT, model="demo")
    for entry in heard:
        wish = _TOOL.match(entry.text)
        if wish:
            return _use(prompt, wish[1], wish[2])
    reports = [_report(result) for result in results]
    echoes = [f"You said: {entry.text.strip()[:_LONGEST_ECHO]}" for entry in heard]
    return _say("\n".join([*reports, *echoes, _HELP]))


def _newest(entries: Sequence[Entry]) -> tuple[list[UserEntry], list[ToolEntry]]:
    """Return what came in since the last reply: words, and results of tools."""
    said: list[UserEntry] = []
    results: list[ToolEntry] = []
    for entry in reversed(entries):
        match entry:
            case UserEntry():
                said.insert(0, entry)
            case ToolEntry():
                results.insert(0, entry)
            case AssistantEntry() | NoteEntry():
                break
    return said, results


def _is_for_us(entry: UserEntry) -> bool:
    """Whether a message wants an answer; in a group, a question or our name says so."""
    text = entry.text.casefold()
    if entry.kind is not Kind.MESSAGE or entry.chat is not Chat.GROUP:
        return True
    if text.startswith(_NOT_FOR_US):
        return False
    return "?" in text or "？" in text or _OUR_NAME in text or _TOOL.match(text) is not None


def _use(prompt: Prompt, name: str, raw: str) -> AssistantEntry:
    known = sorted(tool.name for tool in prompt.tools)
    if name not in known or not prompt.tools_allowed:
        have = ", ".join(known) if known and prompt.tools_allowed else "none"
        return _say(f"I can't use the tool {name} now. Tools I have: {have}.")
    args, problem = parse_args(raw)
    # From the place in the transcript, so that the same request makes the same call again.
    digest = hashlib.sha256(f"{len(prompt.entries)} {name} {raw}".encode("utf-8", "replace")).hexdigest()
    return AssistantEntry("", (ToolCall(digest[:9], name, args, problem),), model="demo")


def _report(result: ToolEntry) -> str:
    verb = "failed" if result.is_error else "returned"
    return f"The tool {result.name} {verb}: {result.text.strip()[:_LONGEST_ECHO] or '(nothing)'}"


def _say(text: str) -> AssistantEntry:
    return AssistantEntry(f"{LABEL} {text}", model="demo")
