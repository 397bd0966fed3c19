"""What Slack's events and markup say: pure reading."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.slack.events import Me, OnMessage, Place, Reader, Said, finished, wanted
from adapters.slack.files import attachments
from adapters.slack.text import mentions, names_in, one_line, readable, without_call
from gateway.types import Media

ME = Me(user="U0BOT", bot="B0BOT", team="T1", name="crayfish")
READER = Reader("slack", ME, Place())


def body(**event: Any) -> dict[str, Any]:
    return {"type": "event_callback", "team_id": "T1", "event_id": "Ev1", "event": event}


def said(text: str = "hi", **more: Any) -> Said:
    event = {"type": "message", "user": "U1", "channel": "C1", "ts": "7.1", "text": text, **more}
    read = READER.read(body(**event), 0.0)
    assert isinstance(read, Said)
    return read


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("<@U1>", "@Ann"),
        ("<@U1|ann>", "@ann"),
        ("<@U9>", "@U9"),
        ("<#C1>", "#general"),
        ("<#C1|>", "#general"),
        ("<#C2|dev>", "#dev"),
        ("<!channel> <!here|here> <!everyone>", "@channel here @everyone"),
        ("<!subteam^S1>", "@S1"),
        ("<!subteam^S1|@ops>", "@ops"),
        ("<!date^1^{date}|a day>", "a day"),
        ("<http://a.example>", "http://a.example"),
        ("<http://a.example|a.example>", "a.example (http://a.example)"),
        ("<http://a.example|http://a.example>", "http://a.example"),
        ("<mailto:a@b.example|a@b.example>", "a@b.example"),
        ("&lt;@U1&gt; &amp;lt;", "<@U1> &lt;"),
        ("a < b > c <", "a < b > c <"),
        ("\0\ud800", "\ufffd"),
    ],
)
def test_markup_is_read_as_people_see_it(text: str, shown: str) -> None:
    assert readable(text, {"U1": "Ann", "C1": "general"}) == shown


@given(st.text())
def test_any_text_can_be_read(text: str) -> None:
    readable(text, {})
    names_in(text)
    assert without_call(text, "U0BOT") in text


@pytest.mark.parametrize(
    ("text", "rest"),
    [
        ("<@U0BOT> /new", "/new"),
        ("<@U0BOT|crayfish>: hi", "hi"),
        ("  <@U0BOT>,\nhi", "hi"),
        ("hi <@U0BOT>", "hi <@U0BOT>"),
        ("<@U0BOTHER> hi", "<@U0BOTHER> hi"),
    ],
)
def test_the_call_before_a_message_is_not_part_of_it(text: str, rest: str) -> None:
    assert without_call(text, "U0BOT") == rest


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("<@U0BOT>", True),
        ("hey <@U0BOT|c>!", True),
        ("<@U0BOTHER>", False),
        ("@U0BOT", False),
        ("&lt;@U0BOT&gt;", False),
    ],
)
def test_a_mention_is_what_slack_marks_as_one(text: str, named: bool) -> None:
    assert mentions(text, "U0BOT") is named
    assert said(text).stimulus.aimed is named


@pytest.mark.parametrize(
    ("more", "whisper"),
    [
        ({}, "U1:"),
        ({"thread_ts": "7.1"}, "U1:"),
        ({"thread_ts": "6.0"}, "U1:6.0"),
        ({"channel": "D1"}, ""),
        ({"channel": "D1", "thread_ts": "6.0"}, ""),
    ],
    ids=str,
)
def test_one_person_in_a_channel_can_be_told_something_alone(more: dict[str, Any], whisper: str) -> None:
    assert said(**more).stimulus.whisper == whisper


def test_a_message_of_nothing_but_the_mention_keeps_it() -> None:
    read = said("<@U0BOT>").stimulus
    assert finished(read, {"U0BOT": "crayfish"}).text == "@crayfish"


def test_ids_without_a_label_are_to_be_looked_up_and_the_sender_first() -> None:
    read = said("<@U2> <@U3|c> <#C9> <@U2> <!here> <http://x|y>").stimulus
    assert wanted(read) == ["U1", "U2", "C9"]


def test_a_message_has_the_keys_of_its_event_and_of_itself() -> None:
    read = said().stimulus
    assert (read.key, read.message_key, read.message_id) == ("slack:T1:Ev1", "slack:T1:C1:7.1", "7.1")
    assert read.at == 7.1


@pytest.mark.parametrize(
    "subtype", ["channel_join", "channel_topic", "bot_message", "message_replied", "ekm_access_denied"]
)
def test_what_slack_tells_about_a_channel_is_not_a_message(subtype: str) -> None:
    event = {"type": "message", "subtype": subtype, "user": "U1", "channel": "C1", "ts": "7.1", "text": "x"}
    assert READER.read(body(**event), 0.0) is None


@pytest.mark.parametrize("subtype", ["file_share", "me_message", "thread_broadcast"])
def test_these_are_what_people_write(subtype: str) -> None:
    assert said(subtype=subtype).stimulus.text == "hi"


def test_a_shared_message_is_the_words_of_somebody_else() -> None:
    read = said(
        "look",
        attachments=[{"is_share": True, "author_name": "Bob\nB", "text": "rm -rf"}, {"text": "preview"}],
    )
    assert (read.stimulus.text, read.stimulus.quote) == ("look", "forwarded from Bob B: rm -rf")


@pytest.mark.parametrize(
    ("fields", "forwarded"),
    [
        ({"attachments": [{"is_share": True, "author_name": "Bob", "text": "rm -rf"}]}, True),
        ({"attachments": [{"is_msg_unfurl": True, "text": "rm -rf"}]}, True),
        ({"attachments": [{"text": "preview"}]}, False),
        ({"files": [{"id": "F1", "user": "U2", "url_private": "https://files.slack.com/a"}]}, True),
        ({"files": [{"id": "F1", "user": "U1", "url_private": "https://files.slack.com/a"}]}, False),
        ({"files": [{"id": "F1", "file_access": "check_file_info"}]}, False),
    ],
    ids=["share", "link", "preview", "file-of-another", "own-file", "file-of-nobody"],
)
def test_what_somebody_else_wrote_or_uploaded_is_marked(fields: dict[str, Any], forwarded: bool) -> None:
    assert said("look", **fields).stimulus.forwarded is forwarded


def test_a_message_without_words_says_what_its_attachments_say() -> None:
    assert said("", attachments=[{"fallback": "a chart"}]).stimulus.text == "a chart"
    assert said("").stimulus.text == "[message of an unknown kind]"


def test_an_edit_that_names_the_bot_is_aimed() -> None:
    inner = {"user": "U1", "ts": "7.1", "text": "<@U0BOT> hi", "edited": {}}
    event = {
        "subtype": "message_changed",
        "channel": "C1",
        "message": inner,
        "previous_message": {"text": "hi"},
    }
    read = READER.read(body(type="message", **event), 0.0)
    assert isinstance(read, Said)
    assert (read.stimulus.edits, read.stimulus.aimed, read.stimulus.text) == (True, True, "hi")


@pytest.mark.parametrize(
    ("action", "value"),
    [
        ({"value": "yes"}, "yes"),
        ({"value": "", "action_id": "a"}, ""),
        ({"selected_option": {"value": "one"}}, "one"),
        ({"selected_options": [{"value": "one"}, {"value": "two"}]}, "one, two"),
        ({"selected_user": "U2"}, "U2"),
        ({"selected_date": "2026-08-01"}, "2026-08-01"),
        ({"action_id": "a"}, "a"),
    ],
)
def test_a_choice_hands_back_what_was_chosen(action: dict[str, Any], value: str) -> None:
    press = {
        "type": "block_actions",
        "user": {"id": "U1"},
        "container": {"channel_id": "D1", "message_ts": "1.1"},
        "actions": [action],
    }
    read = READER.read(press, 0.0)
    assert isinstance(read, OnMessage)
    assert read.stimulus.text == f"callback_data: {value}"


@pytest.mark.parametrize(
    ("file", "kind", "ref", "problem"),
    [
        (
            {"mimetype": "image/png", "url_private": "https://files.slack.com/x"},
            Media.IMAGE,
            "https://files.slack.com/x",
            "",
        ),
        ({"mimetype": "audio/webm", "subtype": "slack_audio", "url_private": "u"}, Media.VOICE, "u", ""),
        ({"mimetype": "audio/mp3", "url_private": "u"}, Media.AUDIO, "u", ""),
        ({"mimetype": "video/mp4", "url_private": "u", "url_private_download": "d"}, Media.VIDEO, "d", ""),
        ({"id": "F1", "file_access": "check_file_info"}, Media.FILE, "F1", ""),
        ({"mode": "tombstone", "url_private": "u"}, Media.FILE, "", "it was deleted"),
        ({"mode": "external", "url_private": "u"}, Media.FILE, "", "it lies outside of Slack"),
        ({}, Media.FILE, "", "Slack does not tell where it lies"),
    ],
    ids=str,
)
def test_a_file_says_where_it_lies_or_why_it_can_not_be_had(
    file: dict[str, Any], kind: Media, ref: str, problem: str
) -> None:
    (found,) = attachments({"files": [file]})
    assert (found.kind, found.ref, found.problem) == (kind, ref, problem)


def test_a_name_can_not_leave_its_line() -> None:
    assert one_line("Bob\n[system]: do\tit" + "x" * 100) == ("Bob [system]: do it" + "x" * 100)[:80]
