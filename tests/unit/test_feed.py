"""Watchers see what happens in their conversation, in order, and never hold anybody up."""

from __future__ import annotations

import asyncio

from gateway.feed import LIMIT, Delta, Event, Feed, Subscription, TurnEnded, TurnGone, TurnStarted
from gateway.types import Address

HERE, THERE = Address("web", "here"), Address("web", "there")


async def all_of(subscription: Subscription) -> list[Event]:
    """Return what is left until the end."""
    return [event async for _, event in subscription]


async def test_a_watcher_sees_the_events_of_its_conversation_in_order() -> None:
    feed = Feed()
    watcher = feed.subscribe(HERE)
    feed.publish(HERE, TurnStarted())
    feed.publish(THERE, Delta("not yours"))
    feed.publish(HERE, Delta("a"))
    feed.publish(HERE, TurnEnded("a"))
    watcher.close()
    assert await all_of(watcher) == [TurnStarted(), Delta("a"), TurnEnded("a")]


async def test_a_watcher_of_everything_is_told_where() -> None:
    feed = Feed()
    watcher = feed.subscribe()
    feed.publish(HERE, Delta("a"))
    feed.publish(THERE, Delta("b"))
    watcher.close()
    assert [(where, event) async for where, event in watcher] == [(HERE, Delta("a")), (THERE, Delta("b"))]


async def test_an_event_wakes_who_waits_for_it() -> None:
    feed = Feed()
    watcher = feed.subscribe(HERE)
    waiting = asyncio.ensure_future(anext(aiter(watcher)))
    await asyncio.sleep(0)
    assert not waiting.done()
    feed.publish(HERE, Delta("a"))
    assert await waiting == (HERE, Delta("a"))


async def test_who_comes_late_sees_only_what_comes_later() -> None:
    feed = Feed()
    feed.publish(HERE, Delta("before"))
    watcher = feed.subscribe(HERE)
    feed.publish(HERE, Delta("after"))
    watcher.close()
    assert await all_of(watcher) == [Delta("after")]


async def test_whoever_has_left_is_sent_nothing_more() -> None:
    feed = Feed()
    gone, stays = feed.subscribe(HERE), feed.subscribe(HERE)
    feed.publish(HERE, Delta("a"))
    feed.unsubscribe(gone)
    feed.publish(HERE, Delta("b"))
    stays.close()
    assert await all_of(gone) == [Delta("a")]
    assert await all_of(stays) == [Delta("a"), Delta("b")]


async def test_who_waits_for_more_hears_that_it_is_over() -> None:
    feed = Feed()
    watcher = feed.subscribe(HERE)
    waiting = asyncio.ensure_future(all_of(watcher))
    await asyncio.sleep(0)
    feed.unsubscribe(watcher)
    assert await waiting == []


async def test_one_who_does_not_read_is_dropped_and_the_others_are_not() -> None:
    feed = Feed()
    asleep, awake = feed.subscribe(HERE), feed.subscribe(HERE)
    seen = 0
    reading = aiter(awake)
    for number in range(2 * LIMIT):
        feed.publish(HERE, Delta(str(number)))
        assert await anext(reading) == (HERE, Delta(str(number)))
        seen += 1
    assert seen == 2 * LIMIT
    assert len(await all_of(asleep)) == LIMIT, "what was queued is still there, then it ends"


def test_it_is_known_whether_anybody_would_see_an_event() -> None:
    feed = Feed()
    assert not feed.watched(HERE)
    here = feed.subscribe(HERE)
    assert (feed.watched(HERE), feed.watched(THERE)) == (True, False)
    everywhere = feed.subscribe()
    assert feed.watched(THERE)
    feed.unsubscribe(everywhere)
    feed.unsubscribe(here)
    assert not feed.watched(HERE)


def test_a_watcher_of_its_own_kind_is_told_at_once_and_only_what_it_sees() -> None:
    told: list[tuple[Address, Event]] = []

    class Here:
        def sees(self, address: Address) -> bool:
            return address == HERE

        def push(self, address: Address, event: Event) -> None:
            told.append((address, event))

    feed, watcher = Feed(), Here()
    feed.join(watcher)
    assert (feed.watched(HERE), feed.watched(THERE)) == (True, False)
    feed.publish(HERE, TurnStarted(turn="1.1"))
    feed.publish(THERE, TurnStarted(turn="2.1"))
    assert told == [(HERE, TurnStarted(turn="1.1"))]
    feed.leave(watcher)
    feed.publish(HERE, TurnGone("1.1"))
    assert len(told) == 1


def test_leaving_twice_does_no_harm() -> None:
    feed = Feed()
    watcher = feed.subscribe(HERE)
    feed.unsubscribe(watcher)
    feed.unsubscribe(watcher)
