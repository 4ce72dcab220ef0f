"""Batches: rules that no other test holds, each by itself."""

from actors.configuration.policy import BatchLimits, Retry
from actors.machine import commands as c
from actors.machine.outcome import INTERNAL, Failed
from actors.machine.scheduling import steps as s
from actors.machine.scheduling.expiry import OVERFLOW_EVERY_S
from streams.journal.snapshots import VERSION, snapshot_of
from tests.unit.worlds.shard import strict
from tests.unit.worlds.values import NOW, Actor, answer, event, policy
from tests.unit.worlds.virtual_time import in_virtual_time

BOTH = (event(1), event(2))


def test_an_abort_of_several_events_aborts_none_of_them() -> None:
    actor = Actor(policy(batch=BatchLimits()))
    actor.do(c.RecordOutcome(BOTH, answer(500, angarium_abort="true")))
    assert [(each.aborted, each.halved) for each in actor.state.open] == [(False, True)] * 2


def test_halves_of_a_rejected_batch_are_tried_at_once() -> None:
    actor = Actor(policy(batch=BatchLimits()))
    actor.do(c.RecordOutcome(BOTH, answer(422)))
    assert [each.next_at for each in actor.state.open] == [NOW, NOW]


def test_a_failure_of_this_node_halves_no_batch() -> None:
    actor = Actor(policy(batch=BatchLimits(), retry=Retry(max_attempts=1)))
    actor.do(c.RecordOutcome(BOTH, Failed(error=INTERNAL, detail="defect", latency_ms=1.0)))
    assert [each.halved for each in actor.state.open] == [False, False]


def test_no_event_without_a_number_joins_events_below_another_open_one() -> None:
    actor = Actor(policy(order="relaxed", batch=BatchLimits()))
    actor.do(c.NumberEvents((event(1), event(2))))
    actor.do(c.RecordOutcome((event(2),), answer(500)))
    step = actor.step(open_in_memory={1: event(1), 2: event(2)}, waiting=(event(3),))
    assert isinstance(step, s.PostBatch)
    assert step.sequences == (1,)


@in_virtual_time
async def test_a_batch_that_is_full_by_its_bytes_does_not_linger() -> None:
    world = strict(batch=BatchLimits(max_bytes=5, linger_s=60.0))
    world.store(2, body=b"xxxx")
    world.hand_out()
    await world.until(lambda: len(world.sender.batches) == 1)
    assert world.sender.times[0] < 1.0


def test_a_batch_lingers_no_longer_than_until_its_oldest_event_overflows() -> None:
    actor = Actor(policy(batch=BatchLimits(linger_s=60.0), backlog_max=1))
    step = actor.step(waiting=BOTH, overflowed_at=NOW)
    assert isinstance(step, s.WaitUntil)
    assert step.at == NOW + OVERFLOW_EVERY_S


def test_a_snapshot_with_one_event_of_a_halved_batch_needs_a_newer_node() -> None:
    actor = Actor(policy(batch=BatchLimits()))
    actor.do(c.RecordOutcome(BOTH, answer(422)))
    assert [each.post for each in actor.state.open] == [None, None]
    assert snapshot_of(actor.state, 1).v == VERSION
