"""The tool `cron`: what the model says, what is stored, and what it is told when it is wrong."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from gateway.store.engine import Database
from gateway.store.jobs import Delivery, Job, Rules, Session
from gateway.store.schedules import Schedules
from gateway.tools.base import ToolContext
from gateway.tools.box import Toolbox
from gateway.tools.cron import cron_tool
from gateway.types import Address, Chat, Kind, Sender, ToolCall, ToolEntry
from tests.fakes.clock import FakeClock
from tests.fakes.scripted import situation

AUCKLAND = ZoneInfo("Pacific/Auckland")
HERE = Address("fake", "1")


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(datetime(2026, 6, 1, 10, tzinfo=AUCKLAND).timestamp())


@pytest.fixture
def schedules(db: Database, clock: FakeClock) -> Schedules:
    return Schedules(db=db, clock=clock, rules=Rules(zone=AUCKLAND))


@pytest.fixture
def box(schedules: Schedules, tmp_path: Path) -> Toolbox:
    return Toolbox([cron_tool(schedules)])


async def ask(
    box: Toolbox,
    *,
    tool: str = "cron",
    chat: Chat = Chat.DIRECT,
    address: Address = HERE,
    level: str = "owner",
    kind: Kind = Kind.MESSAGE,
    **args: object,
) -> ToolEntry:
    context = ToolContext(
        workspace=Path("/nowhere"),
        address=address,
        sender=Sender("7", "Ann", level),
        chat=chat,
        call_id="c1",
        kind=kind,
    )
    return await box.call(ToolCall("c1", tool, dict(args)), context)


async def only(schedules: Schedules) -> Job:
    [job] = await schedules.jobs()
    return job


async def test_cron_03_the_zone_of_the_owner_is_stored_and_shown(box: Toolbox, schedules: Schedules) -> None:
    result = await ask(box, action="add_or_update", name="lunch", when="0 13 * * *", prompt="Say: lunch")
    assert not result.is_error
    job = await only(schedules)
    assert job.zone == "Pacific/Auckland"
    assert result.text == (
        f'Set: “lunch” ({job.id}): cron "0 13 * * *" (Pacific/Auckland), next Mon 2026-06-01 13:00 +12:00'
    )


async def test_a_schedule_may_have_a_zone_of_its_own(box: Toolbox, schedules: Schedules) -> None:
    await ask(box, action="add_or_update", name="x", when="0 9 * * *", prompt="p", timezone="Europe/Berlin")
    job = await only(schedules)
    assert job.next_at == datetime(2026, 6, 1, 9, tzinfo=ZoneInfo("Europe/Berlin")).timestamp()


@pytest.mark.parametrize("when", ["+20m", "in 20 minutes", "2026-06-01T10:20", "2026-06-01T00:20+02:00"])
async def test_a_reminder_is_read_in_the_forms_that_models_write(
    box: Toolbox, schedules: Schedules, clock: FakeClock, when: str
) -> None:
    result = await ask(box, action="add_or_update", name="tea", when=when, prompt="Remind Ann of her tea.")
    assert not result.is_error, result.text
    assert (await only(schedules)).next_at == clock.time + 1200


async def test_everything_about_it_can_be_chosen(box: Toolbox, schedules: Schedules) -> None:
    await ask(box, action="add_or_update", name="a", when="+1h", prompt="p", session="current")
    await ask(box, action="add_or_update", name="b", when="+1h", prompt="p", delivery="none")
    first, second = await schedules.jobs()
    assert (first.session, first.delivery) == (Session.CURRENT, Delivery.ANNOUNCE)
    assert (second.session, second.delivery) == (Session.ISOLATED, Delivery.NONE)
    assert first.address == HERE


async def test_adding_the_same_name_again_changes_it(box: Toolbox, schedules: Schedules) -> None:
    for _ in range(2):
        result = await ask(box, action="add_or_update", name="tea", when="every 2h", prompt="p")
    assert result.text.startswith("Changed: ")
    await only(schedules)


async def test_list_pause_resume_run_and_remove(box: Toolbox, schedules: Schedules) -> None:
    assert (await ask(box, action="list")).text == "There are no schedules."
    await ask(box, action="add_or_update", name="tea", when="every 2h", prompt="p")
    assert "“tea”" in (await ask(box, action="list")).text
    assert (await ask(box, action="pause", name="tea")).text == "Paused: tea"
    assert "paused" in (await ask(box, action="list")).text
    assert (await ask(box, action="resume", name="tea")).text.startswith("Goes on: “tea”")
    assert (await ask(box, action="run", name="tea")).text == "Started: tea"
    assert (await ask(box, action="remove", name="tea")).text == "Removed: tea"
    assert await schedules.jobs() == []


@pytest.mark.parametrize("name", ["cron_expression", "cronExpression", "schedule", "when"])
async def test_the_names_of_the_seed_are_understood(box: Toolbox, schedules: Schedules, name: str) -> None:
    args: dict[str, Any] = {name: "0 9 * * *", "taskName": "news", "message": "Tell the news."}
    result = await ask(box, tool="AddOrUpdateCronTask", **args)
    assert not result.is_error, result.text
    assert (await only(schedules)).prompt == "Tell the news."
    assert (await ask(box, tool="RemoveCronTask", name="news")).text == "Removed: news"


@pytest.mark.parametrize(
    ("args", "says"),
    [
        ({"when": "fast"}, '"+20m"'),
        ({"when": "0 9 * * 8"}, "0 to 7"),
        ({"when": "0 0 31 2 *"}, "31 February"),
        ({"when": "2026-01-01T09:00"}, "is in the past: it is Mon 2026-06-01 10:00"),
        ({"when": "every 5s"}, "too often"),
        ({"when": ""}, '"+20m"'),
        ({"timezone": "Mars/Olympus"}, "time zone"),
        ({"name": "  "}, "name is missing"),
        ({"prompt": ""}, "prompt must say what to do"),
        ({"action": "explode"}, "action"),
        ({"session": "main"}, "session"),
        ({"action": "remove"}, "there is no schedule 'tea'"),
        ({"action": "remove", "name": ""}, "name is missing"),
    ],
)
async def test_what_is_wrong_is_told_with_the_right_form_and_nothing_is_stored(
    box: Toolbox, schedules: Schedules, args: dict[str, str], says: str
) -> None:
    usual: dict[str, Any] = {"action": "add_or_update", "name": "tea", "when": "+20m", "prompt": "p"}
    result = await ask(box, **(usual | args))
    assert result.is_error
    assert says in result.text
    assert await schedules.jobs() == []


async def test_a_chat_can_neither_see_nor_touch_those_of_another(box: Toolbox, schedules: Schedules) -> None:
    await ask(box, action="add_or_update", name="tea", when="every 2h", prompt="p")
    job = await only(schedules)
    other = Address("fake", "2")
    assert (await ask(box, action="list", address=other)).text == "There are no schedules."
    for name in ("tea", job.id):
        assert (await ask(box, action="remove", name=name, address=other)).is_error
    await only(schedules)


@pytest.mark.parametrize(
    "where",
    [
        {"chat": Chat.GROUP},
        {"level": "guest"},
        {"kind": Kind.CRON},
        {"kind": Kind.CRON, "address": Address("cron", "abc123")},
    ],
    ids=["group", "inject-003-guest", "unattended", "nested"],
)
async def test_whoever_may_not_set_schedules_sets_none(
    box: Toolbox, schedules: Schedules, where: dict[str, Any]
) -> None:
    args: dict[str, Any] = {"action": "add_or_update", "name": "tea", "when": "+20m", "prompt": "p"}
    result = await ask(box, **args, **where)
    assert result.is_error
    assert await schedules.jobs() == []


def test_a_turn_that_nobody_attends_is_not_offered_the_tool(box: Toolbox) -> None:
    assert [spec.name for spec in box.specs(situation())] == ["cron"]
    assert not box.specs(situation(kind=Kind.CRON))
    assert not box.specs(situation(kind=Kind.HEARTBEAT))
    assert not box.specs(situation(Chat.GROUP))
