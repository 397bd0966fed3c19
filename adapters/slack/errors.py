"""What Slack refuses, with Slack's own word for it."""

from __future__ import annotations

from gateway.errors import DeadRoute, DeliveryError


class Refused(DeliveryError):
    """Slack refused a call for good; `code` is its `error`, such as `invalid_blocks` or `msg_too_long`."""

    def __init__(self, message: str, code: str) -> None:
        super().__init__(message)
        self.code = code


class Gone(DeadRoute, Refused):
    """Slack refused a call because the bot reaches nobody there any more (spec TG-28)."""
