"""Which passages answer a query best, and where in them the answer is: the same for every database."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date

from gateway.memory.words import begins_others, terms

K1, B = 1.2, 0.75
"""The usual constants of BM25."""

RRF = 20
"""How little the first places of a ranking count for more than those behind them (models 3.1)."""

SNIPPET = 700
"""Characters of a found passage that are shown (agent J)."""

_FRESH = 0.1
_HALF_LIFE = 30.0
_DATED = re.compile(r"(\d{4})-(\d{2})-(\d{2})")


@dataclass(frozen=True, slots=True)
class Weights:
    """What each term of a query is worth, and how long a passage usually is, in terms."""

    idf: Mapping[str, float]
    average: float

    @classmethod
    def of(cls, counts: Mapping[str, int], passages: int, length: int) -> Weights:
        """Weigh terms by the number of passages that have them; `length` is of all passages together."""
        idf = {
            term: math.log(1 + (passages - min(count, passages) + 0.5) / (count + 0.5))
            for term, count in counts.items()
            if count > 0
        }
        return cls(idf, max(1.0, length / max(1, passages)))

    def score(self, text: str, length: int) -> float:
        """Return the BM25 score of a passage, whose terms stand between blanks in `text`."""
        padded = f" {text} "
        norm = K1 * (1 - B + B * length / self.average)
        total = 0.0
        for term, idf in self.idf.items():
            if count := padded.count(f" {term}" if begins_others(term) else f" {term} "):
                total += idf * count * (K1 + 1) / (count + norm)
        return total


def fuse(*rankings: Sequence[int]) -> dict[int, float]:
    """Return scores by the places in several rankings alone, as scores of two kinds can't be compared."""
    scores: dict[int, float] = {}
    for ranking in rankings:
        for place, each in enumerate(ranking, 1):
            scores[each] = scores.get(each, 0.0) + 1 / (RRF + place)
    return scores


def freshness(path: str, today: date) -> float:
    """Return a factor from 1.0 to 1.1 that lets the newer of two equally good dated notes win.

    It halves with each 30 days; what has no date in its name is as good as new (agent 5).
    """
    found = _DATED.search(path)
    if found is None:
        return 1 + _FRESH
    try:
        age = max(0, (today - date(*map(int, found.groups()))).days)
    except ValueError:
        return 1 + _FRESH
    return 1 + _FRESH * math.exp2(-age / _HALF_LIFE)


def best_lines(text: str, idf: Mapping[str, float]) -> tuple[int, str]:
    """Return the part of a passage to show, at most SNIPPET characters, and its line, counted from 0.

    It begins at the line with the weightiest terms, or earlier if all that follows is shown as well.
    """
    lines = text.split("\n")
    worth = [sum(idf.get(term, 0.0) for term in _told(line, idf)) for line in lines]
    best = max(range(len(lines)), key=lambda at: (worth[at], -at))
    first = best
    while first > 0 and len("\n".join(lines[first - 1 :])) <= SNIPPET:
        first -= 1
    return best, _cut("\n".join(lines[first:]).strip("\n"), SNIPPET)


def _told(line: str, idf: Mapping[str, float]) -> set[str]:
    found = set(terms(line))
    signs = {term for term in idf if begins_others(term) and any(one.startswith(term) for one in found)}
    return found | signs


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def apart(found: Iterable[tuple[str, int, int]]) -> list[int]:
    """Return the positions of passages `(source, first line, last line)` that repeat none before them."""
    kept: list[int] = []
    seen: dict[str, list[tuple[int, int]]] = {}
    for at, (source, first, last) in enumerate(found):
        others = seen.setdefault(source, [])
        if all(last < start or end < first for start, end in others):
            others.append((first, last))
            kept.append(at)
    return kept
