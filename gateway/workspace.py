"""The folder the agent lives in: seeding it, and reading the files that go into its prompt."""

from __future__ import annotations

import hashlib
import logging
import os
import re
import stat
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import TypeAlias

from gateway.errors import ConfigError
from gateway.types import BOOTSTRAP, PERSON, ROOMS, Situation

MAX_FILE = 20_000
MAX_USER = 4_000
MAX_TOTAL = 60_000
CUT_MARK = "\n\n...(truncated)"
MISSING_MARK = "*[File not found]*"

_SEEDED = Path(".crayfish", "seeded")
_REQUIRED = ("AGENTS.md", "SOUL.md", "IDENTITY.md", "TOOLS.md")
_PERSONAL = ("SOUL.md", "IDENTITY.md", "USER.md")
_COMMENT = re.compile(r"<!--.*?(?:-->|\Z)", re.DOTALL)
_EMPTY_LINE = re.compile(r"(#{1,6}(\s.*)?|```.*|~~~.*|[-*+](\s*\[[ xX]?\])?)?")

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class BootstrapFile:
    """A file as it goes into the prompt.

    `size` is the file's own in bytes; `cut` says that `text` is only its beginning.
    """

    name: str
    text: str
    size: int = 0
    cut: bool = False


_Stamp: TypeAlias = tuple[int, int, int]
"""What changes when a file does: its time in nanoseconds, its size, its inode."""


class Workspace:
    """A folder with bootstrap files; `templates` holds those that a new one starts with.

    With `always_beats` HEARTBEAT.md is in every prompt, else only in those of heartbeats.
    """

    def __init__(self, path: Path, templates: Path, *, always_beats: bool = False) -> None:
        self.path = path
        self._templates = templates
        self._always_beats = always_beats
        self._places = tuple((name, os.fspath(path / name)) for name in BOOTSTRAP)
        self._stamps: tuple[_Stamp | None, ...] | None = None
        self._texts: dict[str, BootstrapFile] = {}
        self._chosen: dict[tuple[bool, bool, bool], tuple[BootstrapFile, ...]] = {}
        self._unedited: dict[str, str] = {}
        self._said: dict[str, _Stamp | None] = {}

    def anew(self) -> Workspace:
        """Return one that reads the same folder and shares nothing with this one."""
        return Workspace(self.path, self._templates, always_beats=self._always_beats)

    def seed(self) -> Sequence[str]:
        """Create the missing files, once in a workspace's life, and return their names.

        BOOTSTRAP.md comes only into a workspace that has none of the others: somebody who brings
        files needs no introduction. A file that is there is never written.

        Raises: ConfigError.
        """
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            if (self.path / _SEEDED).exists():
                return ()
            missing = self._missing()
            for name in missing:
                _create(self.path / name, (self._templates / name).read_bytes())
            (self.path / _SEEDED).parent.mkdir(mode=0o700, exist_ok=True)
            _create(self.path / _SEEDED, b"")
        except OSError as error:
            raise ConfigError(
                f"The workspace {self.path} can't be set up ({error.strerror}: {error.filename}). "
                "Make it writable for this user, or set [workspace] path to a folder that is."
            ) from error
        return missing

    def files(self, *, private: bool, heartbeat: bool, light: bool = False) -> Sequence[BootstrapFile]:
        """Return the files for a prompt in their order; the same object until a file changes.

        USER.md, MEMORY.md and BOOTSTRAP.md (until the agent has been introduced) are only for
        `private` conversations, HEARTBEAT.md only for `heartbeat` turns, if it is not for all (agent 1.2);
        with `light` these get nothing else.
        """
        stamps = tuple(_stamp(place) for _, place in self._places)
        if stamps != self._stamps:
            self._texts = self._read(stamps)
            self._chosen.clear()
            self._stamps = stamps
        key = (private, heartbeat, light)
        if key not in self._chosen:
            found = self._choose(private=private, heartbeat=heartbeat)
            if heartbeat and light:
                found = [file for file in found if file.name == "HEARTBEAT.md"]
            self._chosen[key] = _within_total(found)
        return self._chosen[key]

    def checklist(self) -> str | None:
        """Return what to look after at a heartbeat, of a long one the beginning; None without a file."""
        place = os.fspath(self.path / "HEARTBEAT.md")
        return self._load(place, MAX_FILE) if _stamp(place) else None

    def _load(self, place: str, most: int) -> str | None:
        """Return at least `most` characters of a file, None for one that can't be read; that is said once."""
        try:
            return _text(place, most)
        except OSError as error:
            stamp = _stamp(place)
            if place not in self._said or self._said[place] != stamp:
                self._said[place] = stamp
                log.warning("%s can't be read and is left out of the prompt: %s", place, error)
            return None

    def _missing(self) -> list[str]:
        there = {name for name, place in self._places if os.path.lexists(place)}
        missing = [name for name in BOOTSTRAP if name not in there and name != "BOOTSTRAP.md"]
        # First, so that a second start after a crash still finds it to be the first file.
        return missing if there else ["BOOTSTRAP.md", *missing]

    def _read(self, stamps: Sequence[_Stamp | None]) -> dict[str, BootstrapFile]:
        found = {}
        for (name, place), stamp in zip(self._places, stamps, strict=True):
            text = self._load(place, _most(name)) if stamp else None
            if stamp is None or text is None:
                if name in _REQUIRED:
                    found[name] = BootstrapFile(name, MISSING_MARK)
            elif not blank(text):
                found[name] = _capped(BootstrapFile(name, text, stamp[1]), _most(name))
        return found

    def _choose(self, *, private: bool, heartbeat: bool) -> list[BootstrapFile]:
        hidden = set() if private else {"USER.md", "MEMORY.md", "BOOTSTRAP.md"}
        if not (heartbeat or self._always_beats):
            hidden.add("HEARTBEAT.md")
        if heartbeat or not self._pending():
            hidden.add("BOOTSTRAP.md")
        return [file for name, file in self._texts.items() if name not in hidden]

    def _pending(self) -> bool:
        """Return whether nobody has given the agent a name or a character yet (agent 1.3)."""
        return all(
            name not in self._texts or self._texts[name].text == self._template(name) for name in _PERSONAL
        )

    def _template(self, name: str) -> str:
        if name not in self._unedited:
            self._unedited[name] = self._load(os.fspath(self._templates / name), _most(name)) or ""
        return self._unedited[name]


def room(workspace: Path, situation: Situation) -> Path:
    """Return the folder that a turn's files belong to; it may not exist yet.

    The owner in private has the workspace. Everybody else has a folder of their own in it, by person or
    group (reliability 4.5): what strangers bring or read never lies beside the owner's files. The chats that
    share a session share it, too.
    """
    if situation.is_private:
        return workspace
    place = situation.place
    name = f"{PERSON}-{situation.person}" if situation.person else f"{place.channel}-{place.chat}"
    plain = re.sub(r"[^A-Za-z0-9_-]", "_", name)
    if plain != name:
        plain = f"{plain[:80]}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"
    return workspace / ROOMS / plain


def below_agent(agent: str, folder: Path) -> PurePosixPath:
    """Return how a file that leaves is named: below the usual workspace, or below that of `@agent`."""
    return PurePosixPath("" if agent == "main" else f"@{agent}", folder.as_posix())


def of_agent(path: str) -> tuple[str, str]:
    """Return agent and path of what `below_agent` named."""
    if not path.startswith("@"):
        return "main", path
    agent, _, rest = path[1:].partition("/")
    return agent, rest


def make_room(folder: Path) -> None:
    """Create the folder of a person or a group; where that fails, tools say what they miss."""
    try:
        folder.parent.mkdir(mode=0o700, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        log.warning("room.missing", extra={"problem": error.strerror or type(error).__name__})


def blank(text: str) -> bool:
    """Return whether a file says nothing: only headings, comments, fences and empty list items (agent D)."""
    return all(_EMPTY_LINE.fullmatch(line.strip()) for line in _COMMENT.sub("", text).splitlines())


def _stamp(place: str) -> _Stamp | None:
    try:
        status = os.lstat(place)
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


def _text(place: str, most: int) -> str:
    """Read at least `most` characters of a regular file, if it has them.

    A link is not followed: a tool that may only write in the workspace could put one there, and the
    prompt would show what it leads to. Raises: OSError.
    """
    with os.fdopen(os.open(place, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError("it is not a regular file")
        # No character takes more than four bytes; one more character shows that there is more.
        data = file.read(4 * (most + 1) + 3)
    if b"\0" in data:
        raise OSError("it is not text")
    text = data.decode("utf-8", "replace").removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    return "\n".join(map(str.rstrip, text.split("\n"))).strip("\n")


def _most(name: str) -> int:
    return MAX_USER if name == "USER.md" else MAX_FILE


def _capped(file: BootstrapFile, most: int) -> BootstrapFile:
    """Cut at `most` characters, or at the last line end before it if that is near."""
    text = file.text.removesuffix(CUT_MARK) if file.cut else file.text
    if len(text) <= most:
        return file
    line_end = text.rfind("\n", max(0, most - 200), most + 1)
    return replace(file, text=text[: most if line_end < 0 else line_end] + CUT_MARK, cut=True)


def _within_total(files: Sequence[BootstrapFile]) -> tuple[BootstrapFile, ...]:
    """Shorten the file that crosses the total, and leave out what comes after it."""
    left, kept = MAX_TOTAL, []
    for file in files:
        if left <= 0:
            break
        kept.append(_capped(file, left))
        left -= len(file.text)
    return tuple(kept)


def _create(path: Path, data: bytes) -> None:
    """Write a new file whole or not at all."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
