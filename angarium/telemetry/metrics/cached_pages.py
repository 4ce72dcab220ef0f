"""Cached pages of metrics: frequent requests do not hold up the event loop."""

import math
import time
from collections.abc import Callable, Iterable

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

REUSE_FACTOR = 10
"""Metrics and their pages are reused for this many times as long as it took to make them: a reading looks at
each actor in memory."""


class CachedPages:
    """The metrics of a collector, and pages of them in several formats, which share one reading."""

    def __init__(self, metrics: Collector) -> None:
        self._collector = metrics
        self._metrics: list[Metric] = []
        self._pages: dict[Callable[[Collector], bytes], bytes] = {}
        self._good_until = -math.inf

    def collect(self) -> list[Metric]:
        """Read all metrics now, for the pages as well."""
        began_at = time.monotonic()
        self._metrics = list(self._collector.collect())
        self._pages = {}
        self._reuse_after(began_at)
        return self._metrics

    def page(self, generate: Callable[[Collector], bytes]) -> bytes:
        """The page that this function makes of them."""
        began_at = time.monotonic()
        if began_at >= self._good_until:
            self.collect()
        page = self._pages.get(generate)
        if page is None:
            page = self._pages[generate] = generate(_Read(self._metrics))
            self._reuse_after(began_at)
        return page

    def renew(self) -> None:
        """Read again for the next page."""
        self._good_until = -math.inf

    def _reuse_after(self, began_at: float) -> None:
        done_at = time.monotonic()
        self._good_until = max(self._good_until, done_at + REUSE_FACTOR * (done_at - began_at))


class _Read(Collector):
    """Metrics that were read before."""

    def __init__(self, metrics: Iterable[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> Iterable[Metric]:
        """All of them."""
        return self._metrics
