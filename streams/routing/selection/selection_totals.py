"""Counts of what filters and regions have kept from receivers, and filters that could not be evaluated."""

from msgspec import Struct, field

from actors.configuration.filters.evaluating import FAILURES


class FailedFilter(Struct, frozen=True):
    """A filter that could not be evaluated for an event of that `event_type`: the event is not sent.

    `receivers` have that filter; `reason` is one of few words, `why` a sentence.
    """

    receivers: tuple[str, ...]
    event_type: str
    position: int
    reason: str
    why: str


class SelectionTotals(Struct):
    """Totals of the copies that were not made. They count again if another owner routes an event again.

    - `filtered`: a filter did not let the event through, or could not be evaluated.
    - `outside_region`: the receiver has regions, and the event's is not among them.
    - `failures`: filters that could not be evaluated, by reason; these are `filtered`, too.
    """

    filtered: int = 0
    outside_region: int = 0
    failures: dict[str, int] = field(default_factory=lambda: {each.value: 0 for each in FAILURES})
