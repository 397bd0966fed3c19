"""Schemas for Gemini's parser."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.models.schema import clean_schema


@pytest.mark.parametrize(
    ("schema", "wanted"),
    [
        pytest.param(
            {
                "$schema": "x",
                "type": "object",
                "additionalProperties": False,
                "properties": {
                    "a": {"type": ["string", "null"]},
                    "in": {"type": "array", "items": {"type": "object", "additionalProperties": False}},
                },
            },
            {
                "type": "object",
                "properties": {
                    "a": {"type": "string", "nullable": True},
                    "in": {"type": "array", "items": {"type": "object", "properties": {}}},
                },
            },
            id="provider-06",
        ),
        pytest.param(
            {"type": "integer", "exclusiveMinimum": 0}, {"type": "integer", "minimum": 1}, id="exclusive"
        ),
        pytest.param(
            {"type": "number", "exclusiveMaximum": 1.5}, {"type": "number", "maximum": 1.5}, id="number"
        ),
        pytest.param({"type": "string", "format": "uri", "default": "x"}, {"type": "string"}, id="format"),
        pytest.param({"const": "on"}, {"type": "string", "enum": ["on"]}, id="const"),
        pytest.param({"type": "integer", "enum": [1, 2]}, {"type": "integer"}, id="enum-of-numbers"),
        pytest.param(
            {
                "anyOf": [{"$ref": "#/$defs/P"}, {"type": "null"}],
                "$defs": {"P": {"type": "object", "title": "P"}},
            },
            {"type": "object", "title": "P", "nullable": True, "properties": {}},
            id="optional-reference",
        ),
        pytest.param(
            {"oneOf": [{"type": "integer"}, {"type": "string", "format": "uuid"}]},
            {"anyOf": [{"type": "integer"}, {"type": "string"}]},
            id="one-of",
        ),
        pytest.param(
            {"allOf": [{"type": "string"}, {"minLength": 1}]}, {"type": "string", "minLength": 1}, id="all-of"
        ),
        pytest.param(
            {"type": "array"}, {"type": "array", "items": {"type": "string"}}, id="array-of-anything"
        ),
        pytest.param(
            {"type": "object", "properties": {"x": True}},
            {"type": "object", "properties": {"x": {"type": "string"}}},
            id="anything",
        ),
    ],
)
def test_a_schema_is_said_in_the_small_subset(schema: dict[str, Any], wanted: dict[str, Any]) -> None:
    before = repr(schema)

    assert clean_schema(schema) == wanted
    assert repr(schema) == before


def test_a_schema_that_refers_to_itself_ends() -> None:
    tree = {
        "$ref": "#/$defs/T",
        "$defs": {"T": {"type": "object", "properties": {"kid": {"$ref": "#/$defs/T"}}}},
    }

    assert "$ref" not in str(clean_schema(tree))
