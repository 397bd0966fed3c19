"""A set-up that can't work ends in one line that names the thing and the remedy, and in exit code 2."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import aiohttp
import pytest

from tests.conftest import ROOT, _new_database
from tests.fakes import warm
from tests.fakes.bot_api import TOKEN, BotApi

QUIET = """
[model]
dialect = "demo"
[log]
level = "error"
"""
PORT = "[http]\nport = 0\n"
FILE = "sqlite+aiosqlite:///"


def environment(folder: Path, **more: str) -> dict[str, str]:
    home = {"HOME": str(folder), "CRAYFISH_HOME": str(folder / "home")}
    return {**home, "PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), **more}


def crayfish(folder: Path, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    return warm.crayfish(folder, environment(folder, **more), *arguments)


def configure(folder: Path, text: str, rest: str = PORT) -> None:
    (folder / "config.toml").write_text(QUIET + rest + text)


def files(folder: Path) -> dict[str, bytes | None]:
    """Return all files and what is in them; the lock beside a database is no data."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in sorted(folder.rglob("*"))
        if not path.name.endswith(".lock")
    }


def refused(result: subprocess.CompletedProcess[str], *words: str) -> None:
    assert (result.returncode, result.stdout) == (2, ""), result.stderr
    (line,) = result.stderr.splitlines()
    assert line.startswith("crayfish: ")
    for word in words:
        assert word in line


@contextmanager
def running(folder: Path, *arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A gateway that is up, with the address of its page; ends it at the end."""
    with (
        (folder / "log").open("w") as log,
        subprocess.Popen(
            [sys.executable, "-m", "gateway", "run", *arguments],
            cwd=folder,
            env=environment(folder),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        ) as process,
    ):
        assert process.stdout is not None
        try:
            for line in process.stdout:
                if match := re.search(r"http://\S+", line):
                    yield process, match[0].rstrip("/")
                    break
            else:
                raise AssertionError((folder / "log").read_text())
        finally:
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) == 0


class TestConfig:
    @pytest.mark.parametrize("command", ["run", "chat", "migrate"])
    @pytest.mark.parametrize(
        ("text", "words"),
        [
            ("[chanels.telegram]\ntoken = 'x'", ["chanels: unknown key", "did you mean channels?"]),
            ("[agent]\nmax_turn = 3", ["agent.max_turn: unknown key", "did you mean agent.max_turns?"]),
            ("[agent\nmax_turns = 3", ["this is not TOML", "line 8"]),
            ("[agent]\nmax_turns = 'many'", ["agent.max_turns = 'many'", "must be a valid integer"]),
            ("[agent]\ntimezone = 'Europe/Berlim'", ["Europe/Berlin"]),
            (
                "[store]\nurl = 'mysql://root@localhost/x'",
                ["store.url", "must begin with sqlite+aiosqlite:///"],
            ),
            ("[store]\nurl = 'crayfish.db'", ["store.url", "must begin with sqlite+aiosqlite:///"]),
            ("[channels.telegram]\ntoken = '${NOWHERE}'", ["channels.telegram.token", "NOWHERE is not set"]),
            (
                "[channels.telegram]\ntoken = 'file:nowhere'",
                ["channels.telegram.token", "nowhere can't be read"],
            ),
        ],
        ids=lambda one: one.splitlines()[-1] if isinstance(one, str) else "",
    )
    def test_a_mistake_in_the_file_writes_nothing(
        self, tmp_path: Path, text: str, words: list[str], command: str
    ) -> None:
        configure(tmp_path, text)
        before = files(tmp_path)
        refused(crayfish(tmp_path, command), str(tmp_path / "config.toml"), *words)
        assert files(tmp_path) == before

    def test_a_page_that_others_can_reach_needs_a_token(self, tmp_path: Path) -> None:
        configure(tmp_path, "", "[http]\nport = 0\nhost = '0.0.0.0'\n")
        before = files(tmp_path)
        refused(crayfish(tmp_path, "run"), "'0.0.0.0'", "set http.token too")
        assert files(tmp_path) == before

    @pytest.mark.parametrize("how", ["option", "variable"])
    def test_a_file_that_is_named_and_missing_is_not_replaced_by_defaults(
        self, tmp_path: Path, how: str
    ) -> None:
        result = (
            crayfish(tmp_path, "run", "--config", "nowhere.toml")
            if how == "option"
            else crayfish(tmp_path, "run", CRAYFISH_CONFIG="nowhere.toml")
        )
        refused(result, str(tmp_path / "nowhere.toml"), "no such file; create it")
        assert files(tmp_path) == {}

    @pytest.mark.parametrize("token", ["abc", "123456", "bot123:abc", f"'{TOKEN}'"])
    def test_a_token_of_another_shape_is_told_apart_and_not_shown(self, tmp_path: Path, token: str) -> None:
        configure(tmp_path, f'[channels.telegram]\ntoken = "{token}"')
        result = crayfish(tmp_path, "run")
        refused(result, "Telegram token", "@BotFather")
        assert token not in result.stderr


class TestPlaces:
    @pytest.mark.parametrize("command", ["run", "chat", "migrate"])
    @pytest.mark.parametrize("home", ["taken", "taken/below"])
    def test_a_home_that_can_not_be_made_is_named(self, tmp_path: Path, home: str, command: str) -> None:
        configure(tmp_path, "")
        (tmp_path / "taken").write_text("a file")
        before = files(tmp_path)
        refused(
            crayfish(tmp_path, command, CRAYFISH_HOME=str(tmp_path / home)),
            str(tmp_path / home),
            "make it writable, or set [store] url to another place",
        )
        assert files(tmp_path) == before

    @pytest.mark.parametrize("path", ["taken", "taken/below"])
    def test_a_workspace_that_can_not_be_made_is_named(self, tmp_path: Path, path: str) -> None:
        configure(tmp_path, f'[workspace]\npath = "{path}"')
        (tmp_path / "taken").write_text("a file")
        refused(crayfish(tmp_path, "run"), str(tmp_path / path), "set [workspace] path to a folder")
        assert (tmp_path / "taken").read_text() == "a file"

    def test_a_port_that_is_taken_is_named(self, tmp_path: Path) -> None:
        with socket.socket() as held:
            held.bind(("127.0.0.1", 0))
            held.listen()
            port = held.getsockname()[1]
            configure(tmp_path, "", f"[http]\nport = {port}\n")
            refused(crayfish(tmp_path, "run"), f"port {port} on 127.0.0.1 is in use", "[http] port")

    @pytest.mark.parametrize("command", [["chat"], ["usage"], ["prompt", "show", "web:main"]])
    def test_a_gateway_whose_port_nobody_knows_is_not_asked(self, command: list[str], tmp_path: Path) -> None:
        configure(tmp_path, "")
        with running(tmp_path):
            refused(crayfish(tmp_path, *command), "[http] port = 0", "set a port and start it again")

    @pytest.mark.parametrize(("host", "family"), [("::1", socket.AF_INET6), ("0.0.0.0", socket.AF_INET)])
    def test_a_gateway_is_asked_at_whatever_address_it_listens(
        self, host: str, family: socket.AddressFamily, tmp_path: Path
    ) -> None:
        try:
            with socket.socket(family) as free:
                free.bind((host, 0))
                port = free.getsockname()[1]
        except OSError as error:
            pytest.skip(f"{host} can't be bound here: {error}")
        configure(tmp_path, "", f"[http]\nport = {port}\nhost = '{host}'\ntoken = 'long-enough-token'\n")
        with running(tmp_path):
            for command in (["chat"], ["usage"]):
                done = crayfish(tmp_path, *command)
                assert (done.returncode, done.stderr) == (0, "")

    def test_a_host_that_is_not_this_machines_is_named(self, tmp_path: Path) -> None:
        configure(tmp_path, "", "[http]\nport = 0\nhost = '192.0.2.1'\ntoken = 'long-enough-token'\n")
        refused(crayfish(tmp_path, "run"), "192.0.2.1", "[http] host")


class TestDatabase:
    @pytest.fixture
    def home(self, tmp_path: Path) -> Path:
        """A set-up whose database exists."""
        configure(tmp_path, "")
        assert crayfish(tmp_path, "migrate").returncode == 0
        return tmp_path

    @pytest.mark.parametrize("command", ["run", "chat", "migrate"])
    def test_a_file_that_is_no_database_is_named_and_left_alone(self, tmp_path: Path, command: str) -> None:
        (tmp_path / "notes.txt").write_text("these are my notes, and not a database\n" * 100)
        configure(tmp_path, f'[store]\nurl = "{FILE}notes.txt"')
        before = files(tmp_path)
        refused(
            crayfish(tmp_path, command),
            str(tmp_path / "notes.txt"),
            "file is not a database",
            "set [store] url to another file",
        )
        assert files(tmp_path) == before

    def test_a_folder_in_place_of_the_file_is_named(self, tmp_path: Path) -> None:
        (tmp_path / "folder").mkdir()
        configure(tmp_path, f'[store]\nurl = "{FILE}folder"')
        refused(crayfish(tmp_path, "run"), str(tmp_path / "folder"), "set [store] url to another file")

    def test_a_file_that_was_cut_off_is_named_and_left_alone(self, home: Path) -> None:
        file = home / "home/crayfish.db"
        os.truncate(file, file.stat().st_size // 2)
        before = file.read_bytes()
        refused(crayfish(home, "run"), str(file), "malformed", "restore a backup")
        assert file.read_bytes() == before

    def test_a_file_with_garbage_in_the_middle_is_named(self, home: Path) -> None:
        file = home / "home/crayfish.db"
        with file.open("r+b") as raw:
            raw.seek(4096)
            raw.write(b"\xa5" * (file.stat().st_size - 4096))
        result = crayfish(home, "run")
        assert result.returncode == 2
        line = result.stderr.splitlines()[-1]
        assert line.startswith(f"crayfish: the database {file}")
        assert "malformed; restore a backup" in line
        assert "Traceback" not in result.stderr

    def test_a_file_of_another_program_is_named_and_left_alone(self, tmp_path: Path) -> None:
        with closing(sqlite3.connect(tmp_path / "theirs.db")) as theirs:
            theirs.execute("create table bookmarks (id integer)")
        configure(tmp_path, f'[store]\nurl = "{FILE}theirs.db"')
        refused(crayfish(tmp_path, "run"), "bookmarks", "set [store] url to an empty one")
        with closing(sqlite3.connect(tmp_path / "theirs.db")) as theirs:
            assert theirs.execute("select name from sqlite_master").fetchall() == [("bookmarks",)]

    @pytest.mark.parametrize("command", ["run", "chat", "migrate"])
    def test_a_newer_schema_is_refused(self, home: Path, command: str) -> None:
        with closing(sqlite3.connect(home / "home/crayfish.db")) as db:
            db.execute("update alembic_version set version_num = '9999'")
            db.commit()
        refused(crayfish(home, command), "schema 9999", "install the newer crayfish-gateway again")

    def test_a_second_gateway_on_the_file_is_refused_and_the_first_goes_on(self, home: Path) -> None:
        with running(home) as (process, url):
            refused(crayfish(home, "run"), str(home / "home/crayfish.db"), "another gateway is running")
            refused(crayfish(home, "migrate"), "another gateway is running")
            assert process.poll() is None
            assert asyncio.run(say(url, "hello")) == 200

    @pytest.mark.parametrize(
        ("url", "words"),
        [
            ("bot:hush-hush@127.0.0.1:1/mine", ["mine at 127.0.0.1:1", "can't be reached", "start it"]),
            ("bot:hush-hush@nowhere.invalid/mine", ["nowhere.invalid", "can't be reached"]),
            ("bot:hush-hush@127.0.0.1:1/mine?sslmode=require", ["[store] url", "sslmode"]),
            ("bot:hush-hush@127.0.0.1:99999/mine", ["[store] url", "port"]),
        ],
    )
    def test_a_server_that_can_not_be_reached_is_named_without_the_password(
        self, tmp_path: Path, url: str, words: list[str]
    ) -> None:
        configure(tmp_path, f'[store]\nurl = "postgresql+asyncpg://{url}"')
        before = files(tmp_path)
        result = crayfish(tmp_path, "run")
        refused(result, *words)
        assert "hush-hush" not in result.stderr
        assert files(tmp_path) == before

    @pytest.mark.parametrize("missing", ["database", "role"])
    def test_a_server_without_our_database_or_role_is_named(
        self, tmp_path: Path, postgres_server: str, missing: str
    ) -> None:
        url = postgres_server.format(name="nowhere" if missing == "database" else "postgres")
        if missing == "role":
            url = url.replace("crayfish@", "nobody@")
        configure(tmp_path, f'[store]\nurl = "{url}"')
        refused(crayfish(tmp_path, "run"), f"{missing} ", "does not exist", "correct [store] url")


async def say(url: str, text: str) -> int:
    async with (
        aiohttp.ClientSession() as client,
        client.post(f"{url}/api/chat", json={"message": text}) as response,
    ):
        await response.read()
        return response.status


async def health(url: str) -> dict[str, object]:
    async with aiohttp.ClientSession() as client, client.get(f"{url}/api/health") as response:
        return dict(await response.json())


class TestRefusedToken:
    @pytest.mark.parametrize("database", ["sqlite", "postgres"])
    async def test_the_page_keeps_running_and_says_which_channel_is_down(
        self, tmp_path: Path, database: str, request: pytest.FixtureRequest
    ) -> None:
        store = ""
        if database == "postgres":
            store = f'[store]\nurl = "{await _new_database(request.getfixturevalue("postgres_server"))}"\n'
        async with BotApi() as api:
            api.revoke()
            configure(tmp_path, f'[channels.telegram]\ntoken = "{TOKEN}"\napi_base = "{api.url}"\n{store}')
            starting = running(tmp_path)
            _, url = await asyncio.to_thread(starting.__enter__)
            try:
                while (state := await health(url))["status"] in ("starting", "ready"):  # noqa: ASYNC110 - another process
                    await asyncio.sleep(0.05)
                assert state["status"] == "degraded"
                channels = state["channels"]
                assert isinstance(channels, dict)
                assert channels["web"] == "running"
                assert channels["telegram"].startswith("stopped (")
                assert await say(url, "hello") == 200
                assert [call.method for call in api.calls] == ["getMe"]
            finally:
                await asyncio.to_thread(starting.__exit__, None, None, None)
        lines = (tmp_path / "log").read_text().splitlines()
        assert len(lines) == 1
        assert "channel.stopped" in lines[0]
        assert "token" in lines[0]
        assert TOKEN not in lines[0]
