"""Finds the file, reads it, and says what is wrong in it."""

from __future__ import annotations

import difflib
import json
import os
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from pathlib import Path
from typing import get_args, get_origin
from urllib.parse import unquote, urlsplit

from pydantic import (
    SecretStr,
    ValidationError,
)
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from gateway.config.kinds import POSTGRES, SQLITE, Section, without_password
from gateway.config.sections import Settings, StoreSettings
from gateway.config.tools import McpSettings
from gateway.errors import ConfigError
from gateway.types import Json, JsonObject


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
            lines.append(f"{name} = {without_password(_toml(value))}")
    return "\n".join(lines).lstrip("\n")


def section_of(channel: str) -> str:
    """Return the table in which a channel is set: `channels.telegram.accounts.work` for `telegram-work`."""
    platform, _, account = channel.partition("-")
    return f"channels.{platform}.accounts.{account}" if account else f"channels.{platform}"


def bundled(name: str) -> Path:
    """Return the path of data that ships with the program, such as `skills`, in a wheel or in a checkout.

    Raises: ConfigError when the installation lacks it.
    """
    package = Path(__file__).parents[1]
    for path in (package / "_bundled" / name, package.parent / name):
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
    return f" = {without_password(text if len(text) <= 60 else f'{text[:60]}…')}"


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


def _toml(value: Json | Section) -> str:
    """Return a value of the file as TOML; DEL and the C1 controls differ from JSON's strings.

    Tables in a list are written inline, with what was set in them.
    """
    if isinstance(value, Section):
        given = (name for name in type(value).model_fields if name in value.model_fields_set)
        return f"{{ {', '.join(f'{name} = {_toml(getattr(value, name))}' for name in given)} }}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_toml, value))}]"
    text = json.dumps(value, ensure_ascii=False)
    return re.sub(r"[\x7f-\x9f]", lambda match: f"\\u{ord(match[0]):04x}", text)


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:]
