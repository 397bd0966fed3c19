"""What the core asks of a model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from gateway.types import AssistantEntry, Entry, ToolSpec, Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """Everything a model sees.

    `system` has stable bytes; `context` is what may change between turns and comes last in the
    system text. `nudge` is one instruction after the transcript that is not part of it. With
    `tools_allowed` False the model must answer in words (agent B, wrap-up); whoever sends it keeps
    `tools` in place where the provider allows that, for the cache. `session` names the conversation for provider caches.
    """

    system: str
    context: str = ""
    entries: Sequence[Entry] = ()
    tools: Sequence[ToolSpec] = ()
    tools_allowed: bool = True
    nudge: str = ""
    session: str = ""
    zone: str = "UTC"


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer. `cut` says that it ended at the length limit."""

    entry: AssistantEntry
    usage: Usage = Usage()
    cut: bool = False


OnText: TypeAlias = Callable[[str], None]
"""Called with each piece of raw reply text as it comes; None-safe, must not raise, must not block."""


class Model(Protocol):
    """A model, or a chain of them."""

    @property
    def name(self) -> str:
        """Return what `/status` shows, e.g. `openai/gpt-5`."""
        ...

    async def reply(self, prompt: Prompt, on_text: OnText | None = None) -> Reply:
        """Ask once.

        Raises: ModelBusy, ModelRefused, PromptTooLong.
        """
        ...

    async def close(self) -> None:
        """Let go of connections."""
        ...
