"""The files of a workspace that come along: which, as what, and why another does not."""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from gateway.importing.tree import Skipped, Tree, links, plain_folders
from gateway.redact import Redactor
from gateway.tools.files import save

NAMES = ("AGENTS.md", "SOUL.md", "IDENTITY.md", "USER.md", "TOOLS.md", "HEARTBEAT.md", "MEMORY.md")

LARGEST = 2_000_000
"""Bytes of a file that comes along."""

MOST = 2_000
"""Files of one folder that come along."""

HISTORY = "memory/history.jsonl"
"""Where nanobot keeps what it has summed up."""

_PRIVATE = re.compile(
    r"(?i)\.env(\..*)?|.*\.(pem|key|p12|pfx|kdbx)|id_(rsa|ed25519|ecdsa).*|credentials.*|.*secrets?\.(json|ya?ml|toml)"
)
_BUILT = frozenset({".git", "node_modules", "__pycache__", ".venv", ".DS_Store"})


class Way(StrEnum):
    """What becomes of a file."""

    NEW = "copied"
    INSTEAD = "replaces the untouched template, which is kept as .bak"
    SAME = "is here already"


@dataclass(frozen=True, slots=True)
class Move:
    """A file that comes along; `path` is its place in our workspace, `masked` that secrets were taken out."""

    path: str
    way: Way
    content: bytes
    mode: int = 0o600
    masked: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Mover:
    """Compares the workspace of another program with ours. `templates` holds what a new one of ours has."""

    ours: Path
    templates: Path
    redact: Redactor

    def plan(self, found: Tree) -> list[Move]:
        """Return what to write; what is left out is added to `found`."""
        theirs = found.workspace
        if theirs.is_symlink() or not theirs.is_dir():
            found.skipped.append(Skipped("workspace", f"there is no folder {theirs}"))
            return []
        moves = [self._move(theirs, source, target, found) for source, target in _wanted(theirs)]
        moves += [one for skill in _folders(theirs / "skills") for one in self._skill(theirs, skill, found)]
        found.skipped += [Skipped(f"skills/{name}", "it is a link") for name in links(theirs / "skills")]
        found.skipped += _others(theirs, found.inner)
        return [one for one in moves if one is not None]

    def _move(self, theirs: Path, source: str, target: str, found: Tree) -> Move | None:
        data = _read(theirs, source, found)
        if data is None:
            return None
        if b"\0" in data:
            found.skipped.append(Skipped(source, "it is not text"))
            return None
        text = data.decode("utf-8", "replace")
        if source == HISTORY:
            text = _as_notes(text)
        clean = self.redact(text)
        way = self._way(target, clean.encode(), found, source)
        return Move(target, way, clean.encode(), masked=clean != text) if way else None

    def _skill(self, theirs: Path, skill: Path, found: Tree) -> Iterator[Move]:
        name = f"skills/{skill.name}"
        if not (skill / "SKILL.md").is_file():
            found.skipped.append(Skipped(name, "it has no SKILL.md"))
            return
        if (self.ours / name).exists() and not _is_part(self.ours / name, skill):
            found.skipped.append(Skipped(name, "there is a skill of that name"))
            return
        for source in _below(theirs, name, found):
            data = _read(theirs, source, found)
            if data is not None:
                way = self._way(source, data, found, source)
                mode = 0o700 if (theirs / source).stat().st_mode & stat.S_IXUSR else 0o600
                if way:
                    yield Move(source, way, data, mode)

    def _way(self, target: str, content: bytes, found: Tree, source: str) -> Way | None:
        """Return how a file comes here, None if it must not."""
        here = self.ours / target
        if not os.path.lexists(here):
            return Way.NEW
        if here.is_symlink() or not here.is_file():
            found.skipped.append(Skipped(source, f"{target} here is no plain file"))
            return None
        old = here.read_bytes()
        if old == content:
            return Way.SAME
        template = self.templates / target
        if not template.is_file() or template.read_bytes() != old:
            found.skipped.append(
                Skipped(source, f"{target} here has been changed; put the two together by hand")
            )
            return None
        if os.path.lexists(f"{here}.bak"):
            found.skipped.append(Skipped(source, f"there is a {target}.bak, which is not overwritten"))
            return None
        return Way.INSTEAD

    def write(self, moves: Sequence[Move]) -> None:
        """Write what was planned. Raises: OSError, gateway.errors.ToolError."""
        self.ours.mkdir(mode=0o700, parents=True, exist_ok=True)
        for one in moves:
            if one.way is Way.INSTEAD:
                save(self.ours, f"{one.path}.bak", (self.ours / one.path).read_bytes())
            if one.way is not Way.SAME:
                save(self.ours, one.path, one.content)
                (self.ours / one.path).chmod(one.mode)


def _wanted(theirs: Path) -> list[tuple[str, str]]:
    """Return (theirs, ours) of the files that come along, skills apart."""
    found = [(name, name) for name in NAMES if os.path.lexists(theirs / name)]
    names = {name for name, _ in found}
    for path in sorted(_notes(theirs)):
        if path == "memory/MEMORY.md" and "MEMORY.md" not in names:
            found.append((path, "MEMORY.md"))
        elif path == HISTORY:
            found.append((path, "memory/nanobot-history.md"))
        else:
            found.append((path, path))
    return found


def _notes(theirs: Path) -> Iterator[str]:
    folder = theirs / "memory"
    if folder.is_symlink() or not folder.is_dir():
        return
    for above, folders, names in os.walk(folder):
        folders[:] = [one for one in folders if not one.startswith(".")]
        here = Path(above).relative_to(theirs).as_posix()
        yield from (f"{here}/{name}" for name in names if name.endswith(".md") or f"{here}/{name}" == HISTORY)


def _others(theirs: Path, inner: set[str]) -> list[Skipped]:
    """Name what else lies there."""
    known = {*NAMES, "memory", "skills", *inner}
    names = sorted(one.name for one in theirs.iterdir() if one.name not in known)
    why = {"BOOTSTRAP.md": "the introduction is over"}
    return [
        Skipped(name, why.get(name, "not a part of what is taken over; copy it if you need it"))
        for name in names
    ]


def _folders(folder: Path) -> list[Path]:
    return [one for one in plain_folders(folder) if not one.name.startswith(".")]


def _is_part(ours: Path, theirs: Path) -> bool:
    """Return whether a folder of ours came from theirs: each file of it is there, and the same."""
    files = [one for one in ours.rglob("*") if one.is_file()]
    return all(_same(one, theirs / one.relative_to(ours)) for one in files)


def _same(one: Path, other: Path) -> bool:
    return other.is_file() and one.read_bytes() == other.read_bytes()


def _below(theirs: Path, name: str, found: Tree) -> Iterator[str]:
    """Yield the files of a folder, but for what is built, and what may be a secret."""
    count = 0
    for above, folders, names in os.walk(theirs / name):
        here = Path(above).relative_to(theirs).as_posix()
        left_out = sorted(_BUILT.intersection(folders))
        found.skipped += [Skipped(f"{here}/{one}", "it can be made again") for one in left_out]
        folders[:] = sorted(set(folders) - _BUILT)
        for one in sorted(names):
            path = f"{here}/{one}"
            if _PRIVATE.fullmatch(one):
                found.skipped.append(Skipped(path, "it may hold secrets; set them in [skills.entries]"))
                continue
            count += 1
            if count > MOST:
                found.skipped.append(Skipped(name, f"it has more than {MOST} files; the rest stays behind"))
                return
            yield path


def _read(theirs: Path, path: str, found: Tree) -> bytes | None:
    """Read a regular file, no link; else say why not."""
    try:
        with os.fdopen(
            os.open(theirs / path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb"
        ) as file:
            status = os.fstat(file.fileno())
            if stat.S_ISREG(status.st_mode) and status.st_size <= LARGEST:
                return file.read()
            why = "it is no plain file" if status.st_size <= LARGEST else f"it has {status.st_size:,} bytes"
    except OSError as error:
        why = (
            "it is a link" if (theirs / path).is_symlink() else (error.strerror or "it can't be read").lower()
        )
    found.skipped.append(Skipped(path, why))
    return None


def _as_notes(text: str) -> str:
    """Return a history, a JSON object a line, as a note."""
    lines = ["# History from nanobot", ""]
    for line in text.split("\n"):
        try:
            row = json.loads(line)
            lines.append(f"- [{row['timestamp']}] {' '.join(str(row['content']).split())}")
        except (ValueError, KeyError, TypeError):
            continue
    return "\n".join(lines) + "\n"
