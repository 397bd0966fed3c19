"""Tools of other installed packages, which name them in the entry points `crayfish.tools`."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import EntryPoint, entry_points

from gateway.tools.base import Group
from gateway.tools.schema import FunctionTool

GROUP = "crayfish.tools"

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Plugin:
    """A tool of another package. `entry` is `module:name`, `package` who brings it."""

    tool: FunctionTool
    entry: str
    package: str
    version: str


@dataclass(frozen=True, slots=True)
class Plugins:
    """What other packages bring, and in words what is broken."""

    found: tuple[Plugin, ...] = ()
    problems: tuple[str, ...] = field(default=())

    @property
    def tools(self) -> Sequence[FunctionTool]:
        """Return the tools."""
        return [one.tool for one in self.found]

    def get(self, tool: object) -> Plugin | None:
        """Return where a tool comes from."""
        return next((one for one in self.found if one.tool is tool), None)


def load_plugins(taken: Iterable[str]) -> Plugins:
    """Import what the entry points name; none of the `taken` names is given away. Never raises.

    Slow, for it imports others' code: not for the event loop. Whatever group a tool says it is of, it counts
    as `group:plugins`, so that nobody but the owner gets it unless the configuration says so.
    """
    names = set(taken)
    found: list[Plugin] = []
    problems: list[str] = []
    for entry in sorted(entry_points(group=GROUP), key=lambda one: (one.name, one.value)):
        package = entry.dist.name if entry.dist else "an unknown package"
        version = entry.dist.version if entry.dist else ""
        try:
            for tool in _tools(entry):
                if tool.name in names:
                    raise TypeError(f"there is a tool {tool.name!r} already")
                if not _NAME.fullmatch(tool.name):
                    raise TypeError(f"models can't call {tool.name[:80]!r}: 1 to 64 letters, digits, _ or -")
                names.add(tool.name)
                found.append(Plugin(replace(tool, group=Group.PLUGINS), entry.value, package, version))
        except (Exception, SystemExit) as error:  # noqa: BLE001 - others' code; the gateway runs without it
            problem = f"{type(error).__name__}: {error}"
            problems.append(f"{entry.value} of {package} was left out ({problem[:500]})")
            log.warning("plugin.broken", extra={"entry": entry.value, "package": package, "problem": problem})
    return Plugins(tuple(found), tuple(problems))


def _tools(entry: EntryPoint) -> Iterator[FunctionTool]:
    """Yield the tools that an entry point names: one, several, or those that a function returns.

    Raises: TypeError for anything else, and whatever the package raises.
    """
    named = entry.load()
    made = named() if callable(named) and not isinstance(named, FunctionTool) else named
    for one in made if isinstance(made, Iterable) else (made,):
        if not isinstance(one, FunctionTool):
            kind = type(one).__name__
            raise TypeError(f"{kind} is no tool; make one with gateway.tools.schema.tool")
        yield one
