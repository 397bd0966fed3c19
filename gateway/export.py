"""Transcripts for people (Markdown) and for programs (JSON, an entry a line), without secrets."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Literal, TextIO, TypeAlias
from zoneinfo import ZoneInfo

from gateway.errors import ConfigError
from gateway.store import archive
from gateway.store.archive import Part, Row, Talk
from gateway.store.codec import decode
from gateway.store.engine import Reader
from gateway.types import AssistantEntry, Json, Kind, NoteEntry, ToolEntry, UserEntry

LISTED = 200
"""Conversations that a list shows."""

Redact: TypeAlias = Callable[[str], str]
"""Takes secrets out of a text."""

Format: TypeAlias = Literal["md", "jsonl"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Archive:
    """Reads transcripts for whoever sits at this machine. `zone` is that of the times in what people read.

    A conversation is named `channel:chat:thread`, `channel:chat`, or by its chat's id if only one has that.
    Every method may raise StoreError, and ConfigError for a name that fits none or several.
    """

    reader: Reader
    zone: ZoneInfo
    redact: Redact

    async def listed(self) -> str:
        """Return a line for each conversation, those used last first."""
        talks = await self.reader.read(lambda tx: archive.talks(tx, LISTED))
        return "\n".join(map(self._line, talks)) or "There are no conversations yet."

    async def show(self, name: str) -> str:
        """Return the sessions of a conversation, a line each."""
        talk = await self._named(name)
        parts = await self.reader.read(lambda tx: archive.parts(tx, talk.id))
        return "\n".join([self._line(talk), *(self._part(one, talk) for one in parts)])

    async def export(self, name: str, form: Format, session: int | None, out: Path | None) -> int:
        """Write a conversation, or one session of it, to a new file or to stdout; return its entries.

        Only its owner may read the file (attack secrets-015). Raises: ConfigError if it is there already.
        """
        talk = await self._named(name)
        if session is not None and not await self._page(talk.id, session, 0):
            raise ConfigError(f"{talk.address.shown} has no session {session}; `sessions show` lists them")
        entries = 0
        with _opened(out) as file:
            if form == "md":
                file.write(f"# {_plain(talk.address.shown)}\n")
            async for row in self._rows(talk.id, session):
                file.write(self.markdown(row) if form == "md" else self.line(row))
                entries += 1
        return entries

    async def _rows(self, conversation_id: int, session: int | None) -> AsyncIterator[Row]:
        after = 0
        while rows := await self._page(conversation_id, session, after):
            for row in rows:
                yield row
            after = rows[-1].seq

    async def _page(self, conversation_id: int, session: int | None, after: int) -> list[Row]:
        return await self.reader.read(lambda tx: archive.page(tx, conversation_id, session, after))

    async def _named(self, name: str) -> Talk:
        talks = await self.reader.read(lambda tx: archive.named(tx, name))
        if not talks:
            raise ConfigError(f"there is no conversation {name}; `crayfish sessions list` shows all")
        exact = [talk for talk in talks if talk.address.shown == name]
        if len(exact or talks) > 1:
            names = ", ".join(talk.address.shown for talk in talks)
            raise ConfigError(f"{name} is several: {names}; name one")
        return (exact or talks)[0]

    def _line(self, talk: Talk) -> str:
        summed = f", summed up {_times(talk.notes)}" if talk.notes else ""
        last = f", last {self._time(talk.last)}" if talk.last is not None else ""
        many = f"{talk.sessions} session{'s' * (talk.sessions != 1)}"
        return f"{talk.address.shown} ({talk.chat}): {many}, {talk.entries} entries{summed}{last}"

    def _part(self, part: Part, talk: Talk) -> str:
        now = ", the one that goes on" if part.session == talk.session else ""
        summed = f", summed up {_times(part.notes)}" if part.notes else ""
        span = f"{self._time(part.first)} to {self._time(part.last)}"
        return f"  session {part.session}: {part.entries} entries{summed}, {span}{now}"

    def _time(self, at: float) -> str:
        return datetime.fromtimestamp(at, self.zone).strftime("%Y-%m-%d %H:%M")

    def line(self, row: Row) -> str:
        """Return an entry as a line of JSON: its columns, with `body` and `usage` as objects."""
        value = {
            "seq": row.seq,
            "session": row.session,
            "turn": row.turn,
            "role": row.role,
            "at": row.at,
            "body": _loaded(row.body),
        }
        if row.usage:
            value["usage"] = _loaded(row.usage)
        return json.dumps(self._clean(value), ensure_ascii=False) + "\n"

    def _clean(self, value: Json) -> Json:
        """Take secrets out of every text; what is opaque to us (`state`) is left out."""
        match value:
            case str():
                return self.redact(value).encode("utf-8", "replace").decode()
            case dict():
                return {key: self._clean(one) for key, one in value.items() if key != "state"}
            case list():
                return [self._clean(one) for one in value]
            case _:
                return value

    def markdown(self, row: Row) -> str:
        """Return an entry as a piece of a Markdown document."""
        entry = decode(row.role, row.body)
        when = self._time(entry.at if isinstance(entry, UserEntry) and entry.at else row.at)
        match entry:
            case UserEntry():
                who = _plain(entry.sender.name or entry.sender.id or "User")
                title = f"### {who if entry.kind is Kind.MESSAGE else entry.kind}, {when}"
                files = [f"[{one.kind}: {one.path or one.problem or one.name}]" for one in entry.attachments]
                lines = [f"> {line}" for line in entry.quote.splitlines()]
                text = "\n\n".join([title, *(["\n".join(lines)] if lines else []), *files, entry.text])
            case AssistantEntry():
                made = [f"- calls `{call.name}` {_code(call.args)}" for call in entry.calls]
                text = "\n\n".join([f"### Assistant, {when}", *([entry.text] if entry.text else []), *made])
            case ToolEntry():
                failed = ", failed" if entry.is_error else ""
                text = f"#### Result of {_plain(entry.name)}{failed}\n\n{_indented(entry.text)}"
            case NoteEntry():
                title = "Unreadable entry" if entry.lost else "Summary of what came before"
                text = f"### {title}, {when}\n\n{entry.text}"
        return f"\n{self.redact(text)}\n".encode("utf-8", "replace").decode()


@contextmanager
def _opened(out: Path | None) -> Iterator[TextIO]:
    """Open a new file for its owner alone, stdout for None; half a file is removed again."""
    if out is None:
        yield sys.stdout
        return
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        handle = os.open(out, flags, 0o600)
    except FileExistsError:
        raise ConfigError(f"{out} is there already; choose another name, or remove it first") from None
    except OSError as error:
        raise ConfigError(f"{out} can't be written: {(error.strerror or str(error)).lower()}") from None
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            yield file
    except BaseException:
        out.unlink(missing_ok=True)
        raise


def _loaded(text: str) -> Json:
    """Return JSON as a value; a row that is damaged as its text (agent, bad input)."""
    try:
        return json.loads(text)
    except ValueError:
        return {"unreadable": text}


def _plain(text: str) -> str:
    """Return a name on one line."""
    return " ".join(text.split())


def _code(args: Json) -> str:
    text = json.dumps(args, ensure_ascii=False)
    mark = "``" if "`" in text else "`"
    return f"{mark} {text} {mark}" if "`" in text else f"{mark}{text}{mark}"


def _indented(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.splitlines())


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"
