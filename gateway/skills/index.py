"""All skills there are: what each one says, whether it can be used, and how they stand in the prompt."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import re
import threading
import time
import unicodedata
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from gateway.config import SkillSettings
from gateway.skills import declared, switches
from gateway.skills.declared import Declared
from gateway.skills.front import Front, names, parse
from gateway.skills.gate import Gate, Needs, environment, needs_of
from gateway.skills.receipt import Receipt, changes, hashes, leads_to_version, live_receipt
from gateway.skills.render import Line, available, shown_path
from gateway.skills.scan import FILE, Identity, Root, Stamp, identity, scan, stamp

log = logging.getLogger(__name__)

MAX_FILE = 256_000
"""Bytes of a SKILL.md."""

MAX_NAME = 64
MAX_DESCRIPTION = 1024

DEBOUNCE = 0.25
"""Seconds for which a look counts (agent I)."""

AGAIN = 60.0
"""Seconds after which programs and variables are looked for again though no file has changed."""

_UNFIT = re.compile(r"[\s/\\<>&\"'`]+")
_GOOD_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Skill:
    """One skill.

    `folder` holds `file`, its SKILL.md; both are as they were found, so an installed one keeps its place
    when another version is installed. `root` is the folder that was searched, `source` what it is called.
    `reasons` say why it is not `eligible`, `warnings` what should be put right. `asked_tools` are the tools
    that it names, None if it names none; `granted_tools` those that were granted at its install. `tools` are
    those that it brings, backed by its scripts. `env` names the variables that its programs get. `sha256` is
    the digest of `file`, `receipt` that of an installed one. `shown` is false when only a person may start
    it.
    """

    name: str
    description: str
    folder: Path
    file: Path
    root: Path
    source: str
    eligible: bool
    reasons: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    asked_tools: tuple[str, ...] | None = None
    granted_tools: tuple[str, ...] = ()
    tools: tuple[Declared, ...] = ()
    env: tuple[str, ...] = ()
    version: str = ""
    sha256: str = ""
    receipt: Receipt | None = None
    shown: bool = True
    invocable: bool = True
    needs: Needs = field(default_factory=Needs)

    @property
    def allowed_tools(self) -> tuple[str, ...] | None:
        """Return the tools that the head names, as it names them; None if it limits nothing."""
        return self.asked_tools


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The skills at one moment, ordered by name, and those that a nearer one of the same name hides.

    `problems` are findings about folders; `xml` is for the prompt, "" when there is nothing to show.
    `places` are the folders of all of `skills`.
    """

    skills: tuple[Skill, ...] = ()
    shadowed: tuple[Skill, ...] = ()
    problems: tuple[str, ...] = ()
    xml: str = ""
    places: Mapping[Identity, Skill] = field(default_factory=dict, compare=False, repr=False)

    @property
    def folders(self) -> tuple[Path, ...]:
        """Return the folders whose files may be read: those of the eligible skills."""
        return tuple(skill.folder for skill in self.skills if skill.eligible)

    def get(self, name: str) -> Skill | None:
        """Return the skill of a name."""
        return next((skill for skill in self.skills if skill.name == name), None)

    def home_of(self, path: Path) -> Skill | None:
        """Return the skill in whose folder an absolute path lies, eligible or not; None if in none.

        Links are followed, in the path as in the folder.
        """
        real = Path(os.path.realpath(path))
        found = (self.places.get(one) for folder in (real, *real.parents) if (one := identity(folder)))
        return next(filter(None, found), None)


_EMPTY = Snapshot()


class Skills:
    """Watches the skill folders; the nearest of `roots` comes first.

    `env` is the environment of this process, `config` says whether a dotted key of the configuration is
    set to something. `only` are the names that the agent has, None for all. `home` is the user's, to be shown
    as `~`. `now` is a monotonic clock, in seconds.
    """

    def __init__(
        self,
        roots: Sequence[Root],
        settings: SkillSettings,
        *,
        env: Mapping[str, str] = os.environ,
        config: Callable[[str], bool] = lambda _name: False,
        only: Collection[str] | None = None,
        home: Path | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.roots = tuple(roots)
        self.settings = settings
        self._env, self._config, self._home, self._now = env, config, home, now
        self._only = only
        self._stamps: dict[str, Stamp] = {}
        self._current = _EMPTY
        self._looked = self._scanned = float("-inf")
        self._digests: dict[str, tuple[Stamp, str]] = {}
        self._heads: dict[str, tuple[Stamp, _Head]] = {}
        self._lock = threading.Lock()

    @property
    def current(self) -> Snapshot:
        """Return what the last look found, without looking."""
        return self._current

    def snapshot(self) -> Snapshot:
        """Look; return the same object as long as nothing has changed. Not for the event loop: it reads."""
        with self._lock:
            now = self._now()
            if now - self._scanned >= AGAIN or not self._unchanged():
                self._stamps, found = self._scan()
                if found != self._current:
                    self._tell(found)
                    self._current = found
                self._scanned = now
            self._looked = now
            return self._current

    async def refresh(self) -> Snapshot:
        """Look from the event loop, in a thread; a look less than 250 ms ago counts."""
        if self._now() - self._looked >= DEBOUNCE:
            await asyncio.to_thread(self.snapshot)
        return self._current

    def environment(self, skill: Skill) -> dict[str, str]:
        """Return the variables that the programs of a skill get; the values are secret."""
        return environment(skill.name, skill.needs, self.settings, self._env)

    def listed(self, names: Collection[str]) -> str:
        """Return `<available_skills>` with no others than these; of what the last look found."""
        return self._xml([skill for skill in self._current.skills if skill.name in names])

    def _unchanged(self) -> bool:
        return bool(self._stamps) and all(stamp(path) == seen for path, seen in self._stamps.items())

    def _scan(self) -> tuple[dict[str, Stamp], Snapshot]:
        seen: dict[str, Stamp] = {}
        problems: list[str] = []
        gate = self._gate(seen)
        nearest: dict[str, Skill] = {}
        shadowed: list[Skill] = []
        places: dict[Identity, Skill] = {}
        paths = [root.path for root in self.roots]
        for root in self.roots:
            found = scan(root.path, paths)
            seen |= found.seen
            problems += found.problems
            for file, folder in found.files.items():
                if folder in places:  # a root within another one, or a link into it
                    continue
                skill = self._skill(root, file, gate, seen, paths)
                places[folder] = skill
                if (nearer := nearest.setdefault(skill.name, skill)) is not skill:
                    shadowed.append(skill)
                    problems.append(f"{skill.folder}: hidden by {nearer.folder}, which has the same name")
        skills = tuple(nearest[name] for name in sorted(nearest))
        problems += self._unknown(nearest)
        for gone in self._heads.keys() - seen.keys():
            del self._heads[gone]
        places = {one: skill for one, skill in places.items() if nearest[skill.name] is skill}
        told = tuple(dict.fromkeys(problems))
        return seen, Snapshot(skills, tuple(shadowed), told, self._xml(skills), places)

    def _gate(self, seen: dict[str, Stamp]) -> Gate:
        """Return what decides in this look; take note of the files that say what is switched off."""
        off = set[str]()
        for file in {root.path / switches.FILE for root in self.roots if root.source == "user"}:
            seen[os.fspath(file)] = stamp(file)
            off |= switches.read(file)
        return Gate(self.settings, self._env, self._config, frozenset(off), self._only)

    def _unknown(self, known: Mapping[str, Skill]) -> list[str]:
        """Return which names of the configuration are no skills."""
        named = {*self.settings.enabled, *self.settings.disabled, *self.settings.entries, *(self._only or ())}
        return [
            f"the configuration names {name!r}, but there is no such skill"
            for name in sorted(named - known.keys())
        ]

    def _skill(
        self, root: Root, file: Path, gate: Gate, seen: dict[str, Stamp], roots: Sequence[Path]
    ) -> Skill:
        """Read one skill; whatever is wrong becomes a reason or a warning."""
        head = self._head(file, roots, seen[os.fspath(file)])
        front, warnings, reasons = head.front, list(head.warnings), list(head.reasons)
        receipt = self._receipt(file.parent, seen)
        name = receipt.name if receipt else _name(front, file, warnings)
        if receipt:
            reasons += self._tampered(file.parent, receipt, seen)
        asked = _asked(front)
        description = _description(front, name, warnings)
        needs = needs_of(front)
        tools, wrong = self._declared(file.parent, seen)
        warnings += wrong
        if self.settings.strict:
            reasons, warnings = reasons + [f"[skills] strict: {one}" for one in warnings], []
        reasons += gate.reasons(name, needs)
        return Skill(
            name=name,
            description=description,
            folder=file.parent,
            file=file,
            root=root.path,
            source=root.source,
            eligible=not reasons,
            reasons=tuple(reasons),
            warnings=tuple(warnings),
            asked_tools=asked,
            granted_tools=receipt.granted if receipt else (),
            tools=tools,
            env=tuple(dict.fromkeys((*needs.env, *self._given(name)))),
            version=receipt.version if receipt else version(front),
            sha256=head.sha256,
            receipt=receipt,
            shown=front.fields.get("disable-model-invocation") is not True,
            invocable=front.fields.get("user-invocable") is not False,
            needs=needs,
        )

    def _head(self, file: Path, roots: Sequence[Path], state: Stamp) -> _Head:
        """Read a SKILL.md, or remember what it said if it is the same."""
        place = os.fspath(file)
        kept = self._heads.get(place)
        if kept is None or state is None or kept[0] != state:
            kept = self._heads[place] = state, _head(file, roots)
        return kept[1]

    def _declared(self, folder: Path, seen: dict[str, Stamp]) -> tuple[tuple[Declared, ...], tuple[str, ...]]:
        """Read which tools a skill brings; that the file appears shows in the state of its folder."""
        file = f"{folder}/{declared.FILE}"
        state = stamp(file)
        if state is None:
            return (), ()
        seen[file] = state
        return declared.read(folder)

    def _given(self, name: str) -> Sequence[str]:
        entry = self.settings.entries.get(name)
        return tuple(entry.env) if entry else ()

    def _receipt(self, folder: Path, seen: dict[str, Stamp]) -> Receipt | None:
        """Return the receipt of an installed skill: a link into the folder of versions."""
        if not leads_to_version(folder):
            return None
        real = Path(os.path.realpath(folder))
        kept = real.with_name(f"{real.name}.json")
        seen[os.fspath(kept)] = stamp(kept)
        return live_receipt(folder)

    def _tampered(self, folder: Path, receipt: Receipt, seen: dict[str, Stamp]) -> list[str]:
        """Return the reason to keep an installed skill off whose files have changed (attack zip-027)."""

        def known(path: str, status: os.stat_result) -> str | None:
            file = f"{folder}/{path}"
            now = status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino
            seen[file] = now
            before = self._digests.get(file)
            return before[1] if before and before[0] == now else None

        try:
            found = hashes(folder, known)
        except OSError as error:
            return [f"it can't be read ({(error.strerror or str(error)).lower()})"]
        self._digests |= {f"{folder}/{path}": (seen[f"{folder}/{path}"], one) for path, one in found.items()}
        changed = changes(receipt, found)
        if not changed:
            return []
        more = f" and {len(changed) - 3} more" if len(changed) > 3 else ""
        told = f"it is not as it was installed ({'; '.join(changed[:3])}{more})"
        return [f"{told}: `crayfish skills update {receipt.name}` installs it again"]

    def _xml(self, skills: Sequence[Skill]) -> str:
        shown = [
            Line(
                skill.name,
                skill.description,
                shown_path(skill.root, self._home),
                skill.file.relative_to(skill.root).as_posix(),
            )
            for skill in skills
            if skill.eligible and skill.shown
        ]
        return available(shown, self.settings.max_prompt_chars)

    def _tell(self, found: Snapshot) -> None:
        before = {skill.name for skill in self._current.skills if skill.eligible}
        now = {skill.name for skill in found.skills if skill.eligible}
        log.info(
            "skills.changed",
            extra={
                "eligible": len(now),
                "off": len(found.skills) - len(now),
                "new": ", ".join(sorted(now - before)[:20]),
            },
        )


@dataclass(frozen=True, slots=True)
class _Head:
    """What a SKILL.md says, without its body."""

    front: Front
    sha256: str
    warnings: tuple[str, ...]
    reasons: tuple[str, ...]


def _head(file: Path, roots: Sequence[Path]) -> _Head:
    data, trouble = _content(file, roots)
    if trouble:
        return _Head(Front({}, ""), "", (), (trouble,))
    front = parse(data)
    last = len(front.problems) - (1 if front.unsafe else 0)
    digest = hashlib.sha256(data).hexdigest()
    return _Head(replace(front, body=""), digest, front.problems[:last], front.problems[last:])


def _content(file: Path, roots: Sequence[Path]) -> tuple[bytes, str]:
    """Return what a SKILL.md holds, or why it can't be taken."""
    try:
        if file.is_symlink():
            real = os.path.realpath(file)
            if not any(real.startswith(f"{os.path.realpath(root)}/") for root in roots):
                return b"", f"its {FILE} is a link that leads out of the skill folders"
        with os.fdopen(os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as data:
            found = data.read(MAX_FILE + 1)
    except OSError as error:
        return b"", f"its {FILE} can't be read ({(error.strerror or str(error)).lower()})"
    if len(found) > MAX_FILE:
        return b"", f"its {FILE} has more than {MAX_FILE} bytes; move parts of it into files beside it"
    return found, ""


def _name(front: Front, file: Path, warnings: list[str]) -> str:
    """Return the name that a head gives, if one can write it down, else that of the folder."""
    given, folder = front.text("name"), file.parent.name
    plain = _printable(given)
    if given and (plain != given or _UNFIT.search(given) or len(given) > MAX_NAME):
        warnings.append(
            f"its name {plain[:80]!r} is none, the folder's counts; small letters, digits and - are good"
        )
        given = ""
    elif given and not _GOOD_NAME.fullmatch(given):
        warnings.append(f"its name {given!r} should be of small letters, digits and single dashes")
    elif given and given != folder:
        warnings.append(f"its folder should be called {given!r}, too, not {_printable(folder)!r}")
    return given or _UNFIT.sub("-", _printable(folder)).strip("-")[:MAX_NAME] or "unnamed"


def _description(front: Front, name: str, warnings: list[str]) -> str:
    text = " ".join(_printable(front.text("description")).split())
    if not text:
        if front.fields:
            warnings.append("it has no description: nobody knows when to use it")
        return f"Skill: {name}"
    if len(text) > MAX_DESCRIPTION:
        warnings.append(f"its description has {len(text)} characters; {MAX_DESCRIPTION} are used")
        text = f"{text[: MAX_DESCRIPTION - 1].rstrip()}…"
    return text


def _printable(text: str) -> str:
    """Return text without signs that nobody sees: controls, and those that turn or hide others."""
    if text.isprintable():
        return text
    plain = "".join(" " if sign.isspace() else sign for sign in text)
    return "".join(sign for sign in plain if unicodedata.category(sign) not in ("Cc", "Cf", "Cs", "Co"))


def _asked(front: Front) -> tuple[str, ...] | None:
    """Return the tools that a head names under any of the usual keys."""
    keys = [key for key in ("allowed-tools", "allowed_tools", "tools") if key in front.fields]
    return tuple(dict.fromkeys(one for key in keys for one in names(front.fields[key]))) if keys else None


def version(front: Front) -> str:
    """Return the version that a head gives, "" if it gives none that can be a file's name."""
    found = front.text("version")
    inner = front.fields.get("metadata")
    if not found and isinstance(inner, dict):
        found = str(inner.get("version") or "").strip()
    return found if re.fullmatch(r"[0-9A-Za-z][0-9A-Za-z.+_-]{0,63}", found) else ""
