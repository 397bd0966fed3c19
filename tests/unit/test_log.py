"""The log: what a line looks like, and what never stands in one."""

from __future__ import annotations

import io
import json
import logging
import threading
from collections.abc import Callable, Iterator
from contextvars import copy_context
from typing import TypeAlias

import pytest

from gateway import log
from gateway.redact import Redactor

Lines: TypeAlias = Callable[[], list[str]]
Configured: TypeAlias = Callable[..., Lines]

_log = logging.getLogger("gateway.test")


@pytest.fixture
def configured() -> Iterator[Configured]:
    """Configure the log onto a text; the function that comes back ends it and returns its lines."""
    level = logging.root.level

    def start(style: str = "console", secrets: tuple[str, ...] = (), at: str = "debug") -> Lines:
        stream = io.StringIO()
        log.configure(at, style, secrets, stream)

        def lines() -> list[str]:
            log.shutdown()
            return stream.getvalue().splitlines()

        return lines

    yield start
    log.shutdown()
    logging.root.setLevel(level)


def test_a_line_has_time_level_event_and_fields(configured: Configured) -> None:
    lines = configured()
    _log.info("turn.done", extra={"rounds": 2, "model": "demo"})
    (line,) = lines()
    assert line[8:] == " INFO    turn.done rounds=2 model=demo"


def test_a_json_line_is_one_object_with_numbers_as_numbers(configured: Configured) -> None:
    lines = configured("json")
    _log.warning(
        "turn.done", extra={"rounds": 2, "cost": 0.5, "ok": True, "ratio": float("nan"), "key": None}
    )
    (line,) = lines()
    body = json.loads(line)
    assert body.pop("time").endswith("+00:00")
    assert body == {
        "level": "warning",
        "logger": "gateway.test",
        "event": "turn.done",
        "rounds": 2,
        "cost": 0.5,
        "ok": True,
        "ratio": "nan",
        "key": None,
    }


def test_the_conversation_and_the_turn_of_the_caller_stand_in_its_lines_only(configured: Configured) -> None:
    lines = configured()

    def in_a_turn() -> None:
        log.conversation.set("telegram:42")
        log.turn.set("t1")
        _log.info("inside")

    copy_context().run(in_a_turn)
    _log.info("outside")
    inside, outside = lines()
    assert inside.endswith("inside conversation=telegram:42 turn=t1")
    assert outside.endswith("outside")


def test_a_field_can_not_replace_the_event_of_a_json_line(configured: Configured) -> None:
    lines = configured("json")
    _log.info("turn.done", extra={"event": "other", "level": "x"})
    assert json.loads(lines()[0])["event"] == "turn.done"


@pytest.mark.parametrize("style", ["console", "json"])
def test_a_known_secret_is_nowhere_whatever_way_it_came(configured: Configured, style: str) -> None:
    secret = 'pa"ss wörd/1'
    lines = configured(style, (secret,))
    _log.info(f"a {secret}")
    _log.info("b %s", secret)
    _log.info("c", extra={"field": secret, "more": {"deep": [secret]}})
    _log.info("http://h/?x=pa%22ss%20w%C3%B6rd%2F1")
    try:
        raise ValueError(secret)
    except ValueError:
        _log.exception("d")
    text = "\n".join(lines())
    assert text.count("***") == 6
    assert "ss w" not in text


def test_a_short_secret_does_not_blank_out_words(configured: Configured) -> None:
    lines = configured(secrets=("", "a", "turn"))
    _log.info("turn.start")
    assert lines()[0].endswith("turn.start")


def test_no_text_can_forge_a_line_or_a_field(configured: Configured) -> None:
    lines = configured()
    _log.info("got %s", "x\r\n12:00:00 INFO    forged")
    _log.info("got", extra={"name_": "a b=c", "empty": "", "line": "x\ny"})
    try:
        raise ValueError("x\n12:00:00 ERROR   forged\u2028\x85forged")
    except ValueError:
        _log.exception("failed")
    first, second, *rest = lines()
    assert first.endswith("got x\\r\\n12:00:00 INFO    forged")
    assert second.endswith('got name_="a b=c" empty="" line=x\\ny')
    assert all(line.startswith("  ") for line in rest[1:])


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        pytest.param("\x1b[2J\x1b[1;1Hfake prompt", "\\x1b[2J\\x1b[1;1Hfake prompt", id="text-001"),
        pytest.param("\x1b]52;c;ZXZpbA==\x07", "\\x1b]52;c;ZXZpbA==\\x07", id="text-003"),
        pytest.param("\x9b31m red by C1 byte", "\\x9b31m red by C1 byte", id="text-004"),
        pytest.param("a\u202eb\u2066c", "a\\u202eb\\u2066c", id="direction-marks"),
        pytest.param("\u05e9\u05dc\u05d5\u05dd \u0645\u0631\u062d\u0628\u0627", None, id="text-015"),
        pytest.param("天气 ☀️", None, id="other-scripts"),
    ],
)
def test_a_terminal_shows_control_characters_and_does_not_obey_them(text: str, shown: str | None) -> None:
    assert log.visible(text) == (shown or text)


def records(render: log.Render, *records: dict[str, object]) -> list[str]:
    """Return the lines of records that pytest's own handlers must not see: they fail on them."""
    stream = io.StringIO()
    sink = log.Sink(stream, render, Redactor())
    for record in records:
        sink.emit(logging.makeLogRecord(record))
    sink.close()
    return stream.getvalue().splitlines()


def test_a_lone_surrogate_does_not_end_the_log() -> None:
    lines = records(log.console_line, {"msg": "first \ud800"}, {"msg": "second"})
    assert [line.split("None ")[1] for line in lines] == ["first \\ud800", "second"]


@pytest.mark.parametrize("render", [log.console_line, log.json_line])
def test_a_broken_log_call_does_not_break_the_caller(render: log.Render) -> None:
    class Unprintable:
        def __str__(self) -> str:
            raise RuntimeError("no text")

    first, second = records(
        render, {"msg": "%d items", "args": ("two",)}, {"msg": "odd", "value": Unprintable()}
    )
    assert "%d items (its arguments do not fit)" in first
    assert second == "log.failed event=odd error=RuntimeError"


@pytest.mark.parametrize("name", ["httpx", "httpcore", "slack_sdk", "slack_bolt", "apscheduler", "alembic"])
def test_libraries_that_tell_too_much_are_heard_from_warning_on(configured: Configured, name: str) -> None:
    lines = configured()
    logging.getLogger(name).info("HTTP Request: GET https://h/x")
    logging.getLogger(f"{name}.inner").warning("careful")
    assert [line[17:] for line in lines()] == ["careful"]


def test_lines_below_the_level_are_not_written(configured: Configured) -> None:
    lines = configured(at="warning")
    _log.info("quiet")
    assert lines() == []


def test_a_reader_that_does_not_read_holds_up_nobody() -> None:
    reading = threading.Event()

    class Stuck(io.StringIO):
        def write(self, text: str) -> int:
            reading.wait()
            return super().write(text)

    stream = Stuck()
    log.configure("info", "console", (), stream)
    for _ in range(10_050):
        _log.info("x")
    reading.set()
    log.shutdown()
    text = stream.getvalue()
    assert "log.dropped lines=" in text
    assert 10_000 <= text.count(" x\n") < 10_050


def test_a_closed_stream_is_no_error(configured: Configured) -> None:
    stream = io.StringIO()
    log.configure("info", "console", (), stream)
    stream.close()
    _log.info("into the void")
    log.shutdown()


def test_a_text_for_a_person_is_redacted_with_what_the_log_knows(configured: Configured) -> None:
    assert log.redact("hush-hush") == "hush-hush"
    configured(secrets=("hush-hush",))
    assert log.redact("hush-hush") == "***"
