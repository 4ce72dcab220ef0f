"""Pages of entries ordered by time: where the next page begins, even if entries are recorded in between."""

from collections.abc import Sequence

from msgspec import Struct


class PageStart(Struct, frozen=True):
    """The start of a page: a time, of which the first `skip` entries were in earlier pages."""

    at: int
    skip: int

    def skipped(self, instants: Sequence[int]) -> int:
        """The number of entries at this time that were in earlier pages."""
        same = next((index for index, at in enumerate(instants) if at != self.at), len(instants))
        return min(self.skip, same)


def next_start(instants: Sequence[int], before: PageStart | None) -> PageStart:
    """The start of the page after entries with these times."""
    last = instants[-1]
    skip = sum(at == last for at in instants)
    if before is not None and before.at == last:
        skip += before.skip
    return PageStart(last, skip)
