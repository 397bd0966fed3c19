"""The tools `exec` and `process`: commands of the model, asked about, confined and bounded (agent G)."""

from __future__ import annotations

import asyncio
import functools
import hashlib
import json
import os
import re
import shutil
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeAlias

from gateway.clock import Clock
from gateway.config import ExecSettings
from gateway.errors import ToolDenied, ToolError
from gateway.tools.base import Ask, Group, ToolContext
from gateway.tools.denylist import Judgement, Verdict, calls, fetches, judge, runs_files
from gateway.tools.files import mentions_others
from gateway.tools.paths import reach as reach_path
from gateway.tools.processes import FOREIGN, Ending, Launch, Process, Processes
from gateway.tools.sandbox import Limits, Sandbox, Tier, View, open_sandbox
from gateway.tools.schema import FunctionTool, tool
from gateway.tools.shellwords import Word, parse, quoted
from gateway.types import BROUGHT, ROOMS, Json, Replay

Reach: TypeAlias = Literal["workspace", "network", "host"]
Action: TypeAlias = Literal["list", "poll", "log", "kill"]

MAX_COMMAND = 16_000
MAX_TIMEOUT = 1800
MAX_WAIT = 30.0
MAX_LINES = 200

_MARKER = "CRAYFISH"
_HASHED = 5_000_000
_MAX_FILES = 32
_MARGIN = 60
_SOON = 0.3
_PATH = ("/usr/local/bin", "/usr/bin", "/bin")
_VISIBLE = ("/usr", "/bin", "/sbin", "/nix/store")
_SHELL = "/bin/bash" if Path("/bin/bash").exists() else "/bin/sh"
_INTERPRETERS: Mapping[str, Sequence[str]] = {
    ".py": ("python3",),
    ".sh": (_SHELL,),
    ".ps1": ("pwsh", "-NoProfile", "-File"),
}
"""What runs a script of a skill that has no run bit, or says nothing in its first line."""


@dataclass(frozen=True, slots=True)
class SkillHome:
    """The folder of the skill that a file belongs to, and the variables that its programs get.

    `problem` is why its programs can't run, "" if they can.
    """

    folder: Path
    env: Mapping[str, str] = field(default_factory=dict)
    problem: str = ""


SkillOf: TypeAlias = Callable[[Path], SkillHome | None]


@dataclass(frozen=True, slots=True)
class Command:
    """What the model wants to run. `workdir` is relative to the conversation's folder.

    `stdin` is what it reads; `ask` is why a person must allow it in any case, "" if that depends.
    """

    text: str
    workdir: str = ""
    reach: Reach = "workspace"
    background: bool = False
    stdin: str = ""
    ask: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How a command would run. `question` is why a person must allow it, "" if nobody must.

    `binding` is a digest of everything that the decision rests on, "" if nobody was or must be asked.
    """

    command: Command
    argv: Sequence[str]
    cwd: Path
    env: Mapping[str, str]
    sandbox: Sandbox
    view: View
    question: str
    binding: str


def decide(
    settings: ExecSettings,
    judgement: Judgement,
    context: ToolContext,
    reach: Reach,
    *,
    confined: bool,
) -> str:
    """Return why a person must allow a command, "" if it may run. `confined`: a sandbox works here.

    Raises: ToolDenied when it never may.
    """
    if settings.mode == "deny":
        raise ToolDenied('commands are turned off: [exec] mode = "deny" in the configuration')
    if judgement.verdict is Verdict.NEVER:
        raise ToolDenied(f"this command is never run, whoever asks for it: {judgement.reason}")
    if settings.mode == "full" and context.is_owner:
        return ""
    listed = judgement.verdict is Verdict.LISTED
    if settings.mode == "allowlist" and not listed:
        raise ToolDenied("only commands that [exec] allow lists are run here")
    if not context.is_owner:
        return "somebody else than the owner wants it"
    if context.tainted:
        return "what strangers wrote has been read in this turn"
    if listed and reach != "host":
        return ""
    if not context.situation.attended:
        return "nobody is there"
    return _unlisted(settings, judgement, reach, confined=confined)


def _unlisted(settings: ExecSettings, judgement: Judgement, reach: Reach, *, confined: bool) -> str:
    """Return why the owner must allow what is on no list, "" if the sandbox is enough."""
    if settings.mode == "ask":
        return "it is not on the list of allowed commands"
    if not confined:
        return "there is no sandbox on this machine"
    if judgement.verdict is Verdict.UNCLEAR:
        return judgement.reason
    if reach == "host":
        return "it wants to run outside the sandbox"
    return "it needs the network" if reach == "network" and not settings.network else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Runner:
    """Plans commands and runs them. `sandbox` is slow the first time, and is called in a thread."""

    settings: ExecSettings
    processes: Processes
    environ: Mapping[str, str]
    sandbox: Callable[[], Sandbox]
    skill_of: SkillOf

    async def check(self, command: Command, context: ToolContext) -> Ask | None:
        """Return what a person must allow first. Raises: ToolDenied."""
        plan = await asyncio.to_thread(self.plan, command, context)
        if not plan.question:
            return None
        short = command.text if len(command.text) <= 60 else f"{command.text[:59]}…"
        first = " ".join(short.split())
        rule = f"exec in {plan.cwd.name}: {command.text[:200]} #{plan.binding[:32]}"
        return Ask(f"Run a command: {first}", _detail(plan), plan.binding, rule, _note(plan))

    async def run(self, command: Command, context: ToolContext, timeout: float) -> str:  # noqa: ASYNC109 - the program's limit, which ends it
        """Run a command, and wait for it unless it is for the background. Raises: ToolError."""
        plan = await asyncio.to_thread(self.plan, command, context)
        if context.approved and context.approved != plan.binding:
            raise ToolDenied(
                "it was not run: the command, its folder or a program has changed since it was allowed"
            )
        if plan.question and not context.approved:
            raise ToolDenied(f"it was not run: a person must allow it, because {plan.question}")
        process = await self.processes.start(context.conversation_id, self._launch(plan, timeout))
        try:
            if command.background:
                return await self._send_off(process, context)
            await process.done.wait()
        except asyncio.CancelledError:
            process.end(Ending.STOPPED)
            raise
        self.processes.forget(context.conversation_id, process)
        return _result(process, plan)

    async def _send_off(self, process: Process, context: ToolContext) -> str:
        """Leave a program alone, unless it has failed at once."""
        try:
            await asyncio.wait_for(process.done.wait(), _SOON)
        except TimeoutError:
            return f"Running in the background as {process.id}; look after it with the tool process."
        self.processes.forget(context.conversation_id, process)
        return f"{process.output.text().rstrip()}\n{_summary(process, process.ended or 0.0)}".lstrip()

    def _launch(self, plan: Plan, timeout: float) -> Launch:
        limits = Limits(cpu=round(timeout) + 5, memory=self.settings.memory_mb * 2**20)
        return Launch(
            argv=plan.sandbox.command(plan.argv, plan.view, limits),
            cwd=plan.cwd,
            env=plan.env,
            shown=plan.command.text,
            timeout=timeout,
            most=self.settings.max_output,
            temporary=plan.view.temporary,
            stdin=plan.command.stdin.encode("utf-8", "replace"),
            sweep=plan.sandbox.tier is not Tier.BWRAP,
            foreign=_is_foreign(plan.command),
        )

    def plan(self, command: Command, context: ToolContext) -> Plan:
        """Decide how a command would run; looks at files, and changes none but the missing folder.

        Raises: ToolDenied, ToolError.
        """
        if not command.text.strip() or "\0" in command.text or len(command.text) > MAX_COMMAND:
            raise ToolDenied(f"command must be one command line of at most {MAX_COMMAND} characters")
        judgement = judge(command.text, self.settings.allow)
        reach: Reach = "network" if judgement.network and command.reach == "workspace" else command.reach
        sandbox = self.sandbox()
        confined = sandbox.tier is not Tier.NONE
        question = decide(self.settings, judgement, context, reach, confined=confined) or command.ask
        if self.settings.sandbox in ("bwrap", "landlock") and sandbox.tier is Tier.NONE:
            raise ToolDenied(f"commands can't run: {sandbox.note}")
        folder = context.folder
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        cwd = _folder(folder, command.workdir)
        listed = judgement.verdict is Verdict.LISTED
        words, home = self._skill(command.text, cwd, folder)
        view = View(
            folder=folder,
            cwd=home.folder if home else cwd,
            temporary=_temporary(),
            readable=(*map(Path, self.settings.readable), *([home.folder, *_interpreter()] if home else [])),
            network=reach == "network" or self.settings.network,
            hidden=_hidden(folder, command),
        )
        if reach == "host":
            sandbox = Sandbox(Tier.NONE, "outside the sandbox")
        path = self._path(folder, sandbox)
        ours = Path(sys.executable).parent
        if home and not ours.is_relative_to(folder):
            path = f"{ours}:{path}"
        env = self._env(folder, path, view.temporary)
        if home:
            env |= {**home.env, "PYTHONDONTWRITEBYTECODE": "1"}
        binding = ""
        if question or context.approved:
            rests_on = [command.text, str(view.cwd), reach, command.background, sandbox.tier, sorted(env)]
            rests_on += [command.stdin] if command.stdin else []
            binding = _hash([*rests_on, *_programs(command.text, cwd, folder, path)])
        return Plan(
            command=command,
            argv=_argv(command.text, words, path, listed=listed),
            cwd=view.cwd,
            env=env,
            sandbox=sandbox,
            view=view,
            question=question,
            binding=binding,
        )

    def _skill(self, text: str, cwd: Path, folder: Path) -> tuple[list[str], SkillHome | None]:
        """Return a skill's program with its arguments, and its home, if that is all of the command.

        Raises: ToolDenied when the command names a file that a skill has not (seed 000).
        """
        homes: list[tuple[str, SkillHome]] = []
        for words in calls(text):
            for word in words[:64]:
                file = _file(word, cwd, folder)
                home = self.skill_of(file) if file else None
                if home and file and not file.exists():
                    raise ToolDenied(f"{word.text!r} does not exist. Read SKILL.md in {home.folder} first.")
                if home and file and word in words[:2]:
                    if home.problem:
                        raise ToolDenied(f"{word.text!r} can't run: {home.problem}.")
                    homes.append((str(file), home))
        line = parse(text)
        if not homes or not line.plain or len(line.segments) != 1:
            return [], None
        words = line.segments[0].words
        if not all(word.known for word in words):
            return [], None
        home = homes[0][1]
        # The program runs in its own folder, so what the command says of it must not be relative.
        argv = [
            str(file) if (file := _file(word, cwd, folder)) and self.skill_of(file) else word.text
            for word in words
        ]
        return _started(argv), home

    def _env(self, folder: Path, path: str, temporary: Path) -> dict[str, str]:
        """Return the whole environment: nothing of the gateway's own but what the configuration names."""
        named = {name: self.environ[name] for name in self.settings.env if name in self.environ}
        return named | {
            "PATH": path,
            "HOME": str(folder),
            "LANG": self.environ.get("LANG", "C.UTF-8"),
            "TMPDIR": str(temporary),
            "GIT_CONFIG_NOSYSTEM": "1",
            _MARKER: "exec",
        }

    def _path(self, folder: Path, sandbox: Sandbox) -> str:
        """Return where programs are looked for: nowhere that the model can write, or can't see."""
        given = [one for one in self.environ.get("PATH", "").split(":") if one.startswith("/")]
        visible = (*_VISIBLE, *self.settings.readable) if sandbox.tier is not Tier.NONE else ("/",)
        kept = [
            one
            for one in dict.fromkeys((*given, *_PATH))
            if any(Path(one).is_relative_to(root) for root in visible)
            and not Path(one).is_relative_to(folder)
        ]
        return ":".join(kept)


def _folder(folder: Path, workdir: str) -> Path:
    """Return the folder that a command starts in. Raises: ToolError."""
    if not workdir.strip() or workdir == ".":
        return folder
    with reach_path(folder, workdir) as place:
        if not stat.S_ISDIR(os.stat(place.name, dir_fd=place.folder, follow_symlinks=False).st_mode):
            raise ToolError(f"{workdir!r} is not a folder.")
    return Path(os.path.realpath(folder / workdir))


def _interpreter() -> Iterator[Path]:
    """Yield where the gateway's own Python and its libraries are, which skills may use."""
    for path in dict.fromkeys((Path(sys.prefix).resolve(), Path(sys.base_prefix).resolve())):
        if not any(path.is_relative_to(root) for root in _VISIBLE):
            yield path


def _temporary() -> Path:
    return Path(tempfile.gettempdir()).resolve() / f"crayfish-{os.urandom(8).hex()}"


def _argv(text: str, words: Sequence[str], path: str, *, listed: bool) -> list[str]:
    """Return what to start: a listed command without a shell, so that nothing in it expands (exec-027)."""
    if words:
        return list(words)
    line = parse(text)
    if listed and len(line.segments) == 1:
        argv = [word.text for word in line.segments[0].words]
        return [shutil.which(argv[0], path=path) or argv[0], *argv[1:]] if "/" not in argv[0] else argv
    return [_SHELL, "-c", quoted(line) if listed else text]


def _started(argv: Sequence[str]) -> list[str]:
    """Return what starts a script of a skill: the script itself, if it says how, else its interpreter."""
    by = _INTERPRETERS.get(Path(argv[0]).suffix, ())
    if by and os.access(argv[0], os.X_OK):
        with open(argv[0], "rb", buffering=0) as script:  # noqa: PTH123 - two bytes of it
            by = () if script.read(2) == b"#!" else by
    return [*by, *argv]


def _file(word: Word, cwd: Path, folder: Path) -> Path | None:
    """Return the file that a word may name."""
    text = re.sub(r"^(~|\$HOME|\$\{HOME\})(?=/)", str(folder).replace("\\", "\\\\"), word.text)
    if "/" not in text or len(text) > 4096 or "\n" in text:
        return None
    return Path(os.path.normpath(cwd / text))


def _programs(text: str, cwd: Path, folder: Path, path: str) -> list[list[str]]:
    """Return each program that would run, and each script, as (name, where it is, a digest of it)."""
    found: list[list[str]] = []
    for words in calls(text):
        name = words[0].text
        where = (
            shutil.which(name, path=path) if "/" not in name else str(_file(words[0], cwd, folder) or name)
        )
        if where:
            real = os.path.realpath(where)
            found.append([name, real, _digest(Path(real))])
        if runs_files(name):
            for word in words[1:33]:
                file = Path(os.path.normpath(cwd / word.text)) if len(word.text) < 1024 else None
                if file and file.is_file():
                    found.append([word.text, os.path.realpath(file), _digest(file)])
    return found[:_MAX_FILES]


def _digest(file: Path) -> str:
    """Return the hash of a file, for a large one of what tells it from another."""
    try:
        handle = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError):
        return ""
    with os.fdopen(handle, "rb") as opened:
        status = os.fstat(opened.fileno())
        if not stat.S_ISREG(status.st_mode):
            return ""
        if status.st_size > _HASHED:
            return f"{status.st_ino}.{status.st_size}.{status.st_mtime_ns}"
        return hashlib.sha256(opened.read(_HASHED)).hexdigest()


def _hash(parts: Sequence[Json]) -> str:
    return hashlib.sha256(json.dumps(parts).encode("utf-8", "surrogatepass")).hexdigest()


def _detail(plan: Plan) -> str:
    given = [f"Input: {plan.command.stdin}"] if plan.command.stdin else []
    return "\n\n".join([plan.command.text, *given, f"Folder: {plan.cwd}"])


def _note(plan: Plan) -> str:
    where = plan.sandbox.note
    if plan.view.network and plan.sandbox.tier is not Tier.NONE:
        where = f"{plan.sandbox.tier}, with the network"
    return f"Runs in: {where}.\nAsked because {plan.question}."


def _result(process: Process, plan: Plan) -> str:
    hint = ""
    if process.code and plan.sandbox.tier is not Tier.NONE:
        kept = "only the workspace can be written" if plan.view.network else "no network, only the workspace"
        hint = f"\n[ran in a sandbox: {kept}; reach says what else a command needs]"
    text = process.output.text().rstrip("\n")
    summary = _summary(process, process.ended or 0.0)
    return f"{text}\n{summary}{hint}" if text else f"{summary}{hint}"


def _summary(process: Process, now: float) -> str:
    seconds = f"{(process.ended or now) - process.started:.1f} s"
    if not process.done.is_set():
        return f"[running, {seconds}]"
    ended = f"exit code {process.code}" if process.code >= 0 else f"ended by signal {-process.code}"
    if process.ending is Ending.TIMEOUT:
        limit = f"{process.launch.timeout:g} s"
        return f"[stopped after {limit}: {process.ending}; give it a longer timeout, or background]"
    return f"[stopped after {seconds}: {process.ending}]" if process.ending else f"[{ended}, {seconds}]"


def exec_tools(
    settings: ExecSettings,
    processes: Processes,
    clock: Clock,
    *,
    environ: Mapping[str, str],
    sandbox: Callable[[], Sandbox] | None = None,
    skill_of: SkillOf = lambda _file: None,
) -> tuple[FunctionTool, FunctionTool]:
    """Return the two tools. `skill_of` says which skill a file belongs to, if any."""
    runner = open_runner(settings, processes, environ=environ, sandbox=sandbox, skill_of=skill_of)
    return _exec_tool(runner), _process_tool(processes, clock)


def open_runner(
    settings: ExecSettings,
    processes: Processes,
    *,
    environ: Mapping[str, str],
    sandbox: Callable[[], Sandbox] | None = None,
    skill_of: SkillOf = lambda _file: None,
) -> Runner:
    """Return what runs commands as the configuration says."""
    return Runner(
        settings=settings,
        processes=processes,
        environ=environ,
        sandbox=sandbox or functools.partial(open_sandbox, settings.sandbox),
        skill_of=skill_of,
    )


def _is_foreign(command: Command) -> bool:
    """Return whether a command shows what strangers wrote: from outside, or files that others brought."""
    return command.reach != "workspace" or _names_others(command) or fetches(command.text)


def _names_others(command: Command) -> bool:
    return mentions_others(f"{command.text} {command.workdir} {command.stdin}")


def _hidden(folder: Path, command: Command) -> tuple[Path, ...]:
    """Return what others brought, unless the command names it: read by the way, it would not be noticed."""
    if _names_others(command):
        return ()
    found = (folder / ROOMS, folder / BROUGHT)
    return tuple(one for one in found if one.is_dir() and one.resolve() == one)


def _brings(args: Mapping[str, Json]) -> bool:
    text, workdir = str(args.get("command", "")), str(args.get("workdir", ""))
    inside = args.get("reach", "workspace") == "workspace"
    return _is_foreign(Command(text, workdir, "workspace" if inside else "host"))


def _shows(args: Mapping[str, Json]) -> bool:
    """Return whether what is looked at in the background shows what strangers wrote."""
    return str(args.get("id", "")).strip().startswith(FOREIGN)


def _exec_tool(runner: Runner) -> FunctionTool:
    async def asks(
        context: ToolContext,
        command: str,
        workdir: str = "",
        timeout: int = 0,  # noqa: ASYNC109 - the model names it so
        background: bool = False,  # noqa: FBT001, FBT002 - the model names its arguments
        reach: Reach = "workspace",
    ) -> Ask | None:
        del timeout
        return await runner.check(Command(command, workdir, reach, background), context)

    @tool(
        Replay.ONCE,
        Group.RUNTIME,
        untrusted=_brings,
        private=True,
        timeout=float(MAX_TIMEOUT + _MARGIN),
        asks=asks,
    )
    async def exec(  # noqa: A001 - the tool's name, and its arguments
        context: ToolContext,
        command: str,
        workdir: str = "",
        timeout: int = 0,  # noqa: ASYNC109 - the model names it so
        background: bool = False,  # noqa: FBT001, FBT002 - the model names its arguments
        reach: Reach = "workspace",
    ) -> str:
        """Run a shell command in the workspace, without input or terminal.

        timeout: seconds
        background: process looks after it
        reach: network, or host for other files: a person is asked
        """
        limit = runner.settings.timeout if timeout <= 0 else min(timeout, MAX_TIMEOUT)
        if background and timeout <= 0:
            limit = MAX_TIMEOUT
        return await runner.run(Command(command, workdir, reach, background), context, float(limit))

    return exec


def _process_tool(processes: Processes, clock: Clock) -> FunctionTool:
    @tool(Replay.ONCE, Group.RUNTIME, untrusted=_shows, private=True)
    async def process(
        context: ToolContext,
        action: Action,
        id: str = "",  # noqa: A002 - the model names it so
        wait: float = 0.0,
        offset: int = 0,
        limit: int = MAX_LINES,
    ) -> str:
        """Look after commands in the background; poll tells what is new.

        wait: seconds that poll waits
        offset: first line of log
        """
        owner = context.conversation_id
        if action == "list":
            rows = [_row(one, clock.now()) for one in processes.of(owner)]
            return "\n".join(rows) or "There are no commands in the background."
        found = processes.get(owner, id.strip())
        if found is None:
            known = ", ".join(one.id for one in processes.of(owner)) or "none"
            raise ToolError(f"there is no command {id!r} here. Known: {known}.")
        if action == "log":
            return f"{_lines(found.output.text(), offset, limit)}\n{_row(found, clock.now())}"
        if action == "kill":
            found.end(Ending.STOPPED)
            await found.done.wait()
        else:
            await _news(found, min(max(wait, 0.0), MAX_WAIT))
        text = found.output.since(found.seen)
        found.seen = found.output.total
        row = _row(found, clock.now())
        processes.forget(owner, found)
        return f"{text.rstrip()}\n{row}".lstrip("\n")

    return process


async def _news(process: Process, wait: float) -> None:
    """Wait until a program has printed something new or has ended."""
    if process.output.total > process.seen or process.done.is_set() or not wait:
        return
    process.news.clear()
    try:
        await asyncio.wait_for(process.news.wait(), wait)
    except TimeoutError:
        return


def _row(process: Process, now: float) -> str:
    shown = " ".join(process.launch.shown.split())
    return f"{process.id} {_summary(process, now)} {shown[:100]}"


def _lines(text: str, offset: int, limit: int) -> str:
    lines = text.splitlines()
    first = max(0, offset - 1) if offset > 0 else max(0, len(lines) - max(1, limit))
    shown: Iterator[str] = iter(lines[first : first + max(1, limit)])
    return "\n".join(shown) or "(no output)"
