"""What tools bring is without secrets before anybody sees or stores it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from gateway.errors import ToolError
from gateway.redact import Redactor
from gateway.tools.base import Group, Output, ToolContext
from gateway.tools.box import RESULTS, Toolbox
from gateway.tools.files import FILE_TOOLS
from gateway.tools.schema import tool
from gateway.types import Address, Attachment, Chat, Json, Level, Media, Replay, Sender, ToolCall, ToolEntry

KEY = "sk-proj-Qm3vX9aK2bL7cD1e"
PEM = (
    "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIB\n-----END PRIVATE KEY-----"
)
CREDENTIALS = f"""\
[default]
aws_access_key_id = AKIAIOSFODNN7EXAMPLE
aws_secret_access_key = wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY
{PEM}
"""


@tool(Replay.SAFE, Group.WEB)
async def fail(context: ToolContext, how: str) -> str:
    """Fail."""
    raise (ToolError if how == "error" else ValueError)(f"no good: {KEY} at https://me:hunter2@host/")


async def _never(_context: ToolContext, how: str) -> None:
    raise (ToolError if how == "error" else ValueError)(f"no good: {KEY} at https://me:hunter2@host/")


@tool(Replay.SAFE, Group.WEB, asks=_never)
async def guarded(context: ToolContext, how: str) -> str:
    """Never run: its check fails."""
    return how


@tool(Replay.SAFE, Group.WEB)
async def long(context: ToolContext) -> str:
    """Return much."""
    return f"{KEY} " * 5000


@tool(Replay.SAFE, Group.WEB)
async def show(context: ToolContext) -> Output:
    """Return a picture."""
    return Output(f"it is {KEY}", (Attachment(kind=Media.IMAGE, path="a.png"),))


def toolbox(known: Sequence[str] = (KEY,)) -> Toolbox:
    return Toolbox((*FILE_TOOLS, fail, guarded, long, show), redact=Redactor(known))


def owner_at(root: Path) -> ToolContext:
    return ToolContext(root, Address("web", "1"), Sender("1", "Ann", Level.OWNER), Chat.DIRECT, "c1")


async def use(root: Path, name: str, known: Sequence[str] = (KEY,), **args: Json) -> ToolEntry:
    return await toolbox(known).call(ToolCall("c1", name, args), owner_at(root))


async def test_secrets_006_keys_in_a_file_are_masked_in_the_result(tmp_path: Path) -> None:
    (tmp_path / "credentials").write_text(CREDENTIALS)
    assert (await use(tmp_path, "read", known=(), path="credentials")).text == (
        "[default]\naws_access_key_id = AKIAIO***MPLE\naws_secret_access_key = wJalrX***EKEY\n"
        "-----BEGIN PRIVATE KEY-----***-----END PRIVATE KEY-----"
    )


@pytest.mark.parametrize("how", ["error", "bug"])
async def test_an_error_tells_no_secret(tmp_path: Path, how: str) -> None:
    result = await use(tmp_path, "fail", how=how)
    assert result.is_error
    assert result.text.endswith("no good: sk-pro***cD1e at https://***@host/")


@pytest.mark.parametrize(("how", "more"), [("error", ""), ("bug", "; nothing was run")])
async def test_why_a_call_is_refused_tells_no_secret(tmp_path: Path, how: str, more: str) -> None:
    result = await toolbox().check(ToolCall("c1", "guarded", {"how": how}), owner_at(tmp_path))
    assert isinstance(result, ToolEntry)
    assert result.is_error
    assert result.text.endswith(f"no good: sk-pro***cD1e at https://***@host/{more}")


async def test_a_long_result_is_masked_in_the_file_that_keeps_it(tmp_path: Path) -> None:
    result = await use(tmp_path, "long")
    (file,) = (tmp_path / RESULTS).iterdir()
    for text in (result.text, file.read_text()):
        assert KEY not in text
        assert "sk-pro***cD1e" in text


async def test_a_result_with_a_picture_is_masked_and_keeps_it(tmp_path: Path) -> None:
    result = await use(tmp_path, "show")
    assert result.text == "it is sk-pro***cD1e"
    assert [one.path for one in result.attachments] == ["a.png"]
