"""Installing skills: staged beside the others, checked, and put in place by one rename.

An installed skill `<folder>/<name>` is a link to `.versions/<name>/<number>`, beside which lies its receipt
`<number>.json`. Replacing the link is the only step that changes what runs, so a crash anywhere leaves the
old version or the new one, whole.
"""

from __future__ import annotations

import fcntl
import os
import re
import secrets
import shutil
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from gateway.errors import ConfigError
from gateway.skills import audit, declared, switches
from gateway.skills.archive import Entry, Refused, copy, entries_of, read
from gateway.skills.audit import Report
from gateway.skills.front import Front, names, parse
from gateway.skills.gate import needs_of
from gateway.skills.index import MAX_FILE, version
from gateway.skills.receipt import (
    VERSIONS,
    Receipt,
    changes,
    digest,
    hashes,
    leads_to_version,
    live_receipt,
    read_receipt,
)
from gateway.skills.scan import FILE

KEPT = 3
"""Versions of a skill that stay on disk, the live one among them."""

RESERVED = frozenset({
    "read", "write", "edit", "list-dir", "apply-patch", "exec", "process", "cron", "message", "browser",
    "web-search", "web-fetch", "memory-search", "memory-get", "memory-save", "memory-write", "update-plan",
    "sessions-spawn", "sessions-list", "sessions-send", "sessions-history", "session-status", "subagents",
    "plan", "todo", "image", "canvas", "nodes", "gateway", "skill", "skills", "tools",
})  # fmt: skip
"""Names of tools, which a skill must not look like (attack zip-021)."""

_SLUG = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_STAGING, _LINK, _TRASH, _LOCK = ".staging-", ".link-", ".trash-", ".lock"


@dataclass(frozen=True, slots=True)
class Version:
    """A version of a skill that is on disk."""

    receipt: Receipt
    live: bool


@dataclass(frozen=True, slots=True)
class Staged:
    """A checked copy that waits for approval; `files` are the digests of its files."""

    folder: Path
    report: Report
    files: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Packages:
    """The skills in `folder` that were installed. Every method may raise ConfigError, with what to do.

    `wall` tells the time for receipts. `others` are the names of skills elsewhere, such as those that ship
    with the program: they are hidden only when asked to. No skill gets one of the `reserved` names.
    """

    folder: Path
    wall: Callable[[], float]
    others: Collection[str] = field(default_factory=frozenset)
    reserved: Collection[str] = RESERVED

    def inspect(self, source: Path) -> Report:
        """Return what a zip or a folder would bring along; leave nothing behind."""
        with self._locked(), self._staged(source) as staged:
            return staged.report

    def install(
        self,
        source: Path,
        *,
        origin: str = "",
        approved: str = "",
        approve: Callable[[Report], bool] = lambda _report: True,
        replace: bool = False,
        grant: Collection[str] = (),
    ) -> Receipt | None:
        """Install a zip or a folder; return its receipt, None when `approve` said no.

        `origin` is where it comes from, if that is not `source`. `approved` is the digest that a person
        has seen: anything else is refused (attack zip-027). `grant` are the tools that it may have of
        those it asks for.
        """
        with self._locked(), self._staged(source) as staged:
            if approved and staged.report.sha256 != approved:
                raise Refused(f"{source} has changed since it was looked at; look at it again")
            self.check_name(staged.report.name, replace=replace)
            if unknown := set(grant) - set(staged.report.tools):
                raise Refused(
                    f"it does not ask for {', '.join(sorted(unknown))}; leave that out of what is granted"
                )
            if not approve(staged.report):
                return None
            return self._commit(staged, origin or str(source.resolve()), tuple(sorted(grant)))

    def rollback(self, name: str, number: int = 0) -> Receipt:
        """Put the version before the live one back, or the one of a number; also what was removed."""
        with self._locked():
            versions = self.versions(name)
            live = next((one.receipt.number for one in versions if one.live), None)
            older = [
                one
                for one in versions
                if not one.live and (live is None or number or one.receipt.number < live)
            ]
            chosen = next((one.receipt for one in older if not number or one.receipt.number == number), None)
            if chosen is None:
                kept = ", ".join(str(one.receipt.number) for one in older) or "none"
                raise ConfigError(f"there is no such older version of {name!r}; on disk: {kept}")
            self._must_be_whole(chosen)
            self._point(name, chosen.number)
            return chosen

    def remove(self, name: str, *, purge: bool = False) -> None:
        """Take a skill out; its versions stay for a rollback unless they are to be purged."""
        with self._locked():
            link, versions = self.folder / name, self._versions(name)
            if not link.is_symlink() and not (purge and versions.is_dir()):
                raise ConfigError(f"no installed skill is called {name!r}; `crayfish skills list` shows them")
            if link.is_symlink():
                link.unlink()
                _sync(self.folder)
            if purge:
                self._throw_away(versions)

    def switch(self, name: str, *, on: bool) -> None:
        """Switch a skill of any source on or off."""
        with self._locked():
            file = self.folder / switches.FILE
            off = switches.read(file)
            switches.write(file, off - {name} if on else off | {name})

    def off(self) -> frozenset[str]:
        """Return the names that are switched off."""
        return switches.read(self.folder / switches.FILE)

    def installed(self) -> dict[str, Receipt]:
        """Return the receipts of the live versions, by name."""
        if not self.folder.is_dir():
            return {}
        links = (one for one in sorted(self.folder.iterdir()) if leads_to_version(one))
        found = ((one.name, live_receipt(one)) for one in links)
        return {name: receipt for name, receipt in found if receipt}

    def versions(self, name: str) -> list[Version]:
        """Return the versions of a skill that are on disk, the newest first."""
        link = self.folder / _slug(name)
        live = link.readlink().name if link.is_symlink() else ""
        found = [read_receipt(file) for file in self._versions(name).glob("*.json")]
        whole = [one for one in found if one and (self._versions(name) / str(one.number)).is_dir()]
        return [
            Version(one, live=str(one.number) == live) for one in sorted(whole, key=lambda one: -one.number)
        ]

    def names(self) -> list[str]:
        """Return the names of which any version is on disk."""
        folder = self.folder / VERSIONS
        return (
            sorted(one.name for one in folder.iterdir() if _SLUG.fullmatch(one.name))
            if folder.is_dir()
            else []
        )

    def verify(self, name: str) -> list[str]:
        """Return in words how a skill differs from what was installed; nothing if it does not."""
        receipt = self.installed().get(name)
        if receipt is None:
            raise ConfigError(f"no installed skill is called {name!r}; `crayfish skills list` shows them")
        return self._differences(receipt)

    def _differences(self, receipt: Receipt) -> list[str]:
        try:
            return changes(receipt, hashes(self._versions(receipt.name) / str(receipt.number)))
        except OSError as error:
            return [f"it can't be read ({(error.strerror or str(error)).lower()})"]

    def _must_be_whole(self, receipt: Receipt) -> None:
        if differences := self._differences(receipt):
            which = f"number {receipt.number} of {receipt.name!r}"
            raise ConfigError(f"{which} is not as it was installed: {'; '.join(differences)}")

    def check_name(self, name: str, *, replace: bool) -> None:
        """Refuse a name that stands for something else (attack zip-021)."""
        if name in self.reserved:
            raise Refused(f"{name!r} is the name of a tool or a command; give the skill another one")
        if replace:
            return
        link = self.folder / name
        if os.path.lexists(link):
            raise Refused(
                f"a skill {name!r} is installed: `crayfish skills update`, or install it with --replace"
            )
        if name in self.others:
            raise Refused(
                f"there is a skill {name!r} already; install it with --replace if it shall hide that one"
            )

    def _commit(self, staged: Staged, origin: str, granted: tuple[str, ...]) -> Receipt:
        name, versions = staged.report.name, self._versions(staged.report.name)
        link = self.folder / name
        if os.path.lexists(link) and not link.is_symlink():
            raise Refused(f"{link} was put there by hand; move it away first")
        versions.mkdir(mode=0o700, exist_ok=True)
        number = 1 + max((int(one.stem) for one in versions.iterdir() if one.stem.isdigit()), default=0)
        receipt = Receipt(
            name=name,
            version=staged.report.version,
            number=number,
            sha256=staged.report.sha256,
            source=origin,
            at=self.wall(),
            files=staged.files,
            granted=granted,
        )
        _write(versions / f"{number}.json", receipt.as_json().encode())
        staged.folder.rename(versions / str(number))
        _sync(versions)
        self._point(name, number)
        self._prune(name)
        return receipt

    def _point(self, name: str, number: int) -> None:
        """Make a version the live one."""
        link = self.folder / VERSIONS / f"{_LINK}{secrets.token_hex(8)}"
        link.symlink_to(f"{VERSIONS}/{name}/{number}")
        link.replace(self.folder / name)
        _sync(self.folder)

    def _prune(self, name: str) -> None:
        old = [one.receipt for one in self.versions(name) if not one.live][KEPT - 1 :]
        for receipt in old:
            folder = self._versions(name) / str(receipt.number)
            self._throw_away(folder)
            folder.with_name(f"{folder.name}.json").unlink(missing_ok=True)

    def _throw_away(self, folder: Path) -> None:
        """Delete a folder, first out of sight as a whole."""
        trash = self.folder / VERSIONS / f"{_TRASH}{secrets.token_hex(8)}"
        folder.rename(trash)
        shutil.rmtree(trash, ignore_errors=True)

    def _versions(self, name: str) -> Path:
        return self.folder / VERSIONS / _slug(name)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Take turns with other processes, and clear away what a crash left."""
        home = self.folder / VERSIONS
        try:
            home.mkdir(mode=0o700, parents=True, exist_ok=True)
            with (home / _LOCK).open("w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                self._clear(home)
                yield
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise ConfigError(f"{self.folder} can't be changed ({reason}: {error.filename})") from error

    def _clear(self, home: Path) -> None:
        for left in home.iterdir():
            if left.name.startswith(_LINK):
                left.unlink()
            elif left.name.startswith((_STAGING, _TRASH)):
                shutil.rmtree(left, ignore_errors=True)
        for file in home.glob("*/*.json"):  # a receipt whose version did not come
            if not file.with_suffix("").is_dir():
                file.unlink()

    @contextmanager
    def _staged(self, source: Path) -> Iterator[Staged]:
        """Yield a checked copy; what is left of it afterwards is deleted."""
        folder = self.folder / VERSIONS / f"{_STAGING}{secrets.token_hex(8)}"
        try:
            with entries_of(source) as entries:
                sizes = {entry.path: entry.size for entry in entries}
                name, front = _named(entries, source)
                folder.mkdir(mode=0o755)
                for entry in entries:
                    _extract(entry, folder)
                above = {
                    one for entry in entries for one in (folder / entry.path).relative_to(folder).parents
                }
                for one in above:
                    _sync(folder / one)
            files = hashes(folder)
            report = self._report(folder, name, front, files, sum(sizes.values()))
            yield Staged(folder, report, files)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _report(self, folder: Path, name: str, front: Front, files: Mapping[str, str], size: int) -> Report:
        beginnings = {}
        for path in files:
            with (folder / path).open("rb") as data:
                beginnings[path] = data.read(audit.MAX_TEXT)
        asked = [
            one for key in ("allowed-tools", "allowed_tools", "tools") for one in names(front.fields.get(key))
        ]
        sha = digest(files)
        return audit.report(
            beginnings,
            name=name,
            version=version(front) or f"sha-{sha[:8]}",
            description=" ".join(front.text("description").split()) or f"Skill: {name}",
            sha256=sha,
            size=size,
            executables=[path for path in files if os.access(folder / path, os.X_OK)],
            front=front,
            needs=needs_of(front),
            tools=tuple(dict.fromkeys(asked)),
            brings=[one.name for one in declared.read(folder)[0]] if declared.FILE in files else (),
        )


def _named(entries: Sequence[Entry], source: Path) -> tuple[str, Front]:
    """Return the name and the head of what is to be installed. Raises: Refused."""
    document = next(entry for entry in entries if entry.path == FILE)
    if document.size > MAX_FILE:
        raise Refused(f"its {FILE} has more than {MAX_FILE} bytes")
    front = parse(read(document, MAX_FILE))
    if front.unsafe:
        raise Refused(front.problems[-1])
    given = front.text("name")
    if re.search(r"[/\\\x00-\x1f]|\.\.", given):
        raise Refused(f"{given[:80]!r} is no name for a skill: small letters, digits and single dashes")
    chosen = (_as_slug(one) for one in (given, source.name if source.is_dir() else source.stem))
    name = next((one for one in chosen if one), "")
    if not name:
        raise Refused("it has no name: write name: with small letters, digits and dashes into its head")
    return name, front


def _as_slug(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:64].rstrip("-")


def _slug(name: str) -> str:
    if len(name) > 64 or not _SLUG.fullmatch(name):
        raise ConfigError(
            f"{name[:80]!r} is no installed skill's name: small letters, digits and single dashes"
        )
    return name


def _extract(entry: Entry, folder: Path) -> None:
    """Write one file, with none of its mode bits but whether it runs (attack zip-018)."""
    file = folder / entry.path
    file.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(file, flags, 0o600), "wb") as target:
        copy(entry, target)
        target.flush()
        os.fchmod(target.fileno(), 0o755 if entry.executable else 0o644)
        os.fsync(target.fileno())


def _write(file: Path, data: bytes) -> None:
    with file.open("wb") as target:
        target.write(data)
        target.flush()
        os.fsync(target.fileno())


def _sync(folder: Path) -> None:
    """Make the names in a folder survive a power cut."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
