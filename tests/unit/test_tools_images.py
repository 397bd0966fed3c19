"""What a picture is, by its first bytes."""

from __future__ import annotations

import struct

import pytest

from gateway.tools.images import MAX_BYTES, Image, image_of

JPEG = (
    b"\xff\xd8\xff\xe0\x00\x10JFIF\0\x01\x01\0\0\x01\0\x01\0\0"
    b"\xff\xdb\x00\x05abc\xff\xc4\x00\x04ab\xff\xc2\x00\x11\x08" + struct.pack(">HH", 480, 640) + b"\x03"
)


@pytest.mark.parametrize(
    ("content", "image"),
    [
        (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + struct.pack(">II", 3, 2), Image("image/png", 24, 3, 2)),
        (b"GIF89a" + struct.pack("<HH", 300, 200), Image("image/gif", 10, 300, 200)),
        (JPEG, Image("image/jpeg", len(JPEG), 640, 480)),
        (b"RIFF\0\0\0\0WEBPVP8X" + b"\0" * 8 + b"\x7f\x02\0\xdf\x01\0", Image("image/webp", 30, 640, 480)),
        (
            b"RIFF\0\0\0\0WEBPVP8L\0\0\0\0\x2f" + struct.pack("<I", 639 | 479 << 14),
            Image("image/webp", 25, 640, 480),
        ),
        (
            b"RIFF\0\0\0\0WEBPVP8 " + b"\0" * 10 + struct.pack("<HH", 640, 480),
            Image("image/webp", 30, 640, 480),
        ),
        (b"\x89PNG\r\n\x1a\n", Image("image/png", 8)),
        (b"\xff\xd8\xff", Image("image/jpeg", 3)),
        (b"RIFF\0\0\0\0WAVE", None),
        (b"BM", None),
        (b"<svg>", None),
        (b"", None),
    ],
)
def test_kind_and_size_are_in_the_first_bytes(content: bytes, image: Image | None) -> None:
    assert image_of(content) == image


@pytest.mark.parametrize(
    ("image", "problem"),
    [
        (Image("image/png", 100, 8000, 5000), ""),
        (Image("image/png", 100), ""),
        (Image("image/png", MAX_BYTES + 1, 10, 10), "it is larger than"),
        (Image("image/png", 100, 8001, 1), "more than 8000 pixels on a side"),
        pytest.param(Image("image/png", 20_000, 65535, 65535), "pixels", id="size-013"),
        (Image("image/png", 100, 7000, 7000), "40000000 in all"),
    ],
)
def test_a_picture_that_is_too_much_is_not_shown(image: Image, problem: str) -> None:
    assert problem in image.problem
    assert bool(problem) == bool(image.problem)
