"""The shard of a receiver never changes, so its number is written down here.

That the server comes to the same is in `tests/contract/nats/test_jetstream.py`.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.installation.partitions import partition_of, shard_of


@pytest.mark.parametrize(
    ("tenant", "name", "shard"),
    [("acme", "billing", 54), ("acme", "crm", 29), ("a", "b", 10), ("Tenant-1", "name_2", 61)],
)
def test_known_shards(tenant: str, name: str, shard: int) -> None:
    assert shard_of(tenant, name, 64) == shard


def test_the_hash_is_fnv_1a() -> None:
    """Vectors of the FNV authors (draft-eastlake-fnv): "", "a", "foobar"."""
    assert partition_of("", 1 << 32) == 0x811C9DC5
    assert partition_of("a", 1 << 32) == 0xE40C292C
    assert shard_of("foo", "bar", 1 << 32) == 0xBF9CF968


@given(st.text(), st.text(), st.integers(1, 1 << 16))
def test_tokens_are_joined_by_nothing(tenant: str, name: str, shards: int) -> None:
    assert shard_of(tenant, name, shards) == partition_of(tenant + name, shards)
    assert 0 <= shard_of(tenant, name, shards) < shards


def test_receivers_spread_evenly() -> None:
    counts = [0] * 64
    for tenant in range(40):
        for name in range(160):
            counts[shard_of(f"tenant-{tenant}", f"hook-{name}", 64)] += 1
    assert max(counts) < 2 * min(counts)
