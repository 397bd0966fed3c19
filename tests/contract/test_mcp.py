"""MCP servers: real ones over pipes and HTTP, what they bring, and what becomes of those that misbehave."""

from __future__ import annotations

import asyncio
import functools
import json
import logging
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession, web

from gateway import doctor
from gateway.cli import main
from gateway.clock import Clock, SystemClock
from gateway.config import McpSettings, parse, secrets, shown
from gateway.errors import ConfigError
from gateway.mcp.server import Server
from gateway.mcp.servers import Servers, as_text, connected, look
from gateway.mcp.target import target
from gateway.redact import Redactor
from gateway.tools.base import Ask, Tool, ToolContext
from gateway.tools.box import Toolbox
from gateway.types import Address, Chat, Json, Media, Replay, Sender, ToolCall, ToolEntry
from tests.fakes.clock import FakeClock
from tests.fakes.mcp_server import PNG

ROOT = Path(__file__).parents[2]
FAKES = ROOT / "tests" / "fakes"
OFFICIAL, ROUGH = str(FAKES / "mcp_server.py"), str(FAKES / "mcp_rough.py")

pytestmark = pytest.mark.skipif(os.name != "posix", reason="ends programs by their process group")


def settings(**servers: Mapping[str, Json]) -> McpSettings:
    """Return settings of servers; what is not said of one is that it runs the rough fake without asking."""
    usual = {"command": sys.executable, "args": [ROUGH], "ask": False}
    tables = {
        name: one if "url" in one or "command" in one else {**usual, **one} for name, one in servers.items()
    }
    text = "\n".join(
        f"[mcp.servers.{name}]\n" + "\n".join(f"{key} = {_toml(value)}" for key, value in one.items())
        for name, one in tables.items()
    )
    return parse(text, {}, Path.cwd()).mcp


def _toml(value: Json) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {_toml(one)}" for key, one in value.items()) + " }"
    return json.dumps(value)


@dataclass
class House:
    """A toolbox, and servers that give it their tools."""

    home: Path
    clock: Clock = field(default_factory=SystemClock)
    environ: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    box: Toolbox = field(default_factory=lambda: Toolbox([]))
    tools: dict[str, Tool] = field(default_factory=dict)
    given: int = 0
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    servers: Servers | None = None

    def give(self, tools: Sequence[Tool]) -> None:
        self.given += 1
        self.tools = {tool.name: tool for tool in tools}
        self.box.give("mcp", tools)
        self.changed.set()

    @asynccontextmanager
    async def run(self, **servers: Mapping[str, Json]) -> AsyncIterator[Servers]:
        self.servers = Servers(
            settings=settings(**servers),
            home=self.home,
            environ=self.environ,
            clock=self.clock,
            give=self.give,
            redact=Redactor(["hunter2hunter2"]),
        )
        await self.servers.start()
        try:
            yield self.servers
        finally:
            await self.servers.close()

    async def has(self, name: str) -> Tool:
        while name not in self.tools:
            self.changed.clear()
            await self.changed.wait()
        return self.tools[name]

    def context(self, **more: Any) -> ToolContext:
        folder = self.home / "workspace"
        folder.mkdir(exist_ok=True)
        return ToolContext(
            workspace=folder,
            address=Address("web", "1"),
            sender=Sender("7", "Ann", "owner"),
            chat=Chat.DIRECT,
            call_id="c1",
            **more,
        )

    async def call(self, name: str, **args: Json) -> ToolEntry:
        await self.has(name)
        return await self.box.call(ToolCall("c1", name, args), self.context())

    async def state(self, name: str, wanted: str) -> str:
        assert self.servers is not None
        servers = self.servers
        await until(lambda: servers.status()[name].startswith(wanted))
        return servers.status()[name]


@pytest.fixture
def house(tmp_path: Path) -> House:
    return House(tmp_path)


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 - it waits for programs
        await asyncio.sleep(0.01)


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except FileNotFoundError:
        return False


async def said(entry: ToolEntry) -> str:
    """Return what a server said, without the marks around it."""
    lines = entry.text.removeprefix("Error: ").splitlines()
    assert lines[0].startswith("<<<untrusted ")
    assert lines[-1].startswith("<<<end of untrusted ")
    return "\n".join(lines[1:-1])


OFFICIAL_SERVER = {"command": sys.executable, "args": [OFFICIAL], "ask": False}


async def test_tools_of_a_real_server_are_called_by_names_that_tell_it(house: House) -> None:
    async with house.run(fake=OFFICIAL_SERVER | {"env": {"TOKEN": "hunter2hunter2"}}):
        await house.has("mcp__fake__echo")
        assert [name for name in house.tools if name.startswith("mcp__fake__")] == list(house.tools)
        assert await said(await house.call("mcp__fake__echo", text="hi")) == "you said: hi"

        failed = await house.call("mcp__fake__fail")
        assert failed.is_error
        assert "the disk is full" in await said(failed)

        chosen = await house.call("mcp__fake__choose", colour="red", amount=None, tags={"a": 1})
        assert await said(chosen) == "red None {'a': 1}"
        refused = await house.call("mcp__fake__choose", colour="green")
        assert refused.is_error
        assert "must be one of 'red', 'blue'" in refused.text

        seen = await said(await house.call("mcp__fake__environment"))
        assert "TOKEN" in seen
        assert "PATH" in seen


async def test_a_server_gets_no_environment_but_what_is_safe_or_named(tmp_path: Path) -> None:
    environ = {"PATH": os.environ["PATH"], "HOME": "/nowhere", "SECRET_KEY": "x", "LD_PRELOAD": ""}
    house = House(tmp_path, environ=environ)
    async with house.run(rough={"env": {"MINE": "1"}}):
        names = (await said(await house.call("mcp__rough__environment"))).split()
    assert {"PATH", "HOME", "MINE"} <= set(names)
    assert not {"SECRET_KEY", "LD_PRELOAD"} & set(names)


async def test_pictures_lie_in_the_folder_of_the_conversation_and_are_shown(house: House) -> None:
    async with house.run(fake=OFFICIAL_SERVER):
        entry = await house.call("mcp__fake__picture")
        [picture] = entry.attachments
        assert (picture.kind, picture.mime) == (Media.IMAGE, "image/png")
        assert (house.context().folder / picture.path).read_bytes() == PNG
        assert picture.path in entry.text

        mixed = await house.call("mcp__fake__mixed")
        assert mixed.attachments == ()  # what it claims to be proves nothing
        assert "see below" in mixed.text
        assert "[note://1]\na note" in mixed.text
        assert "17 bytes, in .crayfish/mcp/" in mixed.text

        long = await house.call("mcp__fake__long", size=300_000)
        assert len(long.text) <= 17_000
        assert "characters left out here" in long.text


async def test_a_server_over_http_is_used_like_any_other_and_found_again(house: House) -> None:
    port = free_port()
    where = {"url": f"http://127.0.0.1:{port}/mcp", "ask": False}
    async with house.run(fake=where) as servers:
        # Nobody is there yet: it is looked for until somebody is.
        await house.state("fake", "down")
        async with serving(port):
            assert await said(await house.call("mcp__fake__echo", text="hi")) == "you said: hi"
            assert servers.status() == {"fake": "up"}
        gone = await house.call("mcp__fake__echo", text="hi")
        assert gone.is_error
        assert "MCP server fake" in gone.text
        async with serving(port):
            await house.state("fake", "up")
            assert await said(await house.call("mcp__fake__echo", text="you")) == "you said: you"


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@asynccontextmanager
async def serving(port: int) -> AsyncIterator[None]:
    """Run the official server over HTTP."""
    process = await asyncio.create_subprocess_exec(sys.executable, OFFICIAL, str(port))
    try:
        async with ClientSession() as http:
            while True:
                try:
                    async with http.get(f"http://127.0.0.1:{port}/mcp"):
                        break
                except OSError:
                    await asyncio.sleep(0.05)
        yield
    finally:
        process.kill()
        await process.wait()


@asynccontextmanager
async def answering(handler: Callable[[web.Request], Any]) -> AsyncIterator[str]:
    """Serve on loopback; yield the address."""
    application = web.Application(client_max_size=2**26)
    application.router.add_route("*", "/{path:.*}", handler)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@dataclass
class OldHttp:
    """A server over HTTP of the older kind, which knows sessions and can forget them."""

    session: str = "s1"
    calls: list[str] = field(default_factory=list)
    headers: list[str] = field(default_factory=list)
    body: str = "x"

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.headers.append(request.headers.get("Authorization", ""))
        if request.method != "POST":
            return web.Response(status=405)
        message = await request.json()
        method, number = message["method"], message.get("id")
        if method == "initialize":
            info = {"name": "old", "version": "1"}
            result = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": info}
            reply = {"jsonrpc": "2.0", "id": number, "result": result}
            return web.json_response(reply, headers={"Mcp-Session-Id": self.session})
        if method == "server/discover":
            return web.Response(status=400)
        if request.headers.get("Mcp-Session-Id") != self.session:
            return web.Response(status=404)
        if number is None:
            return web.Response(status=202)
        if method == "tools/list":
            tools = [{"name": "echo", "inputSchema": {"type": "object"}}]
            return web.json_response({"jsonrpc": "2.0", "id": number, "result": {"tools": tools}})
        self.calls.append(self.session)
        content = [{"type": "text", "text": self.body}]
        return web.json_response({"jsonrpc": "2.0", "id": number, "result": {"content": content}})


async def test_a_call_of_a_session_that_the_server_has_forgotten_is_made_in_a_new_one(house: House) -> None:
    old = OldHttp()
    async with (
        answering(old.answer) as url,
        house.run(old={"url": f"{url}/mcp", "ask": False, "headers": {"Authorization": "Bearer abcdefgh"}}),
    ):
        await house.call("mcp__old__echo")
        old.session = "s2"
        assert await said(await house.call("mcp__old__echo")) == "x"
        assert old.calls == ["s1", "s2"]
        assert set(old.headers) == {"Bearer abcdefgh"}


async def test_calls_that_all_find_their_session_forgotten_are_made_in_one_new_one(house: House) -> None:
    old = OldHttp()
    async with answering(old.answer) as url, house.run(old={"url": f"{url}/mcp", "ask": False}):
        await house.call("mcp__old__echo")
        old.session = "s2"
        entries = await asyncio.gather(*(house.call("mcp__old__echo") for _ in range(10)))
        assert not any(entry.is_error for entry in entries)
        assert old.calls == ["s1", *["s2"] * 10]


async def test_an_answer_without_end_is_refused(house: House) -> None:
    old = OldHttp()
    async with answering(old.answer) as url, house.run(old={"url": f"{url}/mcp", "ask": False}):
        await house.call("mcp__old__echo")
        old.body = "x" * 40_000_000
        entry = await house.call("mcp__old__echo")
        assert entry.is_error
        assert "more than" in await house.state("old", "down")


async def test_a_redirect_elsewhere_is_not_followed_and_no_header_goes_there(house: House) -> None:
    visited: list[str] = []

    async def elsewhere(request: web.Request) -> web.Response:
        visited.append(request.headers.get("Authorization", ""))
        return web.Response()

    async with answering(elsewhere) as other:

        async def here(_: web.Request) -> web.Response:
            raise web.HTTPTemporaryRedirect(f"{other}/mcp")

        headers = {"Authorization": "Bearer abcdefgh"}
        async with answering(here) as url, house.run(moved={"url": f"{url}/mcp", "headers": headers}):
            assert "not followed" in await house.state("moved", "down")
    assert visited == []


async def test_a_server_that_wants_another_key_says_so(house: House) -> None:
    async def no(_: web.Request) -> web.Response:
        return web.Response(status=401)

    async with answering(no) as url, house.run(closed={"url": f"{url}/mcp"}):
        assert await house.state("closed", "down") == (
            "down (it answers 401: check the headers in the configuration)"
        )


async def test_calls_are_asked_about_unless_the_configuration_says_otherwise(house: House) -> None:
    async with house.run(shy={"ask": True}):
        tool = await house.has("mcp__shy__echo")
        args = {"text": "a"}
        ask = await tool.check(args, house.context())
        assert isinstance(ask, Ask)
        assert ask.title == "Use echo of the MCP server shy"
        assert '"text": "a"' in ask.detail

        call = ToolCall("c1", "mcp__shy__echo", args)
        denied = await house.box.call(call, house.context())
        assert "nobody has allowed just this call" in denied.text
        allowed = await house.box.call(call, house.context(approved=ask.binding))
        assert await said(allowed) == "a"
        other = await house.box.call(
            ToolCall("c1", "mcp__shy__echo", {"text": "b"}), house.context(approved=ask.binding)
        )
        assert other.is_error


async def test_a_permission_for_good_does_not_hold_after_strangers_were_read_but_of_trusted_servers(
    house: House,
) -> None:
    async with house.run(shy={"ask": True}, friend={"ask": True, "trust": True}):
        shy, friend = await house.has("mcp__shy__echo"), await house.has("mcp__friend__echo")
        rules = []
        for tool, tainted in [(shy, False), (shy, True), (friend, False), (friend, True)]:
            ask = await tool.check({}, house.context(tainted=tainted))
            assert ask is not None
            rules.append(ask.rule)
        assert rules[0]
        assert rules[1] == ""
        assert rules[2] == rules[3] != ""


async def test_only_a_trusted_server_is_believed_that_its_tools_only_read(house: House) -> None:
    async with house.run(friend={"trust": True}, stranger={}):
        assert (await house.has("mcp__friend__echo")).replay is Replay.SAFE
        assert (await house.has("mcp__friend__die")).replay is Replay.ONCE
        stranger = await house.has("mcp__stranger__echo")
        assert (stranger.replay, stranger.taints({}), stranger.group) == (Replay.ONCE, True, "plugins")


async def test_tools_are_there_from_the_first_turn_and_no_server_runs_before_it_is_called(
    house: House,
) -> None:
    async with house.run(rough={}):
        await house.has("mcp__rough__echo")
        before = house.box.specs(house.context().situation)
    house.tools.clear()
    async with house.run(rough={}) as servers:
        assert house.box.specs(house.context().situation) == before
        assert servers.status() == {"rough": "not started"}
        assert await said(await house.call("mcp__rough__echo", text="hi")) == "hi"
        assert servers.status() == {"rough": "up"}
        assert house.box.specs(house.context().situation) == before


async def test_what_another_program_offered_is_not_taken_for_what_this_one_does(house: House) -> None:
    async with house.run(rough={}):
        await house.has("mcp__rough__echo")
    house.tools.clear()
    async with house.run(rough={"args": [ROUGH, "many"]}):
        await house.has("mcp__rough__t000")
        assert "mcp__rough__echo" not in house.tools


async def test_a_memory_that_can_not_be_read_is_asked_for_again(house: House) -> None:
    async with house.run(rough={}):
        await house.has("mcp__rough__echo")
    [file] = (house.home / "mcp").glob("*.json")
    for text in ("", "[]", '{"key": 1}', file.read_text().replace('"tools"', '"no"')):
        file.write_text(text)
        house.tools.clear()
        async with house.run(rough={}):
            await house.has("mcp__rough__echo")


async def test_an_old_memory_is_renewed_without_a_call(tmp_path: Path) -> None:
    clock = FakeClock()
    house = House(tmp_path, clock=clock)
    async with house.run(rough={"idle": "0m"}):
        await house.has("mcp__rough__echo")
    clock.time += 2 * 86_400
    async with house.run(rough={"idle": "0m"}):
        await house.state("rough", "up")


async def test_a_server_that_learns_something_has_the_tool_at_once(house: House) -> None:
    async with house.run(rough={}):
        await house.call("mcp__rough__learn", what="fly")
        assert await said(await house.call("mcp__rough__fly")) == "fly"


async def test_only_the_tools_that_the_configuration_lets_through_are_there(house: House) -> None:
    async with house.run(rough={"allow": ["ec*", "die"], "deny": ["die"]}):
        await house.has("mcp__rough__echo")
        assert list(house.tools) == ["mcp__rough__echo"]


async def test_a_server_that_dies_in_a_call_is_begun_again_and_the_call_is_not(house: House) -> None:
    async with house.run(rough={}):
        first = await said(await house.call("mcp__rough__pid"))
        died = await house.call("mcp__rough__die")
        assert died.is_error
        assert "It may have had an effect" in died.text
        assert "lost during the call" in died.text
        assert await said(await house.call("mcp__rough__pid")) != first


async def test_a_server_that_fails_at_its_start_is_tried_later_and_later(tmp_path: Path) -> None:
    clock = FakeClock()
    house = House(tmp_path, clock=clock)
    async with house.run(rough={"args": [ROUGH, "counts"], "idle": "0m"}):
        assert await said(await house.call("mcp__rough__echo", text="at last")) == "at last"
    assert [round(seconds) for seconds in clock.slept][:2] == [1, 2]


async def test_a_server_that_is_down_is_listed_with_the_reason_and_calls_say_it(
    house: House, caplog: pytest.LogCaptureFixture
) -> None:
    async with house.run(rough={}):
        await house.has("mcp__rough__echo")
    house.tools.clear()
    [file] = (house.home / "mcp").glob("*.json")
    kept = json.loads(file.read_text())
    async with house.run(rough={"args": [ROUGH, "fails"]}):
        await house.state("rough", "down")
    key = json.loads(file.read_text())["key"] if file.exists() else kept["key"]
    assert key == kept["key"]  # what failed has not replaced what was known
    [record] = [one for one in caplog.records if one.getMessage() == "mcp.down"][:1]
    assert record.__dict__["said"] == "no licence: set KEY"


async def test_a_missing_program_and_a_silent_one_do_not_keep_others_from_working(house: House) -> None:
    async with house.run(
        missing={"command": "no-such-program-anywhere"}, dumb={"args": [ROUGH, "silent"]}, rough={}
    ):
        assert await said(await house.call("mcp__rough__echo", text="hi")) == "hi"
        assert await house.state("missing", "down") == (
            "down (there is no program 'no-such-program-anywhere' that can be run)"
        )
        assert await house.state("dumb", "starting")


async def test_a_server_that_is_never_ready_is_given_up_and_ended(tmp_path: Path) -> None:
    one = settings(dumb={"args": [ROUGH, "silent"]}).servers["dumb"]
    where = target("dumb", one, tmp_path, dict(os.environ))
    server = Server(
        name="dumb",
        connect=functools.partial(connected, where),
        clock=SystemClock(),
        found=lambda _: None,
        ready_within=0.5,
    )
    server.start(now=True)
    await until(lambda: server.state == "down")
    assert server.problem == "it was not ready within 0.5 seconds"
    await server.close()


async def test_a_call_without_an_answer_ends_at_its_time_and_others_go_on(house: House) -> None:
    async with house.run(slow={"timeout": 1}, rough={}):
        await house.has("mcp__rough__echo")
        slow, quick = await asyncio.gather(
            house.call("mcp__slow__hang"), house.call("mcp__rough__echo", text="hi")
        )
    assert slow.is_error
    assert "no answer in time; it may have had an effect" in slow.text
    assert not quick.is_error


async def test_a_server_that_answers_nothing_any_more_is_begun_again(house: House) -> None:
    async with house.run(slow={"timeout": 1}):
        first = await said(await house.call("mcp__slow__pid"))
        for _ in range(2):
            assert (await house.call("mcp__slow__hang")).is_error
        assert await said(await house.call("mcp__slow__pid")) != first


async def test_a_server_that_is_only_slow_to_answer_a_call_goes_on(house: House) -> None:
    async with house.run(slow={"timeout": 1}):
        first = await said(await house.call("mcp__slow__pid"))
        for _ in range(3):
            assert (await house.call("mcp__slow__forget")).is_error
        assert await said(await house.call("mcp__slow__pid")) == first


@pytest.mark.parametrize("tool", ["refuse", "wrong"])
async def test_an_answer_that_is_an_error_or_none_at_all_becomes_an_error(house: House, tool: str) -> None:
    async with house.run(rough={}) as servers:
        entry = await house.call(f"mcp__rough__{tool}")
        assert entry.is_error
        assert servers.status() == {"rough": "up"}
        if tool == "refuse":
            assert "no such city" in entry.text
            assert "<<<untrusted" in entry.text


async def test_lines_that_are_no_messages_are_passed_over(house: House) -> None:
    async with house.run(rough={}):
        assert await said(await house.call("mcp__rough__garbage")) == "done"


async def test_a_line_without_end_ends_the_server_and_not_the_gateway(house: House) -> None:
    async with house.run(rough={}):
        entry = await house.call("mcp__rough__large")
        assert entry.is_error
        assert "bytes" in entry.text
        assert await said(await house.call("mcp__rough__echo", text="hi")) == "hi"


async def test_what_it_says_beside_the_protocol_is_in_the_log(
    house: House, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with house.run(rough={}):
        await house.call("mcp__rough__speak", text="y" * 5000)
        await house.call("mcp__rough__speak", text="warming up")
        await until(lambda: any(one.__dict__.get("text") == "warming up" for one in caplog.records))
    assert all(len(one.__dict__.get("text", "")) <= 4096 for one in caplog.records)


async def test_a_secret_of_the_configuration_is_not_in_what_is_said_of_a_server(house: House) -> None:
    async with house.run(rough={"command": "/nowhere/hunter2hunter2"}):
        state = await house.state("rough", "down")
        assert "hunter2hunter2" not in state


async def test_a_server_that_nobody_calls_is_let_go_and_begun_again(tmp_path: Path) -> None:
    house = House(tmp_path)
    async with house.run(rough={"idle": "1s"}):
        pid = int(await said(await house.call("mcp__rough__pid")))
        await house.state("rough", "idle")
        await until(lambda: not is_alive(pid))
        assert int(await said(await house.call("mcp__rough__pid"))) != pid


async def test_in_the_end_a_program_is_gone_with_all_it_has_started(house: House) -> None:
    async with house.run(stays={"args": [ROUGH, "stays"]}):
        pids = [
            int(await said(await house.call(f"mcp__stays__{tool}"))) for tool in ("pid", "child", "child")
        ]
        assert all(map(is_alive, pids))
    assert not any(map(is_alive, pids))


async def test_many_calls_at_once_get_each_its_own_answer(house: House) -> None:
    async with house.run(rough={}):
        entries = await asyncio.gather(
            *(house.call("mcp__rough__echo", text=str(number)) for number in range(50))
        )
        assert [await said(entry) for entry in entries] == [str(number) for number in range(50)]


async def test_a_call_that_is_given_up_leaves_the_server_to_others(house: House) -> None:
    async with house.run(rough={"timeout": 1}):
        await house.has("mcp__rough__echo")
        task = asyncio.create_task(house.call("mcp__rough__echo", text="a"))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait({task})
        assert await said(await house.call("mcp__rough__echo", text="b")) == "b"


async def test_a_look_at_all_servers_says_what_they_offer_or_why_they_do_not(tmp_path: Path) -> None:
    wanted = settings(
        rough={"allow": ["echo"]},
        broken={"args": [ROUGH, "fails"]},
        off={"enabled": False},
        many={"args": [ROUGH, "many"], "allow": ["t00*"]},
    )
    text = as_text(await look(wanted, tmp_path, dict(os.environ), SystemClock()))
    lines = text.splitlines()
    assert lines[0] == "broken: down, it has ended (it said: no licence: set KEY)"
    assert lines[1].startswith("many: up in ")
    assert "10 tools" in lines[1]
    assert "  mcp__rough__echo  does echo" in lines
    assert "off: off" in lines


async def test_without_servers_nothing_is_begun_and_nothing_given(house: House) -> None:
    async with house.run() as servers:
        assert servers.status() == {}
        assert house.tools == {}
        assert not (house.home / "mcp").exists()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('[mcp.servers.a]\nargs = ["x"]', "needs either a command"),
        ('[mcp.servers.a]\ncommand = "x"\nurl = "http://x"', "and not both"),
        ('[mcp.servers.a]\nurl = "ftp://x"', "http:// or https://"),
        ('[mcp.servers.a]\nurl = "http://u:p@x/"', "Authorization"),
        ('[mcp.servers.a]\nurl = "http://x/"\nenv = { A = "b" }', "env would do nothing"),
        ('[mcp.servers.a]\ncommand = "x"\nheaders = { A = "b" }', "headers would do nothing"),
        ('[mcp.servers.a]\nurl = "http://x/"\nheaders = { A = "b\\nc" }', "line ends"),
        ('[mcp.servers.a]\nurl = "http://x/"\nheaders = { "a b" = "c" }', "no header's name"),
        ('[mcp.servers.a__b]\ncommand = "x"', "single _ or -"),
        ('[mcp.servers.a]\ncommand = "x"\nallow = ["a b"]', "name of a tool"),
        ('[mcp.servers.a]\ncommand = "x"\nenv = { "A-B" = "c" }', "environment variable"),
        ('[mcp.servers.a]\ncommand = "x"\nidle = "soon"', "number and a unit"),
    ],
)
def test_a_mistake_in_the_configuration_is_told(text: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=r"mcp\.servers\.a") as caught:
        parse(text, {}, Path.cwd())
    assert problem in str(caught.value)


def test_the_command_line_shows_the_servers_without_their_secrets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "config.toml"
    file.write_text(
        f'[mcp.servers.rough]\ncommand = "{sys.executable}"\nargs = ["{ROUGH}", "fails"]\n'
        'env = { KEY = "no licence" }\n'
    )
    monkeypatch.setenv("CRAYFISH_HOME", str(tmp_path))
    assert main(["mcp", "list", "--config", str(file)]) == 0
    assert capsys.readouterr().out == "rough: down, it has ended (it said: ***: set KEY)\n"


@pytest.mark.parametrize(
    ("table", "level", "text"),
    [
        ('command = "no-such-program-anywhere"', "warn", "there is no program"),
        (f'command = "{sys.executable}"', "ok", sys.executable),
        ('url = "http://mcp.example.com/"\nheaders = { A = "b" }', "warn", "without encryption"),
        ('url = "http://127.0.0.1:1/mcp"\nheaders = { A = "b" }', "ok", "http://127.0.0.1:1"),
    ],
)
def test_the_doctor_looks_at_servers_without_starting_them(
    tmp_path: Path, table: str, level: str, text: str
) -> None:
    file = tmp_path / "config.toml"
    file.write_text(f"[http]\nenabled = false\n[mcp.servers.one]\n{table}\n")
    found = doctor.examine(file, {"CRAYFISH_HOME": str(tmp_path)}, tmp_path)
    [finding] = [one for one in found if one.name == "mcp"]
    assert finding.level == level
    assert text in finding.text


def test_without_the_library_the_extra_is_named(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text(f'[http]\nenabled = false\n[mcp.servers.rough]\ncommand = "{sys.executable}"\n')
    program = (
        "import sys; sys.modules['mcp'] = None\nfrom gateway.cli import main; sys.exit(main(sys.argv[1:]))"
    )
    for command in (["run"], ["mcp", "list"]):
        result = subprocess.run(
            [sys.executable, "-c", program, *command, "--config", str(file)],
            cwd=tmp_path,
            env={"HOME": str(tmp_path), "PYTHONPATH": str(ROOT), "PATH": os.environ["PATH"]},
            capture_output=True,
            text=True,
            check=False,
        )
        assert result.returncode == 2
        assert result.stderr.splitlines()[-1].endswith("pip install 'crayfish-gateway[mcp]'")


def test_secrets_of_a_server_are_known_and_plain_words_stay_readable() -> None:
    text = (
        '[mcp.servers.a]\ncommand = "x"\nenv = { TZ = "Europe/Berlin", ROOT = "/data/2024", PAT = "abc123def", '
        'APP_KEY = "swordfish" }\n[mcp.servers.b]\nurl = "http://x/"\nheaders = { Authorization = "Bearer t0psecret" }'
    )
    loaded = parse(text, {}, Path.cwd())
    assert set(secrets(loaded)) == {"abc123def", "swordfish", "Bearer t0psecret", "t0psecret"}
    assert not any(one in shown(loaded) for one in ("Berlin", *secrets(loaded)))
