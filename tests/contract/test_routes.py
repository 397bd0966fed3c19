"""The chats that share a person's session, in the tables."""

from __future__ import annotations

from dataclasses import replace

import pytest
import sqlalchemy as sa

from gateway.identities import Identities
from gateway.store import beats, chats, fates, inbox, routes
from gateway.store.engine import Database
from gateway.store.inbox import Arrival, Taken
from gateway.store.journal import Journal, has_answered
from gateway.store.tables import conversation
from gateway.types import Address, AssistantEntry, Kind, Outgoing, Stimulus
from tests.fakes.clock import FakeClock
from tests.fakes.world import said

PAIR = Identities.of({"ann": ("fake:7", "other:7")})
ANN = Address("person", "ann")
HERE, THERE = Address("fake", "1"), Address("other", "D1")


async def write(db: Database, text: str, where: Address = HERE, **more: object) -> None:
    message = PAIR.shared(replace(said(text), address=where, **more))  # type: ignore[arg-type] # fields of Stimulus
    await db.write(lambda tx: inbox.take_in(tx, Arrival(message), db.now(), Taken()))


async def answer(db: Database, text: str = "fine") -> Address:
    """End the turn that waits; return where its answer went."""
    journal = Journal(db, "test")
    (claim,), _ = await journal.claim(1)
    message = Outgoing(
        key=f"reply:{claim.conversation_id}:{claim.next_seq}:0", address=claim.place, text=text
    )
    await journal.release(claim, [AssistantEntry(text)], [message])
    return claim.place


async def test_each_chat_is_known_with_whom_it_belongs_to(db: Database, clock: FakeClock) -> None:
    await write(db, "one")
    clock.time += 10
    await write(db, "two", THERE)

    def look(tx: sa.Connection) -> tuple[object, ...]:
        return (
            routes.home(tx, HERE),
            routes.home(tx, THERE),
            routes.home(tx, Address("fake", "2")),
            routes.newest(tx, "ann"),
            routes.reached(tx, ANN),
            routes.reached(tx, HERE),
            routes.newest(tx, "bob"),
        )

    assert await db.read(look) == (ANN, ANN, Address("fake", "2"), THERE, THERE, HERE, None)


async def test_a_turn_takes_in_what_came_from_one_chat(db: Database, clock: FakeClock) -> None:
    for text, where in (("one", HERE), ("two", HERE), ("three", THERE), ("four", HERE)):
        await write(db, text, where)
    journal, seen = Journal(db, "test"), []
    for _ in range(3):
        (claim,), _ = await journal.claim(1)
        seen.append((claim.place, len(claim.keys)))
        await journal.release(claim, [AssistantEntry("fine")])
    assert seen == [(HERE, 2), (THERE, 1), (HERE, 1)]


async def test_what_the_bot_brings_to_a_chat_comes_to_its_session(db: Database, clock: FakeClock) -> None:
    await write(db, "one")
    await answer(db)
    await write(db, "two", THERE)
    await answer(db)
    news = Stimulus(
        key="news", address=HERE, sender=said("x").sender, text="done", at=1.0, kind=Kind.SUBAGENT
    )
    await db.write(lambda tx: inbox.take_in(tx, Arrival(news), db.now(), Taken()))
    assert await answer(db) == HERE, "and its answer to the chat that it was for"
    found = await db.read(lambda tx: list(tx.execute(sa.select(conversation.c.address)).scalars()))
    assert found == [ANN.key]


async def test_what_comes_to_the_session_itself_is_answered_where_the_person_was_last(
    db: Database, clock: FakeClock
) -> None:
    await write(db, "one")
    await answer(db)
    clock.time += 10
    await write(db, "two", THERE)
    await answer(db)
    news = Stimulus(key="news", address=ANN, sender=said("x").sender, text="do", at=1.0, kind=Kind.SUBAGENT)
    await db.write(lambda tx: inbox.take_in(tx, Arrival(news), db.now(), Taken()))
    assert await answer(db) == THERE


async def test_heartbeats_find_the_owner_in_a_shared_session(db: Database, clock: FakeClock) -> None:
    await write(db, "one")
    await answer(db)
    clock.time += 10
    await write(db, "two", THERE)
    route = await db.read(lambda tx: beats.owner_route(tx, [("fake", "7")], ["fake", "other"]))
    assert route is not None
    assert (route.address, route.busy, route.dead) == (HERE, True, False)
    last = await db.read(lambda tx: beats.last_route(tx, ["fake", "other"]))
    assert last is not None
    assert last.address == THERE
    named = await db.read(lambda tx: beats.named_route(tx, HERE, ["fake"]))
    assert named is not None
    assert named.last == route.last


async def test_chats_of_a_shared_session_are_among_those_of_their_channel(
    db: Database, clock: FakeClock
) -> None:
    await write(db, "somebody else", Address("fake", "8"), sender=replace(said("x").sender, id="8"))
    clock.time += 10
    await write(db, "one", replace(HERE, thread="t1"))
    found = await db.read(lambda tx: chats.recent(tx, "fake"))
    assert found == [Address("fake", "1", "t1"), Address("fake", "8")]
    assert await db.read(lambda tx: has_answered(tx, Address("fake", "1", "t1")))
    assert await db.read(lambda tx: chats.chat_of(tx, Address("fake", "1", "t1"))) == "direct"


@pytest.mark.parametrize(("chat", "text"), [("fake:1", "one"), ("other:D1", "two"), ("D1", "two")])
async def test_why_finds_a_message_by_the_chat_it_came_from(
    db: Database, clock: FakeClock, chat: str, text: str
) -> None:
    await write(db, "one", message_id="1")
    await answer(db)
    await write(db, "two", THERE, message_id="2")
    await answer(db)
    fate = await db.read(lambda tx: fates.newest(tx, chat, "", db.now()))
    assert isinstance(fate, fates.Fate)
    assert fate.message_id == {"one": "1", "two": "2"}[text]
    assert fate.address == (HERE if text == "one" else THERE)
    assert fate.answered


async def test_links_that_are_gone_are_forgotten(db: Database, clock: FakeClock) -> None:
    await write(db, "one")
    await write(db, "two", THERE)
    assert await db.write(lambda tx: routes.keep(tx, PAIR.people)) == 0
    assert await db.write(lambda tx: routes.keep(tx, {"fake:7": "ann", "other:7": "bob"})) == 1
    assert await db.read(lambda tx: routes.home(tx, THERE)) == THERE
    assert await db.read(lambda tx: routes.home(tx, HERE)) == ANN
