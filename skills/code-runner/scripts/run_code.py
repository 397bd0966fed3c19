#!/usr/bin/env python3
"""Runs a piece of Python or shell in a folder of its own, with limits on time, memory and output."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO

MAX_CODE = 1_000_000
MAX_WRITTEN = 100_000_000
"""Bytes of each file that the code writes, its output among them."""

MAX_FILES = 256
MAX_KEPT = 100

_COMMANDS = {"python": (sys.executable, "-I", "-X", "utf8"), "shell": (shutil.which("bash") or "/bin/sh",)}


class Trouble(Exception):
    """What keeps the code from being run; the text is for the person."""


@dataclass(frozen=True, slots=True)
class Result:
    """How it went. `code` is the exit code, negative after a signal; `ended` says why in words."""

    code: int
    ended: str
    seconds: float
    stdout: str
    stderr: str
    files: Sequence[str]


def main() -> None:
    arguments = _arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(2))  # so that the code ends with this script
    try:
        source = _source(arguments)
        keep = _kept(arguments.keep)
        result = _run(source, keep, arguments)
    except Trouble as trouble:
        sys.exit(_told(str(trouble)))
    except OSError as error:
        sys.exit(_told(f"{error.filename}: {error.strerror}"))
    text = json.dumps(asdict(result), ensure_ascii=False, indent=1) if arguments.json else _text(result)
    sys.stdout.buffer.write(f"{text}\n".encode(errors="replace"))
    sys.exit(0 if result.code == 0 else 1)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Run Python or shell code in an empty folder, with limits. It is no sandbox: "
        "the code can read what this user can, and use the network.",
        epilog="Exit code: 0 if the code ended with 0, 1 if it did not, 2 if it could not be run.",
    )
    parser.add_argument("language", choices=sorted(_COMMANDS))
    parser.add_argument("--code", help="the code; without it and --file, stdin is read")
    parser.add_argument("--file", type=Path, help="file with the code")
    parser.add_argument(
        "--input", type=Path, action="append", default=[], help="file to copy into the folder first"
    )
    parser.add_argument(
        "--keep", type=Path, metavar="FOLDER", help="new folder for the files that the code makes"
    )
    parser.add_argument("--seconds", type=int, default=30, help="time limit (30, up to 600)")
    parser.add_argument("--memory", type=int, default=1024, help="memory limit of each process in MB (1024)")
    parser.add_argument(
        "--chars", type=int, default=10_000, help="characters of output to print at most (10000)"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    arguments = parser.parse_args()
    if not (
        1 <= arguments.seconds <= 600
        and 64 <= arguments.memory <= 16_384
        and 100 <= arguments.chars <= 200_000
    ):
        parser.error("--seconds goes from 1 to 600, --memory from 64 to 16384, --chars from 100 to 200000")
    return arguments


def _source(arguments: argparse.Namespace) -> bytes:
    path: Path | None = arguments.file
    if arguments.code is not None:
        source: bytes = arguments.code.encode(errors="surrogateescape")
        return _checked(source)
    with path.expanduser().open("rb") if path else contextlib.nullcontext(sys.stdin.buffer) as file:
        return _checked(file.read(MAX_CODE + 1))


def _checked(source: bytes) -> bytes:
    if not source.strip() or len(source) > MAX_CODE:
        raise Trouble(f"the code must have 1 to {MAX_CODE:,} bytes")
    return source


def _kept(folder: Path | None) -> Path | None:
    if folder is None:
        return None
    path = folder.expanduser().resolve()
    if path.exists():
        raise Trouble(f"{path} is there already; --keep makes a new folder")
    return path


def _run(source: bytes, keep: Path | None, arguments: argparse.Namespace) -> Result:
    with tempfile.TemporaryDirectory(prefix="run-", ignore_cleanup_errors=True) as base:
        room = Path(base, "room")
        room.mkdir()
        code = Path(base, "code")
        code.write_bytes(source)
        for path in arguments.input:
            shutil.copy(path.expanduser(), room)
        with Path(base, "stdout").open("w+b") as out, Path(base, "stderr").open("w+b") as err:
            started = time.monotonic()
            status, late = _watched([*_COMMANDS[arguments.language], str(code)], room, (out, err), arguments)
            seconds = time.monotonic() - started
            result = Result(
                code=status,
                ended=_ended(status, arguments.seconds, late=late),
                seconds=round(seconds, 2),
                stdout=_shown(out, arguments.chars),
                stderr=_shown(err, arguments.chars),
                files=_files(room),
            )
        if keep and result.files:
            shutil.copytree(room, keep, symlinks=True)
        return result


def _watched(
    command: Sequence[str], room: Path, output: tuple[IO[bytes], IO[bytes]], arguments: argparse.Namespace
) -> tuple[int, bool]:
    """Run a command to its end or its time limit; return its exit code, and whether it was the limit."""
    memory: int = arguments.memory * 1_000_000
    seconds: int = arguments.seconds

    def limit() -> None:
        _lower(resource.RLIMIT_CPU, seconds, seconds + 1)
        _lower(resource.RLIMIT_FSIZE, MAX_WRITTEN, MAX_WRITTEN)
        _lower(resource.RLIMIT_NOFILE, MAX_FILES, MAX_FILES)
        _lower(resource.RLIMIT_CORE, 0, 0)
        _lower(resource.RLIMIT_AS, memory, memory)

    with subprocess.Popen(
        command,
        cwd=room,
        env={
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": str(room),
            "TMPDIR": str(room),
            "LANG": "C.UTF-8",
        },
        stdin=subprocess.DEVNULL,
        stdout=output[0],
        stderr=output[1],
        start_new_session=True,
        preexec_fn=limit,  # noqa: PLW1509 - there are no threads here
    ) as process:
        late = False
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            late = True
        finally:
            # What the code left running in its session goes with it.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
        return process.wait(), late


def _lower(kind: int, soft: int, hard: int) -> None:
    """Set a limit; one that is lower already stays."""
    most = resource.getrlimit(kind)[1]
    if most != resource.RLIM_INFINITY:
        soft, hard = min(soft, most), min(hard, most)
    with contextlib.suppress(ValueError, OSError):  # macOS knows some limits by name only
        resource.setrlimit(kind, (soft, hard))


def _ended(status: int, seconds: int, *, late: bool) -> str:
    if late or status == -signal.SIGXCPU:
        return f"stopped after {seconds} s"
    if status == -signal.SIGXFSZ:
        return f"stopped: it wrote more than {MAX_WRITTEN // 1_000_000} MB"
    if status < 0:
        return f"killed by {signal.Signals(-status).name}"
    return f"exit code {status}"


def _shown(file: IO[bytes], chars: int) -> str:
    """Return an output, of a long one its beginning and its end."""
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    if size <= chars * 4:
        text = file.read().decode(errors="replace")
        if len(text) <= chars:
            return text
        start, end = text[: chars // 2], text[-(chars // 2) :]
    else:
        start = file.read(chars // 2).decode(errors="replace")
        file.seek(size - chars // 2)
        end = file.read().decode(errors="replace")
    return f"{start}\n[… of {size:,} bytes the middle is left out …]\n{end}"


def _files(room: Path) -> list[str]:
    found = sorted(path for path in room.rglob("*") if path.is_file() and not path.is_symlink())
    return [f"{path.relative_to(room)} ({path.stat().st_size:,} bytes)" for path in found[:MAX_KEPT]]


def _text(result: Result) -> str:
    parts = [f"[{result.ended}, {result.seconds} s]"]
    if result.stdout:
        parts.append(result.stdout.rstrip("\n"))
    if result.stderr:
        parts.append(f"[stderr]\n{result.stderr.rstrip(chr(10))}")
    if result.files:
        parts.append("[files]\n" + "\n".join(result.files))
    return "\n".join(parts)


def _told(problem: str) -> int:
    print(f"run_code: {problem}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    main()
