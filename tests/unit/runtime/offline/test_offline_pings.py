"""Pings in place of events, as an offline receiver gets them until its first 2xx."""

from itertools import pairwise
from typing import Any, Literal

import pytest

from actors.configuration.policy import BatchLimits, Offline, Rate, Retry
from actors.machine import facts as f
from actors.machine.alerts.returning import JITTER_MAX_S
from actors.machine.outcome import OUTAGE, Answered, Failed
from actors.ports import Attempt
from actors.runtime.operator_actions.ping import ping
from actors.status import inspect
from tests.unit.worlds.shard import ShardWorld
from tests.unit.worlds.values import answer, policy
from tests.unit.worlds.virtual_time import in_virtual_time

AFTER_S = 10.0
RETRY = Retry(base_s=2, cap_s=4)
SOON = Offline(after_s=AFTER_S, ping=True)
CONNECT = Failed(error="connect", detail="connection refused", latency_ms=1.0)


def failing(outcome: int | Answered | Failed = 500, /, **members: Any) -> ShardWorld:
    """A receiver with an event that waits; all its answers are this one."""
    world = ShardWorld(policy(**({"retry": RETRY, "offline": SOON} | members)))
    said = answer(outcome) if isinstance(outcome, int) else outcome
    world.sender.reply, world.sender.reply_to_batch = lambda _: said, lambda _: said
    world.publish()
    return world


def works(world: ShardWorld) -> None:
    """From now on the receiver answers 200."""
    world.sender.answers()


def pings(world: ShardWorld) -> list[Attempt]:
    return [each for each in world.sender.made if each.kind == "ping"]


def events(world: ShardWorld) -> list[Attempt]:
    return [each for each in world.sender.made if each.kind == "event"]


def why(world: ShardWorld) -> str:
    actor, now = world.actor, world.clock.now()
    return inspect(
        world.state, actor.policy, actor.shown_view(), now, shard=0, node="n", queued=1, backlog=1, head=None,
        last_answer=None, problems=[],
    )["why"]  # fmt: skip


@pytest.mark.parametrize("order", ["strict", "relaxed"])
@pytest.mark.parametrize("batch", [None, BatchLimits(max_events=2)])
@in_virtual_time
async def test_an_offline_receiver_gets_pings_alone(
    order: Literal["strict", "relaxed"], batch: BatchLimits | None
) -> None:
    world = failing(order=order, batch=batch)
    await world.pass_time(AFTER_S + 4.1)
    posts, pinged = len(events(world)) + len(world.sender.batches), len(pings(world))
    world.publish(5)
    await world.pass_time(60)
    assert len(events(world)) + len(world.sender.batches) == posts, "an event was sent to an offline receiver"
    assert len(pings(world)) > pinged + 10
    assert {(each.sequence, each.event.type) for each in pings(world)} == {(None, "angarium.ping")}
    works(world)
    await world.until_settled(6)
    assert world.state.failing_since is None


@in_virtual_time
async def test_pings_come_on_the_schedule_of_the_backoff() -> None:
    world = failing()
    await world.pass_time(300)
    times = [
        at for at, made in zip(world.sender.times, world.sender.made, strict=True) if made.kind == "ping"
    ]
    waits = [later - earlier for earlier, later in pairwise(times)]
    assert max(waits) <= RETRY.cap_s + 0.01
    assert RETRY.cap_s * 0.4 < sum(waits) / len(waits) < RETRY.cap_s * 0.6
    assert len(set(waits)) == len(waits), "the jitter is the same each time"


@in_virtual_time
async def test_a_ping_counts_for_no_event_and_its_success_delivers_none() -> None:
    world = failing(retry=Retry(base_s=3, cap_s=3, max_attempts=20))
    await world.pass_time(300)
    (entry,) = world.state.open
    assert len(pings(world)) > 40
    assert entry.attempts == entry.failures == len(events(world))
    assert entry.failures < 20
    assert not world.dead_letters.buried
    works(world)
    await world.until(lambda: world.state.failing_since is None)
    assert world.state.counters.delivered == 0
    await world.until_settled(1)


@in_virtual_time
async def test_delivery_begins_soon_after_the_first_success_though_the_delays_were_long() -> None:
    world = failing(retry=Retry(base_s=3000, cap_s=3600))
    await world.until(lambda: len(pings(world)) > 2, within_s=80000)
    assert world.state.failing_since is not None
    works(world)
    await world.until(lambda: world.state.failing_since is None, within_s=8000)
    came_back_at = world.clock.now()
    await world.until(lambda: world.state.counters.delivered == 1)
    assert world.clock.now() - came_back_at < JITTER_MAX_S + 0.3


@pytest.mark.parametrize("snapshots", [False, True])
@in_virtual_time
async def test_the_next_owner_continues_with_pings(snapshots: bool) -> None:
    world = failing()
    await world.pass_time(60)
    await world.pass_time(0.5)
    until, posts = world.state.backoff_until, len(events(world))
    world.crash(snapshots=snapshots)
    await world.pass_time(0.1)
    assert world.state.backoff_until >= until, "the schedule of the pings is lost"
    await world.pass_time(60)
    assert len(events(world)) == posts
    works(world)
    await world.until(lambda: world.state.failing_since is None)
    await world.pass_time(0.3)
    world.crash(snapshots=snapshots)
    await world.until_settled(1)


@pytest.mark.parametrize(
    ("outcome", "reason"),
    [
        (answer(410), "gone"),
        (answer(500, angarium_disable="true"), "asked"),
        (answer(200, angarium_disable="true"), "asked"),
    ],
)
@in_virtual_time
async def test_an_answer_to_a_ping_disables_the_receiver(outcome: Answered, reason: str) -> None:
    world = failing()
    await world.pass_time(AFTER_S + 8)
    posts = len(events(world))
    world.sender.reply = lambda _: outcome
    await world.until(lambda: world.state.disabled == reason, within_s=60)
    made = len(world.sender.made)
    await world.pass_time(100)
    assert (len(world.sender.made), len(events(world))) == (made, posts)


@pytest.mark.parametrize("status", [500, 422])
@in_virtual_time
async def test_pings_that_fail_for_too_long_disable_the_receiver(status: int) -> None:
    world = failing(offline=Offline(after_s=AFTER_S, ping=True, disable_after_s=100))
    await world.pass_time(AFTER_S + 8)
    world.sender.reply = lambda _: answer(status)
    await world.pass_time(70)
    assert not world.journal.of(f.Disabled)
    await world.pass_time(40)
    assert [each.reason for each in world.journal.of(f.Disabled)] == ["failing"]


@in_virtual_time
async def test_a_time_named_in_answer_to_a_ping_is_kept() -> None:
    world = failing()
    await world.pass_time(AFTER_S + 8)
    world.sender.reply = lambda _: answer(503, retry_after="100")
    await world.until(lambda: world.state.throttled_until > 0, within_s=60)
    until = world.state.throttled_until
    works(world)
    made = len(world.sender.made)
    await world.pass_time(98)
    assert len(world.sender.made) == made
    await world.until(lambda: world.state.counters.delivered == 1)
    assert world.clock.now() - until < 0.3, "a receiver that named the time itself gets no jitter"


@in_virtual_time
async def test_an_event_expires_while_pings_are_made() -> None:
    world = failing(retry=Retry(base_s=2, cap_s=4, max_age_s=60))
    await world.pass_time(59)
    assert not world.dead_letters.buried
    await world.pass_time(15)
    assert [each.reason for each in world.dead_letters.buried] == ["expired"]


@in_virtual_time
async def test_a_ping_takes_a_token() -> None:
    world = failing(rate=Rate(limit=1, per="minute", burst=3))
    await world.pass_time(600)
    assert len(world.sender.made) <= 3 + 10
    assert len(pings(world)) >= 5
    bucket = world.journal.of(f.Pinged)[-1].bucket
    assert bucket is not None
    assert bucket.tokens < 1


@in_virtual_time
async def test_without_a_network_no_ping_is_made_and_no_receiver_ages() -> None:
    world = failing()
    await world.pass_time(60)
    made, failed_s = len(world.sender.made), world.state.failing_s(world.clock.now())
    world.outage(True)
    await world.pass_time(100)
    assert len(world.sender.made) <= made + 1
    assert world.state.failing_s(world.clock.now()) <= failed_s + 1
    assert "connect to no host" in why(world) or "offline" in why(world)
    world.outage(False)
    await world.pass_time(10)
    assert len(world.sender.made) > made + 1


@in_virtual_time
async def test_a_ping_that_failed_by_our_fault_does_not_count() -> None:
    world = failing()
    await world.pass_time(AFTER_S + 8)
    world.sender.reply = lambda _: Failed(error=OUTAGE, detail="no host", latency_ms=1.0)
    await world.pass_time(5)
    failures, failed_s = world.state.consecutive_failures, world.state.failing_s(world.clock.now())
    await world.pass_time(60)
    assert world.state.our_failures > 5
    assert world.state.consecutive_failures == failures
    assert world.state.failing_s(world.clock.now()) == pytest.approx(failed_s, abs=0.001)


@in_virtual_time
async def test_pings_of_a_host_that_is_down_wait_for_their_turn() -> None:
    world = failing()
    await world.pass_time(AFTER_S + 8)
    world.down_hosts.count = 1
    await world.pass_time(5)
    made = len(world.sender.made)
    await world.pass_time(60)
    assert len(world.sender.made) == made
    world.down_hosts.count = 0
    world.actor.wake()
    await world.pass_time(0.1)
    assert [each.kind for each in world.sender.made[made:]] == ["ping"]


@in_virtual_time
async def test_a_ping_by_hand_ends_it_too() -> None:
    world = failing(retry=Retry(base_s=3000, cap_s=3600))
    await world.until(lambda: len(pings(world)) > 1, within_s=80000)
    works(world)
    assert (await ping(world.actor)).status == 200
    await world.pass_time(JITTER_MAX_S + 0.3)
    assert world.state.counters.delivered == 1


@in_virtual_time
async def test_events_are_sent_while_a_node_does_not_know_such_pings() -> None:
    world = failing()
    world.all_know_offline_pings = False
    await world.pass_time(100)
    assert not pings(world)
    assert "the next attempt" in why(world)
    world.all_know_offline_pings = True
    posts = len(events(world))
    await world.pass_time(60)
    assert len(events(world)) <= posts + 1
    assert "ping in place of its events" in why(world)


@in_virtual_time
async def test_a_receiver_without_waiting_events_gets_no_ping() -> None:
    world = failing(retry=Retry(base_s=2, cap_s=4, max_age_s=60))
    await world.until(lambda: len(world.dead_letters.buried) == 1)
    made = len(world.sender.made)
    await world.pass_time(100)
    assert len(world.sender.made) == made
    world.publish()
    await world.pass_time(1)
    assert [each.kind for each in world.sender.made[made:]] == ["ping"]


@in_virtual_time
async def test_a_paused_receiver_gets_no_ping() -> None:
    world = failing()
    await world.pass_time(60)
    world.put(policy(retry=RETRY, offline=SOON, paused=True))
    await world.pass_time(1)
    made = len(world.sender.made)
    await world.pass_time(60)
    assert len(world.sender.made) == made


@in_virtual_time
async def test_a_ping_whose_record_is_late_gives_its_token_back_and_is_made_later() -> None:
    world = failing(rate=Rate(limit=1, burst=5))
    await world.pass_time(AFTER_S + 8)
    world.journal.hold_at = f.Pinged
    await world.until(lambda: world.journal.held)
    await world.pass_time(6)
    works(world)
    world.journal.let_go()
    await world.until_settled(1)
    assert len(world.journal.of(f.Pinged)) == len(pings(world)) + 1


@in_virtual_time
async def test_an_event_expires_under_a_ping_which_keeps_its_actor_in_memory() -> None:
    world = failing(retry=Retry(base_s=2, cap_s=4, max_age_s=60))
    await world.pass_time(50)
    world.sender.latency_s = 9000  # The alert about the dead letter keeps the actor in memory for an hour.
    await world.until(lambda: len(world.dead_letters.buried) == 1, within_s=11)
    await world.pass_time(8000)
    assert not world.actor.is_resting
    works(world)
    await world.until(lambda: world.state.failing_since is None)
