"""What Slack is given for a Markdown text, in both of its languages."""

from __future__ import annotations

import html
import re
import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from adapters.slack.render import (
    FALLBACK,
    MARKDOWN,
    MRKDWN,
    NOBODY,
    Mentions,
    escaped,
    fallback,
    markdown,
    mrkdwn,
    mrkdwn_pieces,
    pieces,
)
from tests.fakes.markdown import INPUTS

COMMAND = re.compile(r"<[^<>]*>")
"""What Slack would act on."""

PARTS = (
    *(
        "<!channel>",
        "<!here|here>",
        "<!everyone>",
        "<!subteam^S1|team>",
        "<@U1>",
        "<@W2|bob>",
        "<#C1|general>",
    ),
    *("<", ">", "!channel", "@channel", "@here", "@everyone", "&lt;!channel&gt;", "&#60;!here&#62;", "\\<"),
    *(
        "`",
        "```",
        "```py\n",
        "~~~\n",
        "**",
        "_",
        "~~",
        "||",
        "\n",
        "\n\n",
        " ",
        "> ",
        "- ",
        "1. ",
        "| a | b |\n",
    ),
    *(
        "|---|---|\n",
        "[x](",
        ")",
        "](<",
        "https://e.com/<!here>",
        "<https://e.com|bank>",
        "a",
        "中",
        "\0",
        "\ud800",
    ),
)


def letters(text: str) -> str:
    """Return the letters and digits that people see."""
    shown = re.sub(r"<((?:https?|mailto)[^|>]*)(?:\|([^>]*))?>", r" \2 \1 ", text)
    return "".join(sorted(set(re.findall(r"[^\W_]+", html.unescape(shown)))))


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param("**b** and *i* and ~~s~~", "*b* and _i_ and ~s~", id="slack-out-01"),
        pytest.param("```python\nx = a**b  # [t](u)\n```", "```\nx = a**b  # [t](u)\n```", id="slack-out-02"),
        pytest.param(
            "| a | b |\n|---|---|\n| **x** | [t](https://a.example) |",
            "```\na | b\n--+----------------------\nx | t (https://a.example)\n```",
            id="slack-out-04",
        ),
        pytest.param(
            "He wrote: <!channel> and <@U1>",
            "He wrote: &lt;!channel&gt; and &lt;@U1&gt;",
            id="slack-out-05",
        ),
        pytest.param("# Title *now*", "*Title _now_*", id="a heading is bold"),
        pytest.param("a**b**c", "a\u200b*b*\u200bc", id="emphasis inside of a word"),
        pytest.param("**a**, (*b*)", "*a*, (_b_)", id="signs stand beside punctuation"),
        pytest.param("**one\ntwo**", "*one*\n*two*", id="no formatting goes on over a line"),
        pytest.param("**[t](https://a.b)**", "*<https://a.b|t>*", id="a bold link"),
        pytest.param("[a **b** `c`](https://a.b/?x=1&y=2)", "<https://a.b/?x=1&amp;y=2|a b c>", id="a label"),
        pytest.param("[a|b>c](https://e.com/a|b)", "<https://e.com/a%7Cb|a|b&gt;c>", id="signs in a link"),
        pytest.param("https://a.b/c_d_e", "<https://a.b/c_d_e>", id="a bare address"),
        pytest.param("`a<b`", "`a&lt;b`", id="a code span is escaped"),
        pytest.param("``a`b``", "a`b", id="a code span that can't be said is text"),
        pytest.param("> a\n> > b\n\nc", "> a\n> b\n\nc", id="a quote in a quote is one quote"),
        pytest.param("- a\n  ```\n    x\n  ```", "• a\n```\n  x\n```", id="code in a list keeps its columns"),
        pytest.param("2. a\n3. b", "2. a\n3. b", id="a numbered list"),
        pytest.param("- [x] a\n- [ ] b", "☑ a\n☐ b", id="boxes"),
        pytest.param("AT&T &amp; a < b", "AT&amp;T &amp; a &lt; b", id="each sign is escaped once"),
    ],
)
def test_markdown_becomes_mrkdwn(text: str, want: str) -> None:
    assert mrkdwn(text) == want


@pytest.mark.parametrize("text", INPUTS.values(), ids=INPUTS)
def test_nothing_of_a_text_is_lost_in_mrkdwn_and_nothing_in_it_is_a_command(text: str) -> None:
    shown = mrkdwn(text)
    links = COMMAND.findall(shown)
    assert all(re.fullmatch(r"<(https?://|mailto:)[^<>|\s]+(\|[^<>]*)?>", link) for link in links)
    assert "<" not in COMMAND.sub("", shown)
    assert not re.search(r"&(?!amp;|lt;|gt;)", shown)
    source = text.replace("&amp;", "&").replace("&lt;", "<").replace("&gt;", ">").replace("\0", "")
    # A language, a title, a box to tick, numbers counted anew, tags of HTML and a link.s picture are no words.
    gone = {"python", "js", "py", "sh", "c", "md", "ti", "t", "details", "summary", "x", "10", "svg"}
    words = set(re.findall(r"[^\W_]+", source)) - gone
    assert words <= set(re.findall(r"[^\W_]+", html.unescape(shown)))


@pytest.mark.parametrize("text", INPUTS.values(), ids=INPUTS)
def test_markdown_stays_as_it_is_but_for_angle_brackets(text: str) -> None:
    shown = markdown(text, NOBODY)
    assert shown.replace("&lt;", "<").replace("&gt;", ">").replace("\u2060", "") == text.replace(
        "&lt;", "<"
    ).replace("&gt;", ">").replace("\0", "")
    assert all(re.fullmatch(r"<(https?://|mailto:)[^<>|\s]+>", found) for found in COMMAND.findall(shown))
    assert "<" not in COMMAND.sub("", shown)


@given(st.lists(st.sampled_from(PARTS) | st.text(max_size=3), max_size=30).map("".join))
@example("<!channel>")
@example("`<!here>`")
@example("```\n<!everyone>")
@example("[<!channel>](https://e.com)")
@example("| <!subteam^S1> |\n|---|\n| <@U1|x> |")
@example("> <!channel>")
@example("<https://e.com/<!channel>>")
@example("<<!channel>>")
@example("<!chan\0nel>")
def test_no_text_whatsoever_rings_anybody(text: str) -> None:
    for shown in (
        markdown(text, NOBODY),
        fallback(text, NOBODY),
        escaped(text),
        *mrkdwn_pieces(text, NOBODY),
    ):
        assert not re.search(r"<[!@#]", shown)
        assert not re.search(
            r"(?<![\w/.@-])@(channel|here|everyone)\b", COMMAND.sub("", re.sub(r"`[^`]*`", "", shown))
        )
        assert all(re.match(r"<(https?://|mailto:)", one) for one in COMMAND.findall(shown))


@given(st.lists(st.sampled_from(PARTS) | st.text(max_size=5), max_size=30).map("".join))
def test_only_people_of_the_conversation_are_rung(text: str) -> None:
    known = Mentions(frozenset({"U1"}))
    for shown in (markdown(text, known), fallback(text, known), *mrkdwn_pieces(text, known)):
        assert set(re.findall(r"<[!@#][^>]*>?", shown)) <= {"<@U1>"}


def test_a_person_who_is_there_can_be_mentioned() -> None:
    known = Mentions(frozenset({"U1"}))
    assert mrkdwn("**ask** <@U1> or <@U2>", known) == "*ask* <@U1> or &lt;@U2&gt;"
    assert markdown("**ask** <@U1|ann> or <@U2>", known) == "**ask** <@U1> or &lt;@U2&gt;"
    assert mrkdwn("`<@U1>`", known) == "`&lt;@U1&gt;`"


def test_mass_mentions_ring_only_when_the_owner_allows_them() -> None:
    """Attack markdown-003."""
    text = "model output <!channel> <!here> <@U123> <!subteam^S1> @everyone"
    shown = "model output &lt;!channel&gt; &lt;!here&gt; &lt;@U123&gt; &lt;!subteam^S1&gt; @\u2060everyone"
    assert mrkdwn(text) == markdown(text, NOBODY) == shown
    allowed = Mentions(everybody=True)
    assert mrkdwn(text, allowed) == "model output <!channel> <!here> &lt;@U123&gt; <!subteam^S1> @everyone"
    assert markdown(text, allowed) == "model output <!channel> <!here> &lt;@U123&gt; <!subteam^S1> @everyone"


@pytest.mark.parametrize("text", ["mail ann@here.com", "https://medium.com/@everyone/x", "see @channels"])
def test_addresses_are_not_broken(text: str) -> None:
    assert markdown(text, NOBODY) == text


def test_a_link_with_a_label_that_could_hide_it_is_text() -> None:
    assert markdown("<https://evil.example|my bank>", NOBODY) == "&lt;https://evil.example|my bank&gt;"


@given(st.lists(st.sampled_from(PARTS) | st.text(max_size=8), max_size=25).map("".join), st.integers(1, 300))
def test_pieces_fit_whatever_the_text_is(text: str, times: int) -> None:
    text = (text * times)[:30_000]
    for piece in pieces(text):
        assert len(markdown(piece, NOBODY)) <= MARKDOWN
    for shown in mrkdwn_pieces(text[:9000], NOBODY):
        assert 0 < len(shown) <= MRKDWN


def test_a_short_text_is_one_piece_and_an_empty_one_none() -> None:
    assert pieces("Hello **you**") == ("Hello **you**",)
    assert pieces("") == pieces(" \n") == ()
    assert mrkdwn_pieces("", NOBODY) == ()


def test_a_long_text_is_cut_between_blocks_and_its_code_is_opened_again() -> None:
    code = "\n".join(f"line {number}" for number in range(2500))
    text = f"Before.\n\n```python\n{code}\n```\n\nAfter."
    found = pieces(text)
    assert len(found) == 3
    assert all(len(piece) <= MARKDOWN for piece in found)
    assert [piece.count("```python") for piece in found] == [1, 1, 1]
    assert [piece.count("```") for piece in found] == [2, 2, 2]
    assert re.findall(r"line \d+", "".join(found)) == code.split("\n")


def test_cut_in_mrkdwn_a_text_keeps_everything() -> None:
    rows = "\n".join(f"| name{number} | **{number}** |" for number in range(400))
    text = f"| n | v |\n|---|---|\n{rows}\n\n" + "\n".join(f"- item{number} `<x>`" for number in range(400))
    found = mrkdwn_pieces(text[:MARKDOWN], NOBODY)
    assert len(found) > 2
    assert all(len(piece) <= MRKDWN and piece.count("```") % 2 == 0 for piece in found)
    words = set(re.findall(r"\b(?:name|item)\d+", text[:MARKDOWN]))
    assert words <= set(re.findall(r"\b(?:name|item)\d+", "".join(found)))


def test_an_endless_address_does_not_break_the_limit() -> None:
    text = f"[x](https://e.com/?{'&' * 1900}) and " * 3
    assert all(len(piece) <= MRKDWN for piece in mrkdwn_pieces(text, NOBODY))


def test_a_notification_tells_the_beginning_of_a_text() -> None:
    assert fallback("Hi <!here> & bye", NOBODY) == "Hi &lt;!here&gt; &amp; bye"
    assert fallback("", NOBODY) == "…"
    assert fallback("a" * 9000, NOBODY) == "a" * (FALLBACK - 1) + "…"


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("`" * 50_000, id="markdown-010"),
        pytest.param("".join("  " * n + "- x\n" for n in range(300)), id="markdown-009-list"),
        pytest.param("| a | b |\n|---|---|\n" + "| 1 | 2 |\n" * 10_000, id="markdown-009-table"),
        pytest.param("<" * 50_000, id="angle brackets"),
        pytest.param("> " * 25_000, id="quotes"),
        pytest.param("<http://" * 6_000, id="half addresses"),
        pytest.param("<@U1|" * 10_000, id="half mentions"),
    ],
)
def test_no_text_takes_long(text: str) -> None:
    """Attacks markdown-009 and markdown-010; the bound is loose, what is quadratic takes minutes."""
    begun = time.process_time()
    for piece in pieces(text):
        assert len(markdown(piece, NOBODY)) <= MARKDOWN
    assert time.process_time() - begun < 5
