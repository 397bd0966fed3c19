"""Runs commands of crayfish in processes of their own, forked from one that has imported it already."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from subprocess import CompletedProcess
from tempfile import TemporaryDirectory
from typing import Final

PATIENCE: Final = 30.0
"""Seconds after which a command that does not end is killed."""

_processes: Final = multiprocessing.get_context("forkserver")
_processes.set_forkserver_preload(
    [
        "aiosqlite",
        "asyncpg",
        "adapters.console",
        "adapters.telegram",
        "adapters.web",
        "gateway.app.offline",
        "gateway.app.serving",
        "gateway.app.wiring",
        "gateway.cli",
        "gateway.store.migrate",
        "sqlalchemy.ext.asyncio",
    ]
)


def crayfish(cwd: Path, env: Mapping[str, str], *arguments: str) -> CompletedProcess[str]:
    """Run `python -m gateway` to its end, without input, and return what it printed.

    To import the program takes ten times as long as what most commands do then; the fork has it.
    """
    with TemporaryDirectory() as folder:
        process = _processes.Process(target=_become, args=(cwd, dict(env), arguments, folder))
        process.start()
        process.join(PATIENCE)
        if process.exitcode is None:
            process.kill()
            process.join()
        code = process.exitcode
        process.close()
        assert code is not None
        printed = [Path(folder, stream).read_text("utf-8") for stream in ("stdout", "stderr")]
    return CompletedProcess(arguments, code, *printed)


def _become(cwd: Path, env: Mapping[str, str], arguments: tuple[str, ...], folder: str) -> None:
    """Be what a shell would have started, and end with its exit code."""
    from gateway.cli import main  # noqa: PLC0415 - whoever asks for this process need not import it

    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    sys.argv = ["crayfish", *arguments]
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for number, stream in ((1, "stdout"), (2, "stderr")):
        file = os.open(Path(folder, stream), os.O_WRONLY | os.O_CREAT, 0o600)
        os.dup2(file, number)
        setattr(sys, stream, os.fdopen(number, "w", encoding="utf-8", closefd=False))
    sys.exit(main())
