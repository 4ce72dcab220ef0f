"""Batches: what is given up, kept, read and waited for."""

import asyncio

import msgspec
import pytest
from msgspec.structs import replace

from actors.configuration.policy import BatchLimits, Retry
from actors.machine import commands as c
from actors.machine.numbering import Frontier
from actors.machine.outcome import Outcome
from actors.machine.scheduling import steps as s
from actors.ports import BatchAttempt
from streams.journal.journal import PAYLOAD_MIN
from tests.unit.worlds.shard import relaxed, strict
from tests.unit.worlds.values import NOW, Actor, answer, event, policy
from tests.unit.worlds.virtual_time import in_virtual_time


@pytest.mark.parametrize("status", [429, 410])
def test_an_event_that_never_failed_alone_is_not_given_up_for_attempts_after_a_pause(status: int) -> None:
    """`max_attempts` is set during an outage: halves get one attempt each, and 429 and 410 count none."""
    actor = Actor(policy(batch=BatchLimits()))
    both = (event(1), event(2))
    for _ in range(3):
        actor.do(c.RecordOutcome(both, answer(500)))
    actor.policy = policy(batch=BatchLimits(), retry=Retry(max_attempts=3))
    actor.do(c.RecordOutcome(both, answer(500)))
    assert [each.halved for each in actor.state.open] == [True, True]
    actor.do(c.RecordOutcome((event(1),), answer(status)))
    step = actor.step(NOW + 1e5, open_in_memory={1: event(1), 2: event(2)})
    assert not (isinstance(step, c.GiveUpEvents) and step.reason == "attempts"), step


@in_virtual_time
async def test_events_of_a_batch_far_apart_are_read_without_all_between_them() -> None:
    """One POST hangs while thousands of later events are delivered; then the owner is gone."""
    world = relaxed(batch=BatchLimits(max_events=100), retry=Retry(base_s=20, cap_s=20))
    send, hangs = world.sender.send, True

    async def sending(attempt: BatchAttempt) -> Outcome:
        if hangs and {1, 3002} & set(attempt.sequences):
            await asyncio.Event().wait()
        return await send(attempt)

    world.sender.send = sending  # type: ignore[method-assign, assignment]
    world.publish()
    for _ in range(30):
        await world.pass_time(0.5)
        world.publish(100)
    await world.until(lambda: world.state.counters.delivered == 3000, within_s=30)
    world.publish()
    await world.pass_time(5.0)
    assert [each.sequence for each in world.state.open] == [1, 3002]
    read, fetched = world.stream.read, list[int]()

    async def counted(receiver: str, after: int, up_to: int, count_max: int) -> object:
        found = await read(receiver, after, up_to, count_max)
        fetched.append(len(found.events))
        return found

    world.stream.read = counted  # type: ignore[method-assign, assignment]
    hangs = False
    world.sender.answers(500, 500, 500)
    world.crash()
    await world.until_settled(3002)
    assert sum(fetched) < 100, fetched


def test_a_batch_asks_for_no_more_bodies_than_it_may_have() -> None:
    actor = Actor(policy(order="relaxed", batch=BatchLimits(max_events=2)))
    actor.do(c.NumberEvents(tuple(map(event, range(1, 201)))))
    step = actor.step()
    assert isinstance(step, s.ReadOpenEvents)
    assert len(step.positions) == 2


@in_virtual_time
async def test_a_batch_before_a_malformed_event_cannot_grow_and_does_not_linger() -> None:
    world = strict(batch=BatchLimits(max_events=9, linger_s=30.0))
    world.store()
    world.store(malformed="bad")
    world.hand_out()
    await world.until_settled(1)
    assert world.sender.times[0] < 1.0


def test_the_state_of_a_quiet_receiver_does_not_hold_its_last_batch() -> None:
    actor = Actor(policy(batch=BatchLimits(max_events=256)))
    actor.do(c.RecordOutcome((event(1),), answer(200)))
    small = len(msgspec.json.encode(replace(actor.state, frontier=Frontier())))
    actor.do(c.RecordOutcome(tuple(map(event, range(2, 258))), answer(200)))
    assert len(msgspec.json.encode(replace(actor.state, frontier=Frontier()))) < 2 * small


def test_a_snapshot_fits_into_the_smallest_max_payload_that_doctor_accepts() -> None:
    """A shard with a snapshot that does not fit stores none any more."""
    actor = Actor(policy(batch=BatchLimits(max_events=256)))
    events = [
        event(each, name=f"{each:0128d}", type="t" * 200, source=10**9 + each) for each in range(1, 257)
    ]
    actor.do(c.RecordOutcome(tuple(events), answer(500)))
    assert len(msgspec.json.encode(actor.state)) < PAYLOAD_MIN
