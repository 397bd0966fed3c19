"""The only place that wires things: it opens what the configuration names and keeps it running."""

from __future__ import annotations

import asyncio
import functools
import logging
import os
import secrets
import shutil
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
from gateway.agents import MAIN, Binding, bindings, chosen
from gateway.allowance import Allowance
from gateway.approvals import Approver
from gateway.bell import Bell
from gateway.capabilities import Capabilities
from gateway.channel import Alone, Channel, SendsFiles
from gateway.clock import Clock, SystemClock
from gateway.commands import TABLE, Commands, menu
from gateway.compaction import Limits
from gateway.compactor import Compactor
from gateway.config import (
    ChannelAccess,
    LimitSettings,
    Loaded,
    Settings,
    SlackAccount,
    TelegramAccount,
    bundled,
    duration,
    section_of,
)
from gateway.config import secrets as configured_secrets
from gateway.context import Contexts
from gateway.control import Control, RemoteControl, StoreControl
from gateway.errors import AlreadyRunning, ConfigError, LeaseLost
from gateway.export import Archive
from gateway.feed import Feed
from gateway.heartbeat import Heartbeat
from gateway.identities import Identities
from gateway.intake import Intake, level_now
from gateway.mcp.servers import Seen, Servers
from gateway.mcp.servers import look as look_at_servers
from gateway.memory.vectors import Encoder, open_encoder
from gateway.models.auto import Choice, open_model, open_other, open_transcriber
from gateway.models.base import Model
from gateway.prepare import Preparer
from gateway.prompt import Prompts
from gateway.recall import Recall
from gateway.redact import Redactor, secrets_in
from gateway.retention import Ages, Retention
from gateway.senses import Account, Hearing, Sight
from gateway.sessions import Freshness
from gateway.skills import Skills, open_skills
from gateway.skills.packages import RESERVED, Packages
from gateway.skills.roots import installed
from gateway.skills.watch import Watch
from gateway.store import beats, chats, history, imports, routes, subagents
from gateway.store.engine import Database, open_database, open_reader
from gateway.store.inbox import Inbox, get_fact, set_fact
from gateway.store.jobs import Rules
from gateway.store.journal import Journal, has_answered
from gateway.store.leases import Leases
from gateway.store.migrate import migrate as migrate_store
from gateway.store.outbox import Outbox
from gateway.store.schedules import Schedules
from gateway.store.usage import Ledger
from gateway.timer import Timer
from gateway.timetable import Timetable, answer
from gateway.tools.base import Tool, ToolContext
from gateway.tools.box import Toolbox
from gateway.tools.cron import cron_tool
from gateway.tools.files import file_tools, load
from gateway.tools.find import search_tool
from gateway.tools.media import audio_tool, image_tool
from gateway.tools.memory import memory_tools
from gateway.tools.message import Post, message_tool
from gateway.tools.plan import todo_tool
from gateway.tools.policy import ToolPolicy
from gateway.tools.processes import Processes
from gateway.tools.sessions import Desk, sessions_tool, spawn_tool
from gateway.tools.web import open_web, web_tools
from gateway.turn import Agent, Beats, TurnRunner
from gateway.types import Address, Chat, JsonObject, Kind, Situation, Standing, Stimulus
from gateway.usage import Caps, Price, Rates
from gateway.work import Sender, Supervised, Worker, supervise
from gateway.workspace import Workspace, below_agent, of_agent, room

if TYPE_CHECKING:
    from aiohttp.web import AbstractRouteDef

    from adapters.slack import Features
    from gateway.models.transcribe import Transcriber
    from gateway.tools.skill import Shelf

log = logging.getLogger(__name__)

T = TypeVar("T")

GRACE = 20.0
"""Seconds that running turns and deliveries get when the gateway stops (reliability row 33)."""

LARGEST_FILE = 50_000_000
"""Bytes of a file that a reply may bring; platforms take no more of a bot, or say so themselves."""

HAD_MODEL = "model.real"
"""The fact that a real model was chosen here: from then on the demo is never taken silently (models 1.1)."""

LIKELY_SECRET = 12
"""Characters from which on a variable called …KEY counts as a secret: fewer may be an ordinary word."""

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
    models: Models
    contexts: Contexts
    capabilities: Capabilities
    retention: Retention
    processes: Processes
    servers: Servers
    seen: dict[str, Supervised]
    state: str = "starting"

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until `stop`, then let running work reach its next step."""
        await self.worker.journal.recover()
        if allowance := self.worker.turns.allowance:
            await allowance.begin()
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
            pruning = group.create_task(self.retention.serve())
            listening = [group.create_task(self._listen(channel, stop)) for channel in self.channels.values()]
            self.state = "ready"
            await stop.wait()
            self.state = "draining"
            log.info("gateway.stopping")
            for task in (*listening, preparing, timing, beating, pruning):
                task.cancel()
            self.worker.drain()
            await self._grace(working)
            self.sender.drain()
            await self._grace(sending)

    async def close(self) -> None:
        """Let go of everything, whatever state it is in."""
        for channel in self.channels.values():
            await channel.close()
        await self.servers.close()
        await self.processes.close()
        await self.choice.model.close()
        for model in self.models.others:
            await model.close()
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
        return [{**row, "task": _task(row.pop("key"), where)} for row in rows]

    async def questions(self, session: str) -> list[JsonObject]:
        return await self.db.read(lambda tx: history.questions(tx, Address("web", session)))

    async def last_reply(self, session: str) -> int:
        return await self.db.read(lambda tx: history.last_reply(tx, Address("web", session)))

    async def reply_to(self, key: str) -> str | None:
        return await self.db.read(lambda tx: history.reply_to(tx, key))

    async def question_of(self, key: str) -> JsonObject | None:
        return await self.db.read(lambda tx: history.question_of(tx, key))

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
            "mcp": gateway.servers.status(),
        }

    async def stop(self, address: Address) -> int:
        gateway = self.gateway()
        if gateway is None:
            return 0
        which, stopped = await gateway.worker.journal.stop(address)
        if which is not None:
            gateway.worker.interrupt(which)
            gateway.worker.sender.bell.ring()
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
    """What must be open before the rest can be wired.

    `workspaces` and `agent_skills` are those of the other agents.
    """

    loaded: Loaded
    clock: Clock
    db: Database
    workspace: Workspace
    skills: Skills
    workspaces: Mapping[str, Workspace] = field(default_factory=dict)
    agent_skills: Mapping[str, Skills] = field(default_factory=dict)
    feed: Feed = field(default_factory=Feed)
    channels: dict[str, Channel] = field(default_factory=dict)
    policies: dict[str, Policy] = field(default_factory=dict)
    encoder: Encoder | None = None
    redact: Redactor = field(default_factory=Redactor)
    env: Mapping[str, str] = field(default_factory=dict)
    processes: Processes = field(default_factory=lambda: Processes(SystemClock()))

    @property
    def inbox(self) -> Inbox:
        return Inbox(self.db)

    def add(self, channel: Channel, policy: Policy) -> None:
        """Take in a channel and who may talk there."""
        self.channels[channel.name] = channel
        self.policies[channel.name] = policy

    def open_file(self, path: str) -> bytes:
        """Return a file that a reply brings. Raises: ToolError."""
        agent, below = of_agent(path)
        return load(self.workspaces.get(agent, self.workspace).path, below, LARGEST_FILE)

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
    encoder = open_encoder(loaded.settings.memory.embeddings)
    db = await open_database(loaded.settings.store.url, clock)
    workspace = _workspace(loaded, loaded.settings.workspace.path)
    skills = open_skills(loaded, env, workspace=workspace.path, now=clock.now)
    workspaces = {name: _workspace(loaded, one.workspace) for name, one in loaded.settings.agents.items()}
    agent_skills = {
        name: open_skills(loaded, env, workspace=workspaces[name].path, only=one.skills, now=clock.now)
        for name, one in loaded.settings.agents.items()
    }
    parts = Parts(
        loaded=loaded,
        clock=clock,
        db=db,
        workspace=workspace,
        workspaces=workspaces,
        skills=skills,
        agent_skills=agent_skills,
        encoder=encoder,
        redact=_redactor(loaded.settings, env),
        env=env,
        processes=Processes(clock),
    )
    gateway: Gateway | None = None
    try:
        log.info("store.ready", extra={"schema": await migrate_store(db, bundled("migrations"))})
        people = Identities.of(loaded.settings.identities).people
        await db.write(lambda tx: routes.keep(tx, people), durable=False)
        for one in (workspace, *workspaces.values()):
            await asyncio.to_thread(one.seed)
        if console is not None:
            parts.add(console(parts.feed), EVERYBODY)
        else:
            await _open_channels(parts, lambda: gateway, env)
        choice = await _choose_model(parts, env)
        gateway = _wire(parts, choice, await _models(parts, choice, env))
        await gateway.capabilities.take_in()
        await gateway.worker.turns.look()
        await gateway.servers.start()
    except BaseException:
        await parts.close()
        raise
    return gateway


def _workspace(loaded: Loaded, path: str) -> Workspace:
    always = loaded.settings.workspace.heartbeat_md == "always"
    return Workspace(Path(path).resolve(), bundled("workspace"), always_beats=always)


def _redactor(settings: Settings, env: Mapping[str, str]) -> Redactor:
    """Return what knows the secrets of the configuration and of the environment."""
    named = [one for one in secrets_in(env) if len(one) >= LIKELY_SECRET]
    return Redactor((*configured_secrets(settings), *named))


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
                ledger=_ledger(parts.loaded, parts.clock),
                contexts=lambda: running.contexts if (running := gateway()) else None,
                recall=_recall(parts),
                notes=parts.workspace.path,
                capabilities=lambda: running.capabilities if (running := gateway()) else None,
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
        open_file=parts.open_file,
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
            open_file=parts.open_file,
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
    log.warning("chat.moved", extra={"old": old.shown, "new": new.shown, "conversations": moved})


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


@dataclass(frozen=True, slots=True)
class Models:
    """The usual model, and those of heartbeats, of summaries and of agents where they are others.

    `pictures` is asked about pictures, and `recordings` listens, where such models are configured.
    """

    usual: Model
    beats: Model | None
    summaries: Model | None
    agents: Mapping[str, Model]
    pictures: Model | None
    recordings: Transcriber | None

    @property
    def others(self) -> Sequence[Model | Transcriber]:
        some = (self.beats, self.summaries, self.pictures, self.recordings)
        return [*(one for one in some if one is not None), *self.agents.values()]


async def _models(parts: Parts, choice: Choice, env: Mapping[str, str]) -> Models:
    settings = parts.loaded.settings

    async def other(name: str, key: str) -> Model:
        return await open_other(name, key, settings.model, env, parts.clock)

    beats = await other(settings.heartbeat.model, "[heartbeat] model") if settings.heartbeat.model else None
    wanted = settings.compaction.model
    summaries = await other(wanted, "[compaction] model") if wanted else None
    named = {name: one.model for name, one in settings.agents.items() if one.model}
    agents = {name: await other(model, f"[agents.{name}] model") for name, model in named.items()}
    media = settings.media
    pictures = await other(media.image_model, "[media] image_model") if media.image_model else None
    recordings = open_transcriber(media, env, parts.clock) if media.audio_model else None
    return Models(choice.model, beats, summaries, agents, pictures, recordings)


def _wire(parts: Parts, choice: Choice, models: Models) -> Gateway:
    settings, db, clock = parts.loaded.settings, parts.db, parts.clock
    owner = secrets.token_hex(8)
    # A terminal's gateway can't reach the other chats; their schedules wait for the real one.
    only = "console" if set(parts.channels) == {"console"} else ""
    schedules = Schedules(db=db, clock=clock, rules=_rules(parts, only))
    capabilities = _capabilities(parts, _shelf(parts))
    profiles = {name: one.tools for name, one in settings.agents.items()}
    tools = Toolbox(
        _tools(parts, schedules),
        policy=ToolPolicy(settings.tools, profiles, capabilities.denial, settings.heartbeat.light),
        redact=parts.redact,
    )
    capabilities.tools = tools
    agents = _agents(parts, tools, models, capabilities)
    sender = Sender(outbox=Outbox(db, owner), channels=parts.channels, bell=Bell(), clock=clock)
    ledger = replace(_ledger(parts.loaded, clock), agent=lambda situation: agents.of(situation).name)
    journal = Journal(db, owner, fresh=_freshness(parts.loaded), ledger=ledger)
    max_chars = max(choice.context_window - settings.model.max_tokens, 1000) * CHARS_PER_TOKEN
    turns = TurnRunner(
        journal=journal,
        agent=agents.main,
        choose=agents.of if agents.others else None,
        approver=Approver(
            db=db,
            owner=functools.partial(_owner_place, parts),
            expires=float(duration(settings.approvals.expires)),
            queued=sender.bell.ring,
        ),
        compactor=_compactor(parts, journal, models, choice.context_window, max_chars),
        feed=parts.feed,
        slots=sender,
        pieces=functools.partial(_pieces, parts.channels),
        sends_files=lambda address: isinstance(parts.channels.get(address.channel), SendsFiles),
        max_rounds=settings.agent.max_turns,
        max_chars=max_chars,
        look=capabilities.look,
        redact=parts.redact,
        allowance=Allowance(
            db=db, clock=clock, ledger=ledger, caps=_caps(settings.limits), rates=_rates(settings.limits)
        ),
        turn_time=float(duration(settings.limits.turn_time)),
        unattended_time=float(duration(settings.limits.unattended_turn_time)),
    )
    worker = Worker(
        journal=turns.journal,
        turns=turns,
        sender=sender,
        bell=Bell(),
        clock=clock,
        parallel=settings.agent.parallel,
    )
    account = Account(db=db, ledger=ledger, caps=_caps(settings.limits))
    look = Sight(model=models.pictures, account=account, clock=clock) if models.pictures else None
    listen = Hearing(transcriber=models.recordings, account=account) if models.recordings else None
    tools.give("media", _media_tools(parts, look, listen))
    preparer = Preparer(
        inbox=parts.inbox,
        channels=parts.channels,
        folder=lambda situation: room(agents.of(situation).workspace, situation),
        bell=Bell(),
        worker_bell=worker.bell,
        clock=clock,
        most=_largest_file(settings),
        listen=listen if settings.media.transcribe else None,
    )
    timer = Timer(clock)
    agenda = Agenda(schedules=schedules, timer=timer, worker_bell=worker.bell, outbox_bell=sender.bell)
    schedules.changed = agenda.look_soon
    heartbeat = _heartbeat(parts, timer, worker.bell, (models.beats or models.usual).name)
    turns.beats = Beats(
        model=models.beats,
        max_rounds=settings.heartbeat.max_rounds,
        ack_max_chars=settings.heartbeat.ack_max_chars,
        is_repeat=heartbeat.is_repeat,
    )
    turns.endings = {
        Kind.CRON: schedules.ended,
        Kind.HEARTBEAT: heartbeat.ended,
        Kind.SUBAGENT: lambda tx, how: subagents.ended(tx, how, db.now()),
    }
    tools.give("conversations", _talking(parts, turns, worker))
    servers = Servers(
        settings=settings.mcp,
        home=parts.loaded.home,
        environ=parts.env,
        clock=clock,
        give=functools.partial(tools.give, "mcp"),
        redact=parts.redact,
    )
    seen: dict[str, Supervised] = {}
    contexts = Contexts(functools.partial(_prompts_of, agents))
    intake = Intake(
        inbox=parts.inbox,
        policies=parts.policies,
        commands=Commands(
            db=db,
            clock=clock,
            started=clock.now(),
            model=lambda: choice.model.name,
            channels=lambda: (
                status(parts.channels, seen, parts.redact)
                | {f"mcp {name}": state for name, state in servers.status().items()}
            ),
            owned=bool(settings.access.owners),
            ledger=ledger,
            heartbeat=heartbeat.command,
            cron=_cron_command(schedules),
            tools=functools.partial(_tools_here, agents, capabilities),
            context=contexts.summary,
        ),
        bell=worker.bell,
        outbox_bell=sender.bell,
        media_bell=preparer.bell,
        interrupt=worker.interrupt,
        identities=Identities.of(settings.identities),
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
        models=models,
        contexts=contexts,
        capabilities=capabilities,
        retention=_retention(parts),
        processes=parts.processes,
        servers=servers,
        seen=seen,
    )


def _watch(parts: Parts) -> Watch:
    packages = Packages(folder=installed(parts.loaded), wall=parts.clock.wall)
    return Watch(parts.skills, packages, parts.db, tuple(parts.agent_skills.values()))


def _freshness(loaded: Loaded) -> Freshness:
    settings = loaded.settings.session
    chats = {"all": frozenset(Chat), "private": frozenset({Chat.DIRECT}), "groups": frozenset({Chat.GROUP})}
    return Freshness(
        mode=settings.reset,
        at=settings.reset_at,
        idle=float(duration(settings.idle)),
        chats=chats[settings.reset_in],
        zone=ZoneInfo(zone_of(loaded)),
    )


def _compactor(parts: Parts, journal: Journal, models: Models, window: int, max_chars: int) -> Compactor:
    settings = parts.loaded.settings
    wanted = settings.compaction
    return Compactor(
        journal=journal,
        feed=parts.feed,
        clock=parts.clock,
        limits=Limits(
            window=window,
            reply=settings.model.max_tokens,
            keep=wanted.keep_tokens,
            max_messages=wanted.max_messages,
            keep_messages=wanted.keep_messages,
        ),
        enabled=wanted.enabled,
        model=models.summaries,
        zone=zone_of(parts.loaded),
        flushes=wanted.memory_flush,
        max_chars=max_chars,
        running=functools.partial(_at_work, parts.db),
        redact=parts.redact,
    )


async def _at_work(db: Database, parent: Address) -> Sequence[str]:
    """Return the sub-agents of a conversation that have no result yet, as a summary names them."""
    found = await db.write(lambda tx: subagents.running(tx, parent), durable=False)
    return [f"{one.id}, {one.name}: {' '.join(one.task.split())[:300]}" for one in found]


def _retention(parts: Parts) -> Retention:
    wanted = parts.loaded.settings.retention
    return Retention(
        db=parts.db,
        clock=parts.clock,
        zone=ZoneInfo(zone_of(parts.loaded)),
        workspaces=[parts.workspace.path, *(one.path for one in parts.workspaces.values())],
        ages=Ages(
            messages=float(duration(wanted.messages)),
            verdicts=float(duration(wanted.verdicts)),
            unreadable=float(duration(wanted.unreadable)),
            group_talk=float(duration(wanted.group_talk)),
            results=float(duration(wanted.results)),
            transcripts=float(duration(wanted.transcripts)),
            megabytes=wanted.transcripts_mb,
        ),
    )


def _tools(parts: Parts, schedules: Schedules) -> Sequence[Tool]:
    """Return every tool there is; which of them a conversation has is the policy's to say."""
    readable = functools.partial(_readable, parts)
    return [
        *file_tools(readable),
        search_tool(readable, shutil.which("rg")),
        cron_tool(schedules),
        *memory_tools(_recall(parts)),
        *web_tools(open_web(parts.loaded.settings.web, parts.clock)),
        *_exec_tools(parts),
    ]


def _readable(parts: Parts) -> Sequence[Path]:
    """Return the folders of skills, which may be read beside the workspace."""
    every = (parts.skills, *parts.agent_skills.values())
    return [folder for skills in every for folder in skills.current.folders]


def _media_tools(parts: Parts, look: Sight | None, listen: Hearing | None) -> Sequence[Tool]:
    """Return the tools for which there is a model: who has none is not even offered them."""
    readable = functools.partial(_readable, parts)
    return [
        *([image_tool(look, readable)] if look else ()),
        *([audio_tool(listen, readable)] if listen else ()),
    ]


def _agent_skills(parts: Parts) -> Mapping[str, Skills]:
    """Return the skills of every agent by name."""
    return {MAIN: parts.skills, **parts.agent_skills}


def _capabilities(parts: Parts, shelf: Shelf | None = None) -> Capabilities:
    return Capabilities(
        db=parts.db,
        clock=parts.clock,
        skills=_agent_skills(parts),
        packages=functools.partial(_packages, parts),
        watch=_watch(parts).look,
        shelf=shelf,
    )


def _packages(parts: Parts) -> Packages:
    """Return the installed skills, with the names that are taken now."""
    there = [skill for one in _agent_skills(parts).values() for skill in one.current.skills]
    commands = (name for command in TABLE for name in (command.name, *command.aliases))
    return Packages(
        folder=installed(parts.loaded),
        wall=parts.clock.wall,
        others=frozenset(skill.name for skill in there if skill.receipt is None),
        reserved=RESERVED.union(commands),
    )


def _shelf(parts: Parts) -> Shelf | None:
    """Return the tools that skills bring along, None where no commands run."""
    if os.name != "posix" or parts.loaded.settings.exec.mode == "deny":
        return None
    from gateway.tools.exec import open_runner  # noqa: PLC0415 - needs what Windows has not
    from gateway.tools.skill import Shelf, home_of  # noqa: PLC0415 - likewise

    skills = _agent_skills(parts)
    runner = open_runner(
        parts.loaded.settings.exec,
        parts.processes,
        environ=parts.env,
        skill_of=home_of(tuple(skills.values())),
    )
    return Shelf(runner, skills)


def _tools_here(agents: Agents, capabilities: Capabilities, stimulus: Stimulus) -> str:
    where = Situation(stimulus.address, stimulus.address, stimulus.sender, stimulus.chat)
    return capabilities.explain(replace(where, agent=agents.of(where).name))


def _exec_tools(parts: Parts) -> Sequence[Tool]:
    if os.name != "posix":
        return ()
    from gateway.tools.exec import exec_tools  # noqa: PLC0415 - needs what Windows has not
    from gateway.tools.skill import home_of, install_tool  # noqa: PLC0415 - likewise

    installs = install_tool(functools.partial(_packages, parts))
    if parts.loaded.settings.exec.mode == "deny":
        return (installs,)
    commands = exec_tools(
        parts.loaded.settings.exec,
        parts.processes,
        parts.clock,
        environ=parts.env,
        skill_of=home_of(tuple(_agent_skills(parts).values())),
    )
    return (installs, *commands)


def _recall(parts: Parts) -> Recall:
    return Recall(db=parts.db, clock=parts.clock, zone=ZoneInfo(zone_of(parts.loaded)), encoder=parts.encoder)


def _talking(parts: Parts, turns: TurnRunner, worker: Worker) -> Sequence[Tool]:
    """Return the tools that send something, or wake a conversation."""

    def below(context: ToolContext, path: str) -> str:
        return str(below_agent(context.agent, context.folder.relative_to(context.workspace)) / path)

    post = Post(
        db=parts.db,
        pieces=turns.pieces,
        sends_files=turns.sends_files,
        below=below,
        sent=worker.sender.bell.ring,
    )
    desk = Desk(db=parts.db, zone=zone_of(parts.loaded), woken=worker.bell.ring)
    return [message_tool(post), sessions_tool(desk), spawn_tool(desk), todo_tool(parts.db)]


@dataclass(frozen=True, slots=True)
class Agents:
    """Who answers where: the usual agent, the others by name, and where they are bound."""

    main: Agent
    others: Mapping[str, Agent]
    bound: Sequence[Binding]

    def of(self, situation: Situation) -> Agent:
        """Return who answers a turn."""
        return self.others.get(chosen(self.bound, situation), self.main)


def _agents(parts: Parts, tools: Toolbox, models: Models, capabilities: Capabilities) -> Agents:
    settings = parts.loaded.settings

    def agent(name: str, model: Model, workspace: Workspace) -> Agent:
        zone, light = zone_of(parts.loaded), settings.heartbeat.light
        skills = parts.agent_skills.get(name, parts.skills)
        available = functools.partial(capabilities.available, skills)
        prompts = Prompts(workspace, tools.specs, zone, parts.clock, light, skills=available)
        return Agent(name=name, model=model, tools=tools, prompts=prompts, workspace=workspace.path)

    others = {
        name: agent(name, models.agents.get(name, models.usual), workspace)
        for name, workspace in parts.workspaces.items()
    }
    return Agents(agent(MAIN, models.usual, parts.workspace), others, bindings(settings.bindings))


def _prompts_of(agents: Agents, situation: Situation) -> tuple[str, Prompts]:
    """Return who answers a turn, with a way to prompt it that no turn uses at the same time."""
    agent = agents.of(situation)
    prompts = agent.prompts
    assert isinstance(prompts, Prompts)
    return agent.name, replace(prompts, workspace=prompts.workspace.anew())


def _owners(parts: Parts) -> list[tuple[str, str]]:
    """Return the owners that the configuration names, as (channel, sender)."""
    people = [(name, one) for name, policy in parts.policies.items() for one in policy.people()]
    # Whoever can open a page that is nobody else's is the owner too, but reads it less often.
    return [*people, *((name, "") for name, policy in parts.policies.items() if policy is EVERYBODY)]


async def _owner_place(parts: Parts) -> Address | None:
    """Return where the owner can be asked in private."""
    owners, channels = _owners(parts), list(parts.policies)
    route = await parts.db.write(lambda tx: beats.owner_route(tx, owners, channels), durable=False)
    return route.address if route else None


def _heartbeat(parts: Parts, timer: Timer, bell: Bell, model: str) -> Heartbeat:
    return Heartbeat(
        settings=parts.loaded.settings.heartbeat,
        db=parts.db,
        clock=parts.clock,
        zone=ZoneInfo(zone_of(parts.loaded)),
        workspace=parts.workspace,
        timer=timer,
        bell=bell,
        channels=parts.policies,
        owners=_owners(parts),
        model=lambda: model,
        ledger=_ledger(parts.loaded, parts.clock),
        caps=_caps(parts.loaded.settings.limits),
    )


def _ledger(loaded: Loaded, clock: Clock) -> Ledger:
    prices = {name: Price(**one.model_dump()) for name, one in loaded.settings.usage.prices.items()}
    return Ledger(clock=clock, zone=ZoneInfo(zone_of(loaded)), prices=prices)


def _caps(limits: LimitSettings) -> Caps:
    return Caps(
        daily_tokens=limits.daily_tokens,
        daily_usd=limits.daily_usd,
        sender_tokens=limits.per_sender_daily_tokens,
        turn_tokens=limits.per_turn_tokens,
    )


def _rates(limits: LimitSettings) -> Rates:
    rate = limits.per_sender_per_minute
    return Rates(
        {
            Standing.OWNER: rate.owner,
            Standing.PERSON: rate.people,
            Standing.GROUP: rate.groups,
            Standing.GUEST: rate.guests,
        }
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


def _rules(parts: Parts, channel: str = "") -> Rules:
    settings = parts.loaded.settings.cron
    return Rules(
        zone=ZoneInfo(zone_of(parts.loaded)),
        grace=float(duration(settings.grace)),
        most=settings.per_chat,
        daily_tokens=settings.daily_tokens,
        caps=_caps(parts.loaded.settings.limits),
        channel=channel,
        level=functools.partial(level_now, parts.policies),
    )


def _pieces(channels: Mapping[str, Channel], address: Address, text: str) -> Sequence[str]:
    """Cut a reply as its channel wants; one whose channel is gone stays whole and waits."""
    channel = channels.get(address.channel)
    return [text] if channel is None else channel.pieces(text)


def status(
    channels: Mapping[str, Channel],
    seen: Mapping[str, Supervised],
    redact: Callable[[str], str] = Redactor(),  # noqa: B008 - it never changes
) -> dict[str, str]:
    """Return one short line for each channel."""
    lines = {}
    for name, channel in channels.items():
        here = seen.get(name, Supervised(name))
        trouble = here.problem or str(channel.status().get("last_error") or "")
        lines[name] = f"{here.state} ({redact(trouble)})" if trouble else here.state
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
    console = gateway.channels["console"]
    return console.code if isinstance(console, Console) else 0


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
        parts = _offline(loaded, db)
        beats = _heartbeat(parts, Timer(SystemClock()), Bell(), settings.heartbeat.model)
        capabilities = _capabilities(parts)
        stored = replace(
            _control(db, settings, lambda: None),
            beats=lambda: beats,
            timetable=_timetable(parts, lambda: None),
            recall=_recall(parts),
            notes=parts.workspace.path,
            ledger=_ledger(loaded, SystemClock()),
            capabilities=lambda: capabilities,
            idle=db.exclusive,
        )
        return await question(stored)
    finally:
        await db.close()


async def mcp_servers(loaded: Loaded) -> Sequence[Seen]:
    """Start every MCP server for a moment, and ask it what it offers. Raises: ConfigError."""
    return await look_at_servers(loaded.settings.mcp, loaded.home, os.environ, SystemClock())


async def take_over(loaded: Loaded, program: str, folder: Path, *, dry: bool) -> str:
    """Import what another program keeps in a folder; return what was done, or with `dry` would be.

    Raises: ConfigError, StoreError.
    """
    from gateway.importing.files import Mover  # noqa: PLC0415 - only this command needs it
    from gateway.importing.run import Importer, told  # noqa: PLC0415 - the same

    redact = _redactor(loaded.settings, os.environ)
    mover = Mover(ours=loaded.workspace.resolve(), templates=bundled("workspace"), redact=redact)
    importer = Importer(mover=mover, redact=redact, zone=ZoneInfo(zone_of(loaded)))
    if dry:
        plan = importer.plan(program, folder, await _imported(loaded))
        return told(plan, mover.ours, dry=True)
    try:
        db = await open_database(loaded.settings.store.url, SystemClock())
    except AlreadyRunning as error:
        raise ConfigError("a gateway is running; stop it, import, and start it again") from error
    try:
        await migrate_store(db, bundled("migrations"))
        plan = importer.plan(program, folder, await db.read(imports.known))
        await importer.carry_out(plan, db)
    finally:
        await db.close()
    return told(plan, mover.ours, dry=False)


async def _imported(loaded: Loaded) -> frozenset[str]:
    """Return which sessions were imported before; without a database none were."""
    try:
        reader = open_reader(loaded.settings.store.url)
    except ConfigError:
        return frozenset()
    try:
        return await reader.read(imports.known)
    finally:
        await reader.close()


async def look(loaded: Loaded, question: Callable[[Archive], Awaitable[T]]) -> T:
    """Ask about what was said, beside a gateway that may be running.

    Raises: ConfigError, StoreError.
    """
    reader = open_reader(loaded.settings.store.url)
    redact = _redactor(loaded.settings, os.environ)
    try:
        return await question(Archive(reader=reader, zone=ZoneInfo(zone_of(loaded)), redact=redact))
    finally:
        await reader.close()


def _timetable(parts: Parts, changed: Callable[[], None]) -> Timetable:
    return Timetable(db=parts.db, clock=parts.clock, rules=_rules(parts), changed=changed)


def _offline(loaded: Loaded, db: Database) -> Parts:
    """Return what is known of the channels without opening them."""
    known = policies(loaded.settings) | ({"web": EVERYBODY} if loaded.settings.http.enabled else {})
    workspace = _workspace(loaded, loaded.settings.workspace.path)
    skills = open_skills(loaded)
    return Parts(
        loaded=loaded,
        clock=SystemClock(),
        db=db,
        workspace=workspace,
        skills=skills,
        agent_skills={
            name: open_skills(loaded, workspace=Path(one.workspace).resolve(), only=one.skills)
            for name, one in loaded.settings.agents.items()
        },
        policies=known,
        encoder=open_encoder(loaded.settings.memory.embeddings),
    )


def _control(db: Database, settings: Settings, sent: Callable[[], None]) -> StoreControl:
    return StoreControl(db=db, policies=policies(settings), owned=bool(settings.access.owners), sent=sent)


async def prompt(loaded: Loaded, conversation: str) -> JsonObject:
    """Return what the model is sent for a conversation, see `Contexts.show`.

    Raises: ConfigError, StoreError.
    """
    from adapters.console import Console  # noqa: PLC0415 - a gateway without any other channel

    try:
        gateway = await open_gateway(
            loaded, SystemClock(), console=lambda feed: Console(feed=feed, session="")
        )
    except AlreadyRunning:
        if not loaded.settings.http.enabled:
            raise
        return await RemoteControl(loaded.settings.http).prompt(conversation)
    try:
        stored = _control(gateway.db, loaded.settings, lambda: None)
        return await replace(stored, contexts=lambda: gateway.contexts).prompt(conversation)
    finally:
        await gateway.close()


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
