"""Schedules on both databases: each slot once, late ones by the rules, failures by the rules, nothing lost."""

from __future__ import annotations

import asyncio
import functools
import itertools
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TypeVar
from zoneinfo import ZoneInfo

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from gateway import cron
from gateway.access import Policy
from gateway.agenda import Agenda
from gateway.bell import Bell
from gateway.errors import ModelBusy, ModelRefused, StoreError
from gateway.intake import level_now
from gateway.models.base import Prompt
from gateway.store import members
from gateway.store.engine import Database, Work, open_database
from gateway.store.firing import ALERT_EVERY, BACKOFF, KEEP_RUNS, MAX_FAILURES, retry
from gateway.store.jobs import Delivery, Job, Rules, Run, Session, State, Status, Wanted, summary
from gateway.store.schedules import Schedules
from gateway.store.tables import conversation, entry, inbound, member, schedule, schedule_run
from gateway.store.usage import Ledger
from gateway.timer import Timer
from gateway.types import Address, AssistantEntry, Chat, Kind, Level, Sender, UserEntry
from tests.fakes.clock import FakeClock
from tests.fakes.scripted import ScriptedModel, call, calls, in_turn, people
from tests.fakes.world import World

T = TypeVar("T")

BERLIN = ZoneInfo("Europe/Berlin")
HERE = Address("fake", "1")
RULES = Rules(zone=BERLIN)


def at(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=BERLIN).timestamp()


def wanted(
    when: str, clock: FakeClock, *, name: str = "tea", prompt: str = "Say: tea!", **more: object
) -> Wanted:
    plain = Wanted(
        address=HERE,
        chat=Chat.DIRECT,
        sender=Sender("7", level="user"),
        name=name,
        trigger=cron.read(when, clock.wall(), BERLIN),
        zone=BERLIN,
        prompt=prompt,
    )
    return replace(plain, **more)  # type: ignore[arg-type]  # the fields of Wanted


@dataclass(slots=True)
class Office:
    """A core with schedules, whose time moves when told."""

    world: World
    schedules: Schedules
    clock: FakeClock

    async def add(self, when: str, **more: object) -> Job:
        job, _ = await self.schedules.save(wanted(when, self.clock, **more))  # type: ignore[arg-type]  # as above
        return job

    async def work(self, seconds: float = 0.0) -> None:
        """Let time pass, then fire what is due and do what follows from it."""
        self.clock.time += seconds
        await self.schedules.fire()
        await self.world.settle()

    async def until(self, text: str) -> None:
        """Go to a local time, however far, without a look in between."""
        await self.work(at(text) - self.clock.time)

    async def only(self) -> Job:
        [job] = await self.schedules.jobs()
        return job

    async def runs(self, which: str) -> list[Run]:
        return list(reversed(await self.schedules.history(which, 5000)))

    @property
    def texts(self) -> list[str]:
        return self.world.channel.texts


def answer(prompt: Prompt) -> AssistantEntry:
    return AssistantEntry(people(prompt.entries)[-1].rpartition("Say: ")[2])


def open_office(db: Database, clock: FakeClock, rules: Rules = RULES) -> Office:
    schedules = Schedules(db=db, clock=clock, rules=rules)
    ledger = Ledger(clock=clock, zone=BERLIN)
    world = World(db=db, clock=clock, model=ScriptedModel(answer), ledger=ledger)
    world.worker.turns.endings = {Kind.CRON: schedules.ended}
    return Office(world, schedules, clock)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(at("2026-06-01T08:00"))


@pytest.fixture
def office(db: Database, clock: FakeClock) -> Office:
    return open_office(db, clock)


async def test_a_slot_becomes_a_turn_whose_reply_reaches_the_chat(office: Office) -> None:
    job = await office.add("30 8 * * *")
    await office.work(29 * 60)
    assert office.texts == []
    await office.work(60)
    assert office.texts == ["tea!"]
    assert [message.address for message in office.world.channel.sent] == [HERE]
    [run] = await office.runs(job.id)
    assert (run.slot, run.status, run.tokens, run.delivered) == ("2026-06-01T08:30", Status.OK, 12, "sent")
    now = await office.only()
    assert now.next_at == at("2026-06-02T08:30")
    assert now.last is not None
    assert now.last.status is Status.OK
    [prompt] = office.world.model.prompts
    [said] = prompt.entries
    assert isinstance(said, UserEntry)
    assert (said.kind, said.sender) == (Kind.CRON, Sender("7", level="user")), (
        "with the rights of whoever set it"
    )
    [told] = people(prompt.entries)
    assert told == "[Schedule “tea”. It is Mon 2026-06-01 08:30 +02:00.]\nSay: tea!"


async def test_cron_04_a_slot_in_a_short_outage_runs_once_and_is_marked_late(office: Office) -> None:
    job = await office.add("30 8 * * *")
    await office.until("2026-06-01T08:29:47")
    await office.until("2026-06-01T08:31:05")
    await office.work()
    await office.work(60)
    [run] = await office.runs(job.id)
    assert (run.slot, run.at - run.due_at) == ("2026-06-01T08:30", 65)
    assert office.texts == ["tea!"]


async def test_the_model_is_told_when_it_is_late(office: Office) -> None:
    await office.add("30 8 * * *")
    await office.until("2026-06-01T09:10")
    assert "09:10 +02:00, 40 minutes late.]" in people(office.world.model.prompts[0].entries)[0]


async def test_cron_08_after_three_days_an_hourly_schedule_catches_up_once(office: Office) -> None:
    job = await office.add("0 * * * *")
    await office.work(72 * 3600 + 1800)
    await office.work(60)
    runs = await office.runs(job.id)
    assert [run.slot for run in runs] == ["2026-06-04T08:00"]
    assert (await office.only()).next_at == at("2026-06-04T09:00")


async def test_cron_12_eight_seconds_late_is_not_too_late(office: Office) -> None:
    await office.add("30 8 * * *")
    await office.until("2026-06-01T08:30:08")
    assert office.texts == ["tea!"]


async def test_what_is_later_than_the_grace_is_noted_as_missed_and_not_made_up_for(office: Office) -> None:
    job = await office.add("30 8 * * *")
    await office.until("2026-06-01T09:31")
    [run] = await office.runs(job.id)
    assert (run.slot, run.status) == ("2026-06-01T08:30", Status.MISSED)
    assert office.world.model.prompts == []
    await office.until("2026-06-02T08:30")
    assert office.texts == ["tea!"]


async def test_a_reminder_may_be_a_day_late_and_then_says_that_it_was_missed(office: Office) -> None:
    await office.add("+20m", name="soon")
    await office.work(23 * 3600)
    assert office.texts == ["tea!"]
    await office.add("+20m", name="lost")
    await office.work(25 * 3600)
    assert len(office.world.model.prompts) == 1
    assert "“lost” off: the gateway was not running at " in office.texts[1]
    assert "Say: tea!" in office.texts[1], "so that the person still learns what it was about"
    assert (await office.only()).state is State.OFF


async def test_a_reminder_is_gone_after_its_success_and_its_run_stays(office: Office) -> None:
    job = await office.add("in 20 minutes")
    await office.work(1200)
    assert office.texts == ["tea!"]
    assert await office.schedules.jobs() == []
    assert [run.status for run in await office.runs(job.id)] == [Status.OK]
    await office.work(3600)
    assert office.texts == ["tea!"]


class TestOneFiring:
    async def test_of_many_looks_at_once_one_fires(self, office: Office) -> None:
        await office.add("30 8 * * *")
        office.clock.time += 1800
        await asyncio.gather(*(office.schedules.fire() for _ in range(10)))
        await office.world.settle()
        assert office.texts == ["tea!"]

    async def test_two_nodes_with_a_thousand_slots_fire_each_exactly_once(
        self, db: Database, url: str, clock: FakeClock
    ) -> None:
        rules = replace(RULES, lane=10_000, most=10_000)
        other = db if db.exclusive else await open_database(url, clock)
        nodes = [Schedules(db=each, clock=clock, rules=rules) for each in (db, other)]
        for number in range(50):
            await nodes[0].save(wanted("*/5 * * * *", clock, name=f"job{number}", session=Session.CURRENT))
        for _ in range(20):
            clock.time += 300
            await asyncio.gather(*(node.fire() for node in nodes for _ in range(2)))
        if other is not db:
            await other.close()

        def count(tx: Connection) -> tuple[int, int, int]:
            slots = sa.select(sa.func.count(), sa.func.count(schedule_run.c.key.distinct()))
            fired, names = tx.execute(slots.select_from(schedule_run)).one()
            waiting = sa.select(sa.func.count()).select_from(inbound).where(inbound.c.kind == Kind.CRON)
            return fired, names, int(tx.execute(waiting).scalar_one())

        assert await db.write(count) == (1000, 1000, 1000)

    @pytest.mark.parametrize("jump", [-3600.0, 3600.0])
    async def test_a_clock_that_jumps_and_comes_back_fires_nothing_twice(
        self, office: Office, jump: float
    ) -> None:
        daily = await office.add("30 8 * * *", name="daily")
        often = await office.add("*/10 * * * *", name="often")
        steady = await office.add("every 10m", name="steady")
        for _ in range(2):
            for _ in range(5):
                await office.work(600)
            await office.work(jump)
            for _ in range(5):
                await office.work(600)
            await office.work(-jump)
        for job in (daily, often, steady):
            slots = [run.slot for run in await office.runs(job.id)]
            assert len(slots) == len(set(slots))
            assert slots == sorted(slots)

    async def test_a_slot_is_not_started_while_the_one_before_it_goes_on(self, office: Office) -> None:
        job = await office.add("*/5 * * * *")
        office.clock.time += 300
        await office.schedules.fire()
        office.clock.time += 300
        await office.schedules.fire()
        assert [run.status for run in await office.runs(job.id)] == [Status.RUNNING, Status.SKIPPED]
        await office.work(300)
        statuses = [run.status for run in await office.runs(job.id)]
        assert statuses == [Status.OK, Status.SKIPPED, Status.SKIPPED]
        await office.work(300)
        assert len(office.texts) == 2

    async def test_no_more_runs_go_on_at_once_than_the_lane_holds(
        self, db: Database, clock: FakeClock
    ) -> None:
        office = open_office(db, clock, replace(RULES, lane=3))
        for number in range(7):
            await office.add("30 8 * * *", name=f"job{number}")
        clock.time += 1800
        started = []
        for _ in range(4):
            started.append((await office.schedules.fire()).turns)
            await office.world.settle()
        assert started == [3, 3, 1, 0]
        assert len(office.texts) == 7

    async def test_a_full_lane_is_looked_at_again_soon(self, db: Database, clock: FakeClock) -> None:
        office = open_office(db, clock, replace(RULES, lane=1))
        for number in range(2):
            await office.add("30 8 * * *", name=f"job{number}")
        clock.time += 1800
        fired = await office.schedules.fire()
        assert fired.next_at is not None
        assert 0 < fired.next_at - clock.time <= 5

    async def test_a_terminal_fires_only_its_own_schedules(self, db: Database, clock: FakeClock) -> None:
        office = open_office(db, clock, replace(RULES, channel="console"))
        await office.add("+5m")
        fired = await office.schedules.fire()
        assert (fired.runs, fired.next_at) == ([], None)
        clock.time += 600
        fired = await office.schedules.fire()
        assert (fired.runs, fired.next_at) == ([], None)


class TestFailures:
    async def test_a_failed_run_is_tried_again_after_growing_pauses_until_it_succeeds(
        self, office: Office
    ) -> None:
        job = await office.add("0 9 * * *")
        asked: list[float] = []

        def fail(prompt: Prompt) -> AssistantEntry:
            asked.append(office.clock.time)
            if len(asked) < 5:
                raise ModelBusy("503")
            return answer(prompt)

        office.world.model.answer = fail
        for _ in range(6 * 60):
            await office.work(30)
        pauses = [later - sooner for sooner, later in itertools.pairwise(asked)]
        assert asked[0] == at("2026-06-01T09:00")
        assert pauses == list(BACKOFF[:4])
        assert office.texts[-1] == "tea!"
        runs = await office.runs(job.id)
        assert {run.slot for run in runs} == {"2026-06-01T09:00"}
        assert [run.status for run in runs] == [Status.FAILED] * 4 + [Status.OK]
        assert runs[0].problem == "503"
        now = await office.only()
        assert (now.failures, now.next_at) == (0, at("2026-06-02T09:00"))

    async def test_after_ten_failures_in_a_row_it_is_switched_off_with_one_notice(
        self, office: Office
    ) -> None:
        job = await office.add("0 9 * * *")
        office.world.model.answer = in_turn(ModelBusy("503"))
        for _ in range(3 * 24 * 12):
            await office.work(300)
        now = await office.only()
        assert (now.state, now.failures, now.next_at) == (State.OFF, MAX_FAILURES, None)
        assert len(office.world.model.prompts) == MAX_FAILURES
        notices = [text for text in office.texts if "switched" in text]
        assert len(notices) == 1
        assert "failed 10 times in a row" in notices[0]
        assert len(await office.runs(job.id)) == MAX_FAILURES

    async def test_the_chat_is_told_after_two_failures_and_at_most_once_an_hour(self, office: Office) -> None:
        await office.add("*/15 * * * *")
        office.world.model.answer = in_turn(ModelBusy("the words of a provider"))
        told: list[float] = []
        for _ in range(3 * 60):
            before = len(office.texts)
            await office.work(60)
            told += [office.clock.time] * (len(office.texts) - before)
        assert "failed 2 times in a row" in office.texts[0]
        assert all(later - sooner >= ALERT_EVERY for sooner, later in itertools.pairwise(told))
        assert "the words of a provider" not in "".join(office.texts), (
            "raw words of a provider stay in the history"
        )

    async def test_a_reminder_that_failed_is_kept_and_never_replayed(self, office: Office) -> None:
        await office.add("+20m")
        office.world.model.answer = in_turn(ModelBusy("503"))
        for _ in range(6 * 60):
            await office.work(60)
        assert len(office.world.model.prompts) == 1 + len(BACKOFF)
        assert (await office.only()).state is State.OFF
        office.world.model.answer = answer
        await office.work(86_400)
        assert not [text for text in office.texts if text == "tea!"]

    async def test_a_reminder_that_can_never_succeed_is_given_up_at_once(self, office: Office) -> None:
        await office.add("+20m")
        office.world.model.answer = in_turn(ModelRefused("401", hint="The key is wrong."))
        for _ in range(10):
            await office.work(600)
        assert len(office.world.model.prompts) == 1
        assert office.texts == [
            "I have switched the schedule “tea” off: it failed (The key is wrong.).\nIt was to do this: Say: tea!"
        ]

    async def test_a_failed_delivery_is_no_failed_run(self, office: Office) -> None:
        job = await office.add("*/30 * * * *")

        def refuse(message: object) -> None:
            raise ZeroDivisionError

        office.world.channel.fail = refuse
        await office.work(1800)
        for _ in range(12):
            await office.work(120)
        runs = await office.runs(job.id)
        assert runs[0].status is Status.OK
        assert runs[0].delivered == "dead"
        assert (await office.only()).failures == 0

    @pytest.mark.parametrize(
        ("when", "failures", "attempt", "expected"),
        [
            ("0 9 * * *", 1, 0, (30, True)),
            ("0 9 * * *", 5, 4, (3600, True)),
            ("0 9 * * *", 9, 5, (86_400, False)),
            ("* * * * *", 1, 0, (30, True)),
            ("* * * * *", 2, 0, (60, False)),
            ("* * * * *", 3, 0, (300, False)),
            ("*/10 * * * *", 4, 0, (1200, False)),
        ],
    )
    def test_a_pause_is_never_shorter_than_asked_even_for_a_frequent_schedule(
        self, when: str, failures: int, attempt: int, expected: tuple[float, bool]
    ) -> None:
        now = at("2026-06-01T09:00")
        found, same = retry(cron.parse_cron(when), failures, attempt, now, BERLIN)
        assert found is not None
        assert (found - now, same) == expected


class TestRights:
    """What a run may do is what whoever set it may do then, not when it was set (spec CR-13)."""

    @pytest.fixture
    def office(self, db: Database, clock: FakeClock) -> Office:
        policies = {"fake": Policy(section="channels.fake", owners=("1",), allow_from=("8",))}
        return open_office(db, clock, replace(RULES, level=functools.partial(level_now, policies)))

    async def let_in(self, office: Office, level: Level) -> None:
        row = {"channel": "fake", "sender": "7", "role": level, "name": "Ann", "at": 0.0}
        await office.schedules.db.write(lambda tx: tx.execute(sa.insert(member).values(row)).rowcount)

    async def shut_out(self, office: Office) -> None:
        assert await office.schedules.db.write(lambda tx: members.revoke(tx, "fake", "7"))

    async def test_a_schedule_of_somebody_who_is_not_let_in_any_more_is_switched_off_and_says_so(
        self, office: Office
    ) -> None:
        await self.let_in(office, Level.USER)
        job = await office.add("0 * * * *")
        await office.until("2026-06-01T09:00")
        assert office.texts == ["tea!"]
        await self.shut_out(office)
        await office.until("2026-06-01T10:00")
        await office.until("2026-06-01T11:00")
        assert len(office.world.model.prompts) == 1
        [notice] = office.texts[1:]
        assert notice.startswith(
            "I have switched the schedule “tea” off: whoever set it is not let in any more."
        )
        now = await office.only()
        assert (now.state, now.next_at) == (State.OFF, None)
        assert len(await office.runs(job.id)) == 1

    async def test_nor_can_it_be_run_by_hand(self, office: Office) -> None:
        await self.let_in(office, Level.USER)
        await office.add("0 * * * *")
        await self.shut_out(office)
        with pytest.raises(ValueError, match="whoever set it is not let in any more"):
            await office.schedules.run("tea")
        await office.world.settle()
        assert office.world.model.prompts == []

    async def test_a_failed_run_is_not_tried_again_for_somebody_who_was_shut_out(
        self, office: Office
    ) -> None:
        await self.let_in(office, Level.USER)
        await office.add("+20m")
        office.world.model.answer = in_turn(ModelBusy("503"))
        await office.work(1200)
        await self.shut_out(office)
        await office.work(60)
        assert len(office.world.model.prompts) == 1
        assert (await office.only()).problem == "whoever set it is not let in any more"

    @pytest.mark.parametrize(
        ("then", "sender", "now"),
        [("owner", "7", "user"), ("user", "1", "owner"), ("owner", "8", "user")],
        ids=["by approval", "as owner of the configuration", "as person of the configuration"],
    )
    async def test_a_run_has_the_rights_of_now(
        self, office: Office, then: str, sender: str, now: str
    ) -> None:
        await self.let_in(office, Level.USER)
        await office.add("30 8 * * *", sender=Sender(sender, level=then))
        await office.work(1800)
        [said] = office.world.model.prompts[0].entries
        assert isinstance(said, UserEntry)
        assert said.sender == Sender(sender, level=now)

    async def test_who_may_write_only_because_everybody_may_has_lost_the_schedules(
        self, db: Database, clock: FakeClock
    ) -> None:
        policies = {"fake": Policy(section="channels.fake", mode="open", allow_from=("*",))}
        office = open_office(db, clock, replace(RULES, level=functools.partial(level_now, policies)))
        await office.add("30 8 * * *")
        await office.work(1800)
        assert office.world.model.prompts == []
        assert (await office.only()).state is State.OFF

    async def test_a_node_that_does_not_listen_there_trusts_what_was_noted(
        self, db: Database, clock: FakeClock
    ) -> None:
        office = open_office(db, clock, replace(RULES, level=functools.partial(level_now, {})))
        await office.add("30 8 * * *")
        await office.work(1800)
        assert office.texts == ["tea!"]


class TestWhatPeopleSee:
    @pytest.mark.parametrize(
        "text", ["NO_REPLY", "HEARTBEAT_OK", "**NO_REPLY**", "", '{"action": "NO_REPLY"}']
    )
    async def test_silence_is_silence(self, office: Office, text: str) -> None:
        job = await office.add("30 8 * * *")
        office.world.model.answer = in_turn(text)
        await office.work(1800)
        assert office.texts == []
        [run] = await office.runs(job.id)
        assert (run.status, run.delivered) == (Status.OK, "")

    async def test_each_isolated_run_begins_afresh_and_costs_the_same(self, office: Office) -> None:
        await office.add("*/5 * * * *")
        await office.world.say("hello")
        for _ in range(50):
            await office.work(300)
        sizes = {(len(one.entries), len(people(one.entries)[0])) for one in office.world.model.prompts[1:]}
        assert len(office.world.model.prompts) == 51
        assert sizes == {(1, len("[Schedule “tea”. It is Mon 2026-06-01 08:30 +02:00.]\nSay: tea!"))}

    async def test_the_chat_knows_afterwards_what_it_was_told(self, office: Office) -> None:
        await office.add("30 8 * * *")
        await office.work(1800)
        await office.world.say("what was that about?")
        told = people(office.world.model.prompts[-1].entries)
        assert told == ["tea!", "what was that about?"]

    async def test_cron_15_a_reminder_that_comes_back_wakes_nobody_and_makes_no_schedule(
        self, office: Office
    ) -> None:
        await office.add("30 8 * * *", name="water", prompt="Say: drink water")
        await office.work(1800)
        for _ in range(5):
            await office.work(60)
        assert office.texts == ["drink water"]
        assert len(office.world.model.prompts) == 1
        assert len(await office.schedules.jobs()) == 1

    async def test_a_run_in_the_current_session_sees_the_chat(self, office: Office) -> None:
        await office.world.say("hello")
        await office.add("30 8 * * *", session=Session.CURRENT)
        await office.work(1800)
        assert office.texts == ["hello", "tea!"]
        assert people(office.world.model.prompts[-1].entries)[0] == "hello"

    async def test_with_delivery_none_nothing_is_sent(self, office: Office) -> None:
        job = await office.add("30 8 * * *", delivery=Delivery.NONE)
        await office.work(1800)
        await office.work(3600)
        assert office.texts == []
        assert [run.status for run in await office.runs(job.id)] == [Status.OK]

    async def test_an_unattended_turn_has_few_rounds(self, office: Office) -> None:
        await office.add("30 8 * * *")
        numbers = itertools.count()
        office.world.model.answer = lambda prompt: (
            AssistantEntry("done") if not prompt.tools_allowed else calls(call("look", at=next(numbers)))
        )
        await office.work(1800)
        assert office.texts == ["done"]
        assert len(office.world.model.prompts) == 16

    async def test_a_run_that_was_stopped_is_closed_and_the_next_slot_comes(self, office: Office) -> None:
        job = await office.add("*/30 * * * *", session=Session.CURRENT)
        office.clock.time += 1800
        await office.schedules.fire()
        await office.world.worker.journal.stop(HERE)
        await office.work(60)
        assert [run.status for run in await office.runs(job.id)] == [Status.STOPPED]
        await office.work(1800)
        assert office.texts == ["tea!"]


class TestBudget:
    async def test_cost_04_a_used_up_day_is_skipped_without_a_model_call_until_the_next(
        self, db: Database, clock: FakeClock
    ) -> None:
        office = open_office(db, clock, replace(RULES, daily_tokens=30))
        job = await office.add("0 9-20 * * *")
        for _ in range(12):
            await office.work(3600)
        assert len(office.world.model.prompts) == 3, "12 tokens each"
        runs = await office.runs(job.id)
        assert [run.status for run in runs] == [Status.OK] * 3 + [Status.SKIPPED] * 9
        assert "budget" in runs[-1].problem
        await office.until("2026-06-02T09:00")
        assert len(office.world.model.prompts) == 4


class TestChanges:
    async def test_a_name_is_one_schedule_of_a_chat(self, office: Office, clock: FakeClock) -> None:
        job = await office.add("30 8 * * *")
        changed, new = await office.schedules.save(wanted("45 8 * * *", clock, prompt="Say: coffee!"))
        assert (changed.id, new) == (job.id, False)
        other, new = await office.schedules.save(wanted("30 8 * * *", clock, address=Address("fake", "2")))
        assert new
        assert other.id != job.id
        await office.until("2026-06-01T08:45")
        assert sorted((one.address.chat, one.text) for one in office.world.channel.sent) == [
            ("1", "coffee!"),
            ("2", "tea!"),
        ]

    async def test_an_interval_that_is_asked_for_again_keeps_its_beat(
        self, office: Office, clock: FakeClock
    ) -> None:
        job = await office.add("every 1h")
        clock.time += 1000
        again = await office.add("every 60m")
        assert again.next_at == job.next_at

    async def test_what_is_paused_does_not_fire_and_does_not_make_up_for_it(self, office: Office) -> None:
        await office.add("30 8 * * *")
        await office.schedules.pause("tea")
        await office.until("2026-06-01T08:40")
        assert office.texts == []
        job = await office.schedules.resume("tea")
        assert job.next_at == at("2026-06-02T08:30")
        await office.until("2026-06-02T08:30")
        assert office.texts == ["tea!"]

    async def test_what_is_removed_is_gone(self, office: Office) -> None:
        await office.add("30 8 * * *")
        assert await office.schedules.remove("tea") == "tea"
        await office.work(1800)
        assert office.texts == []
        with pytest.raises(ValueError, match="there are: none"):
            await office.schedules.remove("tea")

    async def test_a_run_by_hand_does_not_move_the_slots(self, office: Office) -> None:
        job = await office.add("30 8 * * *")
        assert await office.schedules.run("tea") == "tea"
        await office.work()
        assert office.texts == ["tea!"]
        assert (await office.only()).next_at == job.next_at
        await office.work(1800)
        assert office.texts == ["tea!", "tea!"]

    async def test_a_reminder_that_is_run_by_hand_still_comes(self, office: Office) -> None:
        await office.add("+20m")
        await office.schedules.run("tea")
        await office.work()
        await office.work(1200)
        assert office.texts == ["tea!", "tea!"]

    async def test_what_runs_already_is_not_started_by_hand(self, office: Office) -> None:
        await office.add("30 8 * * *")
        await office.schedules.run("tea")
        with pytest.raises(ValueError, match="running already"):
            await office.schedules.run("tea")

    async def test_a_chat_sees_only_its_own(self, office: Office) -> None:
        job = await office.add("30 8 * * *")
        elsewhere = Address("fake", "2")
        assert await office.schedules.jobs(elsewhere) == []
        for act in (office.schedules.remove, office.schedules.pause, office.schedules.run):
            with pytest.raises(ValueError, match="there is no schedule"):
                await act(job.id, elsewhere)

    async def test_the_number_of_schedules_of_a_chat_is_bounded(self, office: Office) -> None:
        for number in range(RULES.most):
            await office.add("30 8 * * *", name=f"job{number}")
        with pytest.raises(ValueError, match="20 schedules already"):
            await office.add("30 8 * * *", name="one more")
        await office.add("30 8 * * *", name="job3")

    @pytest.mark.parametrize(
        ("more", "says"),
        [
            ({"name": " "}, "name must have"),
            ({"name": "x" * 81}, "name must have"),
            ({"prompt": "\n"}, "prompt must say"),
            ({"prompt": "x" * 4001}, "prompt must say"),
            ({"session": Session.CURRENT, "delivery": Delivery.NONE}, "needs session isolated"),
        ],
    )
    async def test_what_nobody_can_have_meant_is_refused(
        self, office: Office, more: dict[str, object], says: str
    ) -> None:
        with pytest.raises(ValueError, match=says):
            await office.add("30 8 * * *", **more)

    async def test_odd_signs_in_a_name_are_stored_on_one_line(self, office: Office) -> None:
        job = await office.add("30 8 * * *", name="a\0b\n\ud800 c")
        assert job.name == "ab ? c"

    async def test_a_reminder_whose_time_is_over_is_not_resumed(self, office: Office) -> None:
        await office.add("+20m")
        await office.schedules.pause("tea")
        office.clock.time += 3600
        with pytest.raises(ValueError, match="is over"):
            await office.schedules.resume("tea")


class TestTrouble:
    @pytest.mark.parametrize(
        "broken", [{"trigger": "{"}, {"trigger": '{"cron": "0 0 31 2"}'}, {"zone": "Mars/Olympus"}]
    )
    async def test_a_broken_schedule_is_switched_off_told_and_kept_and_harms_no_other(
        self, office: Office, db: Database, broken: dict[str, str]
    ) -> None:
        bad = await office.add("30 8 * * *", name="bad")
        await office.add("30 8 * * *", name="good")
        await db.write(
            lambda tx: tx.execute(sa.update(schedule).where(schedule.c.id == bad.id).values(broken)).rowcount
        )
        await office.work(1800)
        assert "tea!" in office.texts
        assert any("“bad” off: it can't be read" in text for text in office.texts)
        jobs = {job.name: job for job in await office.schedules.jobs()}
        assert jobs["bad"].state is State.OFF
        assert all(summary(job) for job in jobs.values())

    async def test_cron_13_a_store_that_cannot_be_read_leaves_every_schedule_as_it_is(
        self, office: Office, db: Database, clock: FakeClock
    ) -> None:
        await office.add("30 8 * * *")
        before = await db.write(rows)
        timer = Timer(clock)
        broken = Schedules(db=Unreadable(db), clock=clock, rules=RULES)
        agenda = Agenda(schedules=broken, timer=timer, worker_bell=Bell(), outbox_bell=Bell())
        clock.time += 1800
        await agenda.look()
        assert await db.write(rows) == before
        due = timer.at("cron")
        assert due is not None
        assert due - clock.time <= 5, "it is looked at again soon"

    async def test_old_runs_and_old_isolated_transcripts_are_forgotten(
        self, office: Office, db: Database
    ) -> None:
        job = await office.add("*/30 * * * *")
        for _ in range(4):
            await office.work(1800)
        await office.schedules.prune()
        assert len(await office.runs(job.id)) == 4
        await office.work(2 * 86_400)
        await office.schedules.prune()
        left = await db.write(lambda tx: list(tx.execute(sa.select(entry.c.session).distinct()).scalars()))
        assert left == [5], "only the newest run can still be looked at"
        await office.work(6 * 86_400)
        await office.schedules.prune()
        assert [run.slot[:10] for run in await office.runs(job.id)] == ["2026-06-03", "2026-06-09"]

    async def test_the_history_of_one_schedule_is_bounded(self, office: Office, db: Database) -> None:
        job = await office.add("30 8 * * *")
        many = [
            {
                "schedule_id": job.id,
                "key": f"k{number}",
                "slot": str(number),
                "due_at": 0,
                "at": office.clock.time,
                "status": "ok",
            }
            for number in range(KEEP_RUNS + 5)
        ]
        await db.write(lambda tx: tx.execute(sa.insert(schedule_run), many).rowcount)
        await office.schedules.prune()
        found = await office.runs(job.id)
        assert (len(found), found[0].slot) == (KEEP_RUNS, "5")


def rows(tx: Connection) -> list[tuple[object, ...]]:
    return [tuple(row) for row in tx.execute(sa.select(schedule).order_by(schedule.c.id))]


class Unreadable:
    """A database that gives and takes nothing."""

    exclusive = True

    def __init__(self, inner: Database) -> None:
        self._inner = inner

    @property
    def failing(self) -> bool:
        return True

    def now(self) -> float:
        return self._inner.now()

    async def write(self, work: Work[T], *, durable: bool = True) -> T:
        raise StoreError("the file is malformed")

    async def read(self, work: Work[T]) -> T:
        raise StoreError("the file is malformed")

    async def close(self) -> None:
        return


class TestAgenda:
    @pytest.fixture
    async def agenda(self, office: Office) -> AsyncIterator[Agenda]:
        agenda = Agenda(
            schedules=office.schedules,
            timer=Timer(office.clock),
            worker_bell=office.world.worker.bell,
            outbox_bell=office.world.sender.bell,
        )
        office.schedules.changed = agenda.look_soon
        serving = asyncio.create_task(agenda.timer.serve())
        yield agenda
        serving.cancel()

    async def test_the_alarm_is_set_for_what_is_due_next(self, agenda: Agenda, office: Office) -> None:
        await agenda.look()
        alone = None if office.schedules.db.exclusive else office.clock.time + 30
        assert agenda.timer.at("cron") == alone
        await office.add("+10s")
        await agenda.look()
        assert agenda.timer.at("cron") == office.clock.time + 10

    async def test_a_change_is_noticed_at_once(self, agenda: Agenda, office: Office) -> None:
        await office.add("+10s")
        office.clock.time += 10
        await office.schedules.pause("tea")
        await office.schedules.run("tea")
        async with asyncio.timeout(5):
            await office.world.worker.bell.wait(None)
        await office.world.settle()
        assert office.texts == ["tea!"]

    async def test_while_runs_go_on_it_looks_again_soon(self, agenda: Agenda, office: Office) -> None:
        await office.add("30 8 * * *")
        office.clock.time += 1800
        await agenda.look()
        due = agenda.timer.at("cron")
        assert due is not None
        assert due - office.clock.time <= 5


async def test_the_conversation_of_a_schedule_is_its_own(office: Office, db: Database) -> None:
    job = await office.add("30 8 * * *")
    await office.work(1800)
    found = await db.write(lambda tx: list(tx.execute(sa.select(conversation.c.address)).scalars()))
    assert sorted(found) == sorted([f"cron:{job.id}:", "fake:1:"])


async def test_a_time_that_the_rules_of_its_zone_no_longer_give_still_runs(
    office: Office, db: Database
) -> None:
    job = await office.add("0 9 * * *")
    await db.write(lambda tx: tx.execute(sa.update(schedule).values(next_at=at("2026-06-01T08:45"))).rowcount)
    await office.until("2026-06-01T08:45")
    assert [run.slot for run in await office.runs(job.id)] == ["2026-06-01T08:45"]
    assert (await office.only()).next_at == at("2026-06-01T09:00")
