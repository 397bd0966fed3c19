"""Addresses as people read and write them."""

from __future__ import annotations

import pytest

from gateway.types import Address

ADDRESSES = [
    (Address("telegram", "42"), "telegram:42"),
    (Address("telegram", "-100", "7"), "telegram:-100:7"),
    (Address("slack", "C1", "170.5"), "slack:C1:170.5"),
    (Address("agent", "k3", "web:main:"), "agent:k3:web:main"),
    (Address("agent", "k3", "telegram:-100:7"), "agent:k3:telegram:-100:7"),
]


@pytest.mark.parametrize(("address", "shown"), ADDRESSES)
def test_people_see_no_colon_at_the_end_and_may_write_one(address: Address, shown: str) -> None:
    assert address.shown == shown
    assert Address.named(shown) == Address.named(address.key) == address
