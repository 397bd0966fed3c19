"""The tools a conversation has, and the one place where they are called."""

from __future__ import annotations

import asyncio
import difflib
import hashlib
import json
import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from gateway.errors import ConfigError, ToolDenied, ToolError
from gateway.redact import Redactor
from gateway.tools.base import Ask, Output, Tool, ToolContext
from gateway.tools.files import prune, save
from gateway.tools.paths import reason
from gateway.tools.policy import ALIASES, Denial, ToolPolicy
from gateway.tools.schema import arguments
from gateway.types import Json, JsonObject, Replay, Situation, ToolCall, ToolEntry, ToolSpec

MAX_ARGUMENTS = 262_144
MAX_ERROR = 2_000
MAX_RESULT = 16_000
MAX_STORED = 200
MAX_SITUATIONS = 1024
RESULTS = ".crayfish/results"

_HEAD = 12_000
_TAIL = 3_500

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
    "cmd": "command",
    "cwd": "workdir",
    "working_directory": "workdir",
    "run_in_background": "background",
    "process_id": "id",
}
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_UNFIT_FOR_A_NAME = re.compile(r"[^A-Za-z0-9_-]+")
_BROKEN = re.compile(r"[\x00\ud800-\udfff]")

log = logging.getLogger(__name__)


class Toolbox:
    """All tools, and who may use which. `changes` counts how often there were others.

    `timeout` is the limit of one call in seconds, for tools that have none of their own. `redact` takes the
    secrets out of what they bring, before it is stored or seen (attack secrets-006).

    Raises: ConfigError when two tools have one name.
    """

    def __init__(
        self,
        tools: Iterable[Tool],
        *,
        timeout: float = 60.0,
        policy: ToolPolicy | None = None,
        redact: Redactor | None = None,
    ) -> None:
        self.changes = 0
        self._given: dict[str, dict[str, Tool]] = {}
        self._tools: dict[str, Tool] = {}
        self._timeout = timeout
        self._policy = policy or ToolPolicy()
        self._redact = redact or Redactor()
        self._specs: dict[tuple[str, ...], tuple[ToolSpec, ...]] = {}
        self._seen: dict[Situation, tuple[ToolSpec, ...]] = {}
        own = list(tools)
        names = [tool.name for tool in own]
        if twice := next((name for name in names if names.count(name) > 1), ""):
            raise ConfigError(f"Two tools are called {twice!r}; remove or rename one.")
        self.give("", own)

    def give(self, source: str, tools: Iterable[Tool]) -> None:
        """Replace what one source brings, from the next model call on; a name that is taken stays taken."""
        given = {tool.name: tool for tool in tools}
        self._given[source] = given
        found: dict[str, Tool] = {}
        for each in self._given.values():
            found = each | found
        self._tools = dict(sorted(found.items()))
        self.changes += 1
        self._specs.clear()
        self._seen.clear()

    def listed(self) -> Sequence[tuple[str, Tool]]:
        """Return every tool by name with its source, as `give` names it."""
        sources = {id(tool): source for source, given in self._given.items() for tool in given.values()}
        return [(sources[id(tool)], tool) for tool in self._tools.values()]

    def judge_again(self) -> None:
        """Forget who has what: what the policy goes by has changed."""
        self._seen.clear()

    def specs(self, situation: Situation) -> Sequence[ToolSpec]:
        """Return the tools of a turn by name; the same object as long as they are the same."""
        seen = self._seen.get(situation)
        if seen is None:
            here = [tool for tool in self._tools.values() if self._policy.allows(tool, situation)]
            names = tuple(tool.name for tool in here)
            seen = self._specs.setdefault(names, tuple(map(_spec, here)))
            if len(self._seen) >= MAX_SITUATIONS:
                self._seen.clear()
            self._seen[situation] = seen
        return seen

    def explain(self, situation: Situation) -> Sequence[tuple[str, Denial | None]]:
        """Return every tool by name with what keeps it away from a turn, None if nothing does."""
        return [(name, self._policy.denial(tool, situation)) for name, tool in self._tools.items()]

    def own_name(self, name: str) -> str:
        """Return what a tool is called that a model may call by another name from habit."""
        return name if name in self._tools else ALIASES.get(name, name)

    def replayable(self, name: str) -> bool:
        """Return whether a call may run again after a crash; an unknown tool has no effect at all."""
        tool = self._tools.get(self.own_name(name))
        return tool is None or tool.replay is Replay.SAFE

    def brings(self, call: ToolCall) -> tuple[bool, bool]:
        """Return whether the result of a call is what strangers wrote, and whether it is private."""
        tool = self._tools.get(self.own_name(call.name))
        return (False, False) if tool is None else (tool.taints(_meant(call, tool)), tool.private)

    async def check(self, call: ToolCall, context: ToolContext) -> Ask | ToolEntry | None:
        """Return what a person must allow before a call runs, or its result if it never will."""
        try:
            tool = self._choose(call.name, context)
            args = _arguments(call, tool)
        except ToolError:
            return None  # said when it is called
        try:
            return await tool.check(args, context)
        except ToolError as error:
            return self._failed(call, str(error))
        except Exception as error:
            log.exception("The check of tool %s failed", call.name)
            return self._failed(call, f"{type(error).__name__}: {_plain(error)}; nothing was run")

    async def call(self, call: ToolCall, context: ToolContext) -> ToolEntry:
        """Run one call; whatever happens becomes its result. Only CancelledError comes out."""
        try:
            output = await self._run(call, context)
        except ToolError as error:
            return self._failed(call, str(error))
        except Exception as error:
            log.exception("Tool %s failed", call.name)
            return self._failed(call, f"{type(error).__name__}: {_plain(error)}")
        text, attachments = (output, ()) if isinstance(output, str) else (output.text, output.attachments)
        # What takes longer than a moment is done where nobody waits for it.
        text = self._redact(text) if len(text) <= MAX_RESULT else await asyncio.to_thread(self._redact, text)
        text = _BROKEN.sub("\ufffd", text) or "(no output)"
        if len(text) > MAX_RESULT:
            text = await self._shorten(text, call, context)
        return ToolEntry(call.id, call.name, text, attachments=attachments)

    def _failed(self, call: ToolCall, problem: str) -> ToolEntry:
        text = _BROKEN.sub("\ufffd", f"Error: {self._redact(problem)}")
        return ToolEntry(call.id, call.name, text[:MAX_ERROR], is_error=True)

    async def _run(self, call: ToolCall, context: ToolContext) -> str | Output:
        tool = self._choose(call.name, context)
        args = _arguments(call, tool)
        seconds = tool.timeout or self._timeout
        try:
            async with asyncio.timeout(seconds) as limit:
                return await tool(args, context)
        except TimeoutError:
            if not limit.expired():
                raise
            raise ToolError(
                f"{call.name} gave no answer within {seconds:g} seconds and was stopped. "
                "It may have had an effect; check before you try again."
            ) from None

    def _choose(self, name: str, context: ToolContext) -> Tool:
        tool = self._tools.get(self.own_name(name))
        situation = context.situation
        here = [spec.name for spec in self.specs(situation)]
        if tool is None:
            near = difflib.get_close_matches(name, here, n=3)
            hint = f" Did you mean {' or '.join(map(repr, near))}?" if near else ""
            raise ToolError(f"unknown tool {name[:100]!r}.{hint} Tools here: {', '.join(here) or 'none'}.")
        if tool.name not in here:
            denial = self._policy.denial(tool, situation)
            why = f": {denial.reason}" if denial else ""
            raise ToolDenied(f"the tool {tool.name!r} is not available here{why}.")
        return tool

    async def _shorten(self, text: str, call: ToolCall, context: ToolContext) -> str:
        """Keep both ends, and the whole in a file (session-10)."""
        digest = hashlib.sha256(text.encode()).hexdigest()[:8]
        path = f"{RESULTS}/{_UNFIT_FOR_A_NAME.sub('_', call.id)[:80]}-{digest}.txt"
        try:
            await asyncio.to_thread(_store, context.folder, path, text)
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


def _arguments(call: ToolCall, tool: Tool) -> JsonObject:
    """Return what a tool gets. Raises: ToolError; nothing was run then."""
    if call.problem:
        raise ToolError(f"{call.name}: {call.problem}. It was not run; send the call again.")
    size = len(json.dumps(call.args, ensure_ascii=False).encode("utf-8", "replace"))
    if size > MAX_ARGUMENTS:
        raise ToolError(
            f"the arguments of {call.name} have {size} bytes, at most {MAX_ARGUMENTS} are possible. "
            "Nothing was run; do it in smaller parts."
        )
    return arguments(_meant(call, tool), tool.parameters)


def _meant(call: ToolCall, tool: Tool) -> JsonObject:
    """Return the arguments of a call under the names that the tool knows, not checked yet."""
    return _renamed(_IMPLIED.get(call.name, {}) | call.args, tool.parameters)


def _spec(tool: Tool) -> ToolSpec:
    return ToolSpec(tool.name, tool.description, tool.parameters)


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
