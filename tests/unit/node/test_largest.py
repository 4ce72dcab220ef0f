"""The largest by name: their number is limited, and counters never fall when others become the largest."""

from hypothesis import given
from hypothesis import strategies as st

from angarium.node.metrics.largest import OTHERS, LargestCounters, largest, oldest

NAMES = st.sampled_from(["a", "b", "c", "d"])


def test_all_but_the_largest_are_one() -> None:
    values = {"a": 3.0, "b": 1.0, "c": 2.0}
    assert largest(values, 1) == {"a": 3.0, OTHERS: 3.0}
    assert largest(values, 1, oldest) == {"a": 3.0, OTHERS: 2.0}
    assert largest(values, 0) == {OTHERS: 6.0}
    assert largest({}, 2, oldest) == {OTHERS: 0.0}


@given(st.integers(0, 3), st.lists(st.lists(st.tuples(NAMES, st.integers(1, 9)))))
def test_counters_of_the_largest_count_each_event_once_and_never_fall(
    count: int, rounds: list[list[tuple[str, int]]]
) -> None:
    counters, counts, before = LargestCounters(count), dict[str, int](), dict[str, int]()
    for each in rounds:
        for name, more in each:
            counts[name] = counts.get(name, 0) + more
        told = counters.values(counts)
        assert len(told) <= count + 1
        assert all(value >= before.get(name, 0) for name, value in told.items())
        before |= told
        assert sum(before.values()) == sum(counts.values())
