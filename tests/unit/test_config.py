"""The configuration: where it is found, what it may hold, and what is said when it may not."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway import config
from gateway.config import Settings
from gateway.errors import ConfigError

CANARY = "canary-7f3a9c1e5b"
NOWHERE = Path("/nowhere")


def refusal(text: str, env: dict[str, str] | None = None, base: Path = NOWHERE) -> str:
    with pytest.raises(ConfigError) as caught:
        config.parse(text, env or {}, base)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_without_a_file_the_defaults_hold_and_everything_lives_under_home(tmp_path: Path) -> None:
    loaded = config.load(None, {"HOME": str(tmp_path)}, tmp_path)
    home = tmp_path / ".crayfish"
    assert (loaded.file, loaded.home, loaded.workspace) == (None, home, home / "workspace")
    assert loaded.settings.store.url == f"sqlite+aiosqlite:///{home}/crayfish.db"
    assert not home.exists()


def test_the_file_is_looked_for_in_four_places_in_this_order(tmp_path: Path) -> None:
    here, home = tmp_path / "here", tmp_path / "home"
    files = [tmp_path / "flag.toml", tmp_path / "env.toml", here / "config.toml", home / "config.toml"]
    for port, file in enumerate(files):
        file.parent.mkdir(exist_ok=True)
        file.write_text(f"[http]\nport = {port}\n")
    env = {"CRAYFISH_CONFIG": str(files[1]), "CRAYFISH_HOME": str(home)}
    found = []
    for port in range(4):
        loaded = config.load(files[0] if port == 0 else None, env, here)
        assert loaded.settings.http.port == port
        found.append(loaded.file)
        files[port].unlink()
        env = env if port == 0 else {"CRAYFISH_HOME": str(home)}
    assert found == files
    assert config.load(None, env, here).file is None


def test_a_named_file_that_is_missing_is_an_error_and_not_the_defaults(tmp_path: Path) -> None:
    for path, env in ((Path("gone.toml"), {}), (None, {"CRAYFISH_CONFIG": "gone.toml"})):
        with pytest.raises(ConfigError, match=r"gone\.toml: no such file; create it"):
            config.load(path, env, tmp_path)


def test_a_folder_in_place_of_the_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "config.toml").mkdir()
    with pytest.raises(ConfigError, match=r"config\.toml: can't be read: is a directory"):
        config.load(None, {}, tmp_path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read_is_named_and_not_passed_over(tmp_path: Path) -> None:
    (tmp_path / "config.toml").touch(mode=0o000)
    with pytest.raises(ConfigError, match=r"can't be read: permission denied; check its owner and mode"):
        config.load(None, {}, tmp_path)


def test_relative_paths_start_at_the_files_folder_and_a_tilde_at_the_users_home(tmp_path: Path) -> None:
    file = tmp_path / "etc" / "config.toml"
    file.parent.mkdir()
    file.write_text('[store]\nurl = "sqlite+aiosqlite:///../data/bot.db"\n[workspace]\npath = "~/bot"\n')
    loaded = config.load(file, {"HOME": "/home/ada"}, NOWHERE)
    assert loaded.settings.store.url == f"sqlite+aiosqlite:///{tmp_path}/data/bot.db"
    assert loaded.workspace == Path("/home/ada/bot")


def test_a_postgres_address_stays_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text('[store]\nurl = "postgresql+asyncpg://bot:${PW}@db:5432/crayfish"\n')
    loaded = config.load(file, {"PW": "p%40ss"}, tmp_path)
    assert loaded.settings.store.url == "postgresql+asyncpg://bot:p%40ss@db:5432/crayfish"
    assert "p%40ss" not in repr(loaded)


def test_a_byte_order_mark_and_windows_line_ends_are_no_problem(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_bytes(b"\xef\xbb\xbf[http]\r\nport = 1\r\n")
    assert config.load(file, {}, tmp_path).settings.http.port == 1


def test_a_file_in_another_encoding_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_bytes(b'[model]\nname = "\xe9"\n')
    with pytest.raises(ConfigError, match="not UTF-8 text; save it as UTF-8"):
        config.load(file, {}, tmp_path)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[http]\nprot = 1", "http.prot: unknown key, did you mean http.port?"),
        ("[channels.telegram]\nallow-from = []", "did you mean channels.telegram.allow_from?"),
        ("[telegram]\ntoken = 'x'", "telegram: unknown key, did you mean channels.telegram?"),
        ("[[bindings]]\nagent = 'x'\nchannel = 'web'", 'bindings: there is no agent "x": add [agents.x]'),
        (
            "[[bindings]]\nagent = 'main'\nchannel = 'telegrm'",
            'bindings: "telegrm" is no channel; known are web, console, telegram, slack',
        ),
        ("port = 1", "port: unknown key, did you mean http.port?"),
        ("[channels.matrix]", "channels.matrix: unknown key, known here: telegram, slack"),
        ("[log]\nzzz = 1", "log.zzz: unknown key, known here: level, format"),
        ("[http]\nport = 65536", "http.port = 65536: must be less than or equal to 65535"),
        ("[http]\nport = 'eighty'", "http.port = 'eighty': must be a valid integer"),
        ("[http]\nenabled = 'perhaps'", "http.enabled = 'perhaps': must be a valid boolean"),
        ("[model]\ndialect = 'opena'", "must be 'auto', 'openai', 'anthropic', 'ollama' or 'demo'"),
        ("[model]\nname = 3", "model.name = 3: must be text in quotes"),
        ("[model]\nfallbacks = 'gpt'", "model.fallbacks = 'gpt': must be a list"),
        ("[model]\nbase_url = 'localhost:1'", "must be an address that begins with http:// or https://"),
        ("[model]\nbase_url = 'http://[x'", "model.base_url = 'http://[x': "),
        ("[channels.slack]\napi_base = ''", "must be an address that begins with http:// or https://"),
        ("[agent]\nmax_turns = 0", "agent.max_turns = 0: must be greater than or equal to 1"),
        ("[agent]\ntimezone = 'Europe/Belin'", "must be a known time zone, such as Europe/Berlin"),
        ("[agent]\ntimezone = '/etc/localtime'", "must be a known time zone"),
        ("[agent]\ntimezone = 'Europe'", "must be a known time zone"),
        ("[heartbeat]\nevery = '30'", "heartbeat.every = '30': must be a number and a unit, such as 90s"),
        ("[heartbeat]\nevery = 0.5", "heartbeat.every = 0.5: must be text in quotes"),
        ("[store]\nurl = 'mysql://h/d'", "must begin with sqlite+aiosqlite:///"),
        ("[store]\nurl = 'sqlite+aiosqlite:///:memory:'", "must name a file"),
        ("[store]\nurl = 'postgresql+asyncpg://h'", "must name a database"),
        ("[channels.telegram]\nallow_from = 42", 'must be a list, such as [42, "*"]'),
        ("[channels.telegram]\nallow_from = [true]", "allow_from.0 = True: must be text in quotes"),
        ("[channels.telegram]\nack_reaction = ':eyes:'", 'must be one emoji, such as "👀", or "" for none'),
        ("[channels.telegram]\nstreaming = 'edits'", "must be 'auto' or 'off'"),
        ("[channels.telegram]\ndm_policy = 'all'", "must be 'pairing', 'allowlist', 'open' or 'disabled'"),
        ("[retention]\nusage = '31d'", "must be at least 32d: the sums of this month need them"),
        ('"a\\nb" = 1', '"a\\nb": unknown key'),
        ("model = 'gpt'", "model: must be a table, [model]"),
        ("[http]\nhost = '0.0.0.0'", "other machines can reach host '0.0.0.0': set http.token too"),
        ("[http\nport = 1", "this is not TOML: expected ']' at the end of a table declaration (at line 1,"),
        ("[http]\nport = 1\nport = 2", "this is not TOML: cannot overwrite a value"),
    ],
)
def test_a_mistake_is_named_with_its_place_and_what_is_allowed(text: str, expected: str) -> None:
    assert expected in refusal(text)


def test_every_mistake_of_the_file_is_told_at_once() -> None:
    assert refusal("[http]\nport = -1\n[log]\nlevel = 'loud'").count("; ") == 1


def test_an_error_begins_with_the_files_name(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text("x = 1")
    with pytest.raises(ConfigError, match=rf"^{tmp_path}/config\.toml: x: unknown key"):
        config.load(None, {}, tmp_path)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "localhost"])
def test_a_loopback_address_needs_no_token(host: str) -> None:
    assert config.parse(f"[http]\nhost = '{host}'", {}, NOWHERE).http.host == host


def test_an_open_address_is_fine_with_a_token_or_when_http_is_off() -> None:
    config.parse("[http]\nhost = '0.0.0.0'\ntoken = 'abc'", {}, NOWHERE)
    config.parse("[http]\nhost = '0.0.0.0'\nenabled = false", {}, NOWHERE)


def test_a_telegram_address_with_the_token_in_it_is_refused_without_showing_the_token() -> None:
    text = refusal(f"[channels.telegram]\napi_base = 'http://h/bot42:{CANARY}'")
    assert "leave out /bot<token>" in text
    assert CANARY not in text


def test_a_slash_at_the_end_of_an_address_does_not_matter() -> None:
    text = "[channels.telegram]\napi_base = 'http://h/'\n[channels.slack]\napi_base = 'http://h/api'"
    channels = config.parse(text, {}, NOWHERE).channels
    assert (channels.telegram.api_base, channels.slack.api_base) == ("http://h", "http://h/api/")


def test_allow_from_takes_numbers_and_texts() -> None:
    text = "[channels.telegram]\nallow_from = [42, ' 43 ', '*']"
    assert config.parse(text, {}, NOWHERE).channels.telegram.allow_from == ("42", "43", "*")


def test_a_variable_gives_a_text_or_a_number_and_two_dollars_are_one() -> None:
    text = "[model]\nname = '${A}-$${A}'\nfallbacks = ['${A}/x']\n[http]\nport = '${PORT}'"
    settings = config.parse(text, {"A": "gpt", "PORT": "81"}, NOWHERE)
    assert (settings.model.name, settings.model.fallbacks, settings.http.port) == ("gpt-${A}", ("gpt/x",), 81)


def test_an_unset_variable_is_named_with_its_key() -> None:
    assert refusal("[model]\napi_key = '${NOPE}'") == (
        "model.api_key: the environment variable NOPE is not set; set it or remove the key"
    )
    assert "takes the name of an environment variable" in refusal("[model]\napi_key = '${NO-PE}'")


def test_a_secret_comes_from_a_file_without_its_line_end(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("42:abc\r\n")
    settings = config.parse("[channels.telegram]\ntoken = 'file:token'", {}, tmp_path)
    assert settings.channels.telegram.token.get_secret_value() == "42:abc"


def test_only_a_secret_is_read_from_a_file() -> None:
    assert config.parse("[model]\nname = 'file:x'", {}, NOWHERE).model.name == "file:x"


def test_a_secret_file_that_is_missing_or_empty_is_named(tmp_path: Path) -> None:
    text = "[http]\ntoken = 'file:token'"
    assert (
        refusal(text, base=tmp_path)
        == f"http.token: {tmp_path}/token can't be read: no such file or directory"
    )
    (tmp_path / "token").write_text("\n")
    assert refusal(text, base=tmp_path) == f"http.token: {tmp_path}/token is empty; write the secret into it"


@pytest.mark.parametrize(
    "text",
    [
        f"[model]\napi_key = ['{CANARY}']",
        f"[channels]\ntelegram = '{CANARY}'",
        f"[channels.telegram]\ntokn = '{CANARY}'",
        f"[channels.telegram.token]\nvalue = '{CANARY}'",
        f"[http]\nhost = '0.0.0.0'\n[model]\napi_key = '{CANARY}'",
        f"[store]\nurl = 'postgres://bot:{CANARY}@h/d'",
        f"[model]\nbase_url = 'ftp://u:{CANARY}@h'",
        "[model]\ndialect = '${KEY}'",
        "[http]\nport = '${KEY}'",
    ],
)
def test_no_error_shows_a_secret(text: str) -> None:
    assert CANARY not in refusal(text, {"KEY": CANARY})


def test_shown_settings_hold_no_secret_and_are_valid_toml() -> None:
    text = f"""
        [model]
        api_key = "{CANARY}"
        [store]
        url = "postgresql+asyncpg://bot:{CANARY}@h/d"
    """
    settings = config.parse(text, {}, NOWHERE)
    shown = config.shown(settings)
    assert CANARY not in shown + repr(settings)
    assert "# api_key is set\n" in shown
    assert "# token is unset\n" in shown
    assert config.parse(shown, {}, NOWHERE).model.max_tokens == settings.model.max_tokens


def test_agents_and_where_they_are_bound_are_shown_as_toml_that_means_the_same() -> None:
    text = """
        [agents.clerk]
        model = "m"
        tools = { profile = "minimal", deny = ["exec"] }
        [[bindings]]
        agent = "clerk"
        channel = "telegram"
        sender = 42
        [[bindings]]
        agent = "main"
        channel = "web"
        [identities]
        ann = ["telegram:1", "slack:U1"]
    """
    settings = config.parse(text, {}, NOWHERE)
    shown = config.shown(settings)
    assert 'bindings = [{ agent = "clerk", channel = "telegram", sender = "42" }, ' in shown
    again = config.parse(shown, {}, NOWHERE)
    assert (again.bindings, again.identities) == (settings.bindings, settings.identities)
    assert again.agents == settings.agents


def test_secrets_are_every_secret_value_and_the_password_of_the_store() -> None:
    text = "[http]\ntoken = 'a1'\n[store]\nurl = 'postgresql+asyncpg://bot:b%402@h/d'"
    assert config.secrets(config.parse(text, {}, NOWHERE)) == ("a1", "b%402", "b@2")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("0m", 0), ("0", 0), ("90s", 90), ("30m", 1800), ("1h30m", 5400), ("2d", 172_800)],
)
def test_a_duration_has_a_unit(text: str, seconds: int) -> None:
    assert config.duration(text) == seconds


@pytest.mark.parametrize("text", ["", "30", "m", "1.5h", "-1m", "30 m", "30min", "9999d", "1w"])
def test_anything_else_is_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match="must be"):
        config.duration(text)


def outcome(text: str) -> Settings | ConfigError:
    try:
        return config.parse(text, {}, NOWHERE)
    except ConfigError as error:
        return error


@given(st.text())
def test_whatever_stands_in_the_file_ends_in_settings_or_one_line(text: str) -> None:
    result = outcome(text)
    assert isinstance(result, Settings) or "\n" not in str(result)


@given(
    st.sampled_from(sorted(name for name, _ in config.fields())),
    st.text(st.characters(codec="utf-8")) | st.integers() | st.booleans(),
)
def test_whatever_value_a_key_gets_ends_in_one_line_or_in_settings_that_can_be_shown(
    name: str, value: object
) -> None:
    table, _, key = name.rpartition(".")
    text = json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    result = outcome(f"[{table}]\n{key} = {text}")
    if isinstance(result, Settings):
        assert isinstance(outcome(config.shown(result)), Settings)
    else:
        assert "\n" not in str(result)


def test_bundled_data_is_found_in_the_checkout_and_a_gap_is_named() -> None:
    assert (config.bundled("config.example.toml")).is_file()
    with pytest.raises(ConfigError, match="lacks its own nonsense"):
        config.bundled("nonsense")


SLACK = '[channels.slack]\nbot_token = "xoxb-1"\n'


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (SLACK, "slack has a bot_token and no way in"),
        (f'{SLACK}mode = "socket"\nsigning_secret = "s"', "slack needs an app_token"),
        (f'{SLACK}mode = "http"\napp_token = "xapp-1"', "slack has a bot_token and no way in"),
        (f'{SLACK}signing_secret = "s"\n[http]\nenabled = false', "needs the server"),
        (
            f'{SLACK}app_token = "xapp-1"\n[channels.slack.accounts.b]\nbot_token = "xoxb-1"\napp_token = "xapp-2"',
            "two accounts have the same bot_token",
        ),
        (
            f'{SLACK}app_token = "xapp-1"\nack_reaction = ":eyes:"',
            "must be the name of an emoji without colons",
        ),
        (f'{SLACK}app_token = "xapp-1"\n[channels.slack.accounts."No"]\n', "must be a short name"),
        (f'{SLACK}app_token = "xapp-1"\nreply_in_channel = ["#general"]', "must be ids of channels"),
    ],
)
def test_a_slack_app_that_can_not_run_is_refused(text: str, problem: str) -> None:
    assert problem in refusal(text)


def test_a_further_workspace_is_as_the_first_but_for_its_tokens() -> None:
    text = f'{SLACK}app_token = "xapp-1"\nallow_from = ["U1"]\n[channels.slack.accounts.b]\nbot_token = "xoxb-2"\n'
    bots = config.parse(f'{text}app_token = "xapp-2"\nallow_from = ["*"]', {}, NOWHERE).channels.slack.bots()
    assert list(bots) == ["slack", "slack-b"]
    assert bots["slack-b"].allow_from == ("U1",)
    assert bots["slack-b"].app_token.get_secret_value() == "xapp-2"
    assert (bots["slack"].follow_threads, bots["slack"].by_socket) == (True, True)
