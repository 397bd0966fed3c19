"""What a tool is, and what it may say beside its text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from gateway.types import Address, Attachment, Chat, Json, Kind, Level, Replay, Sender, Situation


class Group(StrEnum):
    """What tools are about; `group:web` in the configuration names all of one (seed 000)."""

    FS = "fs"
    RUNTIME = "runtime"
    WEB = "web"
    MEMORY = "memory"
    SESSIONS = "sessions"
    MESSAGING = "messaging"
    AUTOMATION = "automation"
    PLAN = "plan"
    SKILLS = "skills"
    PLUGINS = "plugins"


@dataclass(frozen=True, slots=True)
class ToolContext:
    """Where and for whom a tool runs.

    `workspace` is the agent's folder, an absolute path without links; `room` is where relative paths of
    this conversation begin: the same folder for the owner in private, one of their own for everybody else
    (reliability 4.5). `kind` is what woke the turn, `place` where its reply goes. `seq` is the entry that
    makes the call.
    `tainted`: text of strangers (a page, a file of a guest) is in this turn (attack inject-001);
    `has_read`: private files or memories are (inject-013). `said` is what people wrote in this turn.
    `approved` is the binding that a person has allowed for just this call, "" if nobody was asked.
    """

    workspace: Path
    address: Address
    sender: Sender
    chat: Chat
    call_id: str
    kind: Kind = Kind.MESSAGE
    place: Address | None = None
    room: Path | None = None
    agent: str = "main"
    conversation_id: int = 0
    turn: int = 0
    seq: int = 0
    tainted: bool = False
    has_read: bool = False
    said: str = ""
    approved: str = ""

    @property
    def folder(self) -> Path:
        """Return the folder that relative paths of this conversation begin at."""
        return self.room or self.workspace

    @property
    def situation(self) -> Situation:
        """Return what decides about which tools there are."""
        place = self.place or self.address
        return Situation(self.address, place, self.sender, self.chat, self.kind, self.agent)

    @property
    def key(self) -> str:
        """Return a name for this call that no other has, in this conversation or another."""
        return f"{self.conversation_id}:{self.seq}:{self.call_id}"

    @property
    def is_owner(self) -> bool:
        """Return whether the owner asks, and nobody else reads."""
        return self.sender.level == Level.OWNER and self.chat is Chat.DIRECT


@dataclass(frozen=True, slots=True)
class Output:
    """What a tool brings beside its text: pictures for models that see, by paths below the workspace."""

    text: str
    attachments: tuple[Attachment, ...] = ()


@dataclass(frozen=True, slots=True)
class Ask:
    """A call that a person must allow first (agent G).

    `title` is one line; `detail` shows in full what would be done, `note` in lines of our own words where
    and why it is asked. `binding` is a digest of all that the decision rests on (command, folder, program,
    hash of the script …): if it has changed by the time of the answer, nothing runs. `rule` is what "always"
    would remember, "" if there is no always.
    """

    title: str
    detail: str
    binding: str
    rule: str = ""
    note: str = ""


class Tool(Protocol):
    """A function for the model. `parameters` is a JSON Schema object; `replay` says what a crash may do.

    `group` is what it is about. `private`: its results are what only this conversation may see. `timeout` is
    its own limit in seconds, None for the usual one.
    """

    @property
    def name(self) -> str: ...

    @property
    def description(self) -> str: ...

    @property
    def parameters(self) -> Mapping[str, Json]: ...

    @property
    def replay(self) -> Replay: ...

    @property
    def group(self) -> Group: ...

    @property
    def private(self) -> bool: ...

    @property
    def timeout(self) -> float | None: ...

    def taints(self, args: Mapping[str, Json]) -> bool:
        """Return whether the result of such a call is what strangers wrote."""
        ...

    async def check(self, args: Mapping[str, Json], context: ToolContext) -> Ask | None:
        """Return what a person must allow before this call runs; must have no effect.

        Raises: ToolDenied, whose text tells the model why the call can never run.
        """
        ...

    async def __call__(self, args: Mapping[str, Json], context: ToolContext) -> str | Output:
        """Do it; the returned text goes to the model.

        Raises: ToolError, whose text goes to the model as an error.
        """
        ...
