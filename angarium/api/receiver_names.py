"""The names of all receivers in alphabetical order, kept as they change.

They are sorted once. After that each change finds its place, so that a page of names costs what it shows, and
not what there is.
"""

from bisect import bisect_left, insort
from collections.abc import Callable, Sequence

PLACED_ONE_BY_ONE_MAX = 64
"""Changes that are put in their places one by one; more of them are sorted together with all names."""


class ReceiverNames:
    """The names in order. `exists` says whether there is a receiver of a name now."""

    def __init__(self, exists: Callable[[str], bool]) -> None:
        self._exists = exists
        self._names: list[str] = []
        self._changed: set[str] = set()

    def note(self, receiver: str) -> None:
        """Note that a receiver may have come or gone."""
        self._changed.add(receiver)

    def in_order(self) -> Sequence[str]:
        """The names of now; the next call may change this sequence."""
        if len(self._changed) > PLACED_ONE_BY_ONE_MAX:
            self._sort()
        else:
            for receiver in self._changed:
                self._place(receiver)
        self._changed.clear()
        return self._names

    def of_tenant(self, tenant: str | None) -> Sequence[str]:
        """The names of a tenant, or all of them, as a sequence of their own."""
        names = self.in_order()
        begin, end = tenant_range(names, tenant)
        return names[begin:end]

    def _sort(self) -> None:
        there = [each for each in self._names if each not in self._changed]
        there += filter(self._exists, self._changed)
        there.sort()
        self._names = there

    def _place(self, receiver: str) -> None:
        place = bisect_left(self._names, receiver)
        is_there = place < len(self._names) and self._names[place] == receiver
        if self._exists(receiver):
            if not is_there:
                insort(self._names, receiver)
        elif is_there:
            del self._names[place]


def tenant_range(names: Sequence[str], tenant: str | None) -> tuple[int, int]:
    """The places of a tenant's names among sorted ones: the first, and the one after the last."""
    if tenant is None:
        return 0, len(names)
    return bisect_left(names, f"{tenant}."), bisect_left(names, f"{tenant}/")
