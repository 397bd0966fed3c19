"""Which agent answers where."""

from __future__ import annotations

import pytest

from gateway.agents import bindings, chosen
from gateway.config import BindingSettings
from gateway.types import Address
from tests.fakes.scripted import situation

FOUND = bindings(
    [
        BindingSettings(agent="desk", channel="telegram"),
        BindingSettings(agent="team", channel="telegram", chat="-100"),
        BindingSettings(agent="topic", channel="telegram", chat="-100", thread="7"),
        BindingSettings(agent="ann", channel="telegram", sender="42"),
        BindingSettings(agent="late", channel="telegram"),
    ]
)


@pytest.mark.parametrize(
    ("address", "sender", "agent"),
    [
        (Address("web", "1"), "9", "main"),
        (Address("telegram", "9"), "9", "desk"),
        (Address("telegram", "-100"), "9", "team"),
        (Address("telegram", "-100", "7"), "9", "topic"),
        (Address("telegram", "-100", "7"), "42", "topic"),
        (Address("telegram", "-100"), "42", "ann"),
        (Address("telegram", "42"), "42", "ann"),
        (Address("telegram-two", "42"), "42", "main"),
    ],
)
def test_the_most_specific_binding_decides(address: Address, sender: str, agent: str) -> None:
    assert chosen(FOUND, situation(address=address, sender=sender)) == agent


def test_what_runs_for_a_chat_is_that_chat_s_agent() -> None:
    nightly = situation(address=Address("cron", "abc"), place=Address("telegram", "-100"))
    assert chosen(FOUND, nightly) == "team"


@pytest.mark.parametrize("given", [{"chat": "1"}, {"sender": 7}, {}])
def test_a_binding_needs_a_channel(given: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="channel"):
        BindingSettings(agent="a", **given)  # type: ignore[arg-type] # what a file may hold
