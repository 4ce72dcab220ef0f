"""Rules about the placement of shards, each taken out by itself."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from streams.fleet.handover_turns import TURN_MAX_S, HandoverTurns
from streams.fleet.members import Members
from streams.fleet.placement import LiveNode, even_owners, wanted_shards
from tests.sim.mutants.mutant import Mutant
from tests.sim.scenarios.recovery import draining

SHARDS_MAX = 1024


def _as_if_not_drained(members: Members, shards: int) -> list[int]:
    """A node that announces its drain, and leaves everybody out but itself."""
    live = tuple(
        LiveNode(each.name, each.placement) if each.name == members.node else each
        for each in members.live_nodes
    )
    return wanted_shards(shards, members.node, live)


def _none_if_drained(members: Members, shards: int) -> list[int]:
    return [] if members.draining else wanted_shards(shards, members.node, members.live_nodes)


def _none_if_others_are_not_drained(members: Members, shards: int) -> list[int]:
    leaves = members.draining and not all(each.draining for each in members.live_nodes)
    return [] if leaves else wanted_shards(shards, members.node, members.live_nodes)


def _by_own_placement(members: Members, shards: int) -> list[int]:
    if not members.placement:
        return wanted_shards(shards, members.node, members.live_nodes)
    taking = [each.name for each in members.live_nodes if not each.draining]
    owners = even_owners(shards, taking or members.live)
    return [shard for shard, owner in enumerate(owners) if owner == members.node]


@asynccontextmanager
async def _at_once(turns: HandoverTurns) -> AsyncIterator[float]:
    yield TURN_MAX_S


PLACEMENT_MUTANTS = [
    Mutant("drained-keeps-claiming", "a drained node leaves its shards to the others",
           ((Members, "wanted_shards", _as_if_not_drained),),
           draining.node_is_drained_and_resumed),
    Mutant("drained-to-the-last", "no drained node is left out if no other is left",
           ((Members, "wanted_shards", _none_if_drained),),
           draining.last_node_is_left_while_it_is_drained),
    Mutant("two-placements", "a placement is used when all live nodes know it",
           ((Members, "wanted_shards", _by_own_placement),),
           draining.older_node_joins_a_fleet),
    Mutant("drained-among-older", "while one node leaves no drained node out, nobody does",
           ((Members, "wanted_shards", _none_if_others_are_not_drained),),
           draining.older_node_joins_while_one_is_drained),
    Mutant("all-hands-at-once", "two shards of a node change hands at a time",
           ((HandoverTurns, "turn", _at_once),),
           draining.shards_change_hands_two_at_a_time),
    Mutant("turn-ends-with-the-release", "a turn ends when another node runs the shard",
           ((Members, "owned_elsewhere", lambda members: frozenset(range(SHARDS_MAX))),),
           draining.shards_change_hands_two_at_a_time),
]  # fmt: skip
"""The rules of the design, each taken out by itself; `catalogue` lists all of them."""
