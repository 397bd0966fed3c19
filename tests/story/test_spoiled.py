"""What is broken on the disk: the bot says so once, and goes on."""

from __future__ import annotations

import pytest

from tests.fakes.model_api import Call, reply
from tests.story.house import House, is_valid


async def answered(house: House, number: int) -> None:
    """Wait for so many answers since the start."""
    await house.until(lambda: len(house.texts()) >= number)
    await house.rests()


@pytest.mark.parametrize("seq", [1, 2, 3, 4], ids=["a question", "a call", "its result", "an answer"])
async def test_with_a_spoiled_entry_the_talk_goes_on(
    house: House, seq: int, caplog: pytest.LogCaptureFixture
) -> None:
    house.model.play(reply("openai", "", Call("call00001", "list_dir", {})), reply("openai", "Nothing."))
    house.api.say("what is here?")
    await house.hears("Nothing.")
    await house.stop()
    house.change(f"update entry set body = '{{' where seq = {seq}")
    caplog.clear()
    await house.start()
    for number, text in enumerate(("go on", "and on"), 2):
        house.api.say(text)
        await answered(house, number)
    assert [text.rpartition(" ")[2] for text in house.texts()] == ["Nothing.", "on", "on"]
    for body in house.model.bodies[-2:]:
        assert is_valid(body)
        assert "can't be read any more" in str(body)
        assert "Summary of the earlier conversation" not in str(body), "nothing was summed up"
    assert [record.message for record in caplog.records].count("entry.unreadable") == 1


async def test_with_spoiled_files_a_turn_runs_and_each_is_named_once(
    house: House, caplog: pytest.LogCaptureFixture
) -> None:
    secret = house.home / "secret"
    secret.write_text("SECRET")
    for name in ("AGENTS.md", "SOUL.md", "IDENTITY.md"):
        (house.workspace / name).unlink()
    (house.workspace / "AGENTS.md").write_bytes(b"\x7fELF\x00")
    (house.workspace / "SOUL.md").symlink_to(secret)
    (house.workspace / "IDENTITY.md").mkdir()
    with (house.workspace / "TOOLS.md").open("wb") as huge:
        huge.write(b"a camera\n" * 10_000)
        huge.truncate(50_000_000)
    caplog.clear()
    for number, text in enumerate(("hello", "again"), 1):
        house.api.say(text)
        await answered(house, number)
    assert house.texts() == ["you said: hello", "you said: again"]
    system = str(house.model.bodies[-1]["messages"][0])
    assert "a camera" in system
    assert "SECRET" not in system
    assert "ELF" not in system
    told = [record.getMessage() for record in caplog.records if "is left out of the prompt" in record.message]
    assert len(told) == 3
