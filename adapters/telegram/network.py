"""Which proxy stands between us and the platform; pure."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from urllib.parse import urlsplit

from gateway.errors import ConfigError


def proxy_for(url: str, chosen: str, env: Mapping[str, str]) -> str:
    """Return the proxy for an address: the one that was chosen, else the environment's, else "".

    The environment's is `HTTPS_PROXY`, `HTTP_PROXY` or `ALL_PROXY`, unless `NO_PROXY` names the host;
    this machine is always reached directly.
    Raises: ConfigError for a proxy that is not an HTTP one, with the place where it is set.
    """
    parts = urlsplit(url)
    if chosen:
        return _checked(chosen, "channels.telegram.proxy")
    for name in (f"{parts.scheme}_proxy", "all_proxy"):
        place = name if name in env else name.upper()
        if proxy := env.get(place, ""):
            return "" if _direct(parts.hostname or "", env) else _checked(proxy, f"${place}")
    return ""


def _direct(host: str, env: Mapping[str, str]) -> bool:
    try:
        if host == "localhost" or ipaddress.ip_address(host).is_loopback:
            return True
    except ValueError:
        pass
    listed = (env.get("no_proxy") or env.get("NO_PROXY") or "").lower().split(",")
    names = [one.strip().partition(":")[0].lstrip(".") for one in listed]
    return "*" in names or any(name and f".{host}".endswith(f".{name}") for name in names)


def _checked(proxy: str, place: str) -> str:
    url = proxy if "://" in proxy else f"http://{proxy}"
    scheme = urlsplit(url).scheme.lower()
    if scheme.startswith("socks"):
        raise ConfigError(
            f"{place} is a SOCKS proxy, and Telegram can be reached through an HTTP proxy only. Set "
            'proxy = "http://host:port" in [channels.telegram] (many SOCKS servers have an HTTP port too; '
            "privoxy or gost can stand before one), or name the server in $NO_PROXY."
        )
    if scheme not in ("http", "https") or not urlsplit(url).hostname:
        raise ConfigError(f"{place} must be the address of an HTTP proxy, such as http://127.0.0.1:3128")
    return url
