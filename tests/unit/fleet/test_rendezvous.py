"""Rendezvous hashing: all nodes compute the same, every shard has one owner, and a death moves few shards."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.fleet.rendezvous import wanted_shards

SHARDS = 64
nodes = st.lists(st.text("abcdef-0123456789", min_size=1, max_size=12), min_size=1, max_size=8, unique=True)


@given(nodes)
def test_each_shard_has_one_owner(live: list[str]) -> None:
    owned = sorted(shard for node in live for shard in wanted_shards(SHARDS, node, live))
    assert owned == list(range(SHARDS))


@given(nodes)
def test_the_order_in_which_nodes_are_known_does_not_matter(live: list[str]) -> None:
    assert wanted_shards(SHARDS, live[0], live) == wanted_shards(SHARDS, live[0], reversed(live))


@given(nodes)
def test_a_death_moves_only_what_the_dead_owned(live: list[str]) -> None:
    dead, *rest = live
    for node in rest:
        before, after = wanted_shards(SHARDS, node, live), wanted_shards(SHARDS, node, rest)
        assert set(before) <= set(after)
        assert set(after) - set(before) <= set(wanted_shards(SHARDS, dead, live))


def test_a_node_counts_itself() -> None:
    assert wanted_shards(4, "a", []) == [0, 1, 2, 3]
    assert wanted_shards(4, "a", ["a"]) == [0, 1, 2, 3]


def test_the_choice_is_the_same_in_every_version() -> None:
    """Nodes of two versions must agree, or they would fight over the shards between them."""
    assert wanted_shards(8, "a", "abc") == [1, 2, 6]
    assert wanted_shards(8, "b", "abc") == [3, 5]
    assert wanted_shards(8, "c", "abc") == [0, 4, 7]


@pytest.mark.parametrize("count", [2, 3, 5, 10])
def test_the_shares_are_fair(count: int) -> None:
    live = [f"node-{number}" for number in range(count)]
    shares = [len(wanted_shards(1000, node, live)) for node in live]
    assert max(shares) < 1.35 * 1000 / count
