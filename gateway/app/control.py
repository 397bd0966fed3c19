"""What the command line asks about, as far as no gateway must run for it."""

from __future__ import annotations

from collections.abc import Callable

from gateway.app.bots import policies_of
from gateway.app.budget import ledger_of
from gateway.app.initiative import timetable_of
from gateway.app.parts import Parts
from gateway.app.tools import recall_of
from gateway.control import StoreControl


def control_of(parts: Parts, *, sent: Callable[[], None], changed: Callable[[], None]) -> StoreControl:
    """Return what answers of the tables.

    `sent` is called when there is a message to send, `changed` when a schedule is another.
    """
    settings = parts.settings
    return StoreControl(
        db=parts.db,
        policies=policies_of(settings),
        owned=bool(settings.access.owners),
        sent=sent,
        timetable=timetable_of(parts, changed),
        recall=recall_of(parts),
        notes=parts.workspace.path,
        ledger=ledger_of(parts),
    )
