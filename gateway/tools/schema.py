"""From a function to a tool: its signature and docstring are what the model sees."""

from __future__ import annotations

import inspect
import re
import types
import typing
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from gateway.errors import ToolError
from gateway.tools.base import Ask, Group, Output, ToolContext
from gateway.types import Json, JsonObject, Replay

_SIMPLE: Mapping[object, str] = {
    str: "string",
    int: "integer",
    float: "number",
    bool: "boolean",
    dict: "object",
}
_INTEGER = re.compile(r"\s*[+-]?\d{1,18}\s*")
_NUMBER = re.compile(r"\s*[+-]?(\d{1,18}(\.\d{0,18})?|\.\d{1,18})([eE][+-]?\d{1,3})?\s*")
_PARAMETER_LINE = re.compile(r"^(\w+): (.+)$", re.MULTILINE)
_TRUTH = {"true": True, "false": False}


Run: TypeAlias = Callable[..., Awaitable[str]] | Callable[..., Awaitable[Output]]
Taints: TypeAlias = Callable[[Mapping[str, Json]], bool]
Check: TypeAlias = Callable[..., Awaitable[Ask | None]]


@dataclass(frozen=True, slots=True)
class FunctionTool:
    """A tool whose work is one async function `(context, **arguments) -> text`.

    `asks`, with the same parameters, says what a person must allow first.
    """

    name: str
    description: str
    parameters: Mapping[str, Json]
    replay: Replay
    run: Run
    group: Group
    untrusted: bool | Taints = False
    private: bool = False
    timeout: float | None = None
    asks: Check | None = None

    def taints(self, args: Mapping[str, Json]) -> bool:
        """Return whether the result of such a call is what strangers wrote."""
        return self.untrusted if isinstance(self.untrusted, bool) else self.untrusted(args)

    async def check(self, args: Mapping[str, Json], context: ToolContext) -> Ask | None:
        """Return what a person must allow before this call runs. Raises: ToolDenied."""
        return None if self.asks is None else await self.asks(context, **args)

    async def __call__(self, args: Mapping[str, Json], context: ToolContext) -> str | Output:
        """Run the function with `args` by name."""
        return await self.run(context, **args)


def tool(
    replay: Replay,
    group: Group,
    *,
    untrusted: bool | Taints = False,
    private: bool = False,
    timeout: float | None = None,
    asks: Check | None = None,
) -> Callable[[Run], FunctionTool]:
    """Make a tool of an async function whose first parameter is the ToolContext.

    The docstring's first paragraph becomes the description, each line `name: text` below it that
    parameter's. Types may be str, int, float, bool, dict, `list[...]`, `Literal[...]` of strings, and
    any of them `| None`.

    Raises: TypeError at import for a type that JSON Schema can't say this way.
    """

    def make(function: Run) -> FunctionTool:
        first, _, rest = inspect.cleandoc(function.__doc__ or "").partition("\n\n")
        return FunctionTool(
            name=function.__name__,
            description=" ".join(first.split()),
            parameters=_parameters(function, dict(_PARAMETER_LINE.findall(rest))),
            replay=replay,
            run=function,
            group=group,
            untrusted=untrusted,
            private=private,
            timeout=timeout,
            asks=asks,
        )

    return make


def _parameters(function: Run, texts: Mapping[str, str]) -> JsonObject:
    hints = typing.get_type_hints(function)
    _, *parameters = inspect.signature(function).parameters.values()
    properties: JsonObject = {}
    for parameter in parameters:
        properties[parameter.name] = _type(hints[parameter.name])
        if parameter.name in texts:
            properties[parameter.name]["description"] = texts[parameter.name]
    schema: JsonObject = {"type": "object", "properties": properties}
    if required := [each.name for each in parameters if each.default is each.empty]:
        schema["required"] = required
    return schema


def _type(hint: object) -> JsonObject:
    if hint in _SIMPLE:
        return {"type": _SIMPLE[hint]}
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Literal:
        return {"type": "string", "enum": list(inner)}
    if origin is list:
        return {"type": "array", "items": _type(inner[0])}
    if origin is dict:
        return {"type": "object"}
    if origin in {typing.Union, types.UnionType}:
        [only] = [each for each in inner if each is not types.NoneType]
        return _type(only)
    raise TypeError(f"A tool parameter can't have the type {hint!r}.")


def arguments(given: Mapping[str, Json], schema: Mapping[str, Json]) -> JsonObject:
    """Return what the tool gets: checked against `schema`, harmless differences of type removed.

    Null counts as absent, unless the schema takes it. What a schema says otherwise than by one type, as those
    of other programs may, is left to whoever gets the value.

    Raises: ToolError that names every problem at once.
    """
    properties: Mapping[str, Json] = schema.get("properties", {})
    present = {
        name: value for name, value in given.items() if value is not None or _takes_null(properties.get(name))
    }
    problems = [f"missing argument '{name}'" for name in schema.get("required", ()) if name not in present]
    accepted: JsonObject = {}
    for name, value in present.items():
        if name not in properties:
            if schema.get("additionalProperties"):
                accepted[name] = value
            else:
                problems.append(f"unknown argument '{name}'")
            continue
        try:
            accepted[name] = _value(value, properties[name])
        except _Unfit as unfit:
            problems.append(f"argument '{name}' must be {unfit}")
    if problems:
        known = ", ".join(properties) or "none"
        raise ToolError(f"{'; '.join(problems)}. Nothing was run. Known arguments: {known}.")
    return accepted


class _Unfit(Exception):
    """A value is not what the schema asks for; the text says what is. Never leaves this module."""


def _takes_null(schema: Json) -> bool:
    if not isinstance(schema, Mapping):
        return False
    options = schema.get("anyOf") or ()
    return "null" in (schema.get("type") or ()) or any(_takes_null(one) for one in options)


def _value(value: Json, schema: Json) -> Json:
    kind = schema.get("type") if isinstance(schema, Mapping) else None
    if not isinstance(kind, str) or kind not in _FIT:
        return value
    fitted = _FIT[kind](value, schema)
    if "enum" in schema and fitted not in schema["enum"]:
        raise _Unfit("one of " + ", ".join(map(repr, schema["enum"])))
    return fitted


def _string(value: Json, _schema: Mapping[str, Json]) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    raise _Unfit("a string")


def _integer(value: Json, _schema: Mapping[str, Json]) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, str) and _INTEGER.fullmatch(value):
        return int(value)
    raise _Unfit("a whole number")


def _number(value: Json, _schema: Mapping[str, Json]) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value
    if isinstance(value, str) and _NUMBER.fullmatch(value):
        return float(value)
    raise _Unfit("a number")


def _boolean(value: Json, _schema: Mapping[str, Json]) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and (word := value.strip().lower()) in _TRUTH:
        return _TRUTH[word]
    raise _Unfit("true or false")


def _array(value: Json, schema: Mapping[str, Json]) -> list[Json]:
    if not isinstance(value, list):
        raise _Unfit("a list")
    items = schema.get("items")
    return [_value(each, items) for each in value] if items else value


def _object(value: Json, _schema: Mapping[str, Json]) -> JsonObject:
    if not isinstance(value, dict):
        raise _Unfit("an object")
    return value


_FIT: Mapping[str, Callable[[Json, Mapping[str, Json]], Json]] = {
    "string": _string,
    "integer": _integer,
    "number": _number,
    "boolean": _boolean,
    "array": _array,
    "object": _object,
}
