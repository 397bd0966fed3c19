"""Reads JSON from outside, whose shape is a promise that not everybody keeps."""

from __future__ import annotations

from gateway.types import Json, JsonObject


def mapping(value: Json) -> JsonObject:
    """Return an object, an empty one for anything else."""
    return value if isinstance(value, dict) else {}


def mappings(value: Json) -> list[JsonObject]:
    """Return the objects in a list, none for anything else."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def text(value: Json) -> str:
    """Return a text, "" for anything else."""
    return value if isinstance(value, str) else ""


def number(value: Json) -> int:
    """Return a whole number, 0 for anything else."""
    return int(value) if isinstance(value, int | float) and abs(value) < 1e15 else 0
