"""The lease of a node: the time in which it can be sure that no other node has claimed its shards.

Others may claim when they have seen no heartbeat for the TTL and half a second. A renewal that was
acknowledged was seen no earlier than it was sent, so its holder is safe for the TTL less half a second from
*before* it was sent, by a clock that counts sleep too: whatever the network, the scheduler or SIGSTOP did to
it since.
"""

from streams.clock import Timekeeper

LEASE_MARGIN_S = 0.5
"""Safety margin for clock drift and latency: holders subtract it, claimers add it."""


class Lease:
    """One lease, from its first acknowledged renewal to its end; it never comes back.

    A renewal must not revive it: others may have claimed and released in the meantime. A node whose lease is
    over stops its shards and begins another one, and what belongs to the old one stays powerless.
    """

    def __init__(self, ttl_s: float, time: Timekeeper) -> None:
        self._ttl_s = ttl_s
        self._time = time
        self._ends_at: float | None = None
        self._over = False

    def sending(self) -> float:
        """Note that a renewal is sent; call it before. Pass the result to `acknowledged`."""
        return self._time.boottime()

    def acknowledged(self, sent_at: float) -> bool:
        """Take a renewal as stored. False where that comes too late: the lease is over."""
        if self.over:
            return False
        self._ends_at = max(self._ends_at or 0.0, sent_at + self._ttl_s - LEASE_MARGIN_S)
        return self.valid()

    def valid(self) -> bool:
        """True if the node may act as an owner now; there must be no await between the check and the act."""
        if self._ends_at is None or self._over:
            return False
        self._over = self._time.boottime() >= self._ends_at
        return not self._over

    @property
    def over(self) -> bool:
        """True if it was valid and will not be valid again."""
        return self._ends_at is not None and not self.valid()
