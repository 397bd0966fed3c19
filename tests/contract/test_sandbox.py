"""The sandboxes: what their test finds, and what they are started with."""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from gateway import doctor
from gateway.config import ExecSettings
from gateway.tools import confine
from gateway.tools.sandbox import Choice, Limits, Sandbox, Tier, View, open_sandbox, problem_of

CHOICES: tuple[Choice, ...] = ("bwrap", "landlock")


@pytest.fixture(params=CHOICES)
def sandbox(request: pytest.FixtureRequest) -> Sandbox:
    found = open_sandbox(request.param)
    if found.tier is Tier.NONE:
        pytest.skip(f"{request.param}: {found.note}")
    return found


@pytest.fixture
def view(tmp_path: Path) -> View:
    top = tmp_path.resolve()
    for name in ("workspace", "tmp"):
        (top / name).mkdir()
    return View(top / "workspace", top / "workspace", top / "tmp")


LIMITS = Limits(cpu=10, memory=2**31, file=2**20)


def run(sandbox: Sandbox, view: View, *argv: str, env: dict[str, str] | None = None) -> tuple[int, str]:
    done = subprocess.run(
        sandbox.command(argv, view, LIMITS),
        cwd=view.cwd,
        env={"PATH": "/usr/bin:/bin"} | (env or {}),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=30,
        check=False,
    )
    return done.returncode, done.stdout.decode()


def test_a_sandbox_that_passed_its_test_says_what_it_keeps_away(sandbox: Sandbox) -> None:
    assert problem_of(sandbox) == ""
    assert "no network" in sandbox.note


def test_the_test_finds_that_no_sandbox_is_none() -> None:
    problem = problem_of(Sandbox(Tier.NONE, ""))
    assert "files can be read" in problem
    assert "TCP goes out" in problem
    assert "processes can be ended" in problem


@pytest.mark.parametrize("program", ["/bin/false", "/no/such/bwrap"])
def test_a_sandbox_that_does_not_start_is_none(program: str) -> None:
    assert problem_of(Sandbox(Tier.BWRAP, "", program)) != ""


def test_a_pretended_sandbox_is_found_out(tmp_path: Path) -> None:
    # A program that takes all options and then simply runs the rest.
    fake = tmp_path / "bwrap"
    fake.write_text('#!/bin/sh\nwhile [ "$1" != -- ]; do shift; done; shift; exec "$@"\n')
    fake.chmod(0o755)
    assert "files can be read" in problem_of(Sandbox(Tier.BWRAP, "", str(fake)))


def test_a_sandbox_that_is_off_is_off() -> None:
    assert open_sandbox("off").tier is Tier.NONE


def test_the_result_of_the_test_is_kept() -> None:
    assert open_sandbox("auto") is open_sandbox("auto")


def test_words_reach_the_program_as_they_are(sandbox: Sandbox, view: View) -> None:
    words = ["a b", "$HOME", "*", "--", "it's", "", "ro:/etc", "-c"]
    code, said = run(sandbox, view, "printf", "<%s>", *words)
    assert code == 0
    assert said == "".join(f"<{word}>" for word in words)


def test_a_file_can_grow_only_so_far(sandbox: Sandbox, view: View) -> None:
    run(sandbox, view, "dd", "if=/dev/zero", "of=big", "bs=1k", "count=2000")
    assert (view.folder / "big").stat().st_size <= 2**20


def test_links_lead_nowhere(sandbox: Sandbox, view: View, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("canary")
    code, said = run(sandbox, view, "sh", "-c", f"ln -s {tmp_path}/secret l; cat l")
    assert code
    assert "canary" not in said


def test_modes_of_files_outside_stay(sandbox: Sandbox, view: View, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("canary")
    secret.chmod(0o600)
    run(sandbox, view, "chmod", "777", str(secret))
    run(sandbox, view, "truncate", "-s", "0", str(secret))
    run(sandbox, view, sys.executable, "-c", f"import os; os.truncate({str(secret)!r}, 0)")
    assert secret.stat().st_mode & 0o777 == 0o600
    assert secret.read_text() == "canary"


def test_the_environment_of_whoever_starts_it_is_nowhere_inside(sandbox: Sandbox, view: View) -> None:
    # bubblewrap's own first process would keep it (models 8).
    code, said = run(sandbox, view, "sh", "-c", "cat /proc/*/environ; env", env={"GIVEN": "yes"})
    del code
    assert "GIVEN=yes" in said
    assert not {name for name in os.environ if len(name) > 5 and f"{name}=" in said} - {"SHLVL", "OLDPWD"}


@pytest.mark.skipif(
    not shutil.which("python3", path="/usr/bin"), reason="no Python among the system's programs"
)
def test_ordinary_programs_work(sandbox: Sandbox, view: View) -> None:
    code = "import asyncio,threading,subprocess;asyncio.run(asyncio.sleep(0));print(subprocess.run(['true']).returncode)"
    assert run(sandbox, view, "/usr/bin/python3", "-c", code) == (0, "0\n")


def test_the_private_folder_can_be_written(sandbox: Sandbox, view: View) -> None:
    assert run(sandbox, view, "sh", "-c", f"echo x > {view.temporary}/y && cat {view.temporary}/y") == (
        0,
        "x\n",
    )


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
@pytest.mark.parametrize("network", [True, False])
@pytest.mark.parametrize("signals", [True, False])
def test_the_filter_is_whole_and_jumps_within_itself(machine: str, *, network: bool, signals: bool) -> None:
    program = confine._program(machine, network=network, signals=signals)
    steps = [struct.unpack_from("HBBI", program, at) for at in range(0, len(program), 8)]
    assert len(program) % 8 == 0
    for at, (code, yes, no, _) in enumerate(steps):
        if code != confine._RETURN:
            assert at + 1 + max(yes, no) < len(steps)
    assert steps[-1][0] == confine._RETURN


@pytest.mark.parametrize(
    ("network", "number", "argument", "expected"),
    [
        (False, 41, 2, "fail"),  # socket(AF_INET)
        (True, 41, 2, "allow"),
        (True, 41, 10, "allow"),
        (True, 41, 1, "fail"),  # socket(AF_UNIX)
        (True, 41, 17, "fail"),  # socket(AF_PACKET)
        (False, 53, 1, "allow"),  # socketpair
        (False, 56, 0x0001_0000, "allow"),  # clone of a thread
        (False, 56, 0x1000_0000, "fail"),  # clone into a user namespace
        (False, 435, 0, "fail"),  # clone3
        (False, 90, 0, "fail"),  # chmod, which pretends
        (False, 101, 0, "fail"),  # ptrace
        (False, 112, 0, "fail"),  # setsid
        (False, 0, 0, "allow"),  # read
        (False, 0x4000_0029, 2, "fail"),  # the same by the numbers of x32
    ],
)
def test_the_filter_decides(number: int, argument: int, expected: str, *, network: bool) -> None:
    program = confine._program("x86_64", network=network, signals=True)
    result = decided(program, {0: number, 4: 0xC000_003E, 16: argument})
    assert ("allow" if result == confine._ALLOW else "fail") == expected


def test_the_filter_ends_what_speaks_for_another_machine() -> None:
    program = confine._program("x86_64", network=False, signals=True)
    assert decided(program, {0: 0, 4: 0x4000_0003, 16: 0}) == confine._KILL


def decided(program: bytes, data: dict[int, int]) -> int:
    """Run a filter as the kernel would (linux/filter.h)."""
    at = loaded = 0
    while True:
        code, yes, no, value = struct.unpack_from("HBBI", program, at * 8)
        at += 1
        match code:
            case confine._LOAD:
                loaded = data[value]
            case confine._RETURN:
                return int(value)
            case _:
                tests = {
                    confine._EQUAL: loaded == value,
                    confine._AT_LEAST: loaded >= value,
                    confine._ANY_BIT: bool(loaded & value),
                }
                at += yes if tests[code] else no


def findings(settings: ExecSettings, tmp_path: Path) -> list[doctor.Finding]:
    file = tmp_path / "config.toml"
    lines = [f'mode = "{settings.mode}"', f'sandbox = "{settings.sandbox}"']
    file.write_text("[exec]\n" + "\n".join(lines) + "\n")
    env = {"CRAYFISH_HOME": str(tmp_path / "home"), "HOME": str(tmp_path)}
    return [one for one in doctor.examine(file, env, tmp_path) if one.name == "exec"]


def test_the_doctor_says_which_sandbox_there_is(tmp_path: Path) -> None:
    [found] = findings(ExecSettings(), tmp_path)
    assert open_sandbox("auto").note in found.text


def test_the_doctor_says_honestly_that_there_is_none(tmp_path: Path) -> None:
    [found] = findings(ExecSettings(sandbox="off"), tmp_path)
    assert found.level is doctor.Level.WARN
    assert "no sandbox" in found.text
    assert "bubblewrap" in found.remedy


def test_the_doctor_says_that_commands_are_off(tmp_path: Path) -> None:
    [found] = findings(ExecSettings(mode="deny"), tmp_path)
    assert found.level is doctor.Level.OK
    assert "off" in found.text
