"""Measurement of one receiver: outcomes are gathered for a second or longer, in memory only."""

from actors.machine.outcome import Answered, Failed, Verdict, judge, retry_after_s
from actors.machine.pace.pace import Observation
from actors.machine.pace.quota_headers import QUOTA_HEADERS, Quota, quotas

SPAN_MIN_S = 1.0
"""Shortest span whose rates count. Observations are this far apart, so at most as many facts are written."""
SPAN_MAX_S = 10.0
ANSWERS_MIN = 16
"""A span with fewer answers lasts longer, up to `SPAN_MAX_S`."""
LATENCIES_MAX = 64


class _Span:
    """The outcomes since the first attempt of a span."""

    __slots__ = ("accepted", "answers", "in_flight_max", "latencies", "limit_was_reached", "overloaded",
                 "refused_began_at", "since", "started", "throttled")  # fmt: skip

    def __init__(self, since: float | None = None) -> None:
        self.since = since
        self.started = self.accepted = self.answers = self.throttled = self.overloaded = 0
        self.in_flight_max = 0
        self.refused_began_at = 0.0
        self.latencies = list[float]()
        self.limit_was_reached = False


class PaceMeasurement:
    """The outcomes since the last observation, and what counts of the span before."""

    __slots__ = ("_latency_ms", "_quotas_at", "_rates", "_refused_at", "_span")

    def __init__(self) -> None:
        self._span = _Span()
        self._rates = (0.0, 0.0)
        self._latency_ms: float | None = None
        self._refused_at = self._quotas_at = float("-inf")

    def start(self, now: float, in_flight: int) -> None:
        """Count an attempt that starts, and of which there are so many in flight with it."""
        span = self._span
        if span.since is None:
            span.since = now
        span.started += 1
        span.in_flight_max = max(span.in_flight_max, in_flight)

    def reach_limit(self) -> None:
        """Note that a learnt limit holds attempts back."""
        self._span.limit_was_reached = True

    def end(self, outcome: Answered | Failed, now: float) -> bool:
        """Count the outcome of an attempt. True if an observation is due: after a span, or a refusal."""
        if isinstance(outcome, Failed) and outcome.is_our_failure:
            return False  # It did not reach the receiver.
        span = self._span
        span.answers += 1
        match outcome:
            case Answered(status=429):
                span.throttled += 1
                span.refused_began_at = now - outcome.latency_ms / 1000
            case Answered(status=503) | Failed(error="timeout"):
                span.overloaded += 1
                span.refused_began_at = now - outcome.latency_ms / 1000
            case _:
                # A failure for another reason says nothing about load.
                span.accepted += 1
        delivered = isinstance(outcome, Answered) and 200 <= outcome.status < 300
        if delivered and len(span.latencies) < LATENCIES_MAX:
            span.latencies.append(outcome.latency_ms)
        length = 0.0 if span.since is None else now - span.since
        if self.is_refused:
            return length >= SPAN_MIN_S or now - self._refused_at >= SPAN_MIN_S
        return length >= SPAN_MAX_S or (length >= SPAN_MIN_S and span.answers >= ANSWERS_MIN)

    @property
    def is_refused(self) -> bool:
        """True if an attempt was refused since the last observation."""
        return bool(self._span.throttled or self._span.overloaded)

    def quotas_to_observe(self, outcome: Answered | Failed, now: float) -> tuple[Quota, ...]:
        """The quotas in the headers of the answer, if they are worth an observation now.

        A time in `Retry-After` is the receiver's own word on when to continue, so then they do not count.
        """
        if isinstance(outcome, Failed) or QUOTA_HEADERS.isdisjoint(name for name, _ in outcome.headers):
            return ()
        if judge(outcome, now) is Verdict.THROTTLED and retry_after_s(outcome, now):
            return ()
        found = quotas(outcome, now)
        if not found or (now - self._quotas_at < SPAN_MIN_S and all(quota.left >= 1 for quota in found)):
            return ()
        self._quotas_at = now
        return found

    def observe(self, now: float, resumes_at: float) -> Observation:
        """The observation until now; the next one begins.

        Of this span and the one before, the higher rates and the lower latency count: one bad second is no
        trouble. A span that a refusal cut short says nothing about rates.
        """
        span, rates = self._span, self._rates
        length = 0.0 if span.since is None else now - span.since
        if length >= SPAN_MIN_S:
            self._rates = (span.started / length, span.accepted / length)
            rates = (max(rates[0], self._rates[0]), max(rates[1], self._rates[1]))
        latency_ms = sum(span.latencies) / len(span.latencies) if span.latencies else None
        known = [each for each in (latency_ms, self._latency_ms) if each is not None]
        self._latency_ms = latency_ms
        refused = span.throttled + span.overloaded > 0
        if refused:
            self._refused_at = now
        self._span = _Span(None if refused else now)
        started_per_s_min = span.started / max(length, SPAN_MIN_S)
        return Observation(
            started_per_s=rates[0], started_per_s_min=started_per_s_min, accepted_per_s=rates[1],
            answers=span.answers, throttled=span.throttled, overloaded=span.overloaded,
            refused_began_at=span.refused_began_at, limit_was_reached=span.limit_was_reached,
            in_flight_max=span.in_flight_max, resumes_at=resumes_at,
            latency_ms=min(known) if latency_ms is not None else None,
        )  # fmt: skip
