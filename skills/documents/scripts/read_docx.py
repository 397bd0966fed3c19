"""Turns a Word document into Markdown-like text."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from xml.etree.ElementTree import Element

from office import Package

W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
R = "{http://schemas.openxmlformats.org/officeDocument/2006/relationships}"
MC = "{http://schemas.openxmlformats.org/markup-compatibility/2006}"
WP = "{http://schemas.openxmlformats.org/drawingml/2006/wordprocessingDrawing}"

_GONE = {f"{W}del", f"{W}moveFrom", f"{W}instrText", f"{W}rPr", f"{W}pPr", f"{MC}Fallback"}
"""What a reader does not see: deleted text, fields' formulas, and the second copy of a text box."""

_BETWEEN_ITEMS = re.compile(r"(?m)(?<=\n)(?P<item> *(?:-|1\.) .*)\n(?=\n *(?:-|1\.) )")
_SIGNS = {f"{W}tab": "\t", f"{W}br": "\n", f"{W}cr": "\n", f"{W}noBreakHyphen": "-"}
_MARKS = {f"{W}footnoteReference": "[^{}]", f"{W}endnoteReference": "[^e{}]", f"{W}commentReference": "[c{}]"}


def read(path: Path) -> list[tuple[str, str]]:
    """Return the parts of the document: a title ("" for the body) and a text each. Raises: Trouble."""
    with Package(path) as package:
        # The one that the package names; nearly always word/document.xml.
        main = package.related("", "officeDocument") or "word/document.xml"
        document = _Document(package, main)
        body = "\n\n".join(document.blocks(package.xml(main)))
        parts = [("", _BETWEEN_ITEMS.sub(r"\g<item>", f"\n{body}").strip("\n"))]
        for kind, title, mark in (
            ("footnotes", "Footnotes", "[^{}]"),
            ("endnotes", "Endnotes", "[^e{}]"),
            ("comments", "Comments", "[c{}]"),
        ):
            lines = document.notes(package.xml(package.related(main, kind)), mark)
            if lines:
                parts.append((title, "\n".join(lines)))
        return parts


class _Document:
    def __init__(self, package: Package, main: str) -> None:
        self._links = package.relations(main)
        self._levels = _heading_levels(package.xml(package.related(main, "styles")))
        self._ordered = _ordered_lists(package.xml(package.related(main, "numbering")))

    def blocks(self, parent: Element) -> Iterator[str]:
        """Yield paragraphs and tables in their order; containers (content controls) are looked into."""
        for child in parent:
            if child.tag == f"{W}p":
                if text := self._paragraph(child):
                    yield text
            elif child.tag == f"{W}tbl":
                yield self._table(child)
            elif child.tag not in _GONE:
                yield from self.blocks(child)

    def notes(self, root: Element, mark: str) -> list[str]:
        """Return the foot- or endnotes or comments under a root, one a line."""
        found = []
        for note in root:
            # Word keeps its separator lines as notes with a type.
            if text := " ".join(self.blocks(note)).strip():
                author = note.get(f"{W}author")
                if note.get(f"{W}type") in {None, "normal"}:
                    found.append(f"{mark.format(note.get(f'{W}id'))} {f'{author}: ' if author else ''}{text}")
        return found

    def _paragraph(self, paragraph: Element) -> str:
        text = "".join(self._inline(paragraph)).strip()
        look = paragraph.find(f"{W}pPr")
        if not text or look is None:
            return text
        style = _value(look, "pStyle")
        if level := self._levels.get(style):
            return f"{'#' * level} {text}"
        numbering = look.find(f"{W}numPr")
        if numbering is not None and (number := _value(numbering, "numId")) != "0":
            depth = int(_value(numbering, "ilvl") or 0)
            sign = "1." if (number, str(depth)) in self._ordered else "-"
            return f"{'  ' * depth}{sign} {text}"
        if style.startswith(("ListBullet", "ListNumber")):
            return f"{'1.' if 'Number' in style else '-'} {text}"
        return text

    def _inline(self, parent: Element) -> Iterator[str]:
        for child in parent:
            if child.tag == f"{W}t":
                yield child.text or ""
            elif child.tag in _SIGNS:
                yield _SIGNS[child.tag]
            elif child.tag in _MARKS:
                yield _MARKS[child.tag].format(child.get(f"{W}id"))
            elif child.tag == f"{W}hyperlink":
                yield self._link(child)
            elif child.tag == f"{WP}docPr":
                yield f"[picture: {child.get('descr') or child.get('name') or 'no description'}]"
            elif child.tag == f"{W}txbxContent":
                yield "\n" + "\n".join(self.blocks(child)) + "\n"
            elif child.tag not in _GONE:
                yield from self._inline(child)

    def _link(self, link: Element) -> str:
        text = "".join(self._inline(link))
        target = self._links.get(link.get(f"{R}id", ""), "")
        return f"[{text}]({target})" if target and target != text else text

    def _table(self, table: Element) -> str:
        rows = [
            [" ".join(self.blocks(cell)).replace("\n", " ").replace("|", "\\|") for cell in _cells(row)]
            for row in table.iter(f"{W}tr")
        ]
        lines = [f"| {' | '.join(row)} |" for row in rows]
        return "\n".join([*lines[:1], "|" + " --- |" * len(rows[0]), *lines[1:]]) if rows else ""


def _cells(row: Element) -> Iterator[Element]:
    for child in row:
        if child.tag == f"{W}tc":
            yield child
        elif child.tag in {f"{W}sdt", f"{W}sdtContent"}:
            yield from _cells(child)


def _heading_levels(styles: Element) -> Mapping[str, int]:
    """Return the level of each style that is a heading, by the style's id."""
    found = {}
    for style in styles.iter(f"{W}style"):
        outline = style.find(f"{W}pPr/{W}outlineLvl")
        name = _value(style, "name").lower()
        if outline is not None and (level := int(outline.get(f"{W}val", "9"))) < 6:
            found[style.get(f"{W}styleId", "")] = level + 1
        elif name == "title":
            found[style.get(f"{W}styleId", "")] = 1
    return found


def _ordered_lists(numbering: Element) -> frozenset[tuple[str, str]]:
    """Return the lists and levels that are numbered rather than bulleted."""
    kinds = {
        (abstract.get(f"{W}abstractNumId"), level.get(f"{W}ilvl", "0"))
        for abstract in numbering.iter(f"{W}abstractNum")
        for level in abstract.iter(f"{W}lvl")
        if _value(level, "numFmt") not in {"bullet", "none", ""}
    }
    return frozenset(
        (number.get(f"{W}numId", ""), level)
        for number in numbering.iter(f"{W}num")
        for abstract, level in kinds
        if abstract == _value(number, "abstractNumId")
    )


def _value(parent: Element, name: str) -> str:
    child = parent.find(f"{W}{name}")
    return "" if child is None else child.get(f"{W}val", "")
