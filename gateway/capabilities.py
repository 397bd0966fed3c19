"""Tools and skills as data: kept as rows, switched and bound by people, in force from the next turn on."""

from __future__ import annotations

import asyncio
import functools
import logging
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from sqlalchemy.engine import Connection

from gateway.clock import Clock
from gateway.errors import ConfigError, GatewayError
from gateway.grants import Binding, Grants, Sort, grants
from gateway.skills import Skill, Skills, Snapshot
from gateway.skills.declared import Declared
from gateway.skills.packages import Packages
from gateway.store import capabilities as store
from gateway.store.capabilities import Capability
from gateway.store.engine import Database
from gateway.tools.base import Group, Tool
from gateway.tools.box import Toolbox
from gateway.tools.plugins import Plugins, load_plugins
from gateway.tools.policy import ALIASES, Denial
from gateway.tools.schema import FunctionTool
from gateway.types import JsonObject, Situation

BUILT_IN = frozenset({"", "conversations", "media"})
"""Sources of tools that ship with the program, as the toolbox names them."""

AGAIN = 0.5
"""Seconds for which a look at what other processes have changed counts."""

PAGE = 200
"""Rows that are asked for at once."""

ACTIONS = ("enable", "disable", "bind", "unbind", "remove")

_USER = re.compile(r"[a-z][a-z0-9_-]*:[^:\s*]+")

log = logging.getLogger(__name__)


class Shelf(Protocol):
    """The tools that skills bring along."""

    def tools(self) -> Sequence[Tool]: ...

    def find(self, agent: str, name: str) -> Declared | None: ...


async def _nothing_to_see() -> None:
    return


@dataclass(slots=True, kw_only=True)
class Capabilities:
    """What there is, and who has it.

    `skills` are those of each agent, `main` among them; `packages` returns the installed ones. `watch` looks
    at the disk. `tools` and `shelf` are None where nobody knows the tools: then only what is known of them
    counts. `whole` is False where other tools may be there than `tools`, as beside a gateway that has asked
    MCP servers.
    """

    db: Database
    clock: Clock
    skills: Mapping[str, Skills]
    packages: Callable[[], Packages]
    plugins: Plugins = field(default_factory=Plugins)
    watch: Callable[[], Awaitable[None]] = _nothing_to_see
    shelf: Shelf | None = None
    tools: Toolbox | None = None
    whole: bool = True
    grants: Grants = field(default_factory=Grants, init=False)
    _seen: tuple[tuple[Snapshot, ...], int] = field(default=((), -1), init=False)
    _brought: tuple[tuple[Snapshot, ...], Sequence[Tool]] = field(default=((), ()), init=False)
    _version: str = field(default="", init=False)
    _read: float = field(default=float("-inf"), init=False)
    _lists: dict[tuple[int, frozenset[str]], tuple[Snapshot, str]] = field(default_factory=dict, init=False)

    async def take_in(self) -> None:
        """Add the tools of other packages, once, when all others are there."""
        assert self.tools is not None
        taken = {tool.name for _, tool in self.tools.listed()}
        self.plugins = await asyncio.to_thread(load_plugins, taken.union(ALIASES))
        if self.plugins.found:
            self.tools.give("plugins", self.plugins.tools)

    async def look(self) -> None:
        """See what has changed since the last turn began. Never raises: a turn goes on without news."""
        await self.watch()
        try:
            self._offer()
            if await self._mirror() or await self._is_outdated():
                await self._load()
        except GatewayError as error:
            log.warning("capabilities.unread", extra={"problem": str(error)})

    def denial(self, tool: Tool, situation: Situation) -> Denial | None:
        """Return what was switched or bound so that a turn has not this tool."""
        why = self.grants.problem(Sort.TOOL, tool.name, situation)
        if not why and tool.group is Group.SKILLS and self.shelf and "__" in tool.name:
            skill = tool.name.partition("__")[0]
            has = self.shelf.find(situation.agent, tool.name)
            why = self.grants.problem(Sort.SKILL, skill, situation) if has else "this agent has not the skill"
        return Denial(why, f"crayfish tools show {tool.name}") if why else None

    def available(self, skills: Skills, situation: Situation) -> str:
        """Return `<available_skills>` for a turn, the same object as long as it is the same."""
        snapshot = skills.current
        if not self.grants.lists:
            return snapshot.xml
        names = frozenset(skill.name for skill in snapshot.skills if self._has(skill, situation))
        if len(names) == len(snapshot.skills):
            return snapshot.xml
        kept = self._lists.get((id(skills), names))
        if kept is None or kept[0] is not snapshot:
            kept = self._lists[id(skills), names] = snapshot, skills.listed(names)
        return kept[1]

    def explain(self, situation: Situation) -> str:
        """Say which tools and skills a chat has, and to the owner in private why not the others."""
        found = self.tools.explain(situation) if self.tools else ()
        here = [name for name, denial in found if denial is None]
        current = self.skills.get(situation.agent, self.skills["main"]).current
        usable = [one for one in current.skills if one.eligible and one.shown]
        skills = [one.name for one in usable if self._has(one, situation)]
        lines = [f"Tools here: {', '.join(here) or 'none'}", f"Skills here: {', '.join(skills) or 'none'}"]
        if situation.is_private:
            missing = [f"{name}: {denial.reason}{_set_by(denial)}" for name, denial in found if denial]
            off = [f"{one.name}: {one.reasons[0]}" for one in current.skills if not one.eligible]
            unlisted = [
                f"{one.name}: {self._why(one, situation)}" for one in usable if one.name not in skills
            ]
            lines += ["", "Not here:", *missing, *unlisted, *off] if missing or unlisted or off else []
        return "\n".join(lines)

    async def listed(self, sort: str, limit: int, offset: int) -> JsonObject:
        """Return `{"capabilities", "total", "problems"}`: a page of the rows of a sort, of all for ""."""
        await self._refresh()
        rows, bound = await self.db.read(lambda tx: (store.listed(tx), store.bindings(tx)))
        wanted = [one for one in rows if sort in ("", one.sort)]
        return {
            "capabilities": [self._as_json(one, bound) for one in wanted[offset : offset + limit]],
            "total": len(wanted),
            "problems": list(self.plugins.problems),
        }

    async def act(self, action: str, name: str, sort: str, agent: str, user: str) -> JsonObject:
        """Switch, bind or remove one; return `{"text": …}`, or `{"problem": …}` when it can't be done."""
        try:
            await self._refresh()
            one = await self._chosen(name, sort)
            match action:
                case "enable" | "disable":
                    text = await self._switch(one, on=action == "enable")
                case "bind" | "unbind":
                    text = await self._bind(one, agent, user, on=action == "bind")
                case "remove":
                    text = await self._remove(one)
                case _:
                    raise ConfigError(f"{action!r} is none of {', '.join(ACTIONS)}")
        except ConfigError as error:
            return {"problem": str(error)}
        await self._load()
        return {"text": text}

    def _has(self, skill: Skill, situation: Situation) -> bool:
        return not self._why(skill, situation)

    def _why(self, skill: Skill, situation: Situation) -> str:
        return self.grants.problem(Sort.SKILL, skill.name, situation)

    def _snapshots(self) -> tuple[Snapshot, ...]:
        return tuple(one.current for one in self.skills.values())

    def _offer(self) -> None:
        """Give the toolbox the tools of the skills that there are now."""
        now, (before, had) = self._snapshots(), self._brought
        if self.tools is None or self.shelf is None or _same(now, before):
            return
        brought = self.shelf.tools()
        if brought or had:
            self.tools.give("skills", brought)
        self._brought = now, brought

    async def _mirror(self) -> bool:
        """Write down what there is, if it is not the same as before; return whether rows have changed."""
        snapshots, changes = self._snapshots(), self.tools.changes if self.tools else 0
        if changes == self._seen[1] and _same(snapshots, self._seen[0]):
            return False
        off = await asyncio.to_thread(self.packages().off)
        found = [*self._tool_rows(), *self._skill_rows(off)]
        whole = list(Sort) if self.tools and self.whole else [Sort.SKILL]
        changed = await self.db.write(lambda tx: store.mirror(tx, found, whole), durable=False)
        self._seen = snapshots, changes
        return changed

    def _tool_rows(self) -> Sequence[Capability]:
        return [self._tool_row(source, tool) for source, tool in (self.tools.listed() if self.tools else ())]

    def _tool_row(self, source: str, tool: Tool) -> Capability:
        plugin = self.plugins.get(tool)
        entry = source
        if plugin is not None:
            entry = f"{plugin.package}: {plugin.entry}"
        elif source in BUILT_IN and isinstance(tool, FunctionTool):
            entry = f"{tool.run.__module__}:{tool.name}"
        return Capability(
            sort=Sort.TOOL,
            name=tool.name,
            entry=entry,
            description=tool.description,
            version=plugin.version if plugin else "",
            system=source in BUILT_IN,
        )

    def _skill_rows(self, off: frozenset[str]) -> Sequence[Capability]:
        found: dict[str, Capability] = {}
        for skill in (skill for snapshot in self._snapshots() for skill in snapshot.skills):
            row = Capability(
                sort=Sort.SKILL,
                name=skill.name,
                entry=str(skill.file),
                description=skill.description,
                version=skill.version,
                sha256=skill.receipt.sha256 if skill.receipt else skill.sha256,
                system=skill.source == "bundled",
                active=skill.name not in off,
            )
            found.setdefault(skill.name, row)
        return tuple(found.values())

    async def _is_outdated(self) -> bool:
        """Return whether another process has changed rows; one that has the database alone need not ask."""
        now = self.clock.now()
        if self._version and (self.db.exclusive or now - self._read < AGAIN):
            return False
        self._read = now
        return await self.db.read(store.version) != self._version

    async def _load(self) -> None:
        def read(tx: Connection) -> tuple[str, list[Capability], list[Binding]]:
            return store.version(tx), store.listed(tx), store.bindings(tx)

        version, rows, bound = await self.db.read(read)
        gone = [one for one in rows if not one.active or one.deleted_at is not None]
        now = grants([(one.sort, one.name) for one in gone if one.sort is Sort.TOOL], bound)
        self._version = version
        if now != self.grants:
            self.grants = now
            self._lists.clear()
            if self.tools:
                self.tools.judge_again()

    async def _refresh(self) -> None:
        """Look at the disk now, and write down what is there."""
        for one in self.skills.values():
            await asyncio.to_thread(one.snapshot)
        self._offer()
        await self._mirror()

    async def _chosen(self, name: str, sort: str) -> Capability:
        rows = await self.db.read(store.listed)
        found = [one for one in rows if one.name == name and sort in ("", one.sort)]
        if not found:
            raise ConfigError(f"there is no tool or skill {name!r}; `crayfish tools list` shows them")
        if len(found) > 1:
            raise ConfigError(f"{name!r} is a tool and a skill; say which with --kind")
        return found[0]

    async def _switch(self, one: Capability, *, on: bool) -> str:
        if one.sort is Sort.TOOL:
            await self.db.write(functools.partial(store.switch, sort=one.sort, name=one.name, on=on))
            return f"{one.name} is {'on' if on else 'off'}"
        if not any(found.get(one.name) for found in self._snapshots()):
            raise ConfigError(f"{one.name} is not on the disk; `crayfish skills rollback` brings it back")
        await self._switch_skill(one.name, on=on)
        if on and (reasons := self._reasons(one.name)):
            return f"{one.name} is switched on, but {'; '.join(reasons)}"
        return f"{one.name} is {'on' if on else 'off'}"

    async def _switch_skill(self, name: str, *, on: bool) -> None:
        """Switch where `crayfish skills` does, so that both always say the same."""
        await asyncio.to_thread(self.packages().switch, name, on=on)
        await self._refresh()

    def _reasons(self, name: str) -> Sequence[str]:
        found = [skill for one in self._snapshots() if (skill := one.get(name))]
        return () if any(skill.eligible for skill in found) else [why for one in found for why in one.reasons]

    async def _bind(self, one: Capability, agent: str, user: str, *, on: bool) -> str:
        if not agent and not user:
            raise ConfigError("say for whom: --agent NAME, --user CHANNEL:ID, or both")
        if agent and agent not in self.skills:
            raise ConfigError(f"there is no agent {agent!r}; there are {', '.join(self.skills)}")
        if user and not _USER.fullmatch(user):
            raise ConfigError(f"{user!r} must be channel:id, as `crayfish pairing list` shows both")
        binding = Binding(one.sort, one.name, agent, user)
        whose = " with ".join(filter(None, (user, agent)))
        if on:
            await self.db.write(functools.partial(store.bind, one=binding))
            return f"{one.name} is on the list of {whose}; what is not on it, {whose} has not"
        if not await self.db.write(functools.partial(store.unbind, one=binding)):
            raise ConfigError(f"{one.name} is not on the list of {whose}")
        return f"{one.name} is no longer on the list of {whose}"

    async def _remove(self, one: Capability) -> str:
        if one.system:
            raise ConfigError(
                f"{one.name} comes with Crayfish and can't be removed; `crayfish tools disable {one.name}`"
            )
        again = "tools enable"
        if one.sort is Sort.SKILL:
            packages = self.packages()
            if one.name in await asyncio.to_thread(packages.installed):
                await asyncio.to_thread(packages.remove, one.name)
                again = "skills rollback"
            else:
                await self._switch_skill(one.name, on=False)
        now = self.db.now()
        await self.db.write(functools.partial(store.remove, sort=one.sort, name=one.name, now=now))
        await self._refresh()
        return f"{one.name} is removed; `crayfish {again} {one.name}` brings it back"

    def _as_json(self, one: Capability, bound: Sequence[Binding]) -> JsonObject:
        bindings = [binding for binding in bound if (binding.sort, binding.name) == (one.sort, one.name)]
        return {
            "kind": one.sort,
            "name": one.name,
            "entry": one.entry,
            "description": one.description,
            "version": one.version,
            "sha256": one.sha256,
            "system": one.system,
            "active": one.active,
            "here": one.here,
            "deleted": one.deleted_at is not None,
            "reasons": list(self._reasons(one.name)) if one.sort is Sort.SKILL and one.here else [],
            "bindings": [{"agent": binding.agent, "user": binding.user} for binding in bindings],
        }


def _same(some: Sequence[Snapshot], others: Sequence[Snapshot]) -> bool:
    return len(some) == len(others) and all(map(_is, some, others))


def _is(one: Snapshot, other: Snapshot) -> bool:
    return one is other


def _set_by(denial: Denial) -> str:
    return f" ({denial.setting})" if denial.setting else ""


class Listing(Protocol):
    """What can be asked for pages of rows."""

    async def tools(self, kind: str, limit: int, offset: int) -> JsonObject: ...


async def everything(control: Listing, kind: str) -> JsonObject:
    """Return all pages as one."""
    rows: list[JsonObject] = []
    while True:
        page = await control.tools(kind, PAGE, len(rows))
        rows += page["capabilities"]
        if not page["capabilities"] or len(rows) >= page["total"]:
            return {"capabilities": rows, "problems": page["problems"]}


def as_text(report: JsonObject) -> str:
    """Return the rows of a listing for people."""
    lines = [_line(one) for one in report["capabilities"]]
    lines += [f"problem: {one}" for one in report["problems"]]
    return "\n".join(lines) or "there are none"


def in_full(one: JsonObject) -> str:
    """Return all of one row for people."""
    bindings = [" with ".join(filter(None, (each["user"], each["agent"]))) for each in one["bindings"]]
    lines = [
        _line(one),
        f"  from: {one['entry']}",
        f"  version: {one['version']}" if one["version"] else "",
        f"  sha256: {one['sha256']}" if one["sha256"] else "",
        *(f"  off: {reason}" for reason in one["reasons"]),
        f"  on the lists of: {', '.join(bindings)}" if bindings else "",
    ]
    return "\n".join(filter(None, lines))


def _line(one: JsonObject) -> str:
    state = "removed" if one["deleted"] else "gone" if not one["here"] else "on" if one["active"] else "off"
    if state == "on" and one["reasons"]:
        state = "off"
    marks = [
        one["kind"],
        state,
        *(["system"] if one["system"] else []),
        *(["bound"] if one["bindings"] else []),
    ]
    text = one["description"] if len(one["description"]) <= 100 else f"{one['description'][:99]}…"
    return f"{one['name']} ({', '.join(marks)}): {text}"
