"""Takes over a workspace and its sessions, and tells what it did, or would do."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import tzinfo
from pathlib import Path
from types import ModuleType

from sqlalchemy.engine import Connection

from gateway.errors import ConfigError, ToolError
from gateway.importing import nanobot, openclaw
from gateway.importing.files import Move, Mover, Way
from gateway.importing.logs import LARGEST, Log, Place, Tally, entries
from gateway.importing.tree import Skipped, Tree
from gateway.redact import Redactor
from gateway.store import imports
from gateway.store.engine import Database
from gateway.types import Entry

PROGRAMS: Mapping[str, ModuleType] = {"openclaw": openclaw, "nanobot": nanobot}
"""Whose folders are understood."""


@dataclass(frozen=True, slots=True)
class Counted:
    """A session that comes along, and what its file holds."""

    log: Log
    tally: Tally
    name: str


@dataclass(slots=True, kw_only=True)
class Plan:
    """What would be done: files to write, sessions by the conversation that gets them."""

    program: str
    found: Tree
    moves: list[Move] = field(default_factory=list)
    sessions: dict[Place, list[Counted]] = field(default_factory=dict)
    here: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Importer:
    """Looks at a folder, and takes over what is not here yet. `zone` is that of times without one."""

    mover: Mover
    redact: Redactor
    zone: tzinfo

    def plan(self, program: str, root: Path, known: frozenset[str]) -> Plan:
        """Return what to do with a folder; `known` are the sessions that are here.

        Raises: ConfigError if it is no such folder.
        """
        root = root.resolve()
        try:
            found: Tree = PROGRAMS[program].look(root)
            plan = Plan(program=program, found=found, moves=self.mover.plan(found))
            for log in found.logs:
                self._count(log, plan, known)
        except OSError as error:
            raise ConfigError(f"{root} can't be read ({error.strerror}: {error.filename})") from error
        if not plan.moves and not found.logs:
            raise ConfigError(f"{root} holds nothing of {program}: name its folder, such as ~/.{program}")
        for sessions in plan.sessions.values():
            sessions.sort(key=lambda one: one.tally.begins)
        return plan

    def _count(self, log: Log, plan: Plan, known: frozenset[str]) -> None:
        name = f"{plan.program}:{hashlib.sha256(log.name.encode()).hexdigest()[:32]}"
        if name in known:
            plan.here += 1
            return
        skipped = plan.found.skipped
        if any(one.name == name for each in plan.sessions.values() for one in each):
            skipped.append(Skipped(log.shown, "the same session lies in another file, too"))
            return
        if (size := log.file.stat().st_size) > LARGEST:
            skipped.append(Skipped(log.shown, f"it has {size:,} bytes"))
            return
        tally = Tally()
        for _ in entries(log, self.zone, self.redact, tally):
            pass
        if not tally.entries:
            skipped.append(Skipped(log.shown, "nothing was said there, or nothing of it can be read"))
            return
        if tally.unreadable:
            skipped.append(Skipped(log.shown, f"{tally.unreadable} of its lines, which can't be read"))
        plan.sessions.setdefault(log.place, []).append(Counted(log, tally, name))

    async def carry_out(self, plan: Plan, db: Database) -> None:
        """Write all of it. Raises: ConfigError, StoreError."""
        try:
            self.mover.write(plan.moves)
        except (OSError, ToolError) as error:
            raise ConfigError(f"the workspace can't be written: {error}") from error
        now = db.now()
        for place, sessions in list(plan.sessions.items()):
            if not await db.write(functools.partial(self._store, place=place, sessions=sessions, now=now)):
                why = "the bot is at work there; do it again later"
                plan.found.skipped += [Skipped(one.log.shown, why) for one in sessions]
                del plan.sessions[place]

    def _store(self, tx: Connection, place: Place, sessions: Sequence[Counted], now: float) -> bool:
        made = [imports.Session(one.name, self._said(one.log)) for one in sessions]
        return imports.write(tx, place.address, place.chat, made, now)

    def _said(self, log: Log) -> Iterator[tuple[Entry, float]]:
        return ((one.entry, one.at) for one in entries(log, self.zone, self.redact, Tally()))


def told(plan: Plan, workspace: Path, *, dry: bool) -> str:
    """Return what was done, or would be, for people."""
    changes = [one for one in plan.moves if one.way is not Way.SAME]
    same = len(plan.moves) - len(changes)
    lines = [f"workspace {workspace}:", *(f"  {one.path}: {_way(one)}" for one in changes)]
    lines += [f"  {same} files are here already"] if same else []
    lines += [] if changes or same else ["  nothing"]
    lines += ["sessions:", *map(_sessions, plan.sessions.items())]
    lines += [f"  {plan.here} are here already"] if plan.here else []
    lines += [] if plan.sessions or plan.here else ["  none"]
    if plan.found.skipped:
        lines += ["not taken over:", *(f"  {one.what}: {one.why}" for one in plan.found.skipped)]
    if plan.found.above:
        lines.append(f"Sessions and settings are not in this folder: name {plan.found.above} to take them.")
    if plan.found.settings:
        lines += ["Set these in the config file, secrets are not copied:"]
        lines += [f"  {one}" for one in plan.found.settings]
    if dry:
        lines.append("Nothing was written: this only tells what would be done.")
    return "\n".join(lines)


def _way(move: Move) -> str:
    masked = "; what looks like a secret in it became ***" if move.masked else ""
    return f"{move.way}{masked}"


def _sessions(of: tuple[Place, Sequence[Counted]]) -> str:
    place, sessions = of
    count = sum(one.tally.entries for one in sessions)
    name = place.address.shown
    return f"  {name} ({place.chat}): {len(sessions)} session{'s' * (len(sessions) != 1)}, {count} entries"
