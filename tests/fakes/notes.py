"""What a search in notes must find, computed without any database."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from gateway.memory.rank import Weights
from gateway.memory.words import query, terms


def ranked(notes: Mapping[str, str], asked: str) -> list[str]:
    """Return the notes that have words of `asked`, the best first, of equals the later; without a database."""
    found = {name: terms(text) for name, text in notes.items()}
    counts = Counter(term for one in found.values() for term in set(one))
    weights = Weights.of(
        {term: counts[term] for term in query(asked)}, len(found), sum(map(len, found.values()))
    )
    scores = {name: weights.score(" ".join(one), len(one)) for name, one in found.items()}
    return sorted((name for name in reversed(scores) if scores[name] > 0), key=lambda name: -scores[name])
