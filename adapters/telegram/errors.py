"""What the platform refuses or lacks, where a cure of its own is known."""

from __future__ import annotations

from gateway.errors import DeliveryError, DeliveryRetry


class OtherPoller(DeliveryRetry):
    """Another process asks for the updates of this bot (Bot API getUpdates, HTTP 409)."""


class WebhookSet(DeliveryRetry):
    """The bot has a webhook, so nobody may poll (Bot API getUpdates, HTTP 409)."""


class Unreachable(DeliveryRetry):
    """No connection came about: the cable, the name server, a proxy."""


class Migrated(DeliveryError):
    """The group has become a supergroup; `chat` is its new id (Bot API ResponseParameters)."""

    def __init__(self, message: str, chat: str) -> None:
        super().__init__(message)
        self.chat = chat
