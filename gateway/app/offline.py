"""Short commands: they ask the database, or the gateway that has it, and open no gateway themselves."""

from __future__ import annotations

import functools
import os
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from gateway.access import EVERYBODY
from gateway.app.bots import policies_of
from gateway.app.control import control_of
from gateway.app.initiative import heartbeat_of
from gateway.app.parts import Parts, redactor_of, workspace_of, zone_of
from gateway.app.tools import listed
from gateway.bell import Bell
from gateway.clock import SystemClock
from gateway.config import Loaded, bundled
from gateway.control import Control, RemoteControl
from gateway.errors import AlreadyRunning, ConfigError
from gateway.export import Archive
from gateway.mcp.servers import Seen
from gateway.mcp.servers import look as look_at_servers
from gateway.memory.vectors import open_encoder
from gateway.skills import open_skills
from gateway.store import imports
from gateway.store.engine import Database, open_database, open_reader
from gateway.store.migrate import migrate as migrate_store
from gateway.timer import Timer
from gateway.types import JsonObject

T = TypeVar("T")


async def migrate(loaded: Loaded) -> str:
    """Bring the database to this program's schema; return one line that says what was done.

    Raises: ConfigError, StoreError.
    """
    db = await open_database(loaded.settings.store.url, SystemClock())
    try:
        return await migrate_store(db, bundled("migrations"))
    finally:
        await db.close()


async def control(loaded: Loaded, question: Callable[[Control], Awaitable[JsonObject]]) -> JsonObject:
    """Ask who may talk, or why a message was not answered: the gateway that runs, else the database.

    Raises: ConfigError, StoreError.
    """
    settings = loaded.settings
    try:
        db = await open_database(settings.store.url, SystemClock())
    except AlreadyRunning as error:
        if not settings.http.enabled:
            raise ConfigError(
                "a gateway is running, and [http] enabled = false keeps it from being asked; stop it first, "
                "or write /pairing to the bot as its owner"
            ) from error
        return await question(RemoteControl(settings.http))
    try:
        await migrate_store(db, bundled("migrations"))
        parts = _parts(loaded, db)
        beats = heartbeat_of(parts, Timer(parts.clock), Bell(), settings.heartbeat.model)
        capabilities = functools.cache(lambda: listed(parts))
        stored = replace(
            control_of(parts, sent=_nobody_to_tell, changed=_nobody_to_tell),
            beats=lambda: beats,
            capabilities=capabilities,
            idle=db.exclusive,
        )
        return await question(stored)
    finally:
        await db.close()


def _parts(loaded: Loaded, db: Database) -> Parts:
    """Return what is known of the channels without opening them."""
    settings = loaded.settings
    return Parts(
        loaded=loaded,
        clock=SystemClock(),
        db=db,
        workspace=workspace_of(settings, settings.workspace.path),
        skills=open_skills(loaded),
        agent_skills={
            name: open_skills(loaded, workspace=Path(one.workspace).resolve(), only=one.skills)
            for name, one in settings.agents.items()
        },
        policies=policies_of(settings) | ({"web": EVERYBODY} if settings.http.enabled else {}),
        encoder=open_encoder(settings.memory.embeddings),
    )


def _nobody_to_tell() -> None:
    return


async def look(loaded: Loaded, question: Callable[[Archive], Awaitable[T]]) -> T:
    """Ask about what was said, beside a gateway that may be running.

    Raises: ConfigError, StoreError.
    """
    reader = open_reader(loaded.settings.store.url)
    redact = redactor_of(loaded.settings, os.environ)
    try:
        return await question(Archive(reader=reader, zone=zone_of(loaded), redact=redact))
    finally:
        await reader.close()


async def mcp_servers(loaded: Loaded) -> Sequence[Seen]:
    """Start every MCP server for a moment, and ask it what it offers. Raises: ConfigError."""
    return await look_at_servers(loaded.settings.mcp, loaded.home, os.environ, SystemClock())


async def take_over(loaded: Loaded, program: str, folder: Path, *, dry: bool) -> str:
    """Import what another program keeps in a folder; return what was done, or with `dry` would be.

    Raises: ConfigError, StoreError.
    """
    from gateway.importing.files import Mover  # noqa: PLC0415 - only this command needs it
    from gateway.importing.run import Importer, told  # noqa: PLC0415 - the same

    redact = redactor_of(loaded.settings, os.environ)
    mover = Mover(ours=loaded.workspace.resolve(), templates=bundled("workspace"), redact=redact)
    importer = Importer(mover=mover, redact=redact, zone=zone_of(loaded))
    if dry:
        plan = importer.plan(program, folder, await _imported(loaded))
        return told(plan, mover.ours, dry=True)
    try:
        db = await open_database(loaded.settings.store.url, SystemClock())
    except AlreadyRunning as error:
        raise ConfigError("a gateway is running; stop it, import, and start it again") from error
    try:
        await migrate_store(db, bundled("migrations"))
        plan = importer.plan(program, folder, await db.read(imports.known))
        await importer.carry_out(plan, db)
    finally:
        await db.close()
    return told(plan, mover.ours, dry=False)


async def _imported(loaded: Loaded) -> frozenset[str]:
    """Return which sessions were imported before; without a database none were."""
    try:
        reader = open_reader(loaded.settings.store.url)
    except ConfigError:
        return frozenset()
    try:
        return await reader.read(imports.known)
    finally:
        await reader.close()
