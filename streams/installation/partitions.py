"""The shard of a receiver, and the partition of a tenant's events.

The server computes it when it stores a message, by `partition()` in the stream's subject transform: 32-bit
FNV-1a over the named tokens, concatenated, modulo the count. This module computes the same for callers that
have to know the shard before they read.
"""

import asyncio
from collections.abc import Iterable

TENANTS_IN_A_ROW = 1000
"""Tenants that are checked before other work has a turn; they take a millisecond."""

_OFFSET = 0x811C9DC5
_PRIME = 0x01000193


def shard_of(tenant: str, name: str, shards: int) -> int:
    """The shard of the receiver `<tenant>.<name>`: `partition(shards,1,2)`."""
    return _fnv1a(tenant + name) % shards


def shard_of_receiver(receiver: str, shards: int) -> int:
    """The shard of a receiver by its id `<tenant>.<name>`."""
    tenant, _, name = receiver.partition(".")
    return shard_of(tenant, name, shards)


def partition_of(tenant: str, partitions: int) -> int:
    """The partition of a tenant's events: `partition(partitions,1)`."""
    return _fnv1a(tenant) % partitions


async def tenants_of_partition(tenants: Iterable[str], partition: int, partitions: int) -> list[str]:
    """Choose the tenants whose events are in the partition; other work has turns meanwhile."""
    found = list[str]()
    for number, tenant in enumerate(tenants, 1):
        if partition_of(tenant, partitions) == partition:
            found.append(tenant)
        if number % TENANTS_IN_A_ROW == 0:
            await asyncio.sleep(0)
    return found


def _fnv1a(text: str) -> int:
    state = _OFFSET
    for byte in text.encode():
        state = ((state ^ byte) * _PRIME) & 0xFFFFFFFF
    return state
