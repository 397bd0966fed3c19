"""Why a message was answered or not, in words: each gate it passed, and the one that stopped it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime

from gateway.access import DIRECT, GROUP, MEMBER, MENTION, PERSON, Policy
from gateway.store.fates import Fate, Stop
from gateway.types import Chat, Json, JsonObject

PASSED, STOPPED, WAITS = "passed", "stopped", "waits"

_GATES = {Chat.DIRECT: (DIRECT, PERSON), Chat.GROUP: (GROUP, MEMBER, MENTION)}
_SAYS = {
    DIRECT: "private chats are on",
    PERSON: "the sender may write to the bot",
    GROUP: "the bot may speak in this group",
    MEMBER: "the sender may talk to the bot in this group",
    MENTION: "the message is for the bot",
}


def explain(found: Stop | Fate, policies: Mapping[str, Policy]) -> JsonObject:
    """Return `chat`, `message`, `sender`, `name`, `at` (UNIX seconds), `steps` and `advice`.

    Each step has `gate`, `state` (`passed`, `stopped` or `waits`) and `text`.
    """
    steps, advice = _stopped(found) if isinstance(found, Stop) else _let_in(found, policies)
    return {
        "chat": found.address.shown,
        "message": found.message_id,
        "sender": found.sender.id,
        "name": found.sender.name,
        "at": found.at,
        "steps": [{"gate": gate, "state": state, "text": text} for gate, state, text in steps],
        "advice": advice,
    }


Steps = list[tuple[str, str, str]]


def _stopped(found: Stop) -> tuple[Steps, str]:
    order = next((gates for gates in _GATES.values() if found.gate in gates), (PERSON, found.gate))
    before = order[: order.index(found.gate)]
    steps = [(gate, PASSED, _SAYS[gate]) for gate in before]
    return [*steps, (found.gate, STOPPED, found.reason)], _advice(found)


def _advice(found: Stop) -> str:
    setting, sender = found.setting, found.sender.id
    match found.gate:
        case "person":
            return f'Add "{sender}" to {setting} and restart, or let them in: crayfish pairing list'
        case "person in the group":
            return f'Add "{sender}", or "*" for everybody in the group, to {setting} and restart.'
        case "group" if setting.endswith('"'):
            return f"Add the table [{setting}] to the configuration and restart."
        case "command":
            return f"Such a command obeys only who is named in {setting}."
        case _:
            return f"Change {setting} in the configuration and restart."


def _let_in(found: Fate, policies: Mapping[str, Policy]) -> tuple[Steps, str]:
    gates = _GATES[found.chat]
    if not found.wakes and MENTION in gates:
        steps = [(gate, PASSED, _SAYS[gate]) for gate in gates if gate != MENTION]
        kept = "the bot was not addressed, so the message is only context for the next one that is for it"
        policy = policies.get(found.address.channel)
        key = policy.needs_mention(found.address) if policy else "require_mention"
        advice = f"Mention the bot or reply to it, or set {key} = false and restart."
        return [*steps, (MENTION, STOPPED, kept)], advice
    steps = [(gate, PASSED, _SAYS[gate]) for gate in gates]
    return [*steps, *_onward(found)], ""


def _onward(found: Fate) -> Iterator[tuple[str, str, str]]:
    """Yield what happened behind the gates."""
    if found.waits:
        yield "queue", WAITS, f"it waits for {found.waits}"
    elif found.command:
        yield "command", PASSED, "it was a command and was carried out at once"
        yield from _delivery(found)
    elif not found.turn:
        yield "queue", STOPPED, "it was cleared by /stop or /new before its turn came"
    else:
        yield "queue", PASSED, f"turn {found.turn} took it in"
        if not found.answered:
            yield "turn", WAITS, "the turn is not over yet"
        else:
            yield "turn", PASSED, "the turn is over"
            yield from _delivery(found)


def _delivery(found: Fate) -> Iterator[tuple[str, str, str]]:
    failed = [(state, problem) for state, problem in found.deliveries if state in ("dead", "unknown")]
    if not found.deliveries:
        yield "reply", STOPPED, "the bot chose to say nothing"
    elif failed:
        state, problem = failed[0]
        fate = "could not be delivered" if state == "dead" else "may not have arrived"
        yield "reply", STOPPED, f"the reply {fate}: {problem or 'no reason was given'}"
    elif all(state == "sent" for state, _ in found.deliveries):
        yield "reply", PASSED, "the reply was delivered"
    else:
        yield "reply", WAITS, "the reply is on its way"


def as_text(body: Json, chat: str, message: str) -> str:
    """Return what `explain` returned as text; None is for a message of which nothing is known."""
    if body is None:
        what = f"message {message} of chat {chat}" if message else f"any message of chat {chat}"
        return (
            f"Nothing is known of {what}. Either the platform never handed it over (a bot may have to be an "
            "admin, or be mentioned, to see what is said in a group), or it was long ago, or the chat is "
            "called otherwise: /whoami tells its id."
        )
    at = datetime.fromtimestamp(body["at"], UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    who = f"{body['sender']} ({body['name']})" if body["name"] else body["sender"]
    which = f"Message {body['message']}" if body["message"] else "The newest message"
    width = max(len(step["gate"]) for step in body["steps"])
    lines = [f"{which} of {body['chat']}, from {who}, at {at}:"]
    lines += [f"  {step['state']:<7}  {step['gate']:<{width}}  {step['text']}" for step in body["steps"]]
    return "\n".join([*lines, *([f"-> {body['advice']}"] if body["advice"] else [])])
