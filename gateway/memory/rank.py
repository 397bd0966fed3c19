"""Which passages answer a query best, and where in them the answer is: the same for every database."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date

from gateway.memory.words import begins_others, is_pair, loose, terms

K1, B = 1.2, 0.75
"""The usual constants of BM25."""

RRF = 20
"""How little the first places of a ranking count for more than those behind them (models 3.1)."""

LOOSE = 0.25
"""What a sign counts that is looked for in the place of a pair that no passage has."""

SNIPPET = 700
"""Characters of a found passage that are shown (agent J)."""

_FRESH = 0.1
_HALF_LIFE = 30.0
_DATED = re.compile(r"(\d{4})-(\d{2})-(\d{2})")


@dataclass(frozen=True, slots=True)
class Weights:
    """What each term of a query is worth that some passage has.

    `average` is the usual length of a passage, in terms; `asked` what all is worth that was asked for.
    """

    idf: Mapping[str, float]
    average: float
    asked: float

    @classmethod
    def of(cls, asked: Sequence[str], counts: Mapping[str, int], passages: int, length: int) -> Weights:
        """Weigh what is asked by the number of passages that have it; `length` is of all of them together.

        `counts` is of terms and of the `loose` signs of the pairs that none has. A word that none has was
        asked for all the same; such a pair most likely lies across two words and was not.
        """

        def worth(term: str) -> float:
            count = min(counts.get(term, 0), passages)
            return math.log(1 + (passages - count + 0.5) / (count + 0.5))

        missing = [term for term in asked if not counts.get(term)]
        idf = {sign: LOOSE * worth(sign) for sign in loose(missing) if counts.get(sign)}
        idf |= {term: worth(term) for term in asked if counts.get(term)}
        unknown = sum(worth(term) for term in missing if not is_pair(term))
        return cls(idf, max(1.0, length / max(1, passages)), sum(idf.values()) + unknown)

    def score(self, text: str, length: int) -> float:
        """Return the BM25 score of a passage, whose terms stand between blanks in `text`."""
        padded = f" {text} "
        norm = K1 * (1 - B + B * length / self.average)
        total = 0.0
        for term, idf in self.idf.items():
            if count := padded.count(_sought(term)):
                total += idf * count * (K1 + 1) / (count + norm)
        return total

    def share(self, text: str) -> float:
        """Return which share such a passage has of what was asked, from 0 to 1."""
        padded = f" {text} "
        had = sum(idf for term, idf in self.idf.items() if _sought(term) in padded)
        return had / self.asked if had else 0.0


def _sought(term: str) -> str:
    return f" {term}" if begins_others(term) else f" {term} "


def fuse(*rankings: Mapping[int, float]) -> dict[int, float]:
    """Return scores by the places in several rankings, as scores of two kinds can't be compared.

    Each ranking says, the best first, which share of its place counts: a passage with one word of a long
    question is not known to answer it, even if no other has more.
    """
    scores: dict[int, float] = {}
    for ranking in rankings:
        for place, (each, share) in enumerate(ranking.items(), 1):
            scores[each] = scores.get(each, 0.0) + share / (RRF + place)
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
