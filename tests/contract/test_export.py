"""What was said, written to a file: for people, for programs, and for nobody else."""

from __future__ import annotations

import asyncio
import json
import os
import re
import stat
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
import sqlalchemy as sa

from gateway.cli import main
from gateway.compaction import Limits
from gateway.errors import ConfigError
from gateway.export import Archive
from gateway.redact import Redactor
from gateway.store import archive, journal
from gateway.store.engine import Database, open_database, open_reader
from gateway.store.migrate import create
from gateway.store.tables import entry
from gateway.types import Attachment, Media, Sender
from tests.fakes.clock import FakeClock
from tests.fakes.scripted import ScriptedModel, call, calls, in_turn
from tests.fakes.world import World, said

HEADINGS = "Goal, State and decisions, Open requests, Facts and identifiers, Files and commands, Next steps"
SUMMARY = "\n".join(f"## {heading}" for heading in HEADINGS.split(", "))
SECRET = "hunter2-hunter2"


@pytest.fixture
async def past(db: Database, url: str) -> AsyncIterator[Archive]:
    reader = open_reader(url)
    yield Archive(reader=reader, zone=ZoneInfo("UTC"), redact=Redactor([SECRET]))
    await reader.close()


@pytest.fixture
def one(db: Database, clock: FakeClock) -> World:
    return World(db=db, clock=clock, model=ScriptedModel(in_turn("fine")))


async def text(past: Archive, tmp_path: Path, form: str = "md", session: int | None = None) -> str:
    out = tmp_path / "talk"
    await past.export("fake:1", "md" if form == "md" else "jsonl", session, out)
    return out.read_text()


def undated(written: str) -> str:
    """Return a text without times: a server has a clock of its own."""
    return re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d", "TIME", written)


async def test_markdown_reads_as_a_talk(one: World, past: Archive, tmp_path: Path) -> None:
    one.model.answer = in_turn(calls(call("look", path="a`b")), "There is *nothing*.")
    picture = Attachment(kind=Media.IMAGE, path="media/1-0-cat.jpg")
    asked = replace(
        said("What is there?"), quote="look\nhere", attachments=(picture,), sender=Sender("7", "Ann\n# Owner")
    )
    one.tools.result = lambda _call: "first\nsecond"
    await one.put(asked)
    await one.settle()
    assert undated(await text(past, tmp_path)) == (
        "# fake:1\n\n"
        "### Ann # Owner, TIME\n\n> look\n> here\n\n[image: media/1-0-cat.jpg]\n\nWhat is there?\n\n"
        '### Assistant, TIME\n\n- calls `look` `` {"path": "a`b"} ``\n\n'
        "#### Result of look\n\n    first\n    second\n\n"
        "### Assistant, TIME\n\nThere is *nothing*.\n"
    )


async def test_a_session_that_is_not_there_is_no_empty_file(
    one: World, past: Archive, tmp_path: Path
) -> None:
    await one.say("hi")
    with pytest.raises(ConfigError, match=r"fake:1 has no session 9; `sessions show` lists them"):
        await text(past, tmp_path, session=9)
    assert list(tmp_path.glob("talk")) == []


async def test_json_has_an_entry_a_line(one: World, past: Archive, tmp_path: Path) -> None:
    one.model.answer = in_turn(calls(call("look")), "fine")
    await one.say("hi 你好")
    rows = [json.loads(line) for line in (await text(past, tmp_path, "jsonl")).splitlines()]
    assert [row["role"] for row in rows] == ["user", "assistant", "tool", "assistant"]
    assert [row["seq"] for row in rows] == [1, 2, 3, 4]
    assert rows[0]["body"]["text"] == "hi 你好"
    assert rows[1]["body"]["calls"][0]["name"] == "look"
    assert rows[3]["usage"] == {"input": 10, "output": 2, "cached": 0, "cache_write": 0}
    assert {row["session"] for row in rows} == {1}


async def test_a_summary_and_what_it_stands_for_are_both_there(
    db: Database, clock: FakeClock, past: Archive, tmp_path: Path
) -> None:
    one = World(
        db=db,
        clock=clock,
        model=ScriptedModel(in_turn("fine")),
        summariser=ScriptedModel(in_turn(SUMMARY)),
        limits=Limits(max_messages=4, keep_messages=1),
    )
    for number in range(4):
        await one.say(f"question {number}")
    whole = await text(past, tmp_path)
    assert "### Summary of what came before" in whole
    assert all(f"question {number}" in whole for number in range(4))
    assert "summed up once" in await past.listed()


async def test_one_session_alone(db: Database, one: World, past: Archive, tmp_path: Path) -> None:
    await one.say("before")
    await db.write(lambda tx: journal.stop(tx, 1, db.now(), new_session=True))
    await one.say("after")
    assert "before" not in await text(past, tmp_path, session=2)
    shown = undated(await past.show("1")).splitlines()
    assert shown[1] == "  session 1: 2 entries, TIME to TIME"
    assert shown[2].endswith("the one that goes on")


async def test_a_long_talk_is_written_page_by_page(
    db: Database, one: World, past: Archive, tmp_path: Path
) -> None:
    await one.say("hi")
    many = archive.PAGE * 2 + 3
    rows = [
        {
            "conversation_id": 1,
            "seq": seq,
            "session": 1,
            "turn": 1,
            "role": "assistant",
            "body": '{"text":"x"}',
            "at": 1.0,
        }
        for seq in range(3, many)
    ]
    await db.write(lambda tx: tx.execute(sa.insert(entry), rows))
    assert len((await text(past, tmp_path, "jsonl")).splitlines()) == many - 1


async def test_secrets_015_the_file_is_for_its_owner_alone_and_holds_no_secret(
    one: World, past: Archive, tmp_path: Path
) -> None:
    await one.say(f"the password is {SECRET}, the key sk-abcdefghijklmnopqrstuvwxyz012345")
    old = os.umask(0)
    try:
        for form in ("md", "jsonl"):
            (tmp_path / "talk").unlink(missing_ok=True)
            written = await text(past, tmp_path, form)
            assert SECRET not in written
            assert "sk-abcdefghij" not in written
            assert stat.S_IMODE((tmp_path / "talk").stat().st_mode) == 0o600
    finally:
        os.umask(old)


async def test_a_row_that_can_not_be_read_is_written_as_it_is(
    db: Database, one: World, past: Archive, tmp_path: Path
) -> None:
    await one.say("hi")
    await db.write(lambda tx: tx.execute(sa.update(entry).where(entry.c.seq == 1).values(body='{"text": "h')))
    first, _ = (await text(past, tmp_path, "jsonl")).splitlines()
    assert json.loads(first)["body"] == {"unreadable": '{"text": "h'}
    (tmp_path / "talk").unlink()
    assert "can't be read any more" in await text(past, tmp_path)


async def test_a_file_that_is_there_is_not_written_over(one: World, past: Archive, tmp_path: Path) -> None:
    await one.say("hi")
    (tmp_path / "talk").write_text("mine")
    with pytest.raises(ConfigError, match="is there already"):
        await text(past, tmp_path)
    assert (tmp_path / "talk").read_text() == "mine"


async def test_a_name_that_fits_none_or_several_is_said(one: World, past: Archive) -> None:
    await one.say("hi")
    await one.put(replace(said("hi"), address=replace(said("x").address, thread="5")))
    await one.settle()
    with pytest.raises(ConfigError, match="no conversation fake:9"):
        await past.show("fake:9")
    with pytest.raises(ConfigError, match="fake:1, fake:1:5"):
        await past.show("1")
    assert "fake:1:5" in await past.show("fake:1:5")
    assert (await past.show("fake:1")).startswith("fake:1 (direct)")


async def test_the_list_has_those_used_last_first(one: World, past: Archive, clock: FakeClock) -> None:
    assert await past.listed() == "There are no conversations yet."
    await one.say("hi", "1")
    clock.time += 60
    await one.say("hi", "2", group=True)
    assert undated(await past.listed()) == (
        "fake:2 (group): 1 session, 2 entries, last TIME\nfake:1 (direct): 1 session, 2 entries, last TIME"
    )


class TestCommandLine:
    @pytest.fixture(autouse=True)
    def home(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        monkeypatch.setenv("HOME", str(tmp_path))
        monkeypatch.setenv("CRAYFISH_HOME", str(tmp_path / "home"))
        monkeypatch.chdir(tmp_path)
        return tmp_path

    def talk(self, home: Path, *, leave_open: bool = False) -> Database:
        async def work() -> Database:
            clock = FakeClock()
            db = await open_database(f"sqlite+aiosqlite:///{home / 'home' / 'crayfish.db'}", clock)
            await db.write(create)
            await World(db=db, clock=clock, model=ScriptedModel(in_turn("fine"))).say("hi")
            return db

        db = asyncio.run(work())
        if not leave_open:
            asyncio.run(db.close())
        return db

    def test_it_works_beside_a_running_gateway(self, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
        db = self.talk(home, leave_open=True)
        try:
            assert main(["sessions", "export", "fake:1"]) == 0
        finally:
            asyncio.run(db.close())
        found = capsys.readouterr()
        assert found.out.startswith("# fake:1\n")
        assert found.err == "2 entries\n"

    def test_it_writes_a_file(self, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.talk(home)
        assert main(["sessions", "export", "1", "--format", "jsonl", "--out", "talk.jsonl"]) == 0
        assert len((home / "talk.jsonl").read_text().splitlines()) == 2
        assert capsys.readouterr().err == "2 entries written to talk.jsonl\n"

    def test_list_and_show(self, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.talk(home)
        assert main(["sessions", "list"]) == 0
        assert main(["sessions", "show", "1"]) == 0
        assert capsys.readouterr().out.count("fake:1 (direct): 1 session, 2 entries") == 2

    def test_without_a_database_that_is_said(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["sessions", "list"]) == 2
        assert "there is no database" in capsys.readouterr().err
