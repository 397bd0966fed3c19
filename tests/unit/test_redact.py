"""What counts as a secret in a text, and what does not."""

from __future__ import annotations

import random
import time

import pytest

from gateway.redact import Redactor, Stream, secrets_in, values_hidden
from gateway.types import AssistantEntry, ToolCall

TOKEN = "123456:AAHfake_token_value_abcdefghijklmnopqr"
"""Case secrets-01."""

KEY = "sk-proj-Qm3vX9aK2bL7cD1e"
PEM = (
    "-----BEGIN RSA PRIVATE KEY-----\nMIIEowIBAAKCAQEAx5Qm3vX9aK2bL7cD1eF4gH8iJ0kMnOpQrStUvWxYz\n"
    "a1b2c3d4e5f6g7h8i9j0\n-----END RSA PRIVATE KEY-----"
)

SHAPES = {
    "secrets-01-in-a-path": (f"GET /bot{TOKEN}/getMe", "GET /bot123456***opqr/getMe"),
    "secrets-001": ("https://h/bot42:short/getMe", "https://h/bot***/getMe"),
    "secrets-01-alone": (f"token {TOKEN}.", "token 123456***opqr."),
    "secrets-010": ("https://user:pass@host/", "https://***@host/"),
    "at-in-password": ("postgresql+asyncpg://u:p@ss@h:5/d", "postgresql+asyncpg://***@h:5/d"),
    "bearer": ("Authorization: Bearer abc.def-123", "Authorization: Bearer ***"),
    "basic": ("authorization: basic dXNlcjpwYXNz", "authorization: basic ***"),
    "bearer-alone": ('"Bearer 0123456789abcdef0123"', '"Bearer 012345***0123"'),
    "openai": (f"Incorrect API key: {KEY}", "Incorrect API key: sk-pro***cD1e"),
    "query": ("/v1beta/models?key=AIzaX&alt=sse", "/v1beta/models?key=***&alt=sse"),
    "google": ("AIza" + "x" * 35, "AIzaxx***xxxx"),
    "slack": ("xoxb-1234567890-abc xapp-1-A0-123-abc", "xoxb-1***-abc ***"),
    "github": ("ghp_" + "a1" * 18, "ghp_a1***a1a1"),
    "jwt": ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.abcdefghijklmno", "eyJhbG***lmno"),
    "secrets-006 AWS key id": ("id AKIAIOSFODNN7EXAMPLE.", "id AKIAIO***MPLE."),
    "secrets-006 AWS secret": (
        "aws_secret_access_key = wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
        "aws_secret_access_key = wJalrX***EKEY",
    ),
    "secrets-006 PEM": (
        f"a\n{PEM}\nb",
        "a\n-----BEGIN RSA PRIVATE KEY-----***-----END RSA PRIVATE KEY-----\nb",
    ),
    "PEM in JSON": (
        '{"private_key": "' + PEM.replace("\n", "\\n") + '"}',
        '{"private_key": "-----BEGIN RSA PRIVATE KEY-----***-----END RSA PRIVATE KEY-----"}',
    ),
    "PEM cut off": (PEM[:90], "-----BEGIN RSA PRIVATE KEY-----***"),
    "json": ('{"client_secret": "a8f5f167f44f4964", "n": 1}', '{"client_secret": "***", "n": 1}'),
    "env": ("export HA_TOKEN=8f14e45fceea167a5a36dedd4bea2543", "export HA_TOKEN=8f14e4***2543"),
    "flag": ("curl --token 8f14e45fceea167a5a36", "curl --token 8f14e4***5a36"),
    "password": ("password: hunter2hunter", "password: ***"),
    "cookie": ("Set-Cookie: sid=31d4d96e407aad42; Path=/\nx", "Set-Cookie: ***\nx"),
}


@pytest.mark.parametrize(("given", "shown"), [pytest.param(*case, id=name) for name, case in SHAPES.items()])
def test_what_looks_like_a_secret_is_replaced(given: str, shown: str) -> None:
    redact = Redactor()
    assert redact(given) == shown
    assert redact(shown) == shown, "what is masked stays as it is"


ORDINARY = {
    "secrets-016": "3f786850e387550fdab836ed7e6dc881de23001b",
    "secrets-016 in a sentence": "Fixed in commit 3f786850e387550fdab836ed7e6dc881de23001b, see main.",
    "a conversation": "telegram:123456789:17 at 12:30",
    "a port": "https://host:8080/path@2",
    "a key that is none": "message_key=telegram:1:2",
    "a uuid": "run 123e4567-e89b-12d3-a456-426614174000 of job sha256:9f86d081884c7d659a2feaa0c55ad015",
    "prose": "The basic understanding of tokens: a token is short, a secret is kept. Bearer instruments are old.",
    "code": 'api_key = os.environ["OPENAI_API_KEY"]\ntoken = response.json()["access_token"]\nkey=lambda x: x',
    "usage": '{"max_tokens": 128000, "prompt_tokens": 5123, "token_count": 12345678901234567890}',
    "paging": '{"nextPageToken": "CAUQAAabcdef0123456789"}',
    "css": '<div class="sk-folding-cube-animation-wrapper">',
    "a certificate": "-----BEGIN CERTIFICATE-----\nMIIB" + "a1" * 40 + "\n-----END CERTIFICATE-----",
    "a cookie recipe": "cookie: chocolate chip, butter, sugar",
    "a time": "at 12:34:56 the ratio was 1234567:89",
}


@pytest.mark.parametrize("text", [pytest.param(text, id=name) for name, text in ORDINARY.items()])
def test_ordinary_text_stays_as_it_is(text: str) -> None:
    assert Redactor()(text) == text
    assert Redactor([KEY]).reply(text) == text


EXAMPLES = (
    'export OPENAI_API_KEY="sk-your-api-key-here-123"',
    "postgresql://user:password@localhost:5432/db",
    "curl -H 'Authorization: Bearer $OPENAI_API_KEY'",
    "Authorization: Bearer <your-token-1>",
    'client = OpenAI(api_key="sk-xxxxxxxxxxxxxxxxxxxx1")',
    "AWS_ACCESS_KEY_ID=AKIAIOSFODNN7EXAMPLE",
    "-----BEGIN PRIVATE KEY-----\n...\n-----END PRIVATE KEY-----",
    "GET /v1?key=YOUR_API_KEY&alt=json",
    'password: "change-me-123"',
)


@pytest.mark.parametrize("text", EXAMPLES)
def test_an_example_with_a_made_up_key_stays_in_a_reply(text: str) -> None:
    assert Redactor([KEY]).reply(text) == text


def test_a_long_secret_shows_its_ends_and_a_short_one_nothing() -> None:
    redact = Redactor(["correct horse battery", "seventeen-letters"])
    assert redact("correct horse battery, seventeen-letters") == "correc***tery, ***"


def test_a_known_secret_is_found_in_each_spelling() -> None:
    redact = Redactor(['pa"ss wörd/1'])
    for text in ('pa"ss wörd/1', "pa%22ss%20w%C3%B6rd%2F1", 'pa\\"ss w\\u00f6rd/1'):
        assert redact(f"x {text} y") == "x *** y"
        assert redact.reply(f"x {text} y") == "x *** y"


def test_the_secret_half_of_a_bot_token_is_known_too() -> None:
    assert Redactor([TOKEN])(TOKEN.partition(":")[2]) == "AAHfak***opqr"


def test_a_secret_that_holds_another_is_replaced_whole() -> None:
    assert Redactor(["secret", "secret-longer"])("secret-longer secret") == "*** ***"


def test_a_known_secret_is_replaced_in_an_example_too() -> None:
    assert Redactor(["example-key-of-the-owner"]).reply("use example-key-of-the-owner") == "use exampl***wner"


def test_arguments_of_tools_lose_known_secrets_only() -> None:
    args = {"content": f"a {KEY} b {TOKEN}", "deep": [{"x": KEY}], "n": 1}
    entry = AssistantEntry("", (ToolCall("1", "write", args), ToolCall("2", "read", {"path": "a"})))
    first, second = Redactor([KEY]).entry(entry).calls
    assert first.args == {"content": f"a sk-pro***cD1e b {TOKEN}", "deep": [{"x": "sk-pro***cD1e"}], "n": 1}
    assert second is entry.calls[1]


def test_a_signed_thought_that_tells_a_secret_is_not_kept() -> None:
    redact = Redactor([KEY])
    told = AssistantEntry("ok", (), f"it is {KEY}", "m", {"thinking": [{"thinking": KEY, "signature": "s"}]})
    kept = AssistantEntry("ok", (), "hm", "m", {"thinking": [{"thinking": "hm", "signature": "s"}]})
    assert redact.entry(told) == AssistantEntry("ok", (), "it is sk-pro***cD1e", "m")
    assert redact.entry(kept) == kept


def fed(redact: Redactor, text: str, sizes: list[int]) -> list[str]:
    stream, out, at = Stream(redact), [], 0
    for size in [*sizes, len(text)]:
        out.append(stream.feed(text[at : at + size]))
        at += size
    return out


TALK = {
    "secrets-004": f"My key is {KEY}, keep it.\n",
    "secrets-003": f"{KEY}\n",
    "with blanks": "It is correct horse battery staple 9 and more \n",
    "in Chinese": f"密钥是{KEY}，请保密。完\n",
    "a key file": f"Here:\n{PEM}\nand so on \n",
    "a header": "Authorization: Bearer abc.def-1234567890123 then \n",
    "a cookie": "Cookie: session=31d4d96e407aad42\nnext \n",
    "a json": '{"api_key": "q8f5f167f44f4964", "n": 1} \n',
    "an address": "see https://u:p4ss-w0rd-9@host/x for it \n",
    "none": "Nothing here but words, 3f786850e387550fdab836ed7e6dc881de23001b and a 1:2 ratio. \n",
}


@pytest.mark.parametrize("text", [pytest.param(text, id=name) for name, text in TALK.items()])
def test_a_stream_shows_what_the_whole_text_would_however_it_is_cut(text: str) -> None:
    redact = Redactor([KEY, "correct horse battery staple 9"])
    whole = redact.reply(text)
    for at in range(1, len(text)):
        assert "".join(fed(redact, text, [at])) == whole
    assert "".join(fed(redact, text, [1] * len(text))) == whole
    chance = random.Random(7)
    for _ in range(100):
        assert "".join(fed(redact, text, [chance.randint(1, 9) for _ in range(len(text))])) == whole


def test_neither_half_of_a_cut_secret_is_shown_before_the_other_comes() -> None:
    """Attack secrets-004."""
    stream = Redactor([KEY]).stream()
    assert stream.feed(f"The key is {KEY[:9]}") == "The key is "
    assert stream.feed(KEY[9:]) == ""
    assert stream.feed(", keep it") == "sk-pro***cD1e, keep "


def test_a_cookie_among_others_is_not_shown_in_a_stream() -> None:
    shown = "".join(fed(Redactor(), "Cookie: a=b; session=31d4d96e407aad42\nnext \n", [1] * 60))
    assert "31d4" not in shown
    assert shown.endswith("\nnext \n")


def test_a_stream_of_chinese_without_blanks_is_not_held_back() -> None:
    stream = Redactor([KEY]).stream()
    assert stream.feed("今天天气很好") == "今天天气很好"


def test_a_stream_keeps_little_of_what_it_has_shown() -> None:
    stream = Redactor([KEY]).stream()
    for _ in range(1000):
        stream.feed("some words and more of them ")
    assert len(stream._text) < 200


def test_redaction_costs_next_to_nothing_on_ordinary_text() -> None:
    redact = Redactor([KEY, TOKEN, *(f"secret-number-{number}" for number in range(20))])
    text = "The weather is fine: 21 degrees, a key point for the author of this token of thanks. " * 25
    began = time.perf_counter()
    for _ in range(20):
        redact.reply(text)
    assert (time.perf_counter() - began) / 20 < 0.01


@pytest.mark.parametrize(
    "piece",
    [
        "://a:",
        "eyJ-",
        "bearer a",
        "password=",
        "-----BEGIN PRIVATE KEY-----",
        "cookie: a=",
        "SG.a",
        "12345678:",
    ],
)
def test_no_text_keeps_it_busy(piece: str) -> None:
    text = piece * (100_000 // len(piece))
    began = time.perf_counter()
    Redactor([KEY])(text)
    assert time.perf_counter() - began < 2


def test_an_env_file_is_shown_without_values() -> None:
    text = (
        "# notes\nexport DB_URL='postgres://h/d'\nPORT=8080\nDEBUG=true\nPASSWORD=hunter\nNAME=me and you\n\n"
    )
    assert values_hidden(text) == (
        "# notes\nexport DB_URL=***\nPORT=8080\nDEBUG=true\nPASSWORD=***\nNAME=***\n\n"
    )


def test_secrets_in_the_environment_are_known_by_name() -> None:
    env = {"OPENAI_API_KEY": "k", "BOT_TOKEN": "t", "PGPASSWORD": "p", "PATH": "/bin", "MAX_TOKENS": "8000"}
    assert secrets_in(env) == ("k", "t", "p")
