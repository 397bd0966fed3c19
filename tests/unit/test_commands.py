"""Commands act at once, past the queue and without the model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
import sqlalchemy as sa
from hypothesis import given
from hypothesis import strategies as st

from gateway.commands import HELP, Commands, menu, whoami
from gateway.store.engine import Database
from gateway.store.inbox import Arrival, Inbox
from gateway.store.journal import Journal
from gateway.store.outbox import Outbox
from gateway.store.tables import outbound
from gateway.types import Address, AssistantEntry, Chat, Sender
from tests.fakes.clock import FakeClock
from tests.fakes.scripted import people
from tests.fakes.world import said


@pytest.fixture
def commands(db: Database, clock: FakeClock) -> Commands:
    channels: Mapping[str, str] = {"fake": "running", "other": "stopped (the token was revoked)"}
    return Commands(
        db=db, clock=clock, started=clock.time, model=lambda _asked: "scripted", channels=lambda: channels
    )


class Unused:
    """What reading a command has no need of."""


def reads(text: str, chat: Chat = Chat.DIRECT) -> str | None:
    """Return the kind of act that a text is read as."""
    pure = Commands(
        db=Unused(),  # type: ignore[arg-type]  # reading looks nothing up
        clock=FakeClock(),
        started=0,
        model=str,
        channels=dict,
    )
    arrival = pure.read(replace(said(text), chat=chat))
    if arrival is None:
        return None
    return "interrupting" if arrival.interrupts else "asking"


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("/help", "asking"),
        ("/start", "asking"),
        ("/start deep-link-payload", "asking"),
        ("/commands", "asking"),
        ("/whoami", "asking"),
        ("/id", "asking"),
        ("/status", "asking"),
        ("/stop", "interrupting"),
        ("/new", "interrupting"),
        ("/reset", "interrupting"),
        ("/STOP", "interrupting"),
        ("  /stop\n", "interrupting"),
        ("/stop@some_bot", "interrupting"),
        ("/stop@some_bot now", "interrupting"),
        ("/stop: it", "interrupting"),
        ("/stop please", "interrupting"),
        ("callback_data: stop", "interrupting"),
        ("callback_data: stop it", None),
        ("callback_data: /new", None),
        ("/stopping", None),
        ("/stop/it", None),
        ("stop", None),
        ("please /stop", None),
        ("/home/me/notes.txt", None),
        ("/unknown", None),
        ("//stop", None),
        ("/ stop", None),
        ("/", None),
        ("", None),
        ("/stop\u0000", None),
    ],
)
def test_a_command_is_told_from_a_message(text: str, kind: str | None) -> None:
    assert reads(text) == kind


@pytest.mark.parametrize("chat", Chat)
def test_a_menu_offers_what_works_in_its_kind_of_chat(chat: Chat) -> None:
    names = [name for name, description in menu(chat) if description]
    assert {"new", "stop", "status", "whoami", "help"} <= set(names)
    for name in names:
        assert f"/{name} – " in HELP
        assert reads(f"/{name}", chat) is not None


@given(st.text())
def test_whatever_a_person_writes_can_be_read(text: str) -> None:
    reads(text)


async def answer(db: Database, commands: Commands, text: str, chat: str = "1") -> str:
    """Hand over a command and return what comes back."""
    arrival = commands.read(said(text, chat))
    assert arrival is not None
    await Inbox(db).put([arrival])
    newest = sa.select(outbound.c.id).order_by(outbound.c.id.desc()).limit(1)
    number = await db.write(lambda tx: int(tx.execute(newest).scalar_one()))
    box = Outbox(db, "test")
    while True:
        (delivery, *_), _ = await box.take(1)
        if delivery.id == number:
            return delivery.message.text
        await box.dead(delivery, "not looked at")


async def test_help_names_every_command(db: Database, commands: Commands) -> None:
    text = await answer(db, commands, "/help")
    assert text == HELP
    for line in text.splitlines()[1:]:
        assert commands.read(said(line.partition(" ")[0])) is not None


async def test_stop_ends_what_runs_and_says_whether_there_was_anything(
    db: Database, commands: Commands
) -> None:
    journal = Journal(db, "one")
    assert await answer(db, commands, "/stop") == "Nothing is running."
    await Inbox(db).put([arrival for arrival in [commands.read(said("/help"))] if arrival])
    assert await answer(db, commands, "/stop", "2") == "Nothing is running."
    await say(db, "work", "3")
    await journal.claim(1)
    await say(db, "and more", "3")
    assert await answer(db, commands, "/stop", "3") == "Stopped."
    assert (await journal.claim(10))[0] == []


async def say(db: Database, text: str, chat: str = "1") -> None:
    await Inbox(db).put([Arrival(said(text, chat))])


async def test_a_new_session_forgets_what_was_said(db: Database, commands: Commands) -> None:
    journal = Journal(db, "one")
    await say(db, "remember this")
    (claim,), _ = await journal.claim(1)
    await journal.release(claim, [AssistantEntry("yes")])
    assert (await answer(db, commands, "/new")).startswith("A new session begins.")
    await say(db, "what did I say?")
    (claim,), _ = await journal.claim(1)
    assert people(claim.transcript) == ["what did I say?"]


async def test_status_tells_model_session_and_channels(
    db: Database, commands: Commands, clock: FakeClock
) -> None:
    await say(db, "one")
    clock.time += 2 * 86400 + 3 * 3600 + 4 * 60 + 5
    assert await answer(db, commands, "/status") == (
        "model: scripted\nsession: 1, 0 entries\nwaiting: 1\nup: 2 d 3 h 4 min\n"
        "fake: running\nother: stopped (the token was revoked)"
    )


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "less than a minute"),
        (59, "less than a minute"),
        (60, "1 min"),
        (3600, "1 h"),
        (86460, "1 d 1 min"),
    ],
)
async def test_status_tells_how_long_it_has_been_up(
    commands: Commands, db: Database, clock: FakeClock, seconds: float, text: str
) -> None:
    clock.time += seconds
    assert f"\nup: {text}\n" in await answer(db, commands, "/status")


def test_whoami_tells_what_an_allowlist_needs() -> None:
    mine = replace(said("/whoami"), sender=Sender("42", "Ann"), address=Address("fake", "7"))
    assert whoami(mine) == "You are 42 (Ann).\nThis is a private chat: fake, chat 7."
    group = replace(mine, sender=Sender("42"), address=Address("fake", "-7", "3"), chat=Chat.GROUP)
    assert whoami(group) == "You are 42.\nThis is a group: fake, chat -7, thread 3."


async def test_a_command_in_one_chat_leaves_the_others_alone(db: Database, commands: Commands) -> None:
    await say(db, "here", "1")
    await say(db, "there", "2")
    await answer(db, commands, "/stop", "1")
    claims, _ = await Journal(db, "one").claim(10)
    assert [claim.address.chat for claim in claims] == ["2"]


def test_menus_show_what_everybody_may_use_in_such_a_chat() -> None:
    for chat in Chat:
        names = [name for name, _ in menu(chat)]
        assert "help" in names
        assert "pairing" not in names
