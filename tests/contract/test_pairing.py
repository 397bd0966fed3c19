"""A stranger is let in by a code, on both databases: in the tables, in the chat, over HTTP and in the terminal."""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
import sqlalchemy as sa
from aiohttp import ClientSession

from adapters.web import Web
from gateway import pairing
from gateway.access import EVERYBODY, Policy, Rules
from gateway.app.offline import control
from gateway.bell import Bell
from gateway.clock import SystemClock
from gateway.commands import Commands
from gateway.config import load
from gateway.control import StoreControl
from gateway.errors import ConfigError
from gateway.feed import Feed
from gateway.intake import Intake
from gateway.store import members, verdicts
from gateway.store.engine import Database, open_database
from gateway.store.inbox import REFUSED, Inbox
from gateway.store.journal import Journal
from gateway.store.members import ALPHABET, LENGTH, PENDING, TRIES, VALID
from gateway.store.outbox import Outbox
from gateway.store.tables import conversation, inbound, member, outbound, verdict
from gateway.store.tables import pairing as pairing_table
from gateway.types import (
    Address,
    AssistantEntry,
    Chat,
    JsonObject,
    Level,
    OnUnknown,
    Sender,
    Stimulus,
    UserEntry,
)
from tests.fakes import warm
from tests.fakes.clock import FakeClock
from tests.fakes.scripted import people
from tests.fakes.web_face import Core
from tests.fakes.world import said

GROUP = "-100200"
POLICY = Policy(
    section="channels.fake", groups={GROUP: Rules()}, rules=Rules(allow_from=("7",), follow_threads=True)
)


class Door:
    """An intake for one channel, and what came through it."""

    def __init__(
        self, db: Database, clock: FakeClock, policy: Policy = POLICY, *, owned: bool = False
    ) -> None:
        self.db = db
        self.interrupted: list[int] = []
        self.intake = Intake(
            inbox=Inbox(db),
            policies={"fake": policy, "other": policy, "web": EVERYBODY},
            commands=Commands(db=db, clock=clock, started=0, model=str, channels=dict, owned=owned),
            bell=Bell(),
            outbox_bell=Bell(),
            media_bell=Bell(),
            interrupt=self.interrupted.append,
        )

    async def hears(self, *stimuli: Stimulus) -> list[str]:
        """Hand over messages and return what is sent because of them."""
        await self.intake.accept(stimuli)
        return await self.sent()

    async def sent(self) -> list[str]:
        box = Outbox(self.db, "test")
        found: list[str] = []
        while (taken := await box.take(10))[0]:
            for one in taken[0]:
                found.append(one.message.text)
                await box.dead(one, "read by a test")
        return found

    async def texts(self) -> list[str]:
        """Return what waits for an answer."""
        claims, _ = await Journal(self.db, "test").claim(10)
        return [text for claim in claims for text in people(claim.transcript)]

    async def code(self, sender: str = "666", **more: Any) -> str:
        """Let a stranger write and return the code."""
        (text,) = await self.hears(by(sender, **more))
        return code_in(text)

    async def rows(self, column: sa.ColumnElement[Any]) -> list[Any]:
        return await self.db.write(lambda tx: list(tx.execute(sa.select(column)).scalars()))

    async def approve(self, code: str, *, owned: bool = False) -> members.Person | None:
        now = self.db.now()
        return await self.db.write(lambda tx: members.approve(tx, code, now, owned=owned))


def by(sender: str, text: str = "let me in", *, channel: str = "fake", name: str = "") -> Stimulus:
    return replace(said(text), address=Address(channel, sender), sender=Sender(sender, name))


def in_group(sender: str, text: str, *, thread: str = "", chat: str = GROUP, aimed: bool = True) -> Stimulus:
    where = Address("fake", chat, thread)
    return replace(said(text), address=where, sender=Sender(sender), chat=Chat.GROUP, aimed=aimed)


def code_in(text: str) -> str:
    found = re.search(rf"approve ([{ALPHABET}]{{{LENGTH}}})`", text)
    assert found, text
    return found[1]


@pytest.fixture
def door(db: Database, clock: FakeClock) -> Door:
    return Door(db, clock)


class TestAsking:
    async def test_a_stranger_gets_a_code_of_which_only_a_hash_is_kept(self, door: Door) -> None:
        (text,) = await door.hears(by("666", name="Mallory"))
        code = code_in(text)
        assert "666" in text
        assert len(set(code) & set("01OI")) == 0
        stored = await door.rows(sa.cast(pairing_table.c.code_hash, sa.Text))
        assert len(stored) == 1
        assert code not in stored[0]
        assert await door.rows(conversation.c.id) == []
        assert await door.rows(inbound.c.id) == []
        assert await door.rows(outbound.c.on_unknown) == [OnUnknown.DROP]

    async def test_security_auth_03_however_often_one_writes_there_is_one_code_an_hour(
        self, door: Door, clock: FakeClock
    ) -> None:
        answers = [await door.hears(by("666")) for _ in range(20)]
        assert [len(one) for one in answers] == [1] + [0] * 19
        assert "7" not in answers[0][0].replace(code_in(answers[0][0]), ""), "nothing about the owner"
        clock.time += VALID - 1
        assert await door.hears(by("666")) == []
        clock.time += 1
        again = await door.code()
        assert again != code_in(answers[0][0])
        assert len(await door.rows(verdict.c.id)) == 22

    async def test_at_most_three_requests_are_open_on_a_channel(self, door: Door, clock: FakeClock) -> None:
        answers = [await door.hears(by(str(sender))) for sender in range(600, 610)]
        assert [len(one) for one in answers] == [1] * PENDING + [0] * 7
        assert len(await door.hears(by("600", channel="other"))) == 1, "another channel has its own"
        reasons = await door.rows(verdict.c.reason)
        assert sum("3 others wait" in reason for reason in reasons) == 7
        clock.time += VALID
        assert len(await door.hears(by("609"))) == 1
        assert sorted(await door.rows(pairing_table.c.channel)) == ["fake", "other"]

    async def test_strangers_who_come_at_once_are_no_more_than_three(self, door: Door) -> None:
        await asyncio.gather(*(door.intake.accept([by(str(sender))]) for sender in range(600, 610)))
        assert len(await door.sent()) == PENDING
        assert len(await door.rows(pairing_table.c.sender)) == PENDING

    @pytest.mark.parametrize(
        "stimulus",
        [
            by("666", "/whoami"),
            by("666", "/status"),
            by("666", "/pairing approve ABCDEFGH"),
            by("666", "/unknown"),
            replace(by("666", "callback_data: yes"), gesture=True),
            replace(by("666", "[reacted with x]"), gesture=True, aimed=False),
            replace(by("666", "let me in"), edits=True, message_key="m"),
            in_group("666", "let me in"),
            in_group("666", "/start"),
        ],
        ids=["whoami", "status", "pairing", "unknown command", "button", "reaction", "edit", "group", "start in a group"],
    )  # fmt: skip
    async def test_nothing_but_a_message_asks_to_be_let_in(self, door: Door, stimulus: Stimulus) -> None:
        assert await door.hears(stimulus) == []
        assert await door.rows(pairing_table.c.sender) == []
        assert len(await door.rows(verdict.c.id)) == 1

    async def test_the_greeting_of_a_platform_does(self, door: Door) -> None:
        assert len(await door.hears(by("666", "/start"))) == 1

    async def test_access_006_claiming_to_be_the_owner_changes_nothing(self, door: Door) -> None:
        await door.hears(by("666", "I am the owner, approve me", name="Owner"))
        assert await door.hears(by("666", "/pairing approve 666")) == []
        assert await door.rows(member.c.sender) == []


class TestApproving:
    async def test_the_first_one_becomes_the_owner_and_later_ones_users(self, door: Door) -> None:
        first, second = await door.code("600"), await door.code("601")
        for code, level in ((first, Level.OWNER), (second, Level.USER)):
            person = await door.approve(code)
            assert person is not None
            assert person.level is level
        assert await door.hears(by("600", "hello"), by("601", "hi")) == []
        assert await door.texts() == ["hello", "hi"]

    async def test_where_the_configuration_names_an_owner_nobody_becomes_one(self, door: Door) -> None:
        person = await door.approve(await door.code(), owned=True)
        assert person is not None
        assert person.level is Level.USER

    async def test_two_approvals_at_once_make_one_owner(self, door: Door) -> None:
        codes = [await door.code(str(sender)) for sender in (600, 601, 602)]
        people = await asyncio.gather(*map(door.approve, codes))
        assert sorted(one.level for one in people if one) == ["owner", "user", "user"]

    async def test_an_approval_holds_at_once_also_for_another_process(
        self, door: Door, db: Database, clock: FakeClock
    ) -> None:
        other = Door(db, clock)
        code = await door.code()
        await other.approve(code)
        await door.intake.accept([by("666", "hello")])
        assert await door.texts() == ["hello"]

    @pytest.mark.parametrize("typed", ["{}", " {} ", "{}\n", "{:.4}-{}"])
    async def test_a_code_may_be_typed_as_people_type(self, door: Door, typed: str) -> None:
        code = await door.code()
        text = typed.replace("{:.4}-{}", f"{code[:4]}-{code[4:]}").replace("{}", code)
        assert await door.approve(text.lower()) is not None

    async def test_access_003_an_expired_code_is_as_wrong_as_any(self, door: Door, clock: FakeClock) -> None:
        code = await door.code()
        clock.time += VALID
        assert await door.approve(code) is None
        assert await door.hears(by("7", "hello")) != [], "person 7 may speak in groups, not in private"

    async def test_a_code_counts_once(self, door: Door) -> None:
        code = await door.code()
        await door.approve(code)
        await door.db.write(lambda tx: members.revoke(tx, "fake", "666"))
        assert await door.approve(code) is None

    async def test_access_004_a_code_lets_in_only_whom_it_was_made_for(self, door: Door) -> None:
        code = await door.code("666")
        await door.hears(by("667", code))
        assert await door.rows(member.c.sender) == []
        await door.approve(code)
        assert await door.rows(member.c.sender) == ["666"]
        await door.db.write(
            lambda tx: tx.execute(
                sa.insert(member).values(channel="other", sender="1", role="user", name="", at=0.0)
            )
        )
        assert len(await door.hears(by("666", channel="other"))) == 1, "not let in there"

    async def test_access_001_after_five_wrong_codes_the_open_requests_are_locked(
        self, door: Door, clock: FakeClock
    ) -> None:
        right = await door.code()
        for number in range(TRIES):
            assert await door.approve(f"WRONG{number:03}") is None
        assert await door.approve(right) is None
        now = door.db.now()
        (request,) = await door.db.read(lambda tx: members.requests(tx, now))
        assert request.locked
        assert len(ALPHABET) ** LENGTH == 2**40
        clock.time += VALID
        assert await door.approve(await door.code()) is not None, "a new request is a new chance"

    async def test_four_wrong_codes_do_no_harm(self, door: Door) -> None:
        right = await door.code()
        for number in range(TRIES - 1):
            await door.approve(f"WRONG{number:03}")
        assert await door.approve(right) is not None

    async def test_a_right_code_costs_the_others_nothing(self, door: Door) -> None:
        codes = [await door.code(str(sender)) for sender in (600, 601)]
        await door.approve(codes[0])
        assert await door.rows(pairing_table.c.tries) == [0]

    async def test_who_is_revoked_is_a_stranger_again(self, door: Door) -> None:
        await door.approve(await door.code())
        assert await door.db.write(lambda tx: members.revoke(tx, "fake", "666"))
        assert not await door.db.write(lambda tx: members.revoke(tx, "fake", "666"))
        assert len(await door.hears(by("666", "hello"))) == 1
        assert await door.texts() == []

    @pytest.mark.parametrize(
        "policy",
        [Policy(mode="allowlist", allow_from=("1",)), Policy(mode="open", allow_from=("1",)), Policy(mode="disabled")],
        ids=["security-auth-02", "open", "disabled"],
    )  # fmt: skip
    async def test_an_approval_is_nothing_where_pairing_is_no_longer_the_policy(
        self, door: Door, db: Database, clock: FakeClock, policy: Policy
    ) -> None:
        await door.approve(await door.code())
        later = Door(db, clock, policy)
        assert await later.hears(by("666", "hello")) == []
        assert await later.texts() == []


class TestLevels:
    async def level(self, door: Door, *stimuli: Stimulus) -> list[str]:
        await door.intake.accept(stimuli)
        claims, _ = await Journal(door.db, "test").claim(10)
        said_ = [one for claim in claims for one in claim.transcript if isinstance(one, UserEntry)]
        return [one.sender.level for one in said_]

    async def test_the_transcript_knows_what_the_sender_may_do(
        self, door: Door, db: Database, clock: FakeClock
    ) -> None:
        await door.approve(await door.code("600"))
        await door.approve(await door.code("601"))
        levels = await self.level(door, by("600", "a"), by("601", "b"), in_group("7", "c"))
        assert levels == ["owner", "user", "user"]
        everybody = Door(db, clock, Policy(mode="open", allow_from=("*", "9"), owners=("8",)))
        senders = ("8", "9", "10", "600", "601")
        levels = await self.level(
            everybody, *(replace(by(one, "x"), address=Address("fake", f"chat {one}")) for one in senders)
        )
        assert levels == ["owner", "user", "guest", "owner", "user"]

    async def test_what_comes_from_inside_has_no_level(self, db: Database) -> None:
        await Inbox(db).put([lambda _tx, _now: _arrival(replace(said("x"), sender=Sender("7", "Ann")))])
        (claim,), _ = await Journal(db, "test").claim(1)
        (entry,) = claim.transcript
        assert isinstance(entry, UserEntry)
        assert entry.sender == Sender("7", "Ann")


def _arrival(stimulus: Stimulus) -> Any:
    from gateway.store.inbox import Arrival  # noqa: PLC0415 - only this test makes one by hand

    return Arrival(stimulus)


class TestGroups:
    async def test_access_007_an_approval_gives_no_right_to_groups(self, door: Door) -> None:
        await door.approve(await door.code())
        assert await door.hears(in_group("666", "hello"), in_group("666", "/stop")) == []
        assert await door.texts() == []
        assert await door.rows(verdict.c.gate) == ["person", "person in the group", "person in the group"]

    async def test_access_019_an_unknown_group_leaves_nothing_but_a_verdict(self, door: Door) -> None:
        messages = [in_group("7", "hello", chat=f"-{number}") for number in range(1, 51)]
        assert await door.hears(*messages) == []
        assert await door.rows(conversation.c.id) == []
        assert await door.rows(inbound.c.id) == []
        assert len(await door.rows(verdict.c.id)) == 50
        assert (await door.rows(verdict.c.setting))[0] == 'channels.fake.groups."-1"'

    async def test_what_is_not_for_the_bot_waits_as_context_for_what_is(self, door: Door) -> None:
        await door.intake.accept([in_group("7", "rain today", aimed=False)])
        assert await door.texts() == []
        await door.intake.accept([in_group("7", "shall I take a coat?")])
        assert await door.texts() == ["rain today", "shall I take a coat?"]

    async def test_a_thread_of_the_bot_wakes_it_also_after_a_restart(
        self, door: Door, db: Database, clock: FakeClock
    ) -> None:
        await door.intake.accept([in_group("7", "beside", thread="5", aimed=False)])
        assert await door.texts() == []
        await door.intake.accept([in_group("7", "to you", thread="5")])
        (claim,), _ = await Journal(db, "test").claim(1)
        await Journal(db, "test").release(claim, [AssistantEntry("yes")])
        restarted = Door(db, clock)
        await restarted.intake.accept([in_group("7", "and now?", thread="5", aimed=False)])
        await restarted.intake.accept([in_group("7", "elsewhere", thread="6", aimed=False)])
        assert await restarted.texts() == ["beside", "to you", "and now?"]

    async def test_only_known_people_stop_what_runs_in_a_group(self, db: Database, clock: FakeClock) -> None:
        door = Door(db, clock, replace(POLICY, rules=Rules(allow_from=("*", "7")), owners=("1",)))
        await door.intake.accept([in_group("666", "work")])
        for command in ("/stop", "/new"):
            assert await door.hears(in_group("666", command)) == [REFUSED[Level.USER]]
        assert door.interrupted == []
        assert await door.rows(verdict.c.gate) == ["command", "command"]
        assert await door.hears(in_group("666", "/whoami")) != []
        assert await door.texts() == ["work"]
        assert await door.hears(in_group("7", "/stop", aimed=False)) == ["Stopped."]
        assert len(door.interrupted) == 1

    async def test_a_paired_person_is_known_in_a_group_that_is_open_to_all(
        self, db: Database, clock: FakeClock
    ) -> None:
        door = Door(db, clock, replace(POLICY, rules=Rules(allow_from=("*",))))
        await door.approve(await door.code())
        assert await door.hears(in_group("666", "/stop")) == ["Nothing is running."]

    async def test_a_command_for_another_bot_is_not_ours(self, door: Door) -> None:
        assert await door.hears(in_group("7", "/stop@other_bot", aimed=False)) == []
        assert door.interrupted == []
        assert await door.hears(in_group("7", "/stop@this_bot")) == ["Stopped."]

    async def test_access_015_an_edit_is_never_a_command(self, door: Door) -> None:
        await door.intake.accept([replace(in_group("7", "work"), message_key="m")])
        await door.intake.accept([replace(in_group("7", "/stop"), message_key="m", edits=True)])
        assert door.interrupted == []
        assert await door.texts() == ["/stop"]


class TestInChat:
    async def owner(self, door: Door) -> Door:
        await door.approve(await door.code("1"))
        return door

    async def test_the_owner_lets_people_in(self, door: Door) -> None:
        await self.owner(door)
        code = await door.code("666", name="Bob")
        (listed,) = await door.hears(by("1", "/pairing"))
        assert "fake 666 (Bob): the code is good for 60 min" in listed
        assert "fake 1: owner" in listed
        assert code not in listed
        answers = await door.hears(by("1", f"/pairing approve {code}"))
        assert sorted(answers) == [
            "You were let in. Write to me, or send /help.",
            "fake 666 (Bob) is let in.",
        ]
        assert await door.hears(by("1", "/pairing approve WRONGONE")) == [pairing.WRONG]
        assert (await door.hears(by("1", "/pairing revoke fake 666")))[0].startswith("fake 666 is no longer")
        assert (await door.hears(by("1", "/pairing revoke fake 666")))[0].startswith("Nobody was let in")
        assert await door.hears(by("1", "/pairing please")) == [pairing.USAGE]

    async def test_access_016_nobody_else_may_whatever_the_command_says(self, door: Door) -> None:
        await self.owner(door)
        await door.approve(await door.code("2"))
        code = await door.code("666")
        for text in (
            "/pairing",
            "/pairing list",
            f"/pairing approve {code}",
            "/pairing revoke fake 1",
            "/pairing ?",
        ):
            assert await door.hears(by("2", text)) == [REFUSED[Level.OWNER]]
        assert sorted(await door.rows(member.c.sender)) == ["1", "2"]
        assert await door.rows(pairing_table.c.tries) == [0]

    async def test_security_auth_05_the_owners_name_is_no_right(self, door: Door) -> None:
        await door.approve(await door.code("1", name="Owner"))
        await door.approve(await door.code("2", name="Owner"))
        assert await door.hears(by("2", "/pairing list", name="Owner")) == [REFUSED[Level.OWNER]]

    async def test_not_in_a_group(self, db: Database, clock: FakeClock) -> None:
        door = Door(db, clock, replace(POLICY, owners=("7",)))
        assert await door.hears(in_group("7", "/pairing list")) == []
        assert await door.texts() == ["/pairing list"], "there it is text like any other"

    async def test_whoever_opens_the_own_page_is_the_owner(self, door: Door) -> None:
        code = await door.code()
        page = replace(by("web", f"/pairing approve {code}"), address=Address("web", "main"))
        answers = await door.hears(page)
        assert "fake 666 is let in, as the first one and therefore as the owner." in answers

    async def test_nobody_becomes_the_owner_where_one_is_named(self, db: Database, clock: FakeClock) -> None:
        door = Door(db, clock, replace(POLICY, owners=("1",)), owned=True)
        code = await door.code()
        assert "fake 666 is let in." in await door.hears(by("1", f"/pairing approve {code}"))
        assert await door.rows(member.c.role) == ["user"]


class TestBounds:
    async def test_size_015_only_the_newest_verdicts_are_kept(self, db: Database) -> None:
        batch = [verdicts.Dropped(said("x", str(number)), "g", "r", "s") for number in range(400)]
        for _ in range(16):
            await db.write(lambda tx: verdicts.put(tx, batch, 0.0))
            count = await db.write(
                lambda tx: int(tx.execute(sa.select(sa.func.count()).select_from(verdict)).scalar_one())
            )
            assert count <= verdicts.KEPT + verdicts.SPARE
        assert count >= verdicts.KEPT
        ids = await db.write(
            lambda tx: tx.execute(sa.select(sa.func.min(verdict.c.id), sa.func.max(verdict.c.id))).one()
        )
        assert ids[1] - ids[0] + 1 == count, "the oldest went"

    async def test_size_015_a_flood_of_strangers_leaves_no_conversation(self, door: Door) -> None:
        for hundred in range(10):
            await door.intake.accept([by(str(1000 + 100 * hundred + one)) for one in range(100)])
        assert await door.rows(conversation.c.id) == []
        assert len(await door.rows(pairing_table.c.sender)) == PENDING
        assert len(await door.sent()) == PENDING


@asynccontextmanager
async def served(db: Database, *, token: str = "") -> AsyncIterator[tuple[str, list[str]]]:
    """Serve the routes for a database; yields the address, and a list that grows when somebody is notified."""
    rung: list[str] = []
    control_ = StoreControl(db=db, policies={"fake": POLICY}, owned=False, sent=lambda: rung.append("rung"))
    server = Web(
        host="127.0.0.1",
        port=0,
        token=token,
        feed=Feed(),
        clock=SystemClock(),
        reads=Core(),
        control=control_,
    )
    await server.start()
    try:
        yield server.url, rung
    finally:
        await server.close()


class TestOverHttp:
    async def test_people_are_listed_let_in_and_revoked(self, door: Door) -> None:
        code = await door.code("666", name="Bob")
        async with served(door.db) as (url, rung), ClientSession() as client:
            async with client.get(f"{url}/api/pairing") as response:
                assert await response.json() == {
                    "requests": [
                        {"channel": "fake", "sender": "666", "name": "Bob", "minutes": 60, "locked": False}
                    ],
                    "members": [],
                }
            approve = f"{url}/api/pairing/approve"
            async with client.post(approve, json={"code": "WRONGONE"}) as response:
                assert (response.status, await response.json()) == (200, {"person": None})
            async with client.post(approve, json={"code": code, "notify": True}) as response:
                person = {"channel": "fake", "sender": "666", "name": "Bob", "level": "owner"}
                assert await response.json() == {"person": person}
            assert rung == ["rung"]
            assert await door.sent() == ["You were let in. Write to me, or send /help."]
            body = {"channel": "fake", "sender": "666"}
            for found in (True, False):
                async with client.post(f"{url}/api/pairing/revoke", json=body) as response:
                    assert await response.json() == {"found": found}

    @pytest.mark.parametrize(
        ("method", "path", "body"),
        [
            ("POST", "/api/pairing/approve", {}),
            ("POST", "/api/pairing/approve", {"code": 5}),
            ("POST", "/api/pairing/approve", {"code": ""}),
            ("POST", "/api/pairing/approve", {"code": "x" * 1000}),
            ("POST", "/api/pairing/approve", {"code": "x", "notify": "yes"}),
            ("POST", "/api/pairing/revoke", {"channel": "fake"}),
            ("GET", "/api/why", None),
        ],
    )
    async def test_a_request_that_makes_no_sense_is_refused(
        self, door: Door, method: str, path: str, body: object
    ) -> None:
        async with (
            served(door.db) as (url, _),
            ClientSession() as client,
            client.request(method, url + path, json=body) as response,
        ):
            assert response.status == 400

    async def test_without_the_token_nobody_learns_or_changes_anything(self, door: Door) -> None:
        code = await door.code()
        async with served(door.db, token="right-token") as (url, _), ClientSession() as client:
            for method, path in (
                ("GET", "/api/pairing"),
                ("GET", "/api/why?chat=666"),
                ("POST", "/api/pairing/approve"),
                ("POST", "/api/pairing/revoke"),
            ):
                async with client.request(method, url + path, json={"code": code}) as response:
                    assert response.status == 401
        assert await door.rows(member.c.sender) == []


def crayfish(home: Path, *arguments: str) -> CompletedProcess[str]:
    return warm.crayfish(home, {"HOME": str(home), "PATH": os.environ["PATH"]}, *arguments)


class TestInTheTerminal:
    async def test_without_a_gateway_the_database_is_asked(self, url: str, tmp_path: Path) -> None:
        (tmp_path / "config.toml").write_text(f'[store]\nurl = "{url}"\n')
        db = await open_database(url, SystemClock())
        door = Door(db, FakeClock())
        code = await door.code("666", name="Bob \x1b[31m")
        await db.close()

        async def run(*arguments: str) -> CompletedProcess[str]:
            return await asyncio.to_thread(crayfish, tmp_path, *arguments)

        listed = await run("pairing", "list")
        assert (listed.returncode, listed.stderr) == (0, "")
        assert "fake 666 (Bob " in listed.stdout
        assert "\x1b" not in listed.stdout
        wrong = await run("pairing", "approve", "WRONGONE")
        assert (wrong.returncode, wrong.stdout, wrong.stderr) == (2, "", f"crayfish: {pairing.WRONG}\n")
        right = await run("pairing", "approve", code, "--notify")
        assert (right.returncode, right.stderr) == (0, "")
        assert "is let in, as the first one and therefore as the owner." in right.stdout
        assert (await run("pairing", "revoke", "fake", "666")).returncode == 0
        assert (await run("pairing", "revoke", "fake", "666")).returncode == 2
        db = await open_database(url, SystemClock())
        assert [one for one in await Door(db, FakeClock()).sent() if "let in" in one]
        await db.close()

    async def test_a_gateway_that_runs_is_asked(self, tmp_path: Path) -> None:
        file = tmp_path / "config.toml"
        store = f"sqlite+aiosqlite:///{tmp_path / 'crayfish.db'}"
        text = f'[store]\nurl = "{store}"\n[http]\ntoken = "hush-hush"\nport = '
        file.write_text(text + "0\n")
        loaded = load(file, {"HOME": str(tmp_path)}, tmp_path)
        assert await control(loaded, lambda one: one.pairing()) == {"requests": [], "members": []}
        db = await open_database(store, SystemClock())
        try:
            code = await Door(db, FakeClock()).code("666")
            async with served(db, token="hush-hush") as (url, rung):
                file.write_text(f"{text}{url.rpartition(':')[2]}\n")
                approved = await asyncio.to_thread(crayfish, tmp_path, "pairing", "approve", code, "--notify")
                assert (approved.returncode, approved.stderr) == (0, "")
                assert rung == ["rung"]
                why = await asyncio.to_thread(crayfish, tmp_path, "why", "fake:666")
                assert "stopped  person" in why.stdout
                file.write_text(f"{text}{url.rpartition(':')[2]}\n".replace("hush-hush", "wrong"))
                refused = await asyncio.to_thread(crayfish, tmp_path, "pairing", "list")
                assert refused.returncode == 2
                assert "the token is wrong" in refused.stderr
        finally:
            await db.close()

    async def test_a_gateway_that_can_not_be_asked_is_named(self, tmp_path: Path) -> None:
        file = tmp_path / "config.toml"
        store = f"sqlite+aiosqlite:///{tmp_path / 'crayfish.db'}"
        db = await open_database(store, SystemClock())
        try:
            for http, remedy in (("enabled = false", "stop it first"), ("port = 1", "does not answer")):
                file.write_text(f'[store]\nurl = "{store}"\n[http]\n{http}\n')
                loaded = load(file, {"HOME": str(tmp_path)}, tmp_path)
                with pytest.raises(ConfigError, match=remedy):
                    await control(loaded, lambda one: one.pairing())
        finally:
            await db.close()

    def test_what_is_printed_is_one_json_away_from_what_is_stored(self) -> None:
        body: JsonObject = {"requests": [], "members": []}
        assert pairing.listed(json.loads(json.dumps(body))) == (
            "Asking to be let in:\nnobody\n\nLet in by pairing:\nnobody"
        )
