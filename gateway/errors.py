"""Every error the gateway raises on purpose: one class per reaction, not per cause.

GatewayError                 every deliberate error; the message says what and what to do
├─ ConfigError               shown in one line, exit code 2
│  └─ AlreadyRunning         another gateway has the database: talk to it instead
├─ StoreError                the database can't take a write now; nothing was stored
├─ LeaseLost                 another worker owns the conversation: drop the turn, write nothing
├─ ModelError
│  ├─ ModelBusy(after)       429, 5xx, time-outs, broken streams: wait, or the next model
│  ├─ ModelRefused           other 4xx, safety: tell the person, don't retry
│  └─ PromptTooLong          shorten the history, then once more
├─ ToolError                 its text becomes the tool's result
│  └─ ToolDenied             policy or a person said no; nothing ran
└─ SendError
   ├─ DeliveryRetry(after)   surely not sent: later
   ├─ DeliveryUnsure         the connection died after the request was written
   ├─ DeliveryError          refused for good
   │  └─ DeadRoute           nothing will ever arrive there: blocked, kicked, vanished
   └─ ChannelStopped         the platform refuses this account (a revoked token): stop listening
"""

from __future__ import annotations

from collections.abc import Iterator


class GatewayError(Exception):
    """Base of all errors below."""


class ConfigError(GatewayError):
    """The set-up can't work; the message names the thing and the remedy."""


class AlreadyRunning(ConfigError):
    """Another gateway has this database."""


class StoreError(GatewayError):
    """The database could not take a write; nothing of it was stored."""


class LeaseLost(GatewayError):
    """Another worker owns this conversation now."""


class ModelError(GatewayError):
    """A model call failed. The message is for the log; `hint` is for the person who waits."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class ModelBusy(ModelError):
    """The model can't answer now; `after` is the wait in seconds that it asked for, or 0."""

    def __init__(self, message: str, *, after: float = 0.0, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.after = after


class ModelRefused(ModelError):
    """The model won't answer this request, however often it is asked."""


class PromptTooLong(ModelError):
    """The request exceeds the model's context window."""


class ToolError(GatewayError):
    """A tool could not do it; the text is for the model."""


class ToolDenied(ToolError):
    """Policy or a person said no; nothing ran."""


class SendError(GatewayError):
    """A message was not delivered."""


class DeliveryRetry(SendError):
    """The platform surely did not take the message; try again in `after` seconds."""

    def __init__(self, message: str, *, after: float = 0.0) -> None:
        super().__init__(message)
        self.after = after


class DeliveryUnsure(SendError):
    """The message may or may not have arrived."""


class DeliveryError(SendError):
    """The platform refused the message for good."""


class DeadRoute(DeliveryError):
    """Nobody can be reached there until a message comes from there."""


class ChannelStopped(SendError):
    """The platform refuses this account; listening again makes no sense until a person acts."""


def leaves(error: BaseException) -> Iterator[BaseException]:
    """Yield the errors that task groups have wrapped, or the one itself."""
    if isinstance(error, BaseExceptionGroup):
        for one in error.exceptions:
            yield from leaves(one)
    else:
        yield error
