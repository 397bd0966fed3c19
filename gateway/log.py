"""Logging: one event name per line with fields, no secret in it, and nothing in it that a terminal obeys."""

from __future__ import annotations

import json
import logging
import math
import queue
import re
import sys
import threading
import time
from collections.abc import Callable, Iterable
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import TextIO, TypeAlias

from gateway.redact import Redactor
from gateway.types import Json

conversation: ContextVar[str] = ContextVar("conversation", default="")
"""The name of the conversation that this task works for; printed with every line."""

turn: ContextVar[str] = ContextVar("turn", default="")
"""The id of the turn that this task runs; printed with every line."""

_QUIET = ("aiosqlite", "alembic", "apscheduler", "httpcore", "httpx", "slack_bolt", "slack_sdk")
"""Libraries that tell too much: the INFO line of httpx prints whole URLs, and so bot tokens (libraries 9)."""

_LINES = 10_000
"""Lines that may wait for a reader that is slow; what comes beyond them is counted and dropped."""

_CONTROLS = {code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0))} | {
    ord("\n"): "\\n",
    ord("\r"): "\\r",
    ord("\t"): "\\t",
    **{code: f"\\u{code:04x}" for code in (0x2028, 0x2029, *range(0x202A, 0x202F), *range(0x2066, 0x206A))},
}
"""Control characters, line ends and direction marks, as the text that stands for them."""

_STANDARD = {*logging.makeLogRecord({}).__dict__, "message", "asctime", "taskName"}


Render: TypeAlias = Callable[[logging.LogRecord, Redactor], str]


def console_line(record: logging.LogRecord, redact: Redactor) -> str:
    """Return `21:05:03 INFO    turn.done conversation=telegram:42 key=value`, a traceback indented below."""
    parts = [
        time.strftime("%H:%M:%S", time.localtime(record.created)),
        f"{record.levelname:<7}",
        visible(redact(_message(record))),
        *(f"{key}={_quoted(redact(str(value)))}" for key, value in _fields(record).items()),
    ]
    # Indented, no line of an exception's text can pass for a line of the log.
    trace = "".join(f"\n  {visible(line)}" for line in redact(_trace(record)).splitlines())
    return " ".join(parts) + trace


def json_line(record: logging.LogRecord, redact: Redactor) -> str:
    """Return a JSON object in ASCII: `time` (ISO 8601, UTC), `level`, `logger`, `event`, fields, `trace`."""
    body: dict[str, Json] = {
        "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
        "level": record.levelname.lower(),
        "logger": record.name,
        "event": redact(_message(record)),
    }
    if trace := redact(_trace(record)):
        body["trace"] = trace
    fields = {key: _json_field(value, redact) for key, value in _fields(record).items()}
    return json.dumps({**fields, **body})


def _json_field(value: object, redact: Redactor) -> Json:
    plain = value is None or (isinstance(value, bool | int | float) and math.isfinite(value))
    return value if plain else redact(str(value))


def _message(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except (TypeError, ValueError, KeyError):
        return f"{record.msg} (its arguments do not fit)"


def _trace(record: logging.LogRecord) -> str:
    if record.exc_info and not record.exc_text:
        record.exc_text = logging.Formatter().formatException(record.exc_info)
    return "\n".join(part for part in (record.exc_text, record.stack_info) if part)


def _fields(record: logging.LogRecord) -> dict[str, object]:
    ids = {"conversation": conversation.get(), "turn": turn.get()}
    given = {key: value for key, value in record.__dict__.items() if key not in _STANDARD}
    return {key: value for key, value in ids.items() if value} | given


def _quoted(text: str) -> str:
    """Return a field's text so that it can't pass for two fields."""
    shown = visible(text)
    return json.dumps(shown, ensure_ascii=False) if not shown or re.search(r'[\s="]', shown) else shown


def visible(text: str) -> str:
    """Return the text with control characters spelled out, so that a terminal shows and doesn't obey them."""
    return text.translate(_CONTROLS)


class Sink(logging.Handler):
    """Writes lines from a thread of its own: a reader that is slow never holds up the caller."""

    def __init__(self, stream: TextIO, render: Render, redact: Redactor) -> None:
        super().__init__()
        self.redact = redact
        self._stream, self._render = stream, render
        self._queue: queue.Queue[str | None] = queue.Queue(_LINES)
        self._dropped = 0
        self._thread = threading.Thread(target=self._write, name="log", daemon=True)
        self._thread.start()

    def emit(self, record: logging.LogRecord) -> None:
        """Render here, where the context of the caller is, and leave the writing to the thread."""
        try:
            line = self._render(record, self.redact)
        except Exception as error:  # noqa: BLE001 - a log line must never break what it tells of
            line = f"log.failed event={visible(str(record.msg))} error={type(error).__name__}"
        try:
            self._queue.put_nowait(line)
        except queue.Full:
            self._dropped += 1

    def close(self) -> None:
        """Write what waits, for two seconds at most."""
        if self._thread.is_alive():
            try:
                self._queue.put(None, timeout=1)
                self._thread.join(timeout=1)
            except queue.Full:
                pass  # nobody reads; the lines are lost
        super().close()

    def _write(self) -> None:
        while (line := self._queue.get()) is not None:
            if self._dropped:
                line, self._dropped = f"{line}\nlog.dropped lines={self._dropped}", 0
            try:
                # A lone surrogate in a text must not end the log.
                self._stream.write(f"{line}\n".encode(errors="backslashreplace").decode())
                self._stream.flush()
            except (OSError, ValueError):
                return  # the stream is closed: there is nobody to tell


def configure(level: str, style: str, secrets: Iterable[str], stream: TextIO | None = None) -> None:
    """Send everything of `level` and above to `stream` (stderr), as `console` or `json`, without `secrets`.

    May be called again; the last call holds.
    """
    shutdown()
    render = json_line if style == "json" else console_line
    sink = Sink(stream or sys.stderr, render, Redactor(secrets))
    logging.root.addHandler(sink)
    logging.root.setLevel(level.upper())
    for name in _QUIET:
        logging.getLogger(name).setLevel(logging.WARNING)


def shutdown() -> None:
    """Write what waits and stop writing."""
    for sink in _sinks():
        logging.root.removeHandler(sink)
        sink.close()


def redact(text: str) -> str:
    """Return a text without the secrets that `configure` was told, nor anything that looks like one."""
    return next((sink.redact for sink in _sinks()), Redactor())(text)


def _sinks() -> list[Sink]:
    return [one for one in logging.root.handlers if isinstance(one, Sink)]
