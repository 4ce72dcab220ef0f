"""The placement: which live node should own which shard.

Every node computes it alone, from the heartbeats of the live nodes. It says which node should own a shard,
never which one may. Nodes of different versions must compute the same one, or a shard would be wanted by two
nodes, or by none. So each heartbeat says which placement its node knows, and all use the newest one that all
know (docs/decisions/shard-placement.md).
"""

from collections.abc import Sequence
from functools import lru_cache

from msgspec import Struct

from streams.fleet import rendezvous

PLACEMENT_VERSION = 1
"""The newest placement that this version knows. 0 is rendezvous hashing, which knows no draining nodes."""
SPREAD_PERCENT = 15
"""Allowed distance of a node's share from the mean, if that is a shard or more."""
KEPT_PLACEMENTS = 32
KEPT_HASHES = 64


class LiveNode(Struct, frozen=True, order=True):
    """A live node: its name, the newest placement that it knows, and whether it is being emptied."""

    name: str
    placement: int = 0
    draining: bool = False


def can_drain(live: Sequence[LiveNode]) -> bool:
    """True if all these nodes leave a draining node out: then its shards go to the others."""
    return all(each.placement >= PLACEMENT_VERSION for each in live)


@lru_cache(maxsize=KEPT_PLACEMENTS)
def wanted_owners(shards: int, live: tuple[LiveNode, ...]) -> tuple[str, ...]:
    """The name of the node that should own each shard, among one live node or more.

    No node is left out if all are draining, or if one of them would leave none out: a shard must not be
    wanted by no node.
    """
    if not can_drain(live):
        return rendezvous.wanted_owners(shards, [each.name for each in live])
    taking = [each.name for each in live if not each.draining]
    return even_owners(shards, taking or [each.name for each in live])


def wanted_shards(shards: int, node: str, live: tuple[LiveNode, ...]) -> list[int]:
    """The shards that `node` should own."""
    return [shard for shard, owner in enumerate(wanted_owners(shards, live)) if owner == node]


def even_owners(shards: int, names: Sequence[str]) -> tuple[str, ...]:
    """Share the shards out evenly: each pair of shard and node has a weight, and the heaviest pairs win.

    A node gets no more than its limit, and none above the lower limit that others still need to reach theirs.
    """
    least, most = share_limits(shards, len(names))
    hashes = [(name, _hashes(shards, name)) for name in names]
    pairs = [(weight, name, shard) for name, weights in hashes for shard, weight in enumerate(weights)]
    pairs.sort(reverse=True)
    owners = [""] * shards
    owned = dict.fromkeys(names, 0)
    above_least = shards - least * len(names)
    for _, name, shard in pairs:
        count = owned[name]
        if owners[shard] or count >= most or (count >= least and not above_least):
            continue
        above_least -= count >= least
        owners[shard] = name
        owned[name] = count + 1
    return tuple(owners)


def share_limits(shards: int, nodes: int) -> tuple[int, int]:
    """The fewest and the most shards of one node: the mean, rounded down and up, or 15 % off it."""
    lower, upper = shards * (100 - SPREAD_PERCENT), shards * (100 + SPREAD_PERCENT)
    return (
        min(shards // nodes, -(-lower // (100 * nodes))),
        max(-(-shards // nodes), upper // (100 * nodes)),
    )


@lru_cache(maxsize=KEPT_HASHES)
def _hashes(shards: int, node: str) -> tuple[bytes, ...]:
    return tuple(rendezvous.weight(shard, node) for shard in range(shards))
