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


def ways(counts: Mapping[str, int], loose: Mapping[str, int], most: int = MOST) -> Ways:
    """Return what to look for, by the number of passages that have each term, and each loose sign.

    Rare terms are looked for alone, as long as they have `most` passages together. Those that are more
    common tell little alone: two of them must meet. A passage with only one common term is not looked at
    unless there is nothing else. Signs are looked for if the terms leave room for them.
    """
    present = _rarest_first(counts)
    alone, seen = _rare(present, 0, most)
    common = [term for _, term in present[len(alone) :][:_PAIRED]]
    signs, _ = _rare(_rarest_first(loose), seen, most)
    return [*alone, *combinations(common, 2), *signs] or [(term,) for term in common]


def _rarest_first(counts: Mapping[str, int]) -> list[tuple[int, str]]:
    return sorted((count, term) for term, count in counts.items() if count > 0)


def _rare(present: Sequence[tuple[int, str]], seen: int, most: int) -> tuple[list[tuple[str, ...]], int]:
    """Return the first terms that have, with those `seen` before, `most` passages, and how many were seen."""
    found: list[tuple[str, ...]] = []
    for count, term in present:
        seen += count
        if seen > most:
            break
        found.append((term,))
    return found, seen
