"""A node that sleeps beyond its lease, and continues as if nothing had happened.

It holds attempts, unrecorded facts, and acks. The journal's fence keeps the facts out, the lease
keeps the attempts in, and acks may come from any process, since nothing is recovered from them.
"""

import random
import time

import pytest

from streams.nats.answers import ConsumerInfo
from streams.nats.wire import Message
from tests.support.fleet.fleet import Fleet, names
from tests.support.fleet.load import SLOW, mixed_load
from tests.support.fleet.ownership import zombies_posted, zombies_wrote
from tests.support.fleet.sink import Hang, Reply
from tests.support.processes.nodes import needs_proc


@needs_proc
@pytest.mark.parametrize("rounds", [1, pytest.param(10, marks=pytest.mark.soak)])
async def test_a_node_that_slept_beyond_its_lease_does_no_harm(
    fleet: Fleet, rng: random.Random, rounds: int
) -> None:
    """Once awake, the node becomes a member like any other, and gets its share back from its successor."""
    load = await mixed_load(fleet)
    sleeper = await fleet.start_ready("sleeper")
    slept_at = []
    async with load.flowing():
        await fleet.start_ready("heir")
        for number in range(rounds):
            await fleet.until_true(lambda: fleet.owns("sleeper"), "the sleeper owns shards")
            await load.pass_some(rng)
            sleeper.sleep()
            slept_at.append(time.monotonic())
            await fleet.until_true(lambda: fleet.owns_all("heir"), "the heir owns every shard")
            await load.pass_some(rng)
            sleeper.wake()
            await fleet.hears(sleeper, "lease.lapsed", number + 1)
        await fleet.until_true(lambda: fleet.owns("sleeper"), "the sleeper owns shards again")
        await load.pass_some(rng)
    load.check(slept_at)
    flushes = await fleet.flushes()
    assert not list(zombies_wrote(flushes))
    assert not list(zombies_posted(fleet.arrivals(), flushes, fleet.sink.late_s))


async def test_acks_of_another_client_lose_nothing(fleet: Fleet) -> None:
    """Another client acks everything handed to the sleeping node, settled or not; the node never wakes."""
    load = await mixed_load(fleet)
    fleet.sink.manners[SLOW[0]] = lambda number: Hang() if number == 5 else Reply()
    node, wire = await fleet.start_ready(), fleet.js.wire
    handed_out: list[str] = []

    def overhear(message: Message) -> None:
        if message.reply.startswith("$JS.ACK."):
            handed_out.append(message.reply)

    await wire.subscribe("_INBOX.>", overhear)
    await load.publish(50)
    node.sleep()
    asleep = await consumers(fleet)
    assert not load.complete

    async def all_acked() -> bool:
        for reply in handed_out:
            await wire.publish(reply, b"+ACK")
        acked = zip(asleep, await consumers(fleet), strict=True)
        return all(now.ack_floor_consumer >= then.delivered_consumer for then, now in acked)

    await fleet.until_true(all_acked, "all that was handed out is acked")
    await node.kill()
    killed_at = time.monotonic()
    await node.start()
    await load.arrived()
    load.check([killed_at])


async def consumers(fleet: Fleet) -> list[ConsumerInfo]:
    """The consumer of each shard, as the server sees it."""
    return sorted(await fleet.js.consumers(names.deliveries), key=lambda each: each.name)
