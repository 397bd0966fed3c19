"""How fast a bot may send."""

from __future__ import annotations

import pytest

from adapters.telegram.gate import Gate


def leaves(gate: Gate, chat: str, number: int, now: float = 0.0) -> list[float]:
    """Send as fast as the gate lets; return when each message left."""
    times = []
    for _ in range(number):
        now += gate.wait(chat, now)
        gate.take(chat, now)
        times.append(now)
    return times


def test_three_messages_to_a_chat_leave_at_once_and_then_one_each_second() -> None:
    assert leaves(Gate(), "7", 6) == pytest.approx([0, 0, 0, 1, 2, 3])


def test_a_chat_that_was_silent_may_send_three_at_once_again() -> None:
    gate = Gate()
    leaves(gate, "7", 5)
    assert leaves(gate, "7", 3, now=10.0) == [10.0] * 3


def test_a_group_gets_twenty_messages_in_a_minute() -> None:
    times = leaves(Gate(), "-100", 45)
    assert all(later - earlier >= 60 for earlier, later in zip(times, times[20:], strict=False))
    assert times[19] < 20


def test_all_chats_together_keep_the_rate_of_the_bot() -> None:
    gate, now = Gate(30.0), 0.0
    times = []
    for number in range(300):
        now += gate.wait(str(number), now)
        gate.take(str(number), now)
        times.append(now)
    assert times[29] == 0.0
    assert times[-1] == pytest.approx(9.0, abs=0.1)


def test_a_server_of_ones_own_has_no_rate_but_its_pauses_count() -> None:
    gate = Gate(None)
    assert leaves(gate, "-7", 500) == [0.0] * 500
    gate.pause("-7", 31.0)
    assert gate.wait("-7", 1.0) == 30.0
    assert gate.wait("8", 1.0) == 0.0
    assert gate.wait("-7", 31.0) == 0.0


def test_a_shorter_pause_does_not_end_a_longer_one() -> None:
    gate = Gate()
    gate.pause("7", 31.0)
    gate.pause("7", 5.0)
    assert gate.wait("7", 0.0) == 31.0


def test_chats_that_nothing_holds_up_are_forgotten() -> None:
    gate = Gate(1000.0)
    for number in range(10_000):
        gate.take(f"-{number}", number * 10.0)
    assert len(gate._chats) < 5000
    assert len(gate._groups) < 5000
