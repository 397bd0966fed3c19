"""Long conversations on the real tables: what is summed up, what stays, what goes on meanwhile."""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from gateway.allowance import Allowance
from gateway.commands import Commands
from gateway.compaction import HEADINGS, Limits
from gateway.compactor import FAILED, NOTHING
from gateway.config import bundled
from gateway.errors import LeaseLost, ModelBusy, PromptTooLong
from gateway.feed import Compacted
from gateway.models.base import Prompt
from gateway.prompt import Prompts
from gateway.repair import repair
from gateway.store import journal, notes
from gateway.store.engine import Database
from gateway.store.journal import Journal
from gateway.store.notes import Note
from gateway.store.tables import conversation, entry, usage
from gateway.store.usage import Ledger
from gateway.tools.base import Ask
from gateway.types import Address, AssistantEntry, Entry, NoteEntry, Sender, ToolCall, ToolEntry
from gateway.usage import DAY_OVER, USED_UP, Caps
from gateway.workspace import Workspace
from tests.fakes.clock import FakeClock
from tests.fakes.scripted import ScriptedModel, ScriptedTools, call, calls, people
from tests.fakes.world import World, said

BY_COUNT = Limits(max_messages=6, keep_messages=1)
HERE = Address("fake", "1")
SQLITE = pytest.mark.parametrize("kind", ["sqlite"], indirect=True)
"""For what no database decides."""


def summary(text: str = "A question was answered.") -> str:
    return "\n\n".join(f"## {heading}\n{text}" for heading in HEADINGS)


def is_for_summary(prompt: Prompt) -> bool:
    return prompt.system.startswith("You sum up")


@dataclass(slots=True)
class Summariser:
    """Answers people with a number, and sums up by these answers, the last one for ever."""

    summaries: list[str]
    asked: int = 0

    def __call__(self, prompt: Prompt) -> AssistantEntry:
        if is_for_summary(prompt):
            return AssistantEntry(self.summaries.pop(0) if len(self.summaries) > 1 else self.summaries[0])
        self.asked += 1
        return AssistantEntry(f"answer {self.asked}")


def world(
    db: Database, clock: FakeClock, *summaries: str, limits: Limits = BY_COUNT, **more: object
) -> World:
    model = ScriptedModel(Summariser(list(summaries) or [summary()]))
    return World(db=db, clock=clock, model=model, limits=limits, **more)  # type: ignore[arg-type] # the World's own fields


def for_summary(one: World) -> list[str]:
    """Return what the summariser was asked, without its instructions."""
    return [prompt.entries[-1].text for prompt in one.model.prompts if is_for_summary(prompt)]


def shown(one: World) -> Sequence[Entry]:
    """Return what the model saw when it last answered a person."""
    return [prompt for prompt in one.model.prompts if not is_for_summary(prompt)][-1].entries


async def rows(db: Database, role: str = "") -> list[Any]:
    wanted = [entry.c.role == role] if role else []
    query = sa.select(entry).where(*wanted).order_by(entry.c.conversation_id, entry.c.seq)
    return list(await db.write(lambda tx: tx.execute(query).all()))


async def want(db: Database, focus: str = "") -> None:
    """Ask for a summary, as the command does."""

    def work(tx: Connection) -> None:
        which = tx.execute(
            sa.select(conversation.c.id).where(conversation.c.address == HERE.key)
        ).scalar_one()
        notes.want(tx, which, focus, db.now())

    await db.write(work)


async def chat(one: World, turns: int) -> None:
    for number in range(1, turns + 1):
        await one.say(f"question {number}")


async def test_the_older_part_becomes_a_summary_and_the_last_turns_stay(
    db: Database, clock: FakeClock
) -> None:
    one = world(db, clock, summary("Four questions were answered."))
    await chat(one, 4)
    note, *rest = shown(one)
    assert isinstance(note, NoteEntry)
    assert "Four questions were answered." in note.text
    assert people(rest) == ["question 4"]
    assert one.channel.texts == [f"answer {n}" for n in range(1, 5)]


async def test_what_follows_is_added_behind_the_summary(db: Database, clock: FakeClock) -> None:
    one = world(db, clock)
    await chat(one, 5)
    before, after = [prompt.entries for prompt in one.model.prompts if not is_for_summary(prompt)][-2:]
    assert list(after[: len(before)]) == list(before), "the prefix that is cached stays"
    assert people(after) == ["question 4", "question 5"]


async def test_compaction_07_the_raw_messages_stay_and_people_see_that_it_happened(
    db: Database, clock: FakeClock
) -> None:
    one = world(db, clock, limits=Limits(window=24_000, reply=1000))
    await chat(one, 1)
    raw = await fill(db, 1500)
    events = one.feed.subscribe()
    await one.say("and now?")
    one.feed.unsubscribe(events)
    seen = [event async for _, event in events if isinstance(event, Compacted)]
    assert len(seen) == 1
    assert seen[0].entries > 2500
    assert len(for_summary(one)) > 3, "what is too long for one question is asked for bit by bit"
    stored = [(row.seq, row.body) for row in await rows(db) if row.role != "note"]
    assert stored[2 : 2 + len(raw)] == raw
    assert await db.write(lambda tx: notes.count(tx, 1)) == 1


async def fill(db: Database, turns: int) -> list[tuple[int, str]]:
    """Add turns behind those of the first conversation."""

    def work(tx: Connection) -> list[tuple[int, str]]:
        here = tx.execute(sa.select(conversation)).one()
        said = [
            (
                "user",
                json.dumps(
                    {
                        "text": f"note {n}: " + "tell me more " * 9,
                        "kind": "message",
                        "sender": ["7", "Ann"],
                        "at": 1.0,
                        "chat": "direct",
                    }
                ),
            )
            for n in range(turns)
        ]
        answers = [("assistant", json.dumps({"text": f"I see, {n}. " * 5})) for n in range(turns)]
        mixed = [one for pair in zip(said, answers, strict=True) for one in pair]
        added = [(here.next_seq + at, body) for at, (_, body) in enumerate(mixed)]
        tx.execute(
            sa.insert(entry),
            [
                {
                    "conversation_id": here.id,
                    "seq": seq,
                    "session": 1,
                    "turn": 2,
                    "role": role,
                    "body": body,
                    "at": 1.0,
                }
                for (seq, body), (role, _) in zip(added, mixed, strict=True)
            ],
        )
        tx.execute(sa.update(conversation).values(next_seq=here.next_seq + len(added)))
        return added

    return await db.write(work)


async def test_ten_thousand_entries_behind_a_summary_are_not_read(db: Database, clock: FakeClock) -> None:
    one = world(db, clock, limits=Limits(window=24_000, reply=1000))
    await chat(one, 1)
    await fill(db, 5000)
    await one.say("sum up")
    await one.put(said("go on"))
    fresh = Journal(db, "another process")
    ((claim,), _) = await fresh.claim(1)
    assert isinstance(claim.transcript[0], NoteEntry)
    assert len(claim.transcript) < 200
    assert people(claim.transcript)[-1] == "go on"


async def test_compaction_01_the_instructions_stay_as_they_are(
    db: Database, clock: FakeClock, tmp_path: Path
) -> None:
    workspace = Workspace(tmp_path, bundled("workspace"))
    workspace.seed()
    prompts = Prompts(workspace, lambda _situation: (), "UTC", clock)
    one = world(db, clock, prompts=prompts)
    await chat(one, 5)
    systems = {prompt.system for prompt in one.model.prompts if not is_for_summary(prompt)}
    assert len(systems) == 1
    assert (tmp_path / "AGENTS.md").read_text().strip()[:200] in systems.pop()


async def test_compaction_02_what_is_open_and_the_last_message_are_in_the_new_context(
    db: Database, clock: FakeClock
) -> None:
    first = summary("The holiday pictures were sorted (done).")
    second = summary("Holiday pictures sorted (done). Open: renew the passport before March.")
    one = world(db, clock, first, second)
    await one.say("Please sort the holiday pictures")
    await one.say("Then help me renew the passport before March")
    await one.say("What is the weather like?")
    last = "Now  tell me:\n what's *left*?"
    await one.say(last)
    note, *rest = shown(one)
    assert "Open: renew the passport" in note.text
    assert people(rest) == [last]
    asked = for_summary(one)
    assert len(asked) == 2
    assert "Then help me renew the passport" in asked[1], "one correction names what was lost"


async def test_what_is_lost_twice_is_added_word_for_word(db: Database, clock: FakeClock) -> None:
    one = world(db, clock, summary("Nothing much."))
    await one.say("Look at /srv/shop/orders.csv for ticket SHOP-1234")
    await chat(one, 3)
    note = shown(one)[0].text
    assert "/srv/shop/orders.csv" in note
    assert "SHOP-1234" in note


async def test_compaction_05_sub_agents_at_work_are_in_the_new_context(
    db: Database, clock: FakeClock
) -> None:
    async def working(_address: Address) -> Sequence[str]:
        return ["s1: read the mail", "s2: call the shop"]

    one = world(db, clock, subagents=working)
    await chat(one, 4)
    note = shown(one)[0].text
    assert "- s1: read the mail" in note
    assert "- s2: call the shop" in note


async def test_a_second_summary_takes_the_first_one_in(db: Database, clock: FakeClock) -> None:
    one = world(db, clock, summary("The first questions."), summary("The second questions."))
    await chat(one, 7)
    first, second = for_summary(one)
    assert "earlier_summary" not in first
    assert "## Goal\nThe first questions." in second
    visible = [one_ for one_ in shown(one) if isinstance(one_, NoteEntry)]
    assert len(visible) == 1
    assert "The second questions." in visible[0].text
    assert len(await rows(db, "note")) == 2


async def test_what_it_cost_stands_on_the_note(db: Database, clock: FakeClock) -> None:
    one = world(db, clock, "no headings at all", summary())
    await chat(one, 4)
    [note] = await rows(db, "note")
    assert json.loads(note.usage) == {"input": 20, "output": 4, "cached": 0, "cache_write": 0}
    body = json.loads(note.body)
    assert body["model"] == "scripted"
    assert body["kept_from"] == note.seq - 1
    assert note.turn == 4, "the turn that needed it pays"


async def test_the_summary_has_a_model_of_its_own(db: Database, clock: FakeClock) -> None:
    cheap = ScriptedModel(Summariser([summary()]), name="cheap")
    one = world(db, clock, summariser=cheap)
    await chat(one, 4)
    assert len(cheap.prompts) == 1
    assert not any(map(is_for_summary, one.model.prompts))


@SQLITE
class TestFailures:
    @pytest.mark.parametrize("bad", ["", "Sure, here you go!"], ids=["empty", "no summary"])
    async def test_without_a_usable_summary_the_history_stays_and_it_is_said_once(
        self, db: Database, clock: FakeClock, caplog: pytest.LogCaptureFixture, bad: str
    ) -> None:
        one = world(db, clock, bad)
        with caplog.at_level(logging.WARNING):
            await chat(one, 8)
        assert people(shown(one)) == [f"question {n}" for n in range(1, 9)]
        assert len(one.channel.texts) == 8
        assert [record.message for record in caplog.records] == ["compaction.failed"]

    async def test_it_is_tried_again_after_ever_more_turns(self, db: Database, clock: FakeClock) -> None:
        one = world(db, clock, "")
        await chat(one, 20)
        tried = [len(people(prompt.entries)) for prompt in one.model.prompts if is_for_summary(prompt)]
        assert len(tried) == 5, "in turns 4, 5, 7, 11 and 19"

    async def test_a_summary_that_takes_too_long_is_left(self, db: Database, clock: FakeClock) -> None:
        async def never(_prompt: Prompt) -> AssistantEntry:
            await asyncio.Event().wait()
            return AssistantEntry("")

        one = world(db, clock, summariser=ScriptedModel(never), summary_timeout=0.01)
        await chat(one, 4)
        assert one.channel.texts[-1] == "answer 4"
        assert await rows(db, "note") == []

    async def test_a_model_that_is_down_for_summaries_costs_nobody_an_answer(
        self, db: Database, clock: FakeClock
    ) -> None:
        def down(_prompt: Prompt) -> AssistantEntry:
            raise ModelBusy("overloaded")

        one = world(db, clock, summariser=ScriptedModel(down))
        await chat(one, 4)
        assert one.channel.texts[-1] == "answer 4"

    async def test_a_summariser_with_a_smaller_window_is_asked_bit_by_bit(
        self, db: Database, clock: FakeClock
    ) -> None:
        def small(prompt: Prompt) -> AssistantEntry:
            if len(prompt.entries[-1].text) > 14_000:
                raise PromptTooLong("too long")
            return AssistantEntry(summary("A question of many words was answered."))

        cheap = ScriptedModel(small)
        one = world(db, clock, summariser=cheap, limits=replace(BY_COUNT, window=40_000, reply=1000))
        for number in range(4):
            await one.say(f"question {number} {'word ' * 1300}")
        assert len(cheap.prompts) == 3, "one that is too long, then two"
        assert len(await rows(db, "note")) == 1


@SQLITE
class TestOverflow:
    async def test_a_prompt_that_is_refused_as_too_long_is_summed_up_and_sent_once_more(
        self, db: Database, clock: FakeClock
    ) -> None:
        def answer(prompt: Prompt) -> AssistantEntry:
            if is_for_summary(prompt):
                return AssistantEntry(summary())
            if len(prompt.entries) > 9:
                raise PromptTooLong("context length exceeded")
            return AssistantEntry("fine")

        one = World(db=db, clock=clock, model=ScriptedModel(answer))
        await chat(one, 6)
        assert one.channel.texts == ["fine"] * 6
        assert len(await rows(db, "note")) == 1
        assert isinstance(shown(one)[0], NoteEntry)

    async def test_where_that_does_not_help_the_history_is_shortened_for_the_call(
        self, db: Database, clock: FakeClock
    ) -> None:
        def answer(prompt: Prompt) -> AssistantEntry:
            if is_for_summary(prompt):
                raise ModelBusy("overloaded")
            if len(prompt.entries) > 9:
                raise PromptTooLong("context length exceeded")
            return AssistantEntry("fine")

        one = World(db=db, clock=clock, model=ScriptedModel(answer))
        await chat(one, 6)
        assert one.channel.texts == ["fine"] * 6
        assert await rows(db, "note") == []

    async def test_a_turn_that_is_too_long_by_itself_loses_the_middle_of_its_old_results(
        self, db: Database, clock: FakeClock
    ) -> None:
        def answer(prompt: Prompt) -> AssistantEntry:
            if sum(len(one.text) for one in prompt.entries) > 60_000:
                raise PromptTooLong("context length exceeded")
            rounds = sum(isinstance(one, ToolEntry) for one in prompt.entries)
            return AssistantEntry("done") if rounds == 8 else calls(call("look", n=rounds))

        one = World(db=db, clock=clock, model=ScriptedModel(answer))
        one.tools.result = lambda _call: "x" * 15_000
        await one.say("look eight times")
        assert one.channel.texts == ["done"]


class TestAskedFor:
    async def test_an_idle_conversation_is_summed_up_at_once(self, db: Database, clock: FakeClock) -> None:
        one = world(db, clock, limits=Limits())
        await chat(one, 6)
        await want(db, "the prices")
        await one.settle()
        assert "the prices" in for_summary(one)[0]
        assert one.channel.texts[-1].startswith("Done: 6 earlier entries are now a summary, the last 6 stay")
        [note] = await rows(db, "note")
        assert note.turn == 0, "no turn ran"
        await one.say("go on")
        assert people(shown(one)) == ["question 4", "question 5", "question 6", "go on"]

    async def test_people_ask_for_it_with_a_command_and_status_counts_it(
        self, db: Database, clock: FakeClock
    ) -> None:
        one = world(db, clock, limits=Limits())
        commands = Commands(db=db, clock=clock, started=0.0, model=str, channels=dict)
        await chat(one, 6)
        for text in ("/compact the  prices", "/status"):
            arrival = commands.read(said(text))
            assert arrival is not None
            await one.inbox.put([arrival])
            await one.settle()
        asked, done, status = one.channel.texts[-3:]
        assert asked.startswith("I sum up what came before")
        assert done.startswith("Done: ")
        assert "the prices" in for_summary(one)[0]
        assert "session: 1, 13 entries, summed up once" in status

    async def test_with_nothing_to_sum_up_that_is_said(self, db: Database, clock: FakeClock) -> None:
        one = world(db, clock)
        await chat(one, 1)
        await want(db)
        await one.settle()
        assert one.channel.texts[-1] == NOTHING
        assert (await rows(db, "note")) == []

    async def test_a_failure_is_told_and_it_is_not_tried_for_ever(
        self, db: Database, clock: FakeClock
    ) -> None:
        one = world(db, clock, "", limits=Limits())
        await chat(one, 6)
        await want(db)
        await one.settle()
        assert "the summary came back empty" in one.channel.texts[-1]
        assert len(for_summary(one)) == 1

    async def test_it_waits_for_the_turn_that_runs(self, db: Database, clock: FakeClock) -> None:
        one = world(db, clock, limits=Limits())
        await chat(one, 6)

        async def meanwhile(_call: ToolCall) -> str:
            await want(db)
            return "seen"

        inner = one.model.answer
        one.model.answer = lambda prompt: (
            calls(call("look")) if prompt.entries[-1].text == "look" else inner(prompt)
        )
        one.tools.result = meanwhile
        await one.say("look")
        assert one.channel.texts[-2] == "answer 7"
        assert one.channel.texts[-1].startswith("Done: ")

    async def test_it_comes_before_what_is_said_next(self, db: Database, clock: FakeClock) -> None:
        one = world(db, clock, limits=Limits())
        await chat(one, 6)
        await want(db)
        await one.say("go on")
        assert isinstance(shown(one)[0], NoteEntry)
        assert people(shown(one))[-1] == "go on"

    async def test_stop_takes_it_back(self, db: Database, clock: FakeClock) -> None:
        one = world(db, clock, limits=Limits())
        await chat(one, 6)
        await want(db)
        await one.worker.journal.stop(HERE)
        await one.settle()
        assert len(one.channel.texts) == 6

    async def test_a_process_that_dies_of_it_each_time_gives_it_up(
        self, db: Database, clock: FakeClock
    ) -> None:
        one = world(db, clock, limits=Limits())
        await chat(one, 6)
        await want(db)
        for _ in range(3):
            assert (await one.worker.journal.claim(1))[0]
            await one.worker.journal.recover()
            await db.write(lambda tx: tx.execute(sa.update(conversation).values(lease_until=0)))
        await one.settle()
        assert for_summary(one) == []
        assert await db.write(lambda tx: tx.execute(sa.select(conversation.c.ready_at)).scalar_one()) is None


async def test_other_conversations_do_not_wait(db: Database, clock: FakeClock) -> None:
    go = asyncio.Event()

    async def slow(prompt: Prompt) -> AssistantEntry:
        if is_for_summary(prompt):
            await go.wait()
            return AssistantEntry(summary())
        if prompt.entries[-1].text == "quick":
            go.set()
        return AssistantEntry(f"answer to {prompt.entries[-1].text}")

    one = World(db=db, clock=clock, model=ScriptedModel(slow), limits=BY_COUNT)
    await chat(one, 3)
    await one.put(said("question 4"), said("quick", "2"))
    await one.settle()
    # The summary waits for the other conversation: had that waited, too, nothing would have come of either.
    assert sorted(one.channel.texts[-2:]) == ["answer to question 4", "answer to quick"]


async def test_a_claim_that_was_lost_meanwhile_writes_no_summary(db: Database, clock: FakeClock) -> None:
    one = world(db, clock, limits=Limits())
    await chat(one, 6)
    await one.put(said("go on"))
    ((claim,), _) = await one.worker.journal.claim(1)
    await one.worker.journal.stop(HERE)
    with pytest.raises(LeaseLost):
        await one.worker.journal.sum_up(claim, Note(text="late", kept=1))
    assert await rows(db, "note") == []


async def test_new_after_a_summary_begins_with_nothing(db: Database, clock: FakeClock) -> None:
    one = world(db, clock)
    await chat(one, 4)
    which = (await rows(db))[0].conversation_id
    await db.write(lambda tx: journal.stop(tx, which, db.now(), new_session=True))
    await one.say("hello again")
    assert [entry_.text for entry_ in shown(one)] == ["hello again"]
    assert await db.write(lambda tx: notes.count(tx, which)) == 0


async def test_stop_in_a_conversation_with_a_summary_closes_the_open_calls(
    db: Database, clock: FakeClock
) -> None:
    one = world(db, clock)
    await chat(one, 4)
    one.model.answer = lambda _prompt: calls(call("look"))

    async def stopped(_call: ToolCall) -> str:
        await one.worker.journal.stop(HERE)
        return "seen"

    one.tools.result = stopped
    await one.say("look")
    one.model.answer = lambda _prompt: AssistantEntry("here")
    await one.say("still there?")
    seen = shown(one)
    assert isinstance(seen[0], NoteEntry)
    assert repair(seen) == list(seen)
    assert one.channel.texts[-1] == "here"


async def test_a_summary_in_the_middle_of_a_turn_loses_no_round(db: Database, clock: FakeClock) -> None:
    def answer(prompt: Prompt) -> AssistantEntry:
        if is_for_summary(prompt):
            return AssistantEntry(summary())
        rounds = sum(
            1 for _ in itertools.takewhile(lambda one: one.text != "second", reversed(prompt.entries))
        )
        return AssistantEntry("done") if rounds >= 8 else calls(call("look", n=rounds))

    one = World(db=db, clock=clock, model=ScriptedModel(answer), limits=replace(BY_COUNT, max_messages=12))
    await one.say("first")
    await one.say("second")
    assert one.channel.texts == ["done", "done"]
    assert len(one.tools.ran) == 8, "four in each turn"
    note, *rest = shown(one)
    assert isinstance(note, NoteEntry)
    assert people(rest) == ["second"]
    assert repair(rest) == rest


@SQLITE
class TestFlush:
    def world(
        self,
        db: Database,
        clock: FakeClock,
        tmp_path: Path,
        *made: ToolCall,
        asks: Callable[[ToolCall], Ask | ToolEntry | None] = lambda _call: None,
    ) -> World:
        """Return a world whose model makes these calls when it may take notes."""
        left = list(made)

        def answer(prompt: Prompt) -> AssistantEntry:
            if is_for_summary(prompt):
                return AssistantEntry(summary())
            if "about to be summed up" in prompt.nudge:
                return calls(left.pop(0)) if left else AssistantEntry("NO_REPLY")
            return AssistantEntry("fine")

        return World(
            db=db,
            clock=clock,
            model=ScriptedModel(answer),
            tools=ScriptedTools(asks=asks),
            limits=BY_COUNT,
            flushes=True,
            workspace=tmp_path,
        )

    def flushes(self, one: World) -> list[Prompt]:
        return [prompt for prompt in one.model.prompts if "about to be summed up" in prompt.nudge]

    async def test_notes_are_taken_first_and_nobody_sees_it(
        self, db: Database, clock: FakeClock, tmp_path: Path
    ) -> None:
        wrote = call("write", path="memory/2025-06-15.md", content="Likes tea.")
        one = self.world(db, clock, tmp_path, wrote)
        await chat(one, 4)
        assert one.tools.ran == [f"write {wrote.id}"]
        assert one.channel.texts == ["fine"] * 4
        assert not any(isinstance(entry_, ToolEntry) for entry_ in shown(one))
        assert {row.role for row in await rows(db)} == {"user", "assistant", "note"}
        assert "memory/2025-06-15.md" in self.flushes(one)[0].nudge
        [note] = await rows(db, "note")
        assert json.loads(note.usage)["input"] == 30, "two calls for the notes, one for the summary"

    @pytest.mark.parametrize(
        "made",
        [
            call("act"),
            call("write", path="SOUL.md", content="x"),
            call("write", path="memory/../AGENTS.md", content="x"),
            call("write", path="/etc/passwd", content="x"),
            call("read", path="USER.md"),
        ],
        ids=["another tool", "another file", "a way out", "an absolute path", "reading elsewhere"],
    )
    async def test_it_can_do_nothing_else(
        self, db: Database, clock: FakeClock, tmp_path: Path, made: ToolCall
    ) -> None:
        one = self.world(db, clock, tmp_path, made)
        await chat(one, 4)
        assert one.tools.ran == []
        assert len(await rows(db, "note")) == 1

    async def test_a_note_that_is_there_is_not_written_over(
        self, db: Database, clock: FakeClock, tmp_path: Path
    ) -> None:
        (tmp_path / "memory").mkdir()
        (tmp_path / "memory" / "2025-06-15.md").write_text("Has two cats.")
        edited = call("edit", path="memory/2025-06-15.md", old_text="cats.", new_text="cats. Likes tea.")
        one = self.world(db, clock, tmp_path, call("write", path="memory/2025-06-15.md", content="x"), edited)
        await chat(one, 4)
        assert one.tools.ran == [f"edit {edited.id}"]

    async def test_what_would_ask_a_person_is_refused(
        self, db: Database, clock: FakeClock, tmp_path: Path
    ) -> None:
        one = self.world(
            db, clock, tmp_path, call("memory_save", text="x"), asks=lambda _call: Ask("May I?", "x", "b")
        )
        await chat(one, 4)
        assert one.tools.ran == []

    async def test_a_model_that_goes_on_and_on_is_stopped(
        self, db: Database, clock: FakeClock, tmp_path: Path
    ) -> None:
        one = self.world(db, clock, tmp_path, *(call("memory_get", n=n) for n in range(99)))
        await chat(one, 4)
        assert len(self.flushes(one)) == 4
        assert one.channel.texts[-1] == "fine"

    async def test_a_failure_of_it_keeps_nobody_from_the_summary(
        self, db: Database, clock: FakeClock, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        one = self.world(db, clock, tmp_path)
        inner = one.model.answer

        def answer(prompt: Prompt) -> Any:
            if prompt.nudge:
                raise ModelBusy("overloaded")
            return inner(prompt)

        one.model.answer = answer
        await chat(one, 4)
        assert "flush.failed" in [record.message for record in caplog.records]
        assert len(await rows(db, "note")) == 1

    @pytest.mark.parametrize(
        "changes",
        [{"sender": Sender("8", "Bob", "user")}, {"sender": Sender("9")}],
        ids=["a person", "a guest"],
    )
    async def test_others_than_the_owner_write_nothing_into_the_memory(
        self, db: Database, clock: FakeClock, tmp_path: Path, changes: dict[str, Any]
    ) -> None:
        one = self.world(db, clock, tmp_path)
        for number in range(4):
            await one.put(replace(said(f"question {number}"), **changes))
            await one.settle()
        assert self.flushes(one) == []
        assert len(await rows(db, "note")) == 1

    async def test_groups_write_nothing_into_the_memory(
        self, db: Database, clock: FakeClock, tmp_path: Path
    ) -> None:
        one = self.world(db, clock, tmp_path)
        for number in range(4):
            await one.say(f"question {number}", group=True)
        assert self.flushes(one) == []


class TestUsedUpDay:
    """Once the budget of a day is used up, no summary is bought any more."""

    @pytest.fixture
    def one(self, db: Database, clock: FakeClock) -> World:
        """Return a world in which four answers use up a day."""
        allowance = Allowance(db=db, clock=clock, ledger=Ledger(clock=clock), caps=Caps(daily_tokens=48))
        return world(db, clock, limits=replace(BY_COUNT, max_messages=7), allowance=allowance)

    async def test_a_conversation_that_is_too_long_is_summed_up_when_its_turn_runs_tomorrow(
        self, one: World, clock: FakeClock
    ) -> None:
        await chat(one, 5)
        assert one.channel.texts[-1] == DAY_OVER
        assert for_summary(one) == []
        clock.time += 86_400
        await one.settle()
        assert len(for_summary(one)) == 1
        assert one.channel.texts[-1] == "answer 5"

    async def test_who_asks_for_a_summary_is_told_each_time_and_nothing_waits(
        self, one: World, db: Database
    ) -> None:
        await chat(one, 4)
        for _ in range(2):
            await want(db)
            await one.settle()
        assert one.channel.texts[4:] == [FAILED.format(problem=USED_UP)] * 2
        assert for_summary(one) == []
        assert await db.write(lambda tx: tx.execute(sa.select(conversation.c.ready_at)).scalar_one()) is None

    async def test_what_was_asked_for_before_a_message_waits_with_it(
        self, one: World, db: Database, clock: FakeClock
    ) -> None:
        await chat(one, 4)
        await want(db)
        await one.say("question 5")
        assert one.channel.texts[4:] == [DAY_OVER]
        clock.time += 86_400
        await one.settle()
        assert [text.partition(":")[0] for text in one.channel.texts[5:]] == ["Done", "answer 5"]


async def test_what_was_paid_for_nothing_counts(db: Database, clock: FakeClock) -> None:
    one = world(db, clock, "Sure, here you go!")
    await chat(one, 4)
    calls_made = len(one.model.prompts)
    assert calls_made == 6, "four answers, and a summary that was asked for twice"
    total = sa.select(sa.func.sum(usage.c.input))
    assert await db.write(lambda tx: tx.execute(total).scalar_one()) == 10 * calls_made
