"""The tables about platforms: who may talk there, and how."""

from __future__ import annotations

import re
from typing import Annotated, ClassVar, Literal
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    Field,
    SecretStr,
    model_validator,
)

from gateway.config.kinds import MaybeNames, Names, Section, as_account_name, as_http_url, as_patterns
from gateway.types import Json


def _telegram_url(text: str) -> str:
    if re.search(r"/bot[^/]*/?$", urlsplit(text).path):
        raise ValueError("must be the server alone, such as https://api.telegram.org: leave out /bot<token>")
    return as_http_url(text)


def _webhook_url(text: str) -> str:
    if text and urlsplit(as_http_url(text)).scheme != "https":
        raise ValueError("must begin with https://: Telegram posts to nothing else")
    return text


def _webhook_secret(secret: SecretStr) -> SecretStr:
    if (text := secret.get_secret_value()) and not re.fullmatch(r"[A-Za-z0-9_-]{16,256}", text):
        raise ValueError("must have 16 to 256 letters, digits, _ and -; `openssl rand -hex 32` makes one")
    return secret


def _http_proxy(secret: SecretStr) -> SecretStr:
    text = secret.get_secret_value()
    if text.lower().startswith("socks"):
        raise ValueError(
            "must be an HTTP proxy: SOCKS is not spoken here; many SOCKS servers have an HTTP port, too"
        )
    if text and (urlsplit(text).scheme not in ("http", "https") or not urlsplit(text).hostname):
        raise ValueError("must be the address of an HTTP proxy, such as http://127.0.0.1:3128")
    return secret


def _emoji(text: str) -> str:
    if text and (text.isascii() or len(text) > 8 or re.search(r"\w|\s", text)):
        raise ValueError('must be one emoji, such as "👀", or "" for none')
    return text


def _emoji_name(text: str) -> str:
    if not re.fullmatch(r"[a-z0-9_'+-]*", text):
        raise ValueError('must be the name of an emoji without colons, such as "eyes", or "" for none')
    return text


def _slack_channels(ids: tuple[str, ...]) -> tuple[str, ...]:
    for one in ids:
        if one != "*" and not re.fullmatch(r"[CG][A-Z0-9]+", one):
            raise ValueError(
                f'must be ids of channels, such as "C012ABCDEF", or "*", and not {one!r}: the id stands at '
                "the bottom of the channel's details"
            )
    return ids


def _slack_url(text: str) -> str:
    return f"{as_http_url(text)}/"


class TopicSettings(Section):
    """`[channels.*.groups.*.topics.*]`; what is not set is as in the group."""

    enabled: bool = True
    require_mention: bool | None = None
    follow_threads: bool | None = None
    allow_from: MaybeNames = None


class GroupSettings(TopicSettings):
    """`[channels.*.groups.*]`; what is not set is as in the group "*", or else as for all groups."""

    topics: dict[str, TopicSettings] = {}


class ChannelAccess(Section):
    """Who may talk on a channel. The class variables tell what ids look like there.

    `platform_ids` are senders that stand for no person.
    """

    id_prefixes: ClassVar[tuple[str, ...]] = ()
    id_shape: ClassVar[str] = r"\S+"
    group_shape: ClassVar[str] = r"\S+"
    topic_shape: ClassVar[str] = r"\S+"
    platform_ids: ClassVar[frozenset[str]] = frozenset()

    dm_policy: Literal["pairing", "allowlist", "open", "disabled"] = "pairing"
    allow_from: Names = ()
    group_policy: Literal["allowlist", "open", "disabled"] = "allowlist"
    group_allow_from: Names = ()
    require_mention: bool = True
    mention_patterns: Annotated[tuple[str, ...], AfterValidator(as_patterns)] = ()
    follow_threads: bool = False
    groups: dict[str, GroupSettings] = {}


class TelegramAccount(ChannelAccess):
    """`[channels.telegram.accounts.<name>]`: one bot; what it leaves out is as in `[channels.telegram]`."""

    id_prefixes = ("telegram:", "tg:")
    id_shape = r"[1-9][0-9]*"
    group_shape = r"-[1-9][0-9]*"
    topic_shape = r"[0-9]+"
    # Channel posts in their discussion group, anonymous admins, people who write as a channel (access-012).
    platform_ids = frozenset({"777000", "1087968824", "136817688"})

    enabled: bool = True
    token: SecretStr = SecretStr("")
    api_base: Annotated[str, AfterValidator(_telegram_url)] = "https://api.telegram.org"
    proxy: Annotated[SecretStr, AfterValidator(_http_proxy)] = SecretStr("")
    local_files: str = ""
    webhook_url: Annotated[str, AfterValidator(_webhook_url)] = ""
    webhook_secret: Annotated[SecretStr, AfterValidator(_webhook_secret)] = SecretStr("")
    media_max_mb: int = Field(default=20, ge=1, le=200)
    streaming: Literal["auto", "off"] = "auto"
    ack_reaction: Annotated[str, AfterValidator(_emoji)] = "👀"
    ack_scope: Literal["group-mentions", "all", "off"] = "group-mentions"
    ack_remove: bool = False
    link_preview: bool = True
    sends_per_second: float = Field(default=0.0, ge=0, le=1000)

    @property
    def hears_all(self) -> bool:
        """Return whether some group is to be heard that does not name the bot."""
        places = [place for group in self.groups.values() for place in (group, *group.topics.values())]
        return not self.require_mention or any(place.require_mention is False for place in places)


class TelegramSettings(TelegramAccount):
    """`[channels.telegram]`: a bot, and what further bots begin from (spec TG-9)."""

    accounts: dict[Annotated[str, AfterValidator(as_account_name)], TelegramAccount] = {}

    def bots(self) -> dict[str, TelegramAccount]:
        """Return every bot that is to run, by the name of its channel: `telegram`, `telegram-<account>`."""
        found: dict[str, TelegramAccount] = {"telegram": self}
        found |= {f"telegram-{name}": self._account(one) for name, one in self.accounts.items()}
        return {name: one for name, one in found.items() if one.enabled and one.token.get_secret_value()}

    def _given_to_all(self) -> dict[str, Json]:
        names = TelegramAccount.model_fields.keys() - {"token", "webhook_url"}
        return {name: getattr(self, name) for name in names}

    def _account(self, account: TelegramAccount) -> TelegramAccount:
        """Return an account with what it inherits; nobody who is shut out above is let in by a wildcard."""
        own = {name: getattr(account, name) for name in account.model_fields_set}
        for name in ("allow_from", "group_allow_from"):
            above = getattr(self, name)
            if "*" in own.get(name, ()) and above and "*" not in above:
                own[name] = above
        return TelegramAccount(**(self._given_to_all() | own))

    @model_validator(mode="after")
    def _can_run(self) -> TelegramSettings:
        bots = self.bots()
        tokens = [bot.token.get_secret_value() for bot in bots.values()]
        if len(set(tokens)) < len(tokens):
            raise ValueError("two bots have the same token: give each account its own, from @BotFather")
        for name, bot in bots.items():
            if bot.webhook_url and not bot.webhook_secret.get_secret_value():
                raise ValueError(
                    f"{name} has a webhook_url, so that anybody could post to it: set webhook_secret, too"
                )
        return self


class SlackAccount(ChannelAccess):
    """`[channels.slack.accounts.<name>]`: one app in one workspace; the rest is as in `[channels.slack]`."""

    id_prefixes = ("slack:",)
    # People of other workspaces, in channels that are shared with them, are T…/U… (access-018).
    id_shape = r"(?:[TE][A-Z0-9]+/)?[UW][A-Z0-9]+"
    group_shape = r"[CG][A-Z0-9]+"
    topic_shape = r"[0-9]+\.[0-9]+"
    platform_ids = frozenset({"USLACKBOT"})

    follow_threads: bool = True
    enabled: bool = True
    mode: Literal["auto", "socket", "http"] = "auto"
    bot_token: SecretStr = SecretStr("")
    app_token: SecretStr = SecretStr("")
    signing_secret: SecretStr = SecretStr("")
    api_base: Annotated[str, AfterValidator(_slack_url)] = "https://slack.com/api/"
    media_max_mb: int = Field(default=20, ge=1, le=200)
    reply_in_channel: Annotated[Names, AfterValidator(_slack_channels)] = ()
    dm_threads: bool = False
    ring_everybody: Annotated[Names, AfterValidator(_slack_channels)] = ()
    streaming: Literal["auto", "off"] = "auto"
    ack_reaction: Annotated[str, AfterValidator(_emoji_name)] = "eyes"
    ack_scope: Literal["group-mentions", "all", "off"] = "group-mentions"
    ack_remove: bool = False
    link_preview: bool = False

    @property
    def by_socket(self) -> bool:
        """Return whether the app listens by Socket Mode; else Slack posts to us."""
        return self.mode == "socket" or (self.mode == "auto" and bool(self.app_token.get_secret_value()))


class SlackSettings(SlackAccount):
    """`[channels.slack]`: an app in a workspace, and what further ones begin from."""

    accounts: dict[Annotated[str, AfterValidator(as_account_name)], SlackAccount] = {}

    def bots(self) -> dict[str, SlackAccount]:
        """Return every app that is to run, by the name of its channel: `slack`, `slack-<account>`."""
        found: dict[str, SlackAccount] = {"slack": self}
        found |= {f"slack-{name}": self._account(one) for name, one in self.accounts.items()}
        return {name: one for name, one in found.items() if one.enabled and one.bot_token.get_secret_value()}

    def account(self, name: str) -> SlackAccount | None:
        """Return one of the accounts with what it inherits, None if there is none of that name."""
        return self._account(self.accounts[name]) if name in self.accounts else None

    def _account(self, account: SlackAccount) -> SlackAccount:
        """Return an account with what it inherits; nobody who is shut out above is let in by a wildcard."""
        own = {name: getattr(account, name) for name in account.model_fields_set}
        for name in ("allow_from", "group_allow_from"):
            above = getattr(self, name)
            if "*" in own.get(name, ()) and above and "*" not in above:
                own[name] = above
        names = SlackAccount.model_fields.keys() - {"bot_token", "app_token", "signing_secret"}
        return SlackAccount(**({name: getattr(self, name) for name in names} | own))

    @model_validator(mode="after")
    def _can_run(self) -> SlackSettings:
        bots = self.bots()
        tokens = [bot.bot_token.get_secret_value() for bot in bots.values()]
        if len(set(tokens)) < len(tokens):
            raise ValueError("two accounts have the same bot_token: give each workspace its own")
        for name, bot in bots.items():
            if bot.by_socket and not bot.app_token.get_secret_value():
                raise ValueError(f"{name} needs an app_token (xapp-…) for Socket Mode")
            if not bot.by_socket and not bot.signing_secret.get_secret_value():
                raise ValueError(
                    f"{name} has a bot_token and no way in: set app_token, too (Socket Mode), or "
                    "signing_secret if Slack is to post events"
                )
        return self


class ChannelSettings(Section):
    """`[channels.*]`."""

    telegram: TelegramSettings = TelegramSettings()
    slack: SlackSettings = SlackSettings()

    def accounts(self) -> dict[str, ChannelAccess]:
        """Return what is set for each channel that people reach from elsewhere, whether or not it runs."""
        found: dict[str, ChannelAccess] = {"telegram": self.telegram, "slack": self.slack}
        found |= {f"telegram-{name}": one for name, one in self.telegram.accounts.items()}
        return found | {f"slack-{name}": one for name, one in self.slack.accounts.items()}
