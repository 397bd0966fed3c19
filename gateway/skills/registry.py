"""Indexes of skills that may be installed by name: a JSON or TOML file that lists packages."""

from __future__ import annotations

import hashlib
import json
import re
import tempfile
import tomllib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias
from urllib.parse import urljoin

from gateway.errors import ConfigError
from gateway.skills.archive import MAX_TOTAL, entries_of, read
from gateway.skills.receipt import digest
from gateway.types import Json

MAX_INDEX = 5_000_000
"""Bytes of an index."""

Fetch: TypeAlias = Callable[[str, int], bytes]
"""Returns what an https address gives, at most so many bytes. Raises: ConfigError."""


@dataclass(frozen=True, slots=True)
class Offer:
    """A package of an index. `place` is a path or an https address; `sha256` is that of the zip file.

    For a folder it is the digest that `crayfish skills inspect` shows.
    """

    name: str
    version: str
    sha256: str
    place: str
    index: str

    @property
    def origin(self) -> str:
        """Return what its receipt says about where it comes from."""
        return f"{self.index}#{self.name}"


def offline(url: str, _most: int) -> bytes:
    """Stand for a fetch where nothing may be fetched. Raises: ConfigError."""
    raise ConfigError(f"{url} can't be fetched here; download it, and install the file")


def offers(index: str, fetch: Fetch = offline) -> list[Offer]:
    """Read an index: `skills` is a list of name, version, sha256, and path or url.

    Relative places begin where the index is. Raises: ConfigError, which names the index.
    """
    try:
        text = _bytes_of(index, fetch).decode("utf-8-sig")
        found = tomllib.loads(text) if index.endswith(".toml") else json.loads(text)
        rows = found["skills"] if isinstance(found, dict) else found
        return [_offer(row, index) for row in rows]
    except OSError as error:
        raise ConfigError(f"the registry {index}: {(error.strerror or str(error)).lower()}") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(f"the registry {index} can't be read ({error})") from error


def newest(name: str, indexes: Sequence[str], fetch: Fetch = offline, *, version: str = "") -> Offer:
    """Return the newest offer of a name; the first index that has one counts. Raises: ConfigError."""
    for index in indexes:
        found = [one for one in offers(index, fetch) if one.name == name and version in ("", one.version)]
        if found:
            return max(found, key=lambda one: order(one.version))
    where = ", ".join(indexes) or "none is configured, see [skills] registries"
    raise ConfigError(f"no registry has {name}{f' {version}' if version else ''} ({where})")


def order(version: str) -> tuple[tuple[int, int, str], ...]:
    """Return a key that orders versions as people read them: 1.10 after 1.9, 1.0-rc before 1.0."""
    release, _, early = version.partition("-")
    parts = [
        (1, int(one), "") if one.isdigit() else (0, 0, one) for one in re.findall(r"\d+|[A-Za-z]+", release)
    ]
    while parts and parts[-1] == (1, 0, ""):
        parts.pop()
    tail = [
        (0, int(one), "") if one.isdigit() else (0, 0, one) for one in re.findall(r"\d+|[A-Za-z]+", early)
    ]
    return (*parts, (0, -1, ""), *tail) if early else (*parts, (0, 1 << 62, ""))


@contextmanager
def fetched(offer: Offer, fetch: Fetch = offline) -> Iterator[Path]:
    """Yield the package of an offer as a file or folder whose digest is right. Raises: ConfigError."""
    if not offer.place.startswith("https://"):
        place = Path(offer.place)
        _check(offer, _digest_of(place))
        yield place
        return
    data = fetch(offer.place, MAX_TOTAL)
    _check(offer, hashlib.sha256(data).hexdigest())
    with tempfile.TemporaryDirectory(prefix="crayfish-skill-") as folder:
        file = Path(folder) / f"{offer.name}.zip"
        file.write_bytes(data)
        yield file


def _check(offer: Offer, found: str) -> None:
    if found != offer.sha256:
        raise ConfigError(
            f"{offer.place} is not what the registry promises (sha256 {found}, not {offer.sha256}); "
            "nothing was installed"
        )


def _digest_of(place: Path) -> str:
    if place.is_dir():
        with entries_of(place) as entries:
            return digest({one.path: hashlib.sha256(read(one, one.size + 1)).hexdigest() for one in entries})
    try:
        with place.open("rb") as data:
            return hashlib.file_digest(data, "sha256").hexdigest()
    except OSError as error:
        raise ConfigError(f"{place}: {(error.strerror or str(error)).lower()}") from error


def _bytes_of(index: str, fetch: Fetch) -> bytes:
    if index.startswith("https://"):
        return fetch(index, MAX_INDEX)
    with Path(index).open("rb") as data:
        found = data.read(MAX_INDEX + 1)
    if len(found) > MAX_INDEX:
        raise ValueError(f"it has more than {MAX_INDEX} bytes")
    return found


def _offer(row: Json, index: str) -> Offer:
    sha256 = str(row["sha256"]).lower()
    if not re.fullmatch(r"[0-9a-f]{64}", sha256):
        raise ValueError(f"the sha256 of {row['name']!r} is none")
    place = str(row.get("url") or row["path"])
    if "://" in place and not place.startswith("https://"):
        raise ValueError(f"the address of {row['name']!r} does not begin with https://")
    if not place.startswith("https://"):
        place = urljoin(index, place) if index.startswith("https://") else str(Path(index).parent / place)
    return Offer(str(row["name"]), str(row["version"]), sha256, place, index)
