"""`[channels.telegram]`: one bot or several, and how each is reached."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway import config
from gateway.config import Settings
from gateway.errors import ConfigError

ROOT = 'token = "1:root"\nallow_from = [1]\napi_base = "http://127.0.0.1:8081"\n'


def telegram(text: str) -> Settings:
    return config.parse(f"[channels.telegram]\n{text}", {}, Path("/"))


def refusal(text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        telegram(text)
    return str(caught.value)


def test_a_token_is_one_bot() -> None:
    (name,) = telegram(ROOT).channels.telegram.bots()
    assert name == "telegram"
    assert telegram("").channels.telegram.bots() == {}
    assert telegram(f"{ROOT}enabled = false").channels.telegram.bots() == {}


def test_an_account_begins_with_what_holds_for_all_and_is_a_channel_of_its_own() -> None:
    """Spec TG-9."""
    account = '[channels.telegram.accounts.work]\ntoken = "2:work"\nmedia_max_mb = 50'
    bots = telegram(f"{ROOT}{account}").channels.telegram.bots()
    assert list(bots) == ["telegram", "telegram-work"]
    work = bots["telegram-work"]
    assert (work.api_base, work.allow_from, work.media_max_mb) == ("http://127.0.0.1:8081", ("1",), 50)
    assert bots["telegram"].media_max_mb == 20
    assert work.token.get_secret_value() == "2:work"


def test_the_groups_of_an_account_replace_those_above() -> None:
    text = (
        f'{ROOT}[channels.telegram.groups."-1"]\nenabled = false\n'
        '[channels.telegram.accounts.a]\ntoken = "2:a"\n[channels.telegram.accounts.a.groups."-2"]\n'
        '[channels.telegram.accounts.b]\ntoken = "3:b"\n'
    )
    bots = telegram(text).channels.telegram.bots()
    assert [list(bot.groups) for bot in bots.values()] == [["-1"], ["-2"], ["-1"]]


@pytest.mark.parametrize(
    ("above", "own", "holds"),
    [
        ("[1]", '["*"]', ("1",)),
        ("[1]", "[2]", ("2",)),
        ("[1]", "[]", ()),
        ('["*"]', '["*"]', ("*",)),
        ("[]", '["*"]', ("*",)),
    ],
)
def test_nobody_who_is_shut_out_above_is_let_in_by_a_wildcard(
    above: str, own: str, holds: tuple[str, ...]
) -> None:
    account = f'[channels.telegram.accounts.work]\ntoken = "2:work"\nallow_from = {own}'
    bots = telegram(f'token = "1:root"\nallow_from = {above}\n{account}').channels.telegram.bots()
    assert bots["telegram-work"].allow_from == holds


def test_a_webhook_is_each_bots_own_and_its_secret_may_be_shared() -> None:
    text = (
        'token = "1:root"\nwebhook_url = "https://a.org"\nwebhook_secret = "0123456789abcdef"\n'
        '[channels.telegram.accounts.work]\ntoken = "2:work"\n'
        '[channels.telegram.accounts.other]\ntoken = "3:other"\nwebhook_url = "https://b.org"\n'
    )
    bots = telegram(text).channels.telegram.bots()
    assert [bot.webhook_url for bot in bots.values()] == ["https://a.org", "", "https://b.org"]
    assert {bot.webhook_secret.get_secret_value() for bot in bots.values()} == {"0123456789abcdef"}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (f'{ROOT}[channels.telegram.accounts.a]\ntoken = "1:root"', "two bots have the same token"),
        ("[channels.telegram.accounts.a]\ntokn = 1", "did you mean channels.telegram.accounts.a.token?"),
        ("[channels.telegram.accounts.A]", "channels.telegram.accounts.A: must be a short name"),
        (
            '[channels.telegram.accounts."a:b"]',
            'channels.telegram.accounts."a:b": must be a short name of small letters',
        ),
        ("accounts = 1", "channels.telegram.accounts = 1: "),
        ('proxy = "socks5://user:hush@h:1"', "must be an HTTP proxy"),
        ('proxy = "h:3128"', "must be the address of an HTTP proxy"),
        ("media_max_mb = 0", "media_max_mb = 0: must be greater"),
        ('api_base = "https://api.telegram.org/bot1:hush"', "leave out /bot<token>"),
        (
            '[channels.telegram.accounts.a]\napi_base = "https://api.telegram.org/bot1:hush"',
            "leave out /bot<token>",
        ),
    ],
)
def test_what_can_not_be_meant_is_refused_with_its_place(text: str, told: str) -> None:
    found = refusal(text)
    assert told in found
    assert "hush" not in found


def test_what_is_shown_of_bots_can_be_read_again_and_holds_no_secret() -> None:
    text = (
        f'{ROOT}proxy = "http://user:hush@h:1"\n[channels.telegram.groups."*"]\nrequire_mention = false\n'
        '[channels.telegram.accounts.work]\ntoken = "2:work-hush"\nmedia_max_mb = 50'
    )
    settings = telegram(text)
    shown = config.shown(settings)
    assert "hush" not in shown
    assert "# token is set\nmedia_max_mb = 50" in shown
    again = config.parse(shown, {}, Path("/")).channels.telegram
    assert again.accounts["work"].model_fields_set == {"media_max_mb"}
    assert again.groups == settings.channels.telegram.groups


def test_every_secret_of_every_bot_is_kept_out_of_texts() -> None:
    account = '[channels.telegram.accounts.work]\ntoken = "2:work"\n'
    settings = telegram(f'{ROOT}proxy = "http://user:p%40ss@h:1"\n{account}')
    assert {"1:root", "2:work", "p%40ss", "p@ss"} <= set(config.secrets(settings))
    assert config.secrets_set(settings)["channels.telegram.accounts.work.token"]


def test_the_secret_of_an_account_may_be_a_file(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("2:work\n")
    text = '[channels.telegram.accounts.work]\ntoken = "file:token"'
    settings = config.parse(text, {}, tmp_path)
    assert settings.channels.telegram.accounts["work"].token.get_secret_value() == "2:work"


@pytest.mark.parametrize(
    ("channel", "section"),
    [
        ("telegram", "channels.telegram"),
        ("telegram-work", "channels.telegram.accounts.work"),
        ("telegram-a-b", "channels.telegram.accounts.a-b"),
    ],
)
def test_the_table_of_a_channel_is_known_by_its_name(channel: str, section: str) -> None:
    assert config.section_of(channel) == section


@pytest.mark.parametrize(
    ("text", "hears_all"),
    [
        ("", False),
        ("require_mention = false", True),
        ('[channels.telegram.groups."-1"]\nrequire_mention = false', True),
        ('[channels.telegram.groups."-1".topics."5"]\nrequire_mention = false', True),
        ('[channels.telegram.groups."-1"]\nrequire_mention = true', False),
    ],
)
def test_whether_some_group_is_heard_without_naming_the_bot(text: str, hears_all: bool) -> None:
    assert telegram(text).channels.telegram.hears_all is hears_all
