"""Sessions that begin afresh by themselves, on the real tables."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest
import sqlalchemy as sa

from gateway.compaction import Limits
from gateway.sessions import Freshness
from gateway.store.engine import Database
from gateway.store.inbox import Arrival
from gateway.store.tables import conversation, entry
from gateway.types import Kind, ToolCall
from tests.fakes.clock import FakeClock
from tests.fakes.scripted import ScriptedModel, call, calls, in_turn, people
from tests.fakes.world import World, said

ZONE = ZoneInfo("Europe/Berlin")
DAILY = Freshness(mode="daily", zone=ZONE)
HEADINGS = "Goal, State and decisions, Open requests, Facts and identifiers, Files and commands, Next steps"
SUMMARY = "\n".join(f"## {heading}" for heading in HEADINGS.split(", "))


def world(db: Database, clock: FakeClock, **more: object) -> World:
    return World(db=db, clock=clock, model=ScriptedModel(in_turn("fine")), fresh=DAILY, **more)  # type: ignore[arg-type] # the World's own fields


async def say(one: World, text: str, when: str, **more: Any) -> list[str]:
    """Say it at that local time; return what people said in the prompt that answered it."""
    at = datetime.fromisoformat(when).replace(tzinfo=ZONE).timestamp()
    await one.put(replace(said(text), at=at, **more))
    await one.settle()
    return people(one.model.prompts[-1].entries)


async def test_the_message_that_ends_a_session_begins_the_next(db: Database, clock: FakeClock) -> None:
    one = world(db, clock)
    await say(one, "good night", "2026-06-01 23:00")
    await say(one, "still up", "2026-06-02 02:00")
    assert await say(one, "good morning", "2026-06-02 08:00") == ["good morning"]
    assert await say(one, "coffee", "2026-06-02 08:05") == ["good morning", "coffee"]
    query = sa.select(entry.c.session).where(entry.c.role == "user").order_by(entry.c.seq)
    sessions = await db.write(lambda tx: list(tx.execute(query).scalars()))
    assert sessions == [1, 1, 2, 2], "nothing is deleted"


async def test_what_the_bot_does_by_itself_neither_ends_a_session_nor_keeps_it_alive(
    db: Database, clock: FakeClock
) -> None:
    one = world(db, clock)
    await say(one, "good night", "2026-06-01 23:00")
    seen = await say(one, "the plants", "2026-06-02 06:00", kind=Kind.CRON)
    assert seen == ["good night", "the plants"]
    assert await say(one, "good morning", "2026-06-02 08:00") == ["good morning"]


async def test_talk_beside_the_bot_comes_with_the_message_that_wakes_it(
    db: Database, clock: FakeClock
) -> None:
    one = world(db, clock)
    await say(one, "good night", "2026-06-01 23:00")
    beside = replace(said("nice weather"), aimed=False)
    await one.inbox.put([Arrival(beside, wakes=False)])
    assert await say(one, "good morning", "2026-06-02 08:00") == ["nice weather", "good morning"]


async def test_messages_that_were_fetched_late_count_by_when_they_were_sent(
    db: Database, clock: FakeClock
) -> None:
    """An outage at four in the morning ends no session."""
    one = world(db, clock)
    await say(one, "good night", "2026-06-01 23:00")
    clock.time += 86_400
    assert await say(one, "one more thing", "2026-06-02 00:30") == ["good night", "one more thing"]


async def test_a_running_turn_is_not_cut_off_by_the_clock(db: Database, clock: FakeClock) -> None:
    one = world(db, clock)
    one.model.answer = in_turn(calls(call("look")), "fine")
    later = replace(said("and this"), at=datetime(2026, 6, 2, 8, tzinfo=ZONE).timestamp())

    async def meanwhile(_call: ToolCall) -> str:
        await one.put(later)
        return "seen"

    one.tools.result = meanwhile
    assert await say(one, "look", "2026-06-02 03:59") == ["look", "and this"]


async def test_a_person_s_last_message_counts_although_a_summary_stands_for_it(
    db: Database, clock: FakeClock
) -> None:
    limits = Limits(max_messages=4, keep_messages=1)
    one = world(db, clock, limits=limits, summariser=ScriptedModel(in_turn(SUMMARY)))
    await say(one, "good night", "2026-06-01 23:00")
    for hour in range(1, 7):
        await say(one, f"check {hour}", f"2026-06-02 0{hour}:00", kind=Kind.CRON)
    assert "good night" not in people(one.model.prompts[-1].entries), "it was summed up"
    assert await say(one, "good morning", "2026-06-02 08:00") == ["good morning"]
    assert await db.write(lambda tx: tx.execute(sa.select(conversation.c.session)).scalar_one()) == 2


async def test_a_clock_of_ours_that_jumps_ends_no_session_and_stops_no_turn(
    db: Database, clock: FakeClock
) -> None:
    one = world(db, clock)
    await say(one, "good night", "2026-06-01 23:00")
    clock.time += 400 * 86_400
    assert await say(one, "still up", "2026-06-02 03:00") == ["good night", "still up"]
    clock.time -= 800 * 86_400
    assert await say(one, "and now?", "2026-06-02 03:59") == ["good night", "still up", "and now?"]
    assert await say(one, "good morning", "2026-06-02 04:00") == ["good morning"]


@pytest.mark.parametrize(
    ("times", "sessions"),
    [
        (["2026-10-24T23:00+02:00", "2026-10-25T02:20+02:00", "2026-10-25T02:40+02:00", "2026-10-25T02:20+01:00", "2026-10-25T02:40+01:00"], [1, 1, 2, 2, 2]),
        (["2026-03-28T23:00+01:00", "2026-03-29T01:59+01:00", "2026-03-29T03:31+02:00", "2026-03-29T12:00+02:00"], [1, 1, 2, 2]),
    ],
    ids=["half past two comes twice", "half past two is left out"],
)  # fmt: skip
async def test_a_night_with_a_change_of_the_clock_ends_one_session(
    db: Database, clock: FakeClock, times: list[str], sessions: list[int]
) -> None:
    night = Freshness(mode="daily", at="02:30", zone=ZONE)
    one = World(db=db, clock=clock, model=ScriptedModel(in_turn("fine")), fresh=night)
    for when in times:
        await one.put(replace(said(when), at=datetime.fromisoformat(when).timestamp()))
        await one.settle()
    query = sa.select(entry.c.session).where(entry.c.role == "user").order_by(entry.c.seq)
    assert await db.write(lambda tx: list(tx.execute(query).scalars())) == sessions
    assert len(one.channel.texts) == len(times)
