"""Puts a Chat Completions answer together from its pieces, as servers really send them."""

from __future__ import annotations

from dataclasses import dataclass, field

from gateway.models.base import OnRestart, OnText, Reply
from gateway.models.calls import Names
from gateway.models.failure import Rejected, broken, stream_failure
from gateway.models.loose import mapping, mappings, number, text
from gateway.models.pieces import Pieces
from gateway.models.visible import Visible
from gateway.types import AssistantEntry, Json, JsonObject, Usage

_CUT = frozenset({"length", "max_tokens", "model_length"})
_FAILED = frozenset({"error", "insufficient_system_resource"})


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
    _pieces: Pieces = field(init=False)
    _usage: JsonObject = field(default_factory=dict)
    _finish: str = ""

    def __post_init__(self) -> None:
        self._text = Visible(self.on_text, self.on_restart)
        self._pieces = Pieces(self.names)

    def feed(self, event: JsonObject) -> None:
        """Take one event.

        Raises: ModelError, if it is an error (rows 18, 20).
        """
        if event.get("error"):
            raise stream_failure(self.model, event["error"], self.hide)
        self._count(event.get("usage") or mapping(event.get("x_groq")).get("usage"))
        for choice in mappings(event.get("choices"))[:1]:
            self._choice(choice)

    @property
    def begun(self) -> bool:
        """Whether words of the answer were passed on."""
        return bool(self._text.answer)

    def reply(self, *, done: bool) -> Reply:
        """Return what came; `done` says that the stream had its end mark.

        Raises: ModelBusy, if the answer broke off or is empty (row 19); ModelRefused, if it was withheld.
        """
        words, inline = self._text.end()
        cut = self._finish in _CUT
        calls = self._pieces.calls(cut=cut)
        if not self._finish and not (done and (words or calls)):
            raise broken(self.model, "the answer broke off" if words or calls else "the answer was empty")
        if self._finish == "content_filter" and not words and not calls:
            hint = "The model provider's safety filter withheld the answer. Please say it in other words."
            raise Rejected(f"{self.model}: content_filter", status=200, hint=hint)
        reasoning = "".join(self._thoughts) + inline
        state: JsonObject = {"reasoning_details": self._details} if self._details else {}
        entry = AssistantEntry(words, calls, reasoning, self.model, state)
        return Reply(entry, usage(self._usage), cut)

    def _choice(self, choice: JsonObject) -> None:
        message = mapping(choice.get("delta") or choice.get("message"))
        content = message.get("content") or message.get("refusal")
        self._text.feed(text(content))
        for part in mappings(content):
            self._part(part)
        self._thoughts.append(text(message.get("reasoning_content") or message.get("reasoning")))
        for detail in mappings(message.get("reasoning_details")):
            self._detail(detail)
        self._pieces.take(message)
        self._count(choice.get("usage"))
        finish = text(choice.get("finish_reason")).lower()
        if choice.get("error") or finish in _FAILED:
            raise stream_failure(self.model, choice.get("error") or finish, self.hide)
        # A whole message, where a server ignores `stream`, is never cut by the connection.
        self._finish = finish or self._finish or ("stop" if choice.get("message") else "")

    def _count(self, counts: Json) -> None:
        """Keep the last counts that came (row 21)."""
        self._usage = mapping(counts) or self._usage

    def _part(self, part: JsonObject) -> None:
        """Take one part of a content list."""
        if part.get("type") == "thinking":
            thought = part.get("thinking")
            self._thoughts += [text(thought), *(text(piece.get("text")) for piece in mappings(thought))]
        else:
            self._text.feed(text(part.get("text")))

    def _detail(self, detail: JsonObject) -> None:
        """Keep what OpenRouter wants to see again (row 31), the pieces of one text as one."""
        last = self._details[-1] if self._details else {}
        same = all(last.get(key) == detail.get(key) for key in ("type", "index"))
        for key in ("text", "summary"):
            if same and isinstance(last.get(key), str) and isinstance(detail.get(key), str):
                given = {name: value for name, value in detail.items() if value is not None}
                self._details[-1] = {**last, **given, key: last[key] + detail[key]}
                return
        self._details.append(detail)


def usage(counts: JsonObject) -> Usage:
    """Return token counts in one form: `input` holds the cached part too (row 21)."""
    details = mapping(counts.get("prompt_tokens_details") or counts.get("input_tokens_details"))
    cached = _first(
        details.get("cached_tokens"),
        counts.get("prompt_cache_hit_tokens"),
        counts.get("cached_tokens"),
        counts.get("cache_read_input_tokens"),
    )
    written = _first(counts.get("cache_creation_input_tokens"), details.get("cache_write_tokens"))
    sent = number(counts.get("prompt_tokens"))
    if not sent:  # Anthropic counts the cached parts apart
        sent = number(counts.get("input_tokens")) + cached + written
    output = _first(counts.get("completion_tokens"), counts.get("output_tokens"))
    return Usage(input=sent, output=output, cached=cached, cache_write=written)


def _first(*values: Json) -> int:
    """Return the first number that is given."""
    return next((number(value) for value in values if value is not None), 0)
