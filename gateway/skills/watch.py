"""Looks at the skills when a turn begins, and takes note of what was installed."""

from __future__ import annotations

import asyncio
import logging
import platform
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from gateway.errors import GatewayError
from gateway.skills.index import Skills, Snapshot
from gateway.skills.packages import Packages
from gateway.store import skills as ledger
from gateway.store.engine import Database

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Watch:
    """The skills of a running gateway. The disk says what is installed; the database keeps the history.

    `others` are those of the agents beside the usual one.
    """

    skills: Skills
    packages: Packages
    db: Database
    others: Collection[Skills] = ()
    _noted: Snapshot | None = field(default=None, init=False)

    async def look(self) -> None:
        """See what has changed since the last look. Never raises: a turn goes on without news."""
        try:
            found = await self.skills.refresh()
            for one in self.others:
                await one.refresh()
            if found is not self._noted:
                await self._note()
                self._noted = found
        except (GatewayError, OSError) as error:
            log.warning("skills.unread", extra={"problem": str(error)})

    async def _note(self) -> None:
        versions = await asyncio.to_thread(self._versions)
        home = f"{platform.node()}:{self.packages.folder}"
        await self.db.write(lambda tx: ledger.record(tx, home, versions), durable=False)

    def _versions(self) -> Sequence[ledger.SkillVersion]:
        return [
            ledger.SkillVersion(
                name=name,
                number=one.receipt.number,
                version=one.receipt.version,
                sha256=one.receipt.sha256,
                source=one.receipt.source,
                at=one.receipt.at,
                files=one.receipt.files,
                granted=one.receipt.granted,
                state="live" if one.live else "kept",
            )
            for name in self.packages.names()
            for one in self.packages.versions(name)
        ]
