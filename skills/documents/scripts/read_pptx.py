"""Turns a PowerPoint presentation into text, slide by slide."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from xml.etree.ElementTree import Element

from office import Package

A = "{http://schemas.openxmlformats.org/drawingml/2006/main}"
P = "{http://schemas.openxmlformats.org/presentationml/2006/main}"
R = "{http://schemas.openxmlformats.org/officeDocument/2006/relationships}"

_FURNITURE = {"dt", "ftr", "sldNum"}
"""Placeholders that are on every slide: date, footer, number."""


def read(path: Path) -> list[tuple[str, str]]:
    """Return a title and the text of each slide, in the order of the show. Raises: Trouble."""
    with Package(path) as package:
        main = package.related("", "officeDocument") or "ppt/presentation.xml"
        names = package.relations(main)
        slides = [names.get(one.get(f"{R}id", ""), "") for one in package.xml(main).iter(f"{P}sldId")]
        return [(f"Slide {number}", _slide(package, name)) for number, name in enumerate(slides, 1)]


def _slide(package: Package, name: str) -> str:
    root = package.xml(name)
    lines = list(_shapes(root))
    if root.get("show") == "0":
        lines.insert(0, "(hidden)")
    notes = list(_shapes(package.xml(package.related(name, "notesSlide"))))
    return "\n".join([*lines, *(["Notes:", *notes] if notes else [])])


def _shapes(parent: Element) -> Iterator[str]:
    for shape in parent:
        if shape.tag == f"{P}sp":
            kind = shape.find(f"{P}nvSpPr/{P}nvPr/{P}ph")
            if kind is None or kind.get("type") not in _FURNITURE:
                title = kind is not None and kind.get("type") in {"title", "ctrTitle"}
                yield from _paragraphs(shape, "# " if title else "")
        elif shape.tag == f"{A}tbl":
            yield from _table(shape)
        elif shape.tag == f"{P}pic":
            about = shape.find(f"{P}nvPicPr/{P}cNvPr")
            name = "" if about is None else about.get("descr") or about.get("name")
            yield f"[picture: {name or 'no description'}]"
        else:
            yield from _shapes(shape)  # groups, frames, and the tree itself


def _paragraphs(parent: Element, sign: str = "") -> Iterator[str]:
    for paragraph in parent.iter(f"{A}p"):
        if text := _text(paragraph).strip():
            look = paragraph.find(f"{A}pPr")
            depth = 0 if look is None else int(look.get("lvl", "0"))
            yield f"{'  ' * depth}{sign}{text}"


def _text(paragraph: Element) -> str:
    signs = {f"{A}br": "\n", f"{A}t": ""}
    return "".join(signs[one.tag] + (one.text or "") for one in paragraph.iter() if one.tag in signs)


def _table(table: Element) -> Iterator[str]:
    for number, row in enumerate(table.iter(f"{A}tr")):
        cells = [" ".join(_paragraphs(cell)).replace("|", "\\|") for cell in row.iter(f"{A}tc")]
        yield f"| {' | '.join(cells)} |"
        if number == 0:
            yield "|" + " --- |" * len(cells)
