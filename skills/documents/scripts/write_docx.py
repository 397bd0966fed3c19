"""Writes blocks as a Word document, with the standard library alone."""

from __future__ import annotations

import zipfile
from collections.abc import Iterable
from pathlib import Path
from xml.sax.saxutils import escape, quoteattr

from blocks import Block, Code, Item, Rule, Span, Spans, Table, Text

_W = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
_R = 'xmlns:r="http://schemas.openxmlformats.org/officeDocument/2006/relationships"'
_OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_WORD = "application/vnd.openxmlformats-officedocument.wordprocessingml"
_HEAD = '<?xml version="1.0" encoding="UTF-8" standalone="yes"?>\n'
_DEPTHS = range(9)
_SIZES = (32, 28, 26, 24, 22, 22)
"""Of the headings, in half points."""

_TYPES = f"""{_HEAD}<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types">\
<Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/>\
<Default Extension="xml" ContentType="application/xml"/>\
<Override PartName="/word/document.xml" ContentType="{_WORD}.document.main+xml"/>\
<Override PartName="/word/styles.xml" ContentType="{_WORD}.styles+xml"/>\
<Override PartName="/word/numbering.xml" ContentType="{_WORD}.numbering+xml"/></Types>"""

_PACKAGE = f"""{_HEAD}<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships">\
<Relationship Id="rId1" Type="{_OFFICE}/officeDocument" Target="word/document.xml"/></Relationships>"""


def write(blocks: Iterable[Block], path: Path) -> None:
    """Write the document. Raises: OSError."""
    document = _Document()
    body = "".join(map(document.block, blocks))
    page = (
        '<w:sectPr><w:pgSz w:w="11906" w:h="16838"/>'
        '<w:pgMar w:top="1134" w:right="1134" w:bottom="1134" w:left="1134" w:header="709" w:footer="709" w:gutter="0"/>'
        "</w:sectPr>"
    )
    parts = {
        "[Content_Types].xml": _TYPES,
        "_rels/.rels": _PACKAGE,
        "word/document.xml": f"{_HEAD}<w:document {_W} {_R}><w:body>{body}{page}</w:body></w:document>",
        "word/styles.xml": _styles(),
        "word/numbering.xml": _numbering(document.lists),
        "word/_rels/document.xml.rels": document.relations(),
    }
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as package:
        for name, text in parts.items():
            package.writestr(name, text)


class _Document:
    def __init__(self) -> None:
        self.lists: dict[int, str] = {}
        """The first sign of each list, by its key."""
        self._links: list[str] = []

    def block(self, block: Block) -> str:
        match block:
            case Text(spans, level, quote):
                return self._paragraph(spans, f"Heading{level}" if level else "Quote" if quote else "")
            case Item():
                return self._item(block)
            case Code(text):
                return self._paragraph([Span(text)], "Code")
            case Table(rows):
                return self._table(rows)
            case Rule():
                line = '<w:pBdr><w:bottom w:val="single" w:sz="6" w:space="1" w:color="999999"/></w:pBdr>'
                return f"<w:p><w:pPr>{line}</w:pPr></w:p>"

    def relations(self) -> str:
        links = "".join(
            f'<Relationship Id="rId{number}" Type="{_OFFICE}/hyperlink" Target={quoteattr(_clean(link))} TargetMode="External"/>'
            for number, link in enumerate(self._links, 3)
        )
        return (
            f'{_HEAD}<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships">'
            f'<Relationship Id="rId1" Type="{_OFFICE}/styles" Target="styles.xml"/>'
            f'<Relationship Id="rId2" Type="{_OFFICE}/numbering" Target="numbering.xml"/>{links}</Relationships>'
        )

    def _item(self, item: Item) -> str:
        self.lists.setdefault(item.key, item.sign)
        depth = min(item.depth, _DEPTHS[-1])
        if item.sign:
            look = f'<w:numPr><w:ilvl w:val="{depth}"/><w:numId w:val="{item.key}"/></w:numPr>'
        else:
            look = f'<w:ind w:left="{(depth + 1) * 425}"/>'
        return self._paragraph(item.spans, "ListParagraph", look)

    def _paragraph(self, spans: Spans, style: str = "", look: str = "") -> str:
        named = f'<w:pStyle w:val="{style}"/>' if style else ""
        runs = "".join(map(self._run, spans))
        return f"<w:p><w:pPr>{named}{look}</w:pPr>{runs}</w:p>"

    def _run(self, span: Span) -> str:
        look = (
            (
                '<w:rStyle w:val="CodeText"/>'
                if span.code
                else '<w:rStyle w:val="Hyperlink"/>'
                if span.link
                else ""
            )
            + ("<w:b/>" if span.bold else "")
            + ("<w:i/>" if span.italic else "")
        )
        lines = "<w:br/>".join(
            f'<w:t xml:space="preserve">{escape(_clean(line))}</w:t>' for line in span.text.split("\n")
        )
        run = f"<w:r><w:rPr>{look}</w:rPr>{lines}</w:r>"
        if not span.link:
            return run
        self._links.append(span.link)
        return f'<w:hyperlink r:id="rId{len(self._links) + 2}">{run}</w:hyperlink>'

    def _table(self, rows: Iterable[Iterable[Spans]]) -> str:
        lines = []
        width = 0
        for number, row in enumerate(rows):
            cells = [
                self._paragraph(
                    [Span(one.text, True, one.italic, one.code, one.link) for one in spans]
                    if number == 0
                    else spans
                )
                for spans in row
            ]
            width = max(width, len(cells))
            head = "<w:trPr><w:tblHeader/></w:trPr>" if number == 0 else ""
            tagged = "".join(
                f'<w:tc><w:tcPr><w:tcW w:w="0" w:type="auto"/></w:tcPr>{cell}</w:tc>' for cell in cells
            )
            lines.append(f"<w:tr>{head}{tagged}</w:tr>")
        grid = '<w:gridCol w:w="1800"/>' * width
        look = '<w:tblPr><w:tblStyle w:val="TableGrid"/><w:tblW w:w="0" w:type="auto"/></w:tblPr>'
        # Word wants a paragraph between two tables, and one behind the last.
        return f"<w:tbl>{look}<w:tblGrid>{grid}</w:tblGrid>{''.join(lines)}</w:tbl><w:p/>"


def _clean(text: str) -> str:
    """Return the text without the characters that XML can't hold."""
    return "".join(one for one in text if (one >= " " and one not in "\ufffe\uffff") or one == "\t")


def _numbering(lists: dict[int, str]) -> str:
    levels = {
        kind: "".join(
            f'<w:lvl w:ilvl="{depth}"><w:start w:val="1"/><w:numFmt w:val="{kind}"/>'
            f'<w:lvlText w:val="{"•" if kind == "bullet" else f"%{depth + 1}."}"/><w:lvlJc w:val="left"/>'
            f'<w:pPr><w:ind w:left="{(depth + 1) * 425}" w:hanging="425"/></w:pPr></w:lvl>'
            for depth in _DEPTHS
        )
        for kind in ("bullet", "decimal")
    }
    kinds = "".join(
        f'<w:abstractNum w:abstractNumId="{number}"><w:multiLevelType w:val="hybridMultilevel"/>{text}</w:abstractNum>'
        for number, text in enumerate(levels.values())
    )
    return f"{_HEAD}<w:numbering {_W}>{kinds}{''.join(_list(*one) for one in lists.items())}</w:numbering>"


def _list(key: int, sign: str) -> str:
    """Return a list of its own, so that each ordered one begins at its own number."""
    if sign in {"•", ""}:
        return f'<w:num w:numId="{key}"><w:abstractNumId w:val="0"/></w:num>'
    starts = "".join(
        f'<w:lvlOverride w:ilvl="{depth}"><w:startOverride w:val="{sign[:-1]}"/></w:lvlOverride>'
        for depth in _DEPTHS
    )
    return f'<w:num w:numId="{key}"><w:abstractNumId w:val="1"/>{starts}</w:num>'


def _styles() -> str:
    headings = "".join(
        f'<w:style w:type="paragraph" w:styleId="Heading{level}"><w:name w:val="heading {level}"/>'
        f'<w:basedOn w:val="Normal"/><w:next w:val="Normal"/><w:qFormat/><w:pPr><w:keepNext/>'
        f'<w:spacing w:before="240" w:after="80"/><w:outlineLvl w:val="{level - 1}"/></w:pPr>'
        f'<w:rPr><w:b/><w:sz w:val="{size}"/></w:rPr></w:style>'
        for level, size in enumerate(_SIZES, 1)
    )
    borders = "".join(
        f'<w:{side} w:val="single" w:sz="4" w:space="0" w:color="999999"/>'
        for side in ("top", "left", "bottom", "right", "insideH", "insideV")
    )
    mono = '<w:rFonts w:ascii="Consolas" w:hAnsi="Consolas" w:cs="Consolas"/><w:sz w:val="20"/>'
    return f"""{_HEAD}<w:styles {_W}>\
<w:docDefaults><w:rPrDefault><w:rPr><w:rFonts w:ascii="Calibri" w:hAnsi="Calibri" w:cs="Calibri"/>\
<w:sz w:val="22"/></w:rPr></w:rPrDefault>\
<w:pPrDefault><w:pPr><w:spacing w:after="120" w:line="264" w:lineRule="auto"/></w:pPr></w:pPrDefault></w:docDefaults>\
<w:style w:type="paragraph" w:default="1" w:styleId="Normal"><w:name w:val="Normal"/><w:qFormat/></w:style>{headings}\
<w:style w:type="paragraph" w:styleId="Quote"><w:name w:val="Quote"/><w:basedOn w:val="Normal"/>\
<w:pPr><w:ind w:left="567" w:right="567"/></w:pPr><w:rPr><w:i/></w:rPr></w:style>\
<w:style w:type="paragraph" w:styleId="ListParagraph"><w:name w:val="List Paragraph"/><w:basedOn w:val="Normal"/>\
<w:pPr><w:spacing w:after="40"/></w:pPr></w:style>\
<w:style w:type="paragraph" w:customStyle="1" w:styleId="Code"><w:name w:val="Code"/><w:basedOn w:val="Normal"/>\
<w:pPr><w:shd w:val="clear" w:color="auto" w:fill="F2F2F2"/></w:pPr><w:rPr>{mono}</w:rPr></w:style>\
<w:style w:type="character" w:customStyle="1" w:styleId="CodeText"><w:name w:val="Code Text"/><w:rPr>{mono}</w:rPr></w:style>\
<w:style w:type="character" w:styleId="Hyperlink"><w:name w:val="Hyperlink"/>\
<w:rPr><w:color w:val="0563C1"/><w:u w:val="single"/></w:rPr></w:style>\
<w:style w:type="table" w:styleId="TableGrid"><w:name w:val="Table Grid"/>\
<w:tblPr><w:tblBorders>{borders}</w:tblBorders>\
<w:tblCellMar><w:left w:w="100" w:type="dxa"/><w:right w:w="100" w:type="dxa"/></w:tblCellMar></w:tblPr></w:style>\
</w:styles>"""
