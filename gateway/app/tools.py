"""Every tool there is; which of them a conversation has is the policy's to say."""

from __future__ import annotations

import functools
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gateway.app.initiative import schedules_of
from gateway.app.parts import Parts
from gateway.capabilities import Capabilities
from gateway.commands import TABLE
from gateway.errors import ToolError
from gateway.recall import Recall
from gateway.skills.packages import RESERVED, Packages
from gateway.skills.roots import installed
from gateway.skills.watch import Watch
from gateway.store.schedules import Schedules
from gateway.tools.base import Tool, ToolContext
from gateway.tools.box import Toolbox
from gateway.tools.cron import cron_tool
from gateway.tools.files import file_tools
from gateway.tools.find import search_tool
from gateway.tools.media import Listen, Look, audio_tool, image_tool
from gateway.tools.memory import memory_tools
from gateway.tools.message import Post, message_tool
from gateway.tools.plan import todo_tool
from gateway.tools.policy import ToolPolicy
from gateway.tools.sessions import Desk, sessions_tool, spawn_tool
from gateway.tools.web import open_web, web_tools
from gateway.turn import TurnRunner
from gateway.work import Worker
from gateway.workspace import below_agent

if TYPE_CHECKING:
    from gateway.tools.skill import Shelf


def toolbox(parts: Parts, schedules: Schedules) -> tuple[Toolbox, Capabilities]:
    """Return the tools that need no running turns, and what people switch of them."""
    settings = parts.settings
    capabilities = capabilities_of(parts, _shelf(parts))
    profiles = {name: one.tools for name, one in settings.agents.items()}
    policy = ToolPolicy(settings.tools, profiles, capabilities.denial, settings.heartbeat.light)
    tools = Toolbox(_tools(parts, schedules), policy=policy, redact=parts.redact)
    capabilities.tools = tools
    return tools, capabilities


def listed(parts: Parts) -> Capabilities:
    """Return what people switch where no turns run: all but what MCP servers and other packages bring."""
    tools, capabilities = toolbox(parts, schedules_of(parts))
    media = parts.settings.media
    look, listen = (_nobody if model else None for model in (media.image_model, media.audio_model))
    tools.give("media", media_tools(parts, look, listen))
    tools.give("conversations", _talking(parts, Post(db=parts.db), Desk(db=parts.db, zone=parts.zone.key)))
    capabilities.whole = False
    return capabilities


async def _nobody(*_: object) -> str:
    raise ToolError("no gateway is running that could do it")


def capabilities_of(parts: Parts, shelf: Shelf | None = None) -> Capabilities:
    """Return what people switch; without `shelf` the tools of skills are not offered."""
    packages = Packages(folder=installed(parts.loaded), wall=parts.clock.wall)
    watch = Watch(parts.skills, packages, parts.db, tuple(parts.agent_skills.values()))
    return Capabilities(
        db=parts.db,
        clock=parts.clock,
        skills=parts.all_skills,
        packages=functools.partial(_packages, parts),
        watch=watch.look,
        shelf=shelf,
    )


def recall_of(parts: Parts) -> Recall:
    """Return what searches notes and transcripts."""
    return Recall(db=parts.db, clock=parts.clock, zone=parts.zone, encoder=parts.encoder)


def media_tools(parts: Parts, look: Look | None, listen: Listen | None) -> Sequence[Tool]:
    """Return the tools for which there is a model: who has none is not even offered them."""
    readable = functools.partial(_readable, parts)
    return [
        *([image_tool(look, readable)] if look else ()),
        *([audio_tool(listen, readable)] if listen else ()),
    ]


def talking_tools(parts: Parts, turns: TurnRunner, worker: Worker) -> Sequence[Tool]:
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
    return _talking(parts, post, Desk(db=parts.db, zone=parts.zone.key, woken=worker.bell.ring))


def _talking(parts: Parts, post: Post, desk: Desk) -> Sequence[Tool]:
    return [message_tool(post), sessions_tool(desk), spawn_tool(desk), todo_tool(parts.db)]


def _tools(parts: Parts, schedules: Schedules) -> Sequence[Tool]:
    readable = functools.partial(_readable, parts)
    return [
        *file_tools(readable),
        search_tool(readable, shutil.which("rg")),
        cron_tool(schedules),
        *memory_tools(recall_of(parts)),
        *web_tools(open_web(parts.settings.web, parts.clock)),
        *_exec_tools(parts),
    ]


def _readable(parts: Parts) -> Sequence[Path]:
    """Return the folders of skills, which may be read beside the workspace."""
    return [folder for skills in parts.all_skills.values() for folder in skills.current.folders]


def _exec_tools(parts: Parts) -> Sequence[Tool]:
    if os.name != "posix":
        return ()
    from gateway.tools.exec import exec_tools  # noqa: PLC0415 - needs what Windows has not
    from gateway.tools.skill import home_of, install_tool  # noqa: PLC0415 - likewise

    installs = install_tool(functools.partial(_packages, parts))
    if parts.settings.exec.mode == "deny":
        return (installs,)
    commands = exec_tools(
        parts.settings.exec,
        parts.processes,
        parts.clock,
        environ=parts.env,
        skill_of=home_of(tuple(parts.all_skills.values())),
    )
    return (installs, *commands)


def _shelf(parts: Parts) -> Shelf | None:
    """Return the tools that skills bring along, None where no commands run."""
    if os.name != "posix" or parts.settings.exec.mode == "deny":
        return None
    from gateway.tools.exec import open_runner  # noqa: PLC0415 - needs what Windows has not
    from gateway.tools.skill import Shelf, home_of  # noqa: PLC0415 - likewise

    skills = parts.all_skills
    runner = open_runner(
        parts.settings.exec,
        parts.processes,
        environ=parts.env,
        skill_of=home_of(tuple(skills.values())),
    )
    return Shelf(runner, skills)


def _packages(parts: Parts) -> Packages:
    """Return the installed skills, with the names that are taken now."""
    there = [skill for one in parts.all_skills.values() for skill in one.current.skills]
    commands = (name for command in TABLE for name in (command.name, *command.aliases))
    return Packages(
        folder=installed(parts.loaded),
        wall=parts.clock.wall,
        others=frozenset(skill.name for skill in there if skill.receipt is None),
        reserved=RESERVED.union(commands),
    )
