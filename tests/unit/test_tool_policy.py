"""Who has which tool."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gateway.config import AgentTools, NoTools, ToolLayer, ToolSettings, parse
from gateway.tools.base import Group, Tool, ToolContext
from gateway.tools.policy import ALIASES, PROFILES, Denial, ToolPolicy
from gateway.tools.schema import tool
from gateway.types import Address, Chat, Kind, Level, Replay
from tests.fakes.scripted import situation

NAMES: dict[str, tuple[Group, Replay]] = {
    "read": (Group.FS, Replay.SAFE),
    "write": (Group.FS, Replay.ONCE),
    "exec": (Group.RUNTIME, Replay.ONCE),
    "web_fetch": (Group.WEB, Replay.SAFE),
    "memory_search": (Group.MEMORY, Replay.SAFE),
    "message": (Group.MESSAGING, Replay.ONCE),
    "spawn": (Group.SESSIONS, Replay.ONCE),
    "cron": (Group.AUTOMATION, Replay.ONCE),
    "todo": (Group.PLAN, Replay.SAFE),
    "mcp__time__now": (Group.PLUGINS, Replay.ONCE),
}


def make(name: str, group: Group, replay: Replay) -> Tool:
    async def run(_context: ToolContext) -> str:
        """Do it."""
        return name

    run.__name__ = name
    return tool(replay, group)(run)


TOOLS = [make(name, *rest) for name, rest in NAMES.items()]


def has(settings: ToolSettings | None = None, **where: Any) -> set[str]:
    policy = ToolPolicy(settings or ToolSettings())
    here = situation(**where)
    return {one.name for one in TOOLS if policy.allows(one, here)}


def test_access_021_the_owner_in_private_has_everything() -> None:
    assert has() == set(NAMES)


def test_a_person_who_was_let_in_has_no_side_effects_outside_of_their_folder() -> None:
    assert has(level=Level.USER) == {"read", "write", "web_fetch", "memory_search", "cron", "todo"}


@pytest.mark.parametrize(
    "level", [Level.OWNER, Level.USER, Level.GUEST], ids=["inject-004-exec-031-owner", "exec-031", "guest"]
)
def test_a_group_looks_and_changes_nothing_even_for_the_owner(level: Level) -> None:
    assert has(chat=Chat.GROUP, level=level) == {"read", "web_fetch", "memory_search", "todo"}


def test_exec_030_a_guest_has_nothing() -> None:
    assert has(level=Level.GUEST) == set()


def test_a_heartbeat_only_looks() -> None:
    assert has(kind=Kind.HEARTBEAT, level="") == {"read", "web_fetch", "memory_search", "todo"}


def test_a_light_heartbeat_has_what_a_checklist_needs() -> None:
    policy = ToolPolicy(light=True)
    beat, talk = situation(kind=Kind.HEARTBEAT, level=""), situation()
    assert {one.name for one in TOOLS if policy.allows(one, beat)} == {"read", "web_fetch", "memory_search"}
    assert {one.name for one in TOOLS if policy.allows(one, talk)} == set(NAMES)
    todo = next(one for one in TOOLS if one.name == "todo")
    assert policy.denial(todo, beat) == Denial("a light heartbeat has it not", "heartbeat.light")
    plugin = make("mcp__mail__unread", Group.PLUGINS, Replay.SAFE)
    assert policy.allows(plugin, beat), "somebody added it, perhaps for just this"


def test_a_schedule_of_the_owner_changes_nothing_unless_that_is_allowed() -> None:
    assert has(kind=Kind.CRON) == {"read", "web_fetch", "memory_search", "todo"}
    allowed = ToolSettings(unattended=NoTools(allow=("write",)))
    assert has(allowed, kind=Kind.CRON) == {"read", "write", "web_fetch", "memory_search", "todo"}
    assert "write" not in has(allowed, kind=Kind.HEARTBEAT)


def test_inject_016_a_sub_agent_has_at_most_what_its_parent_has() -> None:
    child: dict[str, Any] = {
        "kind": Kind.SUBAGENT,
        "address": Address("agent", "1.1"),
        "place": Address("fake", "1"),
    }
    assert has(**child) == set(NAMES) - {"spawn", "message", "cron"}
    assert has(**child, level=Level.GUEST) == set()
    assert has(**child, level=Level.USER) < has(level=Level.USER)


@pytest.mark.parametrize("profile", PROFILES)
def test_a_profile_names_known_groups_and_tools(profile: str) -> None:
    groups = {f"group:{one}" for one in Group}
    assert {one for one in PROFILES[profile] if one.startswith("group:")} <= groups


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (ToolSettings(profile="minimal"), {"todo"}),
        (ToolSettings(profile="messaging"), {"message", "spawn", "todo"}),
        (ToolSettings(profile="minimal", allow=("group:web",)), {"todo", "web_fetch"}),
        (ToolSettings(profile="local"), {"read", "write", "exec", "web_fetch", "memory_search", "todo"}),
        (ToolSettings(deny=("*",)), set()),
        (ToolSettings(profile="local", deny=("group:fs", "WEB_*")), {"exec", "memory_search", "todo"}),
        (ToolSettings(deny=("mcp__*",)), set(NAMES) - {"mcp__time__now"}),
    ],
    ids=["minimal", "messaging", "more", "local", "nothing", "less", "no-servers"],
)
def test_profile_allow_and_deny(settings: ToolSettings, expected: set[str]) -> None:
    assert has(settings) == expected


@pytest.mark.parametrize("alias", ["bash", "run_command", "exec", "EXEC"])
def test_what_is_denied_is_gone_under_each_of_its_names(alias: str) -> None:
    assert "exec" not in has(ToolSettings(deny=(alias,), allow=("exec",)))


def test_no_alias_hides_a_tool_of_another_name() -> None:
    assert not set(ALIASES) & set(ALIASES.values())


CHAT = Address("telegram", "-100", "7")


@pytest.mark.parametrize("key", ["telegram", "telegram:-100", "telegram:-100:7"])
def test_a_conversation_can_be_given_more_or_less(key: str) -> None:
    more = ToolSettings(conversations={key: ToolLayer(allow=("exec", "read"))})
    assert has(more, chat=Chat.GROUP, address=CHAT) == {"exec", "read"}
    less = ToolSettings(conversations={key: ToolLayer(deny=("group:web",))})
    assert "web_fetch" not in has(less, chat=Chat.GROUP, address=CHAT)
    assert "web_fetch" in has(less, chat=Chat.GROUP)


def test_a_sender_can_be_given_more_or_less() -> None:
    settings = ToolSettings(
        senders={"fake:7": ToolLayer(allow=("exec",)), "fake:8": ToolLayer(deny=("read",))}
    )
    assert has(settings, level=Level.USER) == {"exec"}
    assert "read" not in has(settings, sender="8")
    assert has(settings, sender="9") == set(NAMES)


def test_the_most_specific_list_counts() -> None:
    settings = ToolSettings(
        conversations={"fake": ToolLayer(allow=("read",)), "fake:1": ToolLayer(allow=("todo",))},
        senders={"fake:9": ToolLayer(allow=("web_fetch",))},
    )
    assert has(settings, address=Address("fake", "2")) == {"read"}
    assert has(settings) == {"todo"}
    assert has(settings, sender="9") == {"web_fetch"}


def test_an_agent_narrows_and_never_widens() -> None:
    policy = ToolPolicy(
        ToolSettings(deny=("exec",)), agents={"clerk": AgentTools(profile="minimal", allow=("exec", "read"))}
    )
    clerk = situation(agent="clerk")
    assert {one.name for one in TOOLS if policy.allows(one, clerk)} == {"todo", "read"}


@pytest.mark.parametrize(
    ("settings", "where", "setting"),
    [
        (ToolSettings(), {"level": Level.USER}, "tools.people.allow"),
        (ToolSettings(), {"chat": Chat.GROUP}, "tools.groups.allow"),
        (ToolSettings(deny=("exec",)), {}, "tools.deny"),
        (ToolSettings(profile="minimal"), {}, "tools.profile"),
        (ToolSettings(), {"kind": Kind.CRON}, "tools.unattended.allow"),
        (
            ToolSettings(conversations={"fake": ToolLayer(deny=("exec",))}),
            {},
            'tools.conversations."fake".deny',
        ),
    ],
    ids=["person", "group", "denied", "profile", "cron", "conversation"],
)
def test_a_refusal_names_the_setting(settings: ToolSettings, where: dict[str, object], setting: str) -> None:
    denied: Callable[..., object] = ToolPolicy(settings).denial
    found = denied(TOOLS[2], situation(**where))  # type: ignore[arg-type] # the fields of a situation
    assert getattr(found, "setting", None) == setting


def test_a_table_that_says_something_else_keeps_the_list() -> None:
    text = '[tools.people]\ndeny = ["cron"]\n[tools.groups]\n[tools.guests]\n[tools.unattended]\n'
    settings = parse(text, {}, Path("/")).tools
    assert has(settings, level=Level.USER) == has(level=Level.USER) - {"cron"}
    assert has(settings, chat=Chat.GROUP) == has(chat=Chat.GROUP)
    assert has(settings, level=Level.GUEST) == set()
    assert has(settings, kind=Kind.CRON) == has(kind=Kind.CRON)
