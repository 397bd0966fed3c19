"""`crayfish why` tells of each message where it was stopped, or how far it has come, on both databases."""

from __future__ import annotations

from dataclasses import replace

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from gateway import why
from gateway.access import Policy, Rules
from gateway.bell import Bell
from gateway.commands import Commands
from gateway.control import StoreControl
from gateway.intake import Intake
from gateway.store.engine import Database
from gateway.store.inbox import Arrival, Inbox
from gateway.store.journal import Claim, Journal
from gateway.store.outbox import Outbox
from gateway.store.tables import outbound
from gateway.types import (
    Address,
    AssistantEntry,
    Attachment,
    Chat,
    JsonObject,
    Kind,
    Media,
    Outgoing,
    Receipt,
    Sender,
    Stimulus,
    ToolCall,
)
from tests.fakes.clock import FakeClock
from tests.fakes.world import said

GROUP = "-100200"
POLICY = Policy(
    section="channels.fake",
    mode="allowlist",
    allow_from=("7",),
    rules=Rules(allow_from=("7",)),
    groups={GROUP: Rules(topics={"9": Rules(enabled=False)})},
)


class Asked:
    """A database behind the door of one channel, and the answers about it."""

    def __init__(self, db: Database, clock: FakeClock, policy: Policy = POLICY) -> None:
        self.db = db
        self.control = StoreControl(db=db, policies={"fake": policy}, owned=False, sent=lambda: None)
        self.journal = Journal(db, "test")
        self.intake = Intake(
            inbox=Inbox(db),
            policies={"fake": policy},
            commands=Commands(db=db, clock=clock, started=0, model=str, channels=dict),
            bell=Bell(),
            outbox_bell=Bell(),
            media_bell=Bell(),
            interrupt=lambda _which: None,
        )

    async def hears(self, *stimuli: Stimulus) -> None:
        await self.intake.accept(stimuli)

    async def claim(self) -> Claim:
        (claim,), _ = await self.journal.claim(1)
        return claim

    async def answer(self, claim: Claim, text: str) -> None:
        """End a turn as the gateway does."""
        key = f"reply:{claim.conversation_id}:{claim.next_seq}:0"
        pieces = [Outgoing(key=key, address=claim.address, text=text)] if text else []
        await self.journal.release(claim, [AssistantEntry(text)], pieces)

    async def about(self, chat: str, message: str = "") -> JsonObject:
        found = (await self.control.why(chat, message))["message"]
        assert found is not None
        return dict(found)

    async def steps(self, chat: str, message: str = "") -> list[tuple[str, str]]:
        """Return the gates and states."""
        return [(step["gate"], step["state"]) for step in (await self.about(chat, message))["steps"]]

    async def last(self, chat: str, message: str = "") -> str:
        """Return what the last step says."""
        return str((await self.about(chat, message))["steps"][-1]["text"])


@pytest.fixture
def asked(db: Database, clock: FakeClock) -> Asked:
    return Asked(db, clock)


def wrote(text: str = "hello", *, sender: str = "7", number: int = 1) -> Stimulus:
    message = replace(said(text), sender=Sender(sender, "Ann"), address=Address("fake", sender))
    return replace(message, message_id=str(number))


def spoke(
    text: str = "hello", *, sender: str = "7", thread: str = "", number: int = 1, aimed: bool = True
) -> Stimulus:
    where = Address("fake", GROUP, thread)
    return replace(wrote(text, sender=sender, number=number), address=where, chat=Chat.GROUP, aimed=aimed)


class TestStopped:
    @pytest.mark.parametrize(
        ("stimulus", "chat", "steps", "advice"),
        [
            (wrote(sender="666"), "fake:666", [("private chats", "passed"), ("person", "stopped")], 'Add "666" to channels.fake.allow_from'),
            (spoke(sender="666"), f"fake:{GROUP}", [("group", "passed"), ("person in the group", "stopped")], 'Add "666", or "*" for everybody in the group, to channels.fake.group_allow_from'),
            (spoke(thread="9"), f"fake:{GROUP}:9", [("group", "stopped")], f'Change channels.fake.groups."{GROUP}".topics."9".enabled'),
            (replace(spoke(), address=Address("fake", "-5")), "-5", [("group", "stopped")], 'Add the table [channels.fake.groups."-5"]'),
            (spoke(aimed=False), GROUP, [("group", "passed"), ("person in the group", "passed"), ("mention", "stopped")], "set channels.fake.require_mention = false"),
        ],
        ids=["a stranger", "a stranger in a group", "a topic that is off", "an unknown group", "no mention"],
    )  # fmt: skip
    async def test_the_gate_and_the_setting_are_named(
        self, asked: Asked, stimulus: Stimulus, chat: str, steps: list[tuple[str, str]], advice: str
    ) -> None:
        await asked.hears(stimulus)
        assert await asked.steps(chat) == steps
        assert advice in (await asked.about(chat))["advice"]
        assert await asked.steps(chat, "1") == steps

    async def test_a_switched_off_channel(self, db: Database, clock: FakeClock) -> None:
        asked = Asked(db, clock, replace(POLICY, mode="disabled"))
        await asked.hears(wrote())
        assert await asked.steps("7") == [("private chats", "stopped")]
        assert (await asked.about("7"))["advice"].startswith("Change channels.fake.dm_policy")

    async def test_a_stranger_who_got_a_code(self, db: Database, clock: FakeClock) -> None:
        asked = Asked(db, clock, replace(POLICY, mode="pairing"))
        await asked.hears(wrote(sender="666", number=1))
        assert "a pairing code was sent" in await asked.last("666", "1")
        await asked.hears(wrote(sender="666", number=2))
        assert "waits for approval" in await asked.last("666", "2")
        assert "crayfish pairing list" in (await asked.about("666"))["advice"]

    async def test_a_command_that_needs_more_rights(self, db: Database, clock: FakeClock) -> None:
        asked = Asked(db, clock, replace(POLICY, rules=Rules(allow_from=("*",))))
        await asked.hears(spoke("/new", sender="666"))
        assert await asked.steps(GROUP) == [("person", "passed"), ("command", "stopped")]

    async def test_context_that_was_taken_in_was_still_not_for_the_bot(self, asked: Asked) -> None:
        await asked.hears(spoke("beside", number=1, aimed=False), spoke("to you", number=2))
        await asked.answer(await asked.claim(), "yes")
        assert (await asked.steps(GROUP, "1"))[-1] == ("mention", "stopped")
        assert (await asked.steps(GROUP, "2"))[-1] == ("reply", "waits")


class TestLetIn:
    gates = [("private chats", "passed"), ("person", "passed")]  # noqa: RUF012 - never changed

    async def test_it_waits_for_its_turn(self, asked: Asked) -> None:
        await asked.hears(wrote())
        assert await asked.steps("7") == [*self.gates, ("queue", "waits")]
        assert await asked.last("7") == "it waits for its turn"

    async def test_it_waits_for_more_of_the_same(self, asked: Asked) -> None:
        await asked.hears(replace(wrote(), hold=2.0))
        assert "more of the same" in await asked.last("7")

    async def test_it_waits_for_its_files(self, asked: Asked) -> None:
        photo = Attachment(kind=Media.IMAGE, ref="photo")
        await asked.hears(replace(wrote(), attachments=(photo,)))
        assert await asked.last("7") == "it waits for its files to be fetched"

    async def test_its_turn_is_not_over(self, asked: Asked) -> None:
        await asked.hears(wrote())
        claim = await asked.claim()
        assert await asked.steps("7") == [*self.gates, ("queue", "passed"), ("turn", "waits")]
        await asked.journal.append(claim, [AssistantEntry("", (ToolCall("c", "read"),))])
        assert await asked.last("7") == "the turn is not over yet"

    async def test_the_bot_chose_to_be_silent(self, asked: Asked) -> None:
        await asked.hears(wrote())
        await asked.answer(await asked.claim(), "")
        assert (await asked.steps("7"))[-1] == ("reply", "stopped")
        assert await asked.last("7") == "the bot chose to say nothing"

    async def test_the_reply_was_delivered(self, asked: Asked) -> None:
        await asked.hears(wrote())
        await asked.answer(await asked.claim(), "hi")
        assert (await asked.steps("7"))[-1] == ("reply", "waits")
        box = Outbox(asked.db, "test")
        (delivery,), _ = await box.take(1)
        await box.sent(delivery, Receipt("9"))
        passed = ("queue", "passed"), ("turn", "passed"), ("reply", "passed")
        assert await asked.steps("7") == [*self.gates, *passed]
        assert (await asked.about("7"))["advice"] == ""

    async def test_the_reply_could_not_be_delivered(self, asked: Asked) -> None:
        await asked.hears(wrote())
        await asked.answer(await asked.claim(), "hi")
        box = Outbox(asked.db, "test")
        (delivery,), _ = await box.take(1)
        await box.dead(delivery, "the person has blocked the bot")
        assert await asked.last("7") == "the reply could not be delivered: the person has blocked the bot"

    async def test_nobody_knows_whether_the_reply_arrived(self, asked: Asked) -> None:
        await asked.hears(wrote())
        await asked.answer(await asked.claim(), "hi")
        await asked.db.write(_unknown)
        assert await asked.last("7") == "the reply may not have arrived: no reason was given"

    async def test_it_was_a_command(self, asked: Asked) -> None:
        await asked.hears(wrote("/help"))
        assert await asked.steps("7") == [*self.gates, ("command", "passed"), ("reply", "waits")]

    async def test_it_was_cleared(self, asked: Asked) -> None:
        await asked.hears(wrote(number=1), wrote("/stop", number=2))
        assert await asked.last("7", "1") == "it was cleared by /stop or /new before its turn came"

    async def test_in_a_group(self, asked: Asked) -> None:
        await asked.hears(spoke())
        gates = [("group", "passed"), ("person in the group", "passed"), ("mention", "passed")]
        assert await asked.steps(GROUP) == [*gates, ("queue", "waits")]


def _unknown(tx: Connection) -> None:
    tx.execute(sa.update(outbound).values(state="unknown", problem=None))


class TestFinding:
    async def test_a_chat_may_be_named_in_three_ways(self, asked: Asked) -> None:
        await asked.hears(spoke(thread="5"))
        for chat in (GROUP, f"fake:{GROUP}", f"fake:{GROUP}:5"):
            assert (await asked.about(chat))["chat"] == f"fake:{GROUP}:5"
        for chat in ("-100", f"fake:{GROUP}:6", f"other:{GROUP}", "%", "_"):
            assert (await asked.control.why(chat, ""))["message"] is None

    async def test_without_a_message_it_is_the_newest_whatever_became_of_it(
        self, asked: Asked, clock: FakeClock
    ) -> None:
        await asked.hears(spoke(number=1))
        clock.time += 1
        await asked.hears(spoke(number=2, sender="666"))
        assert (await asked.about(GROUP))["message"] == "2"
        clock.time += 1
        await asked.hears(spoke(number=3))
        assert (await asked.about(GROUP))["message"] == "3"
        assert (await asked.about(GROUP, "1"))["sender"] == "7"

    async def test_a_number_in_the_text_is_no_message(self, asked: Asked) -> None:
        await asked.hears(wrote('what is "message_id":"5"?', number=1))
        assert (await asked.control.why("7", "5"))["message"] is None

    async def test_what_the_bot_does_by_itself_is_no_message(self, asked: Asked) -> None:
        await Inbox(asked.db).put([Arrival(replace(said("wake up", "7"), kind=Kind.HEARTBEAT))])
        assert (await asked.control.why("7", ""))["message"] is None


class TestText:
    async def test_a_newcomer_can_read_it(self, asked: Asked, clock: FakeClock) -> None:
        await asked.hears(spoke(number=57, aimed=False))
        text = why.as_text((await asked.control.why(GROUP, "57"))["message"], GROUP, "57")
        lines = text.splitlines()
        assert lines[0].startswith(f"Message 57 of fake:{GROUP}, from 7 (Ann), at ")
        assert lines[1:] == [
            "  passed   group                the bot may speak in this group",
            "  passed   person in the group  the sender may talk to the bot in this group",
            "  stopped  mention              the bot was not addressed, so the message is only context for the next one that is for it",
            "-> Mention the bot or reply to it, or set channels.fake.require_mention = false and restart.",
        ]

    @pytest.mark.parametrize(
        ("message", "what"), [("", "any message of chat 5"), ("8", "message 8 of chat 5")]
    )
    def test_what_nobody_knows_is_told_with_the_likely_reasons(self, message: str, what: str) -> None:
        text = why.as_text(None, "5", message)
        assert text.startswith(f"Nothing is known of {what}.")
        assert "/whoami" in text
