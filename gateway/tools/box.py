"""The tools a conversation has, and the one place where they are called."""

from __future__ import annotations

import asyncio
import difflib
import hashlib
import json
import logging
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

from gateway.errors import ConfigError, ToolError
from gateway.tools.base import Tool, ToolContext
from gateway.tools.files import prune, save
from gateway.tools.paths import reason
from gateway.tools.schema import arguments
from gateway.types import Chat, Json, JsonObject, Replay, ToolCall, ToolEntry, ToolSpec

MAX_ARGUMENTS = 262_144
MAX_ERROR = 2_000
MAX_RESULT = 16_000
MAX_STORED = 200
RESULTS = ".crayfish/results"

_HEAD = 12_000
_TAIL = 3_500

# What models call these things from habit.
_TOOL_NAMES = {
    "read_file": "read",
    "write_file": "write",
    "edit_file": "edit",
    "str_replace": "edit",
    "ls": "list_dir",
    "list_directory": "list_dir",
    "AddOrUpdateCronTask": "cron",
    "RemoveCronTask": "cron",
}
# What such a name says beside it (agent 10.3).
_IMPLIED: Mapping[str, JsonObject] = {
    "AddOrUpdateCronTask": {"action": "add_or_update"},
    "RemoveCronTask": {"action": "remove"},
}
_ARGUMENT_NAMES = {
    "file": "path",
    "filename": "path",
    "file_name": "path",
    "file_path": "path",
    "filepath": "path",
    "dir": "path",
    "directory": "path",
    "folder": "path",
    "contents": "content",
    "text": "content",
    "old_string": "old_text",
    "old_str": "old_text",
    "cron": "when",
    "cron_expression": "when",
    "expression": "when",
    "schedule": "when",
    "task_name": "name",
    "task": "prompt",
    "message": "prompt",
    "tz": "timezone",
    "new_string": "new_text",
    "new_str": "new_text",
}
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_UNFIT_FOR_A_NAME = re.compile(r"[^A-Za-z0-9_-]+")
_BROKEN = re.compile(r"[\x00\ud800-\udfff]")

log = logging.getLogger(__name__)


class Toolbox:
    """All tools, and who may use which.

    `timeout` is the limit of one call in seconds. `in_groups` names the tools that a conversation
    with several readers has: none by default, because what they show is everybody's then
    (reliability 4.5). `attended_only` names those that need a person who could say no.

    Raises: ConfigError when two tools have one name.
    """

    def __init__(
        self,
        tools: Iterable[Tool],
        workspace: Path,
        *,
        timeout: float = 60.0,
        in_groups: Collection[str] = (),
        attended_only: Collection[str] = (),
    ) -> None:
        self._tools: dict[str, Tool] = {}
        for tool in tools:
            if tool.name in self._tools:
                raise ConfigError(f"Two tools are called {tool.name!r}; remove or rename one.")
            self._tools[tool.name] = tool
        self._workspace = workspace
        self._timeout = timeout
        every = tuple(map(_spec, sorted(self._tools.values(), key=lambda tool: tool.name)))
        public = tuple(spec for spec in every if spec.name in in_groups)
        self._specs = {(Chat.DIRECT, True): every, (Chat.GROUP, True): public}
        for chat in Chat:
            here = self._specs[chat, True]
            self._specs[chat, False] = tuple(spec for spec in here if spec.name not in attended_only)
        self._lookers = {
            chat: tuple(spec for spec in self._specs[chat, False] if self.replayable(spec.name))
            for chat in Chat
        }

    def specs(self, chat: Chat, *, attended: bool = True, looks_only: bool = False) -> Sequence[ToolSpec]:
        """Return the tools of such a conversation by name; always the same object."""
        return self._lookers[chat] if looks_only else self._specs[chat, attended]

    def replayable(self, name: str) -> bool:
        """Return whether a call may run again after a crash; an unknown tool has no effect at all."""
        tool = self._tools.get(self._known(name))
        return tool is None or tool.replay is Replay.SAFE

    async def call(self, call: ToolCall, context: ToolContext) -> ToolEntry:
        """Run one call; whatever happens becomes its result. Only CancelledError comes out."""
        try:
            text = _BROKEN.sub("\ufffd", await self._run(call, context)) or "(no output)"
        except ToolError as error:
            return _failed(call, str(error))
        except Exception as error:
            log.exception("Tool %s failed", call.name)
            return _failed(call, f"{type(error).__name__}: {_plain(error)}")
        if len(text) > MAX_RESULT:
            text = await self._shorten(text, call)
        return ToolEntry(call.id, call.name, text)

    async def _run(self, call: ToolCall, context: ToolContext) -> str:
        tool = self._choose(call.name, context)
        if call.problem:
            raise ToolError(
                f"the arguments of {call.name} were not valid JSON ({call.problem}). "
                "Nothing was run; send the call again."
            )
        size = len(json.dumps(call.args, ensure_ascii=False).encode("utf-8", "replace"))
        if size > MAX_ARGUMENTS:
            raise ToolError(
                f"the arguments of {call.name} have {size} bytes, at most {MAX_ARGUMENTS} are possible. "
                "Nothing was run; do it in smaller parts."
            )
        given = _IMPLIED.get(call.name, {}) | call.args
        args = arguments(_renamed(given, tool.parameters), tool.parameters)
        try:
            async with asyncio.timeout(self._timeout) as limit:
                return await tool(args, context)
        except TimeoutError:
            if not limit.expired():
                raise
            raise ToolError(
                f"{call.name} gave no answer within {self._timeout:g} seconds and was stopped. "
                "It may have had an effect; check before you try again."
            ) from None

    def _choose(self, name: str, context: ToolContext) -> Tool:
        tool = self._tools.get(self._known(name))
        here = [
            spec.name
            for spec in self.specs(context.chat, attended=context.attended, looks_only=context.looks_only)
        ]
        if tool is None:
            near = difflib.get_close_matches(name, here, n=3)
            hint = f" Did you mean {' or '.join(map(repr, near))}?" if near else ""
            raise ToolError(f"unknown tool {name[:100]!r}.{hint} Tools here: {', '.join(here) or 'none'}.")
        if tool.name not in here:
            where = f"in a {context.chat} conversation" if context.attended else "when nobody is there"
            raise ToolError(f"the tool {tool.name!r} is not available {where}.")
        return tool

    def _known(self, name: str) -> str:
        return name if name in self._tools else _TOOL_NAMES.get(name, name)

    async def _shorten(self, text: str, call: ToolCall) -> str:
        """Keep both ends, and the whole in a file (session-10)."""
        digest = hashlib.sha256(text.encode()).hexdigest()[:8]
        path = f"{RESULTS}/{_UNFIT_FOR_A_NAME.sub('_', call.id)[:80]}-{digest}.txt"
        try:
            await asyncio.to_thread(_store, self._workspace, path, text)
            where = f"the full text is in {path}"
        except ToolError:
            log.exception("A result of tool %s could not be stored", call.name)
            where = "the full text could not be stored"
        left = len(text) - _HEAD - _TAIL
        return (
            f"{text[:_HEAD]}\n\n[{left} of {len(text)} characters left out here; {where}]\n\n{text[-_TAIL:]}"
        )


def _store(workspace: Path, path: str, text: str) -> None:
    save(workspace, path, text.encode())
    prune(workspace, RESULTS, MAX_STORED)


def _spec(tool: Tool) -> ToolSpec:
    return ToolSpec(tool.name, tool.description, tool.parameters)


def _failed(call: ToolCall, text: str) -> ToolEntry:
    return ToolEntry(call.id, call.name, _BROKEN.sub("\ufffd", f"Error: {text}")[:MAX_ERROR], is_error=True)


def _plain(error: Exception) -> str:
    """Return an exception's text; an OSError's would name the host's paths."""
    return reason(error) if isinstance(error, OSError) else str(error)


def _renamed(args: Mapping[str, Json], schema: Mapping[str, Json]) -> JsonObject:
    """Give arguments the names that the tool knows, where only a habit stands between."""
    properties: Mapping[str, Json] = schema.get("properties", {})
    result: JsonObject = {name: value for name, value in args.items() if name in properties}
    for name, value in args.items():
        snake = _HUMP.sub("_", name).lower()
        meant = next((each for each in (snake, _ARGUMENT_NAMES.get(snake)) if each in properties), name)
        result.setdefault(meant or name, value)
    return result
