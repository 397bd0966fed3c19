"""The loops that turn rows into actions: turns, deliveries, and what must stay alive."""

from __future__ import annotations

import asyncio
import functools
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import TypeVar

from gateway import log as names
from gateway.bell import Bell
from gateway.channel import Channel, Reconciles
from gateway.clock import Clock
from gateway.errors import (
    ChannelStopped,
    DeadRoute,
    DeliveryError,
    DeliveryRetry,
    DeliveryUnsure,
    LeaseLost,
    StoreError,
)
from gateway.store.journal import Claim, Journal, turn_kind
from gateway.store.outbox import MAX_ATTEMPTS, Delivery, Outbox
from gateway.turn import TurnRunner
from gateway.types import Kind, Receipt

log = logging.getLogger(__name__)

T = TypeVar("T")

LOOK = 60.0
"""Seconds after which a loop looks at the tables even if nobody rang."""

SHARED_LOOK = 1.0
"""The same on a database that other processes write to."""


def _pause(next_at: float | None, now: float, *, exclusive: bool) -> float:
    longest = LOOK if exclusive else SHARED_LOOK
    return longest if next_at is None else min(longest, max(0.0, next_at - now))


@dataclass(slots=True, kw_only=True)
class Worker:
    """Claims conversations and runs their turns, `parallel` at a time."""

    journal: Journal
    turns: TurnRunner
    sender: Sender
    bell: Bell
    clock: Clock
    parallel: int = 64
    _running: dict[int, tuple[Claim, asyncio.Task[None]]] = field(default_factory=dict)
    _overlooked: set[int] = field(default_factory=set)

    async def serve(self) -> None:
        """Work until cancelled, or until `drain` was called and the turns have stopped."""
        async with asyncio.TaskGroup() as group:
            keeper = group.create_task(self._keep())
            while not self.turns.draining:
                await self.bell.wait(await self.step(group))
            while self._running:
                await self.bell.wait(LOOK)
            keeper.cancel()

    async def step(self, group: asyncio.TaskGroup) -> float:
        """Start the turns there is room for; return how many seconds nothing else is to be done."""
        room = self.parallel - len(self._running)
        if room <= 0:
            return LOOK
        busy = list(self._running)
        self._overlooked.update(busy)
        try:
            claims, next_at = await self.journal.claim(room, busy)
        except StoreError as error:
            log.debug("store.waiting", extra={"problem": str(error)})
            return 1.0
        for claim in claims:
            task = group.create_task(self._run(claim))
            self._running[claim.conversation_id] = (claim, task)
            # Not by the task itself: one that is cancelled before its first step runs no line of its own.
            task.add_done_callback(functools.partial(self._ended, claim))
        if len(claims) == room:
            return 0.0
        return _pause(next_at, self.journal.db.now(), exclusive=self.journal.db.exclusive)

    def interrupt(self, conversation_id: int) -> None:
        """Stop the turn of a conversation whose claim has just been taken away."""
        running = self._running.get(conversation_id)
        if running and not self.turns.is_finishing(conversation_id):
            running[1].cancel()

    @property
    def busy(self) -> int:
        """Return how many turns are running."""
        return len(self._running)

    def drain(self) -> None:
        """Start no more turns; let the running ones stop at their next step."""
        self.turns.draining = True
        self.bell.ring()

    async def _run(self, claim: Claim) -> None:
        names.conversation.set(claim.address.shown)
        names.turn.set(f"{claim.conversation_id}.{claim.turn}")
        ended = False
        try:
            deliveries = await self.turns.run(claim)
            self.sender.push(deliveries, more=turn_kind(claim.transcript) is not Kind.MESSAGE)
            ended = True
        except LeaseLost:
            log.info("turn.lost")
        except StoreError as error:
            log.warning("turn.unstored", extra={"problem": str(error)})
            await self._let_go(claim)
        except asyncio.CancelledError:
            # Only /stop and the end of the grace time cancel a turn; either way its rows are in order.
            log.info("turn.cancelled")
        except Exception:  # root of a turn: one bad conversation must not end the others
            log.exception("turn.failed")
            await self._let_go(claim)
        finally:
            if not ended:
                self.journal.left.add(claim.conversation_id)

    def _ended(self, claim: Claim, _task: asyncio.Task[None]) -> None:
        """Look at the tables again, unless nothing can have been missed: that is what most turns end with.

        Something was if there was no room for more, if they were looked at while this conversation was not
        to be touched, or if its end left more to do.
        """
        which, full = claim.conversation_id, len(self._running) >= self.parallel
        # After /stop the next turn may have begun, or even ended, while this one was still ending.
        running = self._running.get(which)
        if running is not None and running[0] is claim:
            del self._running[which]
        missed = which in self._overlooked or which in self.journal.left
        self._overlooked.discard(which)
        self.journal.left.discard(which)
        if full or missed or self.turns.draining:
            self.bell.ring()

    async def _let_go(self, claim: Claim) -> None:
        """Give the conversation back for another try, however long the database takes."""
        wait = 2.0 ** min(claim.attempt, 5)
        try:
            await persist(lambda: self.journal.release(claim, retry_after=wait, failed=True), self.clock)
        except LeaseLost:
            log.info("turn.lost")

    async def _keep(self) -> None:
        """Extend the leases of running turns; a lost one ends its turn."""
        while True:
            await self.clock.sleep(self.journal.lease / 3)
            if not self._running:
                continue
            try:
                lost = await self.journal.renew([claim for claim, _ in self._running.values()])
            except StoreError as error:
                log.debug("store.waiting", extra={"problem": str(error)})
                continue
            for claim in lost:
                running = self._running.get(claim.conversation_id)
                if running and running[0] is claim:  # else it has ended meanwhile
                    self.interrupt(claim.conversation_id)


@dataclass(slots=True, kw_only=True)
class Sender:
    """Delivers queued messages, `slots` at a time and one at a time for each address."""

    outbox: Outbox
    channels: Mapping[str, Channel]
    bell: Bell
    clock: Clock
    slots: int = 8
    stopping: bool = False
    _opening: bool = False
    _group: asyncio.TaskGroup | None = None
    _used: int = 0
    _pushed: deque[Delivery] = field(default_factory=deque)
    _held: set[int] = field(default_factory=set)

    def acquire(self) -> bool:
        """Take a slot if one is free; whoever takes it pushes a delivery or gives it back."""
        if self.stopping or self._opening or self._used >= self.slots:
            return False
        self._used += 1
        return True

    def give_back(self) -> None:
        """Return a slot that was not needed."""
        self._used -= 1

    def push(self, deliveries: list[Delivery], *, more: bool) -> None:
        """Take over deliveries that were reserved with acquired slots.

        With `more` there may be other messages, for which the tables must be looked at; without deliveries
        there always may.
        """
        if self._group is None:
            self._pushed.extend(deliveries)
        else:
            for delivery in deliveries:
                self._group.create_task(self._deliver(delivery))
        if more or not deliveries or self._group is None:
            self.bell.ring()

    @property
    def busy(self) -> int:
        """Return how many deliveries are under way."""
        return self._used

    def drain(self) -> None:
        """Deliver what is due, and end."""
        self.stopping = True
        self.bell.ring()

    async def serve(self) -> None:
        """Deliver until cancelled, or until `drain` was called and nothing more is due.

        Nothing is reserved before the channels can send: a process that dies while it loads them would
        leave messages in doubt that it never tried to deliver.
        """
        self._opening = True
        await asyncio.gather(*(channel.open() for channel in self.channels.values()))
        self._opening = False
        async with asyncio.TaskGroup() as group:
            self._group = group
            keeping = group.create_task(self._keep())
            while not self.stopping:
                await self.bell.wait(await self.step(group))
            await self.step(group)
            while self._used:
                await self.bell.wait(SHARED_LOOK)
                await self.step(group)
            self._group = None
            keeping.cancel()

    async def _keep(self) -> None:
        """Extend the reservations of what is under way, where other processes send, too.

        A large file takes longer than a reservation holds, and another process would send it once more.
        """
        while not self.outbox.db.exclusive:
            await self.clock.sleep(self.outbox.lease / 3)
            if self._held:
                try:
                    await self.outbox.keep(list(self._held))
                except StoreError as error:
                    log.debug("store.waiting", extra={"problem": str(error)})

    async def step(self, group: asyncio.TaskGroup) -> float:
        """Start the deliveries there is room for; return how many seconds nothing else is to be done."""
        self._start_pushed(group)
        room = self.slots - self._used
        if room <= 0:
            return LOOK
        self._used += room
        found: list[Delivery] = []
        try:
            found, next_at = await self.outbox.take(room, list(self._held))
        except StoreError as error:
            log.debug("store.waiting", extra={"problem": str(error)})
            return 1.0
        finally:
            self._used -= room - len(found)
        for delivery in found:
            group.create_task(self._deliver(delivery))
        if len(found) == room:
            return 0.0
        return _pause(next_at, self.outbox.db.now(), exclusive=self.outbox.db.exclusive)

    def _start_pushed(self, group: asyncio.TaskGroup) -> None:
        while self._pushed:
            group.create_task(self._deliver(self._pushed.popleft()))

    async def _deliver(self, delivery: Delivery) -> None:
        """Deliver a message and those that follow it at its address.

        Afterwards the tables are looked at again, unless all went well and there was room for others.
        """
        following: list[Delivery] | None = [delivery]
        well = False
        try:
            while following:
                following = await self._send(following[0])
            well = following is not None
        finally:
            full = self._used >= self.slots
            self._used -= 1
            if full or not well or self.stopping:
                self.bell.ring()

    async def _send(self, delivery: Delivery) -> list[Delivery] | None:
        self._held.add(delivery.id)
        try:
            return await self._attempt(delivery)
        finally:
            self._held.discard(delivery.id)

    async def _attempt(self, delivery: Delivery) -> list[Delivery] | None:
        """Return what follows at this address, reserved; None if it will have to be looked for."""
        message = delivery.message
        box, extra = self.outbox, {"delivery": message.key}
        channel = self.channels.get(message.address.channel)
        try:
            if channel is None:
                raise DeliveryRetry(f"the channel {message.address.channel!r} is not running", after=60)
            receipt = await _found(channel, delivery) or await channel.send(message)
        except DeliveryRetry as error:
            log.info("delivery.later", extra={**extra, "problem": str(error), "after": error.after})
            wait, problem = max(error.after, _backoff(delivery, 8.0)), str(error)
            await persist(lambda: box.retry(delivery, wait, problem), self.clock)
        except DeliveryUnsure as error:
            log.warning("delivery.unsure", extra={**extra, "problem": str(error)})
            problem = str(error)
            await persist(lambda: box.unsure(delivery, problem), self.clock)
        except DeadRoute as error:
            problem = str(error)
            lost = await persist(lambda: box.dead_route(delivery, problem), self.clock)
            log.warning("route.dead", extra={**extra, "problem": problem, "messages": lost})
        except DeliveryError as error:
            log.error("delivery.refused", extra={**extra, "problem": str(error)})  # noqa: TRY400 - no fault of ours
            problem = str(error)
            return await persist(lambda: box.dead(delivery, problem), self.clock)
        except Exception as error:  # root of a delivery: a fault of one adapter must not end the others
            log.exception("delivery.failed", extra=extra)
            return await self._failed(delivery, type(error).__name__)
        else:
            return await self._sent(delivery, receipt)
        return None

    async def _sent(self, delivery: Delivery, receipt: Receipt) -> list[Delivery]:
        # Without the note it would be sent again, so this must not give up.
        following = await persist(lambda: self.outbox.sent(delivery, receipt), self.clock)
        log.debug("delivery.sent", extra={"delivery": delivery.message.key})
        return following

    async def _failed(self, delivery: Delivery, problem: str) -> list[Delivery] | None:
        if delivery.attempts + 1 >= MAX_ATTEMPTS:
            return await persist(lambda: self.outbox.dead(delivery, problem), self.clock)
        wait = _backoff(delivery, 300.0)
        await persist(lambda: self.outbox.retry(delivery, wait, problem), self.clock)
        return None


async def _found(channel: Channel, delivery: Delivery) -> Receipt | None:
    """Return the receipt of an earlier delivery whose answer was lost, where a platform can tell."""
    if delivery.unknowns and isinstance(channel, Reconciles):
        return await channel.find(delivery.message)
    return None


def _backoff(delivery: Delivery, longest: float) -> float:
    return float(min(longest, 0.5 * 2.0 ** min(delivery.attempts, 16)))


async def persist(write: Callable[[], Awaitable[T]], clock: Clock) -> T:
    """Repeat a write until the database takes it: what already happened outside must be noted."""
    wait = 0.5
    while True:
        try:
            return await write()
        except StoreError as error:
            log.debug("store.waiting", extra={"problem": str(error)})
            await clock.sleep(wait)
            wait = min(5.0, wait * 2)


@dataclass(slots=True)
class Supervised:
    """What runs under supervision, for `/status`: its state and its last trouble."""

    name: str
    state: str = "starting"
    problem: str = ""


async def supervise(
    run: Callable[[], Awaitable[None]], seen: Supervised, clock: Clock, *, chance: Random | None = None
) -> None:
    """Run something for ever, again 1 s to 60 s after each failure; one that is down harms no other."""
    chance = chance or Random()  # noqa: S311 - jitter, not a secret
    wait = 1.0
    healthy = 60.0
    while True:
        started = clock.now()
        seen.state = "running"
        try:
            await run()
        except ChannelStopped as error:
            seen.state, seen.problem = "stopped", str(error)
            log.error("channel.stopped", extra={"channel": seen.name, "problem": str(error)})  # noqa: TRY400 - for a person
            return
        except Exception as error:  # root of a listener: whatever it was, it must listen again
            seen.state, seen.problem = "down", f"{type(error).__name__}: {error}"
            log.exception("channel.down", extra={"channel": seen.name})
        else:
            seen.state = "ended"
            return
        wait = 1.0 if clock.now() - started > healthy else min(60.0, wait * 2)
        await clock.sleep(wait * (0.5 + chance.random()))
