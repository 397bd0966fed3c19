"""Opens the zip of an office document with limits, and reads its XML without DTDs."""

from __future__ import annotations

import posixpath
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self
from xml.etree.ElementTree import Element, ParseError, TreeBuilder, XMLParser

MAX_FILE = 50_000_000
MAX_ENTRIES = 10_000
MAX_INFLATED = 200_000_000
"""Bytes that all parts together may become: what is inflated is counted, not what the zip says."""

_CHUNK = 65_536
_RELATIONS = "{http://schemas.openxmlformats.org/package/2006/relationships}Relationship"


class Trouble(Exception):
    """What keeps a document from being read or written; the text is for the person."""


class Package:
    """An open office document; use it as a context manager. Raises: Trouble, from everything."""

    def __init__(self, path: Path) -> None:
        if path.stat().st_size > MAX_FILE:
            raise Trouble(f"{path.name} is larger than {MAX_FILE // 1_000_000} MB")
        try:
            self._zip = zipfile.ZipFile(path)
        except (zipfile.BadZipFile, ValueError, NotImplementedError) as error:
            raise Trouble(f"{path.name} is damaged: {error}") from error
        self.names = frozenset(self._zip.namelist())
        self._left = MAX_INFLATED
        if len(self.names) > MAX_ENTRIES:
            raise Trouble(f"{path.name} holds more than {MAX_ENTRIES:,} parts")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._zip.close()

    def xml(self, name: str) -> Element:
        """Return the root of a part; an empty element if there is none of that name."""
        if name not in self.names:
            return Element("none")
        target = _Whole()
        for _ in self._feed(name, XMLParser(target=target)):
            pass
        return target.close()

    def stream(self, name: str, tag: str) -> Iterator[Element]:
        """Yield the elements called `tag` one after the other, however large the part is."""
        if name in self.names:
            target = _Pieces(tag)
            for _ in self._feed(name, XMLParser(target=target)):
                yield from target.done
                target.done.clear()
            yield from target.done

    def relations(self, name: str) -> Mapping[str, str]:
        """Return what the ids in a part refer to: the names of other parts, or addresses."""
        folder, file = posixpath.split(name)
        found = {}
        for one in self.xml(posixpath.join(folder, "_rels", f"{file}.rels")).iter(_RELATIONS):
            target = one.get("Target", "")
            if one.get("TargetMode") != "External":
                target = posixpath.normpath(posixpath.join("/", folder, target)).lstrip("/")
            found[one.get("Id", "")] = target
        return found

    def related(self, name: str, kind: str) -> str:
        """Return the name of the first part of a kind ("notesSlide") that a part refers to, or ""."""
        folder, file = posixpath.split(name)
        for one in self.xml(posixpath.join(folder, "_rels", f"{file}.rels")).iter(_RELATIONS):
            if one.get("Type", "").endswith(f"/{kind}"):
                return self.relations(name)[one.get("Id", "")]
        return ""

    def _feed(self, name: str, parser: XMLParser) -> Iterator[None]:
        try:
            with self._zip.open(name) as part:
                while data := part.read(_CHUNK):
                    self._left -= len(data)
                    if self._left < 0:
                        raise Trouble(f"its parts become larger than {MAX_INFLATED // 1_000_000} MB")
                    parser.feed(data)
                    yield
        except (ParseError, zipfile.BadZipFile, OSError, EOFError, ValueError) as error:
            raise Trouble(f"its part {name} is damaged: {error}") from error
        except (RuntimeError, NotImplementedError) as error:  # encrypted, or packed in a way nobody uses
            raise Trouble(f"its part {name} can't be unpacked: {error}") from error


class _Whole(TreeBuilder):
    def doctype(self, *_: object) -> None:
        raise Trouble("it declares a DTD, which no office program does")


class _Pieces:
    """Builds elements; what is called `tag` is put into `done` and taken out of the tree."""

    def __init__(self, tag: str) -> None:
        self.done: list[Element] = []
        self._tag = tag
        self._open: list[Element] = []

    def doctype(self, *_: object) -> None:
        raise Trouble("it declares a DTD, which no office program does")

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        element = Element(tag, attributes)
        if self._open and tag != self._tag:
            self._open[-1].append(element)
        self._open.append(element)

    def data(self, text: str) -> None:
        # Text behind an element (a tail) carries nothing in these formats.
        if len(self._open[-1]) == 0:
            self._open[-1].text = (self._open[-1].text or "") + text

    def end(self, tag: str) -> None:
        element = self._open.pop()
        if tag == self._tag:
            self.done.append(element)

    def close(self) -> None:
        return None
