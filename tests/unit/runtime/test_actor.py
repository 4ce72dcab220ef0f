"""The actor of one receiver: messages in, attempts out, bounded memory, whatever happens in between."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from actors.configuration.policy import Rate, Retry
from actors.errors import ControlDenied
from actors.machine import facts as f
from actors.machine.bucket import GRANT_MAX_S
from actors.machine.outcome import Outcome
from actors.memory.mailbox import MAILBOX_MAX
from actors.ports import Attempt
from actors.runtime.actor import Actor
from actors.runtime.operator_actions.forget import forget
from actors.runtime.operator_actions.ping import ping
from actors.runtime.operator_actions.resume import resume
from actors.runtime.operator_actions.skip import skip
from tests.unit.worlds.shard import RECEIVER, strict
from tests.unit.worlds.values import answer, policy
from tests.unit.worlds.virtual_time import in_virtual_time

LIMITED = Rate(limit=10, burst=2)


# ---- the plain way


@in_virtual_time
async def test_events_arrive_are_posted_in_order_recorded_and_acked() -> None:
    world = strict()
    world.publish(20)
    await world.until_settled(20)
    assert world.sender.positions == list(range(1, 21))
    assert world.sender.numbers == list(range(1, 21))
    assert sorted(world.acked) == list(range(1, 21))
    assert (world.journal.floor, world.stream.reads) == (20, 0)


@in_virtual_time
async def test_a_message_is_acked_only_after_its_fact_is_confirmed() -> None:
    world = strict()
    world.publish()
    await world.until(lambda: bool(world.sender.made))
    world.journal.held = True
    await world.pass_time(1)
    assert world.acked == []
    world.journal.let_go()
    assert world.acked == [1]


@in_virtual_time
async def test_a_failed_attempt_is_repeated_under_its_number_before_the_next_event() -> None:
    world = strict(retry=Retry(base_s=0.05, cap_s=0.05))
    world.sender.answers(500, 429, answer(503, retry_after="1"))
    world.publish(2)
    await world.until_settled(2)
    assert world.sender.numbers == [1, 1, 1, 1, 2]
    assert [each.ordinal for each in world.sender.made] == [1, 2, 3, 4, 1]


@in_virtual_time
async def test_a_rate_is_kept_to_the_token() -> None:
    world = strict(rate=LIMITED)
    world.publish(12)
    await world.until_settled(12)
    starts = world.sender.times
    assert starts[1] - starts[0] < 0.01
    assert starts[-1] - starts[0] == pytest.approx(1.0, abs=0.01)
    for i, first in enumerate(starts):
        for j, last in enumerate(starts[i:]):
            assert j + 1 <= 2 + 10 * (last - first) + 1e-6


@in_virtual_time
async def test_a_duplicate_is_dropped_and_acked() -> None:
    world = strict()
    world.publish(2, name="same")
    world.publish(name="other")
    await world.until_settled(2)
    assert world.sender.numbers == [1, 2]
    assert sorted(world.acked) == [1, 2, 3]
    assert world.state.counters.duplicates == 1


@in_virtual_time
async def test_a_message_that_is_handed_out_again_is_recognised() -> None:
    world = strict()
    world.sender.latency_s = 0.5
    world.publish(3)
    await world.until(lambda: len(world.sender.made) == 2)
    world.hand_out_again()
    await world.until_settled(3)
    assert world.sender.numbers == [1, 2, 3]
    world.hand_out_again()
    assert world.host.shard_unacked.unacked_count == 0


@in_virtual_time
async def test_a_duplicate_that_was_dropped_and_comes_again_is_released() -> None:
    world = strict()
    world.publish(name="same")
    await world.until_settled(1)
    world.journal.held = True
    world.publish(name="same")
    assert world.state.counters.duplicates == 1
    world.host.arrive(RECEIVER, world.stream.messages[1][1])
    assert world.host.shard_unacked.unacked_count == 0
    assert not world.state.parked


@in_virtual_time
async def test_an_attempt_with_a_slow_token_is_recorded_before_it_is_made() -> None:
    world = strict(rate=Rate(limit=60, per="hour", burst=1))
    world.publish(2)
    await world.until(lambda: bool(world.sender.made))
    assert [each.events[0].sequence for each in world.journal.of(f.Started)] == [1]
    await world.until_settled(2)
    assert world.sender.times[1] - world.sender.times[0] == pytest.approx(60, abs=0.1)


@in_virtual_time
async def test_a_slow_attempt_whose_record_takes_long_needs_a_token_of_its_start() -> None:
    """A minute on the way to the journal, and the token of that minute would make two starts at once."""
    world = strict(rate=Rate(limit=60, per="hour", burst=1))
    world.publish(3)
    world.journal.hold_at = f.Started
    await world.until(lambda: world.journal.held)
    await world.pass_time(90)
    world.journal.let_go()
    await world.until_settled(3)
    assert len(world.journal.of(f.Started)) == 4, "the first was recorded again"
    first, second, third = world.sender.times
    assert (second - first, third - second) == pytest.approx((60, 60), abs=0.1)


@in_virtual_time
async def test_a_ping_whose_record_takes_long_is_not_made() -> None:
    world = strict(rate=Rate(limit=60, per="hour", burst=1))
    world.publish()
    await world.until_settled(1)
    await world.pass_time(100)
    world.journal.hold_at = f.Pinged
    pinged = asyncio.ensure_future(ping(world.actor))
    await world.until(lambda: world.journal.held)
    await world.pass_time(10)
    world.journal.let_go()
    with pytest.raises(ControlDenied, match="took too long"):
        await pinged
    made = len(world.sender.made)
    await ping(world.actor)
    assert len(world.sender.made) == made + 1, "the token was given back"


@in_virtual_time
async def test_a_slow_attempt_that_is_held_up_gives_its_token_back() -> None:
    """Otherwise the next attempt would follow at once: the start would count from the time of its token."""
    world = strict(rate=Rate(limit=60, per="hour", burst=1))
    world.publish(2)
    world.journal.hold_at = f.Started
    await world.until(lambda: world.journal.held)
    world.put(policy(rate=Rate(limit=60, per="hour", burst=1), paused=True))
    world.journal.let_go()
    await world.pass_time(600)
    world.put(policy(rate=Rate(limit=60, per="hour", burst=1)))
    await world.until_settled(2)
    assert world.sender.times[1] - world.sender.times[0] == pytest.approx(60, abs=0.1)


@in_virtual_time
@pytest.mark.parametrize(("limit", "burst"), [(100, 1), (10, 1), (10, 5), (5, 2)])
async def test_a_ping_during_a_queue_leaves_the_rate_as_it_is(limit: int, burst: int) -> None:
    """The actor looks at waiting events first when the record is confirmed; pings take room until then."""
    world = strict(rate=Rate(limit=limit, burst=burst))
    actor = await world.host.residents.when_loaded(RECEIVER)
    await world.pass_time(5)
    world.journal.held = True
    pings = [asyncio.ensure_future(ping(actor)) for _ in range(burst)]
    await world.pass_time(0)
    world.publish(20)
    await world.pass_time((burst + 0.5) / limit)
    world.journal.let_go()
    await asyncio.gather(*pings)
    await world.until_settled(20)
    times = world.sender.times
    assert actor.live.tokens.bucket is not None
    assert actor.live.tokens.set_aside == 0
    for number, at in enumerate(times):
        within = [each for each in times[number:] if each - at < 1]
        assert len(within) <= burst + limit * (within[-1] - at) + 1e-3


@in_virtual_time
async def test_a_ping_that_is_not_made_lets_what_waits_have_its_token() -> None:
    world = strict(rate=Rate(limit=1, per="hour", burst=1))
    actor = await world.host.residents.when_loaded(RECEIVER)
    await world.pass_time(5)
    world.journal.held = True
    pinged = asyncio.ensure_future(ping(actor))
    await world.pass_time(0)
    world.publish()
    await world.pass_time(GRANT_MAX_S + 1)
    world.journal.let_go()
    with pytest.raises(ControlDenied):
        await pinged
    await world.until(lambda: bool(world.sender.made), within_s=5)


@in_virtual_time
@pytest.mark.parametrize("verb", [forget, skip, None])
async def test_a_slow_attempt_whose_event_leaves_gives_its_token_back(
    verb: Callable[[Actor], Coroutine[Any, Any, object]] | None,
) -> None:
    """The token returns before another attempt is recorded; otherwise it would be lost to the bucket."""
    rate = Rate(limit=1, per="minute", burst=3)
    world = strict(rate=rate)
    actor = await world.host.residents.when_loaded(RECEIVER)
    await world.pass_time(2)
    world.journal.hold_at = f.Started
    world.publish()
    await world.pass_time(0.05)
    assert actor.live.tokens.granted_position == 1
    asked: asyncio.Future[object] | None = None
    if verb is None:
        world.put(None)
    else:
        asked = asyncio.ensure_future(verb(actor))
    await world.pass_time(0.05)
    assert (actor.live.tokens.granted_position, actor.live.tokens.set_aside) == (0, 0)
    assert actor.live.tokens.bucket is not None
    assert actor.live.tokens.bucket.tokens == 3
    world.journal.let_go()
    if asked is None:
        world.put(policy(rate=rate))
    else:
        await asked
    world.publish(3)
    await world.until(lambda: len(world.sender.made) == 3, within_s=5)
    await world.pass_time(600)
    filled = actor.live.bucket_at(world.clock.now())
    assert filled is not None
    assert filled.tokens == 3


# ---- giving up


@in_virtual_time
async def test_a_dead_letter_is_confirmed_before_the_next_event_and_before_its_burial() -> None:
    world = strict(retry=Retry(rejected_attempts=1))
    world.sender.answers(400)
    world.publish(2)
    await world.until(lambda: world.sender.numbers == [1])
    world.journal.held = True
    await world.pass_time(5)
    assert (world.sender.numbers, world.dead_letters.buried) == ([1], [])
    world.journal.let_go()
    await world.until_settled(1)
    assert world.sender.numbers == [1, 2]
    await world.until(lambda: bool(world.journal.of(f.Buried)))
    assert world.dead_letters.buried == [
        f.Burial(position=1, reason="rejected", sequence=1, attempts=1, status=400)
    ]


@in_virtual_time
async def test_events_of_a_paused_receiver_in_the_stream_are_dead_lettered_in_time() -> None:
    world = strict(paused=True, retry=Retry(max_age_s=60))
    world.publish(100)
    await world.pass_time(30)
    world.publish(1)
    await world.until(lambda: len(world.dead_letters.buried) == 100, within_s=40)
    assert [each.sequence for each in world.dead_letters.buried] == list(range(1, 101))
    assert {each.reason for each in world.dead_letters.buried} == {"expired"}
    await world.until(lambda: len(world.dead_letters.buried) == 101, within_s=60)
    assert world.sender.made == []


@in_virtual_time
async def test_a_malformed_event_becomes_a_dead_letter_in_its_turn() -> None:
    world = strict()
    world.publish()
    world.publish(malformed="Angarium-Type: wrong")
    world.publish()
    await world.until_settled(2)
    assert world.sender.positions == [1, 3]
    assert world.sender.numbers == [1, 3]


# ---- parking


@in_virtual_time
async def test_events_beyond_the_mailbox_are_read_from_the_stream() -> None:
    world = strict()
    world.publish(600)
    await world.until(lambda: world.actor.loaded)
    assert len(world.actor.pending.mailbox) <= MAILBOX_MAX
    assert world.host.shard_unacked.unacked_count <= MAILBOX_MAX
    await world.until_settled(600)
    assert world.sender.numbers == list(range(1, 601))
    assert world.sender.positions == list(range(1, 601))
    await world.until(lambda: not world.state.parked)
    reads = world.stream.reads
    assert 4 <= reads <= 8
    world.publish(3)
    await world.until_settled(603)
    assert world.stream.reads == reads


@in_virtual_time
async def test_arrivals_while_parked_only_raise_what_is_to_be_read() -> None:
    world = strict(rate=Rate(limit=100, burst=1))
    for _ in range(40):
        world.publish(10)
        await world.pass_time(0.05)
        assert len(world.actor.pending.mailbox) <= MAILBOX_MAX
        assert world.host.shard_unacked.unacked_count <= MAILBOX_MAX
    await world.until_settled(400)
    assert world.sender.positions == list(range(1, 401))


@in_virtual_time
async def test_a_slow_answer_holds_no_message_longer_than_two_seconds() -> None:
    world = strict()
    world.sender.latency_s = 10
    world.publish(3)
    await world.pass_time(2.9)
    assert (sorted(world.acked), world.sender.numbers) == ([1, 2, 3], [1])
    assert (world.state.parked, len(world.actor.pending.mailbox)) == (True, 0)
    world.sender.latency_s = 0.001
    await world.until_settled(3)
    assert world.sender.numbers == [1, 2, 3]


@in_virtual_time
async def test_a_throttled_receiver_costs_no_memory_and_comes_back_in_time() -> None:
    world = strict()
    world.sender.answers(answer(429, retry_after="600"))
    world.publish(5)
    await world.pass_time(1)
    assert (sorted(world.acked), len(world.actor.pending.mailbox)) == ([1, 2, 3, 4, 5], 0)
    world.publish(5)
    await world.pass_time(500)
    assert (
        len(world.sender.made),
        len(world.actor.pending.mailbox),
        world.host.shard_unacked.unacked_count,
    ) == (
        1,
        0,
        0,
    )
    await world.until_settled(10)
    assert world.sender.times[1] == pytest.approx(600, abs=1)
    assert world.sender.numbers == [1, *range(1, 11)]


@in_virtual_time
async def test_while_the_backlog_cannot_be_read_it_is_asked_for_again() -> None:
    world = strict()
    world.stream.unavailable = True
    world.publish(MAILBOX_MAX + 40)
    await world.pass_time(5)
    assert world.sender.made == []
    assert world.stream.reads >= 8
    world.stream.unavailable = False
    await world.until_settled(MAILBOX_MAX + 40)


@in_virtual_time
async def test_an_event_that_was_read_ahead_stays_bound_when_it_is_handed_out() -> None:
    """The event is beyond everything seen so far, so the receiver unparks before it is settled."""
    world, count = strict(), MAILBOX_MAX + 6
    world.publish(count)
    await world.until(lambda: world.state.parked)
    world.store()
    await world.until(lambda: world.actor.pending.mailbox.holds(count + 1))
    world.sender.latency_s = 0.25
    world.hand_out()
    await world.until(lambda: bool(world.journal.of(f.Unparked)))
    assert (world.state.counters.delivered, world.host.shard_unacked.unacked_count) == (count, 1)
    world.crash()
    await world.until_settled(count + 1)


@in_virtual_time
async def test_an_event_that_comes_during_an_empty_read_is_not_missed() -> None:
    world = strict()
    world.sender.answers(answer(429, retry_after="60"))
    world.publish()
    world.publish(3, receiver="acme.other")
    await world.until(lambda: world.journal.floor == 4)
    world.crash()
    world.stream.delay_s = 2.0
    await world.until(lambda: world.actor.pending.cursor.reading and world.state.counters.delivered == 1)
    world.publish()
    await world.until_settled(2)
    assert world.journal.of(f.Missing) == []
    assert world.sender.numbers == [1, 1, 2]


@in_virtual_time
async def test_events_that_were_there_and_are_gone_are_recorded_with_a_gap() -> None:
    world = strict(paused=True)
    world.publish(5)
    await world.until(lambda: len(world.acked) == 5)
    world.stream.lost = {3, 5}
    world.put(policy())
    await world.until(lambda: bool(world.journal.of(f.Missing)))
    assert world.sender.positions == [1, 2, 4]
    (missing,) = world.journal.of(f.Missing)
    assert (missing.first, missing.last, missing.next_sequence) == (5, 5, 5)
    world.publish()
    await world.until_settled(4)
    assert world.sender.numbers == [1, 2, 3, 5]


@in_virtual_time
async def test_an_open_event_that_is_gone_is_recorded() -> None:
    world = strict()
    world.sender.answers(answer(429, retry_after="60"))
    world.publish(2)
    await world.pass_time(1)
    world.stream.lost = {1}
    await world.until_settled(1)
    assert [(each.first, each.next_sequence) for each in world.journal.of(f.Missing)] == [(1, 2)]
    assert world.sender.numbers == [1, 2]


# ---- configurations


@in_virtual_time
async def test_a_new_configuration_takes_effect_at_the_next_step_and_loses_nothing() -> None:
    world = strict(rate=Rate(limit=1, burst=1))
    world.publish(30)
    await world.until(lambda: len(world.sender.made) == 2)
    world.put(policy(url="https://other.example", rate=Rate(limit=100, burst=1), dedup_window=16))
    await world.until_settled(30)
    assert [each.policy.url for each in world.sender.made[2:]] == ["https://other.example"] * 28
    assert world.sender.numbers == list(range(1, 31))
    assert world.state.frontier.size_at(31) == 16


@in_virtual_time
async def test_pause_and_resume() -> None:
    world = strict()
    world.sender.latency_s = 0.1
    world.publish(5)
    await world.until(lambda: len(world.sender.made) == 2)
    world.put(policy(paused=True))
    await world.pass_time(600)
    assert len(world.sender.made) == 2
    world.put(policy())
    await world.until_settled(5)


@in_virtual_time
async def test_resume_is_recorded_when_it_returns() -> None:
    world = strict()
    world.sender.answers(410)
    world.publish(2)
    await world.until(lambda: bool(world.journal.of(f.Disabled)))
    await world.pass_time(600)
    assert len(world.sender.made) == 1
    await resume(world.actor)
    assert len(world.journal.of(f.Resumed)) == 1
    await world.until_settled(2)
    assert world.sender.numbers == [1, 1, 2]


@in_virtual_time
async def test_a_sender_that_breaks_leaves_nothing_in_flight(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = strict(retry=Retry(base_s=0.05, cap_s=0.05, max_attempts=2))
    broken = [True, True, False]

    def reply(_: Attempt) -> Outcome:
        if broken.pop(0):
            raise ZeroDivisionError
        return answer(200)

    world.sender.reply = reply
    world.publish(traceparent="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
    await world.until_settled(1)
    failed = world.journal.of(f.AttemptFailed)
    assert [each.error for each in failed] == ["internal: ZeroDivisionError"] * 2
    assert [each.ours for each in failed] == [True, True]
    assert not world.journal.of(f.DeadLettered)
    assert [record.message for record in caplog.records] == ["attempt.broken"] * 2
    assert {record.__dict__["trace_id"] for record in caplog.records} == {"0af7651916cd43dd8448eb211c80319c"}
