"""What a tool is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from gateway.types import Address, Chat, Json, Replay, Sender


@dataclass(frozen=True, slots=True)
class ToolContext:
    """Where and for whom a tool runs. `workspace` is an absolute path without links.

    `attended` is false when a schedule or a heartbeat started the turn: nobody is there to be asked.
    `looks_only`: nobody asked for anything either, so only tools without side effects may run.
    """

    workspace: Path
    address: Address
    sender: Sender
    chat: Chat
    call_id: str
    attended: bool = True
    looks_only: bool = False


class Tool(Protocol):
    """A function for the model. `parameters` is a JSON Schema object; `replay` says what a crash may do."""

    @property
    def name(self) -> str: ...

    @property
    def description(self) -> str: ...

    @property
    def parameters(self) -> Mapping[str, Json]: ...

    @property
    def replay(self) -> Replay: ...

    async def __call__(self, args: Mapping[str, Json], context: ToolContext) -> str:
        """Do it; the returned text goes to the model.

        Raises: ToolError, whose text goes to the model as an error.
        """
        ...
