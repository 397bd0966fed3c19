"""Every other table, and the whole file."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    SecretStr,
    model_validator,
)

from gateway.config.channels import ChannelSettings
from gateway.config.kinds import (
    Duration,
    Names,
    Section,
    as_account_name,
    as_days,
    as_days_or_ever,
    as_http_url_or_none,
    as_interval,
    as_minutes,
    as_months_or_ever,
    as_owners,
    as_start_of_day,
    as_store_url,
    as_target,
    as_text,
    as_time_of_day,
    as_zone,
    duration,
    is_loopback,
)
from gateway.config.tools import (
    AgentTools,
    ExecSettings,
    McpSettings,
    MediaSettings,
    MemorySettings,
    SkillSettings,
    ToolSettings,
    WebSettings,
)


class ModelSettings(Section):
    """`[model]`: which model answers."""

    dialect: Literal["auto", "openai", "anthropic", "ollama", "demo"] = "auto"
    base_url: Annotated[str, AfterValidator(as_http_url_or_none)] = ""
    name: str = ""
    api_key: SecretStr = SecretStr("")
    fallbacks: tuple[str, ...] = ()
    max_tokens: int = Field(default=8000, ge=1)
    context_window: int = Field(default=128_000, ge=2000)
    idle_timeout: float = Field(default=120.0, gt=0)


class StoreSettings(Section):
    """`[store]`: where conversations live. The address may hold a password."""

    url: Annotated[str, AfterValidator(as_store_url)] = Field(default="", repr=False)


class WorkspaceSettings(Section):
    """`[workspace]`: the folder the agent lives and works in."""

    path: str = ""
    heartbeat_md: Literal["beats", "always"] = "beats"


class AgentSettings(Section):
    """`[agent]`: how a turn runs."""

    max_turns: int = Field(default=50, ge=1)
    parallel: int = Field(default=64, ge=1)
    timezone: Annotated[str, AfterValidator(as_zone)] = ""


class BindingSettings(Section):
    """`[[bindings]]`: where an agent answers; what is left out fits everything."""

    agent: str
    channel: str = ""
    chat: Annotated[str, BeforeValidator(as_text)] = ""
    thread: Annotated[str, BeforeValidator(as_text)] = ""
    sender: Annotated[str, BeforeValidator(as_text)] = ""

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

    @property
    def here(self) -> str:
        """Return the address at which this machine itself reaches the server."""
        wildcards = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - compared, not bound
        return wildcards.get(self.host, self.host)


class ActiveHours(Section):
    """`[heartbeat.active_hours]`: from `start` until before `end`, which may be on the next day."""

    start: Annotated[str, AfterValidator(as_time_of_day)] = "00:00"
    end: Annotated[str, AfterValidator(as_time_of_day)] = "24:00"
    timezone: Annotated[str, AfterValidator(as_zone)] = ""

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

    every: Annotated[str, BeforeValidator(as_minutes), AfterValidator(as_interval)] = ""
    prompt: str = ""
    target: Annotated[str, AfterValidator(as_target)] = "owner"
    isolated: bool = True
    light: bool = True
    model: str = ""
    ack_max_chars: int = Field(default=300, ge=0)
    daily_tokens: int = Field(default=500_000, ge=0)
    max_rounds: int = Field(default=15, ge=1)
    idle_every: int = Field(default=1, ge=1)
    active_hours: ActiveHours = ActiveHours()


class AgentProfile(Section):
    """`[agents.<name>]`: another agent, with a workspace of its own."""

    workspace: str = ""
    model: str = ""
    skills: tuple[str, ...] | None = None
    tools: AgentTools = AgentTools()


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

    expires: Annotated[Duration, AfterValidator(as_interval)] = "30m"


class CronSettings(Section):
    """`[cron]`: schedules that people set in their chats."""

    grace: Duration = "1h"
    per_chat: int = Field(default=20, ge=1)
    daily_tokens: int = Field(default=500_000, ge=0)


class SessionSettings(Section):
    """`[session]`: when a conversation begins afresh by itself."""

    reset: Literal["", "daily", "idle"] = ""
    reset_at: Annotated[str, AfterValidator(as_start_of_day)] = "04:00"
    idle: Annotated[Duration, AfterValidator(as_interval)] = "24h"
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

    messages: Annotated[Duration, AfterValidator(as_days)] = "7d"
    group_talk: Annotated[Duration, AfterValidator(as_days)] = "7d"
    verdicts: Annotated[Duration, AfterValidator(as_days)] = "30d"
    unreadable: Annotated[Duration, AfterValidator(as_days)] = "30d"
    results: Annotated[Duration, AfterValidator(as_days)] = "7d"
    usage: Annotated[Duration, AfterValidator(as_months_or_ever)] = "365d"
    transcripts: Annotated[Duration, AfterValidator(as_days_or_ever)] = "0d"
    transcripts_mb: int = Field(default=0, ge=0)


class AccessSettings(Section):
    """`[access]`: whose bot it is."""

    owners: Annotated[Names, AfterValidator(as_owners)] = ()


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
    agents: dict[Annotated[str, AfterValidator(as_account_name)], AgentProfile] = {}
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
            if one.channel not in (known := ("web", "console", *self.channels.accounts())):
                raise ValueError(f'bindings: "{one.channel}" is no channel; known are {", ".join(known)}')
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
