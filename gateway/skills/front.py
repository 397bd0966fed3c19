"""The head of a SKILL.md: YAML between two lines of three dashes, read as far as it can be read."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from gateway.types import Json, JsonObject

MAX_HEAD = 65_536
"""Characters of a head; a longer one is not read as YAML."""

MAX_DEPTH = 50
"""Brackets that may be open at once: the YAML library's own recursion has no gentle end."""

_KEY = re.compile(r"([A-Za-z][\w-]*)[ \t]*:(?:[ \t]+(.*))?$")
_LIMITS = re.compile(
    r"""^\s*(?:-\s*)?["']?(?:allowed|disallowed)?[-_]?tools["']?\s*:""", re.MULTILINE | re.IGNORECASE
)
_BLOCK = re.compile(r"[|>][+-]?[0-9]?[+-]?$")
_UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


@dataclass(frozen=True, slots=True)
class Front:
    """What a head says. `fields` holds what was read, `body` the text behind it.

    `problems` name what could not be read; `unsafe` says that one of those limits the skill's tools, so
    that it would have more rights than were written down (case skills-04).
    """

    fields: Mapping[str, Json]
    body: str
    problems: tuple[str, ...] = ()
    unsafe: bool = False

    def text(self, key: str) -> str:
        """Return a field as text, "" if it is missing or no text."""
        value = self.fields.get(key)
        return value.strip() if isinstance(value, str) else ""


def parse(data: bytes) -> Front:
    """Read a SKILL.md. Never raises: what can't be read is named in `problems`."""
    if data.startswith(_UTF16) or b"\0" in data[:1000]:
        return Front({}, "", ("it is not UTF-8 text; save it as UTF-8",), unsafe=True)
    text = data.decode("utf-8", "replace").removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    problems = ("some of its bytes are not UTF-8",) if "\ufffd" in text and _damaged(data) else ()
    lines = text.split("\n")
    if lines[0].rstrip() != "---":
        return Front(
            {}, text, (*problems, "it has no front matter (--- before and after name and description)")
        )
    end = next((at for at, line in enumerate(lines[1:], 1) if line.rstrip() == "---"), None)
    if end is None:
        head = "\n".join(lines[1:60])
        return Front(
            {}, text, (*problems, "its front matter has no end (a line of ---)"), bool(_LIMITS.search(head))
        )
    return _read("\n".join(lines[1:end]), "\n".join(lines[end + 1 :]), problems)


def _damaged(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return True
    return False


def _read(head: str, body: str, problems: tuple[str, ...]) -> Front:
    try:
        fields = _yaml(head)
    except ValueError as error:
        found = dict(_single_lines(head))
        unsafe = bool(_LIMITS.search(head))
        told = f"its front matter is not YAML ({error})"
        told += ", and it limits tools; correct it" if unsafe else "; it was read line by line"
        return Front(found, body, (*problems, told), unsafe)
    plain = dict(_single_lines(head))
    for key, value in fields.items():
        # `name: 007` and `description: no` are meant as they stand there.
        if isinstance(value, bool | int | float) and key in ("name", "description", "version"):
            fields[key] = plain.get(key, str(value))
    return Front(fields, body, problems)


def _yaml(head: str) -> JsonObject:
    """Return the mapping that a head is.

    Raises: ValueError, in a few words.
    """
    if len(head) > MAX_HEAD:
        raise ValueError(f"it is longer than {MAX_HEAD} characters")
    if _depth(head) > MAX_DEPTH:
        raise ValueError(f"it is nested more than {MAX_DEPTH} deep")
    import yaml  # noqa: PLC0415 - 20 ms that a gateway without skills saves

    try:
        value = yaml.load(head, _loader())  # noqa: S506 - a SafeLoader, without merge keys
    except yaml.MarkedYAMLError as error:
        line = f", line {error.problem_mark.line + 2}" if error.problem_mark else ""
        raise ValueError(f"{error.problem or 'broken'}{line}") from None
    except (yaml.YAMLError, ValueError, RecursionError, OverflowError) as error:
        raise ValueError(str(error).partition("\n")[0] or "broken") from None
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ValueError("there must be lines of key: value")  # noqa: TRY004 - one kind of error for a caller
    return {str(key): one for key, one in value.items()}


def _depth(head: str) -> int:
    """Return at least how deep flow collections and dashes are nested."""
    deepest = level = 0
    for sign in re.findall(r"[\[\]{}]", head):
        level = level + 1 if sign in "[{" else max(0, level - 1)
        deepest = max(deepest, level)
    dashes = max((line.count("- ") + line.count("? ") for line in head.splitlines()), default=0)
    steep = max((len(line) - len(line.lstrip()) for line in head.splitlines()), default=0)
    return max(deepest, dashes if dashes > MAX_DEPTH else 0, steep if steep > 200 else 0)


@cache
def _loader() -> Any:  # noqa: ANN401 - the class depends on whether libyaml is there
    """Return a safe loader whose merge keys (`<<`) don't multiply what they are given."""
    import yaml  # noqa: PLC0415 - see above

    class Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc] # chosen when it runs
        def flatten_mapping(self, node: Any) -> None:  # noqa: ANN401 - the library's own type
            """Leave merge keys as they are: lists of aliases in them grow exponentially."""

    return Loader


def _single_lines(head: str) -> Iterator[tuple[str, Json]]:
    """Yield the keys at the margin with what stands behind them, or indented below them."""
    lines = head.split("\n")
    for at, line in enumerate(lines):
        if match := _KEY.match(line):
            value = (match[2] or "").strip()
            if not value or _BLOCK.match(value):
                value = " ".join(_indented(lines, at + 1))
            yield match[1], _unquoted(value)


def _indented(lines: list[str], at: int) -> Iterator[str]:
    for line in lines[at:]:
        if line.strip() and not line[:1].isspace():
            return
        if line.strip():
            yield line.strip()


def _unquoted(text: str) -> str:
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'" else text


def metadata(front: Front) -> Mapping[str, Json]:
    """Return what a skill asks of its surroundings: `metadata.crayfish`, or as other programs call it."""
    found = front.fields.get("metadata")
    if isinstance(found, str):
        try:
            found = json.loads(found)
        except ValueError:
            found = None
    if not isinstance(found, dict):
        return {}
    own = (found.get(name) for name in ("crayfish", "openclaw", "clawdbot", "clawdis"))
    return next((one for one in own if isinstance(one, dict)), {})


def names(value: Json) -> tuple[str, ...]:
    """Return a list of names that may stand there as a list, or as words with blanks or commas between."""
    if isinstance(value, str):
        return tuple(re.findall(r"[^\s,()]+(?:\([^)]*\))?", value))
    if isinstance(value, list):
        return tuple(str(one).strip() for one in value if isinstance(one, str | int) and str(one).strip())
    return ()
