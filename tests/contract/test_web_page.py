"""The page in a real browser."""

from __future__ import annotations

import asyncio
import json

import pytest

from gateway.feed import Delta, ToolEnded, ToolStarted, TurnEnded, TurnStarted
from gateway.types import JsonObject, Stimulus
from tests.fakes.browser import CHROMIUM, Browser, browser
from tests.fakes.web_face import MAIN, TOKEN, Face, eventually, face

pytestmark = pytest.mark.skipif(not CHROMIUM.exists(), reason=f"there is no browser at {CHROMIUM}")

HOSTILE = "<img src=x onerror=alert(1)> [click](javascript:alert(1)) https://example.org/a_(b). `<b>`"


async def connected(page: Browser) -> None:
    await page.until("document.getElementById('state').dataset.state === 'ready'")


async def shown(page: Browser, text: str) -> None:
    await page.until(f"document.getElementById('log').innerText.includes({json.dumps(text)})")


async def bubbles(page: Browser) -> list[str]:
    return list(
        await page.run("[...document.querySelectorAll('.bubble .said')].map(one => one.innerText.trim())")
    )


async def listen_again(at: Face) -> None:
    at.listening = asyncio.create_task(at.web.listen(at.core.accept))


async def test_markdown_007_a_message_is_sent_its_turn_followed_and_its_reply_shown() -> None:
    async with face() as at, browser() as page:
        at.core.rows = [
            {"seq": 1, "role": "user", "text": "before", "at": 1.0},
            {"seq": 2, "role": "assistant", "text": HOSTILE, "at": 2.0},
        ]
        await page.open(at.web.url + "/?session=evil&token=evil")
        await connected(page)
        assert await page.run("document.querySelectorAll('#log img, #log b').length") == 0
        links = await page.run("[...document.querySelectorAll('#log a')].map(one => one.href)")
        assert links == ["https://example.org/a_(b)"]

        await page.type("what is 2+2?")
        await eventually(lambda: bool(at.core.taken))
        (stimulus,) = at.core.taken.values()
        assert (stimulus.address, stimulus.text) == (MAIN, "what is 2+2?")
        at.feed.publish(MAIN, TurnStarted())
        at.feed.publish(MAIN, Delta("let me see"))
        at.feed.publish(MAIN, ToolStarted("calculator", {"sum": "2+2"}))
        at.feed.publish(MAIN, ToolEnded("calculator", is_error=False))
        at.feed.publish(MAIN, Delta("it is **4"))
        await shown(page, "it is **4")
        assert not await page.run("document.getElementById('stop').hidden")
        at.feed.publish(MAIN, TurnEnded("it is **4**", (stimulus.key,)))
        await at.send("it is **4**")
        await page.until("document.querySelector('#log strong')?.innerText === '4'")
        assert await bubbles(page) == [
            "before",
            "<img src=x onerror=alert(1)> [click](javascript:alert(1)) https://example.org/a_(b). <b>",
            "what is 2+2?",
            "let me see",
            "it is 4",
        ]
        assert await page.run("document.getElementById('stop').hidden")


async def test_what_is_typed_while_the_gateway_is_away_arrives_once() -> None:
    async with face() as at, browser() as page:
        await page.open(at.web.url + "/")
        await connected(page)
        at.listening.cancel()
        await asyncio.gather(at.listening, return_exceptions=True)
        await page.type("do not lose me")
        await shown(page, "Waiting for the server")
        await page.open(at.web.url + "/")
        await shown(page, "do not lose me")
        await page.run("document.getElementById('text').focus()")
        await page.type("nor this draft", enter=False)
        await page.open(at.web.url + "/")
        assert await page.run("document.getElementById('text').value") == "nor this draft"
        assert not at.core.taken
        await listen_again(at)
        await eventually(lambda: bool(at.core.taken))
        await page.until(
            "!localStorage.getItem('crayfish.outbox') || localStorage.getItem('crayfish.outbox') === '[]'"
        )
        assert [one.text for one in at.core.taken.values()] == ["do not lose me"]


async def test_replies_missed_while_disconnected_are_replayed() -> None:
    async with face() as at, browser() as page:
        await page.open(at.web.url + "/")
        await connected(page)
        await at.send("seen")
        await shown(page, "seen")
        at.web.port = int(at.web.url.rpartition(":")[2])
        await at.web.close()
        at.core.queue("main", "missed")
        await at.web.start()
        await shown(page, "missed")
        assert await bubbles(page) == ["seen", "missed"]


async def test_a_token_is_asked_for_and_kept_for_the_tab() -> None:
    async with face(token=TOKEN) as at, browser() as page:
        await page.open(at.web.url + "/")
        await page.until("document.getElementById('token-dialog').open")
        await page.type("wrong")
        await page.until("document.getElementById('token-problem').innerText.includes('refused')")
        await page.type(TOKEN)
        await connected(page)
        assert await page.run("localStorage.length") <= 1
        await page.open(at.web.url + "/")
        await connected(page)


async def test_a_chat_of_its_own_is_opened_and_stopped() -> None:
    async with face() as at, browser() as page:
        await page.open(at.web.url + "/")
        await connected(page)
        await page.run("document.getElementById('new').click()")
        await page.type("plans")
        await connected(page)
        taken: list[Stimulus] = []

        async def take(stimulus: Stimulus) -> None:
            taken.append(stimulus)
            at.feed.publish(stimulus.address, TurnStarted())

        at.core.on_stimulus = take
        await page.run("document.getElementById('text').focus()")
        await page.type("hello")
        await page.until("!document.getElementById('stop').hidden")
        assert [one.address.chat for one in taken] == ["plans"]
        await page.run("document.getElementById('stop').click()")
        await eventually(lambda: bool(at.core.stopped))
        assert [one.chat for one in at.core.stopped] == ["plans"]


CARD: JsonObject = {
    "name": "approval:abcd",
    "buttons": [[["Allow once", "approve:abcd"], ["Always", "approve:abcd:always"], ["Deny", "deny:abcd"]]],
}


@pytest.mark.parametrize(
    ("label", "said"),
    [("Allow once", "/approve abcd"), ("Always", "/approve abcd always"), ("Deny", "/deny abcd")],
    ids=["approval-01-once", "approval-01-always", "approval-01-deny"],
)
async def test_a_question_is_answered_by_a_button_and_then_says_what_was_decided(
    label: str, said: str
) -> None:
    async with face() as at, browser() as page:
        await page.open(at.web.url + "/")
        await connected(page)
        await page.type("an unsent draft", enter=False)
        await at.send("**May I do this?** <b>run</b>", **CARD)
        await page.until("document.querySelectorAll('.buttons button').length === 3")
        button = f"[...document.querySelectorAll('.buttons button')].find(one => one.innerText === '{label}')"
        await page.run(f"{button}.click()")
        await eventually(lambda: bool(at.core.taken))
        assert [one.text for one in at.core.taken.values()] == [said]
        assert await page.run("[...document.querySelectorAll('.buttons button')].every(one => one.disabled)")
        assert await page.run("document.getElementById('text').value") == "an unsent draft"
        await at.send("**Decided:** run\n\nrm", replaces="approval:abcd")
        await shown(page, "Decided: run")
        assert await page.run("document.querySelectorAll('.buttons').length") == 0
        assert await bubbles(page) == ["Decided: run\n\nrm", said], "in its place"


async def test_an_open_question_is_there_after_a_reload_and_a_closed_one_is_a_line() -> None:
    async with face() as at, browser() as page:
        at.core.queue("main", "May I?", **CARD)
        at.core.open = {"approval:abcd"}
        await page.open(at.web.url + "/")
        await page.until("document.querySelectorAll('.buttons button').length === 3")
        at.core.open = set()
        await page.open(at.web.url + "/")
        await connected(page)
        await at.send("**Denied:** run\n\nrm -rf build", replaces="approval:abcd")
        await shown(page, "Denied: run")
        assert await bubbles(page) == ["Denied: run"]


async def test_the_plan_of_a_task_is_kept_up_to_date_in_one_place() -> None:
    async with face() as at, browser() as page:
        await page.open(at.web.url + "/")
        await connected(page)
        for plan in ("[>] read <b>\n[ ] mend", "[x] read <b>\n[>] mend"):
            at.feed.publish(MAIN, ToolStarted("todo", {}))
            at.feed.publish(MAIN, ToolEnded("todo", is_error=False, plan=plan))
        await page.until("document.querySelector('.plan [data-state=done]') !== null")
        steps = (
            "[...document.querySelectorAll('.plan li')].map(one => one.firstChild.data + one.dataset.state)"
        )
        assert await page.run(steps) == ["read <b>done", "menddoing"]
        assert await page.run("document.querySelectorAll('.activity').length") == 0
