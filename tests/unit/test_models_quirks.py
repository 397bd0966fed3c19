"""One check for each row of the table of provider quirks (models 2.3), against a provider on loopback."""

from __future__ import annotations

import itertools
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import pytest

from gateway.clock import SystemClock
from gateway.errors import ModelBusy, ModelRefused
from gateway.models.anthropic import Anthropic
from gateway.models.base import Model, Prompt, Reply
from gateway.models.calls import CUT
from gateway.models.http import Endpoint, Timeouts
from gateway.models.ollama import Ollama
from gateway.models.openai import OpenAI
from gateway.types import (
    AssistantEntry,
    Chat,
    Entry,
    JsonObject,
    Kind,
    Sender,
    ToolCall,
    ToolEntry,
    ToolSpec,
    Usage,
    UserEntry,
)
from tests.fakes.model_api import (
    Answer,
    FakeModelApi,
    Request,
    deltas,
    json_body,
    reply,
    serving,
    sse,
    stream,
)

ANN = Sender("7", "Ann")
HELLO = UserEntry("hello", ANN, Kind.MESSAGE, 1_772_260_200.0)
F = ToolSpec(
    "f", "Does f.", {"type": "object", "properties": {"x": {"type": "integer", "exclusiveMinimum": 0}}}
)
G = ToolSpec("g", "Does g.", {"type": "object", "properties": {}})
PROMPT = Prompt(system="You are a bot.", context="Today is Saturday.", entries=(HELLO,), tools=(G, F))


@dataclass(slots=True)
class Bench:
    """A fake provider and the models that were opened on it."""

    fake: FakeModelApi
    opened: list[Model] = field(default_factory=list)

    def openai(self, model: str = "m", timeouts: Timeouts | None = None) -> OpenAI:
        opened = OpenAI(self._endpoint(model, timeouts), SystemClock())
        self.opened.append(opened)
        return opened

    def anthropic(self, model: str = "m") -> Anthropic:
        opened = Anthropic(self._endpoint(model, None), SystemClock())
        self.opened.append(opened)
        return opened

    def ollama(self, *, tools: bool = True) -> Ollama:
        opened = Ollama(self._endpoint("m", None), SystemClock(), context=8192, tools=tools)
        self.opened.append(opened)
        return opened

    def _endpoint(self, model: str, timeouts: Timeouts | None) -> Endpoint:
        return Endpoint(base_url=self.fake.url, model=model, provider="p", timeouts=timeouts or Timeouts())

    async def streamed(self, *parts: JsonObject, finish: str | None = "tool_calls") -> Reply:
        """Return what comes of these deltas."""
        self.fake.play(deltas(*parts, finish=finish))
        return await self.openai().reply(PROMPT)

    async def sent(self, prompt: Prompt, model: str = "m") -> JsonObject:
        """Return the body in which a prompt goes out."""
        self.fake.play(reply("openai", "ok"))
        await self.openai(model).reply(prompt)
        return self.fake.bodies[-1]

    def picky(self, refuses: Callable[[JsonObject], bool], said: str) -> None:
        """Refuse bodies with 400 and a text, answer all others."""

        def answer(request: Request) -> Answer:
            return (
                json_body({"error": {"message": said}}, 400)
                if refuses(request.body)
                else reply("openai", "ok")
            )

        self.fake.otherwise = answer


Check: TypeAlias = Callable[[Bench], Awaitable[None]]
CHECKS: list[tuple[str, Check]] = []


def row(number: int, who: str) -> Callable[[Check], Check]:
    """Name the row that a check belongs to."""

    def keep(check: Check) -> Check:
        CHECKS.append((f"quirk-{number:02}-{who}", check))
        return check

    return keep


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    async with serving() as fake:
        made = Bench(fake)
        yield made
        for model in made.opened:
            await model.close()


def piece(
    index: int | None = None,
    call_id: str | None = None,
    name: str | None = None,
    args: Any = None,
    **more: Any,
) -> JsonObject:
    """Return a delta with one piece of a tool call; what is None is left out."""
    function = {key: value for key, value in (("name", name), ("arguments", args)) if value is not None}
    ids = {key: value for key, value in (("index", index), ("id", call_id)) if value is not None}
    return {"tool_calls": [{**ids, "type": "function", "function": function, **more}]}


def made(answer: Reply) -> list[tuple[str, JsonObject]]:
    """Return the calls of a reply that could be read."""
    assert all(call.problem is None for call in answer.entry.calls)
    return [(call.name, call.args) for call in answer.entry.calls]


def pair(call: ToolCall, model: str = "p/m", *, reasoning: str = "", text: str = "") -> tuple[Entry, Entry]:
    """Return an assistant entry with one call, and its result."""
    return AssistantEntry(text, (call,), reasoning, model), ToolEntry(call.id, call.name, "r")


def with_entries(*entries: Entry) -> Prompt:
    return replace(PROMPT, entries=(HELLO, *entries))


@row(1, "openai-pieces-by-index")
async def _(bench: Bench) -> None:
    answer = await bench.streamed(
        piece(0, "a", "f", ""), piece(0, args='{"x"'), piece(0, args=":1}"), piece(1, "b", "g", "{}")
    )
    assert made(answer) == [("f", {"x": 1}), ("g", {})]
    assert [call.id for call in answer.entry.calls] == ["a", "b"]


@row(2, "ollama-index-always-0")
async def _(bench: Bench) -> None:
    answer = await bench.streamed(piece(0, "a", "f", '{"x":1}'), piece(0, "b", "f", '{"x":2}'))
    assert made(answer) == [("f", {"x": 1}), ("f", {"x": 2})]


@row(3, "gemini-no-index")
async def _(bench: Bench) -> None:
    both = [*piece(None, "a", "f", '{"x":1}')["tool_calls"], *piece(None, "b", "g", "{}")["tool_calls"]]
    assert made(await bench.streamed({"tool_calls": both})) == [("f", {"x": 1}), ("g", {})]
    apart = await bench.streamed(piece(None, "a", "f", '{"x":1}'), piece(None, "b", "g", "{}"))
    assert made(apart) == [("f", {"x": 1}), ("g", {})]
    nameless = [
        *piece(None, None, "f", '{"x":1}')["tool_calls"],
        *piece(None, None, "f", '{"x":2}')["tool_calls"],
    ]
    assert made(await bench.streamed({"tool_calls": nameless})) == [("f", {"x": 1}), ("f", {"x": 2})]


@row(4, "gemini-thought-signature")
async def _(bench: Bench) -> None:
    seal = {"google": {"thought_signature": "S"}}
    called = (await bench.streamed(piece(0, "a", "f", "{}", extra_content=seal))).entry
    result = ToolEntry("a", "f", "r")
    own = await bench.sent(with_entries(called, result))
    other = await bench.sent(with_entries(called, result), model="another")
    assert own["messages"][-2]["tool_calls"][0]["extra_content"] == seal
    assert "extra_content" not in str(other)


@row(5, "dashscope-empty-id-and-name")
async def _(bench: Bench) -> None:
    answer = await bench.streamed(piece(0, "a", "f", '{"x"'), piece(0, "", "", ":1}"))
    assert made(answer) == [("f", {"x": 1})]
    assert answer.entry.calls[0].id == "a"


@row(6, "proxy-repeats-id-and-name")
async def _(bench: Bench) -> None:
    answer = await bench.streamed(
        piece(0, "a", "f", '{"x"'), piece(0, "a", "f", ":1}"), piece(0, "a", "f", "")
    )
    assert made(answer) == [("f", {"x": 1})]
    no_id = await bench.streamed(
        piece(0, None, "f", '{"x"'), piece(0, None, "f", ":1}"), piece(0, None, "f", "")
    )
    assert made(no_id) == [("f", {"x": 1})]


@row(7, "claude-by-proxy-empty-arguments")
async def _(bench: Bench) -> None:
    answer = await bench.streamed(piece(0, "a", "g", ""))
    assert made(answer) == [("g", {})]
    body = await bench.sent(with_entries(answer.entry, ToolEntry("a", "g", "r")))
    assert body["messages"][-2]["tool_calls"][0]["function"]["arguments"] == "{}"


@row(8, "arguments-as-object")
async def _(bench: Bench) -> None:
    assert made(await bench.streamed(piece(0, "a", "f", {"x": 1}))) == [("f", {"x": 1})]


@row(9, "arguments-encoded-twice")
async def _(bench: Bench) -> None:
    assert made(await bench.streamed(piece(0, "a", "f", '"{\\"x\\":1}"'))) == [("f", {"x": 1})]


@row(10, "ids-missing-or-doubled")
async def _(bench: Bench) -> None:
    for pieces in (
        [piece(0, "", "f", '{"x":1}'), piece(1, None, "g", "{}")],
        [piece(0, "a", "f", '{"x":1}'), piece(1, "a", "g", "{}")],
        [piece(None, "a", "f", '{"x":1}'), piece(None, "a", "g", "{}")],
    ):
        answer = await bench.streamed(*pieces)
        assert made(answer) == [("f", {"x": 1}), ("g", {})]
        ids = [call.id for call in answer.entry.calls]
        assert len(set(ids)) == 2
        assert re.fullmatch("[a-f0-9]{9}", ids[1])


@row(11, "mistral-ids-of-nine")
async def _(bench: Bench) -> None:
    turn = with_entries(*pair(ToolCall("call_x", "f")), *pair(ToolCall("abcdefgh9", "f")))
    for body in (
        await bench.sent(turn, model="mistral-small"),
        await _after_lesson(
            bench, turn, "Tool call id was call_y but must be a-z, A-Z, 0-9, with a length of 9."
        ),
    ):
        ids = [call["id"] for message in body["messages"] for call in message.get("tool_calls", ())]
        results = [m["tool_call_id"] for m in body["messages"] if m["role"] == "tool"]
        assert ids == results
        assert ids[1] == "abcdefgh9"
        assert all(re.fullmatch("[A-Za-z0-9]{9}", one) for one in ids)


async def _after_lesson(bench: Bench, prompt: Prompt, said: str) -> JsonObject:
    bench.fake.play(json_body({"error": {"message": said}}, 400), reply("openai", "ok"))
    await bench.openai().reply(prompt)
    return bench.fake.bodies[-1]


@row(12, "stop-with-calls")
async def _(bench: Bench) -> None:
    assert made(await bench.streamed(piece(0, "a", "f", '{"x":1}'), finish="stop")) == [("f", {"x": 1})]


@row(13, "length-inside-arguments")
async def _(bench: Bench) -> None:
    for args in ('{"x":', ""):
        answer = await bench.streamed(piece(0, "a", "f", args), finish="length")
        assert answer.cut
        assert [(call.args, call.problem) for call in answer.entry.calls] == [({}, CUT)]


@row(14, "deepseek-reasoning-content")
async def _(bench: Bench) -> None:
    one = pair(ToolCall("aaaaaaaa1", "f"), "p/deepseek-chat", reasoning="hm")
    two = pair(ToolCall("aaaaaaaa2", "f"), "p/other", reasoning="not for you")
    body = await bench.sent(with_entries(*one, *two), model="deepseek-chat")
    sent = [m["reasoning_content"] for m in body["messages"] if m.get("tool_calls")]
    assert sent == ["hm", ""]
    assert "reasoning_content" not in str(await bench.sent(with_entries(*one, *two)))


@row(15, "kimi-no-parameters-of-ours")
async def _(bench: Bench) -> None:
    body = await bench.sent(with_entries(*pair(ToolCall("functions.f:0", "f"))), model="kimi-k2")
    assert set(body) == {"model", "messages", "tools", "max_tokens", "stream", "stream_options"}
    assert body["messages"][-2]["reasoning_content"] == ""


@row(16, "dashscope-always-streams")
async def _(bench: Bench) -> None:
    body = await bench.sent(PROMPT, model="qwen3-max")
    assert body["stream"] is True
    assert "enable_thinking" not in body


@row(17, "inline-thoughts")
async def _(bench: Bench) -> None:
    for parts in (
        [{"content": "<thi"}, {"content": "nk>a"}, {"content": "b</think>\n\nNO_REPLY"}],
        [{"content": "a"}, {"content": "b</th"}, {"content": "ink>NO_REPLY"}],
        [{"reasoning_content": "ab"}, {"content": "NO_REPLY"}],
        [{"reasoning": "ab"}, {"content": "NO_REPLY"}],
    ):
        shown: list[str] = []
        bench.fake.play(deltas(*parts))
        entry = (await bench.openai().reply(PROMPT, shown.append, shown.clear)).entry
        assert (entry.text, entry.reasoning) == ("NO_REPLY", "ab")
        assert "".join(shown) == "NO_REPLY"


@row(18, "openrouter-comments-and-errors")
async def _(bench: Bench) -> None:
    comment = ": OPENROUTER PROCESSING\n\n"
    bench.fake.play(stream(comment, {"choices": [{"delta": {"content": "hi"}, "finish_reason": "stop"}]}))
    assert (await bench.openai().reply(PROMPT)).entry.text == "hi"
    error = {"code": 502, "message": "upstream"}
    bench.fake.play(stream(comment, {"error": error, "choices": [{"delta": {}, "finish_reason": "error"}]}))
    with pytest.raises(ModelBusy, match="upstream"):
        await bench.openai().reply(PROMPT)
    for endless in (comment.encode(), b'event: ping\ndata: {"type": "ping"}\n\n'):
        bench.fake.play(Answer(chunks=itertools.repeat(endless)))
        with pytest.raises(ModelBusy, match="in time"):
            await bench.openai(timeouts=Timeouts(idle=0.01)).reply(PROMPT)


@row(19, "no-finish-reason")
async def _(bench: Bench) -> None:
    for parts in ([{"content": "Half"}], [piece(0, "a", "f", '{"x":1}')], []):
        bench.fake.play(Answer(chunks=sse(*({"choices": [{"delta": part}]} for part in parts))))
        with pytest.raises(ModelBusy):
            await bench.openai().reply(PROMPT)
    bench.fake.play(stream({"choices": [{"delta": {"content": "All of it"}}]}, done=True))
    assert (await bench.openai().reply(PROMPT)).entry.text == "All of it"


@row(20, "odd-framings")
async def _(bench: Bench) -> None:
    bench.fake.play(json_body({"error": {"message": "bad key", "type": "authentication_error"}}))
    with pytest.raises(ModelRefused, match="bad key"):
        await bench.openai().reply(PROMPT)
    bench.fake.play(Answer(chunks=[b'data:{"choices":[{"delta":{"content":"z"},"finish_reason":"stop"}]}']))
    assert (await bench.openai().reply(PROMPT)).entry.text == "z"
    whole = {
        "choices": [{"message": {"content": [{"type": "text", "text": "hey"}]}, "finish_reason": "stop"}]
    }
    bench.fake.play(json_body(whole))
    assert (await bench.openai().reply(PROMPT)).entry.text == "hey"


@row(21, "usage-anywhere")
async def _(bench: Bench) -> None:
    text = {"delta": {"content": "x"}, "finish_reason": "stop"}
    counted: Sequence[tuple[list[JsonObject], Usage]] = (
        (
            [
                {"choices": [text]},
                {
                    "choices": [],
                    "usage": {"prompt_tokens": 10, "prompt_tokens_details": {"cached_tokens": 7}},
                },
            ],
            Usage(10, 0, 7),
        ),
        (
            [{"choices": [text], "usage": {"prompt_tokens": 10, "prompt_cache_hit_tokens": 8}}],
            Usage(10, 0, 8),
        ),
        ([{"choices": [{**text, "usage": {"prompt_tokens": 3}}], "usage": None}], Usage(3)),
        (
            [
                {"choices": [text], "usage": {"prompt_tokens": 10, "completion_tokens": 1}},
                {"choices": [], "usage": {"prompt_tokens": 10, "completion_tokens": 2}},
            ],
            Usage(10, 2),
        ),
        (
            [
                {"choices": [text]},
                {
                    "choices": [],
                    "usage": {"input_tokens": 3, "cache_read_input_tokens": 90, "output_tokens": 1},
                },
            ],
            Usage(93, 1, 90),
        ),
    )
    for events, usage in counted:
        bench.fake.play(stream(*events))
        assert (await bench.openai().reply(PROMPT)).usage == usage


@row(22, "stream-options-refused")
async def _(bench: Bench) -> None:
    bench.picky(lambda body: "stream_options" in body, "Unknown parameter: stream_options")
    await _learns_once(bench, requests=2)


@row(23, "max-tokens-refused")
async def _(bench: Bench) -> None:
    said = "Unsupported parameter: 'max_tokens' is not supported. Use 'max_completion_tokens' instead."
    bench.picky(lambda body: "max_tokens" in body, said)
    await _learns_once(bench, requests=2)
    assert bench.fake.bodies[-1]["max_completion_tokens"] == 8000
    assert "temperature" not in bench.fake.bodies[-1]


@row(23, "no-limit-at-all")
async def _(bench: Bench) -> None:
    said = "'max_tokens' or 'max_completion_tokens' is too large: 8000. The maximum context length is 8192 tokens."
    bench.picky(lambda body: "max_tokens" in body or "max_completion_tokens" in body, said)
    await _learns_once(bench, requests=3)


async def _learns_once(bench: Bench, requests: int) -> None:
    """Ask twice: the lesson takes some requests, and then it is known."""
    model = bench.openai()
    assert (await model.reply(PROMPT)).entry.text == "ok"
    assert len(bench.fake.requests) == requests
    assert (await model.reply(PROMPT)).entry.text == "ok"
    assert len(bench.fake.requests) == requests + 1


@row(24, "roles-must-alternate")
async def _(bench: Bench) -> None:
    def refuses(body: JsonObject) -> bool:
        roles = [message["role"] for message in body["messages"]]
        return any(a == b == "user" for a, b in itertools.pairwise(roles))

    bench.picky(refuses, "Conversation roles must alternate user/assistant/user/assistant/...")
    bob = UserEntry("me too", Sender("8", "Bob"), Kind.MESSAGE, 1_772_260_260.0, Chat.GROUP)
    model = bench.openai()
    await model.reply(with_entries(bob))
    system, user = bench.fake.bodies[-1]["messages"]
    assert (system["role"], user["role"]) == ("system", "user")
    assert user["content"].endswith("hello\n\n[Sat 2026-02-28 06:31 +00:00] Bob: me too")


@row(25, "results-follow-their-calls")
async def _(bench: Bench) -> None:
    calls = AssistantEntry("", (ToolCall("c00000001", "f"), ToolCall("c00000002", "g")))
    late = ToolEntry("c00000001", "f", "late")
    body = await bench.sent(with_entries(calls, HELLO, late, ToolEntry("zz", "f", "orphan")))
    assert [message["role"] for message in body["messages"]] == [
        *("system", "user", "assistant", "tool", "tool", "user")
    ]
    first, second = body["messages"][3:5]
    assert (first["tool_call_id"], first["content"]) == ("c00000001", "late")
    assert "interrupted" in second["content"]


@row(26, "content-beside-calls")
async def _(bench: Bench) -> None:
    turn = with_entries(*pair(ToolCall("c00000001", "f")), AssistantEntry("done"), HELLO)
    body = await bench.sent(turn)
    assert [m["content"] for m in body["messages"] if m["role"] == "assistant"] == [None, "done"]
    body = await _after_lesson(bench, turn, "messages[2].content: Input should be a valid string, got null")
    assert [m["content"] for m in body["messages"] if m["role"] == "assistant"] == ["", "done"]


@row(27, "gemini-schemas")
async def _(bench: Bench) -> None:
    def bound(body: JsonObject) -> JsonObject:
        x: JsonObject = body["tools"][0]["function"]["parameters"]["properties"]["x"]
        return x

    assert bound(await bench.sent(PROMPT)) == {"type": "integer", "exclusiveMinimum": 0}
    assert bound(await bench.sent(PROMPT, model="gemini-3-pro")) == {"type": "integer", "minimum": 1}
    said = (
        'Invalid JSON payload received. Unknown name "exclusiveMinimum" at tools[0].function_declarations[0]'
    )
    assert bound(await _after_lesson(bench, PROMPT, said)) == {"type": "integer", "minimum": 1}


@row(28, "vllm-tool-choice")
async def _(bench: Bench) -> None:
    assert "tool_choice" not in await bench.sent(PROMPT)
    said = '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set'
    bench.fake.play(json_body({"message": said, "code": 400}, 400))
    with pytest.raises(ModelRefused) as caught:
        await bench.openai().reply(PROMPT)
    assert "--enable-auto-tool-choice" in caught.value.hint


@row(29, "no-tools")
async def _(bench: Bench) -> None:
    bench.picky(lambda body: "tools" in body, "registry.ollama.ai/library/gemma:2b does not support tools")
    await _learns_once(bench, requests=2)
    bench.fake.play(reply("ollama", "just words"))
    await bench.ollama(tools=False).reply(PROMPT)
    assert "tools" not in bench.fake.bodies[-1]


@row(30, "anthropic-shape")
async def _(bench: Bench) -> None:
    signed = {"thinking": [{"type": "thinking", "thinking": "hm", "signature": "S"}]}
    calls = (ToolCall("toolu_1", "f", {"x": 1}), ToolCall("toolu_2", "g"))
    turn = AssistantEntry("", calls, "hm", "p/m", signed)
    results = (ToolEntry("toolu_1", "f", "r"), ToolEntry("toolu_2", "g", "", is_error=True))
    bench.fake.play(reply("anthropic", "ok"))
    await bench.anthropic().reply(replace(with_entries(turn, *results, HELLO), nudge="Be short."))
    body = bench.fake.bodies[-1]
    assert [block.get("cache_control") is not None for block in body["system"]] == [True, False]
    assert body["max_tokens"] == 8000
    assert str(body).count("ephemeral") == 4
    user, assistant, last = body["messages"]
    assert [block["type"] for block in assistant["content"]] == ["thinking", "tool_use", "tool_use"]
    assert assistant["content"][0]["signature"] == "S"
    assert [block["type"] for block in last["content"]] == ["tool_result", "tool_result", "text", "text"]
    assert last["content"][1]["is_error"] is True
    assert last["content"][1]["content"] == "(no output)"
    assert "cache_control" in user["content"][-1]
    assert "cache_control" in last["content"][2]
    assert [tool["name"] for tool in body["tools"] if "cache_control" in tool] == ["g"]


@row(30, "anthropic-stream")
async def _(bench: Bench) -> None:
    def block(index: int, start: JsonObject, *pieces: JsonObject) -> list[JsonObject]:
        changes = [{"type": "content_block_delta", "index": index, "delta": one} for one in pieces]
        return [{"type": "content_block_start", "index": index, "content_block": start}, *changes]

    bench.fake.play(
        stream(
            {
                "type": "message_start",
                "message": {"usage": {"input_tokens": 3, "cache_read_input_tokens": 90}},
            },
            {"type": "ping"},
            *block(
                0,
                {"type": "thinking", "thinking": "", "signature": ""},
                {"type": "thinking_delta", "thinking": "hm"},
                {"type": "signature_delta", "signature": "S"},
            ),
            *block(1, {"type": "redacted_thinking", "data": "D"}),
            *block(2, {"type": "tool_use", "id": "toolu_1", "name": "g", "input": {}}, _json("")),
            *block(
                3,
                {"type": "tool_use", "id": "toolu_2", "name": "f", "input": {}},
                _json('{"x"'),
                _json(":1}"),
            ),
            {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 9}},
            {"type": "message_stop"},
            done=False,
        )
    )
    answer = await bench.anthropic().reply(PROMPT)
    assert made(answer) == [("g", {}), ("f", {"x": 1})]
    assert answer.entry.reasoning == "hm"
    assert answer.entry.state["thinking"] == [
        {"type": "thinking", "thinking": "hm", "signature": "S"},
        {"type": "redacted_thinking", "data": "D"},
    ]
    assert answer.usage == Usage(93, 9, 90)


def _json(text: str) -> JsonObject:
    return {"type": "input_json_delta", "partial_json": text}


@row(30, "anthropic-signature-refused")
async def _(bench: Bench) -> None:
    signed = {"thinking": [{"type": "thinking", "thinking": "hm", "signature": "S"}]}
    turn = AssistantEntry("", (ToolCall("toolu_1", "f"),), "hm", "p/m", signed)
    bench.fake.play(
        json_body({"error": {"message": "Invalid `signature` in `thinking` block"}}, 400),
        reply("anthropic", "ok"),
    )
    await bench.anthropic().reply(with_entries(turn, ToolEntry("toolu_1", "f", "r")))
    assert "thinking" in str(bench.fake.bodies[0])
    assert "thinking" not in str(bench.fake.bodies[1])


@row(30, "anthropic-own-limit")
async def _(bench: Bench) -> None:
    said = "max_tokens: 8000 > 4096, which is the maximum allowed number of output tokens for claude-3"
    bench.fake.play(json_body({"error": {"message": said}}, 400), reply("anthropic", "ok"))
    await bench.anthropic().reply(PROMPT)
    assert [body["max_tokens"] for body in bench.fake.bodies] == [8000, 4096]


@row(31, "openrouter-reasoning-details")
async def _(bench: Bench) -> None:
    seal = {"type": "reasoning.encrypted", "data": "S", "index": 1}
    called = (
        await bench.streamed(
            {"reasoning": "a", "reasoning_details": [{"type": "reasoning.text", "text": "a", "index": 0}]},
            {"reasoning": "b", "reasoning_details": [{"type": "reasoning.text", "text": "b", "index": 0}]},
            {"reasoning_details": [seal]},
            piece(0, "a", "f", "{}"),
        )
    ).entry
    body = await bench.sent(with_entries(called, ToolEntry("a", "f", "r")))
    assert body["messages"][-2]["reasoning_details"] == [
        {"type": "reasoning.text", "text": "ab", "index": 0},
        seal,
    ]
    other = await bench.sent(with_entries(called, ToolEntry("a", "f", "r")), model="another")
    assert "reasoning_details" not in str(other)


@row(32, "deepseek-stable-prefix")
async def _(bench: Bench) -> None:
    body = await bench.sent(PROMPT)
    assert [tool["function"]["name"] for tool in body["tools"]] == ["f", "g"]
    assert body["messages"][0]["content"] == "You are a bot.\n\nToday is Saturday."
    later = await bench.sent(
        with_entries(AssistantEntry("hi"), replace(HELLO, text="again", at=HELLO.at + 60))
    )
    assert later["messages"][:2] == body["messages"]


@row(33, "odd-tool-names")
async def _(bench: Bench) -> None:
    named = [ToolSpec(name, "", {"type": "object"}) for name in ("server.tool", "server__tool", "n" * 70)]
    bench.fake.play(
        deltas(piece(0, "c00000001", "server__tool", "{}"), finish="tool_calls"), reply("openai", "ok")
    )
    model = bench.openai()
    await model.reply(replace(PROMPT, tools=named[:1]))
    await model.reply(replace(PROMPT, tools=named))
    first, second = ([tool["function"]["name"] for tool in body["tools"]] for body in bench.fake.bodies)
    assert first == ["server__tool"]
    assert len(set(second)) == 3
    assert all(re.fullmatch("[A-Za-z0-9_-]{1,64}", name) for name in second)
    bench.fake.play(deltas(piece(0, "c00000001", second[0], "{}"), finish="tool_calls"))
    answer = await model.reply(replace(PROMPT, tools=named))
    assert answer.entry.calls[0].name == min(tool.name for tool in named)


@pytest.mark.parametrize("check", [pytest.param(check, id=name) for name, check in CHECKS])
async def test_the_client_copes_with(check: Check, bench: Bench) -> None:
    await check(bench)


def test_every_row_of_the_table_has_a_check() -> None:
    rows = {int(name.split("-")[1]) for name, _ in CHECKS}
    assert rows == set(range(1, 34))
