"""The tables about what the model may use: tools, commands, the web, skills, servers, media, memory."""

from __future__ import annotations

import difflib
import ipaddress
import os
import re
from typing import Annotated, Literal, TypeAlias
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    Field,
    SecretStr,
    model_validator,
)

from gateway.config.kinds import Duration, MaybeNames, Names, Section, as_http_url_or_none, without_password


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
    return as_http_url_or_none(text)


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
    audio_base_url: Annotated[str, AfterValidator(as_http_url_or_none)] = ""
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
            raise ValueError(f"{without_password(place)!r} must be a file or begin with https://")
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
    as_http_url_or_none(text)
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
