"""Writes blocks as a PDF; needs fpdf2."""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from blocks import Block, Code, Item, Rule, Span, Spans, Table, Text
from fpdf import FPDF
from fpdf.enums import XPos, YPos
from fpdf.errors import FPDFException
from fpdf.fonts import FontFace, TTFFont
from office import Trouble

_SIZE = 11.0
_LINE = 6.0
_INDENT = 7.0
_HEADINGS = (20, 16, 14, 12, 11, 11)
_STYLES = ("", "B", "I", "BI")

_FOLDERS = (
    "~/.fonts",
    "~/.local/share/fonts",
    "~/Library/Fonts",
    "/usr/local/share/fonts",
    "/usr/share/fonts",
    "/Library/Fonts",
    "/System/Library/Fonts",
    "C:/Windows/Fonts",
)
# Regular, bold, italic, bold italic; a font that lacks some is used for all.
_FONTS: Sequence[Sequence[str]] = (
    ("DejaVuSans.ttf", "DejaVuSans-Bold.ttf", "DejaVuSans-Oblique.ttf", "DejaVuSans-BoldOblique.ttf"),
    ("NotoSans-Regular.ttf", "NotoSans-Bold.ttf", "NotoSans-Italic.ttf", "NotoSans-BoldItalic.ttf"),
    ("arial.ttf", "arialbd.ttf", "ariali.ttf", "arialbi.ttf"),
    ("Arial.ttf", "Arial Bold.ttf", "Arial Italic.ttf", "Arial Bold Italic.ttf"),
    (
        "LiberationSans-Regular.ttf",
        "LiberationSans-Bold.ttf",
        "LiberationSans-Italic.ttf",
        "LiberationSans-BoldItalic.ttf",
    ),
    # Chinese, Japanese and Korean
    ("NotoSansCJK-Regular.ttc", "NotoSansCJK-Bold.ttc"),
    ("NotoSansSC-Regular.otf", "NotoSansSC-Bold.otf"),
    ("SourceHanSansSC-Regular.otf", "SourceHanSansSC-Bold.otf"),
    ("wqy-microhei.ttc",),
    ("wqy-zenhei.ttc",),
    ("DroidSansFallbackFull.ttf",),
    ("DroidSansFallback.ttf",),
    ("msyh.ttc", "msyhbd.ttc"),
    ("Hiragino Sans GB.ttc",),
    ("STHeiti Light.ttc",),
    ("Arial Unicode.ttf",),
    ("NotoEmoji-Regular.ttf",),
    ("Symbola.ttf",),
)


class _Paper(FPDF):
    def footer(self) -> None:
        self.set_y(-15)
        self.set_font(self.font_family, size=9)
        self.cell(0, 10, f"{self.page_no()}", align="C")


def write(blocks: Iterable[Block], path: Path, font: Path | None) -> Sequence[str]:
    """Write the document and return the signs that no font here has, which became "□".

    Raises: Trouble if that would be a letter; OSError.
    """
    found = list(blocks)
    text = "".join(span.text for span in _spans(found)) + "•□"
    pdf = _Paper()
    pdf.set_auto_page_break(True, 20)
    try:
        missing = _choose_fonts(pdf, text, font)
        if letters := [one for one in missing if unicodedata.category(one)[0] == "L"]:
            raise Trouble(
                f"no font here has {len(letters)} of the letters ({''.join(letters[:10])}): name one that does with "
                "--font, or install one (for Chinese, Japanese and Korean: apt install fonts-noto-cjk)"
            )
        pdf.add_page()
        writer = _Writer(pdf, str.maketrans(dict.fromkeys(missing, "□")))
        for block in found:
            writer.block(block)
        pdf.output(os.fspath(path))
    except (FPDFException, ValueError) as error:
        raise Trouble(f"the PDF could not be made: {error}") from error
    return missing


def _choose_fonts(pdf: FPDF, text: str, font: Path | None) -> list[str]:
    """Set the fonts for the text, and return the characters that none of them has."""
    needed = {one for one in text if one > " "}
    if font is None and all(one < "\x7f" or "\xa0" <= one <= "\xff" or one == "•" for one in needed - {"□"}):
        pdf.set_font("Helvetica", size=_SIZE)  # every reader of PDF has it: nothing is embedded
        return []
    names: list[str] = []
    for number, files in enumerate([[font]] if font else _installed()):
        have = _add(pdf, f"font{number}", files)
        if needed & have or not names:
            names.append(f"font{number}")
            needed -= have
        if not needed - {"□"}:
            break
    if not names:
        raise Trouble("no font was found on this machine: name a .ttf or .otf file with --font")
    pdf.set_font(names[0], size=_SIZE)
    pdf.set_fallback_fonts(names[1:], exact_match=False)
    return sorted(needed - {"□"})


def _add(pdf: FPDF, name: str, files: Sequence[Path]) -> set[str]:
    """Add a font in all its styles, and return the characters that it has."""
    for number, style in enumerate(_STYLES):
        try:
            pdf.add_font(name, style, files[number] if number < len(files) else files[0])
        except Exception as error:  # the font library raises whatever a broken file leads it to
            raise Trouble(f"the font {files[0]} can't be used: {error}") from error
    font = pdf.fonts[name]
    return {chr(one) for one in font.cmap} if isinstance(font, TTFFont) else set()


def _installed() -> Iterator[Sequence[Path]]:
    """Yield the fonts of the list that are here, each with those of its styles that are."""
    there: dict[str, Path] = {}
    for folder in _FOLDERS:
        for place, _, names in os.walk(Path(folder).expanduser()):
            for name in names:
                there.setdefault(name, Path(place, name))
    for files in _FONTS:
        if files[0] in there:
            yield [there.get(name, there[files[0]]) for name in files]


def _spans(blocks: Iterable[Block]) -> Iterator[Span]:
    for block in blocks:
        match block:
            case Text(spans) | Item(spans):
                yield from spans
            case Code(text):
                yield Span(text)
            case Table(rows):
                for row in rows:
                    for cell in row:
                        yield from cell


class _Writer:
    def __init__(self, pdf: FPDF, replaced: dict[int, str]) -> None:
        self._pdf = pdf
        self._family = pdf.font_family
        self._replaced = replaced
        self._left = pdf.l_margin

    def block(self, block: Block) -> None:
        pdf = self._pdf
        match block:
            case Text(spans, level, quote):
                if level:
                    pdf.ln(2)
                    self._keep_with_next()
                self._paragraph(
                    spans,
                    indent=_INDENT if quote else 0,
                    size=_HEADINGS[level - 1] if level else _SIZE,
                    bold=level > 0,
                )
            case Item(spans, depth, sign):
                pdf.set_x(self._left + depth * _INDENT)
                self._style(Span(""))
                pdf.cell(_INDENT, _LINE, "-" if sign == "•" and self._family == "helvetica" else sign)
                self._paragraph(spans, indent=(depth + 1) * _INDENT, after=1)
            case Code(text):
                self._code(text)
            case Table(rows):
                self._table(rows)
            case Rule():
                pdf.line(self._left, pdf.get_y() + 1, pdf.w - pdf.r_margin, pdf.get_y() + 1)
                pdf.ln(4)

    def _keep_with_next(self) -> None:
        if self._pdf.will_page_break(3 * _LINE):
            self._pdf.add_page()

    def _paragraph(
        self, spans: Spans, *, indent: float = 0, size: float = _SIZE, bold: bool = False, after: float = 3
    ) -> None:
        self._pdf.set_left_margin(self._left + indent)
        self._pdf.set_x(self._left + indent)
        for span in spans:
            self._style(span, size, bold=bold)
            self._pdf.write(size * _LINE / _SIZE, self._text(span.text), span.link)
        self._pdf.set_text_color(0)
        self._pdf.set_left_margin(self._left)
        self._pdf.ln(size * _LINE / _SIZE + after)

    def _style(self, span: Span, size: float = _SIZE, *, bold: bool = False) -> None:
        style = ("B" if bold or span.bold else "") + ("I" if span.italic else "")
        mono = span.code and self._family == "helvetica"
        self._pdf.set_font("Courier" if mono else self._family, style, size)
        self._pdf.set_text_color(*((5, 99, 193) if span.link else (0, 0, 0)))

    def _code(self, text: str) -> None:
        self._style(Span("", code=True), 9.5)
        self._pdf.set_fill_color(242)
        self._pdf.multi_cell(
            0, 5, self._text(text) or " ", fill=True, align="L", new_x=XPos.LMARGIN, new_y=YPos.NEXT
        )
        self._pdf.ln(3)

    def _table(self, rows: Sequence[Sequence[Spans]]) -> None:
        self._style(Span(""))
        with self._pdf.table(
            headings_style=FontFace(emphasis="B"), line_height=_LINE, padding=1, text_align="L"
        ) as table:
            for row in rows:
                cells = table.row()
                for spans in row:
                    cells.cell(self._text("".join(span.text for span in spans)))
        self._pdf.ln(3)

    def _text(self, text: str) -> str:
        plain = text.translate(self._replaced)
        return plain.replace("•", "-") if self._family == "helvetica" else plain
