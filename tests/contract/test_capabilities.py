"""Tools and skills as data: what is kept, what people switch and bind, and who has what from then on."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from gateway import config
from gateway.app import offline, opening
from gateway.capabilities import Capabilities, as_text, in_full
from gateway.cli import main
from gateway.clock import SystemClock
from gateway.config import SkillSettings, ToolSettings
from gateway.grants import Binding, Grants, Sort, grants
from gateway.skills import Root, Skills
from gateway.skills.declared import Declared
from gateway.skills.packages import Packages
from gateway.store import capabilities as store
from gateway.store.capabilities import Capability
from gateway.store.engine import Database, open_database
from gateway.tools.base import Group, ToolContext
from gateway.tools.box import Toolbox
from gateway.tools.plugins import load_plugins
from gateway.tools.policy import ToolPolicy
from gateway.tools.schema import FunctionTool, tool
from gateway.types import Address, Chat, JsonObject, Level, Replay, Sender, ToolCall
from tests.fakes.clock import FakeClock
from tests.fakes.scripted import situation

HEAD = "---\nname: {name}\ndescription: about {name}\n---\nBody\n"


def make(name: str, group: Group = Group.FS) -> FunctionTool:
    async def run(_context: ToolContext) -> str:
        """Do it."""
        return name

    run.__name__ = name
    return tool(Replay.SAFE, group)(run)


class OneShelf:
    """The skill `tea` of the usual agent brings a tool."""

    def __init__(self, skills: Skills) -> None:
        self.skills = skills

    def tools(self) -> tuple[FunctionTool, ...]:
        has = self.skills.current.get("tea")
        return (make("tea__brew", Group.SKILLS),) if has and has.eligible else ()

    def find(self, agent: str, name: str) -> Declared | None:
        one = Declared(name=name, description="d", parameters={}, command=("x",))
        return one if agent == "main" and self.tools() else None


class Office:
    """What there is in a gateway with two agents."""

    def __init__(
        self, db: Database, clock: FakeClock, home: Path, settings: ToolSettings | None = None
    ) -> None:
        self.home, self.clock = home, clock
        self.roots = [Root("user", home / "skills"), Root("bundled", home / "bundled")]
        usual, work = self.open(), self.open()
        self.capabilities = Capabilities(
            db=db,
            clock=clock,
            skills={"main": usual, "work": work},
            packages=lambda: Packages(folder=home / "skills", wall=lambda: 1.0),
            watch=self.watch,
            shelf=OneShelf(usual),
        )
        policy = ToolPolicy(settings or ToolSettings(), {}, self.capabilities.denial)
        self.tools = Toolbox([make("read"), make("write")], policy=policy)
        self.tools.give("mcp", [make("mcp__time__now", Group.PLUGINS)])
        self.capabilities.tools = self.tools

    def open(self) -> Skills:
        return Skills(self.roots, SkillSettings(), env={}, now=self.clock.now)

    async def watch(self) -> None:
        for one in self.capabilities.skills.values():
            one.snapshot()

    def teach(self, *names: str, where: str = "skills") -> None:
        for name in names:
            folder = self.home / where / name
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "SKILL.md").write_text(HEAD.format(name=name))

    def names(self, **where: Any) -> list[str]:
        """Return the tools of a turn."""
        return [spec.name for spec in self.tools.specs(situation(**where))]

    def skills(self, agent: str = "main", **where: Any) -> list[str]:
        """Return the skills that a turn is told of."""
        xml = self.capabilities.available(self.capabilities.skills[agent], situation(agent=agent, **where))
        return sorted(re.findall(r"^- ([\w-]+)", xml, re.MULTILINE))

    async def do(self, action: str, name: str, kind: str = "", agent: str = "", user: str = "") -> str:
        """Act, and begin the next turn."""
        answer = await self.capabilities.act(action, name, kind, agent, user)
        await self.capabilities.look()
        return str(answer.get("text") or f"problem: {answer['problem']}")

    async def rows(self, kind: str = "") -> dict[str, JsonObject]:
        page = await self.capabilities.listed(kind, 200, 0)
        return {one["name"]: one for one in page["capabilities"]}


@pytest.fixture
async def office(db: Database, clock: FakeClock, tmp_path: Path) -> Office:
    found = Office(db, clock, tmp_path)
    found.teach("tea", "coffee")
    found.teach("weather", where="bundled")
    await found.capabilities.look()
    return found


class TestGrants:
    HERE = situation(address=Address("fake", "1"), sender="7")

    def test_without_lists_nothing_is_kept_away(self) -> None:
        assert Grants().problem(Sort.TOOL, "read", self.HERE) == ""

    @pytest.mark.parametrize(
        ("bindings", "why"),
        [
            ([("read", "main", "")], ""),
            ([("write", "main", "")], "the list of the agent main has it not"),
            ([("write", "other", "")], ""),
            ([("write", "", "fake:7")], "the list of fake:7 has it not"),
            ([("write", "", "fake:8")], ""),
            ([("read", "main", ""), ("write", "", "fake:7")], "the list of fake:7 has it not"),
            ([("read", "main", ""), ("read", "", "fake:7")], ""),
            ([("write", "main", "fake:7")], "the list of fake:7 with the agent main has it not"),
            ([("write", "other", "fake:7")], ""),
        ],
    )
    def test_every_list_that_fits_narrows(self, bindings: list[tuple[str, str, str]], why: str) -> None:
        found = grants([], [Binding(Sort.TOOL, *one) for one in bindings])
        assert found.problem(Sort.TOOL, "read", self.HERE) == why
        assert found.problem(Sort.SKILL, "read", self.HERE) == ""

    def test_what_is_off_is_off_whatever_the_lists_say(self) -> None:
        found = grants([(Sort.TOOL, "read")], [Binding(Sort.TOOL, "read", "main")])
        assert found.problem(Sort.TOOL, "read", self.HERE) == "it is switched off"

    def test_a_sender_nobody_knows_has_no_list(self) -> None:
        found = grants([], [Binding(Sort.TOOL, "write", "", "fake:")])
        assert found.problem(Sort.TOOL, "read", situation(sender="")) == ""


class TestRows:
    def row(self, name: str, sort: Sort = Sort.TOOL, **more: Any) -> Capability:
        return Capability(sort=sort, name=name, entry="x", description="d", **more)

    async def mirror(self, db: Database, *rows: Capability) -> bool:
        return await db.write(lambda tx: store.mirror(tx, rows, list(Sort)))

    async def state(self, db: Database) -> dict[str, tuple[bool, bool, bool]]:
        rows = await db.read(store.listed)
        return {one.name: (one.active, one.here, one.deleted_at is not None) for one in rows}

    async def test_rows_follow_what_is_there(self, db: Database) -> None:
        assert await self.mirror(db, self.row("b"), self.row("a"), self.row("a", Sort.SKILL))
        assert [(one.sort, one.name) for one in await db.read(store.listed)] == [
            ("tool", "a"), ("tool", "b"), ("skill", "a"),
        ]  # fmt: skip
        version = await db.read(store.version)
        assert not await self.mirror(db, self.row("b"), self.row("a"), self.row("a", Sort.SKILL))
        assert await db.read(store.version) == version
        assert await self.mirror(db, self.row("a", version="2"), self.row("a", Sort.SKILL))
        assert await db.read(store.version) != version
        assert await self.state(db) == {"a": (True, True, False), "b": (True, False, False)}

    async def test_what_people_did_to_a_tool_stays(self, db: Database) -> None:
        await self.mirror(db, self.row("a"), self.row("b"))
        await db.write(lambda tx: store.switch(tx, Sort.TOOL, "a", on=False))
        await db.write(lambda tx: store.remove(tx, Sort.TOOL, "b", 5.0))
        await self.mirror(db)
        await self.mirror(db, self.row("a", version="2"), self.row("b", version="2"))
        assert await self.state(db) == {"a": (False, True, False), "b": (True, True, True)}
        await db.write(lambda tx: store.switch(tx, Sort.TOOL, "b", on=True))
        assert (await self.state(db))["b"] == (True, True, False)

    async def test_of_skills_the_disk_decides(self, db: Database) -> None:
        await self.mirror(db, self.row("a", Sort.SKILL))
        await db.write(lambda tx: store.remove(tx, Sort.SKILL, "a", 5.0))
        await self.mirror(db, self.row("a", Sort.SKILL, active=False))
        assert await self.state(db) == {"a": (False, True, True)}
        await self.mirror(db, self.row("a", Sort.SKILL))
        assert await self.state(db) == {"a": (True, True, False)}

    async def test_a_sort_that_was_not_looked_at_stays_as_it_is(self, db: Database) -> None:
        await self.mirror(db, self.row("a"), self.row("s", Sort.SKILL))
        await db.write(lambda tx: store.mirror(tx, [], [Sort.SKILL]))
        assert await self.state(db) == {"a": (True, True, False), "s": (True, False, False)}

    async def test_of_a_sort_that_was_looked_at_in_part_nothing_is_gone(self, db: Database) -> None:
        await self.mirror(db, self.row("a"), self.row("b"))
        await db.write(lambda tx: store.switch(tx, Sort.TOOL, "a", on=False))
        found = [self.row("a", version="2"), self.row("new")]
        assert await db.write(lambda tx: store.mirror(tx, found, [Sort.SKILL]))
        assert await self.state(db) == {
            "a": (False, True, False),
            "b": (True, True, False),
            "new": (True, True, False),
        }

    async def test_a_binding_is_there_once(self, db: Database) -> None:
        await self.mirror(db, self.row("a"))
        one = Binding(Sort.TOOL, "a", "main")
        for _ in range(2):
            await db.write(lambda tx: store.bind(tx, one))
        assert await db.read(store.bindings) == [one]
        assert await db.write(lambda tx: store.unbind(tx, one))
        assert not await db.write(lambda tx: store.unbind(tx, one))


class TestTurns:
    async def test_everything_there_is_becomes_a_row(self, office: Office) -> None:
        rows = await office.rows()
        assert list(rows) == ["mcp__time__now", "read", "tea__brew", "write", "coffee", "tea", "weather"]
        assert {name for name, one in rows.items() if one["system"]} == {"read", "write", "weather"}
        assert rows["mcp__time__now"]["entry"] == "mcp"
        assert rows["read"]["entry"] == f"{__name__}:read"
        assert rows["tea"]["sha256"]
        assert list(await office.rows("skill")) == ["coffee", "tea", "weather"]
        page = await office.capabilities.listed("", 2, 1)
        assert ([one["name"] for one in page["capabilities"]], page["total"]) == (["read", "tea__brew"], 7)

    async def test_a_tool_is_switched_from_the_next_turn_on(self, office: Office) -> None:
        before = office.tools.specs(situation())
        assert await office.do("disable", "write") == "write is off"
        assert office.names() == ["mcp__time__now", "read", "tea__brew"]
        context = ToolContext(
            office.home, Address("fake", "1"), Sender("7", "Ann", Level.OWNER), Chat.DIRECT, "c"
        )
        refused = await office.tools.call(ToolCall("c", "write"), context)
        assert "it is switched off" in refused.text
        assert await office.do("enable", "write") == "write is on"
        assert office.tools.specs(situation()) is before

    async def test_a_skill_is_switched_where_the_command_line_does(self, office: Office) -> None:
        assert await office.do("disable", "tea") == "tea is off"
        assert office.skills() == ["coffee", "weather"]
        assert json.loads((office.home / "skills" / ".off.json").read_text()) == ["tea"]
        assert "tea__brew" not in office.names()
        assert not (await office.rows())["tea__brew"]["here"]
        (office.home / "skills" / ".off.json").write_text("[]")
        await office.capabilities.look()
        assert office.skills() == ["coffee", "tea", "weather"]
        assert (await office.rows())["tea"]["active"]
        assert "tea__brew" in office.names()

    async def test_a_list_of_an_agent_narrows_it_alone(self, office: Office) -> None:
        assert await office.do("bind", "read", agent="work") == (
            "read is on the list of work; what is not on it, work has not"
        )
        assert office.names(agent="work") == ["read"]
        assert office.names() == ["mcp__time__now", "read", "tea__brew", "write"]
        assert await office.do("bind", "tea", agent="work", kind="skill")
        assert office.skills("work") == ["tea"]
        assert office.skills() == ["coffee", "tea", "weather"]
        await office.do("unbind", "read", agent="work")
        await office.do("unbind", "tea", agent="work")
        assert office.names(agent="work") == ["mcp__time__now", "read", "write"]
        assert office.skills("work") == ["coffee", "tea", "weather"]

    async def test_a_list_of_a_person_narrows_them_everywhere(self, office: Office) -> None:
        await office.do("bind", "coffee", user="fake:7")
        await office.do("bind", "write", user="fake:7")
        await office.do("bind", "read", user="fake:7")
        assert office.names(sender="7") == ["read", "write"]
        assert office.names(sender="8") == ["mcp__time__now", "read", "tea__brew", "write"]
        assert (office.skills(sender="7"), office.skills(sender="8")) == (
            ["coffee"],
            ["coffee", "tea", "weather"],
        )
        assert office.names(level=Level.USER, sender="7") == ["read", "write"]
        assert office.names(level=Level.GUEST, sender="7") == []  # a list gives nothing

    async def test_the_tools_of_a_skill_go_with_it(self, office: Office) -> None:
        await office.do("bind", "coffee", agent="main")
        assert "tea__brew" not in office.names()
        await office.do("bind", "tea", agent="main")
        assert "tea__brew" in office.names()

    async def test_an_agent_without_a_skill_has_not_its_tools(self, office: Office) -> None:
        assert "tea__brew" not in office.names(agent="work")
        assert dict(office.tools.explain(situation(agent="work")))["tea__brew"] is not None

    async def test_the_list_in_the_prompt_is_the_same_object_while_nothing_changes(
        self, office: Office
    ) -> None:
        usual, here = office.capabilities.skills["main"], situation(sender="7")
        assert office.capabilities.available(usual, here) is usual.current.xml
        await office.do("bind", "coffee", user="fake:7")
        once = office.capabilities.available(usual, here)
        await office.capabilities.look()
        assert office.capabilities.available(usual, here) is once
        assert office.capabilities.available(usual, situation(sender="8")) is usual.current.xml

    async def test_a_look_at_nothing_new_asks_the_database_for_nothing(self, office: Office) -> None:
        asked: list[str] = []
        real = office.capabilities.db

        class Counting:
            exclusive = real.exclusive
            failing = False

            async def write(self, work: Callable[..., Any], *, durable: bool = True) -> Any:
                asked.append("write")
                return await real.write(work, durable=durable)

            async def read(self, work: Callable[..., Any]) -> Any:
                asked.append("read")
                return await real.read(work)

            def now(self) -> float:
                return real.now()

            async def close(self) -> None:
                return

        office.capabilities.db = Counting()
        for _ in range(5):
            await office.capabilities.look()
        assert asked == ([] if real.exclusive else ["read"])

    async def test_another_node_hears_of_it(self, office: Office, db: Database) -> None:
        if db.exclusive:
            pytest.skip("nobody else can open this database")
        other = Office(db, office.clock, office.home)
        await other.capabilities.look()
        await office.do("disable", "write")
        office.clock.time += 1.0
        await other.capabilities.look()
        assert "write" not in other.names()

    async def test_it_holds_after_a_restart(self, office: Office, db: Database) -> None:
        await office.do("disable", "write")
        await office.do("bind", "coffee", agent="main")
        again = Office(db, office.clock, office.home)
        await again.capabilities.look()
        assert again.names() == ["mcp__time__now", "read"]
        assert again.skills() == ["coffee"]


class TestRemoving:
    @pytest.mark.parametrize("name", ["read", "weather"])
    async def test_what_comes_with_the_program_stays(self, office: Office, name: str) -> None:
        assert (await office.do("remove", name)).startswith(f"problem: {name} comes with Crayfish")
        assert not (await office.rows())[name]["deleted"]

    async def test_a_tool_of_others_goes_and_comes_back(self, office: Office) -> None:
        assert "tools enable mcp__time__now" in await office.do("remove", "mcp__time__now")
        assert "mcp__time__now" not in office.names()
        assert (await office.rows())["mcp__time__now"]["deleted"]
        await office.do("enable", "mcp__time__now")
        assert "mcp__time__now" in office.names()

    async def test_a_skill_that_lies_in_a_folder_is_only_hidden(self, office: Office) -> None:
        assert "tools enable coffee" in await office.do("remove", "coffee")
        assert office.skills() == ["tea", "weather"]
        assert (office.home / "skills" / "coffee" / "SKILL.md").exists()
        assert (await office.rows())["coffee"]["deleted"]
        await office.do("enable", "coffee")
        assert office.skills() == ["coffee", "tea", "weather"]
        assert not (await office.rows())["coffee"]["deleted"]

    async def test_an_installed_skill_is_taken_out(self, office: Office, tmp_path: Path) -> None:
        office.teach("maps", where="elsewhere")
        packages = office.capabilities.packages()
        packages.install(tmp_path / "elsewhere" / "maps")
        await office.capabilities.look()
        assert "maps" in office.skills()
        assert "skills rollback maps" in await office.do("remove", "maps")
        assert "maps" not in office.skills()
        row = (await office.rows())["maps"]
        assert (row["here"], row["deleted"]) == (False, True)
        assert "is not on the disk" in await office.do("enable", "maps")
        packages.rollback("maps")
        assert "maps" in (await office.rows())
        assert not (await office.rows())["maps"]["deleted"]


class TestMistakes:
    @pytest.mark.parametrize(
        ("action", "name", "more", "problem"),
        [
            ("disable", "nothing", {}, "there is no tool or skill 'nothing'"),
            ("disable", "read", {"kind": "skill"}, "there is no tool or skill 'read'"),
            ("bind", "read", {}, "say for whom"),
            ("bind", "read", {"agent": "nobody"}, "there is no agent 'nobody'; there are main, work"),
            ("bind", "read", {"user": "Ann"}, "must be channel:id"),
            ("unbind", "read", {"agent": "work"}, "is not on the list of work"),
            ("forget", "read", {}, "is none of enable, disable"),
        ],
    )
    async def test_they_are_told_and_change_nothing(
        self, office: Office, action: str, name: str, more: Mapping[str, str], problem: str
    ) -> None:
        before = await office.rows()
        assert problem in await office.do(action, name, **more)
        assert await office.rows() == before

    async def test_a_name_that_two_have_wants_its_kind(self, office: Office) -> None:
        office.teach("read")
        await office.capabilities.look()
        assert "say which with --kind" in await office.do("disable", "read")
        assert await office.do("disable", "read", kind="skill") == "read is off"
        assert "read" in office.names()


class TestTelling:
    async def test_the_owner_is_told_why_not(self, office: Office) -> None:
        await office.do("disable", "write")
        await office.do("disable", "tea")
        await office.do("bind", "weather", user="fake:7")
        told = office.capabilities.explain(situation(sender="7")).splitlines()
        assert told[:2] == ["Tools here: mcp__time__now, read", "Skills here: weather"]
        assert "write: it is switched off (crayfish tools show write)" in told
        assert "coffee: the list of fake:7 has it not" in told
        assert "tea: it is switched off: `crayfish skills enable tea`" in told

    @pytest.mark.parametrize("where", [{"level": Level.USER}, {"chat": Chat.GROUP}], ids=["person", "group"])
    async def test_others_are_told_only_what_there_is(self, office: Office, where: dict[str, Any]) -> None:
        told = office.capabilities.explain(situation(**where))
        assert len(told.splitlines()) == 2
        assert "(" not in told

    async def test_a_listing_says_the_state_of_each(self, office: Office) -> None:
        await office.do("disable", "write")
        await office.do("remove", "mcp__time__now")
        await office.do("bind", "read", user="fake:7")
        text = as_text(await office.capabilities.listed("", 200, 0))
        for line in (
            "mcp__time__now (tool, removed): Do it.",
            "read (tool, on, system, bound): Do it.",
            "write (tool, off, system): Do it.",
            "tea (skill, on): about tea",
        ):
            assert line in text
        shown = in_full((await office.rows())["read"])
        assert "on the lists of: fake:7" in shown


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Returns what installs a package: a module, and what it says of itself."""
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    modules: list[str] = []

    def install(package: str, source: str, *entries: str) -> None:
        about = folder / f"{package}-1.2.dist-info"
        about.mkdir()
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.2\n")
        (about / "entry_points.txt").write_text("[crayfish.tools]\n" + "\n".join(entries) + "\n")
        (folder / f"{package}.py").write_text(source)
        modules.append(package)

    yield install
    for name in modules:
        sys.modules.pop(name, None)


DICE = '''
from gateway.tools.base import Group, ToolContext
from gateway.tools.schema import tool
from gateway.types import Replay


@tool(Replay.SAFE, Group.FS)
async def roll_dice(context: ToolContext, sides: int = 6) -> str:
    """Roll dice.

    sides: How many.
    """
    return f"{context.call_id} rolled {sides}"


def several():
    async def one(context: ToolContext) -> str:
        """One."""
        return "1"

    async def two(context: ToolContext) -> str:
        """Two."""
        return "2"

    make = tool(Replay.ONCE, Group.RUNTIME)
    return [make(one), make(two)]
'''

Install = Callable[..., None]


class TestPlugins:
    async def test_a_function_of_another_package_is_a_tool(self, site: Install, tmp_path: Path) -> None:
        site("dicebox", DICE, "dice = dicebox:roll_dice", "more = dicebox:several")
        plugins = load_plugins(())
        assert plugins.problems == ()
        assert [(one.tool.name, one.entry, one.package, one.version) for one in plugins.found] == [
            ("roll_dice", "dicebox:roll_dice", "dicebox", "1.2"),
            ("one", "dicebox:several", "dicebox", "1.2"),
            ("two", "dicebox:several", "dicebox", "1.2"),
        ]
        box = Toolbox(plugins.tools)
        context = ToolContext(
            tmp_path, Address("fake", "1"), Sender("7", "Ann", Level.OWNER), Chat.DIRECT, "c1"
        )
        result = await box.call(ToolCall("c1", "roll_dice", {"sides": 20}), context)
        assert (result.text, result.is_error) == ("c1 rolled 20", False)

    def test_only_the_owner_has_it_unless_the_configuration_says_so(self, site: Install) -> None:
        site("dicebox", DICE, "dice = dicebox:roll_dice")
        [found] = load_plugins(()).tools
        assert found.group is Group.PLUGINS
        assert ToolPolicy().allows(found, situation())
        assert not ToolPolicy().allows(found, situation(level=Level.USER))
        assert not ToolPolicy().allows(found, situation(chat=Chat.GROUP))

    @pytest.mark.parametrize(
        ("source", "entry", "problem"),
        [
            ("import no_such_library", "x = broken:tool", "ModuleNotFoundError"),
            ("def tool(): raise OSError('no disk')", "x = broken:tool", "OSError: no disk"),
            ("import sys; sys.exit(3)", "x = broken:tool", "SystemExit"),
            ("this is no Python", "x = broken:tool", "SyntaxError"),
            ("tool = 5", "x = broken:tool", "int is no tool"),
            ("def tool(): return ['x']", "x = broken:tool", "str is no tool"),
            ("", "x = broken:tool", "AttributeError"),
            (DICE, "x = broken:roll_dice", "there is a tool 'roll_dice' already"),
            (DICE.replace("roll_dice", "würfle"), "x = broken:würfle", "models can't call 'würfle'"),
        ],
        ids=["import", "raises", "exits", "syntax", "number", "list", "missing", "taken", "name"],
    )
    def test_a_broken_one_is_named_and_does_no_harm(
        self, site: Install, source: str, entry: str, problem: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        site("broken", source, entry)
        site("dicebox", DICE, "z = dicebox:several")
        plugins = load_plugins({"roll_dice"})
        assert [one.tool.name for one in plugins.found] == ["one", "two"]
        [told] = plugins.problems
        assert "of broken was left out" in told
        assert problem in told
        assert [record.message for record in caplog.records] == ["plugin.broken"]

    async def test_the_gateway_takes_them_in_and_lists_what_is_broken(
        self, site: Install, office: Office
    ) -> None:
        site("dicebox", DICE, "dice = dicebox:roll_dice")
        site("broken", "import no_such_library", "x = broken:tool")
        await office.capabilities.take_in()
        await office.capabilities.look()
        assert "roll_dice" in office.names()
        row = (await office.rows())["roll_dice"]
        assert (row["entry"], row["version"], row["system"]) == ("dicebox: dicebox:roll_dice", "1.2", False)
        assert "problem: broken:tool of broken was left out" in as_text(
            await office.capabilities.listed("", 200, 0)
        )


def write_config(home: Path, port: int = 0) -> Path:
    file = home / "config.toml"
    file.write_text(
        f'[model]\ndialect = "demo"\n[agents.work]\nworkspace = "{home}/work"\n[http]\nport = {port}\n'
    )
    return file


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CRAYFISH_HOME", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


class TestCommandLine:
    def test_beside_a_stopped_gateway_skills_are_known_and_switched(
        self, home: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        file = str(write_config(home))

        def run(*arguments: str) -> tuple[int, str]:
            code = main(["tools", *arguments, "--config", file])
            found = capsys.readouterr()
            return code, found.out + found.err

        assert "weather (skill, on, system)" in run("list")[1]
        assert run("disable", "weather") == (0, "weather is off\n")
        assert "weather (skill, off, system)" in run("show", "weather")[1]
        assert main(["skills", "enable", "weather", "--config", file]) == 0
        capsys.readouterr()
        listed = json.loads(run("list", "--kind", "skill", "--json")[1])
        assert {one["name"]: one["active"] for one in listed["capabilities"]}["weather"]
        assert run("bind", "weather", "--agent", "work")[0] == 0
        assert "on the lists of: work" in run("show", "weather")[1]
        assert run("unbind", "weather", "--agent", "work", "--user", "fake:1")[0] == 2
        assert run("unbind", "weather", "--agent", "work")[0] == 0
        assert run("remove", "weather")[0] == 2
        assert run("show", "nothing")[0] == 2

    def test_the_tools_of_the_program_are_listed_and_switched_before_any_gateway_has_run(
        self, home: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        file = str(write_config(home))

        def run(*arguments: str) -> str:
            assert main(["tools", *arguments, "--config", file]) == 0
            return capsys.readouterr().out

        listed = json.loads(run("list", "--kind", "tool", "--json"))["capabilities"]
        assert {"read", "cron", "memory_search", "message", "sessions", "spawn", "todo", "web_fetch"} <= {
            one["name"] for one in listed
        }
        assert all(one["system"] and one["here"] for one in listed)
        assert run("disable", "web_fetch") == "web_fetch is off\n"
        assert "web_fetch (tool, off, system)" in run("list")
        assert "gateway.tools.web:web_fetch" in run("show", "web_fetch")

    def test_what_only_a_gateway_finds_stays_known_beside_it(
        self, home: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        file = write_config(home)
        assert main(["tools", "list", "--config", str(file)]) == 0
        loaded = config.load(file, {"CRAYFISH_HOME": str(home)}, home)

        async def meet() -> None:
            db = await open_database(loaded.settings.store.url, SystemClock())
            theirs = Capability(
                sort=Sort.TOOL, name="mcp__time__now", entry="mcp", description="Tell the time."
            )
            await db.write(lambda tx: store.mirror(tx, [theirs], []))
            await db.close()

        asyncio.run(meet())
        capsys.readouterr()
        assert main(["tools", "list", "--config", str(file)]) == 0
        assert "mcp__time__now (tool, on): Tell the time." in capsys.readouterr().out


class TestThroughARunningGateway:
    @pytest.fixture
    async def running(self, home: Path) -> AsyncIterator[config.Loaded]:
        """The configuration of a gateway that is running."""
        loaded = config.load(write_config(home), {"CRAYFISH_HOME": str(home)}, home)
        gateway = await opening.open_gateway(loaded, SystemClock(), env={})
        stop = asyncio.Event()
        serving = asyncio.create_task(gateway.run(stop))
        port = int(str(gateway.channels["web"].status()["url"]).rpartition(":")[2])
        yield config.load(write_config(home, port), {"CRAYFISH_HOME": str(home)}, home)
        stop.set()
        await serving
        await gateway.close()

    async def test_it_is_asked_over_http_and_obeys_at_once(self, running: config.Loaded) -> None:
        async def act(action: str, name: str) -> JsonObject:
            return await offline.control(
                running, lambda control: control.tool(action, name, kind="", agent="", user="")
            )

        listed = await offline.control(running, lambda control: control.tools("tool", 200, 0))
        names = {one["name"]: one for one in listed["capabilities"]}
        assert {"read", "cron", "message", "skill_install"} <= set(names)
        assert all(one["system"] for one in names.values())
        assert await act("disable", "web_fetch") == {"text": "web_fetch is off"}
        assert "comes with Crayfish" in (await act("remove", "web_fetch"))["problem"]
        listed = await offline.control(running, lambda control: control.tools("tool", 200, 0))
        assert not {one["name"]: one["active"] for one in listed["capabilities"]}["web_fetch"]

    @pytest.mark.parametrize(
        "body",
        [{}, {"action": "enable"}, {"action": 5, "name": "x"}, {"action": "enable", "name": "x" * 300},
         {"action": "enable", "name": "read", "kind": "thing"}, {"action": "bind", "name": "read", "agent": 5}, []],
    )  # fmt: skip
    async def test_a_strange_request_is_refused(self, running: config.Loaded, body: object) -> None:
        http = running.settings.http
        url = f"http://{http.host}:{http.port}/api/capabilities"
        headers = {"Content-Type": "application/json"}
        async with aiohttp.ClientSession() as client:
            async with client.post(url, data=json.dumps(body), headers=headers) as response:
                assert response.status == 400
            async with client.get(url, params={"kind": "thing"}) as response:
                assert response.status == 400
            async with client.post(url, json={}, headers={"Origin": "https://evil.example"}) as response:
                assert response.status == 403
