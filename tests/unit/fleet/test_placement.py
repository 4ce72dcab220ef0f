"""The placement: each shard has one owner, shares are even, little moves, and all versions agree."""

import random
from collections import Counter
from collections.abc import Sequence
from math import sqrt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.fleet import rendezvous
from streams.fleet.placement import PLACEMENT_VERSION, LiveNode, even_owners, wanted_owners, wanted_shards

SHARDS = 64
names = st.text("abcdef-0123456789", min_size=1, max_size=12)
live_nodes = st.lists(
    st.builds(LiveNode, names, st.integers(0, PLACEMENT_VERSION + 1), st.booleans()),
    min_size=1, max_size=8, unique_by=lambda each: each.name,
)  # fmt: skip


def known(*names: str) -> tuple[LiveNode, ...]:
    return tuple(LiveNode(name, PLACEMENT_VERSION) for name in names)


@given(live_nodes)
def test_each_shard_is_wanted_by_one_live_node(live: list[LiveNode]) -> None:
    nodes = tuple(live)
    wanted = sorted(shard for each in live for shard in wanted_shards(SHARDS, each.name, nodes))
    assert wanted == list(range(SHARDS))


@given(live_nodes)
def test_a_draining_node_is_left_out_if_another_can_take_its_shards(live: list[LiveNode]) -> None:
    owners = set(wanted_owners(SHARDS, tuple(live)))
    taking = {each.name for each in live if not each.draining}
    if taking and all(each.placement >= PLACEMENT_VERSION for each in live):
        assert owners <= taking
    else:
        assert owners <= {each.name for each in live}


@given(live_nodes)
def test_while_a_node_knows_only_rendezvous_hashing_all_use_it(live: list[LiveNode]) -> None:
    """The older node leaves no draining node out, so neither may the others."""
    nodes = (*live, LiveNode("an older one", 0))
    assert wanted_owners(SHARDS, nodes) == rendezvous.wanted_owners(SHARDS, [each.name for each in nodes])


@given(st.lists(names, min_size=1, max_size=8, unique=True))
def test_the_order_in_which_nodes_are_known_does_not_matter(live: list[str]) -> None:
    assert even_owners(SHARDS, live) == even_owners(SHARDS, live[::-1])
    assert rendezvous.wanted_owners(SHARDS, live) == rendezvous.wanted_owners(SHARDS, live[::-1])


@pytest.mark.parametrize(
    ("shards", "draws"), [(16, 1000), (64, 1000), (256, 100), pytest.param(256, 1000, marks=pytest.mark.soak)]
)
def test_shares_are_even_and_joins_and_leaves_move_little(shards: int, draws: int) -> None:
    """The share of the node that joins or leaves must move: one draw tests both directions.

    Each share is within 15 % of the mean, or within one shard of it.
    """
    drawn, beyond = random.Random(shards), list[int]()
    for _ in range(draws):
        *before, joining = drawn_names(drawn, drawn.randint(2, 20) + 1)
        after = [*before, joining]
        smaller, larger = even_owners(shards, before), even_owners(shards, after)
        assert is_even(smaller, before), before
        assert is_even(larger, after), after
        moved = sum(old != new for old, new in zip(smaller, larger, strict=True))
        beyond.append(moved - Counter(larger)[joining])
    assert max(beyond) <= 1.5 * sqrt(shards)
    assert sum(beyond) / draws <= 0.5 * sqrt(shards)


def drawn_names(drawn: random.Random, count: int) -> list[str]:
    """Different names, as hosts, pods, or processes have them."""
    form = drawn.choice(["node-{}", "angarium-{}.eu", "ip-10-0-{}", "{}"])
    return [form.format(each) for each in drawn.sample(range(10**6), count)]


def is_even(owners: Sequence[str], nodes: Sequence[str]) -> bool:
    mean, shares = len(owners) / len(nodes), Counter(owners)
    return all(abs(shares[node] - mean) <= max(1, 0.15 * mean) for node in nodes)


def test_the_choice_is_the_same_in_every_version() -> None:
    """Nodes of two versions must agree, or they would fight over the shards between them."""
    assert "".join(rendezvous.wanted_owners(8, "abc")) == "caabcbac"
    assert "".join(even_owners(16, "abcd")) == "baabcbaddcddccab"
    assert wanted_shards(8, "a", (LiveNode("a"), LiveNode("b"), LiveNode("c"))) == [1, 2, 6]


def test_more_nodes_than_shards_leave_some_without() -> None:
    assert sorted(Counter(even_owners(2, "abc")).values()) == [1, 1]


def test_a_read_costs_no_computation_if_the_nodes_are_the_same() -> None:
    live = known("one", "two")
    assert wanted_owners(256, live) is wanted_owners(256, known("one", "two"))
