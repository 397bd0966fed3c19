"""The models that are asked: the usual one, and others where the configuration names them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gateway.app.parts import Parts
from gateway.models.auto import Choice, open_model, open_other, open_transcriber
from gateway.models.base import Model
from gateway.store.inbox import get_fact, set_fact

if TYPE_CHECKING:
    from gateway.models.transcribe import Transcriber

HAD_MODEL = "model.real"
"""The fact that a real model was chosen here: from then on the demo is never taken silently (models 1.1)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Models:
    """The usual model, and those of heartbeats, of summaries and of agents where they are others.

    `pictures` is asked about pictures, and `recordings` listens, where such models are configured.
    """

    choice: Choice
    beats: Model | None
    summaries: Model | None
    agents: Mapping[str, Model]
    pictures: Model | None
    recordings: Transcriber | None

    @property
    def usual(self) -> Model:
        return self.choice.model

    async def close(self) -> None:
        """Let go of their connections."""
        some = (self.usual, self.beats, self.summaries, self.pictures, self.recordings)
        for one in (*some, *self.agents.values()):
            if one is not None:
                await one.close()


async def open_models(parts: Parts) -> Models:
    """Choose a model, and open those that are named. Raises: ConfigError, StoreError."""
    settings, media = parts.settings, parts.settings.media

    async def other(name: str, key: str) -> Model:
        return await open_other(name, key, settings.model, parts.env, parts.clock)

    async def maybe(name: str, key: str) -> Model | None:
        return await other(name, key) if name else None

    named = {name: one.model for name, one in settings.agents.items() if one.model}
    return Models(
        choice=await _choose(parts),
        beats=await maybe(settings.heartbeat.model, "[heartbeat] model"),
        summaries=await maybe(settings.compaction.model, "[compaction] model"),
        agents={name: await other(model, f"[agents.{name}] model") for name, model in named.items()},
        pictures=await maybe(media.image_model, "[media] image_model"),
        recordings=open_transcriber(media, parts.env, parts.clock) if media.audio_model else None,
    )


async def _choose(parts: Parts) -> Choice:
    had_real = await parts.db.write(lambda tx: get_fact(tx, HAD_MODEL), durable=False) is not None
    choice = await open_model(parts.settings.model, parts.env, parts.clock, had_real=had_real)
    if choice.real and not had_real:
        await parts.db.write(lambda tx: set_fact(tx, HAD_MODEL, choice.model.name))
    return choice
