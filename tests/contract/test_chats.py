"""What follows a chat to its new id, and which message of ours somebody points at."""

from __future__ import annotations

import functools
from typing import Any

import sqlalchemy as sa

from gateway.store import chats
from gateway.store.engine import Database
from gateway.store.inbox import Arrival, Inbox
from gateway.store.outbox import Outbox, put
from gateway.store.tables import conversation, outbound, schedule
from gateway.types import Address, Chat, Outgoing, Receipt, Sender, Stimulus

OLD, NEW = Address("telegram", "-12_3"), Address("telegram", "-100123")


async def heard(db: Database, address: Address) -> None:
    stimulus = Stimulus(
        key=f"k{address.key}", address=address, sender=Sender("7"), text="hi", at=1.0, chat=Chat.GROUP
    )
    await Inbox(db).put([Arrival(stimulus)])


async def queued(db: Database, address: Address, text: str = "hello") -> None:
    message = Outgoing(key=f"out {address.key} {text}", address=address, text=text)
    await db.write(lambda tx: put(tx, [message], db.now()))


async def addresses(db: Database, table: sa.Table) -> set[str]:
    return set(await db.write(lambda tx: tx.execute(sa.select(table.c.address)).scalars().all()))


async def moved(db: Database) -> int:
    return await db.write(functools.partial(chats.move, old=OLD, new=NEW))


async def test_all_conversations_of_a_chat_move_once(db: Database) -> None:
    others = [Address("telegram", "-1293"), Address("telegram", "-12"), Address("slack", "-12_3")]
    for address in (OLD, Address("telegram", "-12_3", "55"), *others):
        await heard(db, address)
    assert await moved(db) == 2
    assert await addresses(db, conversation) == {
        "telegram:-100123:",
        "telegram:-100123:55",
        *(other.key for other in others),
    }
    assert await moved(db) == 0


async def test_a_conversation_whose_new_address_is_in_use_stays(db: Database) -> None:
    await heard(db, OLD)
    await heard(db, NEW)
    assert await moved(db) == 0
    assert await addresses(db, conversation) == {OLD.key, NEW.key}


async def test_schedules_and_what_is_queued_follow_and_what_was_sent_does_not(db: Database) -> None:
    def plan(tx: sa.Connection) -> None:
        for number in range(3):
            row: dict[str, Any] = {
                "id": f"s{number}",
                "name": f"name {number}",
                "address": OLD.key,
                "chat": "group",
            }
            row |= {"sender": "7", "trigger": "{}", "zone": "UTC", "prompt": "p", "created_at": 1.0}
            tx.execute(sa.insert(schedule).values(row))

    await db.write(plan)
    outbox = Outbox(db, "me")
    await queued(db, OLD, "first")
    (delivery,), _ = await outbox.take(1, [])
    await outbox.sent(delivery, Receipt("8"))
    await queued(db, OLD, "second")
    await moved(db)
    assert await addresses(db, schedule) == {NEW.key}
    assert await addresses(db, outbound) == {OLD.key, NEW.key}


async def test_a_message_of_ours_is_found_in_whichever_thread_it_is(db: Database) -> None:
    outbox = Outbox(db, "me")
    topic = Address("telegram", "-12_3", "55")
    await queued(db, topic)
    (delivery,), _ = await outbox.take(1, [])
    await outbox.sent(delivery, Receipt("8"))

    async def found(address: Address, message_id: str) -> Outgoing | None:
        return await db.read(functools.partial(chats.sent, address=address, message_id=message_id))

    message = await found(OLD, "8")
    assert message is not None
    assert (message.address, message.text) == (topic, "hello")
    assert await found(OLD, "9") is None
    assert await found(Address("telegram", "-1293"), "8") is None
