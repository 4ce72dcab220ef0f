"""Relaxed order: many attempts at once, each event with its own retries, and numbers as in strict order.

The first half asks the machine, the second one the actor around it.
"""

from typing import Any

import pytest
from msgspec.structs import replace

from actors.configuration.policy import Policy, Rate, Retry
from actors.machine import commands as c
from actors.machine import facts as f
from actors.machine.bucket import Bucket
from actors.machine.decide import FAILURES_IN_A_ROW_MAX
from actors.machine.event import Event
from actors.machine.outcome import Outcome
from actors.machine.scheduling import steps as s
from actors.machine.scheduling.rules import Rule
from actors.ports import Attempt
from tests.unit.worlds.shard import ShardWorld, relaxed
from tests.unit.worlds.values import NO_ANSWER, NOW, Actor, answer, event, given_up, policy
from tests.unit.worlds.virtual_time import in_virtual_time

SOON = Retry(base_s=0.05, cap_s=0.05)
HOUR_S = 3600


def wide(**members: Any) -> Policy:
    return policy(order="relaxed", **members)


def with_open(given: Policy, *due_at: float) -> Actor:
    """An actor with open events at 1, 2, … of which each was tried once and is due then."""
    actor = Actor(given)
    for position, _ in enumerate(due_at, 1):
        actor.do(c.NumberEvents((event(position),)))
    entries = zip(actor.state.open, due_at, strict=True)
    opened = tuple(replace(entry, attempts=1, failures=1, next_at=at) for entry, at in entries)
    actor.state = replace(actor.state, open=opened)
    return actor


# ---- the machine: going wide


def test_a_relaxed_receiver_has_up_to_concurrency_attempts_in_flight() -> None:
    actor = Actor(wide(concurrency=3))
    for position in (1, 2, 3):
        step = actor.step(head=event(position), in_flight=range(1, position))
        assert step == s.Post(event(position), position, 1, has_token=True, numbered_first=True)
        actor.do(c.NumberEvents((event(position),)))
    assert actor.step(head=event(4), in_flight=(1, 2, 3)) == s.Rest(Rule.IN_FLIGHT)
    actor.ends(event(2), answer(200))
    assert actor.step(head=event(4), in_flight=(1, 3)) == s.Post(
        event(4), 4, 1, has_token=True, numbered_first=True
    )
    assert actor.state.settled_sequence == 0


def test_numbers_are_those_of_strict_order_for_answers_in_any_order() -> None:
    strictly, widely = Actor(), Actor(wide())
    events = [event(position, name="abca"[position % 4], source=position) for position in (2, 3, 4, 5, 6)]
    numbers = list[tuple[int, int]]()
    for each in events:
        if isinstance(step := strictly.step(head=each), s.Post):
            numbers.append((each.position, step.sequence))
            strictly.ends(each, answer(200))
    accepted = list[Event]()
    for each in events:
        on_their_way = [other.position for other in accepted]
        if isinstance(widely.step(head=each, in_flight=on_their_way), s.Post):
            widely.do(c.NumberEvents((each,)))
            accepted.append(each)
    for each in reversed(accepted):
        (fact,) = widely.ends(each, answer(200))
        assert isinstance(fact, f.Delivered)
        assert (each.position, fact.events[0].sequence) in numbers
    assert widely.state.frontier == strictly.state.frontier
    assert widely.state.settled_sequence == len(numbers)


def test_every_number_is_recorded_before_any_result_of_a_later_event() -> None:
    """Any owner that folds a part of the journal gives the rest the same numbers."""
    actor = Actor(wide())
    for position in (1, 2):
        assert isinstance(actor.step(head=event(position), in_flight=range(1, position)), s.Post)
        actor.do(c.NumberEvents((event(position),)))
    actor.ends(event(2), answer(200))
    kinds = [type(fact) for fact in actor.facts if isinstance(fact, f.EventsNumbered | f.Delivered)]
    assert kinds == [f.EventsNumbered, f.EventsNumbered, f.Delivered]
    assert [each.position for each in actor.state.open] == [1]


def test_a_relaxed_receiver_has_at_most_256_open_events() -> None:
    actor = with_open(wide(concurrency=256), *[NOW + 60] * 256)
    head = event(999)
    assert actor.step(head=head) == s.WaitUntil(NOW + 60, Rule.RETRYING)
    actor.ends(event(7), answer(200))
    assert actor.step(head=head) == s.Post(head, 257, 1, has_token=True, numbered_first=True)


# ---- the machine: each with its own patience


def test_due_events_go_before_new_ones_and_waiting_ones_delay_no_other() -> None:
    actor = with_open(wide(), NOW + 60, NOW + 1, NOW + 30)
    held = {position: event(position) for position in (1, 2, 3)}
    assert actor.step(head=event(9), open_in_memory=held) == s.Post(
        event(9), 4, 1, has_token=True, numbered_first=True
    )
    assert actor.step(open_in_memory=held) == s.WaitUntil(NOW + 1, Rule.RETRYING)
    assert actor.step(NOW + 1, head=event(9), open_in_memory=held) == s.Post(event(2), 2, 2, has_token=True)
    assert actor.step(NOW + 30, open_in_memory=held, in_flight=(2,)) == s.Post(event(3), 3, 2, has_token=True)
    assert actor.step(NOW + 60, open_in_memory={}, in_flight=(2, 3)) == s.ReadOpenEvents((1,))


def test_each_event_counts_its_own_attempts() -> None:
    actor = Actor(wide(retry=Retry(max_attempts=2)))
    for position in (1, 2):
        actor.do(c.NumberEvents((event(position),)))
    for status in (500, 200):
        actor.ends(event(2), answer(status))
    actor.ends(event(1), answer(500))
    actor.ends(event(1), answer(500))
    assert [(each.position, each.attempts) for each in actor.state.open] == [(1, 2)]
    assert actor.step(open_in_memory={1: event(1)}) == given_up("attempts", event(1))


def test_the_oldest_expires_also_while_another_is_due_first() -> None:
    actor = with_open(wide(retry=Retry(max_age_s=60)), NOW + 500, NOW + 90)
    actor.state = replace(actor.state, open=(
        actor.state.open[0], replace(actor.state.open[1], stored_at=NOW + 59),
    ))  # fmt: skip
    held = {position: event(position) for position in (1, 2)}
    assert actor.step(NOW + 59, open_in_memory=held) == s.WaitUntil(NOW + 60, Rule.RETRYING)
    assert actor.step(NOW + 60, open_in_memory=held) == given_up("expired", event(1))


def test_a_recorded_slow_attempt_is_the_next_one_made() -> None:
    given = wide(rate=Rate(limit=1, per="hour", burst=1))
    actor = with_open(given, NOW + 60)
    assert actor.step(head=event(2), bucket=Bucket(1.0, NOW, 1)) == c.StartAttempt((event(2),))
    empty = Bucket(0.0, NOW, 1)
    actor.do(c.StartAttempt((event(2),)), bucket=empty)
    step = actor.step(NOW + 60, head=event(2), open_in_memory={1: event(1)}, granted_position=2, bucket=empty)
    assert step == s.Post(event(2), 2, 1, has_token=True)


# ---- the machine: the receiver as a whole


def test_five_failures_in_a_row_pause_the_receiver_which_then_gets_one_attempt() -> None:
    actor = with_open(wide(), *[NOW] * 9)
    held = {position: event(position) for position in range(1, 10)}
    for position in range(1, FAILURES_IN_A_ROW_MAX + 1):
        assert actor.state.backoff_until == 0.0
        actor.ends(event(position), answer(500))
    until = actor.state.backoff_until
    assert NOW < until <= NOW + 2
    assert actor.step(open_in_memory={6: event(6)}, head=event(99)) in (
        s.WaitUntil(until, Rule.BACKING_OFF),
        s.Park(Rule.BACKING_OFF),
    )
    assert isinstance(actor.step(until, open_in_memory=held), s.Post)
    assert actor.step(until, open_in_memory=held, in_flight=(6,)) == s.Rest(Rule.IN_FLIGHT)
    actor.ends(event(6), answer(200), at=until)
    assert (actor.state.backoff_until, actor.state.consecutive_failures) == (0.0, 0)
    assert isinstance(actor.step(until, open_in_memory=held, in_flight=(7,)), s.Post)


def test_an_attempt_under_way_when_the_backoff_began_changes_nothing() -> None:
    """Otherwise a receiver with 256 attempts in flight would back off too long after one bad second."""
    actor = with_open(wide(concurrency=256, retry=Retry(base_s=2, cap_s=3600)), *[NOW] * 100)
    for position in range(1, 100):
        actor.ends(event(position), NO_ANSWER)
    assert actor.state.consecutive_failures == FAILURES_IN_A_ROW_MAX
    until = actor.state.backoff_until
    assert until <= NOW + 2
    actor.ends(event(100), NO_ANSWER, at=until)
    assert until < actor.state.backoff_until <= until + 4
    assert actor.state.counters.failed_attempts == 100


def test_an_attempt_under_way_when_a_pause_began_asks_for_no_further_pause() -> None:
    """Otherwise a receiver that refuses 100 attempts at once would be left alone for an hour."""
    actor = with_open(wide(concurrency=256, retry=Retry(base_s=2, cap_s=3600)), *[NOW] * 100)
    for position in range(1, 100):
        actor.ends(event(position), answer(429))
    until = actor.state.throttled_until
    assert (actor.state.throttles, until <= NOW + 2) == (1, True)
    actor.ends(event(100), answer(429), at=until)
    assert (actor.state.throttles, until < actor.state.throttled_until <= until + 4) == (2, True)
    assert actor.state.counters.throttled == 100


@pytest.mark.parametrize("given", [policy(), wide()], ids=["strict", "relaxed"])
def test_only_a_relaxed_receiver_is_backed_off_beyond_its_events(given: Policy) -> None:
    actor = Actor(given)
    for _ in range(20):
        actor.ends(event(1), answer(500), at=actor.state.backoff_until or NOW)
    assert (actor.state.backoff_until > 0) is (given.order == "relaxed")


def test_rejections_and_pings_are_not_failures_of_the_receiver() -> None:
    actor = with_open(wide(), *[NOW] * 9)
    for position in range(1, 10):
        actor.ends(event(position), answer(400))
        actor.ends(None, answer(500))
    assert (actor.state.backoff_until, actor.state.consecutive_failures) == (0.0, 0)


@pytest.mark.parametrize("how", ["resume", "url"])
def test_resume_and_another_url_end_the_receivers_backoff(how: str) -> None:
    actor = with_open(wide(), *[NOW] * 9)
    for position in range(1, 8):
        actor.ends(event(position), answer(500))
    if how == "resume":
        actor.do(c.ResumeReceiver())
    else:
        actor.adopt(wide(url="https://other.example"))
    assert (actor.state.backoff_until, actor.state.consecutive_failures) == (0.0, 0)
    assert isinstance(actor.step(open_in_memory={1: event(1)}, in_flight=(9,)), s.Post)


# ---- the machine: another order while work is under way


def test_a_receiver_that_is_strict_again_finishes_open_events_one_by_one_in_order() -> None:
    actor = with_open(wide(), NOW + 5, NOW, NOW)
    held = {position: event(position) for position in (1, 2, 3)}
    actor.policy = policy()
    assert actor.step(head=event(9), open_in_memory=held, policy_adopted=False, in_flight=(2,)) == s.Rest(
        Rule.ADOPTION
    )
    assert actor.step(head=event(9), open_in_memory=held, policy_adopted=False) == c.Adopt(0, 1)
    assert actor.step(head=event(9), open_in_memory=held) == s.Park(Rule.BACKING_OFF)
    for position in (1, 2, 3):
        step = actor.step(NOW + 5, head=event(9), open_in_memory=held)
        assert step == s.Post(event(position), position, 2, has_token=True)
        actor.ends(event(position), answer(200))
    assert actor.step(NOW + 5, head=event(9)) == s.Post(event(9), 4, 1, has_token=True)


# ---- the actor


def failing(*positions: int) -> Any:
    """Answers 500 to the events at these positions, and 200 to all others."""

    def reply(attempt: Attempt) -> Outcome:
        return answer(500 if attempt.event.position in positions else 200)

    return reply


def delivered(world: ShardWorld) -> dict[int, int]:
    """The number of each event, by position, as the journal says."""
    events = [fact.events[0] for fact in world.journal.of(f.Delivered)]
    return {each.position: each.sequence for each in events}


@in_virtual_time
async def test_a_relaxed_receiver_uses_its_concurrency_and_all_is_recorded_and_acked() -> None:
    world = relaxed(concurrency=4)
    world.sender.latency_s = 0.1
    world.publish(40)
    await world.until_settled(40)
    assert world.sender.widest == 4
    assert world.sender.times[-1] - world.sender.times[0] == pytest.approx(0.9, abs=0.1)
    assert delivered(world) == {n: n for n in range(1, 41)}
    pending = world.actor.pending
    assert (sorted(world.acked), pending.open_in_memory, pending.in_flight) == (list(range(1, 41)), {}, {})


@in_virtual_time
async def test_an_event_that_fails_for_long_stops_no_other_and_costs_one_open_entry() -> None:
    world = relaxed(retry=Retry(base_s=2, cap_s=300, max_age_s=2 * HOUR_S))
    world.sender.reply = failing(1)
    world.publish(10)
    await world.until_settled(9)
    for count in range(10, 30):
        world.publish()
        await world.until_settled(count)
        await world.pass_time(300)
        assert [each.position for each in world.state.open] == [1]
        assert len(world.actor.pending.open_in_memory) + len(world.actor.pending.mailbox) <= 1
    assert world.state.open[0].attempts > 20
    assert len(world.journal.of(f.Parked)) <= 2
    await world.until(lambda: bool(world.dead_letters.buried), within_s=HOUR_S)
    (burial,) = world.dead_letters.buried
    assert (burial.position, burial.sequence, burial.reason) == (1, 1, "expired")
    await world.until(lambda: not world.state.parked)
    assert delivered(world) == {n: n for n in range(2, 31)}


@in_virtual_time
async def test_a_relaxed_receiver_does_not_park_again_and_again_while_one_event_waits() -> None:
    world = relaxed(retry=Retry(base_s=24 * HOUR_S, cap_s=24 * HOUR_S))
    world.sender.reply = failing(3)
    for count in range(1, 101):
        world.publish(5)
        await world.pass_time(1.0)
        assert world.state.counters.delivered >= 5 * count - 2
    assert len(world.journal.of(f.Parked)) == 1
    assert world.journal.of(f.Unparked) == []
    assert world.stream.reads <= 2


@in_virtual_time
async def test_parking_with_events_open_and_in_flight_loses_and_repeats_nothing() -> None:
    world = relaxed(concurrency=4, retry=SOON)
    world.sender.latency_s = 5.0
    world.publish(200)
    await world.pass_time(3)
    assert world.state.parked
    assert (world.host.shard_unacked.unacked_count, len(world.actor.pending.in_flight)) == (0, 4)
    world.sender.latency_s = 0.05
    await world.until_settled(200)
    assert sorted(world.sender.positions) == list(range(1, 201))
    assert delivered(world) == {n: n for n in range(1, 201)}
    await world.until(lambda: not world.state.parked)


@in_virtual_time
async def test_a_receiver_that_is_down_gets_a_pause_and_then_a_single_attempt() -> None:
    world = relaxed(concurrency=8, retry=Retry(base_s=20, cap_s=20))
    world.sender.latency_s = 0.1
    up = False
    world.sender.reply = lambda _: answer(200 if up else 500)
    world.publish(60)
    await world.pass_time(1)
    made = len(world.sender.made)
    assert FAILURES_IN_A_ROW_MAX <= made <= FAILURES_IN_A_ROW_MAX + 8
    world.sender.widest = 0
    await world.until(lambda: len(world.sender.made) >= made + 3)
    assert world.sender.widest == 1
    up = True
    await world.until_settled(60)
    assert world.sender.widest == 8


@in_virtual_time
async def test_concurrency_returns_once_a_single_attempt_has_succeeded() -> None:
    """The actor needs no reminder by a new event or a read."""
    world = relaxed(concurrency=8, retry=Retry(base_s=0.5, cap_s=0.5))
    world.sender.latency_s = 0.1
    up = False
    world.sender.reply = lambda _: answer(200 if up else 500)
    world.publish(40)
    await world.until(lambda: world.state.consecutive_failures >= FAILURES_IN_A_ROW_MAX)
    await world.until(lambda: not world.actor.pending.in_flight)
    world.sender.widest, up = 0, True
    await world.until_settled(40)
    assert world.journal.of(f.Parked) == []
    assert world.sender.widest == 8


@pytest.mark.parametrize("snapshots", [False, True])
@in_virtual_time
async def test_after_a_crash_every_event_has_its_number_again(snapshots: bool) -> None:
    world = relaxed(concurrency=4, retry=SOON)
    world.sender.latency_s = 0.15
    world.sender.reply = failing(2, 6)
    world.publish(30)
    numbers = dict[int, int]()
    for _ in range(6):
        await world.pass_time(0.31)
        world.crash(snapshots=snapshots)
    world.sender.reply = failing()
    await world.until_settled(30)
    for attempt in world.sender.made:
        assert attempt.sequence is not None
        assert numbers.setdefault(attempt.event.position, attempt.sequence) == attempt.sequence
    assert numbers == {n: n for n in range(1, 31)}
    assert set(delivered(world)) == set(numbers)


@in_virtual_time
async def test_a_crash_with_a_number_unrecorded_gives_it_again() -> None:
    world = relaxed(concurrency=4)
    world.sender.latency_s = 0.05
    world.journal.hold_at = f.EventsNumbered
    world.publish(8)
    await world.until(lambda: len(world.sender.made) >= 4)
    world.crash()
    await world.until_settled(8)
    assert delivered(world) == {n: n for n in range(1, 9)}


@pytest.mark.parametrize("snapshots", [False, True])
@in_virtual_time
async def test_a_duplicate_is_released_while_its_original_is_open(snapshots: bool) -> None:
    """The release needs only the recorded number: the next owner also treats the event as a duplicate."""
    world = relaxed(retry=Retry(base_s=1.5, cap_s=1.5))
    world.sender.reply = failing(1)
    world.publish(name="a")
    world.publish(2, name="b")
    await world.until(lambda: world.host.shard_unacked.unacked_count == 1)
    await world.until(lambda: world.journal.confirmed_index == world.journal.index)
    assert [each.position for each in world.state.open] == [1]
    world.crash(snapshots=snapshots)
    world.sender.reply = failing()
    world.publish(name="c")
    await world.until_settled(3)
    assert delivered(world) == {1: 1, 2: 2, 4: 3}
    assert world.sender.positions.count(3) == 0


@in_virtual_time
async def test_from_strict_to_relaxed_and_back_while_work_is_under_way() -> None:
    world = ShardWorld(policy(retry=SOON))
    world.sender.latency_s = 0.07
    world.sender.reply = lambda attempt: answer(500 if attempt.ordinal == 1 else 200)
    for round_ in range(6):
        world.publish(25)
        await world.pass_time(0.5)
        given = policy if round_ % 2 else wide
        world.put(given(concurrency=5, retry=SOON))
    world.sender.reply = failing()
    await world.until_settled(150)
    assert world.sender.widest > 1
    assert delivered(world) == {n: n for n in range(1, 151)}
    late = [each.sequence for each in world.sender.made if each.policy.order == "strict"][-20:]
    assert late == sorted(late, key=lambda sequence: sequence or 0)


@in_virtual_time
async def test_a_removed_receiver_leaves_memory_with_its_open_events() -> None:
    world = relaxed(retry=Retry(base_s=1.5, cap_s=1.5))
    world.sender.reply = lambda _: answer(400)
    world.publish(4)
    await world.until(lambda: len(world.actor.pending.open_in_memory) == 4)
    world.put(None)
    await world.until(lambda: bool(world.journal.of(f.Removed)))
    assert (world.state.open, world.actor.pending.open_in_memory) == ((), {})
    assert world.journal.of(f.Removed)[0].discarded == 4
