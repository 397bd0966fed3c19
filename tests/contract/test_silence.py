"""What a model must not be heard saying, all the way through the core."""

from __future__ import annotations

import pytest

from gateway.errors import ModelRefused
from gateway.feed import Delta
from gateway.models.base import OnRestart, OnText, Prompt, Reply
from gateway.store import outbox
from gateway.store.engine import Database
from gateway.turn import EMPTY_SORRY
from gateway.types import Address, AssistantEntry, Kind, Outgoing, ToolCall
from tests.fakes.clock import FakeClock
from tests.fakes.scripted import ScriptedModel, call, calls, in_turn
from tests.fakes.world import World, said


class InPieces(ScriptedModel):
    """Streams its answer in these pieces."""

    pieces: tuple[str, ...] = ()

    async def reply(
        self, prompt: Prompt, on_text: OnText | None = None, on_restart: OnRestart | None = None
    ) -> Reply:
        if on_text is not None:
            for piece in self.pieces:
                on_text(piece)
        return Reply(AssistantEntry("".join(self.pieces)))


@pytest.mark.parametrize(
    "pieces", [("NO", "_REPLY"), ("N", "O_", "REPLY"), ("HEARTBEAT", "_OK"), ("**NO_RE", "PLY**")]
)
async def test_no_reply_01_no_fragment_of_a_token_is_streamed_or_sent(
    db: Database, clock: FakeClock, pieces: tuple[str, ...]
) -> None:
    model = InPieces(in_turn(""))
    model.pieces = pieces
    world = World(db=db, clock=clock, model=model)
    watching = world.feed.subscribe()
    await world.say("hello all", group=True)
    world.feed.unsubscribe(watching)
    assert not [event async for _, event in watching if isinstance(event, Delta)]
    assert world.channel.sent == []


async def test_no_reply_02_an_announcement_that_ends_in_silence_is_sent_once(
    db: Database, clock: FakeClock
) -> None:
    world = World(db=db, clock=clock, model=ScriptedModel(in_turn("Backup finished, 12 GB.\n\nNO_REPLY")))
    await world.put(said("announce", kind=Kind.CRON))
    await world.settle()
    assert world.channel.texts == ["Backup finished, 12 GB."]


async def test_no_reply_03_what_a_tool_has_sent_is_not_sent_again(db: Database, clock: FakeClock) -> None:
    world = World(db=db, clock=clock, model=ScriptedModel(in_turn(calls(call("act")), "NO_REPLY")))

    async def send(_call: ToolCall) -> str:
        message = Outgoing(key="tool:1", address=Address("fake", "1"), text="All set.")
        await db.write(lambda tx: outbox.put(tx, [message], db.now()))
        return "sent"

    world.tools.result = send
    await world.say("tell them")
    assert world.channel.texts == ["All set."]


@pytest.mark.parametrize(("answer", "texts"), [("NO_REPLY", []), ("", [EMPTY_SORRY])])
async def test_no_reply_05_silence_in_private_is_meant_and_emptiness_is_not(
    db: Database, clock: FakeClock, answer: str, texts: list[str]
) -> None:
    world = World(db=db, clock=clock, model=ScriptedModel(in_turn(answer)))
    await world.say("hello")
    assert world.channel.texts == texts


async def test_no_reply_07_a_sentence_about_the_token_is_delivered(db: Database, clock: FakeClock) -> None:
    text = "NO_REPLY is the word I use when I stay silent."
    world = World(db=db, clock=clock, model=ScriptedModel(in_turn(text)))
    await world.say("What does NO_REPLY mean?", group=True)
    assert world.channel.texts == [text]


async def test_text_013_control_words_of_a_person_mean_nothing(db: Database, clock: FakeClock) -> None:
    world = World(db=db, clock=clock, model=ScriptedModel(in_turn("Those are words of mine.")))
    await world.say("NO_REPLY HEARTBEAT_OK")
    assert world.channel.texts == ["Those are words of mine."]


@pytest.mark.parametrize(("group", "most"), [(True, 0), (False, 10)], ids=["empty-error-06", "private"])
async def test_a_failing_model_fills_no_group_with_its_errors(
    db: Database, clock: FakeClock, group: bool, most: int
) -> None:
    world = World(db=db, clock=clock, model=ScriptedModel(in_turn(ModelRefused("billing"))))
    for _ in range(10):
        await world.say("again", "-1" if group else "1", group=group)
    assert len(world.channel.texts) <= most
    assert len(world.model.prompts) == 10
