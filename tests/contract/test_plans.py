"""A server plans by what it believes a table to hold; what it is asked for must not depend on that."""

from __future__ import annotations

import pytest

from gateway.store import outbox
from gateway.store.engine import Database
from gateway.store.inbox import Arrival, Inbox
from gateway.store.journal import Journal
from gateway.store.outbox import Outbox
from gateway.types import Address, Outgoing
from tests.conftest import _raw
from tests.fakes.world import said

pytestmark = pytest.mark.parametrize("kind", ["postgres"])


async def count(url: str) -> None:
    """Let the server count the rows; it believes the numbers until it counts again."""
    raw = await _raw(url)
    await raw.execute("VACUUM ANALYZE")
    await raw.close()


async def test_no_more_conversations_are_claimed_than_were_asked_for(db: Database, url: str) -> None:
    await Inbox(db).put([Arrival(said("hi", "first"))])
    await count(url)
    await Inbox(db).put([Arrival(said("hi", chat)) for chat in "abcdefgh"])
    claims, _ = await Journal(db, "node").claim(3)
    assert len(claims) == 3


async def test_no_more_messages_are_reserved_than_were_asked_for(db: Database, url: str) -> None:
    async def put(chats: str) -> None:
        messages = [Outgoing(key=chat, address=Address("fake", chat), text="hi") for chat in chats]
        await db.write(lambda tx: outbox.put(tx, messages, db.now()))

    await put("1")
    await count(url)
    await put("abcdefgh")
    found, _ = await Outbox(db, "node").take(3)
    assert len(found) == 3
