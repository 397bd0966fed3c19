"""Slack: channels, threads and direct messages with a bot, by Socket Mode or signed posts."""

from adapters.slack.channel import Core, Link, Slack
from adapters.slack.events import Place
from adapters.slack.manifest import Features, app_manifest, needed_scopes
from adapters.slack.presence import Manner
from adapters.slack.render import pieces

__all__ = [
    "Core",
    "Features",
    "Link",
    "Manner",
    "Place",
    "Slack",
    "app_manifest",
    "needed_scopes",
    "pieces",
]
