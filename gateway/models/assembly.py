"""Puts a Chat Completions answer together from its pieces, as servers really send them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from gateway.models.base import OnRestart, OnText, Reply
from gateway.models.calls import Names, readable
from gateway.models.failure import Rejected, broken, stream_failure
from gateway.models.visible import Visible
from gateway.types import AssistantEntry, Json, JsonObject, ToolCall, Usage

_CUT = frozenset({"length", "max_tokens", "model_length"})
_FAILED = frozenset({"error", "insufficient_system_resource"})


@dataclass(slots=True, eq=False)
class _Call:
    """A call that is still coming."""

    id: str | None
    index: int | None
    name: str
    args: list[str] = field(default_factory=list)
    extra: JsonObject = field(default_factory=dict)

    def complete(self) -> bool:
        """Whether the arguments so far are a whole JSON value."""
        try:
            json.loads("".join(self.args))
        except (ValueError, RecursionError):
            return False
        return True


@dataclass(slots=True)
class Assembly:
    """Takes events, makes a Reply of them; rows are those of models 2.3.

    `model` is the name stored with the reply, `hide` the key that must not show up in an error.
    """

    model: str
    names: Names
    hide: str = ""
    on_text: OnText | None = None
    on_restart: OnRestart | None = None
    _text: Visible = field(init=False)
    _thoughts: list[str] = field(default_factory=list)
    _details: list[JsonObject] = field(default_factory=list)
    _calls: list[_Call] = field(default_factory=list)
    _usage: Mapping[str, Json] = field(default_factory=dict)
    _finish: str | None = None

    def __post_init__(self) -> None:
        self._text = Visible(self.on_text, self.on_restart)

    def feed(self, event: JsonObject) -> None:
        """Take one event.

        Raises: ModelError, if it is an error (rows 18, 20).
        """
        if event.get("error"):
            raise stream_failure(self.model, event["error"], self.hide)
        groq = event.get("x_groq")
        self._usage = (
            event.get("usage") or (groq.get("usage") if isinstance(groq, dict) else None) or self._usage
        )
        choices = event.get("choices")
        if isinstance(choices, list) and choices and isinstance(choices[0], dict):
            self._choice(choices[0])

    @property
    def begun(self) -> bool:
        """Whether words of the answer were passed on."""
        return bool(self._text.answer)

    def reply(self, *, done: bool) -> Reply:
        """Return what came; `done` says that the stream had its end mark.

        Raises: ModelBusy, if the answer broke off or is empty (row 19); ModelRefused, if it was withheld.
        """
        text, inline = self._text.end()
        cut = self._finish in _CUT
        calls = self._finished_calls(cut=cut)
        if self._finish is None and not (done and (text or calls)):
            raise broken(self.model, "the answer broke off" if text or calls else "the answer was empty")
        if self._finish == "content_filter" and not text and not calls:
            hint = "The model provider's safety filter withheld the answer. Please say it in other words."
            raise Rejected(f"{self.model}: content_filter", status=200, hint=hint)
        reasoning = "".join(self._thoughts) + inline
        state: JsonObject = {"reasoning_details": self._details} if self._details else {}
        entry = AssistantEntry(text, calls, reasoning, self.model, state)
        return Reply(entry, usage(self._usage), cut)

    def _finished_calls(self, *, cut: bool) -> tuple[ToolCall, ...]:
        named = [call for call in self._calls if call.name]
        seen: set[str | None] = set()
        out: list[ToolCall] = []
        for call in named:
            call_id = None if call.id in seen else call.id  # row 10
            seen.add(call.id)
            args, name = "".join(call.args), self.names.ours(call.name)
            out.append(readable(call_id, name, args, cut=cut and call is named[-1], extra=call.extra))
        return tuple(out)

    def _choice(self, choice: JsonObject) -> None:
        message = choice.get("delta") or choice.get("message") or {}
        if not isinstance(message, dict):
            message = {}
        content = message.get("content") or message.get("refusal")
        if isinstance(content, str):
            self._text.feed(content)
        elif isinstance(content, list):
            for part in content:
                self._part(part)
        thought = message.get("reasoning_content") or message.get("reasoning")
        if isinstance(thought, str):
            self._thoughts.append(thought)
        for detail in message.get("reasoning_details") or ():
            self._detail(detail)
        self._take_calls(message)
        self._usage = choice.get("usage") or self._usage
        finish = choice.get("finish_reason")
        if choice.get("error") or finish in _FAILED:
            raise stream_failure(self.model, choice.get("error") or finish, self.hide)
        # A whole message, where a server ignores `stream`, is never cut by the connection.
        self._finish = finish or self._finish or ("stop" if choice.get("message") else None)

    def _part(self, part: Json) -> None:
        """Take one part of a content list."""
        if not isinstance(part, dict):
            return
        if part.get("type") == "thinking":
            pieces = part.get("thinking")
            texts = pieces if isinstance(pieces, list) else [{"text": pieces}]
            self._thoughts += [str(piece.get("text") or "") for piece in texts if isinstance(piece, dict)]
        elif isinstance(part.get("text"), str):
            self._text.feed(part["text"])

    def _detail(self, detail: Json) -> None:
        """Keep what OpenRouter wants to see again (row 31), pieces of one text as one."""
        if not isinstance(detail, dict):
            return
        last = self._details[-1] if self._details else {}
        if all(last.get(key) == detail.get(key) for key in ("type", "index")):
            for key in ("text", "summary"):
                if isinstance(last.get(key), str) and isinstance(detail.get(key), str):
                    merged = {**last, **{k: v for k, v in detail.items() if v is not None}}
                    self._details[-1] = {**merged, key: last[key] + detail[key]}
                    return
        self._details.append(dict(detail))

    def _take_calls(self, message: JsonObject) -> None:
        touched: list[_Call] = []
        for item in message.get("tool_calls") or ():
            if isinstance(item, dict):
                touched.append(self._call(item, touched))
        if isinstance(message.get("function_call"), dict):
            self._call({"function": message["function_call"]}, touched)

    def _call(self, item: JsonObject, touched: list[_Call]) -> _Call:
        """Take one piece of a call; empty ids and names count as absent (row 5)."""
        function = item.get("function") or {}
        call_id, index = item.get("id") or None, item.get("index")
        name = (function.get("name") or "").strip()
        args = function.get("arguments")
        call = self._find(item, touched)
        if call is None:
            call = _Call(call_id, index, name)
            self._calls.append(call)
        else:
            call.id = call.id or call_id
            # Some send the name in pieces, others all of it again (row 6).
            call.name = name if name.startswith(call.name) else call.name + name
        if isinstance(args, dict | list):
            call.args[:] = [json.dumps(args, ensure_ascii=False)]  # row 8
        elif isinstance(args, str):
            call.args.append(args)
        for key, value in item.items():  # row 4
            if key not in {"id", "index", "type", "function"} and value is not None:
                call.extra[key] = value
        return call

    def _find(self, item: JsonObject, touched: list[_Call]) -> _Call | None:
        """Return the call that a piece goes on with, None for a new one.

        `touched` are the calls that earlier pieces of the same event belong to.
        """
        function = item.get("function") or {}
        call_id, index, name = item.get("id"), item.get("index"), (function.get("name") or "").strip()
        same = self._calls if index is None else [call for call in self._calls if call.index == index]
        known = next((call for call in reversed(same) if call_id and call.id == call_id), None)
        if known is not None:
            return None if name != known.name and self._begins(known, name, touched) else known
        last = same[-1] if same else None
        if last is None or (call_id and last.id):
            return None  # rows 2, 3
        if name and index is None and call_id:
            return None
        if name == last.name and last not in touched:
            return None if function.get("arguments") and last.complete() else last
        return None if self._begins(last, name, touched) else last

    def _begins(self, last: _Call, name: str, touched: list[_Call]) -> bool:
        """Whether a name begins another call, rather than going on with the name of the last one."""
        return bool(name) and (last in touched or bool(last.args) or self.names.known(last.name))


def usage(counts: Mapping[str, Json]) -> Usage:
    """Return token counts in one form: `input` holds the cached part too (row 21)."""
    details = counts.get("prompt_tokens_details") or counts.get("input_tokens_details") or {}
    cached = _first(
        details.get("cached_tokens"),
        counts.get("prompt_cache_hit_tokens"),
        counts.get("cached_tokens"),
        counts.get("cache_read_input_tokens"),
    )
    written = _first(counts.get("cache_creation_input_tokens"), details.get("cache_write_tokens"))
    sent = _first(counts.get("prompt_tokens"))
    if not sent:  # Anthropic counts the cached parts apart
        sent = _first(counts.get("input_tokens")) + cached + written
    output = _first(counts.get("completion_tokens"), counts.get("output_tokens"))
    return Usage(input=sent, output=output, cached=cached, cache_write=written)


def _first(*values: Json) -> int:
    """Return the first number that is given."""
    return next((int(value) for value in values if isinstance(value, int | float)), 0)
