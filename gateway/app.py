"""The only place that wires things: it opens what the configuration names and keeps it running."""

from __future__ import annotations

import asyncio
import functools
import logging
import os
import secrets
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from gateway.access import EVERYBODY, Policy
from gateway.bell import Bell
from gateway.channel import Channel, SendsFiles
from gateway.clock import Clock, SystemClock
from gateway.commands import Commands
from gateway.config import Loaded, TelegramSettings, bundled
from gateway.errors import AlreadyRunning, LeaseLost
from gateway.feed import Feed
from gateway.intake import Intake
from gateway.models.auto import Choice, open_model
from gateway.prepare import Preparer
from gateway.prompt import Prompts
from gateway.store import history
from gateway.store.engine import Database, open_database
from gateway.store.inbox import Inbox, get_fact, set_fact
from gateway.store.journal import Journal
from gateway.store.leases import Leases
from gateway.store.migrate import migrate as migrate_store
from gateway.store.outbox import Outbox
from gateway.tools.box import Toolbox
from gateway.tools.files import FILE_TOOLS
from gateway.turn import TurnRunner
from gateway.types import Address, JsonObject
from gateway.work import Sender, Supervised, Worker, supervise
from gateway.workspace import Workspace

log = logging.getLogger(__name__)

T = TypeVar("T")

GRACE = 20.0
"""Seconds that running turns and deliveries get when the gateway stops (reliability row 33)."""

HAD_MODEL = "model.real"
"""The fact that a real model was chosen here: from then on the demo is never taken silently (models 1.1)."""

CHARS_PER_TOKEN = 3
"""A careful guess for budgets; the provider's own count decides in the end (models 4)."""


@dataclass(slots=True, kw_only=True)
class Gateway:
    """Everything that runs, once it is open."""

    clock: Clock
    db: Database
    channels: dict[str, Channel]
    intake: Intake
    worker: Worker
    sender: Sender
    preparer: Preparer
    leases: Leases
    choice: Choice
    seen: dict[str, Supervised]
    state: str = "starting"

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until `stop`, then let running work reach its next step."""
        await self.worker.journal.recover()
        if parked := await self.sender.outbox.recover():
            log.warning("outbox.parked", extra={"messages": parked, "problem": "older than a day, not sent"})
        async with asyncio.TaskGroup() as group:
            working = group.create_task(self.worker.serve())
            sending = group.create_task(self.sender.serve())
            preparing = group.create_task(self.preparer.serve())
            listening = [group.create_task(self._listen(channel, stop)) for channel in self.channels.values()]
            self.state = "ready"
            await stop.wait()
            self.state = "draining"
            log.info("gateway.stopping")
            for task in (*listening, preparing):
                task.cancel()
            self.worker.drain()
            await self._grace(working)
            self.sender.drain()
            await self._grace(sending)

    async def close(self) -> None:
        """Let go of everything, whatever state it is in."""
        for channel in self.channels.values():
            await channel.close()
        await self.choice.model.close()
        await self.db.close()

    async def _grace(self, task: asyncio.Task[None]) -> None:
        done, _ = await asyncio.wait({task}, timeout=GRACE)
        if not done:
            log.warning(
                "gateway.impatient", extra={"problem": "work is cut off; it goes on at the next start"}
            )
            task.cancel()

    async def _listen(self, channel: Channel, stop: asyncio.Event) -> None:
        seen = self.seen.setdefault(channel.name, Supervised(channel.name))
        run = functools.partial(channel.listen, self.intake.accept)
        if not self.db.exclusive and channel.name not in ("web", "console"):
            run = functools.partial(self._alone, f"listen:{channel.name}", run)
        await supervise(run, seen, self.clock)
        if seen.state == "ended":  # a terminal whose person has left
            stop.set()

    async def _alone(self, name: str, run: Callable[[], Awaitable[None]]) -> None:
        """Listen while no other process does; give way when the lease is lost."""

        async def keep() -> None:
            while True:
                await self.clock.sleep(self.leases.seconds / 3)
                if not await self.leases.hold(name):
                    raise LeaseLost(name)

        try:
            async with self.leases.held(name), asyncio.TaskGroup() as group:
                keeper = group.create_task(keep())
                await run()
                keeper.cancel()
        except ExceptionGroup as group_error:  # what the listener raised says whether it may begin again
            raise group_error.exceptions[0] from None


@dataclass(slots=True)
class StoreReads:
    """What the page may look up."""

    db: Database
    gateway: Callable[[], Gateway | None]

    async def sessions(self, limit: int) -> list[JsonObject]:
        return await self.db.read(functools.partial(history.sessions, channel="web", limit=limit))

    async def messages(self, session: str, limit: int, before: int | None) -> list[JsonObject]:
        where = Address("web", session)
        return await self.db.read(lambda tx: history.messages(tx, where, limit, before))

    async def replies_after(self, session: str, after: int) -> list[JsonObject]:
        where = Address("web", session)
        rows = await self.db.read(lambda tx: history.replies_after(tx, where, after))
        return [{"id": row["id"], "text": row["text"], "task": _task(row["key"], where)} for row in rows]

    async def last_reply(self, session: str) -> int:
        return await self.db.read(lambda tx: history.last_reply(tx, Address("web", session)))

    async def reply_to(self, key: str) -> str | None:
        return await self.db.read(lambda tx: history.reply_to(tx, key))

    async def health(self) -> JsonObject:
        gateway = self.gateway()
        if gateway is None:
            return {"status": "starting"}
        lines = status(gateway.channels, gateway.seen)
        bad = [name for name, seen in gateway.seen.items() if seen.state in ("down", "stopped")]
        trouble = bool(bad) or self.db.failing
        state = "degraded" if trouble and gateway.state == "ready" else gateway.state
        waiting = await self.db.read(history.depth)
        return {"status": state, "model": gateway.choice.model.name, "channels": lines, "waiting": waiting}

    async def stop(self, address: Address) -> int:
        gateway = self.gateway()
        if gateway is None:
            return 0
        which, stopped = await gateway.worker.journal.stop(address)
        if which is not None:
            gateway.worker.interrupt(which)
        return int(stopped)


def _task(key: str, where: Address) -> str:
    return key.removeprefix(f"{where.channel}:{where.chat}:") if key else ""


def zone_of(loaded: Loaded) -> str:
    """Return the configured time zone, else the machine's."""
    if loaded.settings.agent.timezone:
        return loaded.settings.agent.timezone
    from tzlocal import get_localzone_name  # noqa: PLC0415 - reads the machine; a configured zone needs no such look

    return str(get_localzone_name() or "UTC")


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What must be open before the rest can be wired."""

    loaded: Loaded
    clock: Clock
    db: Database
    workspace: Workspace
    feed: Feed = field(default_factory=Feed)
    channels: dict[str, Channel] = field(default_factory=dict)
    policies: dict[str, Policy] = field(default_factory=dict)

    @property
    def inbox(self) -> Inbox:
        return Inbox(self.db)

    def add(self, channel: Channel, policy: Policy) -> None:
        """Take in a channel and who may talk there."""
        self.channels[channel.name] = channel
        self.policies[channel.name] = policy

    async def close(self) -> None:
        """Let go of what was opened before something failed."""
        for channel in self.channels.values():
            await channel.close()
        await self.db.close()


async def open_gateway(
    loaded: Loaded,
    clock: Clock,
    *,
    console: Callable[[Feed], Channel] | None = None,
    env: Mapping[str, str] = os.environ,
) -> Gateway:
    """Open what the configuration names; with `console` only that channel listens.

    Raises: ConfigError, StoreError.
    """
    db = await open_database(loaded.settings.store.url, clock)
    workspace = Workspace(loaded.workspace.resolve(), bundled("workspace"))
    parts = Parts(loaded=loaded, clock=clock, db=db, workspace=workspace)
    gateway: Gateway | None = None
    try:
        log.info("store.ready", extra={"schema": await migrate_store(db, bundled("migrations"))})
        await asyncio.to_thread(workspace.seed)
        if console is not None:
            parts.add(console(parts.feed), EVERYBODY)
        else:
            await _open_channels(parts, lambda: gateway)
        gateway = _wire(parts, await _choose_model(parts, env))
    except BaseException:
        await parts.close()
        raise
    return gateway


async def _open_channels(parts: Parts, gateway: Callable[[], Gateway | None]) -> None:
    """Open the channels; the web page answers from here on, before slower things are loaded."""
    http, telegram = parts.loaded.settings.http, parts.loaded.settings.channels.telegram
    if http.enabled:
        from adapters.web import Web  # noqa: PLC0415 - 0.2 s that a gateway without a page saves

        web = Web(
            host=http.host,
            port=http.port,
            token=http.token.get_secret_value(),
            feed=parts.feed,
            clock=parts.clock,
            reads=StoreReads(parts.db, gateway),
        )
        await web.start()
        parts.add(web, EVERYBODY)
    if telegram.enabled and telegram.token.get_secret_value():
        _add_telegram(parts, telegram)


def _add_telegram(parts: Parts, settings: TelegramSettings) -> None:
    from adapters.telegram import Telegram  # noqa: PLC0415 - only for those who use it

    channel = Telegram(
        token=settings.token.get_secret_value(),
        api_base=settings.api_base,
        clock=parts.clock,
        cursors=parts.inbox.cursor,
    )
    policy = Policy(mode=settings.dm_policy, allow_from=settings.allow_from, prefixes=("telegram:", "tg:"))
    parts.add(channel, policy)


async def _choose_model(parts: Parts, env: Mapping[str, str]) -> Choice:
    had_real = await parts.db.write(lambda tx: get_fact(tx, HAD_MODEL), durable=False) is not None
    choice = await open_model(parts.loaded.settings.model, env, parts.clock, had_real=had_real)
    if choice.real and not had_real:
        await parts.db.write(lambda tx: set_fact(tx, HAD_MODEL, choice.model.name))
    return choice


def _wire(parts: Parts, choice: Choice) -> Gateway:
    settings, db, clock = parts.loaded.settings, parts.db, parts.clock
    owner = secrets.token_hex(8)
    tools = Toolbox(FILE_TOOLS, parts.workspace.path)
    sender = Sender(outbox=Outbox(db, owner), channels=parts.channels, bell=Bell(), clock=clock)
    turns = TurnRunner(
        journal=Journal(db, owner),
        model=choice.model,
        tools=tools,
        prompts=Prompts(parts.workspace, tools.specs, zone_of(parts.loaded), clock),
        feed=parts.feed,
        slots=sender,
        pieces=functools.partial(_pieces, parts.channels),
        workspace=parts.workspace.path,
        sends_files=lambda address: isinstance(parts.channels.get(address.channel), SendsFiles),
        max_rounds=settings.agent.max_turns,
        max_chars=max(choice.context_window - settings.model.max_tokens, 1000) * CHARS_PER_TOKEN,
    )
    worker = Worker(
        journal=turns.journal,
        turns=turns,
        sender=sender,
        bell=Bell(),
        clock=clock,
        parallel=settings.agent.parallel,
    )
    preparer = Preparer(
        inbox=parts.inbox,
        channels=parts.channels,
        workspace=parts.workspace.path,
        bell=Bell(),
        worker_bell=worker.bell,
        clock=clock,
    )
    seen: dict[str, Supervised] = {}
    intake = Intake(
        inbox=parts.inbox,
        policies=parts.policies,
        commands=Commands(
            db=db,
            clock=clock,
            started=clock.now(),
            model=lambda: choice.model.name,
            channels=functools.partial(status, parts.channels, seen),
        ),
        bell=worker.bell,
        outbox_bell=sender.bell,
        media_bell=preparer.bell,
        interrupt=worker.interrupt,
    )
    return Gateway(
        clock=clock,
        db=db,
        channels=parts.channels,
        intake=intake,
        worker=worker,
        sender=sender,
        preparer=preparer,
        leases=Leases(db, clock, owner),
        choice=choice,
        seen=seen,
    )


def _pieces(channels: Mapping[str, Channel], address: Address, text: str) -> Sequence[str]:
    """Cut a reply as its channel wants; one whose channel is gone stays whole and waits."""
    channel = channels.get(address.channel)
    return [text] if channel is None else channel.pieces(text)


def status(channels: Mapping[str, Channel], seen: Mapping[str, Supervised]) -> dict[str, str]:
    """Return one short line for each channel."""
    lines = {}
    for name, channel in channels.items():
        here = seen.get(name, Supervised(name))
        trouble = here.problem or str(channel.status().get("last_error") or "")
        lines[name] = f"{here.state} ({trouble})" if trouble else here.state
    return lines


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


async def serve(loaded: Loaded) -> None:
    """Run the gateway until SIGTERM or SIGINT; a second one ends it at once.

    Raises: ConfigError, StoreError.
    """
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    def on_signal(number: signal.Signals) -> None:
        loop.remove_signal_handler(number)
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal, number)
    gateway = await open_gateway(loaded, SystemClock())
    try:
        _say(gateway.choice.text)
        web = gateway.channels.get("web")
        if web is not None:
            _say(f"Crayfish is running: {web.status()['url']}/")
        else:
            _say(f"Crayfish is running: {', '.join(gateway.channels) or 'no channel is configured'}")
        await gateway.run(stop)
    finally:
        await gateway.close()


async def chat(loaded: Loaded, session: str) -> int:
    """Talk in the terminal: with a gateway of our own, or with the one that is running.

    Raises: ConfigError, StoreError.
    """
    from adapters.console import Console, chat_over_http  # noqa: PLC0415 - only this command needs it

    http = loaded.settings.http
    try:
        gateway = await open_gateway(
            loaded, SystemClock(), console=lambda feed: Console(feed=feed, session=session)
        )
    except AlreadyRunning:
        if not http.enabled:
            raise
        return await chat_over_http(f"http://{http.host}:{http.port}", http.token.get_secret_value(), session)
    try:
        sys.stderr.write(gateway.choice.text + "\n")
        await gateway.run(asyncio.Event())
    finally:
        await gateway.close()
    return 0


async def migrate(loaded: Loaded) -> str:
    """Bring the database to this program's schema; return one line that says what was done.

    Raises: ConfigError, StoreError.
    """
    db = await open_database(loaded.settings.store.url, SystemClock())
    try:
        return await migrate_store(db, bundled("migrations"))
    finally:
        await db.close()
