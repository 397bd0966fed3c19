"""What the file tools answer."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.errors import ToolError
from gateway.tools import files
from gateway.tools.base import ToolContext
from gateway.types import Address, Chat, Json, Replay, Sender


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path.resolve()


async def use(root: Path, name: str, **args: Json) -> str:
    [tool] = [tool for tool in files.FILE_TOOLS if tool.name == name]
    return await tool(args, ToolContext(root, Address("web", "1"), Sender("1"), Chat.DIRECT, "c1"))


def test_only_what_changes_nothing_may_run_again() -> None:
    assert {tool.name: tool.replay for tool in files.FILE_TOOLS} == {
        "read": Replay.SAFE,
        "list_dir": Replay.SAFE,
        "write": Replay.ONCE,
        "edit": Replay.ONCE,
    }


async def test_a_small_file_is_shown_as_it_is(root: Path) -> None:
    (root / "a").write_bytes(b"\xef\xbb\xbfone\r\ntwo\r\n")
    assert await use(root, "read", path="a") == "one\ntwo"


async def test_invalid_utf8_is_shown_with_replacement_signs(root: Path) -> None:
    (root / "a").write_bytes(b"caf\xe9")
    assert await use(root, "read", path="a") == "caf�"


async def test_an_empty_file_says_so(root: Path) -> None:
    (root / "a").touch()
    assert await use(root, "read", path="a") == "(empty file)"


async def test_a_window_says_where_it_is_and_how_to_read_on(root: Path) -> None:
    (root / "a").write_text("".join(f"line {number}\n" for number in range(1, 11)))
    assert await use(root, "read", path="a", offset=3, limit=2) == (
        "line 3\nline 4\n[lines 3–4 of 10 shown; read on with offset=5]"
    )
    assert await use(root, "read", path="a", offset=9) == "line 9\nline 10\n[lines 9–10 of 10 shown]"


async def test_a_long_file_can_be_read_in_whole_by_following_the_notes(root: Path) -> None:
    lines = [f"{number} {'x' * (number % 300)}" for number in range(1000)]
    (root / "a").write_text("\n".join(lines))
    seen: list[str] = []
    offset: int | None = 1
    while offset:
        text = await use(root, "read", path="a", offset=offset)
        assert len(text) <= 16_000
        *shown, note = text.split("\n")
        seen += shown
        _, _, after = note.partition("offset=")
        offset = int(after.rstrip("]")) if after else None
    assert seen == lines


async def test_a_line_longer_than_a_result_is_cut_and_says_so(root: Path) -> None:
    (root / "a").write_text("x" * 50_000 + "\nshort\n")
    text = await use(root, "read", path="a")
    assert len(text) <= 16_000
    assert text.endswith("x\n[line 1 of 2 shown, cut at 15500 of 50000 characters; read on with offset=2]")


async def test_an_offset_behind_the_end_names_the_number_of_lines(root: Path) -> None:
    (root / "a").write_text("one\ntwo\n")
    with pytest.raises(ToolError, match="the file has 2 lines"):
        await use(root, "read", path="a", offset=3)


async def test_an_image_is_named_and_not_shown(root: Path) -> None:
    (root / "a.txt").write_bytes(b"\x89PNG\r\n\x1a\n\0\0")
    (root / "b").write_bytes(b"RIFF\0\0\0\0WEBPVP8 ")
    assert "an image (PNG, 10 bytes)" in await use(root, "read", path="a.txt")
    assert "an image (WebP, 16 bytes)" in await use(root, "read", path="b")


async def test_a_binary_file_is_refused(root: Path) -> None:
    (root / "a").write_bytes(b"\x7fELF\0\0\1")
    with pytest.raises(ToolError, match=r"binary file \(7 bytes\)"):
        await use(root, "read", path="a")
    with pytest.raises(ToolError, match="binary"):
        await use(root, "edit", path="a", old_text="ELF", new_text="x")


async def test_a_file_that_is_too_large_is_refused(root: Path) -> None:
    with (root / "a").open("wb") as file:
        file.truncate(files.MAX_FILE + 1)
    with pytest.raises(ToolError, match="too large"):
        await use(root, "read", path="a")


async def test_each_tool_names_the_other_when_file_and_folder_are_mixed_up(root: Path) -> None:
    (root / "d").mkdir()
    (root / "f").touch()
    with pytest.raises(ToolError, match="is a folder; use list_dir"):
        await use(root, "read", path="d")
    with pytest.raises(ToolError, match="is a file; use read"):
        await use(root, "list_dir", path="f")
    with pytest.raises(ToolError, match="a part of the path is a file"):
        await use(root, "read", path="f/x")


async def test_write_makes_folders_and_tells_the_bytes(root: Path) -> None:
    assert await use(root, "write", path="a/b/c.md", content="héllo") == "Wrote 6 bytes to a/b/c.md"
    assert (root / "a" / "b" / "c.md").read_text() == "héllo"


async def test_write_keeps_the_mode_of_the_file_and_leaves_nothing_else(root: Path) -> None:
    (root / "a.sh").write_text("old")
    (root / "a.sh").chmod(0o750)
    await use(root, "write", path="a.sh", content="new")
    assert (root / "a.sh").stat().st_mode & 0o777 == 0o750
    assert [path.name for path in root.iterdir()] == ["a.sh"]


async def test_write_does_not_replace_a_folder(root: Path) -> None:
    (root / "d").mkdir()
    for path in ("d", ".", "d/.."):
        with pytest.raises(ToolError, match="is a folder"):
            await use(root, "write", path=path, content="x")


async def test_edit_replaces_exactly_one_place(root: Path) -> None:
    (root / "a").write_text("one\ntwo\nthree\n")
    assert await use(root, "edit", path="a", old_text="two", new_text="2") == "Edited a in 1 place (line 2)"
    assert (root / "a").read_text() == "one\n2\nthree\n"


async def test_edit_of_an_ambiguous_text_names_the_lines_and_changes_nothing(root: Path) -> None:
    (root / "a").write_text("x\ny\nx\n")
    with pytest.raises(ToolError, match=r"occurs 2 times in 'a', in lines 1, 3\. Add lines around it"):
        await use(root, "edit", path="a", old_text="x", new_text="z")
    assert (root / "a").read_text() == "x\ny\nx\n"


async def test_edit_can_replace_every_place(root: Path) -> None:
    (root / "a").write_text("x\ny\nx\n" + "x\n" * 20)
    answer = await use(root, "edit", path="a", old_text="x", new_text="z", replace_all=True)
    assert answer == "Edited a in 22 places (line 1, 3, 4, 5, 6, 7, 8, 9, 10, 11 and 12 more)"
    assert "x" not in (root / "a").read_text()


async def test_edit_of_a_text_that_is_not_there_shows_the_nearest_lines(root: Path) -> None:
    (root / "a").write_text("def answer():\n    return 41\n")
    with pytest.raises(ToolError, match=r"does not occur in 'a'\. The nearest lines are:\n2: return 41$"):
        await use(root, "edit", path="a", old_text="  return 42", new_text="")
    with pytest.raises(ToolError, match=r"Read the file again\.$"):
        await use(root, "edit", path="a", old_text="zzz", new_text="")


async def test_edit_finds_lines_of_a_file_with_carriage_returns(root: Path) -> None:
    (root / "a").write_bytes(b"one\r\ntwo\r\nthree\r\n")
    await use(root, "edit", path="a", old_text="one\ntwo", new_text="1\n2")
    assert (root / "a").read_bytes() == b"1\r\n2\r\nthree\r\n"


async def test_edit_never_damages_bytes_that_are_not_utf8(root: Path) -> None:
    (root / "a").write_bytes(b"caf\xe9 one")
    with pytest.raises(ToolError, match="not UTF-8"):
        await use(root, "edit", path="a", old_text="one", new_text="two")
    assert (root / "a").read_bytes() == b"caf\xe9 one"


@pytest.mark.parametrize(
    ("old", "new", "problem"), [("", "x", "old_text is empty"), ("x", "x", "are the same")]
)
async def test_an_edit_without_sense_is_refused(root: Path, old: str, new: str, problem: str) -> None:
    (root / "a").write_text("x")
    with pytest.raises(ToolError, match=problem):
        await use(root, "edit", path="a", old_text=old, new_text=new)


async def test_a_list_is_sorted_and_shows_kinds_and_sizes(root: Path) -> None:
    (root / "b").mkdir()
    (root / "c.md").write_text("12345")
    (root / "a").symlink_to("/etc")
    (root / "line\nbreak").touch()
    assert await use(root, "list_dir") == "a (link)\nb/\nc.md (5)\nline�break (0)"


async def test_a_long_list_is_capped_and_an_empty_one_says_so(root: Path) -> None:
    for number in range(files.MAX_NAMES + 3):
        (root / f"{number:04}").touch()
    rows = (await use(root, "list_dir")).split("\n")
    assert len(rows) == files.MAX_NAMES + 1
    assert rows[-1].startswith("[3 more")
    (root / "d").mkdir()
    assert await use(root, "list_dir", path="d") == "(empty folder)"
