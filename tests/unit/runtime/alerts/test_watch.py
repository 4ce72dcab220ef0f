"""The watch over alerts: one event for each alert, in order, under any owner, and bounded for each tenant."""

import pytest

from actors.configuration.policy import AlertLimits, AlertSettings, Retry
from actors.machine import facts as f
from actors.machine.alerts.judging import is_raised
from actors.ports import Invalid
from actors.runtime.alerts import watch
from actors.runtime.alerts.turns import CHANGED_OF_A_TENANT_MAX, AlertTurns
from actors.runtime.alerts.watch import JUDGE_EVERY_S
from actors.runtime.operator_actions.resume import resume
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
    await world.pass_time(30)
    assert (RECEIVER in world.host.parked, world.host.count_parked()) == (True, 0)


@in_virtual_time
async def test_a_dead_receiver_without_events_leaves_memory_and_still_has_its_alert() -> None:
    """The receiver comes back with its next event, by which its alert may end, also under another owner."""
    world = failing()
    await world.until(lambda: bool(world.journal.of(f.AlertsPublished)))
    world.put(policy(retry=Retry(max_attempts=1), alerts=SOON))
    await world.until(lambda: world.host.actors[RECEIVER].is_resting)
    assert RECEIVER not in world.host.parked
    world.crash(snapshots=True)
    await world.pass_time(60)
    assert RECEIVER not in world.host.actors
    assert is_raised(world.journal.folded[RECEIVER], "failing")
    world.sender.reply = lambda _: answer(200)
    world.publish()
    await world.until(lambda: published(world)[-1][1:] == RECOVERED[1:])


@in_virtual_time
async def test_an_alert_that_is_over_ends_under_the_next_owner_though_no_event_comes() -> None:
    """The owner dies before it has judged the success."""
    world = failing()
    await world.until(lambda: bool(world.journal.of(f.AlertsPublished)))
    world.sender.reply = lambda _: answer(200)
    await world.until(lambda: bool(world.journal.of(f.Delivered)))
    assert not world.journal.of(f.AlertRecovered)
    world.crash(snapshots=True)
    await world.pass_time(ROUNDS_S)
    assert published(world) == [RAISED, RECOVERED]


@pytest.mark.parametrize("snapshots", [False, True])
@in_virtual_time
async def test_an_outage_of_all_nodes_is_not_a_failure_of_the_receiver(snapshots: bool) -> None:
    """The receiver failed before, and is slow afterwards, so that it is judged before it answers."""
    world = failing()
    await world.until(lambda: bool(world.journal.of(f.AttemptFailed)))
    world.host.stop()
    await world.pass_time(1800)
    world.sender.reply, world.sender.latency_s = lambda _: answer(200), 9.0
    world.crash(snapshots=snapshots)
    await world.until_settled(1)
    await world.pass_time(ROUNDS_S)
    assert published(world) == []


@pytest.mark.parametrize("stalls", [False, True])
@in_virtual_time
async def test_a_time_in_which_no_attempt_may_start_is_not_a_failure_of_the_receiver(stalls: bool) -> None:
    """The owner has no lease, or a journal that takes nothing; it judges before the receiver answers."""
    world = failing(alerts=AlertSettings(failing_after_s=20))
    await world.until(lambda: bool(world.journal.of(f.AttemptFailed)))
    world.within_lease, world.journal.is_stalled = stalls, stalls
    await world.pass_time(600)
    world.sender.reply, world.sender.latency_s = lambda _: answer(200), 9.0
    world.within_lease, world.journal.is_stalled = True, False
    await world.until_settled(1)
    await world.pass_time(ROUNDS_S)
    assert published(world) == []


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


@in_virtual_time
async def test_an_outage_while_an_alert_is_recorded_is_not_a_failure_of_another_receiver() -> None:
    """The round that waits for the journal lasts as long as the outage."""
    world, other = failing(), "acme.other"
    world.put(policy(retry=OFTEN, alerts=AlertSettings(failing_after_s=60)), other)
    world.publish(receiver=other)
    world.journal.hold_at = f.AlertRaised
    await world.until(lambda: world.journal.held)
    world.within_lease = False
    await world.pass_time(600)
    world.sender.reply, world.sender.latency_s = lambda _: answer(200), 9.0
    world.within_lease = True
    world.journal.let_go()
    await world.until(lambda: world.journal.folded[other].counters.delivered == 1)
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
async def test_an_event_whose_publish_failed_is_published_before_the_next_one() -> None:
    world = failing()
    world.alerts.unavailable = True
    await world.until(lambda: bool(world.journal.of(f.AlertRaised)))
    world.sender.reply = lambda _: answer(200)
    await world.until(lambda: bool(world.journal.of(f.AlertRecovered)))
    world.alerts.unavailable, world.alerts.fails_next = False, 1
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
async def test_an_alert_about_a_backlog_ends_once_the_next_owner_has_counted_it() -> None:
    """The owner knows that at most 170 events wait, as many as its shard has; half the limit is 160."""
    other = "acme.other"
    world = ShardWorld(policy(paused=True, backlog_max=180, alerts=SOON))
    world.put(policy(paused=True), other)
    world.publish(150)
    world.publish(20, receiver=other)
    await world.until(lambda: bool(world.journal.of(f.AlertsPublished)))
    world.put(policy(paused=True, backlog_max=400, alerts=SOON))
    world.crash(snapshots=True)
    await world.pass_time(2 * ROUNDS_S)
    assert published(world) == [(1, "behind", "alert_raised"), (2, "behind", "alert_recovered")]


@in_virtual_time
async def test_a_receiver_that_leaves_memory_while_others_are_judged_is_left_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = failing()
    await world.until(lambda: bool(world.journal.of(f.AttemptFailed)))
    monkeypatch.setattr(AlertTurns, "first", lambda _: ["acme.left"])
    assert await world.host.alerts._judge_all() == []
    assert "acme.left" not in world.host.actors


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
    names = [f"acme.r{number}" for number in range(3 * CHANGED_OF_A_TENANT_MAX)] + ["other.one"]
    for name in names:
        world.put(policy(retry=OFTEN, alerts=SOON), name)
        world.publish(receiver=name)
    await world.until(lambda: bool(world.journal.of(f.AlertsPublished)))
    assert len(world.alerts.stored) == CHANGED_OF_A_TENANT_MAX + 1
    assert "other.one" in {each.receiver for each in world.alerts.stored}
    await world.pass_time(3 * JUDGE_EVERY_S)
    assert {each.receiver for each in world.alerts.stored} == set(names)


@in_virtual_time
async def test_all_receivers_are_judged_in_each_round_and_other_tasks_have_turns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A shard of which very many fail tells another tenant about its receiver in the next round."""
    world = ShardWorld()
    world.sender.reply = lambda _: NO_ANSWER
    many = 5 * CHANGED_OF_A_TENANT_MAX
    names = [f"many.r{number}" for number in range(many)] + ["acme.one"]
    for name in names:
        world.put(policy(retry=OFTEN, alerts=SOON), name)
        world.publish(receiver=name)
    await world.pass_time(9)
    turns = 0

    async def have_a_turn(_: float) -> None:
        nonlocal turns
        turns += 1

    monkeypatch.setattr(watch, "JUDGED_IN_TURN_MAX", 10)
    with monkeypatch.context() as patched:
        patched.setattr("asyncio.sleep", have_a_turn)
        await world.host.alerts._judge_all()
    assert turns == (many + 1) // 10
    await world.until(lambda: bool(world.journal.of(f.AlertsPublished)))
    assert "acme.one" in {each.receiver for each in world.alerts.stored}


@in_virtual_time
async def test_receivers_that_flap_silence_no_other_of_their_tenant() -> None:
    """The receivers that flap are as many as may change in a round; another one fails later."""
    world, gone, quiet = ShardWorld(), True, "acme.quiet"
    world.sender.reply = lambda attempt: answer(410 if gone or attempt.receiver == quiet else 200)
    flapping = [f"acme.flaps{number}" for number in range(CHANGED_OF_A_TENANT_MAX)]
    for name in flapping:
        world.put(policy(alerts=AlertSettings(interval_s=1)), name)
    for number in range(6):
        gone = number % 2 == 0
        for name in flapping:
            await resume(await world.host.residents.when_loaded(name))
            world.publish(receiver=name)
        if number == 3:
            world.put(policy(), quiet)
            world.publish(receiver=quiet)
        await world.pass_time(JUDGE_EVERY_S)
    told = [each.receiver for each in world.alerts.stored]
    assert len(told) > 3 * CHANGED_OF_A_TENANT_MAX
    assert quiet in told


@in_virtual_time
async def test_the_backlogs_of_few_receivers_are_counted_in_one_round(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each count is a request to NATS, and after a takeover all backlogs of a shard may need one."""
    monkeypatch.setattr(watch, "COUNTS_IN_A_ROUND_MAX", 2)
    world = ShardWorld()
    for number in range(5):
        settings = AlertSettings(behind_percent=1)
        world.put(policy(paused=True, backlog_max=1000, alerts=settings), f"acme.r{number}")
        world.publish(12, receiver=f"acme.r{number}")
    await world.until(lambda: len(world.journal.of(f.AlertsPublished)) == 5)
    counted: list[str] = []
    count = world.stream.count

    async def counting(receiver: str, after: int) -> int:
        counted.append(receiver)
        return await count(receiver, after)

    monkeypatch.setattr(world.stream, "count", counting)
    world.crash(snapshots=True)
    await world.until(lambda: bool(counted))
    for expected in (2, 4, 5, 5):
        await world.pass_time(0.5)
        assert len(counted) == expected
        await world.pass_time(JUDGE_EVERY_S - 0.5)


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
