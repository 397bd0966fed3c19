"""The providers whose keys are looked for in the environment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal
from urllib.parse import urlsplit


@dataclass(frozen=True, slots=True)
class Provider:
    """A provider: `env` is the variable with its key, `model` what is asked for if nothing else is named."""

    name: str
    env: str
    dialect: Literal["openai", "anthropic"]
    base_url: str
    model: str

    def key(self, env: Mapping[str, str]) -> str:
        """Return the key in the environment, "" if there is none."""
        return env.get(self.env, "").strip()

    def address(self, env: Mapping[str, str]) -> str:
        """Return where it is; `OPENAI_BASE_URL` and its like go before the usual place."""
        return env.get(self.env.replace("_API_KEY", "_BASE_URL"), "").strip() or self.base_url


OPENAI = Provider("openai", "OPENAI_API_KEY", "openai", "https://api.openai.com/v1", "gpt-5")
ANTHROPIC = Provider(
    "anthropic", "ANTHROPIC_API_KEY", "anthropic", "https://api.anthropic.com/v1", "claude-sonnet-4-5"
)

PROVIDERS = (
    OPENAI,
    ANTHROPIC,
    Provider("deepseek", "DEEPSEEK_API_KEY", "openai", "https://api.deepseek.com/v1", "deepseek-chat"),
    Provider(
        "dashscope",
        "DASHSCOPE_API_KEY",
        "openai",
        "https://dashscope.aliyuncs.com/compatible-mode/v1",
        "qwen-plus",
    ),
    Provider("openrouter", "OPENROUTER_API_KEY", "openai", "https://openrouter.ai/api/v1", "openrouter/auto"),
    Provider(
        "gemini",
        "GEMINI_API_KEY",
        "openai",
        "https://generativelanguage.googleapis.com/v1beta/openai",
        "gemini-2.5-flash",
    ),
)
"""In the order in which they are tried."""


def named(name: str) -> Provider | None:
    """Return the provider of this name."""
    return next((provider for provider in PROVIDERS if provider.name == name), None)


def at(base_url: str) -> Provider | None:
    """Return the provider whose host an address has."""
    host = urlsplit(base_url).hostname
    return next((one for one in PROVIDERS if urlsplit(one.base_url).hostname == host), None)
