"""The configuration: what may be set, what holds when nothing is, and how a file is read."""

from __future__ import annotations

import difflib
import ipaddress
import json
import os
import re
import tomllib
import zoneinfo
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar, Literal, TypeAlias, get_args, get_origin
from urllib.parse import unquote, urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    ValidationError,
    model_validator,
)
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from gateway.errors import ConfigError
from gateway.patterns import problem_of
from gateway.types import Json, JsonObject

SQLITE = "sqlite+aiosqlite:///"
POSTGRES = "postgresql+asyncpg://"

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_LONGEST = 365 * 86400


def duration(text: str) -> int:
    """Return the seconds of `90s`, `30m`, `1h30m` or `2d`; `0` and `0m` are 0, which turns things off.

    Raises: ValueError, which says what is allowed.
    """
    if text == "0":
        return 0
    if not re.fullmatch(r"(\d{1,9}[smhd])+", text):
        raise ValueError("must be a number and a unit, such as 90s, 30m, 1h30m or 2d (0m is off)")
    total = sum(int(number) * _UNITS[unit] for number, unit in re.findall(r"(\d+)([smhd])", text))
    if total > _LONGEST:
        raise ValueError("must be at most 365d")
    return total


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach an address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _duration_text(text: str) -> str:
    duration(text)
    return text


def _http_url(text: str) -> str:
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("must be an address that begins with http:// or https://")
    return text.rstrip("/")


def _http_url_or_none(text: str) -> str:
    return _http_url(text) if text else ""


def _telegram_url(text: str) -> str:
    if re.search(r"/bot[^/]*/?$", urlsplit(text).path):
        raise ValueError("must be the server alone, such as https://api.telegram.org: leave out /bot<token>")
    return _http_url(text)


def _webhook_url(text: str) -> str:
    if text and urlsplit(_http_url(text)).scheme != "https":
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


def _account_name(text: str) -> str:
    if not re.fullmatch(r"[a-z0-9][a-z0-9_-]{0,31}", text):
        raise ValueError("must be a short name of small letters, digits, _ and -")
    return text


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
    return f"{_http_url(text)}/"


def _store_url(text: str) -> str:
    if text.startswith(POSTGRES):
        if not urlsplit(text).path.strip("/"):
            raise ValueError(f"must name a database: {POSTGRES}user:password@host/database")
    elif text.startswith(SQLITE):
        if text.removeprefix(SQLITE).partition("?")[0] in ("", ":memory:"):
            raise ValueError(f"must name a file: {SQLITE}crayfish.db")
    elif text:
        raise ValueError(f"must begin with {SQLITE} (a file) or {POSTGRES} (a server)")
    return text


def _zone(text: str) -> str:
    try:
        if text:
            zoneinfo.ZoneInfo(text)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        near = difflib.get_close_matches(text, zoneinfo.available_timezones(), 1) or ["Europe/Berlin"]
        raise ValueError(f"must be a known time zone, such as {near[0]}") from None
    return text


def _names(value: Json) -> Json:
    if not isinstance(value, list | tuple):
        raise ValueError('must be a list, such as [42, "*"]')  # noqa: TRY004 - pydantic reads ValueError
    return tuple(
        str(one) if type(one) is int else one.strip() if isinstance(one, str) else one for one in value
    )


def _as_text(value: Json) -> Json:
    return str(value) if type(value) is int else value


def _off_or_minutes(value: Json) -> Json:
    """Read what people write for an interval beside texts: `false` is off, a bare number is minutes."""
    if value is False or value == "off":
        return "0m"
    return f"{value}m" if type(value) is int else value


def _interval(text: str) -> str:
    if text and 0 < duration(text) < 60:
        raise ValueError("must be at least 1m (0m is off)")
    return text


def _time_of_day(text: str) -> str:
    if not re.fullmatch(r"([01][0-9]|2[0-3]):[0-5][0-9]|24:00", text):
        raise ValueError('must be a time of day from "00:00" to "24:00", such as "08:30"')
    return text


def _start_of_day(text: str) -> str:
    if _time_of_day(text) == "24:00":
        raise ValueError('must be before "24:00": midnight is "00:00"')
    return text


def _days(text: str) -> str:
    if duration(text) < 86_400:
        raise ValueError("must be at least 1d: what a platform repeats within a day is known by it")
    return text


def _days_or_ever(text: str) -> str:
    if 0 < duration(text) < 86_400:
        raise ValueError("must be at least 1d (0d is for ever)")
    return text


def _target(text: str) -> str:
    if text in ("owner", "last", "none") or re.fullmatch(r"[a-z][a-z0-9_-]*:[^:\s]+(:\S+)?", text):
        return text
    raise ValueError('must be "owner", "last", "none" or "channel:chat", such as "telegram:123456789"')


def _owners(names: tuple[str, ...]) -> tuple[str, ...]:
    for name in names:
        if not re.fullmatch(r"[a-z]+:[^:\s*]+", name):
            raise ValueError(f'"{name}" must name channel and person, such as "telegram:123456789"')
    return names


def _patterns(patterns: tuple[str, ...]) -> tuple[str, ...]:
    for pattern in patterns:
        if problem := problem_of(pattern):
            raise ValueError(f"the pattern {pattern!r} {problem}")
    return patterns


Duration: TypeAlias = Annotated[str, AfterValidator(_duration_text)]
Names: TypeAlias = Annotated[tuple[str, ...], BeforeValidator(_names)]
MaybeNames: TypeAlias = Annotated[tuple[str, ...] | None, BeforeValidator(_names)]


class Section(BaseModel):
    """A table of the file; an unknown key is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


class ModelSettings(Section):
    """`[model]`: which model answers."""

    dialect: Literal["auto", "openai", "anthropic", "ollama", "demo"] = "auto"
    base_url: Annotated[str, AfterValidator(_http_url_or_none)] = ""
    name: str = ""
    api_key: SecretStr = SecretStr("")
    fallbacks: tuple[str, ...] = ()
    max_tokens: int = Field(default=8000, ge=1)
    context_window: int = Field(default=128_000, ge=2000)
    idle_timeout: float = Field(default=120.0, gt=0)


class StoreSettings(Section):
    """`[store]`: where conversations live. The address may hold a password."""

    url: Annotated[str, AfterValidator(_store_url)] = Field(default="", repr=False)


class WorkspaceSettings(Section):
    """`[workspace]`: the folder the agent lives and works in."""

    path: str = ""
    heartbeat_md: Literal["beats", "always"] = "beats"


class AgentSettings(Section):
    """`[agent]`: how a turn runs."""

    max_turns: int = Field(default=50, ge=1)
    parallel: int = Field(default=64, ge=1)
    timezone: Annotated[str, AfterValidator(_zone)] = ""


class BindingSettings(Section):
    """`[[bindings]]`: where an agent answers; what is left out fits everything."""

    agent: str
    channel: str = ""
    chat: Annotated[str, BeforeValidator(_as_text)] = ""
    thread: Annotated[str, BeforeValidator(_as_text)] = ""
    sender: Annotated[str, BeforeValidator(_as_text)] = ""

    @model_validator(mode="after")
    def _is_bound(self) -> BindingSettings:
        if (self.chat or self.thread or self.sender) and not self.channel:
            raise ValueError("chat, thread and sender need a channel: ids mean nothing without one")
        if not self.channel:
            raise ValueError('channel is missing: name where the agent answers, such as "telegram"')
        return self


class HttpSettings(Section):
    """`[http]`: the web page and the API."""

    enabled: bool = True
    host: str = "127.0.0.1"
    port: int = Field(default=8787, ge=0, le=65535)
    token: SecretStr = SecretStr("")

    @model_validator(mode="after")
    def _closed_beyond_loopback(self) -> HttpSettings:
        if self.enabled and not is_loopback(self.host) and not self.token.get_secret_value():
            raise ValueError(
                f'other machines can reach host {self.host!r}: set http.token too, or host = "127.0.0.1"'
            )
        return self


class ActiveHours(Section):
    """`[heartbeat.active_hours]`: from `start` until before `end`, which may be on the next day."""

    start: Annotated[str, AfterValidator(_time_of_day)] = "00:00"
    end: Annotated[str, AfterValidator(_time_of_day)] = "24:00"
    timezone: Annotated[str, AfterValidator(_zone)] = ""

    @model_validator(mode="after")
    def _is_some_time(self) -> ActiveHours:
        if self.start == "24:00":
            raise ValueError('start must be before "24:00"')
        if self.start == self.end:
            raise ValueError(
                f'start and end are both "{self.start}", which is never: for the whole day write '
                'start = "00:00" and end = "24:00"; to turn heartbeats off, every = "0m"'
            )
        return self


class HeartbeatSettings(Section):
    """`[heartbeat]`: when the bot wakes itself up, and where it tells what it found."""

    every: Annotated[str, BeforeValidator(_off_or_minutes), AfterValidator(_interval)] = ""
    prompt: str = ""
    target: Annotated[str, AfterValidator(_target)] = "owner"
    isolated: bool = True
    light: bool = True
    model: str = ""
    ack_max_chars: int = Field(default=300, ge=0)
    daily_tokens: int = Field(default=500_000, ge=0)
    max_rounds: int = Field(default=15, ge=1)
    idle_every: int = Field(default=1, ge=1)
    active_hours: ActiveHours = ActiveHours()


def _tool_names(names: tuple[str, ...]) -> tuple[str, ...]:
    for name in names:
        group = name.removeprefix("group:")
        if name.startswith("group:") and group not in TOOL_GROUPS:
            near = difflib.get_close_matches(group, TOOL_GROUPS, 1) or [", ".join(TOOL_GROUPS)]
            raise ValueError(f'there is no "{name}": did you mean group:{near[0]}?')
        if not re.fullmatch(r"(group:)?[A-Za-z0-9_*?-]{1,80}", name):
            raise ValueError(
                f'"{name}" must be the name of a tool, a pattern such as "mcp__*", or "group:web"'
            )
    return names


ToolNames: TypeAlias = Annotated[Names, AfterValidator(_tool_names)]
MaybeToolNames: TypeAlias = Annotated[MaybeNames, AfterValidator(lambda names: names and _tool_names(names))]

TOOL_GROUPS = (
    *("fs", "runtime", "web", "memory", "sessions"),
    *("messaging", "automation", "plan", "skills", "plugins"),
)
"""What `group:…` may name."""


class ToolLayer(Section):
    """A table of `[tools]` for some turns: what `allow` names, if it is there, and never what `deny` does."""

    allow: MaybeToolNames = None
    deny: ToolNames = ()


class AgentTools(Section):
    """`[agents.<name>.tools]`: which tools an agent has at all."""

    profile: Literal["minimal", "coding", "messaging", "local", "full"] = "full"
    allow: ToolNames = ()
    deny: ToolNames = ()


def _place_key(text: str) -> str:
    if not re.fullmatch(r"[a-z][a-z0-9_-]*(:[^:\s]+(:\S*)?)?", text):
        raise ValueError(
            'must be a channel, "channel:chat" or "channel:chat:thread", such as "telegram:-100123"'
        )
    return text


def _person_key(text: str) -> str:
    if not re.fullmatch(r"[a-z][a-z0-9_-]*:[^:\s*]+", text):
        raise ValueError('must be "channel:person", such as "telegram:123456789"')
    return text


_PEOPLE = (
    *("read", "write", "edit", "list_dir", "search", "cron", "image", "audio"),
    *("group:memory", "group:web", "group:plan", "group:skills"),
)
_GROUPS = ("read", "list_dir", "search", "group:memory", "group:web", "group:plan")


class PeopleTools(ToolLayer):
    """`[tools.people]`: whoever was let in, in private."""

    allow: MaybeToolNames = _PEOPLE


class GroupTools(ToolLayer):
    """`[tools.groups]`: everybody in a group, the owner too."""

    allow: MaybeToolNames = _GROUPS


class NoTools(ToolLayer):
    """`[tools.guests]`, `[tools.unattended]`: nothing unless it is named."""

    allow: MaybeToolNames = ()


class ToolSettings(AgentTools):
    """`[tools]`: what the model may use, and for whom (reliability 4.5)."""

    people: PeopleTools = PeopleTools()
    groups: GroupTools = GroupTools()
    guests: NoTools = NoTools()
    unattended: NoTools = NoTools()
    conversations: dict[Annotated[str, AfterValidator(_place_key)], ToolLayer] = {}
    senders: dict[Annotated[str, AfterValidator(_person_key)], ToolLayer] = {}


class AgentProfile(Section):
    """`[agents.<name>]`: another agent, with a workspace of its own."""

    workspace: str = ""
    model: str = ""
    skills: tuple[str, ...] | None = None
    tools: AgentTools = AgentTools()


def _web_hosts(names: tuple[str, ...]) -> tuple[str, ...]:
    for name in names:
        if not re.fullmatch(r"[a-z0-9_-]+(\.[a-z0-9_-]+)*", name):
            raise ValueError(f'"{name}" must be a host in small letters, such as "example.com"')
    return names


def _web_places(names: tuple[str, ...]) -> tuple[str, ...]:
    for name in names:
        found = re.fullmatch(r"(?:[a-z0-9_-]+(?:\.[a-z0-9_-]+)*|\[([0-9a-f:.]+)\])(?::[0-9]{1,5})?", name)
        if not found or (found[1] and _compressed(found[1]) != found[1]):
            raise ValueError(
                f'"{name}" must be a host with or without port, such as "192.168.1.5:8123" or "[fd00::5]"'
            )
    return names


def _compressed(address: str) -> str:
    """Return an IPv6 address in its shortest form, which is the one that is compared."""
    try:
        return str(ipaddress.IPv6Address(address))
    except ValueError:
        return ""


def _web_url(text: str) -> str:
    if text and (urlsplit(text).username is not None or urlsplit(text).query or urlsplit(text).fragment):
        raise ValueError("must be an address alone, without user, ? or #; a key belongs into search_key")
    return _http_url_or_none(text)


def _header_value(secret: SecretStr) -> SecretStr:
    if not re.fullmatch(r"[!-~]*", secret.get_secret_value()):
        raise ValueError("holds blanks or characters outside ASCII: copy it again")
    return secret


class WebSettings(Section):
    """`[web]`: what the tools `web_fetch` and `web_search` may reach, and what they ask."""

    search: Literal["", "brave", "tavily", "searxng", "ddgs"] = ""
    search_key: Annotated[SecretStr, AfterValidator(_header_value)] = SecretStr("")
    search_url: Annotated[str, AfterValidator(_web_url)] = ""
    max_results: int = Field(default=5, ge=1, le=10)
    fetch_max_chars: int = Field(default=15_000, ge=1000, le=15_000)
    allow_hosts: Annotated[tuple[str, ...], AfterValidator(_web_hosts)] = ()
    deny_hosts: Annotated[tuple[str, ...], AfterValidator(_web_hosts)] = ()
    allow_private: Annotated[tuple[str, ...], AfterValidator(_web_places)] = ()
    ports: tuple[Annotated[int, Field(ge=1, le=65535)], ...] = Field(
        default=(80, 443, 8080, 8443), min_length=1
    )

    @model_validator(mode="after")
    def _can_search(self) -> WebSettings:
        if self.search in ("brave", "tavily") and not self.search_key.get_secret_value():
            raise ValueError(f'search = "{self.search}" needs a search_key')
        if self.search == "searxng" and not self.search_url:
            raise ValueError('search = "searxng" needs a search_url, such as "http://127.0.0.1:8888"')
        return self


class MediaSettings(Section):
    """`[media]`: models that look at pictures and listen to recordings, beside the usual one."""

    image_model: str = ""
    audio_model: str = ""
    audio_base_url: Annotated[str, AfterValidator(_http_url_or_none)] = ""
    audio_api_key: Annotated[SecretStr, AfterValidator(_header_value)] = SecretStr("")
    transcribe: bool = False

    @model_validator(mode="after")
    def _can_listen(self) -> MediaSettings:
        if self.audio_model:
            return self
        if self.transcribe:
            raise ValueError('transcribe = true needs an audio_model, such as "whisper-1"')
        if self.audio_base_url or self.audio_api_key.get_secret_value():
            raise ValueError('audio_base_url and audio_api_key need an audio_model, such as "whisper-1"')
        return self


class PriceSettings(Section):
    """`[usage.prices.<model>]`: USD per million tokens. What has no price of its own costs like `input`."""

    input: float = Field(ge=0, allow_inf_nan=False)
    output: float = Field(ge=0, allow_inf_nan=False)
    cached: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    cache_write: float | None = Field(default=None, ge=0, allow_inf_nan=False)


class UsageSettings(Section):
    """`[usage]`: what models cost. There is no list of ours, for it would soon be wrong."""

    prices: dict[str, PriceSettings] = {}


class RateSettings(Section):
    """`[limits.per_sender_per_minute]`: how many turns one person may begin; 0 is no limit.

    Without a file guests have none: who opens a channel to everybody is told by `doctor` to set one.
    """

    owner: int = Field(default=0, ge=0)
    people: int = Field(default=20, ge=0)
    groups: int = Field(default=10, ge=0)
    guests: int = Field(default=0, ge=0)


def _some_time(text: str) -> str:
    if duration(text) < 30:
        raise ValueError("must be at least 30s")
    return text


class LimitSettings(Section):
    """`[limits]`: how much may be used; 0 is no limit."""

    daily_tokens: int = Field(default=0, ge=0)
    daily_usd: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    per_sender_daily_tokens: int = Field(default=10_000_000, ge=0)
    per_turn_tokens: int = Field(default=0, ge=0)
    turn_time: Annotated[Duration, AfterValidator(_some_time)] = "15m"
    unattended_turn_time: Annotated[Duration, AfterValidator(_some_time)] = "1h"
    per_sender_per_minute: RateSettings = RateSettings()


class ApprovalSettings(Section):
    """`[approvals]`: how long a call waits for the owner."""

    expires: Annotated[Duration, AfterValidator(_interval)] = "30m"


class CronSettings(Section):
    """`[cron]`: schedules that people set in their chats."""

    grace: Duration = "1h"
    per_chat: int = Field(default=20, ge=1)
    daily_tokens: int = Field(default=500_000, ge=0)


def _skill_names(names: tuple[str, ...]) -> tuple[str, ...]:
    for name in names:
        if not name or len(name) > 64 or "/" in name or not name.isprintable():
            raise ValueError(f"{name[:80]!r} is no skill's name; `crayfish skills list` shows them")
    return names


def _variables(values: dict[str, SecretStr]) -> dict[str, SecretStr]:
    for name in values:
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            raise ValueError(f"{name[:80]!r} is no environment variable's name")
    return values


def _registries(places: tuple[str, ...]) -> tuple[str, ...]:
    for place in places:
        if "://" in place and not place.startswith("https://"):
            raise ValueError(f"{_without_password(place)!r} must be a file or begin with https://")
    return places


SkillNames: TypeAlias = Annotated[tuple[str, ...], AfterValidator(_skill_names)]


class SkillEntry(Section):
    """`[skills.entries.<name>]`: a switch, and what only the programs of that skill get to see."""

    enabled: bool = True
    env: Annotated[dict[str, SecretStr], AfterValidator(_variables)] = {}
    api_key: SecretStr = SecretStr("")


class SkillSettings(Section):
    """`[skills]`: which skills the bot has, beside those in its usual folders."""

    dirs: tuple[str, ...] = ()
    enabled: SkillNames = ()
    disabled: SkillNames = ()
    registries: Annotated[tuple[str, ...], AfterValidator(_registries)] = ()
    max_prompt_chars: int = Field(default=18_000, ge=500)
    strict: bool = False
    entries: dict[str, SkillEntry] = {}


class SessionSettings(Section):
    """`[session]`: when a conversation begins afresh by itself."""

    reset: Literal["", "daily", "idle"] = ""
    reset_at: Annotated[str, AfterValidator(_start_of_day)] = "04:00"
    idle: Annotated[Duration, AfterValidator(_interval)] = "24h"
    reset_in: Literal["all", "private", "groups"] = "all"

    @model_validator(mode="after")
    def _is_some_time(self) -> SessionSettings:
        if self.reset == "idle" and not duration(self.idle):
            raise ValueError('idle = "0m" would end each session at once: write a time, or reset = ""')
        return self


class CompactionSettings(Section):
    """`[compaction]`: when the older part of a conversation becomes a summary."""

    enabled: bool = True
    model: str = ""
    keep_tokens: int = Field(default=20_000, ge=1000)
    max_messages: int = Field(default=0, ge=0)
    keep_messages: int = Field(default=10, ge=1)
    memory_flush: bool = True

    @model_validator(mode="after")
    def _gets_shorter(self) -> CompactionSettings:
        if 0 < self.max_messages <= self.keep_messages:
            raise ValueError("max_messages must be more than keep_messages, or 0 for no such limit")
        return self


class RetentionSettings(Section):
    """`[retention]`: how long is kept what is settled."""

    messages: Annotated[Duration, AfterValidator(_days)] = "7d"
    group_talk: Annotated[Duration, AfterValidator(_days)] = "7d"
    verdicts: Annotated[Duration, AfterValidator(_days)] = "30d"
    unreadable: Annotated[Duration, AfterValidator(_days)] = "30d"
    results: Annotated[Duration, AfterValidator(_days)] = "7d"
    transcripts: Annotated[Duration, AfterValidator(_days_or_ever)] = "0d"
    transcripts_mb: int = Field(default=0, ge=0)


def _passed_on(names: tuple[str, ...]) -> tuple[str, ...]:
    for name in names:
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            raise ValueError(f"{name[:80]!r} is no environment variable's name")
        if re.match(r"(LD|DYLD)_|(PATH|HOME|IFS|ENV|BASH_ENV|TMPDIR|CRAYFISH)$", name):
            raise ValueError(f"{name!r} can't be passed on: it decides which programs run, or is set anyway")
    return names


def _absolute_paths(paths: tuple[str, ...]) -> tuple[str, ...]:
    for path in paths:
        if not path.startswith("/") or os.path.normpath(path) in ("/", "/proc", "/sys", "/dev"):
            raise ValueError(f'"{path}" must be the absolute path of a folder, such as "/opt/tools"')
    return tuple(map(os.path.normpath, paths))


def _argv_globs(entries: tuple[str, ...]) -> tuple[str, ...]:
    for entry in entries:
        if not entry.strip() or entry.split()[0].strip("*?") == "":
            raise ValueError(f'"{entry}" must begin with a program, such as "ls" or "git log *"')
    return entries


class ExecSettings(Section):
    """`[exec]`: which commands of the model run, and in what."""

    mode: Literal["deny", "allowlist", "ask", "auto", "full"] = "auto"
    allow: Annotated[tuple[str, ...], AfterValidator(_argv_globs)] = ()
    sandbox: Literal["auto", "bwrap", "landlock", "off"] = "auto"
    network: bool = False
    readable: Annotated[tuple[str, ...], AfterValidator(_absolute_paths)] = ()
    env: Annotated[tuple[str, ...], AfterValidator(_passed_on)] = ()
    timeout: int = Field(default=60, ge=1, le=1800)
    max_output: int = Field(default=50_000, ge=1000, le=1_000_000)
    memory_mb: int = Field(default=2048, ge=64)


def _mcp_name(text: str) -> str:
    if not re.fullmatch(r"(?=.{1,32}\Z)[a-z0-9]+([_-][a-z0-9]+)*", text):
        raise ValueError("must be a short name of small letters and digits, with single _ or - between them")
    return text


def _mcp_url(text: str) -> str:
    if text and urlsplit(text).username is not None:
        raise ValueError("must hold no user and password: put Authorization into headers")
    _http_url_or_none(text)
    return text


def _header_names(values: dict[str, SecretStr]) -> dict[str, SecretStr]:
    for name, value in values.items():
        if not re.fullmatch(r"[A-Za-z0-9-]{1,64}", name):
            raise ValueError(f"{name[:80]!r} is no header's name, such as Authorization")
        if not re.fullmatch(r"[ -~]*", value.get_secret_value()):
            raise ValueError(f"{name} holds line ends or characters outside ASCII: copy it again")
    return values


def _mcp_tools(names: tuple[str, ...]) -> tuple[str, ...]:
    for name in names:
        if not re.fullmatch(r"[A-Za-z0-9_./*?-]{1,128}", name):
            raise ValueError(f'{name[:80]!r} must be the name of a tool there, or a pattern: "read_*"')
    return names


McpTools: TypeAlias = Annotated[Names, AfterValidator(_mcp_tools)]


class McpServer(Section):
    """`[mcp.servers.<name>]`: a program, or an address, that brings tools (Model Context Protocol)."""

    enabled: bool = True
    command: str = ""
    args: tuple[str, ...] = ()
    env: Annotated[dict[str, SecretStr], AfterValidator(_variables)] = {}
    url: Annotated[str, AfterValidator(_mcp_url)] = ""
    headers: Annotated[dict[str, SecretStr], AfterValidator(_header_names)] = {}
    allow: McpTools = ()
    deny: McpTools = ()
    ask: bool = True
    trust: bool = False
    timeout: int = Field(default=60, ge=1, le=3600)
    idle: Duration = "10m"

    @model_validator(mode="after")
    def _is_one_thing(self) -> McpServer:
        if bool(self.command) == bool(self.url):
            raise ValueError('needs either a command, such as "npx", or the url of a server, and not both')
        if self.url and (self.args or self.env):
            raise ValueError("has a url, so args and env would do nothing: secrets belong into headers")
        if self.command and self.headers:
            raise ValueError("has a command, so headers would do nothing: secrets belong into env")
        return self


class McpSettings(Section):
    """`[mcp]`: servers that bring further tools."""

    servers: dict[Annotated[str, AfterValidator(_mcp_name)], McpServer] = {}


class MemorySettings(Section):
    """`[memory]`: how notes are found."""

    embeddings: Literal["auto", "on", "off"] = "auto"


class AccessSettings(Section):
    """`[access]`: whose bot it is."""

    owners: Annotated[Names, AfterValidator(_owners)] = ()


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
    mention_patterns: Annotated[tuple[str, ...], AfterValidator(_patterns)] = ()
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

    accounts: dict[Annotated[str, AfterValidator(_account_name)], TelegramAccount] = {}

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

    accounts: dict[Annotated[str, AfterValidator(_account_name)], SlackAccount] = {}

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


def _person(text: str) -> str:
    if not re.fullmatch(r"[a-z0-9][a-z0-9_-]{0,31}", text):
        raise ValueError("must be a short name of small letters, digits, _ and -")
    return text


def _linked(entries: tuple[str, ...]) -> tuple[str, ...]:
    for entry in entries:
        if not re.fullmatch(r"[a-z][a-z0-9_-]*:[^:\s*]+", entry):
            raise ValueError(f'"{entry}" must be "channel:person", such as "telegram:123456789"')
    if len(entries) < 2:
        raise ValueError("must name one person on two channels or more")
    return entries


class LogSettings(Section):
    """`[log]`."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["console", "json"] = "console"


class Settings(Section):
    """The whole file."""

    model: ModelSettings = ModelSettings()
    store: StoreSettings = StoreSettings()
    workspace: WorkspaceSettings = WorkspaceSettings()
    agent: AgentSettings = AgentSettings()
    agents: dict[Annotated[str, AfterValidator(_account_name)], AgentProfile] = {}
    bindings: tuple[BindingSettings, ...] = ()
    http: HttpSettings = HttpSettings()
    heartbeat: HeartbeatSettings = HeartbeatSettings()
    cron: CronSettings = CronSettings()
    exec: ExecSettings = ExecSettings()
    session: SessionSettings = SessionSettings()
    compaction: CompactionSettings = CompactionSettings()
    retention: RetentionSettings = RetentionSettings()
    skills: SkillSettings = SkillSettings()
    memory: MemorySettings = MemorySettings()
    access: AccessSettings = AccessSettings()
    tools: ToolSettings = ToolSettings()
    approvals: ApprovalSettings = ApprovalSettings()
    usage: UsageSettings = UsageSettings()
    limits: LimitSettings = LimitSettings()
    web: WebSettings = WebSettings()
    media: MediaSettings = MediaSettings()
    mcp: McpSettings = McpSettings()
    channels: ChannelSettings = ChannelSettings()
    identities: dict[Annotated[str, AfterValidator(_person)], Annotated[Names, AfterValidator(_linked)]] = {}
    log: LogSettings = LogSettings()

    @model_validator(mode="after")
    def _knows_its_people(self) -> Settings:
        known = self.channels.accounts()
        seen: dict[str, str] = {}
        for person, entries in self.identities.items():
            for entry in entries:
                channel, _, who = entry.partition(":")
                if channel not in known:
                    names = ", ".join(known)
                    raise ValueError(f'identities.{person}: "{channel}" is no channel; known are {names}')
                if not re.fullmatch(known[channel].id_shape, who) or who in known[channel].platform_ids:
                    raise ValueError(
                        f'identities.{person}: "{who}" is no person on {channel}; /whoami tells the id there'
                    )
                if entry in seen:
                    raise ValueError(f'identities: "{entry}" is listed twice ({seen[entry]}, {person})')
                seen[entry] = person
        return self

    @model_validator(mode="after")
    def _knows_its_agents(self) -> Settings:
        if "main" in self.agents:
            raise ValueError("agents.main: that is the agent which [agent], [model] and [workspace] describe")
        for one in self.bindings:
            if one.agent != "main" and one.agent not in self.agents:
                raise ValueError(f'bindings: there is no agent "{one.agent}": add [agents.{one.agent}]')
        return self

    @model_validator(mode="after")
    def _knows_what_it_pays(self) -> Settings:
        if self.limits.daily_usd and not self.usage.prices:
            raise ValueError(
                'limits.daily_usd needs to know what models cost: add [usage.prices."provider/model"]'
            )
        return self

    @model_validator(mode="after")
    def _has_a_door(self) -> Settings:
        bots = self.channels.telegram.bots()
        if not self.http.enabled and any(bot.webhook_url for bot in bots.values()):
            raise ValueError("channels.telegram.webhook_url needs the server: set http.enabled = true")
        if not self.http.enabled and not all(bot.by_socket for bot in self.channels.slack.bots().values()):
            raise ValueError(
                "channels.slack without Socket Mode needs the server: set http.enabled = true or an app_token"
            )
        return self


@dataclass(frozen=True, slots=True)
class Loaded:
    """Settings with every path absolute and every default filled in, and where they came from.

    `file` is None when no file was found; `home` may not exist yet.
    """

    settings: Settings
    file: Path | None
    home: Path

    @property
    def workspace(self) -> Path:
        """Return the workspace folder; it may not exist yet."""
        return Path(self.settings.workspace.path)


def load(path: Path | None, env: Mapping[str, str], cwd: Path) -> Loaded:
    """Find the file (`path`, `$CRAYFISH_CONFIG`, `./config.toml`, `$CRAYFISH_HOME/config.toml`) and read it.

    Relative paths in the file start at the file's folder, `~` is the user's home.

    Raises: ConfigError, in one line that names the file, the key and the remedy, and no secret.
    """
    home = _absolute(env.get("CRAYFISH_HOME") or "~/.crayfish", cwd, env)
    file = _find(path, env, cwd, home)
    if file is None:
        return Loaded(_placed(Settings(), cwd, home, env), None, home)
    try:
        settings = parse(_read(file), env, file.parent)
    except ConfigError as error:
        raise ConfigError(f"{file}: {error}") from None
    return Loaded(_placed(settings, file.parent, home, env), file, home)


def parse(text: str, env: Mapping[str, str], base: Path) -> Settings:
    """Read a file's text; `base` is where its relative `file:` paths start.

    Raises: ConfigError.
    """
    try:
        raw = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"this is not TOML: {_lower(str(error))}") from None
    try:
        return Settings.model_validate(_resolved(raw, (), env, base))
    except ValidationError as error:
        raise ConfigError("; ".join(_problem(one, raw) for one in error.errors(include_url=False))) from None


def fields(section: type[Section] = Settings, above: str = "") -> Iterator[tuple[str, FieldInfo]]:
    """Yield the dotted name and the pydantic field of everything that may be set."""
    for name, field in section.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, Section):
            yield from fields(field.annotation, f"{above}{name}.")
        else:
            yield f"{above}{name}", field


def values(
    section: Section, above: str = "", *, only: AbstractSet[str] | None = None
) -> Iterator[tuple[str, Json | SecretStr]]:
    """Yield the dotted name and the value of everything that is set or has a default.

    What stands in a table of its own comes last, as TOML wants it. Of tables whose names people choose
    only what is set is shown, because the rest is as in the table above.
    """
    tables: list[tuple[str, Section, AbstractSet[str] | None]] = []
    secret_tables: dict[str, dict[str, SecretStr]] = {}
    for name in type(section).model_fields:
        if only is not None and name not in only:
            continue
        value = getattr(section, name)
        if isinstance(value, Section):
            tables.append((f"{above}{name}.", value, None))
        elif _many(type(section).model_fields[name]):
            tables += [
                (f"{above}{name}.{_bare(key)}.", one, one.model_fields_set or {"enabled"})
                for key, one in value.items()
            ]
        elif isinstance(value, dict) and value:
            secret_tables[f"{above}{name}."] = value
        else:
            yield f"{above}{name}", value
    for name, held in secret_tables.items():
        yield from ((f"{name}{_bare(key)}", one) for key, one in held.items())
    for name, table, given in tables:
        yield from values(table, name, only=given)


def secrets(settings: Settings) -> tuple[str, ...]:
    """Return every secret value that is set, for whoever must keep it out of a text."""
    found = [
        value.get_secret_value()
        for name, value in values(settings)
        if isinstance(value, SecretStr) and not _is_plain(name, value.get_secret_value())
    ]
    # Of what a header says only the last word is secret, and a server may tell it alone.
    found += [one.split(" ", 1)[1] for one in found if re.match(r"(?i)(bearer|basic|token) ", one)]
    store = [settings.store.url] if settings.store.url.startswith(POSTGRES) else []
    for url in [*store, *(one for one in found if one.startswith(("http://", "https://")))]:
        password = urlsplit(url).password or ""
        found += [password, unquote(password)]
    return tuple(dict.fromkeys(one for one in found if one))


def _is_plain(name: str, text: str) -> bool:
    """Return whether what an MCP server is given is just a word, a path or a number, as replies may hold."""
    if not name.startswith("mcp.servers.") or re.search(
        r"(?i)key|token|secret|pass|pwd|auth|cred|cookie", name.rpartition(".")[2]
    ):
        return False
    return re.fullmatch(r"[A-Za-z_./:, -]*|[\d.:]*|~?(/[\w.@+-]{1,40})+/?", text) is not None


def secrets_set(settings: Settings) -> dict[str, bool]:
    """Return the dotted name of every secret, and whether it is set."""
    found = ((name, one) for name, one in values(settings) if isinstance(one, SecretStr))
    return {name: bool(one.get_secret_value()) for name, one in found}


def shown(settings: Settings) -> str:
    """Return the settings as TOML in which a secret is a comment that says whether it is set."""
    lines: list[str] = []
    table = ""
    for dotted, value in values(settings):
        above, _, name = dotted.rpartition(".")
        if above != table:
            lines += ["", f"[{above}]"]
            table = above
        if isinstance(value, SecretStr):
            lines.append(f"# {name} is {'set' if value.get_secret_value() else 'unset'}")
        else:
            lines.append(f"{name} = {_without_password(_toml(value))}")
    return "\n".join(lines[1:])


def section_of(channel: str) -> str:
    """Return the table in which a channel is set: `channels.telegram.accounts.work` for `telegram-work`."""
    platform, _, account = channel.partition("-")
    return f"channels.{platform}.accounts.{account}" if account else f"channels.{platform}"


def bundled(name: str) -> Path:
    """Return the path of data that ships with the program, such as `skills`, in a wheel or in a checkout.

    Raises: ConfigError when the installation lacks it.
    """
    here = Path(__file__).parent
    for path in (here / "_bundled" / name, here.parent / name):
        if path.exists():
            return path
    raise ConfigError(f"the installation lacks its own {name}: install crayfish-gateway again")


def _many(field: FieldInfo) -> type[Section] | None:
    """Return what each value of a field is, if the field holds tables under names of the user's choice."""
    inner = get_args(field.annotation)[-1:] if get_origin(field.annotation) is dict else ()
    return inner[0] if inner and isinstance(inner[0], type) and issubclass(inner[0], Section) else None


def _section(path: Sequence[str]) -> type[Section] | None:
    """Return what the table at a path is, None if it is none of ours."""
    section: type[Section] = Settings
    parts = iter(path)
    for part in parts:
        field = section.model_fields.get(part)
        inner = _many(field) if field else None
        if inner is not None:
            if next(parts, None) is None:
                return None
            section = inner
        elif field and isinstance(field.annotation, type) and issubclass(field.annotation, Section):
            section = field.annotation
        else:
            return None
    return section


def _is_secret(path: Sequence[str]) -> bool:
    section = _section(path[:-1]) if path else None
    field = section.model_fields.get(path[-1]) if section else None
    return (field is not None and field.annotation is SecretStr) or _holds_secrets(path[:-1])


def _holds_secrets(path: Sequence[str]) -> bool:
    """Return whether a table holds secrets under names of the user's choice."""
    section = _section(path[:-1]) if path else None
    field = section.model_fields.get(path[-1]) if section else None
    return field is not None and get_args(field.annotation)[-1:] == (SecretStr,)


def _find(path: Path | None, env: Mapping[str, str], cwd: Path, home: Path) -> Path | None:
    named = str(path) if path else env.get("CRAYFISH_CONFIG")
    if named:
        return _absolute(named, cwd, env)
    return next((one for one in (cwd / "config.toml", home / "config.toml") if _may_exist(one)), None)


def _may_exist(file: Path) -> bool:
    try:
        return file.exists()
    except OSError:
        return True  # a file that can't be looked at is reported when it is read, not passed over


def _absolute(text: str, base: Path, env: Mapping[str, str]) -> Path:
    """Return a path that may begin with `~` or be relative to `base`."""
    if text == "~" or text.startswith("~/"):
        base, text = Path(env.get("HOME") or Path.home()), text[2:]
    return Path(os.path.normpath(base / text))


def _placed(settings: Settings, base: Path, home: Path, env: Mapping[str, str]) -> Settings:
    """Fill in where things live."""
    url, path = settings.store.url, settings.workspace.path
    if not url.startswith(POSTGRES):
        file, mark, query = url.removeprefix(SQLITE).partition("?")
        url = f"{SQLITE}{_absolute(file, base, env) if file else home / 'crayfish.db'}{mark}{query}"
    folder = str(_absolute(path, base, env) if path else home / "workspace")
    agents = {
        name: one.model_copy(
            update={
                "workspace": str(
                    _absolute(one.workspace, base, env)
                    if one.workspace
                    else home / "agents" / name / "workspace"
                )
            }
        )
        for name, one in settings.agents.items()
    }
    dirs = tuple(str(_absolute(one, base, env)) for one in settings.skills.dirs)
    registries = tuple(
        one if one.startswith("https://") else str(_absolute(one, base, env))
        for one in settings.skills.registries
    )
    servers = {
        name: one.model_copy(update={"command": str(_absolute(one.command, base, env))})
        if "/" in one.command
        else one
        for name, one in settings.mcp.servers.items()
    }
    return settings.model_copy(
        update={
            "store": StoreSettings(url=url),
            "workspace": settings.workspace.model_copy(update={"path": folder}),
            "agents": agents,
            "mcp": McpSettings(servers=servers),
            "skills": settings.skills.model_copy(update={"dirs": dirs, "registries": registries}),
        }
    )


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise ConfigError("no such file; create it, or leave --config and $CRAYFISH_CONFIG out") from None
    except UnicodeDecodeError:
        raise ConfigError("the file is not UTF-8 text; save it as UTF-8") from None
    except OSError as error:
        reason = _lower(error.strerror or str(error))
        raise ConfigError(f"can't be read: {reason}; check its owner and mode") from None


def _resolved(value: Json, path: tuple[str, ...], env: Mapping[str, str], base: Path) -> Json:
    """Replace `${NAME}` in every string, and `file:/path` where a secret belongs."""
    if isinstance(value, dict):
        return {key: _resolved(one, (*path, key), env, base) for key, one in value.items()}
    if isinstance(value, list):
        return [_resolved(one, path, env, base) for one in value]
    if not isinstance(value, str):
        return value
    dotted = ".".join(path)
    text = _expanded(value, dotted, env)
    secret = _is_secret(path)
    if secret and text.startswith("file:"):
        text = _secret_file(_absolute(text.removeprefix("file:"), base, env), dotted)
    # A variable that was read from a file with CRLF endings brings a \r along.
    return text.strip() if secret else text


def _expanded(text: str, dotted: str, env: Mapping[str, str]) -> str:
    def one(match: re.Match[str]) -> str:
        literal, name = match[1], match[2]
        if literal:
            return match[0][1:]
        if not re.fullmatch(r"[A-Za-z_]\w*", name):
            raise ConfigError(
                f"{dotted}: ${{…}} takes the name of an environment variable; $${{ is a plain ${{"
            )
        if name not in env:
            raise ConfigError(
                f"{dotted}: the environment variable {name} is not set; set it or remove the key"
            )
        return env[name]

    return re.sub(r"\$(\$)?\{([^}]*)\}", one, text)


def _secret_file(file: Path, dotted: str) -> str:
    try:
        text = file.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise ConfigError(f"{dotted}: {file} is not text") from None
    except OSError as error:
        raise ConfigError(f"{dotted}: {file} can't be read: {_lower(error.strerror or str(error))}") from None
    if not text.strip():
        raise ConfigError(f"{dotted}: {file} is empty; write the secret into it")
    return text


def _problem(error: ErrorDetails, raw: JsonObject) -> str:
    """Return one line about one finding: where, what was given unless it may be secret, what is allowed."""
    where = tuple(part for part in error["loc"] if part != "[key]")  # pydantic's word for a name in a table
    path = tuple(str(part) for part in where)
    dotted = ".".join(map(_bare, path))
    match error["type"]:
        case "extra_forbidden":
            return f"{dotted}: unknown key, {_nearest(path)}"
        case "model_type":
            return f"{dotted}: must be a table, [{dotted}]"
        case "missing":
            return f"{dotted}: is missing; set it"
        case "value_error":
            allowed = str(error["ctx"]["error"])
        case _:
            allowed = error["msg"].replace("Input should be", "must be")
            allowed = allowed.replace("a valid tuple", "a list").replace("a valid string", "text in quotes")
    # What stands in the file is shown, not what a variable gave: that may be a secret in the wrong place.
    given = "" if _is_secret(path) or _is_secret(path[:-1]) else _given(raw, where)
    return f"{dotted}{given}: {_lower(allowed)}" if dotted else allowed


def _given(raw: Json, path: tuple[int | str, ...]) -> str:
    for part in path:
        raw = raw[part]
    if isinstance(raw, dict):
        return ""
    text = repr(raw)
    return f" = {_without_password(text if len(text) <= 60 else f'{text[:60]}…')}"


def _nearest(path: tuple[str, ...]) -> str:
    """Return which known key was probably meant, or which there are."""
    above = "".join(f"{part}." for part in path[:-1])
    dotted = [name for name, _ in fields()]
    dotted += dict.fromkeys(name.rpartition(".")[0] for name in dotted)
    section = _section(path[:-1])
    siblings = dict.fromkeys(section.model_fields if section else ())
    if close := difflib.get_close_matches(path[-1], siblings, 1):
        return f"did you mean {above}{close[0]}?"
    leaves = {name.rpartition(".")[2]: name for name in reversed(dotted)}
    if close := difflib.get_close_matches(path[-1], leaves, 1):
        return f"did you mean {leaves[close[0]]}?"
    return f"known here: {', '.join(siblings)}"


def _bare(key: str) -> str:
    """Return a key of a table as TOML writes it."""
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else _toml(key)


def _toml(value: Json) -> str:
    """Return a value of the file as TOML; DEL and the C1 controls differ from JSON's strings."""
    text = json.dumps(value, ensure_ascii=False)
    return re.sub(r"[\x7f-\x9f]", lambda match: f"\\u{ord(match[0]):04x}", text)


def _without_password(text: str) -> str:
    text = re.sub(r"(?<=://)[^\s/]*@", "***@", text)
    text = re.sub(r"(?i)([?&][a-z_-]{0,20}(?:key|token|secret|password)=)[^&\s\"']+", r"\1***", text)
    return re.sub(r"/bot[^/\s]*:[^/\s\"']*", "/bot***", text)


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:]
