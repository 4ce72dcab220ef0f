"""Warnings of what others can cause: few lines, and none of it uncounted."""

import asyncio
import logging
from typing import Any

import pytest

from angarium.sparing import Sparing
from tests.unit.shard_world import in_virtual_time

LOG = logging.getLogger("angarium.test")


def told(caplog: pytest.LogCaptureFixture) -> list[tuple[Any, Any]]:
    return [(record.__dict__["position"], record.__dict__["count"]) for record in caplog.records]


@in_virtual_time
async def test_of_many_the_first_is_told_and_then_how_many_there_were(
    caplog: pytest.LogCaptureFixture,
) -> None:
    warn = Sparing(LOG, "event.misaddressed")
    for position in range(1000):
        warn(position=position)
    assert told(caplog) == [(0, 1)]
    await asyncio.sleep(1.5)
    warn(position=1000)
    assert told(caplog) == [(0, 1), (999, 999)]
    await asyncio.sleep(1)
    assert told(caplog) == [(0, 1), (999, 999), (1000, 1)]
    await asyncio.sleep(5)
    warn(position=1001)
    assert told(caplog)[3:] == [(1001, 1)]
