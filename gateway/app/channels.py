"""Opens the channels that the configuration names."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from gateway.access import EVERYBODY
from gateway.app.bots import policies_of
from gateway.app.parts import Parts
from gateway.app.running import Gateway
from gateway.app.slack import open_slack
from gateway.app.telegram import open_telegram
from gateway.app.web import open_web

if TYPE_CHECKING:
    from aiohttp.web import AbstractRouteDef


async def open_channels(parts: Parts, gateway: Callable[[], Gateway | None]) -> None:
    """Open them; the web page answers from here on, before slower things are loaded."""
    policies = policies_of(parts.settings)
    doors: list[AbstractRouteDef] = []
    for name, bot in parts.settings.channels.telegram.bots().items():
        telegram = open_telegram(parts, name, bot)
        parts.add(telegram, policies[name])
        doors += telegram.doors()
    for name, app in parts.settings.channels.slack.bots().items():
        slack = open_slack(parts, name, app)
        parts.add(slack, policies[name])
        doors += slack.doors()
    if parts.settings.http.enabled:
        parts.add(await open_web(parts, gateway, doors), EVERYBODY)
