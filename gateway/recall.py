"""What the bot remembers: it keeps the index of notes and transcripts up to date and searches both.

Nothing here runs in a plain turn. A search first looks for notes that have changed, with one stat for each.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, tzinfo
from pathlib import Path

from gateway.clock import Clock
from gateway.memory import files
from gateway.memory.rank import apart, best_lines, freshness, fuse
from gateway.memory.vectors import Encoder, Matrix
from gateway.store import memory, passages, search
from gateway.store.engine import Database
from gateway.store.memory import Count, Found, Index
from gateway.store.search import Said
from gateway.types import Address

log = logging.getLogger(__name__)

TOP = 6
"""Results of a search, if nobody asks for more or fewer (agent 11)."""

MOST = 20
"""Results that can be asked for, and places of each ranking that count."""

TOGETHER = 100_000
"""Bytes of notes that are indexed in one transaction, so that nobody waits long for the database."""

ENCODED = 16
"""Texts that are encoded at once."""

PAGE = 4000
"""Vectors that are read at once."""

PATIENCE = 8
"""So many times at most a search encodes what is new; the rest is left to the next one."""

ENOUGH = 2.0
"""Seconds after which it does not begin to encode more, because somebody waits for the answer."""


@dataclass(frozen=True, slots=True)
class Memory:
    """A part of a note that answers a query; `line`, from 1, is its best line."""

    path: str
    line: int
    text: str

    @property
    def source(self) -> str:
        """Return how it is cited (seed 001)."""
        return f"{self.path}#L{self.line}"


def _said(one: Said, zone: tzinfo) -> str:
    return f"Source: {Address.parse(one.address).shown} #{one.seq} ({one.role}, {one.when(zone)})\n{one.text}"


@dataclass(slots=True, kw_only=True)
class Recall:
    """Searches notes and transcripts. Every method may raise StoreError.

    `folder` is where the notes are; `personal`: also the two files that are the owner's alone.
    """

    db: Database
    clock: Clock
    zone: tzinfo = UTC
    encoder: Encoder | None = None
    _locks: dict[Path, asyncio.Lock] = field(default_factory=dict)
    _known: dict[Path, Index] = field(default_factory=dict)
    _matrices: dict[Path, tuple[int, Matrix | None]] = field(default_factory=dict)

    async def search(self, folder: Path, text: str, *, personal: bool, limit: int = TOP) -> list[Memory]:
        """Return what the notes say about `text`, the best first."""
        await self.refresh(folder, personal=personal)
        place, limit = str(folder), max(1, min(limit, MOST))
        looked = await self.db.read(lambda tx: memory.look(tx, place, text))
        hits = await asyncio.to_thread(passages.best, looked, MOST)
        scores = {hit.id: hit.score for hit in hits}
        if near := await self._nearest(folder, text):
            scores = fuse({hit.id: hit.share for hit in hits}, dict.fromkeys(near, 1.0))
        found = await self.db.read(lambda tx: memory.found(tx, scores))
        return await asyncio.to_thread(self._best, found, looked.weights.idf, limit)

    async def said(self, text: str, *, conversation: int | None, limit: int = TOP) -> list[Said]:
        """Return what was said about `text` in one conversation, or in all, the best first."""
        while unread := await self.db.read(lambda tx: search.unread(tx, conversation)):
            prepared = await asyncio.to_thread(search.prepare, unread)
            take_in = functools.partial(search.take_in, found=unread, prepared=prepared)
            await self.db.write(take_in, durable=False)
        looked = await self.db.read(lambda tx: search.look(tx, text, conversation))
        hits = await asyncio.to_thread(passages.best, looked, max(1, min(limit, MOST)))
        return await self.db.read(lambda tx: search.found(tx, hits, looked.weights.idf))

    async def refresh(self, folder: Path, *, personal: bool, again: bool = False) -> int:
        """Bring the index of a folder up to date; return how many notes had changed.

        With `again` every note is read, also those that look as before.
        """
        async with self._locks.setdefault(folder, asyncio.Lock()):
            place = str(folder)
            known = await self._index_of(folder)
            there = await asyncio.to_thread(files.stamps, folder, personal=personal)
            if there == known.stamps and not again:
                return 0
            changed = {
                path: at for path, at in sorted(there.items()) if again or known.stamps.get(path) != at
            }
            gone = [path for path in known.stamps if path not in there]
            for batch in _batches(changed):
                gone += await self._index(folder, batch, known.digests)
            if gone:
                await self.db.write(lambda tx: memory.store(tx, place, (), gone), durable=False)
            return len(changed) + len(gone)

    async def act(self, folder: Path, action: str, query: str, *, chats: bool) -> str:
        """Do for the command line what `action` says (status, index, search); return text for people.

        Raises: ValueError for another action.
        """
        match action:
            case "status":
                return self._status(await self.count(folder))
            case "index":
                changed = await self.refresh(folder, personal=True, again=True)
                await self.encode(folder)
                return f"{changed} files read\n{self._status(await self.count(folder))}"
            case "search" if chats:
                found = [_said(one, self.zone) for one in await self.said(query, conversation=None)]
            case "search":
                notes = await self.search(folder, query, personal=True)
                found = [f"Source: {one.source}\n{one.text}" for one in notes]
            case _:
                raise ValueError("the action must be status, index or search")
        return "\n\n".join(found) or "nothing found"

    def _status(self, count: Count) -> str:
        vectors = f"{count.encoded} with vectors" if self.encoder else "found by their words only"
        lines = [f"{count.notes} notes in {count.passages} passages, {vectors}"]
        return "\n".join([*lines, *(f"left out: {path}: {why}" for path, why in count.problems.items())])

    async def _index_of(self, folder: Path) -> Index:
        """Return what is in the index of a folder; kept in memory until something changes."""
        place = str(folder)
        changes = await self.db.read(lambda tx: memory.changes(tx, place))
        if changes == 0:
            return Index()
        known = self._known.get(folder)
        if known is None or known.changes != changes:
            known = await self.db.read(lambda tx: memory.indexed(tx, place))
            self._known[folder] = known
        return known

    async def encode(self, folder: Path, rounds: int | None = None) -> None:
        """Make the missing vectors of a folder's passages.

        With `rounds` of at most so many times ENCODED texts, and none any more when it has taken long enough.
        """
        encoder, place = self.encoder, str(folder)
        if encoder is None:
            return
        name, began = encoder.name, self.clock.now()
        while rounds is None or (rounds > 0 and self.clock.now() - began < ENOUGH):
            texts = await self.db.read(lambda tx: memory.unencoded(tx, place, name, ENCODED))
            if not texts:
                return
            vectors = await asyncio.to_thread(encoder.encode, list(texts.values()))
            made = dict(zip(texts, vectors, strict=True))
            store = functools.partial(memory.encode, folder=place, encoder=name, made=made)
            await self.db.write(store, durable=False)
            rounds = None if rounds is None else rounds - 1

    async def count(self, folder: Path) -> Count:
        """Return how large the index of a folder is."""
        place = str(folder)
        return await self.db.read(lambda tx: memory.count(tx, place))

    async def _index(
        self, folder: Path, batch: Mapping[str, files.Stamp], digests: Mapping[str, str]
    ) -> list[str]:
        """Read notes and store what they say; return those that have gone."""
        prepared, gone = await asyncio.to_thread(_prepare, folder, batch, digests)
        for one in prepared:
            if one.note.problem:
                log.warning("memory.skipped", extra={"path": one.note.path, "problem": one.note.problem})
        await self.db.write(lambda tx: memory.store(tx, str(folder), prepared, ()), durable=False)
        return gone

    async def _nearest(self, folder: Path, text: str) -> list[int]:
        encoder = self.encoder
        if encoder is None or not text.strip():
            return []
        await self.encode(folder, PATIENCE)
        matrix = await self._matrix(folder)
        if matrix is None:
            return []
        return await asyncio.to_thread(lambda: matrix.nearest(encoder.encode([text])[0], MOST))

    async def _matrix(self, folder: Path) -> Matrix | None:
        """Return the vectors of a folder, if there are any; they stay in memory until something changes."""
        place = str(folder)
        changes = await self.db.read(lambda tx: memory.changes(tx, place))
        known, matrix = self._matrices.get(folder, (-1, None))
        if matrix is None or known != changes:
            rows: list[tuple[int, bytes]] = []
            while more := await self.db.read(
                functools.partial(memory.vectors, folder=place, after=rows[-1][0] if rows else 0, limit=PAGE)
            ):
                rows += more
            if not rows:
                return None
            matrix = await asyncio.to_thread(
                Matrix.of, [which for which, _ in rows], [data for _, data in rows]
            )
            self._matrices[folder] = (changes, matrix)
        return matrix

    def _best(self, found: Sequence[Found], idf: Mapping[str, float], limit: int) -> list[Memory]:
        today = self._today()
        ranked = sorted(found, key=lambda one: -one.score * freshness(one.path, today))
        kept = apart((one.path, one.first, one.last) for one in ranked)[:limit]
        return [_memory(ranked[at], idf) for at in kept]

    def _today(self) -> date:
        return datetime.fromtimestamp(self.clock.wall(), self.zone).date()


def _memory(found: Found, idf: Mapping[str, float]) -> Memory:
    best, shown = best_lines(found.text, idf)
    return Memory(found.path, min(found.first + best, found.last), shown)


def _batches(changed: Mapping[str, files.Stamp]) -> Iterator[dict[str, files.Stamp]]:
    """Yield files, by path, that are small enough together."""
    batch: dict[str, files.Stamp] = {}
    size = 0
    for path, stamp in changed.items():
        if batch and size + stamp.size > TOGETHER:
            yield batch
            batch, size = {}, 0
        batch[path] = stamp
        size += min(stamp.size, files.MAX_NOTE)
    if batch:
        yield batch


def _prepare(
    folder: Path, batch: Mapping[str, files.Stamp], digests: Mapping[str, str]
) -> tuple[list[memory.Prepared], list[str]]:
    notes = {path: files.read(folder, path, stamp, digests) for path, stamp in batch.items()}
    prepared = [memory.prepare(note) for note in notes.values() if note is not None]
    return prepared, [path for path, note in notes.items() if note is None]
