"""The metrics of a process of the HTTP API: its requests, by what they do and how they were answered."""

import time
from collections.abc import Iterator
from typing import Literal

from litestar.types import Message, Send
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from actors.delivery_totals import ATTEMPT_BOUNDS_S, Histogram
from angarium.telemetry.metrics.families import histograms, labelled, single
from streams.nats.jetstream import JetStream

Operation = Literal["publish", "read", "change"]
"""The kinds of requests; `publish` is of one event."""


class RequestTotals:
    """Totals of requests since the process began; `answer_s` is the time to the beginning of the answer."""

    __slots__ = ("answer_s", "answered")

    def __init__(self) -> None:
        self.answered: dict[tuple[str, str], int] = {}
        self.answer_s: dict[str, Histogram] = {}

    def add(self, operation: Operation, status: int, began_at: float) -> None:
        """Count a request that is answered now; `began_at` is by the monotonic clock."""
        key = operation, f"{status // 100}xx"
        self.answered[key] = self.answered.get(key, 0) + 1
        if operation not in self.answer_s:
            self.answer_s[operation] = Histogram(ATTEMPT_BOUNDS_S)
        self.answer_s[operation].add(time.monotonic() - began_at)

    def counting(self, send: Send, method: str) -> Send:
        """Send, and count the request when its answer begins."""
        began_at = time.monotonic()
        operation: Operation = "read" if method in ("GET", "HEAD") else "change"

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                self.add(operation, message["status"], began_at)
            await send(message)

        return sending


class ApiMetrics(Collector):
    """The metrics of a process of the HTTP API."""

    def __init__(self, totals: RequestTotals, js: JetStream) -> None:
        self._totals = totals
        self._js = js

    def collect(self) -> Iterator[Metric]:
        """All metrics, in the order of the table."""
        yield labelled("angarium_api_requests_total", self._totals.answered)
        yield histograms("angarium_api_request_seconds", self._totals.answer_s)
        yield single("angarium_nats_connected", self._js.wire.is_connected)
