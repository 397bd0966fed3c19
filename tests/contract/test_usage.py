"""What models take is added up as it is stored; who has used up a limit waits, and loses nothing."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import aiohttp
import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from gateway import config, cron
from gateway.access import Policy
from gateway.allowance import Allowance
from gateway.app.opening import open_gateway
from gateway.bell import Bell
from gateway.cli import main
from gateway.clock import SystemClock
from gateway.commands import Commands
from gateway.config import HeartbeatSettings
from gateway.control import StoreControl
from gateway.heartbeat import Heartbeat
from gateway.intake import Intake
from gateway.models.base import OnRestart, OnText, Prompt, Reply
from gateway.store import beats
from gateway.store import usage as store_usage
from gateway.store.engine import Database, open_database
from gateway.store.inbox import Inbox
from gateway.store.jobs import Rules, Status, Wanted
from gateway.store.migrate import create
from gateway.store.schedules import Schedules
from gateway.store.tables import conversation, entry, inbound, outbound, pairing, usage, verdict
from gateway.store.usage import Ledger
from gateway.store.verdicts import KEPT, SPARE
from gateway.timer import Timer
from gateway.turn import CUT_NOTE, LIMIT_NOTE, TIME_SORRY
from gateway.types import (
    Address,
    AssistantEntry,
    Chat,
    JsonObject,
    Kind,
    Level,
    Sender,
    Standing,
    Stimulus,
    Usage,
    UserEntry,
)
from gateway.usage import DAY_OVER, SHARE_OVER, SHARE_OVER_HERE, Caps, Price, Rates
from gateway.workspace import Workspace
from tests.fakes.clock import FakeClock
from tests.fakes.scripted import ScriptedModel, call, calls, people
from tests.fakes.world import World, said

BERLIN = ZoneInfo("Europe/Berlin")
EVENING = datetime(2026, 5, 6, 22, 10, tzinfo=BERLIN).timestamp()
MIDNIGHT = datetime(2026, 5, 7, tzinfo=BERLIN).timestamp()
PRICES = {"scripted": Price(input=1000.0, output=10_000.0)}
"""One answer of the scripted model (10 tokens in, 2 out) costs 3 cents."""

Make = Callable[..., World]


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(EVENING)


@pytest.fixture
def make(db: Database, clock: FakeClock) -> Make:
    def build(caps: Caps = Caps(), rates: Rates | None = None, **more: object) -> World:  # noqa: B008 - frozen
        ledger = Ledger(clock=clock, zone=BERLIN, prices=PRICES)
        allowance = Allowance(db=db, clock=clock, ledger=ledger, caps=caps, rates=rates or Rates())
        model = ScriptedModel(
            lambda prompt: AssistantEntry(f"re: {people(prompt.entries)[-1]}", model="scripted")
        )
        parts: JsonObject = {
            "db": db,
            "clock": clock,
            "model": model,
            "ledger": ledger,
            "allowance": allowance,
        }
        return World(**parts | more)

    return build


def by(
    text: str, sender: str = "8", level: str = Level.USER, chat: str = "1", *, group: bool = False
) -> Stimulus:
    return replace(said(text, chat, group=group), sender=Sender(sender, "Bob", level))


async def rows(db: Database) -> list[JsonObject]:
    def work(tx: Connection) -> list[JsonObject]:
        return [dict(row) for row in tx.execute(sa.select(usage).order_by(*usage.primary_key)).mappings()]

    return await db.write(work)


async def count(db: Database, table: sa.Table) -> int:
    return await db.write(
        lambda tx: int(tx.execute(sa.select(sa.func.count()).select_from(table)).scalar_one())
    )


class TestAddingUp:
    async def test_each_call_is_added_to_the_row_of_its_day_and_conversation(self, make: Make) -> None:
        world = make()
        await world.say("one")
        await world.say("two")
        assert await rows(world.db) == [
            {
                "day": "2026-05-06",
                "agent": "main",
                "address": "fake:1:",
                "model": "scripted",
                "sender": "fake:7",
                "kind": "message",
                "calls": 2,
                "input": 20,
                "output": 4,
                "cached": 0,
                "cache_write": 0,
                "unpriced": 0,
                "usd": pytest.approx(0.06),
            }
        ]

    async def test_the_calls_of_a_turn_with_tools_count_each(self, make: Make) -> None:
        world = make()
        answers = iter([calls(call("look")), AssistantEntry("done", model="scripted")])
        world.model.answer = lambda _prompt: next(answers)
        await world.say("look")
        assert [(row["model"], row["calls"], row["unpriced"]) for row in await rows(world.db)] == [
            ("", 1, 12),
            ("scripted", 1, 0),
        ]

    async def test_a_day_ends_at_local_midnight(self, make: Make, clock: FakeClock) -> None:
        world = make()
        clock.time = MIDNIGHT - 1
        await world.say("late")
        clock.time = MIDNIGHT
        await world.say("early")
        assert [row["day"] for row in await rows(world.db)] == ["2026-05-06", "2026-05-07"]

    async def test_people_of_a_group_are_charged_for_what_they_asked(self, make: Make) -> None:
        world = make()
        for sender in ("8", "9", "8"):
            await world.put(by("hi", sender, group=True))
            await world.settle()
        assert {row["sender"]: row["calls"] for row in await rows(world.db)} == {"fake:8": 2, "fake:9": 1}

    async def test_what_the_bot_does_by_itself_is_told_apart(self, make: Make) -> None:
        world = make()
        alarm = Stimulus(
            key="k",
            address=Address("cron", "j1"),
            sender=Sender("7", level=Level.USER),
            text="do it",
            at=EVENING,
            kind=Kind.CRON,
            deliver_to="fake:1:",
        )
        await world.put(alarm)
        await world.settle()
        (row,) = await rows(world.db)
        assert (row["kind"], row["address"], row["sender"]) == ("cron", "cron:j1:", "fake:7")

    async def test_it_is_kept_with_the_entry_or_not_at_all(self, make: Make) -> None:
        world = make()
        await world.put(said("hi"))
        (claim,), _ = await world.worker.journal.claim(1)
        await world.worker.journal.stop(said("").address)
        paid, answer = Usage(input=10, output=2), [AssistantEntry("x", model="scripted")]
        with pytest.raises(Exception, match="fake:1"):
            await world.worker.journal.release(claim, answer, usage=paid)
        assert await rows(world.db) == []

    async def test_sums_stay_when_transcripts_go(self, make: Make, clock: FakeClock) -> None:
        world = make()
        await world.say("hi")
        await world.db.write(lambda tx: tx.execute(sa.delete(entry)).rowcount)
        spent = await world.db.write(lambda tx: store_usage.spent(tx, "2026-05-06"))
        assert spent.tokens == 12
        assert spent.usd == pytest.approx(0.03)


@pytest.mark.parametrize(
    "caps", [Caps(daily_usd=0.03), Caps(daily_tokens=12)], ids=["cost-04-usd", "cost-04-tokens"]
)
class TestUsedUpDay:
    async def test_a_person_is_told_once_in_each_chat_and_no_model_is_asked(
        self, make: Make, caps: Caps
    ) -> None:
        world = make(caps)
        await world.say("one")
        for text in ("two", "three"):
            await world.say(text)
        await world.say("hello", chat="2")
        assert world.channel.texts == ["re: one", DAY_OVER, DAY_OVER]
        assert [one.address.chat for one in world.channel.sent] == ["1", "1", "2"]
        assert len(world.model.prompts) == 1

    async def test_what_was_written_is_answered_on_the_next_local_day(
        self, make: Make, caps: Caps, clock: FakeClock
    ) -> None:
        world = make(caps)
        await world.say("one")
        await world.say("two")
        await world.say("three")
        clock.time = MIDNIGHT - 2
        await world.settle()
        assert len(world.model.prompts) == 1
        clock.time = MIDNIGHT + 1
        await world.settle()
        assert world.channel.texts[2:] == ["re: three"]
        assert people(world.model.prompts[-1].entries)[-2:] == ["two", "three"]

    async def test_the_notice_comes_again_on_another_day(
        self, make: Make, caps: Caps, clock: FakeClock
    ) -> None:
        world = make(caps)
        for day in range(2):
            clock.time = EVENING + day * 86_400
            await world.say(f"one {day}")
            await world.say(f"two {day}")
        assert world.channel.texts.count(DAY_OVER) == 2

    async def test_a_turn_stops_between_two_calls_and_goes_on_tomorrow(
        self, make: Make, caps: Caps, clock: FakeClock
    ) -> None:
        world = make(caps)
        answers = iter(
            [replace(calls(call("look")), model="scripted"), AssistantEntry("seen", model="scripted")]
        )
        world.model.answer = lambda _prompt: next(answers)
        await world.say("look")
        assert world.channel.texts == [DAY_OVER]
        clock.time = MIDNIGHT + 1
        await world.settle()
        assert world.channel.texts == [DAY_OVER, "seen"]
        assert len(world.tools.ran) == 1

    async def test_a_schedule_is_recorded_as_skipped_and_runs_on_the_next_day(
        self, make: Make, caps: Caps, clock: FakeClock
    ) -> None:
        world = make(caps)
        schedules = Schedules(db=world.db, clock=clock, rules=Rules(zone=BERLIN, caps=caps))
        world.worker.turns.endings = {Kind.CRON: schedules.ended}
        job, _ = await schedules.save(
            Wanted(
                address=Address("fake", "1"),
                chat=Chat.DIRECT,
                sender=Sender("7"),
                name="tea",
                trigger=cron.read("30 * * * *", clock.wall(), BERLIN),
                zone=BERLIN,
                prompt="tea",
            )
        )
        await world.say("one")
        for _ in range(2):
            clock.time += 3600
            await schedules.fire()
            await world.settle()
        runs = [(run.status, run.problem) for run in reversed(await schedules.history(job.id))]
        assert runs == [(Status.SKIPPED, "the budget of this day was used up"), (Status.OK, "")]
        assert clock.time > MIDNIGHT

    async def test_a_heartbeat_is_skipped_for_the_budget_of_everything(
        self, make: Make, caps: Caps, clock: FakeClock, tmp_path: Path
    ) -> None:
        world = make(caps)
        workspace = Workspace(tmp_path, tmp_path)
        heartbeat = Heartbeat(
            settings=HeartbeatSettings(every="30m"),
            db=world.db,
            clock=clock,
            zone=BERLIN,
            workspace=workspace,
            timer=Timer(clock),
            bell=Bell(),
            channels=["fake"],
            owners=[("fake", "7")],
            ledger=Ledger(clock=clock, zone=BERLIN),
            caps=caps,
        )
        await world.say("one")
        await heartbeat.beat("slot1")
        (beat,) = await world.db.write(lambda tx: beats.recent(tx, 5))
        assert (beat["status"], beat["reason"]) == ("skipped", "budget")

    async def test_what_runs_by_itself_when_the_day_ends_fails_and_waits_for_nobody(
        self, make: Make, caps: Caps
    ) -> None:
        ended: list[str] = []
        world = make(caps)
        world.worker.turns.endings = {Kind.SUBAGENT: lambda _tx, how: ended.append(how.problem)}
        await world.say("one")
        await world.put(replace(said("dig", "2"), kind=Kind.SUBAGENT))
        await world.settle()
        assert ended == [DAY_OVER]
        assert len(world.model.prompts) == 1

    async def test_after_a_restart_with_more_to_spend_it_goes_on_at_once(
        self, make: Make, caps: Caps
    ) -> None:
        world = make(caps)
        await world.say("one")
        await world.say("two")
        richer = make(Caps())
        assert richer.allowance is not None
        await richer.settle()
        assert richer.channel.texts == []
        await richer.allowance.begin()
        await richer.settle()
        assert richer.channel.texts == ["re: two"]

    async def test_who_looks_finds_the_notice_until_the_turn_goes_on(
        self, make: Make, caps: Caps, clock: FakeClock
    ) -> None:
        world = make(caps)
        first, *others = (said(text) for text in ("one", "two", "three"))

        async def notices() -> list[str | None]:
            day, now = Ledger(clock=clock, zone=BERLIN).today(), world.db.now()
            return await world.db.write(
                lambda tx: [store_usage.notice_of(tx, one.key, day, now) for one in others]
            )

        await world.put(first)
        await world.settle()
        assert await notices() == [None, None]
        for one in others:
            await world.put(one)
            await world.settle()
        assert await notices() == [DAY_OVER, DAY_OVER]
        clock.time = MIDNIGHT + 1
        assert await notices() == [None, None]

    async def test_stop_takes_back_what_waits(self, make: Make, caps: Caps, clock: FakeClock) -> None:
        world = make(caps)
        await world.say("one")
        await world.say("two")
        _, stopped = await world.worker.journal.stop(said("").address)
        assert stopped
        clock.time = MIDNIGHT + 1
        await world.settle()
        assert len(world.model.prompts) == 1


class TestShare:
    async def test_one_person_waits_and_others_do_not(self, make: Make) -> None:
        world = make(Caps(sender_tokens=12))
        for text, sender, chat in (("a", "8", "1"), ("b", "8", "1"), ("c", "9", "2")):
            await world.put(by(text, sender, chat=chat))
            await world.settle()
        assert world.channel.texts == ["re: a", SHARE_OVER, "re: c"]

    async def test_the_owner_has_no_share(self, make: Make) -> None:
        world = make(Caps(sender_tokens=12))
        for number in range(3):
            await world.say(str(number))
        assert len(world.model.prompts) == 3

    async def test_in_a_group_nobody_waits_behind_the_one_who_is_told_once(self, make: Make) -> None:
        world = make(Caps(sender_tokens=12))
        for text, sender in (("a", "8"), ("b", "8"), ("c", "9"), ("d", "8"), ("e", "9")):
            await world.put(by(text, sender, group=True))
            await world.settle()
        assert world.channel.texts == ["re: a", SHARE_OVER_HERE, "re: c", SHARE_OVER_HERE]
        assert people(world.model.prompts[-1].entries) == ["a", "b", "c"], "and nothing is lost"

    async def test_it_counts_for_a_person_wherever_they_write(self, make: Make) -> None:
        world = make(Caps(sender_tokens=12))
        await world.put(by("a", chat="1"))
        await world.settle()
        await world.put(by("b", chat="2"))
        await world.settle()
        assert world.channel.texts == ["re: a", SHARE_OVER]


class TestRate:
    async def test_what_comes_too_fast_waits_and_is_answered_together(
        self, make: Make, clock: FakeClock
    ) -> None:
        world = make(rates=Rates({Standing.OWNER: 2}))
        for number in range(5):
            await world.say(str(number))
        assert world.channel.texts == ["re: 0", "re: 1"]
        clock.time += 30
        await world.settle()
        assert world.channel.texts == ["re: 0", "re: 1", "re: 4"]
        assert people(world.model.prompts[-1].entries) == ["0", "1", "2", "3", "4"]

    async def test_nobody_else_waits(self, make: Make) -> None:
        world = make(rates=Rates({Standing.PERSON: 1, Standing.OWNER: 20}))
        await world.put(by("a", "8", chat="1"), by("b", "9", chat="2"))
        await world.settle()
        await world.say("c", chat="3")
        assert sorted(world.channel.texts) == ["re: a", "re: b", "re: c"]

    async def test_the_steps_of_one_turn_count_once(self, make: Make) -> None:
        world = make(rates=Rates({Standing.OWNER: 1}))
        answers = iter([*[calls(call("look"))] * 4, AssistantEntry("done")])
        world.model.answer = lambda _prompt: next(answers)
        await world.say("look")
        assert world.channel.texts == ["done"]

    async def test_what_the_bot_starts_itself_has_no_rate(self, make: Make) -> None:
        world = make(rates=Rates(dict.fromkeys(Standing, 1)))
        for number in range(3):
            await world.put(replace(said(str(number), str(number)), kind=Kind.CRON, sender=Sender("7")))
            await world.settle()
        assert len(world.model.prompts) == 3


class TestOneTurn:
    async def test_a_turn_that_costs_too_much_gets_a_last_word(self, make: Make) -> None:
        world = make(Caps(turn_tokens=36))

        def answer(prompt: Prompt) -> AssistantEntry:
            return calls(call("look")) if prompt.tools_allowed else AssistantEntry("so far so good")

        world.model.answer = answer
        await world.say("look at everything")
        assert world.channel.texts == ["so far so good"]
        assert len(world.model.prompts) == 4
        assert world.model.prompts[-1].nudge == LIMIT_NOTE

    async def test_each_turn_has_its_own(self, make: Make) -> None:
        world = make(Caps(turn_tokens=12))
        for number in range(3):
            await world.say(str(number))
        assert world.channel.texts == ["re: 0", "re: 1", "re: 2"]


class EndlessModel(ScriptedModel):
    """Says some words, and then nothing more, and never ends."""

    async def reply(
        self, prompt: Prompt, on_text: OnText | None = None, on_restart: OnRestart | None = None
    ) -> Reply:
        self.prompts.append(prompt)
        entry = self.answer(prompt)
        assert isinstance(entry, AssistantEntry)
        assert on_text is not None
        for word in entry.text.split():
            on_text(f"{word} ")
        await asyncio.Event().wait()
        raise AssertionError


class TestTime:
    async def test_size_009_what_came_of_a_reply_that_never_ends_is_kept_and_marked(self, make: Make) -> None:
        model = EndlessModel(lambda _prompt: AssistantEntry("Once upon a time"))
        world = make(model=model, turn_time=0.05)
        await world.say("tell me a story")
        assert world.channel.texts == [f"Once upon a time\n\n{CUT_NOTE}"]
        (row,) = await rows(world.db)
        assert row["output"] > 0, "nobody sent a bill, so it is estimated"
        model.answer = lambda prompt: AssistantEntry(f"re: {people(prompt.entries)[-1]}")
        await world.say("and then?")
        assert any(CUT_NOTE in one.text for one in model.prompts[-1].entries), "the model knows, too"

    async def test_where_nothing_came_it_says_so(self, make: Make) -> None:
        world = make(model=EndlessModel(lambda _prompt: AssistantEntry("")), turn_time=0.05)
        await world.say("hello?")
        assert world.channel.texts == [TIME_SORRY]

    async def test_a_turn_whose_time_is_over_gets_a_last_word(self, make: Make) -> None:
        world = make(turn_time=0.0)
        await world.say("hello")
        assert world.channel.texts == ["re: hello"]
        assert not world.model.prompts[-1].tools_allowed


async def test_size_015_of_strangers_without_number_nothing_grows(db: Database, clock: FakeClock) -> None:
    """Their messages are not stored, and what is noted about them is bounded."""
    intake = Intake(
        inbox=Inbox(db),
        policies={"fake": Policy(mode="pairing", allow_from=("7",))},
        commands=Commands(db=db, clock=clock, started=0, model=str, channels=dict),
        bell=Bell(),
        outbox_bell=Bell(),
        media_bell=Bell(),
        interrupt=lambda _which: None,
    )
    many = KEPT + 2 * SPARE
    for start in range(1000, 1000 + many, 500):
        await intake.accept([by("hi", str(n), "", str(n)) for n in range(start, start + 500)])
    assert await count(db, conversation) == 0
    assert await count(db, inbound) == 0
    assert await count(db, pairing) <= 3
    assert await count(db, outbound) <= 3
    assert await count(db, verdict) <= KEPT + SPARE


class TestAsking:
    @pytest.fixture
    async def world(self, make: Make, clock: FakeClock) -> World:
        world = make()
        clock.time = datetime(2026, 4, 30, 12, tzinfo=BERLIN).timestamp()
        await world.say("last month")
        clock.time = datetime(2026, 5, 2, 12, tzinfo=BERLIN).timestamp()
        await world.say("this month")
        clock.time = EVENING
        await world.say("today")
        await world.put(by("today", "8", chat="2"))
        await world.settle()
        return world

    async def asked(self, world: World, message: Stimulus) -> str:
        commands = Commands(
            db=world.db,
            clock=world.clock,
            started=0,
            model=str,
            channels=dict,
            ledger=Ledger(clock=world.clock, zone=BERLIN),
        )
        arrival = commands.read(message)
        assert arrival is not None
        await world.inbox.put([arrival])
        await world.settle()
        return world.channel.texts[-1]

    async def test_a_chat_is_told_its_own_day_and_month(self, world: World) -> None:
        assert await self.asked(world, said("/usage")) == (
            "This chat:\n"
            "today: 12 tokens in 1 call, $0.0300\n"
            "since 2026-05-01: 24 tokens in 2 calls, $0.0600\n"
            "- scripted: 24 tokens in 2 calls, $0.0600"
        )

    async def test_the_owner_is_told_of_all_chats_and_people(self, world: World) -> None:
        assert await self.asked(world, said("/usage all")) == (
            "All chats:\n"
            "today: 24 tokens in 2 calls, $0.0600\n"
            "since 2026-05-01: 36 tokens in 3 calls, $0.0900\n"
            "- scripted: 36 tokens in 3 calls, $0.0900\n"
            "- fake:7: 24 tokens in 2 calls, $0.0600\n"
            "- fake:8: 12 tokens in 1 call, $0.0300"
        )

    @pytest.mark.parametrize(
        "message", [by("/usage all"), said("/usage all", group=True)], ids=["somebody else", "in a group"]
    )
    async def test_nobody_else_learns_that(self, world: World, message: Stimulus) -> None:
        answer = await self.asked(world, message)
        assert "only my owner" in answer.lower()
        assert "$" not in answer

    @pytest.mark.parametrize(
        ("by_what", "keys"),
        [
            ("day", ["2026-05-02", "2026-05-06"]),
            ("conversation", ["fake:1", "fake:2"]),
            ("model", ["scripted"]),
            ("sender", ["fake:7", "fake:8"]),
            ("kind", ["message"]),
        ],
    )
    async def test_the_command_line_can_sum_it_up_in_other_ways(
        self, world: World, clock: FakeClock, by_what: str, keys: list[str]
    ) -> None:
        control = StoreControl(
            db=world.db,
            policies={},
            owned=True,
            sent=lambda: None,
            ledger=Ledger(clock=clock, zone=BERLIN),
        )
        report = await control.usage(by_what, 5)
        assert [row["key"] for row in report["rows"]] == keys
        assert report["since"] == "2026-05-02"
        assert report["total"] == {
            "calls": 3,
            "input": 30,
            "output": 6,
            "cached": 0,
            "cache_write": 0,
            "unpriced": 0,
            "usd": pytest.approx(0.09),
        }


class TestFooter:
    """`/usage tokens` and `/usage full`: what a reply took stands below it."""

    @pytest.fixture
    def world(self, make: Make) -> World:
        return make()

    async def type(self, world: World, text: str, chat: str = "1") -> str:
        """Type a command; return its answer."""
        commands = Commands(db=world.db, clock=world.clock, started=0.0, model=str, channels=dict)
        arrival = commands.read(said(text, chat))
        assert arrival is not None
        await world.inbox.put([arrival])
        await world.settle()
        return world.channel.texts[-1]

    async def test_there_is_none_before_somebody_wants_it(self, world: World) -> None:
        await world.say("one")
        assert world.channel.texts == ["re: one"]

    @pytest.mark.parametrize(
        ("which", "line"),
        [
            ("tokens", "— 10 tokens in, 2 out"),
            ("full", "— 12 tokens in 1 call, $0.0300, scripted"),
            ("FULL", "— 12 tokens in 1 call, $0.0300, scripted"),
        ],
    )
    async def test_it_is_the_last_line_of_each_reply_of_this_chat(
        self, world: World, which: str, line: str
    ) -> None:
        assert "last line" in await self.type(world, f"/usage {which}")
        await world.say("one")
        assert world.channel.texts[-1] == f"re: one\n\n{line}"
        await world.say("one", chat="2")
        assert world.channel.texts[-1] == "re: one", "another chat has its own"
        await self.type(world, "/usage off")
        await world.say("two")
        assert world.channel.texts[-1] == "re: two"

    async def test_all_calls_of_the_turn_are_in_it(self, world: World) -> None:
        await self.type(world, "/usage full")
        answers = iter([calls(call("look")), AssistantEntry("done", model="scripted")])
        world.model.answer = lambda _prompt: next(answers)
        await world.say("look")
        assert world.channel.texts[-1] == (
            "done\n\n— 24 tokens in 2 calls, $0.0300 and 12 tokens without a price, scripted"
        )

    async def test_the_model_never_sees_it(self, world: World) -> None:
        await self.type(world, "/usage tokens")
        await world.say("one")
        await world.say("two")
        assert "tokens in" not in str(world.model.prompts[-1].entries)

    @pytest.mark.parametrize("answer", ["NO_REPLY", ""])
    async def test_silence_and_failures_have_none(self, world: World, answer: str) -> None:
        await self.type(world, "/usage tokens")
        world.model.answer = lambda _prompt: AssistantEntry(answer)
        await world.say("one")
        assert "tokens in" not in world.channel.texts[-1]

    @pytest.mark.parametrize("kind", [Kind.HEARTBEAT, Kind.CRON])
    async def test_what_the_bot_says_by_itself_has_none(self, world: World, kind: Kind) -> None:
        await self.type(world, "/usage tokens")
        await world.put(replace(said("wake"), kind=kind))
        await world.settle()
        assert world.channel.texts[-1] == "re: wake"

    async def test_a_new_session_keeps_it_and_sums_are_told_as_before(self, world: World) -> None:
        await self.type(world, "/usage tokens")
        await self.type(world, "/new")
        await world.say("one")
        assert world.channel.texts[-1].endswith("2 out")
        assert (await self.type(world, "/usage")).startswith("This chat:")


async def ready(session: aiohttp.ClientSession) -> None:
    async with asyncio.timeout(20):
        while True:
            async with session.get("/readyz") as answer:
                if answer.status == 200:
                    return
            await asyncio.sleep(0.01)


class TestCommandLine:
    @pytest.fixture
    def file(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        monkeypatch.setenv("CRAYFISH_HOME", str(tmp_path))
        file = tmp_path / "config.toml"
        file.write_text('[model]\ndialect = "demo"\n[http]\nport = 0\n', encoding="utf-8")
        return file

    def note(self, file: Path) -> str:
        """Put a call into the database; return the day."""
        ledger = Ledger(prices={"gpt-5": Price(input=1, output=10)})

        async def work() -> None:
            db = await open_database(f"sqlite+aiosqlite:///{file.with_name('crayfish.db')}", SystemClock())
            await db.write(create)
            asked = [UserEntry("hi", Sender("7"), Kind.MESSAGE, 0.0)]
            paid = Usage(input=1_000_000, output=100_000)
            await db.write(lambda tx: ledger.note(tx, Address("fake", "1"), asked, paid, "openai/gpt-5"))
            await db.close()

        asyncio.run(work())
        return ledger.today()

    def test_without_a_gateway_the_database_is_asked(
        self, file: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        self.note(file)
        assert main(["usage", "--config", str(file), "--model"]) == 0
        assert capsys.readouterr().out.splitlines() == [
            "openai/gpt-5  1,100,000 tokens in 1 call, $2.0000",
            "in all        1,100,000 tokens in 1 call, $2.0000",
        ]

    def test_programs_get_json(self, file: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.note(file)
        assert main(["usage", "--config", str(file), "--json", "--days", "2"]) == 0
        report = json.loads(capsys.readouterr().out)
        assert report["by"] == "day"
        assert report["total"]["usd"] == 2.0

    @pytest.mark.parametrize("days", ["0", "-1", "x", "99999"])
    def test_a_number_of_days_that_is_none_is_refused(
        self, file: Path, days: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        with pytest.raises(SystemExit):
            main(["usage", "--config", str(file), "--days", days])
        assert "must be a number from 1 to 3660" in capsys.readouterr().err

    async def test_a_gateway_that_runs_is_asked(self, file: Path) -> None:
        await asyncio.to_thread(self.note, file)
        loaded = config.load(file, {"CRAYFISH_HOME": str(file.parent)}, file.parent)
        gateway = await open_gateway(loaded, SystemClock(), env={})
        allowance = gateway.worker.turns.allowance
        assert allowance is not None
        assert [allowance.rates.per_minute[one] for one in Standing] == [0, 20, 10, 0]
        url = str(gateway.channels["web"].status()["url"])
        stop = asyncio.Event()
        running = asyncio.create_task(gateway.run(stop))
        try:
            async with aiohttp.ClientSession() as session:
                async with session.get(f"{url}/api/usage?by=sender&days=2") as answer:
                    assert [row["key"] for row in (await answer.json())["rows"]] == ["fake:7"]
                for query in ("by=password", "days=0", "days=x", "days=99999"):
                    async with session.get(f"{url}/api/usage?{query}") as answer:
                        assert answer.status == 400
                        assert (await answer.json())["error"]["type"] == "bad_request"
        finally:
            stop.set()
            await running
            await gateway.close()

    async def test_a_program_that_waits_is_told_at_once_that_the_day_is_used_up(self, file: Path) -> None:
        file.write_text(f"{file.read_text(encoding='utf-8')}[limits]\ndaily_tokens = 1\n", encoding="utf-8")
        await asyncio.to_thread(self.note, file)
        loaded = config.load(file, {"CRAYFISH_HOME": str(file.parent)}, file.parent)
        gateway = await open_gateway(loaded, SystemClock(), env={})
        stop = asyncio.Event()
        running = asyncio.create_task(gateway.run(stop))
        try:
            url = str(gateway.channels["web"].status()["url"])
            async with aiohttp.ClientSession(url) as session:
                await ready(session)
                for number in range(2):
                    body = {"message": "hi", "id": f"m{number}", "wait": True}
                    async with session.post("/api/chat", json=body) as answer:
                        told = await answer.json()
                        assert (told["pending"], told["notice"]) == (True, DAY_OVER)
        finally:
            stop.set()
            await running
            await gateway.close()
