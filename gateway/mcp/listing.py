"""What a server says it can do, made fit for models: names, descriptions and schemas, all bounded; pure."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase

from gateway.fence import defuse
from gateway.types import Json, JsonObject

PREFIX = "mcp__"

MAX_TOOLS = 64
"""Tools of one server that models are told about."""

MAX_DESCRIPTION = 1000
MAX_SCHEMA = 6000
"""Characters of one tool; what providers take is a little more, but every request pays for them."""

_MAX_NAME = 64
_MAX_NODES = 500
_MAX_ENUM = 100
_MAX_VALUE = 200

_UNFIT = re.compile(r"[^A-Za-z0-9_-]")
_KEY = re.compile(r"[A-Za-z0-9_.-]{1,64}")

_KEPT = frozenset(
    {"type", "const", "default", "format", "pattern", "nullable"}
    | {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}
    | {"minLength", "maxLength", "minItems", "maxItems", "uniqueItems"}
)
_EFFORTS = ((300, 8), (100, 8), (100, 3), (0, 2))
"""Characters of a parameter's description and levels of its schema, the best first."""


@dataclass(frozen=True, slots=True)
class Listed:
    """A tool of a server. `tool` is its name there, `parameters` a JSON Schema object.

    `reads_only` is what the server claims.
    """

    tool: str
    description: str
    parameters: Mapping[str, Json]
    reads_only: bool = False

    @property
    def digest(self) -> str:
        """Return what changes with anything that a person who allowed the tool has relied on."""
        known = json.dumps(asdict(self), sort_keys=True, ensure_ascii=False)
        return hashlib.sha256(known.encode("utf-8", "replace")).hexdigest()


@dataclass(frozen=True, slots=True)
class Listing:
    """All that a server offers, by name; `left_out` says why some of it is not there."""

    tools: tuple[Listed, ...] = ()
    left_out: tuple[str, ...] = ()


def listing(raw: Iterable[Mapping[str, Json]]) -> Listing:
    """Read what a server lists: `name`, `description`, `inputSchema`, `annotations` (MCP tools/list)."""
    tools: dict[str, Listed] = {}
    left_out = []
    for one in raw:
        name = str(one.get("name", ""))
        if not re.fullmatch(r"[A-Za-z0-9_./:-]{1,128}", name) or name in tools:  # people are shown it, too
            left_out.append(f"{defuse(name)[:80]!r}: its name can't be used, or was there before")
            continue
        schema = shaped(one.get("inputSchema"))
        if schema is None:
            left_out.append(f"{name}: its schema is too large")
            continue
        hints = one.get("annotations") or {}
        text = _line(str(one.get("description") or hints.get("title") or ""), MAX_DESCRIPTION)
        tools[name] = Listed(name, text, schema, hints.get("readOnlyHint") is True)
    return Listing(tuple(tools[name] for name in sorted(tools)), tuple(left_out))


def chosen(found: Listing, allow: Sequence[str], deny: Sequence[str]) -> Listing:
    """Return the tools that the configuration lets through, and no more than models can be told about."""
    kept = [one for one in found.tools if _fits(one.tool, allow or ("*",)) and not _fits(one.tool, deny)]
    more = kept[MAX_TOOLS:]
    problem = (
        (f"{len(more)} tools: only {MAX_TOOLS} of a server are used, choose with allow",) if more else ()
    )
    return Listing(tuple(kept[:MAX_TOOLS]), (*found.left_out, *problem))


def _fits(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def names(server: str, tools: Sequence[Listed]) -> list[str]:
    """Return what models call the tools: `mcp__server__tool`, of the signs and the length that all take.

    A name that had to be changed so that two are the same, or that is too long, ends in a digest.
    """
    plain = [f"{PREFIX}{server}__{_UNFIT.sub('_', one.tool)}" for one in tools]
    return [
        name if len(name) <= _MAX_NAME and plain.count(name) == 1 else _told_apart(name, one.tool)
        for name, one in zip(plain, tools, strict=True)
    ]


def _told_apart(name: str, tool: str) -> str:
    digest = hashlib.sha256(tool.encode()).hexdigest()[:8]
    return f"{name[: _MAX_NAME - len(digest) - 1]}_{digest}"


def shaped(schema: Json) -> JsonObject | None:
    """Return a schema of arguments that providers take and no request is flooded by, None if it can't be had.

    References are put in, what only documents is left out, descriptions are cut. The server checks the
    arguments against what it meant.
    """
    root = schema if isinstance(schema, Mapping) else {}
    for longest, deepest in _EFFORTS:
        try:
            parameters = _object(_Shaper(root, longest, deepest).shape(root, 0))
        except _TooLarge:
            continue
        if len(json.dumps(parameters, ensure_ascii=False)) <= MAX_SCHEMA:
            return parameters
    return None


def _object(parameters: JsonObject) -> JsonObject:
    """Return what providers want at the top: an object, and no alternatives to it."""
    kept: JsonObject = {
        key: parameters[key] for key in ("required", "additionalProperties") if key in parameters
    }
    return {"type": "object", "properties": parameters.get("properties", {}), **kept}


class _TooLarge(Exception):
    """A schema has too many parts, such as by references to references. Never leaves this module."""


class _Shaper:
    def __init__(self, root: Mapping[str, Json], longest: int, deepest: int) -> None:
        self._root, self._longest, self._deepest, self._left = root, longest, deepest, _MAX_NODES

    def shape(self, node: Json, depth: int) -> JsonObject:
        self._left -= 1
        if self._left < 0:
            raise _TooLarge
        node = self._resolved(node)
        out = {key: value for key, value in node.items() if key in _KEPT and _is_small(value)}
        choices = node.get("enum")
        if isinstance(choices, list) and len(choices) <= _MAX_ENUM and all(map(_is_small, choices)):
            out["enum"] = choices
        if self._longest and depth and isinstance(node.get("description"), str):
            out["description"] = _line(node["description"], self._longest)
        if depth < self._deepest:
            self._inside(node, out, depth + 1)
        return out

    def _inside(self, node: Mapping[str, Json], out: JsonObject, depth: int) -> None:
        properties = node.get("properties")
        if isinstance(properties, Mapping):
            named = {name: one for name, one in properties.items() if _KEY.fullmatch(name)}
            out["properties"] = {name: self.shape(one, depth) for name, one in named.items()}
            required = node.get("required")
            if isinstance(required, list) and (there := [one for one in named if one in required]):
                out["required"] = there
        further = node.get("additionalProperties")
        if isinstance(further, Mapping | bool):
            out["additionalProperties"] = further if isinstance(further, bool) else self.shape(further, depth)
        if isinstance(node.get("items"), Mapping):
            out["items"] = self.shape(node["items"], depth)
        for key in ("anyOf", "oneOf", "allOf"):
            if isinstance(node.get(key), list):
                out[key] = [self.shape(one, depth) for one in node[key]]

    def _resolved(self, node: Json) -> Mapping[str, Json]:
        """Put in place of references what they name; a chain of them may have an end."""
        for _ in range(8):
            reference = node.get("$ref") if isinstance(node, Mapping) else None
            if not isinstance(reference, str):
                break
            found: Json = self._root
            for step in reference.removeprefix("#").split("/")[1:]:
                step = step.replace("~1", "/").replace("~0", "~")  # noqa: PLW2901 - as RFC 6901 writes it
                found = found.get(step) if isinstance(found, Mapping) else None
            rest = {key: value for key, value in node.items() if key != "$ref"}
            node = {**(found if isinstance(found, Mapping) else {}), **rest}
        return node if isinstance(node, Mapping) else {}


def _is_small(value: Json) -> bool:
    return len(json.dumps(value)) <= _MAX_VALUE


def _line(text: str, longest: int) -> str:
    """Return the words of a server on one line, without signs that models mistake for their own frame."""
    words = " ".join(defuse(text).split())
    return words if len(words) <= longest else f"{words[: longest - 1]}…"


def to_json(found: Listing) -> JsonObject:
    """Return what `from_json` reads."""
    return asdict(found)


def from_json(body: Json) -> Listing:
    """Read what `to_json` wrote. Raises: KeyError, TypeError, for anything else."""
    return Listing(tuple(Listed(**one) for one in body["tools"]), tuple(body["left_out"]))
