"""The loops: what fails is repeated, given up or told, and never harms what is beside it."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random
from typing import TypeVar

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from gateway.clock import SystemClock
from gateway.errors import ChannelStopped, DeadRoute, DeliveryError, DeliveryRetry, DeliveryUnsure, StoreError
from gateway.models.base import Prompt
from gateway.store import history, outbox
from gateway.store.engine import Database, Work
from gateway.store.journal import STOPPED
from gateway.store.outbox import MAX_ATTEMPTS
from gateway.store.tables import conversation, inbound, outbound
from gateway.turn import FAILED_SORRY
from gateway.types import Address, AssistantEntry, Outgoing, Receipt, UserEntry
from gateway.work import LOOK, Sender, Supervised, persist, supervise
from tests.fakes.clock import FakeClock
from tests.fakes.scripted import (
    RecordingChannel,
    ScriptedModel,
    ScriptedTools,
    call,
    calls,
    in_turn,
    people,
)
from tests.fakes.world import World, said

T = TypeVar("T")


def newest(prompt: Prompt) -> str:
    return people(prompt.entries)[-1]


def echo(prompt: Prompt) -> AssistantEntry:
    return AssistantEntry(f"you said {newest(prompt)}")


def poisoned(prompt: Prompt) -> AssistantEntry:
    """Fail in a way that nobody expects at one text, answer any other."""
    if newest(prompt) == "poison":
        raise ZeroDivisionError("a bug")
    return echo(prompt)


@pytest.fixture
def world(db: Database, clock: FakeClock) -> World:
    return World(db=db, clock=clock, model=ScriptedModel(echo))


async def pass_time(world: World, clock: FakeClock, seconds: float = 60, rounds: int = 12) -> None:
    """Work on, with pauses long enough for every back-off."""
    for _ in range(rounds):
        clock.time += seconds
        await world.settle()


class TestWorker:
    async def test_a_turn_that_fails_unexpectedly_does_not_stop_the_others(self, world: World) -> None:
        world.model.answer = poisoned
        await world.put(said("poison", "1"), *(said("hi", str(chat)) for chat in range(2, 6)))
        await world.settle()
        assert sorted(message.address.chat for message in world.channel.sent) == ["2", "3", "4", "5"]

    async def test_after_three_failures_the_person_is_told_once_and_the_next_message_is_answered(
        self, world: World, clock: FakeClock
    ) -> None:
        world.model.answer = poisoned
        await world.say("poison")
        await pass_time(world, clock)
        assert world.channel.texts == [FAILED_SORRY]
        assert len(world.model.prompts) == 3
        await world.say("hello")
        assert world.channel.texts == [FAILED_SORRY, "you said hello"]

    async def test_a_message_that_waits_behind_a_poisoned_one_joins_it_and_the_chat_goes_on(
        self, world: World, clock: FakeClock
    ) -> None:
        world.model.answer = poisoned
        await world.say("poison")
        await world.put(said("hello"))
        await pass_time(world, clock)
        assert world.channel.texts == ["you said hello"]

    async def test_failed_turns_are_repeated_after_growing_pauses(
        self, world: World, clock: FakeClock
    ) -> None:
        asked: list[float] = []

        def answer(_prompt: Prompt) -> AssistantEntry:
            asked.append(clock.time)
            raise ZeroDivisionError

        world.model.answer = answer
        await world.put(said("hi"))
        for _ in range(40):
            await world.settle()
            clock.time += 0.5
        pauses = [later - sooner for sooner, later in itertools.pairwise(asked)]
        assert pauses == pytest.approx([2, 4], abs=0.51)

    async def test_a_turn_that_is_stopped_makes_room_at_once_and_ends_in_its_own_time(
        self, world: World
    ) -> None:
        begun, may_end, cleaned = asyncio.Event(), asyncio.Event(), asyncio.Event()

        async def slow(_call: object) -> str:
            begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                await may_end.wait()  # as when a process takes its time to end
                cleaned.set()
            return "never"

        world.tools = ScriptedTools(result=slow)
        turns = world.worker.turns
        turns.agent = replace(turns.agent, tools=world.tools)
        world.model.answer = lambda prompt: calls(call("look")) if newest(prompt) == "work" else echo(prompt)
        await world.put(said("work"))
        async with asyncio.TaskGroup() as group:
            await world.worker.step(group)
            await begun.wait()
            which, stopped = await world.worker.journal.stop(said("").address)
            assert which is not None
            assert stopped
            world.worker.interrupt(which)
            await world.say("hello")
            assert not cleaned.is_set(), "the next message was answered while the old turn was cleaning up"
            may_end.set()
        assert cleaned.is_set()
        assert world.worker.busy == 0
        assert world.channel.texts == ["you said hello"]

    async def test_a_turn_that_is_stopped_before_its_first_step_leaves_no_trace(self, world: World) -> None:
        await world.put(said("hi"))
        async with asyncio.TaskGroup() as group:
            await world.worker.step(group)
            world.worker.interrupt(1)
        assert world.model.prompts == []
        assert world.worker.busy == 0
        await world.worker.journal.stop(said("").address)
        await world.say("hello")
        assert world.channel.texts == ["you said hello"]
        assert [entry.text for entry in world.model.prompts[-1].entries][:2] == ["hi", STOPPED]

    async def test_no_more_turns_run_at_once_than_are_allowed(self, world: World) -> None:
        go = asyncio.Event()

        async def answer(_prompt: Prompt) -> AssistantEntry:
            await go.wait()
            return AssistantEntry("done")

        world.model.answer = answer
        world.worker.parallel = 3
        await world.put(*(said("hi", str(chat)) for chat in range(8)))
        async with asyncio.TaskGroup() as group:
            assert await world.worker.step(group) == 0.0
            assert world.worker.busy == 3
            assert await world.worker.step(group) == LOOK
            assert world.worker.busy == 3
            go.set()
        await world.settle()
        assert len(world.channel.sent) == 8

    async def test_a_drained_worker_stops_at_the_next_step_and_another_goes_on(self, world: World) -> None:
        async def answer(prompt: Prompt) -> AssistantEntry:
            world.worker.drain()
            return (
                calls(call("look")) if isinstance(prompt.entries[-1], UserEntry) else AssistantEntry("done")
            )

        world.model.answer = answer
        await world.put(said("hi"))
        async with asyncio.timeout(5):
            await world.worker.serve()
        assert world.tools.ran == []
        heir = World(
            db=world.db, clock=world.clock, model=ScriptedModel(in_turn("done")), channel=world.channel
        )
        await heir.settle()
        assert len(heir.tools.ran) == 1
        assert heir.channel.texts == ["done"]


class Deaf:
    """A database whose n-th write is committed, and whose server dies before it can say so."""

    exclusive = False
    failing = False

    def __init__(self, inner: Database, at: int) -> None:
        self._inner = inner
        self.left = at

    def now(self) -> float:
        return self._inner.now()

    async def write(self, work: Work[T], *, durable: bool = True) -> T:
        result = await self._inner.write(work, durable=durable)
        self.left -= 1
        if self.left == 0:
            raise StoreError("the connection is gone")
        return result

    async def read(self, work: Work[T]) -> T:
        return await self._inner.read(work)

    async def close(self) -> None:
        await self._inner.close()


class TestLostAnswers:
    async def test_a_commit_whose_answer_is_lost_is_neither_lost_nor_done_twice(
        self, db: Database, clock: FakeClock
    ) -> None:
        def answer(prompt: Prompt) -> AssistantEntry:
            asks = isinstance(prompt.entries[-1], UserEntry)
            return calls(call("look"), call("act")) if asks else AssistantEntry(f"you said {newest(prompt)}")

        for at in itertools.count(1):
            deaf = Deaf(db, 0)
            world = World(db=deaf, clock=clock, model=ScriptedModel(answer), slots=1)
            await world.put(said(f"a{at}", "1"), said(f"b{at}", "2"))
            await world.put(said("more", "3"))
            deaf.left = at
            await world.settle()
            await pass_time(world, clock, 61, 3)
            texts = world.channel.texts
            assert set(texts) == {f"you said a{at}", f"you said b{at}", "you said more"}, at
            assert len(texts) <= 4, "at most one repeat"
            acted = [ran for ran in world.tools.ran if ran.startswith("act")]
            assert len(acted) == len(set(acted))
            assert await db.read(history.depth) == {"conversations": 0, "outbox": 0}
            if deaf.left > 0:
                break
        assert at > 15, "the work takes that many commits, so that many answers were lost"


async def queue(db: Database, *texts: str, chat: str = "1", channel: str = "fake") -> None:
    now = db.now()
    messages = [
        Outgoing(key=f"{channel}:{chat}:{text}", address=Address(channel, chat), text=text) for text in texts
    ]
    await db.write(lambda tx: outbox.put(tx, messages, now))


def rows(tx: Connection) -> list[tuple[str, int | None, str | None]]:
    """Return state, failed attempts and trouble of each message."""
    found = tx.execute(
        sa.select(outbound.c.state, outbound.c.attempts, outbound.c.problem).order_by(outbound.c.id)
    )
    return [(row.state, row.attempts, row.problem) for row in found]


def first_due(tx: Connection) -> float:
    """Return when the oldest message is to be tried again."""
    due: float = tx.execute(sa.select(outbound.c.due_at).order_by(outbound.c.id).limit(1)).scalar_one()
    return due


def failing(error: Exception, times: int = 10_000) -> Callable[[Outgoing], None]:
    left = itertools.count(1)

    def fail(_message: Outgoing) -> None:
        if next(left) <= times:
            raise error

    return fail


@dataclass(slots=True)
class SlowChannel(RecordingChannel):
    """Takes as long for a message as it is told to."""

    begun: asyncio.Event = field(default_factory=asyncio.Event)
    done: asyncio.Event = field(default_factory=asyncio.Event)

    async def send(self, message: Outgoing) -> Receipt:
        self.begun.set()
        await self.done.wait()
        return await RecordingChannel.send(self, message)


class TestSender:
    async def test_no_other_process_repeats_a_delivery_that_takes_long(
        self, db: Database, clock: FakeClock
    ) -> None:
        shared, channel = Deaf(db, 0), SlowChannel()
        world = World(db=shared, clock=clock, model=ScriptedModel(echo), channel=channel)
        await queue(db, "a")
        async with asyncio.TaskGroup() as group:
            group.create_task(world.sender.serve())
            await channel.begun.wait()
            late = clock.time + 3 * world.lease
            while clock.time < late:  # noqa: ASYNC110 - the keeping of the reservation moves the clock
                await asyncio.sleep(0)
            found, _ = await outbox.Outbox(shared, "other").take(10)
            assert found == []
            channel.done.set()
            world.sender.drain()
        assert await db.write(rows) == [("sent", 0, None)]

    async def test_a_fault_of_an_adapter_is_repeated_with_growing_pauses_and_then_given_up(
        self, db: Database, world: World, clock: FakeClock
    ) -> None:
        tried: list[float] = []

        def fail(message: Outgoing) -> None:
            if message.text == "a":
                tried.append(clock.time)
                raise ZeroDivisionError("a bug")

        world.channel.fail = fail
        await queue(db, "a", "b")
        await world.settle()
        while "b" not in world.channel.texts:
            pause = await db.write(first_due) - db.now()
            clock.time += pause - 0.1
            await world.settle()
            clock.time += 0.2
            await world.settle()
        assert len(tried) == MAX_ATTEMPTS
        pauses = [later - sooner for sooner, later in itertools.pairwise(tried)]
        assert pauses == pytest.approx([0.5 * 2**number for number in range(MAX_ATTEMPTS - 1)], abs=0.11)
        assert await db.write(rows) == [("dead", 9, "ZeroDivisionError"), ("sent", 0, None)]

    async def test_durability_09_a_row_without_a_counter_ends_at_the_same_limit(
        self, db: Database, world: World, clock: FakeClock
    ) -> None:
        world.channel.fail = failing(ZeroDivisionError())
        await queue(db, "a")
        await db.write(lambda tx: tx.execute(sa.update(outbound).values(attempts=None)).rowcount)
        await pass_time(world, clock, 400, 15)
        assert [state for state, *_ in await db.write(rows)] == ["dead"]

    async def test_other_addresses_do_not_wait_for_one_that_fails(
        self, db: Database, world: World, clock: FakeClock
    ) -> None:
        def fail(message: Outgoing) -> None:
            if message.address.chat == "1":
                raise DeliveryRetry("slow down", after=1000)

        world.channel.fail = fail
        await queue(db, "a", "b", chat="1")
        await queue(db, "a", "b", chat="2")
        await world.settle()
        assert [message.address.chat for message in world.channel.sent] == ["2", "2"]
        await pass_time(world, clock, 60, 3)
        assert [state for state, *_ in await db.write(rows)] == ["pending", "pending", "sent", "sent"]

    async def test_an_outage_is_waited_out_however_long_it_is(
        self, db: Database, world: World, clock: FakeClock
    ) -> None:
        world.channel.fail = failing(DeliveryRetry("no route to host"), 50)
        await queue(db, "a", "b")
        await pass_time(world, clock, 10, 60)
        assert world.channel.texts == ["a", "b"]

    async def test_the_wait_that_the_platform_asks_for_is_kept(
        self, db: Database, world: World, clock: FakeClock
    ) -> None:
        world.channel.fail = failing(DeliveryRetry("slow down", after=100), 1)
        await queue(db, "a")
        await world.settle()
        clock.time += 99
        await world.settle()
        assert world.channel.texts == []
        clock.time += 2
        await world.settle()
        assert world.channel.texts == ["a"]

    async def test_what_may_have_arrived_is_sent_once_more_and_no_third_time(
        self, db: Database, world: World, clock: FakeClock
    ) -> None:
        tried: list[str] = []

        def fail(message: Outgoing) -> None:
            tried.append(message.text)
            if message.text == "a":
                raise DeliveryUnsure("the answer is lost")

        world.channel.fail = fail
        await queue(db, "a", "b")
        await pass_time(world, clock)
        assert tried == ["a", "a", "b"]
        assert [state for state, *_ in await db.write(rows)] == ["unknown", "sent"]

    async def test_what_is_refused_for_good_is_given_up_at_once(
        self, db: Database, world: World, clock: FakeClock
    ) -> None:
        world.channel.fail = failing(DeliveryError("chat not found"), 1)
        await queue(db, "a", "b")
        await world.settle()
        assert await db.write(rows) == [("dead", 0, "chat not found"), ("sent", 0, None)]

    async def test_a_dead_route_takes_all_that_waits_for_its_address_and_nothing_else(
        self, db: Database, world: World, clock: FakeClock
    ) -> None:
        world.channel.fail = failing(DeadRoute("blocked"), 1)
        await queue(db, "a", "b", "c")
        await queue(db, "d", chat="2")
        await world.settle()
        lost = ("dead", 0, "blocked")
        assert await db.write(rows) == [lost, lost, lost, ("sent", 0, None)]
        await queue(db, "e")
        await world.settle()
        assert (await db.write(rows))[-1] == ("sent", 0, None)

    async def test_a_message_for_a_channel_that_is_not_there_waits_for_it(
        self, db: Database, world: World, clock: FakeClock
    ) -> None:
        await queue(db, "a", channel="gone")
        await pass_time(world, clock, 61, 20)
        assert [state for state, *_ in await db.write(rows)] == ["pending"]
        back = RecordingChannel(name="gone")
        sender = Sender(
            outbox=world.sender.outbox, channels={"gone": back}, bell=world.sender.bell, clock=clock
        )
        clock.time += 100
        async with asyncio.TaskGroup() as group:
            await sender.step(group)
        assert back.texts == ["a"]

    async def test_no_more_are_under_way_than_there_are_slots(self, db: Database, world: World) -> None:
        go, under_way = asyncio.Event(), 0
        most = 0

        @dataclass
        class Slow(RecordingChannel):
            async def send(self, message: Outgoing) -> Receipt:
                nonlocal under_way, most
                under_way += 1
                most = max(most, under_way)
                await go.wait()
                under_way -= 1
                return await RecordingChannel.send(self, message)

        world.channel = Slow()
        world.sender.channels = {"fake": world.channel}
        world.sender.slots = 3
        for chat in range(8):
            await queue(db, "a", chat=str(chat))
        async with asyncio.TaskGroup() as group:
            assert await world.sender.step(group) == 0.0
            assert await world.sender.step(group) == LOOK
            await asyncio.sleep(0)
            go.set()
        await world.settle()
        assert most == 3
        assert len(world.channel.sent) == 8

    async def test_a_drained_sender_delivers_what_is_due_and_ends(self, db: Database, world: World) -> None:
        def fail(_message: Outgoing) -> None:
            world.sender.drain()

        world.sender.slots = 1
        world.channel.fail = fail
        await queue(db, "a", chat="1")
        await queue(db, "a", chat="2")
        async with asyncio.timeout(5):
            await world.sender.serve()
        assert len(world.channel.sent) == 2
        assert [state for state, *_ in await db.write(rows)] == ["sent", "sent"]


@dataclass
class Flaky:
    """Raises these errors one after the other, and then returns."""

    errors: list[Exception]
    clock: FakeClock
    lasts: float = 0.0
    began: list[float] = field(default_factory=list)

    async def run(self) -> None:
        self.began.append(self.clock.time)
        self.clock.time += self.lasts
        if self.errors:
            raise self.errors.pop(0)


class TestSupervise:
    async def test_it_begins_again_after_growing_pauses_up_to_a_minute(
        self, clock: FakeClock, caplog: pytest.LogCaptureFixture
    ) -> None:
        flaky = Flaky([RuntimeError(f"no {number}") for number in range(10)], clock)
        seen = Supervised("one")
        await supervise(flaky.run, seen, clock, chance=Random(1))
        assert len(flaky.began) == 11
        for number, slept in enumerate(clock.slept):
            middle = min(60.0, 2.0 ** (number + 1))
            assert middle * 0.5 <= slept <= middle * 1.5
        assert [record.message for record in caplog.records] == ["channel.down"] * 10

    async def test_after_a_good_hour_the_pause_is_short_again(self, clock: FakeClock) -> None:
        flaky = Flaky([RuntimeError() for _ in range(8)], clock, lasts=3600)
        await supervise(flaky.run, Supervised("one"), clock)
        assert max(clock.slept) <= 1.5

    async def test_one_that_the_platform_refuses_stays_down_and_the_others_run(
        self, clock: FakeClock, caplog: pytest.LogCaptureFixture
    ) -> None:
        refused = Flaky([ChannelStopped("the token was revoked")], clock)
        other = Flaky([RuntimeError("no")], clock)
        seen = [Supervised("refused"), Supervised("other")]
        await asyncio.gather(supervise(refused.run, seen[0], clock), supervise(other.run, seen[1], clock))
        assert len(refused.began) == 1
        assert (seen[0].state, seen[0].problem) == ("stopped", "the token was revoked")
        assert (len(other.began), seen[1].state) == (2, "ended")
        stopped = [record for record in caplog.records if record.message == "channel.stopped"]
        assert len(stopped) == 1
        assert stopped[0].exc_info is None, "it is told in one line"

    async def test_its_trouble_is_shown_while_it_is_down(self, clock: FakeClock) -> None:
        seen = Supervised("one")
        shown: list[tuple[str, str]] = []

        @dataclass(slots=True)
        class Watching(FakeClock):
            async def sleep(self, seconds: float) -> None:
                shown.append((seen.state, seen.problem))
                await FakeClock.sleep(self, seconds)

        flaky = Flaky([ConnectionError("no route")], clock)
        await supervise(flaky.run, seen, Watching())
        assert shown == [("down", "ConnectionError: no route")]

    async def test_cancelling_ends_it(self, clock: FakeClock) -> None:
        async def run() -> None:
            await asyncio.Event().wait()

        task = asyncio.create_task(supervise(run, Supervised("one"), clock))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


class TestPersist:
    async def test_a_write_is_repeated_until_it_is_stored_with_pauses_of_at_most_five_seconds(
        self, clock: FakeClock
    ) -> None:
        tries = iter(range(100))

        async def write() -> int:
            if (number := next(tries)) < 8:
                raise StoreError("full")
            return number

        assert await persist(write, clock) == 8
        assert clock.slept == [0.5, 1.0, 2.0, 4.0, 5.0, 5.0, 5.0, 5.0]


class TestBells:
    """The loops look at the tables when somebody rings; without a ring they would look a minute later."""

    @pytest.mark.parametrize("kind", ["sqlite"], indirect=True)
    @pytest.mark.parametrize("slots", [1, 8])
    @pytest.mark.parametrize("parallel", [1, 64])
    async def test_no_message_sleeps_however_it_meets_the_end_of_a_turn(
        self, db: Database, parallel: int, slots: int
    ) -> None:
        """Real loops and a real clock; a message that is overlooked misses the time limit of the test."""
        chance = Random(parallel * 100 + slots)
        world = World(db=db, clock=SystemClock(), model=ScriptedModel(echo), slots=slots)
        world.worker.parallel = parallel
        async with asyncio.timeout(45), asyncio.TaskGroup() as group:
            loops = [group.create_task(world.worker.serve()), group.create_task(world.sender.serve())]
            for number in range(120):
                for text in ("first", "second"):
                    await world.put(said(f"{text} {number}", str(number % 3)))
                    world.worker.bell.ring()
                    await asyncio.sleep(chance.choice((0, 0.0005, 0.001, 0.002, 0.004, 0.008)))
                while not await db.write(_all_quiet, durable=False):  # noqa: ASYNC110 - it rings nobody
                    await asyncio.sleep(0.002)
            for loop in loops:
                loop.cancel()
        prompts = [one for prompt in world.model.prompts for one in prompt.entries]
        heard = {one.text for one in prompts if isinstance(one, UserEntry)}
        assert len(heard) == 240


def _all_quiet(tx: Connection) -> bool:
    """Return whether nothing waits for a turn or for its delivery."""
    unread = tx.execute(sa.select(sa.func.count()).where(inbound.c.seq.is_(None))).scalar_one()
    unsent = tx.execute(sa.select(sa.func.count()).where(outbound.c.state != "sent")).scalar_one()
    busy = tx.execute(sa.select(sa.func.count()).where(conversation.c.ready_at.is_not(None))).scalar_one()
    return unread + unsent + busy == 0
