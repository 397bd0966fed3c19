"""Opens apps of Slack, and tells how to set one up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gateway.app.parts import Parts
from gateway.config import Loaded, SlackAccount
from gateway.errors import ConfigError
from gateway.store import chats
from gateway.store.journal import has_answered
from gateway.types import JsonObject

if TYPE_CHECKING:
    from adapters.slack import Features, Slack


def open_slack(parts: Parts, name: str, bot: SlackAccount) -> Slack:
    """Return the channel of an app."""
    from adapters.slack import Core, Link, Manner, Place, Slack  # noqa: PLC0415 - only for those who use it

    return Slack(
        name=name,
        link=Link(
            bot_token=bot.bot_token.get_secret_value(),
            app_token=bot.app_token.get_secret_value() if bot.by_socket else "",
            signing_secret=bot.signing_secret.get_secret_value(),
            api_base=bot.api_base,
            path=_path(name.partition("-")[2]),
            largest=bot.media_max_mb * 1_000_000,
            link_preview=bot.link_preview,
        ),
        core=Core(
            cursors=parts.inbox.cursor,
            recall=lambda where, message_id: parts.db.read(lambda tx: chats.sent(tx, where, message_id)),
            answered=lambda where: parts.db.read(lambda tx: has_answered(tx, where)),
            recent=lambda: parts.db.read(lambda tx: chats.recent(tx, name)),
            open_file=parts.open_file,
            feed=parts.feed,
            clock=parts.clock,
        ),
        place=Place(flat=frozenset(bot.reply_in_channel), dm_threads=bot.dm_threads),
        manner=Manner(
            streaming=bot.streaming == "auto",
            ack_reaction=bot.ack_reaction,
            ack_scope=bot.ack_scope,
            ack_remove=bot.ack_remove,
        ),
        everybody=frozenset(bot.ring_everybody),
    )


def manifest(loaded: Loaded, account: str, url: str | None) -> JsonObject:
    """Return the manifest of an app, for `[channels.slack]` if `account` is "".

    `url` is the public address of the HTTP server, "" for Socket Mode, None for what is configured.
    Raises: ConfigError.
    """
    from adapters.slack import app_manifest  # noqa: PLC0415 - only this command needs it

    slack = loaded.settings.channels.slack
    bot = slack.account(account) if account else slack
    if bot is None:
        raise ConfigError(f"there is no [channels.slack.accounts.{account}]; add it, or leave --account out")
    posts_to_us = bot.mode == "http" or (bot.signing_secret.get_secret_value() and not bot.by_socket)
    if url is None and posts_to_us:
        raise ConfigError("Slack is to post events: give the public address of this server, --http https://…")
    posts = f"{url.rstrip('/')}{_path(account)}" if url else ""
    return app_manifest(_features(bot, posts))


def scopes(bot: SlackAccount) -> Sequence[str]:
    """Return the scopes that the bot token of an app needs."""
    from adapters.slack import needed_scopes  # noqa: PLC0415 - only some commands need it

    return needed_scopes(_features(bot))


def _path(account: str) -> str:
    """Return where the HTTP server takes the posts for an account."""
    return f"/slack/{account}/events" if account else "/slack/events"


def _features(bot: SlackAccount, url: str = "") -> Features:
    """Return what a configured app is to do; `url` is where Slack posts to, if it does."""
    from adapters.slack import Features  # noqa: PLC0415 - only some commands need it

    rooms = bot.group_policy != "disabled"
    return Features(
        url=url,
        channels=rooms,
        group_dms=rooms and (bot.group_policy == "open" or any(key[0] in "G*" for key in bot.groups)),
        acks=bool(bot.ack_reaction) and bot.ack_scope != "off",
    )
