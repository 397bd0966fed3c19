"""What was installed on each machine: every version of every skill, with the digests of its files."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from gateway.store.dialect import PerDialect
from gateway.store.tables import skill_version


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillVersion:
    """A version of an installed skill; `number` counts the installs of a name, `at` is wall time.

    `state` is live, kept (on disk for a rollback) or gone.
    """

    name: str
    number: int
    version: str
    sha256: str
    source: str
    at: float
    files: Mapping[str, str]
    granted: Sequence[str]
    state: str


_KEYS = ("home", "name", "number", "sha256")
_COLUMNS = (*_KEYS, "version", "source", "at", "files", "granted", "state")
_NOTE = PerDialect(
    lambda insert: (
        insert(skill_version)
        .values({name: sa.bindparam(name) for name in _COLUMNS})
        .on_conflict_do_update(index_elements=_KEYS, set_={"state": sa.bindparam("state")})
    )
)


def record(tx: Connection, home: str, versions: Sequence[SkillVersion]) -> None:
    """Take note of what is on the disk of a machine; what was there before and is not any more is gone.

    A row is never changed but for its state. `home` names machine and folder.
    """
    tx.execute(sa.update(skill_version).where(skill_version.c.home == home).values(state="gone"))
    for one in versions:
        tx.execute(
            _NOTE(tx),
            {
                "home": home,
                "name": one.name,
                "number": one.number,
                "sha256": one.sha256,
                "version": one.version,
                "source": one.source,
                "at": one.at,
                "files": json.dumps(dict(one.files), sort_keys=True),
                "granted": json.dumps(list(one.granted)),
                "state": one.state,
            },
        )


def listed(tx: Connection, home: str = "") -> list[SkillVersion]:
    """Return all versions there ever were, of one machine or of all, by name and number."""
    table = skill_version
    query = sa.select(table).order_by(table.c.name, table.c.number, table.c.id)
    rows = tx.execute(query.where(table.c.home == home) if home else query)
    return [
        SkillVersion(
            name=row.name,
            number=row.number,
            version=row.version,
            sha256=row.sha256,
            source=row.source,
            at=row.at,
            files=json.loads(row.files),
            granted=tuple(json.loads(row.granted)),
            state=row.state,
        )
        for row in rows
    ]
