#!/usr/bin/env python3
"""Prints the text of a PDF, Word, Excel or PowerPoint file."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import signal
import sys
import zipfile
from pathlib import Path

from office import Trouble

MAX_CHARS = 200_000
MAX_ROWS = 5_000
MEMORY = 2_000_000_000
SECONDS = 120

_OLE = b"\xd0\xcf\x11\xe0"
"""How the binary formats before 2007 begin, and today's when they have a password."""


def main() -> None:
    arguments = _arguments()
    _limit()
    try:
        kind, parts, total = _read(arguments)
        _print(kind, parts, total, arguments)
    except Trouble as trouble:
        sys.exit(_told(str(trouble)))
    except MemoryError:
        sys.exit(_told("the document needs too much memory; ask for fewer --parts or --rows"))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Print the text of a .pdf, .docx, .xlsx or .pptx file.",
        epilog="A long document is cut at --limit characters; the last line says how to go on.",
    )
    parser.add_argument("file", type=Path, help="full path of the document")
    parser.add_argument(
        "--parts", type=_span, metavar="A-B", help="only these pages, slides or sheets, from 1"
    )
    parser.add_argument(
        "--rows", type=_span, metavar="A-B", default=range(1, 501), help="rows of each sheet (1-500)"
    )
    parser.add_argument("--offset", type=int, default=0, help="characters to leave out at the beginning")
    parser.add_argument("--limit", type=int, default=30_000, help="characters to print at most (30000)")
    parser.add_argument("--password", default="", help="of an encrypted PDF")
    parser.add_argument("--json", action="store_true", help="print JSON with the parts")
    arguments = parser.parse_args()
    if not 0 < arguments.limit <= MAX_CHARS or arguments.offset < 0:
        parser.error(f"--limit goes from 1 to {MAX_CHARS}, --offset from 0")
    if len(arguments.rows) > MAX_ROWS:
        parser.error(f"--rows may ask for {MAX_ROWS} rows at most")
    return arguments


def _span(text: str) -> range:
    found = re.fullmatch(r"(\d{1,7})(?:-(\d{1,7}))?", text)
    first, last = (int(found[1]), int(found[2] or found[1])) if found else (0, 0)
    if not 1 <= first <= last:
        raise argparse.ArgumentTypeError(f"{text!r} is not like 3 or 2-5")
    return range(first, last + 1)


def _limit() -> None:
    """Keep a hostile document from eating the machine; Windows has no such limits."""
    if os.name == "posix":
        import resource

        signal.signal(signal.SIGXCPU, _too_slow)
        for kind, soft, hard in (
            (resource.RLIMIT_CPU, SECONDS, SECONDS + 5),
            (resource.RLIMIT_AS, MEMORY, MEMORY),
        ):
            with contextlib.suppress(ValueError, OSError):  # a lower limit holds already
                resource.setrlimit(kind, (soft, hard))


def _too_slow(*_: object) -> None:
    raise Trouble(f"the document takes more than {SECONDS} s to read; ask for fewer --parts or --rows")


def _read(arguments: argparse.Namespace) -> tuple[str, list[tuple[str, str]], int]:
    """Return the kind, the wanted parts (title, text), and how many parts there are."""
    path: Path = arguments.file.expanduser()
    kind = _kind(path)
    wanted: range | None = arguments.parts
    if kind == "pdf":
        try:
            import read_pdf
        except ImportError:
            raise Trouble("reading PDF needs pypdf: pip install 'crayfish-gateway[docs]'") from None
        most = arguments.offset + arguments.limit
        parts, total = read_pdf.read(path, wanted, most, arguments.password)
    else:
        parts = _office(kind, path, arguments.rows)
        total = len(parts)
        if wanted:
            parts = parts[wanted.start - 1 : wanted.stop - 1]
    if wanted and wanted.start > total:
        raise Trouble(f"there is no part {wanted.start}: {path.name} has {total}")
    return kind, parts, total


def _office(kind: str, path: Path, rows: range) -> list[tuple[str, str]]:
    if kind == "docx":
        import read_docx

        return read_docx.read(path)
    if kind == "pptx":
        import read_pptx

        return read_pptx.read(path)
    import read_xlsx

    return read_xlsx.read(path, (rows.start, rows.stop - 1))


def _kind(path: Path) -> str:
    """Return what a file is by what is in it, whatever it is called."""
    try:
        with path.open("rb") as file:
            start = file.read(1024)
    except OSError as error:
        raise Trouble(f"{path} can't be read ({error.strerror}); give the full path") from error
    if b"%PDF-" in start:
        return "pdf"
    if start.startswith(_OLE):
        raise Trouble(
            f"{path.name} has a password or is in the format from before 2007: save it as .docx, .xlsx or .pptx, "
            "for example with: soffice --headless --convert-to docx FILE"
        )
    names = _names(path) if start.startswith(b"PK") else frozenset()
    if "xl/workbook.bin" in names:
        raise Trouble(f"{path.name} is a binary workbook (.xlsb): save it as .xlsx")
    for folder, kind in (("word/", "docx"), ("xl/", "xlsx"), ("ppt/", "pptx")):
        if any(name.startswith(folder) for name in names):
            return kind
    raise Trouble(f"{path.name} is no PDF, Word, Excel or PowerPoint file")


def _names(path: Path) -> frozenset[str]:
    try:
        with zipfile.ZipFile(path) as package:
            return frozenset(package.namelist())
    except (zipfile.BadZipFile, ValueError, OSError, NotImplementedError) as error:
        raise Trouble(f"{path.name} is damaged: {error}") from error


def _print(kind: str, parts: list[tuple[str, str]], total: int, arguments: argparse.Namespace) -> None:
    start, end = arguments.offset, arguments.offset + arguments.limit
    if arguments.json:
        more = sum(len(text) for _, text in parts) > end
        found = {"kind": kind, "total_parts": total, "parts": _cut(parts, start, end)}
        _say(json.dumps({**found, "next_offset": end if more else None}, ensure_ascii=False, indent=1))
        return
    text = "\n\n".join(f"## {title}\n\n{body}" if title else body for title, body in parts)
    _say(text[start:end] or "(no text)")
    if len(text) > end:
        _say(f"\n[cut here; go on with --offset {end}]")
    elif kind == "pdf" and arguments.parts is None and len(parts) < total:
        _say(f"\n[pages {len(parts) + 1}-{total} are not shown; go on with --parts]")


def _cut(parts: list[tuple[str, str]], start: int, end: int) -> list[dict[str, str]]:
    """Return the parts with the characters from `start` to `end` of all their texts in a row."""
    found = []
    for title, text in parts:
        if piece := text[max(start, 0) : max(end, 0)]:
            found.append({"title": title, "text": piece})
        start, end = start - len(text), end - len(text)
    return found


def _say(text: str) -> None:
    sys.stdout.buffer.write(f"{text}\n".encode(errors="replace"))


def _told(problem: str) -> int:
    print(f"read_document: {problem}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    main()
