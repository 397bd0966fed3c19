"""The configuration: what may be set, what holds when nothing is, and how a file is read."""

from __future__ import annotations

import difflib
import ipaddress
import json
import os
import re
import tomllib
import zoneinfo
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, TypeAlias
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


Duration: TypeAlias = Annotated[str, AfterValidator(_duration_text)]
Names: TypeAlias = Annotated[tuple[str, ...], BeforeValidator(_names)]


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


class AgentSettings(Section):
    """`[agent]`: how a turn runs."""

    max_turns: int = Field(default=50, ge=1)
    parallel: int = Field(default=32, ge=1)
    timezone: Annotated[str, AfterValidator(_zone)] = ""


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


class HeartbeatSettings(Section):
    """`[heartbeat]`: when the bot wakes itself up."""

    every: Duration = "0m"


class TelegramSettings(Section):
    """`[channels.telegram]`."""

    enabled: bool = True
    token: SecretStr = SecretStr("")
    api_base: Annotated[str, AfterValidator(_telegram_url)] = "https://api.telegram.org"
    dm_policy: Literal["pairing", "allowlist", "open", "disabled"] = "pairing"
    allow_from: Names = ()


class SlackSettings(Section):
    """`[channels.slack]`."""

    enabled: bool = True
    bot_token: SecretStr = SecretStr("")
    app_token: SecretStr = SecretStr("")
    signing_secret: SecretStr = SecretStr("")
    api_base: Annotated[str, AfterValidator(_slack_url)] = "https://slack.com/api/"


class ChannelSettings(Section):
    """`[channels.*]`."""

    telegram: TelegramSettings = TelegramSettings()
    slack: SlackSettings = SlackSettings()


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
    http: HttpSettings = HttpSettings()
    heartbeat: HeartbeatSettings = HeartbeatSettings()
    channels: ChannelSettings = ChannelSettings()
    log: LogSettings = LogSettings()


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


def values(section: Section, above: str = "") -> Iterator[tuple[str, Json | SecretStr]]:
    """Yield the dotted name and the value of everything that is set or has a default."""
    for name in type(section).model_fields:
        value = getattr(section, name)
        if isinstance(value, Section):
            yield from values(value, f"{above}{name}.")
        else:
            yield f"{above}{name}", value


def secrets(settings: Settings) -> tuple[str, ...]:
    """Return every secret value that is set, for whoever must keep it out of a text."""
    found = [value.get_secret_value() for _, value in values(settings) if isinstance(value, SecretStr)]
    password = urlsplit(settings.store.url).password if settings.store.url.startswith(POSTGRES) else None
    return tuple(dict.fromkeys(one for one in [*found, password or "", unquote(password or "")] if one))


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


def bundled(name: str) -> Path:
    """Return the path of data that ships with the program, such as `skills`, in a wheel or in a checkout.

    Raises: ConfigError when the installation lacks it.
    """
    here = Path(__file__).parent
    for path in (here / "_bundled" / name, here.parent / name):
        if path.exists():
            return path
    raise ConfigError(f"the installation lacks its own {name}: install crayfish-gateway again")


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
    return settings.model_copy(
        update={"store": StoreSettings(url=url), "workspace": WorkspaceSettings(path=folder)}
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
    if dotted in _SECRETS and text.startswith("file:"):
        text = _secret_file(_absolute(text.removeprefix("file:"), base, env), dotted)
    # A variable that was read from a file with CRLF endings brings a \r along.
    return text.strip() if dotted in _SECRETS else text


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
    path = tuple(str(part) for part in error["loc"])
    dotted = ".".join(part if re.fullmatch(r"[A-Za-z0-9_-]+", part) else _toml(part) for part in path)
    match error["type"]:
        case "extra_forbidden":
            return f"{dotted}: unknown key, {_nearest(path)}"
        case "model_type":
            return f"{dotted}: must be a table, [{dotted}]"
        case "value_error":
            allowed = str(error["ctx"]["error"])
        case _:
            allowed = error["msg"].replace("Input should be", "must be")
            allowed = allowed.replace("a valid tuple", "a list").replace("a valid string", "text in quotes")
    # What stands in the file is shown, not what a variable gave: that may be a secret in the wrong place.
    given = "" if _SECRETS.intersection((dotted, ".".join(path[:-1]))) else _given(raw, error["loc"])
    return f"{dotted}{given}: {_lower(allowed)}"


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
    siblings = {name.removeprefix(above).partition(".")[0]: None for name in dotted if name.startswith(above)}
    if close := difflib.get_close_matches(path[-1], siblings, 1):
        return f"did you mean {above}{close[0]}?"
    leaves = {name.rpartition(".")[2]: name for name in reversed(dotted)}
    if close := difflib.get_close_matches(path[-1], leaves, 1):
        return f"did you mean {leaves[close[0]]}?"
    return f"known here: {', '.join(siblings)}"


def _toml(value: Json) -> str:
    """Return a value of the file as TOML; DEL and the C1 controls differ from JSON's strings."""
    text = json.dumps(value, ensure_ascii=False)
    return re.sub(r"[\x7f-\x9f]", lambda match: f"\\u{ord(match[0]):04x}", text)


def _without_password(text: str) -> str:
    text = re.sub(r"(?<=://)[^\s/]*@", "***@", text)
    return re.sub(r"/bot[^/\s]*:[^/\s\"']*", "/bot***", text)


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:]


_SECRETS = frozenset(name for name, field in fields() if field.annotation is SecretStr)
