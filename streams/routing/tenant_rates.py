"""The rates at which events of tenants are routed: a token bucket for each tenant that has a rate. Pure."""

from collections.abc import Callable

from actors.machine.bucket import Bucket, RateLimit, next_token_at, refill, take

FORGET_AFTER_MIN = 1024
"""Number of events after which tenants that have published nothing for long are looked for again."""
BUCKETS_MAX = 8192
"""Buckets in memory: producers invent names of tenants. Tenants beyond them share one bucket."""
SHARED = ""
"""The key of that bucket, which is no tenant's name."""


class TenantRates:
    """The token buckets of a partition's tenants. Times are seconds of one clock.

    A bucket that is new, after a takeover for instance, has one token. So an owner that vanished cannot have
    used a burst that this one grants again.
    """

    def __init__(self, limit_of: Callable[[str], RateLimit | None]) -> None:
        self._limit_of = limit_of
        self._buckets: dict[str, Bucket] = {}
        self._takes_to_forget = FORGET_AFTER_MIN

    @property
    def held(self) -> int:
        """The number of buckets in memory."""
        return len(self._buckets)

    def take(self, tenant: str, now: float) -> float:
        """Take a token for one event; returns 0.0, or the time at which there will be one."""
        limit = self._limit_of(tenant)
        if limit is None:
            return 0.0
        self._takes_to_forget -= 1
        if not self._takes_to_forget:
            self._forget_full(now)
        if tenant not in self._buckets and len(self._buckets) >= BUCKETS_MAX:
            tenant = SHARED
        filled = refill(self._buckets.get(tenant) or Bucket(1.0, now, 0), limit, now, 0)
        left = take(filled)
        self._buckets[tenant] = left or filled
        return 0.0 if left else next_token_at(filled, limit)

    def _forget_full(self, now: float) -> None:
        for tenant, bucket in list(self._buckets.items()):
            limit = self._limit_of(tenant)
            if limit is None or refill(bucket, limit, now, 0).tokens >= limit.burst:
                del self._buckets[tenant]
        # So each event pays for one bucket that is checked.
        self._takes_to_forget = max(FORGET_AFTER_MIN, len(self._buckets))
