"""A new skill to begin with, from the templates of the bundled skill-creator."""

from __future__ import annotations

import json
import re
from pathlib import Path

from gateway.config import bundled
from gateway.errors import ConfigError
from gateway.skills.scan import FILE

ADDRESS = "https://example.com/"
"""What a new skill asks until somebody says what it shall ask."""

_CREATOR = "skill-creator"


def create(folder: Path, name: str, description: str = "", address: str = "") -> Path:
    """Write a skill into `folder / name` and return that. Raises: ConfigError."""
    address = address or ADDRESS
    if len(name) > 64 or not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name):
        raise ConfigError(
            f"{name[:80]!r} is no name for a skill: small letters, digits and single dashes, at most 64"
        )
    if not re.fullmatch(r"https?://[^\s\"'\\<>{}]+", address):
        raise ConfigError(f"{address!r} is no http:// or https:// address")
    described = (
        " ".join(description.split()) or f"Asks {address}. Use when somebody wants to know what it says."
    )
    script = f"{name.replace('-', '_')}.py"
    values = {
        "name": name,
        "title": name.replace("-", " ").capitalize(),
        "description": json.dumps(described, ensure_ascii=False),
        "address": address,
        "script": script,
        "variable": f"{name.replace('-', '_').upper()}_URL",
    }
    here = folder / name
    try:
        (here / "scripts").mkdir(parents=True)
        (here / FILE).write_text(_filled("SKILL.template.md", values), encoding="utf-8")
        program = here / "scripts" / script
        program.write_text(_filled("script.py.txt", values), encoding="utf-8")
        program.chmod(0o755)
    except FileExistsError:
        raise ConfigError(f"{here} is there already; choose another name") from None
    except OSError as error:
        raise ConfigError(f"{here} can't be written ({(error.strerror or str(error)).lower()})") from error
    return here


def _filled(name: str, values: dict[str, str]) -> str:
    """Return a template with its values, as `skill.py new` of the skill-creator fills it."""
    text = (bundled("skills") / _CREATOR / "assets" / name).read_text(encoding="utf-8")
    return re.sub(r"\{\{(\w+)\}\}", lambda found: values[found[1]], text)
