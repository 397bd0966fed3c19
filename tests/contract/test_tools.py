"""The four file tools as the model calls them, against the table of attacks."""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gateway.tools.base import ToolContext
from gateway.tools.box import Toolbox
from gateway.tools.files import FILE_TOOLS
from gateway.types import Address, Chat, Json, Level, Sender, ToolCall, ToolEntry

SECRET = "SECRET-7f3a"
_AT_CWD = -100
_RENAME_EXCHANGE = 2


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """A workspace with a secret file and an evil sibling beside it."""
    root = tmp_path.resolve() / "workspace"
    root.mkdir()
    (tmp_path / "S").write_text(SECRET)
    (tmp_path / "config.toml").write_text(SECRET)
    (tmp_path / "workspace-evil").mkdir()
    (tmp_path / "workspace-evil" / "x").write_text(SECRET)
    return root


async def use(workspace: Path, tool: str, **args: Json) -> ToolEntry:
    context = ToolContext(workspace, Address("web", "1"), Sender("1", "Ann", Level.OWNER), Chat.DIRECT, "c1")
    return await Toolbox(FILE_TOOLS).call(ToolCall("c1", tool, args), context)


def _everything(folder: Path) -> dict[str, bytes]:
    return {
        str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file() and not path.is_symlink()
    }


def _refused(entry: ToolEntry, outside: Path) -> None:
    assert entry.is_error
    assert SECRET not in entry.text
    assert str(outside) not in entry.text


REFUSED_PATHS = {
    "path-001": "../../etc/passwd",
    "path-003": "notes/../../S",
    "path-012": "C:\\Windows\\win.ini",
    "path-013": "\\\\host\\share\\x",
    "path-015": "~/.ssh/id_ed25519",
    "path-016": "$HOME/.config/gateway/config.toml",
    "path-018": "a\nb.txt",
    "path-019": "%2e%2e/%2e%2e/etc/passwd",
    "path-021": "..%252fS",
    "path-022": "\uff0e\uff0e/S",
    "path-024": "cafe\u0301.md",
    "path-025": "/proc/self/environ",
    "path-028": "/dev/zero",
    "path-033": "d/" * 2400,
    "path-036": "../workspace-evil/x",
    "security-fs-03 home": "~/.ssh/id",
    "security-fs-03 dots": "../x",
    "security-fs-03 variable": "$HOME/x",
    "security-fs-03 url": "file:///etc/passwd",
    "security-fs-03 backslash": "..\\x",
    "security-fs-06 environment": "/proc/self/environ",
    "security-fs-06 config": "config.toml",
    "security-fs-06 config above": "../config.toml",
    "nul": "a\0b",
    "nothing": " ",
    "half a character": "a\ud800b",
    "too deep": "/".join("d" * 100),
    "long name": "n" * 300,
}


@pytest.mark.parametrize("path", [pytest.param(path, id=name) for name, path in REFUSED_PATHS.items()])
async def test_a_path_that_names_no_file_of_the_workspace_is_an_error(workspace: Path, path: str) -> None:
    (workspace / "notes").mkdir()
    (workspace / "café.md").write_text("composed")
    _refused(await use(workspace, "read_file", path=path), workspace.parent)
    _refused(await use(workspace, "edit_file", path=path, old_text=SECRET, new_text="x"), workspace.parent)
    _refused(await use(workspace, "list_dir", path=path), workspace.parent)


NOT_TO_BE_WRITTEN = {
    name: path
    for name, path in REFUSED_PATHS.items()
    # These are ordinary names for a new file.
    if name not in {"path-019", "path-021", "path-022", "path-024", "security-fs-06 config"}
} | {"path-031": "report.md:hidden"}


@pytest.mark.parametrize("path", [pytest.param(path, id=name) for name, path in NOT_TO_BE_WRITTEN.items()])
async def test_a_refused_path_creates_no_file_anywhere(workspace: Path, path: str) -> None:
    before = _everything(workspace.parent)
    _refused(await use(workspace, "write_file", path=path, content="x"), workspace.parent)
    assert _everything(workspace.parent) == before
    assert not (workspace / "~").exists()
    assert not (workspace / "$HOME").exists()


def _two_links(root: Path) -> None:
    (root / "a").symlink_to("b")
    (root / "b").symlink_to("../S")


LINKS: dict[str, tuple[str, Callable[[Path], None]]] = {
    "path-006": ("d/S", lambda root: (root / "d").symlink_to(root.parent)),
    "path-007": ("loop/x", lambda root: (root / "loop").symlink_to("loop")),
    "path-027": ("x", lambda root: (root / "x").symlink_to("/proc/self/cwd/../S")),
    "security-fs-01": ("out/passwd", lambda root: (root / "out").symlink_to("/etc")),
    "relative": ("out", lambda root: (root / "out").symlink_to("../S")),
    "by way of two": ("a", _two_links),
    "through the root": ("a", lambda root: (root / "a").symlink_to(f"{root}/../S")),
    "sibling": ("a/x", lambda root: (root / "a").symlink_to(f"{root}-evil")),
}


@pytest.mark.parametrize(("path", "arrange"), [pytest.param(*case, id=name) for name, case in LINKS.items()])
async def test_a_link_that_leads_out_is_refused_by_every_tool(
    workspace: Path, path: str, arrange: Callable[[Path], None]
) -> None:
    arrange(workspace)
    before = _everything(workspace.parent)
    _refused(await use(workspace, "read", path=path), workspace.parent)
    _refused(await use(workspace, "list_dir", path=path), workspace.parent)
    _refused(await use(workspace, "write", path=path, content="x"), workspace.parent)
    _refused(await use(workspace, "edit", path=path, old_text=SECRET, new_text="x"), workspace.parent)
    assert _everything(workspace.parent) == before


@pytest.mark.parametrize(
    "target", ["notes", "./notes/../notes", "{root}/notes", "{root}/./notes"], ids="security-fs-01 {}".format
)
async def test_a_link_that_stays_inside_works(workspace: Path, target: str) -> None:
    (workspace / "notes").mkdir()
    (workspace / "notes" / "a.md").write_text("inside")
    (workspace / "link").symlink_to(target.format(root=workspace))
    assert (await use(workspace, "read", path="link/a.md")).text == "inside"
    assert (await use(workspace, "list_dir", path="link")).text == "a.md (6)"
    assert not (await use(workspace, "edit", path="link/a.md", old_text="in", new_text="be")).is_error
    assert not (await use(workspace, "write", path="link/b.md", content="new")).is_error
    assert (workspace / "notes" / "a.md").read_text() == "beside"
    assert (workspace / "notes" / "b.md").read_text() == "new"


async def test_a_write_through_a_link_to_a_file_keeps_the_link(workspace: Path) -> None:
    (workspace / "a.md").write_text("old")
    (workspace / "link.md").symlink_to("a.md")
    await use(workspace, "write", path="link.md", content="new")
    assert (workspace / "link.md").is_symlink()
    assert (workspace / "a.md").read_text() == "new"


async def test_path_004_dots_that_stay_inside_read_the_file(workspace: Path) -> None:
    (workspace / "notes").mkdir()
    (workspace / "todo.md").write_text("milk")
    assert (await use(workspace, "read_file", path="notes/../todo.md")).text == "milk"


async def test_path_004_the_absolute_path_of_a_file_inside_is_accepted(workspace: Path) -> None:
    (workspace / "todo.md").write_text("milk")
    assert (await use(workspace, "read_file", path=f"{workspace}/todo.md")).text == "milk"


async def test_path_010_a_file_with_a_second_name_is_neither_read_nor_written(workspace: Path) -> None:
    os.link(workspace.parent / "S", workspace / "hard.txt")
    _refused(await use(workspace, "read", path="hard.txt"), workspace.parent)
    _refused(await use(workspace, "write", path="hard.txt", content="x"), workspace.parent)
    _refused(await use(workspace, "edit", path="hard.txt", old_text="SECRET", new_text="x"), workspace.parent)
    assert (workspace.parent / "S").read_text() == SECRET


async def test_path_028_a_pipe_in_the_workspace_is_refused_at_once(workspace: Path) -> None:
    os.mkfifo(workspace / "pipe")
    _refused(await use(workspace, "read", path="pipe"), workspace.parent)
    _refused(await use(workspace, "write", path="pipe", content="x"), workspace.parent)


async def test_path_030_a_device_name_of_windows_is_a_plain_file(workspace: Path) -> None:
    assert not (await use(workspace, "write_file", path="CON", content="x")).is_error
    assert (workspace / "CON").read_text() == "x"


async def test_path_037_listing_the_root_works(workspace: Path) -> None:
    (workspace / "todo.md").write_text("milk")
    (workspace / "notes").mkdir()
    assert (await use(workspace, "list_dir", path=".")).text == "notes/\ntodo.md (4)"


@contextmanager
def _swapping(folder: Path, link: Path) -> Iterator[None]:
    """Exchange a folder and a link to the outside, atomically and without a pause."""
    exchange = ctypes.CDLL(None).renameat2
    names = (_AT_CWD, os.fsencode(folder), _AT_CWD, os.fsencode(link), _RENAME_EXCHANGE)
    done = threading.Event()

    def swap() -> None:
        while not done.is_set():
            exchange(*names)

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "renameat2"), reason="the race needs Linux's renameat2")
async def test_path_009_a_folder_swapped_for_a_link_at_any_moment_leads_nowhere(workspace: Path) -> None:
    outside = workspace.parent / "outside"
    outside.mkdir()
    (outside / "f").write_text(SECRET)
    (workspace / "d").mkdir()
    (workspace / "d" / "f").write_text("inside")
    (workspace / "l").symlink_to(outside)
    with _swapping(workspace / "d", workspace / "l"):
        for number in range(300):
            assert SECRET not in (await use(workspace, "read", path="d/f")).text
            await use(workspace, "write", path=f"d/{number}.txt", content="x")
            await use(workspace, "write", path="d/f", content="inside")
    assert [path.name for path in outside.iterdir()] == ["f"]
    assert (outside / "f").read_text() == SECRET
