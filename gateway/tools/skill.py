"""Tools around skills: those that skills bring along, and `skill_install`."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from gateway.errors import ConfigError, ToolDenied, ToolError
from gateway.skills import Skill, Skills, audit
from gateway.skills.archive import MAX_TOTAL
from gateway.skills.audit import Report
from gateway.skills.declared import Declared
from gateway.skills.packages import Packages
from gateway.tools.base import Ask, Group, ToolContext
from gateway.tools.exec import Command, Runner, SkillHome, SkillOf
from gateway.tools.files import load, mentions_others
from gateway.tools.paths import reach
from gateway.tools.schema import FunctionTool, tool
from gateway.types import Json, Kind, Replay

SCRIPTS = frozenset({".py", ".sh", ".ps1"})
"""Ends of names of scripts; whatever has a run bit is a program too (seed 002)."""

BETWEEN = "__"
"""What stands between the name of a skill and that of its tool."""

_MARGIN = 30.0


def home_of(skills: Sequence[Skills]) -> SkillOf:
    """Return what says which skill a file belongs to, and what its programs get."""

    def find(file: Path) -> SkillHome | None:
        for one in skills:
            if skill := one.current.home_of(file):
                return _home(one, skill, file)
        return None

    return find


def _home(skills: Skills, skill: Skill, file: Path) -> SkillHome | None:
    # What is not a program, such as SKILL.md, is for reading: nothing secret goes along (attack secrets-009).
    is_program = file.suffix in SCRIPTS or (file.is_file() and os.access(file, os.X_OK))
    if skill.eligible:
        return SkillHome(skill.folder, skills.environment(skill) if is_program else {})
    if not is_program:
        return None
    return SkillHome(
        skill.folder, problem=f"the skill {skill.name} is off, because {'; '.join(skill.reasons)}"
    )


@dataclass(frozen=True, slots=True)
class Shelf:
    """The tools that skills bring along. `skills` are those of each agent, `main` among them."""

    runner: Runner
    skills: Mapping[str, Skills]

    def tools(self) -> Sequence[FunctionTool]:
        """Return the tools of all skills that can be used now, `<skill>__<tool>` each."""
        made: dict[str, FunctionTool] = {}
        for one in self.skills.values():
            for skill in one.current.skills:
                for declared in skill.tools if skill.eligible else ():
                    name = f"{skill.name}{BETWEEN}{declared.name}"
                    if name not in made and len(name) <= 64:
                        made[name] = self._tool(name, skill.name, declared)
        return tuple(made.values())

    def find(self, agent: str, name: str) -> Declared | None:
        """Return what a tool of an agent's skills does now, None if the agent has not this skill."""
        skill, _, tool = name.partition(BETWEEN)
        found = self.skills.get(agent, self.skills["main"]).current.get(skill)
        if found is None or not found.eligible:
            return None
        return next((one for one in found.tools if one.name == tool), None)

    def _tool(self, name: str, skill: str, declared: Declared) -> FunctionTool:
        usual = float(self.runner.settings.timeout)

        async def asks(context: ToolContext, /, **args: Json) -> Ask | None:
            return await self.runner.check(self._command(name, context, args), context)

        async def run(context: ToolContext, /, **args: Json) -> str:
            command = self._command(name, context, args)
            return await self.runner.run(command, context, declared.timeout or usual)

        return FunctionTool(
            name=name,
            description=f"{declared.description} (Of the skill {skill}.)",
            parameters=declared.parameters,
            replay=Replay.ONCE,
            run=run,
            group=Group.SKILLS,
            untrusted=lambda args: declared.network or mentions_others(json.dumps(args)),
            private=True,
            timeout=(declared.timeout or usual) + _MARGIN,
            asks=asks,
        )

    def _command(self, name: str, context: ToolContext, args: Mapping[str, Json]) -> Command:
        """Return what a call runs: words, each as it is. Raises: ToolError."""
        found = self.find(context.agent, name)
        if found is None:
            raise ToolError(f"{name} is gone: its skill was changed or switched off.")
        return Command(
            shlex.join(found.words(args)),
            reach="network" if found.network else "workspace",
            stdin=json.dumps(args, ensure_ascii=False) if found.takes_json else "",
            ask="the skill wants a person to allow each call" if found.asks else "",
        )


def install_tool(packages: Callable[[], Packages]) -> FunctionTool:
    """Return the tool that installs a skill which the owner has sent, or the bot has drafted.

    `packages` returns the installed skills, with the names that are taken now.
    """

    async def asks(context: ToolContext, path: str, replace: bool = False) -> Ask:  # noqa: FBT001, FBT002 - the model names its arguments
        _insist_on_owner(context)
        report = await asyncio.to_thread(_inspect, packages(), context.folder, path, replace=replace)
        bad = f", which looks bad ({len(report.findings)})" if report.findings else ""
        title = f"{'Replace' if replace else 'Install'} the skill {report.name} {report.version}{bad}"
        # Only the beginning of a long question is shown.
        return Ask(title, audit.as_text(report, bad_first=True), report.sha256)

    @tool(Replay.ONCE, Group.SKILLS, timeout=120.0, asks=asks)
    async def skill_install(context: ToolContext, path: str, replace: bool = False) -> str:  # noqa: FBT001, FBT002 - the model names its arguments
        """Install a skill that the owner sent or you drafted.

        path: zip or folder
        """
        _insist_on_owner(context)
        if not context.approved:
            raise ToolDenied("it was not installed: the owner must allow it")
        return await asyncio.to_thread(_install, packages(), context, path, replace=replace)

    return skill_install


def _insist_on_owner(context: ToolContext) -> None:
    """Refuse everybody else, and what nobody asked for just now (attack zip-025)."""
    if not context.is_owner or context.kind is not Kind.MESSAGE:
        raise ToolDenied("only the owner, in their private chat, has skills installed")


def _inspect(packages: Packages, folder: Path, path: str, *, replace: bool) -> Report:
    with _source(folder, path) as source:
        report = packages.inspect(source)
        packages.check_name(report.name, replace=replace)
        return report


def _install(packages: Packages, context: ToolContext, path: str, *, replace: bool) -> str:
    with _source(context.folder, path) as source:
        receipt = packages.install(
            source, origin=str(context.folder / path), approved=context.approved, replace=replace
        )
    assert receipt is not None
    return f"{receipt.name} {receipt.version} is installed; it can be used from the next message on."


@contextmanager
def _source(folder: Path, path: str) -> Iterator[Path]:
    """Yield a zip or a folder of the workspace, the zip as a copy that nobody changes. Raises: ToolError."""
    with reach(folder, path) as place:
        real = folder / place.path
    shown = PurePosixPath(path).name
    with tempfile.TemporaryDirectory(prefix="crayfish-skill-") as temporary:
        try:
            if real.is_dir():
                yield real
            else:
                copy = Path(temporary) / (real.name or "skill.zip")
                copy.write_bytes(load(folder, path, MAX_TOTAL))
                yield copy
        except ConfigError as error:
            text = str(error).replace(f"{temporary}/", "").replace(str(real), shown)
            raise ToolError(f"{text}. Nothing was installed.") from error
