"""Taking over what people have with OpenClaw or nanobot."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from gateway import config
from gateway.app import offline
from gateway.cli import main
from gateway.clock import SystemClock
from gateway.errors import ConfigError
from gateway.importing import nanobot, openclaw
from gateway.importing.logs import place
from gateway.store import imports
from gateway.store.engine import Database, open_database
from gateway.store.tables import conversation, entry
from gateway.types import Address, AssistantEntry, Chat, Entry, Kind, Sender, UserEntry
from tests.fakes.clock import FakeClock
from tests.fakes.scripted import ScriptedModel, in_turn, people
from tests.fakes.world import World

TEMPLATES = Path(__file__).parents[2] / "workspace"
TOKEN = "7712345678:AAHfakefakefakefakefakefakefakefake12"
KEY = "sk-ant-api03-abcdefghijklmnopqrstuvwxyz0123456789"


def is_there(path: Path) -> bool:
    return path.exists() or path.is_symlink()


def write(file: Path, content: str | bytes) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content.encode() if isinstance(content, str) else content)
    return file


def jsonl(rows: Iterable[object]) -> str:
    return "".join(
        f"{one if isinstance(one, str) else json.dumps(one, ensure_ascii=False)}\n" for one in rows
    )


def message(role: str, content: object, at: str = "2026-02-03T10:00:00.000Z", **more: object) -> object:
    """Return a line of an OpenClaw transcript."""
    return {
        "type": "message",
        "id": "m",
        "parentId": None,
        "timestamp": at,
        "message": {"role": role, "content": content, **more},
    }


HEAD = {"type": "session", "version": 3, "id": "s", "timestamp": "2026-02-03T09:59:59.000Z", "cwd": "/x"}
CALL = {"type": "toolCall", "id": "c1", "name": "read", "arguments": {"path": "plan.md", "key": KEY}}
TALK = [
    HEAD,
    {"type": "model_change", "id": "x", "timestamp": "2026-02-03T09:59:59.500Z", "modelId": "m"},
    message("user", [{"type": "text", "text": "what is the plan?"}, {"type": "image", "data": "AAAA"}]),
    message("assistant", [{"type": "thinking", "thinking": "hm"}, CALL], model="claude"),
    message("toolResult", [{"type": "text", "text": "milk"}], toolCallId="c1", toolName="read"),
    message("assistant", [{"type": "text", "text": f"Milk. The key is {KEY}."}], "2026-02-03T10:00:09Z"),
    {"type": "compaction", "id": "y", "timestamp": "2026-02-03T10:01:00Z", "summary": "They want milk."},
]


def openclaw_tree(root: Path) -> Path:
    """Return a folder as an older OpenClaw leaves it."""
    workspace = root / "workspace"
    write(workspace / "AGENTS.md", "# Theirs\n\nBe kind.\n")
    write(workspace / "SOUL.md", "Dry humour.\n")
    write(workspace / "MEMORY.md", f"- The dog is called Rex.\n- api_key = {KEY}\n")
    write(workspace / "BOOTSTRAP.md", "Hello, who am I?\n")
    write(workspace / "TOOLS.md", b"\x00\x01binary")
    write(workspace / "memory/2026-02-03.md", "- bought milk\n")
    write(workspace / "skills/tea/SKILL.md", "---\nname: tea\ndescription: makes tea\n---\nBoil.\n")
    script = write(workspace / "skills/tea/scripts/boil.sh", "#!/bin/sh\necho hot\n")
    script.chmod(0o755)
    write(workspace / "skills/tea/.env", f"KEY={KEY}\n")
    write(workspace / "skills/tea/node_modules/x.js", "1")
    write(workspace / "skills/broken/README.md", "no skill")
    write(workspace / "projects/a.txt", "mine")
    sessions = root / "agents/main/sessions"
    store = {
        "agent:main:telegram:direct:42": {"sessionId": "tele"},
        "agent:main:telegram:group:-1001:topic:7": {"sessionId": "topic"},
        "agent:main:slack:channel:c012": {"sessionId": "slack"},
        "agent:main:main": {
            "sessionId": "main",
            "deliveryContext": {"channel": "telegram", "to": "telegram:43", "accountId": "default"},
        },
        "agent:main:cron:1234": {"sessionId": "job"},
    }
    write(sessions / "sessions.json", json.dumps(store))
    write(sessions / "tele.jsonl", jsonl([*TALK, "{not json", {"type": "message"}]))
    later = message("user", "in the topic", "2026-03-01T10:00:00Z")
    for name in ("topic-topic-7", "slack", "main", "job", "orphan", "old"):
        write(sessions / f"{name}.jsonl", jsonl([HEAD, later]))
    (sessions / "old.jsonl").rename(sessions / "old.jsonl.deleted.2026-03-02T00-00-00.000Z")
    write(root / "openclaw.json", "{ // theirs\n  channels: { telegram: { botToken: '" + TOKEN + "' } }\n}\n")
    write(root / "cron/jobs.json", "[]")
    return root


def row(role: str, content: object, at: str = "2026-02-03T10:00:00", **more: object) -> object:
    """Return a line of a nanobot session."""
    return {"role": role, "content": content, "timestamp": at, **more}


def nanobot_tree(root: Path) -> Path:
    """Return a folder as nanobot leaves it."""
    workspace = root / "workspace"
    write(workspace / "SOUL.md", "I am nanobot.\n")
    write(workspace / "memory/MEMORY.md", "- Ann likes tea.\n")
    history = {"cursor": 1, "timestamp": "2026-02-02 09:00", "content": "Ann asked\nfor\u2028tea"}
    write(workspace / "memory/history.jsonl", jsonl([history, "broken"]))
    head = {"_type": "metadata", "key": "telegram:42", "created_at": "2026-02-01T08:00:00", "metadata": {}}
    function = {"name": "read_file", "arguments": '{"path": "a"}'}
    calls = [{"id": "c1", "type": "function", "function": function}]
    talk = [
        head,
        {"_type": "provider_state", "state": {"x": 1}},
        row("user", "hello"),
        row("assistant", None, tool_calls=calls, reasoning_content="hm"),
        row("tool", "content of a", tool_call_id="c1", name="read_file"),
        row("user", "/help", _command=True),
        row("assistant", "Hi Ann.", "2026-02-03T10:00:05"),
    ]
    write(root / "sessions/ws1/dGVsZWdyYW06NDI.jsonl", jsonl(talk))
    write(
        workspace / "sessions/telegram_-100_topic_7.jsonl",
        jsonl([{**head, "key": "telegram:-100:topic:7"}, row("user", "hi all")]),
    )
    write(
        workspace / "sessions/slack.jsonl", jsonl([{**head, "key": "slack:D012:1700.1"}, row("user", "hi")])
    )
    write(workspace / "sessions/cli_direct.jsonl", jsonl([row("user", "from the terminal")]))
    write(workspace / "sessions/cron.jsonl", jsonl([{**head, "key": "cron:1"}, row("user", "tick")]))
    settings = {
        "providers": {"openrouter": {"apiKey": KEY}, "groq": {"apiKey": ""}},
        "channels": {"telegram": {"token": TOKEN}},
    }
    write(root / "config.json", json.dumps(settings))
    return root


class Ours:
    """Our home, and what is in it."""

    def __init__(self, home: Path) -> None:
        self.home = home
        write(home / "config.toml", '[http]\nenabled = false\n[agent]\ntimezone = "Europe/Berlin"\n')
        self.loaded = config.load(home / "config.toml", {"CRAYFISH_HOME": str(home)}, home)

    @property
    def workspace(self) -> Path:
        return self.home / "workspace"

    async def take(self, program: str, folder: Path, *, dry: bool = False) -> str:
        return await offline.take_over(self.loaded, program, folder, dry=dry)

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(self.home / "crayfish.db")) as connection:
            return connection.execute(query).fetchall()

    def files(self) -> dict[str, bytes]:
        """Return every file of ours but the database."""
        found = sorted(one for one in self.home.rglob("*") if one.is_file())
        return {
            one.relative_to(self.home).as_posix(): one.read_bytes()
            for one in found
            if not one.name.startswith("crayfish.db")
        }


@pytest.fixture
def ours(tmp_path: Path) -> Ours:
    (tmp_path / "ours").mkdir()
    return Ours(tmp_path / "ours")


COUNTS = """
    select c.address, c.chat, c.session, count(distinct e.session), count(*)
    from conversation c join entry e on e.conversation_id = c.id group by c.id order by c.address
"""


class TestOpenClaw:
    async def test_the_workspace_comes_along_as_files_of_ours(self, ours: Ours, tmp_path: Path) -> None:
        said = await ours.take("openclaw", openclaw_tree(tmp_path / "theirs"))
        read = ours.workspace.joinpath
        assert read("AGENTS.md").read_text() == "# Theirs\n\nBe kind.\n"
        assert read("memory/2026-02-03.md").read_text() == "- bought milk\n"
        assert read("skills/tea/SKILL.md").is_file()
        assert read("skills/tea/scripts/boil.sh").stat().st_mode & 0o777 == 0o700
        assert read("SOUL.md").stat().st_mode & 0o777 == 0o600
        assert "AGENTS.md: copied" in said
        for name in (
            "BOOTSTRAP.md",
            "projects",
            "skills/tea/.env",
            "skills/broken",
            "skills/tea/node_modules",
        ):
            assert not read(name).exists()

    async def test_what_is_skipped_is_named_with_the_reason(self, ours: Ours, tmp_path: Path) -> None:
        said = await ours.take("openclaw", openclaw_tree(tmp_path / "theirs"))
        for line in (
            "TOOLS.md: it is not text",
            "BOOTSTRAP.md: the introduction is over",
            "skills/tea/.env: it may hold secrets; set them in [skills.entries]",
            "skills/tea/node_modules: it can be made again",
            "skills/broken: it has no SKILL.md",
            "projects: not a part of what is taken over",
            "agents/main/sessions/job.jsonl: agent:main:cron:1234: what the bot did by itself",
            "deleted.2026-03-02T00-00-00.000Z: it was deleted there",
            "tele.jsonl: 2 of its lines, which can't be read",
            "cron: schedules; ask the bot to set them again",
        ):
            assert line in said

    async def test_sessions_belong_to_the_chats_that_their_keys_name(
        self, ours: Ours, tmp_path: Path
    ) -> None:
        await ours.take("openclaw", openclaw_tree(tmp_path / "theirs"))
        assert ours.rows(COUNTS) == [
            ("slack:C012:", "group", 2, 1, 1),
            ("telegram:-1001:7", "group", 2, 1, 1),
            ("telegram:42:", "direct", 2, 1, 5),
            ("telegram:43:", "direct", 2, 1, 1),
            ("web:openclaw-main:", "direct", 2, 1, 1),
        ]

    async def test_entries_are_as_they_were_with_their_times(self, ours: Ours, tmp_path: Path) -> None:
        await ours.take("openclaw", openclaw_tree(tmp_path / "theirs"))
        found = ours.rows(
            "select e.role, e.body, e.at from entry e join conversation c on c.id = e.conversation_id "
            "where c.address = 'telegram:42:' order by e.seq"
        )
        assert [role for role, _, _ in found] == ["user", "assistant", "tool", "assistant", "note"]
        bodies = [json.loads(body) for _, body, _ in found]
        assert bodies[0]["text"] == "what is the plan?\n[image]"
        assert bodies[0]["sender"] == ["42", ""]
        assert bodies[1]["calls"][0]["args"]["path"] == "plan.md"
        assert bodies[1]["reasoning"] == "hm"
        assert (bodies[2]["call_id"], bodies[2]["text"]) == ("c1", "milk")
        assert bodies[4]["text"] == "They want milk."
        assert found[0][2] == 1770112800.0

    async def test_no_secret_comes_along_and_each_is_named(self, ours: Ours, tmp_path: Path) -> None:
        said = await ours.take("openclaw", openclaw_tree(tmp_path / "theirs"))
        everything = (
            said.encode() + b"".join(ours.files().values()) + (ours.home / "crayfish.db").read_bytes()
        )
        assert KEY.encode() not in everything
        assert TOKEN.encode() not in everything
        assert "MEMORY.md: copied; what looks like a secret in it became ***" in said
        assert "  [channels.telegram] token or [channels.slack] bot_token (there: botToken)" in said

    async def test_doing_it_again_changes_nothing(self, ours: Ours, tmp_path: Path) -> None:
        theirs = openclaw_tree(tmp_path / "theirs")
        await ours.take("openclaw", theirs)
        files, rows = ours.files(), ours.rows("select * from entry order by conversation_id, seq")
        counts = ours.rows(COUNTS)
        said = await ours.take("openclaw", theirs)
        assert ours.files() == files
        assert ours.rows("select * from entry order by conversation_id, seq") == rows
        assert ours.rows(COUNTS) == counts
        assert "6 files are here already" in said
        assert "5 are here already" in said

    async def test_a_dry_run_tells_the_same_and_writes_nothing(self, ours: Ours, tmp_path: Path) -> None:
        theirs = openclaw_tree(tmp_path / "theirs")
        before = ours.files()
        dry = await ours.take("openclaw", theirs, dry=True)
        assert ours.files() == before
        assert not (ours.home / "crayfish.db").exists()
        assert not ours.workspace.exists()
        wet = await ours.take("openclaw", theirs)
        assert dry == f"{wet}\nNothing was written: this only tells what would be done."

    async def test_a_session_in_two_files_comes_once(self, ours: Ours, tmp_path: Path) -> None:
        theirs = openclaw_tree(tmp_path / "theirs")
        sessions = theirs / "agents/main/sessions"
        write(sessions / "slack.jsonl.reset.2026-03-02", (sessions / "slack.jsonl").read_bytes())
        said = await ours.take("openclaw", theirs)
        assert "slack.jsonl.reset.2026-03-02: the same session lies in another file, too" in said
        assert ("slack:C012:", "group", 2, 1, 1) in ours.rows(COUNTS)

    async def test_only_a_workspace_may_be_named(self, ours: Ours, tmp_path: Path) -> None:
        theirs = openclaw_tree(tmp_path / "theirs")
        said = await ours.take("openclaw", theirs / "workspace")
        assert (ours.workspace / "SOUL.md").read_text() == "Dry humour.\n"
        assert f"Sessions and settings are not in this folder: name {theirs} to take them." in said
        assert ours.rows("select count(*) from entry") == [(0,)]

    async def test_a_database_of_newer_versions_is_named(self, ours: Ours, tmp_path: Path) -> None:
        theirs = openclaw_tree(tmp_path / "theirs")
        write(theirs / "agents/main/agent/state.sqlite", b"SQLite")
        said = await ours.take("openclaw", theirs, dry=True)
        assert "agents/main: newer versions keep sessions in a database, which is not read" in said

    @pytest.mark.parametrize(
        ("key", "entry", "address"),
        [
            ("agent:main:telegram:direct:42", {}, "telegram:42:"),
            ("agent:main:telegram:dm:42", {}, "telegram:42:"),
            ("agent:main:telegram:work:direct:42", {}, "telegram-work:42:"),
            ("agent:main:telegram:default:direct:42", {}, "telegram:42:"),
            ("agent:main:slack:channel:c1:thread:1700.1", {}, "slack:C1:1700.1"),
            ("agent:main:slack:direct:u012", {}, "slack:U012:"),
            ("agent:ops:whatsapp:group:120363@g.us", {}, "whatsapp:120363@g.us:"),
            ("agent:main:matrix:channel:!r:server.org", {}, "matrix:!r_server.org:"),
            ("agent:main:direct:ann", {"lastChannel": "telegram", "lastTo": "telegram:42"}, "telegram:42:"),
            ("agent:main:main", {"deliveryContext": {"channel": "slack", "to": "channel:C9"}}, "slack:C9:"),
            ("agent:main:main", {"deliveryContext": {"channel": "webchat"}}, "web:openclaw-main:"),
            ("agent:main:main", {"deliveryContext": 7}, "web:openclaw-main:"),
            ("", {}, "web:openclaw-main:"),
            ("agent:main:person:direct:ann", {}, "web:openclaw-main:"),
            ("agent:main:subagent:1", {}, None),
            ("hook:1", {}, None),
            ("agent:main:main:heartbeat", {}, None),
        ],
    )  # fmt: skip
    def test_a_key_tells_the_chat(self, key: str, entry: dict[str, object], address: str | None) -> None:
        found = openclaw.place_of(key, entry, "main")
        assert (found and found.address.key) == address


class TestNanobot:
    async def test_workspace_history_and_sessions_come_along(self, ours: Ours, tmp_path: Path) -> None:
        said = await ours.take("nanobot", nanobot_tree(tmp_path / "theirs"))
        assert (ours.workspace / "MEMORY.md").read_text() == "- Ann likes tea.\n"
        history = (ours.workspace / "memory/nanobot-history.md").read_text()
        assert history == "# History from nanobot\n\n- [2026-02-02 09:00] Ann asked for tea\n"
        assert ours.rows(COUNTS) == [
            ("slack:D012:1700.1", "direct", 2, 1, 1),
            ("telegram:-100:7", "group", 2, 1, 1),
            ("telegram:42:", "direct", 2, 1, 4),
            ("web:nanobot-direct:", "direct", 2, 1, 1),
        ]
        assert "cron.jsonl: cron:1: what the bot did by itself" in said
        assert "[model] api_key (there: providers.openrouter.apiKey)" in said
        assert "[channels.telegram] token (there: channels.telegram.token)" in said
        assert "groq" not in said

    async def test_times_without_a_zone_are_ours(self, ours: Ours, tmp_path: Path) -> None:
        await ours.take("nanobot", nanobot_tree(tmp_path / "theirs"))
        [(at,)] = ours.rows("select min(at) from entry where at > 0")
        assert at == 1770109200.0, "ten in the morning in Berlin"

    @pytest.mark.parametrize(
        ("key", "last", "address"),
        [
            ("telegram:42", "", "telegram:42:"),
            ("telegram:-100:topic:7", "", "telegram:-100:7"),
            ("slack:C1:1700.1", "", "slack:C1:1700.1"),
            ("unified:default", "telegram:42", "telegram:42:"),
            ("unified:default", "cli:direct", "web:nanobot-default:"),
            ("cli:direct", "", "web:nanobot-direct:"),
            ("dream:20260528-100000", "", None),
            ("heartbeat", "", None),
        ],
    )
    def test_a_key_tells_the_chat(self, key: str, last: str, address: str | None) -> None:
        found = nanobot.place_of(key, last)
        assert (found and found.address.key) == address


class TestWhatIsHereAlready:
    async def test_an_untouched_template_makes_room_and_is_kept(self, ours: Ours, tmp_path: Path) -> None:
        ours.workspace.mkdir()
        template = (TEMPLATES / "SOUL.md").read_bytes()
        write(ours.workspace / "SOUL.md", template)
        said = await ours.take("openclaw", openclaw_tree(tmp_path / "theirs"))
        assert (ours.workspace / "SOUL.md").read_text() == "Dry humour.\n"
        assert (ours.workspace / "SOUL.md.bak").read_bytes() == template
        assert "SOUL.md: replaces the untouched template, which is kept as .bak" in said

    async def test_what_was_changed_is_never_overwritten(self, ours: Ours, tmp_path: Path) -> None:
        write(ours.workspace / "SOUL.md", "mine")
        write(ours.workspace / "skills/tea/SKILL.md", "mine, too")
        (ours.workspace / "AGENTS.md").symlink_to(tmp_path / "nowhere")
        write(ours.workspace / "MEMORY.md", (TEMPLATES / "MEMORY.md").read_bytes())
        write(ours.workspace / "MEMORY.md.bak", "an older one")
        said = await ours.take("openclaw", openclaw_tree(tmp_path / "theirs"))
        assert (ours.workspace / "SOUL.md").read_text() == "mine"
        assert (ours.workspace / "skills/tea/SKILL.md").read_text() == "mine, too"
        assert not (ours.workspace / "skills/tea/scripts").exists()
        assert (ours.workspace / "MEMORY.md.bak").read_text() == "an older one"
        for line in (
            "SOUL.md: SOUL.md here has been changed; put the two together by hand",
            "skills/tea: there is a skill of that name",
            "AGENTS.md: AGENTS.md here is no plain file",
            "MEMORY.md: there is a MEMORY.md.bak, which is not overwritten",
        ):
            assert line in said

    async def test_links_and_large_files_stay_behind(self, ours: Ours, tmp_path: Path) -> None:
        theirs = openclaw_tree(tmp_path / "theirs")
        secret = write(tmp_path / "secret.md", "private")
        (theirs / "workspace/USER.md").symlink_to(secret)
        (theirs / "workspace/skills/linked").symlink_to(tmp_path)
        write(theirs / "workspace/memory/big.md", b"x" * 2_000_001)
        said = await ours.take("openclaw", theirs)
        assert not is_there(ours.workspace / "USER.md")
        for line in (
            "USER.md: it is a link",
            "skills/linked: it is a link",
            "memory/big.md: it has 2,000,001 bytes",
        ):
            assert line in said

    async def test_a_running_gateway_is_not_imported_under(self, ours: Ours, tmp_path: Path) -> None:
        theirs = openclaw_tree(tmp_path / "theirs")
        db = await open_database(ours.loaded.settings.store.url, SystemClock())
        try:
            with pytest.raises(ConfigError, match="a gateway is running; stop it, import"):
                await ours.take("openclaw", theirs)
        finally:
            await db.close()

    @pytest.mark.parametrize("program", ["openclaw", "nanobot"])
    async def test_a_folder_of_something_else_is_refused(
        self, ours: Ours, tmp_path: Path, program: str
    ) -> None:
        for folder in (tmp_path / "nowhere", write(tmp_path / "empty/x", "x").parent):
            with pytest.raises(ConfigError, match=f"holds nothing of {program}"):
                await ours.take(program, folder)

    def test_the_command_line_does_it(
        self,
        ours: Ours,
        tmp_path: Path,
        capsys: pytest.CaptureFixture[str],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setenv("CRAYFISH_HOME", str(ours.home))
        theirs = nanobot_tree(tmp_path / "theirs")
        configured = ["--config", str(ours.home / "config.toml")]
        assert main(["import", "nanobot", str(theirs), "--dry-run", *configured]) == 0
        assert "Nothing was written" in capsys.readouterr().out


WHERE = Address("fake", "1")


def said(text: str) -> tuple[Entry, float]:
    return UserEntry(text, Sender("7"), Kind.MESSAGE, 1.0), 1.0


def answered(text: str) -> tuple[Entry, float]:
    return AssistantEntry(text), 2.0


async def store(db: Database, *sessions: Sequence[tuple[Entry, float]]) -> bool:
    made = [imports.Session(f"test:{number}:{one[0][0].text}", one) for number, one in enumerate(sessions)]
    return await db.write(lambda tx: imports.write(tx, WHERE, Chat.DIRECT, made, db.now()))


async def numbers(db: Database) -> list[tuple[int, str]]:
    query = sa.select(entry.c.session, entry.c.body).order_by(entry.c.session, entry.c.seq)
    return await db.write(
        lambda tx: [(row.session, json.loads(row.body)["text"]) for row in tx.execute(query)]
    )


class TestInTheTables:
    async def test_what_is_imported_has_ended_and_the_next_message_begins_afresh(
        self, db: Database, clock: FakeClock
    ) -> None:
        assert await store(db, [said("long ago"), answered("yes")], [said("lately")])
        one = World(db=db, clock=clock, model=ScriptedModel(in_turn("fine")))
        await one.say("hello")
        assert people(one.model.prompts[0].entries) == ["hello"]
        assert await numbers(db) == [(1, "long ago"), (1, "yes"), (2, "lately"), (3, "hello"), (3, "fine")]

    async def test_a_session_that_goes_on_here_goes_on(self, db: Database, clock: FakeClock) -> None:
        one = World(db=db, clock=clock, model=ScriptedModel(in_turn("fine")))
        await one.say("hello")
        assert await store(db, [said("long ago")])
        await one.say("still there?")
        assert people(one.model.prompts[-1].entries) == ["hello", "still there?"]
        assert [number for number, _ in await numbers(db)] == [1, 2, 2, 2, 2]

    async def test_a_conversation_at_work_is_left_alone(self, db: Database, clock: FakeClock) -> None:
        one = World(db=db, clock=clock, model=ScriptedModel(in_turn("fine")))
        await one.say("hello")
        await db.write(lambda tx: tx.execute(sa.update(conversation).values(ready_at=db.now())))
        assert not await store(db, [said("long ago")])
        assert len(await numbers(db)) == 2
        assert await db.write(imports.known) == frozenset()


def test_names_of_ours_are_no_channels_of_theirs() -> None:
    for name in ("person", "cron", "agent", "heartbeat", "console", "a b", ""):
        assert place(name, "42") is None
