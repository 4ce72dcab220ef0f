"""How much a shard asks for: nothing while much waits, but others need not wait long for who is slow."""

from actors.memory.mailbox import MAILBOX_MAX
from actors.runtime.flow_control import ASK_PAUSE_S, SATURATED_ASK_PAUSE_S, UNSETTLED_PAUSE_AT
from tests.unit.shard_world import ShardWorld, in_virtual_time, strict


async def world_with_much(*, saturated: bool) -> ShardWorld:
    world = strict()
    world.saturated = saturated
    world.sender.latency_s = 10.0
    world.publish(UNSETTLED_PAUSE_AT)
    await world.pass_time(0)
    assert world.held == [True]
    return world


@in_virtual_time
async def test_it_asks_on_while_little_waits() -> None:
    world = strict()
    world.sender.latency_s = 10.0
    world.publish(UNSETTLED_PAUSE_AT - 1)
    await world.pass_time(ASK_PAUSE_S * 2)
    assert world.held == []


@in_virtual_time
async def test_it_asks_on_when_half_of_what_waited_is_done() -> None:
    world = strict()
    world.saturated = True
    world.sender.latency_s = SATURATED_ASK_PAUSE_S / UNSETTLED_PAUSE_AT
    world.publish(UNSETTLED_PAUSE_AT)
    await world.until(lambda: world.host.bindings.bound * 2 == UNSETTLED_PAUSE_AT + 2)
    assert world.held == [True]
    await world.until(lambda: world.host.bindings.bound * 2 < UNSETTLED_PAUSE_AT)
    assert world.held == [True, False]
    world.publish(UNSETTLED_PAUSE_AT)
    assert world.held == [True, False, True]


@in_virtual_time
async def test_others_wait_for_the_slow_only_a_moment() -> None:
    world = await world_with_much(saturated=False)
    await world.pass_time(ASK_PAUSE_S * 0.9)
    assert world.held == [True]
    await world.pass_time(ASK_PAUSE_S * 0.2)
    assert world.held == [True, False]


@in_virtual_time
async def test_where_the_node_is_what_is_slow_they_wait_longer_but_not_for_ever() -> None:
    world = await world_with_much(saturated=True)
    await world.pass_time(SATURATED_ASK_PAUSE_S * 0.9)
    assert world.held == [True]
    await world.pass_time(SATURATED_ASK_PAUSE_S * 0.2)
    assert world.held == [True, False]
    world.publish(MAILBOX_MAX)
    await world.pass_time(0.1)
    assert (world.state.parked, world.host.bindings.bound) == (True, 0)


@in_virtual_time
async def test_a_node_that_has_time_again_is_patient_no_longer() -> None:
    world = await world_with_much(saturated=True)
    world.saturated = False
    await world.pass_time(ASK_PAUSE_S * 6)
    assert world.held == [True, False]


@in_virtual_time
async def test_a_shard_that_stopped_asks_for_nothing() -> None:
    world = await world_with_much(saturated=True)
    world.host.stop()
    await world.pass_time(SATURATED_ASK_PAUSE_S * 2)
    assert world.held == [True]
