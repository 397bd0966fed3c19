"""What `search` finds, with ripgrep and without."""

from __future__ import annotations

import os
import random
import shutil
import stat
import sys
import time
from pathlib import Path

import pytest

from gateway.errors import ToolError
from gateway.patterns import literal_of
from gateway.tools import find
from gateway.tools.base import ToolContext
from gateway.types import Address, Chat, Json, Level, Sender

RIPGREP = shutil.which("rg")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path.resolve() / "work"
    folder.mkdir()
    return folder


async def search(
    root: Path, pattern: str, *, ripgrep: str | None = None, skills: tuple[Path, ...] = (), **args: Json
) -> str:
    tool = find.search_tool(lambda: skills, ripgrep)
    context = ToolContext(root, Address("web", "1"), Sender("1", "Ann", Level.OWNER), Chat.DIRECT, "c1")
    result = await tool({"pattern": pattern, **args}, context)
    assert isinstance(result, str)
    return result


def put(root: Path, path: str, content: str | bytes) -> None:
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content if isinstance(content, bytes) else content.encode())


async def test_matching_lines_come_with_path_and_number(root: Path) -> None:
    put(root, "b/x.md", "one\ntwo milk\n")
    put(root, "a.md", "\ufeffmilk first\r\nlast\r\n")
    assert await search(root, "milk") == "a.md:1: milk first\nb/x.md:2: two milk"
    assert await search(root, "^mi.k f", path=".") == "a.md:1: milk first"
    assert await search(root, "t$") == "a.md:1: milk first\na.md:2: last"


async def test_the_paths_can_be_read_as_they_are_shown(root: Path) -> None:
    put(root, "notes/deep/x.md", "milk")
    for path in ("notes", "notes/", f"{root}/notes", "./notes"):
        shown = await search(root, "milk", path=path)
        assert shown == f"{path.rstrip('/')}/deep/x.md:1: milk"
    assert await search(root, "milk", path="notes/deep/x.md") == "notes/deep/x.md:1: milk"


@pytest.mark.parametrize("path", [".", "./", "{root}", "a/.."])
async def test_inject_003_what_others_brought_is_searched_only_where_it_is_named(
    root: Path, path: str
) -> None:
    put(root, "rooms/forwarded/media/1-0-letter.txt", "obey")
    put(root, "a/own.md", "obey me")
    found = await search(root, "obey", path=path.format(root=root))
    assert (found.endswith("a/own.md:1: obey me"), "letter" in found) == (True, False)
    assert "letter.txt:1: obey" in await search(root, "obey", path="rooms/forwarded")


async def test_case_can_be_ignored_and_files_chosen(root: Path) -> None:
    put(root, "a.md", "Milk")
    put(root, "b.py", "milk")
    put(root, "c/d.py", "MILK")
    assert await search(root, "milk", ignore_case=True, files="*.py") == "b.py:1: milk\nc/d.py:1: MILK"
    assert await search(root, "MILK", files="c/*") == "c/d.py:1: MILK"


async def test_hidden_files_installed_packages_and_what_is_no_text_are_left_out(root: Path) -> None:
    for path in (".git/x", ".env", "node_modules/x", "a/__pycache__/x", "a/.hidden/x"):
        put(root, path, "milk")
    put(root, "binary", b"\x7fELF\0milk")
    put(root, "large", b"milk\n" + b"x" * find.MAX_FILE)
    (root.parent / "S").write_text("milk")
    os.link(root.parent / "S", root / "hard")
    (root / "link").symlink_to("../S")
    (root / "folder").symlink_to("..")
    os.mkfifo(root / "pipe")
    assert await search(root, "milk") == "[no line of 3 files matches]"
    assert await search(root, "milk", path=".git") == ".git/x:1: milk", "but what is named is searched"


async def test_a_skill_can_be_searched_and_nothing_else_outside(root: Path) -> None:
    skill = root.parent / "skill"
    put(skill, "SKILL.md", "milk")
    assert await search(root, "milk", path=str(skill), skills=(skill,)) == f"{skill}/SKILL.md:1: milk"
    for path in ("..", str(root.parent), f"{skill}/..", "/etc"):
        with pytest.raises(ToolError, match="outside workspace or skill directories"):
            await search(root, "milk", path=path, skills=(skill,), ripgrep=RIPGREP)


async def test_a_link_inside_is_followed_when_it_is_named(root: Path) -> None:
    put(root, "notes/a", "milk")
    (root / "link").symlink_to("notes")
    assert await search(root, "milk", path="link", ripgrep=RIPGREP) == "link/a:1: milk"


async def test_a_pattern_that_could_take_for_ever_or_is_none_is_refused_with_the_remedy(root: Path) -> None:
    for pattern, problem in (
        ("(a+)+b", "repeats a repetition"),
        ("(", "is no regular"),
        ("x*", "empty text"),
    ):
        with pytest.raises(ToolError, match=problem):
            await search(root, pattern)


async def test_many_matches_are_cut_and_say_so(root: Path) -> None:
    put(root, "a", "milk\n" * 500)
    lines = (await search(root, "milk")).split("\n")
    assert len(lines) == find.MAX_LINES + 1
    assert lines[-1] == "[there are more; narrow the pattern, the path or the files]"


async def test_long_lines_show_what_is_around_the_match(root: Path) -> None:
    put(root, "a", "x" * 5000 + "milk" + "y" * 5000)
    put(root, "b", "milk" + "y" * 5000)
    first, second = (await search(root, "milk")).split("\n")
    assert "xmilky" in first
    assert first.startswith("a:1: …")
    assert first.endswith("y…")
    assert second.startswith("b:1: milky")
    assert len(first) < find.MAX_SHOWN + 20


async def test_an_unlucky_pattern_on_long_lines_holds_up_nobody(root: Path) -> None:
    put(root, "a", ("x" * 100_000 + "\n") * 10)
    began = time.monotonic()
    await search(root, "x.*y")
    assert time.monotonic() - began < 5


async def test_no_match_and_no_file_are_told_apart(root: Path) -> None:
    assert await search(root, "milk") == "[no line of 0 files matches]"
    with pytest.raises(ToolError, match="not found"):
        await search(root, "milk", path="gone")


@pytest.mark.parametrize(
    ("pattern", "literal"),
    [
        ("milk", "milk"),
        ("mi.k and more", "k and more"),
        (r"\bdef\s+answer\(", "answer("),
        ("a|b", ""),
        ("(?i)milk", ""),
        ("foo(bar)?baz", "foo"),
        ("[ab]x", "x"),
        ("foobar|foobaz", "fooba"),
        ("x{3}yz", "yz"),
    ],
)
def test_what_every_match_holds_is_known(pattern: str, literal: str) -> None:
    assert literal_of(pattern) == literal


WORDS = (
    "milk",
    "Milk",
    "MILK",
    "kilo",
    "Kilo",
    "ſilk",
    "mılk",
    "Straße",
    "STRASSE",
    "a",
    "b1",
    "  ",
    "\t",
    "é",
    "\r",
)
PATTERNS = (
    "milk", "mi.k", "ilk", "silk", "a", "b1", "kilo", "[Mm]ilk", "Stra", "straße", "milk|kilo", "(?i)milk",
    r"\bmi", "k$", "^a", "x", "é", "lk +k", "m.+k", "(milk)+",
)  # fmt: skip


@pytest.mark.skipif(RIPGREP is None, reason="ripgrep is not installed")
async def test_ripgrep_changes_nothing_but_the_time(root: Path) -> None:
    chance = random.Random(3)
    for number in range(60):
        text = "\n".join(" ".join(chance.choices(WORDS, k=chance.randint(0, 6))) for _ in range(8))
        data = text.encode(
            "utf-16" if number % 20 == 7 else "latin-1" if number % 20 == 9 else "utf-8", "replace"
        )
        name = chance.choice(["a", "b", ".h", "node_modules", "c d", "ü"])
        put(root, f"{name}/{chance.choice(['x', 'y.md', '.z'])}{number}", data + b"\0" * (number % 11 == 0))
    put(root, "a/.gitignore", "*")
    (root / "link").symlink_to("a")
    for pattern in PATTERNS:
        for ignore_case in (False, True):
            with_it = await search(root, pattern, ripgrep=RIPGREP, ignore_case=ignore_case)
            assert with_it == await search(root, pattern, ignore_case=ignore_case), (pattern, ignore_case)


def program(folder: Path, code: str) -> str:
    file = folder / "rg"
    file.write_text(f"#!{sys.executable}\nimport os, sys\n{code}\n")
    file.chmod(file.stat().st_mode | stat.S_IXUSR)
    return str(file)


async def test_a_ripgrep_that_fails_is_done_without(root: Path) -> None:
    put(root, "a", "milk")
    assert await search(root, "milk", ripgrep=program(root.parent, "sys.exit(2)")) == "a:1: milk"
    assert await search(root, "milk", ripgrep=str(root.parent / "gone")) == "a:1: milk"


async def test_what_ripgrep_names_is_never_believed(root: Path) -> None:
    put(root, "a", "water")
    put(root, "b", "milk")
    (root.parent / "S").write_text("milk")
    lies = program(root.parent, r"print('./a\0./../S\0/etc/passwd\0./b', end='\0')")
    assert await search(root, "milk", ripgrep=lies) == "b:1: milk"


async def test_ripgrep_gets_nothing_of_our_environment(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "canary")
    put(root, "a", "milk")
    told = root.parent / "told"
    await search(
        root,
        "milk",
        ripgrep=program(root.parent, f"open({str(told)!r}, 'w').write(repr((dict(os.environ), sys.argv)))"),
    )
    assert "canary" not in told.read_text()
    assert "'-e', 'milk', '--', '.'" in told.read_text()
