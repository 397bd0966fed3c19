"""The Anthropic Messages dialect."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TypeGuard

from gateway.clock import Clock
from gateway.models.assembly import usage
from gateway.models.base import OnRestart, OnText, Picture, Prompt, Reply
from gateway.models.calls import Names, by_name, readable, wire_id
from gateway.models.dialect import Dialect, Form
from gateway.models.failure import Rejected, broken, stream_failure
from gateway.models.http import Endpoint, join
from gateway.models.loose import mapping, mappings, number, text
from gateway.models.render import note_text, pictures_of, result_text, user_text
from gateway.models.visible import Visible
from gateway.types import (
    AssistantEntry,
    Entry,
    Json,
    JsonObject,
    NoteEntry,
    ToolCall,
    ToolEntry,
    UserEntry,
)

_VERSION = "2023-06-01"
_MARK: JsonObject = {"cache_control": {"type": "ephemeral"}}
_CUT = frozenset({"max_tokens", "model_context_window_exceeded"})


class Anthropic(Dialect[int]):
    """A model behind `/v1/messages`; the one way that is learned is the most that `max_tokens` may be."""

    def __init__(self, endpoint: Endpoint, clock: Clock) -> None:
        url = join(endpoint.base_url, "messages")
        headers = {"anthropic-version": _VERSION, "x-api-key": endpoint.key}
        super().__init__(endpoint, clock, url=url, headers=headers, ways=endpoint.max_tokens)

    def _request(self, prompt: Prompt, names: Names, ways: int) -> JsonObject:
        return request(prompt, self._endpoint, names, ways)

    def _answer(self, names: Names, on_text: OnText | None, on_restart: OnRestart | None) -> Answer:
        return Answer(self.name, names, self._endpoint.key, Visible(on_text, on_restart))

    def _change(self, form: Form[int], refusal: str) -> bool:
        allowed = re.search(r"max_tokens: \d+ > (\d+)", refusal)
        if allowed and int(allowed[1]) < form.ways:
            form.ways = int(allowed[1])
            return True
        # A thought whose signature no longer fits is refused.
        if re.search(r"signature|thinking", refusal) and any(map(_has_thoughts, form.entries)):
            form.entries = [replace(one, state={}) if _has_thoughts(one) else one for one in form.entries]
            return True
        return form.leave_out(refusal)


def request(prompt: Prompt, endpoint: Endpoint, names: Names, limit: int) -> JsonObject:
    """Return the body for a prompt whose entries are in order (models 2.3 row 30).

    The cache is told where to cut at up to four places: the last tool, the stable system text, and the
    last two user messages, of which the earlier one is where the request before this one ended. Tools
    that may not be used stay in place, since `tool_choice: none` is obeyed here.
    """
    body: JsonObject = {"model": endpoint.model, "max_tokens": limit, "stream": True}
    system = [{"type": "text", "text": prompt.system, **_MARK}] if prompt.system else []
    if prompt.context:
        system.append({"type": "text", "text": prompt.context})
    if system:
        body["system"] = system
    if prompt.tools:
        body["tools"] = _tools(prompt, names)
        if not prompt.tools_allowed:
            body["tool_choice"] = {"type": "none"}
    body["messages"] = messages(prompt, endpoint.name, names)
    return body


def _tools(prompt: Prompt, names: Names) -> list[JsonObject]:
    tools: list[JsonObject] = [
        {
            "name": names.sent(tool.name),
            "description": tool.description,
            "input_schema": dict(tool.parameters),
        }
        for tool in by_name(prompt.tools)
    ]
    tools[-1].update(_MARK)
    return tools


def messages(prompt: Prompt, model: str, names: Names) -> list[JsonObject]:
    """Return the messages, roles in turn; results of tools open the one user message behind the calls."""
    out: list[JsonObject] = []
    thoughts_from = _thoughts_from(prompt.entries)
    for position, entry in enumerate(prompt.entries):
        if isinstance(entry, AssistantEntry):
            own = entry.model == model and position >= thoughts_from
            _append(out, "assistant", _assistant(entry, names, with_thoughts=own))
        else:
            _append(out, "user", _user_blocks(entry, prompt))
    for message in [message for message in out if message["role"] == "user"][-2:]:
        message["content"][-1].update(_MARK)
    if prompt.nudge:
        _append(out, "user", [{"type": "text", "text": prompt.nudge}])
    return out


def _thoughts_from(entries: Sequence[Entry]) -> int:
    """Return the position from which thoughts may be sent again.

    A signature holds for the text before it. Once a summary stands for that, only the thoughts of the
    turn that goes on are safe.
    """
    if not any(isinstance(entry, NoteEntry) for entry in entries):
        return 0
    return max((at for at, entry in enumerate(entries) if isinstance(entry, UserEntry)), default=0)


def _has_thoughts(entry: Entry) -> TypeGuard[AssistantEntry]:
    return isinstance(entry, AssistantEntry) and "thinking" in entry.state


def _append(out: list[JsonObject], role: str, blocks: list[JsonObject]) -> None:
    """Add blocks, to the last message if it has the same role."""
    if out and out[-1]["role"] == role:
        out[-1]["content"].extend(blocks)
    else:
        out.append({"role": role, "content": blocks})


def _picture(one: Picture) -> JsonObject:
    return {"type": "image", "source": {"type": "base64", "media_type": one.mime, "data": one.data}}


def _user_blocks(entry: UserEntry | ToolEntry | NoteEntry, prompt: Prompt) -> list[JsonObject]:
    match entry:
        case UserEntry():
            words = {"type": "text", "text": user_text(entry, prompt.zone)}
            return [*map(_picture, pictures_of(entry, prompt)), words]
        case NoteEntry():
            return [{"type": "text", "text": note_text(entry)}]
        case ToolEntry():
            return [_result(entry, prompt)]


def _result(entry: ToolEntry, prompt: Prompt) -> JsonObject:
    """Return a tool's result; its pictures are part of it."""
    block: JsonObject = {
        "type": "tool_result",
        "tool_use_id": wire_id(entry.call_id, short=False),
        "content": result_text(entry),
    }
    if shown := pictures_of(entry, prompt):
        block["content"] = [{"type": "text", "text": block["content"]}, *map(_picture, shown)]
    return {**block, "is_error": True} if entry.is_error else block


def _assistant(entry: AssistantEntry, names: Names, *, with_thoughts: bool) -> list[JsonObject]:
    blocks: list[JsonObject] = list(entry.state.get("thinking", ())) if with_thoughts else []
    if entry.text.strip():
        blocks.append({"type": "text", "text": entry.text})
    blocks += [
        {
            "type": "tool_use",
            "id": wire_id(call.id, short=False),
            "name": names.sent(call.name),
            "input": call.args,
        }
        for call in entry.calls
    ]
    return blocks


@dataclass(slots=True)
class _Block:
    """A content block that is still coming: text, a thought or a tool call."""

    start: JsonObject
    pieces: list[str] = field(default_factory=list)
    signature: str = ""


@dataclass(slots=True)
class Answer:
    """Takes the events of a stream, or one whole message, and makes a Reply of them."""

    model: str
    names: Names
    hide: str
    text: Visible
    _blocks: dict[int, _Block] = field(default_factory=dict)
    _usage: JsonObject = field(default_factory=dict)
    _stop: str = ""

    def feed(self, event: JsonObject) -> None:
        """Take one event.

        Raises: ModelError, if it is an error: `overloaded_error` may come in the middle.
        """
        if event.get("error"):
            raise stream_failure(self.model, event["error"], self.hide)
        match event.get("type"):
            case "message_start":
                self._whole(mapping(event.get("message")))
            case "message":
                self._whole(event)
            case "content_block_start":
                self._start(number(event.get("index")), mapping(event.get("content_block")))
            case "content_block_delta":
                self._delta(number(event.get("index")), mapping(event.get("delta")))
            case "message_delta":
                self._stop = text(mapping(event.get("delta")).get("stop_reason")) or self._stop
                self._count(event.get("usage"))
            case _:
                pass

    @property
    def begun(self) -> bool:
        """Whether words of the answer were passed on."""
        return bool(self.text.answer)

    def reply(self, *, done: bool = True) -> Reply:  # noqa: ARG002 - the reason to stop says more than an end mark
        """Return what came.

        Raises: ModelBusy, if the answer broke off; ModelRefused, if it was withheld.
        """
        words, inline = self.text.end()
        if not self._stop:
            raise broken(self.model, "the answer broke off" if self._blocks else "the answer was empty")
        cut = self._stop in _CUT
        calls = self._calls(cut=cut)
        if self._stop == "refusal" and not words and not calls:
            hint = "The model refused to answer this. Please say it in other words."
            raise Rejected(f"{self.model}: refusal", status=200, hint=hint)
        thinking = [_thought(block) for block in self._of("thinking", "redacted_thinking")]
        reasoning = "".join(block["thinking"] for block in thinking if "thinking" in block) + inline
        # A thought without its signature is refused when it comes back.
        signed = [block for block in thinking if block.get("signature") or block.get("data")]
        state: JsonObject = {"thinking": signed} if signed else {}
        return Reply(AssistantEntry(words, calls, reasoning, self.model, state), usage(self._usage), cut)

    def _calls(self, *, cut: bool) -> tuple[ToolCall, ...]:
        blocks = self._of("tool_use")
        return tuple(
            readable(
                text(block.start.get("id")) or None,
                self.names.ours(text(block.start.get("name"))),
                "".join(block.pieces) or block.start.get("input"),
                cut=cut and block is blocks[-1],
                extra={},
            )
            for block in blocks
            if text(block.start.get("name"))
        )

    def _of(self, *kinds: str) -> list[_Block]:
        return [block for _, block in sorted(self._blocks.items()) if block.start.get("type") in kinds]

    def _whole(self, message: JsonObject) -> None:
        """Take the frame of a message, or, from a server that does not stream, all of it."""
        self._count(message.get("usage"))
        self._stop = text(message.get("stop_reason")) or self._stop
        for index, block in enumerate(mappings(message.get("content"))):
            self._start(index, block)

    def _start(self, index: int, block: JsonObject) -> None:
        self._blocks[index] = _Block(block)
        if block.get("type") == "text":
            self.text.feed(text(block.get("text")))

    def _delta(self, index: int, delta: JsonObject) -> None:
        block = self._blocks.setdefault(index, _Block({}))
        match delta.get("type"):
            case "text_delta":
                self.text.feed(text(delta.get("text")))
            case "input_json_delta":
                block.pieces.append(text(delta.get("partial_json")))
            case "thinking_delta":
                block.pieces.append(text(delta.get("thinking")))
            case "signature_delta":
                block.signature += text(delta.get("signature"))
            case _:
                pass

    def _count(self, counts: Json) -> None:
        self._usage.update({key: value for key, value in mapping(counts).items() if value is not None})


def _thought(block: _Block) -> JsonObject:
    """Return a thinking block as it must come back: unchanged."""
    if block.start.get("type") == "redacted_thinking":
        return block.start
    return {
        "type": "thinking",
        "thinking": text(block.start.get("thinking")) + "".join(block.pieces),
        "signature": text(block.start.get("signature")) + block.signature,
    }
