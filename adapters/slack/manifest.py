"""The manifest of a Slack app: just the scopes and events that the enabled features need; pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from gateway.types import JsonObject

_LONGEST_NAME: Final = 35
_LONGEST_SHORTCUT: Final = 24
"""Characters of the name of an app, and of a shortcut (Slack, App manifest reference)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Features:
    """What the bot is to do.

    `url` is where Slack posts to, "" for Socket Mode. `channels` are public and private
    ones, `group_dms` talks of several people, `reactions` those of people, `acks` the bot's own. `command`
    is the slash command, "" for none. `assistant` is the status line of a thread and the assistant's pane.
    """

    name: str = "Crayfish"
    url: str = ""
    channels: bool = True
    group_dms: bool = False
    files: bool = True
    reactions: bool = True
    acks: bool = True
    command: str = "/crayfish"
    assistant: bool = True


@dataclass(frozen=True, slots=True)
class _Need:
    """Scopes of the bot token, and events to subscribe to."""

    scopes: tuple[str, ...]
    events: tuple[str, ...] = ()


_ALWAYS: Final = _Need(("chat:write", "im:history", "im:read", "im:write", "users:read"), ("message.im",))
_CHANNELS: Final = _Need(
    ("app_mentions:read", "channels:history", "channels:read", "groups:history", "groups:read"),
    (
        *("app_mention", "message.channels", "message.groups"),
        *("channel_rename", "group_rename", "member_joined_channel"),
    ),
)
_GROUP_DMS: Final = _Need(("mpim:history", "mpim:read", "mpim:write"), ("message.mpim",))
_FILES: Final = _Need(("files:read", "files:write"))
_REACTIONS: Final = _Need(("reactions:read",), ("reaction_added", "reaction_removed"))
_ACKS: Final = _Need(("reactions:write",))
_COMMANDS: Final = _Need(("commands",))
_ASSISTANT: Final = _Need(
    ("assistant:write",), ("assistant_thread_context_changed", "assistant_thread_started")
)


def _needs(features: Features) -> Iterator[_Need]:
    yield _ALWAYS
    if features.channels:
        yield _CHANNELS
    if features.group_dms:
        yield _GROUP_DMS
    if features.files:
        yield _FILES
    if features.reactions:
        yield _REACTIONS
    if features.acks:
        yield _ACKS
    if features.command:
        yield _COMMANDS
    if features.assistant:
        yield _ASSISTANT


def needed_scopes(features: Features) -> tuple[str, ...]:
    """Return the scopes of the bot token, sorted."""
    return tuple(sorted(scope for need in _needs(features) for scope in need.scopes))


def needed_events(features: Features) -> tuple[str, ...]:
    """Return the events that the app subscribes to, sorted."""
    return tuple(sorted(event for need in _needs(features) for event in need.events))


def app_manifest(features: Features) -> JsonObject:
    """Return what Slack asks for under "Create an app, From a manifest" (Slack, App manifest reference)."""
    url = features.url
    posted = {"request_url": url} if url else {}
    return {
        "display_information": {"name": features.name[:_LONGEST_NAME]},
        "features": {
            "app_home": {
                "home_tab_enabled": False,
                "messages_tab_enabled": True,
                "messages_tab_read_only_enabled": False,
            },
            "bot_user": {"display_name": features.name, "always_online": True},
            **(_commands(features, url) if features.command else {}),
            **({"assistant_view": {"assistant_description": "Ask me."}} if features.assistant else {}),
        },
        "oauth_config": {"scopes": {"bot": list(needed_scopes(features))}},
        "settings": {
            "event_subscriptions": {**posted, "bot_events": list(needed_events(features))},
            "interactivity": {"is_enabled": True, **posted},
            "org_deploy_enabled": False,
            "socket_mode_enabled": not url,
            "token_rotation_enabled": False,
        },
    }


def _commands(features: Features, url: str) -> JsonObject:
    """Return the slash command, and the shortcut in the menu of a message."""
    command: JsonObject = {
        "command": features.command,
        "description": f"Talk to {features.name}",
        "usage_hint": "help",
        "should_escape": True,
    }
    shortcut = {
        "type": "message",
        "callback_id": "crayfish_ask",
        "name": f"Ask {features.name}"[:_LONGEST_SHORTCUT],
        "description": "Say something about this message",
    }
    return {"slash_commands": [{**command, "url": url} if url else command], "shortcuts": [shortcut]}
