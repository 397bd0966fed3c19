"""What a terminal gets, of a gateway of its own or of the one that is running."""

from __future__ import annotations

import asyncio
import sys

from gateway.app.opening import open_gateway
from gateway.app.running import Gateway
from gateway.clock import SystemClock
from gateway.config import Loaded
from gateway.control import RemoteControl, StoreControl, place_of
from gateway.errors import AlreadyRunning
from gateway.types import JsonObject


async def chat(loaded: Loaded, session: str) -> int:
    """Talk; return the exit code. Raises: ConfigError, StoreError."""
    from adapters.console import Console, chat_over_http  # noqa: PLC0415 - only this command needs it

    http = loaded.settings.http
    try:
        gateway = await _open(loaded, session)
    except AlreadyRunning:
        if not http.enabled:
            raise
        host, port = place_of(http)
        url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
        return await chat_over_http(url, http.token.get_secret_value(), session)
    try:
        sys.stderr.write(gateway.models.choice.text + "\n")
        await gateway.run(asyncio.Event())
    finally:
        await gateway.close()
    console = gateway.channels["console"]
    return console.code if isinstance(console, Console) else 0


async def prompt(loaded: Loaded, conversation: str) -> JsonObject:
    """Return what the model is sent for a conversation, see `StoreControl.prompt`.

    Raises: ConfigError, StoreError.
    """
    try:
        gateway = await _open(loaded, session="")
    except AlreadyRunning:
        if not loaded.settings.http.enabled:
            raise
        return await RemoteControl(loaded.settings.http).prompt(conversation)
    try:
        control = StoreControl(
            db=gateway.db,
            policies=gateway.intake.policies,
            owned=gateway.intake.commands.owned,
            sent=gateway.sender.bell.ring,
            contexts=lambda: gateway.contexts,
        )
        return await control.prompt(conversation)
    finally:
        await gateway.close()


async def _open(loaded: Loaded, session: str) -> Gateway:
    """Open a gateway without any other channel."""
    from adapters.console import Console  # noqa: PLC0415 - likewise

    return await open_gateway(loaded, SystemClock(), console=lambda feed: Console(feed=feed, session=session))
