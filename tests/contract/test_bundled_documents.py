"""The skill documents, on files that other libraries have made, and read back by them."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable, Mapping
from datetime import date, datetime, time
from pathlib import Path

import docx
import openpyxl
import pptx
import pytest
from docx.oxml import OxmlElement
from docx.oxml.ns import qn
from docx.oxml.parser import parse_xml
from fontTools.fontBuilder import FontBuilder
from fontTools.pens.ttGlyphPen import TTGlyphPen
from fpdf import FPDF
from fpdf.enums import AccessPermission, EncryptionMethod
from openpyxl.utils.datetime import CALENDAR_MAC_1904
from pptx.util import Inches
from pypdf import PdfReader
from pypdf.generic import DictionaryObject

from tests.fakes.bundled import run

W = "xmlns:w='http://schemas.openxmlformats.org/wordprocessingml/2006/main'"

MARKDOWN = """\
# Offer **2026** & more

Some *fine* text with `code`, ~ and a [link](https://example.com/a?b=1&c=2).
Its second line.

- one
- two
  1. first
  2. second

3. third
4. fourth

> quoted <words>

| Item | Price |
|---|---|
| Tea | 1 < 2 |
| Café | **3** |

```python
if x:
    print("y")
```

---

The end.
"""


def read(path: Path, *arguments: object) -> str:
    done = run("documents/read_document.py", path, *arguments, home=path.parent)
    assert (done.code, done.err) == (0, ""), done.err
    return done.out


def write(path: Path, content: str, *arguments: object) -> Path:
    done = run("documents/write_document.py", path, *arguments, home=path.parent, stdin=content.encode())
    assert done.code == 0, done.err
    return path


def refused(path: Path, *arguments: object) -> str:
    done = run("documents/read_document.py", path, *arguments, home=path.parent)
    assert (done.code, done.out) == (2, "")
    assert done.err.count("\n") == 1
    return done.err


def pdf(path: Path, *pages: str) -> Path:
    document = FPDF()
    document.set_font("Helvetica")
    for text in pages:
        document.add_page()
        document.multi_cell(0, 8, text)
    document.output(str(path))
    return path


class TestWord:
    """Reading .docx."""

    def test_headings_lists_tables_and_links_are_read(self, tmp_path: Path) -> None:
        document = docx.Document()
        document.add_heading("Minutes", 0)
        document.add_heading("Decisions", 2)
        document.add_paragraph("Budget: 8.400 € für die Küche 厨房")
        document.add_paragraph("first", style="List Bullet")
        document.add_paragraph("second", style="List Bullet")
        document.add_paragraph("counted", style="List Number")
        table = document.add_table(rows=2, cols=2)
        for cell, text in zip(
            [cell for row in table.rows for cell in row.cells],
            ["Who", "What", "Ana", "a | b\nc"],
            strict=True,
        ):
            cell.text = text
        document.save(str(tmp_path / "a.docx"))
        assert read(tmp_path / "a.docx") == (
            "# Minutes\n\n## Decisions\n\nBudget: 8.400 € für die Küche 厨房\n\n- first\n- second\n1. counted\n\n"
            "| Who | What |\n| --- | --- |\n| Ana | a \\| b c |\n"
        )

    def test_of_tracked_changes_the_new_text_is_read_and_of_comments_the_author(self, tmp_path: Path) -> None:
        document = docx.Document()
        paragraph = document.add_paragraph("kept ")
        for tag, inner, text in (("w:ins", "w:t", "inserted"), ("w:del", "w:delText", "deleted")):
            change, run_, content = OxmlElement(tag), OxmlElement("w:r"), OxmlElement(inner)
            content.text = text
            run_.append(content)
            change.append(run_)
            paragraph._p.append(change)
        document.add_comment(paragraph.runs, text="Is that so?", author="Ana")
        document.save(str(tmp_path / "a.docx"))
        text = read(tmp_path / "a.docx")
        assert "kept [c0]inserted" in text or "kept inserted" in text
        assert "deleted" not in text
        assert text.endswith("## Comments\n\n[c0] Ana: Is that so?\n")

    def test_a_text_box_is_read_once(self, tmp_path: Path) -> None:
        document = docx.Document()
        box = "<w:txbxContent><w:p><w:r><w:t>in the box</w:t></w:r></w:p></w:txbxContent>"
        twice = f"<mc:Choice Requires='wps'>{box}</mc:Choice><mc:Fallback>{box}</mc:Fallback>"
        names = f"{W} xmlns:mc='http://schemas.openxmlformats.org/markup-compatibility/2006'"
        shape = parse_xml(f"<mc:AlternateContent {names}>{twice}</mc:AlternateContent>")
        document.add_paragraph("before").add_run()._r.append(shape)
        document.save(str(tmp_path / "a.docx"))
        assert read(tmp_path / "a.docx").count("in the box") == 1


class TestExcel:
    """Reading .xlsx."""

    def book(self, path: Path) -> Path:
        book = openpyxl.Workbook()
        first = book.active
        assert first is not None
        first.title = "Prices & more"
        first.append(["Item", "Price", "Since", "At", "Sold", "Sum"])
        first.append(["Tea\nGreen", 3.1, date(2026, 3, 1), time(14, 30), True, "=B2*2"])
        first.append(["茶", 0.1 + 0.2, datetime(2026, 3, 1, 9, 15), None, False, 12345678901])
        first["H4"] = "far"
        hidden = book.create_sheet("Secret")
        hidden.sheet_state = "hidden"
        hidden.append(["x"])
        book.create_sheet("Empty")
        book.save(path)
        return path

    def test_cells_dates_and_formulas_are_read_as_a_person_sees_them(self, tmp_path: Path) -> None:
        assert read(self.book(tmp_path / "a.xlsx")) == (
            "## Sheet Prices & more\n\n"
            "row\tA\tB\tC\tD\tE\tF\tG\tH\n"
            "1\tItem\tPrice\tSince\tAt\tSold\tSum\n"
            "2\tTea Green\t3.1\t2026-03-01\t14:30:00\tTRUE\t=B2*2\n"
            "3\t茶\t0.3\t2026-03-01 09:15:00\t\tFALSE\t12345678901\n"
            "4\t\t\t\t\t\t\t\tfar\n\n"
            "## Sheet Secret (hidden)\n\nrow\tA\n1\tx\n\n## Sheet Empty\n\n(empty)\n"
        )

    def test_a_sheet_is_chosen_by_its_number(self, tmp_path: Path) -> None:
        assert (
            read(self.book(tmp_path / "a.xlsx"), "--parts", "2")
            == "## Sheet Secret (hidden)\n\nrow\tA\n1\tx\n"
        )
        assert "there is no part 9: a.xlsx has 3" in refused(tmp_path / "a.xlsx", "--parts", 9)

    def test_of_many_rows_the_wanted_ones_are_read_and_how_to_go_on_is_said(self, tmp_path: Path) -> None:
        book = openpyxl.Workbook(write_only=True)
        sheet = book.create_sheet("Long")
        for number in range(1, 20_001):
            sheet.append([number, f"row {number}"])
        book.save(tmp_path / "a.xlsx")
        lines = read(tmp_path / "a.xlsx", "--rows", "101-300").splitlines()
        assert lines[3].startswith("101\t101\t")
        assert lines[-1] == "(more rows: go on with --rows 301-500)"
        assert len(lines) == 2 + 1 + 200 + 1

    def test_a_book_that_counts_from_1904_has_the_same_dates(self, tmp_path: Path) -> None:
        book = openpyxl.Workbook()
        book.epoch = CALENDAR_MAC_1904
        assert book.active is not None
        book.active.append([date(2026, 3, 1)])
        book.save(tmp_path / "a.xlsx")
        assert "1\t2026-03-01" in read(tmp_path / "a.xlsx")


class TestPowerPoint:
    """Reading .pptx."""

    def test_slides_are_read_in_their_order_with_tables_and_notes(self, tmp_path: Path) -> None:
        show = pptx.Presentation()
        for title in ("Second", "First"):
            slide = show.slides.add_slide(show.slide_layouts[1])
            assert slide.shapes.title is not None
            slide.shapes.title.text = title
            body = slide.placeholders[1].text_frame
            body.text = "a point"
            point = body.add_paragraph()
            point.text, point.level = "a finer point 要点", 1
        table = slide.shapes.add_table(2, 2, Inches(1), Inches(4), Inches(4), Inches(1)).table
        for number, text in enumerate(["Who", "What", "Ana", "Tea"]):
            table.cell(number // 2, number % 2).text = text
        assert slide.notes_slide.notes_text_frame is not None
        slide.notes_slide.notes_text_frame.text = "say hello"
        order = show.slides._sldIdLst
        order.insert(0, order[1])
        show.save(str(tmp_path / "a.pptx"))
        assert read(tmp_path / "a.pptx") == (
            "## Slide 1\n\n# First\na point\n  a finer point 要点\n| Who | What |\n| --- | --- |\n| Ana | Tea |\n"
            "Notes:\nsay hello\n\n## Slide 2\n\n# Second\na point\n  a finer point 要点\n"
        )
        assert read(tmp_path / "a.pptx", "--parts", "2-9").startswith("## Slide 2")


class TestPdf:
    """Reading .pdf."""

    def test_pages_are_read_and_chosen(self, tmp_path: Path) -> None:
        path = pdf(tmp_path / "a.pdf", "Hello page one", "Grüße, page two", "")
        assert read(path) == (
            "## Page 1\n\nHello page one\n\n## Page 2\n\nGrüße, page two\n\n"
            "## Page 3\n\n(no text on this page; it may be a scan)\n"
        )
        assert read(path, "--parts", "2") == "## Page 2\n\nGrüße, page two\n"

    def test_a_long_document_is_cut_and_read_on(self, tmp_path: Path) -> None:
        path = pdf(tmp_path / "a.pdf", *(f"This is page number {number}." for number in range(1, 60)))
        first = read(path, "--limit", 300)
        assert first.endswith("[cut here; go on with --offset 300]\n")
        second = read(path, "--limit", 300, "--offset", 300)
        text = first.partition("\n\n[cut")[0][:300] + second[:300]
        assert text.count("This is page number") == 2 * 300 // len(
            "## Page 10\n\nThis is page number 10.\n\n"
        )

    def test_a_password_is_asked_for_and_used(self, tmp_path: Path) -> None:
        document = FPDF()
        document.set_font("Helvetica")
        document.add_page()
        document.cell(text="top secret")
        document.set_encryption(
            owner_password="owner", user_password="tea", permissions=AccessPermission.all(),
            encryption_method=EncryptionMethod.RC4,
        )  # fmt: skip
        document.output(str(tmp_path / "a.pdf"))
        assert "--password" in refused(tmp_path / "a.pdf")
        assert "--password" in refused(tmp_path / "a.pdf", "--password", "coffee")
        assert "top secret" in read(tmp_path / "a.pdf", "--password", "tea")

    @pytest.mark.parametrize("keep", [0.3, 0.7, 0.95])
    def test_half_a_file_is_read_as_far_as_it_goes_or_refused(self, tmp_path: Path, keep: float) -> None:
        data = pdf(tmp_path / "a.pdf", "Hello", "World").read_bytes()
        (tmp_path / "a.pdf").write_bytes(data[: int(len(data) * keep)])
        done = run("documents/read_document.py", tmp_path / "a.pdf", home=tmp_path)
        assert done.code in {0, 2}
        assert "Traceback" not in done.err


def test_json_has_the_parts(tmp_path: Path) -> None:
    found = json.loads(read(pdf(tmp_path / "a.pdf", "one", "two"), "--json"))
    assert found == {
        "kind": "pdf",
        "total_parts": 2,
        "parts": [{"title": "Page 1", "text": "one"}, {"title": "Page 2", "text": "two"}],
        "next_offset": None,
    }


def test_the_kind_is_in_the_file_not_in_its_name(tmp_path: Path) -> None:
    pdf(tmp_path / "letter.docx", "Hello")
    assert "Hello" in read(tmp_path / "letter.docx")


def package(parts: Mapping[str, str]) -> Callable[[Path], object]:
    """Return a function that writes a zip of these."""

    def make(path: Path) -> None:
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, text in parts.items():
                archive.writestr(name, text)

    return make


RELATIONS = "http://schemas.openxmlformats.org/package/2006/relationships"
LAUGHS = "".join(f'<!ENTITY l{n} "{f"&l{n - 1};" * 10}">' for n in range(1, 10))
BAD: Mapping[str, tuple[Callable[[Path], object], str]] = {
    "nothing": (lambda _: None, "give the full path"),
    "a folder": (Path.mkdir, "can't be read"),
    "plain text": (
        lambda path: path.write_text("hello", encoding="utf-8"),
        "no PDF, Word, Excel or PowerPoint file",
    ),
    "an empty file": (Path.touch, "no PDF, Word, Excel or PowerPoint file"),
    "old Word": (lambda path: path.write_bytes(b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"), "before 2007"),
    "a binary workbook": (package({"xl/workbook.bin": "x"}), "(.xlsb)"),
    "half a zip": (lambda path: path.write_bytes(b"PK\x03\x04xxxx"), "is damaged"),
    "another zip": (package({"readme.txt": "x"}), "no PDF, Word, Excel or PowerPoint file"),
    "broken XML": (package({"word/document.xml": "<a><b></a>"}), "word/document.xml is damaged"),
    "a billion laughs": (
        package({"word/document.xml": f'<!DOCTYPE x [<!ENTITY l0 "ha">{LAUGHS}]><x>&l9;</x>'}),
        "declares a DTD",
    ),
    "an entity from outside": (
        package({"word/document.xml": '<!DOCTYPE x [<!ENTITY e SYSTEM "file:///etc/passwd">]><x>&e;</x>'}),
        "declares a DTD",
    ),
    "a DTD in the strings of a workbook": (
        package(
            {
                "xl/workbook.xml": "<x/>",
                "xl/strings.xml": "<!DOCTYPE x><x/>",
                "xl/_rels/workbook.xml.rels": f"<r xmlns='{RELATIONS}'><Relationship Id='r' Type='{RELATIONS}/sharedStrings'"
                " Target='strings.xml'/></r>",
            }
        ),
        "declares a DTD",
    ),
    "a zip bomb": (
        package({"word/document.xml": f"<d>{' ' * 300_000_000}</d>"}),
        "become larger than 200 MB",
    ),
    "the start of a PDF": (lambda path: path.write_bytes(b"%PDF-1.7\n1 0 obj"), "is damaged"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_can_not_be_read_is_refused_in_one_line(tmp_path: Path, name: str) -> None:
    make, problem = BAD[name]
    make(tmp_path / "bad.docx")
    assert problem in refused(tmp_path / "bad.docx")


@pytest.mark.parametrize("library", ["pypdf", "fpdf", "markdown_it"])
def test_without_the_extra_it_is_named_and_the_rest_works(tmp_path: Path, library: str) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / f"{library}.py").write_text(
        f"raise ImportError('no', name='{library}')", encoding="utf-8"
    )
    env = {"PYTHONPATH": str(tmp_path / "lib")}
    (tmp_path / "a.pdf").write_bytes(b"%PDF-1.7")
    if library == "pypdf":
        done = run("documents/read_document.py", tmp_path / "a.pdf", home=tmp_path, env=env)
    else:
        done = run("documents/write_document.py", tmp_path / "b.pdf", home=tmp_path, env=env, stdin=b"x")
        assert not (tmp_path / "b.pdf").exists()
    assert done.code == 2
    assert library in done.err
    assert "pip install 'crayfish-gateway[docs]'" in done.err
    assert (
        run("documents/write_document.py", tmp_path / "c.xlsx", home=tmp_path, env=env, stdin=b"a,b\n").code
        == 0
    )


class TestWriting:
    """write_document.py."""

    def test_a_word_file_is_what_the_markdown_says(self, tmp_path: Path) -> None:
        document = docx.Document(str(write(tmp_path / "a.docx", MARKDOWN)))
        assert [(one.style.name, one.text) for one in document.paragraphs if one.text and one.style] == [
            ("Heading 1", "Offer 2026 & more"),
            ("Normal", "Some fine text with code, ~ and a link. Its second line."),
            ("List Paragraph", "one"),
            ("List Paragraph", "two"),
            ("List Paragraph", "first"),
            ("List Paragraph", "second"),
            ("List Paragraph", "third"),
            ("List Paragraph", "fourth"),
            ("Quote", "quoted <words>"),
            ("Code", 'if x:\n    print("y")'),
            ("Normal", "The end."),
        ]
        (table,) = document.tables
        assert [[cell.text for cell in row.cells] for row in table.rows] == [
            ["Item", "Price"],
            ["Tea", "1 < 2"],
            ["Café", "3"],
        ]
        runs = {one.text: one for paragraph in document.paragraphs for one in paragraph.runs}
        assert runs["2026"].bold
        assert runs["fine"].italic
        (link,) = document.paragraphs[1].hyperlinks
        assert (link.text, link.address) == ("link", "https://example.com/a?b=1&c=2")

    def test_an_ordered_list_begins_at_its_own_number(self, tmp_path: Path) -> None:
        document = docx.Document(str(write(tmp_path / "a.docx", "3. c\n4. d\n\ntext\n\n1. a\n")))
        lists = document.part.numbering_part.element.iter(qn("w:num"))
        starts = [one.find(f".//{qn('w:startOverride')}").get(qn("w:val")) for one in lists]
        assert starts == ["3", "1"]

    def test_what_was_written_is_read_back(self, tmp_path: Path) -> None:
        text = read(write(tmp_path / "a.docx", MARKDOWN))
        for part in (
            "# Offer 2026 & more",
            "[link](https://example.com/a?b=1&c=2)",
            "| Café | 3 |",
            "  1. first",
        ):
            assert part in text

    def test_characters_that_xml_can_not_hold_are_left_out(self, tmp_path: Path) -> None:
        assert docx.Document(str(write(tmp_path / "a.docx", "a\x0bb\x1bc"))).paragraphs[0].text == "abc"
        assert "abc" in read(write(tmp_path / "a.xlsx", "x\na\x0bb\x1bc\n"))

    def test_a_pdf_holds_the_text_its_links_and_page_numbers(self, tmp_path: Path) -> None:
        reader = PdfReader(write(tmp_path / "a.pdf", MARKDOWN + "\n\nmore words\n" * 60))
        text = reader.pages[0].extract_text()
        for part in (
            "Offer 2026 & more",
            "Some fine text",
            "4. fourth",
            "quoted <words>",
            "Café",
            'print("y")',
        ):
            assert part in text
        assert len(reader.pages) > 1
        assert reader.pages[1].extract_text().rstrip().endswith("2")
        annotations = reader.pages[0].annotations
        assert annotations
        (link,) = [one.get_object() for one in annotations]
        assert isinstance(link, DictionaryObject)
        assert link.raw_get("/A")["/URI"] == "https://example.com/a?b=1&c=2"

    def test_a_pdf_takes_a_font_for_other_scripts(self, tmp_path: Path) -> None:
        font(tmp_path / "han.ttf", "你好 •□1Hi")
        path = write(tmp_path / "a.pdf", "# Hi\n\n你好 **你**\n", "--font", tmp_path / "han.ttf")
        assert "你好" in PdfReader(path).pages[0].extract_text()

    def test_letters_that_no_font_has_are_an_error_and_signs_are_not(self, tmp_path: Path) -> None:
        font(tmp_path / "han.ttf", "你 •□1")
        done = run(
            "documents/write_document.py", tmp_path / "a.pdf", "--font", tmp_path / "han.ttf",
            home=tmp_path, stdin="你好".encode(),
        )  # fmt: skip
        assert done.code == 2
        assert "1 of the letters (好)" in done.err
        assert sorted(path.name for path in tmp_path.iterdir()) == ["han.ttf"]
        done = run(
            "documents/write_document.py", tmp_path / "a.pdf", "--font", tmp_path / "han.ttf",
            home=tmp_path, stdin="你 🎉".encode(),
        )  # fmt: skip
        assert done.code == 0
        assert "🎉: they became □" in done.err

    def test_markdown_012_csv_becomes_numbers_dates_and_texts(self, tmp_path: Path) -> None:
        content = "Item;Price;Since;Id\nTea;1.5;2026-03-01;007\nCafé;3;2026-03-01 10:20;12345678901234567890\n=1+1;;;\n"
        sheet = openpyxl.load_workbook(write(tmp_path / "a.xlsx", content)).active
        assert sheet is not None
        assert [[cell.value for cell in row] for row in sheet.iter_rows()] == [
            ["Item", "Price", "Since", "Id"],
            ["Tea", 1.5, datetime(2026, 3, 1), "007"],
            ["Café", 3, datetime(2026, 3, 1, 10, 20), "12345678901234567890"],
            ["=1+1", None, None, None],
        ]
        assert sheet["A4"].data_type == "s", "a text, not a formula"
        assert sheet["A1"].font.bold
        assert sheet.freeze_panes == "A2"

    def test_json_becomes_sheets_and_formulas_where_asked(self, tmp_path: Path) -> None:
        content = {"A/B": [{"x": 1, "y": True}, {"y": "=A2*2", "z": [1]}], "a b": [["only"], [None, 2]]}
        book = openpyxl.load_workbook(write(tmp_path / "a.xlsx", json.dumps(content), "--formulas"))
        assert book.sheetnames == ["A B", "a b (2)"]
        first, second = book.worksheets
        assert [[cell.value for cell in row] for row in first.iter_rows()] == [
            ["x", "y", "z"],
            [1, True, None],
            [None, "=A2*2", "[1]"],
        ]
        assert first["B3"].data_type == "f"
        assert second["B2"].value == 2

    @pytest.mark.parametrize(
        ("name", "content", "problem"),
        [
            ("a.txt", "x", "must end in .docx, .pdf or .xlsx"),
            ("a.xlsx", "[1, 2]", "each row of a sheet"),
            ("a.xlsx", '{"a": 1}', "list of rows"),
            ("a.xlsx", "[[1,", "JSON is broken"),
            ("nowhere/a.docx", "x", "can't be written"),
        ],
    )  # fmt: skip
    def test_what_can_not_be_written_leaves_nothing(
        self, tmp_path: Path, name: str, content: str, problem: str
    ) -> None:
        done = run("documents/write_document.py", tmp_path / name, home=tmp_path, stdin=content.encode())
        assert (done.code, done.out) == (2, "")
        assert problem in done.err
        assert list(tmp_path.iterdir()) == []

    def test_a_file_that_is_there_stays_unless_it_is_to_be_replaced(self, tmp_path: Path) -> None:
        (tmp_path / "a.docx").write_text("precious", encoding="utf-8")
        done = run("documents/write_document.py", tmp_path / "a.docx", home=tmp_path, stdin=b"x")
        assert done.code == 2
        assert "--force" in done.err
        assert (tmp_path / "a.docx").read_text(encoding="utf-8") == "precious"
        write(tmp_path / "a.docx", "x", "--force")
        assert [path.name for path in tmp_path.iterdir()] == ["a.docx"]


def font(path: Path, characters: str) -> None:
    """Write a font that draws a box for each of the characters."""
    pen = TTGlyphPen(None)
    for step, point in enumerate([(50, 0), (50, 700), (450, 700), (450, 0)]):
        (pen.lineTo if step else pen.moveTo)(point)
    pen.closePath()
    names = {ord(one): f"g{number}" for number, one in enumerate(dict.fromkeys(characters))}
    glyphs = [".notdef", *names.values()]
    builder = FontBuilder(1000, isTTF=True)
    builder.setupGlyphOrder(glyphs)
    builder.setupCharacterMap(names)
    builder.setupGlyf(dict.fromkeys(glyphs, pen.glyph()))
    builder.setupHorizontalMetrics(dict.fromkeys(glyphs, (500, 50)))
    builder.setupHorizontalHeader(ascent=800, descent=-200)
    builder.setupNameTable({"familyName": "Boxes", "styleName": "Regular"})
    builder.setupOS2(sTypoAscender=800, sTypoDescender=-200)
    builder.setupPost()
    builder.save(str(path))
