"""A Slack app is made from what the gateway prints, and `doctor` says what it lacks."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest

from adapters.slack.manifest import Features, app_manifest, needed_events, needed_scopes
from gateway import doctor
from gateway.app.slack import scopes
from gateway.cli import main
from gateway.config import SlackAccount
from gateway.doctor import Level
from tests.fakes.slack_api import APP_TOKEN, BOT_TOKEN, Error, SlackServer, Status

JsonObject = dict[str, Any]

MINIMAL = Features(
    channels=False, files=False, reactions=False, acks=False, command="", assistant=False, group_dms=False
)


@pytest.mark.parametrize(
    ("feature", "more_scopes", "more_events"),
    [
        pytest.param({}, set(), set(), id="direct messages only"),
        pytest.param(
            {"channels": True},
            {"app_mentions:read", "channels:history", "channels:read", "groups:history", "groups:read"},
            {
                *("app_mention", "message.channels", "message.groups"),
                *("channel_rename", "group_rename", "member_joined_channel"),
            },
            id="channels",
        ),
        pytest.param(
            {"group_dms": True}, {"mpim:history", "mpim:read", "mpim:write"}, {"message.mpim"}, id="group-dms"
        ),
        pytest.param({"files": True}, {"files:read", "files:write"}, set(), id="files"),
        pytest.param(
            {"reactions": True}, {"reactions:read"}, {"reaction_added", "reaction_removed"}, id="reactions"
        ),
        pytest.param({"acks": True}, {"reactions:write"}, set(), id="acks"),
        pytest.param({"command": "/cray"}, {"commands"}, set(), id="command"),
        pytest.param(
            {"assistant": True},
            {"assistant:write"},
            {"assistant_thread_context_changed", "assistant_thread_started"},
            id="assistant",
        ),
    ],
)
def test_each_feature_needs_its_scopes_and_events_and_no_others(
    feature: JsonObject, more_scopes: set[str], more_events: set[str]
) -> None:
    features = Features(**{name: getattr(MINIMAL, name) for name in MINIMAL.__slots__} | feature)
    least = {"chat:write", "im:history", "im:read", "im:write", "users:read"}
    assert set(needed_scopes(features)) == least | more_scopes
    assert set(needed_events(features)) == {"message.im"} | more_events
    made = app_manifest(features)
    assert made["oauth_config"]["scopes"]["bot"] == list(needed_scopes(features))
    assert made["settings"]["event_subscriptions"]["bot_events"] == list(needed_events(features))


def test_socket_mode_has_no_addresses() -> None:
    made = app_manifest(Features())
    assert made["settings"]["socket_mode_enabled"] is True
    assert "https://" not in json.dumps(made)
    assert [one["command"] for one in made["features"]["slash_commands"]] == ["/crayfish"]


def test_over_http_slack_posts_everything_to_one_address() -> None:
    made = app_manifest(Features(url="https://bot.example/slack/events"))
    assert made["settings"]["socket_mode_enabled"] is False
    places = {
        made["settings"]["event_subscriptions"]["request_url"],
        made["settings"]["interactivity"]["request_url"],
        made["features"]["slash_commands"][0]["url"],
    }
    assert places == {"https://bot.example/slack/events"}


@pytest.mark.parametrize(
    ("settings", "wanted", "unwanted"),
    [
        pytest.param({}, {"channels:history", "reactions:write"}, {"mpim:history"}, id="defaults"),
        pytest.param({"group_policy": "disabled"}, {"im:history"}, {"channels:history"}, id="no rooms"),
        pytest.param({"group_policy": "open"}, {"mpim:history"}, set(), id="every room"),
        pytest.param({"groups": {"G012": {}}}, {"mpim:history"}, set(), id="a group chat"),
        pytest.param({"ack_scope": "off"}, set(), {"reactions:write"}, id="no acks"),
        pytest.param({"ack_reaction": ""}, set(), {"reactions:write"}, id="no ack emoji"),
    ],
)
def test_the_configuration_decides_what_is_asked_for(
    settings: JsonObject, wanted: set[str], unwanted: set[str]
) -> None:
    asked = set(scopes(SlackAccount.model_validate(settings)))
    assert wanted <= asked
    assert not unwanted & asked


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CRAYFISH_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def configure(home: Path, text: str) -> None:
    (home / "config.toml").write_text(text, encoding="utf-8")


class TestCommand:
    def test_it_prints_a_manifest_before_there_is_any_token(
        self, home: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(["slack", "manifest"]) == 0
        assert json.loads(capsys.readouterr().out) == app_manifest(Features())

    def test_it_takes_the_address_for_posts(self, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["slack", "manifest", "--http", "https://bot.example/"]) == 0
        made = json.loads(capsys.readouterr().out)
        assert made["settings"]["interactivity"]["request_url"] == "https://bot.example/slack/events"

    def test_each_account_has_its_own_path(self, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
        configure(home, "[channels.slack.accounts.office]\nack_scope = 'off'\n")
        assert main(["slack", "manifest", "--http", "https://bot.example", "--account", "office"]) == 0
        made = json.loads(capsys.readouterr().out)
        assert made["settings"]["interactivity"]["request_url"] == "https://bot.example/slack/office/events"
        assert "reactions:write" not in made["oauth_config"]["scopes"]["bot"]

    @pytest.mark.parametrize(
        ("text", "arguments", "told"),
        [
            ("", ["--account", "office"], "accounts.office"),
            ("[channels.slack]\nmode = 'http'\nbot_token = 'xoxb-1'\nsigning_secret = 'x'\n", [], "--http"),
        ],
    )
    def test_what_is_missing_is_said(
        self, home: Path, capsys: pytest.CaptureFixture[str], text: str, arguments: list[str], told: str
    ) -> None:
        configure(home, text)
        assert main(["slack", "manifest", *arguments]) == 2
        assert told in capsys.readouterr().err

    def test_an_address_without_tls_is_refused(self, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(SystemExit):
            main(["slack", "manifest", "--http", "http://bot.example"])
        assert "https://" in capsys.readouterr().err


class TestDoctor:
    @staticmethod
    async def examine(home: Path, slack: SlackServer) -> list[doctor.Finding]:
        configure(
            home,
            f"[channels.slack]\nbot_token = '{BOT_TOKEN}'\napp_token = '{APP_TOKEN}'\n"
            f"api_base = '{slack.base}'\n[model]\ndialect = 'demo'\n[http]\nenabled = false\n",
        )
        found = await asyncio.to_thread(
            doctor.examine, None, os.environ, home, deep=True, slack_scopes=scopes
        )
        return [one for one in found if one.name == "slack"]

    async def test_it_names_the_scopes_that_are_missing(self, home: Path) -> None:
        async with SlackServer() as slack:
            needed = scopes(SlackAccount())
            slack.scopes = ",".join(one for one in needed if one not in ("files:write", "users:read"))
            found = await self.examine(home, slack)
        (missing,) = [one for one in found if "lacks" in one.text]
        assert (missing.level, missing.text) == (Level.WARN, "the bot token lacks files:write, users:read")
        assert "crayfish slack manifest" in missing.remedy

    async def test_it_is_content_when_all_are_there(self, home: Path) -> None:
        async with SlackServer() as slack:
            slack.scopes = ", ".join((*scopes(SlackAccount()), "more:things"))
            found = await self.examine(home, slack)
        assert [one for one in found if "lacks" in one.text or one.level is Level.FAIL] == []
        assert any("knows us as crayfish in Acme" in one.text for one in found)

    @pytest.mark.parametrize(
        ("failure", "told"),
        [(Error("invalid_auth"), "invalid_auth"), (Status(502), "502"), (Status(200, "<html>"), "no answer")],
        ids=["refused", "upstream", "a page"],
    )
    async def test_a_token_that_does_not_work_is_a_failure(
        self, home: Path, failure: Error | Status, told: str
    ) -> None:
        async with SlackServer() as slack:
            slack.fail("auth.test", failure)
            found = await self.examine(home, slack)
        (bad,) = [one for one in found if one.level is Level.FAIL]
        assert told in bad.text
        assert BOT_TOKEN not in bad.text + bad.remedy
