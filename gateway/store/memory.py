"""The notes of folders as they were indexed, and what is found in them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from gateway.memory.files import Note, Stamp
from gateway.memory.words import VERSION, terms
from gateway.store import passages
from gateway.store.passages import Corpus, Looked, Passage
from gateway.store.tables import corpus, mem_file, passage


@dataclass(frozen=True, slots=True)
class Index:
    """The notes of a folder as they were indexed, by path; `problems` says why some are left out."""

    changes: int = 0
    stamps: Mapping[str, Stamp] = field(default_factory=dict)
    digests: Mapping[str, str] = field(default_factory=dict)
    problems: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Prepared:
    """A note with its passages, ready to be stored."""

    note: Note
    passages: Sequence[Passage]


@dataclass(frozen=True, slots=True)
class Found:
    """A passage of a note; `text` is all of it."""

    id: int
    path: str
    first: int
    last: int
    text: str
    score: float


def prepare(note: Note) -> Prepared:
    """Return a note with its terms: those of its path and its headings belong to each passage."""
    named = terms(note.path.removesuffix(".md").replace("/", " "))
    found = [
        Passage(
            chunk.first,
            chunk.last,
            [*named, *terms(chunk.headings), *terms(chunk.text)],
            _storable(chunk.text),
        )
        for chunk in note.chunks
    ]
    return Prepared(note, found)


def _storable(text: str) -> str:
    return text.replace("\0", "�")


def name_of(folder: str) -> str:
    """Return the name of the corpus of a folder's notes."""
    return f"notes:{folder}"


def indexed(tx: Connection, folder: str) -> Index:
    """Return what is in the index of a folder."""
    where = passages.known(tx, name_of(folder))
    if where is None:
        return Index()
    columns = (mem_file.c.path, mem_file.c.mtime_ns, mem_file.c.size, mem_file.c.sha256, mem_file.c.problem)
    rows = tx.execute(sa.select(*columns).where(mem_file.c.corpus_id == where.id)).all()
    return Index(
        where.changes,
        {path: Stamp(mtime_ns, size) for path, mtime_ns, size, _, _ in rows},
        {path: sha256 for path, _, _, sha256, _ in rows},
        {path: problem for path, _, _, _, problem in rows if problem},
    )


def store(tx: Connection, folder: str, prepared: Sequence[Prepared], gone: Iterable[str]) -> None:
    """Put notes into the index, in the place of what it had of them; forget those that are gone."""
    where = passages.opened(tx, name_of(folder))
    if where.version != VERSION:
        where = passages.clear(tx, where)
        tx.execute(sa.delete(mem_file).where(mem_file.c.corpus_id == where.id))
    passages.touch(tx, where)
    touched = [*(one.note.path for one in prepared), *gone]
    rows = tx.execute(
        sa.select(mem_file).where(mem_file.c.corpus_id == where.id, mem_file.c.path.in_(touched))
    )
    there = {row.path: row for row in rows}
    for one in prepared:
        old = there.get(one.note.path)
        source = _put(tx, where, one.note, None if old is None else old.id)
        if old is None or old.sha256 != one.note.sha256 or one.note.problem:
            passages.replace(tx, where, source, one.passages)
    for path in gone:
        if path in there:
            passages.replace(tx, where, there[path].id, ())
            tx.execute(sa.delete(mem_file).where(mem_file.c.id == there[path].id))


def _put(tx: Connection, where: Corpus, note: Note, known: int | None) -> int:
    values = {
        "mtime_ns": note.stamp.mtime_ns,
        "size": note.stamp.size,
        "sha256": note.sha256,
        "problem": note.problem,
    }
    if known is not None:
        tx.execute(sa.update(mem_file).where(mem_file.c.id == known).values(**values))
        return known
    new = sa.insert(mem_file).values(corpus_id=where.id, path=note.path, **values).returning(mem_file.c.id)
    return int(tx.execute(new).scalar_one())


def look(tx: Connection, folder: str, text: str) -> Looked:
    """Return the passages that may have the words of `text`."""
    where = passages.known(tx, name_of(folder))
    return Looked() if where is None else passages.look(tx, where, text)


def found(tx: Connection, scores: Mapping[int, float]) -> list[Found]:
    """Return passages of notes with their texts, the best first."""
    rows = tx.execute(
        sa.select(passage.c.id, passage.c.first, passage.c.last, passage.c.text, mem_file.c.path)
        .join(
            mem_file, sa.and_(mem_file.c.id == passage.c.source, mem_file.c.corpus_id == passage.c.corpus_id)
        )
        .where(passage.c.id.in_(list(scores)))
    )
    notes = [Found(row.id, row.path, row.first, row.last, row.text, scores[row.id]) for row in rows]
    return sorted(notes, key=lambda one: (-one.score, -one.id))


def changes(tx: Connection, folder: str) -> int:
    """Return a number that grows with each change of a folder's index; 0 if it has to be made anew."""
    where = passages.known(tx, name_of(folder))
    return 0 if where is None or where.version != VERSION else where.changes


def vectors(tx: Connection, folder: str, after: int, limit: int) -> list[tuple[int, bytes]]:
    """Return ids and vectors of a folder's passages, in the order of ids, of those above `after`."""
    where = passages.known(tx, name_of(folder))
    rows = tx.execute(
        sa.select(passage.c.id, passage.c.vector)
        .where(
            passage.c.corpus_id == (where.id if where else None),
            passage.c.vector.is_not(None),
            passage.c.id > after,
        )
        .order_by(passage.c.id)
        .limit(limit)
    )
    return [(row.id, row.vector) for row in rows]


def unencoded(tx: Connection, folder: str, encoder: str, limit: int) -> dict[int, str]:
    """Return texts of passages that this encoder has not yet seen, by id; the newest first."""
    where = passages.known(tx, name_of(folder))
    if where is None:
        return {}
    wanted = sa.select(passage.c.id, passage.c.text).where(passage.c.corpus_id == where.id)
    if where.encoder == encoder:
        wanted = wanted.where(passage.c.vector.is_(None))
    rows = tx.execute(wanted.order_by(passage.c.id.desc()).limit(limit))
    return {row.id: row.text for row in rows}


def encode(tx: Connection, folder: str, encoder: str, made: Mapping[int, bytes]) -> None:
    """Store vectors; those of another encoder are forgotten."""
    where = passages.opened(tx, name_of(folder))
    if where.encoder != encoder:
        tx.execute(sa.update(passage).where(passage.c.corpus_id == where.id).values(vector=None))
    statement = sa.update(passage).where(passage.c.id == sa.bindparam("which"))
    rows = [{"which": which, "vector": vector} for which, vector in made.items()]
    tx.execute(statement.values(vector=sa.bindparam("vector")), rows)
    tx.execute(
        sa.update(corpus).where(corpus.c.id == where.id).values(encoder=encoder, changes=corpus.c.changes + 1)
    )


@dataclass(frozen=True, slots=True)
class Count:
    """How large the index of a folder is; `encoded` passages have a vector."""

    notes: int = 0
    passages: int = 0
    encoded: int = 0
    problems: Mapping[str, str] = field(default_factory=dict)


def count(tx: Connection, folder: str) -> Count:
    """Return how large the index of a folder is, with the notes that are left out and why."""
    where = passages.known(tx, name_of(folder))
    if where is None:
        return Count()
    found = indexed(tx, folder)
    vector = sa.select(sa.func.count(passage.c.vector)).where(passage.c.corpus_id == where.id)
    encoded = tx.execute(vector).scalar_one()
    return Count(len(found.stamps) - len(found.problems), where.passages, encoded, found.problems)
