"""Telegram: private chats, groups and topics with a bot, by long polling or a webhook."""

from adapters.telegram.channel import Link, Telegram
from adapters.telegram.listen import Webhook
from adapters.telegram.network import proxy_for
from adapters.telegram.presence import Manner
from adapters.telegram.text import pieces

__all__ = ["Link", "Manner", "Telegram", "Webhook", "pieces", "proxy_for"]
