"""Two refusals of `getUpdates` that have a cure of their own; both are HTTP 409 (Bot API getUpdates)."""

from __future__ import annotations

from gateway.errors import DeliveryRetry


class OtherPoller(DeliveryRetry):
    """Another process asks for the updates of this bot."""


class WebhookSet(DeliveryRetry):
    """The bot has a webhook, so nobody may poll."""
