"""A receiver that is 80 MB behind, across a restart of its node: all arrives, and memory stays small."""

import time

from tests.support.fleet.fleet import Fleet
from tests.support.fleet.load import Load
from tests.support.processes.nodes import needs_proc

RECEIVER = "t.paused"
EVENTS = 1_250
BODY = b'"' + b"x" * 65_534 + b'"'
"""Larger, all together, than what the node may grow by."""
GROWTH_MAX_MB = 60


@needs_proc
async def test_a_paused_backlog_survives_a_restart_in_flat_memory(fleet: Fleet) -> None:
    await fleet.configure([RECEIVER], paused=True)
    node = await fleet.start_ready()
    at_first = node.memory_mb("VmRSS")
    load = Load(fleet, [RECEIVER])
    await load.publish(EVENTS, BODY)
    await fleet.until_true(lambda: waits(fleet), "all events wait in the stream")
    assert node.memory_mb("VmHWM") - at_first < GROWTH_MAX_MB

    await node.kill()
    await fleet.start_ready()
    at_first = node.memory_mb("VmRSS")
    await fleet.until_true(lambda: waits(fleet), "they wait as before")
    assert not load.records[0].arrivals
    resumed_at = time.monotonic()
    await fleet.ask("resume", RECEIVER)
    await load.arrived()
    took_s = time.monotonic() - resumed_at
    grown_mb = node.memory_mb("VmHWM") - at_first
    print(f"{EVENTS / took_s:.0f} events/s after the resume; the node grew by {grown_mb:.1f} MB at most")
    assert grown_mb < GROWTH_MAX_MB
    load.check()
    await fleet.until_true(lambda: is_done(fleet), "nothing waits any more")


async def waits(fleet: Fleet) -> bool:
    """True if the actor has given all events back to the stream, and says so."""
    shown = await fleet.ask("inspect", RECEIVER)
    assert shown["phase"] == "paused"
    assert shown["settled_sequence"] == 0
    return bool(shown["backlog"] == EVENTS and shown["parked"] and not shown["queued"])


async def is_done(fleet: Fleet) -> bool:
    shown = await fleet.ask("inspect", RECEIVER)
    return (shown["phase"], shown["backlog"], shown["settled_sequence"]) == ("idle", 0, EVENTS)
