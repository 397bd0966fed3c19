"""What is known of an installed skill: where it came from, and the digest of every file as it was allowed."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from gateway.types import Json

VERSIONS = ".versions"
"""The folder beside installed skills that holds their versions: `<name>/<number>` and `<number>.json`."""

_IGNORED = "__pycache__"


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """One installed version. `number` counts installs of a name, `version` is what the skill calls itself.

    `source` is a path, or `registry#name`; `at` is wall time. `files` maps each path, with / between
    folders, to the SHA-256 of its content, and `sha256` is the digest of that. `granted` are the tools that
    were granted of those it asked for; none by default (attack zip-024).
    """

    name: str
    version: str
    number: int
    sha256: str
    source: str
    at: float
    files: Mapping[str, str]
    granted: tuple[str, ...] = ()

    def as_json(self) -> str:
        """Return it as it is kept."""
        return json.dumps(asdict(self), ensure_ascii=False, indent=1, sort_keys=True)


def read_receipt(file: Path) -> Receipt | None:
    """Return what a receipt says, None if it is missing or broken."""
    try:
        found: Mapping[str, Json] = json.loads(file.read_text(encoding="utf-8"))
        return Receipt(
            name=str(found["name"]),
            version=str(found["version"]),
            number=int(found["number"]),
            sha256=str(found["sha256"]),
            source=str(found["source"]),
            at=float(found["at"]),
            files={str(path): str(digest) for path, digest in found["files"].items()},
            granted=tuple(map(str, found["granted"])),
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def leads_to_version(link: Path) -> bool:
    """Return whether a path is the link that an install has made."""
    return link.is_symlink() and link.readlink().parts[:1] == (VERSIONS,)


def live_receipt(link: Path) -> Receipt | None:
    """Return the receipt of the version that an installed skill's link leads to."""
    target = link.readlink()
    return read_receipt(link.parent / target.with_name(f"{target.name}.json"))


def digest(files: Mapping[str, str]) -> str:
    """Return one digest for the digests of a skill's files."""
    lines = "".join(f"{path}\0{files[path]}\n" for path in sorted(files))
    return hashlib.sha256(lines.encode()).hexdigest()


def walk(folder: Path) -> Iterator[tuple[str, os.stat_result]]:
    """Yield the path of each file and folder below a folder, and its state; folders end with a slash.

    Links are not followed.

    What Python leaves behind when it runs a script is no change of the skill. Raises: OSError.
    """
    waiting = [("", os.fspath(folder))]
    while waiting:
        above, place = waiting.pop()
        with os.scandir(place) as entries:
            for entry in sorted(entries, key=lambda entry: entry.name):
                if entry.is_dir(follow_symlinks=False):
                    if entry.name != _IGNORED:
                        waiting.append((f"{above}{entry.name}/", entry.path))
                        yield f"{above}{entry.name}/", entry.stat(follow_symlinks=False)
                else:
                    yield f"{above}{entry.name}", entry.stat(follow_symlinks=False)


def changes(receipt: Receipt, found: Mapping[str, str]) -> list[str]:
    """Return in words what differs from what was allowed."""
    told = [f"{path} is missing" for path in receipt.files.keys() - found.keys()]
    told += [f"{path} is new" for path in found.keys() - receipt.files.keys()]
    told += [
        f"{path} was changed"
        for path in receipt.files.keys() & found.keys()
        if receipt.files[path] != found[path]
    ]
    if digest(receipt.files) != receipt.sha256:
        told.append("its receipt was changed")
    return sorted(told)


def hashes(folder: Path, known: Callable[[str, os.stat_result], str | None] | None = None) -> dict[str, str]:
    """Return the digest of each file below a folder. Raises: OSError.

    `known` is asked for each file and folder, and may spare reading a file.
    """
    found = {}
    for path, status in walk(folder):
        kept = known(path, status) if known else None
        if not path.endswith("/"):
            found[path] = kept or hash_file(folder / path)
    return found


def hash_file(file: Path) -> str:
    """Return the SHA-256 of a regular file, or what it is instead. Raises: OSError."""
    if file.is_symlink() or not file.is_file():
        return "no regular file"
    with file.open("rb") as data:
        return hashlib.file_digest(data, "sha256").hexdigest()
