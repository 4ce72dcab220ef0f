"""Flow control of a shard: it requests nothing while much waits, and a slow receiver delays no other."""

from collections.abc import Iterable

import pytest

from actors.memory.mailbox import MAILBOX_MAX
from actors.runtime import flow_control
from actors.runtime.flow_control import ASK_PAUSE_S, SATURATED_ASK_PAUSE_S, UNSETTLED_PAUSE_AT, FlowControl
from tests.unit.worlds.shard import RECEIVER, ShardWorld, strict
from tests.unit.worlds.virtual_time import in_virtual_time


async def world_with_much(*, saturated: bool) -> ShardWorld:
    world = strict()
    world.saturated = saturated
    world.sender.latency_s = 10.0
    world.publish(UNSETTLED_PAUSE_AT + 1)
    await world.pass_time(0)
    assert world.held == [True]
    return world


def publish_to_each(world: ShardWorld, receivers: Iterable[int]) -> None:
    for number in receivers:
        world.policies.known[f"acme.r{number}"] = world.policies.known[RECEIVER]
        world.publish(receiver=f"acme.r{number}")


@in_virtual_time
async def test_messages_are_requested_while_little_waits() -> None:
    world = strict()
    world.sender.latency_s = 10.0
    world.publish(UNSETTLED_PAUSE_AT)
    await world.pass_time(ASK_PAUSE_S * 2)
    assert world.held == []


@in_virtual_time
async def test_messages_are_requested_when_half_of_what_waited_is_done() -> None:
    world = strict()
    world.saturated = True
    world.sender.latency_s = SATURATED_ASK_PAUSE_S / UNSETTLED_PAUSE_AT
    world.publish(UNSETTLED_PAUSE_AT + 1)
    await world.until(lambda: world.host.shard_unacked.unacked_count * 2 == UNSETTLED_PAUSE_AT + 4)
    assert world.held == [True]
    await world.until(lambda: world.host.shard_unacked.unacked_count * 2 < UNSETTLED_PAUSE_AT + 2)
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
async def test_receivers_of_a_slow_node_wait_longer_but_not_forever() -> None:
    world = await world_with_much(saturated=True)
    await world.pass_time(SATURATED_ASK_PAUSE_S * 0.9)
    assert world.held == [True]
    await world.pass_time(SATURATED_ASK_PAUSE_S * 0.2)
    assert world.held == [True, False]
    world.publish(MAILBOX_MAX)
    await world.pass_time(0.1)
    assert (world.state.parked, world.host.shard_unacked.unacked_count) == (True, 0)


@in_virtual_time
async def test_a_node_that_has_time_again_is_patient_no_longer() -> None:
    world = await world_with_much(saturated=True)
    world.saturated = False
    await world.pass_time(ASK_PAUSE_S * 6)
    assert world.held == [True, False]


@in_virtual_time
async def test_many_that_hang_keep_no_other_waiting_even_on_a_slow_node(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(flow_control, "HOLDERS_MAX", 2 * UNSETTLED_PAUSE_AT)
    world = strict()
    world.saturated = True
    world.sender.latency_s = 10.0
    publish_to_each(world, range(2 * UNSETTLED_PAUSE_AT))
    assert (world.held, world.host.shard_unacked.unacked_count) == ([], 2 * UNSETTLED_PAUSE_AT)


@in_virtual_time
async def test_the_first_messages_of_too_many_receivers_count_in_all_shards_of_the_node(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(flow_control, "HOLDERS_MAX", 2 * UNSETTLED_PAUSE_AT)
    world = strict()
    world.saturated = True
    world.sender.latency_s = 10.0
    publish_to_each(world, range(UNSETTLED_PAUSE_AT))
    other = FlowControl(world.held.append, lambda: True, world.node_holders)
    other.message_arrived(UNSETTLED_PAUSE_AT, UNSETTLED_PAUSE_AT)
    assert world.held == []
    other.message_arrived(UNSETTLED_PAUSE_AT + 1, UNSETTLED_PAUSE_AT + 1)
    assert world.held == [True]
    world.host.stop()
    other.attempt_ended(UNSETTLED_PAUSE_AT + 1, UNSETTLED_PAUSE_AT + 1)
    assert world.held == [True, False]
    other.stop()
    assert world.node_holders.receiver_count == 0


@in_virtual_time
async def test_a_shard_that_stopped_asks_for_nothing() -> None:
    world = await world_with_much(saturated=True)
    world.host.stop()
    await world.pass_time(SATURATED_ASK_PAUSE_S * 2)
    assert world.held == [True]
