"""What the command line asks of the gateway: over HTTP while one runs, else of the database."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from datetime import date, timedelta
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias
from urllib.parse import urlencode

from gateway import pairing, why
from gateway.access import Policy
from gateway.capabilities import Capabilities
from gateway.config import HttpSettings
from gateway.errors import ConfigError, StoreError
from gateway.heartbeat import Heartbeat
from gateway.recall import Recall
from gateway.store import fates, members, usage
from gateway.store.engine import Database
from gateway.store.usage import Ledger
from gateway.timetable import Timetable
from gateway.types import Address, JsonObject

if TYPE_CHECKING:
    from gateway.context import Contexts

TIMEOUT = 30.0
LONG = 3600.0
"""Seconds for what may take long: vectors of many notes."""

LARGEST = 2**20
"""Bytes of an answer."""


def place_of(http: HttpSettings) -> tuple[str, int]:
    """Return the host and the port at which the gateway of this machine answers.

    Raises: ConfigError, if only what it printed at its start tells the port.
    """
    if not http.port:
        raise ConfigError(
            "a gateway has this database, but [http] port = 0 keeps it from being asked; "
            "stop it, or set a port and start it again"
        )
    return http.here, http.port


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreControl:
    """Plain JSON about who may talk, and why, about heartbeats and schedules. May raise StoreError.

    `owned`: the configuration names an owner. `sent` is called when there is a message to send. `beats`
    and `contexts` return the heartbeats and the prompts, None before they are wired; `notes` is the folder
    that `recall` searches for the owner; `idle`: no gateway runs that could act on them.
    """

    db: Database
    policies: Mapping[str, Policy]
    owned: bool
    sent: Callable[[], None]
    beats: Callable[[], Heartbeat | None] = lambda: None
    timetable: Timetable | None = None
    recall: Recall | None = None
    notes: Path = field(default_factory=Path)
    ledger: Ledger = field(default_factory=Ledger)
    contexts: Callable[[], Contexts | None] = lambda: None
    capabilities: Callable[[], Capabilities | None] = lambda: None
    idle: bool = False

    async def pairing(self) -> JsonObject:
        """Return `requests` and `members`, see `pairing.everybody`."""
        now = self.db.now()
        return await self.db.read(lambda tx: pairing.everybody(tx, now))

    async def approve(self, code: str, *, notify: bool) -> JsonObject:
        """Let in whoever got this code; return `{"person": …}`, null if nobody did."""
        now = self.db.now()
        person = await self.db.write(
            lambda tx: pairing.approve(tx, code, now, owned=self.owned, notify=notify)
        )
        if person is not None and notify:
            self.sent()
        return {"person": pairing.person_json(person) if person else None}

    async def revoke(self, channel: str, sender: str) -> JsonObject:
        """Undo an approval or close a request; return `{"found": bool}`."""
        return {"found": await self.db.write(lambda tx: members.revoke(tx, channel, sender))}

    async def why(self, chat: str, message: str) -> JsonObject:
        """Return `{"message": …}` as `why.explain` does, null if nothing is known."""
        now = self.db.now()
        found = await self.db.read(lambda tx: fates.newest(tx, chat, message, now))
        return {"message": why.explain(found, self.policies) if found else None}

    async def usage(self, by: str, days: int) -> JsonObject:
        """Return what was used in so many days, today included, see `store.usage.report`."""
        since = date.fromisoformat(self.ledger.today()) - timedelta(days=days - 1)
        return await self.db.read(lambda tx: usage.report(tx, by, since))

    async def prompt(self, conversation: str) -> JsonObject:
        """Return `{"prompt": …}` as `Contexts.show` does, null for an unknown conversation."""
        contexts, address = self.contexts(), Address.named(conversation)
        if contexts is None:
            raise StoreError("the gateway is starting: try again")
        return {"prompt": await self.db.write(lambda tx: contexts.show(tx, address), durable=False)}

    async def cron(self, action: str, name: str) -> JsonObject:
        """Act on schedules, see `Timetable`."""
        if self.timetable is None:
            return {"problem": "there are no schedules here"}
        return await self.timetable.cron(action, name)

    async def memory(self, action: str, query: str, *, chats: bool) -> JsonObject:
        """Act on the index of the owner's notes, see `Recall.act`; with `chats` search what was said."""
        if self.recall is None:
            return {"problem": "there are no notes here"}
        try:
            return {"text": await self.recall.act(self.notes, action, query, chats=chats)}
        except ValueError as error:
            return {"problem": str(error)}

    async def tools(self, kind: str, limit: int, offset: int) -> JsonObject:
        """Return a page of the tools and skills, see `Capabilities.listed`."""
        return await self._capabilities().listed(kind, limit, offset)

    async def tool(self, action: str, name: str, *, kind: str, agent: str, user: str) -> JsonObject:
        """Switch, bind or remove one, see `Capabilities.act`."""
        return await self._capabilities().act(action, name, kind, agent, user)

    def _capabilities(self) -> Capabilities:
        found = self.capabilities()
        if found is None:
            raise StoreError("the gateway is starting: try again")
        return found

    async def heartbeat(self, action: str, *, dry_run: bool) -> JsonObject:
        """Act on heartbeats (status, now, pause, resume); `text` tells people what came of it.

        Raises: ConfigError when nobody is there to do it.
        """
        if self.idle and action == "now" and not dry_run:
            raise ConfigError("no gateway is running that could do it; start one with `crayfish run`")
        beats = self.beats()
        if beats is None:
            raise StoreError("the gateway is starting: try again")
        return await beats.act(action, dry_run=dry_run)


@dataclass(frozen=True, slots=True)
class RemoteControl:
    """The same, answered by the gateway that runs on this machine. Raises: ConfigError, StoreError."""

    http: HttpSettings

    async def pairing(self) -> JsonObject:
        return await self._ask("GET", "/api/pairing")

    async def approve(self, code: str, *, notify: bool) -> JsonObject:
        return await self._ask("POST", "/api/pairing/approve", {"code": code, "notify": notify})

    async def revoke(self, channel: str, sender: str) -> JsonObject:
        return await self._ask("POST", "/api/pairing/revoke", {"channel": channel, "sender": sender})

    async def why(self, chat: str, message: str) -> JsonObject:
        return await self._ask("GET", f"/api/why?{urlencode({'chat': chat, 'message': message})}")

    async def prompt(self, conversation: str) -> JsonObject:
        return await self._ask("GET", f"/api/prompt?{urlencode({'conversation': conversation})}")

    async def usage(self, by: str, days: int) -> JsonObject:
        return await self._ask("GET", f"/api/usage?{urlencode({'by': by, 'days': days})}")

    async def heartbeat(self, action: str, *, dry_run: bool) -> JsonObject:
        return await self._ask("POST", "/api/heartbeat", {"action": action, "dry_run": dry_run})

    async def tools(self, kind: str, limit: int, offset: int) -> JsonObject:
        """Return a page of the tools and skills, see `capabilities.Capabilities`."""
        query = {"limit": limit, "offset": offset} | ({"kind": kind} if kind else {})
        return await self._ask("GET", f"/api/capabilities?{urlencode(query)}")

    async def tool(self, action: str, name: str, *, kind: str, agent: str, user: str) -> JsonObject:
        """Switch, bind or remove one, see `capabilities.Capabilities`."""
        body = {"action": action, "name": name, "kind": kind, "agent": agent, "user": user}
        return await self._ask("POST", "/api/capabilities", body)

    async def cron(self, action: str, name: str) -> JsonObject:
        """Act on schedules, see `timetable.Timetable`."""
        return await self._ask("POST", "/api/cron", {"action": action, "name": name})

    async def memory(self, action: str, query: str, *, chats: bool) -> JsonObject:
        """Act on the index of the owner's notes, see `recall.Recall.act`."""
        body = {"action": action, "query": query, "chats": chats}
        return await self._ask("POST", "/api/memory", body, LONG)

    async def _ask(
        self, method: str, path: str, body: JsonObject | None = None, patience: float = TIMEOUT
    ) -> JsonObject:
        return await asyncio.to_thread(self._answer, method, path, body, patience)

    def _answer(self, method: str, path: str, body: JsonObject | None, patience: float) -> JsonObject:
        """Raise ConfigError when nothing answers or the token is wrong, StoreError when it can't now."""
        headers = {"Content-Type": "application/json"} if body is not None else {}
        if token := self.http.token.get_secret_value():
            headers["Authorization"] = f"Bearer {token}"
        host, port = place_of(self.http)
        try:
            with closing(HTTPConnection(host, port, timeout=patience)) as connection:
                connection.request(method, path, json.dumps(body) if body is not None else None, headers)
                response = connection.getresponse()
                found = json.loads(response.read(LARGEST))
        except (OSError, HTTPException, ValueError) as error:
            raise ConfigError(
                f"a gateway has this database, but does not answer at {host}:{port} ({error}); "
                "check that this is its config file, or stop it and try again"
            ) from error
        if response.status == 200:
            return dict(found)
        message = str(found.get("error", {}).get("message", response.status))
        raise (
            StoreError(message) if response.status == 503 else ConfigError(f"the gateway refuses: {message}")
        )


Control: TypeAlias = StoreControl | RemoteControl
