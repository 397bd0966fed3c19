"""How skills stand in the prompt: name, description and place, and nothing more."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from xml.sax.saxutils import escape, quoteattr

from gateway.fence import defuse

MOST = 150
"""Skills in a prompt (agent 7.2)."""

SHORT = 120
"""Characters of a description when there is not room for all of them."""


@dataclass(frozen=True, slots=True)
class Line:
    """One skill as it is shown: its SKILL.md is `path` in `folder`."""

    name: str
    description: str
    folder: str
    path: str


def shown_path(path: Path, home: Path | None) -> str:
    """Return a path with the user's home as `~` (seed 000)."""
    if home and path.is_relative_to(home):
        return f"~/{path.relative_to(home)}"
    return str(path)


def available(lines: Sequence[Line], most: int) -> str:
    """Return `<available_skills>`, one for each folder, with at most about `most` characters in all.

    "" without skills. When there are too many, descriptions are first shortened, then left out; only then
    skills are left out, and a note says so (agent 7.4).
    """
    if not lines:
        return ""
    kept = lines[:MOST]
    for length in (None, SHORT, 0):
        text = _text(kept, length, len(lines))
        if len(text) <= most:
            return text
    while len(kept) > 1 and len(text) > most:
        kept = kept[: max(1, min(len(kept) - 1, len(kept) * most // len(text)))]
        text = _text(kept, 0, len(lines))
    return text


def _text(lines: Sequence[Line], length: int | None, total: int) -> str:
    parts = list(_blocks(lines, length))
    if length is not None:
        parts.append("Descriptions are shortened or left out here; SKILL.md has them in full.")
    if len(lines) < total:
        parts.append(f"{total - len(lines)} more skills are not listed.")
    return "\n".join(parts)


def _blocks(lines: Sequence[Line], length: int | None) -> Iterator[str]:
    """Name each folder once: with twenty skills, places in full would be a sixth of a first prompt."""
    for folder, inside in groupby(sorted(lines, key=lambda line: line.folder), lambda line: line.folder):
        yield f"<available_skills folder={quoteattr(folder)}>"
        yield from (_skill(line, length) for line in inside)
        yield "</available_skills>"


def _skill(line: Line, length: int | None) -> str:
    description = line.description
    if length is not None and len(description) > length:
        description = f"{description[: length - 1].rstrip()}…" if length else ""
    place = "" if line.path == f"{line.name}/SKILL.md" else f" ({line.path})"
    told = f": {defuse(description)}" if description else ""
    return escape(f"- {line.name}{place}{told}", {"\n": "&#10;"})
