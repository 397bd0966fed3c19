"""What people have switched and bound: which tools and skills an agent or a person has; pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from gateway.types import Situation


class Sort(StrEnum):
    """What a capability is."""

    TOOL = "tool"
    SKILL = "skill"


@dataclass(frozen=True, slots=True)
class Binding:
    """Puts a capability on a list: that of an agent, of a person (`channel:id`), or of both together.

    At least one of `agent` and `user` is not "".
    """

    sort: Sort
    name: str
    agent: str = ""
    user: str = ""


@dataclass(frozen=True, slots=True)
class Grants:
    """What is switched off by name, and the lists that are not empty by agent and person.

    Each list that fits a turn narrows what it has of that sort; without any, the profiles decide alone.
    """

    off: frozenset[tuple[Sort, str]] = frozenset()
    lists: Mapping[tuple[str, str], Mapping[Sort, frozenset[str]]] = field(default_factory=dict)

    def problem(self, sort: Sort, name: str, situation: Situation) -> str:
        """Return why a turn has not this, "" if nothing here keeps it away."""
        if (sort, name) in self.off:
            return "it is switched off"
        for (agent, user), listed in self._lists(situation):
            if sort in listed and name not in listed[sort]:
                return f"the list of {_owner(agent, user)} has it not"
        return ""

    def _lists(self, situation: Situation) -> Iterable[tuple[tuple[str, str], Mapping[Sort, frozenset[str]]]]:
        if not self.lists:
            return
        sender = situation.sender.id
        user = f"{situation.place.channel}:{sender}" if sender else ""
        for key in dict.fromkeys([(situation.agent, ""), ("", user), (situation.agent, user)]):
            if key in self.lists:
                yield key, self.lists[key]


def grants(off: Iterable[tuple[Sort, str]], bindings: Iterable[Binding]) -> Grants:
    """Sort out what was switched and bound."""
    lists: dict[tuple[str, str], dict[Sort, set[str]]] = {}
    for one in bindings:
        lists.setdefault((one.agent, one.user), {}).setdefault(one.sort, set()).add(one.name)
    frozen = {
        key: {sort: frozenset(names) for sort, names in listed.items()} for key, listed in lists.items()
    }
    return Grants(frozenset(off), frozen)


def _owner(agent: str, user: str) -> str:
    if agent and user:
        return f"{user} with the agent {agent}"
    return f"the agent {agent}" if agent else user
