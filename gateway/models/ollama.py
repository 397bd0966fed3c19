"""Ollama's own dialect, in which the size of the context can be set.

Its OpenAI-compatible endpoint ignores that size: it cuts a longer prompt from the front without a word,
and so loses the system text and the tools first (models 1.1).
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace

from gateway.clock import Clock
from gateway.errors import PromptTooLong
from gateway.models.base import OnRestart, OnText, Prompt, Reply
from gateway.models.calls import Names, functions, readable
from gateway.models.dialect import Dialect, Form, bearer
from gateway.models.failure import broken, stream_failure
from gateway.models.http import Endpoint
from gateway.models.loose import mapping, mappings, number, text
from gateway.models.probe import ollama_root
from gateway.models.render import note_text, pictures_of, result_text, system_text, user_text
from gateway.models.visible import Visible
from gateway.types import AssistantEntry, JsonObject, NoteEntry, ToolCall, ToolEntry, Usage, UserEntry

_LEAST_BYTES_PER_TOKEN = 4.5
"""Prose of any language has fewer bytes in a token, so a prompt that is too long even by this surely is."""


class Ollama(Dialect[None]):
    """A model behind `/api/chat`, which has one form for everything.

    `context` is the window in tokens that the server reserves memory for. `tools` says whether the model
    was made for tools; without, none are sent, and it can only talk.
    """

    def __init__(self, endpoint: Endpoint, clock: Clock, *, context: int, tools: bool = True) -> None:
        url = f"{ollama_root(endpoint.base_url)}/api/chat"
        super().__init__(endpoint, clock, url=url, headers=bearer(endpoint.key), ways=None)
        self._context = context
        self._tools = tools

    def _request(self, prompt: Prompt, names: Names, _ways: None) -> JsonObject:
        shown = prompt if self._tools else replace(prompt, tools=())
        body = request(shown, self._endpoint, names, self._context)
        _check_size(body, self._context, self.name)
        return body

    def _answer(self, names: Names, on_text: OnText | None, on_restart: OnRestart | None) -> Answer:
        return Answer(self.name, names, self._endpoint.key, Visible(on_text, on_restart))

    def _change(self, _form: Form[None], _refusal: str) -> bool:
        return False


def request(prompt: Prompt, endpoint: Endpoint, names: Names, context: int) -> JsonObject:
    """Return the body for a prompt whose entries are in order.

    There is no `tool_choice`, so tools that may not be used are left out.
    """
    body: JsonObject = {
        "model": endpoint.model,
        "messages": messages(prompt, names),
        "stream": True,
        "options": {"num_ctx": context, "num_predict": min(endpoint.max_tokens, context // 2)},
    }
    if prompt.tools and prompt.tools_allowed:
        body["tools"] = functions(prompt.tools, names)
    return body


def messages(prompt: Prompt, names: Names) -> list[JsonObject]:
    """Return the messages; arguments are objects here, and a result names its tool instead of its call."""
    system = system_text(prompt)
    out: list[JsonObject] = [{"role": "system", "content": system}] if system else []
    for entry in prompt.entries:
        match entry:
            case UserEntry():
                said = {"role": "user", "content": user_text(entry, prompt.zone)}
                out.append(said | _images(entry, prompt))
            case NoteEntry():
                out.append({"role": "user", "content": note_text(entry)})
            case ToolEntry():
                name = names.sent(entry.name)
                result = {"role": "tool", "tool_name": name, "content": result_text(entry)}
                out.append(result | _images(entry, prompt))
            case AssistantEntry():
                message: JsonObject = {"role": "assistant", "content": entry.text}
                if entry.calls:
                    message["tool_calls"] = [
                        {"function": {"name": names.sent(call.name), "arguments": call.args}}
                        for call in entry.calls
                    ]
                out.append(message)
    if prompt.nudge:
        out.append({"role": "user", "content": prompt.nudge})
    return out


def _images(entry: UserEntry | ToolEntry, prompt: Prompt) -> JsonObject:
    shown = [one.data for one in pictures_of(entry, prompt)]
    return {"images": shown} if shown else {}


def _check_size(body: JsonObject, context: int, model: str) -> None:
    """Refuse what the server would cut from the front without a word."""
    size = len(
        json.dumps([body["messages"], body.get("tools")], ensure_ascii=False).encode("utf-8", "replace")
    )
    if size / _LEAST_BYTES_PER_TOKEN > context:
        hint = "This conversation is too long for the model. Send /new to start afresh."
        raise PromptTooLong(f"{model}: {size} bytes don't fit in {context} tokens", hint=hint)


@dataclass(slots=True)
class Answer:
    """Takes the lines of a stream, makes a Reply of them."""

    model: str
    names: Names
    hide: str
    text: Visible
    _thoughts: list[str] = field(default_factory=list)
    _calls: list[ToolCall] = field(default_factory=list)
    _last: JsonObject = field(default_factory=dict)

    def feed(self, event: JsonObject) -> None:
        """Take one line.

        Raises: ModelError, if it is an error.
        """
        if event.get("error"):
            raise stream_failure(self.model, event["error"], self.hide)
        message = mapping(event.get("message"))
        self._thoughts.append(text(message.get("thinking")))
        self.text.feed(text(message.get("content")))
        for item in mappings(message.get("tool_calls")):
            function = mapping(item.get("function"))
            name, own_id = self.names.ours(text(function.get("name"))), text(item.get("id")) or None
            if name:
                self._calls.append(readable(own_id, name, function.get("arguments"), cut=False, extra={}))
        if event.get("done"):
            self._last = event

    @property
    def begun(self) -> bool:
        """Whether words of the answer were passed on."""
        return bool(self.text.answer)

    def reply(self, *, done: bool = True) -> Reply:  # noqa: ARG002 - the last line is the end mark here
        """Return what came.

        Raises: ModelBusy, if the answer broke off.
        """
        words, inline = self.text.end()
        if not self._last:
            begun = words or self._calls
            raise broken(self.model, "the answer broke off" if begun else "the answer was empty")
        sent, made = (number(self._last.get(key)) for key in ("prompt_eval_count", "eval_count"))
        entry = AssistantEntry(words, tuple(self._calls), "".join(self._thoughts) + inline, self.model)
        return Reply(entry, Usage(input=sent, output=made), self._last.get("done_reason") == "length")
