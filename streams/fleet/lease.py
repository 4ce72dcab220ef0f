"""The lease of a node: the time during which it can be sure that no other node has claimed its shards.

Others may claim when they have seen no heartbeat for the TTL plus half a second. They saw an acknowledged
renewal no earlier than it was sent. So the holder is safe for the TTL minus half a second from *before* it
sent the renewal, by a clock that runs during sleep, even if the network, the scheduler or SIGSTOP has delayed
it since.
"""

from streams.clock import Timekeeper

LEASE_MARGIN_S = 0.5
"""Safety margin for clock drift and latency: holders subtract it, claimers add it."""


class Lease:
    """One lease, from its first acknowledged renewal to its end; it is never revived.

    A renewal must not revive it: others may have claimed and released in the meantime. A node whose lease is
    over stops its shards and begins another lease; a holder of the old one can do nothing.
    """

    def __init__(self, ttl_s: float, time: Timekeeper) -> None:
        self.ttl_s = ttl_s
        self.time = time
        self.ends_at: float | None = None
        self._over = False

    def sending(self) -> float:
        """Note that a renewal is about to be sent, and pass the result to `acknowledged`."""
        return self.time.boottime()

    def acknowledged(self, sent_at: float) -> bool:
        """Take a renewal as stored. False if it comes too late and the lease is over."""
        if self.is_over:
            return False
        self.ends_at = max(self.ends_at or 0.0, sent_at + self.ttl_s - LEASE_MARGIN_S)
        return self.is_valid()

    def is_valid(self) -> bool:
        """True if the node may act as an owner now; there must be no await between the check and the act."""
        if self.ends_at is None or self._over:
            return False
        self._over = self.time.boottime() >= self.ends_at
        return not self._over

    @property
    def is_over(self) -> bool:
        """True if it was valid and will not be valid again."""
        return self.ends_at is not None and not self.is_valid()
