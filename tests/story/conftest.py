"""The house in which the stories happen."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.fakes.bot_api import BotApi
from tests.fakes.model_api import serving
from tests.story.house import House, echo


@pytest.fixture
async def empty_house(tmp_path: Path) -> AsyncIterator[House]:
    """A house whose gateway is not started yet; the model repeats what it was told."""
    async with BotApi() as api, serving() as model:
        model.otherwise = echo
        house = House(tmp_path, api, model)
        try:
            yield house
        finally:
            await house.close()
        assert api.violations == []


@pytest.fixture
async def house(empty_house: House) -> House:
    """A house whose gateway serves everybody."""
    await empty_house.start()
    return empty_house
