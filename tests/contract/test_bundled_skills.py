"""The skills that come with Crayfish: their form, and those that need no network and no documents."""

from __future__ import annotations

import ast
import json
import os
import re
import stat
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
import yaml

from gateway import cron
from tests.fakes.bundled import SKILLS, Done, run, site

NAMES = sorted(path.parent.name for path in SKILLS.glob("*/SKILL.md"))
MAINS = sorted(
    path.relative_to(SKILLS).as_posix().replace("/scripts/", "/")
    for path in SKILLS.glob("*/scripts/*.py")
    if "__main__" in path.read_text(encoding="utf-8")
)
KEYS = {"name", "description", "license", "compatibility", "metadata", "allowed-tools"}


def parts(name: str) -> tuple[dict[str, object], str]:
    """Return the front matter and the body of a skill."""
    text = (SKILLS / name / "SKILL.md").read_text(encoding="utf-8")
    found = re.fullmatch(r"---\n(.*?)\n---\n(.*)", text, re.DOTALL)
    assert found, "front matter comes first, between two lines of ---"
    return yaml.safe_load(found[1]), found[2]


def test_all_that_was_promised_is_there() -> None:
    assert NAMES == [
        "code-runner", "documents", "news", "notes", "reminders", "skill-creator", "weather", "web-page",
    ]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_the_front_matter_follows_the_standard(name: str) -> None:
    front, _ = parts(name)
    assert set(front) <= KEYS
    assert front["name"] == name
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name)
    assert len(name) <= 64
    description = front["description"]
    assert isinstance(description, str)
    assert len(description) < 160
    assert "\n" not in description
    assert re.search(r"\bUse (when|for|to)\b", description), "says when to use it"
    assert isinstance(front["compatibility"], str)
    assert 1 <= len(front["compatibility"]) <= 500


@pytest.mark.parametrize("name", NAMES)
def test_what_a_skill_needs_is_named(name: str) -> None:
    front, _ = parts(name)
    metadata = front["metadata"]
    assert isinstance(metadata, dict)
    if (SKILLS / name / "scripts").exists():
        assert "python3" in metadata["openclaw"]["requires"]["bins"]


@pytest.mark.parametrize("name", NAMES)
def test_the_body_is_short_and_names_only_what_is_there(name: str) -> None:
    _, body = parts(name)
    assert 5 < body.count("\n") < 500
    for path in re.findall(r"\{baseDir\}/([\w./-]*\w)|`(references/[\w./-]*\w)`", body):
        assert (SKILLS / name / "".join(path)).is_file(), path
    for path in (SKILLS / name).glob("references/*"):
        assert f"references/{path.name}" in body


def test_all_descriptions_together_cost_little() -> None:
    listed = sum(len(f"{name}{parts(name)[0]['description']}") for name in NAMES)
    assert listed < 1_300


@pytest.mark.parametrize("name", NAMES)
def test_the_skill_creators_own_check_finds_nothing_wrong(name: str, tmp_path: Path) -> None:
    done = run("skill-creator/skill.py", "check", SKILLS / name, home=tmp_path)
    assert (done.code, done.err) == (0, "")


@pytest.mark.parametrize("script", MAINS)
def test_every_script_is_a_program_that_explains_itself(script: str, tmp_path: Path) -> None:
    path = SKILLS / script.replace("/", "/scripts/", 1)
    assert path.read_text(encoding="utf-8").startswith("#!/usr/bin/env python3\n")
    assert path.stat().st_mode & stat.S_IXUSR
    done = run(script, "--help", home=tmp_path)
    assert done.code == 0
    assert done.out.startswith("usage: ")
    assert done.err == ""
    assert path.name in (SKILLS / path.parts[-3] / "SKILL.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("script", MAINS)
def test_wrong_arguments_end_with_exit_code_2_and_a_reason(script: str, tmp_path: Path) -> None:
    done = run(script, "--no-such-option", home=tmp_path)
    assert done.code == 2
    assert done.out == ""
    assert done.err.strip()
    assert "Traceback" not in done.err


@pytest.mark.parametrize("script", MAINS)
def test_a_script_starts_without_any_library(script: str) -> None:
    """What is imported at the top is in the standard library, or lies beside the script."""
    path = SKILLS / script.replace("/", "/scripts/", 1)
    beside = {one.stem for one in path.parent.glob("*.py")}
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        names = [one.name for one in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        assert {name.partition(".")[0] for name in names} <= sys.stdlib_module_names | beside


def test_what_two_skills_share_is_the_same() -> None:
    copies = [SKILLS / name / "scripts" / "fetch.py" for name in ("web-page", "news")]
    assert len({path.read_bytes() for path in copies}) == 1


def test_every_time_that_the_reminders_name_is_one_that_the_tool_takes() -> None:
    _, body = parts("reminders")
    rows = re.findall(r"(?m)^\| [^|]+ \| `([^`]+)` \|$", body)
    assert rows[0] == "when"
    now = datetime(2026, 11, 30, 12, tzinfo=UTC).timestamp()
    times = {*rows[1:], *re.findall(r"`(\d+ \d+ [\d*-]+ \* [\d*]+)`", body)}
    assert len(times) == 10
    for when in times:
        cron.read(when, now, ZoneInfo("Europe/Berlin"))


class TestNotes:
    """notes/note.py."""

    def note(self, workspace: Path, *arguments: object, stdin: str = "") -> str:
        done = run(
            "notes/note.py", "--workspace", workspace, *arguments, home=workspace, stdin=stdin.encode()
        )
        assert done.code == 0, done.err
        return done.out.strip()

    def test_a_note_gets_its_date_and_title_and_is_added_to(self, tmp_path: Path) -> None:
        add = ("add", "--date", "2026-03-01", "--title", "Küche: Angebote 报价!")
        name = "memory/2026-03-01-küche-angebote-报价.md"
        assert self.note(tmp_path, *add, stdin="- Miller 8,400\n") == f"wrote {name}"
        assert self.note(tmp_path, *add, stdin="- Smith 9,000") == f"added to {name}"
        text = (tmp_path / name).read_text(encoding="utf-8")
        assert text == "# Küche: Angebote 报价!\n\n- Miller 8,400\n\n- Smith 9,000\n"
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600

    def test_a_text_may_stand_on_the_command_line(self, tmp_path: Path) -> None:
        self.note(tmp_path, "add", "--date", "2026-03-01", "--title", "Tea", "- green, 2 €")
        assert "- green, 2 €\n" in (tmp_path / "memory" / "2026-03-01-tea.md").read_text(encoding="utf-8")

    def test_without_a_title_it_is_the_note_of_the_day(self, tmp_path: Path) -> None:
        assert self.note(tmp_path, "add", "--date", "2026-03-01", stdin="x") == "wrote memory/2026-03-01.md"

    def test_a_title_can_not_lead_out_of_the_folder(self, tmp_path: Path) -> None:
        self.note(tmp_path, "add", "--date", "2026-03-01", "--title", "../../etc/passwd", stdin="x")
        assert [path.name for path in (tmp_path / "memory").iterdir()] == ["2026-03-01-etc-passwd.md"]

    def test_a_very_long_title_still_makes_a_name_that_the_disk_takes(self, tmp_path: Path) -> None:
        for title in ("wort " * 100, "字" * 300):
            self.note(tmp_path, "add", "--date", "2026-03-01", "--title", title, stdin="x")
        assert len(list((tmp_path / "memory").iterdir())) == 2

    def test_a_fact_is_remembered_once(self, tmp_path: Path) -> None:
        remember = ("remember", "--date", "2026-03-01")
        assert self.note(tmp_path, *remember, "The kitchen is done by Miller") == "added to MEMORY.md"
        assert (
            self.note(tmp_path, *remember, "the kitchen is  done by Miller") == "MEMORY.md says that already"
        )
        self.note(tmp_path, *remember, "Ana is allergic to nuts")
        assert (tmp_path / "MEMORY.md").read_text(encoding="utf-8").splitlines()[2:] == [
            "- 2026-03-01: The kitchen is done by Miller",
            "- 2026-03-01: Ana is allergic to nuts",
        ]

    def test_a_memory_that_a_person_wrote_is_kept_as_it_is(self, tmp_path: Path) -> None:
        (tmp_path / "MEMORY.md").write_text("# Mine\n- old", encoding="utf-8")
        self.note(tmp_path, "remember", "--date", "2026-03-01", "new")
        assert (tmp_path / "MEMORY.md").read_text(encoding="utf-8") == "# Mine\n- old\n- 2026-03-01: new\n"

    def test_a_memory_that_grows_too_long_is_said_to(self, tmp_path: Path) -> None:
        (tmp_path / "MEMORY.md").write_text("- x\n" * 5_000, encoding="utf-8")
        assert "merge and delete" in self.note(tmp_path, "remember", "new")

    def test_notes_are_found_with_file_and_line_the_newest_first(self, tmp_path: Path) -> None:
        self.note(tmp_path, "add", "--date", "2026-03-01", "--title", "old", stdin="the tea is green")
        self.note(tmp_path, "add", "--date", "2026-03-02", "--title", "new", stdin="TEA: green again")
        assert self.note(tmp_path, "find", "Green", "tea").splitlines() == [
            "memory/2026-03-02-new.md#L3: TEA: green again",
            "memory/2026-03-01-old.md#L3: the tea is green",
        ]
        assert self.note(tmp_path, "find", "coffee") == "nothing found"
        assert self.note(tmp_path, "list", "--since", "2026-03-02").startswith("memory/2026-03-02-new.md (")

    def test_a_link_is_neither_read_nor_written(self, tmp_path: Path) -> None:
        outside = tmp_path / "outside"
        outside.write_text("secret tea", encoding="utf-8")
        workspace = tmp_path / "workspace"
        (workspace / "memory").mkdir(parents=True)
        (workspace / "memory" / "2026-03-01-x.md").symlink_to(outside)
        (workspace / "MEMORY.md").symlink_to(outside)
        assert self.note(workspace, "find", "tea") == "nothing found"
        for arguments in (("add", "--date", "2026-03-01", "--title", "x"), ("remember", "y")):
            done = run("notes/note.py", "--workspace", workspace, *arguments, home=tmp_path, stdin=b"z")
            assert done.code == 2
            assert "is a link" in done.err
        assert outside.read_text(encoding="utf-8") == "secret tea"

    def test_without_text_or_workspace_nothing_is_written(self, tmp_path: Path) -> None:
        for workspace, stdin in ((tmp_path, b" \n"), (tmp_path / "nowhere", b"x")):
            done = run("notes/note.py", "--workspace", workspace, "add", home=tmp_path, stdin=stdin)
            assert done.code == 2
        assert list(tmp_path.iterdir()) == []


class TestCodeRunner:
    """code-runner/run_code.py."""

    def test_python_is_computed_and_its_files_are_kept_where_asked(self, tmp_path: Path) -> None:
        (tmp_path / "data.csv").write_text("1\n2\n", encoding="utf-8")
        code = b"n = sum(map(int, open('data.csv')))\nprint('Summe: ', n, '\\u20ac')\nopen('out.txt', 'w').write('x')"
        done = run(
            "code-runner/run_code.py", "python", "--json", "--input", tmp_path / "data.csv",
            "--keep", tmp_path / "kept", home=tmp_path, stdin=code,
        )  # fmt: skip
        result = json.loads(done.out)
        assert (done.code, result["code"], result["stdout"]) == (0, 0, "Summe:  3 €\n")
        assert result["files"] == ["data.csv (4 bytes)", "out.txt (1 bytes)"]
        assert (tmp_path / "kept" / "out.txt").read_text(encoding="utf-8") == "x"

    def test_code_may_stand_on_the_command_line_or_in_a_file(self, tmp_path: Path) -> None:
        (tmp_path / "code").write_text("print(6 * 7)", encoding="utf-8")
        for source in (("--code", "print(6 * 7)"), ("--file", tmp_path / "code")):
            done = run("code-runner/run_code.py", "python", *source, home=tmp_path)
            assert done.out.splitlines()[1:] == ["42"]

    def test_the_shell_reports_its_exit_code_and_stderr(self, tmp_path: Path) -> None:
        done = run("code-runner/run_code.py", "shell", home=tmp_path, stdin=b"echo out; echo no >&2; exit 3")
        assert done.code == 1
        assert re.fullmatch(r"\[exit code 3, [\d.]+ s\]\nout\n\[stderr\]\nno\n", done.out)

    def test_what_never_ends_is_stopped_with_all_that_it_started(self, tmp_path: Path) -> None:
        code = f"sleep 300 & echo $! > {tmp_path}/pid; wait".encode()
        done = run("code-runner/run_code.py", "shell", "--seconds", 1, home=tmp_path, stdin=code)
        assert done.code == 1
        assert "stopped after 1 s" in done.out
        assert not _alive(int((tmp_path / "pid").read_text(encoding="utf-8")))

    def test_memory_is_limited(self, tmp_path: Path) -> None:
        done = run(
            "code-runner/run_code.py", "python", "--memory", 256, home=tmp_path, stdin=b"bytearray(10**9)"
        )
        assert done.code == 1
        assert "MemoryError" in done.out

    def test_of_a_long_output_the_beginning_and_the_end_are_shown(self, tmp_path: Path) -> None:
        code = b"print('first'); print('x' * 1_000_000); print('last')"
        done = run("code-runner/run_code.py", "python", "--chars", 400, home=tmp_path, stdin=code)
        assert len(done.out) < 600
        assert "first" in done.out
        assert "last" in done.out
        assert "the middle is left out" in done.out

    def test_the_code_sees_nothing_of_the_environment(self, tmp_path: Path) -> None:
        done = run(
            "code-runner/run_code.py", "python", home=tmp_path, env={"SECRET": "s3cret"},
            stdin=b"import os; print(sorted(os.environ), os.environ['HOME'] == os.getcwd())",
        )  # fmt: skip
        assert "SECRET" not in done.out
        assert done.out.rstrip().endswith("True")

    def test_no_code_and_a_folder_that_is_there_are_refused(self, tmp_path: Path) -> None:
        for arguments, stdin in (((), b" "), (("--keep", tmp_path), b"print(1)")):
            done = run("code-runner/run_code.py", "python", *arguments, home=tmp_path, stdin=stdin)
            assert done.code == 2
            assert done.out == ""


def _alive(pid: int) -> bool:
    """Return whether a process runs: one that was killed may wait to be taken note of."""
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    except FileNotFoundError:
        return False


class TestSkillCreator:
    """skill-creator/skill.py."""

    new = ("new", "tram-times", "--address", "https://transport.example.com/api",
           "--description", 'Departures: the next trams. Use for "when does the tram go".')  # fmt: skip

    def draft(self, workspace: Path) -> Path:
        done = run("skill-creator/skill.py", *self.new, "--workspace", workspace, home=workspace)
        assert done.code == 0, done.err
        return workspace / "drafts" / "tram-times"

    def digest(self, folder: Path) -> str:
        done = run("skill-creator/skill.py", "check", folder, "--run", home=folder)
        assert (done.code, done.err) == (0, "")
        return done.out.rpartition("digest: ")[2].strip()

    def test_a_draft_is_a_skill_that_passes_the_check_and_names_what_it_reaches(self, tmp_path: Path) -> None:
        folder = self.draft(tmp_path)
        front = yaml.safe_load((folder / "SKILL.md").read_text(encoding="utf-8").split("---\n")[1])
        assert front["name"] == "tram-times"
        assert front["description"] == self.new[-1]
        done = run("skill-creator/skill.py", "check", folder, "--run", home=tmp_path)
        assert done.out.splitlines()[:3] == [
            "scripts: scripts/tram_times.py",
            "asks hosts: transport.example.com",
            "reads variables: TRAM_TIMES_URL",
        ]

    def test_its_script_works_and_is_honest_when_the_address_does_not(self, tmp_path: Path) -> None:
        script = self.draft(tmp_path) / "scripts" / "tram_times.py"
        with site() as there:
            there.page("/api", json.dumps({"tram": 7}), "application/json")
            done = _start(script, "main station", TRAM_TIMES_URL=f"{there.url}/api")
            assert json.loads(done.out) == {"tram": 7}
            assert there.asked == ["/api?q=main+station"]
            done = _start(script, TRAM_TIMES_URL=f"{there.url}/gone")
            assert (done.code, done.out) == (2, "")
            assert "404" in done.err
        done = _start(script, TRAM_TIMES_URL=there.url)
        assert done.code == 2
        assert "its answer is not known" in done.err

    def test_what_was_checked_is_installed(self, tmp_path: Path) -> None:
        folder = self.draft(tmp_path)
        install = ("install", folder, "--workspace", tmp_path, "--digest", self.digest(folder))
        done = run("skill-creator/skill.py", *install, home=tmp_path)
        assert done.code == 0, done.err
        assert (tmp_path / "skills" / "tram-times" / "SKILL.md").is_file()
        assert not folder.exists()

    def test_what_was_changed_after_the_check_is_not(self, tmp_path: Path) -> None:
        folder = self.draft(tmp_path)
        install = ("install", folder, "--workspace", tmp_path, "--digest", self.digest(folder))
        with (folder / "scripts" / "tram_times.py").open("a", encoding="utf-8") as file:
            file.write("import os\n")
        done = run("skill-creator/skill.py", *install, home=tmp_path)
        assert done.code == 2
        assert "changed after it was checked" in done.err
        assert not (tmp_path / "skills").exists() or not list((tmp_path / "skills").iterdir())

    def test_a_skill_that_is_there_is_replaced_only_when_asked_and_kept(self, tmp_path: Path) -> None:
        old = tmp_path / "skills" / "tram-times"
        old.mkdir(parents=True)
        (old / "SKILL.md").write_text("old", encoding="utf-8")
        folder = self.draft(tmp_path)
        install = ("install", folder, "--workspace", tmp_path, "--digest", self.digest(folder))
        done = run("skill-creator/skill.py", *install, home=tmp_path)
        assert done.code == 2
        assert "--replace" in done.err
        assert run("skill-creator/skill.py", *install, "--replace", home=tmp_path).code == 0
        kept = tmp_path / "drafts" / "tram-times-old-1" / "SKILL.md"
        assert kept.read_text(encoding="utf-8") == "old"

    @pytest.mark.parametrize(
        ("name", "options"),
        [
            ("../evil", ()),
            ("Big", ()),
            ("a--b", ()),
            ("-a", ()),
            ("a" * 65, ()),
            ("fine", ("--description", "x" * 161)),
            ("fine", ("--address", 'https://x.example/"; import os')),
            ("fine", ("--address", "file:///etc/passwd")),
        ],
        ids=lambda value: str(value)[:40],
    )
    def test_a_bad_name_description_or_address_makes_nothing(
        self, tmp_path: Path, name: str, options: tuple[str, ...]
    ) -> None:
        new = ("new", name, "--workspace", tmp_path, "--description", "Does. Use when.", *options)
        if name.startswith("-"):
            new = ("new", "--workspace", tmp_path, "--description", "Does. Use when.", "--", name)
        done = run("skill-creator/skill.py", *new, home=tmp_path)
        assert done.code == 2
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.parametrize(
        ("change", "problem"),
        [
            (("name: tram-times", "name: other"), "name must be the folder's"),
            (("---\nname", "name"), "must begin with front matter"),
            (("compatibility: Needs", "compatibility: Needs: "), "compatibility must be plain"),
            (("compatibility: Needs", "compatibility: [Needs"), "compatibility must be plain"),
            (("metadata:", "colour: red\nmetadata:"), "a line that not every reader takes"),
            (
                ("Run `python3 {baseDir}/scripts/", "Run `python3 {baseDir}/scripts/old-"),
                "which is not there",
            ),
            (("# Tram times", "key xoxb-12345678901234567890"), "looks like a secret"),
        ],
        ids=lambda value: value if isinstance(value, str) else "",
    )
    def test_the_check_finds_what_is_wrong_in_the_manifest(
        self, tmp_path: Path, change: tuple[str, str], problem: str
    ) -> None:
        path = self.draft(tmp_path) / "SKILL.md"
        text = path.read_text(encoding="utf-8")
        assert change[0] in text
        path.write_text(text.replace(*change, 1), encoding="utf-8")
        done = run("skill-creator/skill.py", "check", path.parent, home=tmp_path)
        assert done.code == 2
        assert problem in done.err

    def test_the_check_finds_what_is_wrong_with_the_files(self, tmp_path: Path) -> None:
        folder = self.draft(tmp_path)
        script = folder / "scripts" / "tram_times.py"
        script.chmod(0o644)
        script.write_text(f"{script.read_text(encoding='utf-8')}\nif:\n", encoding="utf-8")
        (folder / "scripts" / "bad.sh").write_text("if then\n", encoding="utf-8")
        done = run("skill-creator/skill.py", "check", folder, home=tmp_path)
        assert done.code == 2
        for problem in ("has no run bit", "is no Python", "bad.sh is no shell script"):
            assert problem in done.err
        (folder / "link").symlink_to("/etc/passwd")
        assert "link is a link" in run("skill-creator/skill.py", "check", folder, home=tmp_path).err

    def test_the_template_is_not_taken_for_a_skill_itself(self) -> None:
        assert [path.parent.name for path in (SKILLS / "skill-creator").rglob("SKILL.md")] == [
            "skill-creator"
        ]


def _start(script: Path, *arguments: str, **env: str) -> Done:
    found = subprocess.run(
        [script, *arguments], env={"PATH": f"{Path(sys.executable).parent}:{os.defpath}", **env},
        capture_output=True, text=True, timeout=30, check=False,
    )  # fmt: skip
    return Done(found.returncode, found.stdout, found.stderr)
