"""The trees of transforms are kept within a bound of memory, however many transforms there are."""

from actors.configuration.transform import POINTER_TOKENS_MAX, POINTERS_MAX, Transform, transform_problems
from angarium.delivery.shaping.pointer_trees import KEPT_NODES_MAX, KeptTrees, trees_of


def small(number: int) -> Transform:
    return Transform(drop=(f"/{number}",))


def large(number: int) -> Transform:
    """A transform whose trees are as large as they may be."""
    pointers = [f"/{chr(0x21 + place)}" + "/a" * (POINTER_TOKENS_MAX - 2) for place in range(63)]
    pointers = [each for each in pointers if "~" not in each][: POINTERS_MAX - 8]
    return Transform(drop=(f"/{number}", *pointers))


def test_a_tree_has_a_node_for_each_beginning_and_counts_them() -> None:
    found = trees_of(Transform(keep=("/a/b", "/a/c"), drop=("/x",)))
    assert found.keep is not None
    assert found.drop is not None
    assert [found.keep.ends, found.keep.following["a"].ends] == [False, False]
    assert [(name, each.ends) for name, each in found.keep.following["a"].following.items()] == [
        ("b", True), ("c", True)
    ]  # fmt: skip
    assert found.pseudonymize is None
    assert found.size == 4 + 2


def test_the_trees_of_a_transform_are_made_once() -> None:
    kept = KeptTrees()
    assert kept.of(small(1)) is kept.of(Transform(drop=("/1",)))
    assert kept.nodes == 2


def test_trees_are_bounded_by_their_nodes() -> None:
    """Trees were bounded by their number alone: 1,024 of the largest took 400 MB."""
    kept = KeptTrees()
    for number in range(100):
        transform = large(number)
        assert list(transform_problems(transform, None)) == []
        kept.of(transform)
        assert kept.nodes <= KEPT_NODES_MAX
    assert kept.nodes > KEPT_NODES_MAX - trees_of(large(0)).size


def test_the_trees_that_were_used_last_stay() -> None:
    kept = KeptTrees(nodes_max=4)
    first, second = kept.of(small(1)), kept.of(small(2))
    assert kept.of(small(1)) is first
    kept.of(small(3))
    assert kept.of(small(1)) is first
    assert kept.of(small(2)) is not second


def test_trees_that_are_too_large_are_made_and_not_kept() -> None:
    kept = KeptTrees(nodes_max=1)
    assert kept.of(small(1)).size == 2
    assert kept.nodes == 0
