"""What only one process may do at a time."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import sqlalchemy as sa

from gateway.clock import Clock
from gateway.store.dialect import PerDialect, run
from gateway.store.engine import Database
from gateway.store.tables import lease

_HOLD = PerDialect(
    lambda insert: (
        insert(lease)
        .values(name=sa.bindparam("name"), owner=sa.bindparam("owner"), until=sa.bindparam("until"))
        .on_conflict_do_update(
            index_elements=["name"],
            set_={"owner": sa.bindparam("owner"), "until": sa.bindparam("until")},
            where=sa.or_(lease.c.owner == sa.bindparam("owner"), lease.c.until < sa.bindparam("now")),
        )
        .returning(lease.c.name)
    )
)


@dataclass(frozen=True, slots=True)
class Leases:
    """Named leases of `seconds`, held by the process that calls itself `owner`."""

    db: Database
    clock: Clock
    owner: str
    seconds: float = 30.0

    async def hold(self, name: str) -> bool:
        """Take or extend the lease; False if another process has it. Raises: StoreError."""
        now = self.db.now()
        values = {"name": name, "owner": self.owner, "until": now + self.seconds, "now": now}
        held = await self.db.write(
            lambda tx: tx.execute(_HOLD(tx), values).scalar_one_or_none(), durable=False
        )
        return held is not None

    async def drop(self, name: str) -> None:
        """Let another process have it at once. Raises: StoreError."""
        mine = sa.and_(lease.c.name == name, lease.c.owner == self.owner)
        await self.db.write(lambda tx: run(tx, sa.delete(lease).where(mine), {}), durable=False)

    async def wait(self, name: str) -> None:
        """Return once the lease is ours. Raises: StoreError."""
        while not await self.hold(name):
            await self.clock.sleep(self.seconds / 6)

    @asynccontextmanager
    async def held(self, name: str) -> AsyncIterator[None]:
        """Hold the lease for the length of a `with` block; extending it is the caller's task."""
        await self.wait(name)
        try:
            yield
        finally:
            await self.drop(name)
