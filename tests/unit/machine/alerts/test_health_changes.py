"""Changes of a receiver's health in the log: each change once, with any owner of the shard."""

from typing import Any

import pytest

from actors.configuration.policy import Offline, Retry
from actors.machine import facts as f
from actors.machine.alerts.health_changes import (
    HealthChange,
    health_change,
)
from actors.machine.outcome import PROXY, Answered, Failed
from actors.machine.state import State
from actors.ports import Invalid
from actors.runtime.operator_actions.resume import resume
from tests.unit.worlds.shard import RECEIVER, ShardWorld, strict
from tests.unit.worlds.values import NO_ANSWER, NOW, answer, policy
from tests.unit.worlds.virtual_time import in_virtual_time

SOON = Offline(after_s=60, disable_after_s=600)
SELDOM = Retry(base_s=3600, cap_s=3600)
REFUSED = Failed(error=PROXY, detail="proxy default: answered 502", latency_ms=3.0)


def reported(world: ShardWorld) -> list[str]:
    return [each.name for each in world.health_changes]


def failing(offline: Offline = SOON) -> ShardWorld:
    """A receiver that never answers, and is tried every five seconds at least."""
    world = ShardWorld(policy(offline=offline, retry=Retry(base_s=2, cap_s=5)))
    world.sender.reply = lambda _: NO_ANSWER
    world.publish()
    return world


@in_virtual_time
async def test_offline_is_logged_once_over_later_failures() -> None:
    world = failing()
    await world.pass_time(55)
    assert reported(world) == []
    await world.pass_time(300)
    assert reported(world) == ["offline"]
    change = world.health_changes[0]
    assert (change.receiver, change.why) == (RECEIVER, "no success for 1m; timeout: no answer within 15 s")
    assert change.since == pytest.approx(NOW, abs=1)


@in_virtual_time
async def test_an_outage_below_a_minute_is_shown_in_seconds() -> None:
    world = ShardWorld(policy(offline=Offline(after_s=5), retry=SELDOM))
    world.sender.reply = lambda _: NO_ANSWER
    world.publish()
    await world.pass_time(7)
    (change,) = world.health_changes
    assert change.why == "no success for 5s; timeout: no answer within 15 s"


def resting(**members: Any) -> ShardWorld:
    """A receiver that failed once, and is tried again in an hour."""
    world = ShardWorld(policy(offline=SOON, retry=SELDOM, **members))
    world.sender.reply = lambda _: NO_ANSWER
    world.publish()
    return world


@in_virtual_time
async def test_offline_is_logged_when_it_is_due_and_not_at_the_next_attempt() -> None:
    world = resting()
    await world.pass_time(59)
    assert reported(world) == []
    await world.pass_time(2)
    assert [each.why for each in world.health_changes] == [
        "no success for 1m; timeout: no answer within 15 s"
    ]
    world.put(policy(offline=SOON, retry=SELDOM, url="https://elsewhere.example/"))
    await world.pass_time(1)
    assert reported(world) == ["offline", "recovered"]
    assert len(world.sender.made) == 2, "the second one is to the other URL"


@in_virtual_time
async def test_a_receiver_that_is_mended_in_time_is_not_announced() -> None:
    world = resting()
    await world.pass_time(30)
    world.sender.answers()
    world.put(policy(offline=SOON, retry=SELDOM, url="https://elsewhere.example/"))
    await world.pass_time(100)
    assert reported(world) == []


@pytest.mark.parametrize("snapshots", [False, True])
@in_virtual_time
async def test_a_new_owner_announces_what_was_not_due_before_it(snapshots: bool) -> None:
    world = resting()
    await world.pass_time(30)
    world.crash(snapshots=snapshots)
    await world.pass_time(29)
    assert reported(world) == []
    await world.pass_time(2)
    assert reported(world) == ["offline"]
    world.crash(snapshots=snapshots)
    await world.pass_time(100)
    assert reported(world) == ["offline"]
    await resume(world.actor)
    await world.pass_time(1)
    assert reported(world) == ["offline", "recovered"]


@in_virtual_time
async def test_a_paused_receiver_is_not_offline_and_its_time_restarts_with_it() -> None:
    world = resting()
    await world.pass_time(30)
    world.put(policy(offline=SOON, retry=SELDOM, paused=True))
    await world.pass_time(570)
    world.journal.hold_at = f.Resumed
    world.put(policy(offline=SOON, retry=SELDOM))
    await world.pass_time(2)
    world.journal.let_go()
    await world.pass_time(50)
    assert reported(world) == []
    await world.pass_time(20)
    assert [each.why for each in world.health_changes] == [
        "no success for 1m; timeout: no answer within 15 s"
    ]


@in_virtual_time
async def test_a_shorter_time_applies_at_once_and_a_longer_one_too() -> None:
    world = resting()
    world.put(policy(offline=Offline(after_s=1200), retry=SELDOM))
    await world.pass_time(600)
    assert reported(world) == []
    world.put(policy(offline=Offline(after_s=300), retry=SELDOM))
    await world.pass_time(1)
    assert reported(world) == ["offline"]


@in_virtual_time
async def test_an_outage_of_the_proxy_is_not_announced_as_the_receivers() -> None:
    world = failing()
    await world.pass_time(30)
    world.sender.reply = lambda _: REFUSED
    await world.pass_time(600)
    assert reported(world) == []
    world.sender.reply = lambda _: NO_ANSWER
    await world.pass_time(20)
    assert reported(world) == []
    await world.pass_time(30)
    assert reported(world) == ["offline"]
    world.sender.reply = lambda _: REFUSED
    await world.pass_time(300)
    world.crash()
    world.sender.reply = lambda _: NO_ANSWER
    await world.pass_time(300)
    assert reported(world) == ["offline"]


@in_virtual_time
async def test_a_receiver_that_was_removed_is_not_announced() -> None:
    world = resting()
    await world.pass_time(30)
    world.put(None)
    await world.pass_time(100)
    assert reported(world) == []


@pytest.mark.parametrize("snapshots", [False, True])
@in_virtual_time
async def test_a_takeover_announces_nothing_again(snapshots: bool) -> None:
    world = failing()
    await world.pass_time(100)
    for _ in range(3):
        world.crash(snapshots=snapshots)
        await world.pass_time(30)
    assert reported(world) == ["offline"]
    world.sender.answers()
    await world.pass_time(30)
    assert reported(world) == ["offline", "recovered"]
    assert world.health_changes[1].why == "it accepts events again"
    world.crash(snapshots=snapshots)
    world.publish()
    await world.pass_time(30)
    assert reported(world) == ["offline", "recovered"]


@in_virtual_time
async def test_a_shorter_failure_is_not_announced() -> None:
    world = failing()
    await world.pass_time(30)
    world.sender.answers()
    await world.pass_time(60)
    assert world.journal.of(f.Delivered)
    assert reported(world) == []


@pytest.mark.parametrize(
    ("outcome", "why"),
    [
        (answer(410), "it answered 410"),
        (answer(500, angarium_disable="true"), "it answered angarium-disable"),
        (answer(500), "no success for 10m; HTTP 500"),
    ],
)
@in_virtual_time
async def test_disabling_and_resuming_are_logged_once(outcome: Answered | Failed, why: str) -> None:
    world = failing(Offline(after_s=900, disable_after_s=600))
    world.sender.reply = lambda _: outcome
    await world.pass_time(800)
    world.crash()
    await world.pass_time(30)
    assert reported(world) == ["disabled"]
    assert world.health_changes[0].why == why
    world.sender.answers()
    await resume(world.actor)
    await world.until_settled(1)
    await world.pass_time(1)
    assert reported(world) == ["disabled", "recovered"]
    assert world.health_changes[1].why == "it was resumed"


@in_virtual_time
async def test_another_url_ends_the_trouble_too() -> None:
    world = failing(Offline(after_s=60, disable_after_s=120))
    await world.pass_time(200)
    assert reported(world) == ["offline", "disabled"]
    world.put(policy(url="https://elsewhere.example/"))
    await world.pass_time(1)
    assert reported(world)[2:] == ["recovered"]
    assert world.health_changes[2].why == "its URL was changed"


@in_virtual_time
async def test_several_answers_410_are_one_line() -> None:
    world = ShardWorld(policy(order="relaxed", concurrency=8))
    world.sender.reply = lambda _: answer(410)
    world.publish(8)
    await world.pass_time(5)
    assert len(world.journal.of(f.Disabled)) > 1
    assert reported(world) == ["disabled"]


@in_virtual_time
async def test_a_receiver_without_a_valid_configuration_is_reported_when_events_wait() -> None:
    world = ShardWorld()
    world.policies.leader[RECEIVER] = Invalid(("url: is missing",))
    world.policies.invalid.add(RECEIVER)
    world.publish(3)
    await world.pass_time(10)
    world.crash()
    await world.pass_time(10)
    world.publish(3)
    await world.pass_time(10)
    assert [(each.name, each.since) for each in world.health_changes] == [("misconfigured", None)]


@in_virtual_time
async def test_a_success_is_not_announced() -> None:
    world = strict()
    world.publish(300)
    await world.until_settled(300)
    world.put(policy(paused=True))
    world.publish(3)
    await world.pass_time(10)
    world.put(None)
    await world.pass_time(10)
    assert world.health_changes == list[HealthChange]()


def test_a_receiver_whose_events_wait_already_is_not_announced() -> None:
    parked = State(receiver=RECEIVER, parked=True)
    fact = f.Parked(receiver=RECEIVER, at=NOW, waiting_since=NOW)
    assert health_change(parked, fact, parked, None, invalid=True, was_offline=False) is None
    assert (
        health_change(State(receiver=RECEIVER), fact, parked, None, invalid=False, was_offline=False) is None
    )
