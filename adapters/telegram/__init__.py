"""Telegram: a private chat with a bot, read by long polling."""

from adapters.telegram.channel import Telegram
from adapters.telegram.text import pieces
from adapters.telegram.updates import read

__all__ = ["Telegram", "pieces", "read"]
