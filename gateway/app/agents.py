"""The agents, and which of them answers where."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from gateway.agents import MAIN, Binding, bindings, chosen
from gateway.app.models import Models
from gateway.app.parts import Parts
from gateway.capabilities import Capabilities
from gateway.prompt import Prompts
from gateway.tools.box import Toolbox
from gateway.turn import Agent
from gateway.types import Situation, Stimulus
from gateway.workspace import Workspace, room


@dataclass(frozen=True, slots=True)
class Agents:
    """Who answers where: the usual agent, the others by name, and where they are bound."""

    main: Agent
    others: Mapping[str, Agent]
    bound: Sequence[Binding]

    def of(self, situation: Situation) -> Agent:
        """Return who answers a turn."""
        return self.others.get(chosen(self.bound, situation), self.main)

    def name(self, situation: Situation) -> str:
        """Return the name of who answers a turn."""
        return self.of(situation).name

    def asked(self, stimulus: Stimulus) -> Situation:
        """Return the situation in which a message by itself would be answered."""
        here = Situation(stimulus.address, stimulus.address, stimulus.sender, stimulus.chat)
        return replace(here, agent=self.name(here))

    def folder(self, situation: Situation) -> Path:
        """Return where the files of a turn belong."""
        return room(self.of(situation).workspace, situation)

    def prompts(self, situation: Situation) -> tuple[str, Prompts]:
        """Return who answers a turn, with a way to prompt it that no turn uses at the same time."""
        agent = self.of(situation)
        prompts = agent.prompts
        assert isinstance(prompts, Prompts)
        return agent.name, replace(prompts, workspace=prompts.workspace.anew())


def agents_of(parts: Parts, models: Models, tools: Toolbox, capabilities: Capabilities) -> Agents:
    """Return every agent with its model, its workspace, and its skills in its prompts."""
    light = parts.settings.heartbeat.light

    def agent(name: str, workspace: Workspace) -> Agent:
        available = functools.partial(capabilities.available, parts.all_skills[name])
        return Agent(
            name=name,
            model=models.agents.get(name, models.usual),
            tools=tools,
            prompts=Prompts(workspace, tools.specs, parts.zone.key, parts.clock, light, skills=available),
            workspace=workspace.path,
        )

    others = {name: agent(name, workspace) for name, workspace in parts.workspaces.items()}
    return Agents(agent(MAIN, parts.workspace), others, bindings(parts.settings.bindings))
