"""Chat commands: they act at once, past the queue and without the model."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date

from sqlalchemy.engine import Connection

from gateway import approvals, pairing
from gateway.clock import Clock
from gateway.store import journal, members, notes, subagents
from gateway.store import usage as store_usage
from gateway.store.approvals import State, open_at
from gateway.store.engine import Database
from gateway.store.inbox import Arrival, Said
from gateway.store.usage import Ledger
from gateway.types import Address, Chat, Level, Stimulus
from gateway.usage import Footer, as_text

_COMMAND = re.compile(r"\A/([a-z][a-z0-9_]*)(@\w+)?:?(?:\s|\Z)", re.IGNORECASE)

STOP_PRESSED = "callback_data: stop"
"""What a channel hands over when the Stop button below a reply under way is pressed (spec TG-24)."""


LONGEST_FOCUS = 500
"""Characters of what a summary is to keep above all."""


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
    Command("compact", "sum up what came before", needs_in_group=Level.USER),
    Command("status", "model, session, channels"),
    Command("context", "what I am told, by size", where=_PRIVATE, needs=Level.OWNER),
    Command("whoami", "your id and this chat's", ("id",)),
    Command("usage", "what this chat took; tokens, full or off: below replies", needs_in_group=Level.USER),
    Command("cron", "reminders and schedules of this chat", where=_PRIVATE, needs=Level.USER),
    Command("tools", "what I can use here", needs=Level.USER, needs_in_group=Level.USER),
    Command("pairing", "who may talk to me (for my owner)", where=_PRIVATE, needs=Level.OWNER),
    Command("approve", "allow what I asked (for my owner)", needs=Level.OWNER, needs_in_group=Level.OWNER),
    Command("deny", "don't allow it (for my owner)", needs=Level.OWNER, needs_in_group=Level.OWNER),
    Command("approvals", "what waits to be allowed (for my owner)", where=_PRIVATE, needs=Level.OWNER),
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


@dataclass(frozen=True, slots=True)
class ForSender:
    """An answer that depends on who asks; `stimulus` is the command as it was let in."""

    answer: Callable[[Connection, Stimulus], str]
    stimulus: Stimulus

    def __call__(self, tx: Connection, _which: int) -> str:
        """Return the answer."""
        return self.answer(tx, self.stimulus)


@dataclass(frozen=True, slots=True, kw_only=True)
class Commands:
    """Turns a message that is a command into an act on its conversation.

    `model` names the model that would answer, `channels` tells the state of each channel, for `/status`.
    `owned`: the configuration names an owner, so that nobody becomes one by pairing. `heartbeat` acts on
    heartbeats: the words behind the command, and a key for a new one; a ValueError says how to use it. So
    does `cron` with the words behind the command and the chat. `ledger` says what day it is, `tools` what a
    sender has, `context` what an answer to the sender would take.
    """

    db: Database
    clock: Clock
    started: float
    model: Callable[[Stimulus], str]
    channels: Callable[[], Mapping[str, str]]
    owned: bool = False
    ledger: Ledger = field(default_factory=Ledger)
    heartbeat: Callable[[Connection, str, str], str] = lambda _tx, _action, _key: "There are none here."
    cron: Callable[[Connection, Sequence[str], Address], str] = lambda _tx, _words, _chat: "There are none."
    context: Callable[[Connection, Stimulus], str] = lambda _tx, _asked: "Nothing is known here."
    tools: Callable[[Stimulus], str] = lambda _stimulus: "There are none here."

    def maybe(self, stimulus: Stimulus) -> Callable[[Connection], Arrival | None] | None:
        """Return what finds out, in the transaction that stores it, whether a message is a yes or a no."""
        state = approvals.says(stimulus.text)
        return None if state is None else functools.partial(self._yes_or_no, stimulus, state)

    def read(self, stimulus: Stimulus) -> Arrival | None:
        """Return how a command is taken in, None for anything else (spec CM-1)."""
        command = _named(stimulus)
        arrival = self._act(command.name, stimulus) if command else None
        if command is None or arrival is None:
            return None
        needs = command.needs_in_group if stimulus.chat is Chat.GROUP else command.needs
        return arrival if arrival.needs.covers(needs) else replace(arrival, needs=needs)

    def beyond(self, stimulus: Stimulus) -> Stimulus | None:
        """Return what is said along with `/new`, the first message of the new session; None if nothing is."""
        match = _COMMAND.match(stimulus.text.strip())
        command = _named(stimulus) if match else None
        if match is None or command is None or command.name != "new":
            return None
        rest = stimulus.text.strip()[match.end() :].strip()
        if not rest and not stimulus.attachments:
            return None
        message_key = stimulus.message_key and f"{stimulus.message_key}:said"
        return replace(stimulus, key=f"{stimulus.key}:said", message_key=message_key, text=rest)

    def _act(self, name: str, stimulus: Stimulus) -> Arrival | None:  # noqa: C901, PLR0911, PLR0912 - one line for each
        match name:
            case "help":
                return Arrival(stimulus, lambda _tx, _which: HELP)
            case "whoami":
                return Arrival(stimulus, lambda _tx, _which: whoami(stimulus))
            case "status":
                return Arrival(stimulus, functools.partial(self._status, stimulus))
            case "stop":
                return Arrival(stimulus, functools.partial(self._stop, stimulus), interrupts=True)
            case "new":
                return Arrival(stimulus, functools.partial(self._new, stimulus), interrupts=True)
            case "context":
                return Arrival(stimulus, ForSender(self.context, stimulus))
            case "compact":
                return Arrival(stimulus, functools.partial(self._compact, stimulus))
            case "approve" | "deny":
                return Arrival(stimulus, functools.partial(self._decide, name, stimulus))
            case "approvals":
                return Arrival(stimulus, functools.partial(self._approvals, stimulus.text.split()[1:]))
            case "pairing":
                return Arrival(stimulus, functools.partial(self._pairing, stimulus.text.split()[1:]))
            case "usage":
                return self._usage(stimulus)
            case "cron":
                return Arrival(stimulus, functools.partial(self._cron, stimulus))
            case "tools":
                return Arrival(stimulus, ForSender(lambda _tx, asked: self.tools(asked), stimulus))
            case "heartbeat":
                return Arrival(stimulus, functools.partial(self._heartbeat, stimulus))
            case _:
                return None

    def _stop(self, stimulus: Stimulus, tx: Connection, which: int) -> str:
        children = subagents.stop_all(tx, stimulus.address, self.db.now())
        stopped = journal.stop(tx, which, self.db.now(), new_session=False)
        return "Stopped." if stopped or children else "Nothing is running."

    def _new(self, stimulus: Stimulus, tx: Connection, which: int) -> str:
        subagents.stop_all(tx, stimulus.address, self.db.now())
        journal.stop(tx, which, self.db.now(), new_session=True)
        return "A new session begins. What came before stays stored, but I no longer look at it."

    def _compact(self, stimulus: Stimulus, tx: Connection, which: int) -> str:
        """Ask for a summary; the worker makes it, before the next turn or at once if there is none."""
        focus = " ".join(stimulus.text.split()[1:])
        notes.want(tx, which, focus[:LONGEST_FOCUS], self.db.now())
        return "I sum up what came before. That may take a moment."

    def _usage(self, stimulus: Stimulus) -> Arrival:
        """Answer for the chat; for all of them only the owner, where nobody else reads."""
        words = stimulus.text.lower().split()[1:]
        if len(words) == 1 and words[0] in set(Footer):
            return Arrival(stimulus, functools.partial(_set_footer, Footer(words[0])))
        everything = words == ["all"]

        def answer(tx: Connection, _which: int) -> str:
            today = date.fromisoformat(self.ledger.today())
            month = today.replace(day=1)
            where = None if everything else stimulus.address
            people = [store_usage.report(tx, "sender", month)] if everything else []
            reports = (store_usage.report(tx, "model", since, where) for since in (today, month))
            return as_text("All chats:" if everything else "This chat:", *reports, *people)

        if everything and stimulus.chat is Chat.GROUP:
            return Arrival(stimulus, lambda _tx, _which: "I tell that only my owner, in private.")
        return Arrival(stimulus, answer, needs=Level.OWNER if everything else Level.GUEST)

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

    def _decide(self, name: str, stimulus: Stimulus, tx: Connection, _which: int) -> str | Said:
        button = approvals.pressed(stimulus.text)
        words = button[1].split() if button else stimulus.text.split()[1:]
        state = State.ONCE if name == "approve" else State.DENIED
        by = f"{stimulus.place.channel}:{stimulus.sender.id}"
        return approvals.answer(tx, words, state, by, self.db.now())

    def _approvals(self, words: Sequence[str], tx: Connection, _which: int) -> str:
        match words:
            case []:
                return approvals.overview(tx)
            case ["revoke", which]:
                return approvals.take_back(tx, which)
            case _:
                return approvals.USAGE

    def _yes_or_no(self, stimulus: Stimulus, state: State, tx: Connection) -> Arrival | None:
        """Return a bare yes or no as the answer to the one question that stands here (approval-05)."""
        asked = open_at(tx, stimulus.place)
        if len(asked) != 1:
            return None
        by, now = f"{stimulus.place.channel}:{stimulus.sender.id}", self.db.now()
        answer = functools.partial(lambda which, tx, _: approvals.settle(tx, which, state, by, now), asked[0])
        return Arrival(stimulus, answer, needs=Level.OWNER)

    def _cron(self, stimulus: Stimulus, tx: Connection, _which: int) -> str:
        try:
            return self.cron(tx, stimulus.text.split()[1:], stimulus.place)
        except ValueError as error:
            return str(error)

    def _heartbeat(self, stimulus: Stimulus, tx: Connection, _which: int) -> str:
        action = " ".join(stimulus.text.split()[1:]).lower()
        try:
            return self.heartbeat(tx, action, f"heartbeat:main:manual:{stimulus.key}")
        except ValueError as error:
            return str(error)

    def _status(self, stimulus: Stimulus, tx: Connection, which: int) -> str:
        session, entries, waiting = journal.size(tx, which)
        summed = notes.count(tx, which)
        lines = [
            f"model: {self.model(stimulus)}",
            f"session: {session}, {entries} entries" + (f", summed up {_times(summed)}" if summed else ""),
            f"waiting: {waiting}",
            f"up: {_span(self.clock.now() - self.started)}",
        ]
        channels = self.channels()
        if stimulus.chat is Chat.GROUP:
            # What a trouble says, of hosts and paths, is not for everybody (secrets-009).
            channels = {name: state.partition(" (")[0] for name, state in channels.items()}
        lines += [f"{name}: {state}" for name, state in channels.items()]
        return "\n".join(lines)


def _set_footer(wanted: Footer, tx: Connection, which: int) -> str:
    store_usage.set_footer(tx, which, wanted)
    if wanted is Footer.OFF:
        return "My replies no longer say what they took."
    return "From now on the last line of each reply says what it took. /usage off ends that."


def _named(stimulus: Stimulus) -> Command | None:
    """Return the command that a message is, None if it is none or not one for such a chat."""
    text = stimulus.text.strip()
    if text == STOP_PRESSED:
        return _BY_NAME["stop"]
    if button := approvals.pressed(text):
        return _BY_NAME[button[0]]
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
    sender, address = stimulus.sender, stimulus.place
    where = f"{address.channel}, chat {address.chat}" + (
        f", thread {address.thread}" if address.thread else ""
    )
    kind = "a private chat" if stimulus.chat is Chat.DIRECT else "a group"
    name = f" ({sender.name})" if sender.name else ""
    return f"You are {sender.id}{name}.\nThis is {kind}: {where}."


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _span(seconds: float) -> str:
    minutes = int(seconds // 60)
    days, hours = divmod(minutes // 60, 24)
    parts = [(days, "d"), (hours, "h"), (minutes % 60, "min")]
    return " ".join(f"{count} {unit}" for count, unit in parts if count) or "less than a minute"
