#!/usr/bin/env python3
"""Writes and finds notes in a workspace: memory/YYYY-MM-DD-slug.md and MEMORY.md."""

from __future__ import annotations

import argparse
import fcntl
import os
import re
import sys
import unicodedata
from collections.abc import Iterator
from datetime import date
from pathlib import Path

MAX_NOTE = 100_000
MAX_MEMORY = 18_000
"""Characters of MEMORY.md from which it should be tidied: from 20,000 it is cut in the prompt."""

MAX_HITS = 50
_DATED = re.compile(r"(\d{4}-\d\d-\d\d)(-.+)?\.md")


class Trouble(Exception):
    """What keeps a note from being written or found; the text is for the person."""


def main() -> None:
    arguments = _arguments()
    try:
        workspace = arguments.workspace.expanduser().resolve()
        if not workspace.is_dir():
            raise Trouble(f"{workspace} is no folder; give the full path of the workspace")
        _say(arguments.act(workspace, arguments))
    except Trouble as trouble:
        sys.exit(_told(str(trouble)))
    except OSError as error:
        sys.exit(_told(f"{error.filename}: {error.strerror}"))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Write and find notes of a workspace.")
    parser.add_argument("--workspace", type=Path, required=True, help="full path of the workspace")
    acts = parser.add_subparsers(required=True, metavar="add|remember|find|list")
    add = acts.add_parser("add", help="write a note, or add to it")
    add.add_argument("text", nargs="?", help="without it, stdin is read")
    add.add_argument("--title", default="", help="what it is about; without it, the note of the day")
    add.add_argument("--date", type=date.fromisoformat, default=date.today(), help="YYYY-MM-DD (today)")
    add.set_defaults(act=_add)
    remember = acts.add_parser("remember", help="add a line to MEMORY.md, unless it is there")
    remember.add_argument("fact", help="one lasting fact, in one line")
    remember.add_argument("--date", type=date.fromisoformat, default=date.today(), help="YYYY-MM-DD (today)")
    remember.set_defaults(act=_remember)
    find = acts.add_parser("find", help="print the lines that contain all words")
    find.add_argument("words", nargs="+")
    find.set_defaults(act=_find)
    listing = acts.add_parser("list", help="print the notes, newest first")
    listing.add_argument("--since", type=date.fromisoformat, default=date.min, help="YYYY-MM-DD")
    listing.set_defaults(act=_list)
    return parser.parse_args()


def _add(workspace: Path, arguments: argparse.Namespace) -> str:
    given: str | None = arguments.text
    text = (_stdin() if given is None else given).strip()
    if not text or len(text) > MAX_NOTE:
        raise Trouble(f"the text must have 1 to {MAX_NOTE:,} characters")
    title = " ".join(arguments.title.split())
    slug = _slug(title)
    name = f"memory/{arguments.date}{f'-{slug}' if slug else ''}.md"
    path = _inside(workspace, name)
    path.parent.mkdir(mode=0o700, exist_ok=True)
    new = _append(path, head=f"# {title or arguments.date}\n", text=f"\n{text}\n")
    return f"{'wrote' if new else 'added to'} {name}"


def _stdin() -> str:
    return sys.stdin.buffer.read(MAX_NOTE * 4 + 1).decode("utf-8", "replace")


def _remember(workspace: Path, arguments: argparse.Namespace) -> str:
    fact = " ".join(arguments.fact.split())
    if not fact:
        raise Trouble("there is nothing to remember")
    path = _inside(workspace, "MEMORY.md")
    known = path.read_text(encoding="utf-8") if path.exists() else ""
    if any(_bare(line) == fact.casefold() for line in known.splitlines()):
        return "MEMORY.md says that already"
    gap = "" if known.endswith("\n") or not known else "\n"
    _append(path, head="# What you know\n\n", text=f"{gap}- {arguments.date}: {fact}\n")
    size = len(known) + len(fact)
    hint = (
        f"; it has {size:,} characters: merge and delete what is no longer true" if size > MAX_MEMORY else ""
    )
    return f"added to MEMORY.md{hint}"


def _find(workspace: Path, arguments: argparse.Namespace) -> str:
    words = [word.casefold() for word in arguments.words]
    hits = [
        f"{path.relative_to(workspace)}#L{number}: {line.strip()[:300]}"
        for path in _notes(workspace)
        for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1)
        if all(word in line.casefold() for word in words)
    ]
    more = f"\n({len(hits) - MAX_HITS} more lines)" if len(hits) > MAX_HITS else ""
    return "\n".join(hits[:MAX_HITS]) + more or "nothing found"


def _list(workspace: Path, arguments: argparse.Namespace) -> str:
    lines = []
    for path in _notes(workspace):
        dated = _DATED.fullmatch(path.name)
        if dated and date.fromisoformat(dated[1]) >= arguments.since:
            lines.append(f"{path.relative_to(workspace)} ({path.stat().st_size:,} bytes)")
    return "\n".join(lines) or "there are no notes"


def _notes(workspace: Path) -> Iterator[Path]:
    """Yield MEMORY.md, then the notes from the newest to the oldest; links are left out."""
    found = [workspace / "MEMORY.md", *sorted((workspace / "memory").glob("*.md"), reverse=True)]
    return (path for path in found if path.is_file() and not path.is_symlink())


def _inside(workspace: Path, name: str) -> Path:
    path = workspace / name
    if path.is_symlink() or not path.resolve().is_relative_to(workspace):
        raise Trouble(f"{name} is a link, or leads out of the workspace")
    return path


def _append(path: Path, *, head: str, text: str) -> bool:
    """Add to the end of a file as one, whoever else writes; return whether the file is new."""
    handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    with os.fdopen(handle, "ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        new = os.fstat(file.fileno()).st_size == 0
        file.write(f"{head if new else ''}{text}".encode())
    return new


def _slug(title: str) -> str:
    """Return a title as part of a file's name, in any script: "Buy tea!" is "buy-tea"."""
    words = re.findall(r"\w+", unicodedata.normalize("NFC", title).casefold().replace("_", " "))
    slug = ""
    for word in words:
        longer = f"{slug}-{word}" if slug else word
        if len(longer.encode()) > 120:
            break
        slug = longer
    return slug or "-".join(words).encode()[:120].decode(errors="ignore")


def _bare(line: str) -> str:
    """Return a line of MEMORY.md without its bullet and date."""
    return re.sub(r"^\s*[-*]\s*(\d{4}-\d\d-\d\d:\s*)?", "", line).strip().casefold()


def _say(text: str) -> None:
    sys.stdout.buffer.write(f"{text}\n".encode(errors="replace"))


def _told(problem: str) -> int:
    print(f"note: {problem}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    main()
