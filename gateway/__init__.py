"""Crayfish: a chat-bot gateway for messaging platforms."""

__version__ = "0.1.0"
