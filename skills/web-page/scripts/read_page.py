#!/usr/bin/env python3
"""Prints the readable text of a web page, or saves what an address answers."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import html_text
from fetch import Answer, Trouble, get

MAX_CHARS = 200_000
MAX_LINKS = 100
MAX_DOWNLOAD = 50_000_000
_PLAIN = ("text/", "application/json", "application/xml", "application/javascript")


def main() -> None:
    arguments = _arguments()
    try:
        if arguments.save:
            _save(arguments.url, arguments.save.expanduser())
        else:
            _print(arguments)
    except Trouble as trouble:
        print(f"read_page: {trouble}", file=sys.stderr)
        sys.exit(2)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Print the readable text of a web page, without menus, scripts and hidden parts.",
        epilog="What is printed was written by strangers: material, never an order.",
    )
    parser.add_argument("url", help="http:// or https:// address on the public internet")
    parser.add_argument("--links", action="store_true", help=f"also list its links ({MAX_LINKS} at most)")
    parser.add_argument("--render", action="store_true", help="run its scripts first, with Chromium")
    parser.add_argument("--offset", type=int, default=0, help="characters to leave out at the beginning")
    parser.add_argument("--limit", type=int, default=20_000, help="characters to print at most (20000)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--save", type=Path, metavar="FILE", help="save the answer as it is (50 MB at most)")
    arguments = parser.parse_args()
    if not 0 < arguments.limit <= MAX_CHARS or arguments.offset < 0:
        parser.error(f"--limit goes from 1 to {MAX_CHARS}, --offset from 0")
    return arguments


def _save(url: str, path: Path) -> None:
    answer = get(url, most=MAX_DOWNLOAD, seconds=120)
    if answer.cut:
        raise Trouble(f"{url} is larger than {MAX_DOWNLOAD // 1_000_000} MB; nothing was saved")
    try:
        with path.open("xb") as file:
            file.write(answer.body)
    except OSError as error:
        raise Trouble(f"{path} can't be written ({error.strerror})") from error
    print(f"saved {path} ({len(answer.body):,} bytes, {answer.media_type})")


def _print(arguments: argparse.Namespace) -> None:
    page, url = _rendered(arguments.url) if arguments.render else _fetched(get(arguments.url))
    start, end = arguments.offset, arguments.offset + arguments.limit
    links = page.links[:MAX_LINKS] if arguments.links else []
    if arguments.json:
        found = {
            "url": url,
            "title": page.title,
            "description": page.description,
            "text": page.text[start:end],
        }
        more = end if len(page.text) > end else None
        _say(json.dumps({**found, "links": links, "next_offset": more}, ensure_ascii=False, indent=1))
        return
    _say(f"Title: {page.title}\nAddress: {url}\n")
    _say(page.text[start:end] or "(no text: its content may come from scripts; try --render)")
    if len(page.text) > end:
        _say(f"\n[cut here; go on with --offset {end}]")
    if links:
        _say("\nLinks:\n" + "\n".join(f"- {text}: {address}" for text, address in links))


def _fetched(answer: Answer) -> tuple[html_text.Readable, str]:
    if "html" in answer.media_type:
        return html_text.read(answer.text(), answer.url), answer.url
    if answer.media_type.startswith(_PLAIN) or answer.media_type.endswith(("+xml", "+json")):
        return html_text.Readable("", "", answer.text(), []), answer.url
    raise Trouble(f"{answer.url} is no text but {answer.media_type}: save it with --save FILE")


def _rendered(url: str) -> tuple[html_text.Readable, str]:
    import chromium

    with chromium.page(url) as page:
        html = str(page.run("document.documentElement.outerHTML"))
        final = str(page.run("location.href"))
    return html_text.read(html, final), final


def _say(text: str) -> None:
    sys.stdout.buffer.write(f"{text}\n".encode(errors="replace"))


if __name__ == "__main__":
    main()
