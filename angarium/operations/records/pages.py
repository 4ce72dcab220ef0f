"""Pages of what is ordered by time: where the next one begins, whatever is recorded in between."""

from collections.abc import Sequence

from msgspec import Struct


class PageStart(Struct, frozen=True):
    """The place where a page begins: at an instant, whose first `told` entries were in earlier pages."""

    at: int
    told: int

    def skipped(self, instants: Sequence[int]) -> int:
        """Count those of the entries, which begin at this instant, that were in earlier pages."""
        same = next((index for index, at in enumerate(instants) if at != self.at), len(instants))
        return min(self.told, same)


def next_start(instants: Sequence[int], before: PageStart | None) -> PageStart:
    """The place behind a page whose entries have these instants."""
    last = instants[-1]
    told = sum(at == last for at in instants)
    if before is not None and before.at == last:
        told += before.told
    return PageStart(last, told)
