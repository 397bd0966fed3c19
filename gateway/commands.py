"""Chat commands: they act at once, past the queue and without the model."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from sqlalchemy.engine import Connection

from gateway.clock import Clock
from gateway.store import journal
from gateway.store.engine import Database
from gateway.store.inbox import Arrival
from gateway.types import Chat, Stimulus

_COMMAND = re.compile(r"\A/([a-z][a-z0-9_]*)(?:@\w+)?:?(?:\s|\Z)", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Commands:
    """Turns a message that is a command into an act on its conversation.

    `model` names the model, `channels` tells the state of each channel, for `/status`.
    """

    db: Database
    clock: Clock
    started: float
    model: Callable[[], str]
    channels: Callable[[], Mapping[str, str]]

    def read(self, stimulus: Stimulus) -> Arrival | None:
        """Return how a command is taken in, None for anything else (spec CM-1)."""
        match = _COMMAND.match(stimulus.text.strip())
        if match is None:
            return None
        match match.group(1).lower():
            case "help" | "commands" | "start":
                return Arrival(stimulus, lambda _tx, _which: HELP)
            case "whoami" | "id":
                return Arrival(stimulus, lambda _tx, _which: whoami(stimulus))
            case "status":
                return Arrival(stimulus, self._status)
            case "stop":
                return Arrival(stimulus, self._stop, interrupts=True)
            case "new" | "reset":
                return Arrival(stimulus, self._new, interrupts=True)
            case _:
                return None

    def _stop(self, tx: Connection, which: int) -> str:
        stopped = journal.stop(tx, which, self.db.now(), new_session=False)
        return "Stopped." if stopped else "Nothing is running."

    def _new(self, tx: Connection, which: int) -> str:
        journal.stop(tx, which, self.db.now(), new_session=True)
        return "A new session begins. What came before stays stored, but I no longer look at it."

    def _status(self, tx: Connection, which: int) -> str:
        session, entries, waiting = journal.size(tx, which)
        lines = [
            f"model: {self.model()}",
            f"session: {session}, {entries} entries",
            f"waiting: {waiting}",
            f"up: {_span(self.clock.now() - self.started)}",
        ]
        lines += [f"{name}: {state}" for name, state in self.channels().items()]
        return "\n".join(lines)


HELP = """I answer what you write. These commands work at once:
/new – start a new session
/stop – stop what I am doing
/status – model, session, channels
/whoami – your id and this chat's
/help – this list"""


def whoami(stimulus: Stimulus) -> str:
    """Return what a person needs for an allowlist (spec TG-16)."""
    sender, address = stimulus.sender, stimulus.address
    where = f"{address.channel}, chat {address.chat}" + (
        f", thread {address.thread}" if address.thread else ""
    )
    kind = "a private chat" if stimulus.chat is Chat.DIRECT else "a group"
    name = f" ({sender.name})" if sender.name else ""
    return f"You are {sender.id}{name}.\nThis is {kind}: {where}."


def _span(seconds: float) -> str:
    minutes = int(seconds // 60)
    days, hours = divmod(minutes // 60, 24)
    parts = [(days, "d"), (hours, "h"), (minutes % 60, "min")]
    return " ".join(f"{count} {unit}" for count, unit in parts if count) or "less than a minute"
