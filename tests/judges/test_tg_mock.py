"""tg-mock, a Bot API server in Go that checks requests against the published schema.

`TG_MOCK=/path/to/tg-mock pytest tests/judges`
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.model_api import Call, reply
from tests.judges.conftest import Judge, free_port, gateway, judge, program

TOKEN = "123456789:ABC-def_ghijklmnopqrstuvwxyz0123456"
RICH = "**Done.** See `a<b` & [here](https://example.org)\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n```py\nx = 1\n```"

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Judge]:
    command = program("TG_MOCK", "watzon/tg-mock")
    port = free_port()
    async with judge([*command, "--port", str(port)], port, tmp_path, "/__control/state") as found:
        await found.post(
            "/__control/tokens", {"token": TOKEN, "status": "active", "bot_name": "crayfish_bot"}
        )
        yield found


def telegram(server: Judge) -> str:
    return (
        f'[channels.telegram]\ntoken = "{TOKEN}"\napi_base = "{server.url}"\ndm_policy = "open"\n'
        'allow_from = ["*"]\n[access]\nowners = ["telegram:7"]\n'
    )


async def say(server: Judge, number: int, text: str, chat: int = 7) -> None:
    person = {"id": chat, "is_bot": False, "first_name": "Ada"}
    home = {"id": chat, "type": "private", "first_name": "Ada"}
    message = {"message_id": number, "date": 1_800_000_000, "chat": home, "from": person, "text": text}
    await server.post("/__control/updates", {"message": message})


async def asked(server: Judge, method: str = "") -> list[dict[str, Any]]:
    return list((await server.get(f"/__control/requests?method={method}"))["requests"])


async def sent(server: Judge, chat: int = 7) -> list[str]:
    """Return what arrived in a chat, in order."""
    good = [one for one in await asked(server, "sendMessage") if not one["is_error"]]
    return [one["params"]["text"] for one in good if str(one["params"]["chat_id"]) == str(chat)]


async def hears(server: Judge, *texts: str, chat: int = 7) -> None:
    async def is_there() -> bool:
        return len(await sent(server, chat)) >= len(texts)

    await server.until(is_there)
    assert await sent(server, chat) == list(texts)


async def test_every_request_is_valid_and_every_update_is_answered_in_order(
    server: Judge, tmp_path: Path
) -> None:
    async with gateway(tmp_path, telegram(server)) as model:
        for number in range(1, 6):
            for chat in (7, 8):
                await say(server, 10 * number + chat, f"word {number}", chat)
                await hears(server, *(f"you said: word {at}" for at in range(1, number + 1)), chat=chat)
        model.play(reply("openai", RICH))
        await say(server, 90, "rich")

        async def is_rich() -> bool:
            return len(await sent(server)) == 6

        await server.until(is_rich)
        *_, rich = await asked(server, "sendMessage")
        assert "Done." in rich["params"]["text"]
        refused = [(one["method"], one["response"]) for one in await asked(server) if one["is_error"]]
        assert refused == []
    state = await server.get("/__control/updates")
    assert not state.get("updates"), "everything is confirmed"


@pytest.mark.parametrize(
    ("error", "tries"),
    [
        ({"error_code": 429, "description": "Too Many Requests: retry after 1", "retry_after": 1}, 2),
        ({"error_code": 400, "description": "Bad Request: can't parse entities: unexpected end"}, 2),
        ({"error_code": 403, "description": "Forbidden: bot was blocked by the user"}, 1),
    ],
    ids=["429", "parse-error", "blocked"],
)
async def test_an_error_is_met_as_the_bot_api_wants_it(
    server: Judge, tmp_path: Path, error: dict[str, Any], tries: int
) -> None:
    await server.post("/__control/scenarios", {"method": "sendMessage", "times": 1, "response": error})
    async with gateway(tmp_path, telegram(server)) as model:
        model.play(reply("openai", "**bold** words"))
        await say(server, 1, "hi")

        async def is_tried() -> bool:
            return len(await asked(server, "sendMessage")) >= tries

        await server.until(is_tried)
        await say(server, 2, "and now?", chat=8)
        await hears(server, "you said: and now?", chat=8)
        assert await sent(server) == ["bold words"] * (tries - 1)


async def test_a_question_is_answered_by_its_button(server: Judge, tmp_path: Path) -> None:
    """Bot API answerCallbackQuery, editMessageText."""
    async with gateway(tmp_path, telegram(server)) as model:
        model.play(
            reply("openai", "", Call("c1", "exec", {"command": "rm -rf build"})), reply("openai", "done")
        )
        await say(server, 1, "clean up")

        async def is_asked() -> bool:
            return any("reply_markup" in one["params"] for one in await asked(server, "sendMessage"))

        await server.until(is_asked)
        (card,) = [one for one in await asked(server, "sendMessage") if "reply_markup" in one["params"]]
        deny = "deny:" + str(card["params"]["reply_markup"]).partition("deny:")[2][:8]
        person = {"id": 7, "is_bot": False, "first_name": "Ada"}
        message = card["response"]["result"] | {"chat": {"id": 7, "type": "private", "first_name": "Ada"}}
        query = {"id": "q1", "from": person, "message": message, "data": deny, "chat_instance": "1"}
        await server.post("/__control/updates", {"callback_query": query})

        async def is_done() -> bool:
            return "done" in await sent(server) and bool(await asked(server, "editMessageText"))

        await server.until(is_done)
        (toast,) = await asked(server, "answerCallbackQuery")
        assert toast["params"]["text"].startswith("Denied: ")
        assert not [one for one in await asked(server) if one["is_error"]]
