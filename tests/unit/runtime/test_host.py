"""The host of one shard: ownership, lease and journal around its actors, and which actors are in memory."""

import asyncio
from unittest.mock import AsyncMock, Mock

import pytest
from msgspec.structs import replace

from actors.configuration.policy import Rate
from actors.errors import ControlDenied, NewerVersion, Unavailable
from actors.machine import decide
from actors.machine import facts as f
from actors.machine.numbering import with_number
from actors.machine.outcome import INTERNAL, Failed, NotSent, Outcome
from actors.machine.state import UNCONFIRMED_MAX, State
from actors.ports import Attempt
from actors.runtime.actor import Actor
from actors.runtime.host import PASSIVATE_AFTER_S
from actors.runtime.operator_actions.ping import ping
from actors.runtime.operator_actions.resume import resume
from actors.runtime.residents import WOKEN_IN_TURN_MAX
from tests.unit.worlds.shard import RECEIVER, ShardWorld, strict
from tests.unit.worlds.values import answer, policy
from tests.unit.worlds.virtual_time import in_virtual_time

# ---- lease, journal, ownership


def in_flight(world: ShardWorld) -> int:
    """Counts the attempts in flight of all actors."""
    return sum(len(each.pending.in_flight) for each in world.host.actors.values())


@in_virtual_time
async def test_an_attempt_that_was_not_sent_leaves_no_fact_and_its_event_waits() -> None:
    world = strict()
    world.publish(2)
    world.within_lease = False
    await world.pass_time(1)
    assert (world.sender.made, world.journal.of(f.AttemptFailed)) == ([], [])
    world.within_lease = True
    await world.until_settled(2)
    assert world.sender.numbers == [1, 2]


@in_virtual_time
async def test_a_snapshot_that_is_unavailable_is_asked_for_again() -> None:
    world = strict()
    loaded, failures = world.snapshots.load, [Unavailable("no leader")] * 3

    async def load(receiver: str, due: float = 0.0) -> State | None:
        if failures:
            raise failures.pop()
        return await loaded(receiver, due)

    world.host.snapshots = Mock(load=load)
    world.publish()
    await world.until_settled(1)
    assert (failures, world.refused) == ([], [])


@in_virtual_time
async def test_a_snapshot_that_must_not_be_guessed_at_refuses_the_shard() -> None:
    world = strict()
    world.host.snapshots = Mock(load=AsyncMock(side_effect=NewerVersion("upgrade this node")))
    world.publish()
    await world.until(lambda: bool(world.refused))
    assert (world.refused, world.sender.made) == (["upgrade this node"], [])


@in_virtual_time
async def test_a_fact_that_breaks_a_rule_refuses_the_shard_and_is_not_recorded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The defect here gives one number twice."""
    world = strict()
    world.publish()
    await world.until_settled(1)
    monkeypatch.setattr(
        decide, "with_their_numbers", lambda _, events: tuple(with_number(each, 1) for each in events)
    )
    recorded = list(world.journal.facts)
    world.publish()
    await world.until(lambda: bool(world.refused))
    (why,) = world.refused
    assert "acme.billing: its fact `delivered` breaks an invariant" in why
    assert world.journal.facts == recorded
    assert world.state.frontier.sequence == 1


@in_virtual_time
async def test_an_attempt_that_the_transport_refused_waits_for_the_lease() -> None:
    world = strict()
    asked = []

    def reply(_: object) -> NotSent:
        asked.append(world.clock.now())
        world.within_lease = False
        return NotSent(why="the lease is over")

    world.sender.reply = reply
    world.publish()
    await world.pass_time(1.2)
    assert (len(asked), world.journal.of(f.AttemptFailed, f.Delivered)) == (1, [])
    world.sender.answers()
    world.within_lease = True
    await world.until(lambda: bool(world.journal.of(f.Delivered)), within_s=0.75)


@in_virtual_time
async def test_a_stalled_journal_starts_nothing() -> None:
    world = strict()
    world.publish()
    await world.until_settled(1)
    world.journal.is_stalled = True
    world.publish()
    await world.pass_time(1)
    assert len(world.sender.made) == 1
    world.journal.is_stalled = False
    world.put(policy(paused=True), "acme.other")
    world.publish(receiver="acme.other")
    await world.until(lambda: len(world.sender.made) == 2, within_s=0.05)


@in_virtual_time
async def test_at_most_256_settlements_are_unconfirmed_and_the_next_follow_at_once() -> None:
    world = strict()
    world.publish()
    await world.until_settled(1)
    world.journal.held = True
    for _ in range(20):
        world.publish(20)
        await world.pass_time(0.06)
    assert len(world.sender.made) == 1 + UNCONFIRMED_MAX
    world.journal.let_go()
    await world.until(lambda: len(world.sender.made) > 1 + UNCONFIRMED_MAX, within_s=0.1)
    await world.until_settled(401)
    assert world.sender.numbers == list(range(1, 402))


@in_virtual_time
async def test_after_a_crash_the_same_events_get_the_same_numbers() -> None:
    world = strict()
    world.publish(30)
    await world.until(lambda: len(world.sender.made) >= 7)
    world.journal.held = True
    await world.until(lambda: len(world.sender.made) >= 20)
    world.crash()
    await world.until_settled(30)
    named = dict(zip(world.sender.positions, world.sender.numbers, strict=True))
    assert named == {position: position for position in range(1, 31)}
    assert len(world.sender.made) < 60


@in_virtual_time
async def test_nothing_is_recorded_once_the_shard_is_stopped() -> None:
    world = strict()
    world.sender.latency_s = 1
    world.publish(2)
    await world.until(lambda: bool(world.sender.made))
    index = world.journal.index
    world.host.stop()
    await world.pass_time(5)
    assert (world.journal.index, len(world.sender.made)) == (index, 1)
    world.actor.wake()
    assert len(world.sender.made) == 1


@in_virtual_time
async def test_a_shard_that_is_stopped_starts_nothing_after_any_put() -> None:
    world = strict(paused=True)
    world.publish()
    await world.until(lambda: world.acked == [1])
    world.host.stop()
    index = world.journal.index
    world.put(policy())
    await world.pass_time(5)
    assert (world.journal.index, world.sender.made) == (index, [])


@pytest.mark.parametrize("snapshots", [False, True])
@in_virtual_time
async def test_after_a_crash_the_bucket_is_empty_if_anything_may_have_been_posted(snapshots: bool) -> None:
    world = strict(rate=Rate(limit=1, burst=5))
    world.publish(2)
    await world.until_settled(2)
    world.journal.held = True
    world.publish(2)
    await world.until(lambda: len(world.sender.made) == 4)
    world.crash(snapshots=snapshots)
    claimed = asyncio.get_running_loop().time()
    await world.until_settled(4)
    assert world.sender.numbers == [1, 2, 3, 4, 3, 4]
    assert [at - claimed for at in world.sender.times[4:]] == pytest.approx([1, 2], abs=0.02)


@pytest.mark.parametrize("snapshots", [False, True])
@in_virtual_time
async def test_after_a_crash_the_bucket_is_as_recorded_if_nothing_was_stored(snapshots: bool) -> None:
    world = strict(rate=Rate(limit=1, burst=5))
    world.publish(2)
    await world.until_settled(2)
    world.crash(snapshots=snapshots)
    world.publish(3)
    await world.until(lambda: len(world.sender.made) == 5, within_s=0.1)


@pytest.mark.parametrize("snapshots", [False, True])
@in_virtual_time
async def test_events_of_other_receivers_are_not_recorded_as_missing(snapshots: bool) -> None:
    """A takeover knows how far the shard was handed out, not which of the events were this receiver's."""
    world = strict(paused=True)
    world.publish(2)
    world.publish(3, receiver="acme.other")
    await world.until(lambda: world.state.parked)
    world.crash(snapshots=snapshots)
    world.publish()
    world.publish(receiver="acme.other")
    await world.until(lambda: RECEIVER in world.host.actors and world.actor.loaded)
    world.put(policy())
    await world.until_settled(3)
    assert world.journal.of(f.Missing) == []
    assert world.sender.numbers == [1, 2, 3]


# ---- the floor, and what is needed


@in_virtual_time
async def test_waiting_events_in_memory_are_needed_though_no_fact_names_them() -> None:
    """The stream may be purged up to there: a crash would bring the shard back without it."""
    world = strict()
    world.sender.latency_s = 1
    world.publish(5)
    await world.until(lambda: len(world.sender.made) == 3)
    assert world.host.needed().position == world.journal.floor + 1
    assert world.journal.floor in (1, 2)
    await world.until_settled(5)
    assert world.host.needed().position == 6


@in_virtual_time
async def test_parked_open_and_unburied_events_are_needed() -> None:
    world = strict()
    world.sender.answers(answer(429, retry_after="60"))
    world.publish(3)
    await world.until(lambda: world.journal.floor == 3)
    assert world.host.needed().position == 1


@in_virtual_time
async def test_attempts_in_flight_are_counted_with_every_outcome() -> None:
    world = strict()
    world.policies.known["acme.other"] = policy(order="relaxed", concurrency=3)
    world.sender.latency_s = 1
    world.publish(2)
    world.publish(5, receiver="acme.other")
    await world.until(lambda: len(world.sender.made) == 4)
    assert world.host.in_flight == in_flight(world) == 4
    world.sender.answers(answer(500), answer(200), answer(410))
    await world.pass_time(0.9)
    await world.host.drain(5.0)
    assert world.host.in_flight == in_flight(world) == 0


@in_virtual_time
async def test_above_half_of_the_inbox_the_largest_holder_is_parked() -> None:
    world = ShardWorld(policy(), unacked_max=20)
    world.policies.known["acme.small"] = policy()
    world.sender.latency_s = 1
    world.publish(2, receiver="acme.small")
    await world.host.residents.when_loaded(RECEIVER)
    await world.until(lambda: len(world.sender.made) == 1)
    world.publish(9)
    await world.until(lambda: world.state.parked, within_s=0.1)
    assert not world.host.actors["acme.small"].state.parked
    assert world.host.shard_unacked.unacked_count <= 10


@in_virtual_time
async def test_many_who_hold_messages_too_long_are_parked_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands at once would keep all others of the node waiting."""
    world, park, parked_in, turn = ShardWorld(policy()), Actor.park, list[int](), 0

    def pass_on() -> None:
        nonlocal turn
        turn += 1

    def note(actor: Actor) -> None:
        parked_in.append(turn)
        asyncio.get_running_loop().call_soon(pass_on)
        park(actor)

    monkeypatch.setattr(Actor, "park", note)
    world.sender.latency_s = 10
    for number in range(3 * WOKEN_IN_TURN_MAX):
        world.policies.known[f"acme.r{number}"] = policy()
        world.publish(receiver=f"acme.r{number}")
    await world.until(lambda: len(parked_in) == 3 * WOKEN_IN_TURN_MAX)
    assert max(map(parked_in.count, parked_in)) <= WOKEN_IN_TURN_MAX


# ---- who is in memory


@in_virtual_time
async def test_an_idle_actor_leaves_memory_and_comes_back_with_its_numbers() -> None:
    world = strict()
    world.publish(2)
    await world.until_settled(2)
    await world.pass_time(2 * PASSIVATE_AFTER_S)
    assert RECEIVER in world.host.actors
    world.snapshots.held = world.host.unsaved.take()
    await world.pass_time(1)
    assert RECEIVER in world.host.actors
    world.host.snapshots_written()
    await world.until(lambda: RECEIVER not in world.host.actors, within_s=2)
    world.publish(2)
    await world.until_settled(4)
    assert world.snapshots.loads == 2
    assert world.sender.numbers == [1, 2, 3, 4]


@in_virtual_time
async def test_a_snapshot_that_was_not_written_is_taken_again() -> None:
    world = strict()
    world.publish()
    await world.until_settled(1)
    taken = world.host.unsaved.take()
    world.publish()
    await world.until_settled(2)
    world.host.unsaved.take_back()
    again = world.host.unsaved.take()
    assert (taken[RECEIVER].frontier.sequence, again[RECEIVER].frontier.sequence) == (1, 2)


@in_virtual_time
async def test_a_waiting_actor_stays_in_memory() -> None:
    world = strict(paused=True)
    world.publish()
    await world.until(lambda: world.acked == [1])
    world.host.unsaved.take()
    world.host.snapshots_written()
    await world.pass_time(3 * PASSIVATE_AFTER_S)
    assert RECEIVER in world.host.actors


@in_virtual_time
async def test_an_actor_is_loaded_once_for_many_messages() -> None:
    world = strict()
    world.snapshots.held[RECEIVER] = State(receiver=RECEIVER, opened=True)
    world.journal.folded = dict(world.snapshots.held)
    world.publish(100)
    await world.until_settled(100)
    assert world.snapshots.loads == 1


@in_virtual_time
async def test_a_configuration_that_goes_brings_its_actor_into_memory() -> None:
    world = strict()
    opened = State(receiver=RECEIVER, opened=True)
    world.snapshots.held[RECEIVER] = world.journal.folded[RECEIVER] = opened
    world.put(replace(policy(), timeout_s=1))
    assert world.host.actors == {}
    world.put(None)
    await world.until(lambda: bool(world.journal.of(f.Removed)))


# ---- draining


@in_virtual_time
async def test_draining_starts_nothing_and_waits_for_what_is_in_flight() -> None:
    world = strict()
    world.sender.latency_s = 1
    world.publish(5)
    await world.until(lambda: len(world.sender.made) == 2)
    began = world.clock.now()
    await world.host.drain(10)
    assert world.clock.now() - began < 1.1
    assert (world.host.in_flight, len(world.sender.made)) == (0, 2)
    await world.pass_time(5)
    assert len(world.sender.made) == 2


@in_virtual_time
async def test_draining_gives_up_in_time() -> None:
    world = strict()
    world.sender.latency_s = 100
    world.publish(5)
    await world.until(lambda: len(world.sender.made) == 1)
    began = world.clock.now()
    await world.host.drain(10)
    assert world.clock.now() - began == pytest.approx(10, abs=0.01)
    assert world.host.in_flight == 1


# ---- pings


@in_virtual_time
async def test_a_ping_is_recorded_before_it_is_made_and_has_no_number() -> None:
    world = strict(rate=Rate(limit=1, burst=1), paused=True)
    actor = await world.host.residents.when_loaded(RECEIVER)
    await world.until(lambda: world.journal.confirmed_index >= 3)
    world.journal.held = True
    pinging = asyncio.get_running_loop().create_task(ping(actor))
    await world.pass_time(0.5)
    assert world.sender.made == []
    world.journal.let_go()
    assert (await pinging).status == 200
    (made,) = world.sender.made
    assert (made.sequence, made.event.type, made.ordinal) == (None, "angarium.ping", 1)
    assert len(world.journal.of(f.Pinged)) == 1
    await world.until(lambda: bool(world.journal.of(f.Delivered)))
    assert world.journal.of(f.Delivered)[0].kind == "ping"
    assert world.state.frontier.sequence == 0
    with pytest.raises(ControlDenied, match="no token left"):
        await ping(actor)


@in_virtual_time
async def test_pings_to_blocked_receivers_are_refused() -> None:
    world = strict()
    actor = await world.host.residents.when_loaded(RECEIVER)
    world.within_lease = False
    with pytest.raises(ControlDenied, match="not ready"):
        await ping(actor)
    world.within_lease = True
    world.sender.answers(answer(429, retry_after="60"))
    assert (await ping(actor)).status == 429
    with pytest.raises(ControlDenied, match="throttled for 1m more"):
        await ping(actor)
    world.put(None)
    with pytest.raises(ControlDenied, match="no valid configuration"):
        await ping(actor)


@in_virtual_time
async def test_a_ping_that_breaks_is_recorded_as_our_failure(caplog: pytest.LogCaptureFixture) -> None:
    world = strict()
    actor = await world.host.residents.when_loaded(RECEIVER)

    def breaks(_: Attempt) -> Outcome:
        raise ZeroDivisionError

    world.sender.reply = breaks
    outcome = await ping(actor)
    assert isinstance(outcome, Failed)
    assert (outcome.error, outcome.is_our_failure) == (INTERNAL, True)
    await world.until(lambda: bool(world.journal.of(f.AttemptFailed)))
    (fact,) = world.journal.of(f.AttemptFailed)
    assert (fact.kind, fact.error, fact.ours) == ("ping", "internal: ZeroDivisionError", True)
    assert [record.message for record in caplog.records] == ["attempt.broken"]


@in_virtual_time
async def test_an_actor_that_pings_stays_in_memory() -> None:
    world = strict(timeout_s=60)
    actor = await world.host.residents.when_loaded(RECEIVER)
    world.sender.latency_s = 3 * PASSIVATE_AFTER_S
    pinging = asyncio.get_running_loop().create_task(ping(actor))
    await world.until(lambda: bool(world.sender.made))
    world.host.unsaved.take()
    world.host.snapshots_written()
    await world.pass_time(2 * PASSIVATE_AFTER_S)
    assert world.host.actors[RECEIVER] is actor
    await pinging


@in_virtual_time
async def test_a_wait_for_a_fact_ends_when_the_shard_stops() -> None:
    world = strict()
    actor = await world.host.residents.when_loaded(RECEIVER)
    world.journal.held = True
    waiting = asyncio.get_running_loop().create_task(resume(actor))
    await world.pass_time(0.1)
    world.host.stop()
    with pytest.raises(asyncio.CancelledError):
        await waiting
