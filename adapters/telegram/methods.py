"""Builds requests of the Bot API; loads aiogram, so it is imported together with the client."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aiogram import methods
from aiogram.methods import EditMessageText, SendMessage, TelegramMethod
from aiogram.types import InlineKeyboardMarkup

from adapters.telegram.plan import plan
from adapters.telegram.sending import method_of, target_of
from gateway.errors import DeliveryError
from gateway.types import Json, Outgoing


def method(name: str, params: Mapping[str, Json]) -> TelegramMethod[Any]:
    """Return `sendMessage` and the like with its parameters. Raises: AttributeError, ValueError."""
    kind: type[TelegramMethod[Any]] = getattr(methods, name[0].upper() + name[1:])
    return kind(**params)


def edit_of(message: Outgoing, message_id: int, *, link_preview: bool = True) -> TelegramMethod[Any]:
    """Return the request that turns a message of ours into this one; without buttons it loses its own.

    Raises: DeliveryError if one message can't hold it.
    """
    steps = plan(message, ())
    if len(steps) != 1 or message.attachments:
        raise DeliveryError("it takes more than one message")
    sent = method_of(steps[0], target_of(message), link_preview=link_preview)
    assert isinstance(sent, SendMessage)  # what a step without files is
    assert sent.reply_markup is None or isinstance(sent.reply_markup, InlineKeyboardMarkup)
    return EditMessageText(
        chat_id=sent.chat_id,
        message_id=message_id,
        text=sent.text,
        entities=sent.entities,
        link_preview_options=sent.link_preview_options,
        reply_markup=sent.reply_markup,
    )
