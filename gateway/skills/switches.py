"""Which skills were switched off on the command line: a small file beside the installed ones."""

from __future__ import annotations

import json
import os
from collections.abc import Set as AbstractSet
from pathlib import Path

FILE = ".off.json"


def read(file: Path) -> frozenset[str]:
    """Return the names that are off; none if there is no such file, or a broken one."""
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return frozenset()
    return frozenset(map(str, found)) if isinstance(found, list) else frozenset()


def write(file: Path, names: AbstractSet[str]) -> None:
    """Replace the file, so that a crash leaves the old list or the new one. Raises: OSError."""
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    temporary = file.with_name(f"{file.name}.{os.getpid()}.tmp")
    with temporary.open("w", encoding="utf-8") as data:
        json.dump(sorted(names), data)
        data.flush()
        os.fsync(data.fileno())
    temporary.replace(file)
