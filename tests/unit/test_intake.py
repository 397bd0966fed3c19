"""The door lets in whom it should, once, as text that everything behind it takes."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest
import sqlalchemy as sa
from hypothesis import given
from hypothesis import strategies as st

from gateway.access import EVERYBODY, Policy
from gateway.bell import Bell
from gateway.channel import Cursor, Poison
from gateway.commands import Commands
from gateway.errors import StoreError
from gateway.intake import MAX_CHARS, Intake, clean
from gateway.store.engine import Database
from gateway.store.inbox import Inbox
from gateway.store.journal import Journal
from gateway.store.members import VALID
from gateway.store.outbox import Outbox
from gateway.store.tables import outbound
from gateway.types import Address, OnUnknown, Outgoing, Sender
from tests.fakes.clock import FakeClock
from tests.fakes.scripted import people
from tests.fakes.world import said

PAIRING = Policy(mode="pairing", allow_from=("7",))
CLOSED = Policy(mode="allowlist", allow_from=("7",))


class Door:
    """An intake, and what it rang and interrupted."""

    def __init__(self, db: Database, clock: FakeClock, policy: Policy) -> None:
        self.db = db
        self.interrupted: list[int] = []
        self.intake = Intake(
            inbox=Inbox(db),
            policies={"fake": policy},
            commands=Commands(db=db, clock=clock, started=0, model=str, channels=dict),
            bell=Bell(),
            outbox_bell=Bell(),
            media_bell=Bell(),
            interrupt=self.interrupted.append,
        )

    async def texts(self) -> list[str]:
        """Return what waits for an answer."""
        claims, _ = await Journal(self.db, "test").claim(10)
        return [text for claim in claims for text in people(claim.transcript)]

    async def replies(self) -> list[str]:
        return [one.text for one in await self.outgoing()]

    async def outgoing(self) -> list[Outgoing]:
        found, _ = await Outbox(self.db, "test").take(10)
        return [one.message for one in found]


@pytest.fixture
def door(db: Database, clock: FakeClock) -> Door:
    return Door(db, clock, EVERYBODY)


def rung(bell: Bell) -> bool:
    """Return whether somebody would wake up."""
    return bell._event.is_set()


async def test_a_message_is_stored_and_the_worker_woken(door: Door) -> None:
    await door.intake.accept([said("hi")])
    assert rung(door.intake.bell)
    assert not rung(door.intake.outbox_bell)
    assert await door.texts() == ["hi"]


async def test_handing_over_again_changes_nothing(door: Door) -> None:
    message = said("hi")
    for _ in range(3):
        await door.intake.accept([message], cursor=Cursor("bot", "7"))
    assert await door.texts() == ["hi"]
    assert await door.intake.inbox.cursor("bot") == "7"


async def test_a_command_acts_at_once_wakes_the_sender_and_never_reaches_a_turn(door: Door) -> None:
    await door.intake.accept([said("work")])
    await door.intake.accept([said("/stop")])
    assert rung(door.intake.outbox_bell)
    assert len(door.interrupted) == 1
    assert await door.texts() == []
    assert await door.replies() == ["Stopped."]


async def test_a_command_and_messages_of_one_batch_keep_their_order(door: Door) -> None:
    await door.intake.accept([said("before"), said("/stop"), said("after")])
    assert await door.texts() == ["after"]


async def test_what_is_unreadable_is_kept_logged_and_holds_up_nothing(
    door: Door, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR):
        await door.intake.accept(
            [said("hi")], cursor=Cursor("bot", "8"), poison=[Poison("p", "fake", "{", "no JSON")]
        )
    assert [record.message for record in caplog.records] == ["message.unreadable"]
    assert await door.intake.inbox.cursor("bot") == "8"
    assert await door.texts() == ["hi"]


class TestStrangers:
    async def test_one_is_told_how_to_be_let_in_once_an_hour(self, db: Database, clock: FakeClock) -> None:
        door = Door(db, clock, PAIRING)
        for hour in range(2):
            for _ in range(3):
                await door.intake.accept([replace(said("hi"), sender=Sender("666"))])
            sent = await db.write(
                lambda tx: tx.execute(sa.select(outbound.c.body, outbound.c.on_unknown)).all()
            )
            assert len(sent) == hour + 1
            clock.time += VALID
        assert all("666" in body and on_unknown == OnUnknown.DROP for body, on_unknown in sent)
        assert await door.texts() == []
        assert rung(door.intake.outbox_bell)

    async def test_one_hears_nothing_from_a_closed_door(self, db: Database, clock: FakeClock) -> None:
        door = Door(db, clock, CLOSED)
        await door.intake.accept([replace(said("hi"), sender=Sender("666"))], cursor=Cursor("bot", "9"))
        assert (await door.texts(), await door.replies()) == ([], [])
        assert await door.intake.inbox.cursor("bot") == "9", "it is not asked for again"

    async def test_ones_message_is_logged_with_the_setting_that_would_let_it_in(
        self, db: Database, clock: FakeClock, caplog: pytest.LogCaptureFixture
    ) -> None:
        door = Door(db, clock, replace(CLOSED, section="channels.fake"))
        with caplog.at_level(logging.INFO):
            await door.intake.accept([replace(said("my secret"), sender=Sender("666"))])
        (record,) = [one for one in caplog.records if one.message == "message.dropped"]
        assert vars(record)["gate"] == "person"
        assert vars(record)["setting"] == "channels.fake.allow_from"
        assert "my secret" not in str(vars(record))

    async def test_ones_press_of_a_button_is_told_that_it_counts_for_nothing(
        self, db: Database, clock: FakeClock
    ) -> None:
        """Case access-013: whoever pressed waits for a word; nobody else hears it."""
        door = Door(db, clock, CLOSED)
        press = replace(said("callback_data: stop"), sender=Sender("666"), gesture=True)
        await door.intake.accept([said("work"), press, replace(press, key="second", whisper="screen")])
        (told,) = await door.outgoing()
        assert (told.text, told.whisper) == ("Only people whom my owner let in may do that here.", "screen")
        assert told.on_unknown is OnUnknown.DROP
        assert door.interrupted == []

    async def test_ones_commands_do_nothing(self, db: Database, clock: FakeClock) -> None:
        door = Door(db, clock, CLOSED)
        await door.intake.accept([said("work")])
        await door.intake.accept([replace(said("/stop"), sender=Sender("666"))])
        assert door.interrupted == []
        assert await door.texts() == ["work"]

    async def test_beside_one_the_others_are_let_in(self, db: Database, clock: FakeClock) -> None:
        door = Door(db, clock, CLOSED)
        await door.intake.accept(
            [
                replace(said("bad"), sender=Sender("666")),
                said("good"),
                replace(said("bad"), sender=Sender("")),
            ]
        )
        assert await door.texts() == ["good"]

    async def test_no_row_is_kept_of_one(self, db: Database, clock: FakeClock) -> None:
        door = Door(db, clock, CLOSED)
        await door.intake.accept([replace(said("hi", str(chat)), sender=Sender("666")) for chat in range(50)])
        stop = await Journal(db, "test").stop(Address("fake", "1"))
        assert stop == (None, False)


async def test_when_nothing_can_be_stored_the_channel_hears_of_it_and_nobody_is_woken(
    db: Database, clock: FakeClock
) -> None:
    class Full:
        exclusive = True
        failing = False

        def now(self) -> float:
            return clock.now()

        async def write(self, work: object, *, durable: bool = True) -> object:
            raise StoreError("full")

    door = Door(Full(), clock, EVERYBODY)  # type: ignore[arg-type]  # only what a full disk would do
    with pytest.raises(StoreError):
        await door.intake.accept([said("/stop")])
    assert door.interrupted == []
    assert not rung(door.intake.bell)


class TestClean:
    def test_ordinary_text_stays_as_it_is(self) -> None:
        for text in ("hi", "", "  two  blanks\n\tand a tab", "שלום مرحبا", "👩‍👩‍👧 😀", "a" * MAX_CHARS):
            assert clean(text) == text

    def test_size_001_a_text_without_end_is_cut_with_a_note(self) -> None:
        text = clean("x" * 1_000_000)
        assert text.startswith("x" * MAX_CHARS + "\n[")
        assert "1000000 characters" in text
        assert len(text) < MAX_CHARS + 200

    @pytest.mark.parametrize("text", ["a\0b", "a\ud800b"], ids=["text-010 NUL", "text-009 lone surrogate"])
    def test_what_no_database_takes_is_taken_out(self, text: str) -> None:
        found = clean(text)
        found.encode()
        assert "\0" not in found
        assert found[0] == "a"
        assert found[-1] == "b"

    @given(st.text(st.characters()))
    def test_any_text_becomes_one_that_can_be_stored_and_is_stable(self, text: str) -> None:
        once = clean(text)
        once.encode()
        assert clean(once) == once
