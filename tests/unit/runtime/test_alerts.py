"""The watch over alerts: one event for each alert, in order, under any owner, and bounded for each tenant."""

import pytest

from actors.configuration.policy import AlertLimits, AlertSettings, Retry
from actors.machine import facts as f
from actors.ports import Invalid
from actors.runtime.alerts import watch
from actors.runtime.alerts.watch import CHANGED_IN_A_ROUND_MAX, JUDGE_EVERY_S
from actors.tenant_settings import InstallationAlerts, SettingsByTenant, TenantSettings
from tests.unit.worlds.shard import RECEIVER, ShardWorld
from tests.unit.worlds.values import NO_ANSWER, answer, policy
from tests.unit.worlds.virtual_time import in_virtual_time

OFTEN = Retry(base_s=2, cap_s=5)
SOON = AlertSettings(failing_after_s=10, dead_letters_quiet_s=60, interval_s=30)
ROUNDS_S = 2 * JUDGE_EVERY_S


def failing(**members: object) -> ShardWorld:
    """A receiver that never answers."""
    world = ShardWorld(policy(**({"retry": OFTEN, "alerts": SOON} | members)))
    world.sender.reply = lambda _: NO_ANSWER
    world.publish()
    return world


def published(world: ShardWorld) -> list[tuple[int, str, str]]:
    return [(each.number, each.alert, str(each.__struct_config__.tag)) for each in world.alerts.stored]


RAISED, RECOVERED = (1, "failing", "alert_raised"), (2, "failing", "alert_recovered")


@in_virtual_time
async def test_an_alert_is_recorded_published_and_logged_once() -> None:
    world = failing()
    await world.pass_time(60)
    assert published(world) == [RAISED]
    assert world.logged_alerts == world.alerts.stored
    world.sender.reply = lambda _: answer(200)
    await world.pass_time(20)
    assert published(world) == [RAISED, RECOVERED]
    assert world.logged_alerts == world.alerts.stored
    assert not world.journal.folded[RECEIVER].unpublished_alerts


@in_virtual_time
async def test_a_receiver_that_failed_and_has_nothing_to_wait_for_does_not_count_as_parked() -> None:
    world = failing(retry=Retry(max_attempts=1))
    await world.pass_time(60)
    assert (RECEIVER in world.host.parked, world.host.count_parked()) == (True, 0)


@pytest.mark.parametrize("snapshots", [False, True])
@in_virtual_time
async def test_takeovers_repeat_no_alert_and_lose_none(snapshots: bool) -> None:
    world = failing()
    for _ in range(5):
        await world.pass_time(7)
        world.crash(snapshots=snapshots)
    await world.pass_time(10)
    assert published(world) == [RAISED]
    world.sender.reply = lambda _: answer(200)
    await world.until_settled(1)
    world.crash(snapshots=snapshots)
    await world.pass_time(ROUNDS_S)
    assert published(world) == [RAISED, RECOVERED]


@pytest.mark.parametrize("snapshots", [False, True])
@in_virtual_time
async def test_the_next_owner_publishes_an_alert_that_is_only_recorded(snapshots: bool) -> None:
    world = failing()
    world.alerts.unavailable = True
    await world.until(lambda: bool(world.journal.of(f.AlertRaised)))
    world.sender.reply = lambda _: answer(200)
    await world.until(lambda: bool(world.journal.of(f.AlertRecovered)))
    assert published(world) == []
    world.crash(snapshots=snapshots)
    world.alerts.unavailable = False
    await world.pass_time(ROUNDS_S)
    assert published(world) == [RAISED, RECOVERED]


@in_virtual_time
async def test_an_unconfirmed_alert_is_not_published() -> None:
    """`AlertWriter` of the world checks that the record is confirmed."""
    world = failing()
    world.journal.hold_at = f.AlertRaised
    await world.pass_time(60)
    assert published(world) == []
    world.journal.let_go()
    await world.pass_time(ROUNDS_S)
    assert published(world) == [RAISED]


@in_virtual_time
async def test_a_node_whose_lease_has_expired_publishes_nothing() -> None:
    world = failing()
    world.alerts.unavailable = True
    await world.until(lambda: bool(world.journal.of(f.AlertRaised)))
    world.within_lease, world.alerts.unavailable = False, False
    await world.pass_time(ROUNDS_S)
    assert published(world) == []


@pytest.mark.parametrize("snapshots", [False, True])
@in_virtual_time
async def test_the_alert_about_dead_letters_ends_by_itself_under_another_owner(snapshots: bool) -> None:
    """The receiver stays in memory for it, although nothing waits."""
    world = failing(retry=Retry(base_s=0.05, cap_s=0.05, max_attempts=1))
    await world.until(lambda: (1, "dead_letters", "alert_raised") in published(world))
    world.sender.reply = lambda _: answer(200)
    world.publish()
    await world.until_settled(1)
    await world.pass_time(30)
    world.crash(snapshots=snapshots)
    await world.pass_time(60)
    assert (RECEIVER, "dead_letters") in {
        (each.receiver, each.alert) for each in world.journal.of(f.AlertRecovered)
    }
    await world.pass_time(80)
    assert RECEIVER not in world.host.parked


@in_virtual_time
async def test_a_backlog_that_only_the_stream_knows_is_counted_and_ends_no_alert_before() -> None:
    world = ShardWorld(policy(paused=True, backlog_max=400, alerts=SOON))
    world.publish(330)
    await world.until(lambda: bool(world.journal.of(f.AlertsPublished)))
    world.crash(snapshots=True)
    await world.pass_time(60)
    assert published(world) == [(1, "behind", "alert_raised")]
    world.put(policy(backlog_max=400, alerts=SOON))
    await world.until_settled(330)
    await world.pass_time(ROUNDS_S)
    assert published(world) == [(1, "behind", "alert_raised"), (2, "behind", "alert_recovered")]


@in_virtual_time
async def test_a_receiver_without_a_valid_configuration_is_an_alert_once_events_wait() -> None:
    world = ShardWorld()
    world.policies.invalid.add(RECEIVER)
    world.policies.leader[RECEIVER] = Invalid(("url: required",))
    world.publish()
    await world.pass_time(ROUNDS_S)
    assert published(world) == [(1, "misconfigured", "alert_raised")]
    world.crash(snapshots=True)
    await world.pass_time(ROUNDS_S)
    world.policies.invalid.clear()
    world.put(policy())
    await world.pass_time(ROUNDS_S)
    assert published(world) == [(1, "misconfigured", "alert_raised"), (2, "misconfigured", "alert_recovered")]


@in_virtual_time
async def test_a_tenant_with_many_receivers_behind_one_server_gets_its_alerts_gradually() -> None:
    world = ShardWorld()
    world.sender.reply = lambda _: NO_ANSWER
    names = [f"acme.r{number}" for number in range(3 * CHANGED_IN_A_ROUND_MAX)] + ["other.one"]
    for name in names:
        world.put(policy(retry=OFTEN, alerts=SOON), name)
        world.publish(receiver=name)
    await world.until(lambda: bool(world.journal.of(f.AlertsPublished)))
    assert len(world.alerts.stored) == CHANGED_IN_A_ROUND_MAX + 1
    assert "other.one" in {each.receiver for each in world.alerts.stored}
    await world.pass_time(3 * JUDGE_EVERY_S)
    assert {each.receiver for each in world.alerts.stored} == set(names)


@in_virtual_time
async def test_each_of_many_receivers_is_judged_in_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "JUDGED_IN_A_ROUND_MAX", 2)
    world = ShardWorld()
    world.sender.reply = lambda _: answer(410)
    names = [f"acme.r{number}" for number in range(9)]
    for name in names:
        world.put(policy(), name)
        world.publish(receiver=name)
    await world.pass_time(5 * JUDGE_EVERY_S + 1)
    assert sorted(each.receiver for each in world.alerts.stored) == names


@in_virtual_time
async def test_a_shard_that_is_handed_over_records_no_alert_any_more() -> None:
    world = failing()
    await world.host.drain(0.0)
    await world.pass_time(60)
    assert not world.journal.of(f.AlertRaised)


@in_virtual_time
async def test_the_limits_of_a_tenant_and_of_a_receiver_take_precedence() -> None:
    world = ShardWorld()
    tenant = TenantSettings(alerts=InstallationAlerts(failing_after_s=20, behind_percent=50))
    world.settings = SettingsByTenant({"acme": tenant}, InstallationAlerts(failing_after_s=500, interval_s=7))
    found = world.settings.alert_limits(RECEIVER, AlertSettings(behind_percent=10))
    assert found == AlertLimits(failing_after_s=20, behind_percent=10, interval_s=7)
    other = world.settings.alert_limits("other.one", AlertSettings())
    assert other == AlertLimits(failing_after_s=500, interval_s=7)


@in_virtual_time
async def test_no_alert_is_recorded_while_an_older_node_could_take_over() -> None:
    world = failing()
    world.all_know_alerts = False
    await world.pass_time(60)
    assert not world.journal.of(f.AlertRaised)
    world.all_know_alerts = True
    await world.pass_time(ROUNDS_S)
    assert published(world) == [RAISED]
