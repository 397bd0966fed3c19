"""Who shares a session, and what of it can't have been meant."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from gateway import config
from gateway.errors import ConfigError
from gateway.identities import Identities
from gateway.types import Address, Chat, Sender
from tests.fakes.world import said

PAIR = Identities.of({"ann": ("fake:7", "other:U1")})


def test_a_private_message_of_a_linked_person_belongs_to_their_session() -> None:
    message = said("hello", chat="D1")
    shared = PAIR.shared(message)
    assert shared.address == Address("person", "ann")
    assert shared.place == Address("fake", "D1")
    assert replace(shared, address=message.address, deliver_to="") == message


@pytest.mark.parametrize(
    "message",
    [
        replace(said("hello"), sender=Sender("8")),
        said("hello", group=True),
        replace(said("hello"), address=Address("fake-work", "7")),
        replace(said("hello"), address=Address("other", "7")),
    ],
    ids=["somebody else", "a group", "another account", "the id of another channel"],
)
def test_everything_else_stays_where_it_is(message: object) -> None:
    assert PAIR.shared(message) is message  # type: ignore[arg-type] # each is a Stimulus


def test_without_links_nothing_is_looked_up() -> None:
    message = said("hello")
    assert Identities().shared(message) is message
    assert message.chat is Chat.DIRECT


def test_links_are_read_and_shown() -> None:
    text = '[channels.telegram.accounts.work]\n[identities]\nann = ["telegram:42", "telegram-work:42", "slack:U012"]\n'
    settings = config.parse(text, {}, Path())
    assert settings.identities == {"ann": ("telegram:42", "telegram-work:42", "slack:U012")}
    assert '[identities]\nann = ["telegram:42", "telegram-work:42", "slack:U012"]' in config.shown(settings)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('ann = ["telegram:42", "slack:U1"]\nbob = ["telegram:42", "slack:U2"]', '"telegram:42" is listed twice (ann, bob)'),
        ('ann = ["telegram:42", "telegram:42"]', '"telegram:42" is listed twice (ann, ann)'),
        ('ann = ["telegram:42", "signal:1"]', 'identities.ann: "signal" is no channel; known are telegram, slack'),
        ('ann = ["telegram:42", "telegram-work:42"]', '"telegram-work" is no channel'),
        ('ann = ["telegram:42", "web:main"]', '"web" is no channel'),
        ('ann = ["telegram:@ann", "slack:U1"]', '"@ann" is no person on telegram; /whoami tells the id there'),
        ('ann = ["telegram:-100", "slack:U1"]', '"-100" is no person on telegram'),
        ('ann = ["telegram:777000", "slack:U1"]', '"777000" is no person on telegram'),
        ('ann = ["telegram:42", "slack:C012"]', '"C012" is no person on slack'),
        ('ann = ["telegram:42"]', "must name one person on two channels or more"),
        ('ann = ["42", "slack:U1"]', '"42" must be "channel:person"'),
        ('ann = ["telegram:*", "slack:U1"]', '"telegram:*" must be "channel:person"'),
        ('ann = "telegram:42"', "must be a list"),
        ('"Ann B" = ["telegram:42", "slack:U1"]', "must be a short name"),
    ],
)  # fmt: skip
def test_what_can_not_have_been_meant_is_said(text: str, problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        config.parse(f"[identities]\n{text}\n", {}, Path())
    assert problem in str(caught.value)
