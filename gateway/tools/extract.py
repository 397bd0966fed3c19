"""The readable text of an HTML page; also a program, so that a hostile page can hurt nothing but a child.

Its argument is how many seconds it may work. It reads `{"url": …, "mode": …}` in one line, then the page,
from stdin, and writes `[title, text, whether the text was cut]`. Nothing of ours is imported, and little
else: it is started for each page.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from html.parser import HTMLParser
from urllib.parse import urljoin

LONGEST = 200_000
"""Characters of a text; what is longer is cut."""

SECONDS = 5
"""How long a page may take: seconds of work, not of waiting."""

_MEMORY = 1 << 30
_DEEPEST = 150
_LONGEST_LINK = 500


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_VOID = _words("area base br col embed hr img input link meta param source track wbr")
_SKIPPED = _words(
    "aside button canvas dialog embed footer head iframe input map math nav noscript object script select "
    "style svg template textarea"
)
_INLINE = _words(
    "a abbr acronym b bdi bdo big br cite code data del dfn em font i img ins kbd label mark q s samp small "
    "span strike strong sub sup time tt u var wbr"
)
_CELLS = ("td", "th")
_ROWS = ("tr", "thead", "tbody", "tfoot")
_IMPLIED: Mapping[str, Sequence[str]] = {
    "li": ("li",),
    "dt": ("dt", "dd"),
    "dd": ("dt", "dd"),
    "option": ("option",),
    "td": _CELLS,
    "th": _CELLS,
    "tr": (*_CELLS, "tr"),
    "tbody": (*_CELLS, "tr", "thead", "tbody"),
    "tfoot": (*_CELLS, "tr", "thead", "tbody"),
}
"""Elements that one of another name ends, if they are open in the same list or table."""

_BORDERS = frozenset({"ul", "ol", "dl", "table", "select"})
_MARKS = {"strong": "**", "b": "**", "em": "*", "i": "*", "code": "`", "kbd": "`", "samp": "`", "tt": "`"}
_KEPT = ("href", "alt", "role", "start")
_BLANKS = re.compile(r"[ \t\r\n\f]+")
_UNSEEN = re.compile(
    r"display\s*:\s*none|visibility\s*:\s*hidden|(?:opacity|font-size)\s*:\s*0(?:\.0+)?(?:px|em|rem|%|pt)?\s*(?:;|!|$)",
    re.IGNORECASE,
)
_FOR_EARS = re.compile(r"(?:^|\s)(?:sr-only|visually-hidden|screen-reader-text)(?:\s|$)")


class Node:
    """An element.

    `unseen`: nobody who looks at the page sees it. `broad`: it or something inside is no part of a line.
    """

    __slots__ = ("_size", "attributes", "broad", "children", "tag", "unseen")

    def __init__(self, tag: str, attributes: Mapping[str, str], *, unseen: bool = False) -> None:
        self.tag = tag
        self.attributes = attributes
        self.unseen = unseen
        self.broad = tag not in _INLINE
        self.children: list[Node | str] = []
        self._size = -1

    def nodes(self) -> Iterator[Node]:
        """Yield this element and every one inside."""
        waiting = [self]
        while waiting:
            node = waiting.pop()
            yield node
            waiting += [child for child in node.children if isinstance(child, Node)]

    def size(self) -> int:
        """Return how many characters of text there are; to ask only when the tree is complete."""
        if self._size < 0:
            self._size = sum(
                child.size() if isinstance(child, Node) else len(child.strip()) for child in self.children
            )
        return self._size


class _Builder(HTMLParser):
    """Makes a tree of a page, however broken; what is never seen is left out."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.root = Node("body", {})
        self.title: list[str] = []
        self.named = ""
        self.base = ""
        self._open = [self.root]
        self._in_title = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in reversed(attrs)}
        self._in_title = tag == "title" and not self.title
        if tag == "base":
            self.base = self.base or given.get("href", "")
        if tag == "meta" and given.get("property") == "og:title":
            self.named = self.named or given.get("content", "")
        if tag in ("html", "body"):
            return
        self._end_implied(tag)
        above = self._open[-1]
        unseen = above.unseen or tag in _SKIPPED or _is_unseen(given)
        node = Node(tag, {name: given[name] for name in _KEPT if name in given}, unseen=unseen)
        if not unseen:
            above.children.append(node)
            self._broaden(node)
        if tag not in _VOID and len(self._open) < _DEEPEST:
            self._open.append(node)

    def handle_endtag(self, tag: str) -> None:
        self._in_title = False
        for at in range(len(self._open) - 1, 0, -1):
            if self._open[at].tag == tag:
                del self._open[at:]
                return

    def handle_data(self, data: str) -> None:
        if self._in_title:
            self.title.append(data)
        elif not self._open[-1].unseen:
            self._open[-1].children.append(data)

    def _broaden(self, node: Node) -> None:
        for above in reversed(self._open if node.broad else ()):
            if above.broad:
                return
            above.broad = True

    def _end_implied(self, tag: str) -> None:
        """End what a new element ends by itself: a cell ends the one before, a block ends a paragraph."""
        ended = _IMPLIED.get(tag, ())
        for at in range(len(self._open) - 1, 0, -1):
            name = self._open[at].tag
            if name in ended or (name == "p" and tag not in _INLINE):
                del self._open[at:]
            elif name in _BORDERS or (not ended and name not in _INLINE):
                return


def _is_unseen(given: Mapping[str, str]) -> bool:
    return (
        "hidden" in given
        or given.get("aria-hidden") == "true"
        or bool(_UNSEEN.search(given.get("style", "")))
        or bool(_FOR_EARS.search(given.get("class", "")))
    )


def _main(root: Node) -> Node:
    """Return the part that the page calls its main one, if it has most of the text."""
    named = [
        node
        for node in root.nodes()
        if node.tag in ("main", "article") or node.attributes.get("role") in ("main", "article")
    ]
    largest = max(named, key=Node.size, default=root)
    return largest if largest.size() * 3 >= root.size() else root


class _Writer:
    """Writes elements as Markdown, or without marks."""

    def __init__(self, base: str, *, marks: bool) -> None:
        self._base = base
        self._marks = marks

    def blocks(self, node: Node) -> list[str]:
        """Return the paragraphs, lists, tables … of an element."""
        found: list[str] = []
        line: list[str] = []
        for child in node.children:
            if isinstance(child, str) or not child.broad:
                line.append(self._inline(child))
                continue
            found += filter(None, [_tidy("".join(line))])
            line = []
            found += self._block(child)
        return [*found, *filter(None, [_tidy("".join(line))])]

    def _block(self, node: Node) -> list[str]:
        tag = node.tag
        if re.fullmatch("h[1-6]", tag):
            text = " ".join(self._line(node).split())
            return [f"{'#' * int(tag[1])} {text}" if self._marks else text] if text else []
        if tag == "pre":
            return self._code(node)
        if tag in ("ul", "ol"):
            return self._list(node)
        if tag == "table":
            return self._table(node)
        inside = self.blocks(node)
        if tag == "blockquote" and inside and self._marks:
            return ["\n".join(f"> {line}".rstrip() for line in "\n\n".join(inside).split("\n"))]
        return inside

    def _code(self, node: Node) -> list[str]:
        text = _raw(node).strip("\n").rstrip()
        if not text.strip() or not self._marks:
            return [text] if text.strip() else []
        fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
        return [f"{fence}\n{text}\n{fence}"]

    def _list(self, node: Node) -> list[str]:
        start = node.attributes.get("start", "")
        number = int(start) if re.fullmatch("[0-9]{1,6}", start) else 1
        items: list[str] = []
        for child in node.children:
            inside = self.blocks(child) if isinstance(child, Node) else [*filter(None, [_tidy(child)])]
            if not inside:
                continue
            mark = f"{number}. " if node.tag == "ol" else "- "
            number += 1
            items.append(mark + "\n".join(inside).replace("\n", "\n" + " " * len(mark)))
        return ["\n".join(items)] if items else []

    def _table(self, node: Node) -> list[str]:
        rows = [[self.blocks(cell) for cell in row] for row in _rows(node)]
        wide = max(map(len, rows), default=0)
        if wide < 2 or any(sum(map(len, cell)) > 1000 for row in rows for cell in row):
            return [*self._strays(node), *(text for row in rows for cell in row for text in cell)]
        lines = [_row([_cell(cell) for cell in row], wide) for row in rows]
        if self._marks:
            lines.insert(1, _row(["---"] * wide, wide))
        return [*self._strays(node), "\n".join(lines)]

    def _strays(self, table: Node) -> Iterator[str]:
        """Yield what is in a table and in none of its cells: the caption, and words in wrong places."""
        for child in table.children:
            if isinstance(child, str):
                yield from filter(None, [_tidy(child)])
            elif child.tag in _ROWS:
                yield from self._strays(child)
            elif child.tag not in _CELLS:
                yield from self.blocks(child)

    def _line(self, node: Node) -> str:
        return "".join(map(self._inline, node.children))

    def _inline(self, node: Node | str) -> str:
        if isinstance(node, str):
            return _BLANKS.sub(" ", node)
        if node.tag == "br":
            return "\n"
        if node.tag == "img":
            alt = _tidy(node.attributes.get("alt", ""))
            return f"[image: {alt}]" if alt else ""
        text = self._line(node)
        bare = text.strip()
        if not bare or not self._marks:
            return text if node.tag in _INLINE else f" {text} "
        if node.tag == "a" and (address := self._address(node.attributes.get("href", ""))):
            marked = f"[{' '.join(bare.split())}]({address})"
        elif mark := _MARKS.get(node.tag):
            marked = f"{mark}{bare}{mark}"
        else:
            return text if node.tag in _INLINE else f" {text} "
        before, after = text[: len(text) - len(text.lstrip())], text[len(text.rstrip()) :]
        return f"{before}{marked}{after}"

    def _address(self, href: str) -> str:
        """Return where a link leads, "" if that is no other page."""
        if not href.strip() or href.lstrip().startswith("#"):
            return ""
        try:
            address = urljoin(self._base, href.strip())
        except ValueError:
            return ""
        fits = address.startswith(("http://", "https://")) and len(address) <= _LONGEST_LINK
        return re.sub(r"[\s()<>]", lambda match: f"%{ord(match[0]):02X}", address) if fits else ""


def _tidy(text: str) -> str:
    """Return text without blanks that nobody sees."""
    return re.sub(r" *\n *", "\n", re.sub(r"[ \t\r\f]+", " ", text)).strip()


def _raw(node: Node) -> str:
    """Return text with every blank."""
    return "".join(
        child if isinstance(child, str) else "\n" if child.tag == "br" else _raw(child)
        for child in node.children
    )


def _rows(part: Node) -> Iterator[Sequence[Node]]:
    """Yield the cells of each row of a table, not those of tables inside."""
    inside = [child for child in part.children if isinstance(child, Node)]
    if cells := [child for child in inside if child.tag in _CELLS]:
        yield cells
    for child in inside:
        if child.tag in _ROWS:
            yield from _rows(child)


def _cell(blocks: Sequence[str]) -> str:
    return " ".join(blocks).replace("\n", " ").replace("|", "\\|")


def _row(cells: Sequence[str], wide: int) -> str:
    return f"| {' | '.join([*cells, *[''] * (wide - len(cells))])} |"


def _without_comments(html: str) -> str:
    """Return a page without comments; the parser would take hours for many that don't end."""
    kept, at = [], 0
    while (begin := html.find("<!--", at)) >= 0:
        kept.append(html[at:begin])
        end = html.find("-->", begin + 2)
        if end < 0:
            return "".join(kept)
        at = end + 3
    return "".join([*kept, html[at:]])


def _tree(html: str) -> _Builder:
    builder = _Builder()
    with contextlib.suppress(AssertionError):  # the parser's own, at some broken declarations
        builder.feed(_without_comments(html))
        builder.close()
    return builder


def extract(html: str, url: str, mode: str, *, guess: bool = True) -> tuple[str, str]:
    """Return title and text of a page; `mode` is `markdown` or `text`.

    With `guess`, trafilatura looks for the main part where it is installed and the page itself names none.
    """
    page = _tree(html)
    base = url
    with contextlib.suppress(ValueError):
        base = urljoin(url, page.base)
    main = _main(page.root)
    title = " ".join("".join(page.title).split()) or " ".join(page.named.split())
    text = "\n\n".join(_Writer(base, marks=mode == "markdown").blocks(main))
    if guess and main is page.root:
        guessed = _guessed(_html(page.root), base, mode)
        text = guessed if len(guessed) * 3 >= len(text) else text
    return title[:300], text


def _html(node: Node) -> str:
    """Return an element as HTML again: without what nobody sees, which a guess would take for text."""
    inside = "".join(escape(child) if isinstance(child, str) else _html(child) for child in node.children)
    given = "".join(f' {name}="{escape(value)}"' for name, value in node.attributes.items())
    return f"<{node.tag}{given}>" + (inside if node.tag in _VOID else f"{inside}</{node.tag}>")


def _guessed(html: str, url: str, mode: str) -> str:
    try:
        import trafilatura  # noqa: PLC0415 - the extra "web"
    except ImportError:
        return ""
    try:
        found = trafilatura.extract(
            f"<html>{html}</html>",
            url=url,
            output_format="markdown" if mode == "markdown" else "txt",
            include_comments=False,
            include_links=mode == "markdown",
            include_tables=True,
            favor_recall=True,
        )
    except Exception:  # noqa: BLE001 - what it can't read, we have read
        return ""
    return found or ""


def _bind(seconds: int) -> None:
    """Limit what this process may use, where the system can, and let everything else go first."""
    try:
        import resource  # noqa: PLC0415 - not on every system
    except ImportError:
        return
    os.nice(10)
    for kind, most in (
        (resource.RLIMIT_CPU, seconds),
        (resource.RLIMIT_AS, _MEMORY),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CORE, 0),
    ):
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(kind, (most, most))


def main() -> None:
    """Read a page from stdin, write its title and text to stdout."""
    _bind(int(sys.argv[1]))
    head, _, page = sys.stdin.buffer.read().partition(b"\n")
    asked = json.loads(head)
    title, text = extract(page.decode(), asked["url"], asked["mode"])
    sys.stdout.write(json.dumps([title, text[:LONGEST], len(text) > LONGEST]))


if __name__ == "__main__":
    main()
