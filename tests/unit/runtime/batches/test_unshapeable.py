"""An event whose body cannot be shaped leaves its batch, and the others go without it."""

from typing import Any

import pytest

from actors.configuration.policy import BatchLimits
from actors.configuration.transform import Transform
from actors.machine import facts as f
from actors.machine.outcome import NotSent
from actors.ports import Attempt, BatchAttempt
from actors.runtime.operator_actions.skip import skip
from angarium.delivery.shaping.body_shaper import shape_bodies
from tests.unit.worlds.shard import ShardWorld
from tests.unit.worlds.values import answer, policy
from tests.unit.worlds.virtual_time import in_virtual_time


def reply(attempt: BatchAttempt) -> Any:
    """The receiver accepts what can be shaped."""
    found = shape_bodies(attempt.events, attempt.shapings)
    return found if isinstance(found, NotSent) else answer(200)


@in_virtual_time
async def test_the_others_wait_for_no_more_events_once_it_was_tried() -> None:
    limits = BatchLimits(max_events=3, linger_s=50)
    world = ShardWorld(policy(batch=limits, transform=Transform(drop=("/a",))))
    world.sender.reply_to_batch = reply
    world.store(2)
    world.publish(body=b"not JSON")
    await world.until(lambda: bool(world.journal.of(f.Delivered)), within_s=10)
    assert [len(fact.events) for fact in world.journal.of(f.Delivered)] == [2]


@in_virtual_time
async def test_an_event_that_is_skipped_untried_has_the_transform_in_force() -> None:
    """The dead letter says by what it would have been shaped."""
    world = ShardWorld(policy(paused=True, transform=Transform(drop=("/a",))))
    world.publish()
    await world.until(lambda: bool(world.journal.of(f.TransformSet)))
    await skip(world.actor, "ada@desk")
    (given_up,) = world.journal.of(f.DeadLettered)
    (recorded,) = world.journal.of(f.TransformSet)
    assert given_up.events[0].transform == recorded.revision


@pytest.mark.parametrize("order", ["strict", "relaxed"])
@in_virtual_time
async def test_an_event_is_sent_if_the_transform_that_cannot_shape_it_goes_meanwhile(order: Any) -> None:
    """In relaxed order it has its number under that transform, which it keeps, so it is given up."""
    world = ShardWorld(policy(order=order, transform=Transform(drop=("/a",))))

    def reply(attempt: Attempt) -> Any:
        """The transform is removed during an attempt that cannot shape the body."""
        found = shape_bodies((attempt.event,), attempt.shapings)
        if isinstance(found, NotSent):
            if world.actor.state.transform:
                world.put(policy(order=order))
            return found
        return answer(200)

    world.sender.reply = reply
    world.publish(body=b"not JSON")
    await world.until(lambda: not world.actor.state.transform and bool(world.journal.of(f.TransformSet)))
    await world.pass_time(60)
    reasons = [fact.reason for fact in world.journal.of(f.DeadLettered)]
    assert (len(world.journal.of(f.Delivered)), reasons) == (
        (1, []) if order == "strict" else (0, ["transform"])
    )


@pytest.mark.parametrize("order", ["strict", "relaxed"])
@in_virtual_time
async def test_the_others_of_the_batch_are_sent_without_it(order: Any) -> None:
    world = ShardWorld(
        policy(order=order, batch=BatchLimits(max_events=10), transform=Transform(drop=("/a",)))
    )
    world.sender.reply_to_batch = reply
    world.store(2)
    world.store(1, body=b"not JSON")
    world.store(2)
    world.hand_out()

    def delivered() -> list[int]:
        return [each.sequence for fact in world.journal.of(f.Delivered) for each in fact.events]

    await world.until(lambda: len(delivered()) == 4 and bool(world.dead_letters.buried))
    (given_up,) = world.journal.of(f.DeadLettered)
    assert sorted(delivered()) == [1, 2, 4, 5]
    assert [(each.sequence, given_up.reason) for each in given_up.events] == [(3, "transform")]
