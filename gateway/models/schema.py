"""A JSON Schema in the small subset that Gemini's parser takes."""

from __future__ import annotations

from collections.abc import Mapping

from gateway.types import Json, JsonObject

_KEPT = frozenset(
    {"type", "description", "enum", "properties", "required", "items", "anyOf", "nullable", "format"}
    | {"minimum", "maximum", "minItems", "maxItems", "minLength", "maxLength", "pattern", "title"}
)
_FORMATS = frozenset({"date-time", "enum"})
_DEEPEST = 12


def clean_schema(schema: Mapping[str, Json]) -> JsonObject:
    """Return the schema with what Gemini refuses removed or said otherwise (models 2.3 row 27, provider-06).

    `type: [x, "null"]` and a null among alternatives become `nullable`, `const` an `enum` of one,
    exclusive bounds inclusive ones, references what they refer to. The arguments are still checked
    against the original schema by whoever runs the tool.
    """
    return _clean(schema, schema, 0)


def _clean(node: Mapping[str, Json], root: Mapping[str, Json], depth: int) -> JsonObject:
    if depth > _DEEPEST:  # a schema that refers to itself
        return {"type": "object", "properties": {}}
    node = _resolved(_without_null(_one_of(_resolved(node, root))), root)
    out = {key: value for key, value in node.items() if key in _KEPT}
    _choices(node, out)
    _bounds(node, out)
    if out.get("type") != "string" or out.get("format") not in _FORMATS:
        out.pop("format", None)
    if isinstance(out.get("properties"), Mapping):
        out["properties"] = {k: _clean_any(v, root, depth + 1) for k, v in out["properties"].items()}
    if "anyOf" in out:
        out["anyOf"] = [_clean_any(option, root, depth + 1) for option in out["anyOf"]]
    if out.get("type") == "object":
        out.setdefault("properties", {})
    if out.get("type") == "array":
        items = out.get("items")
        out["items"] = _clean_any(items, root, depth + 1) if items else {"type": "string"}
    return out


def _clean_any(node: Json, root: Mapping[str, Json], depth: int) -> JsonObject:
    """Clean what may be `true`, which means anything."""
    return _clean(node, root, depth) if isinstance(node, Mapping) else {"type": "string"}


def _resolved(node: Mapping[str, Json], root: Mapping[str, Json]) -> Mapping[str, Json]:
    """Put in place of a reference inside the schema what it names."""
    reference = node.get("$ref")
    if not isinstance(reference, str) or not reference.startswith("#/"):
        return node
    found: Json = root
    for step in reference[2:].split("/"):
        found = found.get(step.replace("~1", "/").replace("~0", "~")) if isinstance(found, Mapping) else None
    return {**(found if isinstance(found, Mapping) else {"type": "object"}), **_rest(node, "$ref")}


def _one_of(node: Mapping[str, Json]) -> Mapping[str, Json]:
    """Turn `oneOf` into `anyOf`, and merge `allOf`."""
    if "oneOf" in node:
        node = {**_rest(node, "oneOf"), "anyOf": node["oneOf"]}
    for part in node.get("allOf") or ():
        if isinstance(part, Mapping):
            node = {**part, **node}
    return node


def _without_null(node: Mapping[str, Json]) -> Mapping[str, Json]:
    """Turn an allowed null into `nullable`; a single alternative that is left takes the place of all."""
    kinds = node.get("type")
    if isinstance(kinds, list):
        named = [kind for kind in kinds if kind != "null"]
        node = {**node, "type": named[0] if named else "string"}
        if len(named) < len(kinds):
            node["nullable"] = True
    options = node.get("anyOf")
    if isinstance(options, list):
        real = [option for option in options if isinstance(option, Mapping) and option.get("type") != "null"]
        node = {**node, "anyOf": real} if len(real) != 1 else {**real[0], **_rest(node, "anyOf")}
        if len(real) < len(options):
            node = {**node, "nullable": True}
    return node


def _choices(node: Mapping[str, Json], out: JsonObject) -> None:
    """Keep an enum of texts, which is the only kind Gemini knows; a constant is an enum of one."""
    choices = [node["const"]] if "const" in node else node.get("enum", [])
    texts = [choice for choice in choices if choice is not None]
    out.pop("enum", None)
    if texts and all(isinstance(choice, str) for choice in texts):
        out.update({"type": "string", "enum": texts})


def _bounds(node: Mapping[str, Json], out: JsonObject) -> None:
    """Write exclusive bounds as inclusive ones: exactly for integers, nearly for numbers."""
    for exclusive, inclusive, step in (
        ("exclusiveMinimum", "minimum", 1),
        ("exclusiveMaximum", "maximum", -1),
    ):
        bound = node.get(exclusive)
        if isinstance(bound, int | float) and not isinstance(bound, bool):
            out.setdefault(inclusive, bound + step if node.get("type") == "integer" else bound)


def _rest(node: Mapping[str, Json], without: str) -> JsonObject:
    return {key: value for key, value in node.items() if key != without}
