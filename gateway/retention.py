"""Keeps the database and the workspace from growing for ever: each night what is old goes, bit by bit."""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import re
import stat
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from zoneinfo import ZoneInfo

from gateway.clock import Clock
from gateway.errors import StoreError, ToolError
from gateway.sessions import latest
from gateway.store import retention as store
from gateway.store.engine import Database
from gateway.store.inbox import get_fact, set_fact
from gateway.store.retention import Found, Gone, Key, Session, Sweep
from gateway.tools.box import RESULTS
from gateway.tools.paths import reach
from gateway.types import FORWARDED, PERSON, ROOMS, Address, Chat, Sender, Situation
from gateway.workspace import room

log = logging.getLogger(__name__)

DAY = 86_400.0
AT = "03:30"
"""When it begins, local time: hardly anybody writes then."""

FIRST, LOOK = 600.0, 3600.0
"""Seconds from the start until the first look whether a night was missed, and between looks."""

PAUSE = 0.02
"""Seconds between two transactions, in which others get their turn."""

DONE = "retention.at"
"""The fact that says when it last was done, in UNIX seconds."""

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_MEDIA = re.compile(rf"(?:{FORWARDED}/)?media/\d+-[^/]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ages:
    """How many seconds what is settled stays.

    `usage` is for the sums of what models took. Of ended sessions `transcripts` is their age and `megabytes`
    their size in all. Of these three 0 is no limit.
    """

    messages: float = 7 * DAY
    verdicts: float = 30 * DAY
    unreadable: float = 30 * DAY
    group_talk: float = 7 * DAY
    results: float = 7 * DAY
    usage: float = 365 * DAY
    transcripts: float = 0.0
    megabytes: int = 0


def is_due(last: float | None, now: float, zone: ZoneInfo) -> bool:
    """Return whether a night has come since `last`; one that lies ahead was noted by a wrong clock."""
    return last is None or last > now or last < latest(now, AT, zone)


def surplus(sessions: Sequence[Session], before: float | None, most: int | None) -> list[Session]:
    """Return the ended sessions that are to go: those of before a time, then the oldest beyond a size."""
    size = sum(one.size for one in sessions)
    found = []
    for one in sessions:  # the oldest first
        if (before is not None and one.last < before) or (most is not None and size > most):
            found.append(one)
            size -= one.size
    return found


@dataclass(slots=True, kw_only=True)
class Retention:
    """Deletes what is older than `ages` say. Nodes that share a database may all do that."""

    db: Database
    clock: Clock
    zone: ZoneInfo
    workspaces: Sequence[Path]
    ages: Ages = field(default_factory=Ages)

    async def serve(self) -> None:
        """Look now and then whether it is time, until cancelled; a machine may sleep through the night."""
        await self.clock.sleep(FIRST)
        while True:
            try:
                if await self._is_due():
                    await self.run()
            except StoreError as error:
                log.debug("store.waiting", extra={"problem": str(error)})
            except Exception:  # root of a loop: what can't be deleted must not end the gateway
                log.exception("retention.failed")
            await self.clock.sleep(LOOK)

    async def run(self) -> dict[str, int]:
        """Delete what is old; return the rows by kind. Raises: StoreError, and goes on the next time."""
        now, ages = self.db.now(), self.ages
        sweeps = (
            (store.SETTLED, ages.messages),
            (store.LEFT, ages.messages),
            (store.BESIDE, ages.group_talk),
            (store.VERDICTS, ages.verdicts),
            (store.POISON, ages.unreadable),
        )
        gone = {sweep.name: await self._sweep(sweep, now - age) for sweep, age in sweeps}
        wall = self.clock.wall()
        # Days are those of the clock on the wall.
        gone["usage"] = await self._sweep(store.USAGE, wall - ages.usage) if ages.usage else 0
        gone["entry"] = await self._transcripts(now)
        old = wall - ages.results
        gone["results"] = await asyncio.to_thread(lambda: sum(_expire(one, old) for one in self.workspaces))
        noted = str(self.clock.wall())
        await self.db.write(lambda tx: set_fact(tx, DONE, noted), durable=False)
        log.log(logging.INFO if any(gone.values()) else logging.DEBUG, "retention.done", extra=gone)
        return gone

    async def _is_due(self) -> bool:
        noted = await self.db.write(lambda tx: get_fact(tx, DONE), durable=False)
        return is_due(float(noted) if noted else None, self.clock.wall(), self.zone)

    async def _sweep(self, sweep: Sweep, before: float) -> int:
        rows = 0
        after: Key | None = sweep.start
        while after is not None:
            found = await self._find(sweep, after, before)
            rows += await self._delete(sweep, found.keys) if found.keys else 0
            after = found.after
        return rows

    async def _find(self, sweep: Sweep, after: Key, before: float) -> Found:
        return await self.db.read(lambda tx: sweep.find(tx, after, before))

    async def _delete(self, sweep: Sweep, keys: Sequence[Key]) -> int:
        return await self._note(await self.db.write(lambda tx: sweep.delete(tx, keys), durable=False))

    async def _transcripts(self, now: float) -> int:
        age, megabytes = self.ages.transcripts, self.ages.megabytes
        if not age and not megabytes:
            return 0
        before = now - age if age else None
        most = megabytes * 1_000_000 if megabytes else None
        return sum(
            [await self._forget(one) for one in surplus(await self.db.read(store.ended), before, most)]
        )

    async def _forget(self, one: Session) -> int:
        rows = 0
        while gone := await self._note(await self.db.write(lambda tx: store.forget(tx, one), durable=False)):
            rows += gone
        return rows

    async def _note(self, gone: Gone) -> int:
        """Delete the files of deleted rows, and let others have their turn."""
        if gone.files:
            await asyncio.to_thread(_unlink, self.workspaces, gone.files)
        await self.clock.sleep(PAUSE)
        return gone.rows


def _unlink(workspaces: Sequence[Path], files: Sequence[tuple[Address, str]]) -> None:
    """Delete files that messages brought; nothing else, whatever a row says.

    Their names begin with the number of the message, so that each is one file, in whichever folder it lies.
    """
    for address, path in files:
        if not _MEDIA.fullmatch(path):
            continue
        person = address.chat if address.channel == PERSON else ""
        group = Situation(address, address, Sender(""), Chat.GROUP, person=person)
        for folder in itertools.chain.from_iterable((one, room(one, group)) for one in workspaces):
            with suppress(ToolError), reach(folder, path) as place:
                os.unlink(place.name, dir_fd=place.folder)


def _names(folder: Path | int) -> list[str]:
    with os.scandir(folder) as entries:
        return [one.name for one in entries]


def _expire(workspace: Path, before: float) -> int:
    """Delete the full texts of tool results that were written before a time; return how many."""
    rooms: list[str] = []
    with suppress(OSError):
        rooms = [f"{ROOMS}/{name}/" for name in _names(workspace / ROOMS)]
    return sum(_expire_in(workspace, f"{room}{RESULTS}", before) for room in ("", *rooms))


def _expire_in(workspace: Path, path: str, before: float) -> int:
    gone = 0
    with suppress(ToolError), reach(workspace, path) as place:  # there are none in most rooms
        folder = os.open(place.name, _FOLDER, dir_fd=place.folder)
        try:
            for name in _names(folder):
                status = os.stat(name, dir_fd=folder, follow_symlinks=False)
                if stat.S_ISREG(status.st_mode) and status.st_mtime < before:
                    os.unlink(name, dir_fd=folder)
                    gone += 1
        finally:
            os.close(folder)
    return gone
