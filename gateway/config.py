"""The configuration: what may be set, and what holds when nothing is."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr


class Section(BaseModel):
    """A table of the file; an unknown key is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class ModelSettings(Section):
    """`[model]`: which model answers."""

    dialect: Literal["auto", "openai", "anthropic", "ollama", "demo"] = "auto"
    base_url: str = ""
    name: str = ""
    api_key: SecretStr = SecretStr("")
    fallbacks: tuple[str, ...] = ()
    max_tokens: int = Field(default=8000, ge=1)
    context_window: int = Field(default=128_000, ge=2000)
    idle_timeout: float = Field(default=120.0, gt=0)


class StoreSettings(Section):
    """`[store]`: where conversations live."""

    url: str = ""


class WorkspaceSettings(Section):
    """`[workspace]`: the folder the agent lives and works in."""

    path: str = ""


class AgentSettings(Section):
    """`[agent]`: how a turn runs."""

    max_turns: int = Field(default=50, ge=1)
    parallel: int = Field(default=32, ge=1)
    timezone: str = ""


class HttpSettings(Section):
    """`[http]`: the web page and the API."""

    enabled: bool = True
    host: str = "127.0.0.1"
    port: int = Field(default=8787, ge=0, le=65535)
    token: SecretStr = SecretStr("")


class HeartbeatSettings(Section):
    """`[heartbeat]`: when the bot wakes itself up."""

    every: str = "0m"


class TelegramSettings(Section):
    """`[channels.telegram]`."""

    enabled: bool = True
    token: SecretStr = SecretStr("")
    api_base: str = "https://api.telegram.org"
    dm_policy: Literal["pairing", "allowlist", "open", "disabled"] = "pairing"
    allow_from: tuple[str, ...] = ()


class SlackSettings(Section):
    """`[channels.slack]`."""

    enabled: bool = True
    bot_token: SecretStr = SecretStr("")
    app_token: SecretStr = SecretStr("")
    signing_secret: SecretStr = SecretStr("")
    api_base: str = "https://slack.com/api/"


class ChannelSettings(Section):
    """`[channels.*]`."""

    telegram: TelegramSettings = TelegramSettings()
    slack: SlackSettings = SlackSettings()


class LogSettings(Section):
    """`[log]`."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Annotated[Literal["console", "json"], Field()] = "console"


class Settings(Section):
    """The whole file."""

    model: ModelSettings = ModelSettings()
    store: StoreSettings = StoreSettings()
    workspace: WorkspaceSettings = WorkspaceSettings()
    agent: AgentSettings = AgentSettings()
    http: HttpSettings = HttpSettings()
    heartbeat: HeartbeatSettings = HeartbeatSettings()
    channels: ChannelSettings = ChannelSettings()
    log: LogSettings = LogSettings()
