"""Reads RSS (0.9 to 2.0) and Atom feeds; entities that a feed defines itself are refused."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from xml.etree.ElementTree import Element, ParseError, TreeBuilder, XMLParser

MAX_SUMMARY = 300


class BadFeed(Exception):
    """It is no feed; the text says why."""


@dataclass(frozen=True, slots=True)
class Story:
    """One entry of a feed. `when` is in UTC, None if the feed does not say."""

    title: str
    link: str
    summary: str = ""
    when: datetime | None = None
    source: str = ""


class _NoDoctype(TreeBuilder):
    def doctype(self, *_: object) -> None:
        raise BadFeed("it declares a document type, which no feed needs")


def read(data: bytes) -> list[Story]:
    """Return the entries of a feed in its order. Raises: BadFeed."""
    parser = XMLParser(target=_NoDoctype())
    try:
        for at in range(0, len(data), 4_096):
            parser.feed(data[at : at + 4_096])
        root = parser.close()
    except (ParseError, ValueError, LookupError) as error:
        raise BadFeed(f"it is no XML ({error})") from error
    if _name(root) not in {"rss", "RDF", "feed"}:
        raise BadFeed(f"it is no feed but <{_name(root)}>")
    source = next((_text(one) for one in _children(_channel(root), "title")), "")
    entries = [one for one in root.iter() if _name(one) in {"item", "entry"}]
    return [_story(one, source) for one in entries]


def _channel(root: Element) -> Element:
    return next((one for one in root if _name(one) == "channel"), root)


def _story(entry: Element, source: str) -> Story:
    fields = {name: _text(one) for one in reversed(list(entry)) if (name := _name(one))}
    summary = fields.get("summary") or fields.get("description") or fields.get("content", "")
    when = fields.get("pubDate") or fields.get("published") or fields.get("updated") or fields.get("date", "")
    return Story(
        title=fields.get("title") or summary[:80] or "(no title)",
        link=_link(entry),
        summary=summary if len(summary) <= MAX_SUMMARY else f"{summary[:MAX_SUMMARY].rsplit(' ', 1)[0]} …",
        when=_moment(when),
        source=source,
    )


def _link(entry: Element) -> str:
    """Return the address of the story itself: Atom has several links, RSS one as text."""
    for one in _children(entry, "link"):
        address = one.get("href") if one.get("rel", "alternate") == "alternate" else None
        if found := (address or (one.text or "").strip()):
            return found
    return next((_text(one) for one in _children(entry, "guid") if one.get("isPermaLink") != "false"), "")


def _children(parent: Element, name: str) -> Iterator[Element]:
    return (one for one in parent if _name(one) == name)


def _name(element: Element) -> str:
    """Return a tag without its namespace."""
    return element.tag.rpartition("}")[2]


def _text(element: Element) -> str:
    """Return what is in an element as one line; HTML in it becomes text."""
    inner = "".join(element.itertext())
    return " ".join(html.unescape(re.sub(r"<[^<>]*>", " ", html.unescape(inner))).split())


def _moment(text: str) -> datetime | None:
    """Return a time in the form of RSS (RFC 822) or Atom (RFC 3339)."""
    for parse in (datetime.fromisoformat, parsedate_to_datetime):
        try:
            found = parse(text.strip())
        except (ValueError, TypeError, IndexError):
            continue
        return found.astimezone(UTC) if found.tzinfo else found.replace(tzinfo=UTC)
    return None
