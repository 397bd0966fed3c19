"""The tool with which the model sets schedules for the chat that it is in."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Literal, TypeAlias

from gateway import cron
from gateway.errors import ToolError
from gateway.store.jobs import Delivery, Job, Session, Wanted, summary
from gateway.store.schedules import Schedules
from gateway.tools.base import Group, ToolContext
from gateway.tools.schema import FunctionTool, tool
from gateway.types import Address, Chat, Level, Replay

Action: TypeAlias = Literal["add_or_update", "list", "remove", "run", "pause", "resume"]

NAME = "cron"

_DESCRIPTION = (
    "Set reminders and tasks for this chat, for later or again: you are woken with the prompt, and your "
    "reply is sent here."
)


def cron_tool(schedules: Schedules) -> FunctionTool:
    """Return the tool. It sees only the schedules of the chat in which it is called (seed 002)."""

    async def act(  # noqa: PLR0913 - the arguments of the tool
        context: ToolContext,
        *,
        action: Action,
        name: str = "",
        when: str = "",
        prompt: str = "",
        timezone: str = "",
        session: Literal["isolated", "current"] = "isolated",
        delivery: Literal["announce", "none"] = "announce",
    ) -> str:
        """Set schedules.

        when: +20m, 2027-03-01T09:00, every 2h, or a crontab line
        prompt: the task, with all you need, in the person's language
        session: current sees this chat's history
        delivery: none sends no reply
        """
        _check(context)
        place = context.situation.seen_at
        if action == "list":
            return "\n".join(map(summary, await schedules.jobs(place))) or "There are no schedules."
        if not name.strip():
            raise ToolError("name is missing: which schedule?")
        if action != "add_or_update":
            return await _change(schedules, action, name.strip(), place)
        try:
            zone = cron.as_zone(timezone) if timezone else schedules.rules.zone
            wanted = Wanted(
                address=place,
                chat=context.chat,
                sender=context.sender,
                name=name,
                trigger=cron.read(when, schedules.clock.wall(), zone),
                zone=zone,
                prompt=prompt,
                session=Session(session),
                delivery=Delivery(delivery),
            )
            job, new = await schedules.save(wanted)
        except ValueError as error:
            raise ToolError(f"{error}. Nothing was set.") from None
        return f"{'Set' if new else 'Changed'}: {summary(job)}"

    return replace(tool(Replay.ONCE, Group.AUTOMATION)(act), name=NAME, description=_DESCRIPTION)


def _check(context: ToolContext) -> None:
    if not context.situation.attended:
        raise ToolError("schedules can't be changed when nobody is there")
    if context.chat is not Chat.DIRECT:
        raise ToolError("schedules are set in a private chat only")
    if context.sender.level == Level.GUEST:
        raise ToolError("only people whom the owner let in may set schedules")


async def _change(schedules: Schedules, action: Action, name: str, address: Address) -> str:
    acts: Mapping[Action, Callable[[], Awaitable[str | Job]]] = {
        "remove": lambda: schedules.remove(name, address),
        "pause": lambda: schedules.pause(name, address),
        "run": lambda: schedules.run(name, address),
        "resume": lambda: schedules.resume(name, address),
    }
    try:
        done = await acts[action]()
    except ValueError as error:
        raise ToolError(str(error)) from None
    said = {"remove": "Removed", "pause": "Paused", "run": "Started", "resume": "Goes on"}[action]
    return f"{said}: {summary(done) if isinstance(done, Job) else done}"
