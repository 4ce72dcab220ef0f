"""Exemplars: of each bucket of a histogram, the exported span that fell into it last.

A dashboard shows them as points on a curve of latencies, each of which leads to its trace.
"""

from bisect import bisect_left

from msgspec import Struct


class Exemplar(Struct, frozen=True, gc=False):
    """A value, the span that it is of, and when it was measured, in seconds since the epoch."""

    value: float
    trace: int
    span: int
    at: float


class Exemplars:
    """The last exemplar of each bucket; `bounds` are those of the histogram."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.by_bucket: list[Exemplar | None] = [None] * (len(bounds) + 1)
        self._bounds = bounds

    def add(self, exemplar: Exemplar) -> None:
        """Put an exemplar in place of the last one of its bucket."""
        self.by_bucket[bisect_left(self._bounds, exemplar.value)] = exemplar
