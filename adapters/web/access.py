"""What the command line asks of a running gateway: who may talk, why not, heartbeats and schedules."""

from __future__ import annotations

from dataclasses import dataclass

from aiohttp import web

from adapters.web import wire
from adapters.web.answer import as_json, ask, read_body
from adapters.web.reads import Control

USAGE_BY = ("day", "conversation", "model", "sender", "kind")
LONGEST_USAGE = 3660
"""Days that a report may go back."""

KINDS = ("", "tool", "skill")
BEAT_ACTIONS = ("status", "now", "pause", "resume")


@dataclass(frozen=True, slots=True)
class AccessRoutes:
    """Routes of the server, behind its guard."""

    control: Control

    def routes(self) -> list[web.RouteDef]:
        """Return the routes."""
        return [
            web.get("/api/pairing", self._pairing, allow_head=False),
            web.get("/api/why", self._why, allow_head=False),
            web.get("/api/usage", self._usage, allow_head=False),
            web.get("/api/prompt", self._prompt, allow_head=False),
            web.post("/api/pairing/approve", self._approve),
            web.post("/api/pairing/revoke", self._revoke),
            web.post("/api/heartbeat", self._heartbeat),
            web.post("/api/cron", self._cron),
            web.post("/api/memory", self._memory),
            web.get("/api/capabilities", self._tools, allow_head=False),
            web.post("/api/capabilities", self._tool),
        ]

    async def _pairing(self, _: web.Request) -> web.Response:
        return as_json(await ask(self.control.pairing()))

    async def _approve(self, request: web.Request) -> web.Response:
        body = wire.read_object(await read_body(request))
        code, notify = wire.read_text(body, "code"), wire.read_flag(body, "notify")
        return as_json(await ask(self.control.approve(code, notify=notify)))

    async def _revoke(self, request: web.Request) -> web.Response:
        body = wire.read_object(await read_body(request))
        channel, sender = wire.read_text(body, "channel"), wire.read_text(body, "sender")
        return as_json(await ask(self.control.revoke(channel, sender)))

    async def _heartbeat(self, request: web.Request) -> web.Response:
        body = wire.read_object(await read_body(request))
        action, dry_run = wire.read_text(body, "action"), wire.read_flag(body, "dry_run")
        if action not in BEAT_ACTIONS:
            raise wire.bad(f"`action` must be one of {', '.join(BEAT_ACTIONS)}")
        return as_json(await ask(self.control.heartbeat(action, dry_run=dry_run)))

    async def _cron(self, request: web.Request) -> web.Response:
        body = wire.read_object(await read_body(request))
        name = wire.read_text(body, "name") if body.get("name") else ""
        return as_json(await ask(self.control.cron(wire.read_text(body, "action"), name)))

    async def _memory(self, request: web.Request) -> web.Response:
        body = wire.read_object(await read_body(request))
        query = wire.storable(wire.read_text(body, "query")) if body.get("query") else ""
        chats = wire.read_flag(body, "chats")
        return as_json(await ask(self.control.memory(wire.read_text(body, "action"), query, chats=chats)))

    async def _prompt(self, request: web.Request) -> web.Response:
        conversation = wire.storable(wire.read_text(request.query, "conversation"))
        return as_json(await ask(self.control.prompt(conversation)))

    async def _tools(self, request: web.Request) -> web.Response:
        kind, offset = request.query.get("kind", ""), wire.read_number(request.query, "offset", default=0)
        if kind not in KINDS:
            raise wire.bad("`kind` must be tool or skill, or left out")
        return as_json(await ask(self.control.tools(kind, wire.read_limit(request.query), offset or 0)))

    async def _tool(self, request: web.Request) -> web.Response:
        body = wire.read_object(await read_body(request))
        kind, agent, user = (
            wire.read_text(body, name) if body.get(name) else "" for name in ("kind", "agent", "user")
        )
        if kind not in KINDS:
            raise wire.bad("`kind` must be tool or skill, or left out")
        action, name = wire.read_text(body, "action"), wire.read_text(body, "name")
        return as_json(await ask(self.control.tool(action, name, kind=kind, agent=agent, user=user)))

    async def _usage(self, request: web.Request) -> web.Response:
        by, days = request.query.get("by", "day"), request.query.get("days", "30")
        if by not in USAGE_BY:
            raise wire.bad(f"`by` must be one of {', '.join(USAGE_BY)}")
        if not (days.isascii() and days.isdigit() and len(days) < 6 and 0 < int(days) <= LONGEST_USAGE):
            raise wire.bad(f"`days` must be a number from 1 to {LONGEST_USAGE}")
        return as_json(await ask(self.control.usage(by, int(days))))

    async def _why(self, request: web.Request) -> web.Response:
        message = request.query.get("message", "")[: wire.LONGEST_ARGUMENT]
        chat = wire.read_text(request.query, "chat")
        return as_json(await ask(self.control.why(chat, wire.storable(message))))
