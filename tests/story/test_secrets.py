"""What must be seen by nobody."""

from __future__ import annotations

import io
import logging

import pytest

from gateway import config, log
from tests.fakes.bot_api import TOKEN, Drop, Status
from tests.fakes.model_api import Call, json_body, reply
from tests.story.house import API_KEY, House

SECRETS = (TOKEN, TOKEN.partition(":")[2], API_KEY)


@pytest.mark.parametrize("style", ["console", "json"])
async def test_token_and_key_are_in_no_log_line_no_message_and_no_prompt(
    empty_house: House, caplog: pytest.LogCaptureFixture, style: str
) -> None:
    """Case secrets-01, through good days and bad ones, at the most talkative level."""
    house = empty_house
    written = io.StringIO()
    caplog.set_level(logging.DEBUG)
    log.configure("debug", style, (), written)  # without knowing the secrets: their shapes must be enough
    caplog.set_level(logging.DEBUG)
    try:
        await live_through_trouble(house)
    finally:
        log.shutdown()

    raw = "\n".join([caplog.text, *(str(record.__dict__) for record in caplog.records)])
    assert "telegram.poll_failed" in raw, "the log was listened to"
    assert "telegram.poll_failed" in written.getvalue()
    seen = {
        "records": raw,
        "lines": written.getvalue(),
        "messages": str(house.api.sent),
        "prompts": str(house.model.bodies),
        "database": str(
            [house.rows(f"select * from {table}") for table in ("entry", "outbound", "inbound", "fact")]
        ),
    }
    for place, text in seen.items():
        assert text
        assert not [secret for secret in SECRETS if secret in text], place


async def live_through_trouble(house: House) -> None:
    """Have each kind of failure that could tell a secret."""
    await house.start()
    house.model.play(
        json_body({"error": {"message": f"Incorrect API key provided: {API_KEY}."}}, status=401),
        json_body({"error": {"message": f"bad gateway for {API_KEY}"}}, status=502),
        reply("openai", "", Call("call00001", "read", {"path": "../config.toml"})),
        reply("openai", "Done."),
    )
    house.api.say("one")
    await house.api.reply(1)
    house.api.fail("getUpdates", Status(500, body=f"error at /bot{TOKEN}/getUpdates"), Drop(after=False))
    house.api.fail("sendMessage", Drop(after=False), Status(400, f"no such thing: bot{TOKEN}"))
    house.api.say("two")
    await house.rests(skipping=0.5)
    house.api.say("/status")
    await house.rests()
    await house.api.stop()
    await house.until(lambda: not house.api.polling)
    house.api.say("three")
    await house.until(lambda: any(wait >= 1 for wait in house.clock.slept))
    await house.api.start()
    await house.rests(skipping=0.5)
    house.api.revoke()
    house.api.say("four")
    await house.until(lambda: house.gateway.seen["telegram"].state == "stopped")
    house.api.token = TOKEN
    await house.stop()


async def test_the_log_hides_what_the_configuration_calls_secret(empty_house: House) -> None:
    house = empty_house
    await house.start()
    loaded = config.load(house.home / "config.toml", {"CRAYFISH_HOME": str(house.home)}, house.home)
    written = io.StringIO()
    log.configure("info", "json", config.secrets(loaded.settings), written)
    logging.getLogger("gateway.test").info("a mistake: %s %s", API_KEY, TOKEN)
    log.shutdown()
    assert "a mistake: *** ***" in written.getvalue()
