"""Finding the folders with a SKILL.md below a root, without being led out of it or round in circles."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

MAX_DEPTH = 6
"""Folders between a root and a SKILL.md (agent I)."""

MAX_FOLDERS = 2_000
"""Folders that are looked into below one root."""

MAX_SKILLS = 500
"""Skills that are taken from one root."""

FILE = "SKILL.md"

_SKIPPED = frozenset({"node_modules", "__pycache__"})

Stamp: TypeAlias = tuple[int, int, int, int] | None
"""What changes when a file or folder does: its times in nanoseconds, its size, its inode; None if missing."""

Identity: TypeAlias = tuple[int, int]
"""Device and inode: what a folder is, whatever path leads to it."""


@dataclass(frozen=True, slots=True)
class Root:
    """A folder that is searched for skills; `source` is what people call it."""

    source: str
    path: Path


@dataclass(slots=True)
class Found:
    """What a root holds: each SKILL.md with the identity of its folder, and all that was looked at."""

    files: dict[Path, Identity] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    seen: dict[str, Stamp] = field(default_factory=dict)


def stamp(path: str | Path) -> Stamp:
    """Return the state of what a path leads to."""
    try:
        status = os.stat(path)  # noqa: PTH116 - a thousand of these before a turn
    except (OSError, ValueError):
        return None
    return status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino


def identity(path: Path) -> Identity | None:
    """Return what a path leads to, None if to nothing."""
    try:
        status = path.stat()
    except (OSError, ValueError):
        return None
    return status.st_dev, status.st_ino


def scan(root: Path, allowed: Sequence[Path]) -> Found:
    """Look for skills below a root. A link is followed when it leads into one of the `allowed` folders.

    A folder with a SKILL.md is one skill, whatever lies in it; what begins with a dot is passed over. What
    a link leads to is looked at last, so that a skill keeps its real place. Never raises.
    """
    found = Found()
    found.seen[os.fspath(root)] = stamp(root)
    real = [os.path.realpath(one) for one in allowed]
    visited: set[Identity] = set()
    waiting: deque[tuple[str, int]] = deque([(os.fspath(root), 0)])
    links: deque[tuple[str, int]] = deque()
    while waiting or links:
        from_link = not waiting
        place, depth = links.popleft() if from_link else waiting.popleft()
        if from_link and not _may_follow(place, real, found):
            continue
        if len(visited) >= MAX_FOLDERS or len(found.files) >= MAX_SKILLS:
            found.problems.append(
                f"{root}: there are more than {MAX_FOLDERS} folders or {MAX_SKILLS} skills; "
                "the rest was not looked at"
            )
            break
        _look(place, depth, found, visited, (waiting, links))
    found.files = dict(sorted(found.files.items()))
    return found


def _look(
    place: str,
    depth: int,
    found: Found,
    visited: set[Identity],
    queues: tuple[deque[tuple[str, int]], deque[tuple[str, int]]],
) -> None:
    """Take note of a folder's SKILL.md, or queue the folders in it and the links."""
    try:
        status = os.stat(place)  # noqa: PTH116 - a hot loop over strings
        here_is = status.st_dev, status.st_ino
        if here_is in visited:
            return
        visited.add(here_is)
        found.seen[place] = status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino
        with os.scandir(place) as entries:
            here = sorted(entries, key=lambda entry: entry.name)
    except FileNotFoundError:
        return
    except OSError as error:
        found.problems.append(f"{place}: can't be read ({(error.strerror or str(error)).lower()})")
        return
    name = _skill_file(here, place, found)
    if name and not depth:
        found.problems.append(f"{place}/{name}: put it into a folder of its own, which names the skill")
    elif name:
        file = os.path.join(place, name)  # noqa: PTH118 - a hot loop over strings
        found.files[Path(file)] = here_is
        found.seen[file] = stamp(file)
        return
    if depth < MAX_DEPTH:
        folders, links = queues
        for entry in here:
            if entry.name.startswith(".") or entry.name in _SKIPPED:
                continue
            if entry.is_symlink():
                links.append((entry.path, depth + 1))
            elif entry.is_dir(follow_symlinks=False):
                folders.append((entry.path, depth + 1))


def _skill_file(entries: Sequence[os.DirEntry[str]], place: str, found: Found) -> str:
    """Return the name of a folder's SKILL.md, also in other letters; "" without one."""
    names = [entry.name for entry in entries if entry.name.upper() == "SKILL.MD"]
    if len(names) > 1:
        found.problems.append(f"{place}: there are two of {FILE}: {', '.join(names)}; {min(names)} counts")
    return FILE if FILE in names else min(names, default="")


def _may_follow(link: str, allowed: Sequence[str], found: Found) -> bool:
    """Return whether a link leads to a folder within the roots; if it is broken or leaves them, say so."""
    target = os.path.realpath(link)
    found.seen[link] = stamp(link)
    if found.seen[link] is None:
        found.problems.append(f"{link}: the link is broken")
        return False
    if not os.path.isdir(target):  # noqa: PTH112 - a hot loop over strings
        return False
    if not any(target == one or target.startswith(f"{one}/") for one in allowed):
        found.problems.append(f"{link}: the link leads out of the skill folders, and is not followed")
        return False
    return True
