"""How much text one Telegram message can hold, and how plain text is cut to that."""

from __future__ import annotations

from collections.abc import Sequence

from adapters.markdown.text import clean, cut

LIMIT = 4000
"""UTF-16 units of text in a piece; the platform takes 4096 (Bot API sendMessage, spec ST-8), and the
difference holds the mark that closes a code block."""

__all__ = ["LIMIT", "clean", "head", "pieces", "units"]


def units(text: str) -> int:
    """Return the length in UTF-16 units."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le")) // 2


def pieces(text: str) -> Sequence[str]:
    """Cut `text` into pieces that one message can hold, as `cut` does."""
    return tuple(cut(clean(text), LIMIT, units=units, window=_window))


def head(text: str, most: int = LIMIT) -> str:
    """Return as much of the beginning as so many UTF-16 units hold, by default one message."""
    text = clean(text)
    return text if units(text) <= most else f"{_window(text, most - 1)}…"


def _window(text: str, room: int) -> str:
    return text[:room].encode("utf-16-le")[: 2 * room].decode("utf-16-le", "ignore")
