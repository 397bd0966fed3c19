"""Tells the platform which commands to offer while people type (spec TG-26)."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from adapters.telegram.presence import Call
from gateway.errors import SendError
from gateway.types import Chat, JsonObject

log = logging.getLogger(__name__)

Menus: TypeAlias = Mapping[Chat, Sequence[tuple[str, str]]]
"""Name and description of each command, for private chats and for groups."""

MOST = 100
"""Commands that a menu holds (Bot API setMyCommands)."""

LONGEST = 256
"""Characters of a description (Bot API BotCommand)."""

_NAME = re.compile(r"[a-z0-9_]{1,32}")
_SCOPES = {Chat.DIRECT: "all_private_chats", Chat.GROUP: "all_group_chats"}
_LIMIT = 15


def commands(menu: Sequence[tuple[str, str]]) -> list[JsonObject]:
    """Return what a menu can show of some commands (Bot API BotCommand)."""
    fit = [(name, text[:LONGEST]) for name, text in menu if _NAME.fullmatch(name) and text]
    return [{"command": name, "description": text} for name, text in fit[:MOST]]


async def offer(menus: Menus, call: Call) -> None:
    """Set the menu of each kind of chat, with a second try; without one, commands work all the same."""
    try:
        for chat, menu in menus.items():
            params = {"commands": commands(menu), "scope": {"type": _SCOPES[chat]}}
            try:
                await call("setMyCommands", params, limit=_LIMIT)
            except SendError:
                await call("setMyCommands", params, limit=_LIMIT)
    except SendError as error:
        log.warning("menu.failed", extra={"problem": str(error)})
