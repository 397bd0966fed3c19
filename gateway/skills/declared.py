"""`tools.json` of a skill: typed tools that are backed by its scripts."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from gateway.types import Json, JsonObject

FILE = "tools.json"
MAX_FILE = 65_536
MAX_TOOLS = 20
MAX_DESCRIPTION = 1_000
MAX_TIMEOUT = 1_800

_NAME = re.compile(r"[A-Za-z0-9_]{1,40}")
_SLOT = re.compile(r"\{(\w+)\}")
_TYPES = frozenset({"string", "integer", "number", "boolean", "array", "object"})
_KEYS = frozenset(
    {"name", "description", "parameters", "script", "command", "input", "timeout", "asks", "network"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """A tool as it is declared. `parameters` is a JSON Schema object.

    `command` are the words to run; `{name}` in one stands for an argument. With `takes_json` the arguments
    come as one JSON object on stdin. `timeout` is in seconds, None for the usual limit. `asks`: a person must
    allow every call. `network`: it needs the network.
    """

    name: str
    description: str
    parameters: JsonObject
    command: tuple[str, ...]
    takes_json: bool = False
    timeout: float | None = None
    asks: bool = False
    network: bool = False

    def words(self, args: Mapping[str, Json]) -> list[str]:
        """Return the words to run for some arguments.

        A word whose argument was left out goes; one that is nothing but a list becomes as many words.
        """
        return [word for template in self.command for word in _filled(template, args)]


class _Wrong(Exception):
    """Why a tool is left out; the text is for people. Never leaves this module."""


def read(folder: Path) -> tuple[tuple[Declared, ...], tuple[str, ...]]:
    """Return the tools that a skill declares, and in words what is wrong with the others. Never raises."""
    try:
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        with os.fdopen(os.open(folder / FILE, flags), "rb") as data:
            text = data.read(MAX_FILE + 1)
    except OSError as error:
        return (), (f"its {FILE} can't be read ({(error.strerror or str(error)).lower()})",)
    if len(text) > MAX_FILE:
        return (), (f"its {FILE} has more than {MAX_FILE} bytes",)
    try:
        found = json.loads(text.decode("utf-8-sig"))
        rows = found["tools"] if isinstance(found, dict) else found
    except (ValueError, KeyError, RecursionError) as error:
        return (), (f"its {FILE} is no JSON with a list of `tools` ({error})",)
    if not isinstance(rows, list):
        return (), (f"its {FILE} holds no list of `tools`",)
    return _all(rows, folder)


def _all(rows: Sequence[Json], folder: Path) -> tuple[tuple[Declared, ...], tuple[str, ...]]:
    told = [f"its {FILE} has more than {MAX_TOOLS} tools; the rest is left out"] if rows[MAX_TOOLS:] else []
    made: dict[str, Declared] = {}
    for at, row in enumerate(rows[:MAX_TOOLS], 1):
        try:
            one = _tool(row, folder)
            if one.name in made:
                raise _Wrong("there are two of this name")
        except _Wrong as error:
            name = row.get("name") if isinstance(row, dict) else None
            told.append(f"{FILE}, tool {at}{f' ({str(name)[:40]})' if name else ''}: {error}")
        else:
            made[one.name] = one
    return tuple(made.values()), tuple(told)


def _tool(row: Json, folder: Path) -> Declared:
    """Read one tool. Raises: _Wrong."""
    if not isinstance(row, dict):
        raise _Wrong("it is no object")
    if unknown := sorted(row.keys() - _KEYS):
        raise _Wrong(f"unknown: {', '.join(unknown)}; known: {', '.join(sorted(_KEYS))}")
    name, description = row.get("name"), row.get("description")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise _Wrong("`name` must be 1 to 40 letters, digits or _")
    if not isinstance(description, str) or not description.strip():
        raise _Wrong("`description` must say what it does")
    parameters = _parameters(row.get("parameters", {}))
    command = _command(row, folder, parameters["properties"])
    takes = row.get("input", "json" if "script" in row else "none")
    if takes not in ("json", "none"):
        raise _Wrong('`input` must be "json" or "none"')
    return Declared(
        name=name,
        description=" ".join(description.split())[:MAX_DESCRIPTION],
        parameters=parameters,
        command=command,
        takes_json=takes == "json",
        timeout=_seconds(row.get("timeout")),
        asks=_flag(row, "asks"),
        network=_flag(row, "network"),
    )


def _flag(row: Mapping[str, Json], name: str) -> bool:
    found = row.get(name, False)
    if not isinstance(found, bool):
        raise _Wrong(f"`{name}` must be true or false")
    return found


def _seconds(value: Json) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 1 <= value <= MAX_TIMEOUT:
        raise _Wrong(f"`timeout` must be a number of seconds from 1 to {MAX_TIMEOUT}")
    return float(value)


def _parameters(value: Json) -> JsonObject:
    """Return a schema of the kind that arguments are checked against. Raises: _Wrong."""
    if not isinstance(value, dict) or value.get("type", "object") != "object":
        raise _Wrong('`parameters` must be a JSON Schema with "type": "object"')
    properties, required = value.get("properties", {}), value.get("required", [])
    if not isinstance(properties, dict) or not all(map(_NAME.fullmatch, properties)):
        raise _Wrong("`properties` must map names of letters, digits and _ to schemas")
    for name, one in properties.items():
        _check_type(name, one)
    if not isinstance(required, list) or not all(one in properties for one in required):
        raise _Wrong("`required` must list names of `properties`")
    return {"type": "object", "properties": properties} | ({"required": required} if required else {})


def _check_type(name: str, schema: Json) -> None:
    kind = schema.get("type") if isinstance(schema, dict) else None
    if not isinstance(kind, str) or kind not in _TYPES:
        raise _Wrong(f"the `type` of {name} must be one of {', '.join(sorted(_TYPES))}")
    if kind == "array":
        _check_type(f"the items of {name}", schema.get("items"))
    if not isinstance(schema.get("enum", []), list):
        raise _Wrong(f"the `enum` of {name} must be a list")


def _command(row: Mapping[str, Json], folder: Path, properties: Mapping[str, Json]) -> tuple[str, ...]:
    """Return the words, with the files of the skill by their full paths. Raises: _Wrong."""
    if ("script" in row) == ("command" in row):
        raise _Wrong("it needs either `script` or `command`")
    words = [row["script"]] if "script" in row else row["command"]
    if not isinstance(words, list) or not words or not all(isinstance(one, str) and one for one in words):
        raise _Wrong("`script` must be a file, `command` a list of words")
    if any("\0" in one for one in words):
        raise _Wrong("its words hold NUL")
    placed = [_placed(word, folder) for word in words]
    if placed[:2] == words[:2]:
        raise _Wrong(f"{words[0]!r} is no file of the skill, and no program with one behind it")
    used = {name for word in words for name in _SLOT.findall(word)}
    if unknown := sorted(used - properties.keys()):
        raise _Wrong(f"`command` names {', '.join(unknown)}, which `parameters` has not")
    return tuple(placed)


def _placed(word: str, folder: Path) -> str:
    """Return the full path of a file of the skill, anything else as it is."""
    path = PurePosixPath(word)
    if path.is_absolute() or ".." in path.parts or _SLOT.search(word):
        return word
    file = folder / path
    inside = os.path.realpath(file).startswith(f"{os.path.realpath(folder)}/")
    return str(file) if inside and file.is_file() else word


def _filled(template: str, args: Mapping[str, Json]) -> Iterator[str]:
    names = _SLOT.findall(template)
    if not all(name in args for name in names):
        return
    if names and template == f"{{{names[0]}}}" and isinstance(args[names[0]], list):
        yield from map(_text, args[names[0]])
    else:
        yield _SLOT.sub(lambda found: _text(args[found[1]]), template)


def _text(value: Json) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
