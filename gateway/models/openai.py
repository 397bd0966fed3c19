"""The Chat Completions dialect, spoken by OpenAI and by nearly every other server in its own way."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace

from gateway.clock import Clock
from gateway.errors import ModelError, PromptTooLong
from gateway.models.assembly import Assembly
from gateway.models.base import OnRestart, OnText, Picture, Prompt, Reply
from gateway.models.calls import Names, args_json, by_name, wire_id, without_named
from gateway.models.failure import Rejected
from gateway.models.habits import Habits
from gateway.models.http import Endpoint, Wire, join, open_client
from gateway.models.render import note_text, pictures_of, result_text, system_text, user_text
from gateway.models.schema import clean_schema
from gateway.repair import repair
from gateway.types import AssistantEntry, Entry, Json, JsonObject, NoteEntry, ToolEntry, UserEntry

log = logging.getLogger(__name__)

_MOST_CHANGES = 6


class OpenAI:
    """A model behind `/chat/completions`.

    A request that is refused for its form is sent again in another form; what helped is kept.
    """

    def __init__(self, endpoint: Endpoint, clock: Clock) -> None:
        self._endpoint = endpoint.check()
        self._habits = Habits.of(endpoint)
        headers = {"Content-Type": "application/json", "Accept": "text/event-stream"}
        if endpoint.key:
            headers["Authorization"] = f"Bearer {endpoint.key}"
        url = join(endpoint.base_url, "chat/completions")
        self._wire = Wire(endpoint, url, headers, clock, open_client(endpoint.base_url, endpoint.timeouts))

    @property
    def name(self) -> str:
        """Return `provider/model`."""
        return self._endpoint.name

    async def close(self) -> None:
        """Close the connections."""
        await self._wire.close()

    async def reply(
        self, prompt: Prompt, on_text: OnText | None = None, on_restart: OnRestart | None = None
    ) -> Reply:
        """Ask once, as `Model.reply` says."""
        names = Names.of(prompt.tools)
        form = _Form(repair(prompt.entries), replace(self._habits))
        while True:
            body = request(replace(prompt, entries=form.entries), self._endpoint, form.habits, names)
            assembly = Assembly(self.name, names, self._endpoint.key, on_text, on_restart)
            try:
                done = await self._wire.post(body, assembly.feed)
            except (Rejected, PromptTooLong) as refusal:
                if assembly.begun or not form.change(refusal):
                    raise
                log.warning("model.form_changed", extra={"problem": str(refusal)})
                continue
            self._habits = form.habits
            return assembly.reply(done=done)


@dataclass(slots=True)
class _Form:
    """The form in which a prompt is sent."""

    entries: list[Entry]
    habits: Habits
    changes: int = 0
    repaired: bool = False

    def change(self, refusal: ModelError) -> bool:
        """Take another form because of a refusal; return whether there is one left.

        If it names a tool call, that call and its result are left out, once (session-08).
        """
        self.changes += 1
        if self.changes > _MOST_CHANGES:
            return False
        fewer = None if self.repaired else without_named(self.entries, str(refusal))
        if fewer is None:
            return self.habits.learn(str(refusal))
        self.entries, self.repaired, self.habits.short_ids = repair(fewer), True, True
        return True


def request(prompt: Prompt, endpoint: Endpoint, habits: Habits, names: Names) -> JsonObject:
    """Return the body for a prompt whose entries are in order.

    No temperature and no tool choice is sent where the server's own will do (rows 15, 23, 28). When
    tools may not be used they stay, with `tool_choice: "none"`, only where that is known to be obeyed:
    elsewhere they are left out, because a wrap-up that calls tools again is worse than a cold cache.
    """
    body: JsonObject = {"model": endpoint.model, "messages": messages(prompt, endpoint.name, habits, names)}
    if prompt.tools and habits.tools and (prompt.tools_allowed or habits.keeps_tools):
        body["tools"] = tools(prompt, habits, names)
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


def tools(prompt: Prompt, habits: Habits, names: Names) -> list[JsonObject]:
    """Return the tools in their fixed order."""
    return [
        {
            "type": "function",
            "function": {
                "name": names.sent(tool.name),
                "description": tool.description,
                "parameters": clean_schema(tool.parameters)
                if habits.simple_schemas
                else dict(tool.parameters),
            },
        }
        for tool in by_name(prompt.tools)
    ]


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
