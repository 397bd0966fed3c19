"""Takes the text out of a PDF, page by page; needs pypdf."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from pathlib import Path

from office import MAX_FILE, Trouble
from pypdf import PdfReader
from pypdf.errors import DependencyError, PyPdfError


def read(path: Path, wanted: range | None, most: int, password: str) -> tuple[list[tuple[str, str]], int]:
    """Return a title and the text of the pages `wanted` (None: from the first), and how many there are.

    It stops after `most` characters, for pages may be slow to read. Raises: Trouble.
    """
    logging.getLogger("pypdf").setLevel(logging.CRITICAL)  # it tells about every small flaw
    if path.stat().st_size > MAX_FILE:
        raise Trouble(f"{path.name} is larger than {MAX_FILE // 1_000_000} MB")
    try:
        reader = PdfReader(path)
        if reader.is_encrypted and not reader.decrypt(password):
            raise Trouble("it needs a password, or another one: give it with --password")
        total = len(reader.pages)
        pages = wanted or range(1, total + 1)
        return _texts(reader, (page for page in pages if page <= total), most), total
    except DependencyError as error:
        raise Trouble(f"it is encrypted in a way that needs another library: {error}") from error
    except (PyPdfError, ValueError, KeyError, TypeError, AttributeError, OSError, RecursionError) as error:
        raise Trouble(f"{path.name} is damaged: {error}") from error


def _texts(reader: PdfReader, pages: Iterable[int], most: int) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    size = 0
    for page in pages:
        text = reader.pages[page - 1].extract_text().strip()
        found.append((f"Page {page}", text or "(no text on this page; it may be a scan)"))
        size += len(text)
        if size > most:
            break
    return found
