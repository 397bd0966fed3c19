"""What the Bot API says about formatted text, checked without a line of our renderer."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, Final

KINDS: Final = frozenset(
    {
        "blockquote",
        "bold",
        "code",
        "expandable_blockquote",
        "italic",
        "pre",
        "spoiler",
        "strikethrough",
        "text_link",
        "underline",
    }
)
"""The kinds that a bot may set by itself (Bot API MessageEntity); the others the server finds."""

_QUOTES: Final = frozenset({"blockquote", "expandable_blockquote"})
_CODE: Final = frozenset({"code", "pre"})
_SCHEMES: Final = ("http://", "https://", "mailto:", "tg://")

TEXT: Final = 4096
CAPTION: Final = 1024
MOST: Final = 100


def units(text: str) -> int:
    """Return the length in UTF-16 units."""
    return len(text.encode("utf-16-le")) // 2


def faults(text: str, entities: Sequence[Mapping[str, Any]], *, most: int = TEXT) -> list[str]:
    """Return what is wrong with a text and its entities (Bot API, Formatting options)."""
    found = [] if text.strip() else ["the text is empty"]
    if units(text) > most:
        found.append(f"{units(text)} units are too long")
    if len(entities) > MOST:
        found.append(f"{len(entities)} entities are too many")
    found += [fault for one in entities for fault in _alone(text, one)]
    found += [fault for pair in itertools.combinations(entities, 2) for fault in _together(*pair)]
    return found


def _alone(text: str, entity: Mapping[str, Any]) -> list[str]:
    kind, start, end = entity["type"], entity["offset"], entity["offset"] + entity["length"]
    found = []
    if kind not in KINDS:
        found.append(f"there is no entity {kind}")
    if not 0 <= start < end <= units(text):
        return [*found, f"{kind} goes from {start} to {end} of {units(text)}"]
    raw = text.encode("utf-16-le")
    found += [
        f"{kind} cuts a character at {place}"
        for place in (start, end)
        if 0xDC00 <= int.from_bytes(raw[2 * place : 2 * place + 2], "little") <= 0xDFFF
    ]
    if not raw[2 * start : 2 * end].decode("utf-16-le", "replace").strip():
        found.append(f"{kind} is of nothing but space at {start}")
    if (kind == "text_link") != ("url" in entity) or not str(entity.get("url", "tg://")).startswith(_SCHEMES):
        found.append(f"{kind} leads to {entity.get('url')!r}")
    if "language" in entity and kind != "pre":
        found.append(f"{kind} has a language")
    return found


def _together(one: Mapping[str, Any], two: Mapping[str, Any]) -> list[str]:
    first, last = sorted((one, two), key=lambda each: (each["offset"], -each["length"]))
    end = first["offset"] + first["length"]
    if last["offset"] >= end:
        return []
    if last["offset"] + last["length"] > end:
        return [f"{first['type']} and {last['type']} overlap at {last['offset']}"]
    kinds = {first["type"], last["type"]}
    if kinds & _CODE and not kinds & _QUOTES:
        return [f"{last['type']} is in {first['type']} at {last['offset']}"]
    if kinds <= _QUOTES:
        return [f"a quote is in a quote at {last['offset']}"]
    if first["type"] == last["type"]:
        return [f"{last['type']} is in itself at {last['offset']}"]
    return []
