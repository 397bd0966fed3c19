"""What a message holds beside its text: a label that tells of it, and the file to fetch; pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from adapters.telegram.text import clean
from gateway.types import Attachment, Json, JsonObject, Media

_LONGEST = 300
"""Characters of a label."""

_PICTURES = frozenset({"image/png", "image/jpeg", "image/webp", "image/gif"})
"""Types of documents that are pictures to whoever looks at pictures."""


@dataclass(frozen=True, slots=True)
class _Sort:
    """The fields that tell about a content, and what its file is and how it is called, if it has one."""

    told: Sequence[str] = ()
    media: Media | None = None
    name: str = ""


_SORTS: Mapping[str, _Sort] = {
    "animation": _Sort(("file_name", "duration"), Media.VIDEO, "animation.mp4"),
    "audio": _Sort(("performer", "title", "file_name", "duration"), Media.AUDIO, "audio.mp3"),
    "document": _Sort(("file_name",), Media.FILE, "document"),
    "live_photo": _Sort(("duration",), Media.VIDEO, "live_photo.mp4"),
    "photo": _Sort((), Media.IMAGE, "photo.jpg"),
    "sticker": _Sort(("emoji",), Media.IMAGE, "sticker.webp"),
    "story": _Sort(),
    "video_note": _Sort(("duration",), Media.VIDEO, "video_note.mp4"),
    "video": _Sort(("file_name", "duration"), Media.VIDEO, "video.mp4"),
    "voice": _Sort(("duration",), Media.VOICE, "voice.ogg"),
    "paid_media": _Sort(("star_count",)),
    "checklist": _Sort(("title", "tasks")),
    "contact": _Sort(("first_name", "last_name", "phone_number")),
    "dice": _Sort(("emoji", "value")),
    "game": _Sort(("title",)),
    "giveaway": _Sort(),
    "giveaway_winners": _Sort(),
    "invoice": _Sort(("title", "description")),
    "poll": _Sort(("question", "options")),
    "rich_message": _Sort(),
    "venue": _Sort(("title", "address")),
    "location": _Sort(("latitude", "longitude")),
    "web_app_data": _Sort(("data",)),
}
"""What a person can send instead of text (Bot API Message). The order decides where two come together: an
animation is a document too, and a venue has a location."""

CONTENT = frozenset(_SORTS)


def content_of(message: JsonObject) -> str | None:
    """Return the name of the field that holds the content, None for a text or a service message."""
    return next((kind for kind in _SORTS if message.get(kind) is not None), None)


def label(kind: str, content: Json) -> str:
    """Return what was sent, in brackets and on one line: `[voice: 8 s]`.

    It holds no other bracket, so that a stranger's file name can't leave the brackets around it.
    """
    told = ", ".join(filter(None, _told(kind, content)))
    line = " ".join(told.split()).translate({ord("["): "(", ord("]"): ")"})[:_LONGEST]
    return clean(f"[{': '.join(filter(None, (kind.replace('_', ' '), line)))}]")


def attachment(kind: str, content: Json) -> Attachment | None:
    """Return the file of a content; None if it has none, and for stickers that move (spec TG-20)."""
    sort = _SORTS[kind]
    if kind == "photo":
        content = max(content, key=lambda size: int(size["width"]) * int(size["height"]))
    if sort.media is None or (kind == "sticker" and (content["is_animated"] or content["is_video"])):
        return None
    mime = clean(str(content.get("mime_type") or ""))
    return Attachment(
        kind=Media.IMAGE if sort.media is Media.FILE and mime in _PICTURES else sort.media,
        name=clean(str(content.get("file_name") or sort.name)),
        mime=mime,
        size=int(content.get("file_size") or 0),
        ref=str(content["file_id"]),
    )


def _told(kind: str, content: Json) -> Iterator[str]:
    for name in _SORTS[kind].told:
        value = content.get(name)
        if isinstance(value, list):
            yield from (str(part["text"]) for part in value)
        elif name == "duration" and value is not None:
            yield f"{value} s"
        else:
            yield "" if value is None else str(value)
