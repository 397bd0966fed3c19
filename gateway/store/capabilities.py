"""Tools and skills as rows: what there is, what was switched, and to whom it was bound (seed 002)."""

from __future__ import annotations

import secrets
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from gateway.grants import Binding, Sort
from gateway.store.dialect import PerDialect
from gateway.store.inbox import get_fact, set_fact
from gateway.store.tables import capability, capability_binding

VERSION = "capabilities.version"
"""The fact that changes with every change here, so that another process need not read all rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Capability:
    """A tool or a skill.

    `entry` says where it comes from: the module of a tool, the file of a skill. `system`: it ships with the
    program and can't be removed. `here`: it was there when the gateway last looked. `deleted_at`, in the
    database's time: a person has removed it. `sha256` is the digest of a skill, `version` what it says.
    """

    sort: Sort
    name: str
    entry: str
    description: str
    version: str = ""
    sha256: str = ""
    system: bool = False
    active: bool = True
    here: bool = True
    deleted_at: float | None = None


_c, _b = capability.c, capability_binding.c
_SEEN = ("entry", "description", "version", "sha256", "system", "active", "here", "deleted_at")
_PUT = PerDialect(
    lambda insert: (
        insert(capability)
        .values({name: sa.bindparam(name) for name in ("kind", "name", *_SEEN)})
        .on_conflict_do_update(
            index_elements=["kind", "name"], set_={name: sa.bindparam(name) for name in _SEEN}
        )
    )
)
_ALL = sa.select(capability).order_by(_c.kind, _c.name)
_BOUND = (
    sa.select(_c.kind, _c.name, _b.agent, _b.user)
    .join(capability, _b.capability_id == _c.id)
    .order_by(_c.kind, _c.name, _b.agent, _b.user)
)
_BIND = PerDialect(
    lambda insert: (
        insert(capability_binding)
        .values({name: sa.bindparam(name) for name in ("capability_id", "agent", "user")})
        .on_conflict_do_nothing()
    )
)


def version(tx: Connection) -> str:
    """Return what changes whenever anything here does."""
    return get_fact(tx, VERSION) or ""


def listed(tx: Connection) -> list[Capability]:
    """Return all there are or ever were, tools before skills, by name."""
    rows = tx.execute(_ALL)
    found = [
        Capability(
            sort=Sort(row.kind),
            name=row.name,
            entry=row.entry,
            description=row.description,
            version=row.version,
            sha256=row.sha256,
            system=row.system,
            active=row.active,
            here=row.here,
            deleted_at=row.deleted_at,
        )
        for row in rows
    ]
    return sorted(found, key=lambda one: (one.sort is Sort.SKILL, one.name))


def bindings(tx: Connection) -> list[Binding]:
    """Return who has what on their lists."""
    return [Binding(Sort(row.kind), row.name, row.agent, row.user) for row in tx.execute(_BOUND)]


def mirror(tx: Connection, found: Sequence[Capability], whole: Collection[Sort]) -> bool:
    """Make the rows say what there is now; return whether anything was different.

    Of the sorts in `whole` that is all; of others more may be there. What people have switched or removed
    stays so for tools. For skills the disk decides: whoever puts a skill back, or switches it on, has it
    again.
    """
    known = {(one.sort, one.name): one for one in listed(tx)}
    changed = False
    for one in found:
        before = known.pop((one.sort, one.name), None)
        now = one if before is None else _kept(one, before)
        if now != before:
            _put(tx, now)
            changed = True
    for sort, name in [key for key, one in known.items() if one.here and one.sort in whole]:
        tx.execute(sa.update(capability).where(_c.kind == sort, _c.name == name).values(here=False))
        changed = True
    if changed:
        _bump(tx)
    return changed


def _kept(now: Capability, before: Capability) -> Capability:
    """Return what is there now with what people have made of it."""
    if now.sort is Sort.TOOL:
        return replace(now, active=before.active, deleted_at=before.deleted_at)
    return replace(now, deleted_at=None if now.active else before.deleted_at)


def _put(tx: Connection, one: Capability) -> None:
    tx.execute(_PUT(tx), {"kind": one.sort, "name": one.name} | {name: getattr(one, name) for name in _SEEN})


def switch(tx: Connection, sort: Sort, name: str, *, on: bool) -> None:
    """Switch one on or off; on brings back what was removed."""
    values = {"active": on} | ({"deleted_at": None} if on else {})
    tx.execute(sa.update(capability).where(_c.kind == sort, _c.name == name).values(values))
    _bump(tx)


def remove(tx: Connection, sort: Sort, name: str, now: float) -> None:
    """Take one away from everybody; its row and its bindings stay."""
    tx.execute(sa.update(capability).where(_c.kind == sort, _c.name == name).values(deleted_at=now))
    _bump(tx)


def bind(tx: Connection, one: Binding) -> None:
    """Put a capability on a list."""
    row = {"capability_id": _id(tx, one), "agent": one.agent, "user": one.user}
    tx.execute(_BIND(tx), row)
    _bump(tx)


def unbind(tx: Connection, one: Binding) -> bool:
    """Take a capability off a list; return whether it was there. An empty list narrows nothing."""
    gone = tx.execute(
        sa.delete(capability_binding).where(
            _b.capability_id == _id(tx, one), _b.agent == one.agent, _b.user == one.user
        )
    )
    _bump(tx)
    return bool(gone.rowcount)


def _id(tx: Connection, one: Binding) -> int:
    found: int = tx.execute(sa.select(_c.id).where(_c.kind == one.sort, _c.name == one.name)).scalar_one()
    return found


def _bump(tx: Connection) -> None:
    set_fact(tx, VERSION, secrets.token_hex(8))
