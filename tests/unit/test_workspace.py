"""The workspace: seeded once, and read with limits."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from gateway.errors import ConfigError
from gateway.workspace import CUT_MARK, MAX_FILE, MISSING_MARK, BootstrapFile, Workspace, blank

TEMPLATES = Path(__file__).parents[2] / "workspace"
NAMES = {path.name for path in TEMPLATES.glob("*.md")}


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    """A seeded workspace."""
    workspace = Workspace(tmp_path / "ws", TEMPLATES)
    workspace.seed()
    return workspace


def names(workspace: Workspace, *, private: bool = True, heartbeat: bool = False) -> list[str]:
    return [file.name for file in workspace.files(private=private, heartbeat=heartbeat)]


def file(workspace: Workspace, name: str) -> BootstrapFile:
    [found] = [each for each in workspace.files(private=True, heartbeat=True) if each.name == name]
    return found


def put(workspace: Workspace, name: str, text: str | bytes) -> None:
    data = text.encode() if isinstance(text, str) else text
    (workspace.path / name).write_bytes(data)


def test_a_new_workspace_gets_every_template_and_is_private(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path / "deep" / "ws", TEMPLATES)
    assert len(NAMES) == 8
    assert set(workspace.seed()) == NAMES
    assert workspace.path.stat().st_mode & 0o777 == 0o700
    assert {path.name for path in workspace.path.iterdir()} == NAMES | {".crayfish"}


def test_a_second_start_changes_nothing_even_if_files_were_deleted(workspace: Workspace) -> None:
    (workspace.path / "BOOTSTRAP.md").unlink()
    (workspace.path / "TOOLS.md").unlink()
    put(workspace, "SOUL.md", "mine")
    assert not workspace.seed()
    assert (workspace.path / "SOUL.md").read_text() == "mine"
    assert not (workspace.path / "BOOTSTRAP.md").exists()
    assert not (workspace.path / "TOOLS.md").exists()


def test_files_that_somebody_brings_are_kept_and_need_no_introduction(tmp_path: Path) -> None:
    (tmp_path / "SOUL.md").write_text("mine")
    created = Workspace(tmp_path, TEMPLATES).seed()
    assert set(created) == NAMES - {"SOUL.md", "BOOTSTRAP.md"}
    assert (tmp_path / "SOUL.md").read_text() == "mine"


def test_a_seeding_that_broke_off_is_completed_with_the_introduction(tmp_path: Path) -> None:
    first = Workspace(tmp_path, TEMPLATES)
    first.seed()
    for name in NAMES - {"BOOTSTRAP.md"}:
        (tmp_path / name).unlink()
    (tmp_path / ".crayfish" / "seeded").unlink()
    Workspace(tmp_path, TEMPLATES).seed()
    assert {path.name for path in tmp_path.iterdir()} == NAMES | {".crayfish"}


def test_a_place_that_can_not_be_written_is_named_with_a_remedy(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=r"workspace .*file/ws can't be set up .*\[workspace\] path"):
        Workspace(tmp_path / "file" / "ws", TEMPLATES).seed()


def test_a_new_workspace_shows_only_what_says_something(workspace: Workspace) -> None:
    assert names(workspace) == ["AGENTS.md", "SOUL.md", "IDENTITY.md", "BOOTSTRAP.md"]


def test_the_order_is_fixed_and_memory_comes_last(workspace: Workspace) -> None:
    for name in NAMES - {"SOUL.md", "IDENTITY.md", "USER.md"}:
        put(workspace, name, "text")
    assert names(workspace) == [
        "AGENTS.md",
        "SOUL.md",
        "IDENTITY.md",
        "TOOLS.md",
        "BOOTSTRAP.md",
        "MEMORY.md",
    ]
    put(workspace, "USER.md", "- Prefer tea.")
    assert names(workspace, heartbeat=True) == [
        "AGENTS.md",
        "SOUL.md",
        "IDENTITY.md",
        "USER.md",
        "TOOLS.md",
        "HEARTBEAT.md",
        "MEMORY.md",
    ]


@pytest.mark.parametrize("heartbeat", [False, True])
def test_what_is_private_never_reaches_a_group(workspace: Workspace, heartbeat: bool) -> None:
    for name in NAMES:
        put(workspace, name, "private")
    shown = names(workspace, private=False, heartbeat=heartbeat)
    assert not {"USER.md", "MEMORY.md", "BOOTSTRAP.md"} & set(shown)


@pytest.mark.parametrize("name", ["IDENTITY.md", "SOUL.md", "USER.md"])
def test_the_introduction_ends_when_the_agent_or_the_person_got_a_character(
    workspace: Workspace, name: str
) -> None:
    assert "BOOTSTRAP.md" in names(workspace)
    put(workspace, name, "- Name: Ada")
    assert "BOOTSTRAP.md" not in names(workspace)


def test_a_long_file_is_cut_at_a_near_line_end_and_marked(workspace: Workspace) -> None:
    put(workspace, "AGENTS.md", "x" * 25_000)
    assert file(workspace, "AGENTS.md") == BootstrapFile(
        "AGENTS.md", "x" * 20_000 + CUT_MARK, 25_000, cut=True
    )
    put(workspace, "AGENTS.md", "x" * 19_900 + "\n" + "y" * 5_000)
    assert file(workspace, "AGENTS.md").text == "x" * 19_900 + CUT_MARK
    put(workspace, "AGENTS.md", "x" * 19_700 + "\n" + "y" * 5_000)
    assert file(workspace, "AGENTS.md").text == "x" * 19_700 + "\n" + "y" * 299 + CUT_MARK
    put(workspace, "AGENTS.md", "x" * 20_000)
    assert not file(workspace, "AGENTS.md").cut


def test_limits_count_characters_not_bytes(workspace: Workspace) -> None:
    put(workspace, "AGENTS.md", "\U0001f99e" * 20_000)
    assert file(workspace, "AGENTS.md").text == "\U0001f99e" * 20_000
    put(workspace, "AGENTS.md", b"\xef\xbb\xbf" + "\U0001f99e".encode() * 20_001)
    assert file(workspace, "AGENTS.md").text == "\U0001f99e" * 20_000 + CUT_MARK


def test_the_user_file_has_a_limit_of_its_own(workspace: Workspace) -> None:
    put(workspace, "USER.md", "x" * 5_000)
    assert file(workspace, "USER.md").text == "x" * 4_000 + CUT_MARK


def test_all_files_together_have_a_limit(workspace: Workspace) -> None:
    for name in NAMES:
        put(workspace, name, "x" * 20_000)
    shown = workspace.files(private=True, heartbeat=True)
    marks = sum(len(CUT_MARK) for each in shown if each.cut)
    assert sum(len(each.text) for each in shown) == 60_000 + marks
    assert [each.name for each in shown] == ["AGENTS.md", "SOUL.md", "IDENTITY.md"]


def test_the_file_that_crosses_the_total_is_shortened(workspace: Workspace) -> None:
    for name in ("AGENTS.md", "SOUL.md", "IDENTITY.md"):
        put(workspace, name, "x" * 19_000)
    put(workspace, "TOOLS.md", "y" * 10_000)
    assert file(workspace, "TOOLS.md").text == "y" * 3_000 + CUT_MARK


def test_text_is_normalised(workspace: Workspace) -> None:
    put(workspace, "TOOLS.md", b"\xef\xbb\xbfone  \r\ntwo\rthree \xff\n\n")
    assert file(workspace, "TOOLS.md").text == "one\ntwo\nthree �"


def test_a_missing_required_file_is_marked_and_an_optional_one_left_out(workspace: Workspace) -> None:
    for name in NAMES:
        (workspace.path / name).unlink()
    assert {each.name: each.text for each in workspace.files(private=True, heartbeat=True)} == {
        "AGENTS.md": MISSING_MARK,
        "SOUL.md": MISSING_MARK,
        "IDENTITY.md": MISSING_MARK,
        "TOOLS.md": MISSING_MARK,
    }


def test_a_link_is_not_followed_and_a_pipe_does_not_block(workspace: Workspace, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("SECRET")
    (workspace.path / "TOOLS.md").unlink()
    (workspace.path / "TOOLS.md").symlink_to(tmp_path / "secret")
    (workspace.path / "SOUL.md").unlink()
    os.mkfifo(workspace.path / "SOUL.md")
    assert file(workspace, "TOOLS.md").text == MISSING_MARK
    assert file(workspace, "SOUL.md").text == MISSING_MARK


def test_what_can_not_be_read_is_left_out_and_said_once(
    workspace: Workspace, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "secret").write_text("SECRET")
    spoil: dict[str, Callable[[Path], object]] = {
        "AGENTS.md": lambda place: place.write_bytes(b"\x7fELF\x00\x01\xff"),
        "SOUL.md": lambda place: place.symlink_to(tmp_path / "secret"),
        "IDENTITY.md": lambda place: place.mkdir(),
        "HEARTBEAT.md": lambda place: place.write_bytes(b"\x00"),
    }
    for name, how in spoil.items():
        (workspace.path / name).unlink()
        how(workspace.path / name)
    for number in range(3):
        put(workspace, "USER.md", f"- {number}")
        shown = {each.name: each.text for each in workspace.files(private=True, heartbeat=True)}
        assert [shown[name] for name in ("AGENTS.md", "SOUL.md", "IDENTITY.md")] == [MISSING_MARK] * 3
        assert "HEARTBEAT.md" not in shown
        assert workspace.checklist() is None
    told = [record.getMessage() for record in caplog.records]
    assert sorted(Path(text.partition(" can't be read")[0]).name for text in told) == sorted(spoil)
    put(workspace, "AGENTS.md", "well again")
    assert file(workspace, "AGENTS.md").text == "well again"


def test_a_file_that_nobody_may_read_is_left_out(workspace: Workspace) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may read everything")
    (workspace.path / "TOOLS.md").chmod(0)
    assert file(workspace, "TOOLS.md").text == MISSING_MARK


def test_of_a_huge_file_only_the_beginning_is_read(workspace: Workspace) -> None:
    with (workspace.path / "TOOLS.md").open("wb") as huge:
        huge.write(b"a camera\n" * 10_000)
        huge.truncate(50_000_000)
    shown = file(workspace, "TOOLS.md")
    assert shown.text.startswith("a camera")
    assert len(shown.text) <= MAX_FILE + len(CUT_MARK)
    assert shown.size == 50_000_000


def test_the_checklist_is_shown_in_each_turn_if_that_is_wanted(tmp_path: Path) -> None:
    always = Workspace(tmp_path, TEMPLATES, always_beats=True)
    put(always, "HEARTBEAT.md", "- Did a job fail?")
    for private in (True, False):
        names = [each.name for each in always.files(private=private, heartbeat=False)]
        assert "HEARTBEAT.md" in names
    assert "HEARTBEAT.md" in [each.name for each in always.anew().files(private=True, heartbeat=False)]


def test_the_same_object_comes_back_until_a_file_changes(workspace: Workspace) -> None:
    first = workspace.files(private=True, heartbeat=False)
    assert workspace.files(private=True, heartbeat=False) is first
    put(workspace, "TOOLS.md", "a camera")
    second = workspace.files(private=True, heartbeat=False)
    assert second is not first
    assert second is workspace.files(private=True, heartbeat=False)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", True),
        (" \n\t\n", True),
        ("# Title\n\n<!-- a\ncomment -->\n", True),
        ("# Title\n<!-- never closed", True),
        ("- [ ]\n* \n-\n```\n```\n- [x]", True),
        ("- [ ] water the plants", False),
        ("# Title\ntext", False),
        ("<!-- a --> text", False),
    ],
)
def test_a_file_of_frames_only_is_blank(text: str, expected: bool) -> None:
    assert blank(text) is expected
