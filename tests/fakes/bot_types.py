"""Random objects that fit the published Bot API schema."""

from __future__ import annotations

import json
import re
from random import Random
from typing import Any, TypeAlias

from tests.fakes.bot_api import SCHEMA

JsonObject: TypeAlias = dict[str, Any]

_OPTIONAL = 4
_REQUIRED = 10
"""Levels of objects below which optional fields are left out, and below which even the others are."""

_UNIONS = {
    "MaybeInaccessibleMessage": ["Message", "InaccessibleMessage"],
    "ChatMember": [f"ChatMember{one}" for one in ("Owner", "Administrator", "Member", "Left", "Banned")],
}
"""Types whose parts can't be told by their names."""

_TEXTS = ("", "x", "@fake_bot", "/new@fake_bot", "😀 words", "\ud800", "\0", "a] b [c", "line\nline")
_NUMBERS = (0, 1, 2, 42, 777000, 1087968824, -1, -100123456, 2**52)


class Types:
    """The types of the schema by name, each as its fields."""

    def __init__(self) -> None:
        items = json.loads(SCHEMA.read_text(encoding="utf-8"))["items"]
        children = [child for item in items for child in item["children"]]
        self.fields: dict[str, list[JsonObject]] = {
            child["name"]: child.get("annotations", [])
            for child in children
            if child.get("category") == "types"
        }

    def update(self, kind: str, chance: Random) -> JsonObject:
        """Return an update with one field set."""
        spec = next(field for field in self.fields["Update"] if field["name"] == kind)
        return {"update_id": chance.randrange(1, 2**31), kind: self.value(spec["type"], chance, 1)}

    def value(self, kind: str, chance: Random, depth: int = 0) -> Any:
        """Return a value of a type as the schema writes it."""
        if " or " in kind:
            return self.value(chance.choice(kind.split(" or ")), chance, depth)
        if kind.startswith("Array of "):
            inner = kind.removeprefix("Array of ")
            return [self.value(inner, chance, depth) for _ in range(chance.randrange(1, 3))]
        match kind:
            case "Integer":
                return chance.choice(_NUMBERS)
            case "Float":
                return chance.uniform(-180, 180)
            case "Boolean":
                return chance.random() < 0.3
            case "True":
                return True
            case "String":
                return chance.choice(_TEXTS)
            case _:
                return self._object(kind, chance, depth)

    def _object(self, kind: str, chance: Random, depth: int) -> JsonObject:
        if depth > _REQUIRED:
            return {}
        parts = _UNIONS.get(kind) or [name for name in self.fields if name != kind and name.startswith(kind)]
        if not self.fields[kind] and parts:
            return self._object(chance.choice(parts), chance, depth)
        wanted = 0.2 if depth < _OPTIONAL else 0.0
        return {
            field["name"]: self._field(field, chance, depth)
            for field in self.fields[kind]
            if field["required"] or chance.random() < wanted
        }

    def _field(self, field: JsonObject, chance: Random, depth: int) -> Any:
        if "always" in field["description"] or "can be either" in field["description"]:
            words = re.findall(r"['“\"](\w+)['”\"]", field["description"])
            if words:
                return chance.choice(words)
        return self.value(field["type"], chance, depth + 1)
