"""Checks the owners when all is quiet: the nodes agree, and each shard is owned by the one that should."""

from collections.abc import Mapping

from angarium.node.node import Node
from streams.fleet import rendezvous
from streams.fleet.placement import LiveNode, even_owners


def misplaced(nodes: Mapping[str, Node], shards: int) -> str:
    """Says in a sentence which shard has not the owner that it should have; nothing if all do."""
    live = [node.context.members for node in nodes.values() if not node.is_stopping]
    if not live:
        return "no node lives"
    wanted = expected([LiveNode(each.node, each.placement, each.draining) for each in live], shards)
    for shard, owner in enumerate(wanted):
        running = [
            name
            for name, node in nodes.items()
            if shard in node.owned and not node.owned[shard].ended.is_set()
        ]
        if running != [owner]:
            return f"shard {shard} should be owned by {owner}, and is by {running}"
    return ""


def expected(live: list[LiveNode], shards: int) -> tuple[str, ...]:
    """The rules once more: no node is left out if an older node is there, or if all are drained."""
    names = sorted(each.name for each in live)
    if not all(each.placement for each in live):
        return rendezvous.wanted_owners(shards, names)
    return even_owners(shards, sorted(each.name for each in live if not each.draining) or names)
