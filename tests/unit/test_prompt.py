"""What the model is told, and how little of it changes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.models.base import Prompt
from gateway.prompt import Inputs, Mode, Prompts, Scales, build, fit, parts
from gateway.tools.box import Toolbox
from gateway.tools.files import FILE_TOOLS
from gateway.types import (
    Address,
    AssistantEntry,
    Chat,
    Entry,
    Kind,
    Level,
    NoteEntry,
    Sender,
    Situation,
    ToolCall,
    ToolEntry,
    ToolSpec,
    UserEntry,
)
from gateway.workspace import BootstrapFile, Workspace
from tests.fakes.scripted import situation

TEMPLATES = Path(__file__).parents[2] / "workspace"
SATURDAY = 1772235000.0  # 2026-02-27 23:30 UTC, already Saturday in Berlin

INPUTS = Inputs(
    agent="Crayfish",
    tools=(ToolSpec("read", "Read.", {}),),
    workspace="/home/ada/workspace",
    files=(BootstrapFile("AGENTS.md", "Be good."), BootstrapFile("MEMORY.md", "- one")),
    chat=Chat.DIRECT,
    heartbeat=False,
    today="Saturday, 2026-02-28",
    zone="Europe/Berlin",
    runtime={"agent": "Crayfish", "os": "Linux"},
)


@dataclass
class FakeClock:
    time: float = SATURDAY
    slept: list[float] = field(default_factory=list)

    def now(self) -> float:
        return self.time

    def wall(self) -> float:
        return self.time

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def prompts(tmp_path: Path, clock: FakeClock) -> Prompts:
    workspace = Workspace(tmp_path / "ws", TEMPLATES)
    workspace.seed()
    return Prompts(workspace, Toolbox(FILE_TOOLS).specs, "Europe/Berlin", clock)


def ask(
    prompts: Prompts, *, chat: Chat = Chat.DIRECT, kind: Kind = Kind.MESSAGE, session: str = "s1"
) -> Prompt:
    return prompts.build((), situation=situation(chat, kind=kind), session=session)


def test_the_same_inputs_give_the_same_bytes() -> None:
    assert build(INPUTS) == build(replace(INPUTS))


def test_another_day_changes_only_what_may_change() -> None:
    stable, dynamic = build(INPUTS)
    later = build(replace(INPUTS, today="Sunday, 2026-03-01"))
    assert later[0] == stable
    assert later[1] != dynamic


def test_a_new_line_of_memory_leaves_everything_before_it() -> None:
    before, _ = build(INPUTS)
    after, _ = build(replace(INPUTS, files=(*INPUTS.files[:-1], BootstrapFile("MEMORY.md", "- one\n- two"))))
    assert after == f"{before}\n- two"


def test_nothing_volatile_stands_in_the_stable_text() -> None:
    stable, dynamic = build(INPUTS)
    for word in ("2026", "Europe/Berlin", "Linux"):
        assert word not in stable
        assert word in dynamic
    assert dynamic == "Today is Saturday, 2026-02-28 (Europe/Berlin).\n\nRuntime: agent=Crayfish | os=Linux"


def test_files_follow_under_their_names() -> None:
    assert build(INPUTS)[0].endswith("## AGENTS.md\n\nBe good.\n\n## MEMORY.md\n\n- one")


def test_a_shortened_file_is_mentioned_once() -> None:
    files = [BootstrapFile("AGENTS.md", "a", cut=True), BootstrapFile("SOUL.md", "b", cut=True)]
    assert build(replace(INPUTS, files=files))[0].count("Some files above are shortened") == 1
    assert "shortened" not in build(INPUTS)[0]


def test_without_tools_nothing_is_said_about_them() -> None:
    stable, _ = build(replace(INPUTS, tools=()))
    assert "## Tools" not in stable
    assert "/home/ada" not in stable


def test_only_groups_hear_of_silence_and_only_heartbeats_of_their_answer() -> None:
    assert "NO_REPLY" not in "".join(build(INPUTS))
    assert "NO_REPLY" in build(replace(INPUTS, chat=Chat.GROUP))[1]
    assert "HEARTBEAT_OK" not in "".join(build(INPUTS))
    assert "HEARTBEAT_OK" in build(replace(INPUTS, heartbeat=True))[1]


def test_the_first_request_is_small(prompts: Prompts) -> None:
    prompt = ask(prompts)
    tools = json.dumps([[spec.name, spec.description, spec.parameters] for spec in prompt.tools])
    assert len(prompt.system) + len(prompt.context) + len(tools) < 8_000


def test_the_date_is_local_and_the_clock_is_nowhere(prompts: Prompts) -> None:
    prompt = ask(prompts)
    assert "Today is Saturday, 2026-02-28 (Europe/Berlin)." in prompt.context
    assert "23:30" not in prompt.system + prompt.context
    assert "00:30" not in prompt.system + prompt.context


def test_instructions_are_kept_until_a_file_or_the_date_changes(prompts: Prompts, clock: FakeClock) -> None:
    first = ask(prompts)
    clock.time += 3600
    again = ask(prompts, session="s2")
    assert (again.system, again.context) == (first.system, first.context)
    assert again.system is first.system
    assert again.session == "s2"
    clock.time += 86400
    tomorrow = ask(prompts)
    assert tomorrow.system == first.system
    assert "Sunday, 2026-03-01" in tomorrow.context
    (prompts.workspace.path / "MEMORY.md").write_text("- The dog is called Rex.")
    assert ask(prompts).system.endswith("## MEMORY.md\n\n- The dog is called Rex.")


def test_security_auth_06_a_group_sees_no_private_files_and_only_looks(prompts: Prompts) -> None:
    (prompts.workspace.path / "MEMORY.md").write_text("- The dog is called Rex.")
    (prompts.workspace.path / "USER.md").write_text("- Prefer Earl Grey.")
    prompt = ask(prompts, chat=Chat.GROUP)
    assert [spec.name for spec in prompt.tools] == ["list_dir", "read"]
    for word in ("Rex", "Earl Grey", "BOOTSTRAP.md", str(prompts.workspace.path)):
        assert word not in prompt.system + prompt.context


@pytest.mark.parametrize("level", [Level.USER, Level.GUEST, ""])
def test_a_private_chat_of_somebody_else_sees_no_private_files(prompts: Prompts, level: str) -> None:
    (prompts.workspace.path / "MEMORY.md").write_text("- The dog is called Rex.")
    prompt = prompts.build((), situation=situation(level=level), session="s")
    for word in ("Rex", "BOOTSTRAP.md", str(prompts.workspace.path)):
        assert word not in prompt.system + prompt.context


def test_a_heartbeat_turn_sees_its_list(prompts: Prompts) -> None:
    (prompts.workspace.path / "HEARTBEAT.md").write_text("- Water the plants?")
    assert "plants" in ask(prompts, kind=Kind.HEARTBEAT).system
    assert "plants" not in ask(prompts).system


def test_what_is_asked_of_one_call_is_passed_on(prompts: Prompts) -> None:
    entries = [user("hello")]
    prompt = prompts.build(
        entries,
        situation=situation(),
        session="s",
        nudge="Finish now.",
        tools_allowed=False,
    )
    assert (prompt.entries, prompt.nudge, prompt.tools_allowed) == (entries, "Finish now.", False)
    assert prompt.zone == "Europe/Berlin"
    assert [spec.name for spec in prompt.tools] == ["edit", "list_dir", "read", "write"]


def user(text: str) -> UserEntry:
    return UserEntry(text, Sender("1"), Kind.MESSAGE, 0.0)


def turn(number: int, size: int = 100) -> list[Entry]:
    call = ToolCall(f"c{number}", "read", {"path": "x" * size})
    return [
        user(f"{number} " + "u" * size),
        AssistantEntry("", (call,)),
        ToolEntry(call.id, "read", "r" * size),
        AssistantEntry("a" * size),
    ]


def history(turns: int, size: int = 100) -> list[Entry]:
    return [entry for number in range(turns) for entry in turn(number, size)]


def starts_a_turn(entries: Sequence[Entry]) -> bool:
    return isinstance(entries[0], UserEntry | NoteEntry)


def test_a_history_that_fits_is_not_touched() -> None:
    entries = history(3)
    assert fit(entries, 10_000) is entries
    assert fit([], 0) == []


def test_session_04_a_shortened_history_begins_with_a_user_and_keeps_turns_whole() -> None:
    entries = history(35)
    assert len(entries) == 140
    kept = fit(entries, 10_000)
    assert len(kept) < 140
    assert len(kept) % 4 == 0
    assert starts_a_turn(kept)
    assert list(kept) == entries[-len(kept) :]


def test_messages_that_were_collected_for_one_turn_stay_together() -> None:
    entries = [*turn(1), user("a" * 400), user("b" * 400), AssistantEntry("c")]
    assert fit(entries, 1_000) == entries[4:]


def test_the_last_turn_stays_even_if_it_is_too_large() -> None:
    entries = history(3, size=10_000)
    assert fit(entries, 100) == entries[-4:]


def test_a_note_at_the_start_stays() -> None:
    entries = [NoteEntry("what was before"), *history(30)]
    kept = fit(entries, 5_000)
    assert kept[0] == entries[0]
    assert starts_a_turn(kept[1:])
    assert len(kept) < len(entries)


def test_provider_08_the_cut_stays_where_it_is_for_many_turns() -> None:
    entries = history(200)
    firsts = [fit(entries[:length], 10_000)[0] for length in range(1, len(entries) + 1)]
    moves = sum(before != after for before, after in pairwise(firsts))
    assert 0 < moves < 40  # of 200 turns


@given(st.lists(st.sampled_from("uatn"), max_size=60), st.integers(-10, 3_000), st.integers(0, 60))
def test_adding_entries_never_moves_the_cut_back(kinds: list[str], budget: int, length: int) -> None:
    made: dict[str, Entry] = {
        "u": user("x" * 90),
        "a": AssistantEntry("x" * 70),
        "t": ToolEntry("c", "read", "x" * 200),
        "n": NoteEntry("x" * 50),
    }
    entries = [made[kind] for kind in kinds]
    early, late = fit(entries[:length], budget), fit(entries, budget)
    assert len(entries) - len(late) >= len(entries[:length]) - len(early)
    assert fit(entries, budget) == late


STEPS = st.lists(st.tuples(st.integers(0, 3), st.sampled_from(["say", "call", "sum up", "new"])), max_size=40)


@given(STEPS, st.integers(0, 2_000))
def test_weighing_only_what_is_new_never_changes_what_fits(steps: list[tuple[int, str]], budget: int) -> None:
    scales = Scales(most=3)  # of four conversations
    talks: dict[int, tuple[Entry, ...]] = dict.fromkeys(range(4), ())
    for number, (which, step) in enumerate(steps):
        match step:
            case "say":
                talks[which] += (user("x" * 90), AssistantEntry("y" * number))
            case "call":
                talks[which] += tuple(turn(number))
            case "sum up":
                talks[which] = (NoteEntry("x" * 50), *talks[which][-2:])
            case "new":
                talks[which] = ()
        assert list(scales.fit(which, talks[which], budget)) == list(fit(talks[which], budget))


TOOLS = (ToolSpec("memory_search", "Search.", {}), ToolSpec("read", "Read.", {}))


def modes(mode: Mode) -> str:
    return "\n\n".join(build(replace(INPUTS, tools=TOOLS, skills="<available_skills/>", mode=mode)))


def test_a_full_prompt_has_every_section() -> None:
    found = [part.name for part in parts(replace(INPUTS, tools=TOOLS, skills="<available_skills/>"))]
    guidance = ["identity", "tools", "work", "safety", "skills", "memory", "replies", "workspace"]
    assert found == [*guidance, "project context", "AGENTS.md", "MEMORY.md", "date", "runtime"]


def test_a_sub_agent_is_told_how_to_work_and_nothing_of_people() -> None:
    text = modes(Mode.MINIMAL)
    for wanted in (
        "## Tools",
        "## Work",
        "## Safety",
        "## Skills",
        "## AGENTS.md",
        "## Sub-agent",
        "Runtime: ",
    ):
        assert wanted in text
    for other in ("## MEMORY.md", "## Memory", "## Replies", "NO_REPLY", "HEARTBEAT_OK"):
        assert other not in text


def test_a_sub_agent_of_a_group_is_told_nothing_of_the_group() -> None:
    text = "".join(build(replace(INPUTS, chat=Chat.GROUP, mode=Mode.MINIMAL)))
    assert "NO_REPLY" not in text


def test_without_a_mode_there_is_one_line() -> None:
    stable, dynamic = build(replace(INPUTS, mode=Mode.NONE))
    assert stable == "You are Crayfish, a personal assistant who lives in chat conversations."
    assert dynamic == ""


def test_the_turns_of_a_sub_agent_get_the_short_prompt(prompts: Prompts) -> None:
    (prompts.workspace.path / "MEMORY.md").write_text("- The dog is called Rex.")
    child = situation(
        kind=Kind.SUBAGENT, address=Address("agent", "c1", "fake:1:"), place=Address("fake", "1")
    )
    prompt = prompts.build((), situation=child, session="s")
    assert "## Sub-agent" in prompt.context
    assert "## AGENTS.md" in prompt.system
    for other in ("Rex", "## SOUL.md", "## Replies"):
        assert other not in prompt.system


def test_stable_parts_stand_before_all_that_may_change() -> None:
    found = [part.stable for part in parts(replace(INPUTS, chat=Chat.GROUP, heartbeat=True, scheduled=True))]
    assert found == sorted(found, reverse=True)


class TestNotesOfTheLastDays:
    def note(self, prompts: Prompts, name: str, text: str) -> None:
        folder = prompts.workspace.path / "memory"
        folder.mkdir(exist_ok=True)
        (folder / name).write_text(text)

    def context(
        self, prompts: Prompts, *entries: Entry, session: str = "s", where: Situation | None = None
    ) -> str:
        return prompts.build(entries, situation=where or situation(), session=session).context

    def test_a_new_session_begins_with_those_of_today_and_yesterday(self, prompts: Prompts) -> None:
        self.note(prompts, "2026-02-28-tea.md", "- Ann wants tea at four.")
        self.note(prompts, "2026-02-27.md", "- The oven is broken.")
        self.note(prompts, "2026-02-26.md", "- Too long ago.")
        self.note(prompts, "plans.md", "- No day.")
        self.note(prompts, "2026-02-28-empty.md", "# Title\n\n-\n")
        context = self.context(prompts, user("hello"))
        newest = "### memory/2026-02-28-tea.md\n- Ann wants tea at four."
        assert context.endswith(f"{newest}\n\n### memory/2026-02-27.md\n- The oven is broken.")
        for other in ("Too long ago", "No day", "empty"):
            assert other not in context

    def test_they_are_shown_once_and_the_same_throughout_the_first_turn(self, prompts: Prompts) -> None:
        self.note(prompts, "2026-02-28.md", "- one")
        first = self.context(prompts, user("hello"))
        self.note(prompts, "2026-02-28.md", "- one\n- two")
        begun = (user("hello"), AssistantEntry("", (ToolCall("1", "read", {}),)), ToolEntry("1", "read", ""))
        assert self.context(prompts, *begun) == first
        after = self.context(prompts, *begun, AssistantEntry("Hi."), user("and now?"))
        assert "Notes of the last days" not in after
        assert "- two" in self.context(prompts, user("afresh"), session="s2")

    @pytest.mark.parametrize(
        "where",
        [
            situation(Chat.GROUP),
            situation(level=Level.USER),
            situation(level=Level.GUEST),
            situation(kind=Kind.HEARTBEAT),
            situation(kind=Kind.CRON),
            situation(kind=Kind.SUBAGENT, address=Address("agent", "c1", "fake:1:")),
        ],
        ids=["a group", "a person", "a guest", "a heartbeat", "a schedule", "a sub-agent"],
    )
    def test_nobody_but_the_owner_in_private_gets_them(self, prompts: Prompts, where: Situation) -> None:
        self.note(prompts, "2026-02-28.md", "- private")
        assert "private" not in self.context(prompts, user("hello"), where=where).partition("## Notes")[2]

    def test_behind_a_summary_there_are_none(self, prompts: Prompts) -> None:
        self.note(prompts, "2026-02-28.md", "- one")
        assert "- one" not in self.context(prompts, NoteEntry("Summed up."), user("hello"))

    def test_long_ones_are_cut_and_all_together_have_a_limit(self, prompts: Prompts) -> None:
        for number in range(9):
            self.note(prompts, f"2026-02-28-{number}.md", f"{number}" * 5000)
        (prompts.workspace.path / "memory" / "2026-02-28-x.md").write_bytes(b"\x00binary")
        context = self.context(prompts, user("hello"))
        notes = context.partition("## Notes of the last days")[2]
        assert notes.count("### ") == 3
        assert notes.count("8") <= 1205
        assert len(notes) <= 2800 + 200
        assert "binary" not in notes

    def test_a_link_out_is_not_followed(self, prompts: Prompts, tmp_path: Path) -> None:
        self.note(prompts, "2026-02-27.md", "- here")
        (tmp_path / "secret.md").write_text("SECRET")
        (prompts.workspace.path / "memory/2026-02-28.md").symlink_to(tmp_path / "secret.md")
        context = self.context(prompts, user("hello"))
        assert "- here" in context
        assert "SECRET" not in context
