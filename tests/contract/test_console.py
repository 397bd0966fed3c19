"""The terminal, with a script, a person and a real pseudo-terminal at its ends."""

from __future__ import annotations

import asyncio
import io
import json
import os
import sys
import tempfile
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from adapters import console
from adapters.console import WAITS, Console, Pipe, chat_over_http, harmless
from gateway.channel import Channel
from gateway.clock import SystemClock
from gateway.errors import StoreError
from gateway.feed import Delta, Feed, Restarted, ToolEnded, ToolStarted, TurnEnded, TurnGone, TurnStarted
from gateway.types import Address, Button, Outgoing, Stimulus
from tests.fakes.web_face import MAIN, TOKEN, Face, eventually, face

ROOT = Path(__file__).parents[2]
Talk = Callable[[Stimulus], Awaitable[None]]


@dataclass
class Paper:
    """A terminal in memory: lines are put in, text is read."""

    interactive: bool = False
    shown: str = ""
    closed: bool = False
    queue: asyncio.Queue[str | None] = field(default_factory=asyncio.Queue)

    def put(self, *lines: str | None) -> Paper:
        for line in lines:
            self.queue.put_nowait(line)
        return self

    async def lines(self) -> AsyncGenerator[str, None]:
        while (line := await self.queue.get()) is not None:
            yield line

    def write(self, text: str) -> None:
        self.shown += text

    def close(self) -> None:
        self.closed = True


@dataclass
class Core:
    """Answers each stimulus by a function, as another task, as the real core does."""

    talk: Callable[[Console, Feed, Stimulus], Awaitable[None]]
    feed: Feed = field(default_factory=Feed)
    taken: list[Stimulus] = field(default_factory=list)
    tasks: list[asyncio.Task[None]] = field(default_factory=list)
    broken: bool = False
    channel: Console | None = None

    async def accept(self, stimuli: Sequence[Stimulus], cursor: object = None, poison: object = ()) -> None:
        if self.broken:
            raise StoreError("disk full")
        assert self.channel
        for stimulus in stimuli:
            self.taken.append(stimulus)
            self.tasks.append(asyncio.create_task(self.run(self.talk(self.channel, self.feed, stimulus))))

    async def run(self, talk: Awaitable[None]) -> None:
        await talk

    async def chat(self, paper: console.Terminal) -> None:
        self.channel = Console(feed=self.feed, clock=SystemClock(), terminal=paper)
        await self.channel.listen(self.accept)
        await asyncio.gather(*self.tasks)
        await self.channel.close()


async def say(channel: Console, text: str, key: str = "turn:1", session: str = "main") -> None:
    await channel.send(Outgoing(key=key, address=Address("console", session), text=text))


async def echo(channel: Console, feed: Feed, stimulus: Stimulus) -> None:
    feed.publish(stimulus.address, TurnStarted())
    feed.publish(stimulus.address, Delta(f"you said {stimulus.text}"))
    feed.publish(stimulus.address, TurnEnded(f"you said {stimulus.text}", (stimulus.key,)))
    await asyncio.sleep(0)
    await say(channel, f"you said {stimulus.text}")


async def test_a_script_gets_only_replies_in_order_and_an_end() -> None:
    paper, core = Paper().put("one", "", "  ", "two", None), Core(echo)
    await core.chat(paper)
    assert paper.shown == "you said one\nyou said two\n"
    assert paper.closed
    assert [one.address for one in core.taken] == [Address("console", "main")] * 2
    assert len({one.key for one in core.taken}) == 2


async def test_a_script_waits_for_each_answer_before_the_next_line() -> None:
    order: list[str] = []

    async def slow(channel: Console, feed: Feed, stimulus: Stimulus) -> None:
        order.append(f"asked {stimulus.text}")
        for _ in range(20):
            await asyncio.sleep(0)
        order.append(f"answered {stimulus.text}")
        await echo(channel, feed, stimulus)

    await Core(slow).chat(Paper().put("1", "2", None))
    assert order == ["asked 1", "answered 1", "asked 2", "answered 2"]


async def test_a_script_goes_on_after_silence_and_after_a_command() -> None:
    async def talk(channel: Console, feed: Feed, stimulus: Stimulus) -> None:
        if stimulus.text == "/help":
            await say(channel, "commands: …", key=f"command:{stimulus.key}")
        else:
            feed.publish(stimulus.address, TurnEnded("", (stimulus.key,)))

    paper = Paper().put("hush", "/help", None)
    await Core(talk).chat(paper)
    assert paper.shown == "commands: …\n"


async def test_a_reply_that_is_delivered_before_its_turn_is_announced_counts() -> None:
    async def talk(channel: Console, feed: Feed, stimulus: Stimulus) -> None:
        await say(channel, "early")
        feed.publish(stimulus.address, TurnEnded("early", (stimulus.key,)))

    paper = Paper().put("x", None)
    await Core(talk).chat(paper)
    assert paper.shown == "early\n"


async def test_exit_ends_the_talk() -> None:
    paper, core = Paper().put("one", " /exit ", "never"), Core(echo)
    await core.chat(paper)
    assert len(core.taken) == 1


async def test_a_script_hears_of_a_broken_store() -> None:
    core = Core(echo, broken=True)
    with pytest.raises(StoreError):
        await core.chat(Paper().put("one", None))


async def test_a_person_sees_a_turn_as_it_happens_and_its_reply_once() -> None:
    async def talk(channel: Console, feed: Feed, stimulus: Stimulus) -> None:
        here = stimulus.address
        for event in (
            TurnStarted(),
            Delta("I loo"),
            Restarted(),
            Delta("I look "),
            Delta("first."),
            ToolStarted("read_file", {"path": "a.txt", "text": "x\n" * 200}),
            ToolEnded("read_file", is_error=False),
            Delta("It is "),
            Delta("42."),
            TurnEnded("It is 42.", (stimulus.key,)),
        ):
            feed.publish(here, event)
        await say(channel, "It is 42.")
        await say(channel, "not streamed")
        await say(channel, "from elsewhere", session="work")
        channel.terminal.put(None)  # type: ignore[attr-defined]  # it is a Paper here

    paper = Paper(interactive=True).put("how many?")
    await Core(talk).chat(paper)
    cut = ("path=a.txt text=" + "x " * 200)[:100]
    assert paper.shown == (
        f"I loo\n> once more\nI look first.\n> read_file: {cut}…\nIt is 42.\nnot streamed\n[work] from elsewhere\n"
    )


@pytest.mark.parametrize(
    ("streamed", "final", "shown"),
    [
        pytest.param(["It is "], "It is 42.", "It is 42.\n", id="last-word-held-back"),
        pytest.param(
            ["It", " is"], "It is 42.\n\nReally.", "It is 42.\n\nReally.\n", id="last-lines-held-back"
        ),
        pytest.param(["\n It is 42.\n"], "It is 42.", "\n It is 42.\n", id="white-space-taken-off"),
        pytest.param(["one\n\n"], "one\n\ntwo", "one\n\ntwo\n", id="white-space-shown-already"),
        pytest.param(
            ["The key is "], "A key was removed.", "The key is \nA key was removed.\n", id="another"
        ),
        pytest.param(["  "], "It is 42.", "  \nIt is 42.\n", id="nothing-yet"),
        pytest.param(["It is"], "", "It is\n", id="silence"),
    ],
)
@pytest.mark.parametrize("early", [False, True], ids=["announced", "delivered-first"])
async def test_only_what_was_not_streamed_is_added(
    streamed: list[str], final: str, shown: str, early: bool
) -> None:
    async def talk(channel: Console, feed: Feed, stimulus: Stimulus) -> None:
        for text in streamed:
            feed.publish(stimulus.address, Delta(text))
        if final and early:
            await say(channel, final)
        feed.publish(stimulus.address, TurnEnded(final, (stimulus.key,)))
        if final and not early:
            await asyncio.sleep(0)
            await say(channel, final)
        channel.terminal.put(None)  # type: ignore[attr-defined]  # it is a Paper here

    paper = Paper(interactive=True).put("how many?")
    await Core(talk).chat(paper)
    assert paper.shown == shown


CARD: dict[str, Any] = {
    "name": "approval:abcd",
    "buttons": [[["Allow once", "approve:abcd"], ["Deny", "deny:abcd"]]],
}


async def test_a_script_that_would_have_to_allow_something_is_shown_the_question_and_ends() -> None:
    async def talk(channel: Console, feed: Feed, stimulus: Stimulus) -> None:
        feed.publish(stimulus.address, TurnStarted())
        feed.publish(stimulus.address, TurnGone("1.1"))
        await channel.send(
            Outgoing(
                key="approval:abcd",
                address=stimulus.address,
                text="May I?",
                buttons=((Button("Deny", "deny:abcd"),),),
            )
        )

    paper, core = Paper().put("uptime", "never sent", None), Core(talk)
    await core.chat(paper)
    assert paper.shown == "May I?\n"
    assert len(core.taken) == 1
    assert core.channel
    assert core.channel.code == WAITS


@pytest.mark.parametrize("again", [False, True], ids=["told now", "told before"])
async def test_a_script_whose_line_waits_for_tomorrow_is_told_and_ends(
    again: bool,
) -> None:
    async def talk(channel: Console, feed: Feed, stimulus: Stimulus) -> None:
        feed.publish(stimulus.address, TurnStarted())
        feed.publish(stimulus.address, TurnGone("1.1", "Not before tomorrow.", (stimulus.key,)))
        if not again:
            await say(channel, "Not before tomorrow.", key="limit:2026-05-06:1")

    paper, core = Paper().put("hello", "never sent", None), Core(talk)
    await core.chat(paper)
    assert paper.shown == "Not before tomorrow.\n"
    assert len(core.taken) == 1
    assert core.channel
    assert core.channel.code == WAITS


async def test_buttons_of_a_message_are_no_question() -> None:
    async def talk(channel: Console, feed: Feed, stimulus: Stimulus) -> None:
        tea = ((Button("Tea", "tea"),),)
        await channel.send(Outgoing(key="call:1", address=stimulus.address, text="Tea?", buttons=tea))
        await echo(channel, feed, stimulus)

    paper, core = Paper().put("one", "two", None), Core(talk)
    await core.chat(paper)
    assert paper.shown == "Tea?\nyou said one\nTea?\nyou said two\n"
    assert core.channel
    assert core.channel.code == 0


async def test_a_person_sees_the_plan_of_a_longer_task() -> None:
    async def talk(channel: Console, feed: Feed, stimulus: Stimulus) -> None:
        for event in (
            ToolStarted("todo", {}),
            ToolEnded("todo", is_error=False, plan="[x] read\n[>] mend"),
            TurnEnded("Done.", (stimulus.key,)),
        ):
            feed.publish(stimulus.address, event)
        await say(channel, "Done.")
        channel.terminal.put(None)  # type: ignore[attr-defined]  # it is a Paper here

    paper = Paper(interactive=True).put("mend it")
    await Core(talk).chat(paper)
    assert paper.shown == "> todo\n  [x] read\n  [>] mend\nDone.\n"


@pytest.mark.parametrize("command", [True, False], ids=["answered-here", "answered-elsewhere"])
async def test_what_became_of_a_question_is_said_in_one_line(command: bool) -> None:
    async def talk(channel: Console, feed: Feed, stimulus: Stimulus) -> None:
        if command:
            await say(channel, "Denied: run a command", key=f"command:{stimulus.key}")
        await channel.send(
            Outgoing(
                key="approval:1:settled",
                address=Address("console", "main"),
                text="**Denied:** run a command\n\n```\nrm -rf build\n```",
                replaces="approval:1",
            )
        )
        channel.terminal.put(None)  # type: ignore[attr-defined]  # it is a Paper here

    paper = Paper(interactive=True).put("/deny")
    await Core(talk).chat(paper)
    assert paper.shown == "Denied: run a command\n"


async def test_a_persons_lines_go_in_while_a_turn_runs() -> None:
    async def talk(channel: Console, feed: Feed, stimulus: Stimulus) -> None:
        if stimulus.text == "/stop":
            await say(channel, "stopped", key=f"command:{stimulus.key}")
            channel.terminal.put(None)  # type: ignore[attr-defined]  # it is a Paper here

    paper = Paper(interactive=True).put("long work", "/stop")
    await Core(talk).chat(paper)
    assert paper.shown == "stopped\n"


async def test_a_person_may_try_again_when_the_store_is_broken() -> None:
    paper = Paper(interactive=True).put("one", None)
    await Core(echo, broken=True).chat(paper)
    assert paper.shown == "! The database can't take it now. Send it again.\n"


async def test_the_console_is_a_channel() -> None:
    channel: Channel = Console(feed=Feed(), clock=SystemClock(), session="work", terminal=Paper())
    assert channel.name == "console"
    assert channel.pieces("x" * 100_000) == ["x" * 100_000]
    assert channel.status() == {"session": "work"}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        pytest.param("\x1b[2J\x1b[1;1Hfake prompt", "␛[2J␛[1;1Hfake prompt", id="text-001"),
        pytest.param("a\x1b]52;c;ZXZpbA==\x07b", "ab", id="text-003"),
        pytest.param("a\x9d52;c;ZXZpbA==\x9cb", "ab", id="text-003-c1"),
        pytest.param("a\x1bPq#0\x1b\\b", "ab", id="dcs"),
        pytest.param("\x9b31m red", "31m red", id="text-004"),
        pytest.param("open \x1b]0;title", "open ␛]0;title", id="unfinished"),
        ("a\rb\x08c\x7fd\x00\te\nf", "abcd\te\nf"),
        ("grüße 🦞 שלום", "grüße 🦞 שלום"),
    ],
)
async def test_a_model_cannot_steer_the_terminal(text: str, shown: str) -> None:
    assert harmless(text) == shown
    paper = Paper(interactive=True)
    channel = Console(feed=Feed(), clock=SystemClock(), terminal=paper)
    await say(channel, text)
    assert paper.shown == shown + "\n"


async def test_a_pipe_is_read_without_a_thread_and_a_file_too() -> None:
    read, write = os.pipe()
    os.write(write, "erste\r\nzweite ü\nlast without end".encode())
    os.close(write)
    with os.fdopen(read) as source:
        assert [line async for line in Pipe(source, io.StringIO()).lines()] == [
            "erste",
            "zweite ü",
            "last without end",
        ]
    with tempfile.TemporaryFile("w+") as file:
        file.write("one\ntwo")
        file.seek(0)
        assert [line async for line in Pipe(file, io.StringIO()).lines()] == ["one", "two"]


SCRIPT = """
import asyncio
from adapters.console import WAITS, Console
from gateway.clock import SystemClock
from gateway.feed import Delta, Feed, TurnEnded
from gateway.types import Outgoing

async def main():
    feed = Feed()
    console = Console(feed=feed, clock=SystemClock())
    async def accept(stimuli, cursor=None, poison=()):
        for one in stimuli:
            feed.publish(one.address, Delta("you "))
            await asyncio.sleep(0)
            feed.publish(one.address, Delta("said " + one.text))
            feed.publish(one.address, TurnEnded("you said " + one.text, (one.key,)))
            await console.send(Outgoing(key=one.key, address=one.address, text="you said " + one.text))
    await console.listen(accept)
    await console.close()
    print("bye")

asyncio.run(main())
"""


@pytest.mark.parametrize(
    ("redirect", "shown"),
    [
        pytest.param("< /dev/null", "bye\n", id="null"),
        pytest.param("< {file}", "you said hello\nyou said b\ufffdr\nbye\n", id="file"),
        pytest.param("<&-", "bye\n", id="closed"),
    ],
)
async def test_input_that_the_loop_cannot_watch_is_read_to_its_end(
    redirect: str, shown: str, tmp_path: Path
) -> None:
    (tmp_path / "lines").write_bytes(b"hello\nb\xe4r\n")
    command = f'exec "$0" -c "$1" {redirect.format(file=tmp_path / "lines")}'
    process = await asyncio.create_subprocess_exec(
        *("sh", "-c", command, sys.executable, SCRIPT),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    try:
        async with asyncio.timeout(30):
            out, err = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert (out.decode(), err.decode(), process.returncode) == (shown, "", 0)


async def test_a_person_types_at_a_real_terminal() -> None:
    pty = pytest.importorskip("pty")
    outer, inner = pty.openpty()
    env = {**os.environ, "PYTHONPATH": str(ROOT), "TERM": "dumb"}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", SCRIPT, stdin=inner, stdout=inner, stderr=inner, env=env
    )
    os.close(inner)
    seen = ""

    async def until(text: str) -> None:
        nonlocal seen
        while text not in seen:
            seen += (await asyncio.to_thread(os.read, outer, 4096)).decode()
        seen = seen.partition(text)[2]

    try:
        await until("you> ")
        os.write(outer, b"hello\n")
        await until("you said hello\r\n")
        await until("you> ")
        os.write(outer, b"\x04")
        await until("bye")
        assert await process.wait() == 0
    finally:
        os.close(outer)
        if process.returncode is None:
            process.kill()
            await process.wait()


def answering(at: Face) -> Talk:
    async def answer(stimulus: Stimulus) -> None:
        text = f"you said {stimulus.text}"
        at.feed.publish(stimulus.address, Delta("you said "))
        at.feed.publish(stimulus.address, Delta(stimulus.text))
        at.feed.publish(stimulus.address, TurnEnded(text, (stimulus.key,)))
        await at.send(text, session=stimulus.address.chat)

    return answer


async def test_a_script_talks_with_a_running_gateway() -> None:
    async with face(token=TOKEN) as at:
        at.core.on_stimulus = answering(at)
        paper = Paper().put("one", "two", None)
        assert await chat_over_http(at.web.url, TOKEN, "work", paper) == 0
        assert paper.shown == "you said one\nyou said two\n"
        assert [one.address for one in at.core.taken.values()] == [Address("web", "work")] * 2


async def test_a_person_talks_with_a_running_gateway() -> None:
    async with face(token=TOKEN) as at:
        at.core.on_stimulus = answering(at)
        paper = Paper(interactive=True)
        talk = asyncio.create_task(chat_over_http(at.web.url, TOKEN, "main", paper))
        await eventually(lambda: at.web.status()["watching"] == 1)
        paper.put("hello")
        await eventually(lambda: "you said hello\n" in paper.shown)
        await at.send("an alert")
        await eventually(lambda: "an alert\n" in paper.shown)
        await at.send("one\u2028two")
        await eventually(lambda: "one\u2028two\n" in paper.shown)
        at.feed.publish(MAIN, ToolEnded("todo", is_error=False, plan="[>] mend"))
        await at.send("**Denied:** it\n\nrm", replaces="approval:1")
        await eventually(lambda: "Denied: it\n" in paper.shown)
        paper.put("/exit")
        assert await talk == 0
        assert paper.shown == "you said hello\nan alert\none\u2028two\n  [>] mend\nDenied: it\n"


async def test_a_long_turn_of_a_running_gateway_is_awaited() -> None:
    async with face(patience=0.01) as at:
        paper = Paper().put("think", None)
        talk = asyncio.create_task(chat_over_http(at.web.url, "", "main", paper))
        await eventually(lambda: bool(at.core.taken))
        (key,) = at.core.taken
        at.core.answers[key] = "thought about it"
        assert await talk == 0
        assert paper.shown == "thought about it\n"
        assert len(at.core.taken) == 1


async def test_a_script_is_shown_the_question_of_a_running_gateway_and_ends() -> None:
    async with face() as at:

        async def wait(stimulus: Stimulus) -> None:
            at.core.questions_of[stimulus.key] = {"text": "May I?", **CARD}
            at.feed.publish(stimulus.address, TurnGone("1.1"))

        at.core.on_stimulus = wait
        paper = Paper().put("uptime", "never sent", None)
        assert await chat_over_http(at.web.url, "", "main", paper) == WAITS
        assert paper.shown == "May I?\n"
        assert len(at.core.taken) == 1


async def test_a_script_is_told_by_a_running_gateway_that_the_day_is_used_up_and_ends() -> None:
    async with face() as at:

        async def put_off(stimulus: Stimulus) -> None:
            at.core.notices[stimulus.key] = "Not before tomorrow."
            at.feed.publish(stimulus.address, TurnGone("1.1"))

        at.core.on_stimulus = put_off
        paper = Paper().put("hello", "never sent", None)
        assert await chat_over_http(at.web.url, "", "main", paper) == WAITS
        assert paper.shown == "Not before tomorrow.\n"
        assert len(at.core.taken) == 1


async def test_a_person_sees_a_long_reply_of_a_running_gateway_once() -> None:
    async with face() as at:

        async def answer(stimulus: Stimulus) -> None:
            at.feed.publish(stimulus.address, Delta("It is "))
            at.feed.publish(stimulus.address, TurnEnded("It is 42.", (stimulus.key,)))
            await at.send("It is 42.")

        at.core.on_stimulus = answer
        paper = Paper(interactive=True)
        talk = asyncio.create_task(chat_over_http(at.web.url, "", "main", paper))
        await eventually(lambda: at.web.status()["watching"] == 1)
        paper.put("how many?")
        await eventually(lambda: "42.\n" in paper.shown)
        await at.send("an alert")
        await eventually(lambda: "an alert\n" in paper.shown)
        paper.put("/exit")
        assert await talk == 0
        assert paper.shown == "It is 42.\nan alert\n"


async def test_a_refused_token_is_said() -> None:
    async with face(token=TOKEN, auth=False) as at:
        for interactive in (False, True):
            paper = Paper(interactive=interactive).put("hello")
            assert await chat_over_http(at.web.url, "wrong", "main", paper) == 1
            assert "! the token is wrong\n" in paper.shown
            assert paper.closed


def test_the_table_of_attacks_is_the_one_we_know() -> None:
    data: Any = ROOT.parent / "shared/cases/attacks.jsonl"
    if not data.exists():
        pytest.skip("the attack table is not beside this checkout")
    rows = {row["id"]: row for row in map(json.loads, data.read_text().splitlines())}
    assert harmless(rows["text-003"]["input"]["text"]) == ""
    assert "\x1b" not in harmless(rows["text-001"]["input"]["text"])
    assert "\x9b" not in harmless(rows["text-004"]["input"]["text"])
