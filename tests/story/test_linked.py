"""One person writes on two platforms, and the bot goes on with the same conversation (agent 3.10)."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.fakes.bot_api import BotApi
from tests.fakes.model_api import Answer, Call, Request, reply, serving
from tests.fakes.slack_api import APP_TOKEN, BOT, BOT_TOKEN, CHANNEL, DM, HUMAN, SlackServer
from tests.story.house import House, echo, held, results, spoken

PAIR = f'[identities]\nann = ["telegram:7", "slack:{HUMAN}"]\n'


class Home:
    """A gateway between Telegram, Slack and a model; Ann is 7 here and U0ANN there."""

    def __init__(self, house: House, slack: SlackServer) -> None:
        self.house = house
        self.slack = slack

    async def start(self, more: str = "", *, owners: str = f'"telegram:7", "slack:{HUMAN}"') -> None:
        self.house.more = (
            f'[channels.slack]\nbot_token = "{BOT_TOKEN}"\napp_token = "{APP_TOKEN}"\n'
            f'api_base = "{self.slack.base}"\nack_scope = "off"\nallow_from = ["{HUMAN}"]\n'
            f'[channels.slack.groups."{CHANNEL}"]\n[access]\nowners = [{owners}]\n{PAIR}{more}'
        )
        await self.house.start()
        await self.house.until(lambda: bool(self.slack.sockets))

    async def telegram(self, text: str) -> None:
        self.house.api.say(text)
        await self.rests()

    async def write_slack(self, text: str) -> None:
        await self.slack.say(text, chat=DM)
        await self.rests()

    async def rests(self) -> None:
        await self.slack.settled()
        await self.house.rests()

    @property
    def posts(self) -> list[str]:
        return [str(post["text"]) for post in self.slack.posts]


@pytest.fixture
async def home(tmp_path: Path) -> AsyncIterator[Home]:
    async with BotApi() as api, SlackServer() as slack, serving() as model:
        model.otherwise = echo
        house = House(tmp_path, api, model)
        yield Home(house, slack)
        await house.close()
        assert api.violations == []


def heard(request: dict[str, object]) -> str:
    """Return all that a request holds."""
    return str(request["messages"])


@pytest.mark.parametrize("case", ["routing-03"])
async def test_the_answer_goes_where_the_message_came_from_and_the_talk_goes_on(
    home: Home, case: str
) -> None:
    await home.start()
    await home.telegram("the wifi is called lobster")
    await home.write_slack("what is the wifi called?")
    assert home.house.texts() == ["you said: the wifi is called lobster"]
    assert home.posts == ["you said: what is the wifi called?"]
    second = home.house.model.bodies[-1]
    assert "the wifi is called lobster" in heard(second)
    await home.telegram("thanks")
    assert home.house.texts()[1:] == ["you said: thanks"]
    assert "what is the wifi called?" in heard(home.house.model.bodies[-1])
    assert home.house.rows("select address from conversation") == [("person:ann:",)]


async def test_the_model_is_told_which_platform_it_writes_for(home: Home) -> None:
    await home.start()
    await home.telegram("one")
    await home.write_slack("two")
    first, second = home.house.model.bodies
    assert "channel=telegram" in heard(first)
    assert "channel=slack" in heard(second)


async def test_what_is_written_elsewhere_meanwhile_is_answered_there_and_not_here(home: Home) -> None:
    await home.start()
    gate = asyncio.Event()
    home.house.model.play(held(reply("openai", "to Telegram"), gate), reply("openai", "to Slack"))
    home.house.api.say("a long question")
    await home.house.asked(1)
    await home.slack.say("and another one", chat=DM)
    await home.slack.settled()
    gate.set()
    await home.rests()
    assert home.house.texts() == ["to Telegram"]
    assert home.posts == ["to Slack"]
    assert spoken(home.house.model.bodies[1]) == ["and another one"]


async def test_typing_shows_where_the_message_came_from(home: Home) -> None:
    await home.start()
    gate = asyncio.Event()
    home.house.model.play(held(reply("openai", "done"), gate))
    await home.slack.say("a question", chat=DM)
    await home.house.asked(1)
    assert home.house.api.count("sendChatAction") == 0
    gate.set()
    await home.rests()
    assert home.posts == ["done"]
    later = asyncio.Event()
    home.house.model.play(held(reply("openai", "done here"), later))
    home.house.api.say("another question")
    await home.house.until(lambda: home.house.api.count("sendChatAction") > 0)
    later.set()


async def test_stop_works_from_the_other_platform_and_answers_there(home: Home) -> None:
    await home.start()
    home.house.model.play(held(reply("openai", "never seen"), asyncio.Event()))
    home.house.api.say("think for ever")
    await home.house.asked(1)
    await home.write_slack("/stop")
    assert home.posts == ["Stopped."]
    await home.rests()
    assert home.house.texts() == []


async def test_new_and_status_work_from_each(home: Home) -> None:
    await home.start()
    await home.telegram("my name is Ann")
    await home.write_slack("/status")
    assert re.search(r"session: 1, 2 entries", home.posts[0])
    await home.write_slack("/new")
    assert "new session" in home.posts[1]
    await home.telegram("who am I?")
    assert spoken(home.house.model.bodies[-1]) == ["who am I?"]
    assert "my name is Ann" not in heard(home.house.model.bodies[-1])


async def test_access_is_judged_on_each_platform_by_itself(home: Home) -> None:
    """Ann owns the bot on Telegram; on Slack she is only let in, and has no more than that there."""
    await home.start(owners='"telegram:7"')
    home.house.workspace.joinpath("MEMORY.md").write_text("- The dog is called Rex.")
    await home.telegram("hello")
    await home.write_slack("hello from work")
    first, second = home.house.model.bodies
    assert "Rex" in heard(first)
    assert "Rex" not in heard(second)
    await home.write_slack("/approvals")
    assert home.posts[-1] == "Only my owner may do that."


async def test_a_stranger_on_one_platform_is_not_let_in_by_the_link(home: Home) -> None:
    home.house.telegram = 'dm_policy = "allowlist"\nallow_from = ["8"]'
    await home.start(owners="")
    home.house.api.say("let me in")
    await home.write_slack("hello")
    await home.rests()
    assert home.house.texts() == []
    assert home.posts == ["you said: hello"]


async def test_a_group_is_never_shared(home: Home) -> None:
    await home.start()
    await home.telegram("between us")
    await home.slack.say(f"<@{BOT}> hi all", chat=CHANNEL)
    await home.rests()
    assert "between us" not in heard(home.house.model.bodies[-1])
    found = home.house.rows("select address from conversation order by id")
    assert [address.partition(":")[0] for (address,) in found] == ["person", "slack"]


async def test_a_call_that_must_be_allowed_is_asked_about_where_the_message_came_from(home: Home) -> None:
    await home.start()
    await home.write_slack("hello")
    ask = Call("call00001", "message", {"text": "hi", "to": f"slack:{DM}"})
    home.house.model.play(reply("openai", "", ask), reply("openai", "Sent."))
    home.house.api.say("write to my Slack")
    await home.house.until(lambda: any("May I do this?" in text for text in home.house.texts()))
    assert not any("May I do this?" in text for text in home.posts)
    home.house.api.say("yes")
    await home.rests()
    assert home.house.texts()[-1] == "Sent."
    assert home.posts[-1] == "hi"


async def test_a_schedule_speaks_where_it_was_asked_for(home: Home) -> None:
    await home.start()
    made = {"action": "add_or_update", "name": "tea", "when": "+20m", "prompt": "say tea"}
    home.house.model.play(reply("openai", "", Call("call00001", "cron", made)), reply("openai", "I will."))
    await home.write_slack("tea in 20 minutes, please")
    assert home.posts == ["I will."]
    await home.telegram("by the way")
    home.house.model.play(reply("openai", "Tea!"))
    await home.write_slack("/cron")
    assert "tea" in home.posts[1]
    home.house.skip(1300)
    home.house.gateway.agenda.look_soon()
    await home.house.until(lambda: "Tea!" in home.posts)
    assert "Tea!" not in home.house.texts()
    await home.rests()
    await home.telegram("what did you say?")
    assert "Tea!" in heard(home.house.model.bodies[-1]), "the session knows what its chat was told"


async def test_a_sub_agents_result_comes_back_to_the_chat_that_asked(home: Home) -> None:
    await home.start()
    gate = asyncio.Event()

    def answer(request: Request) -> Answer:
        said = spoken(request.body)[-1]
        if said.startswith("[Sub-agent task]"):
            return held(reply("openai", "42 lobsters"), gate)
        if said.startswith("[Sub-agent "):
            return reply("openai", "There are 42.")
        if said == "count, please" and not results(request.body):
            return reply("openai", "", Call("call00001", "spawn", {"task": "count the lobsters"}))
        return echo(request)

    home.house.model.otherwise = answer
    await home.slack.say("count, please", chat=DM)
    await home.house.until(lambda: home.posts == ["you said: count, please"])
    home.house.api.say("hello meanwhile")
    await home.house.until(lambda: home.house.texts() == ["you said: hello meanwhile"])
    gate.set()
    await home.house.until(lambda: home.posts[1:] == ["There are 42."])
    await home.rests()
    assert home.house.texts() == ["you said: hello meanwhile"]


async def test_files_that_came_on_one_platform_lie_where_the_other_finds_them(home: Home) -> None:
    """A person who is no owner has one folder, whichever chat is used."""
    home.house.telegram = 'dm_policy = "allowlist"\nallow_from = ["7"]'
    await home.start(owners="")
    write = Call("call00001", "write", {"path": "list.txt", "content": "milk"})
    home.house.model.play(reply("openai", "", write), reply("openai", "Noted."))
    await home.telegram("note milk")
    look = Call("call00002", "read", {"path": "list.txt"})
    home.house.model.play(reply("openai", "", look), reply("openai", "Milk."))
    await home.write_slack("what is on the list?")
    assert "milk" in heard(home.house.model.bodies[-1])
    assert home.posts == ["Milk."]


async def test_a_heartbeat_goes_to_the_chat_that_was_used_last(home: Home) -> None:
    await home.start('[heartbeat]\nevery = "30m"\n')
    home.house.workspace.joinpath("HEARTBEAT.md").write_text("- Is the oven on?")
    await home.write_slack("hello")
    await home.telegram("hello")
    home.house.model.play(reply("openai", "The oven is on!"))
    await home.telegram("/heartbeat now")
    await home.house.until(lambda: "The oven is on!" in home.house.texts())
    await home.rests()
    assert home.posts == ["you said: hello"]
    await home.write_slack("which oven?")
    assert "The oven is on!" in heard(home.house.model.bodies[-1]), "the session knows what was said"


async def test_after_the_link_is_gone_the_chats_are_apart_again(home: Home) -> None:
    await home.start()
    await home.telegram("one")
    await home.house.stop()
    home.house.more = home.house.more.replace(PAIR, "")
    await home.house.start()
    await home.telegram("two")
    assert spoken(home.house.model.bodies[-1]) == ["two"]
    assert home.house.rows("select count(*) from route") == [(0,)]
    assert ("telegram:7:",) in home.house.rows("select address from conversation")
