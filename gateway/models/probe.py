"""Finds a model server on this machine, in a few milliseconds if there is none."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from gateway.types import Json

if TYPE_CHECKING:
    import httpx

OLLAMA_PORT = 11434
PORTS = (OLLAMA_PORT, 1234, 8080, 8000, 30000, 1337, 5001, 4891, 12434)
"""Ollama, LM Studio, llama.cpp, vLLM, SGLang, Jan, KoboldCpp, GPT4All, Docker Model Runner (models 1.1)."""

_CONNECT = 0.25
_ANSWER = 1.0
_PATHS = {12434: "/engines/v1"}
_MOST_ASKED = 8
"""Models of one Ollama whose abilities are asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A server that answered, and the model of it to use.

    `context` is the window in tokens the model was trained for, if known. `tools`: it can call tools.
    """

    base_url: str
    model: str
    is_ollama: bool = False
    tools: bool = True
    context: int | None = None


async def find_local(ports: Sequence[int], ollama_host: str, wanted: str) -> Found | None:
    """Return the first server in the order of the ports; `wanted` is a model's name, "" for any.

    Nothing secret is sent: port 8080 may be anything. `ollama_host` is the value of OLLAMA_HOST.
    """
    addresses = [(f"http://127.0.0.1:{port}", port == OLLAMA_PORT) for port in ports]
    if ollama_host:
        addresses = [(ollama_url(ollama_host), True), *(one for one in addresses if not one[1])]
    found = await asyncio.gather(*(_ask(url, wanted, is_ollama=flag) for url, flag in addresses))
    return next((one for one in found if one is not None), None)


def ollama_url(host: str) -> str:
    """Return the address that a value of OLLAMA_HOST means; what a server binds to is reached on loopback."""
    text = host.strip().rstrip("/")
    address = urlsplit(text if "://" in text else f"http://{text}")
    name = address.hostname or "127.0.0.1"
    name = "127.0.0.1" if name in {"0.0.0.0", "::"} else name  # noqa: S104  # compared, not bound
    return f"{address.scheme}://{f'[{name}]' if ':' in name else name}:{address.port or OLLAMA_PORT}"


def ollama_root(base_url: str) -> str:
    """Return the server's address without the path of any of its APIs."""
    base = base_url.strip().rstrip("/")
    for path in ("/api/chat", "/api", "/v1"):
        base = base.removesuffix(path)
    return base


async def ollama_model(base_url: str, model: str) -> Found | None:
    """Return what an Ollama server says of one model, None if it does not answer."""
    if not await _listens(base_url):
        return None
    async with _client(base_url) as client:
        return await _abilities(client, base_url, model)


async def _ask(base_url: str, wanted: str, *, is_ollama: bool) -> Found | None:
    if not await _listens(base_url):
        return None
    async with _client(base_url) as client:
        if is_ollama:
            return await _ollama(client, base_url, wanted)
        api = base_url + _PATHS.get(urlsplit(base_url).port or 0, "/v1")
        names = _names(await _get(client, f"{api}/models"), "data", "id")
        talking = [name for name in names if "embed" not in name.lower()]
        return Found(base_url=api, model=wanted or talking[0]) if talking else None


async def _ollama(client: httpx.AsyncClient, base_url: str, wanted: str) -> Found | None:
    names = _names(await _get(client, f"{base_url}/api/tags"), "models", "name")
    if wanted:
        return await _abilities(client, base_url, wanted) if names else None
    talking = [name for name in names if "embed" not in name.lower()]
    known = [await _abilities(client, base_url, name) for name in talking[:_MOST_ASKED]]
    return next((one for one in known if one.tools), known[0] if known else None)


async def _abilities(client: httpx.AsyncClient, base_url: str, model: str) -> Found:
    found = Found(base_url=base_url, model=model, is_ollama=True)
    shown = await _get(client, f"{base_url}/api/show", {"model": model})
    if not isinstance(shown, dict):
        return found
    info = shown.get("model_info") or {}
    lengths = [value for key, value in info.items() if key.endswith(".context_length")]
    abilities = shown.get("capabilities")  # absent before 0.6.4
    can = abilities is None or "tools" in abilities
    return replace(found, tools=can, context=int(lengths[0]) if lengths else None)


def _names(body: Json, list_key: str, name_key: str) -> list[str]:
    """Return the names in a list of models, none if the body is something else."""
    items = body.get(list_key) if isinstance(body, dict) else None
    if not isinstance(items, list):
        return []
    return [str(item[name_key]) for item in items if isinstance(item, dict) and item.get(name_key)]


async def _listens(base_url: str) -> bool:
    """Whether somebody accepts connections there; asked before the HTTP library is even loaded."""
    address = urlsplit(base_url)
    port = address.port or (443 if address.scheme == "https" else 80)
    try:
        async with asyncio.timeout(_CONNECT):
            _, writer = await asyncio.open_connection(address.hostname, port)
    except (OSError, TimeoutError):
        return False
    writer.close()
    return True


async def _get(client: httpx.AsyncClient, url: str, body: Json = None) -> Json:
    """Return the JSON behind an address, None if there is none."""
    from gateway.models.http import get_json  # noqa: PLC0415  # loads httpx

    try:
        async with asyncio.timeout(_ANSWER):
            return await get_json(client, url, body)
    except TimeoutError:
        return None


def _client(base_url: str) -> httpx.AsyncClient:
    from gateway.models.http import Timeouts, open_client  # noqa: PLC0415  # loads httpx

    return open_client(base_url, Timeouts(connect=_CONNECT))
