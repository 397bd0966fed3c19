"""What must be open before the rest can be wired."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from zoneinfo import ZoneInfo

from gateway.access import EVERYBODY, Policy
from gateway.agents import MAIN
from gateway.channel import Channel
from gateway.clock import Clock, SystemClock
from gateway.config import Loaded, Settings, bundled
from gateway.config import secrets as configured_secrets
from gateway.feed import Feed
from gateway.memory.vectors import Encoder, open_encoder
from gateway.redact import Redactor, secrets_in
from gateway.skills import Skills, open_skills
from gateway.store.engine import Database, open_database
from gateway.store.inbox import Inbox
from gateway.tools.files import load
from gateway.tools.processes import Processes
from gateway.workspace import Workspace, of_agent

LARGEST_FILE = 50_000_000
"""Bytes of a file that a reply may bring; platforms take no more of a bot, or say so themselves."""

LIKELY_SECRET = 12
"""Characters from which on a variable called …KEY counts as a secret: fewer may be an ordinary word."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What everything else is made of.

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
    def settings(self) -> Settings:
        return self.loaded.settings

    @property
    def zone(self) -> ZoneInfo:
        return zone_of(self.loaded)

    @property
    def inbox(self) -> Inbox:
        return Inbox(self.db)

    @property
    def all_skills(self) -> Mapping[str, Skills]:
        """Return the skills of every agent by name."""
        return {MAIN: self.skills, **self.agent_skills}

    @property
    def owners(self) -> Sequence[tuple[str, str]]:
        """Return the owners that the configuration names, as (channel, sender)."""
        people = [(name, one) for name, policy in self.policies.items() for one in policy.people()]
        # Whoever can open a page that is nobody else's is the owner too, but reads it less often.
        return [*people, *((name, "") for name, policy in self.policies.items() if policy is EVERYBODY)]

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


def is_terminal(channels: Collection[str]) -> bool:
    """Return whether this is a terminal's gateway, which can't reach the chats of other channels."""
    return set(channels) == {"console"}


async def open_parts(loaded: Loaded, clock: Clock, env: Mapping[str, str]) -> Parts:
    """Open what the configuration names, but no channel yet. Raises: ConfigError, StoreError."""
    settings = loaded.settings
    encoder = open_encoder(settings.memory.embeddings)
    db = await open_database(settings.store.url, clock)
    workspace = workspace_of(settings, settings.workspace.path)
    workspaces = {name: workspace_of(settings, one.workspace) for name, one in settings.agents.items()}
    return Parts(
        loaded=loaded,
        clock=clock,
        db=db,
        workspace=workspace,
        workspaces=workspaces,
        skills=open_skills(loaded, env, workspace=workspace.path, now=clock.now),
        agent_skills={
            name: open_skills(loaded, env, workspace=workspaces[name].path, only=one.skills, now=clock.now)
            for name, one in settings.agents.items()
        },
        encoder=encoder,
        redact=redactor_of(settings, env),
        env=env,
        processes=Processes(clock),
    )


def workspace_of(settings: Settings, path: str) -> Workspace:
    """Return the workspace at a path, with the templates that come with the program."""
    always = settings.workspace.heartbeat_md == "always"
    return Workspace(Path(path).resolve(), bundled("workspace"), always_beats=always)


def redactor_of(settings: Settings, env: Mapping[str, str]) -> Redactor:
    """Return what knows the secrets of the configuration and of the environment."""
    named = [one for one in secrets_in(env) if len(one) >= LIKELY_SECRET]
    return Redactor((*configured_secrets(settings), *named))


def zone_of(loaded: Loaded) -> ZoneInfo:
    """Return the configured time zone, else the machine's."""
    if loaded.settings.agent.timezone:
        return ZoneInfo(loaded.settings.agent.timezone)
    from tzlocal import get_localzone_name  # noqa: PLC0415 - reads the machine; a configured zone needs no such look

    return ZoneInfo(str(get_localzone_name() or "UTC"))
