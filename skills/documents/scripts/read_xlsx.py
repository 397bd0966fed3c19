"""Turns an Excel workbook into lines of tab-separated cells, sheet by sheet."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from xml.etree.ElementTree import Element

from office import Package

S = "{http://schemas.openxmlformats.org/spreadsheetml/2006/main}"
R = "{http://schemas.openxmlformats.org/officeDocument/2006/relationships}"

MAX_COLUMNS = 200

_DATES = {*range(14, 23), *range(27, 37), *range(45, 48), *range(50, 59)}
"""The numbers of the built-in formats that show a date or a time."""

_NOT_FORMAT = re.compile(r'"[^"]*"|\\.|\[(?!h+\]|m+\]|s+\])[^\]]*\]|_.|\*.')
"""What stands for itself in a number format: texts, colours, locales, blanks."""


@dataclass(frozen=True, slots=True)
class _Book:
    strings: Sequence[str]
    dates: Sequence[bool]
    start: datetime


def read(path: Path, rows: tuple[int, int]) -> list[tuple[str, str]]:
    """Return a title and the rows numbered `rows[0]` to `rows[1]` of each sheet. Raises: Trouble."""
    with Package(path) as package:
        main = package.related("", "officeDocument") or "xl/workbook.xml"
        workbook = package.xml(main)
        about = workbook.find(f"{S}workbookPr")
        old = about is not None and about.get("date1904") in {"1", "true"}
        book = _Book(
            strings=[
                _string(one) for one in package.stream(package.related(main, "sharedStrings"), f"{S}si")
            ],
            dates=_date_styles(package.xml(package.related(main, "styles"))),
            start=datetime(1904, 1, 1) if old else datetime(1899, 12, 30),
        )
        names = package.relations(main)
        found = []
        for sheet in workbook.iter(f"{S}sheet"):
            hidden = " (hidden)" if sheet.get("state", "visible") != "visible" else ""
            text = _sheet(package, names.get(sheet.get(f"{R}id", ""), ""), book, rows)
            found.append((f"Sheet {sheet.get('name')}{hidden}", text))
        return found


def _sheet(package: Package, name: str, book: _Book, rows: tuple[int, int]) -> str:
    lines: list[str] = []
    widest = number = 0
    for row in package.stream(name, f"{S}row"):
        number = int(row.get("r") or number + 1)
        if number < rows[0]:
            continue
        if number > rows[1]:
            lines.append(f"(more rows: go on with --rows {number}-{number + rows[1] - rows[0]})")
            break
        cells = _row(row, book)
        if any(cells):
            widest = max(widest, len(cells))
            lines.append("\t".join([str(number), *cells]))
    head = "\t".join(["row", *map(letters, range(widest))])
    return "\n".join([head, *lines]) if lines else "(empty)"


def _row(row: Element, book: _Book) -> list[str]:
    cells: list[str] = []
    for cell in row.iter(f"{S}c"):
        column = _column(cell.get("r", "")) if cell.get("r") else len(cells)
        if column >= MAX_COLUMNS:
            cells.append("…")
            break
        cells.extend([""] * (column - len(cells)))
        cells.append(re.sub(r"[\t\r\n]+", " ", _shown(cell, book)))
    return cells


def _shown(cell: Element, book: _Book) -> str:
    kind = cell.get("t", "n")
    value = cell.findtext(f"{S}v") or ""
    if kind == "inlineStr":
        inline = cell.find(f"{S}is")
        return "" if inline is None else _string(inline)
    if kind == "s":
        return book.strings[int(value)] if value and int(value) < len(book.strings) else ""
    if kind == "b":
        return "TRUE" if value == "1" else "FALSE"
    if not value:
        formula = cell.findtext(f"{S}f")
        return f"={formula}" if formula else ""  # never computed by the program that wrote it
    return value if kind != "n" else _number(value, int(cell.get("s", "0")), book)


def _number(value: str, style: int, book: _Book) -> str:
    try:
        number = float(value)
        if style < len(book.dates) and book.dates[style]:
            moment = book.start + timedelta(seconds=round(number * 86_400))
            if number < 1:
                return moment.strftime("%H:%M:%S")
            return (
                moment.isoformat(" ") if moment.time() != datetime.min.time() else moment.date().isoformat()
            )
    except (ValueError, OverflowError):
        return value
    return format(number, ".15g")


def _date_styles(styles: Element) -> list[bool]:
    """Return for each cell style whether it shows numbers as dates."""
    own = {
        int(one.get("numFmtId", "0")): _NOT_FORMAT.sub("", one.get("formatCode", "").lower())
        for one in styles.iter(f"{S}numFmt")
    }
    used = styles.find(f"{S}cellXfs")
    numbers = [int(one.get("numFmtId", "0")) for one in used] if used is not None else []
    return [bool(re.search("[ymdhs]", own[one])) if one in own else one in _DATES for one in numbers]


def _string(item: Element) -> str:
    """Return a string without its phonetic hints, which Japanese workbooks have."""
    texts = [item.findtext(f"{S}t") or "", *(run.findtext(f"{S}t") or "" for run in item.iter(f"{S}r"))]
    return "".join(texts)


def _column(reference: str) -> int:
    """Return the number of a cell's column, from 0: 27 for "AB12"."""
    number = 0
    for letter in reference:
        if not letter.isalpha():
            break
        number = number * 26 + ord(letter.upper()) - 64
    return number - 1


def letters(column: int) -> str:
    """Return the letters of a column: "AB" for 27."""
    found = ""
    column += 1
    while column:
        column, rest = divmod(column - 1, 26)
        found = chr(65 + rest) + found
    return found
