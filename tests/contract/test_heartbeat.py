"""Heartbeats in a whole core: what they cost, what people see of them, and what the next one knows."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from gateway.bell import Bell
from gateway.config import HeartbeatSettings
from gateway.errors import DeliveryError, ModelBusy, ModelRefused
from gateway.heartbeat import AGAIN, NAME, Heartbeat, next_slot
from gateway.models.base import Prompt
from gateway.prompt import Prompts
from gateway.store import beats, history
from gateway.store.beats import HOME
from gateway.store.engine import Database
from gateway.store.tables import beat, conversation, entry, inbound, member, outbound
from gateway.store.usage import Ledger
from gateway.timer import Timer
from gateway.tools.box import Toolbox
from gateway.tools.files import FILE_TOOLS
from gateway.turn import Beats
from gateway.types import Address, AssistantEntry, Chat, Kind, OnUnknown, Outgoing, ToolEntry, UserEntry
from gateway.workspace import Workspace
from tests.fakes.clock import FakeClock
from tests.fakes.scripted import RecordingChannel, ScriptedModel, call, calls, in_turn
from tests.fakes.world import World, said

ZONE = ZoneInfo("Europe/Berlin")
TEMPLATES = Path(__file__).parents[2] / "workspace"
CHECKLIST = "# Checks\n- Is there a meeting in the next two hours?\n- Did a nightly job fail?\n"
OWNER = [("fake", "7")]


@dataclass(slots=True)
class Heart:
    """A world with a heart: `tick` lets the next slot come."""

    world: World
    heartbeat: Heartbeat
    clock: FakeClock
    workspace: Workspace

    @property
    def calls(self) -> int:
        return len(self.world.model.prompts)

    def write(self, text: str | None) -> None:
        """Write the checklist, or remove it."""
        file = self.workspace.path / "HEARTBEAT.md"
        file.unlink(missing_ok=True)
        if text is not None:
            file.write_text(text, encoding="utf-8")

    async def slot(self) -> None:
        """Go to the next slot, and let it be decided about."""
        slot = next_slot(self.clock.time, 1800, self.heartbeat._hours, self.heartbeat.zone)
        assert slot is not None
        self.clock.time = slot.at
        await self.heartbeat.beat(slot.key)

    async def tick(self, count: int = 1) -> None:
        for _ in range(count):
            await self.slot()
            await self.world.settle()

    async def recent(self, limit: int = 50) -> list[dict[str, Any]]:
        return await self.world.db.write(lambda tx: beats.recent(tx, limit))

    async def results(self, limit: int = 50) -> list[str]:
        """Return what became of the last beats, the oldest first."""
        return [one["reason"] or one["status"] for one in reversed(await self.recent(limit))]


Make = Callable[..., Heart]


@pytest.fixture
def make(db: Database, clock: FakeClock, tmp_path: Path) -> Make:
    def build(*answers: Any, owners: Any = tuple(OWNER), answer: Any = None, **settings: Any) -> Heart:
        chosen = HeartbeatSettings(**{"every": "30m", **settings})
        workspace = Workspace(tmp_path / "workspace", TEMPLATES)
        workspace.seed()
        channel = RecordingChannel()
        ledger = Ledger(clock=clock, zone=ZONE)
        heartbeat = Heartbeat(
            settings=chosen,
            db=db,
            clock=clock,
            zone=ZONE,
            workspace=workspace,
            timer=Timer(clock),
            bell=Bell(),
            channels={channel.name: channel},
            owners=owners,
            model=lambda: "scripted",
            ledger=ledger,
        )
        specs = Toolbox(FILE_TOOLS).specs
        world = World(
            db=db,
            clock=clock,
            model=ScriptedModel(answer or in_turn(*(answers or ("HEARTBEAT_OK",)))),
            channel=channel,
            prompts=Prompts(workspace, specs, "Europe/Berlin", clock, light=chosen.light),
            beats=Beats(
                max_rounds=chosen.max_rounds,
                ack_max_chars=chosen.ack_max_chars,
                is_repeat=heartbeat.is_repeat,
            ),
            endings={Kind.HEARTBEAT: heartbeat.ended},
            ledger=ledger,
        )
        heart = Heart(world, heartbeat, clock, workspace)
        heart.write(CHECKLIST)
        return heart

    return build


async def met(heart: Heart, chat: str = "1") -> Heart:
    """Let the owner say hello, so that there is somebody to tell."""
    await heart.world.say("hello", chat=chat)
    heart.world.channel.sent.clear()
    heart.world.model.prompts.clear()
    return heart


def sizes(tx: Connection) -> dict[str, int]:
    """Return how many entries each conversation has."""
    rows = tx.execute(
        sa.select(conversation.c.address, sa.func.count(entry.c.seq).label("entries"))
        .outerjoin(entry, entry.c.conversation_id == conversation.c.id)
        .group_by(conversation.c.address)
    )
    return {row.address: row.entries for row in rows}


async def test_heartbeat_reply_01_nothing_is_sent_or_queued_for_a_bare_ok(make: Make, db: Database) -> None:
    heart = await met(make("hi", "HEARTBEAT_OK"))
    await heart.tick()
    assert heart.calls == 1
    assert heart.world.channel.sent == []
    assert await db.write(lambda tx: tx.execute(sa.select(sa.func.count(outbound.c.id))).scalar_one()) == 1
    assert await heart.results() == ["ok"]


async def test_an_alert_goes_to_the_owner_and_can_be_asked_about(make: Make) -> None:
    heart = await met(make("hi", "Job 7 failed at night.", "That job copies the mail."))
    await heart.tick()
    assert [(one.address.key, one.text) for one in heart.world.channel.sent] == [
        ("fake:1:", "Job 7 failed at night.")
    ]
    assert heart.world.channel.sent[0].on_unknown is OnUnknown.DROP
    await heart.world.say("what was that about?")
    mirrored, asked = heart.world.model.prompts[-1].entries[-2:]
    assert isinstance(mirrored, UserEntry)
    assert (mirrored.text, mirrored.kind, mirrored.aimed) == ("Job 7 failed at night.", Kind.HEARTBEAT, False)
    assert asked.text == "what was that about?"
    last = (await heart.recent())[0]
    assert (last["status"], last["target"], last["delivery"]) == ("alert", "fake:1", "sent")
    assert last["tokens"] == 12


async def test_the_page_shows_a_delivered_alert_as_the_bots_and_no_silent_reply(
    make: Make, db: Database
) -> None:
    heart = await met(make("hi", "Job 7 failed.", "NO_REPLY"))
    await heart.tick()
    await heart.world.say("thanks")
    shown = await db.read(lambda tx: history.messages(tx, Address("fake", "1"), 50, None))
    assert [(one["role"], one["text"]) for one in shown] == [
        ("user", "hello"),
        ("assistant", "hi"),
        ("assistant", "Job 7 failed."),
        ("user", "thanks"),
    ]
    newest = await db.read(lambda tx: history.messages(tx, Address("fake", "1"), 1, None))
    assert [one["text"] for one in newest] == ["thanks"], (
        "a page is full although a silent reply came between"
    )


async def test_heartbeat_reply_06_a_message_that_comes_during_a_beat_is_answered_as_usual(make: Make) -> None:
    async def answer(prompt: Prompt) -> AssistantEntry:
        if isinstance(prompt.entries[-1], UserEntry) and prompt.entries[-1].kind is Kind.HEARTBEAT:
            await heart.world.put(said("when is the meeting?"))
        return AssistantEntry("HEARTBEAT_OK. The meeting is at 15:00.")

    heart = make(answer=answer)
    await heart.world.say("hello")
    heart.world.channel.sent.clear()
    await heart.tick()
    assert heart.world.channel.texts == ["The meeting is at 15:00."]


async def test_heartbeat_reply_10_a_second_call_that_fails_sends_nothing(make: Make) -> None:
    heart = await met(make("hi", "", ModelBusy("HTTP 500"), answer=None))
    heart.world.model.answer = in_turn(
        AssistantEntry("<tool_call>{}</tool_call>"), ModelBusy("HTTP 500: garbage")
    )
    await heart.tick()
    assert heart.world.channel.sent == []
    assert await heart.results() == ["HTTP 500: garbage"]


async def test_heartbeat_fire_02_an_empty_checklist_costs_nothing_for_thirty_days(
    make: Make, db: Database
) -> None:
    heart = await met(make())
    heart.write("# Heartbeat\n\n<!-- write tasks for the hourly check here -->\n\n- [ ] \n")
    before = await db.write(sizes)
    for _ in range(30 * 48 if db.exclusive else 48):
        await heart.slot()
    await heart.world.settle()
    assert heart.calls == 0
    assert await db.write(sizes) == before
    assert set(await heart.results(2000)) == {"empty-checklist"}


async def test_heartbeat_fire_01_without_a_file_the_configured_beat_runs(make: Make) -> None:
    heart = await met(make())
    heart.write(None)
    await heart.tick()
    assert heart.calls == 1


async def test_without_a_configured_interval_nothing_runs_until_there_is_an_item(make: Make) -> None:
    heart = await met(make(every=""))
    heart.write(None)
    await heart.tick()
    assert (heart.calls, await heart.results()) == (0, ["disabled"])
    heart.write(CHECKLIST)
    await heart.tick()
    assert heart.calls == 1


async def test_cost_02_fifty_beats_cost_the_same_each_and_leave_no_trace_in_any_chat(
    make: Make, db: Database
) -> None:
    heart = await met(make())
    for number in range(20):
        await heart.world.say(f"message {number} " + "x" * 500)
    heart.world.model.prompts.clear()
    heart.world.channel.sent.clear()
    before = await db.write(sizes)
    await heart.tick(50)
    inputs = [_size(prompt) for prompt in heart.world.model.prompts]
    assert len(inputs) == 50
    assert max(inputs) - min(inputs) <= min(inputs) / 100
    assert max(inputs) / 3 <= 3000, "tokens, at three characters each"
    assert all("xxxx" not in repr(prompt.entries) for prompt in heart.world.model.prompts)
    assert heart.world.channel.sent == []
    after = await db.write(sizes)
    assert after.pop(HOME.key) <= 2 * beats.SESSIONS
    assert after == before


def _size(prompt: Prompt) -> int:
    tools = sum(len(repr(spec)) for spec in prompt.tools)
    return len(prompt.system) + len(prompt.context) + sum(len(one.text) for one in prompt.entries) + tools


async def test_a_light_beat_sees_its_checklist_and_no_other_file_and_no_tool_with_effects(make: Make) -> None:
    heart = await met(make())
    await heart.tick()
    (prompt,) = heart.world.model.prompts
    assert "Did a nightly job fail?" in prompt.system
    assert "SOUL.md" not in prompt.system
    assert {spec.name for spec in prompt.tools} == {"read", "list_dir"}
    assert "Nobody wrote" in prompt.context
    assert [type(one) for one in prompt.entries] == [UserEntry]
    assert prompt.entries[0].text.startswith("Read HEARTBEAT.md if it exists")


async def test_a_beat_that_is_not_light_sees_all_files_and_its_own_prompt(make: Make) -> None:
    heart = await met(make(light=False, prompt="Look around."))
    await heart.tick()
    (prompt,) = heart.world.model.prompts
    assert "## SOUL.md" in prompt.system
    assert prompt.entries[0].text == "Look around."


async def test_a_beat_that_is_not_isolated_remembers_the_last_one(make: Make) -> None:
    heart = await met(make(isolated=False))
    await heart.tick(3)
    assert [len(prompt.entries) for prompt in heart.world.model.prompts] == [1, 3, 5]


async def test_a_call_that_writes_is_refused_in_a_beat(make: Make) -> None:
    heart = make("hi", calls(call("write", path="a.txt", content="x")), "HEARTBEAT_OK")
    turns = heart.world.worker.turns
    turns.agent = replace(turns.agent, tools=Toolbox(FILE_TOOLS), workspace=heart.workspace.path)
    await met(heart)
    await heart.tick()
    result = heart.world.model.prompts[-1].entries[-1]
    assert isinstance(result, ToolEntry)
    assert result.is_error
    assert not (heart.workspace.path / "a.txt").exists()


async def test_a_beat_that_never_ends_is_wrapped_up(make: Make) -> None:
    numbers = itertools.count()

    def answer(prompt: Prompt) -> AssistantEntry:
        if not prompt.tools_allowed:
            return AssistantEntry("HEARTBEAT_OK")
        return calls(call("look", at=next(numbers)))

    heart = make(answer=answer, max_rounds=4)
    heart.world.model.answer = in_turn("hi")
    await met(heart)
    heart.world.model.answer = answer
    await heart.tick()
    assert len(heart.world.tools.ran) == 4
    assert await heart.results() == ["ok"]


async def test_an_alert_that_says_the_same_is_shown_once_a_day(make: Make) -> None:
    heart = await met(make("hi", *(f"Disk at {number} percent" for number in range(60)), "Another thing"))
    await heart.tick(48)
    assert heart.world.channel.texts == ["Disk at 0 percent"]
    assert await heart.results() == ["alert", *["repeat"] * 47]
    await heart.tick()
    assert heart.world.channel.texts == ["Disk at 0 percent", "Disk at 48 percent"]
    heart.world.model.answer = in_turn("Mail from Bob")
    await heart.tick()
    assert heart.world.channel.texts[-1] == "Mail from Bob"


async def test_heartbeat_fire_12_three_failures_in_a_row_are_told_once_and_the_chat_stays_quiet(
    make: Make,
) -> None:
    heart = await met(make("hi", ModelBusy("scripted: HTTP 429: quota", hint="The model is busy.")))
    await heart.tick(48)
    assert heart.calls <= 8
    (notice,) = heart.world.channel.sent
    assert notice.key.startswith("heartbeat:trouble:")
    assert "scripted" in notice.text
    assert "heartbeat" in notice.text


async def test_cost_01_a_refusal_pauses_beats_until_the_model_answers_a_person(make: Make) -> None:
    heart = await met(
        make("hi", ModelRefused("HTTP 401: no key", hint="The model provider refused the API key."))
    )
    await heart.tick(48)
    assert heart.calls == 1
    (notice,) = heart.world.channel.sent
    assert "refused the API key" in notice.text
    assert "/heartbeat resume" in notice.text
    assert (await heart.results())[1:] == ["paused"] * 47
    heart.world.model.answer = in_turn("welcome back", "HEARTBEAT_OK")
    heart.clock.time += 1
    await heart.world.say("hello again")
    await heart.tick()
    assert (await heart.results())[-1] == "ok"


async def test_after_a_pause_that_a_person_ends_the_next_refusal_is_told_again(make: Make) -> None:
    heart = await met(make("hi", ModelRefused("HTTP 402", hint="No credit left.")))
    await heart.tick(2)
    await heart.heartbeat.act("resume")
    await heart.tick(2)
    assert heart.calls == 2
    assert len(heart.world.channel.sent) == 1, "no answer came between: it is still the same trouble"


async def test_cost_04_a_used_up_budget_stops_beats_until_the_next_local_day(make: Make) -> None:
    heart = make(daily_tokens=24)
    heart.clock.time = datetime(2026, 5, 6, 22, 10, tzinfo=ZONE).timestamp()
    await met(heart)
    await heart.tick(5)
    assert await heart.results() == ["ok", "ok", "budget", "ok", "ok"]


async def test_the_owner_who_is_away_for_long_costs_less_and_less_and_is_told_once(make: Make) -> None:
    heart = await met(make())
    await heart.tick(48)
    assert heart.calls == 48
    heart.clock.time += 7 * 86_400
    heart.world.model.prompts.clear()
    await heart.tick(48)
    assert heart.calls == 12
    heart.clock.time += 14 * 86_400
    heart.world.model.prompts.clear()
    await heart.tick(48)
    assert heart.calls == 0
    assert len(heart.world.channel.sent) == 1
    assert "three weeks" in heart.world.channel.texts[0]
    await heart.world.say("I am back")
    await heart.tick()
    assert (await heart.results())[-1] == "ok"


async def test_a_checklist_under_which_all_is_well_may_be_looked_at_less_often(make: Make) -> None:
    heart = await met(make(idle_every=4))
    await heart.tick(8 + 8)
    assert heart.calls == 8 + 2
    heart.write(CHECKLIST + "- And this?\n")
    await heart.tick()
    assert heart.calls == 11


async def test_a_beat_is_no_word_of_a_person(make: Make, db: Database) -> None:
    heart = await met(make("hi", "Something is wrong"))
    before = await db.write(lambda tx: beats.owner_route(tx, OWNER, ["fake"]))
    await heart.tick(3)
    after = await db.write(lambda tx: beats.owner_route(tx, OWNER, ["fake"]))
    assert before is not None
    assert after is not None
    assert after.last == before.last


async def test_heartbeat_fire_10_a_running_turn_goes_on_and_the_beat_comes_after_it(make: Make) -> None:
    go = asyncio.Event()

    async def answer(prompt: Prompt) -> AssistantEntry:
        if people(prompt)[-1] == "work":
            await go.wait()
            return AssistantEntry("worked")
        return AssistantEntry("HEARTBEAT_OK")

    def people(prompt: Prompt) -> list[str]:
        return [one.text for one in prompt.entries if isinstance(one, UserEntry)]

    heart = make(answer=answer)
    await heart.world.say("hello")
    heart.world.model.prompts.clear()
    await heart.world.put(said("work"))
    slot = next_slot(heart.clock.time, 1800, heart.heartbeat._hours, ZONE)
    assert slot is not None
    heart.clock.time = slot.at
    async with asyncio.TaskGroup() as group:
        await heart.world.worker.step(group)
        assert await heart.heartbeat.beat(slot.key) == AGAIN
        assert heart.calls == 1
        go.set()
    await heart.world.settle()
    assert heart.world.channel.texts[-1] == "worked"
    assert await heart.heartbeat.beat(slot.key, deferred=1) == 0
    await heart.world.settle()
    assert heart.calls == 2
    assert await heart.results() == ["ok"]


async def test_a_slot_that_is_known_fires_no_second_time(make: Make) -> None:
    heart = await met(make())
    slot = next_slot(heart.clock.time, 1800, heart.heartbeat._hours, ZONE)
    assert slot is not None
    heart.clock.time = slot.at
    for _ in range(3):
        await heart.heartbeat.beat(slot.key)
        await heart.world.settle()
    assert heart.calls == 1
    heart.clock.time += 7 * 3600
    await heart.heartbeat.beat(slot.key)
    await heart.world.settle()
    assert heart.calls == 1, "nor after a clock that was set back and forth"


async def test_a_chat_that_refuses_for_good_is_not_written_to_until_somebody_writes(make: Make) -> None:
    heart = await met(make("hi", "First alert", "Second thing", "Third matter"))

    def refuse(_message: Outgoing) -> None:
        raise DeliveryError("bot was blocked by the user")

    heart.world.channel.fail = refuse
    await heart.tick(3)
    assert heart.calls == 1
    assert await heart.results() == ["alert", "dead-route", "dead-route"]
    heart.world.channel.fail = lambda _message: None
    heart.clock.time += 1
    await heart.world.say("unblocked")
    await heart.tick()
    assert (await heart.results())[-1] == "alert"


@pytest.mark.parametrize(
    ("target", "owners", "sent"),
    [
        pytest.param("owner", OWNER, "fake:1:", id="routing-01"),
        ("owner", [], None),
        ("owner", [("gone", "7"), ("fake", "7")], "fake:1:"),
        ("owner", [("fake", "8")], None),
        ("last", [], "fake:room:"),
        ("none", OWNER, None),
        ("fake:99", [], "fake:99:"),
        ("fake:99:topic:5", [], "fake:99:topic:5"),
        ("gone:99", OWNER, None),
    ],
)
async def test_alerts_go_where_the_target_says_and_the_owner_is_never_a_group(
    make: Make, target: str, owners: list[tuple[str, str]], sent: str | None
) -> None:
    heart = make("hi", "hi", "An alert", target=target, owners=owners)
    await heart.world.say("hello", chat="1")
    heart.clock.time += 5
    await heart.world.say("hello all", chat="room", group=True)
    heart.world.channel.sent.clear()
    await heart.tick()
    assert [one.address.key for one in heart.world.channel.sent] == ([] if sent is None else [sent])
    if sent is None and target != "none":
        assert await heart.results() == ["no-route"]
        assert heart.calls == 2


async def test_an_owner_of_the_table_goes_before_those_of_the_file(make: Make, db: Database) -> None:
    heart = await met(make("hi", "An alert", owners=[("fake", "8")]))
    values = {"channel": "fake", "sender": "7", "role": "owner", "name": "Ann", "at": 1.0}
    await db.write(lambda tx: tx.execute(sa.insert(member).values(**values)).rowcount)
    await heart.tick()
    assert heart.world.channel.texts == ["An alert"]


async def test_what_only_one_reader_may_know_stays_out_of_a_beat_for_a_group(
    make: Make, db: Database
) -> None:
    heart = await met(make(target="last", light=False))
    heart.clock.time += 5
    await heart.world.say("hello all", chat="room", group=True)
    (heart.workspace.path / "MEMORY.md").write_text("secret plans", encoding="utf-8")
    heart.world.model.prompts.clear()
    await heart.tick()
    (prompt,) = heart.world.model.prompts
    assert "secret plans" not in prompt.system
    chats = await db.write(
        lambda tx: tx.execute(
            sa.select(conversation.c.chat).where(conversation.c.address == HOME.key)
        ).scalar_one()
    )
    assert chats == Chat.GROUP


async def test_a_stopped_beat_does_not_keep_the_next_one_from_running(make: Make) -> None:
    heart = await met(make())
    slot = next_slot(heart.clock.time, 1800, heart.heartbeat._hours, ZONE)
    assert slot is not None
    heart.clock.time = slot.at
    await heart.heartbeat.beat(slot.key)
    await heart.world.worker.journal.stop(HOME)
    await heart.tick()
    assert await heart.results() == ["it was stopped", "ok"]


async def test_a_person_can_pause_resume_ask_and_start_one(make: Make) -> None:
    heart = await met(make())
    act = heart.heartbeat.act
    assert "paused" in (await act("pause"))["text"]
    await heart.tick()
    assert await heart.results() == ["paused"]
    shown = await act("status")
    assert shown["next_at"] is None
    assert "paused" in shown["text"]
    assert (await act("now", dry_run=True))["text"].endswith("heartbeats are paused.")
    assert heart.calls == 0
    await act("resume")
    assert (await act("now", dry_run=True))["text"] == "A heartbeat that is due now would run."
    assert (await act("now"))["text"].startswith("A heartbeat begins")
    await heart.world.settle()
    assert heart.calls == 1
    shown = await act("status")
    assert shown["last"]["status"] == "ok"
    assert shown["next_at"] > heart.clock.time
    assert "12 tokens" in shown["text"]
    with pytest.raises(ValueError, match="status, now, pause or resume"):
        await act("dance")


async def test_six_at_once_are_a_flood(make: Make) -> None:
    heart = await met(make())
    texts = []
    for _ in range(6):
        heart.clock.time += 1
        texts.append((await heart.heartbeat.act("now"))["text"])
        await heart.world.settle()
    assert heart.calls == 5
    assert texts[-1] == "No heartbeat: too many heartbeats within a minute."


async def test_the_history_of_beats_has_an_end(make: Make, db: Database) -> None:
    heart = await met(make())
    heart.write("")
    await heart.tick()

    def more(tx: Connection) -> int:
        row = dict(tx.execute(sa.select(beat)).mappings().one())
        for number in range(beats.KEPT + 50):
            beats.put(tx, {**{name: row[name] for name in row if name != "id"}, "slot": f"s{number}"})
        return int(tx.execute(sa.select(sa.func.count(beat.c.id))).scalar_one())

    assert await db.write(more) == beats.KEPT


class SteadyClock(FakeClock):
    """Its time does not move by waiting."""

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(0.01)


async def test_the_timer_keeps_the_next_beat_whatever_became_of_the_last(make: Make) -> None:
    heart = await met(make())
    clock = SteadyClock(heart.clock.time)
    heart.heartbeat.clock = heart.world.worker.clock = heart.world.sender.clock = clock
    timer = heart.heartbeat.timer = Timer(clock, tick=0.01)
    heart.heartbeat.bell = heart.world.worker.bell
    working = [
        asyncio.create_task(run())
        for run in (timer.serve, heart.heartbeat.serve, heart.world.worker.serve, heart.world.sender.serve)
    ]
    for _ in range(5000):
        ended = (await heart.results()).count("ok")
        if ended == 3:
            break
        if timer.at(NAME) is not None and ended == (clock.time - heart.clock.time) // 1801:
            clock.time += 1801  # whatever the machine did meanwhile
        await asyncio.sleep(0.005)
    for task in working:
        task.cancel()
    await asyncio.wait(working)
    assert await heart.results() == ["ok"] * 3


async def test_the_input_rows_of_old_beats_are_let_go(make: Make, db: Database) -> None:
    heart = await met(make())
    await heart.tick(beats.SESSIONS + 10)
    count = sa.select(sa.func.count(inbound.c.id)).where(inbound.c.kind == Kind.HEARTBEAT)
    assert await db.write(lambda tx: tx.execute(count).scalar_one()) == beats.SESSIONS
