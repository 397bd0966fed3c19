"""Writes rows as an Excel workbook, with the standard library alone."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from datetime import date, datetime
from pathlib import Path
from typing import TypeAlias
from xml.sax.saxutils import escape, quoteattr

from office import Trouble
from read_xlsx import letters

Value: TypeAlias = str | int | float | bool | date | datetime | None

MAX_CELLS = 2_000_000
MAX_COLUMNS = 16_384
MAX_TEXT = 32_767
"""Characters in a cell, as Excel allows."""

_HEAD = '<?xml version="1.0" encoding="UTF-8" standalone="yes"?>\n'
_OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_SHEET = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
_EXCEL = "application/vnd.openxmlformats-officedocument.spreadsheetml"
_BAD = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff\ud800-\udfff]")
_HEADER, _DATE, _MOMENT = 1, 2, 3
"""The numbers of the cell styles below."""

_STYLES = f"""{_HEAD}<styleSheet xmlns="{_SHEET}">\
<numFmts count="2"><numFmt numFmtId="164" formatCode="yyyy\\-mm\\-dd"/>\
<numFmt numFmtId="165" formatCode="yyyy\\-mm\\-dd\\ hh:mm"/></numFmts>\
<fonts count="2"><font><sz val="11"/><name val="Calibri"/></font><font><b/><sz val="11"/><name val="Calibri"/></font></fonts>\
<fills count="2"><fill><patternFill patternType="none"/></fill><fill><patternFill patternType="gray125"/></fill></fills>\
<borders count="1"><border><left/><right/><top/><bottom/><diagonal/></border></borders>\
<cellStyleXfs count="1"><xf numFmtId="0" fontId="0" fillId="0" borderId="0"/></cellStyleXfs>\
<cellXfs count="4"><xf numFmtId="0" fontId="0" fillId="0" borderId="0" xfId="0"/>\
<xf numFmtId="0" fontId="1" fillId="0" borderId="0" xfId="0" applyFont="1"/>\
<xf numFmtId="164" fontId="0" fillId="0" borderId="0" xfId="0" applyNumberFormat="1"/>\
<xf numFmtId="165" fontId="0" fillId="0" borderId="0" xfId="0" applyNumberFormat="1"/></cellXfs>\
<cellStyles count="1"><cellStyle name="Normal" xfId="0" builtinId="0"/></cellStyles></styleSheet>"""


def write(sheets: Mapping[str, Sequence[Sequence[Value]]], path: Path, *, formulas: bool) -> None:
    """Write one sheet for each name; the first row of each is its head, in bold, and stays in view.

    With `formulas` a text that begins with "=" is one; otherwise it is kept as text.
    Raises: Trouble, OSError.
    """
    if sum(len(row) for rows in sheets.values() for row in rows) > MAX_CELLS:
        raise Trouble(f"more than {MAX_CELLS:,} cells")
    if any(len(row) > MAX_COLUMNS for rows in sheets.values() for row in rows):
        raise Trouble(f"a row has more than {MAX_COLUMNS:,} columns")
    numbers = range(1, len(sheets) + 1)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as package:
        package.writestr("[Content_Types].xml", _types(numbers))
        package.writestr("_rels/.rels", _relations([("officeDocument", "xl/workbook.xml")]))
        targets = [("worksheet", f"worksheets/sheet{number}.xml") for number in numbers]
        package.writestr("xl/_rels/workbook.xml.rels", _relations([*targets, ("styles", "styles.xml")]))
        package.writestr("xl/workbook.xml", _workbook(_names(sheets)))
        package.writestr("xl/styles.xml", _STYLES)
        for number, rows in zip(numbers, sheets.values(), strict=True):
            package.writestr(f"xl/worksheets/sheet{number}.xml", "".join(_sheet(rows, formulas=formulas)))


def _types(numbers: range) -> str:
    sheets = "".join(
        f'<Override PartName="/xl/worksheets/sheet{number}.xml" ContentType="{_EXCEL}.worksheet+xml"/>'
        for number in numbers
    )
    return (
        f'{_HEAD}<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types">'
        '<Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
        '<Default Extension="xml" ContentType="application/xml"/>'
        f'<Override PartName="/xl/workbook.xml" ContentType="{_EXCEL}.sheet.main+xml"/>'
        f'<Override PartName="/xl/styles.xml" ContentType="{_EXCEL}.styles+xml"/>{sheets}</Types>'
    )


def _relations(targets: Sequence[tuple[str, str]]) -> str:
    rows = "".join(
        f'<Relationship Id="rId{number}" Type="{_OFFICE}/{kind}" Target="{target}"/>'
        for number, (kind, target) in enumerate(targets, 1)
    )
    return f'{_HEAD}<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships">{rows}</Relationships>'


def _workbook(names: Sequence[str]) -> str:
    sheets = "".join(
        f'<sheet name={quoteattr(name)} sheetId="{number}" r:id="rId{number}"/>'
        for number, name in enumerate(names, 1)
    )
    return f'{_HEAD}<workbook xmlns="{_SHEET}" xmlns:r="{_OFFICE}"><sheets>{sheets}</sheets></workbook>'


def _names(sheets: Mapping[str, object]) -> list[str]:
    """Return names that Excel takes: 31 characters, none of its own signs, no two alike."""
    found: list[str] = []
    for number, name in enumerate(sheets, 1):
        short = re.sub(r"[\[\]:*?/\\]", " ", _BAD.sub("", name)).strip(" '")[:31] or f"Sheet{number}"
        taken = {one.casefold() for one in found}
        found.append(f"{short[:27]} ({number})"[:31] if short.casefold() in taken else short)
    return found


def _sheet(rows: Sequence[Sequence[Value]], *, formulas: bool) -> Iterator[str]:
    yield f'{_HEAD}<worksheet xmlns="{_SHEET}">'
    if len(rows) > 1:
        yield (
            '<sheetViews><sheetView workbookViewId="0"><pane ySplit="1" topLeftCell="A2" activePane="bottomLeft" '
            'state="frozen"/></sheetView></sheetViews>'
        )
    if widths := _widths(rows):
        yield "<cols>"
        for number, width in enumerate(widths, 1):
            yield f'<col min="{number}" max="{number}" width="{width}" customWidth="1"/>'
        yield "</cols>"
    yield "<sheetData>"
    for number, row in enumerate(rows, 1):
        yield f'<row r="{number}">'
        for column, value in enumerate(row):
            if value is not None:
                place = f'r="{letters(column)}{number}"'
                yield _cell(place, value, head=number == 1, formulas=formulas)
        yield "</row>"
    yield "</sheetData></worksheet>"


def _widths(rows: Sequence[Sequence[Value]]) -> list[int]:
    widths = [0] * max(map(len, rows), default=0)
    for row in rows[:500]:
        for column, value in enumerate(row):
            # A CJK character is as wide as two others.
            size = sum(2 if one > "\u2e7f" else 1 for one in str(value)) + 2
            widths[column] = min(max(widths[column], size, 9), 60)
    return widths


def _cell(place: str, value: Value, *, head: bool, formulas: bool) -> str:
    style = f' s="{_HEADER}"' if head else ""
    match value:
        case bool():
            return f'<c {place}{style} t="b"><v>{int(value)}</v></c>'
        case int() | float():
            return f"<c {place}{style}><v>{value!r}</v></c>"
        case date():
            number, look = _serial(value)
            return f'<c {place} s="{look}"><v>{number!r}</v></c>'
        case str() if formulas and value.startswith("=") and len(value) > 1:
            return f"<c {place}{style}><f>{escape(_BAD.sub('', value[1:]))}</f></c>"
    text = escape(_BAD.sub("", str(value))[:MAX_TEXT])
    return f'<c {place}{style} t="inlineStr"><is><t xml:space="preserve">{text}</t></is></c>'


def _serial(value: date) -> tuple[float, int]:
    """Return a date as Excel counts it, in days, and its style."""
    if isinstance(value, datetime):
        passed = value.replace(tzinfo=None) - datetime(1899, 12, 30)
        return passed.total_seconds() / 86_400, _MOMENT
    return (value - date(1899, 12, 30)).days, _DATE
