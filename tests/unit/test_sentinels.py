from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.sentinels import Gate, looks_like_call, visible
from gateway.types import Kind

MESSAGE, BEAT, CRON = Kind.MESSAGE, Kind.HEARTBEAT, Kind.CRON
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


ALARM = (
    "Disk on the build host is at 97 percent and two nightly jobs failed with no space left. The log volume "
    "needs rotation before tonight or the release job will fail too."
)


@pytest.mark.parametrize(
    ("text", "kind", "shown"),
    [
        pytest.param("HEARTBEAT_OK", BEAT, "", id="heartbeat-reply-01"),
        pytest.param("[helper] HEARTBEAT_OK", BEAT, "", id="heartbeat-reply-03"),
        pytest.param("[Sat 2026-02-28 14:30 +08:00] HEARTBEAT_OK", BEAT, "", id="an-imitated-stamp"),
        pytest.param("[helper] Disk full", BEAT, "[helper] Disk full", id="a-label-alone-is-text"),
        pytest.param(
            f"Let me look.\nHEARTBEAT_OK\n{ALARM}", BEAT, f"Let me look.\n{ALARM}", id="heartbeat-reply-05"
        ),
        pytest.param(
            "Disk full.\nHEARTBEAT_OK\nBob wrote.", BEAT, "Disk full.\nBob wrote.", id="short-around-it"
        ),
        pytest.param(
            "HEARTBEAT_OK. The meeting is at 15:00.",
            MESSAGE,
            "The meeting is at 15:00.",
            id="heartbeat-reply-06",
        ),
        pytest.param("All quiet here, no action.\n\nNO_REPLY", BEAT, "", id="heartbeat-reply-07"),
        pytest.param(f"{REPORT}\n\nNO_REPLY", BEAT, REPORT.strip(), id="a-long-report-before-silence"),
        pytest.param("HEARTBEAT_OK Disk full", MESSAGE, "Disk full", id="heartbeat-reply-09"),
        pytest.param("<b>HEARTBEAT_OK</b>", BEAT, "", id="html"),
        pytest.param("<p>HEARTBEAT_OK</p>&nbsp;", BEAT, "", id="html-and-blanks"),
        pytest.param(f"<b>HEARTBEAT_OK</b> {REPORT}", BEAT, REPORT.strip(), id="html-before-a-report"),
        pytest.param("HEARTBEAT_OK!!!", BEAT, "", id="marks-behind-it"),
        pytest.param("一切正常。HEARTBEAT_OK。", BEAT, "", id="chinese-around-it"),
        pytest.param(
            "磁盘满了，HEARTBEAT_OK 是个标记", BEAT, "磁盘满了，HEARTBEAT_OK 是个标记", id="chinese-prose"
        ),
        pytest.param("", BEAT, "", id="nothing-at-all"),
        pytest.param(
            "Run this:\n```\necho HEARTBEAT_OK\n```\nnow",
            BEAT,
            "Run this:\n```\necho HEARTBEAT_OK\n```\nnow",
            id="beat-code",
        ),
        pytest.param(
            "It says:\n```\nHEARTBEAT_OK\n```",
            MESSAGE,
            "It says:\n```\nHEARTBEAT_OK\n```",
            id="code-at-the-end",
        ),
        pytest.param("Write `HEARTBEAT_OK`", MESSAGE, "Write `HEARTBEAT_OK`", id="inline-code-at-the-end"),
        pytest.param("`HEARTBEAT_OK` it is", MESSAGE, "`HEARTBEAT_OK` it is", id="inline-code-at-the-start"),
        pytest.param("NO_REPLY", CRON, "", id="no-reply-01"),
        pytest.param(
            "Backup finished, 12 GB.\n\nNO_REPLY", CRON, "Backup finished, 12 GB.", id="no-reply-02"
        ),
        pytest.param("NO_REPLY", MESSAGE, "", id="no-reply-05"),
        pytest.param(
            "NO_REPLY is the word I use when I stay silent.",
            MESSAGE,
            "NO_REPLY is the word I use when I stay silent.",
            id="no-reply-07",
        ),
        pytest.param("NO_REPLY: nothing new", MESSAGE, "nothing new", id="a-slip-with-a-colon"),
        pytest.param("NO_REPLY -- Hello", MESSAGE, "Hello", id="a-slip-with-dashes"),
        pytest.param("NO_REPLY好的，我来处理", MESSAGE, "好的，我来处理", id="a-slip-before-chinese"),
        pytest.param("NO_REPLY_MODE is on", MESSAGE, "NO_REPLY_MODE is on", id="a-longer-word"),
    ],
)
def test_what_people_see_where_a_model_says_more_than_a_token(text: str, kind: Kind, shown: str) -> None:
    assert visible(text, kind, ack_max_chars=300) == shown


letters = st.text(st.characters(categories=["Lu", "Ll", "Lo", "Nd"]), min_size=1, max_size=8)


@given(st.lists(letters, min_size=1, max_size=6), st.lists(letters, min_size=1, max_size=6), st.booleans())
def test_a_token_within_prose_or_code_stays_as_it_is(before: list[str], after: list[str], code: bool) -> None:
    """Spec NR-17."""
    for token in ("NO_REPLY", "HEARTBEAT_OK"):
        for kind in Kind:
            said = f"`{token}`" if code else token
            text = f"{' '.join(before)} {said} {' '.join(after)}"
            assert visible(text, kind) == text
            fenced = f"{' '.join(before)}\n```\n{token}\n```\n{' '.join(after)}"
            assert visible(fenced, kind) == fenced


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
