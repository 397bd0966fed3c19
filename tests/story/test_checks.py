"""What the owner of a bot sees of its heartbeats, and does about them."""

from __future__ import annotations

import json
import os

from tests.fakes.model_api import reply
from tests.story.house import House

OWNER = 'dm_policy = "allowlist"\nallow_from = [7]'
SETTINGS = '[access]\nowners = ["telegram:7"]\n[heartbeat]\nevery = "30m"\n'


async def ready(house: House, checklist: str | None = "- Did a job fail?\n") -> None:
    house.telegram, house.more = OWNER, SETTINGS
    await house.start()
    file = house.workspace / "HEARTBEAT.md"
    file.unlink(missing_ok=True)
    if checklist is not None:
        file.write_text(checklist, encoding="utf-8")
    house.api.say("hello")
    await house.hears("you said: hello")


async def test_the_owner_asks_for_a_heartbeat_hears_the_alert_and_asks_about_it(empty_house: House) -> None:
    house = empty_house
    await ready(house)
    house.model.play(reply("openai", "The backup failed."), reply("openai", "It ran out of space."))
    house.api.say("/heartbeat now")
    await house.until(lambda: "The backup failed." in house.texts())
    assert house.texts()[1].startswith("A heartbeat begins")
    body = await house.asked(2)
    assert "Did a job fail?" in body["messages"][0]["content"]
    assert "hello" not in str(body["messages"][1:])
    offered = {tool["function"]["name"] for tool in body["tools"]}
    assert "read" in offered
    assert not offered & {"write", "edit", "exec", "process", "cron", "message", "spawn", "sessions"}
    house.api.say("why?")
    await house.until(lambda: "It ran out of space." in house.texts())
    assert "The backup failed." in str((await house.asked(3))["messages"])


async def test_a_heartbeat_comes_by_itself_and_silence_is_silence(empty_house: House) -> None:
    house = empty_house
    await ready(house)
    house.model.play(reply("openai", "HEARTBEAT_OK"))
    house.gateway.timer.tick = 0.01
    house.gateway.timer.set("look", house.clock.wall(), _nothing)
    house.skip(1800)
    await house.asked(2)
    await house.rests()
    assert house.texts() == ["you said: hello"]
    assert house.rows("select status from beat") == [("ok",)]


async def test_pause_resume_and_status_are_for_the_owner(empty_house: House) -> None:
    house = empty_house
    await ready(house)
    for text in ("/heartbeat pause", "/heartbeat", "/heartbeat resume", "/heartbeat dance"):
        house.api.say(text)
        await house.rests()
    _, paused, status, resumed, usage = house.texts()
    assert paused == "Heartbeats are paused until /heartbeat resume."
    assert "every 30 min; paused" in status
    assert resumed == "Heartbeats go on."
    assert usage == "Write /heartbeat status, now, pause or resume."
    assert len(house.model.requests) == 1


async def _nothing() -> None:
    return


async def test_beats_with_every_tool_there_is_cost_the_same_each_and_at_most_3000_tokens(
    empty_house: House,
) -> None:
    house = empty_house
    house.env = {"PATH": os.environ["PATH"]}
    await ready(house, "- Is there a meeting in the next two hours?\n- Did a nightly job fail?\n")
    for number in range(30):
        folder = house.workspace / "skills" / f"skill{number}"
        folder.mkdir(parents=True)
        (folder / "SKILL.md").write_text(f"---\nname: skill{number}\ndescription: {'y' * 300}\n---\nDo it.\n")
    (house.workspace / "SOUL.md").write_text("z" * 10_000)
    house.model.otherwise = lambda _request: reply("openai", "HEARTBEAT_OK")
    for number in range(12):
        house.skip(1800)
        await house.gateway.heartbeat.beat(f"slot{number}")
        await house.rests()
    assert house.texts() == ["you said: hello"]
    assert house.rows("select status, count(*) from beat group by status") == [("ok", 12)]

    asked = house.model.bodies[1:]
    assert len(asked) == 12
    sizes = [len(json.dumps([body["messages"], body["tools"]], ensure_ascii=False)) for body in asked]
    assert max(sizes) - min(sizes) <= min(sizes) / 100
    assert max(sizes) / 3 <= 3000, "tokens, at three characters each"
    offered = {tool["function"]["name"] for tool in asked[0]["tools"]}
    assert offered == {"read", "list_dir", "search", "memory_search", "memory_get", "web_fetch"}
    assert house.rows("select count(*) from entry where role = 'user' and body like '%hello%'") == [(1,)]
