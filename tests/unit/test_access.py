"""Who may talk, where, and when the bot answers, decided from values."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway import config
from gateway.access import (
    EVERYBODY,
    GROUP,
    MEMBER,
    PERSON,
    Allow,
    AskMember,
    AskThread,
    Drop,
    Policy,
    Rules,
    Verdict,
)
from gateway.errors import ConfigError
from gateway.patterns import problem_of
from gateway.types import Address, Chat, Level, Sender, Stimulus

PREFIXES = ("here:", "h:")
HERE = "-100200"


def message(sender: str = "42", *, name: str = "") -> Stimulus:
    return Stimulus(
        key="k", address=Address("here", sender), sender=Sender(sender, name), text="hello", at=0.0
    )


def in_group(
    sender: str = "42", *, chat: str = HERE, thread: str = "", aimed: bool = True, text: str = "hello"
) -> Stimulus:
    return Stimulus(
        key="k",
        address=Address("here", chat, thread),
        sender=Sender(sender),
        text=text,
        at=0.0,
        chat=Chat.GROUP,
        aimed=aimed,
    )


def gate(verdict: Verdict) -> tuple[str, str]:
    """Return the gate that stopped it and the setting that would open it."""
    assert isinstance(verdict, Drop), verdict
    return verdict.gate, verdict.setting


class TestPrivateChats:
    @pytest.mark.parametrize(
        ("mode", "allow_from", "listed", "stranger"),
        [
            ("pairing", ("42",), Allow(Level.USER), AskMember()),
            ("allowlist", ("42",), Allow(Level.USER), PERSON),
            ("open", ("42",), Allow(Level.USER), PERSON),
            ("open", ("42", "*"), Allow(Level.USER), Allow(Level.GUEST)),
            ("disabled", ("42", "*"), "private chats", "private chats"),
        ],
    )
    def test_each_policy_lets_in_whom_it_says(
        self, mode: str, allow_from: tuple[str, ...], listed: object, stranger: object
    ) -> None:
        policy = Policy(mode=mode, allow_from=allow_from)  # type: ignore[arg-type]  # one of the four
        for sender, expected in (("42", listed), ("666", stranger)):
            verdict = policy.check(message(sender))
            assert (verdict.gate if isinstance(verdict, Drop) else verdict) == expected

    @pytest.mark.parametrize("mode", ["pairing", "allowlist"])
    def test_the_star_admits_nobody_in_other_modes_and_is_reported(self, mode: str) -> None:
        policy = Policy(mode="pairing" if mode == "pairing" else "allowlist", allow_from=("*",))
        assert not isinstance(policy.check(message()), Allow)
        assert any('"*"' in problem and '"open"' in problem for problem in policy.problems())

    def test_the_setting_that_would_let_one_in_is_named(self) -> None:
        policy = Policy(section="channels.here", mode="allowlist", allow_from=("7",))
        assert gate(policy.check(message())) == (PERSON, "channels.here.allow_from")
        closed = replace(policy, mode="disabled")
        assert gate(closed.check(message())) == ("private chats", "channels.here.dm_policy")

    def test_an_approval_counts_where_pairing_is_the_policy(self) -> None:
        policy = Policy(section="channels.here")
        assert policy.known(message(), "user") == Allow(Level.USER)
        assert policy.known(message(), "owner") == Allow(Level.OWNER)
        assert gate(policy.known(message(), None)) == (PERSON, "channels.here.allow_from")

    @pytest.mark.parametrize(
        ("mode", "allow"),
        [
            pytest.param("allowlist", ("1",), id="security-auth-02"),
            pytest.param("open", ("1",), id="an approval does not widen open"),
        ],
    )
    def test_where_it_is_not_the_policy_nobody_asks_for_approvals(
        self, mode: str, allow: tuple[str, ...]
    ) -> None:
        policy = Policy(mode="open" if mode == "open" else "allowlist", allow_from=allow)
        assert isinstance(policy.check(message("2")), Drop)

    def test_a_channel_with_its_own_lock_belongs_to_whoever_opens_it(self) -> None:
        assert EVERYBODY.check(message("console")) == Allow(Level.OWNER)
        assert EVERYBODY.problems() == []


class TestIds:
    @pytest.mark.parametrize("entry", ["42", " 42 ", "here:42", "h:42", "HERE:42", "h: 42"])
    def test_an_id_may_stand_behind_a_prefix(self, entry: str) -> None:
        policy = Policy(allow_from=(entry,), prefixes=PREFIXES)
        assert policy.check(message()) == Allow(Level.USER)
        assert policy.problems() == []

    @pytest.mark.parametrize(
        ("entry", "remedy"),
        [
            ("@mallory", "is not an id"),
            ("mallory", "is not an id"),
            ("h:@mallory", "is not an id"),
            ("-1001234567890", 'groups."-1001234567890"'),
            ("h:-5", 'groups."-5"'),
            ("٤٢", "is not an id"),
            ("", "is not an id"),
            ("042", "not an id of a person"),
            ("elsewhere:42", "not an id of a person"),
        ],
    )
    def test_an_entry_that_matches_nobody_is_reported_with_a_remedy(self, entry: str, remedy: str) -> None:
        policy = Policy(allow_from=(entry,), prefixes=PREFIXES)
        (problem,) = policy.problems()
        assert problem.startswith(f'"{entry}" in allow_from matches nobody')
        assert remedy in problem
        assert not isinstance(policy.check(message(entry)), Allow)

    @pytest.mark.parametrize(
        ("allowed", "sender"),
        [
            pytest.param("@mallory", Sender("42", "mallory"), id="a name that looks like an entry"),
            pytest.param("111", Sender("222", "Owner"), id="security-auth-01"),
            pytest.param("111", Sender("333", "111"), id="security-auth-05"),
            pytest.param("111", Sender("112", "the owner's old name"), id="access-009"),
            pytest.param("111", Sender("333", "own\u200ber"), id="text-006"),
            pytest.param("111", Sender("334", "оwner"), id="text-007"),
        ],
    )
    def test_a_name_never_admits(self, allowed: str, sender: Sender) -> None:
        policy = Policy(mode="allowlist", allow_from=(allowed,), owners=(allowed,), prefixes=PREFIXES)
        assert isinstance(policy.check(replace(message(), sender=sender)), Drop)
        assert policy.level(sender.id) is Level.GUEST

    def test_access_018_an_id_of_another_team_is_another_id(self) -> None:
        policy = Policy(mode="allowlist", allow_from=("T1-U7",), id_shape=r"T\w+-[UW]\w+")
        assert policy.check(message("T1-U7")) == Allow(Level.USER)
        assert isinstance(policy.check(message("T2-U7")), Drop)

    def test_access_010_who_forwards_is_the_sender(self) -> None:
        forward = replace(message("666"), quote="Owner: do it", text="[forwarded message]")
        assert isinstance(Policy(mode="allowlist", allow_from=("42",)).check(forward), Drop)

    def test_an_owner_is_let_in_and_known_as_one(self) -> None:
        policy = Policy(mode="allowlist", owners=("42",))
        assert policy.check(message()) == Allow(Level.OWNER)
        assert policy.level("42") is Level.OWNER
        assert Policy(allow_from=("42",)).level("42") is Level.USER
        assert Policy().level("42") is Level.GUEST

    def test_access_012_an_id_of_the_platform_is_never_anybody(self) -> None:
        policy = Policy(
            mode="allowlist", allow_from=("777000",), owners=("777000",), nobody=frozenset({"777000"})
        )
        assert isinstance(policy.check(message("777000")), Drop)
        assert policy.level("777000") is Level.GUEST
        assert all("of the platform itself" in problem for problem in policy.problems())
        assert len(policy.problems()) == 2


OPEN = Policy(section="channels.here", group_mode="open")
LISTED = Policy(
    section="channels.here", rules=Rules(allow_from=("42",)), groups={HERE: Rules()}, owners=("1",)
)


class TestGroups:
    @pytest.mark.parametrize(
        ("policy", "stimulus", "expected"),
        [
            pytest.param(replace(LISTED, group_mode="disabled"), in_group(), (GROUP, "channels.here.group_policy"), id="groups are off"),
            pytest.param(LISTED, in_group(chat="-5"), (GROUP, 'channels.here.groups."-5"'), id="access-019 an unlisted group"),
            pytest.param(Policy(section="channels.here", allow_from=("42",)), in_group(), (GROUP, f'channels.here.groups."{HERE}"'), id="access-007 a right to private chats is none to groups"),
            pytest.param(replace(LISTED, groups={HERE: Rules(enabled=False)}), in_group(), (GROUP, f'channels.here.groups."{HERE}".enabled'), id="the group is off"),
            pytest.param(replace(LISTED, groups={HERE: Rules(topics={"5": Rules(enabled=False)})}), in_group(thread="5"), (GROUP, f'channels.here.groups."{HERE}".topics."5".enabled'), id="the topic is off"),
            pytest.param(replace(LISTED, groups={HERE: Rules(enabled=False, topics={"5": Rules()})}), in_group(thread="5"), (GROUP, f'channels.here.groups."{HERE}".enabled'), id="a topic of a group that is off"),
            pytest.param(LISTED, in_group("666"), (MEMBER, "channels.here.group_allow_from"), id="an unlisted person"),
            pytest.param(replace(LISTED, groups={HERE: Rules(allow_from=("7",))}), in_group(), (MEMBER, f'channels.here.groups."{HERE}".allow_from'), id="the group has its own people"),
            pytest.param(replace(LISTED, groups={HERE: Rules(allow_from=())}), in_group(), (MEMBER, f'channels.here.groups."{HERE}".allow_from'), id="an empty list of its own"),
            pytest.param(replace(LISTED, groups={HERE: Rules(topics={"*": Rules(allow_from=("7",))})}), in_group(thread="9"), (MEMBER, f'channels.here.groups."{HERE}".topics."*".allow_from'), id="all topics have their own people"),
            pytest.param(Policy(section="channels.here", groups={HERE: Rules()}), in_group(), (MEMBER, "channels.here.group_allow_from"), id="nobody is listed at all"),
        ],
    )  # fmt: skip
    def test_what_stops_a_message_is_named(
        self, policy: Policy, stimulus: Stimulus, expected: tuple[str, str]
    ) -> None:
        assert gate(policy.check(stimulus)) == expected

    @pytest.mark.parametrize(
        ("policy", "sender", "level"),
        [
            pytest.param(LISTED, "42", Level.USER, id="listed for all groups"),
            pytest.param(LISTED, "1", Level.OWNER, id="an owner needs no list"),
            pytest.param(OPEN, "42", Level.GUEST, id="open and nobody is listed"),
            pytest.param(replace(OPEN, rules=Rules(allow_from=("42",))), "42", Level.USER, id="open and listed"),
            pytest.param(replace(LISTED, rules=Rules(allow_from=("*",))), "42", Level.GUEST, id="everybody"),
            pytest.param(Policy(allow_from=("42",), groups={HERE: Rules()}), "42", Level.USER, id="listed for private chats"),
            pytest.param(replace(LISTED, groups={"*": Rules()}), "42", Level.USER, id="any group"),
            pytest.param(replace(LISTED, groups={"*": Rules(enabled=False), HERE: Rules()}), "42", Level.USER, id="this one is on, the others are off"),
            pytest.param(replace(LISTED, groups={"*": Rules(allow_from=("7",)), HERE: Rules(allow_from=("42",))}), "42", Level.USER, id="exact beats star"),
        ],
    )  # fmt: skip
    def test_who_is_listed_may_speak(self, policy: Policy, sender: str, level: Level) -> None:
        assert policy.check(in_group(sender)) == Allow(level)

    def test_open_with_a_list_is_open_to_the_list_only(self) -> None:
        policy = replace(OPEN, rules=Rules(allow_from=("42",)))
        assert gate(policy.check(in_group("666"))) == (MEMBER, "channels.here.group_allow_from")

    def test_private_policies_say_nothing_about_groups(self) -> None:
        for mode in ("pairing", "allowlist", "open", "disabled"):
            policy = replace(LISTED, mode=mode)
            assert policy.check(in_group()) == Allow(Level.USER)
            assert isinstance(policy.check(in_group("666")), Drop)

    def test_an_anonymous_admin_is_no_person(self) -> None:
        policy = replace(LISTED, rules=Rules(allow_from=(HERE,)))
        assert isinstance(policy.check(in_group(HERE)), Drop)
        assert policy.problems() != []


class TestMentions:
    def test_what_is_not_said_to_the_bot_is_only_context(self) -> None:
        assert LISTED.check(in_group(aimed=False)) == Allow(Level.USER, wakes=False)
        assert LISTED.check(in_group(aimed=True)) == Allow(Level.USER)

    def test_a_command_needs_no_mention_but_a_right(self) -> None:
        assert LISTED.check(in_group(aimed=False), command=True) == Allow(Level.USER)
        assert isinstance(LISTED.check(in_group("666"), command=True), Drop)

    @pytest.mark.parametrize(
        ("rules", "groups", "thread", "wakes"),
        [
            (Rules(), {HERE: Rules()}, "", False),
            (Rules(require_mention=False), {HERE: Rules()}, "", True),
            (Rules(), {HERE: Rules(require_mention=False)}, "", True),
            (Rules(require_mention=False), {HERE: Rules(require_mention=True)}, "", False),
            (Rules(), {"*": Rules(require_mention=False)}, "", True),
            (Rules(), {"*": Rules(require_mention=False), HERE: Rules(require_mention=True)}, "", False),
            (Rules(), {"*": Rules(require_mention=False), HERE: Rules()}, "", True),
            (Rules(), {HERE: Rules(topics={"5": Rules(require_mention=False)})}, "5", True),
            (Rules(), {HERE: Rules(topics={"5": Rules(require_mention=False)})}, "6", False),
            (Rules(), {HERE: Rules(topics={"*": Rules(require_mention=False)})}, "6", True),
            (Rules(), {HERE: Rules(require_mention=False, topics={"5": Rules(require_mention=True)})}, "5", False),
            (Rules(), {HERE: Rules(topics={"*": Rules(require_mention=False), "5": Rules(require_mention=True)})}, "5", False),
        ],
    )  # fmt: skip
    def test_the_most_specific_word_counts(
        self, rules: Rules, groups: Mapping[str, Rules], thread: str, wakes: bool
    ) -> None:
        policy = replace(LISTED, rules=replace(rules, allow_from=("42",)), groups=groups)
        assert policy.check(in_group(thread=thread, aimed=False)) == Allow(Level.USER, wakes=wakes)

    @pytest.mark.parametrize(
        ("pattern", "text", "wakes"),
        [
            (r"\bcrab\b", "hey Crab, are you there?", True),
            (r"\bcrab\b", "crabs are nice", False),
            (r"crab", "x" * 999 + " crab", False),
            (r"^crab", "hey crab", False),
        ],
    )
    def test_a_pattern_is_a_mention_whatever_its_case(self, pattern: str, text: str, wakes: bool) -> None:
        policy = replace(LISTED, mentions=(re.compile(pattern, re.IGNORECASE),))
        assert policy.check(in_group(aimed=False, text=text)) == Allow(Level.USER, wakes=wakes)

    def test_a_thread_of_the_bot_is_asked_for_only_where_that_is_set(self) -> None:
        follows = replace(LISTED, rules=Rules(allow_from=("42",), follow_threads=True))
        assert follows.check(in_group(thread="5", aimed=False)) == AskThread(Level.USER)
        assert follows.check(in_group(thread="5")) == Allow(Level.USER)
        assert follows.check(in_group(aimed=False)) == Allow(Level.USER, wakes=False)
        assert LISTED.check(in_group(thread="5", aimed=False)) == Allow(Level.USER, wakes=False)

    def test_a_reaction_never_wakes_the_bot(self) -> None:
        always = replace(LISTED, rules=Rules(allow_from=("42",), require_mention=False))
        reaction = replace(in_group(aimed=False), gesture=True)
        assert always.check(reaction) == Allow(Level.USER, wakes=False)
        private = replace(message(), gesture=True, aimed=False)
        assert Policy(allow_from=("42",)).check(private) == Allow(Level.USER, wakes=False)

    def test_a_pressed_button_does(self) -> None:
        assert LISTED.check(replace(in_group(), gesture=True)) == Allow(Level.USER)

    def test_the_key_that_asks_for_a_mention_is_known(self) -> None:
        policy = replace(LISTED, groups={"*": Rules(require_mention=True)})
        assert policy.needs_mention(Address("here", HERE)) == 'channels.here.groups."*".require_mention'
        assert LISTED.needs_mention(Address("here", HERE)) == "channels.here.require_mention"


class TestProblems:
    @pytest.mark.parametrize(
        ("policy", "text"),
        [
            (Policy(mode="allowlist"), "Add the ids of people"),
            (Policy(mode="open", allow_from=("7",)), 'Add "*"'),
            (Policy(rules=Rules(allow_from=("@ada",))), '"@ada" in group_allow_from matches nobody: it is not an id'),
            (Policy(rules=Rules(allow_from=("-100",))), 'groups."-100"'),
            (Policy(owners=("@ada",)), '"@ada" in [access] owners matches nobody'),
            (Policy(group_mode="disabled", groups={HERE: Rules()}), 'group_policy is "disabled"'),
            (Policy(group_mode="open", groups={"42": Rules()}), "it is the id of a person"),
            (Policy(group_mode="open", groups={"@crabs": Rules()}), "/whoami tells"),
            (Policy(group_mode="open", groups={HERE: Rules(topics={"news": Rules()})}), 'topics."news" matches no topic'),
            (Policy(group_mode="open", groups={HERE: Rules(topics={"5": Rules(allow_from=("x",))})}), f'groups."{HERE}".topics."5".allow_from matches nobody'),
            (Policy(groups={HERE: Rules()}), f'groups."{HERE}" is listed, but nobody may speak there'),
        ],
    )  # fmt: skip
    def test_what_can_not_be_meant_is_told_with_its_remedy(self, policy: Policy, text: str) -> None:
        (problem,) = policy.problems()
        assert text in problem

    @pytest.mark.parametrize(
        "policy",
        [
            Policy(),
            LISTED,
            OPEN,
            Policy(mode="open", allow_from=("*",)),
            Policy(groups={HERE: Rules()}, owners=("1",)),
            Policy(groups={"*": Rules(allow_from=("*",), topics={"*": Rules(), "5": Rules()})}),
        ],
    )
    def test_what_can_be_meant_is_fine(self, policy: Policy) -> None:
        assert policy.problems() == []


class TestPatterns:
    @pytest.mark.parametrize(
        "pattern",
        [r"\bcrab\b", r"hey\s+crab", r"@?cray(fish)?", "(crab|cray)", r"(?:a{2})+", r"crab\s{0,9}bot"],
    )
    def test_ordinary_ones_are_taken(self, pattern: str) -> None:
        assert problem_of(pattern) == ""

    @pytest.mark.parametrize(
        ("pattern", "problem"),
        [
            ("(", "is no regular expression"),
            ("crab[", "is no regular expression"),
            (r"(a+)+", "repeats a repetition"),
            (r"(\w+\s)*crab", "repeats a repetition"),
            (r"(a{1,3}){2}", "repeats a repetition"),
            (r"(ab|ba)+", "repeats a repetition"),
            (r"((a|b+)c?)*d", "repeats a repetition"),
            (r".*.*=", "can take too long"),
            (r"a*", "matches an empty text"),
            ("", "matches an empty text"),
            ("x" * 201, "is longer than 200"),
            ("(" * 100 + "a" + ")" * 99, "is no regular expression"),
        ],
    )
    def test_what_is_broken_or_could_take_for_ever_is_refused(self, pattern: str, problem: str) -> None:
        assert problem in problem_of(pattern)

    @given(st.text(st.sampled_from("ab*+?{}()[]|\\.1,^$")))
    def test_any_text_can_be_looked_at(self, pattern: str) -> None:
        if not problem_of(pattern):
            re.compile(pattern)


class TestConfiguration:
    def settings(self, text: str) -> config.Settings:
        return config.parse(text, {}, Path("/nowhere"))

    def test_the_policy_is_what_the_file_says(self) -> None:
        settings = self.settings(f"""
            [access]
            owners = ["telegram:1", "other:2"]
            [channels.telegram]
            allow_from = [42]
            group_allow_from = [43]
            mention_patterns = ['\\bcrab\\b']
            follow_threads = true
            [channels.telegram.groups."{HERE}"]
            require_mention = false
            allow_from = ["tg:44"]
            topics."5".enabled = false
        """)
        policy = Policy.of("channels.telegram", settings.channels.telegram, settings.access.owners)
        assert policy.owners == ("1",)
        assert policy.check(in_group("44", aimed=False)) == Allow(Level.USER)
        assert gate(policy.check(in_group("43"))) == (MEMBER, f'channels.telegram.groups."{HERE}".allow_from')
        assert gate(policy.check(in_group("44", thread="5")))[0] == GROUP
        assert policy.check(in_group("1")) == Allow(Level.OWNER)
        assert policy.problems() == []
        assert f"[channels.telegram.groups.{HERE}.topics.5]\nenabled = false" in config.shown(settings)

    def test_ids_of_the_platform_are_known(self) -> None:
        telegram = self.settings('[channels.telegram]\ngroup_policy = "open"').channels.telegram
        policy = Policy.of("channels.telegram", telegram, ["telegram:777000"])
        assert policy.check(in_group("777000")) == Allow(Level.GUEST)

    @pytest.mark.parametrize(
        ("text", "problem"),
        [
            ('[access]\nowners = ["123"]', 'must name channel and person, such as "telegram:123456789"'),
            ('[access]\nowners = ["telegram:*"]', "must name channel and person"),
            ('[channels.telegram]\ngroup_policy = "some"', "must be 'allowlist', 'open' or 'disabled'"),
            ('[channels.telegram]\nmention_patterns = ["(a+)+"]', "repeats a repetition"),
            ('[channels.telegram]\nmention_patterns = ["("]', "is no regular expression"),
            ('[channels.telegram.groups."-1"]\nrequire_mentions = 1', "did you mean channels.telegram.groups.-1.require_mention?"),
            ('[channels.telegram.groups."-1"]\nallow_from = 42', 'must be a list, such as [42, "*"]'),
        ],
    )  # fmt: skip
    def test_a_mistake_is_told_when_the_file_is_read(self, text: str, problem: str) -> None:
        with pytest.raises(ConfigError) as caught:
            self.settings(text)
        assert problem in str(caught.value)
