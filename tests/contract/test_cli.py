"""The command line as a person or a program meets it."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from aiohttp import web

from gateway import __version__, config, doctor
from gateway.cli import COMMANDS, exit_code, main
from gateway.config import Settings
from gateway.doctor import Level
from gateway.errors import ConfigError, StoreError
from tests.fakes import warm
from tests.fakes.bot_api import TOKEN, BotApi
from tests.fakes.model_api import json_body, reply, serving

ROOT = Path(__file__).parents[2]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An environment with nothing in it but an empty home, where the program is started."""
    for name in os.environ:
        if name.startswith("CRAYFISH_") or name.endswith("_API_KEY"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def crayfish(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    environment = {"HOME": str(cwd), "PYTHONPATH": str(ROOT), "PATH": os.environ["PATH"]}
    command = [sys.executable, "-m", "gateway", *arguments]
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)


class TestCommands:
    def test_python_dash_m_gateway_is_the_same_program(self, tmp_path: Path) -> None:
        result = crayfish("--version", cwd=tmp_path)
        assert (result.returncode, result.stdout, result.stderr) == (0, f"crayfish {__version__}\n", "")

    def test_no_command_is_a_mistake_that_gets_the_help(self, tmp_path: Path) -> None:
        result, asked = crayfish(cwd=tmp_path), crayfish("--help", cwd=tmp_path)
        assert (result.returncode, result.stdout) == (2, "")
        assert (asked.returncode, asked.stdout) == (0, result.stderr)

    def test_the_help_begins_with_what_everybody_needs(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main([]) == 2
        commands = re.findall(r"(?m)^    ([a-z]+)", capsys.readouterr().err)
        assert commands[:4] == ["run", "chat", "doctor", "config"]
        assert set(commands) == {command.partition(" ")[0] for command in COMMANDS}

    @pytest.mark.parametrize(
        "arguments", [["config", "check"], ["config", "show"], ["run"], ["chat"], ["migrate"]]
    )
    def test_a_bad_config_is_one_line_and_exit_code_2(self, tmp_path: Path, arguments: list[str]) -> None:
        (tmp_path / "config.toml").write_text("[http]\nprot = 1\n")
        result = crayfish(*arguments, cwd=tmp_path)
        assert (result.returncode, result.stdout) == (2, "")
        assert (
            result.stderr
            == f"crayfish: {tmp_path}/config.toml: http.prot: unknown key, did you mean http.port?\n"
        )
        assert list(tmp_path.iterdir()) == [tmp_path / "config.toml"]

    def test_config_check_names_the_file(self, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
        (home / "mine.toml").touch()
        assert main(["config", "check", "--config", "mine.toml"]) == 0
        assert main(["config", "check"]) == 0
        assert (
            capsys.readouterr().out == f"{home}/mine.toml is valid\nno config file found, the defaults hold\n"
        )

    def test_secrets_012_config_show_shows_secrets_as_set_or_unset(
        self, home: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        (home / "config.toml").write_text(f'[channels.telegram]\ntoken = "{TOKEN}"\n')
        assert main(["config", "show"]) == 0
        out = capsys.readouterr().out
        assert "# token is set" in out
        assert "# token is unset" in out
        assert TOKEN not in out

    @pytest.mark.parametrize("command", COMMANDS)
    def test_secrets_013_no_command_takes_a_secret_as_an_argument(
        self, command: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        with pytest.raises(SystemExit):
            main([*command.split(), "--help"])
        options = re.findall(r"--?[a-z][a-z-]*", capsys.readouterr().out)
        assert not [one for one in options if re.search(r"token|secret|password|key", one)]

    def test_a_reader_that_leaves_early_gets_no_traceback(self, tmp_path: Path) -> None:
        with subprocess.Popen(
            [
                sys.executable,
                "-c",
                "import sys; from gateway.cli import main; sys.stdin.read(); sys.exit(main(['config', 'show']))",
            ],
            cwd=tmp_path,
            env={"HOME": str(tmp_path), "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        ) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            assert process.stderr is not None
            process.stdout.close()
            process.stdin.close()
            assert process.stderr.read() == b""
            assert process.wait() == 1

    @pytest.mark.parametrize("name", ["a:b", "", "ä", "x" * 65])
    def test_a_session_name_that_no_address_can_hold_is_refused(
        self, name: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        with pytest.raises(SystemExit) as caught:
            main(["chat", "--session", name])
        assert caught.value.code == 2
        assert "a session name has up to 64 letters" in capsys.readouterr().err


class TestExitCodes:
    def test_an_error_of_ours_is_one_line_even_from_within_task_groups(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        def fail() -> int:
            raise ExceptionGroup(
                "group", [ConfigError("port is taken"), ExceptionGroup("inner", [StoreError("full")])]
            )

        assert exit_code(fail) == 2
        assert capsys.readouterr().err == "crayfish: port is taken\ncrayfish: full\n"

    def test_a_bug_is_a_traceback_without_secrets(self, capsys: pytest.CaptureFixture[str]) -> None:
        def fail() -> int:
            raise ExceptionGroup("group", [ConfigError("x"), RuntimeError(f"GET /bot{TOKEN}/getMe")])

        assert exit_code(fail) == 1
        err = capsys.readouterr().err
        assert f"RuntimeError: GET /bot{TOKEN[:6]}***{TOKEN[-4:]}/getMe" in err
        assert "AAHfake" not in err

    def test_ctrl_c_is_quiet(self, capsys: pytest.CaptureFixture[str]) -> None:
        def interrupted() -> int:
            signal.raise_signal(signal.SIGINT)
            return 0

        assert exit_code(interrupted) == 130
        assert capsys.readouterr() == ("", "")


Examine = Callable[..., dict[str, list[doctor.Finding]]]


def by_name(findings: list[doctor.Finding]) -> dict[str, list[doctor.Finding]]:
    named: dict[str, list[doctor.Finding]] = {}
    for one in findings:
        named.setdefault(one.name, []).append(one)
    return named


@pytest.fixture
def examine(home: Path) -> Examine:
    """Write a config file and examine it; its port is a free one."""

    def run(text: str = "", *, deep: bool = False, port: int = 0) -> dict[str, list[doctor.Finding]]:
        (home / "config.toml").write_text(f"{text}\n[http]\nport = {port}\n")
        (home / "config.toml").chmod(0o600)
        return by_name(doctor.examine(None, os.environ, home, deep=deep))

    return run


class TestDoctor:
    def test_an_empty_home_is_fine(self, examine: Examine, home: Path) -> None:
        found = examine()
        levels = {name: [one.level for one in ones] for name, ones in found.items()}
        assert levels.pop("model") == [Level.WARN]
        assert {level for ones in levels.values() for level in ones} == {Level.OK}
        assert list(home.iterdir()) == [home / "config.toml"]

    def test_the_command_prints_the_findings_and_the_code_says_whether_it_works(
        self, home: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        (home / "config.toml").write_text("[http]\nport = 0\n")
        assert main(["doctor"]) == 0
        assert re.search(r"^ok    config +.*config\.toml is valid$", capsys.readouterr().out, re.MULTILINE)
        assert main(["doctor", "--json"]) == 0
        body = json.loads(capsys.readouterr().out)
        assert body["ok"] is True
        assert set(body["findings"][0]) == {"level", "name", "text", "remedy"}

    def test_each_disk_is_looked_at(self, examine: Examine, home: Path) -> None:
        other = Path("/dev/shm")
        if not other.is_dir() or other.stat().st_dev == home.stat().st_dev:
            pytest.skip("there is no second disk here")
        (one,) = examine()["disk"]
        first, second = examine(f'[store]\nurl = "sqlite+aiosqlite:///{other}/none/x.db"')["disk"]
        assert first.text.endswith(f"at {home / '.crayfish'}")
        assert one.text.endswith(f"at {home / '.crayfish'}")
        assert second.text.endswith(f"at {other}/none")

    def test_a_bad_config_is_a_finding(self, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
        (home / "config.toml").write_text("prt = 1\n")
        assert main(["doctor", "--json"]) == 2
        (finding,) = [
            one for one in json.loads(capsys.readouterr().out)["findings"] if one["level"] == "fail"
        ]
        assert "did you mean http.port?" in finding["text"]

    def test_secrets_that_are_set_are_named_the_others_counted(self, examine: Examine) -> None:
        (secrets,) = examine(f'[channels.telegram]\ntoken = "{TOKEN}"')["secrets"]
        unset = len(config.secrets_set(Settings())) - 1
        assert secrets.text == f"set: channels.telegram.token; {unset} others are not"

    def test_secrets_in_a_file_that_others_can_read_are_a_warning(self, home: Path) -> None:
        file = home / "config.toml"
        file.write_text('[http]\nport = 0\ntoken = "hush-hush"\n')
        file.chmod(0o644)
        warnings = by_name(doctor.examine(None, {"HOME": str(home)}, home))["config"]
        assert (warnings[1].level, warnings[1].remedy) == (Level.WARN, f"chmod 600 {file}")
        file.write_text('[http]\nport = 0\ntoken = "${TOKEN}"\n')
        found = by_name(doctor.examine(None, {"HOME": str(home), "TOKEN": "hush-hush"}, home))["config"]
        assert [one.level for one in found] == [Level.OK]

    def test_a_home_that_others_can_look_into_is_a_warning(self, examine: Examine, home: Path) -> None:
        folder = home / ".crayfish"
        folder.mkdir()
        folder.chmod(0o755)
        assert [one.remedy for one in examine()["home"]] == ["", f"chmod 700 {folder}"]
        folder.chmod(0o700)
        assert [one.level for one in examine()["home"]] == [Level.OK]

    def test_a_file_in_place_of_a_folder_is_a_failure(self, examine: Examine, home: Path) -> None:
        (home / "taken").touch()
        (finding,) = examine('[workspace]\npath = "taken/here"')["workspace"]
        assert (finding.level, finding.text) == (Level.FAIL, f"{home}/taken is not a folder")

    @pytest.mark.skipif(os.geteuid() == 0, reason="root may write everything")
    def test_a_home_that_can_not_be_written_is_a_failure(self, examine: Examine, home: Path) -> None:
        home.joinpath(".crayfish").mkdir(mode=0o500)
        assert examine()["home"][0].level is Level.FAIL

    @pytest.mark.parametrize(
        ("version", "level", "text"),
        [
            (None, Level.OK, "x is empty; the first start sets it up"),
            ("0002", Level.OK, "x has schema 0002, the newest"),
            ("0001", Level.OK, "x has schema 0001; the next start brings it to 0002"),
            ("0003", Level.FAIL, "x has schema 0003, which is newer than this program knows"),
        ],
    )
    def test_the_schema_is_compared_with_the_migrations(
        self, version: str | None, level: Level, text: str
    ) -> None:
        finding = doctor.schema("x", version, ["0001", "0002"])
        assert (finding.level, finding.text) == (level, text)

    def test_the_programs_own_database_is_reached(self, examine: Examine, url: str) -> None:
        (store,) = examine(f'[store]\nurl = "{url}"')["store"]
        assert (store.level, store.text.partition(" has ")[2]) == (
            Level.OK,
            f"schema {doctor.revisions()[-1]}, the newest",
        )

    def test_an_empty_database_is_reached(self, examine: Examine, empty_url: str) -> None:
        assert examine(f'[store]\nurl = "{empty_url}"')["store"][0].level is Level.OK

    def test_a_database_of_another_program_is_a_failure(self, examine: Examine, home: Path) -> None:
        connection = sqlite3.connect(home / "other.db")
        connection.execute("create table theirs (id int)")
        connection.close()
        (store,) = examine('[store]\nurl = "sqlite+aiosqlite:///other.db"')["store"]
        assert (store.level, store.text) == (Level.FAIL, f"{home}/other.db belongs to another program")

    def test_a_file_that_is_no_database_is_a_failure(self, examine: Examine, home: Path) -> None:
        (home / "text.db").write_text(
            "not a database, just a text that is long enough to be read as one\n" * 100
        )
        (store,) = examine('[store]\nurl = "sqlite+aiosqlite:///text.db"')["store"]
        assert (store.level, store.text) == (Level.FAIL, f"{home}/text.db: file is not a database")

    def test_a_deep_look_reads_the_whole_database(self, examine: Examine, home: Path) -> None:
        sqlite3.connect(home / "crayfish.db").close()
        text = '[store]\nurl = "sqlite+aiosqlite:///crayfish.db"\n[model]\ndialect = "demo"'
        assert [one.text for one in examine(text, deep=True)["store"]][1:] == [
            f"{home}/crayfish.db is intact"
        ]

    def test_a_database_server_that_is_down_is_named_without_the_password(self, examine: Examine) -> None:
        with socket.socket() as held:
            held.bind(("127.0.0.1", 0))  # bound and not listening: nobody answers there, and nobody else can
            port = held.getsockname()[1]
            (store,) = examine(
                f'[store]\nurl = "postgresql+asyncpg://bot:hush-hush@127.0.0.1:{port}/crayfish"'
            )["store"]
        assert store.level is Level.FAIL
        assert store.text.startswith("PostgreSQL at 127.0.0.1")
        assert "hush-hush" not in store.text

    def test_a_port_of_another_program_is_a_failure(self, examine: Examine) -> None:
        with socket.socket() as held:
            held.bind(("127.0.0.1", 0))
            port = held.getsockname()[1]
            (http,) = examine(port=port)["http"]
        assert (http.level, http.text) == (Level.FAIL, f"127.0.0.1:{port}: Address already in use")

    async def test_a_port_of_a_running_gateway_is_fine(self, examine: Examine) -> None:
        async def live(_: web.Request) -> web.Response:
            return web.json_response({"ok": True, "status": "live"})

        app = web.Application()
        app.router.add_get("/healthz", live)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        port = runner.addresses[0][1]
        found = await asyncio.to_thread(examine, port=port)
        await runner.cleanup()
        assert [one.text for one in found["http"]] == [
            f"a gateway answers at 127.0.0.1:{port}; a second one needs another port"
        ]

    def test_a_token_of_another_shape_is_a_warning(self, examine: Examine) -> None:
        (telegram,) = examine('[channels.telegram]\ntoken = "abc"')["telegram"]
        assert (telegram.level, telegram.remedy) == (Level.WARN, "copy it again from @BotFather")

    def test_rules_that_can_not_be_meant_are_warnings(self, examine: Examine) -> None:
        text = f'[channels.telegram]\ntoken = "{TOKEN}"\nallow_from = ["@ada"]'
        assert [one.level for one in examine(text)["telegram"]] == [Level.OK, Level.WARN]

    def test_groups_that_nobody_may_speak_in_and_owners_of_nowhere_are_warnings(
        self, examine: Examine
    ) -> None:
        found = examine(
            f'[access]\nowners = ["telegrm:1"]\n[channels.telegram]\ntoken = "{TOKEN}"\n'
            'allow_from = [-1001]\n[channels.telegram.groups."-1002"]\nallow_from = []\n'
            "[channels.telegram.groups.42]\nallow_from = [1]\n"
        )
        (access,) = found["access"]
        assert access.level is Level.WARN
        assert "names no platform" in access.text
        _, *warnings = found["telegram"]
        assert all(one.level is Level.WARN for one in warnings)
        texts = [one.text for one in warnings]
        assert '"-1001" in allow_from matches nobody: it is the id of a group' in texts[0]
        assert 'groups."42" matches no group: it is the id of a person' in texts[1]
        assert 'groups."-1002" is listed, but nobody may speak there' in texts[2]

    @pytest.mark.parametrize(
        ("text", "levels", "told"),
        [
            ("", [Level.OK], "off: no bot_token"),
            ('bot_token = "xoxb-12345678901"\napp_token = "xapp-1234567890"', [Level.OK], "Socket Mode"),
            (
                f'bot_token = "xoxb-12345678901"\nsigning_secret = "{"0" * 32}"',
                [Level.OK],
                "events over HTTP",
            ),
            (
                'bot_token = "xoxp-12345678901"\napp_token = "xapp-1234567890"',
                [Level.WARN],
                "bot_token does not",
            ),
            (
                'bot_token = "xoxb-12345678901"\napp_token = "xoxb-1234567890"',
                [Level.WARN],
                "app_token does not",
            ),
            (
                'bot_token = "xoxb-12345678901"\napp_token = "xapp-1234567890"\nallow_from = ["@ada"]',
                [Level.OK, Level.WARN],
                "Socket Mode",
            ),
        ],
    )
    def test_tokens_of_slack_are_looked_at(
        self, examine: Examine, text: str, levels: list[Level], told: str
    ) -> None:
        found = examine(f"[channels.slack]\n{text}")["slack"]
        assert [one.level for one in found] == levels
        assert told in found[0].text

    def test_the_variable_with_the_key_is_named_and_its_value_is_not(
        self, examine: Examine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("GEMINI_API_KEY", "hush-hush")
        (model,) = examine()["model"]
        assert "GEMINI_API_KEY" in model.text
        assert "hush-hush" not in model.text

    def test_a_model_that_lacks_its_key_is_a_failure(self, examine: Examine) -> None:
        (model,) = examine('[model]\ndialect = "anthropic"\nname = "m"')["model"]
        assert model.level is Level.FAIL
        assert "ANTHROPIC_API_KEY" in model.text

    @pytest.mark.parametrize(
        ("text", "section"),
        [
            ('fallbacks = ["n", "anthropic/c"]', "[model] fallbacks"),
            ('[heartbeat]\nmodel = "anthropic/c"', "[heartbeat] model"),
            ('[compaction]\nmodel = "anthropic/c"', "[compaction] model"),
            ('[media]\nimage_model = "anthropic/c"', "[media] image_model"),
            ('[agents.clerk]\nmodel = "anthropic/c"', "[agents.clerk] model"),
        ],
    )
    def test_a_model_beside_the_usual_one_without_its_key_is_a_failure(
        self, examine: Examine, text: str, section: str
    ) -> None:
        usual = '[model]\ndialect = "openai"\nname = "m"\nbase_url = "http://127.0.0.1:1/v1"\n'
        first, other = examine(usual + text)["model"]
        assert (first.level, other.level) == (Level.OK, Level.FAIL)
        assert other.text.startswith(f"{section}: anthropic/c needs a key. Set ANTHROPIC_API_KEY")

    def test_a_deep_look_asks_the_model(self, examine: Examine) -> None:
        assert [one.level for one in examine('[model]\ndialect = "demo"', deep=True)["model"]] == [
            Level.OK
        ] * 2
        with socket.socket() as held:
            held.bind(("127.0.0.1", 0))
            url = f"http://127.0.0.1:{held.getsockname()[1]}/v1"
            text = f'[model]\ndialect = "openai"\nname = "m"\napi_key = "hush-hush"\nbase_url = "{url}"'
            (_, asked) = examine(text, deep=True)["model"]
        assert asked.level is Level.FAIL
        assert "hush-hush" not in asked.text

    async def test_a_deep_look_says_that_only_a_fallback_answers(self, home: Path) -> None:
        refused = json_body({"error": {"message": "no such key"}}, 401)
        async with serving(refused, reply("openai", "Yes.")) as api:
            text = f'[model]\ndialect = "openai"\nname = "m"\nbase_url = "{api.url}"\nfallbacks = ["n"]\n'
            (home / "config.toml").write_text(f"[http]\nport = 0\n{text}")
            done = await asyncio.to_thread(warm.crayfish, home, dict(os.environ), "doctor", "--deep")
        assert "warn  model      openai/m does not answer, openai/n does in its place\n" in done.stdout
        assert (done.returncode, done.stderr) == (0, "")

    async def test_a_deep_look_asks_telegram_who_we_are(self, examine: Examine) -> None:
        async with BotApi() as api:
            text = f'[channels.telegram]\ntoken = "{{}}"\napi_base = "{api.url}"\n[model]\ndialect = "demo"'
            known = await asyncio.to_thread(examine, text.format(api.token), deep=True)
            unknown = await asyncio.to_thread(
                examine, text.format(api.token.replace("fake", "fals")), deep=True
            )
        assert known["telegram"][1].text.startswith(f"{api.url} knows us as @")
        assert unknown["telegram"][1].level is Level.FAIL
        assert unknown["telegram"][1].remedy == "copy the token again from @BotFather"
        gone = await asyncio.to_thread(examine, text.format(api.token), deep=True)
        assert gone["telegram"][1].level is Level.FAIL
        assert "AAH" not in repr((known, unknown, gone))
