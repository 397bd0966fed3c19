from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.sentinels import Gate, looks_like_call, visible
from gateway.types import Kind

MESSAGE, BEAT = Kind.MESSAGE, Kind.HEARTBEAT
REPORT = "Disk full on the build host. " * 20


@pytest.mark.parametrize(
    ("text", "kind", "shown"),
    [
        pytest.param("NO_REPLY", MESSAGE, "", id="bare"),
        pytest.param(" no_reply\n", MESSAGE, "", id="any-case-and-blanks"),
        pytest.param("**NO_REPLY**", MESSAGE, "", id="bold"),
        pytest.param("`NO_REPLY`", MESSAGE, "", id="code"),
        pytest.param('"NO_REPLY"', MESSAGE, "", id="quoted"),
        pytest.param("```\nNO_REPLY\n```", MESSAGE, "", id="fenced"),
        pytest.param("<final>NO_REPLY</final>", MESSAGE, "", id="final-tag"),
        pytest.param("\ufeffNO_REPLY", MESSAGE, "", id="text-012"),
        pytest.param('{"action": "NO_REPLY"}', MESSAGE, "", id="envelope"),
        pytest.param("Done.\nNO_REPLY", MESSAGE, "Done.", id="last-line"),
        pytest.param("NO_REPLY\nDone.", MESSAGE, "Done.", id="first-line"),
        pytest.param("Done. **NO_REPLY**", MESSAGE, "Done. **NO_REPLY**", id="bold-in-the-line-is-prose"),
        pytest.param("Done. NO_REPLY", MESSAGE, "Done.", id="same-line-at-the-end"),
        pytest.param("**Done.** NO_REPLY", MESSAGE, "**Done.**", id="behind-bold"),
        pytest.param("NO_REPLYThe user said hi", MESSAGE, "The user said hi", id="glued"),
        pytest.param(
            "The token NO_REPLY means silence", MESSAGE, "The token NO_REPLY means silence", id="prose"
        ),
        pytest.param("Use `NO_REPLY` for silence.", MESSAGE, "Use `NO_REPLY` for silence.", id="prose-code"),
        pytest.param("好的。NO_REPLY是一个标记", MESSAGE, "好的。NO_REPLY是一个标记", id="cjk-neighbours"),
        pytest.param("HEARTBEAT_OK", BEAT, "", id="beat"),
        pytest.param("HEARTBEAT_OK", MESSAGE, "", id="beat-in-chat"),
        pytest.param("HEARTBEAT_OK — all quiet.", BEAT, "", id="beat-with-a-word"),
        pytest.param("All quiet. HEARTBEAT_OK", BEAT, "", id="beat-at-the-end"),
        pytest.param(f"HEARTBEAT_OK\n{REPORT}", BEAT, REPORT.strip(), id="beat-with-a-report"),
        pytest.param("Mail from Bob is urgent", BEAT, "Mail from Bob is urgent", id="alert"),
        pytest.param(
            "I saw HEARTBEAT_OK in logs, disk full",
            BEAT,
            "I saw HEARTBEAT_OK in logs, disk full",
            id="beat-in-the-middle",
        ),
        pytest.param("HEARTBEAT_OK Lunch is at noon", MESSAGE, "Lunch is at noon", id="beat-leaks-into-chat"),
        pytest.param("HEARTBEAT_OKAY then", MESSAGE, "HEARTBEAT_OKAY then", id="another-word"),
        pytest.param("[[reply_to_current]] Yes.", MESSAGE, "Yes.", id="reply-tag"),
        pytest.param("", MESSAGE, "", id="empty"),
        pytest.param("half \ud800 pair", MESSAGE, "half ? pair", id="text-009"),
        pytest.param("no problem", MESSAGE, "no problem", id="no-as-a-word"),
    ],
)
def test_what_people_see_of_a_reply(text: str, kind: Kind, shown: str) -> None:
    assert visible(text, kind) == shown


CALL = "<tool_call>\n<function=exec>\n<parameter=command>\nls\n</parameter>\n</function>\n</tool_call>"


@pytest.mark.parametrize(
    ("text", "is_call"),
    [
        pytest.param(f"Checking.\n{CALL}", True, id="toolcall-01"),
        pytest.param(
            'Use this:\n```xml\n<invoke name="exec"><parameter name="command">rm -rf /</parameter></invoke>\n```',
            False,
            id="toolcall-03",
        ),
        pytest.param('{"name": "read", "arguments": {"path": "a"}}', True, id="json-of-a-known-tool"),
        pytest.param('```json\n{"tool": "read", "args": {"path": "a"}}\n```', True, id="fenced-json"),
        pytest.param('{"name": "Ann", "arguments": {"for": 1}}', False, id="json-of-something-else"),
        pytest.param("The tag `<tool_call>` opens a call.", False, id="inline-code"),
        pytest.param("I'm on it!", False, id="toolcall-09"),
        pytest.param("a < b and c > d", False, id="less-than"),
    ],
)
def test_a_call_printed_as_text_is_told_from_talk_about_calls(text: str, is_call: bool) -> None:
    assert looks_like_call(text, {"read", "exec"}) is is_call


def through(chunks: list[str]) -> str:
    gate = Gate()
    return "".join(gate.feed(chunk) for chunk in chunks)


def cut(text: str, places: list[int]) -> list[str]:
    edges = sorted({0, len(text), *(place % (len(text) + 1) for place in places)})
    return [text[a:b] for a, b in itertools.pairwise(edges)]


SILENT = [
    "NO_REPLY",
    "HEARTBEAT_OK",
    "**NO_REPLY**",
    "```\nNO_REPLY\n```",
    "```text\nNO_REPLY\n```",
    " no_reply \n",
    "\ufeffNO_REPLY",
    "<final>NO_REPLY</final>",
    "<final>HEARTBEAT_OK",
    '"NO_REPLY"',
    "HEARTBEAT_OK!!!",
    '{"action": "NO_REPLY"}',
    '{ "action":"NO_REPLY" }\n',
    "<think>say NO_REPLY</think>NO_REPLY",
    "[[reply_to_current]] NO_REPLY",
]


@pytest.mark.parametrize("token", SILENT)
@given(places=st.lists(st.integers(0, 30), max_size=8))
def test_no_part_of_a_token_streams_however_it_is_cut(token: str, places: list[int]) -> None:
    assert through(cut(token, places)) == ""


@given(places=st.lists(st.integers(0, 200), max_size=8))
def test_reasoning_and_markup_never_stream(places: list[int]) -> None:
    shown = through(cut(f"<think>secret NO_REPLY</think>Hello there. {CALL}", places))
    assert "secret" not in shown
    assert "<" not in shown
    assert "Hello there.".startswith(shown.strip())


words = st.sampled_from(
    [
        "Hello",
        "NO",
        "NO_REPLY",
        "HEARTBEAT_OK",
        "你好",
        "a_b",
        "**x**",
        "\n",
        "```",
        "<b>",
        "[1]",
        "No",
        "OK.",
    ]
)


@given(st.lists(words, max_size=12).map(" ".join), st.lists(st.integers(0, 120), max_size=10))
def test_how_a_reply_is_cut_makes_a_difference_of_marks_at_the_most(text: str, places: list[int]) -> None:
    shown, whole = through(cut(text, places)), through([text])
    assert shown.startswith(whole)
    assert not shown[len(whole) :].strip("*`([. \n")


@pytest.mark.parametrize(
    "text", ["_" * 20_000 + "-", "- " * 20_000, "<think>" + "a" * 50_000, "NO_REPLY" + "b" * 50_000]
)
def test_a_long_reply_in_small_chunks_costs_no_more_than_its_length(text: str) -> None:
    through([text[start : start + 5] for start in range(0, len(text), 5)])


@given(st.lists(words, max_size=12).map(" ".join), st.lists(st.integers(0, 120), max_size=10))
def test_what_has_streamed_is_the_beginning_of_what_is_sent(text: str, places: list[int]) -> None:
    shown = through(cut(text, places))
    final = visible(text, MESSAGE)
    assert final.startswith(shown.strip()), (shown, final)
