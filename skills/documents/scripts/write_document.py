#!/usr/bin/env python3
"""Writes a Word or PDF file from Markdown, or an Excel file from CSV or JSON."""

from __future__ import annotations

import argparse
import csv
import io
import json
import math
import os
import re
import sys
import tempfile
from collections.abc import Mapping, Sequence
from datetime import date, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from office import MAX_FILE, Trouble

if TYPE_CHECKING:
    from write_xlsx import Value

_NUMBER = re.compile(r"-?(0|[1-9]\d{0,14})(\.\d{1,14})?")
"""What is a number in CSV. Not "007" or a long card number: they would not come back as they were."""

_DAY = re.compile(r"\d{4}-\d\d-\d\d")
_MOMENT = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d)?")


def main() -> None:
    arguments = _arguments()
    try:
        path: Path = arguments.file.expanduser()
        if path.exists() and not arguments.force:
            raise Trouble(f"{path} is there already; another name, or --force to replace it")
        _write(path, _source(arguments.source), arguments)
        print(f"wrote {path} ({path.stat().st_size:,} bytes)")
    except Trouble as trouble:
        sys.exit(_told(str(trouble)))
    except OSError as error:
        sys.exit(_told(f"{error.filename or arguments.file} can't be written ({error.strerror})"))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Write .docx or .pdf from Markdown, or .xlsx from CSV or JSON.",
        epilog='JSON for .xlsx: a list of rows, a list of objects, or {"sheet name": either of them, ...}.',
    )
    parser.add_argument(
        "file", type=Path, help="full path of the new document; its ending says what it becomes"
    )
    parser.add_argument("--from", dest="source", default="-", help="file with the content; without it, stdin")
    parser.add_argument("--font", type=Path, help="a .ttf, .otf or .ttc file for the PDF")
    parser.add_argument(
        "--formulas", action="store_true", help='cells that begin with "=" are formulas, not text'
    )
    parser.add_argument("--force", action="store_true", help="replace a file that is there")
    return parser.parse_args()


def _source(name: str) -> str:
    try:
        if name == "-":
            data = sys.stdin.buffer.read(MAX_FILE + 1)
        else:
            with Path(name).expanduser().open("rb") as file:
                data = file.read(MAX_FILE + 1)
        if len(data) > MAX_FILE:
            raise Trouble(f"the content is larger than {MAX_FILE // 1_000_000} MB")
        return data.decode("utf-8-sig")
    except OSError as error:
        raise Trouble(f"{name} can't be read ({error.strerror}); give the full path") from error
    except UnicodeDecodeError:
        raise Trouble(f"{name} is not UTF-8 text") from None


def _write(path: Path, source: str, arguments: argparse.Namespace) -> None:
    """Write beside the file first, so that a failure leaves no half document."""
    kind = path.suffix.lower()
    if kind not in {".docx", ".pdf", ".xlsx"}:
        raise Trouble(f"{path.name} must end in .docx, .pdf or .xlsx")
    handle, name = tempfile.mkstemp(suffix=kind, prefix=".", dir=path.parent)
    os.close(handle)
    try:
        if kind == ".xlsx":
            import write_xlsx

            write_xlsx.write(_sheets(source), Path(name), formulas=arguments.formulas)
        else:
            _write_text(kind, Path(name), source, arguments.font)
        Path(name).chmod(0o644)
        Path(name).replace(path)
    finally:
        Path(name).unlink(missing_ok=True)


def _write_text(kind: str, path: Path, source: str, font: Path | None) -> None:
    try:
        import blocks

        if kind == ".pdf":
            import write_pdf
    except ImportError as error:
        raise Trouble(f"this needs {error.name}: pip install 'crayfish-gateway[docs]'") from None
    if kind == ".pdf":
        if missing := write_pdf.write(blocks.blocks(source), path, font):
            print(f"write_document: no font here has {' '.join(missing)}: they became □", file=sys.stderr)
        return
    import write_docx

    write_docx.write(blocks.blocks(source), path)


def _sheets(source: str) -> Mapping[str, Sequence[Sequence[Value]]]:
    if not source.lstrip().startswith(("[", "{")):
        return {"Sheet1": [[_guess(cell) for cell in row] for row in _csv(source)]}
    try:
        content = json.loads(source)
    except ValueError as error:
        raise Trouble(f"the JSON is broken: {error}") from error
    if isinstance(content, list):
        return {"Sheet1": _rows(content)}
    if not content or not all(isinstance(rows, list) for rows in content.values()):
        raise Trouble('the JSON must be a list of rows, a list of objects, or {"sheet name": a list, ...}')
    return {name: _rows(rows) for name, rows in content.items()}


def _csv(source: str) -> list[list[str]]:
    try:
        dialect = csv.Sniffer().sniff(source[:10_000], ",;\t|")
    except csv.Error:
        dialect = csv.excel  # one column, or too little to tell
    try:
        return list(csv.reader(io.StringIO(source, newline=""), dialect))
    except csv.Error as error:
        raise Trouble(f"the CSV is broken: {error}") from error


def _rows(content: Sequence[object]) -> list[list[Value]]:
    """Return rows of a list of lists as they are, of a list of objects under a head of their keys."""
    if all(isinstance(row, dict) for row in content):
        objects = [row for row in content if isinstance(row, dict)]
        keys = list(dict.fromkeys(key for row in objects for key in row))
        return [list(keys), *([_value(row.get(key)) for key in keys] for row in objects)]
    if not all(isinstance(row, list) for row in content):
        raise Trouble("each row of a sheet must be a list, or each an object")
    return [[_value(cell) for cell in row] for row in content if isinstance(row, list)]


def _value(cell: object) -> Value:
    match cell:
        case None | bool():
            return cell
        case int() if abs(cell) < 10**15:
            return cell
        case float() if math.isfinite(cell):
            return cell
        case str():
            return _moment(cell)
    return json.dumps(cell, ensure_ascii=False)


def _guess(cell: str) -> Value:
    """Return what a cell of CSV means."""
    if _NUMBER.fullmatch(cell):
        return float(cell) if "." in cell else int(cell)
    return _moment(cell) if cell else None


def _moment(cell: str) -> str | date:
    """Return a text in ISO form as the date that it is."""
    try:
        if _DAY.fullmatch(cell):
            return date.fromisoformat(cell)
        return datetime.fromisoformat(cell) if _MOMENT.fullmatch(cell) else cell
    except ValueError:
        return cell


def _told(problem: str) -> int:
    print(f"write_document: {problem}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    main()
