"""What kind of recording a file is, from its first bytes: nothing is decoded."""

from __future__ import annotations


def name_of(content: bytes) -> str | None:
    """Return a file name that tells the server what recording this is, None if it is none.

    Servers go by the ending of the name, and the name of a voice note is the sender's choice or missing.
    """
    if content.startswith(b"RIFF"):
        return "audio.wav" if content[8:12] == b"WAVE" else None
    if content[4:8] == b"ftyp":
        return "audio.m4a"
    if len(content) > 1 and content[0] == 0xFF and content[1] & 0xE6 == 0xE2:  # a frame of layer III
        return "audio.mp3"
    return next((name for sign, name in _SIGNS if content.startswith(sign)), None)


_SIGNS = (
    (b"OggS", "audio.ogg"),
    (b"ID3", "audio.mp3"),
    (b"fLaC", "audio.flac"),
    (b"\x1aE\xdf\xa3", "audio.webm"),
)
