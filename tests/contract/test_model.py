"""What every dialect does alike, checked against a provider on loopback."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import TypeAlias

import pytest

from gateway.clock import SystemClock
from gateway.errors import ModelBusy, ModelRefused, PromptTooLong
from gateway.models.anthropic import Anthropic
from gateway.models.base import Model, Prompt
from gateway.models.fallback import Chain
from gateway.models.http import Endpoint, Timeouts
from gateway.models.ollama import Ollama
from gateway.models.openai import OpenAI
from gateway.types import (
    AssistantEntry,
    Entry,
    Kind,
    Sender,
    ToolCall,
    ToolEntry,
    ToolSpec,
    Usage,
    UserEntry,
)
from tests.fakes.model_api import (
    DIALECTS,
    Answer,
    Call,
    FakeModelApi,
    failing,
    json_body,
    reply,
    say,
    serving,
    unfinished,
)

Open: TypeAlias = Callable[..., Model]

KEY = "sk-test-0123456789"
ANN = Sender("7", "Ann")
PROMPT = Prompt(
    system="You are a bot.",
    context="Today is Saturday.",
    entries=(UserEntry("hello", ANN, Kind.MESSAGE, 1_772_260_200.0),),
    tools=(
        ToolSpec(
            "lookup", "Looks a word up.", {"type": "object", "properties": {"word": {"type": "string"}}}
        ),
    ),
)


@pytest.fixture(params=DIALECTS)
def dialect(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
async def fake() -> AsyncIterator[FakeModelApi]:
    async with serving() as server:
        yield server


@pytest.fixture
async def open_model(dialect: str, fake: FakeModelApi) -> AsyncIterator[Open]:
    opened: list[Model] = []

    def make(timeouts: Timeouts | None = None) -> Model:
        endpoint = Endpoint(
            base_url=fake.url,
            model="m",
            provider="p",
            key=KEY,
            max_tokens=500,
            timeouts=timeouts or Timeouts(),
        )
        match dialect:
            case "openai":
                opened.append(OpenAI(endpoint, SystemClock()))
            case "anthropic":
                opened.append(Anthropic(endpoint, SystemClock()))
            case _:
                opened.append(Ollama(endpoint, SystemClock(), context=8192))
        return opened[-1]

    yield make
    for model in opened:
        await model.close()


class QuickClock:
    """Waits no time at all, and remembers how long it should have waited."""

    def __init__(self) -> None:
        self.slept: list[float] = []

    def now(self) -> float:
        return 1_000_000.0 + sum(self.slept)

    def wall(self) -> float:
        return self.now()

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)


async def test_words_come_in_pieces_and_as_a_whole(
    dialect: str, fake: FakeModelApi, open_model: Open
) -> None:
    fake.play(reply(dialect, "Hello Ann, 你好!"))
    pieces: list[str] = []

    answer = await open_model().reply(PROMPT, pieces.append)

    assert answer.entry == AssistantEntry("Hello Ann, 你好!", model="p/m")
    assert "".join(pieces) == "Hello Ann, 你好!"
    assert len(pieces) == 2
    assert not answer.cut


async def test_usage_counts_everything_sent_and_what_of_it_was_cached(
    dialect: str, fake: FakeModelApi, open_model: Open
) -> None:
    fake.play(reply(dialect, "hi", input_tokens=120, cached=100))

    answer = await open_model().reply(PROMPT)

    cached = 0 if dialect == "ollama" else 100
    assert answer.usage == Usage(input=120, output=5, cached=cached)


async def test_a_tool_call_comes_with_its_arguments(
    dialect: str, fake: FakeModelApi, open_model: Open
) -> None:
    fake.play(reply(dialect, "Let me see.", Call("call00001", "lookup", {"word": "海"})))

    entry = (await open_model().reply(PROMPT)).entry

    (call,) = entry.calls
    assert (entry.text, call.name, call.args, call.problem) == ("Let me see.", "lookup", {"word": "海"}, None)
    assert call.id


async def test_parallel_calls_stay_apart_and_in_order(
    dialect: str, fake: FakeModelApi, open_model: Open
) -> None:
    wanted = [{"word": "a"}, {"word": "b"}, {}]
    fake.play(reply(dialect, "", *(Call(f"call0000{n}", "lookup", args) for n, args in enumerate(wanted))))

    calls = (await open_model().reply(PROMPT)).entry.calls

    assert [call.args for call in calls] == wanted
    assert len({call.id for call in calls}) == 3


async def test_a_call_and_its_result_go_back_as_a_pair(
    dialect: str, fake: FakeModelApi, open_model: Open
) -> None:
    fake.play(reply(dialect, "", Call("call00001", "lookup", {"word": "a"})), reply(dialect, "It means a."))
    model = open_model()
    called = (await model.reply(PROMPT)).entry
    result = ToolEntry(called.calls[0].id, "lookup", "the first letter")

    await model.reply(replace(PROMPT, entries=(*PROMPT.entries, called, result)))

    *_, call, answer = fake.bodies[1]["messages"]
    assert call["role"] == "assistant"
    assert "lookup" in str(call)
    assert "the first letter" in str(answer)
    assert called.calls[0].id in str(answer) or dialect == "ollama"


async def test_each_request_begins_with_the_bytes_of_the_one_before(
    dialect: str, fake: FakeModelApi, open_model: Open
) -> None:
    entries: list[Entry] = []
    model = open_model()
    for turn in range(3):
        entries.append(UserEntry(f"question {turn}", ANN, Kind.MESSAGE, 1_772_260_200.0 + 60 * turn))
        fake.play(
            reply(dialect, "", Call(f"call0000{turn}", "lookup", {"word": "x"})), reply(dialect, "fine")
        )
        for _ in range(2):
            entry = (await model.reply(replace(PROMPT, entries=tuple(entries)))).entry
            entries += [entry, *(ToolEntry(call.id, call.name, "r") for call in entry.calls)]

    for before, after in itertools.pairwise(fake.bodies):
        old, new = unmarked(before["messages"]), unmarked(after["messages"])
        assert new[: len(old)] == old
        assert after.get("system") == before.get("system")
        assert after["tools"] == before["tools"]


def unmarked(messages: list[dict[str, object]]) -> list[object]:
    """Return messages, or their blocks, without the marks for the cache, which are no part of the prompt."""
    out: list[object] = []
    for message in messages:
        content = message["content"]
        if not isinstance(content, list):
            out.append(message)
            continue
        out += [
            (message["role"], {k: v for k, v in block.items() if k != "cache_control"}) for block in content
        ]
    return out


async def test_without_tools_allowed_the_model_can_only_talk(
    dialect: str, fake: FakeModelApi, open_model: Open
) -> None:
    fake.play(reply(dialect, "To sum up."))

    await open_model().reply(replace(PROMPT, tools_allowed=False, nudge="Answer in words now."))

    (body,) = fake.bodies
    assert "tools" not in body or body["tool_choice"] == {"type": "none"}
    assert "Answer in words now." in str(body["messages"][-1])


async def test_a_busy_provider_is_asked_again_when_it_said(
    dialect: str, fake: FakeModelApi, open_model: Open
) -> None:
    fake.play(json_body({"error": {"message": "slow down"}}, 429, retry_after="7"), reply(dialect, "now"))
    clock = QuickClock()

    answer = await Chain([open_model()], clock, jitter=lambda: 0.0).reply(PROMPT)

    assert answer.entry.text == "now"
    assert clock.slept == [7.0]


@pytest.mark.parametrize("status", [408, 409, 429, 500, 502, 503, 529])
async def test_a_passing_trouble_is_busy(
    dialect: str, fake: FakeModelApi, open_model: Open, status: int
) -> None:
    fake.play(json_body({"error": {"message": "try later"}}, status, retry_after="3"))

    with pytest.raises(ModelBusy, match="try later") as caught:
        await open_model().reply(PROMPT)

    assert caught.value.after == 3.0
    assert str(status) in caught.value.hint


@pytest.mark.parametrize(
    ("status", "said", "hint"),
    [
        (401, f"Incorrect API key provided: {KEY}", "refused the API key"),
        (403, "key has no access", "refused the API key"),
        (402, "Insufficient Balance", "no credit"),
        (404, "The model `m` does not exist", "does not know the model m"),
        (400, "your prompt was flagged by content_policy", "safety filter"),
        (400, "something is odd", "refused the request"),
    ],
)
async def test_a_refusal_tells_the_person_what_to_do_and_never_the_key(
    dialect: str, fake: FakeModelApi, open_model: Open, status: int, said: str, hint: str
) -> None:
    fake.play(json_body({"error": {"message": said}}, status))

    with pytest.raises(ModelRefused) as caught:
        await open_model().reply(PROMPT)

    assert hint in caught.value.hint
    assert KEY not in str(caught.value) + caught.value.hint + repr(caught.value)


@pytest.mark.parametrize(
    "said",
    [
        "This model's maximum context length is 8192 tokens. Please reduce the length of the messages.",
        "prompt is too long: 210000 tokens > 200000 maximum",
        "input length and `max_tokens` exceed context limit: 199000 + 8000 > 200000",
        "the request exceeds the available context size, try increasing it",
        "Range of input length should be [1, 30720]",
        "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
    ],
)
async def test_provider_08_a_prompt_over_the_window_is_too_long(
    dialect: str, fake: FakeModelApi, open_model: Open, said: str
) -> None:
    fake.otherwise = lambda _: json_body({"error": {"message": said}}, 400)

    with pytest.raises(PromptTooLong):
        await open_model().reply(PROMPT)


async def test_a_web_page_is_no_answer_and_its_status_is_told_as_it_was(
    fake: FakeModelApi, open_model: Open
) -> None:
    fake.play(Answer(chunks=[b"<html>Welcome</html>"], content_type="text/html"))
    with pytest.raises(ModelRefused, match="HTTP 200: a web page, no answer") as raised:
        await open_model().reply(PROMPT)
    assert raised.value.hint == (
        "There is no model server at this address (HTTP 200). Check base_url in [model]."
    )


async def test_an_error_in_the_middle_voids_the_answer(
    dialect: str, fake: FakeModelApi, open_model: Open
) -> None:
    fake.play(Answer(chunks=[*unfinished(dialect, "Half an answer"), failing(dialect, "Overloaded")]))

    with pytest.raises(ModelBusy, match="Overloaded"):
        await open_model().reply(PROMPT)


async def test_a_stream_cut_anywhere_never_yields_half_a_call(
    dialect: str, fake: FakeModelApi, open_model: Open
) -> None:
    args = {"word": "a long word"}
    chunks = say(dialect, "", Call("call00001", "lookup", args))
    model = open_model()
    size = sum(map(len, chunks))
    whole = 0
    for n in range(1, size, 7):
        fake.play(Answer(chunks=chunks, cut=n))
        try:
            entry = (await model.reply(PROMPT)).entry
        except ModelBusy:
            continue
        whole += 1
        assert [(call.name, call.args, call.problem) for call in entry.calls] == [("lookup", args, None)]
    assert whole < size // 7


async def test_an_empty_stream_is_busy(dialect: str, fake: FakeModelApi, open_model: Open) -> None:
    fake.play(Answer())

    with pytest.raises(ModelBusy, match="empty"):
        await open_model().reply(PROMPT)


async def test_a_provider_that_falls_silent_is_given_up(
    dialect: str, fake: FakeModelApi, open_model: Open
) -> None:
    fake.play(Answer(chunks=[*unfinished(dialect, "Half an answer"), asyncio.Event()]))

    with pytest.raises(ModelBusy, match="in time"):
        await open_model(Timeouts(idle=0.05)).reply(PROMPT)

    await fake.gone.wait()


async def test_a_provider_that_never_answers_is_given_up(
    dialect: str, fake: FakeModelApi, open_model: Open
) -> None:
    fake.play(Answer(chunks=[asyncio.Event()]))

    with pytest.raises(ModelBusy, match="in time"):
        await open_model(Timeouts(first=0.05)).reply(PROMPT)


async def test_cancelling_hangs_up(dialect: str, fake: FakeModelApi, open_model: Open) -> None:
    fake.play(Answer(chunks=[*unfinished(dialect, "Half an answer"), asyncio.Event()]))
    begun = asyncio.Event()
    task = asyncio.ensure_future(open_model().reply(PROMPT, lambda _: begun.set()))
    await begun.wait()

    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task
    await fake.gone.wait()


async def test_a_server_that_is_not_there_is_busy(
    fake: FakeModelApi, open_model: Open, unused_tcp_port: int
) -> None:
    fake.url = f"http://127.0.0.1:{unused_tcp_port}"

    with pytest.raises(ModelBusy, match="can't be reached"):
        await open_model().reply(PROMPT)


async def test_a_broken_answer_is_taken_back_and_asked_for_anew(
    dialect: str, fake: FakeModelApi, open_model: Open
) -> None:
    fake.play(Answer(chunks=unfinished(dialect, "Half an answer")), reply(dialect, "All of it"))
    shown: list[str] = []
    chain = Chain([open_model()], QuickClock(), jitter=lambda: 0.0)

    answer = await chain.reply(PROMPT, shown.append, shown.clear)

    assert answer.entry.text == "".join(shown) == "All of it"


@pytest.mark.parametrize("dialect", ["openai", "anthropic"])
async def test_session_08_a_pair_that_the_provider_refuses_is_left_out_once(
    dialect: str, fake: FakeModelApi, open_model: Open
) -> None:
    bad = ToolCall("toolu_bad", "lookup", {})
    entries = (*PROMPT.entries, AssistantEntry("", (bad,)), ToolEntry("toolu_bad", "lookup", "r"))
    again = UserEntry("and now?", ANN, Kind.MESSAGE, 1_772_260_300.0)
    refusal = json_body({"error": {"message": "messages.1: unexpected `tool_use_id`: toolu_bad"}}, 400)
    fake.play(refusal, refusal, refusal, reply(dialect, "fine"))
    model = open_model()

    with pytest.raises(ModelRefused):
        await model.reply(replace(PROMPT, entries=(*entries, again)))

    assert len(fake.requests) == 2
    assert "toolu_bad" not in str(fake.bodies[1])
    assert "and now?" in str(fake.bodies[1])
    assert (await model.reply(replace(PROMPT, entries=(*entries, again)))).entry.text == "fine"
