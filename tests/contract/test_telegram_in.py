"""What comes in from Telegram beside texts, and how the way in is kept open."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from adapters.telegram import Link, Telegram
from gateway.channel import Alone, Fetches
from gateway.clock import Clock
from gateway.errors import DeliveryError, DeliveryRetry, DeliveryUnsure
from gateway.types import Address, Attachment, Media, Outgoing
from tests.fakes.bot_api import BotApi, Drop, Failure, Status
from tests.fakes.clock import StillClock
from tests.fakes.core import QuickClock, Store, listening


@dataclass
class Core:
    """What the channel asks of the core beside taking things in."""

    moves: list[tuple[str, str]] = field(default_factory=list)
    sent: dict[str, Outgoing] = field(default_factory=dict)

    async def move(self, old: Address, new: Address) -> None:
        self.moves.append((old.key, new.key))

    async def recall(self, address: Address, message_id: str) -> Outgoing | None:
        found = self.sent.get(message_id)
        return found if found and found.address.chat == address.chat else None


class JumpyClock(QuickClock):
    """Each wait takes a minute."""

    def now(self) -> float:
        return 60.0 * len(self.waits)


@pytest.fixture
async def api() -> AsyncIterator[BotApi]:
    async with BotApi() as server:
        yield server
    assert server.violations == []


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
def core() -> Core:
    return Core()


Open = Callable[..., Telegram]


@pytest.fixture
async def open_channel(api: BotApi, store: Store, core: Core) -> AsyncIterator[Open]:
    opened: list[Telegram] = []

    def opening(link: Link | None = None, clock: Clock | None = None, **others: Any) -> Telegram:
        channel = Telegram(
            **{"token": api.token, "api_base": api.url, **others},
            clock=clock or QuickClock(),
            cursors=store.cursor,
            link=link,
            move=core.move,
            recall=core.recall,
            jitter=random.Random(1),
        )
        opened.append(channel)
        return channel

    yield opening
    for channel in opened:
        await channel.close()


async def test_a_poll_that_never_succeeds_gets_new_connections_after_two_minutes(
    api: BotApi, store: Store, open_channel: Open, caplog: pytest.LogCaptureFixture
) -> None:
    """Spec TG-5."""
    channel = open_channel(clock=JumpyClock())
    async with listening(channel, store):
        await api.until(lambda: api.polling == 1)
        api.fail("getUpdates", *[Status(502, body="<html>")] * 5)
        api.say("hello")
        await store.holds("hello")
        await api.until(lambda: api.polling == 1)
    told = [record.getMessage() for record in caplog.records]
    assert told.count("telegram.reconnecting") == 1
    assert told.index("telegram.reconnecting") > told.index("telegram.poll_failed")


async def test_ten_thousand_updates_that_waited_come_in_by_hundreds_and_in_order(
    api: BotApi, store: Store, open_channel: Open
) -> None:
    for number in range(10_000):
        api.say(str(number), chat=number % 7 + 1)
    most = 0

    async def accept(stimuli: Any, cursor: Any = None, poison: Any = ()) -> None:
        nonlocal most
        most = max(most, len(stimuli))
        await store.accept(stimuli, cursor, poison)

    task = asyncio.create_task(open_channel().listen(accept))
    await store.until(lambda: len(store.stimuli) == 10_000)
    await api.until(lambda: not api.pending)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [one.text for one in store.stimuli] == [str(number) for number in range(10_000)]
    assert (most, store.calls) == (100, 100), "never more than a hundred are held in memory"


async def test_privacy_mode_that_contradicts_the_configuration_is_told(
    api: BotApi, store: Store, open_channel: Open, caplog: pytest.LogCaptureFixture
) -> None:
    channel = open_channel(Link(hears_all=True))
    async with listening(channel, store):
        await api.until(lambda: api.polling == 1)
    assert "/setprivacy" in str(channel.status()["warning"])
    assert "telegram.privacy_mode" in [record.getMessage() for record in caplog.records]
    api.about_me = {"can_read_all_group_messages": True}
    async with listening(channel, store):
        await api.until(lambda: api.count("getMe") == 2 and api.polling == 1)
        assert channel.status()["warning"] is None


async def test_a_webhook_left_behind_is_named_in_the_log(
    api: BotApi, store: Store, open_channel: Open, caplog: pytest.LogCaptureFixture
) -> None:
    api.webhook = "https://example.org/hook"
    api.say("hello")
    async with listening(open_channel(), store):
        await store.holds("hello")
    assert "telegram.webhook_left_behind" in [record.getMessage() for record in caplog.records]


async def test_two_bots_have_streams_of_their_own(api: BotApi, store: Store, open_channel: Open) -> None:
    async with BotApi("777:BBfake_token_value_abcdefghijklmnopqr") as other:
        first = open_channel()
        second = open_channel(token=other.token, api_base=other.url, name="telegram-work")
        one, two = api.say("to the first"), other.say("to the second", update_id=5)
        async with listening(first, store), listening(second, store):
            await store.until(lambda: len(store.stimuli) == 2)
            await other.until(lambda: other.confirmed == [two])
            await api.until(lambda: api.confirmed == [one])
        assert other.violations == []
    assert {one.address.channel: one.text for one in store.stimuli} == {
        "telegram": "to the first",
        "telegram-work": "to the second",
    }
    assert store.cursors == {"telegram:123456": str(one + 1), "telegram-work:777": "6"}


def test_only_one_process_may_poll_for_a_bot_whatever_the_channel_is_called(open_channel: Open) -> None:
    first, second = open_channel(), open_channel(name="telegram-other")
    assert isinstance(first, Alone)
    assert first.alone == second.alone == "telegram:123456"
    assert open_channel(token="777:BBfake_token_value_abcdefghijklmnopqr").alone == "telegram:777"


async def test_a_pressed_button_is_answered_and_handed_on(
    api: BotApi, store: Store, open_channel: Open
) -> None:
    api.press("yes", api.message(text="Tea?"))
    async with listening(open_channel(), store):
        await store.holds("callback_data: yes")
        await api.until(lambda: len(api.answered) == 1)


def told(press: str, text: str = "Allowed once: run a command") -> Outgoing:
    return Outgoing(key="command:1", address=Address("telegram", "7"), text=text, whisper=press)


async def test_a_pressed_button_is_answered_with_the_word_of_the_core(
    api: BotApi, store: Store, core: Core, open_channel: Open
) -> None:
    """Cases approval-02, access-013: for a moment, to whoever pressed, and nowhere else."""
    channel = open_channel(clock=StillClock())
    number = api.press("approve:abcd", api.message(text="May I?"))
    async with listening(channel, store):
        await store.holds("callback_data: approve:abcd")
        assert store.stimuli[0].whisper == f"q{number}"
        await channel.send(told(f"q{number}"))
    assert api.toasts == {f"q{number}": "Allowed once: run a command"}
    assert api.sent == []


async def test_a_word_that_is_too_long_for_a_notice_is_cut(api: BotApi, open_channel: Open) -> None:
    await open_channel().send(told("q1", "🐙" * 150))
    assert api.toasts == {"q1": "🐙" * 99 + "…"}


async def test_without_a_word_a_press_is_answered_after_two_seconds(
    api: BotApi, store: Store, open_channel: Open
) -> None:
    clock = StillClock()
    channel = open_channel(clock=clock)
    number = api.press("yes", api.message(text="Tea?"))
    async with listening(channel, store):
        await store.holds("callback_data: yes")
        await clock.asleep(1)
        await clock.advance(1.9)
        assert api.answered == []
        advancing = asyncio.ensure_future(clock.advance(0.2))
        await api.until(lambda: api.toasts == {f"q{number}": ""})
        advancing.cancel()
        await channel.send(told(f"q{number}"))  # too late for it
    assert api.toasts == {f"q{number}": ""}
    assert api.sent == []


async def test_a_word_from_before_a_restart_still_arrives(api: BotApi, open_channel: Open) -> None:
    await open_channel().send(told("q7"))
    assert list(api.toasts) == ["q7"]


@pytest.mark.parametrize(
    "failure", [Status(429, "Too Many Requests", {"retry_after": 3}), Status(502)], ids=repr
)
async def test_a_word_that_did_not_get_through_is_not_taken_for_delivered(
    api: BotApi, open_channel: Open, failure: Status
) -> None:
    api.fail("answerCallbackQuery", failure)
    with pytest.raises((DeliveryRetry, DeliveryUnsure)):
        await open_channel().send(told("q7"))


async def test_a_press_that_can_not_be_answered_any_more_is_still_handed_on(
    api: BotApi, store: Store, open_channel: Open
) -> None:
    api.fail("answerCallbackQuery", Status(400, "Bad Request: query is too old"))
    api.press("yes", api.message(text="Tea?"))
    async with listening(open_channel(), store):
        await store.holds("callback_data: yes")


async def test_presses_are_answered_while_the_store_is_down(
    api: BotApi, store: Store, open_channel: Open
) -> None:
    ready = asyncio.Event()

    async def accept(*_: Any, **__: Any) -> None:
        await ready.wait()

    api.press("yes", api.message(text="Tea?"))
    task = asyncio.create_task(open_channel().listen(accept))
    await api.until(lambda: len(api.answered) == 1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def reaction(message_id: int, chat: int = -1001) -> dict[str, Any]:
    return {
        "message_reaction": {
            "chat": {"id": chat, "type": "supergroup", "title": "Team"},
            "message_id": message_id,
            "user": {"id": 7, "is_bot": False, "first_name": "Ada"},
            "date": 1,
            "old_reaction": [],
            "new_reaction": [{"type": "emoji", "emoji": "👍"}],
        }
    }


async def test_a_reaction_to_our_message_is_told_in_its_topic_and_others_are_not(
    api: BotApi, store: Store, core: Core, open_channel: Open
) -> None:
    """Spec TG-19, IN-17."""
    core.sent["8"] = Outgoing(key="k", address=Address("telegram", "-1001", "55"), text="The answer\nis 42.")
    api.push(reaction(9))
    api.push(reaction(8, chat=-1002))
    api.push(reaction(8))
    api.say("last")
    async with listening(open_channel(), store):
        await store.holds("last", "[reacted with 👍 on your message “The answer is 42.”]")
    told = store.stimuli[1]
    assert (told.address.thread, told.aimed, told.gesture) == ("55", False, True)


@pytest.mark.parametrize("old", [pytest.param(-123, id="telegram-in-13")])
async def test_a_group_with_a_new_id_is_moved_before_its_messages_are_stored(
    api: BotApi, store: Store, core: Core, open_channel: Open, old: int
) -> None:
    api.push({"message": api.group_message(old, migrate_to_chat_id=-100123)})
    api.push({"message": api.group_message(-100123, migrate_from_chat_id=old)})
    api.push({"message": api.group_message(-100123, text="hello")})
    async with listening(open_channel(), store):
        await store.holds("hello")
    assert set(core.moves) == {("telegram:-123:", "telegram:-100123:")}


async def test_what_becomes_of_the_bot_in_a_chat_is_in_the_log(
    api: BotApi, store: Store, open_channel: Open, caplog: pytest.LogCaptureFixture
) -> None:
    person = {"id": 7, "is_bot": False, "first_name": "Ada"}
    bot = {"id": 1, "is_bot": True, "first_name": "B"}
    body = {"chat": {"id": -1, "type": "group", "title": "Team"}, "from": person, "date": 1}
    body |= {"old_chat_member": {"status": "left", "user": bot}}
    body |= {"new_chat_member": {"status": "member", "user": bot}}
    api.push({"my_chat_member": body})
    api.say("last")
    async with listening(open_channel(), store):
        await store.holds("last")
    (record,) = [vars(one) for one in caplog.records if one.getMessage() == "telegram.standing"]
    assert (record["chat"], record["title"], record["status"], record["by"]) == ("-1", "Team", "member", "7")


def document(ref: str) -> Attachment:
    return Attachment(kind=Media.FILE, ref=ref)


async def test_a_file_is_fetched(api: BotApi, open_channel: Open) -> None:
    channel = open_channel()
    assert isinstance(channel, Fetches)
    content = random.Random(1).randbytes(300_000)
    assert await channel.fetch(document(api.file(content)), 300_000) == content


@pytest.mark.parametrize("told", [True, False], ids=["size-012-told", "size-012-hidden"])
async def test_a_file_that_is_too_large_is_not_read_to_its_end(
    api: BotApi, open_channel: Open, told: bool
) -> None:
    ref = api.file(b"x" * 2_000_001)
    channel = open_channel(Link(largest=2_000_000))
    if not told:
        answer = '{"ok": true, "result": {"file_id": "file0", "file_path": "documents/file0 1.bin"}}'
        api.fail("getFile", Status(200, body=answer))
    with pytest.raises(DeliveryError, match=r"larger than 2 MB"):
        await channel.fetch(document(ref), 50_000_000)
    assert api.count("file") == (0 if told else 1)


async def test_what_the_platform_gives_to_no_bot_is_named(api: BotApi, open_channel: Open) -> None:
    ref = api.file(b"x" * 20_000_001)
    with pytest.raises(DeliveryError, match="up to 20 MB only"):
        await open_channel().fetch(document(ref), 10**9)


@pytest.mark.parametrize(
    ("method", "failure", "kind"),
    [
        ("getFile", Status(400, "Bad Request: wrong file_id"), DeliveryError),
        ("getFile", Status(401), DeliveryError),
        ("getFile", Status(500), DeliveryRetry),
        ("getFile", Status(429, "wait", {"retry_after": 3}), DeliveryRetry),
        ("getFile", Drop(after=True), DeliveryRetry),
        ("getFile", Status(200, body='{"ok": true, "result": []}'), DeliveryRetry),
        ("getFile", Status(200, body='{"ok": true, "result": {}}'), DeliveryError),
        ("getFile", Status(200, body='{"ok": true, "result": {"file_path": "../x"}}'), DeliveryError),
        ("file", Status(404), DeliveryError),
        ("file", Status(403), DeliveryError),
        ("file", Status(302), DeliveryError),
        ("file", Status(500), DeliveryRetry),
        ("file", Status(429), DeliveryRetry),
    ],
    ids=repr,
)
async def test_a_failed_fetch_tells_whether_to_try_again_and_holds_no_token(
    api: BotApi, open_channel: Open, method: str, failure: Failure, kind: type[Exception]
) -> None:
    ref = api.file(b"content")
    channel = open_channel()
    api.fail(method, failure)
    with pytest.raises(kind) as caught:
        await channel.fetch(document(ref), 1000)
    assert api.token.partition(":")[2] not in str(caught.value)
    assert api.count("file") <= 1, "a redirect is not followed"
    assert await channel.fetch(document(ref), 1000) == b"content"


async def test_files_of_a_local_server_are_read_only_beneath_their_folder(
    api: BotApi, open_channel: Open, tmp_path: Path
) -> None:
    """Spec TG-21."""
    root, secret = tmp_path / "bot-api", tmp_path / "secret"
    root.mkdir()
    secret.write_text("secret")
    (root / "fine.bin").write_bytes(b"fine")
    (root / "large.bin").write_bytes(b"x" * 101)
    (root / "link.bin").symlink_to(secret)
    channel = open_channel(Link(local_files=root))

    async def fetch(path: Path) -> bytes:
        return await channel.fetch(document(api.file(b"", str(path))), 100)

    assert await fetch(root / "fine.bin") == b"fine"
    for path in (secret, root / "link.bin", root / ".." / "secret", Path("/etc/passwd")):
        with pytest.raises(DeliveryError, match="outside of local_files"):
            await fetch(path)
    with pytest.raises(DeliveryError, match="larger than"):
        await fetch(root / "large.bin")
    with pytest.raises(DeliveryError, match="can't be read"):
        await fetch(root / "gone.bin")
    with pytest.raises(DeliveryError, match="set local_files"):
        await open_channel().fetch(document(api.file(b"", str(root / "fine.bin"))), 100)


async def test_every_request_goes_through_the_proxy_that_was_chosen(
    api: BotApi, store: Store, open_channel: Open
) -> None:
    asked: list[str] = []
    twice = asyncio.Event()

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append((await reader.readline()).decode())
        if len(asked) == 2:
            twice.set()
        writer.write(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(relay, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    channel = open_channel(Link(proxy=f"http://127.0.0.1:{port}"))
    async with listening(channel, store):
        await twice.wait()
    server.close()
    await server.wait_closed()
    assert all(line.startswith(f"POST {api.url}/bot") for line in asked)
    assert api.calls == []
