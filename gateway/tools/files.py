"""The file tools: read, write, edit and list_dir, beneath the workspace, and to read also skill folders."""

from __future__ import annotations

import asyncio
import difflib
import hashlib
import itertools
import json
import logging
import os
import re
import secrets
import stat
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import TypeAlias

from gateway.errors import ToolDenied, ToolError
from gateway.redact import values_hidden
from gateway.tools.base import Ask, Group, Output, ToolContext
from gateway.tools.images import Image, image_of
from gateway.tools.paths import Place, landing, reach
from gateway.tools.schema import FunctionTool, tool
from gateway.types import BOOTSTRAP, BROUGHT, ROOMS, Attachment, Json, Media, Replay

MAX_FILE = 20_000_000
MAX_EDIT = 2_000_000
MAX_WINDOW = 15_500
MAX_NAMES = 500

OWNERS = frozenset(map(str.casefold, BOOTSTRAP))
"""Files that tell the model who it is and what to do, in every later conversation."""

SKILLS = "skills"
"""The folder of the workspace whose texts are instructions, too."""

_OTHERS = re.compile(rf"(?<![\w-])(?:{ROOMS}|{re.escape(BROUGHT)})(?![\w-])")

_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC

log = logging.getLogger(__name__)

Readable: TypeAlias = Callable[[], Sequence[Path]]
"""Returns the folders outside the workspace that may be read, such as those of skills."""


def place_of(context: ToolContext, path: str, readable: Readable) -> tuple[Path, str]:
    """Return the folder that a path to be read begins at, and the path from there.

    It is the room, unless the path is absolute, or begins with `~/`, and leads below a readable folder.
    """
    full = os.path.expanduser(path) if path.startswith("~/") else path  # noqa: PTH111 - it normalizes nothing
    if not full.startswith("/"):
        return context.folder, path
    if not PurePosixPath(full).is_relative_to(context.folder):
        for root in readable():
            if PurePosixPath(full).is_relative_to(root):
                return root.resolve(), str(PurePosixPath(full).relative_to(root))
    return context.folder, full


def _nothing_else() -> Sequence[Path]:
    return ()


def is_others(args: Mapping[str, Json]) -> bool:
    """Return whether a path leads to what other people brought: its text is a stranger's (inject-003)."""
    path = PurePosixPath(str(args.get("path", "")))
    return ROOMS in path.parts or f"/{BROUGHT}/" in f"/{path}/"


def mentions_others(text: str) -> bool:
    """Return whether words, such as those of a command, lead to what other people brought."""
    return _OTHERS.search(text) is not None


def file_tools(readable: Readable = _nothing_else) -> tuple[FunctionTool, ...]:
    """Return the tools; `readable` names the folders outside the workspace that they may look into."""

    @tool(Replay.SAFE, Group.FS, private=True, untrusted=is_others)
    async def read(context: ToolContext, path: str, offset: int = 1, limit: int = 2000) -> Output:
        """Read a text file, or look at a picture.

        offset: first line
        """
        return await asyncio.to_thread(_read, context, path, readable, (offset, limit))

    @tool(Replay.SAFE, Group.FS, private=True)
    async def list_dir(context: ToolContext, path: str = ".") -> str:
        """List a folder."""
        return await asyncio.to_thread(_list, *place_of(context, path, readable))

    return (read, write, edit, list_dir)


async def _asks_write(context: ToolContext, path: str, content: str) -> Ask | None:
    return await asyncio.to_thread(_asks, context, path, {"content": content})


async def _asks_edit(
    context: ToolContext,
    path: str,
    old_text: str,
    new_text: str,
    replace_all: bool = False,  # noqa: FBT001, FBT002 - the model names its arguments
) -> Ask | None:
    change: Mapping[str, str | bool] = {
        "old_text": old_text,
        "new_text": new_text,
        "replace_all": replace_all,
    }
    return await asyncio.to_thread(_asks, context, path, change)


@tool(Replay.ONCE, Group.FS, asks=_asks_write)
async def write(context: ToolContext, path: str, content: str) -> str:
    """Create or replace a file, with its folders."""
    _insist(context, await _asks_write(context, path, content))
    return await asyncio.to_thread(_write, context.folder, path, content)


@tool(Replay.ONCE, Group.FS, asks=_asks_edit)
async def edit(
    context: ToolContext,
    path: str,
    old_text: str,
    new_text: str,
    replace_all: bool = False,  # noqa: FBT001, FBT002 - the model names its arguments
) -> str:
    """Replace exact text in a file.

    old_text: must occur once, or replace_all
    """
    _insist(context, await _asks_edit(context, path, old_text, new_text, replace_all))
    return await asyncio.to_thread(_edit, context.folder, path, old_text, new_text, replace_all)


FILE_TOOLS = file_tools()


def _asks(context: ToolContext, path: str, change: Mapping[str, str | bool]) -> Ask | None:
    """Decide about a change of what later conversations obey (attacks path-034, inject-010, inject-012).

    Raises: ToolDenied, unless the owner asks for it in private.
    """
    try:
        lands = landing(context.folder, path)
    except ToolError:
        return None  # the tool itself will say the same
    if not _is_owners(lands):
        return None
    if not context.is_owner:
        raise ToolDenied(f"{lands} belongs to the owner, who can have it changed in their private chat only.")
    if not context.tainted:
        return None
    known = json.dumps([str(context.folder), lands, change], sort_keys=True).encode()
    return Ask(
        title=f"Change {lands}, after reading what strangers wrote",
        detail="\n".join([f"file: {lands}", *(f"{name}: {value}" for name, value in change.items())]),
        binding=hashlib.sha256(known).hexdigest(),
    )


def _is_owners(path: str) -> bool:
    first, _, rest = path.casefold().partition("/")
    return first == SKILLS or (not rest and first in OWNERS)


def _insist(context: ToolContext, ask: Ask | None) -> None:
    """Refuse what a person should have allowed: since they were asked, a link may have led elsewhere."""
    if ask is not None and ask.binding != context.approved:
        raise ToolDenied("nobody has allowed just this change; nothing was written.")


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
        return load_from(place, most)


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


def _read(context: ToolContext, path: str, readable: Readable, window: tuple[int, int]) -> Output:
    root, inside = place_of(context, path, readable)
    with reach(root, inside) as place:
        data = load_from(place, MAX_FILE)
        found = root / place.path
    if found.name == "SKILL.md":
        log.info("skill.loaded", extra={"skill": found.parent.name})
    if (image := image_of(data)) is not None:
        return _shown(context, found, image)
    if b"\0" in data[:8192]:
        raise ToolError(f"{path!r} is a binary file ({len(data)} bytes); only text can be read.")
    text = data.decode("utf-8", "replace").removeprefix("\ufeff").replace("\r\n", "\n")
    if not text:
        return Output("(empty file)")
    if found.name.startswith(".env"):
        text = values_hidden(text)
    offset, limit = window
    return Output(_window(text.removesuffix("\n").split("\n"), max(1, offset), max(1, limit)))


def _shown(context: ToolContext, file: Path, image: Image) -> Output:
    """Return a picture for models that see, and a line for those that don't."""
    if not file.is_relative_to(context.folder):
        return Output(f"[{file.name}: {image}; only pictures in the workspace can be looked at]")
    if image.problem:
        return Output(f"[{file.name}: {image}; not shown, because {image.problem}]")
    path = str(file.relative_to(context.folder))
    picture = Attachment(kind=Media.IMAGE, name=file.name, mime=image.mime, size=image.size, path=path)
    return Output(f"[{file.name}: {image}; shown to models that can look at pictures]", (picture,))


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
        text = _editable(load_from(place, MAX_EDIT), path)
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


def load_from(place: Place, most: int) -> bytes:
    """Read a regular file that has no second name. Raises: ToolError, OSError."""
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
