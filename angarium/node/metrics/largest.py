"""Names for the largest, and one value for all others: so the number of series is limited."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from heapq import nlargest

OTHERS = "_other"
"""The value of a label for all that are not named. No receiver or tenant has this name."""


def largest(
    values: Mapping[str, float],
    count: int,
    together: Callable[[Iterable[float]], float] = sum,
) -> dict[str, float]:
    """The `count` largest by their names, and all others `together`."""
    named = {name: values[name] for name in _largest_names(values, count)}
    rest = (value for name, value in values.items() if name not in named)
    return named | {OTHERS: together(rest)}


def oldest(ages_s: Iterable[float]) -> float:
    """The highest age; 0 if there is none."""
    return max(ages_s, default=0.0)


def _largest_names(values: Mapping[str, float], count: int) -> list[str]:
    return nlargest(count, values, key=lambda name: (values[name], name))


class LargestCounters:
    """Counters of the largest by their names. Each event is in one series, and no series falls.

    What a name counts goes to its own series while it is one of the largest, and else to that of all others.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._seen: dict[str, int] = {}
        self._named = Counter[str]()
        self._others = 0

    def values(self, counts: Mapping[str, int], unnamed: int = 0) -> dict[str, int]:
        """The series as of now; `unnamed` was counted without a name."""
        named = dict.fromkeys(_largest_names(counts, self._count))
        for name, count in counts.items():
            increase = count - self._seen.get(name, 0)
            if name in named:
                self._named[name] += increase
            else:
                self._others += increase
        self._seen = dict(counts)
        return {name: self._named[name] for name in named} | {OTHERS: self._others + unnamed}
