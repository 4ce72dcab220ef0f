"""While a node can connect to no host, it starts no attempt, and no receiver of it gets older."""

from typing import Literal

import pytest

from actors.configuration.policy import Offline, Retry
from actors.errors import ControlDenied
from actors.machine import facts as f
from actors.machine.outcome import OUTAGE, Failed
from actors.runtime.operator_actions.ping import ping
from actors.status import held_back, inspect
from tests.unit.worlds.shard import RECEIVER, ShardWorld
from tests.unit.worlds.values import policy
from tests.unit.worlds.virtual_time import in_virtual_time

SOON = policy(offline=Offline(after_s=300, disable_after_s=3600), retry=Retry(base_s=1, cap_s=60))
LONG_S = 5000.0


def failing_s(world: ShardWorld) -> float:
    return world.state.failing_s(world.clock.now())


@pytest.mark.parametrize("handshake", ["none", "hmac"])
@in_virtual_time
async def test_nothing_starts_before_it_is_over(handshake: str) -> None:
    world = ShardWorld(policy(handshake=handshake, secrets=("whsec_" + "b2xk" * 8,)))
    world.outage(True)
    world.publish(3)
    await world.pass_time(60)
    assert world.sender.made == []
    world.outage(False)
    await world.pass_time(0.1)
    assert world.sender.made
    if handshake == "none":
        await world.until_settled(3)


@in_virtual_time
async def test_showing_what_a_receiver_waits_for_probes_no_host_and_takes_no_turn() -> None:
    world = ShardWorld(SOON)
    world.down_hosts.count = 1
    world.publish()
    await world.pass_time(1)
    asked = world.down_hosts.asked
    assert asked
    actor = world.host.actors[RECEIVER]
    why = inspect(
        world.state, SOON, actor.shown_view(), world.clock.now(), shard=0, node="n", queued=1, backlog=1,
        head=None, last_answer=None, problems=[],
    )["why"]  # fmt: skip
    assert why.startswith("its host cannot be connected to"), why
    assert world.down_hosts.asked == asked
    world.outage(True)
    asked = world.own_outage.asked
    assert not actor.shown_view().bounds.may_reach
    assert world.own_outage.asked == asked


@in_virtual_time
async def test_a_failing_receiver_gets_no_older_without_network() -> None:
    world = ShardWorld(SOON)
    world.sender.answers(*[500] * 100)
    world.publish()
    await world.pass_time(100)
    assert 95 < failing_s(world) <= 100
    world.outage(True)
    attempts = len(world.sender.made)
    await world.pass_time(LONG_S)
    assert failing_s(world) <= 101
    assert held_back(world.state, SOON, world.clock.now()) != "offline"
    assert (world.health_changes, len(world.sender.made)) == ([], attempts)
    raised = [each.alert for each in world.logged_alerts if isinstance(each, f.AlertRaised)]
    assert "offline" not in raised
    world.outage(False)
    await world.pass_time(100)
    assert len(world.sender.made) > attempts
    assert 160 < failing_s(world) <= 201
    assert world.state.disabled == ""
    (noted,) = [each for each in world.journal.of(f.AttemptFailed) if each.kind == f.NO_ATTEMPT]
    assert (noted.events, noted.ours) == ((), True)
    failed = [each for each in world.journal.of(f.AttemptFailed) if each.kind != f.NO_ATTEMPT]
    assert world.state.counters.failed_attempts == len(failed)


@pytest.mark.parametrize("snapshots", [False, True])
@in_virtual_time
async def test_the_next_owner_knows_the_time_that_does_not_count(snapshots: bool) -> None:
    world = ShardWorld(SOON)
    world.sender.answers(*[500] * 100)
    world.publish()
    await world.pass_time(100)
    world.outage(True)
    await world.pass_time(1)
    world.crash(snapshots=snapshots)
    await world.pass_time(LONG_S)
    assert failing_s(world) <= 101


@in_virtual_time
async def test_a_receiver_that_comes_into_memory_meanwhile_gets_no_older_either() -> None:
    world = ShardWorld(SOON)
    world.sender.answers(*[500] * 100)
    world.publish()
    await world.pass_time(100)
    world.own_outage.since = 0.0  # The next owner has it; this one never knew.
    world.crash()
    await world.pass_time(LONG_S)
    assert failing_s(world) <= 102
    assert world.health_changes == []


@in_virtual_time
async def test_a_receiver_that_does_not_fail_writes_nothing() -> None:
    world = ShardWorld(SOON)
    world.publish()
    await world.until_settled(1)
    facts = len(world.journal.facts)
    world.outage(True)
    world.outage(False)
    await world.pass_time(5)
    assert len(world.journal.facts) == facts


@in_virtual_time
async def test_failures_of_the_outage_count_for_nothing() -> None:
    world = ShardWorld(policy(retry=Retry(base_s=1, max_attempts=2), offline=SOON.offline))
    ours = Failed(error=OUTAGE, detail="this node reached no host; connect: refused", latency_ms=1.0)
    world.sender.answers(ours, ours, ours, 500)
    world.publish()
    await world.until_settled(1)
    assert world.journal.of(f.DeadLettered) == []
    assert (world.state.failing_since, len(world.sender.made)) == (None, 5)


@in_virtual_time
async def test_a_ping_is_refused_with_the_reason() -> None:
    world = ShardWorld(SOON)
    actor = await world.host.residents.when_loaded(RECEIVER)
    world.outage(True)
    with pytest.raises(ControlDenied, match="can connect to no host"):
        await ping(actor)


@pytest.mark.parametrize("order", ["strict", "relaxed"])
@pytest.mark.parametrize("down", ["node", "host"])
@in_virtual_time
async def test_events_expire_while_nothing_can_be_connected_to(
    order: Literal["strict", "relaxed"], down: str
) -> None:
    world = ShardWorld(policy(order=order, retry=Retry(max_age_s=60)))
    if down == "node":
        world.outage(True)
    else:
        world.down_hosts.count = 1
    world.publish(3)
    await world.pass_time(50)
    assert world.journal.of(f.DeadLettered) == []
    await world.pass_time(20)
    letters = world.journal.of(f.DeadLettered)
    assert {each.reason for each in letters} == {"expired"}
    assert sum(len(each.events) for each in letters) == 3
    assert world.sender.made == []
