"""Tools made of functions, and arguments checked against their schema."""

from __future__ import annotations

from typing import Literal

import pytest

from gateway.errors import ToolError
from gateway.tools.base import Group, ToolContext
from gateway.tools.schema import arguments, tool
from gateway.types import Json, JsonObject, Replay


@tool(Replay.ONCE, Group.PLAN)
async def order(
    _context: ToolContext,
    what: str,
    count: int = 1,
    size: Literal["small", "large"] | None = None,
    extras: list[str] | None = None,
    price: float = 0.0,
    gift: bool = False,  # noqa: FBT002 - the model names its arguments
    note: dict[str, str] | None = None,
) -> str:
    """Order something to eat.

    what: The dish.
    count: How many.
    """
    return f"{count} {what} {size} {extras} {price} {gift} {note}"


def test_a_signature_and_a_docstring_are_the_schema() -> None:
    assert (order.name, order.description, order.replay) == ("order", "Order something to eat.", Replay.ONCE)
    assert order.parameters == {
        "type": "object",
        "properties": {
            "what": {"type": "string", "description": "The dish."},
            "count": {"type": "integer", "description": "How many."},
            "size": {"type": "string", "enum": ["small", "large"]},
            "extras": {"type": "array", "items": {"type": "string"}},
            "price": {"type": "number"},
            "gift": {"type": "boolean"},
            "note": {"type": "object"},
        },
        "required": ["what"],
    }


def test_a_type_without_a_schema_is_an_error_when_the_tool_is_made() -> None:
    async def bad(_context: ToolContext, data: bytes) -> str:
        return data.decode()

    with pytest.raises(TypeError, match="bytes"):
        tool(Replay.SAFE, Group.PLAN)(bad)


@pytest.mark.parametrize(
    ("given", "accepted"),
    [
        ({"what": "soup"}, {"what": "soup"}),
        ({"what": 5}, {"what": "5"}),
        ({"what": "a", "count": "5"}, {"what": "a", "count": 5}),
        ({"what": "a", "count": 5.0}, {"what": "a", "count": 5}),
        ({"what": "a", "count": None, "size": None}, {"what": "a"}),
        ({"what": "a", "gift": "True"}, {"what": "a", "gift": True}),
        ({"what": "a", "price": "1.5"}, {"what": "a", "price": 1.5}),
        ({"what": "a", "price": 2}, {"what": "a", "price": 2}),
        ({"what": "a", "extras": ["x", 1]}, {"what": "a", "extras": ["x", "1"]}),
        ({"what": "a", "note": {"k": "v"}}, {"what": "a", "note": {"k": "v"}}),
    ],
)
def test_harmless_differences_of_type_are_removed(given: JsonObject, accepted: JsonObject) -> None:
    assert arguments(given, order.parameters) == accepted


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({}, "missing argument 'what'"),
        ({"what": None}, "missing argument 'what'"),
        ({"what": ["a"]}, "argument 'what' must be a string"),
        ({"what": True}, "argument 'what' must be a string"),
        ({"what": "a", "count": "many"}, "argument 'count' must be a whole number"),
        ({"what": "a", "count": 1.5}, "argument 'count' must be a whole number"),
        ({"what": "a", "count": True}, "argument 'count' must be a whole number"),
        ({"what": "a", "count": "9" * 5000}, "argument 'count' must be a whole number"),
        ({"what": "a", "size": "huge"}, "argument 'size' must be one of 'small', 'large'"),
        ({"what": "a", "extras": "x"}, "argument 'extras' must be a list"),
        ({"what": "a", "extras": [{}]}, "argument 'extras' must be a string"),
        ({"what": "a", "price": "nan"}, "argument 'price' must be a number"),
        ({"what": "a", "gift": "perhaps"}, "argument 'gift' must be true or false"),
        ({"what": "a", "note": "x"}, "argument 'note' must be an object"),
        ({"what": "a", "colour": "red"}, "unknown argument 'colour'"),
    ],
)
def test_what_does_not_fit_is_named(given: dict[str, Json], problem: str) -> None:
    with pytest.raises(ToolError) as caught:
        arguments(given, order.parameters)
    assert str(caught.value).startswith(f"{problem}. Nothing was run. Known arguments: what, count, size")


def test_every_problem_is_named_at_once() -> None:
    with pytest.raises(
        ToolError, match="missing argument 'what'; unknown argument 'a'; argument 'count' must"
    ):
        arguments({"a": 1, "count": "x"}, order.parameters)
