"""Bytes of a model's answer to JSON events, whatever mix of framings the server sends."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from gateway.types import Json, JsonObject

_DONE = "[DONE]"
_decode = json.JSONDecoder(strict=False).decode  # made once: `json.loads` would make one a call


@dataclass(slots=True)
class Decoder:
    """Reads server-sent events, one JSON object a line (Ollama), and a plain JSON body.

    Servers differ: comments to keep the connection alive (models 2.3 row 18), a JSON error body under
    status 200, a last event without its blank line, `data:` without a space (row 20), a byte-order
    mark, events without a blank line between them, characters cut between two chunks. What is no JSON
    object is skipped. `done` turns true at `[DONE]`.
    """

    done: bool = False
    _rest: bytes = b""
    _data: list[str] = field(default_factory=list)
    _loose: list[str] = field(default_factory=list)
    _name: str = ""

    def feed(self, chunk: bytes) -> list[JsonObject]:
        """Take more bytes; return the events that are complete now."""
        if b"\n" not in chunk:
            self._rest += chunk
            return []
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        events: list[JsonObject] = []
        for line in lines:
            self._line(line.decode("utf-8", "replace").rstrip("\r"), events)
        return events

    def close(self) -> list[JsonObject]:
        """Return the events that only the end of the stream completes."""
        events: list[JsonObject] = []
        self._line(self._rest.decode("utf-8", "replace").rstrip("\r"), events)
        self._rest = b""
        self._flush(events)
        events.extend(_objects("\n".join(self._loose)))
        self._loose.clear()
        return events

    def _line(self, line: str, events: list[JsonObject]) -> None:
        if line.startswith("data:"):
            self._data.append(line[5:].removeprefix(" "))
        elif not line:
            self._flush(events)
        elif line.startswith("event:"):
            self._flush(events)
            self._name = line[6:].strip()
        elif not line.startswith((":", "id:", "retry:")):
            self._body_line(line, events)

    def _body_line(self, line: str, events: list[JsonObject]) -> None:
        """Take a line outside any event: a whole object, or a piece of a body that spans lines."""
        whole = [] if self._loose else _objects(line.removeprefix("\ufeff"))
        if whole:
            events.extend(whole)
        else:
            self._loose.append(line)

    def _flush(self, events: list[JsonObject]) -> None:
        """End the event that is being read."""
        data, name = self._data, self._name
        self._data, self._name = [], ""
        if not data:
            return
        text = data[0] if len(data) == 1 else "\n".join(data)
        if text.strip() == _DONE:
            self.done = True
            return
        found = _objects(text)
        if not found and len(data) > 1:  # events without a blank line between them
            self.done = self.done or data[-1].strip() == _DONE
            found = [event for piece in data for event in _objects(piece)]
        if name == "error":
            found = [event if "error" in event else {"error": event} for event in found]
        events.extend(found)


def _objects(text: str) -> list[JsonObject]:
    """Return the JSON object in the text, those of a JSON array, or none."""
    try:
        value: Json = _decode(text)
    except (ValueError, RecursionError):
        return []
    found = value if isinstance(value, list) else [value]
    return [item for item in found if isinstance(item, dict)]
