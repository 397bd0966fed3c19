"""Passages of text and the terms that they are found by, the same on both databases.

The databases only say which passages have a term; which are best is decided by gateway/memory/rank.py.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from gateway.errors import StoreError
from gateway.memory import plan
from gateway.memory.rank import Weights
from gateway.memory.words import VERSION, begins_others, loose, query
from gateway.store.dialect import PerDialect
from gateway.store.tables import corpus, corpus_term, passage

_SCOPE = "§"
"""Begins what stands for a corpus among the terms; no term of a text holds it."""

_LAST = "\U0010ffff"
"""Follows on every sign of a term, in the order of code points that both databases keep terms in."""


@dataclass(frozen=True, slots=True)
class Passage:
    """A piece of a source with its terms; `first` and `last` say where it is."""

    first: int
    last: int
    terms: Sequence[str]
    text: str = ""


@dataclass(frozen=True, slots=True)
class Corpus:
    """What is known of all passages together, see the table."""

    id: int
    version: int = VERSION
    encoder: str = ""
    passages: int = 0
    length: int = 0
    changes: int = 0


@dataclass(frozen=True, slots=True)
class Hit:
    """A passage that was found, how well it answers, and which share it has of what was asked."""

    id: int
    score: float
    share: float


@dataclass(frozen=True, slots=True)
class Looked:
    """Passages that may answer, and what each term of the query is worth; not yet ranked."""

    rows: Sequence[Any] = ()
    weights: Weights = field(default_factory=lambda: Weights({}, 1.0, 0.0))


_CREATE = (
    "CREATE VIRTUAL TABLE IF NOT EXISTS passage_words "
    "USING fts5(terms, content='', columnsize=0, tokenize='ascii')"
)
_LEARN = sa.text("INSERT INTO passage_words (rowid, terms) VALUES (:id, :terms)")
# What FTS5 takes back it must be told again.
_FORGET = sa.text("INSERT INTO passage_words (passage_words, rowid, terms) VALUES ('delete', :id, :terms)")
_MOVE = (
    sa.update(passage)
    .where(passage.c.id == sa.bindparam("which"))
    .values(first=sa.bindparam("begin"), last=sa.bindparam("end"))
)
_COUNT = PerDialect(
    lambda insert: (counting := insert(corpus_term)).on_conflict_do_update(
        index_elements=["corpus_id", "term"],
        set_={"passages": corpus_term.c.passages + counting.excluded.passages},
    )
)
_OPEN = PerDialect(lambda insert: insert(corpus).on_conflict_do_nothing(index_elements=["name"]))
_DROP_TERM = sa.delete(corpus_term).where(
    corpus_term.c.corpus_id == sa.bindparam("corpus"),
    corpus_term.c.term == sa.bindparam("gone"),
    corpus_term.c.passages <= 0,
)
# The terms of the scope in `wanted` only save time: what may be seen is said by the columns.
_CANDIDATES = {
    "sqlite": sa.text(
        "SELECT passage.id, length, passage.terms FROM passage_words CROSS JOIN passage "
        "WHERE passage_words MATCH :wanted AND passage.id = passage_words.rowid "
        "AND corpus_id = :corpus AND (:source = 0 OR source = :source) "
        "ORDER BY passage_words.rowid DESC LIMIT :most"
    ),
    # The inner query leaves no other way than the index: a plan for any values might walk along the ids.
    "postgresql": sa.text(
        "WITH found AS MATERIALIZED (SELECT id, corpus_id, source, length, terms FROM passage "
        "WHERE array_to_tsvector(string_to_array(terms, ' ')) @@ CAST(:wanted AS tsquery)) "
        "SELECT id, length, terms FROM found "
        "WHERE corpus_id = :corpus AND (:source = 0 OR source = :source) ORDER BY id DESC LIMIT :most"
    ),
}


def known(tx: Connection, name: str) -> Corpus | None:
    """Return what is known of a corpus, None if there is none."""
    row = tx.execute(sa.select(corpus).where(corpus.c.name == name)).one_or_none()
    return None if row is None else _corpus(row)


def opened(tx: Connection, name: str) -> Corpus:
    """Return a corpus to write into; nobody else writes there until the transaction ends."""
    if tx.dialect.name == "sqlite":
        _make_index(tx)
    tx.execute(_OPEN(tx), {"name": name, "version": VERSION})
    row = tx.execute(sa.select(corpus).where(corpus.c.name == name).with_for_update()).one()
    return _corpus(row)


def _corpus(row: Any) -> Corpus:  # noqa: ANN401 - a row of the table
    return Corpus(row.id, row.version, row.encoder, row.passages, row.length, row.changes)


def _make_index(tx: Connection) -> None:
    """Raise StoreError if this SQLite can't."""
    modules = tx.exec_driver_sql("SELECT 1 FROM pragma_module_list WHERE name = 'fts5'")
    if modules.first() is None:
        raise StoreError(
            "this Python's SQLite has no FTS5, which search needs; use PostgreSQL or another build"
        )
    tx.exec_driver_sql(_CREATE)


def replace(tx: Connection, where: Corpus, source: int, passages: Sequence[Passage]) -> None:
    """Put passages in the place of all that a source had; equal ones stay, and keep their vectors."""
    left: dict[tuple[str, str], list[Any]] = {}
    for row in tx.execute(_old(where, source)):
        left.setdefault((row.text, row.terms), []).append(row)
    new, moved = [], []
    for one in passages:
        if same := left.get((one.text, _stored(where, source, one))):
            row = same.pop()
            if (row.first, row.last) != (one.first, one.last):
                moved.append({"which": row.id, "begin": one.first, "end": one.last})
        else:
            new.append(one)
    if moved:
        tx.execute(_MOVE, moved)
    _forget(tx, where, [row for rows in left.values() for row in rows])
    add(tx, where, source, new)


def remove(tx: Connection, where: Corpus, source: int, first: int, last: int) -> None:
    """Forget the passages of a source that begin between two places."""
    _forget(tx, where, tx.execute(_old(where, source).where(passage.c.first.between(first, last))).all())


def _old(where: Corpus, source: int) -> sa.Select[Any]:
    return sa.select(passage).where(passage.c.corpus_id == where.id, passage.c.source == source)


def _forget(tx: Connection, where: Corpus, old: Sequence[Any]) -> None:
    if not old:
        return
    if tx.dialect.name == "sqlite":
        tx.execute(_FORGET, [{"id": row.id, "terms": row.terms} for row in old])
    tx.execute(
        sa.delete(passage).where(passage.c.id == sa.bindparam("gone")), [{"gone": row.id} for row in old]
    )
    changes = Counter[str]()
    for row in old:
        changes.subtract(set(row.terms.split()))
    _settle(tx, where, changes, -len(old), -sum(row.length for row in old))


def add(tx: Connection, where: Corpus, source: int, passages: Sequence[Passage]) -> None:
    """Add passages to those that a source has."""
    if not passages:
        return
    rows = [
        {
            "corpus_id": where.id,
            "source": source,
            "first": one.first,
            "last": one.last,
            "text": one.text,
            "terms": _stored(where, source, one),
            "length": len(one.terms),
        }
        for one in passages
    ]
    made = tx.execute(
        sa.insert(passage).returning(passage.c.id, sort_by_parameter_order=True), rows
    ).scalars()
    if tx.dialect.name == "sqlite":
        tx.execute(
            _LEARN, [{"id": which, "terms": row["terms"]} for which, row in zip(made, rows, strict=True)]
        )
    changes = Counter(term for one in passages for term in set(one.terms))
    _settle(tx, where, changes, len(passages), sum(len(one.terms) for one in passages))


def _stored(where: Corpus, source: int, one: Passage) -> str:
    """Return the terms of a passage between blanks, after those that stand for its corpus and source."""
    return " ".join((f"{_SCOPE}{where.id}", f"{_SCOPE}{where.id}{_SCOPE}{source}", *one.terms))


def _settle(tx: Connection, where: Corpus, changes: Counter[str], passages: int, length: int) -> None:
    """Bring the numbers of the corpus up to date."""
    changed = {term: by for term, by in sorted(changes.items()) if by and not term.startswith(_SCOPE)}
    if changed:
        rows = [{"corpus_id": where.id, "term": term, "passages": by} for term, by in changed.items()]
        tx.execute(_COUNT(tx), rows)
    if gone := [{"corpus": where.id, "gone": term} for term, by in changed.items() if by < 0]:
        tx.execute(_DROP_TERM, gone)
    tx.execute(
        sa.update(corpus)
        .where(corpus.c.id == where.id)
        .values(
            passages=corpus.c.passages + passages,
            length=corpus.c.length + length,
        )
    )


def look(tx: Connection, where: Corpus, text: str, source: int | None = None) -> Looked:
    """Return the passages of a corpus, or of one source of it, that may answer `text`."""
    asked = query(text)
    if not asked or not where.passages:
        return Looked()
    counts = _counts(tx, where, asked)
    signs = _begun(tx, where, loose(term for term in asked if term not in counts))
    weights = Weights.of(asked, signs | counts, where.passages, where.length)
    wanted = plan.ways(counts, signs)
    rows = _candidates(tx, where, wanted, source)
    alone = [(term,) for term in counts]
    if len(rows) < plan.ENOUGH and not set(alone) <= set(wanted):
        rows = _candidates(tx, where, alone, source)
    return Looked(rows, weights)


def best(looked: Looked, limit: int) -> list[Hit]:
    """Return the best of them, of equally good ones the newer first; for threads, it takes some ms."""
    weights = looked.weights
    scored = ((weights.score(terms, length), which, terms) for which, length, terms in looked.rows)
    best_of_all = heapq.nlargest(limit, scored)
    return [Hit(which, points, weights.share(terms)) for points, which, terms in best_of_all]


def _counts(tx: Connection, where: Corpus, asked: Sequence[str]) -> dict[str, int]:
    """Return how many passages have each term; for a sign that begins others, about how many."""
    rows = tx.execute(
        sa.select(corpus_term.c.term, corpus_term.c.passages).where(
            corpus_term.c.corpus_id == where.id, corpus_term.c.term.in_(asked)
        )
    )
    counts = {row.term: row.passages for row in rows if not begins_others(row.term)}
    return counts | _begun(tx, where, list(filter(begins_others, asked)))


def _begun(tx: Connection, where: Corpus, signs: Sequence[str]) -> dict[str, int]:
    """Return about how many passages have a term that begins with each sign.

    Signs that none has are left out.
    """
    if not signs:
        return {}
    term = corpus_term.c.term
    first = sa.func.substr(term, 1, 1)
    ranges = [sa.and_(term >= sign, term <= sign + _LAST) for sign in signs]
    rows = tx.execute(
        sa.select(first, sa.func.sum(corpus_term.c.passages))
        .where(corpus_term.c.corpus_id == where.id, sa.or_(*ranges))
        .group_by(first)
    )
    return {sign: int(passages) for sign, passages in rows}


def _candidates(tx: Connection, where: Corpus, ways: plan.Ways, source: int | None) -> Sequence[Any]:
    """Return the newest passages that have all terms of one of the `ways`."""
    if not ways:
        return ()
    scope = f"{_SCOPE}{where.id}" if source is None else f"{_SCOPE}{where.id}{_SCOPE}{source}"
    dialect = tx.dialect.name
    values = {
        "wanted": _expression(dialect, scope, ways),
        "corpus": where.id,
        "source": source or 0,
        "most": plan.MOST,
    }
    return tx.execute(_CANDIDATES[dialect], values).all()


def _expression(dialect: str, scope: str, ways: plan.Ways) -> str:
    """Say in the words of FTS5 or of a tsquery: in this scope, all terms of one of the ways."""
    both, either, quote, begins = (
        (" AND ", " OR ", '"', " *") if dialect == "sqlite" else (" & ", " | ", "'", ":*")
    )

    def said(term: str) -> str:
        return f"{quote}{term}{quote}{begins if begins_others(term) else ''}"

    alternatives = either.join(f"({both.join(map(said, way))})" for way in ways)
    return f"{quote}{scope}{quote}{both}({alternatives})"


def touch(tx: Connection, where: Corpus) -> None:
    """Let those who keep something of a corpus in memory look again."""
    tx.execute(sa.update(corpus).where(corpus.c.id == where.id).values(changes=corpus.c.changes + 1))


def clear(tx: Connection, where: Corpus) -> Corpus:
    """Forget all passages of a corpus, as when what counts as a term has changed; return it empty."""
    sources = tx.execute(
        sa.select(passage.c.source).where(passage.c.corpus_id == where.id).distinct()
    ).scalars()
    for source in sources.all():
        replace(tx, where, source, ())
    empty = {"passages": 0, "length": 0, "version": VERSION}
    tx.execute(sa.update(corpus).where(corpus.c.id == where.id).values(**empty))
    return Corpus(where.id, encoder=where.encoder, changes=where.changes + 1)
