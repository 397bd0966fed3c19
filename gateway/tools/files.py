"""The file tools: read, write, edit and list_dir, all beneath the workspace."""

from __future__ import annotations

import asyncio
import difflib
import itertools
import os
import secrets
import stat
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from gateway.errors import ToolError
from gateway.tools.base import ToolContext
from gateway.tools.paths import Place, reach
from gateway.tools.schema import tool
from gateway.types import Replay

MAX_FILE = 20_000_000
MAX_EDIT = 2_000_000
MAX_WINDOW = 15_500
MAX_NAMES = 500

_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_IMAGES = {b"\x89PNG\r\n": "PNG", b"\xff\xd8\xff": "JPEG", b"GIF8": "GIF", b"BM": "BMP"}


@tool(Replay.SAFE)
async def read(context: ToolContext, path: str, offset: int = 1, limit: int = 2000) -> str:
    """Read a text file of the workspace.

    offset: First line to show, from 1.
    limit: Number of lines.
    """
    return await asyncio.to_thread(_read, context.workspace, path, offset, limit)


@tool(Replay.ONCE)
async def write(context: ToolContext, path: str, content: str) -> str:
    """Create or replace a file of the workspace, with its folders."""
    return await asyncio.to_thread(_write, context.workspace, path, content)


@tool(Replay.ONCE)
async def edit(
    context: ToolContext,
    path: str,
    old_text: str,
    new_text: str,
    replace_all: bool = False,  # noqa: FBT001, FBT002 - the model names its arguments
) -> str:
    """Replace exact text in a file of the workspace.

    old_text: Must occur exactly once, blanks and line ends included.
    replace_all: Replace every occurrence.
    """
    return await asyncio.to_thread(_edit, context.workspace, path, old_text, new_text, replace_all)


@tool(Replay.SAFE)
async def list_dir(context: ToolContext, path: str = ".") -> str:
    """List a folder of the workspace: names with sizes in bytes, folders with a slash."""
    return await asyncio.to_thread(_list, context.workspace, path)


FILE_TOOLS = (read, write, edit, list_dir)


def save(root: Path, path: str, data: bytes) -> None:
    """Write a file beneath `root` so that a crash leaves the old content or the new, never a mixture.

    Raises: ToolError.
    """
    with reach(root, path, new=True) as place:
        _replace(place, data, _mode(place))


def load(root: Path, path: str, most: int) -> bytes:
    """Return the content of a file beneath `root`, at most `most` bytes.

    Raises: ToolError.
    """
    with reach(root, path) as place:
        return _load(place, most)


def exists(root: Path, path: str) -> bool:
    """Return whether a path names a regular file beneath `root`, without links that lead out."""
    try:
        with reach(root, path) as place:
            _check(os.stat(place.name, dir_fd=place.folder, follow_symlinks=False), place)
    except (ToolError, OSError):
        return False
    return True


def prune(root: Path, path: str, most: int) -> None:
    """Delete the oldest files of a folder beneath `root` until `most` are left.

    Raises: ToolError.
    """
    with reach(root, path) as place:
        folder = _open(place, _READ | os.O_DIRECTORY)
        try:
            with os.scandir(folder) as entries:
                files = [entry for entry in entries if entry.is_file(follow_symlinks=False)]
            files.sort(key=lambda entry: entry.stat(follow_symlinks=False).st_mtime_ns)
            for entry in files[: max(0, len(files) - most)]:
                _discard(entry.name, folder)
        finally:
            os.close(folder)


def _read(root: Path, path: str, offset: int, limit: int) -> str:
    with reach(root, path) as place:
        data = _load(place, MAX_FILE)
    if kind := _image(data):
        return f"{path} is an image ({kind}, {len(data)} bytes). Looking at images is not possible yet."
    if b"\0" in data[:8192]:
        raise ToolError(f"{path!r} is a binary file ({len(data)} bytes); only text can be read.")
    text = data.decode("utf-8", "replace").removeprefix("\ufeff").replace("\r\n", "\n")
    return (
        _window(text.removesuffix("\n").split("\n"), max(1, offset), max(1, limit))
        if text
        else "(empty file)"
    )


def _window(lines: Sequence[str], first: int, limit: int) -> str:
    """Return lines from `first` (counted from 1), as many as `limit` and the size of a result allow."""
    if first > len(lines):
        raise ToolError(f"offset {first} is behind the end: the file has {len(lines)} lines.")
    wanted = lines[first - 1 : first - 1 + limit]
    sizes = itertools.accumulate(len(line) + 1 for line in wanted)
    shown = sum(1 for _ in itertools.takewhile(lambda size: size <= MAX_WINDOW, sizes))
    if not shown:
        note = f"line {first} of {len(lines)} shown, cut at {MAX_WINDOW} of {len(wanted[0])} characters"
        return f"{wanted[0][:MAX_WINDOW]}\n{_noted(note, first, len(lines))}"
    last, text = first + shown - 1, "\n".join(wanted[:shown])
    if first == 1 and last == len(lines):
        return text
    return f"{text}\n{_noted(f'lines {first}–{last} of {len(lines)} shown', last, len(lines))}"


def _noted(note: str, last: int, total: int) -> str:
    return f"[{note}; read on with offset={last + 1}]" if last < total else f"[{note}]"


def _write(root: Path, path: str, content: str) -> str:
    data = content.encode("utf-8", "replace")
    save(root, path, data)
    return f"Wrote {len(data)} bytes to {path}"


def _edit(root: Path, path: str, old: str, new: str, every: bool) -> str:  # noqa: FBT001 - passed on
    if not old:
        raise ToolError("old_text is empty; to create a file or replace it whole, use write.")
    if old == new:
        raise ToolError("old_text and new_text are the same; nothing was changed.")
    with reach(root, path) as place:
        text = _editable(_load(place, MAX_EDIT), path)
        if "\r\n" in text and "\r" not in old:
            old, new = old.replace("\n", "\r\n"), new.replace("\r\n", "\n").replace("\n", "\r\n")
        where = _lines_of(text, old)
        if not where:
            raise ToolError(f"old_text does not occur in {path!r}.{_nearest(text, old)}")
        if len(where) > 1 and not every:
            raise ToolError(
                f"old_text occurs {len(where)} times in {path!r}, in lines {_some(where)}. "
                "Add lines around it until it is unique, or set replace_all."
            )
        _replace(place, text.replace(old, new).encode("utf-8", "replace"), _mode(place))
    many = "1 place" if len(where) == 1 else f"{len(where)} places"
    return f"Edited {path} in {many} (line {_some(where)})"


def _editable(data: bytes, path: str) -> str:
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise ToolError(f"{path!r} is not UTF-8 text, so it can't be edited without damage.") from error
    if "\0" in text:
        raise ToolError(f"{path!r} is a binary file; only text can be edited.")
    return text


def _lines_of(text: str, part: str) -> list[int]:
    """Return the line number, from 1, at which each occurrence of `part` begins."""
    found: list[int] = []
    line, seen, at = 1, 0, text.find(part)
    while at >= 0:
        line += text.count("\n", seen, at)
        found.append(line)
        seen, at = at, text.find(part, at + len(part))
    return found


def _some(numbers: Sequence[int]) -> str:
    listed = ", ".join(map(str, numbers[:10]))
    return listed if len(numbers) <= 10 else f"{listed} and {len(numbers) - 10} more"


def _nearest(text: str, old: str) -> str:
    """Show the lines that look most like the first line of `old`."""
    wanted = next((line.strip() for line in old.splitlines() if line.strip()), "")
    lines = {
        line.strip()[:200]: number for number, line in reversed([*enumerate(text.splitlines()[:5000], 1)])
    }
    near = difflib.get_close_matches(wanted[:200], lines, n=3, cutoff=0.5)
    if not near:
        return " Read the file again."
    return " The nearest lines are:\n" + "\n".join(f"{lines[line]}: {line}" for line in near)


def _list(root: Path, path: str) -> str:
    with reach(root, path) as place:
        folder = _open(place, _READ | os.O_DIRECTORY)
        try:
            with os.scandir(folder) as entries:
                rows = [_row(entry) for entry in sorted(entries, key=lambda entry: entry.name)]
        finally:
            os.close(folder)
    if len(rows) > MAX_NAMES:
        rows[MAX_NAMES:] = [
            f"[{len(rows) - MAX_NAMES} more; list a folder below, or read a file by its name]"
        ]
    return "\n".join(rows) or "(empty folder)"


def _row(entry: os.DirEntry[str]) -> str:
    name = "".join(sign if sign.isprintable() else "�" for sign in entry.name)
    if entry.is_symlink():
        return f"{name} (link)"
    if entry.is_dir(follow_symlinks=False):
        return f"{name}/"
    try:
        return f"{name} ({entry.stat(follow_symlinks=False).st_size})"
    except FileNotFoundError:
        return f"{name} (just deleted)"


def _load(place: Place, most: int) -> bytes:
    """Read a regular file that has no second name."""
    _check(os.stat(place.name, dir_fd=place.folder, follow_symlinks=False), place)
    with os.fdopen(_open(place, _READ), "rb") as file:
        # The name may have been given to another file since: what counts is what is open now.
        size = _check(os.fstat(file.fileno()), place).st_size
        if size > most:
            raise ToolError(f"{place.shown!r} is too large: {size} bytes, at most {most} are possible.")
        return file.read(most)


def _open(place: Place, flags: int) -> int:
    try:
        return os.open(place.name, flags, dir_fd=place.folder)
    except NotADirectoryError as error:
        raise ToolError(f"{place.shown!r} is a file; use read.") from error


def _check(status: os.stat_result, place: Place) -> os.stat_result:
    if stat.S_ISDIR(status.st_mode):
        raise ToolError(f"{place.shown!r} is a folder; use list_dir.")
    if not stat.S_ISREG(status.st_mode):
        raise ToolError(f"{place.shown!r} is a device, a pipe or a link, not a regular file.")
    if status.st_nlink > 1:
        # The other name may lie outside the workspace (path-010).
        raise ToolError(f"{place.shown!r} has a second name (hard link); such files are not touched.")
    return status


def _mode(place: Place) -> int | None:
    """Return the permissions of the file that is there, or None when there is none."""
    try:
        status = os.stat(place.name, dir_fd=place.folder, follow_symlinks=False)
    except FileNotFoundError:
        return None
    return _check(status, place).st_mode & 0o777


def _replace(place: Place, data: bytes, mode: int | None) -> None:
    temporary = f".{secrets.token_hex(8)}.tmp"
    try:
        with os.fdopen(os.open(temporary, _CREATE, 0o666, dir_fd=place.folder), "wb") as file:
            file.write(data)
            if mode is not None:
                os.fchmod(file.fileno(), mode)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, place.name, src_dir_fd=place.folder, dst_dir_fd=place.folder)
    except BaseException:
        _discard(temporary, place.folder)
        raise
    _sync(place.folder)


def _discard(name: str, folder: int) -> None:
    with suppress(FileNotFoundError):
        os.unlink(name, dir_fd=folder)


def _sync(folder: int) -> None:
    """Make a rename durable; `folder` may be a handle that only names the folder."""
    handle = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=folder)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _image(data: bytes) -> str | None:
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "WebP"
    return next((kind for start, kind in _IMAGES.items() if data.startswith(start)), None)
