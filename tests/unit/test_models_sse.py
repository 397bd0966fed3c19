"""Bytes to events, whatever the framing."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.models.sse import Decoder
from gateway.types import JsonObject


def decode(*chunks: bytes) -> tuple[list[JsonObject], bool]:
    decoder = Decoder()
    events = [event for chunk in chunks for event in decoder.feed(chunk)]
    return events + decoder.close(), decoder.done


@pytest.mark.parametrize(
    ("raw", "wanted"),
    [
        pytest.param('data: {"a":1}\n\ndata: {"a":2}\n\n', [{"a": 1}, {"a": 2}], id="standard"),
        pytest.param('data: {"a":1}\r\n\r\n', [{"a": 1}], id="crlf"),
        pytest.param(': PROCESSING\n\ndata:{"a":1}\n\n', [{"a": 1}], id="quirk-18-comment-quirk-20-no-space"),
        pytest.param('data: {"a":1}', [{"a": 1}], id="quirk-20-no-blank-line-at-the-end"),
        pytest.param(
            '{"error":{"message":"bad"}}', [{"error": {"message": "bad"}}], id="quirk-20-plain-json"
        ),
        pytest.param(
            '{\n  "error": {\n    "code": 1\n  }\n}\n', [{"error": {"code": 1}}], id="pretty-printed-json"
        ),
        pytest.param('\ufeff[{"error":1}]', [{"error": 1}], id="json-array-after-a-byte-order-mark"),
        pytest.param('{"a":1}\n{"a":2}\n', [{"a": 1}, {"a": 2}], id="one-object-a-line"),
        pytest.param('data: {"a":\ndata: 1}\n\n', [{"a": 1}], id="one-event-on-two-lines"),
        pytest.param('data: {"a":1}\ndata: {"a":2}\n\n', [{"a": 1}, {"a": 2}], id="no-blank-line-between"),
        pytest.param('id: 7\nretry: 10\nevent: x\ndata: {"a":1}\n\n', [{"a": 1}], id="other-fields"),
        pytest.param(
            'event: error\ndata: {"message":"m"}\n\n', [{"error": {"message": "m"}}], id="named-error"
        ),
        pytest.param(
            'event: x\ndata: {"a":1}\nevent: y\ndata: {"a":2}', [{"a": 1}, {"a": 2}], id="only-event-lines"
        ),
        pytest.param("data: nonsense\n\ndata: 7\n\ndata: null\n\n", [], id="no-objects"),
        pytest.param("<html>\nBad gateway\n</html>", [], id="web-page"),
        pytest.param('data: {"a":"' + "[" * 9 + '"}\n\n', [{"a": "[" * 9}], id="brackets-in-text"),
        pytest.param("data: " + "[" * 100_000 + "\n\n", [], id="nested-too-deep"),
    ],
)
def test_events_are_found(raw: str, wanted: list[JsonObject]) -> None:
    assert decode(raw.encode()) == (wanted, False)


def test_the_end_mark_ends_it() -> None:
    assert decode(b'data: {"a":1}\n\ndata: [DONE]\n\n') == ([{"a": 1}], True)
    assert decode(b'data: {"a":1}\ndata: [DONE]\n') == ([{"a": 1}], True)


JSON_TEXT = st.dictionaries(st.text(max_size=3), st.text(max_size=5), max_size=2)


@given(st.lists(JSON_TEXT, max_size=4), st.data())
def test_it_does_not_matter_where_the_bytes_are_cut(events: list[JsonObject], data: st.DataObject) -> None:
    raw = b"".join(b"data: " + json.dumps(event, ensure_ascii=False).encode() + b"\n\n" for event in events)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(raw)), max_size=6)))

    pieces = [raw[start:end] for start, end in zip([0, *cuts], [*cuts, len(raw)], strict=True)]

    assert decode(*pieces) == (events, False)
