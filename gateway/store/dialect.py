"""The one place where the two databases are written differently."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import Connection

Insert: TypeAlias = sqlite.Insert | postgresql.Insert


class PerDialect:
    """A statement built once for each database, so that no turn pays for building it."""

    def __init__(self, build: Callable[[Callable[[sa.Table], Insert]], sa.Executable]) -> None:
        self._built = {"sqlite": build(sqlite.insert), "postgresql": build(postgresql.insert)}

    def __call__(self, tx: Connection) -> sa.Executable:
        """Return the statement for this connection."""
        return self._built[tx.dialect.name]


def run(tx: Connection, statement: sa.Executable, values: dict[str, Any]) -> None:
    """Execute a statement whose result nobody reads."""
    tx.execute(statement, values)
