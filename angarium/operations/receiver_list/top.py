"""Shows the health of the receivers repeatedly, the longest waits first."""

import time

from msgspec import Struct

from actors.times_as_text import instant_text
from angarium.access import Access
from angarium.operations.failures import NotDone
from angarium.operations.receiver_list.listing import ListedReceiver, overview
from angarium.operations.receiver_list.throughput import RecentCounts
from angarium.operations.routing_delays import unrouted_notes
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
    """The receivers of all tenants, or of one. Each refresh continues in the journal."""

    def __init__(self, access: Access, tenant: str | None, limit: int) -> None:
        self._access = access
        self._tenant = tenant
        self._limit = limit
        self._recently = RecentCounts(RecentFlushes(access.js, access.names))

    async def refresh(self) -> TopScreen | NotDone:
        """The current content of the screen."""
        found = await overview(self._access, self._tenant, recently=self._recently)
        if isinstance(found, NotDone):
            return found
        unrouted = await unrouted_notes(self._access, self._tenant)
        return top_screen(found.rows, self._limit, [*found.notes, *unrouted], found.age_s)


def top_screen(rows: list[ListedReceiver], limit: int, notes: list[str], age_s: float = 0.0) -> TopScreen:
    """Sum up the rows, and keep the first `limit` of them."""
    ranked = sorted(rows, key=_rank)
    return TopScreen(
        at=instant_text(time.time()),
        count=len(rows),
        behind=sum(bool(each.waiting) for each in rows),
        waiting=sum(each.waiting or 0 for each in rows),
        in_per_s=round(sum(each.in_per_s or 0.0 for each in rows), 3),
        out_per_s=round(sum(each.out_per_s or 0.0 for each in rows), 3),
        receivers=ranked[:limit],
        notes=notes,
        age_s=age_s,
    )


def _rank(row: ListedReceiver) -> tuple[str, float, str]:
    """The sort key: the oldest event first (RFC 3339 sorts as text), then the busiest."""
    return row.oldest_at or "~", -(row.out_per_s or 0.0), row.receiver
