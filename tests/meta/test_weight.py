"""What a short command must not import: a person waits for it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

HEAVY = {
    "aiogram",
    "aiohttp",
    "aiosqlite",
    "alembic",
    "apscheduler",
    "asyncpg",
    "httpx",
    "slack_bolt",
    "sqlalchemy",
}
NOT_FOR_ARGUMENTS = HEAVY | {"asyncio", "logging", "pydantic"}

PROGRAM = """
import contextlib, io, json, sys
from gateway.__main__ import main
with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
    main(sys.argv[1:])
print(json.dumps(list(sys.modules)))
"""


def modules(program: str, *arguments: str, cwd: Path) -> set[str]:
    result = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        cwd=cwd,
        env={"HOME": str(cwd), "PYTHONPATH": str(ROOT), "PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        check=True,
    )
    return set(json.loads(result.stdout))


def test_importing_the_package_imports_nothing_else_of_it(tmp_path: Path) -> None:
    loaded = modules("import gateway, json, sys; print(json.dumps(list(sys.modules)))", cwd=tmp_path)
    assert {name for name in loaded if name.startswith("gateway")} == {"gateway"}
    assert not loaded & NOT_FOR_ARGUMENTS


@pytest.mark.parametrize(
    "arguments", [["--version"], ["--help"], ["run", "--help"], ["nonsense"]], ids=" ".join
)
def test_reading_the_arguments_imports_nothing_heavy(tmp_path: Path, arguments: list[str]) -> None:
    assert not modules(PROGRAM, *arguments, cwd=tmp_path) & NOT_FOR_ARGUMENTS


@pytest.mark.parametrize("arguments", [["config", "check"], ["config", "show"], ["doctor"]], ids=" ".join)
def test_a_look_at_the_set_up_imports_no_platform_and_no_database(
    tmp_path: Path, arguments: list[str]
) -> None:
    assert not modules(PROGRAM, *arguments, cwd=tmp_path) & HEAVY
