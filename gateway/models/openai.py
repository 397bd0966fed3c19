"""The Chat Completions dialect, spoken by OpenAI and by nearly every other server in its own way."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from gateway.clock import Clock
from gateway.models.assembly import Assembly
from gateway.models.base import OnRestart, OnText, Picture, Prompt
from gateway.models.calls import Names, args_json, functions, wire_id
from gateway.models.dialect import Dialect, Form, bearer
from gateway.models.habits import Habits
from gateway.models.http import Endpoint, join
from gateway.models.render import note_text, pictures_of, result_text, system_text, user_text
from gateway.types import AssistantEntry, Json, JsonObject, NoteEntry, ToolEntry, UserEntry


class OpenAI(Dialect[Habits]):
    """A model behind `/chat/completions`."""

    def __init__(self, endpoint: Endpoint, clock: Clock) -> None:
        url = join(endpoint.base_url, "chat/completions")
        headers = {"Accept": "text/event-stream", **bearer(endpoint.key)}
        super().__init__(endpoint, clock, url=url, headers=headers, ways=Habits.of(endpoint))

    def _request(self, prompt: Prompt, names: Names, ways: Habits) -> JsonObject:
        return request(prompt, self._endpoint, ways, names)

    def _answer(self, names: Names, on_text: OnText | None, on_restart: OnRestart | None) -> Assembly:
        return Assembly(self.name, names, self._endpoint.key, on_text, on_restart)

    def _change(self, form: Form[Habits], refusal: str) -> bool:
        if form.leave_out(refusal):
            form.ways.short_ids = True
            return True
        return form.ways.learn(refusal)


def request(prompt: Prompt, endpoint: Endpoint, habits: Habits, names: Names) -> JsonObject:
    """Return the body for a prompt whose entries are in order.

    No temperature and no tool choice is sent where the server's own will do (rows 15, 23, 28). When
    tools may not be used they stay, with `tool_choice: "none"`, only where that is known to be obeyed:
    elsewhere they are left out, because a wrap-up that calls tools again is worse than a cold cache.
    """
    body: JsonObject = {"model": endpoint.model, "messages": messages(prompt, endpoint.name, habits, names)}
    if prompt.tools and habits.tools and (prompt.tools_allowed or habits.keeps_tools):
        body["tools"] = functions(prompt.tools, names, simple=habits.simple_schemas)
        if not prompt.tools_allowed:
            body["tool_choice"] = "none"
    if habits.limit:
        body[habits.limit] = endpoint.max_tokens
    if habits.cache_key and prompt.session:
        body["prompt_cache_key"] = hashlib.sha256(prompt.session.encode()).hexdigest()[:32]
    if habits.streams:
        body["stream"] = True
        if habits.asks_usage:
            body["stream_options"] = {"include_usage": True}
    return body


def messages(prompt: Prompt, model: str, habits: Habits, names: Names) -> list[JsonObject]:
    """Return the messages: one system text, the entries, the nudge.

    The messages of a prompt are the first messages of every later one, byte for byte.
    """
    system = system_text(prompt)
    out: list[JsonObject] = [{"role": "system", "content": system}] if system else []
    brought: list[Picture] = []
    for entry in prompt.entries:
        if brought and not isinstance(entry, ToolEntry):
            out += _brought(brought, habits)
            brought = []
        match entry:
            case UserEntry():
                out.append({"role": "user", "content": _said(entry, prompt, habits)})
            case AssistantEntry():
                out.append(_assistant(entry, model, habits, names))
            case ToolEntry():
                call_id = wire_id(entry.call_id, short=habits.short_ids)
                out.append({"role": "tool", "tool_call_id": call_id, "content": result_text(entry)})
                brought += pictures_of(entry, prompt) if habits.pictures else []
            case NoteEntry():
                out.append({"role": "user", "content": note_text(entry)})
    out += _brought(brought, habits)
    if habits.cache_marks:
        _mark(out, prompt)
    if prompt.nudge:
        out.append({"role": "user", "content": prompt.nudge})
    return _alternating(out) if habits.alternates else out


def _said(entry: UserEntry, prompt: Prompt, habits: Habits) -> str | list[JsonObject]:
    """Return a person's words, and the pictures with them if the model looks at pictures."""
    words = user_text(entry, prompt.zone)
    shown = pictures_of(entry, prompt) if habits.pictures else []
    if not shown:
        return words
    return [{"type": "text", "text": words}, *map(_picture, shown)]


def _brought(shown: Sequence[Picture], habits: Habits) -> list[JsonObject]:
    """Return what shows the pictures of tools: in their results, this dialect has no place for them.

    It stands behind all results of a reply, which nothing may part from their calls.
    """
    if not shown:
        return []
    words = {"type": "text", "text": "[Pictures that the tools brought, in the order of their results]"}
    said: JsonObject = {"role": "user", "content": [words, *map(_picture, shown)]}
    if not habits.alternates:
        return [said]
    # A person may not speak right after a tool here: a word of the model's own stands between (row 24).
    return [{"role": "assistant", "content": "I look at the pictures."}, said]


def _picture(one: Picture) -> JsonObject:
    return {"type": "image_url", "image_url": {"url": f"data:{one.mime};base64,{one.data}"}}


def _parts(content: str | list[JsonObject] | None) -> list[JsonObject]:
    if isinstance(content, list):
        return content
    return [{"type": "text", "text": content}] if content else []


def _assistant(entry: AssistantEntry, model: str, habits: Habits, names: Names) -> JsonObject:
    """Return an assistant message; content is null only beside tool calls (row 26)."""
    message: JsonObject = {"role": "assistant", "content": entry.text}
    own = entry.model == model
    if entry.calls:
        if not entry.text.strip():
            message["content"] = "" if habits.blank_content else None
        message["tool_calls"] = [
            {
                "id": wire_id(call.id, short=habits.short_ids),
                "type": "function",
                "function": {"name": names.sent(call.name), "arguments": args_json(call.args)},
                **(call.extra if own else {}),
            }
            for call in entry.calls
        ]
        if habits.echoes_thoughts:  # rows 14, 15: the key must be there, even empty
            message["reasoning_content"] = entry.reasoning if own else ""
    if own and "reasoning_details" in entry.state:
        message["reasoning_details"] = entry.state["reasoning_details"]
    return message


def _mark(out: list[JsonObject], prompt: Prompt) -> None:
    """Mark the stable system text and the last message for caches that want to be told (row 31)."""
    mark = {"cache_control": {"type": "ephemeral"}}
    if prompt.system:
        stable = {"type": "text", "text": prompt.system, **mark}
        varying = [{"type": "text", "text": prompt.context}] if prompt.context else []
        out[0] = {**out[0], "content": [stable, *varying]}
    last = out[-1] if out else {}
    if isinstance(last.get("content"), str) and last["role"] != "assistant":
        out[-1] = {**last, "content": [{"type": "text", "text": last["content"], **mark}]}


def _alternating(messages: Sequence[JsonObject]) -> list[JsonObject]:
    """Merge neighbours of one role; tool results keep their place (row 24, provider-04)."""
    out: list[JsonObject] = []
    for message in messages:
        last = out[-1] if out else {}
        if message["role"] == last.get("role") and message["role"] in {"user", "assistant"}:
            both = (last["content"], message["content"])
            if any(isinstance(content, list) for content in both):
                merged: Json = [part for content in both for part in _parts(content)]
            else:
                merged = "\n\n".join(text for text in both if text) or None
            out[-1] = {**last, **message, "content": merged}
        else:
            out.append(message)
    return out
