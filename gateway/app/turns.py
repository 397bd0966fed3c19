"""What runs turns: the agent loop with its journal, its questions, its summaries and its limits."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace

from gateway.allowance import Allowance
from gateway.app.agents import Agents
from gateway.app.budget import caps_of, ledger_of, rates_of
from gateway.app.models import Models
from gateway.app.parts import Parts
from gateway.approvals import Approver
from gateway.channel import Channel, SendsFiles
from gateway.compaction import Limits
from gateway.compactor import Compactor
from gateway.config import duration
from gateway.sessions import Freshness
from gateway.store import beats, subagents
from gateway.store.engine import Database
from gateway.store.journal import Journal
from gateway.turn import TurnRunner
from gateway.types import Address, Chat
from gateway.work import Sender

CHARS_PER_TOKEN = 3
"""A careful guess for budgets; the provider's own count decides in the end (models 4)."""


def journal_of(parts: Parts, agents: Agents, node: str) -> Journal:
    """Return what writes transcripts; `node` names this process."""
    return Journal(
        parts.db, node, fresh=_freshness(parts), ledger=replace(ledger_of(parts), agent=agents.name)
    )


def turns_of(
    parts: Parts,
    models: Models,
    agents: Agents,
    journal: Journal,
    sender: Sender,
    look: Callable[[], Awaitable[None]],
) -> TurnRunner:
    """Return what runs turns; `look` is awaited when one begins."""
    settings = parts.settings
    return TurnRunner(
        journal=journal,
        agent=agents.main,
        choose=agents.of if agents.others else None,
        approver=Approver(
            db=parts.db,
            owner=functools.partial(_owner_place, parts),
            expires=float(duration(settings.approvals.expires)),
            queued=sender.bell.ring,
        ),
        compactor=_compactor(parts, models, journal),
        feed=parts.feed,
        slots=sender,
        pieces=functools.partial(_pieces, parts.channels),
        sends_files=lambda address: isinstance(parts.channels.get(address.channel), SendsFiles),
        max_rounds=settings.agent.max_turns,
        max_chars=_max_chars(parts, models),
        look=look,
        redact=parts.redact,
        allowance=Allowance(
            db=parts.db,
            clock=parts.clock,
            ledger=journal.ledger,
            caps=caps_of(settings.limits),
            rates=rates_of(settings.limits),
        ),
        turn_time=float(duration(settings.limits.turn_time)),
        unattended_time=float(duration(settings.limits.unattended_turn_time)),
    )


def _freshness(parts: Parts) -> Freshness:
    settings = parts.settings.session
    chats = {"all": frozenset(Chat), "private": frozenset({Chat.DIRECT}), "groups": frozenset({Chat.GROUP})}
    return Freshness(
        mode=settings.reset,
        at=settings.reset_at,
        idle=float(duration(settings.idle)),
        chats=chats[settings.reset_in],
        zone=parts.zone,
    )


def _compactor(parts: Parts, models: Models, journal: Journal) -> Compactor:
    wanted = parts.settings.compaction
    return Compactor(
        journal=journal,
        feed=parts.feed,
        clock=parts.clock,
        limits=Limits(
            window=models.choice.context_window,
            reply=parts.settings.model.max_tokens,
            keep=wanted.keep_tokens,
            max_messages=wanted.max_messages,
            keep_messages=wanted.keep_messages,
        ),
        enabled=wanted.enabled,
        model=models.summaries,
        zone=parts.zone.key,
        flushes=wanted.memory_flush,
        max_chars=_max_chars(parts, models),
        running=functools.partial(_at_work, parts.db),
        redact=parts.redact,
    )


def _max_chars(parts: Parts, models: Models) -> int:
    """Return how many characters of a transcript the model takes beside its reply."""
    return max(models.choice.context_window - parts.settings.model.max_tokens, 1000) * CHARS_PER_TOKEN


async def _owner_place(parts: Parts) -> Address | None:
    """Return where the owner can be asked in private."""
    owners, channels = parts.owners, list(parts.policies)
    route = await parts.db.write(lambda tx: beats.owner_route(tx, owners, channels), durable=False)
    return route.address if route else None


async def _at_work(db: Database, parent: Address) -> Sequence[str]:
    """Return the sub-agents of a conversation that have no result yet, as a summary names them."""
    found = await db.write(lambda tx: subagents.running(tx, parent), durable=False)
    return [f"{one.id}, {one.name}: {' '.join(one.task.split())[:300]}" for one in found]


def _pieces(channels: Mapping[str, Channel], address: Address, text: str) -> Sequence[str]:
    """Cut a reply as its channel wants; one whose channel is gone stays whole and waits."""
    channel = channels.get(address.channel)
    return [text] if channel is None else channel.pieces(text)
