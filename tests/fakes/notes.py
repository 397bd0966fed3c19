"""What a search in notes must find, computed without any database."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from gateway.memory.rank import Weights
from gateway.memory.words import begins_others, query, terms


def ranked(notes: Mapping[str, str], asked: str) -> list[str]:
    """Return the notes that have words of `asked`, the best first, of equals the later; without a database."""
    return [*shares(notes, asked)]


def shares(notes: Mapping[str, str], asked: str) -> dict[str, float]:
    """Return the same with the share that each has of what was asked."""
    found = {name: terms(text) for name, text in notes.items()}
    counts = Counter(term for one in found.values() for term in set(one))
    for term, count in [*counts.items()]:
        if begins_others(term[0]):
            counts[term[0]] += count if len(term) > 1 else 0
    weights = Weights.of(query(asked), counts, len(found), sum(map(len, found.values())))
    scores = {name: weights.score(" ".join(one), len(one)) for name, one in found.items()}
    best = sorted((name for name in reversed(scores) if scores[name] > 0), key=lambda name: -scores[name])
    return {name: weights.share(" ".join(found[name])) for name in best}
