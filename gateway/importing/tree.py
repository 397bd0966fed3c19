"""What lies in the folder of another program, and how its files are looked at."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from gateway.importing.logs import Log
from gateway.types import Json


@dataclass(frozen=True, slots=True)
class Skipped:
    """Something that is not taken over, and why."""

    what: str
    why: str


@dataclass(slots=True, kw_only=True)
class Tree:
    """What was found: a workspace, sessions, what is left out, and the secrets to set by hand.

    `above` is the folder that has the rest if only a workspace was named. `inner` are folders of the
    workspace that were looked at otherwise.
    """

    workspace: Path
    logs: list[Log] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)
    settings: list[str] = field(default_factory=list)
    above: Path | None = None
    inner: set[str] = field(default_factory=set)


def plain_files(folder: Path) -> list[Path]:
    """Return the regular files right in a folder by name, none if there is no such folder; no links."""
    return [one for one in _within(folder) if one.is_file()]


def plain_folders(folder: Path) -> list[Path]:
    """Return the folders right in a folder by name, none if there is no such folder; no links."""
    return [one for one in _within(folder) if one.is_dir()]


def links(folder: Path) -> list[str]:
    """Return the names of the links right in a folder, none if there is no such folder."""
    if folder.is_symlink() or not folder.is_dir():
        return []
    return sorted(one.name for one in folder.iterdir() if one.is_symlink())


def left_out(root: Path, known: frozenset[str]) -> list[Skipped]:
    """Name what else lies in the folder of a program."""
    why = {
        "cron": "schedules; ask the bot to set them again",
        "credentials": "logins of platforms, which belong to that program",
        "media": "files of messages",
    }
    names = sorted(one.name for one in root.iterdir() if one.name not in known)
    return [Skipped(name, why.get(name, "not a part of what is taken over")) for name in names]


def _within(folder: Path) -> list[Path]:
    if folder.is_symlink() or not folder.is_dir():
        return []
    return sorted(one for one in folder.iterdir() if not one.is_symlink())


_SECRET = re.compile(r"(token|secret|api_?key|password)$", re.IGNORECASE)
_NAMED = re.compile(r"""["']?(\w*(?:token|secret|api_?key|password))["']?\s*:\s*["'][^"']""", re.IGNORECASE)


def named_secrets(config: Path, known: Mapping[str, str]) -> list[str]:
    """Return a line for each secret that a configuration sets: where it belongs here, never its value."""
    try:
        text = config.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return []
    try:
        names = list(dict.fromkeys(_secrets(json.loads(text), "")))
    except ValueError:  # JSON with comments: names alone must do
        names = list(dict.fromkeys(_NAMED.findall(text)))
    return [f"{_here(name, known)} (there: {name})" for name in names]


def _here(name: str, known: Mapping[str, str]) -> str:
    same = [ours for theirs, ours in known.items() if name in (theirs, theirs.rpartition(".")[2])]
    if same:
        return " or ".join(dict.fromkeys(same))
    return "[model] api_key" if re.search("api_?key$", name, re.IGNORECASE) else "whatever it is for"


def _secrets(value: Json, above: str) -> Iterator[str]:
    if isinstance(value, list):
        for one in value:
            yield from _secrets(one, above)
    if not isinstance(value, dict):
        return
    for key, one in value.items():
        name = f"{above}{key}"
        if isinstance(one, str) and one and _SECRET.search(key):
            yield name
        yield from _secrets(one, f"{name}.")
