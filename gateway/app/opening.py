"""Opens a gateway; read on in `parts`, `channels`, `models` and `wiring`, which it uses in this order."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Mapping

from gateway.access import EVERYBODY
from gateway.app.channels import open_channels
from gateway.app.models import open_models
from gateway.app.parts import Parts, open_parts
from gateway.app.running import Gateway
from gateway.app.wiring import wire
from gateway.channel import Channel
from gateway.clock import Clock
from gateway.config import Loaded, bundled
from gateway.feed import Feed
from gateway.identities import Identities
from gateway.store import routes
from gateway.store.migrate import migrate

log = logging.getLogger(__name__)


async def open_gateway(
    loaded: Loaded,
    clock: Clock,
    *,
    console: Callable[[Feed], Channel] | None = None,
    env: Mapping[str, str] = os.environ,
) -> Gateway:
    """Open what the configuration names; with `console` only that channel listens.

    Raises: ConfigError, StoreError.
    """
    parts = await open_parts(loaded, clock, env)
    gateway: Gateway | None = None
    try:
        await _prepare(parts)
        if console is not None:
            parts.add(console(parts.feed), EVERYBODY)
        else:
            await open_channels(parts, lambda: gateway)
        gateway = wire(parts, await open_models(parts))
        await gateway.capabilities.take_in()
        await gateway.worker.turns.look()
        await gateway.servers.start()
    except BaseException:
        await parts.close()
        raise
    return gateway


async def _prepare(parts: Parts) -> None:
    """Bring the database and the workspaces to what this program and its configuration want."""
    log.info("store.ready", extra={"schema": await migrate(parts.db, bundled("migrations"))})
    people = Identities.of(parts.settings.identities).people
    await parts.db.write(lambda tx: routes.keep(tx, people), durable=False)
    for one in (parts.workspace, *parts.workspaces.values()):
        await asyncio.to_thread(one.seed)
