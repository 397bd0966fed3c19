"""What the model is sent for a conversation, by section and with sizes, for people who want to see it."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from sqlalchemy.engine import Connection

from gateway.prompt import Part, Prompts
from gateway.store.journal import Claim, last_speaker, peek
from gateway.transcript import situation_of
from gateway.types import (
    Address,
    AssistantEntry,
    Entry,
    JsonObject,
    Kind,
    Situation,
    Stimulus,
    ToolEntry,
    ToolSpec,
    UserEntry,
)
from gateway.workspace import BootstrapFile

CHARS_PER_TOKEN = 3.5
"""A rough guess, to make sizes tell something."""


@dataclass(frozen=True, slots=True)
class Contexts:
    """Looks at prompts without sending them.

    `prompts` returns those of whoever answers a turn, an object of its own: this runs beside the turns.
    """

    prompts: Callable[[Situation], tuple[str, Prompts]]

    def show(self, tx: Connection, address: Address) -> JsonObject | None:
        """Return `{"agent", "parts", "tools", "entries", "chars"}`, None for an unknown conversation.

        Each part has name, chars, stable and text; a file that was shortened has its own `size` too.
        """
        claim = peek(tx, address)
        return None if claim is None else self._shown(claim, _next(tx, claim))

    def summary(self, tx: Connection, stimulus: Stimulus) -> str:
        """Return the sizes as lines of text, for whoever asks by `/context`."""
        claim = peek(tx, stimulus.address)
        if claim is None:
            return "Nothing was said here yet."
        asked = replace(situation_of(claim), place=stimulus.address, sender=stimulus.sender)
        return lines(self._shown(claim, asked))

    def _shown(self, claim: Claim, situation: Situation) -> JsonObject:
        if situation.kind is Kind.HEARTBEAT:  # what people see next is a turn of their own
            situation = replace(situation, kind=Kind.MESSAGE)
        agent, prompts = self.prompts(situation)
        situation = replace(situation, agent=agent)
        sizes = {file.name: file for file in prompts.files(situation)}
        parts = [*prompts.parts(situation)]
        if notes := prompts.notes(claim.transcript, situation, f"{claim.conversation_id}.{claim.session}"):
            parts.append(Part("notes", notes, stable=False))
        found = [_part(part, sizes) for part in parts]
        tools = [_tool(spec) for spec in prompts.tools(situation)]
        entries = [_entry(one) for one in claim.transcript]
        return {
            "conversation": claim.address.shown,
            "agent": agent,
            "parts": found,
            "tools": tools,
            "entries": entries,
            "chars": sum(one["chars"] for one in (*found, *tools, *entries)),
        }


def _next(tx: Connection, claim: Claim) -> Situation:
    """Return what the next turn would depend on if the one who spoke last went on."""
    situation = situation_of(claim)
    if any(isinstance(one, UserEntry) for one in claim.transcript):
        return situation
    return replace(situation, sender=last_speaker(tx, claim.conversation_id))


def _part(part: Part, sizes: dict[str, BootstrapFile]) -> JsonObject:
    shown: JsonObject = {"name": part.name, "chars": len(part.text), "stable": part.stable, "text": part.text}
    file = sizes.get(part.name)
    return shown | {"size": file.size} if file is not None and file.cut else shown


def _tool(spec: ToolSpec) -> JsonObject:
    text = json.dumps([spec.name, spec.description, spec.parameters], ensure_ascii=False)
    return {"name": spec.name, "chars": len(text)}


def _entry(entry: Entry) -> JsonObject:
    match entry:
        case UserEntry():
            return {"role": "user", "chars": len(entry.text), "text": entry.text}
        case AssistantEntry():
            called = [{"name": call.name, "arguments": call.args} for call in entry.calls]
            chars = len(entry.text) + sum(len(json.dumps(one, ensure_ascii=False)) for one in called)
            return {"role": "assistant", "chars": chars, "text": entry.text, "calls": called}
        case ToolEntry():
            return {"role": "tool", "chars": len(entry.text), "text": entry.text, "name": entry.name}
        case _:
            return {"role": "note", "chars": len(entry.text), "text": entry.text}


def lines(shown: JsonObject) -> str:
    """Return sizes in characters, the largest parts readable at once."""
    parts: Sequence[JsonObject] = shown["parts"]
    found = [_size(part["name"], part["chars"], part.get("size")) for part in parts if part["chars"] >= LEAST]
    rest = sum(part["chars"] for part in parts if part["chars"] < LEAST)
    tools = sum(one["chars"] for one in shown["tools"])
    said = sum(one["chars"] for one in shown["entries"])
    return "\n".join(
        [
            f"agent: {shown['agent']}",
            *found,
            _size("small sections", rest),
            _size(f"{len(shown['tools'])} tools", tools),
            _size(f"{len(shown['entries'])} entries", said),
            _size("in all", shown["chars"]) + f", about {shown['chars'] / CHARS_PER_TOKEN:,.0f} tokens",
        ]
    )


LEAST = 300
"""Characters from which a section has a line of its own."""


def _size(name: str, chars: int, whole: int | None = None) -> str:
    cut = f" (shortened; the file has {whole:,} bytes)" if whole else ""
    return f"{name}: {chars:,}{cut}"


def text(shown: JsonObject) -> str:
    """Return everything as it is sent, for `crayfish prompt show`."""
    out = [part["text"] for part in shown["parts"]]
    out.append("Tools: " + (", ".join(one["name"] for one in shown["tools"]) or "none"))
    for one in shown["entries"]:
        calls = "".join(
            f"\n→ {call['name']} {json.dumps(call['arguments'])}" for call in one.get("calls", ())
        )
        name = f" {one['name']}" if "name" in one else ""
        out.append(f"--- {one['role']}{name}\n{one['text']}{calls}")
    return "\n\n".join(out)
