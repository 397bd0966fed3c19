"""Tools and their calls between the wire and us: schemas, ids, names and arguments."""

from __future__ import annotations

import hashlib
import json
import re
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NoReturn

from gateway.models.schema import clean_schema
from gateway.types import AssistantEntry, Entry, Json, JsonObject, ToolCall, ToolEntry, ToolSpec

CUT = "the answer reached its length limit in the middle of this call, so it did not run; make it shorter"
"""The problem of a call at whose end the model ran out of tokens (models 2.3 row 13)."""

DEEPEST = 64
"""Levels of nesting that arguments may have: a deeper value would end whatever walks through it."""

_SHORT = re.compile(r"[A-Za-z0-9]{9}")
_PLAIN = re.compile(r"[A-Za-z0-9_-]{1,40}")
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_NAME_LENGTH = 64
_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def new_id() -> str:
    """Return nine letters and digits, the only form that every provider takes (models 2.3 row 11)."""
    return secrets.token_hex(5)[:9]


def wire_id(call_id: str, *, short: bool) -> str:
    """Return an id that a provider takes: nine letters and digits if `short` (Mistral), else up to 40.

    The same id always becomes the same one, so that old messages keep their bytes.
    """
    if (_SHORT if short else _PLAIN).fullmatch(call_id):
        return call_id
    return hashlib.sha256(call_id.encode("utf-8", "replace")).hexdigest()[:9]


def parse_args(raw: Json) -> tuple[JsonObject, str | None]:
    """Return the arguments of a call, and why they can't be read (models 2.3 rows 7, 8, 9).

    Nothing, blanks and null are no arguments; an object comes as it is, as JSON, or as JSON in JSON.
    """
    value = raw
    for _ in range(2):
        if not isinstance(value, str):
            break
        try:
            value = json.loads(value, strict=False, parse_constant=_no_number) if value.strip() else None
        except (ValueError, RecursionError) as error:
            return {}, f"the arguments are not valid JSON: {error}"
    if value is None:
        return {}, None
    if not isinstance(value, dict):
        return {}, "the arguments must be a JSON object"
    return ({}, "the arguments are nested too deeply") if _is_too_deep(value) else (value, None)


def _is_too_deep(value: Json) -> bool:
    level = [value]
    for _ in range(DEEPEST):
        level = [inner for outer in level for inner in _inner(outer)]
        if not level:
            return False
    return True


def _inner(value: Json) -> Iterable[Json]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def _no_number(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON number")


def args_json(args: JsonObject) -> str:
    """Return arguments as providers want them back."""
    return _encode(args)


@dataclass(frozen=True, slots=True)
class Names:
    """Tool names that every provider takes: letters, digits, `_` and `-`, at most 64 (models 2.3 row 33)."""

    _wire: dict[str, str]
    _ours: dict[str, str]

    @classmethod
    def of(cls, tools: Iterable[ToolSpec]) -> Names:
        """Return the names of these tools; two that would become one get a hash."""
        wire: dict[str, str] = {}
        ours: dict[str, str] = {}
        # A name that is fine as it is comes first, and so keeps it.
        for name in sorted((tool.name for tool in tools), key=lambda name: (_plain_name(name) != name, name)):
            plain = _plain_name(name)
            sent = plain if ours.get(plain, name) == name else _hashed(name, plain)
            wire[name], ours[sent] = sent, name
        return cls(wire, ours)

    def sent(self, name: str) -> str:
        """Return what the provider calls a tool, also one that we no longer have."""
        return self._wire.get(name) or _plain_name(name)

    def ours(self, sent: str) -> str:
        """Return the name that the model's word stands for."""
        return self._ours.get(sent, sent)

    def known(self, sent: str) -> bool:
        """Whether there is such a tool."""
        return sent in self._ours


def _plain_name(name: str) -> str:
    if _NAME.fullmatch(name):
        return name
    plain = re.sub(r"[^A-Za-z0-9_-]", "__", name)
    return plain if 0 < len(plain) <= _NAME_LENGTH else _hashed(name, plain)


def _hashed(name: str, plain: str) -> str:
    digest = hashlib.sha256(name.encode("utf-8", "replace")).hexdigest()[:8]
    return f"{plain[: _NAME_LENGTH - 9]}_{digest}"


def by_name(tools: Iterable[ToolSpec]) -> list[ToolSpec]:
    """Return the tools in the one order that keeps a provider's cache (models 2.3 row 32)."""
    return sorted(tools, key=lambda tool: tool.name)


def functions(tools: Iterable[ToolSpec], names: Names, *, simple: bool = False) -> list[JsonObject]:
    """Return tools as most dialects want them; `simple` keeps to what Gemini takes of their schemas."""
    return [
        {
            "type": "function",
            "function": {
                "name": names.sent(tool.name),
                "description": tool.description,
                "parameters": clean_schema(tool.parameters) if simple else dict(tool.parameters),
            },
        }
        for tool in by_name(tools)
    ]


def without_named(entries: Sequence[Entry], detail: str) -> list[Entry] | None:
    """Return the entries without the calls, and their results, whose ids an error names (session-08).

    None if it names none.
    """
    words = {form for word in re.findall(r"[\w.:-]{4,}", detail) for form in (word, word.strip(".:-"))}
    bad = {
        call.id
        for entry in entries
        if isinstance(entry, AssistantEntry)
        for call in entry.calls
        if not words.isdisjoint({call.id, wire_id(call.id, short=False), wire_id(call.id, short=True)})
    }
    if not bad:
        return None
    out: list[Entry] = []
    for entry in entries:
        if isinstance(entry, AssistantEntry) and entry.calls:
            kept = tuple(call for call in entry.calls if call.id not in bad)
            out.append(replace(entry, calls=kept))
        elif not (isinstance(entry, ToolEntry) and entry.call_id in bad):
            out.append(entry)
    return out


def readable(call_id: str | None, name: str, raw: Json, *, cut: bool, extra: JsonObject) -> ToolCall:
    """Return the call that the wire's pieces make; with `cut` its end may be missing."""
    args, problem = parse_args(raw)
    if cut and (problem is not None or (isinstance(raw, str | None) and not (raw or "").strip())):
        problem = CUT
    return ToolCall(call_id or new_id(), name, args, problem, extra)
