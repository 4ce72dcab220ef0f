"""The rate as receivers measure it: never above burst + rate · t, across a kill -9 and a handover.

Brisk receivers show that the rate is used; sparing ones, of whom a second is worth a single attempt, show
every token that a new owner might grant too much. How much of the rate is used is judged with half of it to
spare, and by what most attempts had to wait, so that a busy machine is not mistaken for a slow sender.
"""

import time
from itertools import pairwise
from statistics import median

from tests.support.fleet.fleet import Fleet
from tests.support.fleet.load import Load
from tests.support.fleet.records import unearned

BRISK = {f"t.brisk-{number}": 20.0 for number in range(4)}
SPARING = {f"t.sparing-{number}": 1.0 for number in range(8)}
"""Attempts a second, by receiver."""
BURST = 5
PART = 15
"""Attempts that each brisk receiver gets in each of the quiet parts."""


async def test_the_rate_holds_across_a_kill_and_a_handover(fleet: Fleet) -> None:
    limits = BRISK | SPARING
    for receiver, per_second in limits.items():
        await fleet.configure([receiver], rate={"limit": per_second, "burst": BURST})
    brisk, sparing = Load(fleet, BRISK), Load(fleet, SPARING)
    node = await fleet.start_ready("one")
    began_at = time.monotonic()
    await sparing.publish(BURST + 3)
    quiet = [await part(fleet, brisk)]
    await node.kill()
    killed_at = time.monotonic()
    await node.start()
    quiet.append(await part(fleet, brisk))
    await fleet.start_ready("two")
    quiet.append(await part(fleet, brisk))
    for load in (brisk, sparing):
        await load.arrived()
        load.check([killed_at])
    for receiver, per_second in limits.items():
        arrived_at = [each.at for each in fleet.sink.arrivals[receiver]]
        assert not list(unearned(arrived_at, began_at, per_second, BURST))
    for receiver, per_second in BRISK.items():
        for since, until in quiet:
            arrived_at = [each.at for each in fleet.sink.arrivals[receiver] if since <= each.at <= until]
            assert median(late - early for early, late in pairwise(arrived_at)) <= 2 / per_second


async def part(fleet: Fleet, brisk: Load) -> tuple[float, float]:
    """Wait until each brisk receiver got `count` attempts more; returns from when to when these came.

    Some events are left over, so that whatever comes next happens while they wait.
    """
    await brisk.publish(PART + 2 * BURST)
    arrivals = [fleet.sink.arrivals[receiver] for receiver in BRISK]
    before = [len(seen) for seen in arrivals]

    def all_have(count: int) -> bool:
        return all(len(seen) >= already + count for seen, already in zip(arrivals, before, strict=True))

    await fleet.until(lambda: all_have(1), "attempts begin again")
    since = time.monotonic()
    await fleet.until(lambda: all_have(PART), f"each brisk receiver got {PART} attempts")
    return since, time.monotonic()
