"""Builds requests of the Bot API; loads aiogram, so it is imported together with the client."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aiogram import methods
from aiogram.methods import TelegramMethod

from gateway.types import Json


def method(name: str, params: Mapping[str, Json]) -> TelegramMethod[Any]:
    """Return `sendMessage` and the like with its parameters. Raises: AttributeError, ValueError."""
    kind: type[TelegramMethod[Any]] = getattr(methods, name[0].upper() + name[1:])
    return kind(**params)
