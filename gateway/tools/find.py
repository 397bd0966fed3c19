"""The tool `search`: lines of files that match a pattern.

Where ripgrep is installed it names the files that hold a part of the pattern; which of their lines match,
and which files are read at all, is decided here in either case, so that the results are the same.
"""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

from gateway.errors import ToolError
from gateway.patterns import ENDLESS, literal_of, problem_of
from gateway.tools.base import Group, ToolContext
from gateway.tools.files import Readable, is_others, load_from, place_of
from gateway.tools.paths import MAX_DEPTH, Place, reach
from gateway.tools.schema import FunctionTool, tool
from gateway.types import ROOMS, Replay

MAX_FILE = 2_000_000
MAX_FILES = 20_000
MAX_LINES = 100
MAX_SHOWN = 300
MAX_TEXT = 15_000
PATIENCE = 20.0
"""Seconds after which a search tells what it has found so far."""

_SKIPPED = frozenset({"node_modules", "__pycache__"})
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_RIPGREP = (
    "--no-config",
    "--files-with-matches",
    "--null",
    "--no-messages",
    "--no-ignore",
    "--text",
    "--encoding=none",
    "--fixed-strings",
    *(f"--glob=!{name}" for name in sorted(_SKIPPED)),
)
# Letters that not every program takes for the same when case is ignored.
_UNSURE = re.compile(r"[iI]|[^\x00-\x7f]")


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is searched for: `literal` is in every match as it is, unless case is ignored; "" if unknown."""

    pattern: re.Pattern[str]
    literal: str
    is_plain: bool
    ignores_case: bool
    files: str

    @classmethod
    def of(cls, pattern: str, files: str, *, ignores_case: bool) -> Wanted:
        """Read what the model asks for. Raises: ToolError."""
        if problem := problem_of(pattern):
            raise ToolError(f"the pattern {problem}.")
        literal = literal_of(pattern)
        is_plain = literal == pattern and not ignores_case
        compiled = re.compile(pattern, re.IGNORECASE if ignores_case else 0)
        return cls(compiled, literal, is_plain, ignores_case, files)

    @property
    def sure(self) -> str:
        """Return what another program may look for instead, and find no file too few; "" if nothing."""
        pieces = _UNSURE.split(self.literal) if self.ignores_case else self.literal.split("\ufffd")
        longest = max(pieces, key=len)
        return longest if len(longest) > 1 else ""

    def is_in(self, text: str) -> bool:
        """Return whether a text may hold a match at all."""
        return self.ignores_case or self.literal in text

    def at(self, line: str) -> int:
        """Return where a line matches, -1 if it does not; of a long line only the beginning is searched."""
        if not self.is_in(line):
            return -1
        if self.is_plain:
            return line.find(self.literal)
        # On more characters an unlucky pattern would hold up everybody (see patterns).
        found = self.pattern.search(line, 0, ENDLESS)
        return found.start() if found else -1

    def fits(self, path: str) -> bool:
        """Return whether a file's name, or its path, is one of those that are asked for."""
        name = path.rpartition("/")[2]
        return not self.files or fnmatchcase(name, self.files) or fnmatchcase(path, self.files)


@dataclass(slots=True)
class _Search:
    """A search under way: what it has found, and when it must end."""

    wanted: Wanted
    until: float
    lines: list[str] = field(default_factory=list)
    size: int = 0
    files: int = 0
    more: str = ""

    def look(self, place: Place, path: str) -> None:
        """Add the matching lines of a file; what is no text, or too large, is left out."""
        self.files += 1
        try:
            data = load_from(place, MAX_FILE)
        except (ToolError, OSError):
            return
        if b"\0" in data[:8192]:
            return
        text = data.decode("utf-8", "replace").removeprefix("\ufeff")
        if not self.wanted.is_in(text):
            return
        for number, line in enumerate(text.split("\n"), 1):
            at = self.wanted.at(line.removesuffix("\r"))
            if at >= 0 and not self._add(f"{path}:{number}: {_around(line, at)}"):
                return

    def _add(self, line: str) -> bool:
        self.size += len(line) + 1
        if len(self.lines) >= MAX_LINES or self.size > MAX_TEXT:
            self.more = "there are more; narrow the pattern, the path or the files"
            return False
        self.lines.append(line)
        return True

    def is_over(self) -> bool:
        """Return whether it has taken long enough, and say so in what the model gets."""
        if not self.more and time.monotonic() > self.until:
            self.more = f"stopped after {PATIENCE:g} seconds; narrow the path or the files"
        if not self.more and self.files >= MAX_FILES:
            self.more = f"stopped after {MAX_FILES} files; narrow the path or the files"
        return bool(self.more)

    def __str__(self) -> str:
        notes = [self.more] if self.more else []
        if not self.lines:
            notes.insert(0, f"no line of {self.files} files matches")
        return "\n".join([*self.lines, *(f"[{note}]" for note in notes)])


def search_tool(readable: Readable, ripgrep: str | None) -> FunctionTool:
    """Return the tool; `ripgrep` is the program's path, None where there is none."""

    @tool(Replay.SAFE, Group.FS, private=True, untrusted=is_others)
    async def search(
        context: ToolContext,
        pattern: str,
        path: str = ".",
        files: str = "",
        ignore_case: bool = False,  # noqa: FBT001, FBT002 - the model names its arguments
    ) -> str:
        """Search the lines of text files.

        pattern: regular expression
        files: names, such as *.md
        """
        wanted = Wanted.of(pattern, files, ignores_case=ignore_case)
        root, inside = place_of(context, path, readable)
        is_folder = await asyncio.to_thread(_is_folder, root, inside)
        only = await _named(ripgrep, wanted, root / inside) if ripgrep and is_folder and wanted.sure else None
        return await asyncio.to_thread(_search, (root, inside), path, wanted, only)

    return search


def _is_folder(root: Path, inside: str) -> bool:
    with reach(root, inside):  # what leads out is refused before a program is told of it
        return (root / inside).is_dir()


async def _named(ripgrep: str, wanted: Wanted, folder: Path) -> Collection[str] | None:
    """Return the files below a folder that hold a part of the pattern, None if that can't be told."""
    case = ("--ignore-case",) if wanted.ignores_case else ()
    try:
        process = await asyncio.create_subprocess_exec(
            *(ripgrep, *_RIPGREP, *case, "-e", wanted.sure, "--", "."),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            cwd=folder,
            env={},
            start_new_session=True,
        )
    except OSError:
        return None
    try:
        async with asyncio.timeout(PATIENCE / 2):
            out, _ = await process.communicate()
    except TimeoutError:
        return None
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
    names = os.fsdecode(out).split("\0")
    return {name.removeprefix("./") for name in names} if process.returncode in {0, 1} else None


def _search(start: tuple[Path, str], shown: str, wanted: Wanted, only: Collection[str] | None) -> str:
    found = _Search(wanted, time.monotonic() + PATIENCE)
    with reach(*start) as place:
        try:
            top = os.open(place.name, _FOLDER, dir_fd=place.folder)
        except NotADirectoryError:
            found.look(place, shown)
            return str(found)
        try:
            # What other people brought is looked through only where it is named: it would taint each search.
            without = ROOMS if place.path == "." else ""
            for file in _walk(top, "", found.is_over, without):
                if not wanted.fits(file.path):
                    continue
                if only is None or file.path in only:
                    found.look(file, file.path if shown in {"", "."} else f"{shown.rstrip('/')}/{file.path}")
                else:
                    found.files += 1
        finally:
            os.close(top)
    return str(found)


def _walk(folder: int, path: str, is_over: Callable[[], bool], without: str = "") -> Iterator[Place]:
    """Yield the files below an open folder in the order of their names; no link is followed."""
    for entry in _entries(folder):
        if is_over():
            return
        if entry.name == without:
            continue
        where = f"{path}{entry.name}"
        if entry.is_dir(follow_symlinks=False):
            if where.count("/") >= MAX_DEPTH:
                continue
            try:
                inner = os.open(entry.name, _FOLDER, dir_fd=folder)
            except OSError:
                continue  # gone, closed to us, or a link since
            try:
                yield from _walk(inner, f"{where}/", is_over)
            finally:
                os.close(inner)
        elif entry.is_file(follow_symlinks=False):
            yield Place(folder, entry.name, where, where)


def _entries(folder: int) -> Sequence[os.DirEntry[str]]:
    with os.scandir(folder) as entries:
        seen = [entry for entry in entries if not entry.name.startswith(".") and entry.name not in _SKIPPED]
    return sorted(seen, key=lambda entry: entry.name)


def _around(line: str, at: int) -> str:
    """Return a line, or what is around the match if it is long."""
    line = line.rstrip()
    if len(line) <= MAX_SHOWN:
        return line
    begin = max(0, at - MAX_SHOWN // 2)
    return (
        ("…" if begin else "")
        + line[begin : begin + MAX_SHOWN]
        + ("…" if begin + MAX_SHOWN < len(line) else "")
    )
