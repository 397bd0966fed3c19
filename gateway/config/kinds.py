"""Kinds of values in the configuration, and how each is read."""

from __future__ import annotations

import difflib
import ipaddress
import re
import zoneinfo
from typing import Annotated, TypeAlias
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
)

from gateway.patterns import problem_of
from gateway.types import Json

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


def as_http_url(text: str) -> str:
    """Read the address of an HTTP server, without a slash at its end."""
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("must be an address that begins with http:// or https://")
    return text.rstrip("/")


def as_http_url_or_none(text: str) -> str:
    """Read the address of an HTTP server, or nothing."""
    return as_http_url(text) if text else ""


def as_account_name(text: str) -> str:
    """Read a short name that can be part of an address."""
    if not re.fullmatch(r"[a-z0-9][a-z0-9_-]{0,31}", text):
        raise ValueError("must be a short name of small letters, digits, _ and -")
    return text


def as_store_url(text: str) -> str:
    """Read where a database is."""
    if text.startswith(POSTGRES):
        if not urlsplit(text).path.strip("/"):
            raise ValueError(f"must name a database: {POSTGRES}user:password@host/database")
    elif text.startswith(SQLITE):
        if text.removeprefix(SQLITE).partition("?")[0] in ("", ":memory:"):
            raise ValueError(f"must name a file: {SQLITE}crayfish.db")
    elif text:
        raise ValueError(f"must begin with {SQLITE} (a file) or {POSTGRES} (a server)")
    return text


def as_zone(text: str) -> str:
    """Read the name of a time zone."""
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


def as_text(value: Json) -> Json:
    """Read a number as text: ids are written as both."""
    return str(value) if type(value) is int else value


def as_minutes(value: Json) -> Json:
    """Read what people write for an interval beside texts: `false` is off, a bare number is minutes."""
    if value is False or value == "off":
        return "0m"
    return f"{value}m" if type(value) is int else value


def as_interval(text: str) -> str:
    """Read an interval of a minute at least, or none."""
    if text and 0 < duration(text) < 60:
        raise ValueError("must be at least 1m (0m is off)")
    return text


def as_time_of_day(text: str) -> str:
    """Read a time of day from 00:00 to 24:00."""
    if not re.fullmatch(r"([01][0-9]|2[0-3]):[0-5][0-9]|24:00", text):
        raise ValueError('must be a time of day from "00:00" to "24:00", such as "08:30"')
    return text


def as_start_of_day(text: str) -> str:
    """Read a time of day before 24:00."""
    if as_time_of_day(text) == "24:00":
        raise ValueError('must be before "24:00": midnight is "00:00"')
    return text


def as_days(text: str) -> str:
    """Read a time of a day at least."""
    if duration(text) < 86_400:
        raise ValueError("must be at least 1d: what a platform repeats within a day is known by it")
    return text


def as_days_or_ever(text: str) -> str:
    """Read a time of a day at least, 0 for ever."""
    if 0 < duration(text) < 86_400:
        raise ValueError("must be at least 1d (0d is for ever)")
    return text


def as_months_or_ever(text: str) -> str:
    """Read a time that holds the running month, 0 for ever."""
    if 0 < duration(text) < 32 * 86_400:
        raise ValueError("must be at least 32d: the sums of this month need them (0d is for ever)")
    return text


def as_target(text: str) -> str:
    """Read where something is delivered."""
    if text in ("owner", "last", "none") or re.fullmatch(r"[a-z][a-z0-9_-]*:[^:\s]+(:\S+)?", text):
        return text
    raise ValueError('must be "owner", "last", "none" or "channel:chat", such as "telegram:123456789"')


def as_owners(names: tuple[str, ...]) -> tuple[str, ...]:
    """Read people as `platform:id`."""
    for name in names:
        if not re.fullmatch(r"[a-z]+:[^:\s*]+", name):
            raise ValueError(f'"{name}" must name channel and person, such as "telegram:123456789"')
    return names


def as_patterns(patterns: tuple[str, ...]) -> tuple[str, ...]:
    """Read regular expressions that can be searched for quickly."""
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


def without_password(text: str) -> str:
    """Return text in which no address holds a password."""
    text = re.sub(r"(?<=://)[^\s/]*@", "***@", text)
    text = re.sub(r"(?i)([?&][a-z_-]{0,20}(?:key|token|secret|password)=)[^&\s\"']+", r"\1***", text)
    return re.sub(r"/bot[^/\s]*:[^/\s\"']*", "/bot***", text)
