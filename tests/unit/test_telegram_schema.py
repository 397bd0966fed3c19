"""Every update that the published schema allows is read or passed over."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.telegram.media import CONTENT
from adapters.telegram.message import SERVICE, Me
from adapters.telegram.updates import ALLOWED, Reader
from gateway.types import Stimulus
from tests.fakes.bot_api import SCHEMA
from tests.fakes.bot_types import Types

if not SCHEMA.exists():
    pytest.skip(f"{SCHEMA} is absent", allow_module_level=True)

TYPES = Types()
KINDS = [field["name"] for field in TYPES.fields["Update"] if field["name"] != "update_id"]
ME = Me(42, "fake_bot")

ABOUT = frozenset(
    {
        *("message_id", "message_thread_id", "direct_messages_topic", "from", "sender_chat", "date", "chat"),
        *("sender_boost_count", "sender_business_bot", "sender_tag", "receiver_user", "ephemeral_message_id"),
        *("guest_query_id", "business_connection_id", "forward_origin", "is_topic_message", "via_bot"),
        *("is_automatic_forward", "reply_to_message", "external_reply", "quote", "reply_to_story"),
        *("reply_to_checklist_task_id", "reply_to_poll_option_id", "guest_bot_caller_user"),
        *("guest_bot_caller_chat", "edit_date", "has_protected_content", "is_from_offline", "is_paid_post"),
        *("media_group_id", "author_signature", "paid_star_count", "text", "entities", "caption"),
        *("link_preview_options", "suggested_post_info", "effect_id", "caption_entities", "reply_markup"),
        *("show_caption_above_media", "has_media_spoiler"),
    }
)
"""Fields of a message that are neither what it says nor a notice of the platform."""


def test_each_field_of_a_message_is_content_or_a_notice_or_tells_about_the_message() -> None:
    known = {field["name"] for field in TYPES.fields["Message"]}
    assert known == CONTENT | SERVICE | ABOUT
    assert len(known) == len(CONTENT) + len(SERVICE) + len(ABOUT)


def test_all_kinds_that_are_asked_for_exist() -> None:
    assert set(ALLOWED) - set(KINDS) == {"stopped_message_generation"}, "newer than the schema"


@pytest.mark.parametrize("kind", KINDS)
@given(st.integers(0, 2**64))
def test_every_valid_update_is_read_or_passed_over(kind: str, seed: int) -> None:
    chance = Random(seed)
    update = TYPES.update(kind, chance)
    batch = Reader("telegram", ME).batch([update], 1.0)
    assert batch.poison == (), update
    for one in batch.read:
        assert kind in ALLOWED
        if isinstance(one, Stimulus):
            "".join((one.text, one.quote, one.sender.name, *(file.name for file in one.attachments))).encode()
