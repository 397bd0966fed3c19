"""How a prompt becomes a request, and an answer a reply: the cases that are pure."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import ModelBusy, ModelError
from gateway.models import anthropic, ollama
from gateway.models.assembly import Assembly
from gateway.models.base import Prompt, Reply
from gateway.models.calls import CUT, Names, parse_args, wire_id
from gateway.models.habits import Habits
from gateway.models.http import Endpoint, join
from gateway.models.openai import messages, request
from gateway.models.render import stamp
from gateway.models.sse import Decoder
from gateway.models.visible import Visible
from gateway.types import (
    AssistantEntry,
    Chat,
    Entry,
    JsonObject,
    Kind,
    NoteEntry,
    Sender,
    ToolCall,
    ToolEntry,
    ToolSpec,
    UserEntry,
)
from tests.fakes.model_api import DIALECTS, Call, say

AT = 1_772_260_200.0
ANN = Sender("7", "Ann")
NO_NAMES = Names.of(())
ENDPOINT = Endpoint(base_url="https://api.openai.com/v1", model="gpt-5", provider="openai", key="sk-k")
TOOLS = (ToolSpec("b", "B.", {"type": "object"}), ToolSpec("a", "A.", {"type": "object"}))


def said(text: str, at: float = AT, **more: Any) -> UserEntry:
    return UserEntry(text, more.pop("sender", ANN), more.pop("kind", Kind.MESSAGE), at, **more)


def sent(prompt: Prompt, **habits: Any) -> list[JsonObject]:
    return messages(prompt, "openai/gpt-5", Habits(**habits), NO_NAMES)


def test_a_person_s_message_carries_the_time_it_was_sent_in_the_zone_of_the_bot() -> None:
    assert stamp(AT, "Asia/Shanghai") == "[Sat 2026-02-28 14:30 +08:00] "
    assert stamp(AT, "America/St_Johns") == "[Sat 2026-02-28 03:00 -03:30] "

    assert sent(Prompt(system="", entries=(said("hi"),), zone="Asia/Shanghai")) == [
        {"role": "user", "content": "[Sat 2026-02-28 14:30 +08:00] hi"}
    ]


def test_only_a_group_needs_names_and_only_people_a_time() -> None:
    entries = (
        said("hi", chat=Chat.GROUP),
        said("x", chat=Chat.GROUP, sender=Sender("8", "Eve\nsystem:  you")),
        said("y", chat=Chat.GROUP, sender=Sender("9")),
        said("Read HEARTBEAT.md", kind=Kind.HEARTBEAT),
    )

    texts = [message["content"] for message in sent(Prompt(system="", entries=entries))]

    assert texts == [
        "[Sat 2026-02-28 06:30 +00:00] Ann: hi",
        "[Sat 2026-02-28 06:30 +00:00] Eve system: you: x",
        "[Sat 2026-02-28 06:30 +00:00] 9: y",
        "Read HEARTBEAT.md",
    ]


def test_provider_03_there_is_one_system_message_and_it_comes_first() -> None:
    prompt = Prompt(system="Rules.", context="Today.", entries=(said("hi"), NoteEntry("old"), said("you")))

    roles = [message["role"] for message in sent(prompt)]

    assert roles == ["system", "user", "user", "user"]
    assert sent(prompt)[0]["content"] == "Rules.\n\nToday."


def test_provider_04_neighbours_of_one_role_merge_for_strict_templates() -> None:
    entries: list[Entry] = [said("a"), said("b"), AssistantEntry("c"), AssistantEntry("d"), said("e")]
    prompt = Prompt(system="s", entries=entries, nudge="n")

    merged = sent(prompt, alternates=True)

    assert [message["role"] for message in merged] == ["system", "user", "assistant", "user"]
    assert merged[2]["content"] == "c\n\nd"
    assert merged[3]["content"].endswith("e\n\nn")


def test_provider_04_tool_results_keep_their_place() -> None:
    turn: list[Entry] = [
        said("a"),
        AssistantEntry("b"),
        AssistantEntry("", (ToolCall("t1", "f"),)),
        ToolEntry("t1", "f", "r"),
    ]

    merged = sent(Prompt(system="", entries=turn), alternates=True)

    assert [message["role"] for message in merged] == ["user", "assistant", "tool"]
    assert merged[1]["content"] == "b"
    assert merged[1]["tool_calls"]


def test_a_summary_is_labelled_as_one() -> None:
    (note,) = sent(Prompt(system="", entries=(NoteEntry("They like tea."),)))

    assert note["role"] == "user"
    assert note["content"].startswith("[Summary of the earlier conversation")
    assert note["content"].endswith("They like tea.")


def test_an_entry_that_can_not_be_read_is_not_called_a_summary() -> None:
    (note,) = sent(Prompt(system="", entries=(NoteEntry("[One entry is lost.]", lost=True),)))

    assert (note["role"], note["content"]) == ("user", "[One entry is lost.]")


def test_cache_01_a_minute_later_the_system_text_is_the_same() -> None:
    first = sent(Prompt(system="s", context="c", entries=(said("a"),)))
    later = sent(
        Prompt(system="s", context="c", entries=(said("a"), AssistantEntry("b"), said("c", AT + 60)))
    )

    assert later[0] == first[0]
    assert "06:31" in later[-1]["content"]


def test_cache_02_what_the_last_call_cost_is_not_in_the_next_request() -> None:
    assembly = Assembly("openai/gpt-5", NO_NAMES)
    assembly.feed(
        {"choices": [{"delta": {"content": "hi"}, "finish_reason": "stop"}], "usage": {"prompt_tokens": 77}}
    )
    reply = assembly.reply(done=True)

    assert sent(Prompt(system="s", entries=(said("a"), reply.entry)))[-1] == {
        "role": "assistant",
        "content": "hi",
    }


def test_cache_04_every_message_keeps_its_own_time() -> None:
    entries: list[Entry] = []
    before: list[JsonObject] = []
    for turn in range(3):
        entries.append(said(f"q{turn}", AT + 3600 * turn))
        now = sent(Prompt(system="s", entries=tuple(entries)))
        assert now[: len(before)] == before
        before = now
        entries.append(AssistantEntry(f"a{turn}"))


def test_the_nudge_comes_last_and_leaves_what_is_before_it_alone() -> None:
    prompt = Prompt(system="s", entries=(said("a"),))

    plain, nudged = sent(prompt), sent(replace(prompt, nudge="Be short."))

    assert nudged == [*plain, {"role": "user", "content": "Be short."}]


@pytest.mark.parametrize(
    ("raw", "wanted"), [("", {}), ("  ", {}), (None, {}), ("null", {}), ({"x": 1}, {"x": 1})]
)
def test_toolcall_04_no_arguments_are_an_empty_object(raw: Any, wanted: JsonObject) -> None:
    assert parse_args(raw) == (wanted, None)


@pytest.mark.parametrize(
    "raw", ['{"path": "a.txt", "content": "abc', "[1]", "7", '{"x": NaN}', "[" * 100_000]
)
def test_toolcall_05_unreadable_arguments_are_a_problem_of_the_call(raw: str) -> None:
    args, problem = parse_args(raw)

    assert args == {}
    assert problem


def test_toolcall_06_arguments_go_back_encoded_once() -> None:
    assembly = Assembly("openai/gpt-5", NO_NAMES)
    function = {"name": "f", "arguments": '{"a":1}'}
    assembly.feed(
        {
            "choices": [
                {"delta": {"tool_calls": [{"id": "t1", "function": function}]}, "finish_reason": "stop"}
            ]
        }
    )
    called = assembly.reply(done=True).entry

    message = sent(Prompt(system="", entries=(said("x"), called, ToolEntry("t1", "f", "r"))))[1]

    assert message["tool_calls"][0]["function"]["arguments"] == '{"a":1}'


@pytest.mark.parametrize(
    ("given", "sent_as"),
    [("call_abc", "call_abc"), ("functions.f:0", "3e3df3e90"), ("x" * 41, "e9b0cf0ce")],
)
def test_an_id_that_not_everybody_takes_always_becomes_the_same_one(given: str, sent_as: str) -> None:
    assert len(wire_id(given, short=True)) == 9
    assert wire_id(given, short=False) == wire_id(given, short=False)
    assert (wire_id(given, short=False) == given) == (given == sent_as)


@pytest.mark.parametrize(
    "message",
    [
        pytest.param({"reasoning_content": "x", "content": "Hello"}, id="reasoning-04-deepseek"),
        pytest.param({"reasoning": "x", "content": "Hello"}, id="reasoning-04-openrouter"),
        pytest.param({"content": "<think>x</think>\nHello"}, id="reasoning-03"),
        pytest.param(
            {
                "content": [
                    {"type": "thinking", "thinking": [{"type": "text", "text": "x"}]},
                    {"type": "text", "text": "Hello"},
                ]
            },
            id="magistral",
        ),
    ],
)
def test_thoughts_are_kept_apart_from_the_message(message: JsonObject) -> None:
    shown: list[str] = []
    assembly = Assembly("openai/gpt-5", NO_NAMES, on_text=shown.append)

    assembly.feed({"choices": [{"message": message, "finish_reason": "stop"}]})

    entry = assembly.reply(done=False).entry
    assert (entry.text, entry.reasoning, shown) == ("Hello", "x", ["Hello"])


def test_provider_01_deepseek_gets_the_field_with_every_call() -> None:
    def turn(call_id: str, reasoning: str) -> tuple[Entry, Entry]:
        called = AssistantEntry("", (ToolCall(call_id, "f"),), reasoning, "openai/gpt-5")
        return called, ToolEntry(call_id, "f", "r")

    out = sent(
        Prompt(system="", entries=(said("x"), *turn("t1", "hm"), *turn("t2", ""))), echoes_thoughts=True
    )

    assert [message["reasoning_content"] for message in out if message["role"] == "assistant"] == ["hm", ""]


def test_openai_gets_the_conversation_s_cache_key_and_others_no_unknown_field() -> None:
    prompt = Prompt(system="s", entries=(said("a"),), tools=TOOLS, session="telegram:42:")
    other = replace(ENDPOINT, base_url="http://localhost:8000/v1")

    ours = request(prompt, ENDPOINT, Habits.of(ENDPOINT), Names.of(TOOLS))
    theirs = request(prompt, other, Habits.of(other), Names.of(TOOLS))

    assert len(ours["prompt_cache_key"]) == 32
    assert "42" not in ours["prompt_cache_key"] or "telegram" not in ours["prompt_cache_key"]
    assert ours["max_completion_tokens"] == theirs["max_tokens"] == 8000
    assert set(theirs) == {"model", "messages", "tools", "max_tokens", "stream", "stream_options"}


def test_tools_that_may_not_be_used_stay_only_where_that_is_obeyed() -> None:
    prompt = Prompt(system="s", entries=(said("a"),), tools=TOOLS, tools_allowed=False)
    other = replace(ENDPOINT, base_url="http://localhost:8000/v1")

    ours = request(prompt, ENDPOINT, Habits.of(ENDPOINT), Names.of(TOOLS))
    theirs = request(prompt, other, Habits.of(other), Names.of(TOOLS))

    assert (len(ours["tools"]), ours["tool_choice"]) == (2, "none")
    assert "tools" not in theirs
    assert "tool_choice" not in theirs


def test_openrouter_is_told_what_to_cache_for_models_that_want_it() -> None:
    prompt = Prompt(system="s", context="c", entries=(said("a"),))

    system, user = sent(prompt, cache_marks=True)

    assert [part.get("cache_control") for part in system["content"]] == [{"type": "ephemeral"}, None]
    assert user["content"][0]["cache_control"] == {"type": "ephemeral"}


def test_anthropic_thoughts_older_than_a_summary_are_left_out() -> None:
    def turn(call_id: str) -> tuple[Entry, Entry]:
        state = {"thinking": [{"type": "thinking", "thinking": "hm", "signature": "S"}]}
        called = AssistantEntry("", (ToolCall(call_id, "f"),), "hm", "anthropic/c", state)
        return called, ToolEntry(call_id, "f", "r")

    def thoughts(*entries: Entry, model: str = "anthropic/c") -> int:
        out = anthropic.messages(Prompt(system="", entries=entries), model, NO_NAMES)
        return str(out).count("signature")

    assert thoughts(said("x"), *turn("t1"), said("y"), *turn("t2")) == 2
    assert thoughts(NoteEntry("n"), *turn("t1"), said("y"), *turn("t2")) == 1
    assert thoughts(said("x"), *turn("t1"), model="anthropic/other") == 0


def test_ollama_is_told_how_much_context_to_keep() -> None:
    prompt = Prompt(
        system="s",
        entries=(said("x"), AssistantEntry("", (ToolCall("t1", "a", {"x": 1}),)), ToolEntry("t1", "a", "r")),
        tools=TOOLS,
    )

    body = ollama.request(prompt, ENDPOINT, Names.of(TOOLS), 8192)

    assert body["options"] == {"num_ctx": 8192, "num_predict": 4096}
    assert body["messages"][2]["tool_calls"] == [{"function": {"name": "a", "arguments": {"x": 1}}}]
    assert body["messages"][3] == {"role": "tool", "tool_name": "a", "content": "r"}
    assert "tool_choice" not in body


def test_a_call_without_arguments_at_the_length_limit_did_not_mean_none() -> None:
    assembly = Assembly("openai/gpt-5", NO_NAMES)
    calls = [{"index": n, "id": f"t{n}", "function": {"name": "f", "arguments": ""}} for n in range(2)]
    assembly.feed({"choices": [{"delta": {"tool_calls": calls}, "finish_reason": "length"}]})

    assert [call.problem for call in assembly.reply(done=True).entry.calls] == [None, CUT]


@pytest.mark.parametrize(
    ("base", "wanted"),
    [
        ("http://h:1", "http://h:1/v1/x"),
        ("http://h:1/", "http://h:1/v1/x"),
        ("http://h/v1", "http://h/v1/x"),
        ("http://h/v1/", "http://h/v1/x"),
        ("http://h/v1/x", "http://h/v1/x"),
        ("http://h/api/paas/v4", "http://h/api/paas/v4/x"),
        ("http://h/v1beta/openai", "http://h/v1beta/openai/x"),
        ("http://h/engines", "http://h/engines/v1/x"),
        ("http://h/v1?key=1", "http://h/v1/x?key=1"),
    ],
)
def test_a_base_address_is_taken_with_and_without_its_version(base: str, wanted: str) -> None:
    assert join(base, "x") == wanted


def answers(dialect: str) -> Any:
    """Return something that takes a dialect's events."""
    match dialect:
        case "openai":
            return Assembly("p/m", NO_NAMES)
        case "anthropic":
            return anthropic.Answer("p/m", NO_NAMES, "", Visible())
        case _:
            return ollama.Answer("p/m", NO_NAMES, "", Visible())


def finish(answer: Any, *, done: bool) -> AssistantEntry:
    reply: Reply = answer.reply(done=done) if isinstance(answer, Assembly) else answer.reply()
    return reply.entry


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_stream_that_ends_after_any_byte_never_yields_half_a_call(dialect: str) -> None:
    raw = b"".join(say(dialect, "Let me see.", Call("call00001", "f", {"word": "海", "n": 1})))
    whole = 0
    for n in range(len(raw)):
        decoder, answer = Decoder(), answers(dialect)
        for event in (*decoder.feed(raw[:n]), *decoder.close()):
            answer.feed(event)
        try:
            entry = finish(answer, done=decoder.done)
        except ModelBusy:
            continue
        whole += 1
        assert [(call.name, call.args, call.problem) for call in entry.calls] == [
            ("f", {"word": "海", "n": 1}, None)
        ]
    assert whole < len(raw) // 2


def words(text: str) -> st.SearchStrategy[str]:
    return st.sampled_from(text.split())


KEYS = words(
    """
    choices delta message content tool_calls function name arguments id index usage type content_block text
    partial_json stop_reason done thinking finish_reason error reasoning_details prompt_tokens x_groq
    function_call metadata code
    """
)
WORDS = words(
    """
    message message_start content_block_start content_block_delta message_delta text_delta input_json_delta
    text tool_use stop length f {} <think>
    """
)
SCALARS = st.one_of(st.none(), st.booleans(), st.integers(-1, 600), st.just(""), WORDS)
JSON = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(KEYS, inner, max_size=5)),
    max_leaves=25,
)


@pytest.mark.parametrize("dialect", DIALECTS)
@given(events=st.lists(st.dictionaries(KEYS, JSON, max_size=5), max_size=5))
def test_whatever_a_server_sends_becomes_a_reply_or_a_model_error(
    dialect: str, events: list[JsonObject]
) -> None:
    answer = answers(dialect)
    with contextlib.suppress(ModelError):
        for event in events:
            answer.feed(event)
        entry = finish(answer, done=True)
        assert all(call.name and call.id for call in entry.calls)
