"""A node loses its network, with and without a death; dead hosts of a hostile tenant look alike."""

from collections.abc import Iterator
from contextlib import contextmanager

from actors.machine import facts as f
from tests.sim.outages.network import Network, url_of
from tests.sim.plan import Plan
from tests.sim.stage import Stage, old, staged
from tests.sim.world.receivers import Manner

COUNT = 24
TENANTS = ("acme", "umbra", "initech")
RECEIVERS = tuple(f"{TENANTS[number % 3]}.r{number}" for number in range(COUNT))
QUIET = "quiet.r0"
ERRING = RECEIVERS[0]
PAUSE_MAX_S = 30.0


@contextmanager
def _begun(*more: str, **members: object) -> Iterator[tuple[Stage, Network]]:
    """A node that has delivered an event to each receiver."""
    with staged(Plan(receivers=(*RECEIVERS, *more))) as stage:
        network = Network(stage.run)
        for each in (*RECEIVERS, *more):
            stage.put(each, url=url_of(each), **members)
        stage.node().skew_s = 0.0
        stage.owner()
        _publish(stage, "first", *more)
        stage.settle()
        yield stage, network


def _publish(stage: Stage, name: str, *more: str) -> None:
    for each in (*RECEIVERS, *more):
        stage.publish(f"{name}-{each.replace('.', '-')}", receiver=each)


def _facts(stage: Stage) -> list[f.Fact | f.Claimed]:
    return [
        fact for journal in stage.checkers.journals for _, flush in journal.flushes for fact in flush.facts
    ]


def _expect_no_blame(stage: Stage) -> None:
    facts = _facts(stage)
    blamed = [each for each in facts if isinstance(each, f.AttemptFailed) and not each.ours]
    stage.expect(not blamed, f"failures of the outage are a receiver's: {blamed[:1]}")
    stage.expect(not any(isinstance(each, f.DeadLettered) for each in facts), "an event was given up")


def node_loses_its_network() -> None:
    """No failure is a receiver's, each event has one attempt at most, and all is delivered afterwards."""
    with _begun(retry={"base_s": 0.05, "cap_s": 1.0, "max_attempts": 2}) as (stage, network):
        network.cut_off.update(stage.checkers.nodes)
        _publish(stage, "second")
        (detector,) = network.detectors.values()
        stage.until(lambda: detector.since is not None)
        _publish(stage, "third")
        stage.wait(60.0)
        _expect_no_blame(stage)
        stage.expect(network.tried <= COUNT, f"{network.tried} attempts were made without a network")
        network.cut_off.clear()
        at = stage.world.now
        stage.until(lambda: detector.since is None)
        stage.settle()
        stage.expect(stage.world.now - at < PAUSE_MAX_S, "it took too long after the return")
        _expect_no_blame(stage)


def owner_dies_in_its_outage() -> None:
    """The next owner has a network; a receiver that failed before is not disabled by the time between."""
    offline = {"after_s": 10, "disable_after_s": 60}
    with _begun(retry={"base_s": 60.0, "cap_s": 60.0}, offline=offline) as (stage, network):
        stage.receiver_is(Manner.ERRS, ERRING)
        stage.publish(*old(1), receiver=ERRING)
        stage.until(lambda: any(isinstance(each, f.AttemptFailed) for each in _facts(stage)))
        owner = stage.owner()
        network.cut_off.add(owner.name)
        _publish(stage, "second")
        stage.until(lambda: network.detectors[owner.name].since is not None)
        stage.wait(300.0)
        owner.kill()
        stage.node().skew_s = 0.0
        stage.owner()
        stage.wait(60.0)
        disabled = [each for each in _facts(stage) if isinstance(each, f.Disabled)]
        failed = [each for each in _facts(stage) if isinstance(each, f.AttemptFailed) and not each.ours]
        stage.expect(len(failed) > 1, "the receiver was not tried after the outage")
        stage.expect(not disabled, f"a receiver was disabled by an outage: {disabled}")
        stage.receivers_are_good()
        stage.settle()


def hostile_tenants_have_hosts_that_die() -> None:
    """All hosts but one die at the same time. That one, of a quiet tenant, was reached once."""
    with _begun(QUIET) as (stage, network):
        (detector,) = network.detectors.values()
        for each in RECEIVERS:
            stage.receiver_is(Manner.IS_AWAY, each)
        _publish(stage, "second")
        stage.wait(20.0)
        stage.expect(detector.outage_count == 0, "dead hosts of other tenants stopped the node")
        at = stage.world.now
        stage.publish("quiet", receiver=QUIET)
        stage.until(lambda: len(stage.delivered(QUIET)) == 2)
        stage.expect(stage.world.now - at < 1.0, "a quiet tenant waited for hostile ones")
        stage.receivers_are_good()
        stage.settle()


def receivers_share_a_host_that_is_down() -> None:
    """One attempt at a time is made there, each failure is that of its receiver, and all go on afterwards."""
    names = tuple(f"{tenant}.r{number}" for number in range(8) for tenant in TENANTS)
    with staged(Plan(receivers=names)) as stage:
        network = Network(stage.run)
        for each in names:
            stage.put(each, url="https://hook.shared-host.com/")
            stage.receiver_is(Manner.IS_AWAY, each)
        stage.node().skew_s = 0.0
        stage.owner()
        for each in names:
            stage.publish("event-" + each.replace(".", "-"), receiver=each)
        stage.wait(30.0)
        stage.expect(network.made < 50, f"{network.made} attempts were made at a host that is down")
        failed = [each for each in _facts(stage) if isinstance(each, f.AttemptFailed)]
        stage.expect(len(failed) == network.made, "a receiver has the failure of a neighbour")
        for each in names:
            stage.receiver_is(Manner.TAKES, each)
        at = stage.world.now
        stage.until(lambda: all(stage.delivered(each) for each in names))
        stage.expect(stage.world.now - at < 20.0, "receivers waited long for a host that is up")
        stage.settle()


ALL = (
    node_loses_its_network, owner_dies_in_its_outage, hostile_tenants_have_hosts_that_die,
    receivers_share_a_host_that_is_down,
)  # fmt: skip
