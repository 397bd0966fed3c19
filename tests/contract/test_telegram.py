"""The Telegram channel against a Bot API server: what is read, what is confirmed, what is sent."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncIterator

import pytest

from adapters.telegram import Link, Telegram
from adapters.telegram.updates import ALLOWED
from gateway.errors import (
    ChannelStopped,
    ConfigError,
    DeadRoute,
    DeliveryError,
    DeliveryRetry,
    DeliveryUnsure,
    SendError,
    StoreError,
)
from gateway.types import Address, Outgoing, Sender
from tests.fakes.bot_api import SCHEMA, TOKEN, BotApi, Drop, Failure, Status, violations
from tests.fakes.core import QuickClock, Store, listening

SECRET = TOKEN.partition(":")[2]
CURSOR = f"telegram:{TOKEN.partition(':')[0]}"


@pytest.fixture
async def api() -> AsyncIterator[BotApi]:
    async with BotApi() as server:
        yield server
    assert server.violations == []


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
def clock() -> QuickClock:
    return QuickClock()


def channel_of(api: BotApi, store: Store, clock: QuickClock, *, poll_timeout: int = 50) -> Telegram:
    return Telegram(
        token=api.token,
        api_base=api.url,
        clock=clock,
        cursors=store.cursor,
        link=Link(poll_timeout=poll_timeout),
        jitter=random.Random(1),
    )


@pytest.fixture
async def channel(api: BotApi, store: Store, clock: QuickClock) -> AsyncIterator[Telegram]:
    telegram = channel_of(api, store, clock)
    yield telegram
    await telegram.close()


def outgoing(text: str = "hello", chat: str = "7") -> Outgoing:
    return Outgoing(key="k", address=Address("telegram", chat), text=text)


async def test_messages_arrive_in_order_and_are_confirmed_after_their_commit(
    api: BotApi, store: Store, channel: Telegram
) -> None:
    first = api.say("one")
    api.say("two", chat=8)
    async with listening(channel, store):
        await store.holds("one", "two")
        assert store.cursors == {CURSOR: str(first + 2)}
        await api.until(lambda: api.confirmed == [first, first + 1])
        api.say("three")
        await store.holds("one", "two", "three")
    stimulus = store.stimuli[0]
    assert stimulus.key == f"{CURSOR}:u{first}:2"
    assert stimulus.message_key == f"{CURSOR}:m:7:2"
    assert stimulus.address == Address("telegram", "7")
    assert stimulus.sender == Sender("7", "Person7")
    assert stimulus.at == 1_800_000_000.0


async def test_three_requests_are_enough_to_receive_a_first_message(
    api: BotApi, store: Store, channel: Telegram
) -> None:
    api.say("hello")
    async with listening(channel, store):
        await store.holds("hello")
        await api.until(lambda: api.count("getUpdates") == 2)
    assert [call.method for call in api.calls] == ["getMe", "getUpdates", "getUpdates"]
    assert api.calls[1].params == {"limit": "100", "timeout": "50", "allowed_updates": list(ALLOWED)}


async def test_polls_without_news_write_nothing(api: BotApi, store: Store, clock: QuickClock) -> None:
    channel = channel_of(api, store, clock, poll_timeout=0)
    async with listening(channel, store):
        await api.until(lambda: api.count("getUpdates") > 5)
    assert (store.calls, store.cursors, clock.waits) == (0, {}, [])


@pytest.mark.parametrize("failures", [pytest.param(1, id="durability-01"), 3])
async def test_an_update_is_asked_for_again_until_it_is_stored(
    api: BotApi, store: Store, channel: Telegram, clock: QuickClock, failures: int
) -> None:
    store.failures.extend([StoreError("disk full")] * failures)
    api.say("one")
    api.say("two")
    async with listening(channel, store):
        await store.holds("one", "two")
    offsets = [call.params.get("offset") for call in api.calls if call.method == "getUpdates"]
    assert offsets[: failures + 1] == [None] * (failures + 1)
    assert len(clock.waits) == failures


async def test_a_store_that_fails_is_told_in_the_status(api: BotApi, store: Store, channel: Telegram) -> None:
    store.failures.extend([StoreError("disk full")] * 1000)
    api.say("hello")
    async with listening(channel, store):
        await api.until(lambda: api.count("getUpdates") > 3)
        status = channel.status()
    assert (status["state"], status["last_error"]) == ("retrying", "disk full")


@pytest.mark.parametrize("text", [pytest.param("one", id="durability-03")])
async def test_after_a_crash_between_commit_and_confirmation_a_message_is_read_once(
    api: BotApi, store: Store, clock: QuickClock, text: str
) -> None:
    api.say(text)
    waiting = list(api.pending)
    first, second = channel_of(api, store, clock), channel_of(api, store, clock)
    async with listening(first, store):
        await store.holds(text)
    api.pending = waiting  # the confirmation never arrived
    async with listening(second, store):
        api.say("two")
        await store.holds(text, "two")


async def test_a_restart_goes_on_from_the_stored_offset(api: BotApi, store: Store, channel: Telegram) -> None:
    old = api.say("old")
    store.cursors[CURSOR] = str(old + 1)
    api.say("new")
    async with listening(channel, store):
        await store.holds("new")
    assert api.confirmed == [old]


async def test_an_update_that_cannot_be_read_is_kept_aside_and_delays_nobody(
    api: BotApi, store: Store, channel: Telegram
) -> None:
    api.say("before")
    bad = api.push({"message": {"message_id": "what?", "chat": []}})
    nul = api.push({"message": {"chat": "\0\ud800"}})
    last = api.say("behind")
    async with listening(channel, store):
        await store.holds("before", "behind")
        await api.until(lambda: last in api.confirmed)
    assert [poison.key for poison in store.poison] == [f"{CURSOR}:u{bad}", f"{CURSOR}:u{nul}"]
    assert '"what?"' in store.poison[0].body
    assert store.poison[0].problem.startswith("ValueError: ")
    assert store.poison[1].body.isascii()


async def test_an_update_of_a_kind_that_nobody_knows_is_passed_over(
    api: BotApi, store: Store, channel: Telegram
) -> None:
    origin = {"type": "from_the_future", "date": 1}
    api.say("forwarded", forward_origin=origin)
    api.say("plain")
    async with listening(channel, store):
        await store.holds("[forwarded message]", "plain")


async def test_an_answer_without_any_update_id_is_not_stored(
    api: BotApi, store: Store, channel: Telegram, clock: QuickClock
) -> None:
    api.fail("getUpdates", Status(200, body='{"ok": true, "result": [{"message": {}}, 5]}'))
    api.say("hello")
    async with listening(channel, store):
        await store.holds("hello")
    assert store.poison == []
    assert len(clock.waits) == 1


@pytest.mark.parametrize(
    "failures",
    [
        pytest.param([Status(409), Status(409)], id="telegram-poll-01"),
        pytest.param([Status(409), Drop(after=False)], id="telegram-poll-02"),
    ],
)
async def test_polling_resumes_after_a_conflict(
    api: BotApi, store: Store, channel: Telegram, clock: QuickClock, failures: list[Failure]
) -> None:
    api.fail("getUpdates", *failures)
    api.say("hello")
    async with listening(channel, store):
        await store.holds("hello")
        assert channel.status()["state"] == "polling"
    assert 5 <= clock.waits[0] <= 10


async def test_the_wait_after_conflicts_grows_to_half_a_minute(
    api: BotApi, store: Store, channel: Telegram, clock: QuickClock
) -> None:
    api.fail("getUpdates", *[Status(409)] * 6)
    api.say("hello")
    async with listening(channel, store):
        await store.holds("hello")
    assert clock.waits[0] < clock.waits[1] < min(clock.waits[3:])
    assert max(clock.waits) <= 30


async def test_a_conflict_is_told_in_the_status(api: BotApi, store: Store, channel: Telegram) -> None:
    async with listening(channel, store):
        await api.until(lambda: api.polling == 1)
        api.fail("getUpdates", *[Status(409)] * 1000)
        api.say("wake up")
        await api.until(lambda: api.count("getUpdates") > 3)
        status = channel.status()
    assert status["state"] == "another process polls"
    assert "another process polls with this token" in str(status["last_error"])


async def test_a_second_gateway_is_told_of_the_first(api: BotApi, store: Store, clock: QuickClock) -> None:
    first, second = channel_of(api, store, clock), channel_of(api, store, clock)
    async with listening(first, store):
        await api.until(lambda: api.polling == 1)
        async with listening(second, store):
            await api.until(lambda: api.count("getUpdates") >= 4)
            assert clock.waits
        api.say("hello")
        await store.holds("hello")


async def test_a_webhook_is_removed_and_its_waiting_updates_are_kept(
    api: BotApi, store: Store, channel: Telegram
) -> None:
    api.webhook = "https://example.org/hook"
    api.fail("deleteWebhook", Status(500))
    api.say("hello")
    async with listening(channel, store):
        await store.holds("hello")
    assert api.webhook == ""


@pytest.mark.parametrize(
    ("method", "code"),
    [
        pytest.param("getUpdates", 401, id="telegram-poll-04"),
        ("getUpdates", 404),
        ("getMe", 401),
        ("getMe", 404),
    ],
)
async def test_a_refused_token_stops_the_channel_at_once_with_a_remedy(
    api: BotApi, store: Store, channel: Telegram, clock: QuickClock, method: str, code: int
) -> None:
    api.fail(method, Status(code, "Unauthorized"))
    with pytest.raises(ChannelStopped, match="@BotFather"):
        await channel.listen(store.accept)
    assert api.count(method) == 1
    assert clock.waits == []
    assert channel.status()["state"] == "stopped"


async def test_a_token_revoked_while_polling_stops_the_channel(
    api: BotApi, store: Store, channel: Telegram
) -> None:
    task = asyncio.create_task(channel.listen(store.accept))
    await api.until(lambda: api.polling == 1)
    api.revoke()
    api.say("wake up")
    with pytest.raises(ChannelStopped):
        await task


@pytest.mark.parametrize("stored", [pytest.param("700000001", id="telegram-poll-07")])
async def test_another_bot_starts_with_an_offset_of_its_own(
    api: BotApi, store: Store, channel: Telegram, stored: str
) -> None:
    store.cursors["telegram:1"] = stored
    api.say("a", update_id=100)
    api.say("b", update_id=101)
    async with listening(channel, store):
        await store.holds("a", "b")
    assert store.cursors == {"telegram:1": stored, CURSOR: "102"}


@pytest.mark.parametrize("stored", [pytest.param(500, id="telegram-poll-08")])
async def test_ids_that_begin_anew_are_read_and_the_log_tells_it(
    api: BotApi, store: Store, channel: Telegram, caplog: pytest.LogCaptureFixture, stored: int
) -> None:
    store.cursors[CURSOR] = str(stored)
    api.say("a", update_id=10)
    api.say("b", update_id=11)
    async with listening(channel, store):
        await store.holds("a", "b")
        await api.until(lambda: api.confirmed == [10, 11])
    assert store.cursors[CURSOR] == "12"
    (record,) = [record for record in caplog.records if record.getMessage() == "telegram.offset_reset"]
    told = vars(record)
    assert (told["updates"], told["skipped"], told["stored"], told["offset"]) == (2, 0, stored, 12)


@pytest.mark.parametrize(
    "failure",
    [
        Status(500),
        Status(502, body="<html>Bad Gateway</html>"),
        Status(503, body='{"ok": false, "error_code": 503}'),
        Status(200, body="\ufffd not json"),
        Status(200, body='{"ok": false, "error_code": 400, "description": "odd"}'),
        Status(400),
        Drop(after=False),
        Drop(after=True),
    ],
    ids=repr,
)
@pytest.mark.parametrize("method", ["getMe", "getUpdates"])
async def test_trouble_of_the_platform_is_waited_out(
    api: BotApi, store: Store, channel: Telegram, clock: QuickClock, failure: Failure, method: str
) -> None:
    api.fail(method, failure, failure)
    api.say("hello")
    async with listening(channel, store):
        await store.holds("hello")
        assert channel.status()["last_error"] is None
    assert 1 / 2 <= clock.waits[0] < clock.waits[1] <= 4


async def test_the_wait_that_the_platform_asks_for_is_kept(
    api: BotApi, store: Store, channel: Telegram, clock: QuickClock
) -> None:
    api.fail("getUpdates", Status(429, "Too Many Requests", {"retry_after": 77}))
    api.say("hello")
    async with listening(channel, store):
        await store.holds("hello")
    assert clock.waits == [77.0]


async def test_after_the_cable_was_pulled_everything_arrives(
    api: BotApi, store: Store, channel: Telegram, clock: QuickClock
) -> None:
    async with listening(channel, store):
        api.say("one")
        await store.holds("one")
        await api.stop()
        api.say("two")
        await clock.until(lambda: len(clock.waits) >= 8)
        assert channel.status()["state"] == "retrying"
        await api.start()
        await store.holds("one", "two")
    assert max(clock.waits) <= 4, "with 5 s for a connection it is back within ten"


async def test_stopping_in_mid_poll_is_immediate_and_closes_the_connection(
    api: BotApi, store: Store, channel: Telegram
) -> None:
    task = asyncio.create_task(channel.listen(store.accept))
    await api.until(lambda: api.polling == 1)
    task.cancel()
    async with asyncio.timeout(5):
        with pytest.raises(asyncio.CancelledError):
            await task
        await api.until(lambda: api.polling == 0)


async def test_a_channel_can_listen_again_after_it_was_stopped(
    api: BotApi, store: Store, channel: Telegram
) -> None:
    async with listening(channel, store):
        api.say("one")
        await store.holds("one")
    async with listening(channel, store):
        api.say("two")
        await store.holds("one", "two")


async def test_the_status_tells_who_polls_and_since_when(
    api: BotApi, store: Store, channel: Telegram
) -> None:
    assert channel.status()["state"] == "starting"
    async with listening(channel, store):
        await api.until(lambda: api.polling == 1)
        assert channel.status()["state"] == "polling"
        api.say("hello")
        await store.holds("hello")
        assert channel.status() == {
            "state": "polling",
            "mode": "polling",
            "username": "fake_bot",
            "last_poll": 1_800_000_000.0,
            "last_error": None,
            "warning": None,
            "received": 1,
            "refused": 0,
        }


async def test_a_sent_piece_arrives_as_it_is(api: BotApi, channel: Telegram) -> None:
    receipt = await channel.send(outgoing("<b>hi</b> & 😀"))
    (sent,) = api.sent
    assert (sent.chat, sent.text, str(sent.message_id)) == (7, "<b>hi</b> & 😀", receipt.message_id)
    assert sent.params.keys() == {"chat_id", "text"}


async def test_what_no_message_may_hold_is_replaced_before_sending(api: BotApi, channel: Telegram) -> None:
    await channel.send(outgoing("a\0b \ud800 c \ud83d\ude00"))
    assert api.sent[0].text == "ab \ufffd c 😀"


@pytest.mark.parametrize(
    ("failure", "kind"),
    [
        (Status(401, "Unauthorized"), DeliveryRetry),
        (Status(404, "Not Found"), DeliveryRetry),
        (Status(400, "Bad Request: chat not found"), DeadRoute),
        (Status(403, "Forbidden: bot was blocked by the user"), DeadRoute),
        (Status(400, "Bad Request: not enough rights to send text messages"), DeliveryError),
        (Status(413, "Request Entity Too Large"), DeliveryError),
        (Status(500, "Internal Server Error"), DeliveryUnsure),
        (Status(500, "Internal: restart"), DeliveryUnsure),
        (Status(502, body="<html>"), DeliveryUnsure),
        (Status(503, body='{"ok": false, "error_code": 503}'), DeliveryUnsure),
        (Status(200, body="{"), DeliveryUnsure),
        (Drop(after=False), DeliveryUnsure),
        (Drop(after=True), DeliveryUnsure),
    ],
    ids=repr,
)
async def test_a_failed_send_tells_whether_it_may_have_arrived(
    api: BotApi, channel: Telegram, failure: Failure, kind: type[SendError]
) -> None:
    api.fail("sendMessage", failure)
    with pytest.raises(SendError) as caught:
        await channel.send(outgoing())
    assert isinstance(caught.value, kind)
    assert api.count("sendMessage") == 1
    if isinstance(failure, Status) and isinstance(caught.value, DeliveryError):
        assert failure.description in str(caught.value)
    await channel.send(outgoing("next"))
    assert api.sent[-1].text == "next"


async def test_a_retry_waits_as_long_as_the_platform_asks(api: BotApi, channel: Telegram) -> None:
    failures = (
        Status(429, "Too Many Requests", {"retry_after": 7}),
        Status(429, "Too Many Requests: slow down"),
        Status(401),
    )
    api.fail("sendMessage", *failures)
    waits = []
    for chat in ("7", "8", "9"):
        with pytest.raises(DeliveryRetry) as caught:
            await channel.send(outgoing(chat=chat))
        waits.append(caught.value.after)
    assert waits == [7.0, 5.0, 60.0]


async def test_a_send_to_a_server_that_is_down_has_surely_not_arrived(api: BotApi, channel: Telegram) -> None:
    await api.stop()
    with pytest.raises(DeliveryRetry, match="could not be reached"):
        await channel.send(outgoing("one"))
    await api.start()
    await channel.send(outgoing("one"))
    assert [sent.text for sent in api.sent] == ["one"]


async def test_a_conflict_of_pollers_does_not_break_a_send(
    api: BotApi, store: Store, channel: Telegram
) -> None:
    async with listening(channel, store):
        await api.until(lambda: api.polling == 1)
        api.fail("getUpdates", *[Status(409)] * 20)
        api.say("wake up")
        for number in range(20):
            await channel.send(outgoing(str(number)))
        await store.holds("wake up")
    assert len(api.sent) == 20


@pytest.mark.parametrize(
    "failure",
    [Status(400, f"echo of {TOKEN}"), Status(401, f"no {TOKEN}"), Status(500, body=TOKEN), Drop(after=False)],
    ids=["refused", "unauthorized", "garbage", "dropped"],
)
async def test_no_error_holds_the_token(api: BotApi, channel: Telegram, failure: Failure) -> None:
    api.fail("sendMessage", failure)
    with pytest.raises(SendError) as caught:
        await channel.send(outgoing())
    error: BaseException | None = caught.value
    while error:
        assert SECRET not in repr(error)
        error = error.__cause__ or error.__context__


@pytest.mark.parametrize("level", [pytest.param("INFO", id="secrets-01"), "DEBUG"])
async def test_no_log_line_holds_the_token(
    api: BotApi, store: Store, channel: Telegram, caplog: pytest.LogCaptureFixture, level: str
) -> None:
    caplog.set_level(level)
    api.fail("getMe", Drop(after=False), Status(500, TOKEN))
    api.fail(
        "getUpdates", Status(409), Status(429, "wait", {"retry_after": 1}), Drop(after=True), Status(500)
    )
    api.say("hello")
    async with listening(channel, store):
        await store.holds("hello")
        await channel.send(outgoing())
        await api.stop()
        with pytest.raises(SendError):
            await channel.send(outgoing())
        await api.start()
        api.say("again")
        await store.holds("hello", "again")
    api.revoke()
    with pytest.raises(ChannelStopped):
        await channel.listen(store.accept)
    await channel.close()
    assert len(caplog.records) > 6
    for record in caplog.records:
        assert SECRET not in logging.Formatter().format(record) + repr(vars(record))
    assert SECRET not in repr(channel)


@pytest.mark.parametrize(
    ("token", "api_base", "named"),
    [
        ("", "https://api.telegram.org", "@BotFather"),
        ("123456", "https://api.telegram.org", "@BotFather"),
        ("abc:def", "https://api.telegram.org", "@BotFather"),
        (f" {TOKEN}", "https://api.telegram.org", "@BotFather"),
        (f"{TOKEN}\n", "https://api.telegram.org", "@BotFather"),
        (f"bot{TOKEN}", "https://api.telegram.org", "@BotFather"),
        (TOKEN, "api.telegram.org", "api_base"),
        (TOKEN, f"https://api.telegram.org/bot{TOKEN}", "api_base"),
    ],
)
def test_a_token_or_address_that_cannot_be_right_is_refused_before_anything_starts(
    token: str, api_base: str, named: str
) -> None:
    with pytest.raises(ConfigError, match=named) as caught:
        Telegram(token=token, api_base=api_base, clock=QuickClock(), cursors=Store().cursor)
    assert SECRET not in str(caught.value)


def test_the_fake_knows_the_published_schema() -> None:
    if not SCHEMA.exists():
        pytest.skip(f"{SCHEMA} is absent")
    assert violations("sendMessage", {"chat_id": "7", "text": "hi"}) == []
    assert violations("sendMessage", {"chat_id": "7", "txt": "hi"}) == [
        "sendMessage: text is missing",
        "sendMessage: txt is not a parameter",
    ]
    assert violations("getUpdates", {"limit": "many"}) == ["getUpdates: limit is not of type Integer: 'many'"]
    assert violations("sendMassage", {}) == ["there is no method sendMassage"]
