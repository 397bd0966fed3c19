"""local-slack, a Slack with Web API and Socket Mode on Bun.

`LOCAL_SLACK="bun /path/to/local-slack/server/src/cli.ts" pytest tests/judges`
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.model_api import Call, reply
from tests.judges.conftest import Judge, free_port, gateway, judge, program

BOT, ALICE, BOB, CHANNEL = "U0BOT", "U01ALICE", "U02BOB", "C01GEN"
BOT_TOKEN, APP_TOKEN = "xoxb-test-token", "xapp-test-token"
SETTINGS = {
    "workspace": {"name": "Test", "domain": "test", "teamId": "T01TEST"},
    "app": {
        "appId": "A01APP",
        "botUserId": BOT,
        "botName": "crayfish",
        "botToken": BOT_TOKEN,
        "appToken": APP_TOKEN,
        "signingSecret": "test-signing-secret",
        "mode": "socket",
        "requestUrl": "http://127.0.0.1:9/slack/events",
    },
    "users": [
        {"id": ALICE, "name": "alice", "real_name": "Alice"},
        {"id": BOB, "name": "bob", "real_name": "Bob"},
    ],
    "channels": [{"id": CHANNEL, "name": "general", "members": [ALICE, BOB, BOT]}],
}

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Judge]:
    command = program("LOCAL_SLACK", "parvalabs/local-slack")
    port = free_port()
    (tmp_path / "slack.json").write_text(json.dumps(SETTINGS))
    where = ["--config", "slack.json", "--port", str(port), "--base-host", "127.0.0.1"]
    async with judge([*command, *where], port, tmp_path, "/_control/state") as found:
        yield found


def slack(server: Judge) -> str:
    return (
        f'[access]\nowners = ["slack:{ALICE}"]\n'
        f'[channels.slack]\nbot_token = "{BOT_TOKEN}"\napp_token = "{APP_TOKEN}"\n'
        f'api_base = "{server.url}/api/"\nallow_from = ["{ALICE}"]\n'
        f'[channels.slack.groups."{CHANNEL}"]\nallow_from = ["*"]\n'
    )


async def connected(server: Judge) -> None:
    """Wait until the gateway has asked for a socket."""

    async def is_open() -> bool:
        return any(
            "apps.connections.open" in one["summary"] for one in (await server.get("/_control/log"))["log"]
        )

    await server.until(is_open)


async def messages(server: Judge, chat: str = CHANNEL) -> list[dict[str, Any]]:
    return list((await server.get(f"/_control/messages/{chat}"))["messages"])


async def said(server: Judge, chat: str = CHANNEL) -> list[dict[str, Any]]:
    """Return what the bot said, in order."""
    return [one for one in await messages(server, chat) if one.get("user") == BOT or one.get("bot_id")]


async def waits_for(server: Judge, number: int, chat: str = CHANNEL) -> list[dict[str, Any]]:
    async def is_there() -> bool:
        return len(await said(server, chat)) >= number

    await server.until(is_there)
    return await said(server, chat)


async def test_a_mention_is_answered_once_in_its_thread_and_the_thread_is_followed(
    server: Judge, tmp_path: Path
) -> None:
    async with gateway(tmp_path, slack(server)):
        await connected(server)
        await server.post("/_control/message", {"channel": CHANNEL, "user": ALICE, "text": f"<@{BOT}> hi"})
        (answer,) = await waits_for(server, 1)
        (asked,) = [one for one in await messages(server) if one.get("user") == ALICE]
        assert (answer["thread_ts"], "you said" in answer["text"]) == (asked["ts"], True)
        follow = {"channel": CHANNEL, "user": ALICE, "text": "and more", "thread_ts": asked["ts"]}
        await server.post("/_control/message", follow)
        _, second = await waits_for(server, 2)
        assert second["thread_ts"] == asked["ts"]
        await server.post("/_control/message", {"channel": CHANNEL, "user": BOB, "text": f"<@{BOT}> /new"})
        *_, refusal = await waits_for(server, 3)
        assert (refusal["subtype"], refusal["ephemeral_to"]) == ("ephemeral", BOB)
        log = (await server.get("/_control/log"))["log"]
        delivered = [one for one in log if one["kind"] == "events_api"]
        acknowledged = [one for one in log if one["kind"] == "ack"]
        assert len(delivered) == len(acknowledged)


async def test_a_question_loses_its_buttons_when_one_is_pressed(server: Judge, tmp_path: Path) -> None:
    async with gateway(tmp_path, slack(server)) as model:
        await connected(server)
        model.play(
            reply("openai", "", Call("c1", "exec", {"command": "rm -rf build"})), reply("openai", "done")
        )
        opened = await server.post("/api/conversations.open", {"users": ALICE}, BOT_TOKEN)
        home = opened["channel"]["id"]
        await server.post("/_control/message", {"channel": home, "user": ALICE, "text": "clean up"})
        (card,) = await waits_for(server, 1, home)
        buttons = [one for block in card["blocks"] if block["type"] == "actions" for one in block["elements"]]
        (deny,) = [one for one in buttons if one["text"]["text"] == "Deny"]
        action = {**deny, "type": "button"}
        await server.post(
            "/_control/interact", {"channel": home, "messageTs": card["ts"], "user": ALICE, "action": action}
        )

        async def is_settled() -> bool:
            found = await said(server, home)
            return found[0]["blocks"][-1]["type"] == "markdown" and any(
                one["text"] == "done" for one in found
            )

        await server.until(is_settled)
        assert (await said(server, home))[0]["text"].startswith("**Denied:**")
