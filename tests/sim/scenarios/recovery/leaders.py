"""Deposed leaders that still answer, with old knowledge."""

from tests.sim.plan import Plan
from tests.sim.stage import old, staged
from tests.sim.world.process import Process

RECEIVERS = tuple(f"acme.r{number}" for number in range(16))


def deposed_leader_returns_a_position() -> None:
    """An owner passes over a repeat, posts the next event and dies before that is recorded; the window is
    smaller when another takes over, and the leader that tells it the end knows of neither event."""
    with staged(Plan(clustered=True)) as stage:
        stage.put(dedup_window=64)
        first = stage.node()
        stage.publish(*old(20))
        stage.settle()
        stage.lose_facts(b'"repeated"', first)
        stage.depose(stage.run.names.deliveries, 1.0)
        stage.at_start(21, Process.kill)
        stage.publish("old2", "new")
        stage.until(lambda: not stage.run.processes)
        stage.put(dedup_window=16)
        stage.node()
        stage.wait(8.0)
        stage.let_leaders_find_out()
        stage.settle()


def deposed_leader_returns_snapshots() -> None:
    """A new owner reads its actors, and some answers come from a leader that knows older states of them."""
    with staged(Plan(receivers=RECEIVERS, clustered=True, snapshot_every_s=1.0)) as stage:
        for receiver in RECEIVERS:
            stage.put(receiver)
        first = stage.node()
        for event in ("one", "two"):
            for receiver in RECEIVERS:
                stage.publish(event, receiver=receiver)
            stage.settle()
            stage.wait(2.5)
            stage.depose(stage.run.names.actors, 0.4)
        first.kill()
        stage.node()
        stage.wait(5.0)
        for receiver in RECEIVERS:
            stage.publish("three", receiver=receiver)
        stage.wait(3.0)
        stage.let_leaders_find_out()
        stage.settle()


def deposed_leader_returns_the_end() -> None:
    """One node after another takes over a shard in order, though some answers know of an earlier end."""
    with staged(Plan(clustered=True)) as stage:
        stage.put()
        node = stage.node()
        stage.publish(*old(5))
        stage.settle()
        stage.depose(stage.run.names.deliveries, 0.5)
        stage.publish("one", "two")
        for _ in range(8):
            stage.wait(2.0)
            stage.stop(node)
            node = stage.node()
            stage.owner()
        stage.let_leaders_find_out()
        stage.settle()


def deposed_leader_returns_a_backlog() -> None:
    """A parked receiver's events are read; no replica and no leader that answers knows of the last ones."""
    with staged(Plan(clustered=True)) as stage:
        stage.put(paused=True)
        stage.node()
        stage.owner()
        stage.publish(*old(5))
        stage.wait(3.0)
        deliveries = stage.run.names.deliveries
        stage.let_replicas_stand(deliveries)
        stage.depose(deliveries, 1.0)
        stage.publish("one", "two")
        stage.wait(3.0)
        stage.put()
        stage.wait(3.0)
        stage.let_replicas_go_on(deliveries)
        stage.let_leaders_find_out()
        stage.settle()
        stage.expect(len(stage.delivered()) == 7, f"all events are wanted, not {stage.delivered()}")
