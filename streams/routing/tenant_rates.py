"""The rates at which events of tenants are routed: a token bucket for each tenant that has a rate. Pure."""

from collections.abc import Callable

from actors.machine.bucket import Bucket, Limit, next_token_at, refill, take

BUCKETS_MAX = 1024
"""Buckets beyond which those are forgotten whose tenants have published nothing for long."""


class TenantRates:
    """The token buckets of a partition's tenants. Times are seconds of one clock.

    A bucket that is new, after a takeover for instance, has one token. So an owner that vanished cannot have
    used a burst that this one grants again.
    """

    def __init__(self, limit_of: Callable[[str], Limit | None]) -> None:
        self._limit_of = limit_of
        self._buckets: dict[str, Bucket] = {}

    @property
    def held(self) -> int:
        """The number of buckets in memory."""
        return len(self._buckets)

    def take(self, tenant: str, now: float) -> float:
        """Take a token for one event; returns 0.0, or the time at which there will be one."""
        limit = self._limit_of(tenant)
        if limit is None:
            return 0.0
        filled = refill(self._buckets.get(tenant) or Bucket(1.0, now, 0), limit, now, 0)
        left = take(filled)
        self._buckets[tenant] = left or filled
        if len(self._buckets) > BUCKETS_MAX:
            self._forget_full(now)
        return 0.0 if left else next_token_at(filled, limit)

    def _forget_full(self, now: float) -> None:
        for tenant, bucket in list(self._buckets.items()):
            limit = self._limit_of(tenant)
            if limit is None or refill(bucket, limit, now, 0).tokens >= limit.burst:
                del self._buckets[tenant]
