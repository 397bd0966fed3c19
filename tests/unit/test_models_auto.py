"""Choosing a model: the configuration, a key, a local server, the demo."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest
from pydantic import SecretStr

from gateway.clock import SystemClock
from gateway.config import ModelSettings
from gateway.errors import ConfigError
from gateway.models.auto import (
    OLLAMA_CONTEXT,
    Choice,
    Plan,
    configured,
    fallbacks,
    open_model,
    open_other,
)
from gateway.models.base import Prompt
from gateway.models.probe import ollama_root, ollama_url
from gateway.types import Kind, Sender, ToolSpec, UserEntry
from tests.fakes.model_api import Answer, FakeModelApi, Request, json_body, reply, serving

PROMPT = Prompt(
    system="s",
    entries=(UserEntry("hi", Sender("7"), Kind.MESSAGE, 0.0),),
    tools=(ToolSpec("f", "F.", {"type": "object"}),),
)
KEY = "sk-test-0123456789"


def settings(**values: Any) -> ModelSettings:
    return ModelSettings.model_validate(values)


def plan(env: Mapping[str, str] | None = None, **values: Any) -> Plan:
    found = configured(settings(**values), env or {})
    assert found is not None
    return found


@pytest.fixture
async def fake() -> AsyncIterator[FakeModelApi]:
    async with serving() as server:
        yield server


async def choose(
    env: Mapping[str, str] | None = None, *ports: int, had_real: bool = False, **values: Any
) -> Choice:
    return await open_model(
        settings(**values), env or {}, SystemClock(), had_real=had_real, probe_ports=ports
    )


def test_keys_are_taken_in_a_fixed_order() -> None:
    env: dict[str, str] = {}
    found = []
    for name in ("GEMINI", "OPENROUTER", "DASHSCOPE", "DEEPSEEK", "ANTHROPIC", "OPENAI"):
        env[f"{name}_API_KEY"] = KEY
        chosen = plan(env)
        found.append((chosen.provider, chosen.dialect, chosen.why))

    assert found == [
        ("gemini", "openai", "key from GEMINI_API_KEY"),
        ("openrouter", "openai", "key from OPENROUTER_API_KEY"),
        ("dashscope", "openai", "key from DASHSCOPE_API_KEY"),
        ("deepseek", "openai", "key from DEEPSEEK_API_KEY"),
        ("anthropic", "anthropic", "key from ANTHROPIC_API_KEY"),
        ("openai", "openai", "key from OPENAI_API_KEY"),
    ]


def test_a_name_and_an_address_of_one_s_own_go_before_the_usual_ones() -> None:
    chosen = plan({"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": "http://proxy/v1"}, name="gpt-x")

    assert (chosen.model, chosen.base_url, chosen.key) == ("gpt-x", "http://proxy/v1", KEY)


def test_a_provider_in_the_name_goes_before_the_order_if_its_key_is_there() -> None:
    both = {"OPENAI_API_KEY": KEY, "ANTHROPIC_API_KEY": KEY}
    router = {"OPENROUTER_API_KEY": KEY}

    assert (plan(both, name="anthropic/claude-x").provider, plan(both, name="anthropic/claude-x").model) == (
        "anthropic",
        "claude-x",
    )
    assert plan(router, name="anthropic/claude-x").model == "anthropic/claude-x"
    assert plan(router, name="anthropic/claude-x").provider == "openrouter"


def test_a_plan_does_not_print_its_key() -> None:
    assert KEY not in repr(plan({"OPENAI_API_KEY": KEY}))


def test_empty_keys_are_no_keys() -> None:
    assert configured(settings(), {"OPENAI_API_KEY": " "}) is None


@pytest.mark.parametrize(
    ("values", "dialect", "base_url", "model"),
    [
        ({"api_key": "sk-ant-1"}, "anthropic", "https://api.anthropic.com/v1", "claude-sonnet-4-5"),
        ({"api_key": "sk-1"}, "openai", "https://api.openai.com/v1", "gpt-5"),
        (
            {"base_url": "https://api.anthropic.com", "api_key": "k"},
            "anthropic",
            "https://api.anthropic.com",
            "claude-sonnet-4-5",
        ),
        (
            {"base_url": "https://anthropic.corp", "api_key": "k", "name": "c"},
            "anthropic",
            "https://anthropic.corp",
            "c",
        ),
        ({"base_url": "http://lan:8000", "name": "m"}, "openai", "http://lan:8000", "m"),
        ({"base_url": "http://lan:11434", "name": "m"}, "ollama", "http://lan:11434", "m"),
        (
            {"base_url": "https://api.deepseek.com", "api_key": "k"},
            "openai",
            "https://api.deepseek.com",
            "deepseek-chat",
        ),
    ],
)
def test_the_dialect_is_guessed_from_address_and_key(
    values: dict[str, str], dialect: str, base_url: str, model: str
) -> None:
    chosen = plan(None, **values)

    assert (chosen.dialect, chosen.base_url, chosen.model) == (dialect, base_url, model)


def test_a_key_in_the_environment_only_goes_to_its_own_provider() -> None:
    env = {"OPENAI_API_KEY": KEY, "DEEPSEEK_API_KEY": "other"}

    assert plan(env, dialect="openai", base_url="http://lan:8000", name="m").key == ""
    assert plan(env, dialect="openai", base_url="https://api.deepseek.com", name="m").key == "other"
    assert plan(env, dialect="openai", name="m").key == KEY


@pytest.mark.parametrize(
    ("values", "env", "said"),
    [
        ({"dialect": "openai"}, {}, "[model] name is missing"),
        ({"dialect": "ollama"}, {}, 'name = "qwen3:8b"'),
        ({"dialect": "openai", "name": "gpt-5"}, {}, "OPENAI_API_KEY"),
        ({"dialect": "anthropic", "name": "c"}, {}, "ANTHROPIC_API_KEY"),
        ({"base_url": "http://lan:8000"}, {}, "[model] name is missing"),
        ({"fallbacks": ["deepseek/deepseek-chat"]}, {"OPENAI_API_KEY": KEY}, "DEEPSEEK_API_KEY"),
        ({"api_key": "sk bad", "name": "m"}, {}, "blanks"),
    ],
)
async def test_a_configuration_that_can_t_work_says_what_to_do(
    values: dict[str, Any], env: dict[str, str], said: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        await choose(env, **values)

    assert said in str(caught.value)
    assert KEY not in str(caught.value)
    assert "sk bad" not in str(caught.value)


def test_fallbacks_name_a_provider_or_a_model_beside_the_first() -> None:
    env = {"OPENAI_API_KEY": KEY, "ANTHROPIC_API_KEY": "a", "OPENROUTER_API_KEY": "r"}
    names = [
        "gpt-mini",
        "openai/gpt-nano",
        "anthropic/claude-x",
        "openrouter/z-ai/glm",
        "ollama/qwen3",
        "ft/own",
    ]
    chosen = settings(fallbacks=names)

    found = fallbacks(chosen, env, plan(env))

    assert [(one.provider, one.model) for one in found] == [
        ("openai", "gpt-mini"),
        ("openai", "gpt-nano"),
        ("anthropic", "claude-x"),
        ("openrouter", "z-ai/glm"),
        ("ollama", "qwen3"),
        ("openai", "ft/own"),
    ]
    assert found[2].key == "a"


async def test_without_anything_it_is_the_demo_and_says_so(unused_tcp_port: int) -> None:
    choice = await choose(None, unused_tcp_port)

    assert choice.is_demo
    assert not choice.real
    assert choice.model.name == "demo"
    assert "demo" in choice.text


async def test_what_had_a_real_model_once_never_becomes_a_demo_by_itself(unused_tcp_port: int) -> None:
    with pytest.raises(ConfigError) as caught:
        await choose(None, unused_tcp_port, had_real=True)

    assert "OPENAI_API_KEY" in str(caught.value)
    assert 'dialect = "demo"' in str(caught.value)
    assert (await choose(None, had_real=True, dialect="demo")).is_demo


async def test_the_line_for_the_start_names_model_and_source() -> None:
    choice = await choose({"OPENAI_API_KEY": KEY, "ANTHROPIC_API_KEY": KEY}, fallbacks=["anthropic/claude-x"])
    await choice.model.close()

    assert choice.text == "model: openai/gpt-5 (key from OPENAI_API_KEY; then anthropic/claude-x)"
    assert choice.real


async def test_a_local_server_is_found_and_used_without_any_key(fake: FakeModelApi) -> None:
    fake.play(json_body({"data": [{"id": "nomic-embed"}, {"id": "qwen3-8b"}]}), reply("openai", "hello"))

    choice = await choose(None, fake.port)
    answer = await choice.model.reply(PROMPT)
    await choice.model.close()

    assert choice.text == f"model: local/qwen3-8b (found at {fake.url}/v1)"
    assert answer.entry.text == "hello"
    assert [request.path for request in fake.requests] == ["/v1/models", "/v1/chat/completions"]
    assert not any("Authorization" in request.headers for request in fake.requests)


@pytest.mark.parametrize(
    "page",
    [
        Answer(chunks=[b"<html>Jenkins</html>"], content_type="text/html"),
        json_body({"data": "no list"}),
        json_body({"data": []}),
        json_body([1]),
        json_body({"data": [{"id": "m"}]}, 401),
    ],
)
async def test_another_server_on_the_port_is_left_alone(fake: FakeModelApi, page: Answer) -> None:
    fake.play(page)

    assert (await choose(None, fake.port)).is_demo


async def test_the_first_port_in_order_wins(fake: FakeModelApi) -> None:
    async with serving(json_body({"data": [{"id": "second"}]})) as other:
        fake.play(json_body({"data": [{"id": "first"}]}))
        choice = await choose(None, fake.port, other.port)
        await choice.model.close()

    assert choice.model.name == "local/first"


def ollama(**models: list[str]) -> Any:
    """Return what an Ollama server with these models and abilities answers."""

    def answer(request: Request) -> Answer:
        match request.path:
            case "/api/tags":
                return json_body({"models": [{"name": name} for name in models]})
            case "/api/show":
                info = {"general.architecture": "x", "x.context_length": 16384}
                return json_body({"capabilities": models[request.body["model"]], "model_info": info})
            case _:
                return reply("ollama", "hello")

    return answer


async def test_ollama_is_spoken_to_in_its_own_dialect_with_a_model_that_has_tools(fake: FakeModelApi) -> None:
    fake.otherwise = ollama(embed=["embedding"], small=["completion"], big=["completion", "tools"])

    choice = await choose({"OLLAMA_HOST": fake.url})
    await choice.model.reply(PROMPT)
    await choice.model.close()

    assert choice.text == f"model: ollama/big (found at {fake.url})"
    assert choice.context_window == 16384
    assert fake.requests[-1].path == "/api/chat"
    assert fake.bodies[-1]["options"]["num_ctx"] == 16384
    assert fake.bodies[-1]["tools"]


async def test_an_ollama_model_without_tools_can_only_talk_and_that_is_said(fake: FakeModelApi) -> None:
    fake.otherwise = ollama(small=["completion"])

    choice = await choose({"OLLAMA_HOST": fake.url})
    await choice.model.reply(PROMPT)
    await choice.model.close()

    assert "chat only" in choice.text
    assert "tools" not in fake.bodies[-1]


async def test_a_configured_ollama_model_is_asked_for_its_abilities(fake: FakeModelApi) -> None:
    fake.otherwise = ollama(small=["completion"])

    choice = await choose(None, dialect="ollama", base_url=fake.url, name="small", context_window=8000)
    await choice.model.close()

    assert "chat only" in choice.text
    assert choice.context_window == 8000


async def test_a_configured_ollama_may_start_later(unused_tcp_port: int) -> None:
    choice = await choose(
        None, dialect="ollama", base_url=f"http://127.0.0.1:{unused_tcp_port}", name="small"
    )
    await choice.model.close()

    assert choice.model.name == "ollama/small"
    assert choice.context_window == OLLAMA_CONTEXT


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("", "http://127.0.0.1:11434"),
        ("0.0.0.0", "http://127.0.0.1:11434"),
        ("0.0.0.0:8000", "http://127.0.0.1:8000"),
        ("box.lan", "http://box.lan:11434"),
        ("http://box.lan:99/", "http://box.lan:99"),
        ("[::1]:99", "http://[::1]:99"),
    ],
)
def test_ollama_host_is_read_as_ollama_does(host: str, url: str) -> None:
    assert ollama_url(host) == url


@pytest.mark.parametrize(
    "base", ["http://h:1", "http://h:1/", "http://h:1/v1", "http://h:1/api", "http://h:1/api/chat"]
)
def test_an_ollama_address_is_taken_with_any_path(base: str) -> None:
    assert ollama_root(base) == "http://h:1"


@pytest.mark.parametrize(
    ("name", "opened"),
    [("small", "openai/small"), ("anthropic/claude-x", "anthropic/claude-x")],
)
async def test_another_model_is_opened_beside_the_first(name: str, opened: str) -> None:
    settings = ModelSettings(dialect="openai", name="big", api_key=SecretStr("sk-1"))
    env = {"ANTHROPIC_API_KEY": "sk-ant-1"}
    model = await open_other(name, "[heartbeat] model", settings, env, SystemClock())
    assert model.name == opened
    await model.close()


async def test_another_model_that_can_t_be_opened_says_where_it_is_named(unused_tcp_port: int) -> None:
    settings = ModelSettings(dialect="openai", name="big", api_key=SecretStr("sk-1"))
    with pytest.raises(ConfigError, match=r"\A\[heartbeat\] model: anthropic/x needs a key"):
        await open_other("anthropic/x", "[heartbeat] model", settings, {}, SystemClock())
    nothing = ModelSettings(dialect="demo")
    with pytest.raises(ConfigError, match=r"\A\[heartbeat\] model: there is no language model here"):
        await open_other("x", "[heartbeat] model", nothing, {}, SystemClock(), probe_ports=[unused_tcp_port])
