"""Reads the folder of nanobot (`~/.nanobot`)."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Iterator, Mapping
from datetime import tzinfo
from pathlib import Path

from gateway.importing.logs import (
    UNREADABLE,
    Log,
    Place,
    Timed,
    place,
    seconds,
    text_of,
    tool_entry,
    user_entry,
)
from gateway.importing.tree import Skipped, Tree, left_out, named_secrets, plain_files, plain_folders
from gateway.types import Address, AssistantEntry, Chat, Entry, JsonObject, ToolCall

CONFIG = "config.json"

TOKENS: Mapping[str, str] = {
    "channels.telegram.token": "[channels.telegram] token",
    "channels.slack.botToken": "[channels.slack] bot_token",
    "channels.slack.appToken": "[channels.slack] app_token",
    "tools.web.search.apiKey": "[web] search_key",
}
"""What its secrets are called here; any other key of a model provider is `[model] api_key`."""

_INNER = frozenset({"cron", "heartbeat", "system", "dream", "subagent"})
_PAGE = frozenset({"cli", "websocket", "webui", "unified", "api"})
"""Where people talk to it without a platform."""


def look(root: Path) -> Tree:
    """Return what lies in the folder, or only in its workspace if that is what `root` is.

    Raises: OSError.
    """
    workspace = root / "workspace"
    if not workspace.is_dir():
        found = Tree(workspace=root, inner={"sessions"})
        if (root.parent / CONFIG).is_file():
            found.above = root.parent
    else:
        found = Tree(
            workspace=workspace.resolve(), settings=named_secrets(root / CONFIG, TOKENS), inner={"sessions"}
        )
        found.skipped += left_out(root, frozenset({CONFIG, "workspace", "sessions"}))
    for folder in _session_folders(root):
        for file in plain_files(folder):
            _add(file, f"{folder.relative_to(root)}/{file.name}", found)
    return found


def _session_folders(root: Path) -> list[Path]:
    """Return where its versions keep sessions: beside the workspace, below that by workspace, and within."""
    beside = [one for one in plain_folders(root) if one.name == "sessions"]
    below = [inner for one in beside for inner in plain_folders(one)]
    within = [
        one
        for workspace in plain_folders(root)
        if workspace.name == "workspace"
        for one in plain_folders(workspace)
        if one.name == "sessions"
    ]
    return [*beside, *below, *within]


def _add(file: Path, shown: str, found: Tree) -> None:
    if file.suffix != ".jsonl":
        found.skipped.append(Skipped(shown, "no session"))
        return
    key, created, last = _head(file)
    where = place_of(key or _decoded(file.stem), last)
    if where is None:
        found.skipped.append(Skipped(shown, f"{key}: what the bot did by itself"))
        return
    found.logs.append(
        Log(name=f"{key or file.stem}@{created}", shown=shown, file=file, place=where, read=read)
    )


def _head(file: Path) -> tuple[str, str, str]:
    """Return key, time of creation and last chat as the first line tells them, "" for what it does not."""
    try:
        with file.open("rb") as lines:
            row = json.loads(lines.readline())
        if row["_type"] != "metadata":
            return "", "", ""
        meta = row.get("metadata") or {}
        return (
            str(row.get("key") or ""),
            str(row.get("created_at") or ""),
            str(meta.get("last_channel") or ""),
        )
    except UNREADABLE:
        return "", "", ""


def _decoded(stem: str) -> str:
    """Return the key that a file's name stands for: in base64, or with its colon as an underscore."""
    try:
        key = base64.b64decode(stem + "=" * (-len(stem) % 4), altchars=b"-_", validate=True).decode()
    except (binascii.Error, ValueError):
        key = ""
    return key if re.fullmatch(r"[a-z]+:\S+", key) else stem.replace("_", ":", 1)


def place_of(key: str, last: str) -> Place | None:
    """Return where `channel:chat[:topic:id]` is here, None for what the bot did by itself.

    `last` is the chat that was used last, for a session of all of them.
    """
    channel, _, rest = key.partition(":")
    if channel in _INNER or not rest:
        return None
    if channel in _PAGE:
        here = place(*last.split(":", 1)) if ":" in last and last.partition(":")[0] not in _PAGE else None
        name = re.sub(r"[^A-Za-z0-9_-]", "-", f"nanobot-{rest}")[:64]
        return here or Place(Address("web", name), Chat.DIRECT)
    chat, _, thread = rest.partition(":")
    return place(channel, chat, thread.removeprefix("topic:").removeprefix("thread:"))


def read(row: JsonObject, where: Place, zone: tzinfo) -> Timed | None:
    """Return what a line is."""
    if "_type" in row or row.get("_command"):
        return None
    at = seconds(row.get("timestamp"), zone)
    entry = _message(row, where, at)
    return None if entry is None else Timed(entry, at)


def _message(row: JsonObject, where: Place, at: float) -> Entry | None:
    match row["role"]:
        case "user":
            return user_entry(row.get("content"), where, at)
        case "assistant":
            reasoning = str(row.get("reasoning_content") or "")
            return AssistantEntry(text_of(row.get("content")), tuple(_calls(row)), reasoning)
        case "tool":
            return tool_entry(row.get("tool_call_id"), row.get("name"), row.get("content"), is_error=False)
        case _:
            return None


def _calls(row: JsonObject) -> Iterator[ToolCall]:
    for call in row.get("tool_calls") or ():
        function = call["function"]
        args = function.get("arguments") or {}
        args = json.loads(args) if isinstance(args, str) else args
        yield ToolCall(str(call["id"]), str(function["name"]), args if isinstance(args, dict) else {})
