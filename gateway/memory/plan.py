"""Which passages to look at for a query, so that a large corpus costs no more than a small one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import TypeAlias

MOST = 2000
"""Passages that are looked at for one query."""

ENOUGH = 20
"""With fewer than that, passages with any of the terms are looked at, too."""

_PAIRED = 6

Ways: TypeAlias = Sequence[tuple[str, ...]]
"""Sets of terms: a passage is looked at that has all terms of one of them."""


def ways(counts: Mapping[str, int], most: int = MOST) -> Ways:
    """Return what to look for, by the number of passages that have each term.

    Rare terms are looked for alone, as long as they have `most` passages together. Those that are more
    common tell little alone: two of them must meet. A passage with only one common term is not looked at
    unless there is nothing else.
    """
    present = sorted((count, term) for term, count in counts.items() if count > 0)
    alone: list[tuple[str, ...]] = []
    seen = 0
    for count, term in present:
        seen += count
        if seen > most:
            break
        alone.append((term,))
    common = [term for _, term in present[len(alone) :][:_PAIRED]]
    return alone + list(combinations(common, 2)) or [(term,) for term in common]
