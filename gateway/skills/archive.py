"""What a skill is installed from, a zip or a folder: every entry is checked before one byte is written."""

from __future__ import annotations

import os
import re
import stat
import struct
import unicodedata
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from gateway.errors import ConfigError
from gateway.skills.scan import FILE

MAX_ENTRIES = 2_000
MAX_TOTAL = 50_000_000
MAX_ENTRY = 10_000_000
MAX_RATIO = 100
MAX_NAME_BYTES = 200
MAX_FOLDERS = 10

_FREE_RATIO = 100_000
"""Bytes up to which a file may be as empty as it likes."""

_BLOCK = 65_536
_DRIVE = re.compile(r"[A-Za-z]:")
_DEVICES = re.compile(r"(?:con|prn|aux|nul|com[0-9]|lpt[0-9])(?:\..*)?", re.IGNORECASE)
_LEFT_OUT = frozenset({"__MACOSX", "__pycache__", ".git", ".DS_Store", "Thumbs.db"})
_END = struct.Struct("<4s4H2LH")
_LOCAL = struct.Struct("<4s5H3L2H")


class Refused(ConfigError):
    """What was given is no skill that may be installed; nothing was written."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A file of a skill, by its path with / between folders. `size` is what was declared, in bytes."""

    path: str
    size: int
    executable: bool
    open: Callable[[], IO[bytes]]


@contextmanager
def entries_of(source: Path) -> Iterator[Sequence[Entry]]:
    """Yield the files of a folder or a zip whose SKILL.md lies at its top, or in its only folder.

    What file managers and version control leave behind is left out.

    Raises: Refused, which names the entry; also while an entry is read.
    """
    with ExitStack() as stack:
        try:
            if source.is_dir():
                entries = list(_of_folder(source))
            elif source.is_file():
                data = stack.enter_context(source.open("rb"))
                size = os.fstat(data.fileno()).st_size
                archive = stack.enter_context(_open(data, size))
                entries = list(_of_zip(archive, size))
            else:
                raise Refused(f"{source}: no such folder or zip file")
            yield _checked(entries)
        except (zipfile.BadZipFile, zlib.error, EOFError, struct.error, RuntimeError) as error:
            raise Refused(f"{source}: the zip file is damaged ({error})") from error
        except OSError as error:
            raise Refused(f"{source}: {(error.strerror or str(error)).lower()}") from error


def copy(entry: Entry, target: IO[bytes]) -> None:
    """Write an entry's content; what really comes out is counted (attack zip-007). Raises: Refused."""
    left = entry.size
    with entry.open() as source:
        while block := source.read(_BLOCK):
            left -= len(block)
            if left < 0:
                raise Refused(f"{entry.path!r} has more bytes than it says")
            target.write(block)
    if left:
        raise Refused(f"{entry.path!r} has fewer bytes than it says")


def read(entry: Entry, most: int) -> bytes:
    """Return the beginning of an entry. Raises: Refused."""
    with entry.open() as source:
        return source.read(most)


def _checked(entries: Sequence[Entry]) -> Sequence[Entry]:
    """Return what is left of the entries below the folder with the SKILL.md."""
    kept = [entry for entry in entries if not _LEFT_OUT.intersection(entry.path.split("/"))]
    if len(kept) > MAX_ENTRIES:
        raise Refused(f"it has more than {MAX_ENTRIES} files")
    if (total := sum(entry.size for entry in kept)) > MAX_TOTAL:
        raise Refused(f"its files have {total} bytes, at most {MAX_TOTAL} are possible")
    for entry in kept:
        if entry.size > MAX_ENTRY:
            raise Refused(f"{entry.path!r} has {entry.size} bytes, at most {MAX_ENTRY} are possible")
    _check_names([entry.path for entry in kept])
    return _below(kept, _top([entry.path for entry in kept]))


def _check_names(paths: Sequence[str]) -> None:
    """Refuse names that are one on some file system, and files that are also folders (zip-015, zip-016)."""
    seen: dict[str, str] = {}
    folders: dict[str, str] = {}
    for path in paths:
        key = _folded(path)
        if key in seen:
            raise Refused(f"{seen[key]!r} and {path!r} are the same name")
        seen[key] = path
        parts = path.split("/")
        for at in range(1, len(parts)):
            above = "/".join(parts[:at])
            if folders.setdefault(_folded(above), above) != above:
                raise Refused(f"{folders[_folded(above)]!r} and {above!r} are the same name")
    for key in seen.keys() & folders.keys():
        raise Refused(f"{seen[key]!r} is a file and a folder")


def _folded(path: str) -> str:
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", path).casefold())


def _top(paths: Sequence[str]) -> str:
    """Return the folder with the SKILL.md, with a slash, "" for the top itself."""
    found = [path for path in paths if path.rpartition("/")[2].upper() == FILE.upper()]
    if not found:
        raise Refused(f"it has no {FILE}, at its top or in its only folder")
    if len(found) > 1:
        raise Refused(
            f"it has more than one {FILE} ({', '.join(sorted(found)[:3])}); install them one by one"
        )
    above, slash, name = found[0].rpartition("/")
    if name != FILE:
        raise Refused(f"{found[0]!r} must be called {FILE}")
    if "/" in above or (above and any(not path.startswith(f"{above}/") for path in paths)):
        raise Refused(f"its {FILE} must lie at its top or in its only folder, not at {found[0]!r}")
    return above + slash


def _below(entries: Sequence[Entry], top: str) -> Sequence[Entry]:
    return [Entry(one.path.removeprefix(top), one.size, one.executable, one.open) for one in entries]


def _check_path(path: str) -> None:
    """Refuse what no file of a skill is called (skills-09, zip-001, -003, -004, -012, -013)."""
    shown = path[:120]
    if len(path.encode("utf-8", "surrogatepass")) > MAX_NAME_BYTES:
        raise Refused(f"the name {shown!r}… has more than {MAX_NAME_BYTES} bytes")
    if any(unicodedata.category(sign) in ("Cc", "Cf", "Cs", "Co") for sign in path):
        raise Refused(f"the name {shown!r} holds signs that nobody sees")
    if "\\" in path or _DRIVE.match(path) or ":" in path:
        raise Refused(f"the name {shown!r} holds a backslash or a colon")
    if path.startswith("/"):
        raise Refused(f"the name {shown!r} begins at the root of the disk")
    parts = path.split("/")
    if any(part in ("", ".", "..") for part in parts):
        raise Refused(f"the name {shown!r} leads out of the skill's folder, or round in it")
    if any(part != part.rstrip(" .") or _DEVICES.fullmatch(part) for part in parts):
        raise Refused(f"the name {shown!r} is no file's name everywhere")
    if len(parts) > MAX_FOLDERS + 1:
        raise Refused(f"{shown!r} lies more than {MAX_FOLDERS} folders deep")


def _of_folder(folder: Path) -> Iterator[Entry]:
    """Yield the regular files of a folder; refuse links and special files."""
    waiting, count = [""], 0
    while waiting:
        above = waiting.pop()
        with os.scandir(folder / above) as found:
            for one in sorted(found, key=lambda entry: entry.name):
                path = f"{above}{one.name}"
                if one.name in _LEFT_OUT:
                    continue
                count += 1
                if count > MAX_ENTRIES:
                    raise Refused(f"{folder} has more than {MAX_ENTRIES} files")
                _check_path(path)
                status = one.stat(follow_symlinks=False)
                if stat.S_ISDIR(status.st_mode):
                    waiting.append(f"{path}/")
                elif stat.S_ISREG(status.st_mode):
                    yield Entry(path, status.st_size, bool(status.st_mode & 0o111), _opener(folder / path))
                else:
                    raise Refused(
                        f"{path!r} is a link or a special file; only files and folders can be installed"
                    )


def _opener(file: Path) -> Callable[[], IO[bytes]]:
    def open_file() -> IO[bytes]:
        return os.fdopen(os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb")

    return open_file


def _open(data: IO[bytes], size: int) -> zipfile.ZipFile:
    """Open a zip whose table of contents is as small and as whole as it says."""
    if size > MAX_TOTAL:
        raise Refused(f"the zip file has {size} bytes, at most {MAX_TOTAL} are possible")
    data.seek(max(0, size - _END.size - 65_535))
    tail = data.read()
    at = tail.rfind(b"PK\x05\x06")
    if at < 0 or len(tail) - at < _END.size:
        raise Refused("this is no zip file")
    _, disk, first_disk, here, count, length, offset, comment = _END.unpack_from(tail, at)
    if at + _END.size + comment != len(tail):
        raise Refused("something stands behind the end of the zip file")
    if disk or first_disk or here != count or offset + length != size - len(tail) + at:
        raise Refused("the zip file is in parts, too new, or has something before it")
    # The table is read as long as it says, whatever count is written there.
    if count > MAX_ENTRIES or length > MAX_ENTRIES * (46 + MAX_NAME_BYTES + 200):
        raise Refused(f"it has more than {MAX_ENTRIES} files")
    return zipfile.ZipFile(data)


def _of_zip(archive: zipfile.ZipFile, size: int) -> Iterator[Entry]:
    infos = archive.infolist()
    if len(infos) > MAX_ENTRIES:
        raise Refused(f"it has more than {MAX_ENTRIES} files")
    for info in infos:
        _check_info(info)
    _check_ranges(archive, infos, size)
    names = [info.filename for info in infos]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise Refused(f"{twice!r} is there twice")
    for info in infos:
        if not info.is_dir():
            executable = bool(info.external_attr >> 16 & 0o111)
            yield Entry(info.filename, info.file_size, executable, _zip_opener(archive, info))


def _zip_opener(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> Callable[[], IO[bytes]]:
    return lambda: archive.open(info)


def _check_info(info: zipfile.ZipInfo) -> None:
    """Refuse an entry by what the table of contents says about it."""
    if info.orig_filename != info.filename:  # cut at a NUL, or with other slashes
        raise Refused(f"the name {info.orig_filename[:120]!r} holds signs that no name has")
    path = info.filename.removesuffix("/") if info.is_dir() else info.filename
    _check_path(path)
    kind = stat.S_IFMT(info.external_attr >> 16)
    if kind not in (0, stat.S_IFDIR if info.is_dir() else stat.S_IFREG):
        raise Refused(f"{path!r} is a link or a special file; only files and folders can be installed")
    if info.flag_bits & 0x2041:
        raise Refused(f"{path!r} is encrypted")
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise Refused(f"{path!r} is packed in a way that is not known here; pack it as usual (deflate)")
    if info.file_size > MAX_ENTRY:
        raise Refused(f"{path!r} has {info.file_size} bytes, at most {MAX_ENTRY} are possible")
    if info.file_size > max(_FREE_RATIO, MAX_RATIO * info.compress_size):
        raise Refused(f"{path!r} is packed more than {MAX_RATIO} times smaller: that is no file of a skill")


def _check_ranges(archive: zipfile.ZipFile, infos: Sequence[zipfile.ZipInfo], size: int) -> None:
    """Refuse entries whose data overlap, so that one kernel can't be counted many times (zip-009)."""
    assert archive.fp is not None
    end = 0
    for info in sorted(infos, key=lambda info: info.header_offset):
        if not end <= info.header_offset < size:
            raise Refused(f"{info.filename!r} shares its data with another entry")
        archive.fp.seek(info.header_offset)
        header = _LOCAL.unpack(archive.fp.read(_LOCAL.size))
        end = info.header_offset + _LOCAL.size + header[9] + header[10] + info.compress_size
    if end > archive.start_dir:
        raise Refused("its last entry reaches into the table of contents")
