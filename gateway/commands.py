"""Chat commands: they act at once, past the queue and without the model."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from sqlalchemy.engine import Connection

from gateway import pairing
from gateway.clock import Clock
from gateway.store import journal, members
from gateway.store.engine import Database
from gateway.store.inbox import Arrival
from gateway.types import Address, Chat, Level, Stimulus

_COMMAND = re.compile(r"\A/([a-z][a-z0-9_]*)(@\w+)?:?(?:\s|\Z)", re.IGNORECASE)

STOP_PRESSED = "callback_data: stop"
"""What a channel hands over when the Stop button below a reply under way is pressed (spec TG-24)."""


@dataclass(frozen=True, slots=True)
class Command:
    """What people can type; `aliases` mean the same, and menus don't show them.

    Whoever types it needs a level, in a group perhaps another one (spec CM-4, AC-5).
    """

    name: str
    description: str
    aliases: tuple[str, ...] = ()
    where: frozenset[Chat] = frozenset(Chat)
    needs: Level = Level.GUEST
    needs_in_group: Level = Level.GUEST


_PRIVATE = frozenset({Chat.DIRECT})

TABLE = (
    Command("new", "start a new session", ("reset",), needs_in_group=Level.USER),
    Command("stop", "stop what I am doing", needs_in_group=Level.USER),
    Command("status", "model, session, channels"),
    Command("whoami", "your id and this chat's", ("id",)),
    Command("cron", "reminders and schedules of this chat", where=_PRIVATE, needs=Level.USER),
    Command("pairing", "who may talk to me (for my owner)", where=_PRIVATE, needs=Level.OWNER),
    Command("heartbeat", "my periodic checks (for my owner)", where=_PRIVATE, needs=Level.OWNER),
    Command("help", "this list", ("commands", "start")),
)
"""Every command, in the order of menus."""

_BY_NAME = {name: command for command in TABLE for name in (command.name, *command.aliases)}


def menu(chat: Chat) -> tuple[tuple[str, str], ...]:
    """Return name and description of each command that works in such a chat, for people in general."""
    known = (one for one in TABLE if chat in one.where and one.needs is not Level.OWNER)
    return tuple((one.name, one.description) for one in known)


HELP = "\n".join(
    ["I answer what you write. These commands work at once:"]
    + [f"/{command.name} – {command.description}" for command in TABLE]
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Commands:
    """Turns a message that is a command into an act on its conversation.

    `model` names the model, `channels` tells the state of each channel, for `/status`. `owned`: the
    configuration names an owner, so that nobody becomes one by pairing. `heartbeat` acts on heartbeats: the
    words behind the command, and a key for a new one; a ValueError says how to use it. So does `cron` with
    the words behind the command and the chat.
    """

    db: Database
    clock: Clock
    started: float
    model: Callable[[], str]
    channels: Callable[[], Mapping[str, str]]
    owned: bool = False
    heartbeat: Callable[[Connection, str, str], str] = lambda _tx, _action, _key: "There are none here."
    cron: Callable[[Connection, Sequence[str], Address], str] = lambda _tx, _words, _chat: "There are none."

    def read(self, stimulus: Stimulus) -> Arrival | None:
        """Return how a command is taken in, None for anything else (spec CM-1)."""
        command = _named(stimulus)
        arrival = self._act(command.name, stimulus) if command else None
        if command is None or arrival is None:
            return None
        needs = command.needs_in_group if stimulus.chat is Chat.GROUP else command.needs
        return replace(arrival, needs=needs)

    def _act(self, name: str, stimulus: Stimulus) -> Arrival | None:
        match name:
            case "help":
                return Arrival(stimulus, lambda _tx, _which: HELP)
            case "whoami":
                return Arrival(stimulus, lambda _tx, _which: whoami(stimulus))
            case "status":
                return Arrival(stimulus, self._status)
            case "stop":
                return Arrival(stimulus, self._stop, interrupts=True)
            case "new":
                return Arrival(stimulus, self._new, interrupts=True)
            case "pairing":
                return Arrival(stimulus, functools.partial(self._pairing, stimulus.text.split()[1:]))
            case "cron":
                return Arrival(stimulus, functools.partial(self._cron, stimulus))
            case "heartbeat":
                return Arrival(stimulus, functools.partial(self._heartbeat, stimulus))
            case _:
                return None

    def _stop(self, tx: Connection, which: int) -> str:
        stopped = journal.stop(tx, which, self.db.now(), new_session=False)
        return "Stopped." if stopped else "Nothing is running."

    def _new(self, tx: Connection, which: int) -> str:
        journal.stop(tx, which, self.db.now(), new_session=True)
        return "A new session begins. What came before stays stored, but I no longer look at it."

    def _pairing(self, words: Sequence[str], tx: Connection, _which: int) -> str:
        now = self.db.now()
        match words:
            case ["list"] | []:
                return pairing.listed(pairing.everybody(tx, now))
            case ["approve", code]:
                person = pairing.approve(tx, code, now, owned=self.owned, notify=True)
                return pairing.approved(pairing.person_json(person)) if person else pairing.WRONG
            case ["revoke", channel, sender]:
                return pairing.revoked(channel, sender, found=members.revoke(tx, channel, sender))
            case _:
                return pairing.USAGE

    def _cron(self, stimulus: Stimulus, tx: Connection, _which: int) -> str:
        try:
            return self.cron(tx, stimulus.text.split()[1:], stimulus.address)
        except ValueError as error:
            return str(error)

    def _heartbeat(self, stimulus: Stimulus, tx: Connection, _which: int) -> str:
        action = " ".join(stimulus.text.split()[1:]).lower()
        try:
            return self.heartbeat(tx, action, f"heartbeat:main:manual:{stimulus.key}")
        except ValueError as error:
            return str(error)

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


def _named(stimulus: Stimulus) -> Command | None:
    """Return the command that a message is, None if it is none or not one for such a chat."""
    text = stimulus.text.strip()
    if text == STOP_PRESSED:
        return _BY_NAME["stop"]
    match = _COMMAND.match(text)
    if match is None or (match[2] and not stimulus.aimed):  # /stop@another_bot
        return None
    command = _BY_NAME.get(match[1].lower())
    return command if command and stimulus.chat in command.where else None


def asks_to_come_in(stimulus: Stimulus) -> bool:
    """Return whether a stranger who sends this may get a pairing code: for a message, not for a command.

    The exception is /start, which is how a platform greets for people (spec AC-8, TG-16).
    """
    match = _COMMAND.match(stimulus.text.strip())
    is_command = match is not None and match[1].lower() != "start"
    return not (is_command or stimulus.gesture or stimulus.edits)


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
