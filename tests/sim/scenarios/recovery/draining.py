"""Drains: shards go to the nodes that are left, and each is wanted by one node, whatever the versions are."""

from streams.fleet.handover_turns import HANDOVERS_AT_ONCE
from tests.sim.checks.placement import misplaced
from tests.sim.plan import Plan
from tests.sim.stage import Stage, old, staged

SHARED = Plan(shards=3)


def node_is_drained_and_resumed() -> None:
    """The shards of a node go to the other, with the work, and its share comes back."""
    with staged(SHARED) as stage:
        stage.put(rate={"limit": 5, "burst": 1})
        drained, other = stage.node(), stage.node()
        shared_out(stage)
        stage.publish(*old(12))
        stage.ask("drain", f"_nodes.{drained.name}")
        shared_out(stage)
        stage.expect(not stage.checkers.nodes[drained.name].owned, "the drained node owns shards")
        stage.expect(len(stage.checkers.nodes[other.name].owned) == 3, "the other has not all shards")
        stage.ask("resume", f"_nodes.{drained.name}")
        shared_out(stage)
        stage.expect(bool(stage.checkers.nodes[drained.name].owned), "the resumed node owns no shard")
        stage.settle()


def shards_change_hands_two_at_a_time() -> None:
    """A node that is drained goes on delivering for the shards that wait for their turn."""
    with staged(Plan(shards=8)) as stage:
        stage.put()
        drained, _ = stage.node(), stage.node()
        shared_out(stage)
        stage.ask("drain", f"_nodes.{drained.name}")
        most = 0

        def all_moved() -> bool:
            nonlocal most
            most = max(most, still(stage))
            return not stage.checkers.nodes[drained.name].owned and not still(stage)

        stage.until(all_moved)
        stage.expect(most > 0, "no shard was seen while it changed hands")
        stage.expect(most <= HANDOVERS_AT_ONCE, f"{most} shards were still at once")
        stage.settle()


def still(stage: Stage) -> int:
    """The number of shards that no node delivers for at this moment."""
    delivering = {
        number
        for node in stage.checkers.nodes.values()
        for number, shard in node.owned.items()
        if shard.delivers
    }
    return stage.run.plan.shards - len(delivering)


def last_node_is_left_while_it_is_drained() -> None:
    """The node that took the shards of a drained one dies: these are delivered all the same."""
    with staged(SHARED) as stage:
        stage.put()
        drained, other = stage.node(), stage.node()
        stage.ask("drain", f"_nodes.{drained.name}")
        shared_out(stage)
        other.kill()
        stage.publish("one")
        shared_out(stage)
        stage.settle()
        stage.node()
        shared_out(stage)
        stage.expect(not stage.checkers.nodes[drained.name].owned, "the drain is forgotten")


def older_node_joins_a_fleet() -> None:
    """A node knows the older placement alone, so all use that one, until it leaves."""
    with staged(Plan(shards=16)) as stage:
        stage.put()
        stage.node()
        stage.node()
        shared_out(stage)
        stage.nodes_know(0)
        older = stage.node()
        stage.publish("one")
        shared_out(stage)
        stage.stop(older)
        stage.publish("two")
        shared_out(stage)
        stage.settle()


def older_node_joins_while_one_is_drained() -> None:
    """A node leaves no drained one out, which owns its share until the older node is gone."""
    with staged(Plan(shards=16)) as stage:
        stage.put()
        drained, _ = stage.node(), stage.node()
        stage.ask("drain", f"_nodes.{drained.name}")
        shared_out(stage)
        stage.nodes_know(0)
        older = stage.node()
        shared_out(stage)
        stage.expect(bool(stage.checkers.nodes[drained.name].owned), "shards are wanted by no node")
        stage.stop(older)
        shared_out(stage)
        stage.expect(not stage.checkers.nodes[drained.name].owned, "the drain is forgotten")
        stage.settle()


def shared_out(stage: Stage) -> None:
    """Return when each shard is owned by the node that should own it."""
    stage.run.until_placed(60.0)
    stage.expect(not misplaced(stage.checkers.nodes, stage.run.plan.shards), "shards move once more")
