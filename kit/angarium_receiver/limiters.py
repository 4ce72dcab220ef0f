"""Four limits of the rate, for receivers that must protect what is behind them.

Each decides about one request at a time `now`, in seconds of a clock that does not step (`time.monotonic`).
A refused request costs nothing. Answer it with 429 and the headers of its `Verdict`: Angarium then sends
nothing until that time, and the event has not failed.

- `FixedWindow`: at most so many in each window; twice as many around the moment where one window ends.
- `SlidingWindow`: at most so many in any window; it remembers the time of each request.
- `TokenBucket`: a steady rate, and a burst at once after a quiet time.
- `LeakyBucket`: a steady rate for work that queues: what fills it leaves at that rate.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class Verdict:
    """The decision about a request.

    - `allowed`: it may be handled. `limit`, `window_s`: what the limiter allows, in how many seconds.
    - `remaining`: how many more would be allowed now.
    - `wait_s`: until the next is allowed; 0 if one is.
    """

    allowed: bool
    limit: int
    window_s: float
    remaining: int
    wait_s: float

    def headers(self) -> dict[str, str]:
        """`RateLimit-Policy` and `RateLimit` (draft-ietf-httpapi-ratelimit-headers-10), and `Retry-After`."""
        wait = math.ceil(self.wait_s)
        found = {
            "ratelimit-policy": f'"default";q={self.limit};w={math.ceil(self.window_s)}',
            "ratelimit": f'"default";r={self.remaining};t={wait}',
        }
        if not self.allowed:
            found["retry-after"] = str(max(wait, 1))
        return found


class Limiter(Protocol):
    """Decides about one request at a time; not for several threads at once (`Receiver` has a lock)."""

    def take(self, now: float) -> Verdict:
        """The decision about a request that comes now; if it is allowed, it is counted."""
        ...


class FixedWindow:
    """At most `limit` requests in each window of `window_s` seconds; windows begin at multiples of it."""

    def __init__(self, limit: int, window_s: float) -> None:
        _positive(limit, window_s)
        self._limit, self._window_s = limit, window_s
        self._window, self._count = -math.inf, 0

    def take(self, now: float) -> Verdict:
        """See `Limiter`."""
        window = now // self._window_s
        if window > self._window:
            self._window, self._count = window, 0
        allowed = self._count < self._limit
        self._count += allowed
        remaining = self._limit - self._count
        wait_s = 0.0 if remaining else max((self._window + 1) * self._window_s - now, 0.0)
        return Verdict(allowed, self._limit, self._window_s, remaining, wait_s)


class SlidingWindow:
    """At most `limit` requests in any `window_s` seconds."""

    def __init__(self, limit: int, window_s: float) -> None:
        _positive(limit, window_s)
        self._limit, self._window_s = limit, window_s
        self._times: deque[float] = deque(maxlen=limit)

    def take(self, now: float) -> Verdict:
        """See `Limiter`."""
        times = self._times
        while times and times[0] + self._window_s <= now:
            times.popleft()
        allowed = len(times) < self._limit
        if allowed:
            times.append(now)
        remaining = self._limit - len(times)
        wait_s = 0.0 if remaining else times[0] + self._window_s - now
        return Verdict(allowed, self._limit, self._window_s, remaining, wait_s)


class TokenBucket:
    """`rate` requests a second, and up to `burst` at once; it is full at first."""

    def __init__(self, rate: float, burst: int) -> None:
        _positive(rate, burst)
        self._rate, self._burst = rate, burst
        self._tokens, self._at = float(burst), -math.inf

    def take(self, now: float) -> Verdict:
        """See `Limiter`."""
        if now > self._at:
            self._tokens = min(self._burst, self._tokens + (now - self._at) * self._rate)
            self._at = now
        allowed = self._tokens >= 1
        self._tokens -= allowed
        remaining = int(self._tokens)
        wait_s = 0.0 if remaining else (1 - self._tokens) / self._rate
        return Verdict(allowed, self._burst, self._burst / self._rate, remaining, wait_s)


class LeakyBucket:
    """Holds up to `capacity` requests, which leave at `rate` a second; it is empty at first."""

    def __init__(self, rate: float, capacity: int) -> None:
        _positive(rate, capacity)
        self._rate, self._capacity = rate, capacity
        self._level, self._at = 0.0, -math.inf

    def take(self, now: float) -> Verdict:
        """See `Limiter`."""
        if now > self._at:
            self._level = max(0.0, self._level - (now - self._at) * self._rate)
            self._at = now
        allowed = self._level + 1 <= self._capacity
        self._level += allowed
        remaining = int(self._capacity - self._level)
        wait_s = 0.0 if remaining else (self._level + 1 - self._capacity) / self._rate
        return Verdict(allowed, self._capacity, self._capacity / self._rate, remaining, wait_s)


def _positive(*values: float) -> None:
    if not all(value > 0 and value < math.inf for value in values):
        raise ValueError("limits and times must be above 0")
