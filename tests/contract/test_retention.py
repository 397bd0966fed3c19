"""What goes at night, and what never goes: whatever waits, and the running sessions."""

from __future__ import annotations

import logging
import os
from dataclasses import replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from gateway.channel import Poison
from gateway.errors import DeliveryError
from gateway.retention import Ages, Retention, is_due, surplus
from gateway.store import beats, history, journal, outbox, retention, tables, usage
from gateway.store.engine import Database
from gateway.store.inbox import Arrival, Inbox, get_fact
from gateway.store.retention import Session
from gateway.store.tables import entry, inbound, outbound, poison, verdict
from gateway.store.usage import Ledger
from gateway.store.verdicts import Dropped
from gateway.types import Address, Attachment, Chat, Media, Outgoing, Sender, Situation, Usage
from gateway.usage import day_of
from gateway.workspace import room
from tests.fakes.clock import FakeClock
from tests.fakes.scripted import ScriptedModel, call, calls, in_turn, situation
from tests.fakes.world import World, said

DAY = 86_400.0
HERE = Address("fake", "1")
BERLIN = ZoneInfo("Europe/Berlin")


@pytest.fixture
def night(db: Database, clock: FakeClock, tmp_path: Path) -> Retention:
    return Retention(db=db, clock=clock, zone=BERLIN, workspaces=[tmp_path])


@pytest.fixture
def one(db: Database, clock: FakeClock) -> World:
    return World(db=db, clock=clock, model=ScriptedModel(in_turn("fine")))


async def column(db: Database, wanted: sa.Column[Any]) -> list[Any]:
    query = sa.select(wanted).order_by(*wanted.table.primary_key)
    return await db.write(lambda tx: list(tx.execute(query).scalars()))


async def age(db: Database, days: float, *tables: sa.Table) -> None:
    """Make all rows older."""

    def work(tx: Connection) -> None:
        for table in tables:
            tx.execute(sa.update(table).values(at=table.c.at - days * DAY))

    await db.write(work)


async def test_what_was_answered_goes_but_the_last_of_each_chat(
    db: Database, one: World, night: Retention
) -> None:
    for text in ("a", "b", "c"):
        await one.say(text)
    await one.say("d", "2")
    await age(db, 8, inbound, outbound)
    gone = await night.run()
    assert (gone["inbound"], gone["outbound"]) == (2, 2)
    assert len(await column(db, entry.c.seq)) == 8, "the transcripts stay"
    assert await db.write(lambda tx: beats.owner_route(tx, [("fake", "7")], ["fake"])) is not None


async def test_what_is_younger_stays_so_that_repeats_are_known(
    db: Database, one: World, night: Retention
) -> None:
    again = said("a", key="once")
    await one.put(again, said("b"), said("c"))
    await one.settle()
    await age(db, 6.9, inbound, outbound)
    await night.run()
    await one.put(again)
    await one.settle()
    assert len(one.channel.texts) == 1


async def test_what_waits_never_goes(db: Database, one: World, night: Retention) -> None:
    await one.put(said("waits"), replace(said("beside", "2"), hold=5.0), said("later", "3"))
    await db.write(
        lambda tx: outbox.put(tx, [Outgoing(key=str(n), address=HERE, text="x") for n in range(3)], db.now())
    )
    await age(db, 400, inbound, outbound)
    await night.run()
    assert len(await column(db, inbound.c.id)) == 3
    assert len(await column(db, outbound.c.id)) == 3


async def test_the_messages_of_a_turn_that_waits_for_a_tool_stay(
    db: Database, one: World, night: Retention
) -> None:
    """Its end has to name what it answers."""
    one.model.answer = in_turn(calls(call("act")))
    one.worker.turns.draining = False

    async def dies(_call: object) -> str:
        one.worker.turns.draining = True
        return "done"

    one.tools.result = dies
    await one.put(said("first", key="k1"), said("second", key="k2"))
    await one.settle()
    await age(db, 30, inbound)
    await night.run()
    assert await column(db, inbound.c.key) == ["k1", "k2"]


async def test_commands_go_with_the_rest(db: Database, night: Retention) -> None:
    command = Arrival(said("/help"), lambda _tx, _which: "help")
    await Inbox(db).put([command])
    await age(db, 8, inbound)
    assert (await night.run())["inbound"] == 1


async def test_more_rows_than_one_transaction_takes_go_in_several(
    db: Database, one: World, night: Retention
) -> None:
    await one.say("first")
    many = retention.BATCH * 2 + 7

    def fill(tx: Connection) -> None:
        row = dict(tx.execute(sa.select(inbound)).mappings().one())
        del row["id"]
        rows = [row | {"key": f"old{n}", "turn": 0, "at": row["at"] - 9 * DAY} for n in range(many)]
        tx.execute(sa.insert(inbound), rows)
        tx.execute(sa.update(inbound).where(inbound.c.key.like("event%")).values(id=many * 10))

    await db.write(fill)
    assert (await night.run())["inbound"] == many
    assert len(await column(db, inbound.c.id)) == 1


async def test_the_way_to_a_chat_that_is_gone_stays_known(db: Database, one: World, night: Retention) -> None:
    await one.say("a")

    def fail(_message: Outgoing) -> None:
        raise DeliveryError("blocked")

    one.channel.fail = fail
    await one.say("b")
    await age(db, 8, inbound, outbound)
    await night.run()
    assert await column(db, outbound.c.state) == ["dead"]


async def test_group_talk_that_was_never_read_goes_with_its_files(
    db: Database, night: Retention, tmp_path: Path
) -> None:
    place = Address("fake", "-5")
    folder = room(tmp_path, Situation(place, place, Sender(""), Chat.GROUP))
    forwarded = "rooms/forwarded/media/2-0-dog.jpg"
    for path in (
        *(folder / "media" / "1-0-cat.jpg", tmp_path / forwarded),
        *(tmp_path / "media" / "9-0-own.jpg", tmp_path / "SOUL.md"),
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")
    pictures = tuple(
        Attachment(kind=Media.IMAGE, path=path)
        for path in ("media/1-0-cat.jpg", forwarded, "SOUL.md", "media/../SOUL.md")
    )
    beside = replace(said("look", "-5", group=True), attachments=pictures, aimed=False)
    await Inbox(db).put([Arrival(beside, wakes=False)])
    await age(db, 8, inbound)
    assert (await night.run())["beside"] == 1
    left = {path.name for path in tmp_path.rglob("*") if path.is_file()}
    assert left == {"9-0-own.jpg", "SOUL.md", *(name for name in left if name.startswith("crayfish.db"))}


async def test_files_of_what_was_read_stay(
    db: Database, one: World, night: Retention, tmp_path: Path
) -> None:
    (tmp_path / "media").mkdir()
    (tmp_path / "media" / "1-0-cat.jpg").write_text("x")
    picture = Attachment(kind=Media.IMAGE, path="media/1-0-cat.jpg")
    await one.put(replace(said("look"), attachments=(picture,)))
    await one.settle()
    await one.say("b")
    await age(db, 8, inbound)
    assert (await night.run())["inbound"] == 1
    assert (tmp_path / "media" / "1-0-cat.jpg").exists()


async def test_verdicts_and_what_could_not_be_read_go_after_a_month(db: Database, night: Retention) -> None:
    dropped = Dropped(said("let me in"), "gate", "no reason", "no.setting")
    await Inbox(db).put([dropped], bad=[Poison("k1", "fake", "{", "broken")])
    await age(db, 29, verdict, poison)
    await night.run()
    await age(db, 2, verdict, poison)
    await Inbox(db).put([dropped], bad=[Poison("k2", "fake", "{", "broken")])
    gone = await night.run()
    assert (gone["verdict"], gone["poison"]) == (1, 1)
    assert await column(db, poison.c.key) == ["k2"]


class TestUsage:
    async def spend(self, db: Database, clock: FakeClock, *days_ago: float) -> None:
        """Note a call on each of these days."""
        for days in days_ago:
            past = Ledger(clock=FakeClock(clock.time - days * DAY), zone=BERLIN)
            await db.write(partial(past.charge, situation=situation(), paid=Usage(5, 1), model="m"))

    async def test_sums_go_after_a_long_time_and_those_of_later_days_stay_as_they_were(
        self, db: Database, clock: FakeClock, night: Retention
    ) -> None:
        await self.spend(db, clock, 500, 367, 367, 363, 30, 0)
        since = day_of(clock.time - 364 * DAY, BERLIN)
        before = await db.write(lambda tx: usage.report(tx, "day", since))
        assert (await night.run())["usage"] == 2
        assert await db.write(lambda tx: usage.report(tx, "day", since)) == before
        assert len(await column(db, tables.usage.c.day)) == 3

    async def test_they_stay_for_ever_if_that_is_wished(
        self, db: Database, clock: FakeClock, night: Retention
    ) -> None:
        await self.spend(db, clock, 4000)
        night.ages = Ages(usage=0)
        await night.run()
        assert len(await column(db, tables.usage.c.day)) == 1


class TestTranscripts:
    async def three_sessions(self, one: World) -> None:
        for number in range(3):
            await one.say(f"question {number}")
            if number < 2:
                await one.db.write(lambda tx: journal.stop(tx, 1, one.db.now(), new_session=True))
                await age(one.db, 100, entry)

    async def test_ended_sessions_stay_for_ever_if_nothing_else_is_said(
        self, db: Database, one: World, night: Retention
    ) -> None:
        await self.three_sessions(one)
        await night.run()
        assert await column(db, entry.c.session) == [1, 1, 2, 2, 3, 3]

    async def test_ended_sessions_go_after_a_time_and_the_running_one_never(
        self, db: Database, one: World, night: Retention
    ) -> None:
        await self.three_sessions(one)
        night.ages = Ages(transcripts=150 * DAY)
        assert (await night.run())["entry"] == 2
        assert await column(db, entry.c.session) == [2, 2, 3, 3]
        await age(db, 1000, entry)
        await night.run()
        assert await column(db, entry.c.session) == [3, 3]
        await one.say("still here")
        assert len(one.model.prompts[-1].entries) == 3

    async def test_the_oldest_go_beyond_a_size(self, db: Database, one: World, night: Retention) -> None:
        await self.three_sessions(one)
        long = "x" * 700_000
        await db.write(
            lambda tx: tx.execute(sa.update(entry).where(entry.c.role == "user").values(body=long))
        )
        night.ages = Ages(megabytes=1)
        await night.run()
        assert await column(db, entry.c.session) == [2, 2, 3, 3]


def test_surplus_takes_the_oldest_first() -> None:
    found = [Session(1, number, 10, float(number)) for number in range(5)]
    assert surplus(found, None, None) == []
    assert surplus(found, 2.0, None) == found[:2]
    assert surplus(found, None, 30) == found[:2]
    assert surplus(found, 1.0, 45) == found[:1]
    assert surplus(found, None, 0) == found


async def test_full_results_go_after_a_week_in_every_room(
    night: Retention, tmp_path: Path, clock: FakeClock
) -> None:
    for folder in (tmp_path, tmp_path / "rooms" / "fake-5"):
        results = folder / ".crayfish" / "results"
        results.mkdir(parents=True)
        for name, days in (("old.txt", 8), ("new.txt", 6)):
            (results / name).write_text("x")
            os.utime(results / name, (clock.time - days * DAY,) * 2)
        (results / "a folder").mkdir()
    assert (await night.run())["results"] == 2
    assert {path.name for path in tmp_path.rglob("*.txt")} == {"new.txt"}


async def test_a_second_run_finds_nothing_and_is_not_worth_a_word(
    db: Database, one: World, night: Retention, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "gateway.retention")
    for text in ("a", "b", "c"):
        await one.say(text)
    await age(db, 8, inbound, outbound)
    await night.run()
    assert set((await night.run()).values()) == {0}
    done = [record.levelno for record in caplog.records if record.message == "retention.done"]
    assert done == [logging.INFO, logging.DEBUG]


async def test_pages_and_routes_work_on_what_is_left(db: Database, one: World, night: Retention) -> None:
    for text in ("a", "b"):
        await one.say(text)
    await age(db, 8, inbound, outbound)
    await night.run()
    assert len(await db.write(lambda tx: history.sessions(tx, "fake", 9))) == 1
    assert len(await db.write(lambda tx: history.messages(tx, HERE, 9, None))) == 4
    await one.say("c")
    assert one.channel.texts[-1] == "fine"


async def test_it_is_noted_when_it_was_done(db: Database, night: Retention, clock: FakeClock) -> None:
    await night.run()
    assert await db.write(lambda tx: get_fact(tx, "retention.at")) == str(clock.time)


@pytest.mark.parametrize(
    ("last", "now", "due"),
    [
        (None, "2026-06-02 12:00", True),
        ("2026-06-01 12:00", "2026-06-02 03:29", False),
        ("2026-06-01 12:00", "2026-06-02 03:30", True),
        ("2026-06-02 03:31", "2026-06-02 23:00", False),
        ("2026-05-20 03:31", "2026-06-02 12:00", True),
        ("2031-01-01 00:00", "2026-06-02 12:00", True),
    ],
    ids=[
        "never yet",
        "before the night",
        "at night",
        "done",
        "the machine was off",
        "noted by a wrong clock",
    ],
)
def test_it_is_due_once_a_night(last: str | None, now: str, due: bool) -> None:
    def at(text: str) -> float:
        return datetime.fromisoformat(text).replace(tzinfo=BERLIN).timestamp()

    assert is_due(None if last is None else at(last), at(now), BERLIN) is due
