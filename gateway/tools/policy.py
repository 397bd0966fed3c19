"""Which tools a turn has; pure.

Layers narrow in a fixed order: the profile with what is allowed beside it, the standing of who asks, the
conversation, the sender, the agent. What is denied anywhere is gone, under each of its names.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TypeAlias

from gateway.config import AgentTools, ToolLayer, ToolSettings
from gateway.tools.base import Group, Tool
from gateway.types import INNER, Kind, Replay, Situation, Standing

PROFILES: Mapping[str, tuple[str, ...]] = {
    "minimal": ("todo",),
    "coding": (
        "group:fs",
        "group:runtime",
        "group:web",
        "group:sessions",
        "group:memory",
        "group:automation",
        "group:plan",
        "group:skills",
    ),
    "messaging": ("group:messaging", "group:sessions", "group:plan"),
    "local": ("group:fs", "group:web", "group:runtime", "group:memory", "group:plan", "group:skills"),
    "full": ("*",),
}
"""What `[tools] profile` stands for (seed 000)."""

ALIASES: Mapping[str, str] = {
    "bash": "exec",
    "run_command": "exec",
    "shell": "exec",
    "read_file": "read",
    "write_file": "write",
    "edit_file": "edit",
    "str_replace": "edit",
    "ls": "list_dir",
    "list_directory": "list_dir",
    "grep": "search",
    "todo_write": "todo",
    "TodoWrite": "todo",
    "send_message": "message",
    "sessions_spawn": "spawn",
    "AddOrUpdateCronTask": "cron",
    "RemoveCronTask": "cron",
}
"""What models and configurations call these tools from habit (seeds 001, 002, 004)."""

CHILDLESS = frozenset({"spawn", "message", "cron", "sessions", "skill_install"})
"""What a sub-agent never has (agent 4.5)."""

OWNERS = frozenset({"skill_install"})
"""What is for the owner in private only, whatever the lists say (attack zip-025)."""

LIGHT = frozenset({Group.FS, Group.MEMORY, Group.WEB, Group.PLUGINS})
"""What a checklist is gone through with in a light heartbeat; each tool costs tokens at each beat."""


@dataclass(frozen=True, slots=True)
class Denial:
    """Why a tool is not there: the setting that would change it, "" if none would."""

    reason: str
    setting: str = ""


ToolGate: TypeAlias = Callable[[Tool, Situation], Denial | None]
"""Returns what keeps a tool away from a turn, None if nothing does."""


def _open(_tool: Tool, _situation: Situation) -> Denial | None:
    return None


@dataclass(frozen=True, slots=True)
class ToolPolicy:
    """Decides by the settings of all agents and those of each; `agents` maps a name to its own layer.

    `gate` is the last word: what was switched and bound while the gateway runs. It only narrows. With `light`
    heartbeats have only the groups `LIGHT`.
    """

    settings: ToolSettings = field(default_factory=ToolSettings)
    agents: Mapping[str, AgentTools] = field(default_factory=dict)
    gate: ToolGate = _open
    light: bool = False

    def allows(self, tool: Tool, situation: Situation) -> bool:
        """Return whether a turn has a tool."""
        return self.denial(tool, situation) is None

    def denial(self, tool: Tool, situation: Situation) -> Denial | None:
        """Return the first gate that keeps a tool away, None if a turn has it."""
        for where, layer in self._denying(situation):
            if _names(layer.deny, tool):
                return Denial("it is denied", f"{where}.deny")
        if not _profiled(self.settings, tool):
            return Denial(f"the profile {self.settings.profile} has it not", "tools.profile")
        own = self.agents.get(situation.agent)
        if own is not None and not _profiled(own, tool):
            return Denial("this agent has it not", f"agents.{situation.agent}.tools.profile")
        if tool.name in OWNERS and not situation.is_private:
            return Denial("only the owner has it, in their private chat")
        if situation.kind is Kind.SUBAGENT and situation.address.channel in INNER and tool.name in CHILDLESS:
            return Denial("a sub-agent never has it")
        where, allowed = self._allowing(situation)
        if allowed is not None and not _names(allowed, tool):
            return Denial(f"it is not for {_READERS[situation.standing]}", f"{where}.allow")
        if situation.kind is Kind.HEARTBEAT and tool.replay is not Replay.SAFE:
            return Denial("a heartbeat only looks")
        if situation.kind is Kind.HEARTBEAT and self.light and tool.group not in LIGHT:
            return Denial("a light heartbeat has it not", "heartbeat.light")
        unattended = self.settings.unattended.allow or ()
        if not situation.may_act and tool.replay is not Replay.SAFE and not _names(unattended, tool):
            return Denial("nobody is there who wants it done", "tools.unattended.allow")
        return self.gate(tool, situation)

    def _denying(self, situation: Situation) -> Iterable[tuple[str, ToolLayer | AgentTools]]:
        yield "tools", self.settings
        standing = _STANDINGS.get(situation.standing)
        if standing is not None:
            yield f"tools.{standing}", getattr(self.settings, standing)
        yield from self._conversations(situation)
        yield from self._senders(situation)
        if situation.agent in self.agents:
            yield f"agents.{situation.agent}.tools", self.agents[situation.agent]

    def _allowing(self, situation: Situation) -> tuple[str, Sequence[str] | None]:
        """Return the most specific list, None if all is allowed that the rest allows."""
        for where, layer in [*self._senders(situation), *self._conversations(situation)]:
            if layer.allow is not None:
                return where, layer.allow
        standing = _STANDINGS.get(situation.standing)
        if standing is None:
            return "", None
        layer = getattr(self.settings, standing)
        return f"tools.{standing}", layer.allow or ()

    def _conversations(self, situation: Situation) -> Iterable[tuple[str, ToolLayer]]:
        """Return the layers of a conversation, the most specific first: thread, chat, channel."""
        place = situation.place
        chat = f"{place.channel}:{place.chat}"
        for key in (f"{chat}:{place.thread}", chat, place.channel):
            if key in self.settings.conversations:
                yield f'tools.conversations."{key}"', self.settings.conversations[key]

    def _senders(self, situation: Situation) -> Iterable[tuple[str, ToolLayer]]:
        key = f"{situation.place.channel}:{situation.sender.id}"
        if situation.sender.id and key in self.settings.senders:
            yield f'tools.senders."{key}"', self.settings.senders[key]


_STANDINGS: Mapping[Standing, str] = {
    Standing.PERSON: "people",
    Standing.GROUP: "groups",
    Standing.GUEST: "guests",
}
_READERS: Mapping[Standing, str] = {
    Standing.OWNER: "this chat",
    Standing.PERSON: "people whom the owner let in",
    Standing.GROUP: "groups",
    Standing.GUEST: "guests",
}


def _profiled(settings: AgentTools, tool: Tool) -> bool:
    return _names((*PROFILES[settings.profile], *settings.allow), tool)


def _names(entries: Sequence[str], tool: Tool) -> bool:
    return any(_matches(entry, tool.name, tool.group) for entry in entries)


@functools.lru_cache(maxsize=4096)
def _matches(entry: str, name: str, group: Group) -> bool:
    """Return whether an entry of a list means a tool: its name, an alias, a pattern, or `group:…`."""
    entry = entry.strip()
    if entry.lower().startswith("group:"):
        return entry[6:].lower() == group
    meant = ALIASES.get(entry, entry)
    return fnmatchcase(name.lower(), meant.lower())
