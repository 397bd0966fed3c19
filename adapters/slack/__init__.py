"""Slack: channels, threads and direct messages with a bot, by Socket Mode or signed posts."""

from adapters.slack.channel import Core, Link, Slack
from adapters.slack.events import Place
from adapters.slack.presence import Manner
from adapters.slack.render import pieces

__all__ = ["Core", "Link", "Manner", "Place", "Slack", "pieces"]
