"""The Web API client against a Slack on loopback: what each failure means for a message."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from adapters.slack.client import SlackApi, proxy_of
from adapters.slack.errors import Gone, Refused
from gateway.errors import ChannelStopped, DeliveryError, DeliveryRetry, DeliveryUnsure, SendError
from tests.fakes.slack_api import (
    APP_TOKEN,
    BOT_TOKEN,
    CHANNEL,
    Drop,
    Error,
    Failure,
    Limited,
    SlackServer,
    Status,
)


class StillClock:
    """Moves only when told."""

    def __init__(self) -> None:
        self.time = 1000.0

    def now(self) -> float:
        return self.time

    def wall(self) -> float:
        return self.time

    async def sleep(self, seconds: float) -> None:
        self.time += seconds


@pytest.fixture
async def slack() -> AsyncIterator[SlackServer]:
    async with SlackServer() as server:
        yield server


@pytest.fixture
def clock() -> StillClock:
    return StillClock()


@pytest.fixture
async def api(slack: SlackServer, clock: StillClock) -> AsyncIterator[SlackApi]:
    client = SlackApi(BOT_TOKEN, slack.base, clock)
    yield client
    await client.close()


async def test_arguments_arrive_as_they_were_meant(slack: SlackServer, api: SlackApi) -> None:
    blocks = [{"type": "markdown", "text": "ä & <b>"}]
    answer = await api.call(
        "chat.postMessage",
        channel=CHANNEL,
        text="1+1=2 & more",
        blocks=blocks,
        unfurl_links=False,
        thread_ts=None,
    )
    assert answer["ok"] is True
    assert slack.called("chat.postMessage") == [
        {"channel": CHANNEL, "text": "1+1=2 & more", "blocks": blocks, "unfurl_links": False}
    ]
    assert slack.calls[0].token == BOT_TOKEN


async def test_a_ticket_is_asked_for_with_the_app_token(slack: SlackServer, api: SlackApi) -> None:
    assert "ticket=ticket-1" in await api.ticket(APP_TOKEN)
    assert (slack.calls[0].token, slack.calls[0].args) == (APP_TOKEN, {})


@pytest.mark.parametrize(
    ("failure", "kind"),
    [
        (Limited("7"), DeliveryRetry),
        (Limited(None), DeliveryRetry),
        (Drop(after=True), DeliveryUnsure),
        (Drop(after=False), DeliveryUnsure),
        (Status(502), DeliveryUnsure),
        (Status(200), DeliveryUnsure),
        (Error("internal_error"), DeliveryUnsure),
        (Error("fatal_error"), DeliveryUnsure),
        (Error("invalid_auth"), ChannelStopped),
        (Error("account_inactive"), ChannelStopped),
        (Error("token_revoked"), ChannelStopped),
        (Error("channel_not_found"), Gone),
        (Error("is_archived"), Gone),
        (Error("not_in_channel"), Gone),
        (Error("invalid_blocks"), Refused),
        (Error("missing_scope", {"needed": "chat:write"}), Refused),
    ],
    ids=str,
)
async def test_a_failure_is_told_as_what_it_means(
    slack: SlackServer, api: SlackApi, failure: Failure, kind: type[SendError]
) -> None:
    slack.fail("chat.postMessage", failure)
    with pytest.raises(SendError) as caught:
        await api.call("chat.postMessage", channel=CHANNEL, text="hi")
    assert type(caught.value) is kind
    assert "chat.postMessage" in str(caught.value)
    assert BOT_TOKEN not in str(caught.value)


async def test_a_refusal_keeps_slacks_own_word_for_it(slack: SlackServer, api: SlackApi) -> None:
    told = {"response_metadata": {"messages": ["[ERROR] must be shorter", f"token {BOT_TOKEN}"]}}
    slack.fail("chat.postMessage", Error("invalid_blocks", told))
    with pytest.raises(Refused, match="must be shorter") as caught:
        await api.call("chat.postMessage", channel=CHANNEL, text="hi")
    assert caught.value.code == "invalid_blocks"
    assert BOT_TOKEN not in str(caught.value)


async def test_a_post_whose_answer_is_lost_is_not_repeated(slack: SlackServer, api: SlackApi) -> None:
    slack.fail("chat.postMessage", Drop(after=True))
    with pytest.raises(DeliveryUnsure):
        await api.call("chat.postMessage", channel=CHANNEL, text="hi")
    assert len(slack.posts) == 1


async def test_a_limited_method_is_left_alone_until_its_time_and_others_are_not(
    slack: SlackServer, api: SlackApi, clock: StillClock
) -> None:
    slack.fail("chat.postMessage", Limited("7"))
    for wait in (7.0, 4.0):
        with pytest.raises(DeliveryRetry) as caught:
            await api.call("chat.postMessage", channel=CHANNEL, text="hi")
        assert caught.value.after == wait
        await api.call("auth.test")
        clock.time += 3.0
    assert len(slack.called("chat.postMessage")) == 1
    clock.time += 1.0
    await api.call("chat.postMessage", channel=CHANNEL, text="hi")
    assert len(slack.posts) == 1


@pytest.mark.parametrize("header", ["abc", "", "-1", "nan", "inf"])
async def test_a_limit_without_a_time_means_half_a_minute(
    slack: SlackServer, api: SlackApi, header: str
) -> None:
    slack.fail("chat.postMessage", Limited(header))
    with pytest.raises(DeliveryRetry) as caught:
        await api.call("chat.postMessage", channel=CHANNEL, text="hi")
    assert caught.value.after == 30.0


async def test_nobody_at_home_means_not_sent(slack: SlackServer, api: SlackApi) -> None:
    await slack.stop()
    with pytest.raises(DeliveryRetry, match="could not be reached"):
        await api.call("chat.postMessage", channel=CHANNEL, text="hi")


async def test_a_file_is_handed_over(slack: SlackServer, api: SlackApi) -> None:
    place = await api.call("files.getUploadURLExternal", filename="a.txt", length="3000000")
    await api.upload(place["upload_url"], bytes(3_000_000))
    assert slack.uploads == {place["file_id"]: bytes(3_000_000)}


@pytest.mark.parametrize(
    ("status", "kind"), [(500, DeliveryRetry), (429, DeliveryRetry), (413, Refused), (404, Refused)]
)
async def test_a_file_that_was_lost_is_sent_again_but_not_one_that_is_refused(
    slack: SlackServer, api: SlackApi, status: int, kind: type[SendError]
) -> None:
    slack.fail("upload", Status(status))
    with pytest.raises(SendError, match=f"HTTP {status}") as caught:
        await api.upload(f"{slack.url}/upload/F1", b"abc")
    assert type(caught.value) is kind


@pytest.mark.parametrize("body", ["[1]", "[" * 100_000, "5"], ids=["a list", "deep", "a number"])
async def test_an_answer_that_is_no_object_leaves_nobody_knowing(
    slack: SlackServer, api: SlackApi, body: str
) -> None:
    slack.fail("chat.postMessage", Status(200, body))
    with pytest.raises(DeliveryUnsure):
        await api.call("chat.postMessage", channel=CHANNEL, text="hi")


async def test_a_limit_ends_while_somebody_still_cares(slack: SlackServer, api: SlackApi) -> None:
    slack.fail("chat.postMessage", Limited("99999999999"))
    with pytest.raises(DeliveryRetry) as caught:
        await api.call("chat.postMessage", channel=CHANNEL, text="hi")
    assert caught.value.after == 86_400.0


async def test_half_a_character_costs_neither_the_message_nor_the_words_of_a_refusal(
    slack: SlackServer, api: SlackApi
) -> None:
    await api.call("chat.postMessage", channel=CHANNEL, text="a\ud83d", blocks=[{"text": "\ud83d"}])
    assert (slack.posts[0]["text"], slack.posts[0]["blocks"]) == ("a�", [{"text": "�"}])
    slack.fail("chat.postMessage", Error("bad\ud83d"))
    with pytest.raises(Refused, match="bad�"):
        await api.call("chat.postMessage", channel=CHANNEL, text="hi")


async def test_a_file_that_is_gone_is_not_asked_for_again(slack: SlackServer, api: SlackApi) -> None:
    with pytest.raises(DeliveryError, match="any more"):
        await api.download(f"{slack.url}/files/none", 10)


def test_the_proxy_is_that_of_the_environment_but_for_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("https_proxy", "http://proxy.example:3128")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    assert proxy_of("https://slack.com/api/") == "http://proxy.example:3128"
    assert proxy_of("wss://wss-primary.slack.com/link") == "http://proxy.example:3128"
    assert proxy_of("http://127.0.0.1:1/api/") is None
    monkeypatch.setenv("no_proxy", "slack.com")
    assert proxy_of("https://slack.com/api/") is None
