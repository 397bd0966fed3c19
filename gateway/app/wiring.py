"""Connects everything that runs."""

from __future__ import annotations

import functools
import secrets

from gateway.agenda import Agenda
from gateway.app.agents import agents_of
from gateway.app.bots import largest_file
from gateway.app.budget import caps_of
from gateway.app.initiative import beats_of, cron_command, endings_of, heartbeat_of, schedules_of
from gateway.app.models import Models
from gateway.app.parts import Parts
from gateway.app.running import Gateway, status
from gateway.app.tools import media_tools, talking_tools, toolbox
from gateway.app.turns import journal_of, turns_of
from gateway.bell import Bell
from gateway.commands import Commands
from gateway.config import duration
from gateway.context import Contexts
from gateway.identities import Identities
from gateway.intake import Intake
from gateway.mcp.servers import Servers
from gateway.prepare import Preparer
from gateway.retention import Ages, Retention
from gateway.senses import Account, Hearing, Sight
from gateway.store.leases import Leases
from gateway.store.outbox import Outbox
from gateway.store.usage import Ledger
from gateway.timer import Timer
from gateway.tools.box import Toolbox
from gateway.work import Sender, Supervised, Worker


def wire(parts: Parts, models: Models) -> Gateway:
    """Return everything that runs; each thing is made of those above it."""
    settings, db, clock = parts.settings, parts.db, parts.clock
    node = secrets.token_hex(8)
    schedules = schedules_of(parts)
    tools, capabilities = toolbox(parts, schedules)
    agents = agents_of(parts, models, tools, capabilities)
    journal = journal_of(parts, agents, node)
    sender = Sender(outbox=Outbox(db, node), channels=parts.channels, bell=Bell(), clock=clock)
    turns = turns_of(parts, models, agents, journal, sender, capabilities.look)
    worker = Worker(
        journal=journal,
        turns=turns,
        sender=sender,
        bell=Bell(),
        clock=clock,
        parallel=settings.agent.parallel,
    )
    look, listen = _senses(parts, models, journal.ledger)
    preparer = Preparer(
        inbox=parts.inbox,
        channels=parts.channels,
        folder=agents.folder,
        bell=Bell(),
        worker_bell=worker.bell,
        clock=clock,
        most=largest_file(settings),
        listen=listen if settings.media.transcribe else None,
    )
    timer = Timer(clock)
    agenda = Agenda(schedules=schedules, timer=timer, worker_bell=worker.bell, outbox_bell=sender.bell)
    heartbeat = heartbeat_of(parts, timer, worker.bell, (models.beats or models.usual).name)
    servers = _servers(parts, tools)
    contexts = Contexts(agents.prompts)
    seen: dict[str, Supervised] = {}
    commands = Commands(
        db=db,
        clock=clock,
        started=clock.now(),
        model=lambda stimulus: agents.of(agents.asked(stimulus)).model.name,
        channels=lambda: status(parts.channels, seen, parts.redact) | _server_lines(servers),
        owned=bool(settings.access.owners),
        ledger=journal.ledger,
        heartbeat=heartbeat.command,
        cron=cron_command(schedules),
        tools=lambda stimulus: capabilities.explain(agents.asked(stimulus)),
        context=contexts.summary,
    )
    intake = Intake(
        inbox=parts.inbox,
        policies=parts.policies,
        commands=commands,
        bell=worker.bell,
        outbox_bell=sender.bell,
        media_bell=preparer.bell,
        interrupt=worker.interrupt,
        identities=Identities.of(settings.identities),
    )
    # What is above, but needs to know of what came below it.
    schedules.changed = agenda.look_soon
    turns.beats = beats_of(parts, models, heartbeat)
    turns.endings = endings_of(db, schedules, heartbeat)
    tools.give("media", media_tools(parts, look, listen))
    tools.give("conversations", talking_tools(parts, turns, worker))
    return Gateway(
        clock=clock,
        db=db,
        channels=parts.channels,
        intake=intake,
        worker=worker,
        sender=sender,
        preparer=preparer,
        leases=Leases(db, clock, node),
        timer=timer,
        agenda=agenda,
        heartbeat=heartbeat,
        models=models,
        contexts=contexts,
        capabilities=capabilities,
        retention=_retention(parts),
        processes=parts.processes,
        servers=servers,
        seen=seen,
    )


def _senses(parts: Parts, models: Models, ledger: Ledger) -> tuple[Sight | None, Hearing | None]:
    """Return what looks at pictures and what listens to recordings, where there are models for it."""
    account = Account(db=parts.db, ledger=ledger, caps=caps_of(parts.settings.limits))
    look = Sight(model=models.pictures, account=account, clock=parts.clock) if models.pictures else None
    listen = Hearing(transcriber=models.recordings, account=account) if models.recordings else None
    return look, listen


def _servers(parts: Parts, tools: Toolbox) -> Servers:
    return Servers(
        settings=parts.settings.mcp,
        home=parts.loaded.home,
        environ=parts.env,
        clock=parts.clock,
        give=functools.partial(tools.give, "mcp"),
        redact=parts.redact,
    )


def _server_lines(servers: Servers) -> dict[str, str]:
    return {f"mcp {name}": state for name, state in servers.status().items()}


def _retention(parts: Parts) -> Retention:
    wanted = parts.settings.retention
    return Retention(
        db=parts.db,
        clock=parts.clock,
        zone=parts.zone,
        workspaces=[parts.workspace.path, *(one.path for one in parts.workspaces.values())],
        ages=Ages(
            messages=float(duration(wanted.messages)),
            verdicts=float(duration(wanted.verdicts)),
            unreadable=float(duration(wanted.unreadable)),
            group_talk=float(duration(wanted.group_talk)),
            results=float(duration(wanted.results)),
            usage=float(duration(wanted.usage)),
            transcripts=float(duration(wanted.transcripts)),
            megabytes=wanted.transcripts_mb,
        ),
    )
