"""What the core asks of a model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from gateway.types import AssistantEntry, Entry, ToolSpec, Usage


@dataclass(frozen=True, slots=True)
class Picture:
    """An image: its media type and its content in base64."""

    mime: str
    data: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """Everything a model sees.

    `system` has stable bytes; `context` is what may change between turns and comes last in the
    system text. `nudge` is one instruction after the transcript that is not part of it. With
    `tools_allowed` False the model must answer in words (agent B, wrap-up); whoever sends it keeps
    `tools` in place where the provider allows that, for the cache. `session` names the conversation
    for provider caches; `zone` is the time zone in which messages are stamped.
    """

    system: str
    context: str = ""
    entries: Sequence[Entry] = ()
    tools: Sequence[ToolSpec] = ()
    tools_allowed: bool = True
    nudge: str = ""
    pictures: Mapping[str, Picture] = field(default_factory=dict)
    session: str = ""
    zone: str = "UTC"


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer. `cut` says that it ended at the length limit."""

    entry: AssistantEntry
    usage: Usage = field(default_factory=Usage)
    cut: bool = False


OnText: TypeAlias = Callable[[str], None]
"""Called with each piece of reply text as it comes, reasoning left out; must not raise, must not block."""

OnRestart: TypeAlias = Callable[[], None]
"""Called when the text shown so far is void: what `OnText` gets from now on replaces it."""


class Model(Protocol):
    """A model, or a chain of them."""

    @property
    def name(self) -> str:
        """Return what `/status` shows, e.g. `openai/gpt-5`."""
        ...

    async def reply(
        self, prompt: Prompt, on_text: OnText | None = None, on_restart: OnRestart | None = None
    ) -> Reply:
        """Ask once.

        The pieces given to `on_text` since the last `on_restart` add up to the reply's text, but for
        blanks around it. Whoever hands in `on_text` without `on_restart` can't take back what it
        showed, so an answer that breaks off after its first words is then an error, not a new attempt.

        Raises: ModelBusy, ModelRefused, PromptTooLong.
        """
        ...

    async def close(self) -> None:
        """Let go of connections."""
        ...
