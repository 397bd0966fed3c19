"""What the fetch guard lets through, told from the text of a URL and from the answer of a name server."""

from __future__ import annotations

import ipaddress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import ToolDenied, ToolError
from gateway.tools.netguard import Guard, Reach, Rules, Target, host_of, reach_of, read
from tests.fakes.pages import Names

DNS = Names(
    {
        "pub.test": [["203.0.113.7"]],
        "example.test": [["203.0.113.7", "2600::7"]],
        "mixed.test": [["203.0.113.7", "127.0.0.1"]],
        "mixed6.test": [["203.0.113.7", "::1"]],
        "metadata.test": [["169.254.169.254"]],
        "zone.test": [["fe80::1%eth0"]],
        "nas.lan": [["192.168.1.5"]],
        "cloud.lan": [["fd00:ec2::254"]],
        "empty.test": [[]],
    }
)


async def addresses(url: str, **rules: Any) -> list[str]:
    guard = Guard(Rules(**rules), DNS)
    return list(await guard.addresses(guard.rules.vet(url)))


DENIED = {
    "ssrf-001": "http://127.0.0.1:8080/",
    "ssrf-003": "http://[::1]/",
    "ssrf-004": "http://0.0.0.0/",
    "ssrf-006": "http://2130706433/",
    "ssrf-007": "http://0x7f.1/",
    "ssrf-009": "http://127.1/",
    "ssrf-010": "http://[::ffff:127.0.0.1]/",
    "ssrf-012": "http://[64:ff9b::7f00:1]/",
    "ssrf-013": "http://[2002:7f00:1::]/",
    "ssrf-015": "http://127。0。0。1/",
    "ssrf-016": "http://①②⑦.0.0.1/",
    "ssrf-018": "http://metadata.google.internal/computeMetadata/v1/",
    "ssrf-019": "http://100.100.100.200/",
    "ssrf-021": "http://[fd00:ec2::254]/",
    "ssrf-022": "http://10.0.0.5/",
    "ssrf-024": "http://100.64.0.1/",
    "ssrf-025": "http://[fe80::1]/",
    "ssrf-030": "http://mixed.test/",
    "ssrf-031": "http://evil.test\\@127.0.0.1/",
    "ssrf-034": "file:///etc/passwd",
    "ssrf-036": "http://pub.test:25/",
    "ssrf-039": "http://pub.test/\r\nX-Injected: 1",
    "ssrf-042": "http://169.254.169.254/x.png",
    "security-net-02-localhost": "http://localhost/",
    "mixed-6": "http://mixed6.test/",
    "octal": "http://0177.0.0.1/",
    "long-octal": "http://017700000001/",
    "hex": "http://0x7f000001/",
    "a-dot-at-the-end": "http://127.0.0.1./",
    "localhost-with-a-dot": "http://LOCALHOST./",
    "beneath-localhost": "http://a.localhost/",
    "one-word": "http://router/",
    "local": "http://printer.local/",
    "full-width": "http://１２７.０.０.１/",
    "compatible": "http://[::127.0.0.1]/",
    "teredo": "http://[2001:0:4136:e378:8000:63bf:3fff:fdd2]/",
    "nat64-local": "http://[64:ff9b:1::7f00:1]/",
    "site-local": "http://[fec0::1]/",
    "unique-local": "http://[fc00::1]/",
    "ipv6-zone": "http://[fe80::1%25eth0]/",
    "zone-of-a-name": "http://zone.test/",
    "unspecified-6": "http://[::]/",
    "multicast": "http://224.0.0.1/",
    "multicast-6": "http://[ff02::1]/",
    "broadcast": "http://255.255.255.255/",
    "platform": "http://168.63.129.16/",
    "benchmark": "http://198.18.0.1/",
    "metadata-by-name": "http://metadata.test/",
    "user": "http://pub.test@127.0.0.1/",
    "user-and-password": "http://a:b@pub.test/",
    "encoded-host": "http://127%2e0%2e0%2e1/",
    "gopher": "gopher://pub.test/",
    "no-scheme": "//pub.test/",
    "no-host": "http:///x",
    "port-too-large": "http://pub.test:65536/",
    "port-no-number": "http://pub.test:8x/",
    "tab": "http://pub.test/\ta",
    "nul": "http://pub.test/\0",
    "blank": "http://pub.test/a b",
    "line-separator": "http://pub.test/\u2028",
    "half-a-pair": "http://pub.test/\ud800",
    "too-long": "http://pub.test/" + "a" * 2048,
    "unclosed": "http://[::1/",
    "empty": "",
}


@pytest.mark.parametrize("url", DENIED.values(), ids=DENIED.keys())
async def test_what_could_lead_inside_is_denied(url: str) -> None:
    with pytest.raises(ToolDenied):
        await addresses(url)


ALLOWED = {
    "ssrf-033": ("http://pub.test#@127.0.0.1/", ["203.0.113.7"]),
    "ssrf-043": ("https://example.test/page", ["203.0.113.7", "2600::7"]),
    "port": ("https://pub.test:8443/", ["203.0.113.7"]),
    "address": ("http://203.0.113.7/", ["203.0.113.7"]),
    "address-6": ("http://[2600::7]/", ["2600::7"]),
    "mapped": ("http://[::ffff:203.0.113.7]/", ["::ffff:cb00:7107"]),
    "capitals-and-dot": ("HTTP://PUB.Test./", ["203.0.113.7"]),
}


@pytest.mark.parametrize(("url", "expected"), ALLOWED.values(), ids=ALLOWED.keys())
async def test_what_is_public_is_reached_at_all_its_addresses(url: str, expected: list[str]) -> None:
    assert await addresses(url) == expected


SECURITY_NET_02 = [
    *("http://127.0.0.1/", "http://[::1]/", "http://[::ffff:127.0.0.1]/", "http://0.0.0.0/"),
    *("http://100.64.0.1/", "http://[fe80::1]/", "http://2130706433/", "http://0x7f.1/"),
    *("http://localhost/", "file:///etc/passwd"),
]
SECURITY_NET_04 = ["http://[64:ff9b::7f00:1]/", "http://[2002:7f00:1::]/"]


@pytest.mark.parametrize(
    "urls", [SECURITY_NET_02, SECURITY_NET_04], ids=["security-net-02", "security-net-04"]
)
async def test_every_spelling_of_a_private_target_is_denied(urls: list[str]) -> None:
    for url in urls:
        with pytest.raises(ToolDenied):
            await addresses(url)


@pytest.mark.parametrize("url", ["http://gone.test/", "http://empty.test/"])
async def test_a_name_that_leads_nowhere_is_told(url: str) -> None:
    guard = Guard(Rules(), Names({"gone.test": [], "empty.test": [[]]}))
    with pytest.raises(ToolError, match="leads nowhere; check the URL"):
        await guard.addresses(guard.rules.vet(url))


@given(st.integers(0, 2**32 - 1))
def test_no_ipv4_address_is_public_that_python_knows_as_inner(number: int) -> None:
    ip = ipaddress.IPv4Address(number)
    example = any(
        ip in ipaddress.ip_network(one) for one in ("192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24")
    )
    if reach_of(str(ip)) is Reach.PUBLIC and not example:
        assert ip.is_global
        assert not ip.is_multicast


@given(st.integers(0, 2**128 - 1))
def test_no_ipv6_address_is_public_that_python_knows_as_inner(number: int) -> None:
    ip = ipaddress.IPv6Address(number)
    if reach_of(str(ip)) is Reach.PUBLIC and ip.ipv4_mapped is None:
        assert not any(
            [ip.is_loopback, ip.is_link_local, ip.is_site_local, ip.is_multicast, ip.is_unspecified]
        )


@given(st.sampled_from(["::ffff:", "64:ff9b::", "::"]), st.integers(0, 2**32 - 1))
def test_an_ipv4_address_in_an_ipv6_one_is_never_more_public(wrap: str, number: int) -> None:
    ip = str(ipaddress.IPv4Address(number))
    if reach_of(f"{wrap}{ip}") is Reach.PUBLIC:
        assert reach_of(ip) is Reach.PUBLIC


@pytest.mark.parametrize("text", ["", "pub.test", "1.2.3", "fe80::1%eth0", "1.2.3.4/8"])
def test_what_is_no_plain_address_is_never_reached(text: str) -> None:
    assert reach_of(text) is Reach.NEVER


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://example.com", "http://example.com/"),
        (" https://example.com:443/a?b=c d".replace("c d", "c%20d"), "https://example.com/a?b=c%20d"),
        ("http://example.com:8080/ä?q=ü#top", "http://example.com:8080/%C3%A4?q=%C3%BC"),
        ("https://bücher.example/", "https://xn--bcher-kva.example/"),
        ("https://faß.example/", "https://xn--fa-hia.example/"),
        ("http://[2600:0::7]/", "http://[2600::7]/"),
        ("http://a_b.example.com/{x}", "http://a_b.example.com/%7Bx%7D"),
    ],
)
def test_a_url_has_one_ascii_form(url: str, expected: str) -> None:
    target = read(url)
    assert target.url == expected
    assert read(target.url) == target


@given(st.text(alphabet="htps:/@.\\[]#?%0127axü。①-_ \t", max_size=40) | st.text(max_size=40))
def test_whatever_is_given_is_denied_or_has_one_form(text: str) -> None:
    try:
        target = read(f"http://{text}")
    except ToolDenied:
        return
    assert target.url.isascii()
    assert read(target.url) == target


@pytest.mark.parametrize(
    "name", ["a..b", "-a.com", "a" * 64 + ".com", "a,b.com", "xn--\xff.com", "a b.com", "."]
)
def test_what_no_host_is_called_is_denied(name: str) -> None:
    with pytest.raises(ToolDenied):
        host_of(name)


@pytest.mark.parametrize(
    ("url", "rules", "problem"),
    [
        ("http://evil.test/", {"deny_hosts": frozenset({"evil.test"})}, "the owner has denied evil.test"),
        ("http://a.evil.test/", {"deny_hosts": frozenset({"evil.test"})}, "the owner has denied a.evil.test"),
        ("http://evil.test/", {"allow_hosts": frozenset({"good.test"})}, "not among the hosts of"),
        ("http://xgood.test/", {"allow_hosts": frozenset({"good.test"})}, "not among the hosts of"),
        (
            "http://a.good.test/",
            {"allow_hosts": frozenset({"good.test"}), "deny_hosts": frozenset({"a.good.test"})},
            "the owner has denied",
        ),
        ("http://pub.test:22/", {}, "only ports 80, 443, 8080, 8443 are reached, not 22"),
    ],
)
def test_the_owners_lists_narrow(url: str, rules: dict[str, Any], problem: str) -> None:
    with pytest.raises(ToolDenied, match=problem):
        Rules(**rules).vet(url)


@pytest.mark.parametrize("url", ["http://good.test/", "http://www.good.test/"])
def test_an_allowed_host_stands_for_what_is_beneath_it(url: str) -> None:
    assert Rules(allow_hosts=frozenset({"good.test"})).vet(url).url == url


async def test_a_private_host_is_reached_when_the_owner_has_named_exactly_that() -> None:
    for allowed in ("192.168.1.5", "192.168.1.5:8123"):
        rules = frozenset({allowed})
        assert await addresses("http://192.168.1.5:8123/", allow_private=rules, ports=frozenset({8123})) == [
            "192.168.1.5"
        ]
    assert await addresses("http://nas.lan/", allow_private=frozenset({"nas.lan"})) == ["192.168.1.5"]
    assert await addresses("http://nas.lan:5000/", allow_private=frozenset({"nas.lan:5000"})) == [
        "192.168.1.5"
    ]
    assert await addresses("http://[::1]:8080/", allow_private=frozenset({"[::1]:8080"})) == ["::1"]


@pytest.mark.parametrize(
    "url", ["http://192.168.1.5:8080/", "http://192.168.1.6/", "http://a.nas.lan/", "http://nas.lan:22/"]
)
async def test_an_exception_is_for_nothing_beside_it(url: str) -> None:
    with pytest.raises(ToolDenied):
        await addresses(url, allow_private=frozenset({"192.168.1.5:8123", "nas.lan"}))


@pytest.mark.parametrize("url", ["http://169.254.169.254/", "http://cloud.lan/", "http://0.0.0.0/"])
async def test_no_exception_leads_to_metadata_or_to_an_address_of_nobody(url: str) -> None:
    with pytest.raises(ToolDenied):
        await addresses(url, allow_private=frozenset({"169.254.169.254", "cloud.lan", "0.0.0.0"}))


def test_a_target_names_its_port_where_that_is_not_the_usual_one() -> None:
    target = Target("http", "pub.test", 80, "/")
    assert (target.place, target.origin) == ("pub.test:80", "http://pub.test")
    assert Target("https", "2600::7", 80, "/").origin == "https://[2600::7]:80"


async def test_a_denial_says_what_the_owner_could_do_and_no_inner_address() -> None:
    with pytest.raises(ToolDenied, match=r"\[web\] allow_private") as denied:
        await addresses("http://metadata.test/")
    assert "169.254" not in str(denied.value)
