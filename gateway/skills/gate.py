"""Whether a skill can be used here: switches, operating system, programs, environment, configuration."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from gateway.config import SkillSettings
from gateway.skills.front import Front, metadata, names
from gateway.types import Json

_SYSTEMS = {"darwin": "macOS", "linux": "Linux", "win32": "Windows"}
_ALIASES = {"macos": "darwin", "mac": "darwin", "osx": "darwin", "windows": "win32"}


@dataclass(frozen=True, slots=True)
class Needs:
    """What a skill asks of its surroundings. `env` also holds the names that it can use but need not have."""

    systems: tuple[str, ...] = ()
    bins: tuple[str, ...] = ()
    any_bins: tuple[str, ...] = ()
    env: tuple[str, ...] = ()
    needed_env: tuple[str, ...] = ()
    primary_env: str = ""
    config: tuple[str, ...] = ()
    always: bool = False


def needs_of(front: Front) -> Needs:
    """Read the requirements of a head (agent 7.1)."""
    own = metadata(front)
    requires = own.get("requires")
    asked: Mapping[str, Json] = requires if isinstance(requires, dict) else {}
    primary = own.get("primaryEnv")
    primary = primary if isinstance(primary, str) else ""
    needed = names(asked.get("env"))
    variables = own.get("envVars")
    listed = variables if isinstance(variables, list) else []
    optional = [str(one.get("name", "")) if isinstance(one, dict) else str(one) for one in listed]
    return Needs(
        systems=tuple(_ALIASES.get(one.lower(), one.lower()) for one in names(own.get("os"))),
        bins=names(asked.get("bins")),
        any_bins=names(asked.get("anyBins")),
        env=tuple(dict.fromkeys(one for one in (*needed, primary, *optional) if one)),
        needed_env=needed,
        primary_env=primary or (needed[0] if len(needed) == 1 else ""),
        config=names(asked.get("config")),
        always=own.get("always") is True,
    )


@dataclass(slots=True)
class Gate:
    """Decides for all skills of one look; a program is looked for only once.

    `env` is the environment of this process, `config` says whether a dotted key of the configuration is
    set to something. `off` are the names that were switched off on the command line, `only` those that
    this agent has, None for all.
    """

    settings: SkillSettings
    env: Mapping[str, str]
    config: Callable[[str], bool]
    off: frozenset[str] = frozenset()
    only: Collection[str] | None = None
    system: str = sys.platform
    _found: dict[str, bool] = field(default_factory=dict)

    def reasons(self, name: str, needs: Needs) -> list[str]:
        """Return why a skill can't be used, in words that say what to do; nothing if it can."""
        told = self._switches(name)
        if needs.systems and self.system not in needs.systems:
            told.append(f"it is for {' or '.join(_SYSTEMS.get(one, one) for one in needs.systems)} only")
        return told if needs.always else told + self._missing(name, needs)

    def _switches(self, name: str) -> list[str]:
        entry = self.settings.entries.get(name)
        if name in self.off:
            return [f"it is switched off: `crayfish skills enable {name}`"]
        if name in self.settings.disabled or (entry and not entry.enabled):
            return ["it is switched off in the configuration, [skills]"]
        if self.settings.enabled and name not in self.settings.enabled:
            return ["[skills] enabled does not list it"]
        if self.only is not None and name not in self.only:
            return ["the skills of this agent don't list it"]
        return []

    def _missing(self, name: str, needs: Needs) -> list[str]:
        told = [
            f"it needs the program {one}, which is not on the PATH"
            for one in needs.bins
            if not self._has(one)
        ]
        if needs.any_bins and not any(map(self._has, needs.any_bins)):
            told.append(f"it needs one of these programs on the PATH: {', '.join(needs.any_bins)}")
        given = environment(name, needs, self.settings, self.env)
        told += [
            f"it needs ${one}: set it, or [skills.entries.{name}] env"
            for one in needs.needed_env
            if not given.get(one)
        ]
        return told + [f"it needs {one} in the configuration" for one in needs.config if not self.config(one)]

    def _has(self, program: str) -> bool:
        if program not in self._found:
            found = "/" not in program and shutil.which(program, path=self.env.get("PATH", ""))
            self._found[program] = bool(found)
        return self._found[program]


def environment(name: str, needs: Needs, settings: SkillSettings, env: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that the programs of a skill get beside the usual ones; the values are secret."""
    given = {one: env[one] for one in needs.env if env.get(one)}
    entry = settings.entries.get(name)
    if entry is None:
        return given
    key = entry.api_key.get_secret_value()
    if key and needs.primary_env:
        given[needs.primary_env] = key
    return given | {one: value.get_secret_value() for one, value in entry.env.items()}
