"""Who may talk to the HTTP face, decided without a server."""

from __future__ import annotations

import pytest

from adapters.web import guard
from adapters.web.guard import LOCKED, PEERS, TRIES, WINDOW, Limiter, Refusal
from tests.fakes.clock import FakeClock

TOKEN = "right-token-for-tests"


def guess(limiter: Limiter, token: str, peer: str = "203.0.113.5") -> int:
    """Return the status of an attempt."""
    try:
        guard.check_token(f"Bearer {token}", TOKEN, peer, limiter)
    except Refusal as refusal:
        return refusal.status
    return 200


def test_wrong_tokens_lock_a_peer_out_for_a_while() -> None:
    """http-003: the same for loopback, and the right token from another address still works."""
    for peer in ("203.0.113.5", "127.0.0.1"):
        clock = FakeClock()
        limiter = Limiter(clock)
        assert [guess(limiter, f"wrong{n}", peer) for n in range(1000)] == [401] * TRIES + [429] * (
            1000 - TRIES
        )
        assert guess(limiter, TOKEN, peer) == 429
        assert guess(limiter, TOKEN, "198.51.100.7") == 200
        clock.time += LOCKED - 1
        assert guess(limiter, TOKEN, peer) == 429
        clock.time += 1
        assert guess(limiter, TOKEN, peer) == 200


def test_a_slow_mistake_now_and_then_locks_nobody_out() -> None:
    clock = FakeClock()
    limiter = Limiter(clock)
    for _ in range(50):
        assert guess(limiter, "wrong") == 401
        clock.time += WINDOW / (TRIES - 1) + 0.1


def test_the_peer_that_failed_longest_ago_is_forgotten_first() -> None:
    """http-004."""
    limiter = Limiter(FakeClock())
    for number in range(10_000):
        assert guess(limiter, "wrong", f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}") == 401
    assert len(limiter) == PEERS
    assert guess(limiter, TOKEN) == 200


def test_addresses_of_one_ipv6_network_count_together() -> None:
    limiter = Limiter(FakeClock())
    for number in range(TRIES):
        guess(limiter, "wrong", f"2001:db8::{number:x}")
    assert guess(limiter, TOKEN, "2001:db8::ffff") == 429
    assert guess(limiter, TOKEN, "2001:db8:0:1::1") == 200


def test_who_is_locked_out_is_told_for_how_long() -> None:
    limiter = Limiter(FakeClock())
    for _ in range(TRIES):
        guess(limiter, "wrong")
    with pytest.raises(Refusal) as caught:
        guard.check_token(f"Bearer {TOKEN}", TOKEN, "203.0.113.5", limiter)
    assert int(caught.value.headers["Retry-After"]) == LOCKED + 1


@pytest.mark.parametrize("header", ["", "Bearer", "Bearer  ", f"Basic {TOKEN}", TOKEN])
def test_a_missing_token_is_no_guess(header: str) -> None:
    limiter = Limiter(FakeClock())
    for _ in range(TRIES + 1):
        with pytest.raises(Refusal) as caught:
            guard.check_token(header, TOKEN, "203.0.113.5", limiter)
        assert caught.value.status == 401
    assert len(limiter) == 0


@pytest.mark.parametrize(
    "given", ["", "right-token-for-test", "right-token-for-tests ü", "\udcff", "x" * 10_000]
)
def test_only_the_very_token_opens(given: str) -> None:
    assert guess(Limiter(FakeClock()), given) == 401


@pytest.mark.parametrize(
    ("header", "host", "fine"),
    [
        ("127.0.0.1:8787", "127.0.0.1", True),
        ("localhost", "127.0.0.1", True),
        ("[::1]:8787", "127.0.0.1", True),
        ("bot.lan", "Bot.lan", True),
        ("192.168.1.5:80", "192.168.1.5", True),
        ("anything.example", "0.0.0.0", True),
        ("anything.example", "::", True),
        ("evil.test", "127.0.0.1", False),
        ("evil.test", "192.168.1.5", False),
        ("localhost.evil.test", "127.0.0.1", False),
        ("localhost@evil.test", "127.0.0.1", False),
        ("", "127.0.0.1", False),
        ("", "0.0.0.0", False),
        ("[::1", "127.0.0.1", False),
        ("localhost:99999", "127.0.0.1", False),
    ],
)
def test_only_known_names_are_answered(header: str, host: str, fine: bool) -> None:
    """http-010."""
    if fine:
        guard.check_host(header, host)
    else:
        with pytest.raises(Refusal) as caught:
            guard.check_host(header, host)
        assert caught.value.status == 421


@pytest.mark.parametrize(
    ("origin", "header", "fine"),
    [
        (None, "localhost:8787", True),
        ("http://localhost:8787", "localhost:8787", True),
        ("HTTP://LOCALHOST:8787", "localhost:8787", True),
        ("http://bot.lan", "bot.lan", True),
        ("https://bot.lan", "bot.lan", True),
        ("https://bot.lan", "bot.lan:443", True),
        ("http://[::1]:8787", "[::1]:8787", True),
        ("null", "localhost:8787", False),
        ("", "localhost:8787", False),
        ("http://localhost:1", "localhost:8787", False),
        ("http://127.0.0.1:8787", "localhost:8787", False),
        ("https://evil.test", "localhost:8787", False),
        ("file://localhost:8787", "localhost:8787", False),
        ("http://localhost:8787@evil.test", "localhost:8787", False),
    ],
)
def test_only_our_own_page_may_send_with_an_origin(origin: str | None, header: str, fine: bool) -> None:
    """http-006, http-007."""
    if fine:
        guard.check_origin(origin, header)
    else:
        with pytest.raises(Refusal) as caught:
            guard.check_origin(origin, header)
        assert caught.value.status == 403
