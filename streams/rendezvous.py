"""Who should own which shard: rendezvous hashing, so that a death moves the dead node's shards and no others.

Every node computes it alone, from the nodes that it believes alive. It says who should own, never who may.
"""

from collections.abc import Iterable
from hashlib import blake2b


def wanted(shards: int, node: str, live: Iterable[str]) -> list[int]:
    """The shards, of 0 to `shards` - 1, that belong to `node` among the `live` ones, itself included."""
    rivals = [each for each in sorted(live) if each != node]
    return [
        shard
        for shard in range(shards)
        if all(_claim_of(node, shard) > _claim_of(rival, shard) for rival in rivals)
    ]


def _claim_of(node: str, shard: int) -> tuple[bytes, str]:
    """How much a node wants a shard; the name settles a draw."""
    return blake2b(f"{shard}\n{node}".encode(), digest_size=8).digest(), node
