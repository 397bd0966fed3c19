"""A turn that is stopped in the moment in which it begins."""

from __future__ import annotations

import asyncio

import pytest

from gateway.store.engine import Database
from gateway.types import AssistantEntry
from tests.fakes.clock import FakeClock
from tests.fakes.scripted import ScriptedModel
from tests.fakes.world import World, said


@pytest.mark.parametrize("kind", ["sqlite"])
async def test_a_turn_that_is_cancelled_before_its_first_step_leaves_its_place(
    db: Database, clock: FakeClock
) -> None:
    """One commit may hold a claim and the /stop for it, so both are heard in the same moment."""
    world = World(db=db, clock=clock, model=ScriptedModel(lambda _prompt: AssistantEntry("hi")))
    await world.put(said("hello"))
    async with asyncio.TaskGroup() as group:
        await world.worker.step(group)
        assert world.worker.busy == 1
        world.worker.interrupt(1)
    assert world.worker.busy == 0
