"""Who may talk to the bot, where, and when it answers; pure.

A message passes gates in a fixed order, and the first that stops it names the setting to change (spec 5.6,
14.4). What only the tables know is asked for by the verdicts `AskMember` and `AskThread`.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias, TypeVar

from gateway.config import ChannelAccess, TopicSettings
from gateway.types import Address, Chat, Level, Stimulus

T = TypeVar("T")

ANYBODY = "*"

SEARCHED = 1000
"""Characters at the start of a message in which a mention pattern is looked for."""

DIRECT, PERSON, GROUP, MEMBER, MENTION, COMMAND = (
    *("private chats", "person"),
    *("group", "person in the group", "mention", "command"),
)
"""The gates: two of private chats, three of groups, and the one of commands."""


@dataclass(frozen=True, slots=True)
class Allow:
    """The stimulus comes in; one that does not wake the bot only as context for one that does."""

    level: Level
    wakes: bool = True


@dataclass(frozen=True, slots=True)
class Drop:
    """Nothing happens. `gate` stopped it for this `reason`; `setting` is the key that would let it pass."""

    gate: str
    reason: str
    setting: str


@dataclass(frozen=True, slots=True)
class AskMember:
    """The configuration does not name the sender: the people who were let in decide, see `Policy.known`."""


@dataclass(frozen=True, slots=True)
class AskThread:
    """Not addressed; it still wakes the bot if that has answered in this thread before."""

    level: Level


Settled: TypeAlias = Allow | Drop
Verdict: TypeAlias = Settled | AskMember | AskThread


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What may be set for all groups, for one, or for a topic of it; None is inherited (spec TG-12).

    `enabled` is not: what is switched off stays off for all of its topics.
    """

    enabled: bool = True
    require_mention: bool | None = None
    follow_threads: bool | None = None
    allow_from: tuple[str, ...] | None = None
    topics: Mapping[str, Rules] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """The rules of one channel (spec 5.6, TG-11, TG-12, AC-1, AC-4).

    In private chats `pairing` lets people in by a code, `allowlist` is silent to strangers, `open` admits
    whom `allow_from` lists, which may be everybody ("*"), and `disabled` admits nobody. In groups
    `allowlist` needs the group in `groups`, `open` takes any, `disabled` none; whoever speaks there must be
    listed too: by the topic, the group, `rules` (which hold for every group), or else by `allow_from`.

    An entry of such a list is an id of the shape `id_shape`, bare or behind one of `prefixes`
    (`somewhere:`); `owners` are listed everywhere. `nobody` are ids that the platform uses for itself, so
    that they stand for no person. `shapes` are those of group and topic ids. `section` is where all this
    stands in the configuration.
    """

    section: str = ""
    mode: Literal["pairing", "allowlist", "open", "disabled"] = "pairing"
    allow_from: tuple[str, ...] = ()
    owners: tuple[str, ...] = ()
    group_mode: Literal["allowlist", "open", "disabled"] = "allowlist"
    rules: Rules = Rules()
    groups: Mapping[str, Rules] = field(default_factory=dict)
    mentions: tuple[re.Pattern[str], ...] = ()
    prefixes: tuple[str, ...] = ()
    id_shape: str = r"[1-9][0-9]*"
    shapes: tuple[str, str] = (r"-[1-9][0-9]*", r"[0-9]+")
    nobody: frozenset[str] = frozenset()

    @classmethod
    def of(cls, section: str, settings: ChannelAccess, owners: Iterable[str]) -> Policy:
        """Return the rules of `[section]`; `owners` are those of all platforms, as `platform:id`."""
        platform = section.split(".")[1]
        return cls(
            section=section,
            mode=settings.dm_policy,
            allow_from=settings.allow_from,
            owners=tuple(one.partition(":")[2] for one in owners if one.startswith(f"{platform}:")),
            group_mode=settings.group_policy,
            rules=Rules(
                require_mention=settings.require_mention,
                follow_threads=settings.follow_threads,
                allow_from=settings.group_allow_from,
            ),
            groups={
                name: replace(_rules(one), topics={topic: _rules(each) for topic, each in one.topics.items()})
                for name, one in settings.groups.items()
            },
            mentions=tuple(re.compile(one, re.IGNORECASE) for one in settings.mention_patterns),
            prefixes=settings.id_prefixes,
            id_shape=settings.id_shape,
            shapes=(settings.group_shape, settings.topic_shape),
            nobody=settings.platform_ids,
        )

    def check(self, stimulus: Stimulus, *, command: bool = False) -> Verdict:
        """Judge by the sender's id only: names can be chosen by anybody.

        A command needs no mention, whoever may speak may give it.
        """
        if stimulus.chat is Chat.GROUP:
            return self._in_group(stimulus, command=command)
        return self._in_private(stimulus)

    def known(self, stimulus: Stimulus, role: str | None) -> Settled:
        """Judge a sender whom the configuration does not name by the role that an approval gave."""
        if role is not None:
            return Allow(Level(role), wakes=_speaks(stimulus))
        return self._stranger(stimulus, "was not let in yet")

    def level(self, sender: str) -> Level:
        """Return what the configuration makes of a sender; an approval may make it more."""
        if self._lists(self.owners, sender) or ANYBODY in self.owners:
            return Level.OWNER
        return Level.USER if self._lists(self.allow_from, sender) else Level.GUEST

    def people(self) -> tuple[str, ...]:
        """Return whose bot it is: the owners, else the only person who is listed (spec HB-39)."""
        owners = [one for entry in self.owners for one in _ids((entry,), self.prefixes, self.id_shape)]
        listed = _ids(self.allow_from, self.prefixes, self.id_shape) - self.nobody
        alone = len(listed) == 1 and ANYBODY not in self.allow_from
        return tuple(owners) or (tuple(listed) if alone else ())

    def problems(self) -> list[str]:
        """Return what in these rules can't have been meant, each with its remedy."""
        return [*self._private_problems(), *self._group_problems()]

    def _in_private(self, stimulus: Stimulus) -> Verdict:
        level = self.level(stimulus.sender.id)
        if self.mode == "disabled":
            return Drop(DIRECT, "private chats are switched off", f"{self.section}.dm_policy")
        everybody = self.mode == "open" and ANYBODY in self.allow_from
        if level is not Level.GUEST or everybody:
            return Allow(level, wakes=_speaks(stimulus))
        if self.mode == "pairing":
            return AskMember()
        return self._stranger(stimulus, "is not in allow_from")

    def _stranger(self, stimulus: Stimulus, why: str) -> Drop:
        return Drop(PERSON, f"{stimulus.sender.id} {why}", f"{self.section}.allow_from")

    def _in_group(self, stimulus: Stimulus, *, command: bool) -> Verdict:
        layers = _Layers(self, stimulus.address)
        closed = self._closed(stimulus.address, layers)
        if closed is not None:
            return closed
        sender = stimulus.sender.id
        listed, key = layers.allow_from()
        level = self.level(sender)
        if level is not Level.OWNER:
            level = Level.USER if self._lists(listed, sender) else Level.GUEST
        anybody = ANYBODY in listed or (self.group_mode == "open" and not listed)
        if level is Level.GUEST and not anybody:
            return Drop(MEMBER, f"{sender} is not in {key.rpartition('.')[2]}", key)
        if not _speaks(stimulus):
            return Allow(level, wakes=False)
        if command or not layers.require_mention()[0] or self._mentioned(stimulus):
            return Allow(level)
        if stimulus.address.thread and layers.follow_threads()[0]:
            return AskThread(level)
        return Allow(level, wakes=False)

    def _closed(self, address: Address, layers: _Layers) -> Drop | None:
        """Return what closes a group or a topic."""
        if self.group_mode == "disabled":
            return Drop(GROUP, "groups are switched off", f"{self.section}.group_policy")
        if self.group_mode == "allowlist" and not {address.chat, ANYBODY} & self.groups.keys():
            return Drop(
                GROUP, f"group {address.chat} is not listed", f'{self.section}.groups."{address.chat}"'
            )
        key = layers.closed_by()
        return Drop(GROUP, "this group or topic is switched off", key) if key else None

    def needs_mention(self, address: Address) -> str:
        """Return the key by which a message at this address needs a mention."""
        return _Layers(self, address).require_mention()[1]

    def _mentioned(self, stimulus: Stimulus) -> bool:
        return stimulus.aimed or any(one.search(stimulus.text, 0, SEARCHED) for one in self.mentions)

    def _lists(self, entries: tuple[str, ...], sender: str) -> bool:
        return sender in _ids(entries, self.prefixes, self.id_shape) and sender not in self.nobody

    def _private_problems(self) -> Iterator[str]:
        if self.mode == "allowlist" and not self.allow_from:
            yield 'dm_policy "allowlist" with an empty allow_from admits nobody. Add the ids of people.'
        if self.mode == "open" and ANYBODY not in self.allow_from:
            yield 'dm_policy "open" admits only the ids in allow_from. Add "*" to admit everybody.'
        if self.mode != "open" and ANYBODY in self.allow_from:
            yield f'"*" in allow_from needs dm_policy "open", and it is "{self.mode}". Change one of the two.'
        yield from self._list_problems(self.allow_from, "allow_from")
        yield from self._list_problems(self.owners, "[access] owners")

    def _group_problems(self) -> Iterator[str]:
        yield from self._list_problems(self.rules.allow_from or (), "group_allow_from")
        if self.group_mode == "disabled" and self.groups:
            yield 'group_policy is "disabled", so nothing under groups counts. Set it to "allowlist".'
        for name, group in self.groups.items():
            if name != ANYBODY and not re.fullmatch(self.shapes[0], name):
                yield f'groups."{name}" matches no group: {_not_a_group(name)}'
            yield from self._list_problems(group.allow_from or (), f'groups."{name}".allow_from')
            yield from self._topic_problems(name, group)
        if self.group_mode == "allowlist" and self.groups:
            yield from self._silent_groups()

    def _topic_problems(self, name: str, group: Rules) -> Iterator[str]:
        for topic, rules in group.topics.items():
            where = f'groups."{name}".topics."{topic}"'
            if topic != ANYBODY and not re.fullmatch(self.shapes[1], topic):
                yield f"{where} matches no topic: its name must be the id of a topic, or *."
            yield from self._list_problems(rules.allow_from or (), f"{where}.allow_from")

    def _silent_groups(self) -> Iterator[str]:
        """Name the groups that are listed, in which nobody may speak."""
        for name in self.groups:
            listed, key = _Layers(self, Address("", name)).allow_from()
            if not (listed or self.owners or self.groups[name].topics):
                yield (
                    f'groups."{name}" is listed, but nobody may speak there. Add ids of people (or "*" for '
                    f"all of its members) to {key.rpartition('.')[2]} or to the group's own allow_from."
                )

    def _list_problems(self, entries: Iterable[str], name: str) -> Iterator[str]:
        for entry in entries:
            ids = _ids((entry,), self.prefixes, self.id_shape)
            if entry != ANYBODY and not ids:
                yield f'"{entry}" in {name} matches nobody: {_mistake(entry)}'
            elif ids & self.nobody:
                yield f'"{entry}" in {name} matches nobody: it is an id of the platform itself.'


EVERYBODY = Policy(mode="open", allow_from=(ANYBODY,), owners=(ANYBODY,))
"""For channels that have their own lock, like a page on the loopback address: whoever opens it owns it."""


@dataclass(frozen=True, slots=True)
class _Layers:
    """The rules that hold at an address; each question is answered by the most specific that says something.

    An exact name goes before "*", and a topic before its group. Answers come with the key that gave them.
    """

    policy: Policy
    address: Address

    def closed_by(self) -> str:
        """Return the key that switches this place off, "" if none does."""
        for name in (self.address.chat, ANYBODY):
            group = self.policy.groups.get(name)
            if group is not None:
                found = ((key, one) for key, one in self._of(name, group) if not one.enabled)
                return next((f"{key}.enabled" for key, _ in found), "")
        return ""

    def require_mention(self) -> tuple[bool, str]:
        return self._first("require_mention", ((key, one.require_mention) for key, one in self._all()), True)

    def follow_threads(self) -> tuple[bool, str]:
        return self._first("follow_threads", ((key, one.follow_threads) for key, one in self._all()), False)

    def allow_from(self) -> tuple[tuple[str, ...], str]:
        own = self.policy.rules.allow_from or self.policy.allow_from
        named = self._first("allow_from", ((key, one.allow_from) for key, one in self._named()), None)
        return (own, f"{self.policy.section}.group_allow_from") if named[0] is None else (named[0], named[1])

    def _first(self, name: str, found: Iterable[tuple[str, T | None]], default: T) -> tuple[T, str]:
        for key, value in found:
            if value is not None:
                return value, f"{key}.{name}"
        return default, f"{self.policy.section}.{name}"

    def _all(self) -> Iterator[tuple[str, Rules]]:
        yield from self._named()
        yield self.policy.section, self.policy.rules

    def _named(self) -> Iterator[tuple[str, Rules]]:
        for name in (self.address.chat, ANYBODY):
            group = self.policy.groups.get(name)
            if group is not None:
                yield from self._of(name, group)

    def _of(self, name: str, group: Rules) -> Iterator[tuple[str, Rules]]:
        key = f'{self.policy.section}.groups."{name}"'
        for topic in (self.address.thread, ANYBODY):
            if topic in group.topics:
                yield f'{key}.topics."{topic}"', group.topics[topic]
        yield key, group


def _rules(settings: TopicSettings) -> Rules:
    return Rules(
        enabled=settings.enabled,
        require_mention=settings.require_mention,
        follow_threads=settings.follow_threads,
        allow_from=settings.allow_from,
    )


@functools.lru_cache(maxsize=256)
def _ids(entries: tuple[str, ...], prefixes: tuple[str, ...], shape: str) -> frozenset[str]:
    """Return the ids that a list admits."""
    bare = (_without_prefix(entry.strip(), prefixes) for entry in entries)
    return frozenset(one for one in bare if re.fullmatch(shape, one))


def _speaks(stimulus: Stimulus) -> bool:
    """Return whether it wants something of the bot, as a reaction does not."""
    return stimulus.aimed or not stimulus.gesture


def _without_prefix(entry: str, prefixes: tuple[str, ...]) -> str:
    prefix = next((prefix for prefix in prefixes if entry.lower().startswith(prefix)), "")
    return entry[len(prefix) :].strip()


def _mistake(entry: str) -> str:
    bare = entry.rpartition(":")[2].strip()
    if re.fullmatch(r"-[0-9]+", bare):
        return (
            "it is the id of a group. List ids of people here; the group belongs into a table of its own, "
            f'[channels.….groups."{bare}"].'
        )
    if not bare.isascii() or not bare.isdigit():
        return (
            "it is not an id. Names can be taken over; whoever writes to the bot is told the id to put here."
        )
    return "it is not an id of a person on this channel."


def _not_a_group(name: str) -> str:
    if re.fullmatch(r"[1-9][0-9]*", name):
        return "it is the id of a person. Ids of people belong into allow_from."
    return "its name must be the id of a group, which /whoami tells in the group, or *."
