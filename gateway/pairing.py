"""How a stranger is let in, as people read it: invitation, lists and answers."""

from __future__ import annotations

import math
from collections.abc import Sequence

from sqlalchemy.engine import Connection

from gateway.store import members, outbox
from gateway.store.members import Person
from gateway.types import Json, JsonObject, Level, OnUnknown, Outgoing, Stimulus

WRONG = (
    "No open request has this code. It may be mistyped or older than an hour, or there were too many wrong "
    "tries: then the person gets a new code by writing to the bot again after an hour."
)
"""The same for every reason, so that it tells nothing about the code (access-003)."""

USAGE = "/pairing list\n/pairing approve CODE\n/pairing revoke CHANNEL ID"


def invitation(stimulus: Stimulus, code: str) -> Outgoing:
    """Return what a stranger is told once, with nothing about the owner in it (security-auth-03)."""
    return Outgoing(
        key=f"pairing:{stimulus.key}",
        address=stimulus.place,
        text=(
            f"I only talk to people whom my owner knows. Your id is {stimulus.sender.id}.\n\n"
            f"Your code is {code}. Give it to my owner within an hour, who lets you in with\n\n"
            f"`crayfish pairing approve {code}`"
        ),
        on_unknown=OnUnknown.DROP,
    )


def approve(tx: Connection, code: str, now: float, *, owned: bool, notify: bool) -> Person | None:
    """Let in whoever got this code, and tell them if they are to know; None if nobody got it."""
    person = members.approve(tx, code, now, owned=owned)
    if person is not None and notify:
        outbox.put(tx, [_welcome(person, now)], now)
    return person


def _welcome(person: Person, now: float) -> Outgoing:
    return Outgoing(
        key=f"welcome:{person.channel}:{person.sender}:{now:.3f}",
        address=person.address,
        text="You were let in. Write to me, or send /help.",
    )


def approved(person: Json) -> str:
    """Return what the one who approved is told about a person of `person_json`."""
    who = f"{person['channel']} {_called(person)}"
    if person["level"] == Level.OWNER:
        return f"{who} is let in, as the first one and therefore as the owner."
    return f"{who} is let in."


def revoked(channel: str, sender: str, *, found: bool) -> str:
    """Return what the one who revoked is told."""
    if found:
        return f"{channel} {sender} is no longer let in by pairing."
    return f"Nobody was let in as {channel} {sender}, and nobody asks to be. Look into allow_from, too."


def person_json(person: Person) -> JsonObject:
    """Return a person as plain JSON."""
    return {
        "channel": person.channel,
        "sender": person.sender,
        "name": person.name,
        "level": str(person.level),
    }


def everybody(tx: Connection, now: float) -> JsonObject:
    """Return `requests` and `members` as plain JSON; `minutes` is how long a request is still open."""
    return {
        "requests": [
            {
                "channel": one.channel,
                "sender": one.sender,
                "name": one.name,
                "minutes": math.ceil((one.expires_at - now) / 60),
                "locked": one.locked,
            }
            for one in members.requests(tx, now)
        ],
        "members": [
            {"channel": one.channel, "sender": one.sender, "name": one.name, "level": str(one.level)}
            for one in members.members(tx)
        ],
    }


def listed(body: JsonObject) -> str:
    """Return the text of what `everybody` returned."""
    asking = [f"{one['channel']} {_called(one)}: {_left(one)}" for one in body["requests"]]
    inside = [f"{one['channel']} {_called(one)}: {one['level']}" for one in body["members"]]
    return "\n\n".join([_part("Asking to be let in", asking), _part("Let in by pairing", inside)])


def _part(title: str, lines: Sequence[str]) -> str:
    return "\n".join([f"{title}:", *(lines or ["nobody"])])


def _called(one: Json) -> str:
    return f"{one['sender']} ({one['name']})" if one["name"] else str(one["sender"])


def _left(one: Json) -> str:
    if one["locked"]:
        return "locked after too many wrong codes"
    return f"the code is good for {one['minutes']} min"
