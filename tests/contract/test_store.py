"""What both databases promise: each stimulus once, one writer for each conversation, no reply lost."""

from __future__ import annotations

import asyncio
import functools
import shutil
import tempfile
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias

import pytest
import sqlalchemy as sa
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from sqlalchemy.engine import Connection

from gateway.channel import Cursor, Poison
from gateway.errors import LeaseLost
from gateway.store import history, journal, outbox
from gateway.store.engine import Database, open_database
from gateway.store.inbox import Arrival, Inbox, get_fact, set_fact
from gateway.store.journal import MERGED, STOPPED, Claim, Journal, Transcripts
from gateway.store.leases import Leases
from gateway.store.migrate import create
from gateway.store.outbox import MAX_AGE, Outbox
from gateway.store.tables import conversation, entry, inbound, meta, outbound, poison
from gateway.store.verdicts import Dropped
from gateway.types import (
    Address,
    AssistantEntry,
    Entry,
    Kind,
    OnUnknown,
    Outgoing,
    Receipt,
    Sender,
    Stimulus,
    ToolCall,
    ToolEntry,
    UserEntry,
)
from tests.fakes.clock import FakeClock
from tests.fakes.scripted import people
from tests.fakes.world import said

FINAL = AssistantEntry("done")
CALLS = AssistantEntry("", (ToolCall("c1", "act"),))
RESULT = ToolEntry("c1", "act", "acted")

Rows: TypeAlias = dict[str, list[tuple[Any, ...]]]


async def everything(db: Database) -> Rows:
    """Return all rows of all tables, to see that nothing has changed."""

    def work(tx: Connection) -> Rows:
        return {
            table.name: sorted((tuple(row) for row in tx.execute(sa.select(table))), key=repr)
            for table in meta.sorted_tables
        }

    return await db.write(work)


async def column(db: Database, wanted: sa.Column[Any]) -> list[Any]:
    """Return one column in the order of the table's key."""

    def work(tx: Connection) -> list[Any]:
        return list(tx.execute(sa.select(wanted).order_by(*wanted.table.primary_key)).scalars())

    return await db.write(work)


async def put(db: Database, *stimuli: Stimulus) -> int:
    return (await Inbox(db).put([Arrival(one) for one in stimuli])).new


async def the_claim(journal_: Journal) -> Claim:
    """Claim the only conversation that is ready."""
    (claim,), _ = await journal_.claim(10)
    return claim


def texts(claim: Claim) -> list[str]:
    return people(claim.transcript)


def refused(text: str, *, key: str = "") -> Dropped:
    """A message that was not let in, whose sender is told so."""
    return Dropped(said("let me in"), "gate", "no reason", "no.setting", reply(text, key=key))


def beat(text: str, kind: Kind = Kind.HEARTBEAT) -> Stimulus:
    return said(text, kind=kind)


@pytest.fixture
def one(db: Database) -> Journal:
    return Journal(db, "one")


@pytest.fixture
def other(db: Database) -> Journal:
    return Journal(db, "other")


class TestInbox:
    @pytest.mark.parametrize(
        "again",
        [
            said("hi", key="same"),
            replace(said("hi"), message_key="message"),
            replace(said("hi", key="same"), message_key="message"),
        ],
        ids=["key", "message key", "both"],
    )
    async def test_a_stimulus_is_taken_once_whatever_is_repeated(
        self, db: Database, one: Journal, again: Stimulus
    ) -> None:
        first = replace(said("hi", key="same"), message_key="message")
        assert await put(db, first) == 1
        assert await put(db, again) == 0
        assert await put(db, again, said("there"), again) == 1
        assert texts(await the_claim(one)) == ["hi", "there"]

    async def test_messages_without_a_message_key_are_different_ones(self, db: Database) -> None:
        assert await put(db, said("a"), said("b")) == 2

    async def test_two_processes_that_hand_over_the_same_stimulus_take_it_once(self, db: Database) -> None:
        taken = await asyncio.gather(*(put(db, said("hi", key="same")) for _ in range(8)))
        assert sum(taken) == 1
        assert await column(db, inbound.c.key) == ["same"]

    async def test_a_command_acts_and_answers_once_and_wakes_nobody(self, db: Database, one: Journal) -> None:
        def act(tx: Connection, which: int) -> str:
            set_fact(tx, f"acted:{which}", str(int(get_fact(tx, f"acted:{which}") or 0) + 1))
            return "pong"

        ping = Arrival(said("/ping", key="ping"), act, interrupts=True)
        first, again = await Inbox(db).put([ping]), await Inbox(db).put([ping])
        assert (first.new, len(first.interrupted)) == (1, 1)
        assert (again.new, again.interrupted) == (0, [])
        assert await column(db, outbound.c.key) == ["command:ping"]
        assert await db.write(functools.partial(get_fact, name=f"acted:{first.interrupted[0]}")) == "1"
        assert await one.claim(10) == ([], None)

    async def test_a_command_without_an_answer_sends_nothing(self, db: Database) -> None:
        await Inbox(db).put([Arrival(said("/quiet"), lambda _tx, _which: "")])
        assert await column(db, outbound.c.key) == []

    async def test_a_batch_and_its_cursor_are_stored_together(self, db: Database, one: Journal) -> None:
        inbox = Inbox(db)
        assert await inbox.cursor("bot") is None
        await inbox.put([Arrival(said("a")), Arrival(said("b"))], cursor=Cursor("bot", "7"))
        await inbox.put([], cursor=Cursor("bot", "8"))
        assert await inbox.cursor("bot") == "8"
        assert await inbox.cursor("other bot") is None
        assert texts(await the_claim(one)) == ["a", "b"]

    async def test_nothing_of_a_batch_is_stored_when_a_part_fails(self, db: Database) -> None:
        def fail(_tx: Connection, _which: int) -> str:
            raise RuntimeError("a command with a bug")

        before = await everything(db)
        with pytest.raises(RuntimeError, match="a command with a bug"):
            await Inbox(db).put(
                [refused("no"), Arrival(said("a")), Arrival(said("b", "2"), fail), Arrival(said("c"))],
                cursor=Cursor("bot", "7"),
                bad=[Poison("p", "fake", "{", "no JSON")],
            )
        assert await everything(db) == before

    async def test_what_could_not_be_read_is_kept_once(self, db: Database) -> None:
        for problem in ("first", "second"):
            await Inbox(db).put([], bad=[Poison("p", "fake", "{", problem)])
        assert await column(db, poison.c.problem) == ["first"]

    async def test_a_refusal_is_sent_once_for_each_key(self, db: Database) -> None:
        for _ in range(2):
            await Inbox(db).put([refused("no", key="refusal:1")])
        assert await column(db, outbound.c.key) == ["refusal:1"]


class TestClaim:
    async def test_who_waits_for_longest_comes_first(
        self, db: Database, one: Journal, clock: FakeClock
    ) -> None:
        for chat in ("3", "1", "2"):
            await put(db, said("hi", chat))
            clock.time += 1
        await put(db, said("more", "3"))
        claims, _ = await one.claim(2)
        assert {claim.address.chat for claim in claims} == {"3", "1"}

    async def test_a_held_conversation_is_nobody_elses_until_the_lease_ends(
        self, db: Database, one: Journal, other: Journal, clock: FakeClock
    ) -> None:
        await put(db, said("hi"))
        held = await the_claim(one)
        nothing, look_at = await other.claim(10)
        assert nothing == []
        assert look_at == pytest.approx(db.now() + one.lease)
        clock.time += one.lease + 1
        mine = [held.conversation_id]
        assert (await one.claim(10, mine))[0] == [], "it is running here, whatever the clock says"
        taken = await the_claim(other)
        assert taken.epoch == held.epoch + 1
        assert taken.transcript == held.transcript

    async def test_a_claim_whose_answer_was_lost_is_found_again_when_the_lease_ends(
        self, db: Database, one: Journal, clock: FakeClock
    ) -> None:
        await put(db, said("hi"))
        await the_claim(one)
        assert (await one.claim(10))[0] == []
        clock.time += one.lease + 1
        assert texts(await the_claim(one)) == ["hi"]

    async def test_a_renewed_lease_goes_on_and_a_lost_one_is_told(
        self, db: Database, one: Journal, other: Journal, clock: FakeClock
    ) -> None:
        await put(db, said("hi"), said("hi", "2"))
        claims, _ = await one.claim(10)
        clock.time += one.lease - 1
        assert await one.renew(claims) == []
        clock.time += one.lease - 1
        assert (await other.claim(10))[0] == []
        clock.time += 2
        (taken,), _ = await other.claim(1)
        assert [lost.conversation_id for lost in await one.renew(claims)] == [taken.conversation_id]

    async def test_claims_of_two_processes_never_overlap(
        self, db: Database, one: Journal, other: Journal
    ) -> None:
        await put(db, *(said("hi", str(chat)) for chat in range(30)))
        parts = await asyncio.gather(*(journal_.claim(4) for _ in range(4) for journal_ in (one, other)))
        found = [claim.conversation_id for claims, _ in parts for claim in claims]
        while more := (await one.claim(4))[0]:
            found += [claim.conversation_id for claim in more]
        assert len(found) == len(set(found)) == 30

    async def test_a_starting_process_frees_what_its_dead_one_held_if_nobody_else_can_hold_it(
        self, db: Database, one: Journal, other: Journal
    ) -> None:
        await put(db, said("hi"))
        await the_claim(one)
        await other.recover()
        assert len((await other.claim(10))[0]) == int(db.exclusive)


TakeAway: TypeAlias = Callable[[Database, Claim, FakeClock], Awaitable[None]]
Write: TypeAlias = Callable[[Journal, Claim], Awaitable[Any]]


async def by_stop(db: Database, claim: Claim, _clock: FakeClock) -> None:
    await Journal(db, "any").stop(claim.address)


async def by_new(db: Database, claim: Claim, _clock: FakeClock) -> None:
    await db.write(lambda tx: journal.stop(tx, claim.conversation_id, db.now(), new_session=True))


async def by_another_claim(db: Database, _claim: Claim, clock: FakeClock) -> None:
    clock.time += 61
    await the_claim(Journal(db, "thief"))


class TestFence:
    @pytest.mark.parametrize(
        "take_away", [by_stop, by_new, by_another_claim], ids=lambda one: one.__name__[3:]
    )
    @pytest.mark.parametrize(
        "write",
        [
            lambda one, claim: one.append(claim, [CALLS]),
            lambda one, claim: one.absorb(claim),
            lambda one, claim: one.start(claim, "c1"),
            lambda one, claim: one.release(claim),
            lambda one, claim: one.release(claim, retry_after=0),
            lambda one, claim: one.release(claim, [FINAL], [reply("done")]),
        ],
        ids=["append", "absorb", "start", "let go", "retry later", "finish"],
    )
    async def test_a_write_under_an_old_epoch_is_refused_and_changes_nothing(
        self, db: Database, one: Journal, clock: FakeClock, take_away: TakeAway, write: Write
    ) -> None:
        await put(db, said("hi"))
        claim = await the_claim(one)
        await take_away(db, claim, clock)
        await put(db, said("more"))
        before = await everything(db)
        with pytest.raises(LeaseLost):
            await write(one, claim)
        assert await everything(db) == before

    async def test_the_new_owner_is_not_disturbed_by_the_old_one(
        self, db: Database, one: Journal, other: Journal, clock: FakeClock
    ) -> None:
        await put(db, said("hi"))
        old = await the_claim(one)
        clock.time += one.lease + 1
        new = await the_claim(other)
        with pytest.raises(LeaseLost):
            await one.release(old, [AssistantEntry("old")], [reply("old")])
        await other.release(new, [AssistantEntry("new")], [reply("new")])
        assert await column(db, outbound.c.body) == ['{"text":"new"}']


class TestAbsorb:
    async def test_waiting_messages_are_merged_in_their_order(self, db: Database, one: Journal) -> None:
        await put(db, said("a"), said("b"))
        await put(db, said("c"))
        claim = await the_claim(one)
        assert texts(claim) == ["a", "b", "c"]
        assert len(claim.keys) == 3

    async def test_a_message_that_arrives_meanwhile_joins_the_running_turn(
        self, db: Database, one: Journal
    ) -> None:
        await put(db, said("a", key="a"))
        claim = await the_claim(one)
        claim = await one.append(claim, [CALLS, RESULT])
        await put(db, said("b", key="b"))
        joined = await one.absorb(claim)
        assert joined.transcript == (*claim.transcript, joined.transcript[-1])
        assert texts(joined) == ["a", "b"]
        assert (joined.keys, joined.turn) == (("a", "b"), claim.turn)

    async def test_at_most_twenty_join_at_once_and_none_is_lost(self, db: Database, one: Journal) -> None:
        await put(db, *(said(str(number)) for number in range(2 * MERGED + 5)))
        claim = await the_claim(one)
        assert texts(claim) == [str(number) for number in range(MERGED)]
        await one.release(claim, [FINAL])
        claim = await the_claim(one)
        assert texts(claim)[MERGED:] == [str(number) for number in range(MERGED, 2 * MERGED)]
        claim = await one.absorb(claim)
        await one.release(claim, [FINAL])
        assert texts(claim) == [str(number) for number in range(2 * MERGED + 5)]
        assert await one.claim(10) == ([], None)

    @pytest.mark.parametrize("kind", [Kind.HEARTBEAT, Kind.CRON])
    async def test_what_is_no_message_has_a_turn_of_its_own_and_nothing_overtakes_it(
        self, db: Database, one: Journal, kind: Kind
    ) -> None:
        await put(db, said("a"), said("b"), beat("x", kind), beat("y", kind), said("c"))
        turns: list[list[str]] = []
        for _ in range(4):
            claim = await the_claim(one)
            claim = await one.append(await one.absorb(claim), [CALLS, RESULT])
            claim = await one.absorb(claim)
            turns.append(texts(claim))
            await one.release(claim, [FINAL])
        assert turns == [["a", "b"], ["a", "b", "x"], ["a", "b", "x", "y"], ["a", "b", "x", "y", "c"]]
        assert await one.claim(10) == ([], None)

    async def test_nothing_comes_between_a_call_and_its_result(
        self, db: Database, one: Journal, other: Journal, clock: FakeClock
    ) -> None:
        await put(db, said("a"))
        claim = await the_claim(one)
        claim = await one.append(claim, [CALLS])
        await put(db, said("b"))
        clock.time += one.lease + 1
        taken = await the_claim(other)
        assert taken.transcript == claim.transcript
        taken = await other.append(taken, [RESULT])
        assert texts(await other.absorb(taken)) == ["a", "b"]


class TestTurn:
    async def test_a_message_put_between_the_last_look_and_the_release_is_not_forgotten(
        self, db: Database, one: Journal
    ) -> None:
        await put(db, said("a"))
        claim = await one.absorb(await the_claim(one))
        await put(db, said("b"))
        await one.release(claim, [FINAL])
        assert texts(await the_claim(one)) == ["a", "b"]

    async def test_messages_and_releases_at_the_same_time_forget_nothing(
        self, db: Database, one: Journal
    ) -> None:
        seen: list[str] = []

        async def work() -> None:
            while len(seen) < 30:
                claims, _ = await one.claim(1)
                for claim in claims:
                    seen[:] = texts(claim)
                    await one.release(claim, [FINAL])

        async def write() -> None:
            for number in range(30):
                await put(db, said(str(number)))

        await asyncio.gather(work(), write())
        assert seen == [str(number) for number in range(30)]

    async def test_failures_are_counted_and_progress_resets_the_count(
        self, db: Database, one: Journal, other: Journal, clock: FakeClock
    ) -> None:
        await put(db, said("a"))
        for attempt in (1, 2, 3):
            claim = await the_claim(one)
            assert claim.attempt == attempt
            await one.release(claim, retry_after=0, failed=True)
        clock.time += 1
        claim = await one.append(await the_claim(one), [CALLS])
        assert claim.attempt == 0
        clock.time += one.lease + 1
        claim = await the_claim(other)
        assert claim.attempt == 1, "a death counts like a failure"
        await other.release(claim, [RESULT, FINAL])
        await put(db, said("b"))
        assert (await the_claim(other)).attempt == 1

    async def test_a_turn_that_is_put_off_has_not_failed(self, db: Database, one: Journal) -> None:
        await put(db, said("a"))
        for _ in range(5):
            claim = await the_claim(one)
            assert claim.attempt == 1
            await one.release(claim, retry_after=0)

    async def test_a_started_call_is_known_to_the_next_owner_until_it_has_a_result(
        self, db: Database, one: Journal, other: Journal, clock: FakeClock
    ) -> None:
        await put(db, said("a"))
        claim = await one.append(await the_claim(one), [CALLS])
        await one.start(claim, "c1")
        clock.time += one.lease + 1
        claim = await the_claim(other)
        assert claim.started == "c1"
        await other.release(claim, retry_after=0)
        claim = await the_claim(other)
        assert claim.started == "c1", "letting go without a word is no result"
        claim = await other.append(claim, [RESULT])
        await other.release(claim, retry_after=0)
        assert (await the_claim(other)).started is None

    async def test_a_conversation_to_be_tried_later_waits_until_then(
        self, db: Database, one: Journal, clock: FakeClock
    ) -> None:
        await put(db, said("a"))
        await one.release(await the_claim(one), retry_after=30)
        nothing, look_at = await one.claim(10)
        assert nothing == []
        assert look_at == pytest.approx(db.now() + 30)
        clock.time += 31
        assert texts(await the_claim(one)) == ["a"]

    async def test_the_next_owner_knows_which_stimuli_the_turn_answers(
        self, db: Database, one: Journal, other: Journal, clock: FakeClock
    ) -> None:
        await put(db, said("before", key="before"))
        await one.release(await the_claim(one), [FINAL])
        await put(db, said("a", key="a"), said("b", key="b"))
        claim = await one.append(await the_claim(one), [CALLS, RESULT])
        await put(db, said("c", key="c"))
        await one.absorb(claim)
        clock.time += one.lease + 1
        assert sorted((await the_claim(other)).keys) == ["a", "b", "c"]

    async def test_the_reply_is_stored_with_the_release_and_comes_back_reserved(
        self, db: Database, one: Journal
    ) -> None:
        box = Outbox(db, "one")
        await put(db, said("a"), said("a", "2"))
        claims, _ = await one.claim(10)
        for claim in claims:
            messages = [reply(f"{part}", claim.address.chat) for part in range(2)]
            (first,) = await one.release(claim, [FINAL], messages, reserve=box)
            assert first.message == messages[0]
        assert await column(db, outbound.c.state) == ["sending", "pending"] * 2

    async def test_a_reply_behind_an_older_message_is_not_reserved(self, db: Database, one: Journal) -> None:
        await Inbox(db).put([Arrival(said("a")), refused("older")])
        assert await one.release(await the_claim(one), [FINAL], [reply("new")], reserve=Outbox(db, "x")) != []
        # what comes back is the older one: whoever has the slot delivers what stands first
        assert await column(db, outbound.c.state) == ["sending", "pending"]


class TestStop:
    async def test_waiting_messages_are_cleared_and_never_answered(self, db: Database, one: Journal) -> None:
        address = said("").address
        assert await one.stop(address) == (None, False)
        await put(db, said("a"), said("b"))
        which, stopped = await one.stop(address)
        assert which is not None
        assert stopped
        assert await one.claim(10) == ([], None)
        await put(db, said("c"))
        assert texts(await the_claim(one)) == ["c"]

    async def test_a_running_turn_ends_with_a_valid_transcript(
        self, db: Database, one: Journal, other: Journal
    ) -> None:
        await put(db, said("a"))
        claim = await one.append(
            await the_claim(one), [AssistantEntry("", (ToolCall("c1", "act"), ToolCall("c2", "act"))), RESULT]
        )
        assert (await one.stop(claim.address))[1]
        assert not (await one.stop(claim.address))[1], "nothing runs any more"
        await put(db, said("b"))
        transcript = (await the_claim(other)).transcript
        assert transcript[:3] == claim.transcript
        open_call, end, new = transcript[3:]
        assert isinstance(open_call, ToolEntry)
        assert (open_call.call_id, open_call.is_error) == ("c2", True)
        assert end == AssistantEntry(STOPPED)
        assert isinstance(new, UserEntry)

    async def test_a_new_session_begins_empty_and_the_old_one_stays_stored(
        self, db: Database, one: Journal
    ) -> None:
        await put(db, said("a"))
        claim = await the_claim(one)
        await one.release(claim, [FINAL])
        await db.write(lambda tx: journal.stop(tx, claim.conversation_id, db.now(), new_session=True))
        assert await one.claim(10) == ([], None)
        await put(db, said("b"))
        claim = await the_claim(one)
        assert (texts(claim), claim.session) == (["b"], 2)
        assert await column(db, entry.c.session) == [1, 1, 2]
        assert await db.write(lambda tx: journal.size(tx, claim.conversation_id)) == (2, 1, 0)


def user(text: str) -> UserEntry:
    return UserEntry(text, Sender("7"), Kind.MESSAGE, 0.0)


class TestTranscripts:
    def test_a_kept_transcript_counts_only_while_session_and_length_are_the_same(self) -> None:
        kept = Transcripts()
        kept.put(1, 1, 3, (user("a"), FINAL))
        assert kept.get(1, 1, 3) == (user("a"), FINAL)
        assert kept.get(1, 1, 4) is None
        assert kept.get(1, 2, 3) is None
        assert kept.get(2, 1, 3) is None

    def test_the_number_of_conversations_is_bounded(self) -> None:
        kept = Transcripts(conversations=2)
        for which in (1, 2, 1, 3):
            kept.put(which, 1, 2, (user("a"),))
        assert [which for which in (1, 2, 3) if kept.get(which, 1, 2)] == [1, 3]

    def test_the_characters_are_bounded(self) -> None:
        kept = Transcripts(characters=100)
        kept.put(1, 1, 2, (user("a" * 60),))
        kept.put(2, 1, 2, (user("b" * 60),))
        assert (kept.get(1, 1, 2), kept.get(2, 1, 2)) == (None, (user("b" * 60),))
        kept.put(3, 1, 2, (user("c" * 101),))
        assert kept.get(3, 1, 2) is None
        kept.put(2, 1, 3, (user("b" * 30),))
        kept.put(4, 1, 2, (user("d" * 70),))
        assert kept.get(2, 1, 3) is not None, "what is replaced no longer counts"

    async def test_it_spares_reading_what_is_known(self, db: Database, one: Journal) -> None:
        await put(db, said("a"))
        claim = await the_claim(one)
        await one.release(claim, [FINAL])
        marked = AssistantEntry("kept in memory")
        one.kept.put(claim.conversation_id, 1, claim.next_seq + 1, (*claim.transcript, marked))
        await put(db, said("b"))
        assert (await the_claim(one)).transcript[1] == marked

    async def test_what_another_process_wrote_is_seen(
        self, db: Database, one: Journal, other: Journal
    ) -> None:
        for owner in (one, other, one):
            await put(db, said("a"))
            claim = await the_claim(owner)
            await owner.release(claim, [AssistantEntry(owner.owner)])
        replies = [text for text in await column(db, entry.c.body) if '"sender"' not in text]
        assert replies == ['{"text":"one"}', '{"text":"other"}', '{"text":"one"}']
        assert [one.text for one in claim.transcript] == ["a", "one", "a", "other", "a"]


def reply(text: str, chat: str = "1", *, key: str = "", on_unknown: OnUnknown = OnUnknown.RESEND) -> Outgoing:
    return Outgoing(
        key=key or f"reply:{chat}:{text}", address=Address("fake", chat), text=text, on_unknown=on_unknown
    )


async def queue(db: Database, *messages: Outgoing) -> None:
    now = db.now()
    await db.write(lambda tx: outbox.put(tx, messages, now))


async def taken(box: Outbox, most: int = 10) -> list[str]:
    return [one.message.text for one in (await box.take(most))[0]]


@pytest.fixture
def box(db: Database) -> Outbox:
    return Outbox(db, "one")


class TestOutbox:
    async def test_a_key_is_queued_once(self, db: Database, box: Outbox) -> None:
        await queue(db, reply("a", key="k"), reply("b", key="k"))
        await queue(db, reply("c", key="k"))
        assert await taken(box) == ["a"]

    async def test_one_address_gets_its_messages_in_order_and_others_do_not_wait(
        self, db: Database, box: Outbox
    ) -> None:
        await queue(db, reply("a1"), reply("a2"), reply("b1", "2"), reply("a3"), reply("b2", "2"))
        (a1, b1), _ = await box.take(10)
        assert (a1.message.text, b1.message.text) == ("a1", "b1")
        assert await taken(box) == []
        (a2,) = await box.sent(a1, Receipt("m1"))
        assert a2.message.text == "a2"
        (a3,) = await box.sent(a2, Receipt("m2"))
        assert await box.sent(a3, Receipt("m3")) == []
        assert await column(db, outbound.c.receipt) == ["m1", "m2", None, "m3", None]
        assert await taken(box) == [], "b1 is still under way"

    async def test_no_more_are_reserved_than_were_asked_for(self, db: Database, box: Outbox) -> None:
        await queue(db, *(reply("a", str(chat)) for chat in range(5)))
        assert len(await taken(box, 2)) == 2
        assert len(await taken(box, 10)) == 3

    async def test_two_owners_never_reserve_the_same_message(self, db: Database, box: Outbox) -> None:
        await queue(db, *(reply(f"{chat}", f"{chat}") for chat in range(40)))
        boxes = [box, Outbox(db, "other")] * 5
        parts = await asyncio.gather(*(taken(one, 3) for one in boxes))
        found = [text for part in parts for text in part]
        while more := await taken(box):
            found += more
        assert sorted(found) == sorted(str(chat) for chat in range(40))

    async def test_a_retry_waits_keeps_its_place_and_is_counted(
        self, db: Database, box: Outbox, clock: FakeClock
    ) -> None:
        await queue(db, reply("a"), reply("b"))
        (a,), _ = await box.take(1)
        await box.retry(a, 30, "too fast")
        nothing, look_at = await box.take(10)
        assert nothing == []
        assert look_at == pytest.approx(db.now() + 30)
        clock.time += 31
        (a,), _ = await box.take(10)
        assert (a.message.text, a.attempts) == ("a", 1)

    async def test_an_unsure_answer_is_sent_once_more_and_never_a_third_time(
        self, db: Database, box: Outbox
    ) -> None:
        await queue(db, reply("a"), reply("b"))
        for _ in range(2):
            (a,), _ = await box.take(10)
            assert a.message.text == "a"
            await box.unsure(a, "no answer")
        assert await column(db, outbound.c.state) == ["unknown", "pending"]
        assert await taken(box) == ["b"]

    async def test_what_the_bot_started_itself_is_never_sent_twice(self, db: Database, box: Outbox) -> None:
        await queue(db, reply("beat", on_unknown=OnUnknown.DROP), reply("next"))
        (beat_,), _ = await box.take(10)
        await box.unsure(beat_, "no answer")
        assert await column(db, outbound.c.state) == ["unknown", "pending"]
        assert await taken(box) == ["next"]

    async def test_a_message_that_is_given_up_lets_the_next_one_go(self, db: Database, box: Outbox) -> None:
        await queue(db, reply("a"), reply("b"))
        (a,), _ = await box.take(10)
        (b,) = await box.dead(a, "chat not found")
        assert b.message.text == "b"
        assert await column(db, outbound.c.state) == ["dead", "sending"]
        assert await column(db, outbound.c.problem) == ["chat not found", None]

    async def test_only_the_owner_of_a_reservation_settles_it(
        self, db: Database, box: Outbox, clock: FakeClock
    ) -> None:
        await queue(db, reply("a"))
        (mine,), _ = await box.take(10)
        clock.time += box.lease + 1
        thief = Outbox(db, "other")
        await thief.recover()
        (theirs,), _ = await thief.take(10)
        for settle in (box.sent(mine, Receipt("old")), box.dead(mine, "late")):
            await settle
        await box.retry(mine, 0, "late")
        await box.unsure(mine, "late")
        assert await column(db, outbound.c.state) == ["sending"]
        await thief.sent(theirs, Receipt("new"))
        assert await column(db, outbound.c.receipt) == ["new"]

    async def test_what_a_dead_process_had_reserved_may_have_arrived(
        self, db: Database, box: Outbox, clock: FakeClock
    ) -> None:
        await queue(db, reply("answer"), reply("beat", "2", on_unknown=OnUnknown.DROP))
        assert await taken(box) == ["answer", "beat"]
        clock.time += box.lease + 1
        heir = Outbox(db, "heir")
        assert await heir.recover() == 0
        assert await taken(heir) == ["answer"]
        assert await column(db, outbound.c.state) == ["sending", "unknown"]
        clock.time += box.lease + 1
        heir = Outbox(db, "heir of the heir")
        await heir.recover()
        assert await taken(heir) == []
        assert await column(db, outbound.c.state) == ["unknown", "unknown"]

    async def test_a_living_process_keeps_its_reservation(
        self, db: Database, box: Outbox, clock: FakeClock
    ) -> None:
        await queue(db, reply("a"))
        (mine,), _ = await box.take(10)
        clock.time += box.lease - 1
        assert await taken(Outbox(db, "other")) == []
        clock.time += box.lease
        found, _ = await box.take(10, held=[mine.id])
        assert found == [], "it is under way here, whatever the clock says"

    async def test_durability_06_messages_older_than_a_day_are_parked_at_the_start(
        self, db: Database, box: Outbox, clock: FakeClock
    ) -> None:
        await queue(db, *(reply(str(number), str(number % 3)) for number in range(20)))
        clock.time += 3 * MAX_AGE
        await queue(db, reply("fresh", "0"))
        assert await box.recover() == 20
        assert await taken(box) == ["fresh"]
        assert (await column(db, outbound.c.state)).count("dead") == 20
        assert await box.recover() == 0

    async def test_durability_09_a_row_without_a_counter_counts_from_zero(
        self, db: Database, box: Outbox
    ) -> None:
        await queue(db, reply("a"))
        await db.write(lambda tx: tx.execute(sa.update(outbound).values(attempts=None)).rowcount)
        for attempts in range(3):
            (a,), _ = await box.take(1)
            assert a.attempts == attempts
            await box.retry(a, 0, "no")


class TestLeases:
    async def test_one_process_holds_a_lease_until_it_ends_or_is_dropped(
        self, db: Database, clock: FakeClock
    ) -> None:
        one, other = Leases(db, clock, "one"), Leases(db, clock, "other")
        assert await one.hold("poll")
        assert not await other.hold("poll")
        assert await other.hold("something else")
        clock.time += one.seconds - 1
        assert await one.hold("poll"), "its owner extends it"
        clock.time += one.seconds - 1
        assert not await other.hold("poll")
        await other.drop("poll")
        assert not await other.hold("poll"), "only its owner drops it"
        clock.time += 2
        assert await other.hold("poll")
        assert not await one.hold("poll")
        await other.drop("poll")
        assert await one.hold("poll")

    async def test_who_waits_gets_the_lease_when_the_owner_is_done(
        self, db: Database, clock: FakeClock
    ) -> None:
        one, other = Leases(db, clock, "one"), Leases(db, clock, "other")
        async with one.held("poll"):
            assert not await other.hold("poll")
        async with asyncio.timeout(5), other.held("poll"):
            assert not await one.hold("poll")

    async def test_a_dead_owners_lease_is_waited_out(self, db: Database, clock: FakeClock) -> None:
        assert await Leases(db, clock, "dead").hold("poll")
        await Leases(db, clock, "heir").wait("poll")
        assert sum(clock.slept) >= 30

    async def test_of_many_one_gets_it(self, db: Database, clock: FakeClock) -> None:
        got = await asyncio.gather(*(Leases(db, clock, f"o{number}").hold("poll") for number in range(8)))
        assert sum(got) == 1


class TestHistory:
    async def test_sessions_of_a_channel_come_newest_first(self, db: Database, clock: FakeClock) -> None:
        for chat in ("a", "b", "a"):
            clock.time += 1
            await put(db, said("hi", chat))
        await put(db, replace(said("hi"), address=Address("faker", "x")))
        found = await db.read(functools.partial(history.sessions, channel="fake", limit=10))
        assert [one["session"] for one in found] == ["a", "b"]
        assert found[0]["at"] == pytest.approx(db.now())
        assert len(await db.read(functools.partial(history.sessions, channel="fake", limit=1))) == 1

    async def test_messages_are_what_people_see_of_the_running_session(
        self, db: Database, one: Journal
    ) -> None:
        where = said("").address
        assert await db.read(lambda tx: history.messages(tx, where, 10, None)) == []
        await put(db, said("a"))
        quoting = AssistantEntry('he wrote {"calls": 3} and "calls":')
        await one.release(await the_claim(one), [CALLS, RESULT, quoting])
        await put(db, said("b"))
        await one.release(await the_claim(one), [FINAL])
        found = await db.read(lambda tx: history.messages(tx, where, 10, None))
        assert [(row["role"], row["text"]) for row in found] == [
            ("user", "a"),
            ("assistant", quoting.text),
            ("user", "b"),
            ("assistant", "done"),
        ]
        page = await db.read(lambda tx: history.messages(tx, where, 2, found[2]["seq"]))
        assert page == found[:2]
        await db.write(lambda tx: journal.stop(tx, 1, 0.0, new_session=True))
        assert await db.read(lambda tx: history.messages(tx, where, 10, None)) == []

    async def test_replies_name_a_stimulus_that_they_answer(self, db: Database, one: Journal) -> None:
        where = said("").address
        assert await db.read(lambda tx: history.last_reply(tx, where)) == 0
        await Inbox(db).put(
            [Arrival(said("/x", key="cmd"), lambda _tx, _which: "pong"), refused("no", key="other:1")],
        )
        await put(db, said("a", key="a"), said("b", key="b"))
        claim = await the_claim(one)
        pieces = [
            Outgoing(
                key=f"reply:{claim.conversation_id}:{claim.next_seq}:{n}", address=where, text=f"part {n}"
            )
            for n in range(2)
        ]
        await one.release(claim, [FINAL], pieces)
        found = await db.read(lambda tx: history.replies_after(tx, where, 0))
        assert [(row["text"], row["key"]) for row in found] == [
            ("pong", "cmd"),
            ("no", ""),
            ("part 0", "b"),
            ("part 1", "b"),
        ]
        assert await db.read(lambda tx: history.last_reply(tx, where)) == found[-1]["id"]
        after = await db.read(lambda tx: history.replies_after(tx, where, found[1]["id"]))
        assert after == found[2:]
        for key in ("a", "b"):
            answered = await db.read(functools.partial(history.reply_to, key=key))
            assert answered == "part 0\npart 1"

    async def test_the_answer_to_a_stimulus_is_open_silent_or_a_text(
        self, db: Database, one: Journal
    ) -> None:
        async def answer(key: str) -> str | None:
            return await db.read(functools.partial(history.reply_to, key=key))

        assert await answer("nobody") is None
        await Inbox(db).put([Arrival(said("/x", key="cmd"), lambda _tx, _which: "pong")])
        assert await answer("cmd") == "pong"
        await put(db, said("a", key="a"))
        assert await answer("a") is None
        claim = await the_claim(one)
        assert await answer("a") is None
        claim = await one.append(claim, [CALLS])
        assert await answer("a") is None
        claim = await one.append(claim, [RESULT])
        assert await answer("a") is None
        await one.release(claim, [AssistantEntry("NO_REPLY")])
        assert await answer("a") == ""
        await put(db, said("b", key="b"), said("c", key="c"))
        await one.stop(said("").address)
        assert await answer("b") == ""

    async def test_what_waits_is_counted(self, db: Database, one: Journal) -> None:
        await put(db, said("a"), said("b", "2"))
        await queue(db, reply("x"))
        assert await db.read(history.depth) == {"conversations": 2, "outbox": 1}
        claims, _ = await one.claim(10)
        for claim in claims:
            await one.release(claim, [FINAL])
        assert await db.read(history.depth) == {"conversations": 0, "outbox": 1}


class TestWriting:
    async def test_many_writes_at_once_each_get_their_own_result(self, db: Database) -> None:
        def write(tx: Connection, number: int) -> int:
            set_fact(tx, f"n{number}", str(number))
            return number

        numbers = range(300)
        found = await asyncio.gather(*(db.write(functools.partial(write, number=n)) for n in numbers))
        assert found == list(numbers)

    async def test_one_that_fails_undoes_only_itself(self, db: Database) -> None:
        def write(tx: Connection, number: int) -> int:
            set_fact(tx, f"n{number}", "x")
            if number % 7 == 3:
                tx.execute(sa.text("insert into fact (name) values (:name)"), {"name": f"bad{number}"})
            if number % 7 == 5:
                raise ValueError(number)
            return number

        numbers = range(60)
        found = await asyncio.gather(
            *(db.write(functools.partial(write, number=n)) for n in numbers), return_exceptions=True
        )
        for number, result in zip(numbers, found, strict=True):
            match number % 7:
                case 3:
                    assert isinstance(result, sa.exc.IntegrityError)
                case 5:
                    assert isinstance(result, ValueError)
                case _:
                    assert result == number
            stored = await db.write(functools.partial(get_fact, name=f"n{number}"))
            assert (stored is None) == (number % 7 in (3, 5))

    @pytest.mark.parametrize("durable", [True, False])
    async def test_a_caller_that_is_cancelled_neither_undoes_nor_loses_its_write(
        self, url: str, clock: FakeClock, durable: bool
    ) -> None:
        db = await open_database(url, clock)
        writes = [
            asyncio.create_task(
                db.write(lambda tx, n=number: set_fact(tx, f"n{n}", "x"), durable=durable)  # type: ignore[misc]  # mypy gives up on the default
            )
            for number in range(5)
        ]
        await asyncio.sleep(0)
        for write in writes:
            write.cancel()
        results = await asyncio.gather(*writes, return_exceptions=True)
        assert all(isinstance(result, asyncio.CancelledError) for result in results)
        await db.close()
        db = await open_database(url, clock)
        stored = [await db.write(functools.partial(get_fact, name=f"n{n}")) for n in range(5)]
        await db.close()
        assert stored == ["x"] * 5

    async def test_a_read_sees_what_was_committed_before_it(self, db: Database) -> None:
        for number in range(10):
            await db.write(lambda tx, n=number: set_fact(tx, "n", str(n)), durable=False)  # type: ignore[misc]  # mypy gives up on the default
            assert await db.read(lambda tx: get_fact(tx, "n")) == str(number)


@dataclass
class Believed:
    """What a conversation must look like."""

    waiting: list[str] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    ready: bool = False
    holder: str | None = None
    expired: bool = False
    claim: Claim | None = None


CHATS = ("1", "2", "3")


class AnyOrder(RuleBasedStateMachine):
    """Two processes take, add, let go and die in any order; a plain dictionary says what must be stored."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.folder = Path(tempfile.mkdtemp(prefix="crayfish-"))
        self.clock = FakeClock(tick=0.001)
        self.db: Database = self.run(
            open_database(f"sqlite+aiosqlite:///{self.folder / 'crayfish.db'}", self.clock)
        )
        self.run(self.db.write(create))
        self.journals = {owner: Journal(self.db, owner) for owner in ("one", "other")}
        self.believed = {chat: Believed() for chat in CHATS}
        self.stale: list[tuple[str, Claim]] = []
        self.keys: list[Stimulus] = []

    def run(self, coroutine: Any) -> Any:
        return self.runner.run(coroutine)

    def teardown(self) -> None:
        self.run(self.db.close())
        self.runner.close()
        shutil.rmtree(self.folder)

    def lose(self, one: Believed) -> None:
        if one.claim is not None and one.holder is not None:
            self.stale.append((one.holder, one.claim))
        one.holder, one.claim, one.expired = None, None, False

    @rule(chat=st.sampled_from(CHATS), how_many=st.integers(1, 25))
    def put(self, chat: str, how_many: int) -> None:
        stimuli = [said("", chat) for _ in range(how_many)]
        stimuli = [replace(one, text=one.key) for one in stimuli]
        assert self.run(put(self.db, *stimuli)) == how_many
        self.keys += stimuli
        self.believed[chat].waiting += [one.text for one in stimuli]
        self.believed[chat].ready = True

    @precondition(lambda self: self.keys)
    @rule(data=st.data())
    def put_again(self, data: st.DataObject) -> None:
        assert self.run(put(self.db, data.draw(st.sampled_from(self.keys)))) == 0

    @rule(owner=st.sampled_from(["one", "other"]), most=st.integers(1, 3))
    def claim(self, owner: str, most: int) -> None:
        running = [
            one.claim.conversation_id for one in self.believed.values() if one.claim and one.holder == owner
        ]
        claims: list[Claim] = self.run(self.journals[owner].claim(most, running))[0]
        free = {
            chat
            for chat, one in self.believed.items()
            if one.ready and (one.holder is None or (one.expired and one.holder != owner))
        }
        found = {claim.address.chat for claim in claims}
        assert found <= free
        assert len(found) == min(most, len(free))
        for claim in claims:
            one = self.believed[claim.address.chat]
            self.lose(one)
            one.holder, one.claim = owner, claim
            one.said += one.waiting[:MERGED]
            del one.waiting[:MERGED]
            assert texts(claim) == one.said

    def held(self, data: st.DataObject) -> Believed:
        return data.draw(st.sampled_from([one for one in self.believed.values() if one.claim]))

    def anybody_holds(self) -> bool:
        return any(one.claim for one in self.believed.values())

    @precondition(anybody_holds)
    @rule(data=st.data())
    def append(self, data: st.DataObject) -> None:
        one = self.held(data)
        assert one.claim is not None
        assert one.holder is not None
        one.claim = self.run(self.journals[one.holder].append(one.claim, [CALLS, RESULT]))
        one.expired = False

    @precondition(anybody_holds)
    @rule(data=st.data())
    def absorb(self, data: st.DataObject) -> None:
        one = self.held(data)
        assert one.claim is not None
        assert one.holder is not None
        one.claim = self.run(self.journals[one.holder].absorb(one.claim))
        one.said += one.waiting[:MERGED]
        del one.waiting[:MERGED]
        one.expired = False
        assert texts(one.claim) == one.said

    @precondition(anybody_holds)
    @rule(data=st.data(), finish=st.booleans())
    def release(self, data: st.DataObject, finish: bool) -> None:
        one = self.held(data)
        assert one.claim is not None
        assert one.holder is not None
        entries: list[Entry] = [FINAL] if finish else []
        retry = None if finish else 0.0
        self.run(self.journals[one.holder].release(one.claim, entries, retry_after=retry))
        one.ready = bool(one.waiting) or not finish
        one.holder, one.claim, one.expired = None, None, False

    @rule()
    def time_passes(self) -> None:
        self.clock.time += 61
        for one in self.believed.values():
            one.expired = one.holder is not None

    @rule(chat=st.sampled_from(CHATS))
    def stop(self, chat: str) -> None:
        self.run(self.journals["one"].stop(Address("fake", chat)))
        one = self.believed[chat]
        one.waiting.clear()
        one.ready = False
        self.lose(one)

    @precondition(lambda self: self.stale)
    @rule(data=st.data())
    def write_late(self, data: st.DataObject) -> None:
        owner, claim = data.draw(st.sampled_from(self.stale))
        mine = self.journals[owner]
        writes = [mine.append(claim, [CALLS, RESULT]), mine.absorb(claim), mine.release(claim, [FINAL])]
        chosen = data.draw(st.integers(0, len(writes) - 1))
        for number, write in enumerate(writes):
            if number != chosen:
                write.close()
        with pytest.raises(LeaseLost):
            self.run(writes[chosen])

    @invariant()
    def every_message_is_where_it_belongs(self) -> None:
        def stored(tx: Connection) -> dict[str, tuple[list[str], list[str], bool]]:
            found = {}
            for row in tx.execute(sa.select(conversation)):
                waiting = tx.execute(
                    sa.select(inbound.c.key)
                    .where(inbound.c.conversation_id == row.id, inbound.c.seq.is_(None))
                    .order_by(inbound.c.id)
                ).scalars()
                taken_in = tx.execute(
                    sa.select(inbound.c.key, inbound.c.seq)
                    .where(inbound.c.conversation_id == row.id, inbound.c.seq > 0)
                    .order_by(inbound.c.seq)
                ).all()
                found[Address.parse(row.address).chat] = (
                    list(waiting),
                    [one.key for one in taken_in],
                    row.ready_at is not None,
                )
            return found

        rows = self.run(self.db.write(stored))
        for chat, one in self.believed.items():
            assert rows.get(chat, ([], [], False)) == (one.waiting, one.said, one.ready)


TestAnyOrder = AnyOrder.TestCase
TestAnyOrder.settings = settings(max_examples=50, stateful_step_count=40, deadline=None)
