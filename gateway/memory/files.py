"""The notes of a folder, read so that no link leads out of it and no odd file does harm."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from gateway.memory.chunks import Chunk, chunks

MAX_NOTE = 1_000_000
"""Bytes; what is larger is no note, and would hold up the database while it is stored."""

MAX_DEPTH = 8
MAX_FILES = 20_000

PERSONAL = ("MEMORY.md", "USER.md")
"""Files beside the folder `memory` that are the owner's alone (agent 1.2)."""

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class Stamp(NamedTuple):
    """What changes when a file does: its time in nanoseconds and its size in bytes."""

    mtime_ns: int
    size: int


@dataclass(frozen=True, slots=True)
class Note:
    """A file that was read; `problem` says why it has no chunks. `path` is relative to its folder."""

    path: str
    stamp: Stamp
    sha256: str = ""
    chunks: Sequence[Chunk] = field(default=(), repr=False)
    problem: str = ""


def stamps(folder: Path, *, personal: bool) -> dict[str, Stamp]:
    """Return the notes that are there: `memory/**/*.md`, and those of the owner with `personal`.

    Links are not followed. A folder that can't be read has none.
    """
    found: dict[str, Stamp] = {}
    try:
        root = os.open(folder, _FOLDER)
    except OSError:
        return found
    try:
        for name in PERSONAL if personal else ():
            with suppress(OSError):
                _add(name, os.stat(name, dir_fd=root, follow_symlinks=False), found)
        _look("memory/", root, MAX_DEPTH, found)
    finally:
        os.close(root)
    return found


def read(folder: Path, path: str, seen: Stamp, known: Mapping[str, str]) -> Note | None:
    """Read a note; return None if it has gone. `seen` is its stamp, for one that can't be read.

    `known` maps paths to digests: a note that still has its digest is not cut again.
    """
    try:
        data, stamp = _data(folder, path)
    except FileNotFoundError:
        return None
    except OSError as error:
        return Note(path, seen, problem=f"it can't be read ({error.strerror})")
    if stamp.size > MAX_NOTE:
        return Note(path, stamp, problem=f"it has {stamp.size} bytes, and a note has at most {MAX_NOTE}")
    if b"\0" in data:
        return Note(path, stamp, problem="it is not text")
    digest = hashlib.sha256(data).hexdigest()
    if known.get(path) == digest:
        return Note(path, stamp, digest)
    return Note(path, stamp, digest, chunks(plain(data)))


def of_days(folder: Path, days: Sequence[str]) -> list[str]:
    """Return the notes right in `memory/` whose names begin with one of the days, such as "2026-05-06".

    The newest comes first, of one day the last by name. A folder that can't be read has none.
    """
    try:
        with os.scandir(folder / "memory") as entries:
            names = [one.name for one in entries if one.name[:10] in days and one.name.endswith(".md")]
    except OSError:
        return []
    return [f"memory/{name}" for name in sorted(names, reverse=True) if name.isprintable()]


def beginning(folder: Path, path: str, most: int) -> str:
    """Return at most so many bytes of a note as text, "" for one that can't be read or is no text."""
    try:
        data, _ = _data(folder, path)
    except OSError:
        return ""
    return "" if b"\0" in data else plain(data[:most]).removesuffix("\ufffd")


def plain(data: bytes) -> str:
    """Return the text of a note."""
    return data.decode("utf-8", "replace").removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")


def _look(path: str, parent: int, depth: int, found: dict[str, Stamp]) -> None:
    """Add the notes of a folder and those below it; `path` ends with the folder's name and a slash."""
    try:
        folder = os.open(path.split("/")[-2], _FOLDER, dir_fd=parent)
    except OSError:
        return
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                name = entry.name
                if name.endswith(".md") and name.isprintable() and len(found) < MAX_FILES:
                    with suppress(OSError):
                        _add(path + name, entry.stat(follow_symlinks=False), found)
                elif depth and not name.startswith(".") and entry.is_dir(follow_symlinks=False):
                    _look(f"{path}{name}/", folder, depth - 1, found)
    finally:
        os.close(folder)


def _add(path: str, status: os.stat_result, found: dict[str, Stamp]) -> None:
    if stat.S_ISREG(status.st_mode):
        found[path] = Stamp(status.st_mtime_ns, status.st_size)


def _data(folder: Path, path: str) -> tuple[bytes, Stamp]:
    """Walk to a file without following a link on the way; raise OSError."""
    *above, name = path.split("/")
    at = os.open(folder, _FOLDER)
    try:
        for each in above:
            below = os.open(each, _FOLDER, dir_fd=at)
            os.close(at)
            at = below
        with os.fdopen(os.open(name, _FILE, dir_fd=at), "rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1:
                # A second name may lie outside of the folder (path-010).
                raise OSError(errno.EPERM, "it has a second name")
            data = file.read(MAX_NOTE) if status.st_size <= MAX_NOTE else b""
            return data, Stamp(status.st_mtime_ns, status.st_size)
    finally:
        os.close(at)
