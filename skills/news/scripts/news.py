#!/usr/bin/env python3
"""Prints headlines from RSS and Atom feeds and from Hacker News."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeAlias

import feeds
from feeds import BadFeed, Story
from fetch import Trouble, get

HACKER_NEWS = os.environ.get("HACKER_NEWS_URL") or "https://hacker-news.firebaseio.com/v0"
FEEDS = Path(os.environ.get("NEWS_FEEDS") or Path(__file__).parents[1] / "assets" / "feeds.json")
SECONDS = 15.0
MAX_STORIES = 100

Feeds: TypeAlias = Mapping[str, Mapping[str, Any]]
"""By name: `about` in words, `url`, and `default` if it is read when no source is named."""


def main() -> None:
    arguments = _arguments()
    try:
        known = _known()
        if arguments.list:
            _say(
                "\n".join(
                    ["hacker-news: Hacker News", *(f"{name}: {one['about']}" for name, one in known.items())]
                )
            )
            return
        stories, problems = _gather(arguments, known)
    except Trouble as trouble:
        sys.exit(_told(str(trouble)))
    for problem in problems:
        _told(problem)
    if problems and not stories:
        sys.exit(_told("no source could be read. The news are not known: say so, don't invent any"))
    text = _json(stories) if arguments.json else "\n".join(map(_line, stories)) or "(no story fits)"
    _say(text)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Print headlines, newest first.",
        epilog="Sources: hacker-news, the names of --list, or addresses of RSS or Atom feeds.",
    )
    parser.add_argument("sources", nargs="*", help="where to look (the feeds marked as default)")
    parser.add_argument("--list", action="store_true", help="print the names of the known feeds, and stop")
    parser.add_argument(
        "--about", default="", metavar="WORDS", help="only stories that contain all these words"
    )
    parser.add_argument("--hours", type=float, help="only stories of the last hours")
    parser.add_argument(
        "--limit", type=int, default=15, help=f"stories to print at most (15, up to {MAX_STORIES})"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    arguments = parser.parse_args()
    if not 1 <= arguments.limit <= MAX_STORIES:
        parser.error(f"--limit goes from 1 to {MAX_STORIES}")
    return arguments


def _gather(arguments: argparse.Namespace, known: Feeds) -> tuple[list[Story], list[str]]:
    """Return the stories that are wanted, newest first, and why sources could not be read."""
    names = arguments.sources or [name for name, one in known.items() if one.get("default")]
    readers = {name: _reader(name, known, arguments.limit) for name in names}
    stories: list[Story] = []
    problems: list[str] = []
    with ThreadPoolExecutor(max_workers=8) as pool:
        for name, task in [(name, pool.submit(reader)) for name, reader in readers.items()]:
            try:
                stories += task.result()
            except (Trouble, BadFeed) as error:
                problems.append(f"{name}: {error}")
    return _chosen(stories, arguments), problems


def _known() -> Feeds:
    try:
        found: Feeds = json.loads(FEEDS.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise Trouble(f"the list of feeds {FEEDS} can't be read: {error}") from error
    return found


def _reader(name: str, known: Feeds, limit: int) -> Callable[[], Sequence[Story]]:
    if name == "hacker-news":
        return lambda: _hacker_news(limit)
    if name not in known and not name.startswith(("http://", "https://")):
        raise Trouble(
            f"no feed is called {name!r}; there are: hacker-news, {', '.join(known)}, or give an address"
        )
    address = known[name]["url"] if name in known else name
    return lambda: feeds.read(get(address, seconds=SECONDS).body)


def _hacker_news(limit: int) -> list[Story]:
    ids = _asked(f"{HACKER_NEWS}/topstories.json")[:limit]
    with ThreadPoolExecutor(max_workers=8) as pool:
        return list(pool.map(_item, ids))


def _asked(url: str) -> Any:  # noqa: ANN401 - JSON
    try:
        return json.loads(get(url, seconds=SECONDS).body)
    except ValueError as error:
        raise Trouble(f"{url} answered no JSON") from error


def _item(number: int) -> Story:
    item = _asked(f"{HACKER_NEWS}/item/{int(number)}.json") or {}
    talk = f"https://news.ycombinator.com/item?id={int(number)}"
    return Story(
        title=str(item.get("title", "")),
        link=str(item.get("url") or talk),
        summary=f"{item.get('score', 0)} points, {item.get('descendants', 0)} comments: {talk}",
        when=datetime.fromtimestamp(item.get("time", 0), UTC),
        source="Hacker News",
    )


def _chosen(stories: Sequence[Story], arguments: argparse.Namespace) -> list[Story]:
    """Return the stories that fit, each once."""
    words = arguments.about.casefold().split()
    since = datetime.now(UTC) - timedelta(hours=arguments.hours) if arguments.hours else None
    found = {
        story.link or story.title: story
        for story in reversed(stories)
        if all(word in f"{story.title} {story.summary}".casefold() for word in words)
        and (since is None or (story.when is not None and story.when >= since))
    }
    never = datetime.min.replace(tzinfo=UTC)
    return sorted(found.values(), key=lambda story: story.when or never, reverse=True)[: arguments.limit]


def _line(story: Story) -> str:
    when = f"{story.when:%Y-%m-%d %H:%M} UTC, " if story.when else ""
    summary = f"\n  {story.summary}" if story.summary and story.summary != story.title else ""
    return f"- {story.title} ({when}{story.source})\n  {story.link}{summary}"


def _json(stories: Sequence[Story]) -> str:
    rows = [{**asdict(story), "when": story.when.isoformat() if story.when else None} for story in stories]
    return json.dumps(rows, ensure_ascii=False, indent=1)


def _say(text: str) -> None:
    sys.stdout.buffer.write(f"{text}\n".encode(errors="replace"))


def _told(problem: str) -> int:
    print(f"news: {problem}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    main()
