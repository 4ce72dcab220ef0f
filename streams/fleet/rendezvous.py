"""Rendezvous hashing: which node should own which shard; if a node dies, only its own shards move.

Every node computes this alone, from the nodes that it believes to be alive. It says which node should own a
shard, never which one may.
"""

from collections.abc import Iterable
from hashlib import blake2b


def wanted_shards(shards: int, node: str, live: Iterable[str]) -> list[int]:
    """The shards from 0 to `shards` - 1 that `node` should own among the `live` nodes, itself included."""
    nodes = {node, *live}
    return [shard for shard in range(shards) if _winner(shard, nodes) == node]


def _winner(shard: int, nodes: Iterable[str]) -> str:
    """The node with the highest hash; the name breaks a tie."""
    return max(nodes, key=lambda node: (_weight(shard, node), node))


def _weight(shard: int, node: str) -> bytes:
    return blake2b(f"{shard}\n{node}".encode(), digest_size=8).digest()
