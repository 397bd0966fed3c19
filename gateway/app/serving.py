"""Runs the gateway as `crayfish run` does."""

from __future__ import annotations

import asyncio
import signal
import sys

from gateway.app.opening import open_gateway
from gateway.clock import SystemClock
from gateway.config import Loaded


async def serve(loaded: Loaded) -> None:
    """Run the gateway until SIGTERM or SIGINT; a second one ends it at once.

    Raises: ConfigError, StoreError.
    """
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    def on_signal(number: signal.Signals) -> None:
        loop.remove_signal_handler(number)
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal, number)
    gateway = await open_gateway(loaded, SystemClock())
    try:
        _say(gateway.models.choice.text)
        web = gateway.channels.get("web")
        if web is not None:
            _say(f"Crayfish is running: {web.status()['url']}/")
        else:
            _say(f"Crayfish is running: {', '.join(gateway.channels) or 'no channel is configured'}")
        await gateway.run(stop)
    finally:
        await gateway.close()


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()
