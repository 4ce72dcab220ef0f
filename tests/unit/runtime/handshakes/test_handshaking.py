"""Handshakes as an actor makes them: recorded before and after, one at a time, held back like attempts."""

import asyncio
from collections.abc import Callable
from itertools import pairwise

import pytest

from actors.configuration.policy import AlertSettings, Offline, Rate, Retry
from actors.errors import ControlDenied
from actors.machine import facts as f
from actors.machine.bucket import GRANT_MAX_S
from actors.machine.outcome import INTERNAL, Failed, Outcome
from actors.ports import Attempt
from actors.runtime.operator_actions.ping import ping
from actors.runtime.operator_actions.verify import VERIFY_EVERY_S, verify
from tests.unit.worlds.shard import RECEIVER, ShardWorld, relaxed, strict
from tests.unit.worlds.values import NO_ANSWER, answer, policy
from tests.unit.worlds.virtual_time import in_virtual_time

SECRET = "whsec_" + "b2xk" * 8
OTHER = "whsec_" + "bmV3" * 8
ASKS = {"handshake": "hmac", "secrets": (SECRET,)}
SOON = Retry(base_s=0.05, cap_s=0.05)


def kinds(world: ShardWorld) -> list[str]:
    return [each.kind for each in world.sender.made]


def handshakes_get(*outcomes: Outcome) -> Callable[[Attempt], Outcome]:
    """A reply: these outcomes for handshakes, one by one, then 200; events get 200."""
    left = list(outcomes)
    return lambda attempt: left.pop(0) if left and attempt.kind == "handshake" else answer(200)


@pytest.mark.parametrize("world_of", [strict, relaxed])
@in_virtual_time
async def test_events_wait_for_the_handshake_and_it_is_made_once(
    world_of: Callable[..., ShardWorld],
) -> None:
    world = world_of(**ASKS)
    world.publish(3)
    await world.until_settled(3)
    assert kinds(world) == ["handshake", "event", "event", "event"]
    assert [each.sequence for each in world.sender.made] == [None, 1, 2, 3]
    assert world.state.counters.failed_attempts == 0


@in_virtual_time
async def test_a_receiver_for_which_nothing_waits_is_not_asked() -> None:
    world = strict(**ASKS)
    await world.host.residents.when_loaded(RECEIVER)
    await world.pass_time(60)
    assert world.sender.made == []


@in_virtual_time
async def test_a_handshake_is_recorded_before_it_is_made_and_before_any_event() -> None:
    world = strict(**ASKS)
    world.journal.hold_at = f.HandshakeStarted
    world.publish()
    await world.pass_time(1)
    assert kinds(world) == []
    world.journal.let_go()
    world.journal.hold_at = f.HandshakeSucceeded
    await world.pass_time(1)
    assert kinds(world) == ["handshake"]
    world.journal.let_go()
    await world.until_settled(1)
    assert kinds(world) == ["handshake", "event"]


@in_virtual_time
async def test_a_handshake_whose_record_takes_too_long_is_recorded_again() -> None:
    world = strict(**ASKS, rate=Rate(limit=1, burst=1))
    world.journal.hold_at = f.HandshakeStarted
    world.publish()
    await world.pass_time(GRANT_MAX_S + 2)
    assert kinds(world) == []
    world.journal.let_go()
    await world.until_settled(1)
    assert kinds(world) == ["handshake", "event"]
    assert len(world.journal.of(f.HandshakeStarted)) == 2
    assert world.actor.live.tokens.set_aside == 0


@in_virtual_time
async def test_failed_handshakes_are_repeated_and_events_in_memory_are_parked() -> None:
    world = strict(**ASKS, retry=Retry(base_s=4, cap_s=4))
    world.sender.reply = handshakes_get(answer(404), NO_ANSWER, answer(500))
    world.publish(2)
    await world.until_settled(2)
    assert kinds(world) == ["handshake"] * 4 + ["event"] * 2
    assert len(world.journal.of(f.HandshakeFailed)) == 3
    assert [(each.name, each.why) for each in world.health_changes] == [
        ("unverified", "the handshake failed: HTTP 404"), ("verified", "it proved itself"),
    ]  # fmt: skip


@in_virtual_time
async def test_a_handshake_is_repeated_if_its_owner_dies_before_the_record() -> None:
    world = strict(**ASKS)
    world.journal.hold_at = f.HandshakeSucceeded
    world.publish()
    await world.until(lambda: len(world.sender.made) == 1)
    await world.pass_time(1)
    world.crash()
    await world.until_settled(1)
    assert kinds(world) == ["handshake", "handshake", "event"]


@in_virtual_time
async def test_an_owner_that_takes_over_a_verified_receiver_asks_nothing() -> None:
    world = strict(**ASKS)
    world.publish()
    await world.until_settled(1)
    world.crash(snapshots=True)
    world.publish()
    await world.until_settled(2)
    assert kinds(world) == ["handshake", "event", "event"]


@in_virtual_time
async def test_another_secret_during_an_attempt_lets_it_end_and_asks_then() -> None:
    world = strict(**ASKS)
    world.publish()
    await world.until_settled(1)
    world.sender.latency_s = 5.0
    world.publish(2)
    await world.until(lambda: len(world.sender.made) == 3)
    world.put(policy(handshake="hmac", secrets=(OTHER,)))
    await world.pass_time(4)
    assert len(world.sender.made) == 3
    await world.until_settled(3)
    assert kinds(world) == ["handshake", "event", "event", "handshake", "event"]
    assert [each.policy.secrets for each in world.sender.made[-2:]] == [(OTHER,)] * 2


@in_virtual_time
async def test_another_secret_during_a_handshake_asks_again() -> None:
    world = strict(**ASKS)
    world.sender.latency_s = 5.0
    world.publish()
    await world.until(lambda: len(world.sender.made) == 1)
    world.put(policy(handshake="hmac", secrets=(OTHER,)))
    await world.until_settled(1)
    assert kinds(world) == ["handshake", "handshake", "event"]
    assert len(world.journal.of(f.HandshakeSucceeded)) == 1


@in_virtual_time
async def test_a_handshake_is_held_back_by_everything_that_holds_events_back() -> None:
    world = strict(**ASKS, paused=True)
    world.publish()
    await world.pass_time(5)
    world.within_lease = False
    world.put(policy(**ASKS))
    await world.pass_time(5)
    assert kinds(world) == []
    world.within_lease = True
    await world.until_settled(1)
    assert kinds(world) == ["handshake", "event"]


@in_virtual_time
async def test_no_handshake_is_recorded_while_an_older_node_lives() -> None:
    world = strict(**ASKS)
    world.all_know_handshakes = False
    world.publish()
    await world.pass_time(30)
    assert world.sender.made == []
    with pytest.raises(ControlDenied, match="older version"):
        await verify(world.actor)
    world.all_know_handshakes = True
    await world.until_settled(1)


@in_virtual_time
async def test_a_handshake_that_breaks_is_recorded_as_our_failure(caplog: pytest.LogCaptureFixture) -> None:
    world = strict(**ASKS, retry=SOON)

    def breaks_once(attempt: Attempt) -> Outcome:
        if len(world.sender.made) == 1:
            raise ZeroDivisionError
        return answer(200)

    world.sender.reply = breaks_once
    world.publish()
    await world.until_settled(1)
    [fact] = world.journal.of(f.HandshakeFailed)
    assert (fact.error, fact.ours) == (f"{INTERNAL}: ZeroDivisionError", True)
    assert [record.message for record in caplog.records] == ["handshake.broken"]


@in_virtual_time
async def test_an_actor_in_a_handshake_stays_in_memory() -> None:
    world = strict(**ASKS, timeout_s=60)
    world.sender.latency_s = 30.0
    actor = await world.host.residents.when_loaded(RECEIVER)
    checking = asyncio.get_running_loop().create_task(verify(actor))
    await world.until(lambda: bool(world.sender.made))
    assert not actor.is_resting
    await checking
    await world.until(lambda: actor.is_resting)


@in_virtual_time
async def test_the_allowed_rate_is_obeyed_from_the_first_event_on() -> None:
    world = strict(handshake="cloudevents", rate=Rate(limit=100, burst=100))
    world.sender.reply = lambda attempt: answer(200, webhook_allowed_rate="60")
    world.publish(4)
    await world.until_settled(4)
    times = world.sender.times[1:]
    assert [round(later - sooner, 2) for sooner, later in pairwise(times)] == [1.0] * 3


@in_virtual_time
async def test_a_lower_rate_counts_an_attempt_that_waits_for_its_record() -> None:
    """Otherwise it would start in addition to the burst of the new limit."""
    world = strict(handshake="cloudevents", rate=Rate(limit=3, per="minute", burst=3))
    actor = await world.host.residents.when_loaded(RECEIVER)
    await world.until(lambda: actor.adopted_policy is not None)
    await verify(actor)
    await world.pass_time(120)
    world.sender.latency_s = 5.0
    world.sender.reply = lambda _: answer(200, webhook_allowed_rate="2")
    checking = asyncio.get_running_loop().create_task(verify(actor))
    await world.until(lambda: len(world.sender.made) == 2)
    world.sender.latency_s = 0.0
    world.journal.hold_at = f.Started
    await world.pass_time(1)
    world.publish(2)
    await world.pass_time(4.5)
    world.journal.let_go()
    await checking
    await world.pass_time(20)
    assert kinds(world) == ["handshake", "handshake", "event"]


@in_virtual_time
async def test_a_planned_handover_waits_for_the_outcome_of_a_handshake() -> None:
    world = strict(**ASKS)
    world.sender.latency_s = 2.0
    world.publish()
    await world.until(lambda: len(world.sender.made) == 1)
    await world.host.drain(10)
    assert len(world.journal.of(f.HandshakeSucceeded)) == 1
    assert world.host.in_flight == 0


# ---- verify


@in_virtual_time
async def test_verify_returns_when_the_outcome_is_recorded_also_of_a_paused_receiver() -> None:
    world = strict(**ASKS, paused=True)
    actor = await world.host.residents.when_loaded(RECEIVER)
    await world.until(lambda: actor.adopted_policy is not None)
    assert await verify(actor) == answer(200)
    assert len(world.journal.of(f.HandshakeSucceeded)) == 1
    world.sender.reply = lambda _: answer(404)
    await world.pass_time(VERIFY_EVERY_S)
    assert await verify(actor) == answer(404)
    assert len(world.journal.of(f.HandshakeFailed)) == 1
    world.sender.reply = lambda _: answer(200)
    world.put(policy(**ASKS))
    world.publish()
    await world.until_settled(1)
    assert kinds(world) == ["handshake", "handshake", "event"]


@in_virtual_time
async def test_verify_is_refused_within_a_second_of_the_last_handshake() -> None:
    world = strict(**ASKS)
    actor = await world.host.residents.when_loaded(RECEIVER)
    await world.until(lambda: actor.adopted_policy is not None)
    await verify(actor)
    with pytest.raises(ControlDenied, match="asked a moment ago"):
        await verify(actor)
    await world.pass_time(VERIFY_EVERY_S)
    await verify(actor)
    assert kinds(world) == ["handshake"] * 2


@in_virtual_time
async def test_verify_waits_until_its_outcome_is_confirmed() -> None:
    world = strict(**ASKS)
    actor = await world.host.residents.when_loaded(RECEIVER)
    await world.until(lambda: actor.adopted_policy is not None)
    world.journal.hold_at = f.HandshakeSucceeded
    checking = asyncio.get_running_loop().create_task(verify(actor))
    await world.until(lambda: bool(world.sender.made))
    await world.pass_time(5)
    assert not checking.done()
    world.journal.let_go()
    assert await checking == answer(200)


@in_virtual_time
async def test_verify_is_refused_where_no_handshake_may_be_made() -> None:
    world = strict()
    actor = await world.host.residents.when_loaded(RECEIVER)
    with pytest.raises(ControlDenied, match="without a handshake"):
        await verify(actor)
    world.put(policy(**ASKS, rate=Rate(limit=1, per="hour", burst=1)))
    await world.pass_time(4000)
    world.sender.reply = lambda _: answer(429, retry_after="30")
    assert (await verify(actor)).status == 429
    with pytest.raises(ControlDenied, match="throttled for 30s more"):
        await verify(actor)
    await world.pass_time(31)
    with pytest.raises(ControlDenied, match="no token left"):
        await verify(actor)
    world.within_lease = False
    with pytest.raises(ControlDenied, match="not ready"):
        await verify(actor)
    world.put(None)
    with pytest.raises(ControlDenied, match="no valid configuration"):
        await verify(actor)


@in_virtual_time
async def test_a_second_verify_is_refused_while_a_handshake_is_under_way() -> None:
    world = strict(**ASKS)
    world.sender.latency_s = 5.0
    actor = await world.host.residents.when_loaded(RECEIVER)
    await world.until(lambda: actor.adopted_policy is not None)
    checking = asyncio.get_running_loop().create_task(verify(actor))
    await world.until(lambda: bool(world.sender.made))
    with pytest.raises(ControlDenied, match="is working at this moment"):
        await verify(actor)
    await checking


@in_virtual_time
async def test_verify_is_refused_if_the_configuration_was_changed_meanwhile() -> None:
    """The outcome of such a handshake does not count, so its answer must not say that it does."""
    world = strict(**ASKS)
    world.sender.latency_s = 5.0
    actor = await world.host.residents.when_loaded(RECEIVER)
    await world.until(lambda: actor.adopted_policy is not None)
    checking = asyncio.get_running_loop().create_task(verify(actor))
    await world.until(lambda: bool(world.sender.made))
    world.put(policy(handshake="hmac", secrets=(OTHER,)))
    with pytest.raises(ControlDenied, match="was changed during the handshake"):
        await checking
    assert not world.journal.of(f.HandshakeSucceeded)


@in_virtual_time
async def test_a_ping_is_a_post_and_waits_for_the_proof() -> None:
    world = strict(**ASKS)
    actor = await world.host.residents.when_loaded(RECEIVER)
    await world.until(lambda: actor.adopted_policy is not None)
    with pytest.raises(ControlDenied, match="has not proved itself"):
        await ping(actor)
    await verify(actor)
    await ping(actor)
    assert kinds(world) == ["handshake", "ping"]


# ---- alerts


@in_virtual_time
async def test_a_receiver_that_does_not_prove_itself_raises_an_alert_until_it_does() -> None:
    world = strict(**ASKS, retry=Retry(base_s=8, cap_s=8), offline=Offline(after_s=864000))
    world.sender.reply = lambda _: Failed(error="unproven", detail="the hmac is wrong", latency_ms=1.0)
    world.publish()
    await world.until(lambda: len(world.alerts.stored) == 1)
    [raised] = world.alerts.stored
    assert (raised.alert, type(raised)) == ("handshake_failed", f.AlertRaised)
    assert "unproven: the hmac is wrong" in raised.why
    world.sender.reply = lambda _: answer(200)
    await world.until(lambda: len(world.alerts.stored) == 2)
    assert (world.alerts.stored[1].alert, type(world.alerts.stored[1])) == (
        "handshake_failed", f.AlertRecovered,
    )  # fmt: skip


@in_virtual_time
async def test_the_alert_about_handshakes_is_not_recorded_while_an_older_node_lives() -> None:
    """The end of the alert is not recorded either: such a node knows alerts, but not this one."""
    world = strict(**ASKS, retry=Retry(base_s=8, cap_s=8), offline=Offline(after_s=864000))
    world.sender.reply = lambda _: answer(404)
    world.publish()
    await world.until(lambda: world.state.handshake is not None and world.state.handshake.failures == 3)
    world.all_know_handshakes = False
    await world.pass_time(600)
    assert world.journal.of(f.AlertRaised) == []
    world.all_know_handshakes = True
    await world.until(lambda: bool(world.alerts.stored))
    world.all_know_handshakes = False
    world.put(policy())
    await world.pass_time(60)
    assert world.journal.of(f.AlertRecovered) == []
    world.all_know_handshakes = True
    await world.until(lambda: bool(world.journal.of(f.AlertRecovered)))


@in_virtual_time
async def test_an_unproven_receiver_leaves_memory_with_its_alert_once_nothing_waits() -> None:
    world = strict(
        **ASKS, retry=Retry(base_s=8, cap_s=8, max_age_s=600), offline=Offline(after_s=864000),
        alerts=AlertSettings(dead_letters_quiet_s=60.0),
    )  # fmt: skip
    world.sender.reply = lambda _: answer(404)
    world.publish()
    await world.until(lambda: bool(world.alerts.stored))
    await world.pass_time(3600)
    assert RECEIVER not in world.host.actors or world.actor.is_resting
    raised = [each.kind for each in world.journal.folded[RECEIVER].alerts if each.raised]
    assert raised == ["handshake_failed"]
