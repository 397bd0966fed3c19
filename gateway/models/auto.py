"""Which model answers: the configured one, one whose key is there, a local server, or the demo."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal
from urllib.parse import urlsplit

from gateway.clock import Clock
from gateway.config import MediaSettings, ModelSettings
from gateway.errors import ConfigError
from gateway.models import probe, providers
from gateway.models.base import Model
from gateway.models.demo import Demo
from gateway.models.fallback import Chain
from gateway.models.providers import ANTHROPIC, OPENAI, PROVIDERS, Provider

if TYPE_CHECKING:
    from gateway.models.transcribe import Transcriber

OLLAMA_CONTEXT = 32_768
"""Tokens of context asked of Ollama unless [model] context_window is set: each one takes memory there."""

_OLLAMA: Literal["ollama"] = "ollama"

_FIRST = 180.0
_LOCAL_FIRST = 300.0
"""Seconds until an answer begins."""

_HEARING = 40.0
"""Seconds to make a text of a recording: its message waits so long, and twice if the server is busy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The model that was chosen.

    `text` is the line to print at the start. `context_window` is the number of tokens that fit in it,
    which can be less than configured.
    """

    model: Model
    text: str
    context_window: int
    is_demo: bool = False

    @property
    def real(self) -> bool:
        """Whether a language model answers."""
        return not self.is_demo


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A model that could be opened; `why` says where it came from."""

    dialect: Literal["openai", "anthropic", "ollama"]
    base_url: str
    model: str
    provider: str
    why: str
    key: str = field(default="", repr=False)
    tools: bool = True
    context: int | None = None


async def open_model(
    settings: ModelSettings,
    env: Mapping[str, str],
    clock: Clock,
    *,
    had_real: bool = False,
    probe_ports: Sequence[int] = probe.PORTS,
    jitter: Callable[[], float] = random.random,
) -> Choice:
    """Choose and open a model.

    In this order: `[model]`, the first key in the environment, the first local server, the demo. With
    `had_real` the demo is never chosen silently: a lost key must not look like a stupid bot.

    Raises: ConfigError, which names the missing thing and what to do.
    """
    if settings.dialect == "demo":
        return _demo(settings, "chosen in the configuration")
    plan = configured(settings, env)
    if plan is None:
        plan = await _local(settings, env, probe_ports)
    elif plan.dialect == _OLLAMA:
        plan = await _known(plan)
    if plan is None:
        if had_real:
            raise ConfigError(_lost())
        return _demo(settings, f"no {PROVIDERS[0].env} or the like, no local model server")
    return _open([plan, *fallbacks(settings, env, plan)], settings, clock, jitter)


async def open_other(
    name: str,
    section: str,
    settings: ModelSettings,
    env: Mapping[str, str],
    clock: Clock,
    *,
    probe_ports: Sequence[int] = probe.PORTS,
) -> Model:
    """Open the model `name` beside the one that `open_model` chooses: `model`, or `provider/model`.

    Raises: ConfigError, which begins with `section`.
    """
    plan = configured(settings, env) if settings.dialect != "demo" else None
    first = plan or await _local(settings, env, probe_ports)
    if first is None:
        raise ConfigError(f"{section}: there is no language model here. Set up [model] first, or remove it.")
    other = beside(name, env, first, section)
    other = await _known(other) if other.dialect == _OLLAMA else other
    return _open([other], settings, clock, random.random).model


def open_transcriber(settings: MediaSettings, env: Mapping[str, str], clock: Clock) -> Transcriber:
    """Open the model that listens: OpenAI's, or that of a server which speaks the same.

    The key in the environment goes only to its own provider. Raises: ConfigError.
    """
    from gateway.models.http import Endpoint, Timeouts  # noqa: PLC0415  # loads httpx
    from gateway.models.transcribe import Transcriber  # noqa: PLC0415  # loads httpx

    base_url = settings.audio_base_url or OPENAI.address(env)
    usual = OPENAI if not settings.audio_base_url else providers.at(base_url)
    key = settings.audio_api_key.get_secret_value() or (usual.key(env) if usual else "")
    if not key and providers.at(base_url) is not None:
        variable = usual.env if usual else OPENAI.env
        raise ConfigError(f"[media] audio_api_key is missing: set it, or set {variable} in the environment.")
    endpoint = Endpoint(
        base_url=base_url,
        model=settings.audio_model,
        provider=usual.name if usual else "audio",
        key=key,
        timeouts=Timeouts(first=_HEARING),
    )
    return Transcriber(endpoint, clock)


def configured(settings: ModelSettings, env: Mapping[str, str]) -> Plan | None:
    """Return the model that the configuration or a key in the environment names, None if none does.

    Raises: ConfigError.
    """
    match settings.dialect:
        case "ollama":
            return _explicit_ollama(settings, env)
        case "openai":
            return _explicit(settings, env, "openai", providers.at(settings.base_url) or OPENAI)
        case "anthropic":
            return _explicit(settings, env, "anthropic", ANTHROPIC)
        case _:
            pass
    if settings.base_url or settings.api_key.get_secret_value():
        return _guessed(settings, env)
    return _from_environment(settings, env)


def fallbacks(settings: ModelSettings, env: Mapping[str, str], first: Plan) -> list[Plan]:
    """Return the plans for `fallbacks`: `provider/model` with that provider's key, or a model of the first.

    A name that begins with a known provider means that provider, so a model of OpenRouter's is written
    `openrouter/vendor/model`.
    Raises: ConfigError, if a key is missing.
    """
    return [beside(text, env, first, "[model] fallbacks") for text in settings.fallbacks]


def beside(text: str, env: Mapping[str, str], first: Plan, section: str) -> Plan:
    """Return the plan for a model that `section` names beside the first one.

    Raises: ConfigError, if its provider's key is missing.
    """
    name, _, model = text.partition("/")
    provider = providers.named(name)
    if model and name == first.provider:
        return replace(first, model=model)
    if model and name == _OLLAMA:
        address = probe.ollama_url(env.get("OLLAMA_HOST", ""))
        return Plan(dialect=_OLLAMA, base_url=address, model=model, provider=name, why="")
    if not model or provider is None:
        return replace(first, model=text)
    if not provider.key(env):
        raise ConfigError(f"{section}: {text} needs a key. Set {provider.env}, or take it out.")
    return _of(provider, env, model)


def _explicit(
    settings: ModelSettings, env: Mapping[str, str], dialect: Literal["openai", "anthropic"], usual: Provider
) -> Plan:
    """Return what a named dialect means; the key in the environment only goes to its own provider."""
    if not settings.name:
        raise ConfigError(f'[model] name is missing: say which model to ask, as in name = "{usual.model}".')
    base_url = settings.base_url or usual.address(env)
    is_own = not settings.base_url or providers.at(base_url) is usual
    key = settings.api_key.get_secret_value() or (usual.key(env) if is_own else "")
    if not key and providers.at(base_url) is not None:
        raise ConfigError(f"[model] api_key is missing: set it, or set {usual.env} in the environment.")
    return Plan(
        dialect=dialect,
        base_url=base_url,
        model=settings.name,
        provider=usual.name if is_own else dialect,
        key=key,
        why=_origin(settings, usual, key),
    )


def _explicit_ollama(settings: ModelSettings, env: Mapping[str, str]) -> Plan:
    if not settings.name:
        raise ConfigError('[model] name is missing: say which pulled model to ask, as in name = "qwen3:8b".')
    base_url = settings.base_url or probe.ollama_url(env.get("OLLAMA_HOST", ""))
    key = settings.api_key.get_secret_value()
    why = f"Ollama at {_shown(base_url)}"
    return Plan(dialect=_OLLAMA, base_url=base_url, model=settings.name, provider=_OLLAMA, key=key, why=why)


def _guessed(settings: ModelSettings, env: Mapping[str, str]) -> Plan:
    """Return what an address or a key without a dialect means."""
    address = urlsplit(settings.base_url)
    if address.port == probe.OLLAMA_PORT:
        return _explicit_ollama(settings, env)
    key = settings.api_key.get_secret_value()
    looks_anthropic = "anthropic" in (address.hostname or "") or (
        not address.hostname and key.startswith("sk-ant-")
    )
    usual = ANTHROPIC if looks_anthropic else providers.at(settings.base_url) or OPENAI
    is_own = not settings.base_url or providers.at(settings.base_url) is usual
    if is_own and not settings.name:
        settings = settings.model_copy(update={"name": usual.model})
    return _explicit(settings, env, usual.dialect, usual)


def _from_environment(settings: ModelSettings, env: Mapping[str, str]) -> Plan | None:
    """Return the first provider with a key; `provider/model` as the name goes before the order."""
    prefix, _, model = settings.name.partition("/")
    wanted = providers.named(prefix)
    if wanted and model and wanted.key(env):
        return _of(wanted, env, model)
    provider = next((one for one in PROVIDERS if one.key(env)), None)
    return _of(provider, env, settings.name or provider.model) if provider else None


def _of(provider: Provider, env: Mapping[str, str], model: str) -> Plan:
    """Return the plan for a provider whose key is in the environment."""
    return Plan(
        dialect=provider.dialect,
        base_url=provider.address(env),
        model=model,
        provider=provider.name,
        key=provider.key(env),
        why=f"key from {provider.env}",
    )


async def _local(settings: ModelSettings, env: Mapping[str, str], ports: Sequence[int]) -> Plan | None:
    found = await probe.find_local(ports, env.get("OLLAMA_HOST", "").strip(), settings.name)
    if found is None:
        return None
    dialect: Literal["ollama", "openai"] = _OLLAMA if found.is_ollama else "openai"
    return Plan(
        dialect=dialect,
        base_url=found.base_url,
        model=found.model,
        provider=_OLLAMA if found.is_ollama else "local",
        why=f"found at {_shown(found.base_url)}",
        tools=found.tools,
        context=found.context,
    )


async def _known(plan: Plan) -> Plan:
    """Add what the Ollama server says of the model; it may be started later than we are."""
    found = await probe.ollama_model(probe.ollama_root(plan.base_url), plan.model)
    return replace(plan, tools=found.tools, context=found.context) if found else plan


def _open(
    plans: Sequence[Plan], settings: ModelSettings, clock: Clock, jitter: Callable[[], float]
) -> Choice:
    first, *others = plans
    windows = [_window(plan, settings) for plan in plans]
    models = [_model(plan, window, settings, clock) for plan, window in zip(plans, windows, strict=True)]
    chat_only = "" if first.tools else "; chat only: this model has no tools"
    then = f"; then {', '.join(f'{plan.provider}/{plan.model}' for plan in others)}" if others else ""
    text = f"model: {first.provider}/{first.model} ({first.why}{chat_only}{then})"
    return Choice(model=Chain(models, clock, jitter=jitter), text=text, context_window=min(windows))


def _window(plan: Plan, settings: ModelSettings) -> int:
    """Return the tokens that fit: as configured, but for Ollama, which reserves memory for each of them."""
    if plan.dialect != _OLLAMA:
        return settings.context_window
    asked = settings.context_window if "context_window" in settings.model_fields_set else OLLAMA_CONTEXT
    return min(asked, plan.context or asked)


def _model(plan: Plan, window: int, settings: ModelSettings, clock: Clock) -> Model:
    # httpx takes 0.1 s to load; a start that ends in the demo does without.
    from gateway.models.anthropic import Anthropic  # noqa: PLC0415  # loads httpx
    from gateway.models.http import Endpoint, Timeouts, is_loopback  # noqa: PLC0415  # loads httpx
    from gateway.models.ollama import Ollama  # noqa: PLC0415  # loads httpx
    from gateway.models.openai import OpenAI  # noqa: PLC0415  # loads httpx

    # A local server may have to load the model first.
    first = _LOCAL_FIRST if is_loopback(urlsplit(plan.base_url).hostname or "") else _FIRST
    endpoint = Endpoint(
        base_url=plan.base_url,
        model=plan.model,
        provider=plan.provider,
        key=plan.key,
        max_tokens=settings.max_tokens,
        timeouts=Timeouts(first=max(first, settings.idle_timeout), idle=settings.idle_timeout),
    )
    match plan.dialect:
        case "anthropic":
            return Anthropic(endpoint, clock)
        case "ollama":
            return Ollama(endpoint, clock, context=window, tools=plan.tools)
        case "openai":
            return OpenAI(endpoint, clock)


def _demo(settings: ModelSettings, why: str) -> Choice:
    text = f"model: demo, which is no language model ({why}; see [model] in the configuration)"
    return Choice(model=Demo(), text=text, context_window=settings.context_window, is_demo=True)


def _lost() -> str:
    keys = ", ".join(provider.env for provider in PROVIDERS)
    return (
        "This bot had a language model before, but now there is no [model] in the configuration, none of "
        f"the keys {keys} in the environment, and no model server on this machine. Bring back what is "
        'missing. To go on without a language model on purpose, write dialect = "demo" under [model].'
    )


def _origin(settings: ModelSettings, usual: Provider, key: str) -> str:
    if settings.api_key.get_secret_value():
        return "key from the configuration"
    return f"key from {usual.env}" if key else f"{_shown(settings.base_url)}, no key"


def _shown(base_url: str) -> str:
    """Return an address without user and password."""
    address = urlsplit(base_url)
    return address._replace(netloc=address.netloc.rpartition("@")[2], query="").geturl()
