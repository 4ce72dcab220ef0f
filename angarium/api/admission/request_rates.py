"""Rates of requests, by token or by tenant, counted by each API process for itself.

A batch is accepted if the bucket has a token for each of its events, or is full; a deficit has to be refilled
before the next request. A bucket large enough for a whole batch would accept that many single events at once.
"""

import math
from collections import OrderedDict

from msgspec import Struct

KEPT_MAX = 10_000
"""Keys whose buckets are kept; those used longest ago are dropped, since their buckets are full."""


class _Bucket(Struct):
    level: float
    at: float


class RateStatus(Struct, frozen=True):
    """The requests left, and the time until there is one (`next_s`), and until the bucket is full."""

    admitted: bool
    limit: int
    remaining: int
    reset_s: int
    wait_s: int
    next_s: int

    def headers(self, policy: str = "token") -> dict[str, str]:
        """The headers of draft-ietf-httpapi-ratelimit-headers."""
        return {
            "ratelimit-policy": f'"{policy}";q={self.limit};w=1',
            "ratelimit": f'"{policy}";r={self.remaining};t={self.reset_s}',
        }


class RequestRates:
    """The buckets of tokens, or of tenants, by key. `now` is the event loop's clock, in seconds."""

    def __init__(self) -> None:
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()

    def take(self, key: str, rate: float, count: int, now: float) -> RateStatus:
        """Take as many from the bucket of the key, if it has them or is full."""
        limit = max(1, math.ceil(rate))
        bucket = self._buckets.get(key)
        if bucket is None:
            bucket = self._buckets[key] = _Bucket(limit, now)
            if len(self._buckets) > KEPT_MAX:
                self._buckets.popitem(last=False)
        self._buckets.move_to_end(key)
        bucket.level = min(limit, bucket.level + max(0.0, now - bucket.at) * rate)
        bucket.at = now
        needed = min(count, limit)
        admitted = bucket.level >= needed
        if admitted:
            bucket.level -= count
        return RateStatus(
            admitted=admitted,
            limit=limit,
            remaining=max(0, math.floor(bucket.level)),
            reset_s=math.ceil((limit - bucket.level) / rate),
            wait_s=0 if admitted else max(1, math.ceil((needed - bucket.level) / rate)),
            next_s=max(1, math.ceil((1 - bucket.level) / rate)),
        )
