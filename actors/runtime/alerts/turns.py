"""Decides whose alerts change in one round, so that no tenant and no receiver silences another.

Tenants take turns. Within a tenant, the receiver goes first that had its last alert raised the longest ago.
So one that flaps goes after all others, and takes only what they leave.
"""

from bisect import insort
from heapq import nsmallest

from actors.ids import tenant_of

CHANGED_OF_A_TENANT_MAX = 16
"""Receivers of one tenant whose alerts may change in one round. Without a bound, a tenant with thousands of
receivers behind one broken server would fill its partition with alerts at once."""
CHANGED_IN_A_ROUND_MAX = 256
"""Receivers of one shard whose alerts may change in one round; recording that takes some milliseconds."""


class AlertTurns:
    """The receivers whose alerts have to change in this round."""

    def __init__(self) -> None:
        self._waiting: dict[str, list[tuple[float, int, str]]] = {}
        self._count = 0

    def add(self, receiver: str, raised_at: float) -> None:
        """Add a receiver that had its last alert raised at that time, 0.0 if it never had one."""
        self._count += 1
        waiting = self._waiting.setdefault(tenant_of(receiver), [])
        insort(waiting, (raised_at, self._count, receiver))
        del waiting[CHANGED_OF_A_TENANT_MAX:]

    def first(self) -> list[str]:
        """The receivers whose turn it is: first one of each tenant, then another one of each, and so on."""
        ranked = ((rank, *each) for waiting in self._waiting.values() for rank, each in enumerate(waiting))
        return [receiver for *_, receiver in nsmallest(CHANGED_IN_A_ROUND_MAX, ranked)]
