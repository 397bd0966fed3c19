"""The plan of a longer task, which people see while it is worked off (seed 004)."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, TypeAlias, get_args

from gateway.errors import ToolError
from gateway.store.engine import Database
from gateway.store.inbox import get_fact, set_fact
from gateway.tools.base import Group, ToolContext
from gateway.tools.schema import FunctionTool, tool
from gateway.types import Replay

MOST = 50
"""Steps of a plan."""

LONGEST = 200
"""Characters of a step."""

Status: TypeAlias = Literal["todo", "doing", "done"]
_MARKS: dict[str, str] = {"todo": "[ ]", "doing": "[>]", "done": "[x]"}

NAME = "todo"


def todo_tool(db: Database) -> FunctionTool:
    """Return the tool. The plan is the conversation's and outlives compaction and restarts."""

    async def act(context: ToolContext, steps: list[dict] | None = None) -> str:  # type: ignore[type-arg] # the schema is made from it
        """Keep the plan of a task with several steps, for people to see.

        steps: all, as text, status (todo, doing, done)
        """
        name = f"plan:{context.conversation_id}"
        if steps is None:
            return await db.write(lambda tx: get_fact(tx, name), durable=False) or "There is no plan."
        plan = "\n".join(lines(steps)) or "There is no plan."
        await db.write(lambda tx: set_fact(tx, name, plan))
        return plan

    return replace(tool(Replay.SAFE, Group.PLAN)(act), name=NAME)


def lines(steps: list[dict[str, object]]) -> list[str]:
    """Return a plan as lines of text. Raises: ToolError."""
    if len(steps) > MOST:
        raise ToolError(f"a plan has at most {MOST} steps, and these are {len(steps)}")
    found = [(" ".join(str(step.get("text", "")).split()), step.get("status", "todo")) for step in steps]
    for text, status in found:
        if not text:
            raise ToolError("each step is an object with text and status")
        if status not in get_args(Status):
            raise ToolError(f"the status of {text[:40]!r} must be todo, doing or done")
    if sum(status == "doing" for _, status in found) > 1:
        raise ToolError("at most one step can be doing")
    return [f"{_MARKS[str(status)]} {text[:LONGEST]}" for text, status in found]
