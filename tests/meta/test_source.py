"""What no file of the repository may hold."""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = (".ci", "adapters", "bench", "docs", "gateway", "migrations", "skills", "tests", "workspace")
BINARY = {".pyc", ".png", ".ico", ".jpg", ".gz", ".zip"}

PLATFORMS = re.compile(r"telegram|slack|discord|whatsapp", re.IGNORECASE)
KNOW_PLATFORMS = {
    *(f"app/{name}.py" for name in ("bots", "channels", "slack", "telegram")),  # wire them
    "cli.py",  # has a command that sets one up
    *(
        f"config/{name}.py" for name in ("__init__", "channels", "kinds", "sections", "tools")
    ),  # their sections
    "doctor.py",  # checks their tokens
    "importing/logs.py",  # reads how other programs name their chats
    "importing/nanobot.py",  # the same, and the names of their settings
    "importing/openclaw.py",  # the same
    "log.py",  # quiets their libraries and knows the shapes of their tokens
}

# The brackets keep these patterns from finding themselves.
HOSTS = r"pypi[.]org|pythonhosted[.]org|registry[.]npmjs|deb[.]debian|crates[.]io"
PATHS = r"[/]work/|[/]root/|[/]farm/|[/]tmp/w/|[/]opt/pypi|[/]home/[a-z]+/[.]pyenv"
PATCHES = r"unittest[.]mock|Magic[M]ock|Async[M]ock|monkeypatch[.]setattr|mocker[.]"
UNFINISHED = r"\b(?:[T]ODO|[F]IXME|[X]XX)\b|raise [N]otImplementedError"
EXCEPTION = r"#\s*(?:[n]oqa|[t]ype:\s*ignore)"
REASONED = r"#\s*(?:[n]oqa: [A-Z0-9, ]+|[t]ype: ignore\[[\w, -]+\]) +(?:-|#) \S"


@functools.cache
def texts() -> list[tuple[Path, str]]:
    """Return the files of the repository that hold text, with it."""
    found = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*")] + list(ROOT.iterdir())
    return [
        (path, path.read_text(encoding="utf-8"))
        for path in sorted(found)
        if path.is_file() and path.suffix not in BINARY
    ]


def found(pattern: str, suffix: str = "") -> list[str]:
    """Return the lines with the pattern, in all files or those with a suffix, each behind its place."""
    wanted = re.compile(pattern)
    return [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path, text in texts()
        if path.suffix.endswith(suffix) and wanted.search(text)
        for number, line in enumerate(text.splitlines(), 1)
        if wanted.search(line)
    ]


def code(path: Path) -> str:
    """Return a file's code without comments and docstrings."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            node.body = [one for one in node.body if not _is_text(one)] or [ast.Pass()]
    return ast.unparse(tree)


def _is_text(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def test_nothing_is_patched() -> None:
    assert found(PATCHES, ".py") == []


def test_nothing_names_a_package_registry() -> None:
    assert found(HOSTS) == []


def test_nothing_names_a_path_of_somebodys_machine() -> None:
    assert found(PATHS) == []


def test_nothing_is_unfinished() -> None:
    assert found(UNFINISHED, ".py") == []


def test_every_exception_from_a_rule_says_why() -> None:
    assert [line for line in found(EXCEPTION, ".py") if not re.search(REASONED, line)] == []


@pytest.mark.parametrize(
    "path", sorted((ROOT / "gateway").rglob("*.py")), ids=lambda path: str(path.relative_to(ROOT))
)
def test_the_core_knows_no_platform(path: Path) -> None:
    if path.relative_to(ROOT / "gateway").as_posix() not in KNOW_PLATFORMS:
        assert PLATFORMS.findall(code(path)) == []
