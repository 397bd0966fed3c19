"""Tools of servers as the gateway's own: asked about, called, and what they bring kept apart."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gateway.errors import ToolDenied
from gateway.mcp import results
from gateway.mcp.listing import Listed, Listing, names
from gateway.mcp.server import CONNECT, Server
from gateway.tools.base import Ask, Group, Output, ToolContext
from gateway.types import Json, Replay


@dataclass(frozen=True, slots=True)
class Manner:
    """How the owner wants the tools of a server to be used.

    `asks`: each call is asked about. `trusts`: what the server says of its tools is believed.
    """

    asks: bool = True
    trusts: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerTool:
    """A tool of a server. Its results are what strangers wrote, and mostly of accounts of the owner's."""

    name: str
    listed: Listed
    server: Server
    manner: Manner
    group: Group = Group.PLUGINS
    private: bool = True

    @property
    def description(self) -> str:
        return self.listed.description or f"{self.listed.tool}, of the MCP server {self.server.name}"

    @property
    def parameters(self) -> Mapping[str, Json]:
        return self.listed.parameters

    @property
    def replay(self) -> Replay:
        """Return SAFE only for what a server that the owner trusts says to only read."""
        return Replay.SAFE if self.manner.trusts and self.listed.reads_only else Replay.ONCE

    @property
    def timeout(self) -> float:
        """Return the seconds of a call, with those to start the server."""
        return self.server.timeout + CONNECT

    def taints(self, _args: Mapping[str, Json]) -> bool:
        """Return that what a server says is a stranger's."""
        return True

    async def check(self, args: Mapping[str, Json], context: ToolContext) -> Ask | None:
        """Ask, unless the owner wants it otherwise.

        "Always" holds as long as the tool is described as it was; after strangers' words were read it holds
        only for servers that are trusted.
        """
        if not self.manner.asks:
            return None
        detail = json.dumps(args, indent=2, ensure_ascii=False, sort_keys=True)
        known = f"{self.server.name}\0{self.listed.digest}"
        keeps = self.manner.trusts or not context.tainted
        return Ask(
            title=f"Use {self.listed.tool} of the MCP server {self.server.name}",
            detail=f"{self.listed.tool}\n{detail}",
            binding=hashlib.sha256(f"{known}\0{detail}".encode("utf-8", "replace")).hexdigest(),
            rule=hashlib.sha256(known.encode()).hexdigest() if keeps else "",
        )

    async def __call__(self, args: Mapping[str, Json], context: ToolContext) -> str | Output:
        """Call it. Raises: ToolError."""
        ask = await self.check(args, context)
        if ask is not None and ask.binding != context.approved:
            raise ToolDenied("nobody has allowed just this call; nothing was run")
        result = await self.server.call(self.listed.tool, args)
        return await asyncio.to_thread(results.output, result, self.server.name, context.folder)


def server_tools(found: Listing, server: Server, manner: Manner) -> Sequence[ServerTool]:
    """Return the tools that a server brings."""
    return [
        ServerTool(name=name, listed=one, server=server, manner=manner)
        for name, one in zip(names(server.name, found.tools), found.tools, strict=True)
    ]
