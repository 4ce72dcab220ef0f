"""A receiver waits for its turn at a host that is down: parked, and without a read of the stream."""

import pytest

from actors.configuration.policy import BatchLimits, Policy
from actors.machine.outcome import Outcome
from actors.ports import Attempt, BatchAttempt
from angarium.delivery.connections.down_hosts import FAILURES_MIN, PAUSE_MIN_S, TURN_MAX_S, DownHosts
from angarium.delivery.http_exchange.target import parse_target
from tests.unit.worlds.sender import Sender
from tests.unit.worlds.shard import RECEIVER, ShardWorld
from tests.unit.worlds.values import policy
from tests.unit.worlds.virtual_time import in_virtual_time

TURNS = (
    policy(), policy(order="relaxed", concurrency=4), policy(batch=BatchLimits(max_events=10, linger_s=0)),
)  # fmt: skip


class SlowSender(Sender):
    """Tells the hosts of each attempt, as the product's does; an answer takes long."""

    def __init__(self, hosts: DownHosts) -> None:
        super().__init__()
        self.latency_s = 100.0
        self._hosts = hosts

    async def send(self, attempt: Attempt | BatchAttempt) -> Outcome:
        self._hosts.begun(attempt.receiver, parse_target(attempt.policy.url))
        return await super().send(attempt)


def down(world: ShardWorld, given: Policy) -> DownHosts:
    """The host of the receiver is down, and it is the turn of another one, whose attempt hangs."""
    hosts, target = DownHosts(), parse_target(given.url)
    world.host.down_hosts = hosts
    hosts.on_turn(lambda receiver: world.actor.wake() if receiver == RECEIVER else None)
    for number in range(FAILURES_MIN):
        hosts.unreached(f"other.r{number}", target)
    return hosts


@pytest.mark.parametrize("given", TURNS, ids=["strict", "relaxed", "batch"])
@in_virtual_time
async def test_a_receiver_holds_and_reads_nothing_until_its_turn(given: Policy) -> None:
    world = ShardWorld(given)
    hosts = down(world, given)
    sender = world.host.sender = SlowSender(hosts)
    await world.pass_time(PAUSE_MIN_S)
    assert hosts.may_try("other.r0", given, has_attempts=False)
    hosts.begun("other.r0", parse_target(given.url))
    for _ in range(4):
        world.publish(2)
        await world.pass_time(TURN_MAX_S / 5)
    assert world.state.parked
    assert (sender.times, world.stream.reads, len(world.actor.pending.mailbox)) == ([], 0, 0)
    await world.pass_time(TURN_MAX_S)
    assert (len(sender.times), world.stream.reads) == (1, 1)


@in_virtual_time
async def test_a_receiver_reads_and_continues_once_its_host_is_up() -> None:
    given = policy()
    world = ShardWorld(given)
    hosts = down(world, given)
    await world.pass_time(PAUSE_MIN_S)
    assert hosts.may_try("other.r0", given, has_attempts=False)
    hosts.begun("other.r0", parse_target(given.url))
    world.publish(3)
    await world.pass_time(TURN_MAX_S - 1)
    hosts.reached(parse_target(given.url))
    await world.until_settled(3)
