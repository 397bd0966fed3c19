"""Fetches the files that messages bring, before a turn takes the messages in."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from gateway.bell import Bell
from gateway.channel import Channel, Fetches
from gateway.clock import Clock
from gateway.errors import DeliveryError, DeliveryRetry, StoreError, ToolError
from gateway.fence import defuse
from gateway.store.inbox import Inbox, Unprepared
from gateway.tools.files import load, save
from gateway.types import FORWARDED, Attachment, Media, Situation
from gateway.workspace import make_room

log = logging.getLogger(__name__)

FOLDER = "media"
"""Where files of messages lie in the workspace."""

TRIES = 3
LONGEST_TRANSCRIPT = 12_000
"""Characters of what a machine heard in a voice note: a quarter of an hour of speech."""

_UNSAFE = re.compile(r"[^\w.-]+")
_LONGEST_NAME = 80


@dataclass(slots=True, kw_only=True)
class Preparer:
    """Fetches `parallel` messages' files at a time, each file at most `most` bytes.

    `folder` returns where the files of a turn belong. `listen` returns what is said in a recording; it may
    raise ToolError and StoreError.
    """

    inbox: Inbox
    channels: Mapping[str, Channel]
    folder: Callable[[Situation], Path]
    bell: Bell
    worker_bell: Bell
    clock: Clock
    most: int = 20_000_000
    parallel: int = 4
    listen: Callable[[Situation, bytes], Awaitable[str]] | None = None
    _busy: set[int] = field(default_factory=set)

    async def serve(self) -> None:
        """Work until cancelled; what is cut off is fetched again after the next start."""
        async with asyncio.TaskGroup() as group:
            while True:
                await self.bell.wait(await self._step(group))

    async def _step(self, group: asyncio.TaskGroup) -> float | None:
        """Start what there is room for; return how many seconds nothing else is to be done."""
        room = self.parallel - len(self._busy)
        try:
            waiting = await self.inbox.unprepared(most=self.parallel + len(self._busy))
        except StoreError as error:
            log.debug("store.waiting", extra={"problem": str(error)})
            return 1.0
        for one in [each for each in waiting if each.id not in self._busy][:room]:
            self._busy.add(one.id)
            group.create_task(self._prepare(one))
        return None

    async def _prepare(self, one: Unprepared) -> None:
        try:
            found = [
                await self._have(one, attachment, f"{one.id}-{number}")
                for number, attachment in enumerate(one.attachments)
            ]
            if self.listen and one.aimed:
                found = await self._heard(one.situation, found)
            await self.inbox.prepared(one.id, found)
        except StoreError as error:
            log.debug("store.waiting", extra={"problem": str(error)})
            await self.clock.sleep(1.0)
        finally:
            self._busy.discard(one.id)
            self.bell.ring()
            self.worker_bell.ring()

    async def _have(self, one: Unprepared, attachment: Attachment, number: str) -> Attachment:
        """Return the attachment with the place where it lies now, or with what prevented that."""
        channel: object = self.channels.get(one.situation.place.channel)
        if not attachment.ref or not isinstance(channel, Fetches):
            return replace(attachment, problem=attachment.problem or "it can't be fetched here")
        try:
            content = await self._fetch(channel, attachment)
            path = f"{_folder(one)}/{number}-{safe_name(attachment)}"
            await asyncio.to_thread(_keep, self.folder(one.situation), path, content)
        except (DeliveryError, DeliveryRetry, ToolError) as error:
            log.warning("media.missing", extra={"problem": str(error)})
            return replace(attachment, problem=str(error))
        except Exception as error:  # root of a fetch: a message must not wait for a file that breaks us
            log.exception("media.failed")
            return replace(attachment, problem=f"it could not be stored ({type(error).__name__})")
        return replace(attachment, path=path, size=len(content))

    async def _heard(self, situation: Situation, found: list[Attachment]) -> list[Attachment]:
        """Return the files with what is said in the first voice note, if it can be heard (spec IN-23)."""
        at = next((at for at, one in enumerate(found) if one.kind is Media.VOICE and one.path), None)
        if self.listen is None or at is None:
            return found
        try:
            content = await asyncio.to_thread(load, self.folder(situation), found[at].path, self.most)
            said = one_line(await self.listen(situation, content))
        except (ToolError, StoreError) as error:
            log.warning("media.unheard", extra={"problem": str(error)})
            return found
        return [*found[:at], replace(found[at], transcript=said), *found[at + 1 :]]

    async def _fetch(self, channel: Fetches, attachment: Attachment) -> bytes:
        if attachment.size > self.most:
            raise DeliveryError(f"it is larger than {self.most // 1_000_000} MB")
        for number in range(1, TRIES):
            try:
                return await channel.fetch(attachment, self.most)
            except DeliveryRetry as error:
                await self.clock.sleep(max(error.after, float(number)))
        return await channel.fetch(attachment, self.most)


def _folder(one: Unprepared) -> str:
    """Return where the files of a message lie: those of strangers never beside the owner's (inject-003)."""
    return f"{FORWARDED}/{FOLDER}" if one.forwarded and one.situation.is_private else FOLDER


def _keep(folder: Path, path: str, content: bytes) -> None:
    if not folder.is_dir():
        make_room(folder)
    save(folder, path, content)


def one_line(transcript: str) -> str:
    """Return what a machine heard as it stands in the line of its file, which it can't leave."""
    line = " ".join(defuse(transcript).split())
    return line if len(line) <= LONGEST_TRANSCRIPT else f"{line[:LONGEST_TRANSCRIPT]} … (cut)"


def safe_name(attachment: Attachment) -> str:
    """Return a name for the workspace; nothing that the sender chose can lead out of its folder."""
    plain = _UNSAFE.sub("_", attachment.name.rsplit("/", 1)[-1]).strip("._")
    if len(plain) > _LONGEST_NAME:
        stem, dot, ending = plain.rpartition(".")
        plain = f"{stem[: _LONGEST_NAME - 10]}{dot}{ending[:8]}" if dot else plain[:_LONGEST_NAME]
    return plain or attachment.kind
