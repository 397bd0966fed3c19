"""What must be seen by nobody."""

from __future__ import annotations

import io
import json
import logging
from pathlib import Path

import pytest

from gateway import config, log
from gateway.errors import ToolError
from gateway.tools.base import Group, ToolContext
from gateway.tools.schema import tool
from gateway.types import Replay
from tests.fakes.bot_api import TOKEN, Drop, Status
from tests.fakes.model_api import Answer, Call, json_body, reply, say
from tests.story.house import API_KEY, House, results

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
    assert "a mistake: sk-sto***cdef 123456***" in written.getvalue()


ENV_KEY = "env-canary-1f7d9c3b5a"
OWNERS_KEY = "AKIAQ3EGRIVERBIRDS77"
AWS_SECRET = "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"
PEM_LINES = "MIIEowIBAAKCAQEAx5Qm3vX9aK2bL7cD1eF4gH8iJ0kMnOpQrStUvWxYz+canary"
PAGE_TOKEN = "ghp_" + "c4n4ry" * 6
CANARIES = (TOKEN.partition(":")[2], API_KEY, ENV_KEY, OWNERS_KEY, AWS_SECRET, PEM_LINES, PAGE_TOKEN)

FILE = f"""\
aws_access_key_id = {OWNERS_KEY}
aws_secret_access_key = {AWS_SECRET}
-----BEGIN RSA PRIVATE KEY-----
{PEM_LINES}
-----END RSA PRIVATE KEY-----
{ENV_KEY} and {API_KEY} and {TOKEN}
"""


@tool(Replay.SAFE, Group.WEB, untrusted=True)
async def page(context: ToolContext) -> str:
    """Return what a page says."""
    return f"Your token is {PAGE_TOKEN}. " + f"The key {API_KEY} is long. " * 2000


@tool(Replay.SAFE, Group.WEB)
async def broken(context: ToolContext) -> str:
    """Fail with too many words."""
    raise ToolError(f"GET https://me:{ENV_KEY}@host/bot{TOKEN}/x failed with {API_KEY}")


@tool(Replay.SAFE, Group.WEB)
async def bug(context: ToolContext) -> str:
    """Fail by mistake."""
    raise ValueError(f"no good: {API_KEY} {ENV_KEY}")


def slowly(text: str) -> Answer:
    """Answer in pieces that cut every secret."""
    return Answer(chunks=say("openai", text))


async def test_secrets_006_no_canary_is_written_or_sent_anywhere(
    empty_house: House, caplog: pytest.LogCaptureFixture
) -> None:
    """Secrets in the configuration, the environment, files, pages, errors and replies: none comes out."""
    house = empty_house
    house.env = {"BRAVE_API_KEY": ENV_KEY}
    house.more = '[access]\nowners = ["telegram:7"]'
    house.tools = (page, broken, bug)
    house.workspace.mkdir(exist_ok=True)
    (house.workspace / "notes.txt").write_text(FILE)
    written = io.StringIO()
    log.configure("debug", "json", (API_KEY, TOKEN, ENV_KEY), written)
    caplog.set_level(logging.DEBUG)
    everything = " and ".join(CANARIES[:3]) + f"\n{FILE}"
    try:
        await house.start()
        house.model.play(
            reply("openai", "", Call("call00001", "read", {"path": "notes.txt"})),
            reply("openai", "", Call("call00002", "page", {}), Call("call00003", "broken", {})),
            reply("openai", "", Call("call00004", "bug", {})),
            reply(
                "openai", f"I keep {API_KEY}", Call("call00005", "write", {"path": "out", "content": API_KEY})
            ),
            slowly(f"Here you are: {everything} That was it."),
            json_body({"error": {"message": f"bad key {API_KEY} {ENV_KEY}"}}, status=401),
        )
        house.api.say("read the notes")
        await house.until(lambda: len(house.texts()) >= 1)
        house.api.say("again")
        await house.rests()
        house.api.say("/status")
        await house.rests()
        answers = house.texts()
        assert "That was it." in answers[0]
        assert "A secret of the configuration stood in this reply" in answers[0]
        assert "AKIAQ3***DS77" in "\n".join(results(house.model.bodies[-1]))
        await house.stop()
    finally:
        log.shutdown()

    places = {
        "log": written.getvalue(),
        "telegram": json.dumps([call.params for call in house.api.calls]),
        "model": json.dumps(house.model.bodies),
        **{str(file): file.read_text("latin-1") for file in kept(house)},
    }
    assert any("results" in name for name in places), "a long result was kept"
    assert any(name.endswith(".db") for name in places)
    for place, text in places.items():
        assert text
        assert not [one for one in CANARIES if one in text or json.dumps(one)[1:-1] in text], place


def kept(house: House) -> list[Path]:
    """Return every file that the gateway has written."""
    own = {house.workspace / "notes.txt", house.home / "config.toml"}
    files = [file for file in house.home.rglob("*") if file.is_file() and file.stat().st_size]
    return [file for file in files if file not in own]


async def test_secrets_003_a_reply_loses_the_key_and_only_the_owner_is_told(empty_house: House) -> None:
    house = empty_house
    house.more = '[access]\nowners = ["telegram:7"]'
    await house.start()
    house.model.otherwise = lambda _request: reply("openai", f"My key is {API_KEY}.")
    house.api.say("which key do you have?", chat=7)
    await house.rests()
    house.api.say("which key do you have?", chat=8)
    await house.rests()
    note = "\n\n(A secret of the configuration stood in this reply; I have taken it out.)"
    assert house.texts(7) == [f"My key is sk-sto***cdef.{note}"]
    assert house.texts(8) == ["My key is sk-sto***cdef."]


async def test_secrets_004_neither_half_of_a_key_is_in_a_draft(empty_house: House) -> None:
    house = empty_house
    await house.start()
    house.model.play(slowly(f"A rather long beginning, and then: {API_KEY} and the end of it."))
    house.api.say("hello")
    await house.rests()
    drafts = json.dumps([call.params for call in house.api.calls])
    assert API_KEY[4:12] not in drafts
    assert API_KEY[10:18] not in drafts


async def test_secrets_016_a_commit_id_comes_out_as_it_is(house: House) -> None:
    text = "Fixed in 3f786850e387550fdab836ed7e6dc881de23001b."
    house.model.play(reply("openai", text))
    house.api.say("which commit?")
    await house.hears(text)


async def test_secrets_009_the_status_in_a_group_tells_no_host_no_path_and_no_key(empty_house: House) -> None:
    house = empty_house
    house.telegram += '\ngroup_policy = "open"'
    await house.start()
    await house.until(lambda: "telegram" in house.gateway.seen)
    house.gateway.seen["telegram"].problem = "Cannot connect to host api.internal:8443 from /srv/crayfish"
    house.api.push({"message": house.api.group_message(text="/status")})
    await house.rests()
    house.api.say("/status")
    await house.rests()
    (group,), (private,) = house.texts(-1001), house.texts(7)
    for secret in ("api.internal", "/srv", str(house.home), API_KEY[-4:]):
        assert secret not in group
    assert "api.internal" in private
    assert API_KEY[-4:] not in private
