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
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar
from zoneinfo import ZoneInfo

from sqlalchemy.engine import Connection

from gateway.access import EVERYBODY, Policy
from gateway.agenda import Agenda
from gateway.bell import Bell
from gateway.channel import Alone, Channel, SendsFiles
from gateway.clock import Clock, SystemClock
from gateway.commands import Commands, menu
from gateway.config import (
    ChannelAccess,
    Loaded,
    Settings,
    SlackAccount,
    TelegramAccount,
    bundled,
    duration,
    section_of,
)
from gateway.control import Control, RemoteControl, StoreControl
from gateway.errors import AlreadyRunning, ConfigError, LeaseLost
from gateway.feed import Feed
from gateway.heartbeat import Heartbeat
from gateway.intake import Intake
from gateway.models.auto import Choice, open_model, open_other
from gateway.models.base import Model
from gateway.prepare import Preparer
from gateway.prompt import Prompts
from gateway.store import chats, history
from gateway.store.engine import Database, open_database
from gateway.store.inbox import Inbox, get_fact, set_fact
from gateway.store.jobs import Rules
from gateway.store.journal import Journal, has_answered
from gateway.store.leases import Leases
from gateway.store.migrate import migrate as migrate_store
from gateway.store.outbox import Outbox
from gateway.store.schedules import Schedules
from gateway.timer import Timer
from gateway.timetable import Timetable, answer
from gateway.tools.box import Toolbox
from gateway.tools.cron import cron_tool
from gateway.tools.files import FILE_TOOLS, load
from gateway.turn import Beats, TurnRunner
from gateway.types import Address, Chat, JsonObject, Kind
from gateway.work import Sender, Supervised, Worker, supervise
from gateway.workspace import Workspace

if TYPE_CHECKING:
    from aiohttp.web import AbstractRouteDef

    from adapters.slack import Features

log = logging.getLogger(__name__)

T = TypeVar("T")

GRACE = 20.0
"""Seconds that running turns and deliveries get when the gateway stops (reliability row 33)."""

LARGEST_FILE = 50_000_000
"""Bytes of a file that a reply may bring; platforms take no more of a bot, or say so themselves."""

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
    timer: Timer
    agenda: Agenda
    heartbeat: Heartbeat
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
            timing = group.create_task(self.timer.serve())
            self.agenda.look_soon()
            # A terminal's gateway can't reach the chats that want to hear of something.
            beats = self.heartbeat.serve() if set(self.channels) != {"console"} else _nothing()
            beating = group.create_task(beats)
            listening = [group.create_task(self._listen(channel, stop)) for channel in self.channels.values()]
            self.state = "ready"
            await stop.wait()
            self.state = "draining"
            log.info("gateway.stopping")
            for task in (*listening, preparing, timing, beating):
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
        if self.worker.turns.beats.model is not None:
            await self.worker.turns.beats.model.close()
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
        alone = channel.alone if isinstance(channel, Alone) else ""
        if alone and not self.db.exclusive:
            run = functools.partial(self._alone, f"listen:{alone}", run)
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
        depths = await self.db.read(history.depths)
        idle = {"waiting": 0, "sending": 0}
        details = {
            name: channel.status() | depths.get(name, idle) for name, channel in gateway.channels.items()
        }
        return {
            "status": state,
            "model": gateway.choice.model.name,
            "channels": lines,
            "details": details,
            "waiting": waiting,
        }

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
            await _open_channels(parts, lambda: gateway, env)
        choice = await _choose_model(parts, env)
        gateway = _wire(parts, choice, await _beat_model(parts, env))
    except BaseException:
        await parts.close()
        raise
    return gateway


async def _open_channels(parts: Parts, gateway: Callable[[], Gateway | None], env: Mapping[str, str]) -> None:
    """Open the channels; the web page answers from here on, before slower things are loaded."""
    http, bots = parts.loaded.settings.http, parts.loaded.settings.channels.telegram.bots()
    doors = [door for name, bot in bots.items() for door in _add_telegram(parts, name, bot, env)]
    apps = parts.loaded.settings.channels.slack.bots()
    doors += [door for name, bot in apps.items() for door in _add_slack(parts, name, bot)]
    if http.enabled:
        from adapters.web import Web  # noqa: PLC0415 - 0.2 s that a gateway without a page saves

        web = Web(
            host=http.host,
            port=http.port,
            token=http.token.get_secret_value(),
            feed=parts.feed,
            clock=parts.clock,
            reads=StoreReads(parts.db, gateway),
            control=replace(
                _control(parts.db, parts.loaded.settings, functools.partial(_wake_sender, gateway)),
                beats=lambda: running.heartbeat if (running := gateway()) else None,
                timetable=_timetable(parts, functools.partial(_wake_agenda, gateway)),
            ),
            routes=doors,
        )
        await web.start()
        parts.add(web, EVERYBODY)


def _add_telegram(
    parts: Parts, name: str, bot: TelegramAccount, env: Mapping[str, str]
) -> Sequence[AbstractRouteDef]:
    """Add a bot; return the routes that the platform posts to, if it does."""
    from adapters.telegram import Link, Manner, Telegram, Webhook, proxy_for  # noqa: PLC0415 - only for those who use it

    secret, url = bot.webhook_secret.get_secret_value(), bot.webhook_url
    channel = Telegram(
        token=bot.token.get_secret_value(),
        api_base=bot.api_base,
        clock=parts.clock,
        cursors=parts.inbox.cursor,
        name=name,
        link=Link(
            proxy=proxy_for(bot.api_base, bot.proxy.get_secret_value(), env),
            local_files=Path(bot.local_files) if bot.local_files else None,
            webhook=Webhook.of(name, url, secret) if url else None,
            largest=bot.media_max_mb * 1_000_000,
            sends_per_second=bot.sends_per_second,
            link_preview=bot.link_preview,
            hears_all=bot.hears_all,
        ),
        move=lambda old, new: _move(parts.db, old, new),
        recall=lambda where, message_id: parts.db.read(lambda tx: chats.sent(tx, where, message_id)),
        feed=parts.feed,
        manner=Manner(
            streaming=bot.streaming == "auto",
            ack_reaction=bot.ack_reaction,
            ack_scope=bot.ack_scope,
            ack_remove=bot.ack_remove,
        ),
        menus={chat: menu(chat) for chat in Chat},
        open_file=functools.partial(load, parts.workspace.path, most=LARGEST_FILE),
    )
    parts.add(channel, policies(parts.loaded.settings)[name])
    return channel.doors()


def slack_path(account: str) -> str:
    """Return where the HTTP server takes the posts for an account of Slack."""
    return f"/slack/{account}/events" if account else "/slack/events"


def slack_features(bot: SlackAccount, url: str = "") -> Features:
    """Return what a configured app is to do; `url` is where Slack posts to, if it does."""
    from adapters.slack import Features  # noqa: PLC0415 - only some commands need it

    rooms = bot.group_policy != "disabled"
    return Features(
        url=url,
        channels=rooms,
        group_dms=rooms and (bot.group_policy == "open" or any(key[0] in "G*" for key in bot.groups)),
        acks=bool(bot.ack_reaction) and bot.ack_scope != "off",
    )


def _add_slack(parts: Parts, name: str, bot: SlackAccount) -> Sequence[AbstractRouteDef]:
    """Add an app; return the routes that the platform posts to, if it does."""
    from adapters.slack import Core, Link, Manner, Place, Slack  # noqa: PLC0415 - only for those who use it

    account = name.partition("-")[2]
    channel = Slack(
        name=name,
        link=Link(
            bot_token=bot.bot_token.get_secret_value(),
            app_token=bot.app_token.get_secret_value() if bot.by_socket else "",
            signing_secret=bot.signing_secret.get_secret_value(),
            api_base=bot.api_base,
            path=slack_path(account),
            largest=bot.media_max_mb * 1_000_000,
            link_preview=bot.link_preview,
        ),
        core=Core(
            cursors=parts.inbox.cursor,
            recall=lambda where, message_id: parts.db.read(lambda tx: chats.sent(tx, where, message_id)),
            answered=lambda where: parts.db.read(lambda tx: has_answered(tx, where)),
            recent=lambda: parts.db.read(lambda tx: chats.recent(tx, name)),
            open_file=functools.partial(load, parts.workspace.path, most=LARGEST_FILE),
            feed=parts.feed,
            clock=parts.clock,
        ),
        place=Place(flat=frozenset(bot.reply_in_channel), dm_threads=bot.dm_threads),
        manner=Manner(
            streaming=bot.streaming == "auto",
            ack_reaction=bot.ack_reaction,
            ack_scope=bot.ack_scope,
            ack_remove=bot.ack_remove,
        ),
        everybody=frozenset(bot.ring_everybody),
    )
    parts.add(channel, policies(parts.loaded.settings)[name])
    return channel.doors()


def policies(settings: Settings) -> dict[str, Policy]:
    """Return who may talk on each channel that people reach from elsewhere."""
    bots: dict[str, ChannelAccess] = {**settings.channels.telegram.bots(), **settings.channels.slack.bots()}
    owners = settings.access.owners
    return {name: Policy.of(section_of(name), bot, owners) for name, bot in bots.items()}


async def _move(db: Database, old: Address, new: Address) -> None:
    moved = await db.write(lambda tx: chats.move(tx, old, new))
    log.warning("chat.moved", extra={"old": old.key, "new": new.key, "conversations": moved})


def _wake_sender(gateway: Callable[[], Gateway | None]) -> None:
    running = gateway()
    if running is not None:
        running.sender.bell.ring()


def _wake_agenda(gateway: Callable[[], Gateway | None]) -> None:
    running = gateway()
    if running is not None:
        running.worker.bell.ring()
        running.agenda.look_soon()


async def _choose_model(parts: Parts, env: Mapping[str, str]) -> Choice:
    had_real = await parts.db.write(lambda tx: get_fact(tx, HAD_MODEL), durable=False) is not None
    choice = await open_model(parts.loaded.settings.model, env, parts.clock, had_real=had_real)
    if choice.real and not had_real:
        await parts.db.write(lambda tx: set_fact(tx, HAD_MODEL, choice.model.name))
    return choice


async def _beat_model(parts: Parts, env: Mapping[str, str]) -> Model | None:
    """Return the model of heartbeats, None if it is the usual one."""
    settings = parts.loaded.settings
    name = settings.heartbeat.model
    return await open_other(name, "[heartbeat] model", settings.model, env, parts.clock) if name else None


def _wire(parts: Parts, choice: Choice, beat_model: Model | None) -> Gateway:
    settings, db, clock = parts.loaded.settings, parts.db, parts.clock
    owner = secrets.token_hex(8)
    # A terminal's gateway can't reach the other chats; their schedules wait for the real one.
    only = "console" if set(parts.channels) == {"console"} else ""
    schedules = Schedules(db=db, clock=clock, rules=_rules(parts.loaded, only))
    tools = Toolbox(
        [*FILE_TOOLS, cron_tool(schedules)], parts.workspace.path, attended_only={"cron", "edit", "write"}
    )
    sender = Sender(outbox=Outbox(db, owner), channels=parts.channels, bell=Bell(), clock=clock)
    turns = TurnRunner(
        journal=Journal(db, owner),
        model=choice.model,
        tools=tools,
        prompts=Prompts(parts.workspace, tools.specs, zone_of(parts.loaded), clock, settings.heartbeat.light),
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
        most=_largest_file(settings),
    )
    timer = Timer(clock)
    agenda = Agenda(schedules=schedules, timer=timer, worker_bell=worker.bell, outbox_bell=sender.bell)
    schedules.changed = agenda.look_soon
    heartbeat = _heartbeat(parts, timer, worker.bell, (beat_model or choice.model).name)
    turns.beats = Beats(
        model=beat_model,
        max_rounds=settings.heartbeat.max_rounds,
        ack_max_chars=settings.heartbeat.ack_max_chars,
        is_repeat=heartbeat.is_repeat,
    )
    turns.endings = {Kind.CRON: schedules.ended, Kind.HEARTBEAT: heartbeat.ended}
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
            owned=bool(settings.access.owners),
            heartbeat=heartbeat.command,
            cron=_cron_command(schedules),
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
        timer=timer,
        agenda=agenda,
        heartbeat=heartbeat,
        choice=choice,
        seen=seen,
    )


def _heartbeat(parts: Parts, timer: Timer, bell: Bell, model: str) -> Heartbeat:
    people = [(name, one) for name, policy in parts.policies.items() for one in policy.people()]
    # Whoever can open a page that is nobody else's is the owner too, but reads it less often.
    pages = [(name, "") for name, policy in parts.policies.items() if policy is EVERYBODY]
    return Heartbeat(
        settings=parts.loaded.settings.heartbeat,
        db=parts.db,
        clock=parts.clock,
        zone=ZoneInfo(zone_of(parts.loaded)),
        workspace=parts.workspace,
        timer=timer,
        bell=bell,
        channels=parts.policies,
        owners=[*people, *pages],
        model=lambda: model,
    )


async def _nothing() -> None:
    return


def _largest_file(settings: Settings) -> int:
    """Return how many bytes a file may have that comes in anywhere; each channel keeps to its own limit."""
    sizes = [bot.media_max_mb for bot in settings.channels.telegram.bots().values()]
    sizes += [bot.media_max_mb for bot in settings.channels.slack.bots().values()]
    return max([20, *sizes]) * 1_000_000


def _cron_command(schedules: Schedules) -> Callable[[Connection, Sequence[str], Address], str]:
    loop = asyncio.get_running_loop()

    def command(tx: Connection, words: Sequence[str], place: Address) -> str:
        wall, now = schedules.clock.wall(), schedules.db.now()
        text = answer(tx, words, place, rules=schedules.rules, wall=wall, now=now)
        # It runs where the store writes, which may be another thread.
        loop.call_soon_threadsafe(schedules.changed)
        return text

    return command


def _rules(loaded: Loaded, channel: str = "") -> Rules:
    settings = loaded.settings.cron
    return Rules(
        zone=ZoneInfo(zone_of(loaded)),
        grace=float(duration(settings.grace)),
        most=settings.per_chat,
        daily_tokens=settings.daily_token_budget,
        channel=channel,
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


async def control(loaded: Loaded, question: Callable[[Control], Awaitable[JsonObject]]) -> JsonObject:
    """Ask who may talk, or why a message was not answered: the gateway that runs, else the database.

    Raises: ConfigError, StoreError.
    """
    settings = loaded.settings
    try:
        db = await open_database(settings.store.url, SystemClock())
    except AlreadyRunning as error:
        if not settings.http.enabled:
            raise ConfigError(
                "a gateway is running, and [http] enabled = false keeps it from being asked; stop it first, "
                "or write /pairing to the bot as its owner"
            ) from error
        return await question(RemoteControl(settings.http))
    try:
        await migrate_store(db, bundled("migrations"))
        beats = _heartbeat(_offline(loaded, db), Timer(SystemClock()), Bell(), settings.heartbeat.model)
        stored = _control(db, settings, lambda: None)
        timetable = _timetable(_offline(loaded, db), lambda: None)
        return await question(replace(stored, beats=lambda: beats, timetable=timetable, idle=db.exclusive))
    finally:
        await db.close()


def _timetable(parts: Parts, changed: Callable[[], None]) -> Timetable:
    return Timetable(db=parts.db, clock=parts.clock, rules=_rules(parts.loaded), changed=changed)


def _offline(loaded: Loaded, db: Database) -> Parts:
    """Return what is known of the channels without opening them."""
    known = policies(loaded.settings) | ({"web": EVERYBODY} if loaded.settings.http.enabled else {})
    workspace = Workspace(loaded.workspace.resolve(), bundled("workspace"))
    return Parts(loaded=loaded, clock=SystemClock(), db=db, workspace=workspace, policies=known)


def _control(db: Database, settings: Settings, sent: Callable[[], None]) -> StoreControl:
    return StoreControl(db=db, policies=policies(settings), owned=bool(settings.access.owners), sent=sent)


def slack_app(loaded: Loaded, account: str, url: str | None) -> JsonObject:
    """Return the manifest of a Slack app, for `[channels.slack]` if `account` is "".

    `url` is the public address of the HTTP server, "" for Socket Mode, None for what is configured.
    Raises: ConfigError.
    """
    from adapters.slack import app_manifest  # noqa: PLC0415 - only this command needs it

    slack = loaded.settings.channels.slack
    bot = slack.account(account) if account else slack
    if bot is None:
        raise ConfigError(f"there is no [channels.slack.accounts.{account}]; add it, or leave --account out")
    posts_to_us = bot.mode == "http" or (bot.signing_secret.get_secret_value() and not bot.by_socket)
    if url is None and posts_to_us:
        raise ConfigError("Slack is to post events: give the public address of this server, --http https://…")
    posts = f"{url.rstrip('/')}{slack_path(account)}" if url else ""
    return app_manifest(slack_features(bot, posts))


def slack_scopes(bot: SlackAccount) -> Sequence[str]:
    """Return the scopes that the bot token of an app needs."""
    from adapters.slack import needed_scopes  # noqa: PLC0415 - only some commands need it

    return needed_scopes(slack_features(bot))


async def migrate(loaded: Loaded) -> str:
    """Bring the database to this program's schema; return one line that says what was done.

    Raises: ConfigError, StoreError.
    """
    db = await open_database(loaded.settings.store.url, SystemClock())
    try:
        return await migrate_store(db, bundled("migrations"))
    finally:
        await db.close()
