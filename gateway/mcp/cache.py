"""What servers offered when they were asked last, so that the first turn has their tools already."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from gateway.mcp.listing import Listing, from_json, to_json
from gateway.mcp.target import Site, Target
from gateway.types import Json

FRESH = 86_400.0
"""Seconds after which a server is asked again though nobody needs it."""

_FORMAT = 1

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Remembered:
    """What a server offered, and when (UNIX seconds)."""

    listing: Listing
    at: float


def key(target: Target) -> str:
    """Return what changes with the server: how it is called, and the files that it is started from."""
    if isinstance(target, Site):
        known: list[Json] = [_FORMAT, target.url, sorted(target.headers.items())]
    else:
        program = shutil.which(target.command, path=target.env.get("PATH", os.defpath))
        files = [_file(one) for one in (program, *target.args) if one]
        known = [_FORMAT, target.command, list(target.args), sorted(target.env.items()), files]
    return hashlib.sha256(json.dumps(known).encode("utf-8", "replace")).hexdigest()[:32]


def _file(path: str) -> Json:
    with suppress(OSError, ValueError):
        file = Path(path).resolve()
        found = file.stat()
        return [str(file), found.st_size, found.st_mtime_ns]
    return None


def load(file: Path, wanted: str) -> Remembered | None:
    """Return what a file remembers, None if it is of another server, or of none."""
    try:
        body = json.loads(file.read_text(encoding="utf-8"))
        if body["key"] == wanted:
            return Remembered(from_json(body), float(body["at"]))
    except FileNotFoundError:
        pass
    except (OSError, ValueError, KeyError, TypeError) as error:
        log.warning("mcp.cache_unreadable", extra={"file": str(file), "problem": str(error)})
    return None


def store(file: Path, wanted: str, found: Listing, at: float) -> None:
    """Remember what a server offers; without that the next start asks again."""
    body = {"key": wanted, "at": at, **to_json(found)}
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        new = file.with_suffix(f".{os.getpid()}.new")
        new.write_text(json.dumps(body, ensure_ascii=False), encoding="utf-8")
        new.replace(file)
    except OSError as error:
        log.warning("mcp.cache_unwritable", extra={"file": str(file), "problem": str(error)})
