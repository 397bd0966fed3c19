"""Who may talk, decided from values."""

from __future__ import annotations

import pytest

from gateway.access import EVERYBODY, Allow, Ignore, Policy, Refuse
from gateway.types import Address, Chat, Sender, Stimulus

PREFIXES = ("here:", "h:")


def message(sender: str = "42", *, name: str = "", chat: Chat = Chat.DIRECT) -> Stimulus:
    return Stimulus(
        key="k", address=Address("here", sender), sender=Sender(sender, name), text="hello", at=0.0, chat=chat
    )


def test_a_listed_person_is_allowed_in_every_mode_but_disabled() -> None:
    for mode in ("pairing", "allowlist", "open"):
        assert Policy(mode=mode, allow_from=("42",)).check(message()) == Allow()
    assert isinstance(Policy(mode="disabled", allow_from=("42", "*")).check(message()), Ignore)


def test_by_default_a_stranger_is_told_the_own_id_and_the_remedy() -> None:
    verdict = Policy(prefixes=PREFIXES).check(message("1234567890123"))
    assert isinstance(verdict, Refuse)
    assert "Your id is 1234567890123." in verdict.text
    assert '[channels.here]\nallow_from = ["1234567890123"]' in verdict.text


def test_an_allowlist_is_silent_to_strangers() -> None:
    assert isinstance(Policy(mode="allowlist", allow_from=("7",)).check(message()), Ignore)


def test_open_without_the_star_admits_only_listed_ids() -> None:
    policy = Policy(mode="open", allow_from=("7",))
    assert policy.check(message("7")) == Allow()
    assert isinstance(policy.check(message("8")), Ignore)


def test_open_with_the_star_admits_everybody() -> None:
    assert Policy(mode="open", allow_from=("*",)).check(message()) == Allow()
    assert EVERYBODY.check(message("console")) == Allow()
    assert EVERYBODY.problems() == []


@pytest.mark.parametrize("mode", ["pairing", "allowlist"])
def test_the_star_admits_nobody_in_other_modes_and_is_reported(mode: str) -> None:
    policy = Policy(mode="pairing" if mode == "pairing" else "allowlist", allow_from=("*",))
    assert policy.check(message()) != Allow()
    assert any('"*"' in problem and '"open"' in problem for problem in policy.problems())


@pytest.mark.parametrize("entry", ["42", " 42 ", "here:42", "h:42", "HERE:42", "h: 42"])
def test_an_id_may_stand_behind_a_prefix(entry: str) -> None:
    policy = Policy(allow_from=(entry,), prefixes=PREFIXES)
    assert policy.check(message()) == Allow()
    assert policy.problems() == []


@pytest.mark.parametrize(
    ("entry", "remedy"),
    [
        ("@mallory", "is not an id"),
        ("mallory", "is not an id"),
        ("h:@mallory", "is not an id"),
        ("-1001234567890", "id of a group"),
        ("h:-5", "id of a group"),
        ("٤٢", "is not an id"),
        ("", "is not an id"),
        ("042", "not an id of a person"),
        ("elsewhere:42", "not an id of a person"),
    ],
)
def test_an_entry_that_matches_nobody_is_reported_with_a_remedy(entry: str, remedy: str) -> None:
    policy = Policy(allow_from=(entry,), prefixes=PREFIXES)
    (problem,) = policy.problems()
    assert problem.startswith(f'"{entry}" in allow_from matches nobody')
    assert remedy in problem


def test_a_name_never_admits_even_if_it_looks_like_an_entry() -> None:
    policy = Policy(allow_from=("@mallory", "mallory", "7"))
    assert isinstance(policy.check(message("42", name="mallory")), Refuse)
    assert isinstance(policy.check(message("42", name="7")), Refuse)


def test_groups_are_not_admitted_by_rules_for_direct_chats() -> None:
    assert isinstance(Policy(allow_from=("42",)).check(message(chat=Chat.GROUP)), Ignore)


def test_rules_that_admit_nobody_or_less_than_they_say_are_reported() -> None:
    assert "Add the ids" in Policy(mode="allowlist").problems()[0]
    assert 'Add "*"' in Policy(mode="open", allow_from=("7",)).problems()[0]
    assert Policy().problems() == []


def test_another_platform_may_have_other_ids() -> None:
    policy = Policy(allow_from=("U07ABC", "h:U08"), prefixes=PREFIXES, id_shape=r"[UW][A-Z0-9]+")
    assert policy.check(message("U07ABC")) == Allow()
    assert policy.check(message("U08")) == Allow()
    assert policy.problems() == []
