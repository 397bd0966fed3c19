"""Reads Slack's markup as people see it: names for ids, addresses for links, signs for entities; pure."""

from __future__ import annotations

import html
import re
from collections.abc import Mapping
from typing import Final

from adapters.markdown.text import clean

_TAG: Final = re.compile(r"<([@#!][^<>\n]+|[a-zA-Z][a-zA-Z0-9+.-]*:[^<>\n]+)>")
_ID: Final = re.compile(r"[A-Z][A-Z0-9]{1,30}")
_LONGEST_NAME: Final = 80


def names_in(text: str) -> list[str]:
    """Return the ids of people and channels that `readable` wants names for, each once."""
    found: dict[str, None] = {}
    for tag in _TAG.findall(text):
        inner, _, label = str(tag).partition("|")
        if inner[:1] in ("@", "#") and _ID.fullmatch(inner[1:]) and not label:
            found[inner[1:]] = None
    return list(found)


def mentions(text: str, user: str) -> bool:
    """Return whether a text names a person."""
    return bool(user) and re.search(rf"<@{re.escape(user)}(\|[^<>]*)?>", text) is not None


def without_call(text: str, user: str) -> str:
    """Return a text without the mention that it begins with, so that `@bot /new` is a command."""
    return re.sub(rf"\A\s*<@{re.escape(user)}(\|[^<>]*)?>[\s,:]*", "", text) if user else text


def readable(text: str, names: Mapping[str, str]) -> str:
    """Return a text as people see it (Formatting message text); a missing name is shown as its id."""
    return clean(html.unescape(_TAG.sub(lambda tag: _shown(tag[1], names), text)))


def one_line(name: object) -> str:
    """Return a name as it may stand in front of what somebody said."""
    return " ".join(clean(str(name)).split())[:_LONGEST_NAME]


def _shown(tag: str, names: Mapping[str, str]) -> str:
    inner, _, label = tag.partition("|")
    match inner[:1]:
        case "@" | "#":
            return inner[0] + (label.lstrip("@#") or names.get(inner[1:]) or inner[1:])
        case "!":
            return _special(inner[1:], label)
        case _:
            address = inner.removeprefix("mailto:").removeprefix("tel:")
            return address if not label or label in (address, inner) else f"{label} ({inner})"


def _special(inner: str, label: str) -> str:
    """Return `<!here>`, `<!subteam^S1|@team>` or `<!date^0^{date}|a date>` in words."""
    kind, _, rest = inner.partition("^")
    if kind == "subteam":
        return f"@{label.lstrip('@') or rest}"
    return label or f"@{kind}"
