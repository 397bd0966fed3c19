"""Paths beneath a folder: nothing outside it can be reached, whatever the names and links say.

A path is walked one component at a time from an open folder to the next, never through a link that
the kernel follows. A link is read as text and its target walked the same way, so that there is no
moment between a check and its use in which a swapped name could lead out (reliability 4.3).
"""

from __future__ import annotations

import errno
import os
import posixpath
import re
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from gateway.errors import ToolError

MAX_BYTES = 4096
MAX_DEPTH = 64
MAX_LINKS = 40

_FOLDER = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC | getattr(os, "O_PATH", os.O_RDONLY)
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_DRIVE = re.compile(r"[A-Za-z]:")
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://|file:", re.IGNORECASE)
_VARIABLE = re.compile(r"\$\{?[A-Z_]+\}?(/|$)|%[A-Za-z_]+%")

_REASONS = {
    errno.ENOENT: "not found",
    errno.ENOTDIR: "a part of the path is a file, not a folder",
    errno.EISDIR: "is a folder",
    errno.EACCES: "the system does not permit it",
    errno.EPERM: "the system does not permit it",
    errno.ENAMETOOLONG: "the name is too long",
    errno.ELOOP: "the link can't be followed",
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the disk quota is used up",
    errno.EROFS: "the disk is read-only",
}


@dataclass(frozen=True, slots=True)
class Place:
    """A name in an open folder. `name` was no link when it was looked at, and is `.` for the folder itself.

    `folder` is a file descriptor that lives as long as the `reach` block. `shown` is the path as the
    model wrote it, for texts; `path` is where that leads beneath the root, all links followed.
    """

    folder: int
    name: str
    shown: str
    path: str


@dataclass(slots=True)
class _Way:
    """The open folders from the root to where a walk has come, and the names of all but the root."""

    folders: list[int]
    names: list[str] = field(default_factory=list)

    @property
    def folder(self) -> int:
        return self.folders[-1]

    def enter(self, name: str, *, new: bool) -> None:
        self.folders.append(_enter(name, self.folder, new=new))
        self.names.append(name)

    def back(self) -> None:
        os.close(self.folders.pop())
        self.names.pop()

    def to(self, *names: str) -> str:
        return posixpath.normpath("/".join((*self.names, *names)) or ".")


@contextmanager
def _beneath(root: Path, path: str) -> Iterator[_Way]:
    """Open the root; close whatever a walk has opened from there."""
    way = _Way([])
    try:
        way.folders.append(os.open(root, _FOLDER))
        yield way
    except OSError as error:
        raise ToolError(f"{path!r}: {reason(error)}.") from error
    finally:
        for folder in way.folders:
            os.close(folder)


@contextmanager
def reach(root: Path, path: str, *, new: bool = False) -> Iterator[Place]:
    """Walk to `path` beneath `root` (absolute, without links); with `new`, make missing folders.

    Raises: ToolError, also for every OSError inside the block; its text names no path outside `root`.
    """
    parts = _vet(path, root, new=new)
    with _beneath(root, path) as way:
        name = _walk(root, way, deque(parts), new=new)
        yield Place(way.folder, name, path, way.to(name))


def landing(root: Path, path: str) -> str:
    """Return where a new file at `path` would lie beneath `root`, links followed; nothing is made.

    Raises: ToolError.
    """
    names = deque(_vet(path, root, new=True))
    with _beneath(root, path) as way:
        try:
            return way.to(_walk(root, way, names, new=False))
        except FileNotFoundError:
            # What is missing would be made as a folder, out of which `..` leads back.
            lands = way.to(*names)
    if lands.startswith(".."):
        raise _escape()
    return lands


def reason(error: OSError) -> str:
    """Say what went wrong, without the host's paths that the exception's own text holds."""
    if error.errno is None:
        return str(error) or "no reason given"
    return _REASONS.get(error.errno) or os.strerror(error.errno).lower()


def _vet(path: str, root: Path, *, new: bool) -> list[str]:
    """Split `path` into components relative to `root`; refuse what no file of a workspace is called."""
    if not path.strip():
        raise ToolError("The path is empty.")
    if len(path.encode("utf-8", "replace")) > MAX_BYTES:
        raise ToolError(f"The path is longer than {MAX_BYTES} bytes.")
    if _CONTROL.search(path) or not _encodable(path):
        raise ToolError("The path holds control characters or broken Unicode.")
    if "\\" in path or _DRIVE.match(path):
        raise ToolError(f"{path!r} is a Windows path; give a path in the workspace, with / between folders.")
    if _URL.match(path):
        raise ToolError(f"{path!r} is a URL; give a path in the workspace.")
    if path.startswith("~") or _VARIABLE.match(path):
        raise ToolError(f"{path!r}: ~ and variables are not expanded; give a path in the workspace.")
    if new and ":" in path:
        raise ToolError(f"{path!r}: a new file's name can't hold a colon.")
    if PurePosixPath(path).is_absolute():
        return _inside(path, root)
    return _split(path)


def _encodable(path: str) -> bool:
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True


def _split(path: str) -> list[str]:
    return [part for part in path.split("/") if part not in {"", "."}]


def _inside(absolute: str, root: Path) -> list[str]:
    """Return the components of an absolute path below `root`; `..` in them is left to the walk."""
    base, parts = _split(str(root)), _split(absolute)
    if parts[: len(base)] != base:
        raise _escape()
    return parts[len(base) :]


def _escape() -> ToolError:
    return ToolError("path is outside workspace or skill directories")  # the words of seed 000


def _walk(root: Path, way: _Way, names: deque[str], *, new: bool) -> str:
    """Go along `names`, which keeps those that are left, and return the last one.

    `..` goes back to the folder that we came through, so that a folder moved meanwhile changes nothing.
    """
    shown, links = "/".join(names), 0
    while names:
        name = names[0]
        if name == "..":
            if not way.names:
                raise _escape()
            way.back()
        elif (target := _link(name, way.folder)) is not None:
            links += 1
            if links > MAX_LINKS:
                raise ToolError(f"{shown!r} goes round in a loop of links.")
            _redirect(root, way, names, target)
            continue
        elif len(names) == 1:
            return name
        elif len(way.folders) > MAX_DEPTH:
            raise ToolError(f"The path has more than {MAX_DEPTH} folders.")
        else:
            way.enter(name, new=new)
        names.popleft()
    return "."


def _redirect(root: Path, way: _Way, names: deque[str], target: str) -> None:
    """Put what a link says in the place of its name."""
    names.popleft()
    if target.startswith("/"):
        names.extendleft(reversed(_inside(target, root)))
        while way.names:
            way.back()
    else:
        names.extendleft(reversed(_split(target)))


def _link(name: str, folder: int) -> str | None:
    try:
        return os.readlink(name, dir_fd=folder)
    except OSError as error:
        if error.errno in {errno.EINVAL, errno.ENOENT}:
            return None
        raise


def _enter(name: str, folder: int, *, new: bool) -> int:
    try:
        return os.open(name, _FOLDER, dir_fd=folder)
    except FileNotFoundError:
        if not new:
            raise
    with suppress(FileExistsError):
        os.mkdir(name, dir_fd=folder)
    return os.open(name, _FOLDER, dir_fd=folder)
