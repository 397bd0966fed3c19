"""What `crayfish doctor` finds out about bots."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from gateway import doctor
from gateway.doctor import Finding, Level
from tests.fakes.bot_api import BotApi

Examine = Callable[..., Awaitable[list[Finding]]]


@pytest.fixture
def examine(tmp_path: Path) -> Examine:
    async def run(text: str, *, deep: bool = False) -> list[Finding]:
        file = tmp_path / "config.toml"
        file.write_text(f'[http]\nenabled = false\n[model]\ndialect = "demo"\n[channels.telegram]\n{text}')
        file.chmod(0o600)
        env = {"CRAYFISH_HOME": str(tmp_path)}
        found = await asyncio.to_thread(doctor.examine, None, env, tmp_path, deep=deep)
        return [one for one in found if one.name.startswith(("telegram", "config"))]

    return run


def at(api: BotApi) -> str:
    return f'token = "{api.token}"\napi_base = "{api.url}"\n'


def worst(found: list[Finding]) -> list[Finding]:
    return [one for one in found if one.level is not Level.OK]


async def test_each_bot_is_examined_under_its_own_name(examine: Examine) -> None:
    async with BotApi() as api, BotApi("777:BBfake_token_value_abcdefghijklmnopqr") as other:
        api.about_me, other.about_me = {"username": "first_bot"}, {"username": "second_bot"}
        text = f"{at(api)}[channels.telegram.accounts.work]\n{at(other)}"
        found = await examine(text, deep=True)
        texts = {one.name: one.text for one in found}
        assert texts["telegram"].endswith("@first_bot")
        assert texts["telegram-work"].endswith("@second_bot")
        assert worst(found) == []
        assert api.violations == other.violations == []


async def test_a_wrong_token_of_one_bot_is_named_with_its_remedy(examine: Examine) -> None:
    async with BotApi() as api:
        wrong = f'[channels.telegram.accounts.work]\ntoken = "777:{"x" * 35}"\n'
        (finding,) = worst(await examine(f"{at(api)}{wrong}", deep=True))
    assert (finding.name, finding.level) == ("telegram-work", Level.FAIL)
    assert finding.remedy == "copy the token again from @BotFather"


async def test_a_redirect_is_no_more_followed_than_by_the_gateway(examine: Examine) -> None:
    async with BotApi() as api:

        async def moved(request: web.Request) -> web.Response:
            return web.Response(status=301, headers={"Location": f"{api.url}{request.path}"})

        app = web.Application()
        app.router.add_post("/{path:.*}", moved)
        async with TestServer(app) as server:
            base = str(server.make_url("")).rstrip("/")
            (finding,) = worst(await examine(f'token = "{api.token}"\napi_base = "{base}"\n', deep=True))
        assert (finding.text, finding.remedy) == (f"{base} answers 301 Moved Permanently", "check api_base")
        assert api.calls == []


async def test_a_webhook_that_was_left_behind_is_named(examine: Examine) -> None:
    async with BotApi() as api:
        api.webhook = "https://example.org/old"
        (finding,) = worst(await examine(at(api), deep=True))
        assert "webhook was left behind" in finding.text


async def test_privacy_mode_that_contradicts_the_configuration_is_named(examine: Examine) -> None:
    group = '[channels.telegram.groups."-1001"]\nrequire_mention = false\nallow_from = ["*"]\n'
    async with BotApi() as api:
        (finding,) = worst(await examine(f"{at(api)}{group}", deep=True))
        assert "privacy mode hides" in finding.text
        assert "/setprivacy" in finding.remedy
        api.about_me = {"can_read_all_group_messages": True}
        assert worst(await examine(f"{at(api)}{group}", deep=True)) == []


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('token = "abc"', "the token does not look like"),
        ('token = "1:{x}"\nallow_from = ["@ada"]', '"@ada" in allow_from matches nobody'),
        ('token = "1:{x}"\nallow_from = [-100123]', "it is the id of a group"),
        ('token = "1:{x}"\napi_base = "https://api.telegram.org/bot1:{x}"', "leave out /bot<token>"),
        (
            'token = "1:{x}"\ndm_policy = "open"\nallow_from = ["*"]',
            "anybody may write, as often as they like",
        ),
        ('token = "1:{x}"\nlocal_files = "/nowhere/at/all"', "is no folder"),
        ('token = "1:{x}"\nwebhook_url = "https://a.org"', "set webhook_secret"),
        ('token = "1:{x}"\nproxy = "socks5://h:1"', "must be an HTTP proxy"),
    ],
)
async def test_what_can_not_work_is_found_without_asking_anybody(
    examine: Examine, text: str, told: str
) -> None:
    (finding,) = worst(await examine(text.replace("{x}", "x" * 35)))
    assert told in finding.text
    assert finding.remedy or "Add" in finding.text or "id" in finding.text
