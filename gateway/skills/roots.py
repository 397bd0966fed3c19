"""Where skills are looked for, the nearest place first."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path

from pydantic import SecretStr

from gateway.config import Loaded, Section, Settings, bundled
from gateway.skills.index import Skills
from gateway.skills.scan import Root


def installed(loaded: Loaded) -> Path:
    """Return the folder of the skills that are installed for this gateway."""
    return loaded.home / "skills"


def roots_of(
    loaded: Loaded, env: Mapping[str, str] = os.environ, workspace: Path | None = None
) -> tuple[Root, ...]:
    """Return the folders by precedence (agent 7.2); they need not exist.

    `workspace` is that of the agent, if it is not the usual one. Raises: ConfigError.
    """
    workspace = workspace or loaded.workspace
    home = Path(env.get("HOME") or Path.home())
    return (
        Root("workspace", workspace / "skills"),
        Root("workspace", workspace / ".agents" / "skills"),
        Root("user", installed(loaded)),
        Root("user", home / ".agents" / "skills"),
        Root("bundled", bundled("skills")),
        *(Root("extra", Path(path)) for path in loaded.settings.skills.dirs),
    )


def open_skills(
    loaded: Loaded,
    env: Mapping[str, str] = os.environ,
    *,
    workspace: Path | None = None,
    only: Collection[str] | None = None,
    now: Callable[[], float] = time.monotonic,
) -> Skills:
    """Return the skills that a configuration means; nothing is read yet.

    `workspace` is that of the agent, if it is not the usual one, `only` the names that it has, None for all;
    `now` is a monotonic clock, in seconds.
    Raises: ConfigError.
    """
    home = Path(env.get("HOME") or Path.home())
    return Skills(
        roots_of(loaded, env, workspace),
        loaded.settings.skills,
        env=env,
        config=lambda name: is_set(loaded.settings, name),
        only=only,
        home=home,
        now=now,
    )


def is_set(settings: Settings, name: str) -> bool:
    """Return whether a dotted key of the configuration is there and set to something."""
    value: object = settings
    for part in name.split("."):
        value = (
            getattr(value, part, None)
            if isinstance(value, Section) and part in type(value).model_fields
            else None
        )
    return bool(value.get_secret_value() if isinstance(value, SecretStr) else value)
