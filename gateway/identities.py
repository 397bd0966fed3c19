"""People who write on several channels, and the one session that their private chats share; pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from gateway.types import PERSON, Address, Chat, Stimulus


@dataclass(frozen=True, slots=True)
class Identities:
    """Knows people by what their channels call them: `people` maps `channel:id` to a name."""

    people: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, settings: Mapping[str, Sequence[str]]) -> Identities:
        """Return those of `[identities]`."""
        return cls({entry: person for person, entries in settings.items() for entry in entries})

    def shared(self, stimulus: Stimulus) -> Stimulus:
        """Return a message of a linked person as one of their session, every other as it is (agent 3.10).

        Its answer still goes to the chat that it came from (case routing-03). Groups are never shared.
        """
        if not self.people or stimulus.chat is not Chat.DIRECT:
            return stimulus
        place = stimulus.address
        person = self.people.get(f"{place.channel}:{stimulus.sender.id}")
        if person is None:
            return stimulus
        return replace(stimulus, address=Address(PERSON, person), deliver_to=place.key)
