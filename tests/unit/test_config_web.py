"""The table `[web]`: what is accepted, and how a mistake is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway import config
from gateway.errors import ConfigError

CANARY = "canary-key-4711"


def parse(text: str) -> config.WebSettings:
    return config.parse(f"[web]\n{text}", {}, Path("/nowhere")).web


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("search = 'google'", "must be '', 'brave', 'tavily', 'searxng' or 'ddgs'"),
        ("search = 'brave'", 'search = "brave" needs a search_key'),
        ("search = 'tavily'", 'search = "tavily" needs a search_key'),
        ("search = 'searxng'", 'needs a search_url, such as "http://127.0.0.1:8888"'),
        ("search_url = 'localhost:8888'", "must be an address that begins with http:// or https://"),
        (f"search_url = 'http://ann:{CANARY}@h'", "without user, ? or #"),
        ("search_url = 'http://h/search?q='", "without user, ? or #"),
        (f"search_key = '{CANARY} x'", "holds blanks or characters outside ASCII"),
        ("max_results = 11", "less than or equal to 10"),
        ("fetch_max_chars = 20000", "less than or equal to 15000"),
        ("allow_hosts = ['https://example.com']", 'must be a host in small letters, such as "example.com"'),
        ("deny_hosts = ['*.example.com']", "must be a host in small letters"),
        ("allow_private = ['http://nas']", "must be a host with or without port"),
        ("allow_private = ['[0:0::1]:80']", "must be a host with or without port"),
        ("allow_private = ['10.0.0.0/8']", "must be a host with or without port"),
        ("ports = []", "at least 1 item"),
        ("ports = [0]", "greater than or equal to 1"),
    ],
)
def test_a_mistake_is_told_with_what_is_allowed(text: str, problem: str) -> None:
    with pytest.raises(ConfigError) as error:
        parse(text)
    assert problem in str(error.value)
    assert CANARY not in str(error.value)


def test_exceptions_are_hosts_or_addresses_with_or_without_port() -> None:
    places = ("nas", "nas.lan:5000", "192.168.1.5", "192.168.1.5:8123", "[::1]", "[fd00::5]:8080")
    assert parse(f"allow_private = {list(places)}").allow_private == places


def test_the_key_is_a_secret() -> None:
    settings = config.parse(f"[web]\nsearch = 'brave'\nsearch_key = '{CANARY}'", {}, Path("/nowhere"))
    assert CANARY in config.secrets(settings)
    assert CANARY not in config.shown(settings) + repr(settings)
