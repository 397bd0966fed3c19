"""Where a server is: a program with its environment, or an address with its headers."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from gateway.config import McpServer
from gateway.errors import ToolError

FOLDER = "mcp"
"""The folder of the state folder in which servers run, and what they offer is remembered."""

_SAFE = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "TERM", "TZ", "TMPDIR", "LANG", "LC_ALL", "LC_CTYPE")
"""What a program gets of the gateway's environment: where things are, and no secret."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """What to start, and in which folder, which is made. `env` is all that it gets of an environment."""

    command: str
    args: Sequence[str]
    cwd: Path
    env: Mapping[str, str] = field(repr=False)

    @property
    def path(self) -> str:
        """Return where the program is. Raises: ToolError."""
        found = shutil.which(self.command, path=self.env.get("PATH", os.defpath))
        if found is None:
            raise ToolError(f"there is no program {self.command!r} that can be run")
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """An address, and what is sent along with each request. `patience` is the seconds without an answer."""

    url: str = field(repr=False)
    headers: Mapping[str, str] = field(repr=False)
    patience: float = 60.0


Target: TypeAlias = Program | Site


def target(name: str, settings: McpServer, home: Path, environ: Mapping[str, str]) -> Target:
    """Return where a server of the configuration is; `home` is the state folder."""
    if settings.url:
        headers = {header: one.get_secret_value() for header, one in settings.headers.items()}
        return Site(url=settings.url, headers=headers, patience=settings.timeout + 30.0)
    env = {variable: environ[variable] for variable in _SAFE if variable in environ}
    env |= {variable: one.get_secret_value() for variable, one in settings.env.items()}
    return Program(command=settings.command, args=settings.args, cwd=home / FOLDER / name, env=env)
