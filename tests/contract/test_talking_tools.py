"""Tools that send, plan, look at other conversations and start sub-agents, in a whole core."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from gateway.bell import Bell
from gateway.commands import Commands
from gateway.models.base import Prompt
from gateway.store import inbox, subagents
from gateway.store.engine import Database
from gateway.store.tables import conversation
from gateway.tools.box import Toolbox
from gateway.tools.message import MOST_MESSAGES, WINDOW, Post, message_tool
from gateway.tools.plan import todo_tool
from gateway.tools.sessions import Desk, sessions_tool, spawn_tool
from gateway.types import (
    Address,
    AssistantEntry,
    Chat,
    Entry,
    Kind,
    Level,
    Sender,
    Stimulus,
    ToolEntry,
    UserEntry,
)
from tests.fakes.clock import FakeClock
from tests.fakes.scripted import Answer, ScriptedModel, call, calls, in_turn
from tests.fakes.world import World, said


def build(db: Database, clock: FakeClock, root: Path, answer: Answer) -> World:
    """Return a world whose agent has just these tools."""
    world = World(db=db, clock=clock, model=ScriptedModel(answer))
    post = Post(
        db=db,
        pieces=lambda _where, text: world.channel.pieces(text),
        sends_files=lambda where: where.channel == "fake",
        below=lambda _context, path: path,
    )
    desk = Desk(db=db, zone="Europe/Berlin", woken=Bell().ring)
    tools = Toolbox([message_tool(post), todo_tool(db), sessions_tool(desk), spawn_tool(desk)])
    turns = world.worker.turns
    turns.agent = replace(turns.agent, tools=tools, workspace=root)
    turns.endings = {Kind.SUBAGENT: lambda tx, how: subagents.ended(tx, how, db.now())}
    return world


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path.resolve() / "workspace"
    folder.mkdir()
    return folder


def results(world: World) -> list[str]:
    entries: Sequence[Entry] = world.model.prompts[-1].entries
    return [one.text for one in entries if isinstance(one, ToolEntry)]


def by_sender(level: str, text: str = "go", kind: Kind = Kind.MESSAGE, chat: Chat = Chat.DIRECT) -> Stimulus:
    return replace(said(text, kind=kind), sender=Sender("8", "Bea", level), chat=chat)


class TestMessage:
    async def test_no_reply_03_what_was_sent_is_not_said_twice(
        self, db: Database, clock: FakeClock, root: Path
    ) -> None:
        for tool, final in product(("message", "send_message"), ("NO_REPLY", "All set.")):
            world = build(db, clock, root, in_turn(calls(call(tool, text="All set.")), final))
            await world.say("go")
            assert world.channel.texts == ["All set."], (tool, final)

    async def test_a_reply_in_other_words_is_delivered_too(
        self, db: Database, clock: FakeClock, root: Path
    ) -> None:
        world = build(db, clock, root, in_turn(calls(call("message", text="Starting.")), "Done."))
        await world.say("go")
        assert world.channel.texts == ["Starting.", "Done."]

    async def test_a_model_that_goes_on_sending_is_stopped(
        self, db: Database, clock: FakeClock, root: Path
    ) -> None:
        rounds = [calls(*(call("message", text=f"{n}.{m}") for m in range(10))) for n in range(4)]
        world = build(db, clock, root, in_turn(*rounds, "NO_REPLY"))
        await world.say("go")
        assert len(world.channel.texts) == MOST_MESSAGES == 30
        assert results(world)[-1].startswith("Error: 30 messages were sent from here within ten minutes")

        clock.time += WINDOW
        world.model.answer = in_turn(calls(call("message", text="again")), "NO_REPLY")
        await world.say("go on")
        assert world.channel.texts[30:] == ["again"]

    @pytest.mark.parametrize(
        ("text", "sent"),
        [("NO_REPLY", []), ("HEARTBEAT_OK", []), ("Disk full.\n\nNO_REPLY", ["Disk full."])],
        ids=["no-reply", "heartbeat-reply-09", "heartbeat-reply-09-mixed"],
    )
    async def test_control_words_are_never_sent(
        self, db: Database, clock: FakeClock, root: Path, text: str, sent: list[str]
    ) -> None:
        world = build(db, clock, root, in_turn(calls(call("message", text=text)), "NO_REPLY"))
        await world.say("go")
        assert world.channel.texts == sent

    async def test_heartbeat_reply_09_a_heartbeat_sends_nothing_by_itself(
        self, db: Database, clock: FakeClock, root: Path
    ) -> None:
        world = build(db, clock, root, in_turn(calls(call("message", text="hello")), "HEARTBEAT_OK"))
        await world.put(said("wake", kind=Kind.HEARTBEAT))
        await world.settle()
        assert world.channel.texts == []
        assert "not available here: a heartbeat only looks" in results(world)[0]

    async def test_a_message_can_bring_files_and_buttons(
        self, db: Database, clock: FakeClock, root: Path
    ) -> None:
        (root / "plot.png").write_bytes(b"x")
        made = call("message", text="Look", files=["plot.png"], buttons=["More", "Enough"])
        world = build(db, clock, root, in_turn(calls(made), "NO_REPLY"))
        await world.say("go")
        [one] = world.channel.sent
        assert [each.path for each in one.attachments] == ["plot.png"]
        assert [row[0].label for row in one.buttons] == ["More", "Enough"]

    @pytest.mark.parametrize(
        "path", ["/etc/hostname", "../secret", "missing.txt"], ids=["security-fs-04", "up", "none"]
    )
    async def test_only_files_of_the_folder_are_sent(
        self, db: Database, clock: FakeClock, root: Path, path: str
    ) -> None:
        (root.parent / "secret").write_text("x")
        world = build(db, clock, root, in_turn(calls(call("message", text="Look", files=[path])), "NO_REPLY"))
        await world.say("go")
        assert world.channel.sent == []
        assert "nothing was sent" in results(world)[0]

    async def test_another_chat_is_asked_about_and_hears_it_with_its_context(
        self, db: Database, clock: FakeClock, root: Path
    ) -> None:
        world = build(db, clock, root, lambda _prompt: AssistantEntry("hello"))
        await world.say("hi", chat="2")
        world.model.answer = in_turn(calls(call("message", to="fake:2", text="Lunch at one?")), "asked")
        await world.say("invite them")
        card = world.channel.sent[-1]
        assert "send a message to fake:2" in card.text
        await world.put(replace(said("x"), address=Address("fake", "9")))
        value = card.buttons[0][0].value.removeprefix("approve:")
        commands = Commands(db=db, clock=clock, started=0.0, model=str, channels=dict)
        arrival = commands.read(replace(said(f"/approve {value}"), aimed=True))
        assert arrival is not None
        await db.write(lambda tx: inbox.put(tx, [arrival], None, (), db.now()))
        await world.settle()
        assert [(one.address.chat, one.text) for one in world.channel.sent if one.address.chat == "2"] == [
            ("2", "hello"),
            ("2", "Lunch at one?"),
        ]
        world.model.answer = lambda _prompt: AssistantEntry("ok")
        await world.say("yes, one is fine", chat="2")
        seen = [one for one in world.model.prompts[-1].entries if isinstance(one, UserEntry)]
        assert any(one.text == "Lunch at one?" and not one.aimed for one in seen)

    @pytest.mark.parametrize("to", ["fake:404", "nowhere", "cron:1"])
    async def test_a_chat_that_nobody_knows_gets_nothing(
        self, db: Database, clock: FakeClock, root: Path, to: str
    ) -> None:
        world = build(db, clock, root, in_turn(calls(call("message", to=to, text="hi")), "NO_REPLY"))
        await world.say("go")
        assert world.channel.sent == []
        assert "no conversation" in results(world)[0]

    async def test_inject_001_only_the_owner_reaches_other_chats(
        self, db: Database, clock: FakeClock, root: Path
    ) -> None:
        world = build(
            db, clock, root, in_turn("hello", calls(call("message", to="fake:1", text="evil")), "NO_REPLY")
        )
        await world.say("hi")
        await world.put(replace(by_sender(Level.USER), address=Address("fake", "8")))
        await world.settle()
        assert "evil" not in world.channel.texts
        assert "not available here" in results(world)[0]


class TestPlan:
    async def test_a_plan_is_kept_and_read_again(self, db: Database, clock: FakeClock, root: Path) -> None:
        steps = [{"text": "look", "status": "done"}, {"text": "mend", "status": "doing"}, {"text": "test"}]
        world = build(db, clock, root, in_turn(calls(call("todo", steps=steps)), calls(call("todo")), "ok"))
        await world.say("go")
        assert results(world) == ["[x] look\n[>] mend\n[ ] test"] * 2

    @pytest.mark.parametrize(
        ("steps", "problem"),
        [
            ([{"text": "a", "status": "doing"}, {"text": "b", "status": "doing"}], "at most one"),
            ([{"text": "a", "status": "soon"}], "must be todo, doing or done"),
            ([{"status": "todo"}], "an object with text"),
            ([{"text": str(number)} for number in range(51)], "at most 50"),
            (["a"], "must be an object"),
        ],
        ids=["two", "status", "no-text", "many", "words"],
    )
    async def test_a_plan_that_is_none_is_refused(
        self, db: Database, clock: FakeClock, root: Path, steps: list[Any], problem: str
    ) -> None:
        world = build(db, clock, root, in_turn(calls(call("todo", steps=steps)), "ok"))
        await world.say("go")
        assert problem in results(world)[0]


class TestSessions:
    async def test_the_owner_sees_what_was_said_elsewhere(
        self, db: Database, clock: FakeClock, root: Path
    ) -> None:
        world = build(db, clock, root, in_turn("hello Bea"))
        await world.say("the parcel is red", chat="2")
        made = (call("sessions", action="list"), call("sessions", action="history", conversation="fake:2"))
        world.model.answer = in_turn(calls(made[0]), calls(made[1]), "ok")
        await world.say("what did they say?")
        listed, history = results(world)
        assert "fake:2 (direct)" in listed
        assert "user: the parcel is red" in history
        assert "assistant: hello Bea" in history

    @pytest.mark.parametrize("level", [Level.USER, Level.GUEST])
    @pytest.mark.parametrize("action", ["list", "history", "send"])
    async def test_inject_015_nobody_else_does(
        self, db: Database, clock: FakeClock, root: Path, level: Level, action: str
    ) -> None:
        made = call("sessions", action=action, conversation="fake:1", text="x")
        world = build(db, clock, root, in_turn(calls(made), "ok"))
        await world.put(by_sender(level))
        await world.settle()
        assert "not available here" in results(world)[0]

    async def test_what_is_handed_over_is_answered_there(
        self, db: Database, clock: FakeClock, root: Path
    ) -> None:
        world = build(db, clock, root, in_turn("hello"))
        await world.say("hi", chat="2")
        made = call("sessions", action="send", conversation="fake:2", text="remind them of lunch")
        turns = world.worker.turns
        free = replace(sessions_tool(Desk(db=db, zone="UTC")), asks=None)
        turns.agent = replace(turns.agent, tools=Toolbox([free]))

        def answer(prompt: Prompt) -> AssistantEntry:
            last = prompt.entries[-1]
            if isinstance(last, ToolEntry):
                return AssistantEntry("done")
            return calls(made) if last.text == "go" else AssistantEntry("Lunch at one!")

        world.model.answer = answer
        await world.say("go")
        assert ("2", "Lunch at one!") in [(one.address.chat, one.text) for one in world.channel.sent]
        newest = [prompt.entries[-1] for prompt in world.model.prompts]
        [task] = [one for one in newest if isinstance(one, UserEntry) and one.kind is Kind.SUBAGENT]
        assert task.sender.level == Level.USER, "it must not bring the owner's files into another chat"


class TestSubagents:
    @staticmethod
    def work(prompt: Prompt) -> AssistantEntry:
        """Start a sub-agent for a person, do its task, and report what it brought."""
        last = prompt.entries[-1]
        if isinstance(last, ToolEntry):
            return AssistantEntry("I have started somebody.")
        assert isinstance(last, UserEntry)
        if last.kind is Kind.MESSAGE:
            return calls(call("spawn", task="count the files", name="counter"))
        if last.text.startswith("[Sub-agent task]"):
            return AssistantEntry("There are 12 files.")
        return AssistantEntry(f"It says: {last.text.rsplit(chr(10), 1)[-1]}")

    async def test_the_result_comes_back_by_itself(self, db: Database, clock: FakeClock, root: Path) -> None:
        world = build(db, clock, root, self.work)
        await world.say("count, please")
        assert world.channel.texts == ["I have started somebody.", "It says: There are 12 files."]
        [child] = [p for p in world.model.prompts if p.entries[-1].text.startswith("[Sub-agent task]")]
        assert len(child.entries) == 1, "it sees nothing of the conversation"

    async def test_a_failure_comes_back_too(self, db: Database, clock: FakeClock, root: Path) -> None:
        def answer(prompt: Prompt) -> AssistantEntry:
            if prompt.entries[-1].text.startswith("[Sub-agent task]"):
                return AssistantEntry("")
            return self.work(prompt)

        world = build(db, clock, root, answer)
        await world.say("count, please")
        assert len(world.channel.texts) == 2

    async def test_inject_016_a_sub_agent_starts_and_sends_nothing(
        self, db: Database, clock: FakeClock, root: Path
    ) -> None:
        def answer(prompt: Prompt) -> AssistantEntry:
            last = prompt.entries[-1]
            if isinstance(last, UserEntry) and last.text.startswith("[Sub-agent task]"):
                return calls(call("spawn", task="again"), call("message", text="psst"))
            if isinstance(last, ToolEntry) and "sub-agent" in last.text:
                return AssistantEntry(f"refused: {last.text}")
            return self.work(prompt)

        world = build(db, clock, root, answer)
        await world.say("count, please")
        assert "psst" not in world.channel.texts
        rows = await db.read(lambda tx: tx.execute(sa.select(conversation.c.address)).scalars().all())
        assert len([one for one in rows if one.startswith("agent:")]) == 1

    async def test_only_so_many_run_at_a_time(self, db: Database, clock: FakeClock, root: Path) -> None:
        made = [call("spawn", task=f"task {number}") for number in range(6)]
        world = build(db, clock, root, lambda _prompt: AssistantEntry("unused"))
        parent = Address("fake", "1")

        async def many() -> list[bool]:
            found = []
            for one in made:
                child = subagents.Subagent(
                    id=one.id, parent=parent, place=parent, name="n", task="t", state="running", at=0.0
                )
                started = await db.write(
                    functools.partial(
                        subagents.start, one=child, sender=Sender("7"), chat=Chat.DIRECT, now=db.now()
                    )
                )
                found.append(started)
            return found

        assert await many() == [True] * 5 + [False]
        assert await many() == [True] * 5 + [False], "beginning one again changes nothing"
        await world.settle()

    async def test_stop_reaches_the_sub_agents(self, db: Database, clock: FakeClock, root: Path) -> None:
        world = build(db, clock, root, self.work)
        parent = Address("fake", "1")
        child = subagents.Subagent(
            id="c1", parent=parent, place=parent, name="n", task="t", state="running", at=0.0
        )
        await db.write(lambda tx: subagents.start(tx, child, Sender("7"), Chat.DIRECT, db.now()))
        commands = Commands(db=db, clock=clock, started=0.0, model=str, channels=dict)
        arrival = commands.read(said("/stop"))
        assert arrival is not None
        taken = await db.write(lambda tx: inbox.put(tx, [arrival], None, (), db.now()))
        assert len(taken.interrupted) == 2
        await world.settle()
        assert world.model.prompts == []
        assert world.channel.texts == ["Stopped."]
