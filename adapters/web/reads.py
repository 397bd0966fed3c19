"""What the page may ask of the store; the app answers."""

from __future__ import annotations

from typing import Protocol

from gateway.types import Address, JsonObject


class Reads(Protocol):
    """Answers in plain JSON, about the conversations of the channel `web` only. May raise StoreError."""

    async def sessions(self, limit: int) -> list[JsonObject]:
        """Return `{"session", "at"}` of the sessions used last, newest first; `at` is UNIX seconds."""
        ...

    async def messages(self, session: str, limit: int, before: int | None) -> list[JsonObject]:
        """Return `{"seq", "role", "text", "at"}` of the newest entries (below `before`), oldest first."""
        ...

    async def replies_after(self, session: str, after: int) -> list[JsonObject]:
        """Return `{"id", "text", "task"}` of the outgoing messages above `after`, oldest first.

        `id` is the outbox's. A message counts from its commit, whatever the state of its delivery;
        `task` is the task that it answers, or "". One with buttons has also `name` and `buttons`, rows of
        `[label, value]`; one that takes its place has that name as `replaces`.
        """
        ...

    async def questions(self, session: str) -> list[JsonObject]:
        """Return `{"id", "text", "name", "buttons"}` of the questions that still wait for a decision."""
        ...

    async def last_reply(self, session: str) -> int:
        """Return the id of the newest outgoing message, 0 if there is none."""
        ...

    async def reply_to(self, key: str) -> str | None:
        """Return what people got for the stimulus with this key ("" for silence), None while it is open.

        A command's answer counts too.
        """
        ...

    async def question_of(self, key: str) -> JsonObject | None:
        """Return `{"text", "name", "buttons"}` of what must be allowed before this stimulus is answered."""
        ...

    async def notice_of(self, key: str) -> str | None:
        """Return what people were told if the turn for this stimulus waits for another day, else None."""
        ...

    async def health(self) -> JsonObject:
        """Return `{"status": "ready" | "starting" | "draining" | "degraded", …}`, without secrets."""
        ...

    async def stop(self, address: Address) -> int:
        """Stop the turn of a conversation and clear what waits; return how many were stopped."""
        ...


class Control(Protocol):
    """Who may talk, and why the bot did not answer; plain JSON. May raise StoreError."""

    async def pairing(self) -> JsonObject:
        """Return `{"requests": […], "members": […]}`."""
        ...

    async def approve(self, code: str, *, notify: bool) -> JsonObject:
        """Let in whoever got this code; return `{"person": …}`, null if nobody did."""
        ...

    async def revoke(self, channel: str, sender: str) -> JsonObject:
        """Undo an approval or close a request; return `{"found": bool}`."""
        ...

    async def why(self, chat: str, message: str) -> JsonObject:
        """Return `{"message": …}`: what became of a message, the newest one for ""; null if it is unknown."""
        ...

    async def prompt(self, conversation: str) -> JsonObject:
        """Return `{"prompt": …}`: what the model is sent for a conversation; null if it is unknown."""
        ...

    async def usage(self, by: str, days: int) -> JsonObject:
        """Return `{"by", "since", "rows", "total"}`: what was used in so many days, today included."""
        ...

    async def tools(self, kind: str, limit: int, offset: int) -> JsonObject:
        """Return `{"capabilities", "total", "problems"}`: a page of tools or skills, of both for ""."""
        ...

    async def tool(self, action: str, name: str, *, kind: str, agent: str, user: str) -> JsonObject:
        """Switch, bind or remove a tool or a skill; return as `cron` does."""
        ...

    async def heartbeat(self, action: str, *, dry_run: bool) -> JsonObject:
        """Act on heartbeats (status, now, pause, resume); `text` tells people what came of it."""
        ...

    async def cron(self, action: str, name: str) -> JsonObject:
        """Act on schedules; return `{"text": …}`, or `{"problem": …}` when it can't be done."""
        ...

    async def memory(self, action: str, query: str, *, chats: bool) -> JsonObject:
        """Act on the index of notes, or search in them; return as `cron` does."""
        ...
