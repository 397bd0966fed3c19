"""What comes as a file, and where it can be fetched; pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from adapters.slack.text import one_line
from gateway.types import Attachment, JsonObject, Media

MOST: Final = 8
"""Files of one message that are fetched (spec SL-25)."""

_KINDS: Final = {"image": Media.IMAGE, "audio": Media.AUDIO, "video": Media.VIDEO}
_CLIPS: Final = {"slack_audio": Media.VOICE, "slack_video": Media.VIDEO}
_LOST: Final = {
    "tombstone": "it was deleted",
    "hidden_by_limit": "Slack hides it, because the workspace has too many files",
    "external": "it lies outside of Slack",
}


def attachments(event: JsonObject) -> tuple[Attachment, ...]:
    """Return the files of a message (Slack file object); those beyond the eighth can't be had."""
    return tuple(_attachments(event))


def are_of_others(event: JsonObject) -> bool:
    """Return whether a file of a message was uploaded by somebody else than who shares it."""
    return any(file.get("user", event.get("user")) != event.get("user") for file in event.get("files") or ())


def _attachments(event: JsonObject) -> Iterator[Attachment]:
    for number, file in enumerate(event.get("files") or ()):
        ref, problem = _place(file)
        if number >= MOST:
            ref, problem = "", f"only {MOST} files of a message are fetched"
        yield Attachment(
            kind=_kind(file),
            name=one_line(file.get("name") or file.get("title") or "file"),
            mime=one_line(file.get("mimetype") or ""),
            size=int(file.get("size") or 0),
            ref=ref,
            problem=problem,
        )


def _kind(file: JsonObject) -> Media:
    clip = _CLIPS.get(str(file.get("subtype")))
    return clip or _KINDS.get(str(file.get("mimetype") or "").partition("/")[0], Media.FILE)


def _place(file: JsonObject) -> tuple[str, str]:
    """Return the address of a file (its id if Slack wants to be asked for it), or why there is none."""
    if (lost := _LOST.get(str(file.get("mode")))) is not None:
        return "", lost
    if file.get("file_access") == "check_file_info":
        return str(file["id"]), ""
    url = str(file.get("url_private_download") or file.get("url_private") or "")
    return (url, "") if url else ("", "Slack does not tell where it lies")
