"""Finds what a person would read in a page, as Markdown-like text."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from html.parser import HTMLParser
from urllib.parse import urljoin

MAX_DEPTH = 150
ENOUGH = 250
"""Characters that make an <article> or <main> the page's content."""

_VOID = frozenset("area base br col embed hr img input link meta source track wbr".split())
_BLOCKS = frozenset(
    "address article aside blockquote body dd details div dl dt fieldset figcaption figure footer form "
    "h1 h2 h3 h4 h5 h6 header hr html li main nav ol p pre section summary table tbody tfoot thead tr ul".split()
)
_UNSEEN = frozenset(
    "script style noscript template svg iframe object canvas head title select button datalist".split()
)
_FURNITURE = frozenset("nav header footer aside form dialog".split())
_HIDDEN = re.compile(r"display\s*:\s*none|visibility\s*:\s*hidden|font-size\s*:\s*0|opacity\s*:\s*0(?![.\d])")
_CLOSED_BY = {
    "li": frozenset({"li"}),
    "dt": frozenset({"dt", "dd"}),
    "dd": frozenset({"dt", "dd"}),
    "tr": frozenset({"tr", "td", "th"}),
    "td": frozenset({"td", "th"}),
    "th": frozenset({"td", "th"}),
    "option": frozenset({"option"}),
}
"""Which open elements the start of another one ends."""


@dataclass(slots=True)
class Node:
    """An element of the page."""

    tag: str
    attributes: Mapping[str, str] = field(default_factory=dict)
    children: list[Node | str] = field(default_factory=list)

    def all(self, tag: str) -> Iterator[Node]:
        """Yield the elements below this one that are called `tag`."""
        for child in self.children:
            if isinstance(child, Node):
                if child.tag == tag:
                    yield child
                yield from child.all(tag)

    def text(self) -> str:
        """Return all characters below this element."""
        return "".join(child if isinstance(child, str) else child.text() for child in self.children)


class _Builder(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.root = Node("root")
        self._open = [self.root]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        closed = _CLOSED_BY.get(tag, frozenset())
        while self._open[-1].tag in closed or (self._open[-1].tag == "p" and tag in _BLOCKS):
            self._open.pop()
        node = Node(tag, {name: value or "" for name, value in attrs})
        self._open[-1].children.append(node)
        if tag not in _VOID and len(self._open) < MAX_DEPTH:
            self._open.append(node)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._open[-1].children.append(Node(tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        for at in range(len(self._open) - 1, 0, -1):
            if self._open[at].tag == tag:
                del self._open[at:]
                return

    def handle_data(self, data: str) -> None:
        self._open[-1].children.append(data)


@dataclass(frozen=True, slots=True)
class Readable:
    """What is in a page: `links` are (text, address)."""

    title: str
    description: str
    text: str
    links: list[tuple[str, str]]


def read(html: str, url: str) -> Readable:
    """Return what a person would read at an address."""
    builder = _Builder()
    builder.feed(html)
    builder.close()
    root = builder.root
    content, whole = _content(root)
    base = next((node.attributes.get("href", "") for node in root.all("base")), "")
    return Readable(
        title=_title(root),
        description=_meta(root, "description") or _meta(root, "og:description"),
        text=_tidy(_render(content, whole=whole)).replace("\xa0", " ").replace("\x00", "\n"),
        links=list(_links(content, urljoin(url, base), whole=whole)),
    )


def _content(root: Node) -> tuple[Node, bool]:
    """Return the element with the content, and whether it was marked as such: then all in it counts."""
    for tag in ("article", "main"):
        found = [node for node in root.all(tag) if not _hidden(node)]
        sizes = [len(_tidy(_render(node, whole=True))) for node in found]
        # Several long articles are an overview, which is read as a whole.
        if len([size for size in sizes if size >= ENOUGH]) == 1:
            return found[sizes.index(max(sizes))], True
    return next(root.all("body"), root), False


def _title(root: Node) -> str:
    for tag in ("title", "h1"):
        for node in root.all(tag):
            if text := " ".join(node.text().split()):
                return text
    return _meta(root, "og:title")


def _meta(root: Node, name: str) -> str:
    for node in root.all("meta"):
        if name in {node.attributes.get("name"), node.attributes.get("property")}:
            return " ".join(node.attributes.get("content", "").split())
    return ""


def _hidden(node: Node) -> bool:
    """Return whether nobody sees an element: that is where orders to machines are put."""
    attributes = node.attributes
    return (
        "hidden" in attributes
        or attributes.get("aria-hidden") == "true"
        or bool(_HIDDEN.search(attributes.get("style", "").lower()))
    )


def _skipped(node: Node, *, whole: bool) -> bool:
    return node.tag in _UNSEEN or (not whole and node.tag in _FURNITURE) or _hidden(node)


def _links(node: Node, base: str, *, whole: bool) -> Iterator[tuple[str, str]]:
    for child in node.children:
        if isinstance(child, Node) and not _skipped(child, whole=whole):
            if child.tag == "a" and (text := " ".join(child.text().split())):
                address = urljoin(base, child.attributes.get("href", ""))
                if address.startswith(("http://", "https://")) and address.partition("#")[0] != base:
                    yield text, address
            yield from _links(child, base, whole=whole)


def _render(node: Node, *, whole: bool) -> str:
    return "".join(
        re.sub(r"\s+", " ", child) if isinstance(child, str) else _shown(child, whole=whole)
        for child in node.children
    )


def _shown(node: Node, *, whole: bool) -> str:
    if _skipped(node, whole=whole):
        return ""
    match node.tag:
        case "br":
            return "\n"
        case "pre":
            return f"\n\n```\n{_kept(node.text().strip(chr(10)))}\n```\n\n"
        case "img":
            about = " ".join(node.attributes.get("alt", "").split())
            return f"[picture: {about}]" if about else ""
    return _framed(node.tag, _render(node, whole=whole))


def _framed(tag: str, inner: str) -> str:
    """Return what is in an element with the marks of its kind around it."""
    text = _tidy(inner)
    line = " ".join(text.split())
    if tag in {"td", "th"}:
        return f" {line} |"
    if not text:
        return "\n\n" if tag in _BLOCKS else inner
    match tag:
        case "h1" | "h2" | "h3" | "h4" | "h5" | "h6":
            return f"\n\n{'#' * int(tag[1])} {line}\n\n"
        case "tr":
            return f"\n| {text}"
        case "li":
            return f"\n- {_indented(text)}"
        case "blockquote":
            return "\n\n> " + "\n> ".join(text.split("\n")) + "\n\n"
    return f"\n\n{inner}\n\n" if tag in _BLOCKS else inner


def _indented(text: str) -> str:
    return re.sub(r"\n+", f"\n{_kept('  ')}", text)


def _kept(text: str) -> str:
    """Return a text whose blanks survive the tidying below."""
    return text.expandtabs(4).replace(" ", "\xa0").replace("\n", "\x00")


def _tidy(text: str) -> str:
    text = re.sub(r"[ \t]*\n[ \t]*", "\n", re.sub(r"[ \t]+", " ", text))
    return re.sub(r"\n{3,}", "\n\n", text).strip()
