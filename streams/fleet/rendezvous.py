"""Rendezvous hashing: who should own which shard; a death moves the dead node's shards and no others.

Every node computes it alone, from the nodes that it believes alive. It says who should own, never who may.
"""

from collections.abc import Iterable
from hashlib import blake2b


def wanted(shards: int, node: str, live: Iterable[str]) -> list[int]:
    """The shards, of 0 to `shards` - 1, that belong to `node` among the `live` ones, itself included."""
    nodes = {node, *live}
    return [shard for shard in range(shards) if _winner(shard, nodes) == node]


def _winner(shard: int, nodes: Iterable[str]) -> str:
    """The node with the highest lot; the name settles a tie."""
    return max(nodes, key=lambda node: (_lot(shard, node), node))


def _lot(shard: int, node: str) -> bytes:
    return blake2b(f"{shard}\n{node}".encode(), digest_size=8).digest()
