"""Rendezvous hashing: a shard goes to the node with the highest hash of its name and the shard's number.

If a node dies, only its own shards move. But shares are as uneven as dice; see `placement`.
"""

from collections.abc import Collection
from hashlib import blake2b


def wanted_owners(shards: int, nodes: Collection[str]) -> tuple[str, ...]:
    """The name of the node that should own each shard; the name breaks a tie."""
    return tuple(max(nodes, key=lambda node: (weight(shard, node), node)) for shard in range(shards))


def weight(shard: int, node: str) -> bytes:
    """The hash of a shard's number and a node's name, the same on every machine."""
    return blake2b(f"{shard}\n{node}".encode(), digest_size=8).digest()
