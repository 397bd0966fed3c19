"""Which proxy is taken for an address."""

from __future__ import annotations

import pytest

from adapters.telegram.network import proxy_for
from gateway.errors import ConfigError

API = "https://api.telegram.org"
PROXY = "http://proxy:3128"


@pytest.mark.parametrize(
    ("url", "env", "proxy"),
    [
        (API, {}, ""),
        (API, {"HTTPS_PROXY": PROXY}, PROXY),
        (API, {"https_proxy": PROXY, "HTTPS_PROXY": "http://other:1"}, PROXY),
        (API, {"HTTPS_PROXY": "proxy:3128"}, PROXY),
        (API, {"HTTP_PROXY": PROXY}, ""),
        (API, {"ALL_PROXY": PROXY}, PROXY),
        (API, {"HTTPS_PROXY": PROXY, "NO_PROXY": "example.org, .telegram.org"}, ""),
        (API, {"HTTPS_PROXY": PROXY, "no_proxy": "api.telegram.org:443"}, ""),
        (API, {"HTTPS_PROXY": PROXY, "NO_PROXY": "*"}, ""),
        (API, {"HTTPS_PROXY": PROXY, "NO_PROXY": "egram.org,,"}, PROXY),
        ("http://bot-api:8081", {"HTTP_PROXY": PROXY}, PROXY),
        ("http://127.0.0.1:8081", {"HTTP_PROXY": PROXY}, ""),
        ("http://localhost:8081", {"HTTP_PROXY": "socks5://x:1"}, ""),
        ("http://[::1]:8081", {"ALL_PROXY": PROXY}, ""),
    ],
)
def test_the_environment_names_the_proxy_unless_the_host_is_exempt(
    url: str, env: dict[str, str], proxy: str
) -> None:
    assert proxy_for(url, "", env) == proxy


def test_the_proxy_of_the_configuration_goes_before_the_environment() -> None:
    env = {"HTTPS_PROXY": "http://other:1", "NO_PROXY": "*"}
    assert proxy_for(API, PROXY, env) == PROXY


@pytest.mark.parametrize(
    ("chosen", "env", "place"),
    [
        ("socks5://u:secret@h:1080", {}, "channels.telegram.proxy is a SOCKS proxy"),
        ("", {"ALL_PROXY": "socks5h://u:secret@h:1080"}, r"\$ALL_PROXY is a SOCKS proxy"),
        ("ftp://h", {}, "must be the address of an HTTP proxy"),
        ("http://", {}, "must be the address of an HTTP proxy"),
    ],
)
def test_a_proxy_that_is_not_spoken_is_refused_with_a_remedy(
    chosen: str, env: dict[str, str], place: str
) -> None:
    with pytest.raises(ConfigError, match=place) as caught:
        proxy_for(API, chosen, env)
    assert "http://" in str(caught.value)
    assert "secret" not in str(caught.value)
