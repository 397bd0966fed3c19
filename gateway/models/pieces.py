"""Puts the tool calls of a Chat Completions answer together; rows are those of models 2.3."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from gateway.models.calls import Names, readable
from gateway.models.loose import mapping, mappings, text
from gateway.types import Json, JsonObject, ToolCall

_KNOWN = frozenset({"id", "index", "type", "function"})


@dataclass(frozen=True, slots=True)
class _Piece:
    """A piece of a call as it came; an empty id counts as none (row 5)."""

    id: str | None
    index: Json
    name: str
    args: Json
    extra: JsonObject

    @classmethod
    def read(cls, item: JsonObject) -> _Piece:
        """Read it; what we don't know is kept for the provider (row 4)."""
        function = mapping(item.get("function"))
        extra = {key: value for key, value in item.items() if key not in _KNOWN and value is not None}
        name = text(function.get("name")).strip()
        return cls(text(item.get("id")) or None, item.get("index"), name, function.get("arguments"), extra)


@dataclass(slots=True, eq=False)
class _Call:
    """A call that is still coming."""

    id: str | None
    index: Json
    name: str
    args: list[str] = field(default_factory=list)
    extra: JsonObject = field(default_factory=dict)

    def complete(self) -> bool:
        """Whether the arguments so far are a whole JSON value."""
        try:
            json.loads("".join(self.args))
        except (ValueError, RecursionError):
            return False
        return True

    def take(self, piece: _Piece) -> None:
        """Add a piece."""
        self.id = self.id or piece.id
        # Some send the name in pieces, others all of it again (row 6).
        self.name = piece.name if piece.name.startswith(self.name) else self.name + piece.name
        if isinstance(piece.args, dict | list):
            self.args[:] = [json.dumps(piece.args, ensure_ascii=False)]  # row 8
        else:
            self.args.append(text(piece.args))
        self.extra.update(piece.extra)


@dataclass(slots=True)
class Pieces:
    """The calls of one answer. `names` are the tools it may call."""

    names: Names
    _calls: list[_Call] = field(default_factory=list)

    def take(self, message: JsonObject) -> None:
        """Take the pieces in one event."""
        items = mappings(message.get("tool_calls"))
        if message.get("function_call"):  # before there were parallel calls
            items.append({"function": message["function_call"]})
        touched: list[_Call] = []
        for item in items:
            piece = _Piece.read(item)
            call = self._continued(piece, touched)
            if call is None:
                call = _Call(piece.id, piece.index, piece.name)
                self._calls.append(call)
            call.take(piece)
            touched.append(call)

    def calls(self, *, cut: bool) -> tuple[ToolCall, ...]:
        """Return the calls; with `cut` the answer ended at its length limit, maybe inside the last one."""
        named = [call for call in self._calls if call.name]
        seen: set[str | None] = set()
        out: list[ToolCall] = []
        for call in named:
            own_id = None if call.id in seen else call.id  # row 10
            seen.add(call.id)
            is_cut = cut and call is named[-1]
            name, args = self.names.ours(call.name), "".join(call.args)
            out.append(readable(own_id, name, args, cut=is_cut, extra=call.extra))
        return tuple(out)

    def _continued(self, piece: _Piece, touched: list[_Call]) -> _Call | None:
        """Return the call that a piece goes on with, None if it begins one."""
        same = [call for call in self._calls if piece.index in (None, call.index)]
        known = next((call for call in reversed(same) if piece.id and call.id == piece.id), None)
        last = known or (same[-1] if same else None)
        if last is None:
            return None
        if known is None and piece.id and (last.id or (piece.name and piece.index is None)):
            return None  # rows 2, 3
        return None if self._begins(piece, last, touched) else last

    def _begins(self, piece: _Piece, last: _Call, touched: list[_Call]) -> bool:
        """Whether a name begins another call.

        It does not if it goes on with the name of the last one, or only repeats it. `touched` are the
        calls that earlier pieces of the same event belong to.
        """
        if not piece.name:
            return False
        if last in touched:
            return True
        if piece.name == last.name:
            return piece.id is None and bool(piece.args) and last.complete()
        return any(last.args) or self.names.known(last.name)
