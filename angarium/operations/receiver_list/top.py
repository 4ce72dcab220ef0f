"""Shows the health of the receivers repeatedly, the longest waits first."""

import time
from bisect import insort
from collections.abc import Sequence
from math import inf

from msgspec import Struct

from actors.times_as_text import instant_text
from angarium.access import Access
from angarium.operations.failures import NotDone, operation
from angarium.operations.receiver_list.listing import ListedReceiver, ReceiverFindings, find_receivers, listed
from angarium.operations.receiver_list.throughput import RecentCounts
from angarium.operations.routing_delays import unrouted_notes
from streams.bounded_gather import in_turns
from streams.journal_feed.recent_flushes import RecentFlushes


class TopScreen(Struct, frozen=True, kw_only=True):
    """The receivers whose events wait longest, and the sums of all `count` receivers.

    `behind`: how many have waiting events. `age_s`: the age of the oldest phases and counts among them.
    """

    at: str
    count: int
    behind: int
    waiting: int
    in_per_s: float
    out_per_s: float
    receivers: list[ListedReceiver]
    notes: list[str]
    age_s: float = 0.0


class Top:
    """The receivers of all tenants, or of one. Each refresh continues in the journal.

    `recent_counts`: what others read there, too.
    """

    def __init__(
        self, access: Access, tenant: str | None, limit: int, recent_counts: RecentCounts | None = None
    ) -> None:
        self._access = access
        self._tenant = tenant
        self._limit = limit
        self._recent_counts = recent_counts or RecentCounts(RecentFlushes(access.js, access.names))

    async def refresh(self) -> TopScreen | NotDone:
        """The current content of the screen."""
        return await _refreshed(self._access, self._tenant, self._limit, self._recent_counts)


@operation
async def _refreshed(
    access: Access, tenant: str | None, limit: int, recent_counts: RecentCounts
) -> TopScreen:
    found = await find_receivers(access, tenant, recent_counts=recent_counts)
    notes = [*found.notes, *await unrouted_notes(access, tenant)]
    return await top_screen(found.rows, limit, notes, found.age_s)


async def top_screen(
    rows: Sequence[ReceiverFindings], limit: int, notes: list[str], age_s: float = 0.0
) -> TopScreen:
    """Sum up the rows, and list the first `limit` of them."""
    behind = waiting = 0
    in_per_s = out_per_s = 0.0
    first = list[tuple[tuple[float, float, str], ReceiverFindings]]()
    async for row in in_turns(rows):
        if row.waiting is not None:
            behind += bool(row.waiting.count)
            waiting += row.waiting.count
        if row.throughput is not None:
            in_per_s += row.throughput.in_per_s
            out_per_s += row.throughput.out_per_s
        rank = _rank(row)
        if len(first) < limit or rank < first[-1][0]:
            insort(first, (rank, row), key=lambda each: each[0])
            del first[limit:]
    return TopScreen(
        at=instant_text(time.time()), count=len(rows), behind=behind, waiting=waiting,
        in_per_s=round(in_per_s, 3), out_per_s=round(out_per_s, 3),
        receivers=[listed(row) for _, row in first], notes=notes, age_s=age_s,
    )  # fmt: skip


def _rank(row: ReceiverFindings) -> tuple[float, float, str]:
    """The sort key: the oldest event first, then the busiest."""
    oldest_at = row.waiting.oldest_at if row.waiting else None
    out_per_s = row.throughput.out_per_s if row.throughput else 0.0
    return inf if oldest_at is None else oldest_at, -out_per_s, row.name
