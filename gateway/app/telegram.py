"""Opens bots of Telegram."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

from gateway.app.parts import Parts
from gateway.commands import menu
from gateway.config import TelegramAccount
from gateway.store import chats
from gateway.store.engine import Database
from gateway.types import Address, Chat

if TYPE_CHECKING:
    from adapters.telegram import Telegram

log = logging.getLogger(__name__)


def open_telegram(parts: Parts, name: str, bot: TelegramAccount) -> Telegram:
    """Return the channel of a bot."""
    from adapters.telegram import Link, Manner, Telegram, Webhook, proxy_for  # noqa: PLC0415 - only for those who use it

    secret, url = bot.webhook_secret.get_secret_value(), bot.webhook_url
    return Telegram(
        token=bot.token.get_secret_value(),
        api_base=bot.api_base,
        clock=parts.clock,
        cursors=parts.inbox.cursor,
        name=name,
        link=Link(
            proxy=proxy_for(bot.api_base, bot.proxy.get_secret_value(), parts.env),
            local_files=Path(bot.local_files) if bot.local_files else None,
            webhook=Webhook.of(name, url, secret) if url else None,
            largest=bot.media_max_mb * 1_000_000,
            sends_per_second=bot.sends_per_second,
            link_preview=bot.link_preview,
            hears_all=bot.hears_all,
        ),
        move=lambda old, new: _move(parts.db, old, new),
        recall=lambda where, message_id: parts.db.read(lambda tx: chats.sent(tx, where, message_id)),
        feed=parts.feed,
        manner=Manner(
            streaming=bot.streaming == "auto",
            ack_reaction=bot.ack_reaction,
            ack_scope=bot.ack_scope,
            ack_remove=bot.ack_remove,
        ),
        menus={chat: menu(chat) for chat in Chat},
        open_file=parts.open_file,
    )


async def _move(db: Database, old: Address, new: Address) -> None:
    moved = await db.write(lambda tx: chats.move(tx, old, new))
    log.warning("chat.moved", extra={"old": old.shown, "new": new.shown, "conversations": moved})
