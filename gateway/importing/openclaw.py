"""Reads the folder of OpenClaw, as far as it keeps sessions in files (`~/.openclaw`)."""

from __future__ import annotations

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
    tool_entry,
    user_entry,
)
from gateway.importing.tree import Skipped, Tree, left_out, named_secrets, plain_files, plain_folders
from gateway.types import Address, AssistantEntry, Chat, Entry, JsonObject, NoteEntry, ToolCall

CONFIG = "openclaw.json"

TOKENS: Mapping[str, str] = {
    "channels.telegram.botToken": "[channels.telegram] token",
    "channels.slack.botToken": "[channels.slack] bot_token",
    "channels.slack.appToken": "[channels.slack] app_token",
    "channels.slack.signingSecret": "[channels.slack] signing_secret",
    "gateway.auth.token": "[http] token",
}
"""What its secrets are called here; any other key of a model provider is `[model] api_key`."""

_INNER = frozenset({"cron", "hook", "subagent", "heartbeat", "acp", "global", "node", "dreaming"})
_KINDS = {"direct": True, "dm": True, "group": False, "channel": False, "room": False}
_SESSION = re.compile(r"(?P<id>[A-Za-z0-9_-]+?)(-topic-[^.]+)?\.jsonl(\.reset\..+)?")
_PREFIX = re.compile(r"(?:telegram|slack|user|channel|chat|group|direct|dm):", re.IGNORECASE)


def look(root: Path) -> Tree:
    """Return what lies in the folder, or only in its workspace if that is what `root` is.

    Raises: OSError.
    """
    agents = root / "agents"
    if not agents.is_dir() and not (root / "workspace").is_dir():
        return Tree(workspace=root, above=root.parent if (root.parent / "agents").is_dir() else None)
    found = Tree(workspace=(root / "workspace").resolve(), settings=named_secrets(root / CONFIG, TOKENS))
    for other in plain_folders(root):
        if _other(other):
            found.skipped.append(
                Skipped(
                    other.name, "the workspace of another agent; make it one of [agents] and copy it there"
                )
            )
    for agent in plain_folders(agents):
        _look_at(agent, found)
    known = frozenset(
        {CONFIG, "agents", "workspace", *(one.name for one in plain_folders(root) if _other(one))}
    )
    found.skipped += left_out(root, known)
    return found


def _other(folder: Path) -> bool:
    return folder.name.startswith("workspace-")


def _look_at(agent: Path, found: Tree) -> None:
    """Add the sessions of an agent."""
    sessions = agent / "sessions"
    if any(agent.rglob("*.sqlite")):
        why = "newer versions keep sessions in a database, which is not read; files of older ones are"
        found.skipped.append(Skipped(f"agents/{agent.name}", why))
    store = _store(sessions, found)
    by_id = {str(entry.get("sessionId")): (key, entry) for key, entry in store.items()}
    for file in plain_files(sessions):
        if file.name == "sessions.json":
            continue
        shown = f"agents/{agent.name}/sessions/{file.name}"
        match = _SESSION.fullmatch(file.name)
        if match is None:
            found.skipped.append(Skipped(shown, _why_not(file.name)))
            continue
        key, entry = by_id.get(match["id"], ("", {}))
        where = place_of(key, entry, agent.name)
        if where is None:
            found.skipped.append(Skipped(shown, f"{key}: what the bot did by itself"))
            continue
        found.logs.append(
            Log(name=f"{agent.name}/{match['id']}", shown=shown, file=file, place=where, read=read)
        )


def _store(sessions: Path, found: Tree) -> dict[str, JsonObject]:
    """Return the entries by the keys of their conversations."""
    try:
        raw = json.loads((sessions / "sessions.json").read_text(encoding="utf-8"))
        return {str(key): entry for key, entry in raw.items() if isinstance(entry, dict)}
    except FileNotFoundError:
        return {}
    except (OSError, *UNREADABLE):
        shown = f"agents/{sessions.parent.name}/sessions/sessions.json"
        found.skipped.append(Skipped(shown, "it can't be read, so nobody knows whose sessions these are"))
        return {}


def _why_not(name: str) -> str:
    if ".deleted." in name:
        return "it was deleted there"
    return "no session"


def place_of(key: str, entry: JsonObject, agent: str) -> Place | None:
    """Return where a conversation is here, None for what the bot did by itself.

    One whose chat can't be told is a session of the web page, where it can be read.
    """
    parts = key.split(":")
    if parts[0] == "agent" and len(parts) > 2:
        parts = parts[2:]
    if _INNER & {parts[0], parts[-1]}:
        return None
    unknown = Place(Address("web", re.sub(r"[^A-Za-z0-9_-]", "-", f"openclaw-{agent}")[:64]), Chat.DIRECT)
    return _from_key(parts) or _from_entry(entry) or unknown


def _from_key(parts: list[str]) -> Place | None:
    """Read `<channel>[:<account>]:<kind>:<id>[:topic|thread:<id>]`."""
    at = next((number for number in (1, 2) if parts[number : number + 1] and parts[number] in _KINDS), None)
    if at is None:
        return None
    rest = parts[at + 1 :]
    cut = next((number for number, one in enumerate(rest) if one in ("topic", "thread")), len(rest))
    account = parts[1] if at == 2 and parts[1] != "default" else ""
    channel = f"{parts[0]}-{account}" if account else parts[0]
    return place(channel, ":".join(rest[:cut]), ":".join(rest[cut + 1 :]), direct=_KINDS[parts[at]])


def _from_entry(entry: JsonObject) -> Place | None:
    """Return where the last answer went."""
    context = entry.get("deliveryContext")
    context = context if isinstance(context, dict) else {}
    channel = str(context.get("channel") or entry.get("lastChannel") or "")
    to = str(context.get("to") or entry.get("lastTo") or "")
    account = str(context.get("accountId") or "default")
    while match := _PREFIX.match(to):
        to = to[match.end() :]
    chat, _, thread = to.partition(":topic:")
    return place(channel if account == "default" else f"{channel}-{account}", chat, thread)


def read(row: JsonObject, where: Place, zone: tzinfo) -> Timed | None:
    """Return what a line is."""
    at = seconds(row.get("timestamp"), zone)
    match row["type"]:
        case "message":
            entry = _message(row["message"], where, at or seconds(row["message"].get("timestamp"), zone))
            return None if entry is None else Timed(entry, at)
        case "compaction" | "branch_summary":
            return Timed(NoteEntry(str(row["summary"])), at)
        case _:  # models, settings, and what extensions keep
            return None


def _message(message: JsonObject, where: Place, at: float) -> Entry | None:
    match message["role"]:
        case "user":
            return user_entry(message["content"], where, at)
        case "assistant":
            return _assistant(message)
        case "toolResult":
            error = bool(message.get("isError"))
            return tool_entry(
                message["toolCallId"], message.get("toolName"), message["content"], is_error=error
            )
        case _:
            return None


def _assistant(message: JsonObject) -> AssistantEntry:
    content = message["content"]
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
    return AssistantEntry(
        "\n".join(part["text"] for part in parts if part["type"] == "text"),
        tuple(_calls(parts)),
        "\n".join(part.get("thinking", "") for part in parts if part["type"] == "thinking"),
        str(message.get("model") or ""),
    )


def _calls(parts: list[JsonObject]) -> Iterator[ToolCall]:
    for part in parts:
        if part["type"] == "toolCall":
            args = part.get("arguments")
            yield ToolCall(str(part["id"]), str(part["name"]), args if isinstance(args, dict) else {})
