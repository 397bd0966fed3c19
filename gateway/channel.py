"""What the core asks of a messaging platform."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias, runtime_checkable

from gateway.types import Address, Attachment, Outgoing, Receipt


@dataclass(frozen=True, slots=True)
class Cursor:
    """How far a platform's stream was read, stored in the transaction that stores what was read."""

    name: str
    value: str


@dataclass(frozen=True, slots=True)
class Poison:
    """Something that could not be read: kept for a person to look at, never asked for again."""

    key: str
    channel: str
    body: str
    problem: str


Accept: TypeAlias = Callable[..., Awaitable[None]]
"""`await accept(stimuli, cursor=None, poison=())`.

Returns after everything is committed, in one transaction; raises `StoreError` with nothing stored.
Known keys are ignored, so a stimulus may be handed over again.
"""


class Channel(Protocol):
    """One account on one platform."""

    @property
    def name(self) -> str:
        """Return the first part of this channel's addresses."""
        ...

    async def open(self) -> None:
        """Load what sending needs; must not raise, and must not wait for the network."""
        ...

    async def listen(self, accept: Accept) -> None:
        """Hand over every stimulus until cancelled.

        Confirms a stimulus to the platform only after `accept` returned. May raise anything to be
        started again after a pause, or `ChannelStopped` to stay down.
        """
        ...

    async def send(self, message: Outgoing) -> Receipt:
        """Deliver one piece.

        Raises: DeliveryRetry (surely not sent), DeliveryUnsure (may have arrived), DeliveryError.
        """
        ...

    def pieces(self, text: str) -> Sequence[str]:
        """Cut a reply into what one message can hold; pure, the same text gives the same pieces."""
        ...

    def status(self) -> dict[str, str | int | float | None]:
        """Return facts for `/status` and the health page; no secrets."""
        ...

    async def close(self) -> None:
        """Let go of connections."""
        ...


@runtime_checkable
class Fetches(Protocol):
    """A channel whose messages bring files."""

    async def fetch(self, attachment: Attachment, most: int) -> bytes:
        """Return the content behind `attachment.ref`, at most `most` bytes.

        Raises: DeliveryError, whose text tells people why it can't be had; DeliveryRetry.
        """
        ...


@runtime_checkable
class SendsFiles(Protocol):
    """A channel whose messages can carry files."""

    sends_files: Literal[True]


@runtime_checkable
class Reconciles(Protocol):
    """A channel that can tell whether a message has arrived (reliability 3.1)."""

    async def find(self, message: Outgoing) -> Receipt | None:
        """Return the receipt of a message that may have been delivered before; None if it can't be found.

        Raises: DeliveryRetry while nobody can tell; nothing was sent by asking.
        """
        ...


@runtime_checkable
class Alone(Protocol):
    """A channel that some processes may not listen to at the same time."""

    @property
    def alone(self) -> str:
        """Return the name of what only one process may listen to, "" if several may."""
        ...


Cursors: TypeAlias = Callable[[str], Awaitable[str | None]]
"""`await cursor(name)`: the stored value of a cursor, None if there is none."""

Move: TypeAlias = Callable[[Address, Address], Awaitable[None]]
"""`await move(old, new)`: the platform gave a chat another id. All its threads follow, once."""

Recall: TypeAlias = Callable[[Address, str], Awaitable[Outgoing | None]]
"""`await recall(address, message_id)`: what we sent to that chat, in whichever thread, under this id."""

__all__ = [
    "Accept",
    "Address",
    "Alone",
    "Channel",
    "Cursor",
    "Cursors",
    "Fetches",
    "Move",
    "Poison",
    "Recall",
    "Reconciles",
    "SendsFiles",
]
