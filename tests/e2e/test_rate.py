"""The rate as the receivers measure it: never above burst + rate · t, over a kill -9 and over a handover.

A receiver sees when a request came, not when it took its token. What the network and two busy processes may
add to one and not to the other is `TRANSIT_S`, plus what our own event loop was seen to be late by.
"""

import asyncio
import time
from collections.abc import AsyncIterator

import pytest

from angarium.demo.receivers import Lateness
from tests.e2e.fleet import Fleet
from tests.e2e.load import Load
from tests.e2e.records import excess, mean_rate

RATE, BURST = 20, 5
LIMITED = [f"t.limited-{number}" for number in range(4)]
TRANSIT_S = 0.1
PART = 20
"""Attempts that each receiver gets in each of the quiet parts."""


@pytest.fixture
async def lateness() -> AsyncIterator[Lateness]:
    lateness = Lateness()
    watch = asyncio.create_task(lateness.watch())
    yield lateness
    watch.cancel()


async def test_the_rate_holds_over_a_kill_and_a_handover(fleet: Fleet, lateness: Lateness) -> None:
    await fleet.configure(LIMITED, rate={"limit": RATE, "burst": BURST})
    node = await fleet.start_ready("one")
    load = Load(fleet, LIMITED)
    await load.publish(4 * PART)
    quiet = [await part(fleet)]
    await node.kill()
    killed_at = time.monotonic()
    await node.start()
    quiet.append(await part(fleet))
    await fleet.start_ready("two")
    quiet.append(await part(fleet))
    await load.arrived()
    load.check([killed_at])
    for record in load.records:
        starts_at = [each.at for each in record.arrivals]
        assert excess(starts_at, RATE, BURST) <= RATE * (TRANSIT_S + lateness.worst_s)
        for since, until in quiet:
            assert mean_rate([at for at in starts_at if since <= at <= until]) >= 0.8 * RATE


async def part(fleet: Fleet) -> tuple[float, float]:
    """Wait until each receiver got so many attempts more; returns from when to when these came."""
    arrivals = [fleet.sink.arrivals[receiver] for receiver in LIMITED]
    before = [len(seen) for seen in arrivals]

    def all_have(count: int) -> bool:
        return all(len(seen) >= already + count for seen, already in zip(arrivals, before, strict=True))

    await fleet.until(lambda: all_have(1), "attempts begin again")
    since = time.monotonic()
    await fleet.until(lambda: all_have(PART), f"each receiver got {PART} attempts")
    return since, time.monotonic()
