"""What is alike for the bots of every platform: who may talk to them, and how large a file may come."""

from __future__ import annotations

from collections.abc import Mapping

from gateway.access import Policy
from gateway.config import Settings, SlackAccount, TelegramAccount, section_of

LEAST = 20
"""Megabytes of a file that may come in even where no bot is configured."""


def policies_of(settings: Settings) -> dict[str, Policy]:
    """Return who may talk on each channel that people reach from elsewhere."""
    owners = settings.access.owners
    return {name: Policy.of(section_of(name), bot, owners) for name, bot in _bots(settings).items()}


def largest_file(settings: Settings) -> int:
    """Return how many bytes a file may have that comes in anywhere; each channel keeps to its own limit."""
    return max([LEAST, *(bot.media_max_mb for bot in _bots(settings).values())]) * 1_000_000


def _bots(settings: Settings) -> Mapping[str, TelegramAccount | SlackAccount]:
    return {**settings.channels.telegram.bots(), **settings.channels.slack.bots()}
