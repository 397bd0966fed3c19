from __future__ import annotations

import pytest

from gateway.reply import Composed, compose
from gateway.types import Attachment, Media

FILES = {"out/report.pdf", "chart.png", "song.mp3"}


def taken_apart(text: str) -> Composed:
    return compose(text, current="41", has_file=FILES.__contains__)


PDF = Attachment(kind=Media.FILE, name="report.pdf", path="out/report.pdf")
CHART = Attachment(kind=Media.IMAGE, name="chart.png", path="chart.png")
SONG = Attachment(kind=Media.AUDIO, name="song.mp3", path="song.mp3")


@pytest.mark.parametrize(
    ("text", "composed"),
    [
        ("Hello.", Composed("Hello.")),
        ("Here:\n![the chart](chart.png)\nFine?", Composed("Here:\nFine?", (CHART,))),
        ("See [the report](out/report.pdf).", Composed("See the report.", (PDF,))),
        ("![a](chart.png)\n![b](chart.png)", Composed("", (CHART,))),
        ("[web](https://example.org/chart.png)", Composed("[web](https://example.org/chart.png)")),
        ("[mail](mailto:a@example.org)", Composed("[mail](mailto:a@example.org)")),
        ("![x](missing.png)", Composed("![x](missing.png)")),
        ("```\n![x](chart.png) [[reply_to_current]]\n```", Composed("```\n![x](chart.png) [[reply_to_current]]\n```")),
        ("[[reply_to_current]] Yes.", Composed(" Yes.", (), "41")),
        ("[[reply_to: 77]]\nYes.", Composed("Yes.", (), "77")),
        ("[[audio_as_voice]]\n[listen](song.mp3)", Composed("listen", (Attachment(kind=Media.VOICE, name="song.mp3", path="song.mp3"),))),
        ("[listen](song.mp3)", Composed("listen", (SONG,))),
        ("a\n\nb [1](#note)", Composed("a\n\nb [1](#note)")),
    ],
)  # fmt: skip
def test_a_reply_is_taken_apart(text: str, composed: Composed) -> None:
    assert taken_apart(text) == composed


@pytest.mark.parametrize(
    ("target", "name"),
    [
        ("<Q3 report.pdf>", "Q3 report.pdf"),
        ("Q3%20report.pdf", "Q3 report.pdf"),
        ("<chart (1).png>", "chart (1).png"),
        ("chart(1).png", "chart(1).png"),
        ("chart%20(1).png", "chart (1).png"),
        ("n%C3%A4me.txt", "näme.txt"),
        ("100%25.txt", "100%25.txt"),
    ],
)
def test_a_name_with_spaces_or_parentheses_is_found_as_models_write_it(target: str, name: str) -> None:
    files = {"Q3 report.pdf", "chart (1).png", "chart(1).png", "näme.txt", "100%25.txt", "100%.txt"}
    composed = compose(f"Here: [it]({target})", current="", has_file=files.__contains__)
    assert (composed.text, [one.path for one in composed.attachments]) == ("Here: it", [name])


@pytest.mark.parametrize(
    "target", ["/etc/hostname", "../secret", "file:///etc/passwd", "~/.ssh/id", "..%2Fsecret"]
)
def test_a_path_outside_the_workspace_is_not_sent(target: str) -> None:
    """Case security-fs-04."""
    composed = compose(f"[it]({target})", current="", has_file=FILES.__contains__)
    assert composed == Composed(f"[it]({target})")
